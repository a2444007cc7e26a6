"""The cheapest prediction, by exhaustive search over predictions and truths."""

import math

import numpy as np
import pandas as pd
import pytest
from decisions_cases import TREE, Told, population, stated_probabilities
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import H2EDLClassifier, MinimumCostClassifier, Taxonomy
from skh2edl.metrics import hierarchical_distance, mistake_severity

TOLD = FrozenEstimator(Told(TREE).fit(None))


def told(tree, *arguments, **parameters):
    clf = MinimumCostClassifier(FrozenEstimator(Told(tree).fit(None)), *arguments, **parameters)
    return clf.fit([[0.0]], [tree.leaves[0]])


@pytest.mark.slow
@parametrize_with_checks([MinimumCostClassifier(LogisticRegression())])
def test_all_of_scikit_learns_checks(estimator, check):
    check(estimator)


def ancestors(tree, node):
    found = [node]
    while found[-1]:
        found.append(int(tree.parents[found[-1]]))
    return found


def cost_by_hand(tree, name, predicted, leaf):
    meeting = next(node for node in ancestors(tree, predicted) if node in ancestors(tree, leaf))
    size = tree.leaf_stop - tree.leaf_start
    if name == "lca_height":
        return max(
            len(ancestors(tree, int(other))) - len(ancestors(tree, meeting))
            for other in tree.leaf_nodes
            if meeting in ancestors(tree, int(other))
        )
    if name == "distance":
        depth = {node: len(ancestors(tree, node)) for node in (predicted, leaf, meeting)}
        return depth[predicted] + depth[leaf] - 2 * depth[meeting]
    holds = predicted in ancestors(tree, leaf)
    if name == "zero_one":
        return float(not holds)
    given = math.log(tree.n_leaves / size[predicted]) / math.log(tree.n_leaves)
    return 1 - given if holds else 1.0


@settings(max_examples=50)
@given(
    stated_probabilities(),
    st.sampled_from(["lca_height", "distance", "zero_one", "information"]),
    st.sampled_from(["leaves", "nodes"]),
)
def test_no_prediction_is_expected_to_cost_less(case, name, outputs):
    tree, leaves = case
    clf = told(tree, name, outputs=outputs)
    nodes = tree.leaf_nodes.tolist() if outputs == "leaves" else list(range(tree.n_nodes))
    for row, label in zip(leaves, clf.predict(leaves), strict=True):
        expected = {
            node: math.fsum(
                p * cost_by_hand(tree, name, node, int(leaf))
                for p, leaf in zip(row, tree.leaf_nodes, strict=True)
            )
            for node in nodes
        }
        # Nodes of one chain have one name; the deepest is meant.
        chosen = tree.node(label)
        cheapest = min(expected.values())
        twins = [n for n in nodes if tree.last_of_chain[n] == tree.last_of_chain[chosen]]
        assert min(expected[node] for node in twins) <= cheapest + 1e-9


def test_costs_are_in_the_order_of_the_classes():
    rng = np.random.default_rng(0)
    given_costs = rng.random((9, 9))
    stated, _ = population(50)
    clf = told(TREE, given_costs)
    np.testing.assert_array_equal(clf.cost_matrix_, given_costs)
    expected = stated[:, TREE.leaf_order] @ given_costs.T
    np.testing.assert_allclose(clf.predict_cost(stated), expected)
    np.testing.assert_array_equal(clf.predict(stated), clf.classes_[expected.argmin(axis=1)])
    assert clf.outputs_ == clf.classes_.tolist()


def test_a_frame_and_a_function_say_the_same_as_an_array():
    rng = np.random.default_rng(1)
    names = TREE.labels(np.arange(TREE.n_nodes))
    array = rng.random((TREE.n_nodes, 9))
    # a2 and its only child s are one prediction with one name.
    array[TREE.node(("a", "a2"))] = array[TREE.node("s")]
    frame = pd.DataFrame(array, index=names, columns=TREE.sorted_leaf_labels)
    stated, _ = population(60)
    plain = told(TREE, array, outputs="nodes").predict(stated)
    shuffled = frame.iloc[rng.permutation(TREE.n_nodes), rng.permutation(9)]
    np.testing.assert_array_equal(told(TREE, shuffled, outputs="nodes").predict(stated), plain)
    function = told(TREE, lambda predicted, truth: frame.loc[predicted, truth], outputs="nodes")
    np.testing.assert_array_equal(function.predict(stated), plain)
    assert len(set(plain)) > 3


def test_pairs_name_single_costs_and_later_ones_go_first():
    clf = told(TREE, {("a", "b"): 7, ("p", "t"): 9, ("c", "c"): 0.5}, outputs="nodes")

    def cost(predicted, truth):
        return clf.cost_matrix_[TREE.node(predicted), clf.classes_.tolist().index(truth)]

    assert cost("a", "u") == cost("a1", "w") == cost("p", "u") == 7
    assert cost("p", "t") == 9
    assert cost("c", "c") == 0.5
    assert cost("b", "p") == 3  # the height of the root, as nothing else is said
    assert cost("p", "p") == 0


