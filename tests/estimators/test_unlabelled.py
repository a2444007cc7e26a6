"""A label above all leaves says nothing: a pass-through node there counts as the root."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB
from strategies import taxonomies

from skh2edl import (
    CalibratedTreeClassifier,
    ConformalTreeClassifier,
    FlatCEClassifier,
    FlatEDLClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    HENNClassifier,
    HierCEClassifier,
    NoveltyDetector,
    SoftLabelClassifier,
    Taxonomy,
)
from skh2edl.report.hedging import needed_thresholds

METHODS = [
    FlatCEClassifier,
    HierCEClassifier,
    SoftLabelClassifier,
    FlatEDLClassifier,
    HENNClassifier,
    H2EDLClassifier,
]


@st.composite
def chained_data(draw, n_samples=60):
    """A tree below a chain, samples of its leaves, of which some are labelled with the chain."""
    shape = draw(taxonomies(max_nodes=9))
    length = draw(st.integers(1, 3))
    chain = [f"top{number}" for number in range(length)]
    names = ["root", *chain, *(f"n{node}" for node in range(1, shape.n_nodes))]
    tree = Taxonomy(names, [-1, *range(length), *(shape.parents[1:] + length)])
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    leaf = np.arange(n_samples) % tree.n_leaves
    X = rng.normal(size=(n_samples, tree.n_leaves)) + 2 * np.eye(tree.n_leaves)[leaf]
    y = np.array(tree.leaves, dtype=object)[leaf]
    says_nothing = rng.random(n_samples) < 0.2
    says_nothing[tree.n_leaves] = True
    says_nothing[: tree.n_leaves] = False
    labels = [np.where(says_nothing, label, y) for label in (chain[-1], chain[0], "root")]
    return tree, X, y, labels, says_nothing


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
@settings(max_examples=5, deadline=None)
@given(case=chained_data())
def test_a_fit_learns_nothing_from_it(method, case):
    tree, X, y, labels, says_nothing = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        models = [
            method(tree, backbone=None, max_iter=20).fit(X, one).predict_proba(X) for one in labels
        ]
        kept = ~says_nothing
        without = method(tree, backbone=None, max_iter=20).fit(X[kept], y[kept])
    np.testing.assert_array_equal(models[0], models[2])
    np.testing.assert_array_equal(models[1], models[2])
    np.testing.assert_allclose(models[2], without.predict_proba(X), atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(case=chained_data())
def test_thresholds_and_temperatures_learn_nothing_from_it(case):
    tree, X, y, labels, says_nothing = case
    fitted = FrozenEstimator(GaussianNB().fit(X, y.astype(str)))
    kept = ~says_nothing

    def learnt(X, y):
        hedged = HedgedClassifier(fitted, 0.8, taxonomy=tree).fit(X, y)
        by_level = HedgedClassifier(fitted, {tree.n_levels: 0.8}, taxonomy=tree).fit(X, y)
        conformal = ConformalTreeClassifier(fitted, 0.2, taxonomy=tree).fit(X, y)
        novelty = NoveltyDetector(fitted, 0.2, taxonomy=tree).fit(X, y)
        calibrated = CalibratedTreeClassifier(fitted, taxonomy=tree).fit(X, y)
        return [
            hedged.predict(X).tolist(),
            by_level.predict(X).tolist(),
            conformal.predict(X).tolist(),
            novelty.predict(X).tolist(),
            calibrated.temperature_,
            hedged.score(X, y),
        ]

    assert learnt(X, labels[0]) == learnt(X, labels[1]) == learnt(X, labels[2])
    leaves = np.full((kept.size, tree.n_leaves), 1 / tree.n_leaves)
    needed = [needed_thresholds(leaves, tree.resolve(one), tree) for one in labels]
    assert needed[0].size == kept.sum()
    np.testing.assert_array_equal(needed[0], needed[2])
