"""Every example runs, and shows what it says it shows."""

import ast
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs an example in an empty folder: its names, and what it prints."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SKH2EDL_ASSETS", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return names, capsys.readouterr().out

    yield run
    drawn = matplotlib.pyplot.get_fignums()
    matplotlib.pyplot.close("all")
    assert drawn, "an example has a picture: it is its thumbnail in the gallery"


def figures(pattern, printed):
    return [float(number) for number in re.findall(pattern, printed)]


def test_every_example_is_run_here_or_with_the_clusters():
    here = set(re.findall(r"run\(\"(\w+)\"", Path(__file__).read_text(encoding="utf-8")))
    with_clusters = {"dask_batch_inference", "dask_grid_search"}
    assert here | with_clusters == {path.stem for path in EXAMPLES.glob("*.py")}


def test_every_example_begins_with_a_title_and_a_text():
    for path in EXAMPLES.glob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert re.match(r"([^\n]+)\n(=+)\n\n\w", text), path.name


def test_quick_start(run):
    names, printed = run("quick_start")
    assert names["clf"].score(names["X_test"], names["y_test"]) > 0.9
    assert "the least certain one: Cannot tell" in printed


@pytest.mark.slow
def test_my_folder(run, tmp_path):
    names, _ = run("my_folder", "--epochs", "9")
    assert list(tmp_path.rglob("model.safetensors"))
    train, test = names["train"], names["test"]
    assert not set(train.ids) & set(test.ids)
    # Some pictures lie in an inner folder.
    assert {"digit", "letter"} <= set(names["photos"].labels)
    scripts = names["clf"].predict_level(test.images, 1)
    truth = [test.taxonomy.ancestor(label, 1) for label in test.labels]
    assert np.mean(scripts == truth) > 0.6


def test_my_folder_takes_a_folder_of_ones_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["my_folder.py", "nowhere"])
    with pytest.raises(FileNotFoundError, match="there is none at nowhere"):
        runpy.run_path(str(EXAMPLES / "my_folder.py"), run_name="__main__")


@pytest.mark.slow
def test_my_table(run, tmp_path):
    names, printed = run("my_table")
    assert list(tmp_path.rglob("features/*"))
    table = names["table"]
    # Every fifth row has no more than a script.
    assert np.isin(table.labels[::5], ["Common", "Georgian"]).all()
    assert len(np.unique(table.groups)) < len(table)
    script, character = figures(r"right about the (?:script|character): ([\d.]+)", printed)
    assert character < script <= 1
    # Pictures of one subject on both sides of a split inflate the score.
    assert names["scores"]["picture"][-1] > names["scores"]["subject"][-1]


def test_half_labelled(run):
    _, printed = run("half_labelled")
    lines = printed.splitlines()[2:]
    shape = {line[:43].strip(): float(line.split()[-2]) for line in lines}
    assert len(shape) == 6
    kept = next(value for name, value in shape.items() if re.match("H2EDL +as they are", name))
    dropped = [value for name, value in shape.items() if re.search("the fine ones|drop", name)]
    assert len(dropped) == 2
    assert kept > max(dropped) + 0.02


@pytest.mark.slow
def test_grid_search(run):
    names, printed = run("grid_search")
    search = names["search"]
    nll = -search.cv_results_["mean_test_nll"]
    assert search.best_index_ == nll.argmin()
    assert figures(r"^ *[\d.]+ +[\d.]+  ([\d.]+) ", printed.splitlines()[1])[0] == pytest.approx(
        nll[0], abs=5e-4
    )


def test_hedged_predictions(run):
    _, printed = run("hedged_predictions")
    guaranteed = np.array(figures(r"guaranteed (\d+)%", printed)) / 100
    right = np.array(figures(r"([\d.]+)% right:", printed)) / 100
    # Two halves of about 500 and 800 samples: four standard deviations of both together.
    spread = np.sqrt(guaranteed * (1 - guaranteed) * (1 / 500 + 1 / 797))
    assert len(guaranteed) == 6
    assert (np.abs(right - guaranteed) < 4 * spread + 0.005).all()


def test_several_photographs(run):
    _, printed = run("several_photographs")
    one, five = figures(r"(?:one picture|five together): +([\d.]+)%", printed)
    assert five > one + 5


def test_novelty(run):
    _, printed = run("novelty")
    alarms = figures(r"([\d.]+)% +[\d.]+%", printed)
    found = figures(r"kernel .* ([\d.]+)%", printed)
    assert (len(alarms), len(found)) == (6, 3)
    assert max(alarms) < 12
    assert min(found) > 2 * max(alarms)


def test_calibration_and_baselines(run):
    names, printed = run("calibration_and_baselines")
    rows = re.findall(r"^(.+?) {2,}([\d. ]+)$", printed, flags=re.MULTILINE)
    nll = {name: float(values.split()[1]) for name, values in rows}
    assert len(nll) == 2 * len(names["models"])
    calibrated = {
        name: next(value for title, value in nll.items() if title.startswith(f"{name} +"))
        for name in names["models"]
    }
    # One number fitted on held-out data can do next to no harm, and mends overconfidence.
    assert all(calibrated[name] < nll[name] + 0.03 for name in calibrated)
    assert calibrated["Hier-CE"] < nll["Hier-CE"] - 0.1


def test_large_tree(run):
    names, printed = run("large_tree", "--samples", "1000")
    assert names["tree"].n_leaves == 30 * 30 * 25
    assert (names["vacuity"] == 1).all()
    first, among_three = figures(r"(?:right|three): ([\d.]+)", printed)
    assert 0.3 < first <= among_three


@pytest.mark.slow
def test_onnx_deployment(run):
    names, printed = run("onnx_deployment")
    assert names["difference"] < 1e-4
    # A probability at the threshold may fall on either side of it.
    assert figures(r"the same as in Python: ([\d.]+)", printed)[0] > 0.98


@pytest.mark.slow
def test_insects_out_of_focus(run):
    names, _ = run("insects_out_of_focus")
    order, genus, species = names["right"]["H2EDL"]
    assert species < genus < order
    assert order > 0.9
    depth = names["depth"].mean(axis=1)
    # The training images are blurred a little themselves, so the first steps change nothing.
    assert (np.diff(depth[2:]) < 0).all()
    assert depth[0] - depth[-1] > 0.5
    assert (np.diff(names["uncertainty"][2:]) > 0).all()
    # The one that is shown: its predictions only ever climb.
    assert (np.diff(names["depth"][:, names["insect"]]) <= 0).all()


@pytest.mark.slow
def test_displays(run):
    names, _ = run("displays")
    assert names["first"].ax_.get_legend() is not None


@pytest.mark.slow
def test_real_photographs_runs_without_photographs(run):
    _, printed = run("real_photographs")
    assert "LabelledImages('glyphs'" in printed
