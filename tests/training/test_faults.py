"""Faults that cost no data: killed processes, full disks, changed files, numbers that are none."""

import multiprocessing
import os
import signal
import time
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image
from sklearn.base import clone

from skh2edl import (
    FlatCEClassifier,
    H2EDLClassifier,
    Hardware,
    HierCEClassifier,
    Taxonomy,
    load_model,
)
from skh2edl.images import BadImageError, ImageDataset
from skh2edl.training import loop as training
from skh2edl.training.checkpoints import CheckpointFile
from skh2edl.training.samples import warn_of_outliers

resource = pytest.importorskip("resource")
TREE = Taxonomy.from_nested({"warm": ["red", "yellow"], "cold": ["green", "blue"]})
TINY = {"backbone": "test_resnet", "weights": None, "image_size": 32, "random_state": 0}
CPU = Hardware(accelerator="cpu")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")


def rows(n_samples=40, n_features=3):
    X = np.random.default_rng(n_samples).normal(size=(n_samples, n_features)).astype(np.float32)
    return X, np.array(TREE.leaves)[np.arange(n_samples) % 4]


def by_epochs(**options):
    defaults = {"solver": "adamw", "max_epochs": 3, "batch_size": 8, "validation_fraction": None}
    return H2EDLClassifier(TREE, backbone=None, random_state=0).set_params(
        hardware__accelerator="cpu", **(defaults | options)
    )


def epochs_in(folder):
    return CheckpointFile(folder, {}).load()["progress"]["epoch"]


def in_epoch(monkeypatch, number, act):
    """Let something happen at the beginning of an epoch."""
    one_epoch = training._Run._one_epoch

    def one_epoch_with_act(run, epoch):
        if epoch == number:
            act(run)
        return one_epoch(run, epoch)

    monkeypatch.setattr(training._Run, "_one_epoch", one_epoch_with_act)


# Killed ------------------------------------------------------------------------------------------


def save_for_ever(first, second, path):
    while True:
        first.save(path)
        second.save(path)


@pytest.mark.slow
@needs_fork
def test_a_kill_while_saving_leaves_one_of_the_whole_files(tmp_path):
    # Large enough that most of the time goes into writing.
    wide, y = rows(40, 8000)
    first = FlatCEClassifier(TREE, backbone=None, max_iter=1, tol=1e9).fit(wide, y)
    second = FlatCEClassifier(TREE, backbone=None, max_iter=2, tol=1e9).fit(2 * wide, y)
    expected = [classifier.predict_proba(wide) for classifier in (first, second)]
    path = tmp_path / "model.safetensors"
    first.save(path)
    for moment in np.random.default_rng(0).uniform(0.02, 0.2, size=8):
        child = multiprocessing.get_context("fork").Process(
            target=save_for_ever, args=(first, second, path)
        )
        child.start()
        time.sleep(moment)
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        found = load_model(path).predict_proba(wide)
        assert any(np.array_equal(found, one) for one in expected)
    # What a kill leaves beside the file is hidden, and is no model.
    assert all(name.name.startswith(".") for name in tmp_path.iterdir() if name != path)


@needs_fork
def test_a_killed_loader_process_ends_the_fit_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (16, 40, 40, 3), dtype=np.uint8)
    get_items = ImageDataset.__getitems__

    def get_items_or_die(dataset, keys):
        if torch.utils.data.get_worker_info() is not None and keys[0][0] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return get_items(dataset, keys)

    monkeypatch.setattr(ImageDataset, "__getitems__", get_items_or_die)
    clf = H2EDLClassifier(
        TREE, max_epochs=3, batch_size=8, validation_fraction=None, **TINY,
        hardware=Hardware(accelerator="cpu", n_workers=2, checkpoint_dir=tmp_path),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=r"A process that reads images ended .*lower n_workers"):
        clf.fit(images, np.tile(TREE.leaves, 4))
    assert epochs_in(tmp_path) == 1
    monkeypatch.setattr(ImageDataset, "__getitems__", get_items)
    assert clf.fit(images, np.tile(TREE.leaves, 4)).n_iter_ == 3


# Full disk ---------------------------------------------------------------------------------------


