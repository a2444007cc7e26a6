"""Fits by epochs: the same bits again, killed and resumed, selected, stopped, continued."""

import copy
import multiprocessing
import os
import random
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning
from sklearn.model_selection import GridSearchCV

from skh2edl import (
    FlatCEClassifier,
    H2EDLClassifier,
    Hardware,
    ImageFeatureExtractor,
    Recipe,
    Taxonomy,
    load_model,
)
from skh2edl.heads.base import EvidentialHead
from skh2edl.training.checkpoints import CheckpointFile
from skh2edl.training.recipe import RECIPES, resolve_precision
from skh2edl.utils.files import write_atomically
from skh2edl.utils.hashing import hash_values

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
        "recipe": Recipe(augmentation={"scale": (0.6, 1.0)}),
        "random_state": 3,
        "hardware": Hardware(accelerator="cpu"),
    }
    return H2EDLClassifier(TREE, **options).set_params(**parameters)


def fit_seed(random_state):
    """Return the seed that a fit draws from its random state."""
    return int(np.random.RandomState(random_state).randint(2**31 - 1))


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
    assert same_bits(weights_of(small_fit(hardware__n_workers=2).fit(*pictures)), undisturbed)


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
    clf = small_fit(learning_rate=1e-12, max_epochs=20, recipe__patience=2).fit(*pictures)
    assert clf.n_iter_ == 3


def test_selection_takes_any_scorer(pictures):
    by_name = small_fit(recipe__selection="neg_log_loss").fit(*pictures)
    assert max(by_name.history_["val_score"]) < 0
    images, labels = pictures
    leaves = np.isin(labels, list(COLOURS))

    def fraction_of_red(estimator, X, y):
        return float((estimator.predict(X) == "red").mean())

    by_scorer = small_fit(recipe__selection=fraction_of_red).fit(images[leaves], labels[leaves])
    assert set(by_scorer.history_["val_score"]) <= {k / 6 for k in range(7)}
    with pytest.raises(ValueError, match="selection='beauty' is not known"):
        small_fit(recipe__selection="beauty").fit(*pictures)


def test_the_last_epoch_is_kept_where_no_validation_label_names_a_leaf(pictures):
    images, labels = pictures
    coarse = np.array([TREE.ancestor(name, 1) if name in COLOURS else name for name in labels])
    same = {"learning_rate": 1e-2, "recipe__patience": 1}
    clf = small_fit(validation_fraction=None, **same)
    with pytest.warns(UserWarning) as told:  # noqa: PT030 - each is looked at below
        clf.fit(images, coarse, X_val=images[:8], y_val=coarse[:8])
    assert "NaN, so the last epoch is kept" in str(told[-1].message)
    assert {each.category for each in told[:-1]} == {UndefinedMetricWarning}
    assert (clf.n_iter_, clf.best_epoch_) == (3, 2)
    last = small_fit(validation_fraction=None, **same).fit(images, coarse)
    assert np.array_equal(clf.predict_proba(images), last.predict_proba(images))


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_epochs_on_a_frozen_backbone_are_those_on_its_features(pictures, call):
    images, labels = pictures
    frozen = small_fit(finetune="head", solver="adamw", weights=None)
    getattr(frozen, call)(images, labels)
    extractor = ImageFeatureExtractor(
        "test_resnet", weights=None, image_size=16, random_state=fit_seed(frozen.random_state)
    )
    features = extractor.fit_transform(images)
    alone = small_fit(backbone=None, solver="adamw")
    getattr(alone, call)(features, labels)
    expected = alone.predict_proba(features)
    assert frozen.predict_proba(images) == pytest.approx(expected, abs=1e-6)


def test_a_fit_that_fails_leaves_the_model_of_the_fit_before(pictures):
    images, labels = pictures
    clf = small_fit(max_epochs=1).fit(images, labels)
    before = clf.predict_proba(images[:4])

    def broken(estimator, X, y):
        raise RuntimeError("no score")

    other = Taxonomy.flat(["day", "night", "dusk"])
    clf.set_params(taxonomy=other, recipe__selection=broken)
    with pytest.raises(RuntimeError, match="no score"):
        clf.fit(images, np.array(other.leaves)[np.arange(64) % 3])
    assert clf.taxonomy_ == TREE
    assert np.array_equal(clf.predict_proba(images[:4]), before)


def test_features_of_unreadable_images_do_not_select_the_epoch(pictures, tmp_path):
    images, labels = pictures
    files = []
    for number, image in enumerate(images[:8]):
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(image).save(files[-1])
    files[3].write_bytes(b"no image")
    seen = []

    def count(estimator, X, y):
        seen.append(list(y))
        return 0.0

    clf = small_fit(
        finetune="head", solver="adamw", max_epochs=1, on_bad_image="skip", recipe__selection=count
    )
    with pytest.warns(UserWarning, match="1 of 8 images could not be read"):
        clf.fit(images, labels, X_val=files, y_val=labels[:8])
    assert seen == [[*labels[:3], *labels[4:8]]]


