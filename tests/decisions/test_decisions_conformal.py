"""Conformal sets have the guaranteed coverage, and are what a loop over leaves and nodes finds."""

import numpy as np
import pytest
from decisions_cases import TREE, Told, population, stated_probabilities
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import ConformalTreeClassifier
from skh2edl.decisions._ladders import Ladder, covers, last_rung
from skh2edl.decisions._needed import node_thresholds_needed
from skh2edl.decisions._quantile import conformal_quantile
from skh2edl.decisions.conformal import (
    largest_scores,
    leaf_scores,
    outside_ladder,
    write_as_nodes,
)

SHARPNESS = {"calibrated": 1.0, "over-confident": 4.0, "under-confident": 0.3}
TOLD = FrozenEstimator(Told(TREE).fit(None))


def conformal(stated, truth, alpha=0.1, **parameters):
    clf = ConformalTreeClassifier(TOLD, alpha, **parameters)
    return clf.fit(stated, TREE.labels(truth))


@parametrize_with_checks([ConformalTreeClassifier(LogisticRegression(), alpha=0.9)])
def test_all_of_scikit_learns_checks(estimator, check):
    # So lax that the root, which is no class, is never predicted.
    check(estimator)


# The guarantee -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_calibration", [50, 500, 5000])
def test_over_a_thousand_splits_the_sets_have_their_coverage(n_calibration):
    alpha, n_splits, n_test = 0.1, 1000, 300
    cases = []
    for number, sharpness in enumerate(SHARPNESS.values()):
        stated, truth = population(n_calibration + n_test, sharpness, seed=number)
        for kind in ("probability", "cumulative"):
            scores = leaf_scores(stated, kind, TREE)
            of_truth = scores[np.arange(len(truth)), TREE.leaf_start[truth]]
            ladder = outside_ladder(stated, scores, TREE)
            needed = node_thresholds_needed(stated, largest_scores(stated, kind), truth, TREE)
            cases.append((of_truth, ladder, truth, needed))
    rng = np.random.default_rng(n_calibration)
    sets_miss = np.zeros((n_splits, len(cases)))
    nodes_miss = np.zeros((n_splits, len(cases)))
    ones = np.ones(n_calibration)
    for split in range(n_splits):
        order = rng.permutation(n_calibration + n_test)
        held, new = order[:n_calibration], order[n_calibration:]
        for number, (of_truth, ladder, truth, needed) in enumerate(cases):
            largest = conformal_quantile(of_truth[held], 1 - alpha, ones)
            sets_miss[split, number] = np.mean(of_truth[new] > largest)
            nodes, scores = ladder.nodes[new], ladder.scores[new]
            threshold = conformal_quantile(needed[held], 1 - alpha, ones)
            predictions = nodes[np.arange(n_test), last_rung(Ladder(nodes, scores), threshold)]
            nodes_miss[split, number] = 1 - covers(predictions, truth[new], TREE).mean()
    rank = np.ceil((n_calibration + 1) * (1 - alpha) - 1e-9)
    spread = betabinom(n_test, n_calibration + 1 - rank, rank).std() / n_test
    error = 4 * spread / np.sqrt(n_splits)
    for missed in (sets_miss, nodes_miss):
        assert missed.mean(axis=0).max() <= alpha + error
        assert missed.mean(axis=0).min() >= alpha - 1 / (n_calibration + 1) - error


def test_every_class_has_its_coverage():
    stated, truth = population(6000, 1.0, seed=3)
    rng, n_splits, n_held, alpha = np.random.default_rng(0), 60, 1500, 0.1
    missed, plain_missed, counted = np.zeros(9), np.zeros(9), np.zeros(9)
    position = TREE.leaf_start[truth]
    # One class is rare among the held-out samples, and one is told badly.
    rare = np.flatnonzero(position == 3)
    stated[position == 5] = stated[rng.permutation(6000)[: np.sum(position == 5)]]
    column = np.argsort(TREE.leaf_order)[position]
    for _ in range(n_splits):
        order = rng.permutation(6000)
        held = np.setdiff1d(order[:n_held], rare[5:])
        new = order[n_held:]
        rows = np.arange(len(new))
        options = {"conditional_on": "leaf", "small_classes": "include"}
        clf = conformal(stated[held], truth[held], alpha, **options)
        inside = clf.predict_leaf_set(stated[new])[rows, column[new]]
        plain = conformal(stated[held], truth[held], alpha)
        plain_inside = plain.predict_leaf_set(stated[new])[rows, column[new]]
        missed += np.bincount(position[new], ~inside, minlength=9)
        plain_missed += np.bincount(position[new], ~plain_inside, minlength=9)
        counted += np.bincount(position[new], minlength=9)
    # Every class but the rare one has 80 held-out samples or more.
    spread = np.sqrt(alpha * (1 - alpha) * (1 / 80 + 1 / 250)) / np.sqrt(n_splits)
    assert (missed / counted <= alpha + 4 * spread).all()
    assert missed[3] == 0
    assert (plain_missed / counted)[5] > 2 * alpha


