"""From a model to a table of predictions, and the errors on the way."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from cli_cases import FEATURES, animals, invoke, make_photos, make_zoo, read_csv, write_table

from skh2edl import H2EDLClassifier, HedgedClassifier, Taxonomy, TreeEnsembleClassifier, load_model
from skh2edl.cli import tables
from skh2edl.cli.data import Columns, read_labelled
from skh2edl.estimators.model_card import read_card


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    return folder, make_zoo(folder)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_photos(folder)
    return folder


@pytest.fixture(scope="module")
def wrappers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrappers")
    X, y = np.repeat(np.eye(3), 12, axis=0), np.repeat(["lynx", "puma", "wolf"], 12)
    clf = H2EDLClassifier(backbone=None)
    HedgedClassifier(clf, target_accuracy=0.5).fit(X, y).save(folder / "hedge.safetensors")
    TreeEnsembleClassifier(clf, 2).fit(X, y).save(folder / "ensemble.safetensors")
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "MODEL", "x.csv"),
        ("evaluate", "MODEL", "x.csv"),
        ("calibrate", "MODEL", "x.csv"),
        ("publish", "MODEL", "x.csv", "--as", "ranks", "--out", "ranks.csv"),
        ("serve", "MODEL", "--port", 0),
    ],
    ids=lambda command: command[0],
)
def test_a_command_refuses_a_wrapper_and_says_what_to_save(wrappers, command):
    for name, said in {
        "hedge": "holds a HedgedClassifier, .* save its estimator_",
        "ensemble": "holds a TreeEnsembleClassifier, .* save one of its estimators_",
    }.items():
        path = wrappers / f"{name}.safetensors"
        result = invoke(*(path if part == "MODEL" else part for part in command))
        assert result.exit_code == 1
        assert re.search(said, result.stderr)


def test_the_classifier_inside_a_wrapper_is_a_model_for_the_commands(wrappers, tmp_path):
    table, model = tmp_path / "animals.csv", tmp_path / "inside.safetensors"
    write_table(table, animals(30))
    frame = pd.DataFrame([row[:3] for row in animals(30)], columns=["size", "speed", "ears"])
    labels = [row[-1] for row in animals(30)]
    HedgedClassifier(H2EDLClassifier(backbone=None), 0.5).fit(
        frame.astype(float), labels
    ).estimator_.save(model)
    result = invoke("predict", model, table, "-o", tmp_path / "a.csv")
    assert result.exit_code == 0, result.output
    assert len(read_csv(tmp_path / "a.csv")) == 30


def test_predictions_are_those_of_the_classifier(zoo, tmp_path):
    folder, _ = zoo
    out = tmp_path / "a.csv"
    result = invoke("predict", folder / "model.safetensors", folder / "animals.csv", "-o", out)
    assert result.exit_code == 0, result.output
    rows = read_csv(out)
    clf = load_model(folder / "model.safetensors")
    X = np.array([row[:3] for row in animals(300)], dtype=float)
    frame = pd.DataFrame(X, columns=["size", "speed", "ears"])
    opinion = clf.predict_hyper_opinion(frame)
    assert list(rows[0])[:4] == ["row", "prediction", "prediction_level", "prediction_probability"]
    assert [row["species"] for row in rows] == clf.predict(frame).tolist()
    assert [row["kind"] for row in rows] == clf.predict_level(frame, "kind").tolist()
    kind = clf.predict_proba_level(frame, "kind").max(axis=1)
    assert [float(row["kind_probability"]) for row in rows] == pytest.approx(kind, abs=1e-5)
    for index, row in enumerate(rows[:40]):
        one = opinion[index]
        for column in ("species", "kind", "prediction"):
            if row[column] == "cannot tell":
                continue
            belief, plausibility = one.belief(row[column])[0], one.plausibility(row[column])[0]
            assert float(row[f"{column}_belief"]) == pytest.approx(belief, abs=2e-6)
            assert float(row[f"{column}_plausibility"]) == pytest.approx(plausibility, abs=2e-6)
        assert float(row["nonspecificity"]) == pytest.approx(one.nonspecificity[0], abs=2e-6)
        assert float(row["vacuity_at_root"]) == pytest.approx(one.vacuity[0, 0], abs=2e-6)
        # A wolf has no decision below its kind.
        assert (row["vacuity_at_kind"] == "") == (row["species"] == "wolf")


def test_a_hedge_that_cannot_tell_says_so_without_a_probability(tmp_path):
    from dataclasses import replace

    from skh2edl.estimators.model_card import write_card

    make_zoo(tmp_path)
    model, out = tmp_path / "model.safetensors", tmp_path / "a.csv"
    # Held-out images that were all predicted wrongly, but for "cannot tell".
    needed = np.full(100, 0.9999)
    write_card(model, replace(read_card(model), needed=needed))
    write_table(tmp_path / "t.csv", [[3, 0, 0, "", ""], [1, 1, 1, "", ""]])
    assert invoke("predict", model, tmp_path / "t.csv", "-o", out).exit_code == 0
    for row in read_csv(out):
        assert row["prediction"] == row["prediction_level"] == "cannot tell"
        for ending in ("probability", "belief", "plausibility", "path"):
            assert row[f"prediction_{ending}"] == ""
        assert row["kind"] in ("cat", "dog")


def test_the_prediction_has_its_path_and_levels_without_names_are_numbered(photos, tmp_path):
    out = tmp_path / "a.csv"
    model, data = photos / "model.safetensors", photos / "data"
    asked = ("--target-accuracy", 0.5, "--workers", 0)
    assert invoke("predict", model, data, "-o", out, *asked).exit_code == 0
    rows = read_csv(out)
    assert {"level_1", "finest_level"} <= rows[0].keys()
    paths = {"red": "warm/red", "pink": "warm/pink", "warm": "warm", "green": "green"}
    levels = {"warm": "level 1", "cannot tell": "cannot tell"}
    for row in rows:
        said = row["prediction"]
        assert row["prediction_path"] == paths.get(said, "")
        assert row["prediction_level"] == levels.get(said, "finest level")


def test_hedged_predictions_are_those_of_the_hedged_classifier(tmp_path):
    from sklearn.frozen import FrozenEstimator

    from skh2edl import HedgedClassifier

    parts = np.repeat(["train", "train", "val"], 60)
    table, out = tmp_path / "t.csv", tmp_path / "a.csv"
    write_table(
        table,
        [[*row, part] for row, part in zip(animals(180), parts, strict=True)],
        ("size", "speed", "ears", "kind", "species", "split"),
    )
    model = tmp_path / "m.safetensors"
    assert invoke("fit", table, *FEATURES, "-o", model).exit_code == 0
    result = invoke("predict", model, table, "-o", out, "--target-accuracy", 0.9)
    assert result.exit_code == 0, result.output
    columns = Columns(labels=("kind", "species"), features=("size", "speed", "ears"))
    data = read_labelled(table, columns)
    held = data.select(data.split == "val")
    hedged = HedgedClassifier(FrozenEstimator(load_model(model)), target_accuracy=0.9)
    hedged.fit(held.X, held.labels)
    rows = read_csv(out)
    said = [name.replace("root", "cannot tell") for name in hedged.predict(data.X).tolist()]
    assert [row["prediction"] for row in rows] == said
    n_leaves = sum(row["prediction_level"] == "species" for row in rows)
    assert f"species for {n_leaves / 180:.0%}" in " ".join(result.stderr.split())
    assert "On held-out images: species for" in result.stderr


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".parquet"])
def test_every_format_holds_the_same(zoo, tmp_path, ending):
    folder, _ = zoo
    model, data = folder / "model.safetensors", folder / "animals.csv"
    assert invoke("predict", model, data, "-o", tmp_path / "a.csv", "-q").exit_code == 0
    out = tmp_path / f"a{ending}"
    assert invoke("predict", model, data, "-o", out, "-q").exit_code == 0
    if ending == ".parquet":
        found = pyarrow.parquet.read_table(out).to_pylist()
    elif ending == ".json":
        found = json.loads(out.read_text(encoding="utf-8"))
    else:
        found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    as_text = [{k: "" if v is None else str(v) for k, v in row.items()} for row in found]
    assert as_text == read_csv(tmp_path / "a.csv")
    assert isinstance(found[0]["species_probability"], float)


def test_a_column_for_every_decision_can_be_asked_for(zoo, tmp_path):
    folder, _ = zoo
    out = tmp_path / "a.csv"
    invoke(
        "predict",
        folder / "model.safetensors",
        folder / "animals.csv",
        "-o",
        out,
        "--all-vacuities",
    )
    assert {"vacuity_of_root", "vacuity_of_cat"} <= set(read_csv(out)[0])


def test_an_interrupted_run_leaves_no_table_and_is_resumed(zoo, tmp_path, monkeypatch):
    folder, _ = zoo
    out = tmp_path / "a.csv"
    arguments = ("predict", folder / "model.safetensors", folder / "animals.csv", "-o", out)
    invoke(*arguments)
    whole = out.read_bytes()
    out.write_text("an older table")
    add, calls = tables.Spool.add, []

    def stop_at_the_third(self, rows):
        calls.append(1)
        if len(calls) == 3:
            # Half a row on the disk, as after a power cut.
            self._file.write(b'["row 99", ')
            raise KeyboardInterrupt
        add(self, rows)

    monkeypatch.setattr(tables.Spool, "add", stop_at_the_third)
    result = invoke(*arguments)
    assert result.exit_code == 130
    assert "128 of 300 are done; the same command resumes from there." in result.stderr
    assert out.read_text() == "an older table"
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert "Resuming after 128 of 300" in result.stderr
    assert len(calls) == 3 + 3  # 172 rows in blocks of 64
    assert out.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_run_with_other_settings_starts_afresh(zoo, tmp_path, monkeypatch):
    folder, _ = zoo
    out = tmp_path / "a.csv"
    arguments = ("predict", folder / "model.safetensors", folder / "animals.csv", "-o", out)
    with monkeypatch.context() as patch:
        patch.setattr(tables.Spool, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert invoke(*arguments).exit_code == 130
    result = invoke(*arguments, "--target-accuracy", 0.99)
    assert result.exit_code == 0
    assert "Resuming" not in result.stderr
    assert len(read_csv(out)) == 300


def test_two_runs_cannot_write_one_table(zoo, tmp_path):
    folder, _ = zoo
    out = tmp_path / "a.csv"
    first = tables.Spool(out, ["row"], "a run")
    first.add([{"row": "1"}])
    arguments = ("predict", folder / "model.safetensors", folder / "animals.csv", "-o", out)
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert f"Another run is writing {out}" in result.stderr
    first.add([{"row": "2"}])
    first.finish(2)
    assert out.read_text() == "row\n1\n2\n"
    assert invoke(*arguments).exit_code == 0
    assert len(read_csv(out)) == 300


@pytest.mark.parametrize(
    "change", [b'["3"]\n["4"]\n', b"no row\n", b""], ids=["more", "none", "less"]
)
def test_a_table_has_as_many_rows_as_there_are_images(tmp_path, change):
    spool = tables.Spool(tmp_path / "a.csv", ["row"], "a run")
    spool.add([{"row": "1"}, {"row": "2"}])
    content = spool.path.read_bytes()
    spool.path.write_bytes(content + change if change else content[:-1].rpartition(b"\n")[0])
    with pytest.raises(ValueError, match=r"partial holds \d rows, and 2 belong there"):
        spool.finish(2)
    spool.close()
    assert not (tmp_path / "a.csv").exists()


def test_rows_that_something_else_has_changed_are_not_resumed_from(tmp_path):
    spool = tables.Spool(tmp_path / "a.csv", ["row", "leaf"], "a run")
    spool.add([{"row": "1"}, {"row": "2"}, {"row": "3"}])
    spool.close()
    lines = spool.path.read_bytes().splitlines(keepends=True)
    for wrong in (b'["2"]\n', b"{}\n", b"[1, [2]]\n", b"[" * 100_000 + b"\n"):
        spool.path.write_bytes(b"".join([*lines[:2], wrong, *lines[3:]]))
        again = tables.Spool(tmp_path / "a.csv", ["row", "leaf"], "a run")
        assert again.n_done == 1
        again.close()
    other = tables.Spool(tmp_path / "a.csv", ["row", "leaf"], "another run")
    assert other.n_done == 0
    other.close()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="has no such file names")
@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet"])
def test_strange_file_names_are_classified(photos, tmp_path, suffix, monkeypatch):
    source = next(photos.rglob("*.png")).read_bytes()
    names = [b"=1+1.png", b"caf\xe9.png", b"a\rb.png"]
    folder = tmp_path / "strange"
    folder.mkdir()
    for name in names:
        (folder / os.fsdecode(name)).write_bytes(source)
    monkeypatch.chdir(folder)
    out = tmp_path / f"a{suffix}"
    result = invoke("predict", photos / "model.safetensors", ".", "-o", out)
    assert result.exit_code == 0, result.output
    if suffix == ".csv":
        found = [row["image"] for row in read_csv(out)]
        assert found == ["'=1+1.png", "a\rb.png", r"caf\udce9.png"]
        return
    if suffix == ".parquet":
        found = pyarrow.parquet.read_table(out).column("image").to_pylist()
    elif suffix == ".json":
        found = [row["image"] for row in json.loads(out.read_text())]
    else:
        found = [json.loads(line)["image"] for line in out.read_text().splitlines()]
    assert found == ["=1+1.png", "a\rb.png", r"caf\udce9.png"]


def test_an_accuracy_that_the_calibration_cannot_guarantee_is_refused(zoo, tmp_path):
    folder, _ = zoo
    arguments = (folder / "model.safetensors", folder / "animals.csv", "-o", tmp_path / "a.csv")
    result = invoke("predict", *arguments, "--target-accuracy", 0.999)
    assert result.exit_code == 1
    n = read_card(folder / "model.safetensors").needed.size
    assert f"at most {100 * n / (n + 1):.1f} % can be guaranteed, not 99.9 %" in result.stderr


def test_a_model_without_a_hedge_predicts_without_it_and_says_so(tmp_path):
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["wolf"]})
    rows = animals(60)
    X = pd.DataFrame([list(map(float, row[:3])) for row in rows], columns=["size", "speed", "ears"])
    clf = H2EDLClassifier(tree, backbone=None).fit(X, [row[4] for row in rows])
    clf.save(tmp_path / "m.safetensors")
    write_table(tmp_path / "t.csv", rows)
    out = tmp_path / "a.csv"
    result = invoke("predict", tmp_path / "m.safetensors", tmp_path / "t.csv", "-o", out)
    assert result.exit_code == 0
    assert "no hedge for 95%" in result.stderr
    assert {row["prediction_level"] for row in read_csv(out)} == {"finest level"}
    result = invoke(
        "predict",
        tmp_path / "m.safetensors",
        tmp_path / "t.csv",
        "-o",
        out,
        "--target-accuracy",
        0.9,
    )
    assert result.exit_code == 1
    assert "The model has no hedge" in result.stderr


def test_images_of_a_folder_are_found_and_a_damaged_one_is_named(photos, tmp_path):
    new = tmp_path / "new" / "deep"
    new.mkdir(parents=True)
    source = photos / "data" / "green" / "0.png"
    (new / "good.png").write_bytes(source.read_bytes())
    (new / "bad.png").write_bytes(b"no picture")
    (new / ".hidden.png").write_bytes(source.read_bytes())
    out = tmp_path / "a.csv"
    arguments = (photos / "model.safetensors", tmp_path / "new", "-o", out, "--workers", 0)
    result = invoke("predict", *arguments)
    assert result.exit_code == 0, result.output
    assert "1 could not be read" in result.stderr
    bad, good = read_csv(out)
    assert (Path(bad["image"]).name, bad["prediction"]) == ("bad.png", "")
    assert "cannot be used as an image: it is in none of the formats" in bad["error"]
    assert good["error"] == ""
    assert good["finest_level"] in ("red", "pink", "green")
    out.unlink()
    result = invoke("predict", *arguments, "--strict")
    assert result.exit_code == 1
    assert "bad.png" in result.stderr
    assert not out.exists()


def test_patterns_tables_and_files_are_put_together_without_repeats(photos, tmp_path):
    data = photos / "data"
    write_table(data.parent / "list.csv", [["data/green/0.png"], ["data/green/1.png"]], ("image",))
    out = tmp_path / "a.json"
    inputs = (str(data / "green" / "1*.png"), data.parent / "list.csv", data / "green" / "0.png")
    result = invoke("predict", photos / "model.safetensors", *inputs, "-o", out, "--workers", 0)
    assert result.exit_code == 0, result.output
    names = [Path(row["image"]).name for row in json.loads(out.read_text())]
    assert names == ["1.png", "10.png", "11.png", "12.png", "13.png", "0.png"]


def test_wrong_usage_of_predict(zoo, tmp_path):
    model = zoo[0] / "model.safetensors"
    result = invoke("predict", model, tmp_path / "x.csv", "-o", tmp_path / "a.xlsx")
    assert result.exit_code == 2
    assert "must end in .csv or .parquet or .json" in result.stderr
    result = invoke("predict", model, tmp_path, "-o", tmp_path / "a.csv")
    assert result.exit_code == 2
    assert "This model reads columns of numbers, not images" in result.stderr
    result = invoke("predict", tmp_path / "no.safetensors", tmp_path)
    assert result.exit_code == 1
    assert "There is no model file" in result.stderr


def test_a_pattern_that_fits_nothing_is_said(photos, tmp_path):
    result = invoke("predict", photos / "model.safetensors", str(tmp_path / "*.jpg"))
    assert result.exit_code == 1
    assert "no image that this pattern fits" in result.stderr