def test_explicit_validation_data_select_the_epoch(pictures):
    images, labels = pictures
    clf = small_fit(validation_fraction=None)
    clf.fit(images, labels, X_val=images[:8], y_val=labels[:8])
    assert len(clf.history_["val_score"]) == 3
    with pytest.raises(ValueError, match="both X_val and y_val"):
        clf.fit(images, labels, X_val=images[:8])


def test_the_running_mean_of_weights_is_the_model(pictures):
    plain = small_fit(validation_fraction=None).fit(*pictures)
    mean = small_fit(validation_fraction=None, recipe__ema_decay=0.99).fit(*pictures)
    assert not same_bits(weights_of(plain), weights_of(mean))


def test_warm_start_and_partial_fit_resume(pictures):
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
    clf = H2EDLClassifier(backbone=None, hardware=Hardware(accelerator="cpu"))
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        clf.partial_fit(X, y)
    for _ in range(30):
        clf.set_params(learning_rate=0.1).partial_fit(X, y, classes=[0, 1, 2, 3])
    assert clf.predict(X).tolist() == [0, 1, 2, 3]


# Resuming a fit ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def features():
    """Features of four overlapping leaves; every fifth label stops at the temperature."""
    rng = np.random.default_rng(1)
    labels = np.array(TREE.leaves)[np.arange(60) % 4].astype(object)
    X = np.eye(4)[np.arange(60) % 4] + rng.normal(0, 0.7, size=(60, 4))
    labels[::5] = [TREE.ancestor(name, 1) for name in labels[::5]]
    return X, labels


def head_fit(**parameters):
    options = {
        "backbone": None,
        "solver": "adamw",
        "max_epochs": 10,
        "batch_size": 60,
        "validation_fraction": None,
        "random_state": 3,
        "hardware": Hardware(accelerator="cpu"),
    }
    return H2EDLClassifier(TREE, **(options | parameters))


@pytest.mark.parametrize("solver", ["adamw", "lbfgs"])
@pytest.mark.parametrize("changed", [{"kl_weight": 0.5}, {"leaf_weight": 0.1}])
def test_warm_start_honours_a_changed_loss(features, solver, changed):
    first = head_fit(solver=solver, warm_start=True).fit(*features)
    # A classifier that had these parameters all along, with the weights of the first fit.
    fresh = head_fit(solver=solver, warm_start=True, **changed).fit(*features)
    fresh.network_.load_state_dict(first.network_.state_dict())
    unchanged = copy.deepcopy(first).fit(*features)
    resumed = first.set_params(**changed).fit(*features)
    assert same_bits(weights_of(resumed), weights_of(fresh.fit(*features)))
    assert not same_bits(weights_of(resumed), weights_of(unchanged))


@pytest.mark.parametrize("is_loaded", [False, True])
def test_warm_start_refuses_other_base_rates(features, tmp_path, is_loaded):
    clf = head_fit(warm_start=True).fit(*features)
    if is_loaded:
        clf.save(tmp_path / "model.safetensors")
        clf = load_model(tmp_path / "model.safetensors")
    before = weights_of(clf)
    clf.set_params(prior__power=1.0)
    message = r"prior changed since the last fit.*they were \[Prior\(\)\]"
    with pytest.raises(ValueError, match=message):
        clf.fit(*features)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(*features)
    assert same_bits(weights_of(clf), before)
    clf.set_params(prior=None).fit(*features)
    clf.set_params(prior__power=1.0, warm_start=False).fit(*features)


def test_partial_fit_resumes_the_annealing(features, tmp_path, monkeypatch):
    used = []
    weight_at = EvidentialHead.kl_weight_at
    monkeypatch.setattr(
        EvidentialHead,
        "kl_weight_at",
        lambda head, progress: used.append(weight_at(head, progress)) or used[-1],
    )
    clf = head_fit(kl_weight=0.2, kl_ramp=0.5)
    for k in range(1, 13):
        clf.partial_fit(*features)
        assert clf.annealing_ == pytest.approx(min(k / 10, 1.0))
        if k == 3:
            clf.save(tmp_path / "model.safetensors")
        if k == 4:
            fourth = weights_of(clf)
    # One batch a call, at the fraction of the ten epochs that was done before it.
    np.testing.assert_allclose(used, [min(0.2, 0.2 * k / 10 / 0.5) for k in range(12)])

    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.annealing_ == pytest.approx(0.3)
    loaded.partial_fit(*features)
    assert loaded.annealing_ == pytest.approx(0.4)
    assert used[-1] == pytest.approx(0.2 * 0.3 / 0.5)
    assert same_bits(weights_of(loaded), fourth)