def test_labels_above_the_leaves_ask_for_all_leaves_below():
    stated, truth = population(6000, seed=7)
    hard = (stated.max(axis=1) < 0.9) & (np.arange(6000) < 3000)
    labels = np.where(hard, TREE.project(truth, 1), truth)
    column = np.argsort(TREE.leaf_order)[TREE.leaf_start[truth[3000:]]]
    missed = {}
    for reading in ("wrong", "drop"):
        clf = conformal(stated[:3000], labels[:3000], partial_labels=reading)
        missed[reading] = 1 - clf.predict_leaf_set(stated[3000:])[np.arange(3000), column].mean()
    assert missed["wrong"] <= 0.1
    assert missed["drop"] > 0.1 + 4 * np.sqrt(0.1 * 0.9 * 2 / 3000)


# Sets ----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(stated_probabilities(), st.sampled_from(["probability", "cumulative"]), st.integers(0, 99))
def test_sets_are_nested_in_alpha_and_hold_the_likeliest_leaf(case, kind, seed):
    tree, leaves = case
    rng = np.random.default_rng(seed)
    clf = ConformalTreeClassifier(FrozenEstimator(Told(tree).fit(None)), nonconformity=kind)
    truth = rng.integers(0, tree.n_leaves, size=40)
    held = rng.dirichlet(np.full(tree.n_leaves, 0.5), size=40)
    labels = [tree.leaves[position] for position in truth]
    sets = [
        clf.set_params(alpha=alpha).fit(held, labels).predict_leaf_set(leaves)
        for alpha in (0.05, 0.3, 0.8)
    ]
    nodes = [
        tree.resolve(clf.set_params(alpha=a).fit(held, labels).predict(leaves)) for a in (0.05, 0.8)
    ]
    assert (sets[0] >= sets[1]).all()
    assert (sets[1] >= sets[2]).all()
    likeliest = leaves[:, tree.leaf_order].argmax(axis=1)
    assert sets[2][np.arange(len(leaves)), likeliest].all()
    assert covers(nodes[0], nodes[1], tree).all()


@given(stated_probabilities(), st.integers(0, 10**6))
def test_nodes_name_exactly_the_leaves_of_a_set_and_are_fewest(case, seed):
    tree, leaves = case
    members = np.random.default_rng(seed).random(leaves.shape) < 0.7
    for row, labels in zip(members, write_as_nodes(members, tree), strict=True):
        named = np.zeros(tree.n_leaves, dtype=int)
        nodes = tree.resolve(labels).tolist()
        for node in nodes:
            named[tree.leaf_start[node] : tree.leaf_stop[node]] += 1
        np.testing.assert_array_equal(named, row)
        for node in nodes:  # no larger node would have done
            top = node
            while top and tree.leaf_stop[top] - tree.leaf_start[top] == (
                tree.leaf_stop[node] - tree.leaf_start[node]
            ):
                top = int(tree.parents[top])
            if (tree.leaf_stop - tree.leaf_start)[node] < tree.n_leaves:
                assert not row[tree.leaf_start[top] : tree.leaf_stop[top]].all()


def test_the_single_node_is_the_smallest_over_a_set_of_its_own():
    stated, truth = population(500, 2.0)
    clf = conformal(stated, truth)
    new, _ = population(200, 2.0, seed=1)
    for row, node in zip(new, TREE.resolve(clf.predict(new)).tolist(), strict=True):
        members = [k for k in range(9) if 1 - row[k] < clf.node_threshold_] + [int(row.argmax())]
        common = TREE.leaf_nodes[members[0]]
        for k in members[1:]:
            common = TREE.lowest_common_ancestor([common], [TREE.leaf_nodes[k]])[0]
        assert TREE.last_of_chain[common] == TREE.last_of_chain[node]


