"""The demo: what it draws, what it claims, and that the other commands take its files."""

import csv
import io

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from skh2edl import HyperOpinion, Taxonomy, load_model
from skh2edl.cli import demo
from skh2edl.cli.app import app
from skh2edl.datasets import make_glyphs
from skh2edl.estimators.model_card import read_card


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A demo too short to learn much, in 80 columns."""
    folder = tmp_path_factory.mktemp("demo") / "here"
    console = Console(file=io.StringIO(), width=80)
    demo.run(console, folder, 1500, 1)
    return folder, console.file.getvalue()


def test_the_demo_shows_three_pictures_each_with_opinion_and_flat_probability(shown):
    _, text = shown
    for title in ("A clear letter.", "The same letter, blurred.", "An O."):
        assert title in text
    assert text.count("The opinion says") == text.count("Flat-CE says") == 3
    assert text.count("Hedged at 95 %:") == 3


def test_the_demo_keeps_to_eighty_columns(shown):
    lines = [line.rstrip() for line in shown[1].splitlines() if "skh2edl " not in line]
    lines = [line for line in lines if str(shown[0].parent) not in line]
    assert max(map(len, lines)) <= 80


def test_no_number_of_the_opinion_is_cut(shown):
    assert "…" not in "".join(line for line in shown[1].splitlines() if " mass " in line)
    tables = [line for line in shown[1].splitlines() if line.rstrip().endswith("1.00  1.00")]
    assert all("…" not in line for line in tables)


def test_the_next_commands_take_the_files_of_the_demo(shown, tmp_path):
    folder, text = shown
    model = folder / "glyphs.safetensors"
    assert load_model(model).taxonomy_.n_leaves == 197
    assert read_card(model).needed.size == 150
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    command = f"skh2edl predict {model} {folder / 'pictures'} --out predictions.csv"
    assert command in text.replace("\n", "")
    out = tmp_path / "predictions.csv"
    result = CliRunner().invoke(
        app, ["predict", str(model), str(folder / "pictures"), "--out", str(out), "--workers", "0"]
    )
    assert result.exit_code == 0, result.output
    with out.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 40


def test_the_demo_computes_with_one_thread_and_gives_the_others_back(monkeypatch):
    import torch

    seen = []
    monkeypatch.setattr(demo, "_say", lambda *_: seen.append(torch.get_num_threads()) or 1 / 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError, match="division"):
            demo.run(Console(file=io.StringIO()), None, 1, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_the_least_distorted_pictures_are_shown():
    glyphs = make_glyphs(2000, random_state=0)
    clear, blurred, round_one = demo.choose_stories(glyphs.images, glyphs.labels, glyphs.info)
    assert clear.label == blurred.label == "CYRILLIC CAPITAL LETTER ZHE"
    row = int(np.flatnonzero((glyphs.images == clear.pixels).all(axis=(1, 2)))[0])
    assert glyphs.labels[row] == clear.label
    # A blur takes the fine differences between neighbours away.
    roughness = [np.abs(np.diff(s.pixels.astype(float))).mean() for s in (clear, blurred)]
    assert roughness[1] < 0.6 * roughness[0]
    assert round_one.label == "LATIN CAPITAL LETTER O"


def test_a_picture_is_dark_where_there_is_ink():
    pixels = np.full((32, 32), 250, dtype=np.uint8)
    pixels[:16, :16] = 10
    lines = demo.draw_picture(pixels).splitlines()
    assert len(lines) == 13
    assert {len(line) for line in lines} == {26}
    assert lines[0][:13] == "█" * 13
    assert set("".join(lines[7:])) == {" "}
    assert demo.draw_picture(pixels, demo.ASCII).isascii()


def test_the_drawn_opinion_has_the_hand_computed_numbers():
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    opinion = HyperOpinion.from_evidence(tree, [[16, 2, 6, 0]])
    console = Console(file=io.StringIO(), width=60)
    console.print(demo.opinion_table(opinion, "puma", demo.ASCII))
    rows = [line.split() for line in console.file.getvalue().splitlines()]
    # At the root b = 16/20, u = 2/20; at cat b = 6/8, u = 2/8.
    assert rows[1] == ["root", "0.10", "1.00", "1.00", "1.00"]
    assert rows[2] == ["-", "cat", "0.20", "#", "0.80", "0.85", "0.90"]
    assert rows[3] == ["-", "lynx", "0.60", "###", "0.60", "0.74", "0.90"]
    assert rows[4] == ["-", "puma", "*", "0.00", "0.00", "0.11", "0.30"]