def test_partial_fit_after_a_whole_fit_has_the_kl_weight_in_full(features, monkeypatch):
    clf = head_fit(kl_weight=0.2, kl_ramp=0.5).fit(*features)
    assert clf.annealing_ == 1.0
    seen = []
    weight_at = EvidentialHead.kl_weight_at
    monkeypatch.setattr(
        EvidentialHead,
        "kl_weight_at",
        lambda head, progress: seen.append(weight_at(head, progress)) or seen[-1],
    )
    clf.partial_fit(*features)
    assert seen == [0.2]
    assert clf.annealing_ == 1.0


# Checkpoints ---------------------------------------------------------------------------------


@contextmanager
def interrupted_after(n_epochs):
    """Press Ctrl-C once the checkpoint of an epoch is written."""
    save, written = CheckpointFile.save, []

    def save_and_interrupt(self, state):
        save(self, state)
        written.append(state)
        if len(written) == n_epochs:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFile, "save", save_and_interrupt)
        yield


def fit_and_leave(folder, images, labels):
    torch.set_num_threads(1)
    small_fit(hardware__checkpoint_dir=folder).fit(images, labels)
    os._exit(0)


@pytest.mark.slow
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
        resumed = small_fit(hardware__checkpoint_dir=folder).fit(*pictures)
        assert same_bits(weights_of(resumed), undisturbed)
        assert resumed.n_iter_ == 3
        if n_killed == 10:
            return
    pytest.fail(f"{n_killed} of 50 fits were killed before they were done")


def test_a_finished_checkpoint_gives_the_model_without_training(pictures, undisturbed, tmp_path):
    small_fit(hardware__checkpoint_dir=tmp_path).fit(*pictures)
    seconds = small_fit(hardware__checkpoint_dir=tmp_path).fit(*pictures).history_["seconds"]
    again = small_fit(hardware__checkpoint_dir=tmp_path).fit(*pictures)
    assert again.history_["seconds"] == seconds
    assert same_bits(weights_of(again), undisturbed)


def test_a_fit_with_momentum_resumes_with_the_same_bits(features, tmp_path):
    options = {"backbone": None, "solver": "adamw", "max_epochs": 3, "random_state": 0}
    clf = FlatCEClassifier(TREE, recipe=Recipe(optimizer="sgd"), learning_rate=0.1, **options)
    whole = weights_of(clf.fit(*features))
    stopped = clone(clf).set_params(hardware__checkpoint_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt), interrupted_after(2):
        stopped.fit(*features)
    assert same_bits(weights_of(stopped.fit(*features)), whole)


def test_a_fit_with_a_function_and_weights_of_whole_numbers_resumes_in_another_process(
    tmp_path, features
):
    def fit(score):
        clf = FlatCEClassifier(
            backbone=None, solver="adamw", max_epochs=2, random_state=0,
            class_weight={np.int64(number): 1.0 + number for number in range(4)},
            recipe=Recipe(selection=score), hardware=Hardware(checkpoint_dir=tmp_path),
        )  # fmt: skip
        return clf.fit(features[0], np.arange(len(features[0])) % 4)

    def make_score():
        def score(estimator, X, y):
            return estimator.predict_proba(X).max()

        return score

    first = fit(make_score())
    # The same code at another place in memory, as in another process.
    again = fit(make_score())
    assert again.history_["seconds"] == first.history_["seconds"]


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
    options = {"hardware__checkpoint_dir": tmp_path, "max_epochs": 1, "validation_fraction": None}
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


def test_a_checkpoint_knows_parameters_by_their_values(
    pictures, undisturbed, tmp_path, monkeypatch
):
    small_fit(hardware__checkpoint_dir=tmp_path).fit(*pictures)
    # Writing a default out is the same fit; so is a penalty, which epochs do not have.
    named = {"evidence": "softplus", "risk": "squared", "recipe__weight_decay": 0.05}
    for same in (named, {"l2": 0.5, "tol": 0.1}, {"hardware": Hardware(devices=1)}):
        resumed = small_fit(hardware__checkpoint_dir=tmp_path, **same).fit(*pictures)
        assert same_bits(weights_of(resumed), undisturbed)
    with pytest.raises(ValueError, match="other parameters"):
        small_fit(hardware__checkpoint_dir=tmp_path, recipe__weight_decay=0.5).fit(*pictures)
    # As a later release might have it.
    monkeypatch.setitem(H2EDLClassifier.__init__.__kwdefaults__, "evidence_scale", 0.5)
    with pytest.raises(ValueError, match="other parameters"):
        small_fit(hardware__checkpoint_dir=tmp_path).fit(*pictures)


