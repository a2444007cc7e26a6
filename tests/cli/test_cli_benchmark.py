"""``skh2edl benchmark``: one line from data to tables."""

import re

import pytest
from typer.testing import CliRunner

import skh2edl.benchmark
from skh2edl.benchmark import finetuned_protocol, preset_experiments
from skh2edl.cli.app import app
from skh2edl.datasets import make_glyphs


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("SKH2EDL_TRACEBACK", raising=False)

    def invoke(*arguments):
        return CliRunner().invoke(app, ["benchmark", *map(str, arguments)])

    return invoke


def test_help_shows_the_papers_protocol_in_one_line(run):
    result = run("--help")
    assert result.exit_code == 0
    text = " ".join(result.output.split())
    assert "skh2edl benchmark --dataset fgvc_aircraft --root data --preset paper" in text
    for option in ("--weights", "--records", "--n-jobs", "--features-cache", "--tables-only"):
        assert option in text


def test_the_paper_preset_lists_the_papers_protocol(run):
    result = run("--dataset", "fgvc_aircraft", "--preset", "paper", "--list")
    assert result.exit_code == 0, result.output
    names = result.output.split()
    assert names == [each.name for each in preset_experiments("fgvc_aircraft", "paper")]
    # Nine methods, three seeds: Flat-CE, Flat-EDL, Hier-CE, HENN, I-EDL and H2EDL are the paper's.
    runs = preset_experiments("fgvc_aircraft", "paper", tables=["main"])
    assert len(runs) == 27
    assert {dict(each.parameters)["backbone"] for each in runs} == {"resnet50"}
    assert {(each.epochs, each.weights) for each in runs} == {(100, "pretrained")}


@pytest.mark.parametrize(
    ("dataset", "option", "kind"),
    [
        ("glyphs", None, "epochs"),
        ("glyphs", "--frozen", "features"),
        ("grocery_store", None, "features"),
        ("grocery_store", "--trained", "epochs"),
    ],
)
def test_a_network_is_frozen_or_trained_as_asked(run, dataset, option, kind):
    asked = [] if option is None else [option]
    result = run("--dataset", dataset, "--preset", "quick", "--list", *asked)
    assert result.exit_code == 0, result.output
    frozen = {"--frozen": True, "--trained": False, None: None}[option]
    runs = preset_experiments(dataset, "quick", frozen=frozen)
    assert result.output.split() == [each.name for each in runs]
    assert all(getattr(each, kind) for each in runs)


@pytest.mark.slow
def test_a_run_ends_in_tables_and_a_second_one_in_the_same(run, tmp_path, monkeypatch):
    recipe = {"image_size": 32, "recipe__augmentation": "none"}
    monkeypatch.setattr(
        skh2edl.benchmark,
        "preset_experiments",
        lambda *_, **__: finetuned_protocol(
            "glyphs", "test_resnet", weights=None, epochs=1, seeds=(0,), parameters=recipe,
            methods=["Flat-CE", "H2EDL"], tables=["main"],
        ),
    )  # fmt: skip
    monkeypatch.setattr(
        skh2edl.benchmark,
        "load_dataset",
        lambda *_: make_glyphs(60, scripts=("Latin", "Greek"), random_state=0),
    )
    result = run("--dataset", "glyphs", "--records", tmp_path)
    assert result.exit_code == 0, result.output
    assert "2 experiments, records in" in result.output
    main = tmp_path / "tables" / "glyphs-test_resnet-main.md"
    assert str(main) in result.output.replace("\n", "")
    first = main.read_bytes()
    assert b"| H2EDL | yes |" in first
    again = run("--tables-only", "--records", tmp_path, "--tables", tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "again" / main.name).read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "birds"], "--dataset must be one of .* got 'birds'"),
        (["--preset", "slow"], "--preset must be one of .* got 'slow'"),
        (["--dataset", "grocery_store"], "is read from a folder. Name it with --root"),
        (["--table", "majn", "--list"], "--table must be one of main, .* got 'majn'"),
        (["--tables-only", "--records", "nowhere"], "--records must be a folder, and"),
    ],
)
def test_a_wrong_option_is_named_by_its_flag(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 1
    text = " ".join(result.stderr.split())
    assert "Error: " in text
    assert "Traceback" not in text
    assert re.search(message, text), text


def test_a_folder_without_records_is_an_error(run, tmp_path):
    result = run("--tables-only", "--records", tmp_path)
    assert result.exit_code == 1
    assert "holds no record, so there is no table" in " ".join(result.stderr.split())
