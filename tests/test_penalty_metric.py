"""The penalty that costs more where samples of one class differ."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.stats import ortho_group
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from skh2edl import FlatCEClassifier, H2EDLClassifier, HierCEClassifier, Taxonomy
from skh2edl.penalty_metric import WithinMetric

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"], "bear": None})


def metric_by_hand(X, y, weights):
    """The matrix of the docstring, class by class."""
    covariance = np.zeros((X.shape[1], X.shape[1]))
    for label in np.unique(y):
        own = y == label
        covariance += weights[own].sum() * np.cov(X[own].T, aweights=weights[own], ddof=0)
    metric = 0.4 * covariance / np.diag(covariance).mean() + 0.6 * np.eye(len(covariance))
    share = weights / weights.sum()
    after = share @ np.einsum("ij,jk,ik->i", X, np.linalg.inv(metric), X)
    return metric * after / (share @ np.square(X).sum(1))


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    y = np.array(["lynx", "puma", "fox", "wolf", "bear"])[np.arange(60) % 5]
    means = dict(zip(np.unique(y), 2 * rng.normal(size=(5, 4)), strict=True))
    # What a class varies in is not one feature, and not all of them alike.
    X = np.stack([means[label] for label in y]) + rng.normal(size=(60, 4)) @ rng.normal(size=(4, 4))
    return X - X.mean(0), y


@pytest.mark.parametrize("block", [3, 256])
def test_the_metric_is_the_one_computed_class_by_class(samples, block, monkeypatch):
    monkeypatch.setattr("skh2edl.penalty_metric._BLOCK", block)
    X, y = samples
    weights = np.random.default_rng(1).integers(1, 4, 60).astype(float)
    metric = WithinMetric(TREE, torch.from_numpy(X), TREE.resolve(y), weights)
    expected = metric_by_hand(X, y, weights)
    np.testing.assert_allclose(metric.factor @ metric.factor.T, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(metric.factor, metric.factor.tril())


def test_rows_read_in_the_new_coordinates_what_they_read_in_the_old_ones(samples):
    X, y = samples
    metric = WithinMetric(TREE, torch.from_numpy(X), TREE.resolve(y), np.ones(60))
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 4)))
    read = metric.features(torch.from_numpy(X)) @ metric.rows(rows).T
    np.testing.assert_allclose(read, X @ rows.numpy().T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(metric.rows_back(metric.rows(rows)), rows, rtol=1e-10)


def test_samples_of_labels_that_others_refine_say_nothing(samples):
    X, y = samples
    inputs, nodes = torch.from_numpy(X), TREE.resolve(y)
    whole = WithinMetric(TREE, inputs, nodes, np.r_[np.ones(50), np.zeros(10)])
    coarse = WithinMetric(
        TREE, inputs, TREE.resolve([*y[:50], *["cat"] * 10]), np.r_[np.ones(50), np.zeros(10)]
    )
    np.testing.assert_array_equal(coarse.factor, whole.factor)
    # With a weight they count for the size of the features, and for nothing else.
    coarse = WithinMetric(TREE, inputs, TREE.resolve([*y[:50], *["cat"] * 10]), np.ones(60))
    ratio = coarse.factor[0, 0] / whole.factor[0, 0]
    np.testing.assert_allclose(coarse.factor, ratio * whole.factor, rtol=1e-10, atol=1e-12)


def test_a_fit_is_logistic_regression_of_features_in_which_classes_are_rounder():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(0)).astype(np.float64)
    ours = FlatCEClassifier(
        backbone=None, l2=0.01, l2_metric="within", tol=1e-8, feature_scaling=None
    ).fit(X, y)
    # Any root of the metric will do.
    rounder = X @ np.linalg.inv(np.real(sqrtm(metric_by_hand(X, y, np.ones(len(X))))))
    theirs = LogisticRegression(C=1 / (0.01 * len(X)), tol=1e-10, max_iter=10_000).fit(rounder, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(rounder), atol=1e-5)
    # And it is not the fit without.
    plain = FlatCEClassifier(
        backbone=None, l2=0.01, l2_metric="identity", tol=1e-8, feature_scaling=None
    ).fit(X, y)
    assert np.abs(plain.predict_proba(X) - ours.predict_proba(X)).max() > 1e-3


@pytest.mark.parametrize("method", [H2EDLClassifier, HierCEClassifier])
def test_features_may_be_turned(method, samples):
    X, y = samples
    turned = X @ ortho_group.rvs(4, random_state=0)
    clf = method(TREE, backbone=None, l2_metric="within", tol=1e-7)
    expected = clf.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(clf.fit(turned, y).predict_proba(turned), expected, atol=1e-4)


def test_classes_of_one_sample_leave_the_penalty_as_it_is(samples):
    X = samples[0][:5]
    y = ["lynx", "puma", "fox", "wolf", "bear"]
    plain, within = (
        H2EDLClassifier(TREE, backbone=None, l2_metric=each, tol=1e-7).fit(X, y)
        for each in ("identity", "within")
    )
    np.testing.assert_allclose(within.predict_proba(X), plain.predict_proba(X), atol=1e-5)


def test_a_second_fit_goes_on_where_the_first_ended(samples):
    clf = H2EDLClassifier(TREE, backbone=None, l2_relaxation=1.0, tol=1e-5, warm_start=True)
    first = clf.fit(*samples).predict_proba(samples[0])
    assert clf.n_iter_ > 3
    np.testing.assert_allclose(clf.fit(*samples).predict_proba(samples[0]), first, atol=1e-3)
    assert clf.n_iter_ <= 3


def test_an_interrupted_second_fit_leaves_a_head_that_reads_the_features(samples, monkeypatch):
    clf = H2EDLClassifier(TREE, backbone=None, l2_metric="within", tol=1e-5, warm_start=True)
    first = clf.fit(*samples).predict_proba(samples[0])

    def interrupt(descent, max_iter, verbose):
        raise KeyboardInterrupt

    monkeypatch.setattr("skh2edl.quasi_newton.QuasiNewton.run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*samples)
    np.testing.assert_allclose(clf.predict_proba(samples[0]), first, atol=1e-5)


@pytest.mark.parametrize("weight", [1e-50, 1e45])
def test_a_class_of_hardly_any_or_nearly_all_weight_leaves_a_metric(samples, weight):
    X, y = samples
    weights = np.where(y == "lynx", weight, 1.0)
    single, double = (
        WithinMetric(TREE, torch.from_numpy(X).to(dtype), TREE.resolve(y), weights).factor
        for dtype in (torch.float32, torch.float64)
    )
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-5)
    assert np.abs(np.tril(double, -1)).max() > 0.01


def test_many_features_have_no_metric():
    X = np.zeros((6, 8193))
    X[:, :3] = np.random.default_rng(0).normal(size=(6, 3))
    y = ["lynx", "lynx", "puma", "puma", "fox", "fox"]
    plain, within = (
        H2EDLClassifier(TREE, backbone=None, l2_metric=each).fit(X, y).predict_proba(X)
        for each in ("identity", "within")
    )
    np.testing.assert_array_equal(within, plain)


@pytest.mark.parametrize("size", [1e-30, 1e25])
def test_the_metric_is_that_of_features_of_any_size(samples, size):
    inputs, nodes = torch.from_numpy(samples[0]).float(), TREE.resolve(samples[1])
    expected = WithinMetric(TREE, inputs, nodes, np.ones(60)).factor
    found = WithinMetric(TREE, inputs * size, nodes, np.ones(60)).factor
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_features_that_are_all_alike_are_fitted_without_a_metric():
    clf = H2EDLClassifier(TREE, backbone=None, l2_metric="within")
    proba = clf.fit(np.ones((4, 3)), ["lynx", "lynx", "puma", "fox"]).predict_proba(np.ones((1, 3)))
    assert TREE.sorted_leaf_labels[proba.argmax()] == "lynx"


def test_another_metric_is_refused(samples):
    with pytest.raises(ValueError, match="'l2_metric' parameter"):
        H2EDLClassifier(TREE, backbone=None, l2_metric="between").fit(*samples)
