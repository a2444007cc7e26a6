"""Calibrate, evaluate and export: samples of the fit are told from new ones."""

import json

import numpy as np
import pytest
from cli_cases import FEATURES, animals, invoke, make_photos, make_zoo, write_table

from skh2edl import load_model
from skh2edl.cli.data import Columns, read_labelled
from skh2edl.estimators.model_card import read_card
from skh2edl.report.hedging import threshold_for


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    return folder, make_zoo(folder)


@pytest.fixture
def model(zoo, tmp_path):
    """A copy that a test may change."""
    path = tmp_path / "model.safetensors"
    path.write_bytes((zoo[0] / "model.safetensors").read_bytes())
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    make_photos(folder)
    return folder


def test_calibrate_sets_the_hedge_from_images_that_are_new_to_the_model(model, tmp_path):
    before = read_card(model)
    write_table(tmp_path / "more.csv", animals(100, seed=5) + animals(300)[:1])
    head = load_model(model).network_.head
    result = invoke("calibrate", model, tmp_path / "more.csv", "--keep-probabilities")
    assert result.exit_code == 0, result.output
    after = read_card(model)
    assert after.notes["hedge guarantee"] == "exact"
    seen = int(np.isin(after.trained_on, before.trained_on).all())
    assert seen == 1
    assert after.needed.size in (100, 101)
    assert after.notes["hedge set on"] == f"{after.needed.size} images of more"
    for name, value in load_model(model).network_.head.state_dict().items():
        assert (value == head.state_dict()[name]).all()


def test_a_hedge_is_exact_only_on_images_from_which_nothing_else_was_learnt(model, tmp_path):
    write_table(tmp_path / "first.csv", animals(100, seed=5))
    write_table(tmp_path / "second.csv", animals(100, seed=6))
    called = []
    for name, *options in (
        ("first",), ("second", "--keep-probabilities"), ("first", "--keep-probabilities")
    ):  # fmt: skip
        result = invoke("calibrate", model, tmp_path / f"{name}.csv", *options)
        assert result.exit_code == 0, result.output
        called.append(read_card(model).notes["hedge guarantee"])
    # The first images still determine the probabilities.
    assert called == ["approximate", "exact", "approximate"]


@pytest.mark.parametrize("method", ["h2edl", "flat-ce", "hier-ce", "flat-edl"])
def test_calibrate_mends_the_probabilities_of_an_over_confident_model(tmp_path, method):
    from skh2edl.metrics import level_nll

    write_table(tmp_path / "t.csv", animals(120))
    write_table(tmp_path / "more.csv", animals(240, seed=5))
    model = tmp_path / "m.safetensors"
    fit = ("fit", tmp_path / "t.csv", *FEATURES, "-o", model, "--method", method)
    assert invoke(*fit).exit_code == 0
    clf, card = load_model(model), read_card(model)
    clf.network_.head.rescale(50.0)
    from skh2edl.estimators.model_files import save_model

    save_model(clf, model, card=card)
    columns = Columns(labels=("kind", "species"), features=("size", "speed", "ears"))
    held = read_labelled(tmp_path / "more.csv", columns)
    before = level_nll(held.labels, clf.predict_proba(held.X), clf.taxonomy_, "leaf")
    result = invoke("calibrate", model, tmp_path / "more.csv")
    assert result.exit_code == 0, result.output
    after = load_model(model).predict_proba(held.X)
    assert level_nll(held.labels, after, clf.taxonomy_, "leaf") < before
    assert read_card(model).notes["hedge guarantee"] == "approximate"
    assert "Probabilities calibrated on held-out predictions: ECE" in result.stderr


@pytest.mark.parametrize(
    ("method", "said"), [("h2edl", "evidence as trained"), ("flat-ce", "temperature")]
)
def test_fit_scales_a_softmax_and_keeps_evidence_as_trained(tmp_path, method, said):
    write_table(tmp_path / "t.csv", animals(120))
    model = tmp_path / "m.safetensors"
    fit = ("fit", tmp_path / "t.csv", *FEATURES, "-o", model, "--method", method)
    assert invoke(*fit).exit_code == 0
    assert said in read_card(model).notes["calibration"]
    if method == "h2edl":
        clf = load_model(model)
        assert clf.network_.head.log_scale.exp().item() == pytest.approx(clf.evidence_scale)


