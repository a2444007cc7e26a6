"""The demo: that its story is true, that it says so, and that other commands take its files."""

import csv
import io
import multiprocessing
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from skh2edl import load_model
from skh2edl.cli import demo, story
from skh2edl.cli.app import app
from skh2edl.estimators.model_card import read_card
from skh2edl.report.hedging import HedgeFigures


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A demo too short to learn much, in 80 columns."""
    folder = tmp_path_factory.mktemp("demo") / "here"
    console = Console(file=io.StringIO(), width=80)
    demo.run(console, folder, 1500, 1)
    return folder, console.file.getvalue()


@pytest.mark.slow
def test_over_many_insects_the_hedge_climbs_and_u_rises_with_each_step_of_blur(tmp_path):
    insects = story.draw_insects(4000, (0.0, story.BLUR), seed=0)
    seen, held = insects.subset("train"), insects.subset("val")
    model = demo.train("H2EDLClassifier", seen, 5)
    needed = demo.save(model, tmp_path / "model.safetensors", seen, held)
    steps = story.follow(model, model, needed, 500)
    depth = [model.taxonomy_.depths[step.hedge.nodes].mean() for step in steps]
    uncertainty = [step.opinion.nonspecificity.mean() for step in steps]
    assert len(steps) == 6
    assert max(step.blur for step in steps) < story.BLUR  # inside the range of the training
    assert all(sharper > blurrier + 0.05 for sharper, blurrier in pairwise(depth))
    assert all(sharper < blurrier - 0.01 for sharper, blurrier in pairwise(uncertainty))
    # 95 % are guaranteed on average over all blurs, not at each.
    given = np.array([step.hedge.given for step in steps])
    assert (given[:, 0] > 250).all()
    assert (given[:, 1] / given[:, 0]).min() > 0.85


def test_the_insect_shown_is_right_at_all_steps_and_climbs_the_most_with_contrast():
    insects = story.draw_insects(200, 0.0, seed=1)
    tree, truth = insects.taxonomy, insects.taxonomy.resolve(insects.labels)
    chosen = np.flatnonzero(tree.depths[truth] == 3)[:4]
    images = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    images[:, :4] = np.array([200, 255, 20, 40])[:, None, None, None]
    insects = SimpleNamespace(taxonomy=tree, labels=insects.labels[chosen], images=images)
    species = truth[chosen]
    genus, wrong = tree.parents[species], truth[chosen][::-1]
    order = tree.parents[genus]
    # By row: never named finely, wrong once, and twice the whole path, with more contrast last.
    nodes = [
        [order[0], species[1], species[2], species[3]],
        [order[0], wrong[1], genus[2], genus[3]],
        [order[0], order[1], order[2], order[3]],
    ]
    steps = [
        story.Step(0, insects, None, None, SimpleNamespace(nodes=np.array(row)), None)
        for row in nodes
    ]
    assert story.choose(steps) == 3
    # "Cannot tell" is right but names nothing.
    steps.append(steps[-1]._replace(hedge=SimpleNamespace(nodes=np.array([0, 0, order[2], 0]))))
    assert story.choose(steps) == 2


def test_the_hedge_is_shown_with_how_often_it_predicts_and_is_then_right():
    stops = ((20, 20), (40, 36), (40, 38), (100, 96))  # cannot tell, order, genus, species
    hedge = HedgeFigures(0.95, 0.7, 200, 190, 0.9, 0.97, stops, [])
    levels = [
        SimpleNamespace(name=name, accuracy=accuracy)
        for name, accuracy in {"order": 0.98, "genus": 0.91, "species": 0.7}.items()
    ]
    console = Console(file=io.StringIO(), width=80)
    console.print(demo.measures_table(SimpleNamespace(hedges=[hedge], levels=levels), levels))
    rows = [line.replace(" %", "").split() for line in console.file.getvalue().splitlines()[1:]]
    assert rows == [
        ["order", "98", "98", "20", "90"],
        ["genus", "91", "91", "20", "95"],
        ["species", "70", "70", "50", "96"],
        ["any", "level", "90", "94"],
        ["cannot", "tell", "10"],
    ]


def test_the_demo_shows_every_step_beside_flat_ce_in_words_for_people(shown):
    text = shown[1]
    for heading in ("sharp", *(f"blur {blur} px" for blur in story.STEPS[1:])):
        assert text.count(heading) == 1
    assert text.count("(right)") + text.count("(wrong)") == len(story.STEPS)
    for word in ("root", "leaf", "leaves", "read-out"):
        assert word not in text[: text.index("4. Measuring")]


def test_the_demo_keeps_to_eighty_columns(shown):
    lines = [line.rstrip() for line in shown[1].splitlines() if "skh2edl " not in line]
    lines = [line for line in lines if str(shown[0].parent) not in line]
    assert max(map(len, lines)) <= 80


def test_the_next_commands_take_the_files_of_the_demo(shown, tmp_path):
    folder, text = shown
    model = folder / "insects.safetensors"
    assert load_model(model).taxonomy_.level_names == ("order", "genus", "species")
    assert read_card(model).needed.size == 150
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "blur.png").read_bytes().startswith(b"\x89PNG")
    command = f"skh2edl predict {model} {folder / 'pictures'} --out predictions.csv"
    assert command in text.replace("\n", "")
    out = tmp_path / "predictions.csv"
    result = CliRunner().invoke(
        app, ["predict", str(model), str(folder / "pictures"), "--out", str(out), "--workers", "0"]
    )
    assert result.exit_code == 0, result.output
    with out.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == demo.N_FILES + len(story.STEPS)


@pytest.mark.slow
def test_flat_ce_trained_beside_h2edl_is_the_one_trained_alone():
    insects = story.draw_insects(300, (0.0, story.BLUR), seed=0)
    model, flat = demo._train_both(insects, 1, 0)
    alone = demo.train("FlatCEClassifier", insects, 1)
    assert type(model).__name__ == "H2EDLClassifier"
    np.testing.assert_array_equal(
        flat.predict_proba(insects.images[:20]), alone.predict_proba(insects.images[:20])
    )


@pytest.mark.slow
def test_the_demo_says_so_when_the_other_process_ends_early(monkeypatch):
    # An untrained classifier that cannot be fitted ends the process without a model.
    whole = demo._untrained
    monkeypatch.setattr(
        demo, "_untrained", lambda method, *rest: whole(method, *rest) if "H2" in method else None
    )
    insects = story.draw_insects(100, 0.0, seed=0)
    with pytest.raises(RuntimeError, match="Flat-CE ended early"):
        demo._train_both(insects, 1, 0)


def test_the_demo_says_so_when_the_other_process_ends_before_it_has_read_anything(monkeypatch):
    whole, ended = demo._untrained, []

    def spawned():
        # Those of joblib, which other tests start, come and go when they like.
        children = multiprocessing.active_children()
        return [child for child in children if type(child).__name__ == "SpawnProcess"]

    def after_its_end(*arguments):
        (child,) = spawned()
        child.kill()
        ended.append(child)
        return whole(*arguments)

    monkeypatch.setattr(demo, "_untrained", after_its_end)
    # More than a pipe holds.
    insects = story.draw_insects(1500, 0.0, seed=0)
    with pytest.raises(RuntimeError, match="Flat-CE ended early"):
        demo._train_both(insects, 1, 0)
    assert len(ended) == 1
    assert spawned() == []


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
