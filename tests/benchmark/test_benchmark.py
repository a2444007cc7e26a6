"""Experiments, the records they write, and what happens after a failure."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import joblib
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss

from skh2edl import ReEDLClassifier, Taxonomy
from skh2edl.benchmark import (
    Experiment,
    ExperimentError,
    finetuned_protocol,
    frozen_features_of,
    frozen_protocol,
    make_tables,
    read_records,
    remaining,
    run_experiments,
)
from skh2edl.benchmark.protocols import COARSENED, METHODS
from skh2edl.benchmark.records import write_record
from skh2edl.datasets import LabelledImages, coarsen_labels

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["wolf", "fox"], "newt": None})


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(300, 6)) + 2 * np.eye(5, 6)[np.arange(300) % 5]).astype(np.float32)


@pytest.fixture(scope="module")
def data(features):
    return LabelledImages(
        name="zoo",
        images=np.clip(128 + 30 * features[:, :, None] @ features[:, None], 0, 255).astype(
            np.uint8
        ),
        labels=np.array(TREE.leaves)[np.arange(300) % 5],
        taxonomy=TREE,
        split=np.repeat(["train", "val", "test"], [150, 50, 100]),
        ids=[f"animal-{i}" for i in range(300)],
    )


def experiment(method="Flat-CE", classifier="FlatCEClassifier", parameters=(), **fields):
    return Experiment("zoo", method, classifier, parameters, features="plain", **fields)


def run(experiments, data, features, folder, **options):
    return run_experiments(
        experiments, data, folder, features={"plain": features}, verbose=0, **options
    )


# What an experiment is ------------------------------------------------------------------------


def test_equal_experiments_have_one_name_and_any_other_field_another():
    ours = experiment(parameters={"l2": 0.1, "tol": 0.01}, grid=[{"l2": 1}])
    same = experiment(parameters=[("tol", 0.01), ("l2", 0.1)], grid=((("l2", 1),),))
    assert ours == same
    assert ours.name == same.name
    assert hash(ours) == hash(same)
    changes = [
        {"dataset": "sea"}, {"method": "x"}, {"classifier": "x"}, {"parameters": {"l2": 0.2}},
        {"grid": [{"l2": 2}]}, {"features": "other"}, {"weights": None}, {"seed": 1},
        {"train_share": 0.9}, {"epochs": 3}, {"budget": 2}, {"coarse_fraction": 0.5},
        {"coarse_level": 2},
    ]  # fmt: skip
    assert {next(iter(change)) for change in changes} == set(ours.to_dict())
    names = {Experiment.from_dict({**ours.to_dict(), **change}).name for change in changes}
    assert len(names | {ours.name}) == len(changes) + 1


def test_what_cannot_be_recorded_is_refused():
    with pytest.raises(TypeError, match=r"taxonomy=.* cannot be recorded: a parameter"):
        experiment(parameters={"taxonomy": TREE})
    with pytest.raises(ValueError, match="train_share must be above 0 and at most 1, got 0"):
        experiment(train_share=0)
    with pytest.raises(ValueError, match="coarse_fraction must be between 0 and 1, got 2"):
        experiment(coarse_fraction=2)
    with pytest.raises(ValueError, match="an experiment has no field \\['colour'\\]"):
        Experiment.from_dict({"dataset": "zoo", "colour": "red"})


@pytest.mark.parametrize(
    "runs",
    [frozen_protocol("zoo", "plain"), finetuned_protocol("zoo", "test_resnet")],
    ids=["frozen", "finetuned"],
)
def test_a_protocol_gives_every_method_the_same_grid_and_images(runs):
    assert len({run.name for run in runs}) == len(runs)
    assert set(METHODS) <= {run.method for run in runs}
    fair = [run for run in runs if run.method != "H2EDL, nothing chosen"]
    assert len({(run.grid, run.train_share) for run in fair if run.budget == 1 and run.grid}) <= 1
    for fraction in (0.25, 0.5, 0.75):
        rows = [run for run in runs if run.coarse_fraction == fraction]
        assert sorted(run.method for run in rows) == sorted([*COARSENED] * 3)
    twice = [run for run in runs if run.budget == 2]
    assert sorted(run.method for run in twice) == sorted([*METHODS] * 3)
    # Without coarse labels the three treatments of them would be the same fit three times.
    whole = {(run.method, run.seed) for run in runs if not run.coarse_fraction}
    assert not {"Flat-CE, soft", "Flat-CE, drop"} & {method for method, _ in whole}


# What a record holds --------------------------------------------------------------------------


def test_re_edl_as_published_has_plain_softplus_a_prior_of_0_8_and_no_kl():
    (run,) = finetuned_protocol(
        "zoo", "test_resnet", seeds=[0], methods=["Re-EDL"], tables=["constants"], epochs=3
    )[1:]
    assert run.method == "Re-EDL, as published"
    clf = ReEDLClassifier(**dict(run.parameters))
    assert (clf.evidence, clf.evidence_scale, clf.leaf_prior, clf.kl_weight) == (
        "softplus", 1.0, 0.8, 0.0,
    )  # fmt: skip


def test_a_record_scores_what_scikit_learn_fits_on_the_same_samples(data, features, tmp_path):
    # Our objective is sum loss + l2 d / 2 |w|²; scikit-learn's is sum loss + 1 / (2 C) |w|².
    l2 = 0.01
    plain = experiment(parameters={"l2": l2, "tol": 1e-7})
    (path,) = run([plain], data, features, tmp_path)
    record = json.loads(path.read_text())
    train, test = data.split == "train", data.split == "test"
    mean = features[train].mean(axis=0)
    scale = np.sqrt(np.mean(np.var(features[train], axis=0)))
    theirs = LogisticRegression(C=1 / (l2 * features.shape[1]), tol=1e-9, max_iter=5000)
    theirs.fit((features[train] - mean) / scale, data.labels[train])
    proba = theirs.predict_proba((features[test] - mean) / scale)
    predicted = theirs.classes_[proba.argmax(axis=1)]
    # The level has no name in this tree.
    leaf = record["test"]["leaf"]
    assert leaf["accuracy"] == accuracy_score(data.labels[test], predicted)
    assert leaf["balanced_accuracy"] == balanced_accuracy_score(data.labels[test], predicted)
    assert leaf["nll"] == pytest.approx(log_loss(data.labels[test], proba), abs=1e-4)
    assert record["n_images"] == {"train": 150, "val": 50, "test": 100}


def test_a_record_holds_settings_scores_timings_and_versions(data, features, tmp_path):
    run([experiment("H2EDL", "H2EDLClassifier", seed=3)], data, features, tmp_path)
    (record,) = read_records(tmp_path)
    assert Experiment.from_dict(record["experiment"]).seed == 3
    assert set(record["test"]) == set(record["test_calibrated"]) == {"level_1", "leaf", "tree"}
    assert record["calibration"]["method"] == "evidence"
    assert record["temperature"] > 0
    assert len(record["history"]["objective"]) == record["candidates"][0]["n_iter"]
    assert 0 < record["seconds"]["fit"] <= record["seconds"]["all"]
    assert record["peak_memory_mib"] > 10
    assert record["versions"]["numpy"] == np.__version__
    assert sum(record["doubt"]["depth_profile"]) == pytest.approx(
        record["doubt"]["nonspecificity"], abs=1e-6
    )


def test_a_method_without_vacuity_states_the_variance_of_its_probabilities(
    data, features, tmp_path
):
    run([experiment("DAEDL", "DAEDLClassifier")], data, features, tmp_path)
    (record,) = read_records(tmp_path)
    # Variances of probabilities that sum to 1 add up to less than 1 - Σ p² < 1.
    assert 0 < record["doubt"]["variance"] < 1
    assert 0 <= record["doubt"]["variance_error_auroc"] <= 1
    (main,) = (table for name, table in make_tables([record]).items() if name.endswith("main"))
    (row,) = main.rows
    assert row.text["uncertain"] == "✓"
    assert row.text["over_the_tree"] == ""


def test_the_penalty_is_chosen_on_validation_and_not_on_test_images(data, features, tmp_path):
    grid = [{"l2": 10.0}, {"l2": 0.01}, {"l2": 1.0}]
    run([experiment(grid=grid)], data, features, tmp_path / "a")
    # The same with other test images: whatever they are, the choice stays.
    rng = np.random.default_rng(1)
    moved = features.copy()
    moved[data.split == "test"] = rng.normal(size=(100, 6))
    run([experiment(grid=grid)], data, moved, tmp_path / "b")
    (ours,), (other,) = read_records(tmp_path / "a"), read_records(tmp_path / "b")
    by_nll = min(ours["candidates"], key=lambda candidate: candidate["nll"])
    calibrated = min(ours["candidates"], key=lambda candidate: candidate["nll_calibrated"])
    assert ours["chosen"] == by_nll["parameters"] == {"l2": 0.01}
    assert ours["chosen_calibrated"] == calibrated["parameters"]
    assert len({candidate["nll"] for candidate in ours["candidates"]}) == 3
    for key in ("chosen", "chosen_calibrated", "calibration"):
        assert other[key] == ours[key]
    assert [c["nll"] for c in other["candidates"]] == [c["nll"] for c in ours["candidates"]]
    assert other["test"] != ours["test"]


def test_the_seed_of_a_frozen_fit_draws_the_training_images(data, features, tmp_path):
    runs = [experiment(train_share=0.6, seed=seed) for seed in (0, 1)]
    first, second = (json.loads(p.read_text()) for p in run(runs, data, features, tmp_path))
    assert first["n_images"]["train"] == second["n_images"]["train"] == 90
    assert first["test"]["leaf"]["nll"] != second["test"]["leaf"]["nll"]


def test_coarse_labels_reach_the_classifier(data, features, tmp_path):
    train = data.split == "train"
    y = coarsen_labels(data.labels[train], data.ids[train], 0.6, 1, TREE)
    n_leaves = int(np.isin(y, TREE.leaves).sum())
    assert 30 < n_leaves < 120  # so that the two fits below differ
    # "drop" learns from what is still a leaf, and from nothing else: refit without the others.
    dropped = experiment("drop", parameters={"partial_labels": "drop"}, coarse_fraction=0.6)
    kept = np.flatnonzero(train)[np.isin(y, TREE.leaves)]
    rest = np.flatnonzero(~train)
    positions = np.concatenate([kept, rest])
    small = data.select(positions)
    (with_coarse,) = run([dropped], data, features, tmp_path / "a")
    (without,) = run([experiment()], small, features[positions], tmp_path / "b")
    nll = [json.loads(p.read_text())["test"]["leaf"]["nll"] for p in (with_coarse, without)]
    assert nll[0] == pytest.approx(nll[1], rel=1e-3)


def test_training_in_epochs_is_recorded_epoch_by_epoch(data, tmp_path):
    recipe = {
        "image_size": 32,
        "recipe__augmentation": "none",
        "recipe__backbone_lr_scale": 1.0,
    }
    runs = finetuned_protocol(
        "zoo", "test_resnet", weights=None, epochs=2, seeds=(0,), parameters=recipe,
        methods=["Flat-CE"], tables=["main"],
    )  # fmt: skip
    run_experiments(runs, data, tmp_path, machine={"hardware__n_workers": 0}, verbose=0)
    (record,) = read_records(tmp_path)
    assert record["history"]["epoch"] == [0, 1]
    scores = record["history"]["val_score"]
    assert record["best_epoch"] == scores.index(max(scores))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{runs[0].name}.json"]


def test_weights_in_a_file_are_named_by_the_experiment_and_placed_by_the_machine(data, tmp_path):
    runs = finetuned_protocol(
        "zoo", "test_resnet", weights="mine", epochs=1, seeds=(0,), methods=["Flat-CE"],
        tables=["main"],
    )  # fmt: skip
    with pytest.raises(ExperimentError, match="starts from the weights 'mine': say where they are"):
        run_experiments(runs, data, tmp_path, verbose=0)


# Failures -----------------------------------------------------------------------------------


def test_a_record_is_never_written_twice(tmp_path):
    path = tmp_path / "a.json"
    assert write_record(path, {"value": 1.5, "undefined": float("nan")})
    assert not write_record(path, {"value": 2})
    assert json.loads(path.read_text()) == {"value": 1.5, "undefined": None}
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_file_system_without_links_keeps_the_first_record_too(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr("skh2edl.benchmark.records.os.link", refuse)
    path = tmp_path / "a.json"
    assert write_record(path, {"value": 1})
    assert not write_record(path, {"value": 2})
    assert json.loads(path.read_text()) == {"value": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_a_second_run_fits_nothing(data, features, tmp_path, monkeypatch):
    runs = [experiment(seed=seed) for seed in range(2)]
    paths = run(runs, data, features, tmp_path)
    before = [path.stat().st_mtime_ns for path in paths]
    monkeypatch.setattr("skh2edl.benchmark.running.run_experiment", None)
    assert run([*runs, *runs], data, features, tmp_path) == paths
    assert [path.stat().st_mtime_ns for path in paths] == before


def test_one_failure_loses_nothing_and_is_tried_again(data, features, tmp_path):
    bad = experiment("broken", parameters={"risk": "none"})
    good = [experiment(), experiment("Hier-CE", "HierCEClassifier")]
    with pytest.raises(ExperimentError, match=r"1 of 3 experiments failed, first .*broken.*risk"):
        run([bad, *good], data, features, tmp_path)
    assert [r["experiment"]["method"] for r in read_records(tmp_path)] == ["Flat-CE", "Hier-CE"]
    (trouble,) = (tmp_path / "errors").iterdir()
    assert trouble.stem == bad.name
    assert "Traceback" in trouble.read_text()
    assert "ValueError: Invalid parameter 'risk'" in trouble.read_text()
    with pytest.raises(ExperimentError, match="1 of 1 experiments failed"):
        run([bad, *good], data, features, tmp_path)


def test_a_traceback_goes_when_the_experiment_succeeds(data, features, tmp_path):
    trouble = tmp_path / "errors" / f"{experiment().name}.txt"
    trouble.parent.mkdir()
    trouble.write_text("the disk was full")
    run([experiment()], data, features, tmp_path)
    assert not trouble.parent.exists()


def test_records_of_other_data_are_not_taken_for_these(data, features, tmp_path):
    run([experiment()], data, features, tmp_path)
    fewer = data.select(slice(0, 290))
    with pytest.raises(ValueError, match=r"other images, labels, splits or levels of 'zoo'"):
        run([experiment()], fewer, features[:290], tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": {}}, r"features must hold those of \['plain'\], and holds \[\]"),
        ({"features": {"plain": np.zeros((3, 2))}}, "one row for each of the 300 images, got"),
        ({"experiments": [Experiment("sea", "m", "c")]}, r"are about \['sea'\] and the data are"),
        ({"data": "train"}, r"no images in \['val', 'test'\], and an experiment needs"),
    ],
)
def test_wrong_arguments_are_named(data, features, tmp_path, change, message):
    given = {"experiments": [experiment()], "features": {"plain": features}, **change}
    part = data if "data" not in change else data.subset("train")
    if "data" in change:
        given["features"] = {"plain": features[:150]}
    with pytest.raises(ValueError, match=message):
        run_experiments(given["experiments"], part, tmp_path, features=given["features"], verbose=0)


def test_a_file_that_is_no_record_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match=r"x\.json is not the record of an experiment"):
        read_records(tmp_path)
    with pytest.raises(FileNotFoundError, match="records must be a folder, and there is none at"):
        read_records(tmp_path / "nowhere")


@pytest.mark.slow
def test_processes_and_dask_write_the_same_figures(data, features, tmp_path):
    distributed = pytest.importorskip("distributed")
    runs = [experiment(parameters={"max_iter": 30, "tol": 0.01}, seed=seed, train_share=0.9)
            for seed in range(3)]  # fmt: skip
    run(runs, data, features, tmp_path / "alone")
    # joblib measures a worker after its first task, and takes torch, loaded into one that another
    # test left behind, for a leak.
    get_reusable_executor().shutdown()
    run(runs, data, features, tmp_path / "processes", n_jobs=2)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        run(runs, data, features, tmp_path / "dask")
    alone, *others = (
        [record["test"] for record in read_records(tmp_path / name)]
        for name in ("alone", "processes", "dask")
    )
    assert len(alone) == 3
    for other in others:
        assert other == alone


GRID = """
import sys
import numpy as np
import torch
from skh2edl.benchmark import Experiment, run_experiments, running
from skh2edl.datasets import make_glyphs