def test_with_a_guarantee_for_each_class_the_node_is_over_the_set():
    stated, truth = population(900, 1.5)
    clf = conformal(stated, truth, conditional_on="order")
    assert clf.threshold_.shape == (3,)
    assert not hasattr(clf, "node_threshold_")
    new, _ = population(100, 1.5, seed=1)
    for labels, node in zip(clf.predict_set(new), clf.predict(new), strict=True):
        nodes = TREE.resolve(labels)
        common = nodes[:1]
        for other in nodes[1:]:
            common = TREE.lowest_common_ancestor(common, [other])
        assert TREE.last_of_chain[common[0]] == TREE.last_of_chain[TREE.node(node)]


def test_labels_above_the_classes_belong_to_none_of_them():
    stated, truth = population(400)
    options = {"conditional_on": "family", "alpha": 0.2}
    known = conformal(stated[:300], truth[:300], **options)
    labels = truth.copy()
    labels[300:] = TREE.node("a")
    np.testing.assert_array_equal(conformal(stated, labels, **options).threshold_, known.threshold_)


def test_pooled_classes_have_an_approximate_guarantee():
    stated, truth = population(150)
    pooled = conformal(stated, truth, conditional_on="leaf", small_classes="pool", alpha=0.06)
    assert max(map(len, pooled.conditional_classes_)) > 1
    assert pooled.guarantee_ == "approximate"
    options = {"conditional_on": "order", "small_classes": "pool"}
    assert conformal(stated, truth, **options).guarantee_ == "exact"


def test_the_threshold_is_the_quantile_of_the_scores():
    stated, truth = population(99, 1.0)
    clf = conformal(stated, truth, alpha=0.2)
    own = 1 - stated[np.arange(99), TREE.leaf_start[truth]]
    own[stated.argmax(axis=1) == TREE.leaf_start[truth]] = 0
    # The 80th of 99, and the margin for batches of other sizes.
    assert clf.threshold_ == pytest.approx(np.sort(own)[79] + 1e-5, abs=1e-12)


def test_cumulative_scores_follow_the_uncertainty_of_each_sample():
    leaves = np.zeros((2, 9))
    leaves[0, :2] = 0.6, 0.4
    leaves[1] = 1 / 9
    scores = leaf_scores(leaves, "cumulative", TREE)
    assert scores[0, :2].tolist() == [0, 1]
    np.testing.assert_allclose(np.sort(scores[1])[1:], np.arange(2, 10) / 9)


def test_a_forest_is_cross_validated_and_scored_by_coverage():
    rng = np.random.default_rng(0)
    y = rng.choice(TREE.leaves, size=300)
    X = rng.normal(size=(300, 4)) + TREE.resolve(y)[:, None] / 2
    forest = RandomForestClassifier(20, max_depth=4, random_state=0)
    clf = ConformalTreeClassifier(forest, 0.2, taxonomy=TREE, cv=3)
    scores = cross_val_score(clf, X, y, cv=3)
    assert scores.mean() > 0.8 - 4 * np.sqrt(0.2 * 0.8 * 2 / 300)
    sets = clf.fit(X, y).predict_set(X)
    assert clf.guarantee_ == "approximate"
    assert min(map(len, sets)) >= 1
    assert max(map(len, sets)) > 1


def test_what_cannot_be_covered_is_refused():
    stated, truth = population(8)
    message = r"guarantee of 0.9 needs at least 9 calibration .* got 8: .*or raise alpha"
    with pytest.raises(ValueError, match=message):
        conformal(stated, truth)
    stated, truth = population(60)
    with pytest.raises(ValueError, match=r"each part needs at least 9 .* or pool the small ones"):
        conformal(stated, truth, conditional_on="leaf")
    with pytest.raises(ValueError, match=r"'alpha' parameter of .* Got 0 instead"):
        conformal(stated, truth, alpha=0)
    everything = conformal(
        stated, truth, conditional_on="leaf", small_classes="include", alpha=0.01
    )
    assert np.isinf(everything.threshold_).all()
    assert everything.predict_set(stated[:1]) == [["root"]]