def test_calibrate_on_images_none_of_which_can_be_read_says_so(model, tmp_path, monkeypatch):
    from skh2edl.estimators import cross_fitting

    def unreadable(estimator, X, read=cross_fitting.on_features):
        bare, features, usable = read(estimator, X)
        return bare, features, np.zeros_like(usable)

    monkeypatch.setattr(cross_fitting, "on_features", unreadable)
    write_table(tmp_path / "more.csv", animals(30, seed=5))
    before = model.read_bytes()
    result = invoke("calibrate", model, tmp_path / "more.csv")
    assert result.exit_code == 1
    assert "None of the labelled images of more can be read" in " ".join(result.stderr.split())
    assert model.read_bytes() == before


def test_calibrate_gives_every_subject_one_vote(model, tmp_path):
    rows = [[*row, f"animal {index // 5}"] for index, row in enumerate(animals(200, seed=5))]
    # One photograph of an animal was in the fit: the whole animal is known.
    write_table(tmp_path / "all.csv", animals(300))
    trained = set(read_card(model).trained_on.tolist())
    from skh2edl.cli.calibrate import content_hashes_of

    columns = Columns(labels=("kind", "species"), features=("size", "speed", "ears"))
    hashes = content_hashes_of(read_labelled(tmp_path / "all.csv", columns))
    known = next(i for i, value in enumerate(hashes.tolist()) if value in trained)
    rows[0] = [*animals(300)[known], "animal 0"]
    names = ("size", "speed", "ears", "kind", "species", "animal")
    write_table(tmp_path / "more.csv", rows, names)
    result = invoke("calibrate", model, tmp_path / "more.csv", "--group-column", "animal")
    assert result.exit_code == 0, result.output
    assert "5 of 200 samples are of subjects that trained the model" in result.stderr
    card = read_card(model)
    assert card.needed.size == 39
    assert card.notes["hedge set on"] == "39 subjects (195 images) of more"
    assert "Hedge, set on 39 subjects" in result.stderr

    # The same thresholds as a hedged classifier's, with whole votes: 0.95 of 40 is the 38th.
    from sklearn.frozen import FrozenEstimator

    from skh2edl import HedgedClassifier
    from skh2edl.report.hedging import threshold_for

    held = read_labelled(tmp_path / "more.csv", Columns(**{**vars(columns), "group": "animal"}))
    held = held.select(held.groups != "animal 0")
    hedged = HedgedClassifier(FrozenEstimator(load_model(model)), 0.95)
    hedged.fit(held.X, held.labels, groups=held.groups)
    assert threshold_for(card.needed, 0.95) == pytest.approx(hedged.threshold_, abs=1e-6)


@pytest.mark.parametrize("options", [(), ("--keep-probabilities",)])
def test_calibrate_does_not_replace_a_hedge_by_one_of_a_few_subjects(model, tmp_path, options):
    rows = [[*row, f"animal {index // 25}"] for index, row in enumerate(animals(200, seed=5))]
    names = ("size", "speed", "ears", "kind", "species", "animal")
    write_table(tmp_path / "few.csv", rows, names)
    before = model.read_bytes()
    few = tmp_path / "few.csv"
    result = invoke("calibrate", model, few, "--group-column", "animal", *options)
    assert result.exit_code == 1
    # 8 of 9 ranks are 88.9 %; nine subjects reach 90 %.
    assert "8 subjects can guarantee 88.9% at most" in result.stderr.replace("\n", " ")
    assert "Give at least 9 with labels" in result.stderr.replace("\n", " ")
    assert model.read_bytes() == before


def test_calibrate_takes_the_subjects_of_the_fit(tmp_path):
    names = ("size", "speed", "ears", "kind", "species", "animal")
    rows = [[*row, f"{index // 4}"] for index, row in enumerate(animals(120))]
    write_table(tmp_path / "t.csv", rows, names)
    out = tmp_path / "m.safetensors"
    fit = ("fit", tmp_path / "t.csv", *FEATURES, "--group-column", "animal", "-o", out)
    assert invoke(*fit).exit_code == 0
    more = [[*row, f"{index // 2}"] for index, row in enumerate(animals(60, seed=3))]
    write_table(tmp_path / "more.csv", more, names)
    assert invoke("calibrate", out, tmp_path / "more.csv").exit_code == 0
    assert read_card(out).notes["hedge set on"] == "30 subjects (60 images) of more"
    write_table(tmp_path / "other.csv", animals(60, seed=4))
    result = invoke("calibrate", out, tmp_path / "other.csv")
    assert "fitted with subjects, of column 'animal', which" in result.stderr
    assert read_card(out).notes["hedge set on"] == "60 images of other"


