"""Predictions among some candidates are conditional probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from skh2edl import CandidateClassifier, H2EDLClassifier, HedgedClassifier, Taxonomy
from skh2edl.taxonomy.candidates import candidate_leaves, condition
from tests.strategies import taxonomies

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma", "lion"], "dog": ["fox", "wolf"], "bear": None})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.choice(TREE.leaves, 240)
    return rng.normal(size=(240, 4)) + TREE.resolve(y)[:, None], y


@pytest.fixture(scope="module")
def model(data):
    return H2EDLClassifier(TREE, backbone=None).fit(*data)


@given(taxonomies(), st.data())
def test_conditioning_divides_by_the_probability_of_the_candidates(tree, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    leaves = rng.dirichlet(np.ones(tree.n_leaves), size=3)
    inside = [
        any(tree.leaf_start[v] <= leaf < tree.leaf_stop[v] for v in nodes)
        for leaf in range(tree.n_leaves)
    ]
    mask = candidate_leaves(tree, [tree._index.path(node) for node in nodes])
    assert mask.tolist() == inside
    logs, total = condition(np.log(leaves), mask)
    np.testing.assert_allclose(total, leaves[:, inside].sum(axis=1), rtol=1e-12)
    expected = np.where(inside, leaves, 0) / leaves[:, inside].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(logs), expected, rtol=1e-12)


def test_a_clade_of_an_evidential_model_is_the_product_below_it(model, data):
    X, y = data
    inside = CandidateClassifier(FrozenEstimator(model), "cat", warn_below=0).fit(X, y)
    opinion = model.predict_hyper_opinion(X)
    np.testing.assert_allclose(
        inside.candidate_probability(X), opinion.probability("cat"), rtol=1e-6
    )
    # Below the clade's decision nothing changes: the conditional probabilities of its children.
    below = [TREE.decisions.index((("cat",), ("cat", name))) for name in ("lynx", "puma", "lion")]
    columns = [list(inside.classes_).index(name) for name in ("lynx", "puma", "lion")]
    np.testing.assert_allclose(
        inside.predict_proba(X)[:, columns], opinion.conditional_probability[:, below], rtol=1e-5
    )
    assert set(inside.predict(X)) <= {"lynx", "puma", "lion"}
    assert inside.candidates_ == ["lynx", "puma", "lion"]


@pytest.mark.parametrize(
    "estimator",
    [GaussianNB(), make_pipeline(StandardScaler(), LogisticRegression()), "model"],
    ids=["naive Bayes", "pipeline", "ours"],
)
def test_any_probabilistic_classifier_is_restricted(estimator, model, data):
    X, y = data
    estimator = FrozenEstimator(model) if estimator == "model" else estimator
    clf = CandidateClassifier(estimator, ["lynx", "dog"], warn_below=0, taxonomy=TREE).fit(X, y)
    inside = np.isin(clf.classes_, ["lynx", "fox", "wolf"])
    proba = clf.estimator_.predict_proba(X)
    expected = np.where(inside, proba, 0) / proba[:, inside].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X), expected, rtol=1e-5)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[expected.argmax(axis=1)])
    level = clf.predict_proba_level(X, 1)
    np.testing.assert_allclose(level[:, TREE.level(1).index("bear")], 0)


def test_it_is_exact_where_the_candidates_are_too_unlikely_for_a_float():
    logs = np.array([[0.0, -1000.0, -1001.0]])
    conditioned, total = condition(logs, np.array([False, True, True]))
    assert total[0] == 0
    np.testing.assert_allclose(np.exp(conditioned[0]), [0, 1 / (1 + np.exp(-1)), 1 / (1 + np.e)])


def test_all_leaves_are_candidates_unless_some_are_named(model, data):
    X, y = data
    clf = CandidateClassifier(FrozenEstimator(model)).fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(X), model.predict_proba(X), rtol=1e-5)
    np.testing.assert_allclose(clf.candidate_probability(X), 1, rtol=1e-6)


def test_samples_that_are_hardly_candidates_are_pointed_out(data):
    X, y = data
    clf = CandidateClassifier(GaussianNB(), ["lynx"], taxonomy=TREE).fit(X, y)
    far = np.r_[X[y == "lynx"][:1], X[:1] * 0 + 50]
    with pytest.warns(UserWarning, match=r"1 of 2 sample\(s\) have less than 0\.01 .*sample 1"):
        assert clf.predict(far).tolist() == ["lynx", "lynx"]
    assert clf.candidate_probability(far)[1] < 1e-6


def test_impossible_candidates_are_equally_likely():
    with np.errstate(divide="ignore"):
        logs, total = condition(np.log([[1.0, 0, 0]]), np.array([False, True, True]))
    np.testing.assert_allclose(np.exp(logs[0]), [0, 0.5, 0.5])
    assert total[0] == 0


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (["lynx", "wulf"], r"candidates must name nodes .*\['wulf'\]\. 'wulf' is close to 'wolf'"),
        ("bird", r"candidates must name nodes of the taxonomy: 1 label\(s\)"),
        ([], "candidates is empty"),
    ],
)
def test_candidates_that_the_tree_does_not_name_are_refused(model, data, candidates, message):
    with pytest.raises(ValueError, match=message):
        CandidateClassifier(FrozenEstimator(model), candidates).fit(*data)


def test_a_hedge_around_it_keeps_its_target(data):
    rng = np.random.default_rng(1)
    park = ["lynx", "fox", "wolf"]
    y = rng.choice(park, 2000)
    X = rng.normal(size=(2000, 4)) + TREE.resolve(y)[:, None]
    base = GaussianNB().fit(*data)
    clf = CandidateClassifier(FrozenEstimator(base), park, warn_below=0, taxonomy=TREE).fit(*data)
    hedged = HedgedClassifier(FrozenEstimator(clf), 0.9).fit(X[:1000], y[:1000])
    # 1,000 held-out samples: the accuracy varies by sqrt(0.9 * 0.1 * 2 / 1000) = 0.013.
    assert hedged.score(X[1000:], y[1000:]) > 0.86


def test_it_is_a_scikit_learn_classifier():
    check_estimator(CandidateClassifier(LogisticRegression()), on_skip=None)


def test_it_may_be_searched_over_by_name():
    X, y = load_iris(return_X_y=True)
    clf = CandidateClassifier(GaussianNB(), [0, 1], warn_below=0).fit(X, y)
    assert set(clf.predict(X)) <= {0, 1}
    assert clf.set_params(candidates=[2]).fit(X, y).predict(X[:2]).tolist() == [2, 2]