def test_calling_a_melanoma_benign_can_be_made_dear():
    tree = Taxonomy.from_nested({"benign": ["nevus", "wart"], "malignant": ["melanoma", "other"]})
    rng = np.random.default_rng(2)
    stated = rng.dirichlet([2, 1, 0.5, 0.3], size=2000)
    truth = np.array([rng.choice(4, p=row) for row in stated])
    labels = np.array(tree.leaves)[truth]
    costs = {("benign", "malignant"): 20.0}
    plain, careful = told(tree).predict(stated), told(tree, costs).predict(stated)
    malignant = np.isin(labels, ["melanoma", "other"])
    assert np.isin(plain[malignant], ["nevus", "wart"]).mean() > 0.4
    assert np.isin(careful[malignant], ["nevus", "wart"]).mean() < 0.1
    # Dearer errors are worth more of the cheap ones: the mean cost is less.
    judge = told(tree, costs)
    paid = [judge.cost_matrix_[judge.classes_.tolist().index(a)] for a in plain]
    columns = [judge.classes_.tolist().index(label) for label in labels]
    of_plain = np.mean(np.array(paid)[np.arange(2000), columns])
    assert -judge.score(stated, labels) < of_plain


def test_crm_makes_milder_mistakes_than_the_likeliest_leaf():
    stated, truth = population(5000)
    labels = TREE.labels(truth)
    likeliest = Told(TREE).fit(None).predict(stated)
    clf = told(TREE)
    predictions = clf.predict(stated)
    assert hierarchical_distance(labels, predictions, TREE) < hierarchical_distance(
        labels, likeliest, TREE
    )
    assert mistake_severity(labels, predictions, TREE) < mistake_severity(labels, likeliest, TREE)
    heights = -np.mean(TREE.heights[TREE.lowest_common_ancestor(TREE.resolve(predictions), truth)])
    assert clf.score(stated, labels) == pytest.approx(heights)


def test_inner_nodes_are_predicted_where_information_counts():
    stated, _ = population(300)
    predictions = told(TREE, "information", outputs="nodes").predict(stated)
    assert set(predictions) & {"a", "b", "a1", "b1", "b2"}
    assert "a2" not in predictions  # its only child says more
    assert "s" in predictions
    assert set(told(TREE, "lca_height", outputs="nodes").predict(stated)) <= set(TREE.leaves)


def test_it_wraps_forests_opinions_and_is_cloned():
    rng = np.random.default_rng(0)
    y = rng.choice(TREE.leaves, size=200)
    X = rng.normal(size=(200, 4)) + TREE.resolve(y)[:, None] / 2
    clf = MinimumCostClassifier(RandomForestClassifier(10, random_state=0), taxonomy=TREE)
    scores = cross_val_score(clf, X, y, cv=3)
    assert ((scores > -3) & (scores < 0)).all()
    weighted = clone(clf).fit(X, y, sample_weight=(y == "p").astype(float))
    assert set(weighted.predict(X)) == {"p"}
    evidential = MinimumCostClassifier(H2EDLClassifier(TREE, backbone=None, l2=0.1))
    assert len(evidential.fit(X[:60], y[:60]).predict_hyper_opinion(X)) == 200
    assert not hasattr(clf, "predict_hyper_opinion")


@pytest.mark.parametrize("unit", [1e-15, 1e-6, 1e9])
def test_the_unit_of_the_costs_changes_no_prediction(unit):
    costs = np.random.default_rng(0).random((9, 9))
    stated, _ = population(100)
    expected = told(TREE, costs).predict(stated)
    assert len(set(expected)) > 3
    np.testing.assert_array_equal(told(TREE, unit * costs).predict(stated), expected)


def test_labels_above_the_leaves_have_no_cost():
    stated, truth = population(100)
    clf = told(TREE)
    labels = np.array(TREE.labels(truth), dtype=object)
    labels[50:] = "a"
    assert clf.score(stated, labels) == clf.score(stated[:50], labels[:50])


def test_costs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"cost must have shape \(9, 9\), .* got \(2, 2\)"):
        told(TREE, np.eye(2))
    with pytest.raises(ValueError, match="finite, got nan for predicting 'p' where 'q' is"):
        told(TREE, lambda predicted, truth: np.nan if (predicted, truth) == ("p", "q") else 1)
    with pytest.raises(ValueError, match=r"pair of labels, \(prediction, truth\), got 'p'"):
        told(TREE, {"p": 3})
    with pytest.raises(ValueError, match=r"are not in the taxonomy, first \['newt'\]"):
        told(TREE, {("newt", "p"): 3})
    frame = pd.DataFrame(np.eye(8), index=list(TREE.leaves[:8]), columns=list(TREE.leaves[:8]))
    with pytest.raises(ValueError, match=r"no row or column for 2 label\(s\), first \['c', 'c'\]"):
        told(TREE, frame)
    for dear in ({("p", "q"): "dear"}, [["dear"]]):
        with pytest.raises(ValueError, match=r"Costs must be numbers \(could not convert"):
            told(TREE, dear)
    with pytest.raises(ValueError, match=r"'cost' parameter of .* Got 'dear' instead"):
        told(TREE, "dear")
