"""Saved models: the same bits come back, and a fault while saving costs no file."""

import errno
import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skh2edl import FlatCEClassifier, H2EDLClassifier, Hardware, Prior, Recipe, Taxonomy, load_model
from skh2edl.estimators.base import TreeClassifier
from skh2edl.estimators.methods import MODEL_CLASSES

TREE = Taxonomy.from_nested(
    {"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf", "other"], "other": None},
    level_names=("family", "genus", "species"),
)
N_FEATURES = 4
IMAGES = np.random.default_rng(0).integers(0, 256, (10, 24, 24, 3), dtype=np.uint8)
LABELS = np.array(TREE.leaves)[np.arange(60) % TREE.n_leaves]
TINY = {"backbone": "test_resnet", "weights": None, "image_size": 32, "random_state": 0}


def rows(n_samples=60, dtype=np.float32):
    return np.random.default_rng(n_samples).normal(size=(n_samples, N_FEATURES)).astype(dtype)


def class_named(name):
    return MODEL_CLASSES[name]


def save_and_load(classifier, folder):
    classifier.save(folder / "model.safetensors")
    return load_model(folder / "model.safetensors")


@pytest.mark.parametrize("name", MODEL_CLASSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_model_predicts_the_same_bits(tmp_path, name, dtype):
    X = rows(dtype=dtype)
    classifier = class_named(name)(TREE, backbone=None).fit(X, [*LABELS[:50], *["cat"] * 10])
    loaded = save_and_load(classifier, tmp_path)
    assert type(loaded) is type(classifier)
    assert_array_equal(loaded.predict_log_proba(X), classifier.predict_log_proba(X))
    assert loaded.predict_log_proba(X).dtype == dtype
    assert_array_equal(loaded.classes_, classifier.classes_)
    assert loaded.taxonomy_ == loaded.taxonomy == TREE
    assert loaded.history_ == classifier.history_
    assert loaded.n_iter_ == classifier.n_iter_


def test_a_model_keeps_its_parameters_when_defaults_change(tmp_path, monkeypatch):
    X = rows()
    classifier = H2EDLClassifier(TREE, backbone=None).fit(X, LABELS)
    expected = classifier.predict_log_proba(X)
    classifier.save(tmp_path / "model.safetensors")
    # As a later release might have it.
    defaults = H2EDLClassifier.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "evidence", "exp")
    monkeypatch.setitem(defaults, "evidence_scale", 7.0)
    loaded = load_model(tmp_path / "model.safetensors")
    assert H2EDLClassifier().evidence == "exp"
    assert loaded.evidence == classifier.evidence == "softplus"
    assert loaded.evidence_scale == classifier.evidence_scale
    assert_array_equal(loaded.predict_log_proba(X), expected)
    again = save_and_load(loaded, tmp_path)
    assert_array_equal(again.predict_log_proba(X), expected)


@pytest.mark.parametrize("evidence", ["softplus", "relu", "exp"])
def test_opinions_come_back_with_every_kind_of_evidence(tmp_path, evidence):
    X = rows()
    classifier = H2EDLClassifier(TREE, backbone=None, evidence=evidence).fit(X, LABELS)
    loaded = save_and_load(classifier, tmp_path)
    assert loaded.predict_hyper_opinion(X) == classifier.predict_hyper_opinion(X)


def test_parameters_set_after_the_fit_do_not_change_what_a_file_predicts(tmp_path):
    X = rows()
    classifier = H2EDLClassifier(TREE, backbone=None).fit(X, LABELS)
    expected = classifier.predict_log_proba(X)
    classifier.set_params(evidence="exp", evidence_scale=1.0, prior__power=1.0, kl_weight=0.3)
    loaded = save_and_load(classifier, tmp_path)
    assert_array_equal(loaded.predict_log_proba(X), expected)
    assert (loaded.evidence, loaded.prior, loaded.kl_weight) == ("softplus", None, 0.3)


