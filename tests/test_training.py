"""Fits by epochs: the same bits again, killed and resumed, selected, stopped, continued."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from skh2edl import H2EDLClassifier, Taxonomy, h2edl
from skh2edl.checkpoints import CheckpointFile, fingerprint, write_atomically
from skh2edl.training import resolve_precision

TREE = Taxonomy.from_nested({"warm": ["red", "yellow"], "cold": ["green", "blue"]})
COLOURS = {"red": (200, 30, 30), "yellow": (200, 200, 30), "green": (30, 200, 30)}
COLOURS["blue"] = (30, 30, 200)


@pytest.fixture(scope="module")
def pictures():
    """Noisy squares of four colours; every fifth label stops at the temperature."""
    rng = np.random.default_rng(0)
    names = np.array(list(COLOURS))[rng.integers(4, size=64)]
    pixels = np.array([COLOURS[name] for name in names])[:, None, None, :]
    images = np.clip(pixels + rng.normal(0, 40, size=(64, 16, 16, 3)), 0, 255).astype(np.uint8)
    labels = names.astype(object)
    labels[::5] = [TREE.ancestor(name, 1) for name in labels[::5]]
    return images, labels


def small_fit(**parameters):
    options = {
        "backbone": "test_resnet",
        "weights": None,
        "image_size": 16,
        "max_epochs": 3,
        "batch_size": 16,
        "augmentation": {"scale": (0.6, 1.0)},
        "random_state": 3,
        "accelerator": "cpu",
    }
    return H2EDLClassifier(TREE, **(options | parameters))


def weights_of(clf):
    return {name: value.clone() for name, value in clf.network_.state_dict().items()}


def same_bits(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.fixture(scope="module")
def undisturbed(pictures):
    return weights_of(small_fit().fit(*pictures))


def test_the_same_seed_gives_the_same_bits(pictures, undisturbed):
    assert same_bits(weights_of(small_fit().fit(*pictures)), undisturbed)
    assert not same_bits(weights_of(small_fit(random_state=4).fit(*pictures)), undisturbed)


def test_the_number_of_loader_workers_does_not_change_the_bits(pictures, undisturbed):
    assert same_bits(weights_of(small_fit(n_workers=2).fit(*pictures)), undisturbed)


def test_a_fit_leaves_the_global_generators_alone(pictures):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    small_fit(max_epochs=1).fit(*pictures)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_the_history_is_a_table_with_a_row_for_each_epoch(pictures):
    clf = small_fit().fit(*pictures)
    assert {len(column) for column in clf.history_.values()} == {3}
    assert {"epoch", "loss", "val_score", "learning_rate", "seconds"} <= clf.history_.keys()
    assert clf.best_score_ == max(clf.history_["val_score"])
    assert clf.best_epoch_ == int(np.argmax(clf.history_["val_score"]))


def test_a_fit_without_held_out_samples_keeps_the_last_epoch(pictures):
    clf = small_fit(validation_fraction=None, learning_rate=1e-2, max_epochs=5).fit(*pictures)
    assert not hasattr(clf, "best_epoch_")
    assert clf.history_["loss"][-1] < clf.history_["loss"][0]


def test_patience_stops_early(pictures):
    # Nothing can improve at a vanishing learning rate after the first epoch.
    clf = small_fit(learning_rate=1e-12, max_epochs=20, patience=2).fit(*pictures)
    assert clf.n_iter_ == 3


def test_selection_takes_any_scorer(pictures):
    by_name = small_fit(selection="neg_log_loss").fit(*pictures)
    assert max(by_name.history_["val_score"]) < 0
    images, labels = pictures
    leaves = np.isin(labels, list(COLOURS))

    def share_of_red(estimator, X, y):
        return float((estimator.predict(X) == "red").mean())

    by_scorer = small_fit(selection=share_of_red).fit(images[leaves], labels[leaves])
    assert set(by_scorer.history_["val_score"]) <= {k / 6 for k in range(7)}
    with pytest.raises(ValueError, match="selection='beauty' is not known"):
        small_fit(selection="beauty").fit(*pictures)


def test_explicit_validation_data_select_the_epoch(pictures):
    images, labels = pictures
    clf = small_fit(validation_fraction=None)
    clf.fit(images, labels, X_val=images[:8], y_val=labels[:8])
    assert len(clf.history_["val_score"]) == 3
    with pytest.raises(ValueError, match="both X_val and y_val"):
        clf.fit(images, labels, X_val=images[:8])


def test_the_running_mean_of_weights_is_the_model(pictures):
    plain = small_fit(validation_fraction=None).fit(*pictures)
    mean = small_fit(validation_fraction=None, ema_decay=0.99).fit(*pictures)
    assert not same_bits(weights_of(plain), weights_of(mean))


def test_warm_start_and_partial_fit_go_on(pictures):
    images, labels = pictures
    clf = small_fit(max_epochs=1, warm_start=True, validation_fraction=None, learning_rate=1e-2)
    losses = [clf.fit(images, labels).history_["loss"][0] for _ in range(4)]
    assert losses[-1] < losses[0]
    later = [clf.partial_fit(images, labels).history_["loss"][0] for _ in range(2)]
    assert max(later) < losses[0]
    clf.set_params(taxonomy=Taxonomy.flat(list(COLOURS)))
    with pytest.raises(ValueError, match="taxonomy differs from that of the earlier fit"):
        clf.fit(images[1:5], labels[1:5])


def test_partial_fit_needs_all_classes_where_there_is_no_taxonomy():
    X, y = np.eye(4), np.array([0, 1, 2, 3])
    clf = H2EDLClassifier(backbone=None, accelerator="cpu")
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        clf.partial_fit(X, y)
    for _ in range(30):
        clf.set_params(learning_rate=0.1).partial_fit(X, y, classes=[0, 1, 2, 3])
    assert clf.predict(X).tolist() == [0, 1, 2, 3]


# Checkpoints ---------------------------------------------------------------------------------


def fit_and_leave(folder, images, labels):
    torch.set_num_threads(1)
    small_fit(checkpoint_dir=folder).fit(images, labels)
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_a_fit_killed_at_ten_random_moments_ends_with_the_same_bits(
    pictures, undisturbed, tmp_path
):
    fork = multiprocessing.get_context("fork")
    started = time.perf_counter()
    child = fork.Process(target=fit_and_leave, args=(tmp_path / "timed", *pictures))
    child.start()
    child.join()
    whole = time.perf_counter() - started
    rng = np.random.default_rng(0)
    n_killed = 0
    for number in range(50):
        folder = tmp_path / str(number)
        child = fork.Process(target=fit_and_leave, args=(folder, *pictures))
        child.start()
        time.sleep(rng.uniform(0.05, 0.95) * whole)
        child.kill()
        child.join()
        if child.exitcode == -signal.SIGKILL:
            n_killed += 1
        else:
            # It was done before: the fit that was timed had been slowed down by other work.
            whole *= 0.8
        resumed = small_fit(checkpoint_dir=folder).fit(*pictures)
        assert same_bits(weights_of(resumed), undisturbed)
        assert resumed.n_iter_ == 3
        if n_killed == 10:
            return
    pytest.fail(f"{n_killed} of 50 fits were killed before they were done")


def test_a_finished_checkpoint_gives_the_model_without_training(pictures, undisturbed, tmp_path):
    small_fit(checkpoint_dir=tmp_path).fit(*pictures)
    seconds = small_fit(checkpoint_dir=tmp_path).fit(*pictures).history_["seconds"]
    again = small_fit(checkpoint_dir=tmp_path).fit(*pictures)
    assert again.history_["seconds"] == seconds
    assert same_bits(weights_of(again), undisturbed)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("parameters", "other parameters"),
        ("data", "other data"),
        ("labels", "other labels"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused(pictures, tmp_path, change, what):
    images, labels = pictures
    options = {"checkpoint_dir": tmp_path, "max_epochs": 1, "validation_fraction": None}
    small_fit(**options).fit(images, labels)
    other = small_fit(**options)
    if change == "parameters":
        other.set_params(max_epochs=2)
    if change == "data":
        images = images[:, ::-1]
    if change == "labels":
        labels = labels[::-1]
    with pytest.raises(ValueError, match=what):
        other.fit(images, labels)


def test_a_checkpoint_knows_the_values_of_its_preset(pictures, undisturbed, tmp_path, monkeypatch):
    small_fit(checkpoint_dir=tmp_path).fit(*pictures)
    # Saying what the preset says is the same fit; so is a penalty, which epochs do not have.
    named = {"kl_weight": 0.0, "initial_bias": 7.0, "read_out": "nested"}
    for same in (named, {"l2": 0.5, "tol": 0.1}):
        resumed = small_fit(checkpoint_dir=tmp_path, **same).fit(*pictures)
        assert same_bits(weights_of(resumed), undisturbed)
    # As a later release might have it.
    monkeypatch.setitem(h2edl.PRESETS["default"], "evidence_scale", 0.5)
    with pytest.raises(ValueError, match="other parameters"):
        small_fit(checkpoint_dir=tmp_path).fit(*pictures)


def test_a_damaged_checkpoint_is_named(pictures, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint"):
        small_fit(checkpoint_dir=tmp_path).fit(*pictures)


def test_a_checkpoint_executes_nothing(tmp_path):
    torch.save({"format": 1, "identity": {}, "state": Path("gone")}, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        CheckpointFile(tmp_path, {}).load()


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def full_disk(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, full_disk)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_fingerprints_tell_values_shapes_and_types_apart():
    one = np.arange(4.0)
    prints = {
        fingerprint(part)
        for part in (one, one.reshape(2, 2), one.astype(np.float32), [0, 1, 2, 3], "0123")
    }
    assert len(prints) == 5


# Trouble -------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_names_epoch_batch_and_samples():
    X = np.eye(8, dtype=np.float32)
    clf = H2EDLClassifier(
        backbone=None, solver="adamw", learning_rate=1e30, clip_norm=None, max_epochs=50,
        validation_fraction=None, accelerator="cpu", feature_scaling=None, batch_size=4,
        evidence="softplus_squared", random_state=0,
    )  # fmt: skip
    with pytest.raises(FloatingPointError, match=r"epoch \d+, batch \d+, which begins with row"):
        clf.fit(X * 1e30, np.arange(8) % 2)
    with pytest.raises(NotFittedError):
        clf.predict(X)


def test_precision_is_single_where_the_device_has_no_bfloat16():
    assert resolve_precision("16-mixed") == "16-mixed"
    expected = "bf16-mixed" if torch.cuda.is_available() else "32-true"
    assert resolve_precision("auto") == expected


def test_layer_decay_and_compile_are_parameters(pictures):
    clf = small_fit(max_epochs=1, layer_decay=0.7, warmup_epochs=0.5, clip_norm=None)
    assert np.isfinite(clf.fit(*pictures).history_["loss"]).all()


def test_an_x_that_holds_no_images_is_refused_before_any_download(monkeypatch):
    from skh2edl import _base

    def download(*args, **options):
        raise AssertionError("the backbone was made first")

    monkeypatch.setattr(_base, "create_backbone", download)
    with pytest.raises(TypeError, match="X must hold images: file paths"):
        H2EDLClassifier(TREE).fit(np.zeros((4, 3)), ["red", "blue", "green", "yellow"])