def test_a_damaged_checkpoint_is_named(pictures, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a checkpoint"):
        small_fit(hardware__checkpoint_dir=tmp_path).fit(*pictures)


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
        hash_values(part)
        for part in (one, one.reshape(2, 2), one.astype(np.float32), [0, 1, 2, 3], "0123")
    }
    assert len(prints) == 5


# Trouble -------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_names_epoch_batch_and_samples():
    X = np.eye(8, dtype=np.float32)
    clf = H2EDLClassifier(
        backbone=None, solver="adamw", learning_rate=1e30, max_epochs=50, batch_size=4,
        recipe=Recipe(clip_norm=None), hardware=Hardware(accelerator="cpu"),
        validation_fraction=None, random_state=0,
    )  # fmt: skip
    with pytest.raises(FloatingPointError, match=r"epoch \d+, batch \d+, which begins with row"):
        clf.fit(X * 1e30, np.arange(8) % 2)
    with pytest.raises(NotFittedError):
        clf.predict(X)


def test_precision_is_single_where_the_device_has_no_bfloat16():
    assert resolve_precision("16-mixed") == "16-mixed"
    expected = "bf16-mixed" if torch.cuda.is_available() else "32-true"
    assert resolve_precision("auto") == expected


def test_layer_decay_and_warm_up_are_parameters_of_the_recipe(pictures):
    recipe = Recipe(layer_decay=0.7, warmup_epochs=0.5, clip_norm=None)
    clf = small_fit(max_epochs=1, recipe=recipe)
    assert np.isfinite(clf.fit(*pictures).history_["loss"]).all()


def test_a_step_of_sgd_is_that_of_torch():
    X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    y = np.arange(8) % 2
    recipe = Recipe(optimizer="sgd", weight_decay=0.1, clip_norm=None)
    options = {"backbone": None, "solver": "adamw", "max_epochs": 1, "batch_size": 8}
    clf = FlatCEClassifier(
        learning_rate=0.5, recipe=recipe, validation_fraction=None, random_state=0, **options
    ).fit(X, y)
    # From weights of zero, both classes have the probability 1/2.
    weight = torch.zeros(2, 3, requires_grad=True)
    bias = torch.zeros(2, requires_grad=True)
    inputs = clf.network_.standardized(torch.from_numpy(X))
    loss = torch.nn.functional.cross_entropy(inputs @ weight.T + bias, torch.from_numpy(y))
    loss.backward()
    step = torch.optim.SGD([weight, bias], lr=0.5, momentum=0.9, nesterov=True, weight_decay=0.1)
    step.step()
    torch.testing.assert_close(clf.network_.head.linear.weight, weight)
    torch.testing.assert_close(clf.network_.head.linear.bias, bias)


def test_a_recipe_may_be_a_name_and_still_be_changed_by_a_search():
    clf = H2EDLClassifier(recipe="paper").set_params(recipe__clip_norm=None)
    assert clf.recipe.get_params() == {**Recipe(**RECIPES["paper"]).get_params(), "clip_norm": None}
    both = H2EDLClassifier().set_params(recipe="paper", recipe__patience=3)
    assert both.recipe.patience == 3
    assert both.recipe.backbone_lr_scale == 0.1
    X, y = np.eye(8, 3), np.arange(8) % 2
    clf = FlatCEClassifier(backbone=None, solver="adamw", max_epochs=1, random_state=0)
    search = GridSearchCV(clf, {"recipe": ["fine_grained", "paper"]}, cv=2).fit(X, y)
    assert search.best_params_["recipe"] in RECIPES
    with pytest.raises(ValueError, match="'recipe' parameter of FlatCEClassifier must be"):
        FlatCEClassifier(backbone=None, recipe="quick").fit(X, y)
    with pytest.raises(ValueError, match=r"recipe must be a Recipe or one of .*, got 'quick'"):
        FlatCEClassifier(recipe="quick").set_params(recipe__patience=1)
    with pytest.raises(ValueError, match=r"hardware must be a Hardware or None, got 'gpu'"):
        FlatCEClassifier().set_params(hardware="gpu", hardware__devices=1)


def test_an_x_that_holds_no_images_is_refused_before_any_download(monkeypatch):
    from skh2edl.estimators import base as _base

    def download(*args, **options):
        raise AssertionError("the backbone was made first")

    monkeypatch.setattr(_base, "create_backbone", download)
    with pytest.raises(TypeError, match="X must hold images: file paths"):
        H2EDLClassifier(TREE).fit(np.zeros((4, 3)), ["red", "blue", "green", "yellow"])