# A value that is no default, for every parameter that some method has of its own.
ANOTHER = {
    "consistency_weight": 0.2,
    "depth_decay": 0.7,
    "depth_weights": [2.0, 1.0, 0.5],
    "evidence": "exp",
    "evidence_scale": 2.0,
    "familiarity": "density",
    "fisher_weight": 0.01,
    "group_level": 1,
    "initial_vacuity": 0.2,
    "kl_per_child": False,
    "kl_ramp": 0.1,
    "kl_weight": 0.3,
    "label_smoothing": 0.2,
    "leaf_prior": 0.4,
    "leaf_weight": 0.5,
    "partial_labels": "drop",
    "prior": Prior(power=1.0),
    "relaxation": 0.3,
    "risk": "log",
    "sharpness": 3.0,
    "shrinkage": 0.5,
}


@pytest.mark.parametrize("name", sorted(MODEL_CLASSES))
def test_no_parameter_of_a_method_set_after_the_fit_changes_what_a_file_predicts(tmp_path, name):
    X = rows()
    classifier = MODEL_CLASSES[name](TREE, backbone=None).fit(X, LABELS)
    expected = classifier.predict_log_proba(X)
    own = set(classifier.get_params(deep=False)) - set(TreeClassifier().get_params(deep=False))
    classifier.set_params(**{parameter: ANOTHER[parameter] for parameter in own})
    assert_array_equal(save_and_load(classifier, tmp_path).predict_log_proba(X), expected)


def test_opinions_come_back_with_their_prior_and_the_nodes_without_labels(tmp_path):
    X = rows(20)
    classifier = H2EDLClassifier(TREE, backbone=None, prior=Prior(power=1.0)).fit(
        X, ["lynx", "lynx", "puma", "dog"] * 5
    )
    loaded = save_and_load(classifier, tmp_path)
    assert loaded.unsupervised_nodes_ == classifier.unsupervised_nodes_ == ["dog"]
    assert loaded.predict_hyper_opinion(X) == classifier.predict_hyper_opinion(X)


@pytest.mark.parametrize("finetune", ["full", "head"])
def test_an_image_model_comes_back_with_its_backbone(tmp_path, finetune):
    classifier = H2EDLClassifier(TREE, finetune=finetune, max_epochs=1, **TINY)
    classifier.fit(IMAGES, LABELS[:10])
    loaded = save_and_load(classifier, tmp_path)
    assert_array_equal(loaded.predict_log_proba(IMAGES), classifier.predict_log_proba(IMAGES))
    assert loaded.network_.backbone.data_config == classifier.network_.backbone.data_config
    assert loaded.network_.backbone.frozen is (finetune == "head")
    assert getattr(loaded, "best_epoch_", None) == getattr(classifier, "best_epoch_", None)


@pytest.mark.parametrize("labels", [[3, 1, 7], ["b", "a", "ä/c"], [True, False]])
def test_labels_without_a_taxonomy_keep_their_type(tmp_path, labels):
    y = np.array(labels)[np.arange(60) % len(labels)]
    classifier = FlatCEClassifier(backbone=None).fit(rows(), y)
    loaded = save_and_load(classifier, tmp_path)
    assert loaded.taxonomy is None
    assert loaded.classes_.dtype == classifier.classes_.dtype == y.dtype
    assert_array_equal(loaded.predict(rows()), classifier.predict(rows()))


def test_names_of_columns_come_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows(), columns=["länge", "b", "c", "d"])
    loaded = save_and_load(FlatCEClassifier(backbone=None).fit(frame, LABELS), tmp_path)
    assert_array_equal(loaded.feature_names_in_, ["länge", "b", "c", "d"])
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[["b", "länge", "c", "d"]])


