"""Numbers that hold: for features of any size, in any batch, in every run."""

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import cross_validate

import skh2edl
from skh2edl import H2EDLClassifier, Hardware, Taxonomy
from skh2edl.estimators.methods import MODEL_CLASSES

TREE = Taxonomy.from_nested(
    {"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf", "dhole"], "other": None}
)
X = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
LABELS = np.resize(TREE.leaves, 48)
SIZES = [0, 1e-30, 1e-3, 1e6, 1e30]


@pytest.fixture(scope="module", params=MODEL_CLASSES)
def fitted(request):
    kind = getattr(skh2edl, request.param)
    return kind(TREE, backbone=None, max_iter=50, tol=1e-2).fit(X, LABELS)


def assert_probabilities(proba, atol):
    assert (proba >= 0).all()  # false for NaN
    assert_allclose(proba.sum(axis=1, dtype=float), 1, rtol=0, atol=atol)


@pytest.mark.filterwarnings("ignore:X holds values far from all training data")
def test_features_of_any_size_give_probabilities(fitted):
    for size in SIZES:
        far = X * np.float32(size)
        # The logarithm of 1e30 is 69, of which float32 keeps six digits after the point.
        assert_probabilities(fitted.predict_proba(far), atol=1e-5)
        if hasattr(fitted, "predict_hyper_opinion"):
            opinion = fitted.predict_hyper_opinion(far)
            assert opinion.mass.dtype == np.float32
            assert_probabilities(opinion.mass, atol=1e-6)


def test_a_prediction_depends_on_no_other_row(fitted):
    whole = fitted.predict_proba(X)
    order = np.random.default_rng(1).permutation(len(X))
    assert_allclose(fitted.predict_proba(X[order]), whole[order], rtol=0, atol=1e-6)
    for rows in (slice(0, 1), slice(3, 10), slice(40, 48)):
        assert_allclose(fitted.predict_proba(X[rows]), whole[rows], rtol=0, atol=1e-6)
    # An outlier among them changes nothing for the others.
    with_outlier = np.vstack([X[:5], np.full((1, 4), 1e30, dtype=np.float32)])
    with pytest.warns(UserWarning, match=r"1 row\(s\), first row 5: 1e\+30 in column 0"):
        proba = fitted.predict_proba(with_outlier)
    assert_allclose(proba[:5], whole[:5], rtol=0, atol=1e-6)


def test_a_prediction_about_an_image_depends_on_no_other_image():
    images = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    clf = H2EDLClassifier(
        TREE, backbone="test_resnet", weights=None, image_size=32, max_epochs=1, batch_size=4,
        validation_fraction=None, random_state=0, hardware=Hardware(accelerator="cpu"),
    ).fit(images, LABELS[:12])  # fmt: skip
    whole = clf.predict_proba(images)
    for batch_size in (1, 5, 12):
        clf.set_params(batch_size=batch_size)
        assert_allclose(clf.predict_proba(images), whole, rtol=0, atol=1e-6)
        assert_allclose(clf.predict_proba(images[::-1]), whole[::-1], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["lbfgs", "adamw"])
def test_a_fit_has_the_same_bits_whatever_the_number_of_jobs(solver):
    clf = H2EDLClassifier(
        TREE, backbone=None, solver=solver, max_epochs=2, tol=1e-2, random_state=0,
        hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip
    predictions = {}
    for n_jobs, backend in [(1, "sequential"), (2, "multiprocessing"), (2, "threading")]:
        with joblib.parallel_config(backend=backend):
            found = cross_validate(clf, X, LABELS, cv=3, n_jobs=n_jobs, return_estimator=True)
        predictions[backend] = [one.predict_log_proba(X) for one in found["estimator"]]
    assert_array_equal(predictions["multiprocessing"], predictions["sequential"])
    assert_array_equal(predictions["threading"], predictions["sequential"])