torch.set_num_threads(1)
folder = sys.argv[1]
whole = running.run_experiment

def noted(experiment, *args):
    with open(folder + "/../fitted", "a") as file:  # one line before, one after each fit
        file.write(f"begin {experiment.name}\\n")
    record = whole(experiment, *args)
    with open(folder + "/../fitted", "a") as file:
        file.write(f"end {experiment.name}\\n")
    return record

running.run_experiment = noted
data = make_glyphs(400, scripts=("Latin", "Greek"), image_size=8, random_state=0)
runs = [
    Experiment("glyphs", "Flat-CE", "FlatCEClassifier", {"max_iter": 25, "tol": 0.01},
               features="pixels", train_share=0.9, seed=seed)
    for seed in range(12)
]
pixels = data.images.reshape(400, -1).astype(np.float32)
run_experiments(runs, data, folder, features={"pixels": pixels}, verbose=0)
"""


@pytest.mark.slow
def test_a_grid_killed_in_the_middle_loses_nothing_and_does_nothing_twice(tmp_path):
    records, log, script = tmp_path / "records", tmp_path / "fitted", tmp_path / "grid.py"
    records.mkdir()
    script.write_text(GRID)
    command = [sys.executable, str(script), str(records)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(list(records.glob("*.json"))) < 3 and first.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    first.send_signal(signal.SIGKILL)
    errors = first.communicate()[1]
    assert first.returncode == -signal.SIGKILL, errors
    kept = {path.name: path.read_bytes() for path in records.glob("*.json")}
    assert 3 <= len(kept) < 12
    for content in kept.values():
        json.loads(content)

    subprocess.run(command, check=True, capture_output=True)
    after = {path.name: path.read_bytes() for path in records.glob("*.json")}
    assert len(after) == 12
    assert {name: after[name] for name in kept} == kept
    begun = [line.split()[1] for line in log.read_text().splitlines() if "begin" in line]
    # What was under way when the process died has no record and is done again; nothing else is.
    again = {name for name in begun if begun.count(name) > 1}
    assert len(again) <= 1
    assert not {f"{name}.json" for name in again} & set(kept)
    assert {f"{name}.json" for name in begun} == set(after)


def test_the_time_that_is_left_is_estimated_from_the_records_that_exist(tmp_path):
    runs = finetuned_protocol(
        "zoo", "test_resnet", epochs=10, seeds=(0, 1), methods=["Flat-CE", "Hier-CE"],
        tables=["budget"],
    )  # fmt: skip
    assert remaining(runs, tmp_path / "none") == (runs, None)
    other = Experiment("sea", "Flat-CE", "FlatCEClassifier", {"backbone": "test_resnet"}, epochs=1)
    assert remaining([other], tmp_path) == ([other], None)
    # Flat-CE takes 2 seconds an epoch, Hier-CE 5; 20 epochs of both and 10 of one seed are left.
    done = [each for each in runs if each.epochs == 10 and each.seed == 0]
    for each, seconds in zip(done, (20.0, 50.0), strict=True):
        record = {"experiment": each.to_dict(), "seconds": {"all": seconds}}
        write_record(tmp_path / f"{each.name}.json", record)
    pending, seconds = remaining(runs, tmp_path)
    assert pending == [each for each in runs if each not in done]
    assert seconds == 2 * (40 + 100) + 20 + 50
    # A method without a record takes the median of the others.
    new = replace(done[0], method="HENN")
    assert remaining([new], tmp_path) == ([new], 35.0)


def test_a_record_of_another_tree_is_refused(data, features, tmp_path):
    run([experiment()], data, features, tmp_path)
    deeper = Taxonomy.from_paths([("animal", *TREE.path(leaf)) for leaf in TREE.leaves])
    other = replace(data, taxonomy=deeper)
    with pytest.raises(ValueError, match="was made with other images, labels, splits or levels"):
        run([experiment()], other, features, tmp_path)


def test_features_are_computed_once(data, tmp_path, monkeypatch):
    first = frozen_features_of(data, "test_resnet", weights=None, cache=tmp_path, verbose=0)
    assert first.shape == (300, 96)
    monkeypatch.setattr("skh2edl.benchmark.running.ImageFeatureExtractor", None)
    again = frozen_features_of(data, "test_resnet", weights=None, cache=tmp_path, verbose=0)
    np.testing.assert_array_equal(again, first)
    with pytest.raises(ValueError, match="holds features of 300 images and the data have 7"):
        frozen_features_of(
            data.select(slice(0, 7)), "test_resnet", weights=None, cache=tmp_path, verbose=0
        )
    assert [Path(path).suffix for path in tmp_path.iterdir()] == [".npy"]