def test_parameters_come_back(tmp_path):
    parameters = {
        "weights": Path("some") / "weights.safetensors",
        "depth_weights": np.array([1.0, 0.5, 0.25]),
        "class_weight": {"lynx": 2.0, "puma": 1},
        "recipe": Recipe(augmentation={"scale": (0.5, 1.0), "vflip": 0.5}, patience=4),
        "image_size": (32, 48),
        "kl_weight": np.float32(0.5),
        "random_state": np.int64(3),
        "evidence_scale": "learn",
        "tol": 1e-3,
    }
    classifier = H2EDLClassifier(TREE, backbone=None, **parameters).fit(rows(), LABELS)
    loaded = save_and_load(classifier, tmp_path).get_params()
    assert loaded.pop("weights") == str(Path("some") / "weights.safetensors")
    assert loaded.pop("depth_weights") == [1.0, 0.5, 0.25]
    assert loaded["image_size"] == (32, 48)
    assert loaded["recipe__augmentation"] == {"scale": (0.5, 1.0), "vflip": 0.5}
    assert isinstance(loaded.pop("recipe"), Recipe)
    kept = {name: value for name, value in classifier.get_params().items() if name in loaded}
    assert loaded == kept


def test_what_speaks_of_the_machine_or_cannot_be_written_falls_back_to_its_default(tmp_path):
    classifier = H2EDLClassifier(
        TREE,
        backbone=None,
        recipe=Recipe(selection=lambda estimator, X, y: 0.0, patience=4),
        hardware=Hardware(memory=str(tmp_path / "cache"), checkpoint_dir=tmp_path / "run"),
        random_state=np.random.RandomState(0),
    ).fit(rows(), LABELS)
    loaded = save_and_load(classifier, tmp_path)
    assert loaded.hardware is loaded.random_state is None
    assert loaded.recipe.selection == "balanced_accuracy"
    assert loaded.recipe.patience == 4


def test_a_clone_of_a_loaded_model_fits_to_the_same_bits(tmp_path):
    classifier = H2EDLClassifier(TREE, backbone=None, kl_weight=0.1).fit(rows(), LABELS)
    again = clone(save_and_load(classifier, tmp_path)).fit(rows(), LABELS)
    assert_array_equal(again.predict_log_proba(rows()), classifier.predict_log_proba(rows()))


def test_a_loaded_model_can_be_trained_on_and_saved_again(tmp_path):
    classifier = H2EDLClassifier(TREE, backbone=None, random_state=0).fit(rows(), LABELS)
    loaded = save_and_load(classifier, tmp_path)
    loaded.partial_fit(rows(), LABELS)
    classifier.partial_fit(rows(), LABELS)
    assert_array_equal(loaded.predict_log_proba(rows()), classifier.predict_log_proba(rows()))
    again = save_and_load(loaded, tmp_path)
    assert_array_equal(again.predict_log_proba(rows()), loaded.predict_log_proba(rows()))


def test_pickle_and_joblib_work_too(tmp_path):
    on_rows = H2EDLClassifier(TREE, backbone=None).fit(rows(), LABELS)
    on_images = H2EDLClassifier(TREE, finetune="head", **TINY).fit(IMAGES, LABELS[:10])
    for classifier, X in [(on_rows, rows()), (on_images, IMAGES)]:
        joblib.dump(classifier, tmp_path / "model.joblib")
        joblib_copy = joblib.load(tmp_path / "model.joblib")
        for copied in (pickle.loads(pickle.dumps(classifier)), joblib_copy):
            assert_array_equal(copied.predict_log_proba(X), classifier.predict_log_proba(X))


def test_an_unfitted_classifier_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        H2EDLClassifier(TREE).save(tmp_path / "model.safetensors")


def test_a_class_that_could_not_be_loaded_is_not_saved(tmp_path):
    class Mine(FlatCEClassifier):
        pass

    with pytest.raises(TypeError, match="Mine is not a classifier of this package"):
        Mine(TREE, backbone=None).fit(rows(), LABELS).save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "model.safetensors"
    classifier = FlatCEClassifier(TREE, backbone=None).fit(rows(), LABELS)
    classifier.save(path)
    old = path.read_bytes()

    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    classifier.fit(2 * rows(50), LABELS[:50])
    monkeypatch.setattr(f"skh2edl.utils.files.os.{step}", fail)
    with pytest.raises(OSError, match="No space left on device"):
        classifier.save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