def test_calibrate_refuses_what_the_model_was_trained_on(zoo):
    folder, _ = zoo
    result = invoke("calibrate", folder / "model.safetensors", folder / "animals.csv")
    assert result.exit_code == 1
    assert "The model was trained on all 300 samples" in result.stderr


def test_evaluate_skips_samples_of_the_fit(tmp_path):
    write_table(tmp_path / "t.csv", animals(300))
    out, figures, model = tmp_path / "r.html", tmp_path / "f.json", tmp_path / "m.safetensors"
    fit = ("fit", tmp_path / "t.csv", *FEATURES, "-o", model, "--test-fraction", 0.2)
    assert invoke(*fit).exit_code == 0
    result = invoke("evaluate", model, tmp_path / "t.csv", "-o", out, "--json", figures)
    assert result.exit_code == 0, result.output
    assert "240 of 300 samples were used to fit the model" in result.stderr
    content = json.loads(figures.read_text(encoding="utf-8"))
    assert content["n_samples"] == 60
    assert content["facts"]["evaluated on"] == "60 of 300 samples of t, new to it"
    assert "Which level can I trust?" in result.stdout
    assert "How far does the hedge go?" in result.stdout
    said = " ".join(result.stderr.split())
    assert (
        "All figures rest on 60 images: an accuracy measured on so few is uncertain by up" in said
    )
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_evaluate_judges_training_samples_by_fits_that_held_them_out(zoo, model, tmp_path, factor):
    from sklearn.model_selection import StratifiedKFold

    from skh2edl import H2EDLClassifier
    from skh2edl.estimators.model_files import save_model
    from skh2edl.metrics import level_accuracy, level_nll

    folder, _ = zoo
    figures = tmp_path / "f.json"
    scaled = load_model(model)
    scaled.network_.head.rescale(factor)  # as skh2edl calibrate does; fit leaves it alone
    save_model(scaled, model, card=read_card(model))
    arguments = (model, folder / "animals.csv", "-o", tmp_path / "r.html")
    result = invoke("evaluate", *arguments, "--json", figures)
    assert result.exit_code == 0, result.output
    assert "Each is judged by one of 5 fits that held it out" in " ".join(result.stderr.split())
    content = json.loads(figures.read_text(encoding="utf-8"))
    assert content["n_samples"] == 300
    columns = Columns(labels=("kind", "species"), features=("size", "speed", "ears"))
    data = read_labelled(folder / "animals.csv", columns)
    clf = H2EDLClassifier(data.taxonomy, backbone=None, random_state=0)
    proba = np.empty((300, 3))
    for fitted, held in StratifiedKFold(5).split(data.X, data.labels):
        clf.fit(data.X.iloc[fitted], data.labels[fitted]).network_.head.rescale(factor)
        proba[held] = clf.predict_proba(data.X.iloc[held])
    expected = level_accuracy(data.labels, proba, data.taxonomy, "leaf")
    assert content["levels"][-1]["accuracy"] == pytest.approx(expected, abs=1e-9)
    expected = level_nll(data.labels, proba, data.taxonomy, "leaf")
    assert content["levels"][-1]["nll"] == pytest.approx(expected, abs=1e-5)
    said = " ".join(result.stdout.split())
    assert "Each half of these images set the thresholds of the other half" in said
    least = threshold_for(read_card(model).needed, 0.9)
    assert f"Those of the model file are set on all: {least:.2f}, " in said


def test_the_folder_of_one_class_is_refused_with_the_folder_to_give(photos):
    result = invoke("evaluate", photos / "model.safetensors", photos / "data" / "green")
    assert result.exit_code == 1
    assert "give the folder that holds all of the tree" in " ".join(result.stderr.split())