@pytest.fixture
def small_disk():
    """Let the system refuse to write files beyond some bytes, as a full disk does."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(n_bytes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))

    yield limit
    limit(hard)


def test_no_room_for_a_model_leaves_the_old_one(tmp_path, small_disk):
    X, y = rows()
    path = tmp_path / "model.safetensors"
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, y)
    clf.save(path)
    old = path.read_bytes()
    clf.fit(2 * X, y)
    small_disk(1000)
    with pytest.raises(OSError, match="File too large"):
        clf.save(path)
    small_disk(resource.RLIM_INFINITY)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_no_room_for_a_checkpoint_leaves_that_of_the_epoch_before(
    tmp_path, small_disk, monkeypatch
):
    X, y = rows()
    undisturbed = by_epochs().fit(X, y)
    in_epoch(monkeypatch, 2, lambda run: small_disk(1000))
    with pytest.raises(OSError, match=r"checkpoint .*checkpoint\.pt could not be written \(.+Free"):
        by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    small_disk(resource.RLIM_INFINITY)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert epochs_in(tmp_path) == 2
    monkeypatch.undo()
    resumed = by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    np.testing.assert_array_equal(resumed.predict_proba(X), undisturbed.predict_proba(X))


def test_no_room_for_features_is_said_and_the_fit_goes_on(tmp_path, files, small_disk):
    labels = np.tile(TREE.leaves, 4)
    expected = H2EDLClassifier(TREE, finetune="head", hardware=Hardware(n_workers=0), **TINY)
    cache = tmp_path / "cache"
    clf = clone(expected).set_params(hardware__memory=str(cache))
    expected = expected.fit(files, labels).predict_proba(files)
    small_disk(100)
    with pytest.warns(UserWarning, match=r"cannot be kept in .*cache.*File too large"):
        clf.fit(files, labels)
    small_disk(resource.RLIM_INFINITY)
    np.testing.assert_array_equal(clf.predict_proba(files), expected)


# Checkpoints with impossible values --------------------------------------------------------------


def in_progress(**changes):
    return lambda state: state["progress"].update(changes)


def in_history(value):
    return lambda state: state["progress"]["history"][0].update(loss=value)


def in_moments(name, value):
    def change(state):
        state["optimizer"]["state"][0][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_progress(epoch=-5), "epoch -5 of 3"),
        (in_progress(epoch=10**9), "epoch 1000000000 of 3"),
        (in_progress(epoch=2.5), r"epoch 2\.5 of 3"),
        (in_progress(epoch=1), "a history of other epochs"),
        (in_progress(history="abc"), "a history of other epochs"),
        (in_history("low"), "a history of other epochs"),
        (in_progress(best_epoch=7), "best epoch 7"),
        (in_progress(best_weights={}), "best weights of another network"),
        (lambda state: state["progress"].pop("stopped"), "another kind of progress"),
        (lambda state: state.pop("ema"), "other parts than a run has"),
        (lambda state: state.update(optimizer={}), "it has no 'param_groups'"),
        (lambda state: state.update(precision={"scale": float("nan")}), "a wrong scaler"),
        (
            lambda state: state["network"]["head.linear.weight"].fill_(np.nan),
            r"NaN or infinity in the weights, first head\.linear\.weight",
        ),
        (
            lambda state: state["network"].update({"head.linear.weight": torch.zeros(1)}),
            r"weights of another network, first head\.linear\.weight",
        ),
        (
            lambda state: state["optimizer"]["param_groups"][0].update(betas=(2.0, 2.0)),
            r"betas=\(2\.0, 2\.0\) instead of",
        ),
        (
            lambda state: state["optimizer"]["param_groups"][0].update(lr=float("inf")),
            "learning rate inf",
        ),
        (in_moments("exp_avg", torch.zeros(7)), "impossible moments of the weights, first exp_avg"),
        (in_moments("step", torch.tensor(-1.0)), "impossible moments of the weights, first step"),
        (
            lambda state: state["optimizer"]["state"].update({99: {}}),
            "moments of other weights",
        ),
    ],
)
def test_a_checkpoint_with_impossible_values_is_refused_by_name(tmp_path, change, said):
    X, y = rows()
    by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    change(content["state"])
    torch.save(content, path)
    with pytest.raises(
        ValueError, match=rf"checkpoint\.pt holds impossible values \({said}.*Remove it"
    ):
        by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)


def test_a_checkpoint_without_its_state_is_refused_by_name(tmp_path):
    X, y = rows()
    by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    content["stats"] = content.pop("state")
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint .*Remove it"):
        by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)


# Images that change ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (16, 40, 40, 3), dtype=np.uint8)
    paths = [tmp_path / f"{number}.png" for number in range(16)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def image_fit(folder, **options):
    return H2EDLClassifier(
        TREE, max_epochs=3, batch_size=8, validation_fraction=None, **TINY, **options,
        hardware=Hardware(accelerator="cpu", n_workers=0, checkpoint_dir=folder),
    )  # fmt: skip


@pytest.mark.parametrize("how", ["truncated", "replaced", "removed"])
def test_an_image_that_changes_between_epochs_is_named(tmp_path, files, monkeypatch, how):
    labels = np.tile(TREE.leaves, 4)
    whole, facts = files[5].read_bytes(), files[5].stat()

    def change(run):
        if how == "removed":
            files[5].unlink()
        else:
            files[5].write_bytes(whole[:200] if how == "truncated" else b"a web page")

    in_epoch(monkeypatch, 1, change)
    with pytest.raises(BadImageError, match=r"5\.png' \(X\[5\]\)"):
        image_fit(tmp_path / "run").fit(files, labels)
    assert epochs_in(tmp_path / "run") == 1
    monkeypatch.undo()
    with pytest.raises(ValueError, match="belongs to another fit: other data"):
        image_fit(tmp_path / "run").fit(files, labels)
    files[5].write_bytes(whole)
    os.utime(files[5], ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert image_fit(tmp_path / "run").fit(files, labels).n_iter_ == 3


def test_an_image_that_changes_may_be_skipped(tmp_path, files, monkeypatch):
    in_epoch(monkeypatch, 1, lambda run: files[5].write_bytes(b""))
    with pytest.warns(UserWarning, match=r"1 of 16 images could not be read .*5\.png"):
        clf = image_fit(tmp_path / "run", on_bad_image="skip").fit(files, np.tile(TREE.leaves, 4))
    assert np.isfinite(clf.history_["loss"]).all()


# Numbers that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_and_weights_of_samples_must_be_numbers(value):
    X, y = rows()
    clf = by_epochs().fit(X, y)
    broken = X.copy()
    broken[3, 1] = value
    for call in (by_epochs().fit, lambda X, y: clf.predict(X), clf.partial_fit):
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            call(broken, y)
    weight = np.ones(len(y))
    weight[3] = value
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)|[Nn]egative values"):
        by_epochs().fit(X, y, weight)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("solver", ["lbfgs", "adamw"])
def test_a_value_far_from_all_others_is_named(dtype, solver):
    X, y = rows(400)
    X = X.astype(dtype)
    far = X.copy()
    far[117, 1] = 1e30
    clf = by_epochs(solver=solver, max_epochs=1).fit(X, y)
    with pytest.warns(UserWarning, match=r"1 row\(s\), first row 117: 1e\+30 in column 1"):
        by_epochs(solver=solver, max_epochs=1, validation_fraction=0.2).fit(far, y)
    with pytest.warns(UserWarning, match=r"training data in 1 row\(s\), first row 117: 1e\+30 in"):
        clf.predict(far)
    far[[3, 250], 2] = -1e20
    with pytest.warns(UserWarning, match=r"column in 3 row\(s\), first row 3: -1e\+20 in column 2"):
        by_epochs(solver=solver, max_epochs=1).fit(far, y)


def test_columns_of_any_scale_and_rare_values_are_no_outliers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6)) * [1e-20, 1.0, 1e12, 1.0, 1.0, 1.0]
    X[:, 3] = 0
    X[:, 4] = 0
    X[2999, 4] = 1e9  # the only one that is not 0 says nothing of what is usual
    X[:, 5] = np.exp(4 * X[:, 5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_outliers(X)
        warn_of_outliers(X[:1])
        warn_of_outliers(np.zeros((2, 0)))


def poison(run):
    """Damage one weight, as a fault of memory might."""
    with torch.no_grad():
        run.network.head.linear.weight[0, 0] = torch.nan


def test_a_loss_that_is_none_keeps_the_checkpoint_before(tmp_path, monkeypatch):
    X, y = rows()
    in_epoch(monkeypatch, 2, poison)
    with pytest.raises(
        FloatingPointError, match=r"epoch 2, batch 0, which begins with row \d+, row"
    ):
        by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    assert epochs_in(tmp_path) == 2
    monkeypatch.undo()
    undisturbed = by_epochs().fit(X, y)
    resumed = by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    np.testing.assert_array_equal(resumed.predict_proba(X), undisturbed.predict_proba(X))


def test_a_loss_that_is_none_names_the_files(tmp_path, files, monkeypatch):
    in_epoch(monkeypatch, 1, poison)
    with pytest.raises(FloatingPointError, match=r"epoch 1, batch 0, which begins with '.*\.png'"):
        image_fit(tmp_path / "run").fit(files, np.tile(TREE.leaves, 4))
    assert epochs_in(tmp_path / "run") == 1


def test_weights_that_break_in_the_last_step_are_not_kept(tmp_path, monkeypatch):
    X, y = rows()
    one_epoch = training._Run._one_epoch

    def one_epoch_then_poison(run, epoch):
        losses = one_epoch(run, epoch)
        if epoch == 1:
            poison(run)
        return losses  # all finite

    monkeypatch.setattr(training._Run, "_one_epoch", one_epoch_then_poison)
    message = (
        r"Weights \(head\.linear\.weight\) became NaN .* epoch 1, batch 4, which begins with row"
    )
    with pytest.raises(FloatingPointError, match=message):
        by_epochs(hardware__checkpoint_dir=tmp_path).fit(X, y)
    assert epochs_in(tmp_path) == 1


def test_a_network_that_answers_nan_is_not_taken_for_an_unreadable_image(tmp_path, files):
    clf = image_fit(None).fit(files, np.tile(TREE.leaves, 4))
    with torch.no_grad():
        clf.network_.head.linear.weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match=r"NaN for 16 image\(s\), first '.*0\.png'"):
        clf.predict(files)


# Too little --------------------------------------------------------------------------------------

CLASSIFIERS = [H2EDLClassifier, FlatCEClassifier, HierCEClassifier]


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("solver", ["lbfgs", "adamw"])
def test_a_constant_feature_changes_nothing(kind, solver):
    X, y = rows()
    options = {"backbone": None, "solver": solver, "random_state": 0, "hardware": CPU}
    options |= {"max_epochs": 2, "validation_fraction": None, "tol": 1e-6}
    constant = np.hstack([X, np.full((len(X), 1), 1e6, dtype=np.float32)])
    proba = kind(TREE, **options).fit(constant, y).predict_proba(constant)
    assert np.isfinite(proba).all()
    if solver == "lbfgs":
        own = kind(TREE, **options)
        assert_allclose(proba, own.fit(X, y).predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("batch_size", [1, 13])
def test_a_batch_may_hold_one_sample(batch_size):
    X, y = rows()  # 40 = 3 * 13 + 1
    clf = by_epochs(batch_size=batch_size).fit(X, y)
    assert np.isfinite(clf.history_["loss"]).all()
    assert np.isfinite(clf.predict_proba(X)).all()


def test_one_image_that_batch_normalisation_cannot_learn_from_is_named():
    images = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), dtype=np.uint8)
    clf = H2EDLClassifier(
        TREE, **(TINY | {"image_size": 16}), batch_size=8, validation_fraction=None,
        max_epochs=1, hardware=CPU,
    )  # fmt: skip
    with pytest.raises(ValueError, match="Of 9 samples batch_size=8 leaves 1 for the last batch"):
        clf.fit(images, np.resize(TREE.leaves, 9))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_one_class_of_a_taxonomy_is_learnt_and_the_others_are_kept(kind):
    X, _ = rows()
    clf = kind(TREE, backbone=None).fit(X, ["red"] * len(X))
    assert clf.classes_.tolist() == ["blue", "green", "red", "yellow"]
    assert set(clf.predict(X)) == {"red"}
    with pytest.raises(ValueError, match="y holds one class, 'red'"):
        kind(backbone=None).fit(X, ["red"] * len(X))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_leaf_without_a_sample_stays_a_class(kind):
    X, y = rows()
    seen = y != "blue"
    clf = kind(TREE, backbone=None).fit(X[seen], y[seen])
    proba = clf.predict_proba(X)
    assert "blue" in clf.classes_
    assert np.isfinite(proba).all()
    assert_allclose(proba.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("solver", ["lbfgs", "adamw"])
def test_labels_that_are_all_the_root_are_refused(kind, solver):
    X, y = rows()
    with pytest.raises(ValueError, match="nothing to learn from: all labels are the root"):
        kind(TREE, backbone=None, solver=solver).fit(X, ["root"] * len(y))


# Hostile -----------------------------------------------------------------------------------------


def test_parts_that_stand_in_many_places_do_not_grow_without_end():
    nested = {"x": None, "y": None}
    for _ in range(60):
        nested = {"a": nested, "b": nested}
    with pytest.raises(ValueError, match="repeats parts of itself to more than 1,000,000 nodes"):
        Taxonomy.from_nested(nested)
    shared = ["x", "y"]
    assert Taxonomy.from_nested({"a": shared, "b": shared}).n_leaves == 4