def test_evaluate_finds_duplicates_of_training_images_in_a_test_part(photos, tmp_path):
    for part in ("train", "test"):
        for place in ("warm/red", "warm/pink", "green"):
            folder = tmp_path / "data" / part / place
            folder.mkdir(parents=True)
            for index in range(3 if part == "train" else 2):
                # The test part has the first picture again, under another name, and a new one.
                number = index if part == "train" else 10 * index
                source = photos / "data" / place / f"{number}.png"
                (folder / f"{part}-{index}.png").write_bytes(source.read_bytes())
    network = ("--backbone", "test_resnet", "--weights", "none", "--image-size", 32)
    out = tmp_path / "m.safetensors"
    assert invoke("fit", tmp_path / "data", "-o", out, *network, "--workers", 0).exit_code == 0
    figures = tmp_path / "f.json"
    arguments = ("-o", tmp_path / "r.html", "--json", figures, "--workers", 0)
    result = invoke("evaluate", out, tmp_path / "data", *arguments)
    assert result.exit_code == 0, result.output
    problems = {each["kind"]: each for each in json.loads(figures.read_text())["problems"]}
    assert sorted(problems["seen_in_training"]["names"]) == [
        "test/green/test-0.png",
        "test/warm/pink/test-0.png",
        "test/warm/red/test-0.png",
    ]


def test_evaluate_refuses_samples_that_a_model_without_folds_has_all_seen(model, tmp_path):
    from dataclasses import replace

    from skh2edl.estimators.model_card import write_card

    card = read_card(model)
    write_card(model, replace(card, notes={"data": "animals"}))
    write_table(tmp_path / "t.csv", animals(300))
    out = ("-o", tmp_path / "r.html", "--labels", "kind,species")
    result = invoke("evaluate", model, tmp_path / "t.csv", *out)
    assert result.exit_code == 1
    assert "has seen all 300 samples of t in its fit" in result.stderr
    assert invoke("evaluate", model, tmp_path / "t.csv", *out, "--split", "all").exit_code == 0


def test_evaluate_falls_back_on_the_part_that_calibrated_a_network(tmp_path):
    write_table(tmp_path / "t.csv", animals(300))
    model, figures = tmp_path / "m.safetensors", tmp_path / "f.json"
    flags = ("--solver", "adamw", "--epochs", 2)
    assert invoke("fit", tmp_path / "t.csv", *FEATURES, "-o", model, *flags).exit_code == 0
    arguments = (model, tmp_path / "t.csv", "-o", tmp_path / "r.html", "--json", figures)
    result = invoke("evaluate", *arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(figures.read_text())["n_samples"] == 30
    assert "30 samples of t that calibrated the model and did not train it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--split", "half"), "--split must be test, val, train or all, got 'half'"),
        (("--split", "val"), "animals has no parts"),
        (("-o", "r.pdf"), "must end in .html or .htm"),
        (("--json", "f.txt"), "must end in .json"),
    ],
)
def test_wrong_usage_of_evaluate(zoo, arguments, message):
    folder, _ = zoo
    result = invoke("evaluate", folder / "model.safetensors", folder / "animals.csv", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_export_writes_the_model_that_was_named(zoo, tmp_path, monkeypatch):
    # What is inside is the subject of test_export.py.
    def export(estimator, path):
        path.write_text(",".join(estimator.classes_))

    monkeypatch.setattr("skh2edl.estimators.onnx.export_onnx", export)
    folder, _ = zoo
    result = invoke("export", folder / "model.safetensors", tmp_path / "m.onnx")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "m.onnx").read_text() == "lynx,puma,wolf"
    result = invoke("export", folder / "model.safetensors", tmp_path / "m.pt")
    assert result.exit_code == 2
    assert "must end in .onnx" in result.stderr


def test_a_model_of_very_many_samples_keeps_no_hashes_and_is_evaluated_on_all(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("skh2edl.cli.calibrate._MAX_HASHES", 10)
    make_zoo(tmp_path)
    model = tmp_path / "model.safetensors"
    assert read_card(model).trained_on.size == 0
    result = invoke("evaluate", model, tmp_path / "animals.csv", "-o", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert "no record of the images that it was trained on" in result.stderr
    assert "are not skipped" in " ".join(result.stderr.split())
    result = invoke("calibrate", model, tmp_path / "animals.csv")
    assert result.exit_code == 1
    assert "has no record of the images that it was trained on" in result.stderr
    result = invoke("calibrate", model, tmp_path / "animals.csv", "--trust-unseen")
    assert result.exit_code == 0, result.output
