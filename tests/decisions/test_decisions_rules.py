"""Ladders and quantiles against loops over nodes, samples and thresholds."""

import math
import re

import numpy as np
import pytest
from decisions_cases import TREE, stated_probabilities
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import Taxonomy
from skh2edl.decisions._ladders import (
    RULES,
    Ladder,
    covers,
    last_rung,
    make_ladder,
)
from skh2edl.decisions._needed import TOLERANCE, node_thresholds_needed, thresholds_needed
from skh2edl.decisions._quantile import (
    check_enough,
    conformal_quantile,
    samples_needed,
)
from skh2edl.decisions._subtrees import assign_subtrees, merge_small
from skh2edl.decisions.conformal import (
    is_surely_top,
    largest_scores,
    leaf_scores,
    outside_ladder,
)

THRESHOLDS = (0.0, 1e-9, 0.1, 0.25, 1 / 3, 0.5, 0.65, 0.8, 0.999, 1.0, np.nextafter(1, 2), 3.0)


def leaves_under(tree, node):
    return set(range(tree.leaf_start[node], tree.leaf_stop[node]))


def information(tree, node):
    return math.log(tree.n_leaves / len(leaves_under(tree, node))) / math.log(tree.n_leaves)


def predictions(rule, leaves, tree, threshold):
    ladder = make_ladder(rule, leaves, tree)
    return np.take_along_axis(ladder.nodes, last_rung(ladder, threshold)[:, None], axis=1)[:, 0]


@given(stated_probabilities(), st.sampled_from(THRESHOLDS))
def test_climbing_ends_at_the_deepest_ancestor_that_is_likely_enough(case, threshold):
    tree, leaves = case
    found = predictions("climb", leaves, tree, threshold)
    for row, predicted in zip(leaves, found.tolist(), strict=True):
        in_order = [row[k] for k in tree.leaf_order.tolist()]
        node = int(tree.leaf_nodes[tree.leaf_order[in_order.index(max(in_order))]])
        while node > 0 and len(leaves_under(tree, node)) < tree.n_leaves:
            # Summed in another order than by the code: ties within rounding may go either way.
            total = math.fsum(row[k] for k in leaves_under(tree, node))
            if total >= threshold - 1e-12:
                break
            node = int(tree.parents[node])
        else:
            assert leaves_under(tree, predicted) == leaves_under(tree, 0)
            continue
        if abs(total - threshold) > 1e-12:
            assert predicted == node


@given(stated_probabilities(), st.sampled_from(THRESHOLDS))
def test_no_likely_enough_node_says_more_than_the_most_informative(case, threshold):
    tree, leaves = case
    for row, predicted in zip(
        leaves, predictions("information", leaves, tree, threshold).tolist(), strict=True
    ):
        total = {
            node: math.fsum(row[k] for k in leaves_under(tree, node))
            for node in range(tree.n_nodes)
        }
        allowed = [node for node in total if total[node] >= threshold + 1e-12]
        best = max((information(tree, node) for node in allowed), default=0.0)
        assert information(tree, predicted) >= best - 1e-12
        assert information(tree, predicted) == 0 or total[predicted] >= threshold - 1e-12
        others = [n for n in allowed if abs(information(tree, n) - best) < 1e-12]
        if others and information(tree, predicted) < best + 1e-12:
            assert total[predicted] >= max(total[node] for node in others) - 1e-12


@given(stated_probabilities(), st.sampled_from((1e-6, 0.01, 0.2, 0.7, 1.0, 3.0, 50.0)))
def test_darts_maximise_information_plus_lambda_times_probability(case, weight):
    tree, leaves = case
    for row, predicted in zip(
        leaves, predictions("darts", leaves, tree, weight).tolist(), strict=True
    ):
        value = [
            (information(tree, node) + weight) * math.fsum(row[k] for k in leaves_under(tree, node))
            for node in range(tree.n_nodes)
        ]
        assert value[predicted] >= max(value) - 1e-9 * (1 + weight)


@given(stated_probabilities(), st.sampled_from(sorted(RULES)))
def test_a_ladder_begins_at_the_root_and_its_scores_fall(case, rule):
    tree, leaves = case
    nodes, scores = make_ladder(rule, leaves, tree)
    assert (tree.leaf_stop - tree.leaf_start)[nodes[:, 0]].tolist() == [tree.n_leaves] * len(leaves)
    assert (scores[:, 0] == np.inf).all()
    # Falling pairs; two infinities in a row are fine.
    assert (scores[:, 1:] <= scores[:, :-1]).all()
    everywhere = Ladder(nodes, scores)
    top = nodes[np.arange(len(nodes)), last_rung(everywhere, np.inf)]
    assert (tree.leaf_stop - tree.leaf_start)[top].tolist() == [tree.n_leaves] * len(leaves)


def read_in_another_batch(leaves, seed):
    """Move every row by just less than the tolerance, as the sum over any leaves sees it."""
    rng = np.random.default_rng(seed)
    moved = leaves * np.exp(rng.normal(size=leaves.shape) * rng.choice([1e-5, 1e-3, 1.0]))
    moved /= moved.sum(axis=1, keepdims=True)
    distance = np.maximum(moved - leaves, 0).sum(axis=1, keepdims=True)
    factor = np.minimum(1, 0.999 * TOLERANCE / np.maximum(distance, 1e-300))
    return leaves + factor * (moved - leaves)


@given(stated_probabilities(), st.sampled_from(sorted(RULES)), st.integers(0, 10**6))
def test_from_the_needed_threshold_on_every_prediction_is_right_in_any_batch(case, rule, seed):
    tree, leaves = case
    truth = np.random.default_rng(seed).integers(0, tree.n_nodes, size=len(leaves))
    needed = thresholds_needed(rule, leaves, truth, tree)
    second = np.sort(leaves, axis=1)[:, -2] if tree.n_leaves > 1 else np.zeros(len(leaves))
    is_tied = leaves.max(axis=1) - second <= 2 * TOLERANCE
    for read in (leaves, read_in_another_batch(leaves, seed)):
        ladder = make_ladder(rule, read, tree)
        every = np.unique([*needed, *ladder.scores.ravel(), *THRESHOLDS])
        for threshold in every[np.isfinite(every)].tolist():
            nodes = ladder.nodes[np.arange(len(leaves)), last_rung(ladder, threshold)]
            for node, true, least, tie in zip(nodes, truth, needed, is_tied, strict=True):
                right = leaves_under(tree, true) <= leaves_under(tree, node)
                if threshold >= least:
                    assert right
                elif rule == "climb" and not tie and threshold < least - 3 * TOLERANCE:
                    assert not right  # no much smaller threshold would have done


@given(stated_probabilities(), st.integers(0, 10**6))
def test_the_thresholds_of_the_levels_are_those_of_the_nodes_there(case, seed):
    tree, leaves = case
    truth = np.random.default_rng(seed).integers(0, tree.n_nodes, size=len(leaves))
    by_level = thresholds_needed("climb", leaves, truth, tree, by_level=True)
    assert by_level.shape == (len(leaves), tree.n_levels)
    np.testing.assert_array_equal(
        by_level.max(axis=1), thresholds_needed("climb", leaves, truth, tree)
    )
    nodes, scores = make_ladder("climb", leaves, tree)
    for depth in range(1, tree.n_levels + 1):
        wrong = ~covers(nodes[:, depth], truth, tree)
        assert (by_level[wrong, depth - 1] > scores[wrong, depth]).all()


@given(
    stated_probabilities(),
    st.sampled_from(["probability", "cumulative"]),
    st.integers(0, 10**6),
)
def test_the_largest_scores_hold_in_any_batch(case, kind, seed):
    tree, leaves = case
    rows = np.arange(len(leaves))
    truth = tree.leaf_nodes[np.random.default_rng(seed).integers(0, tree.n_leaves, size=len(rows))]
    largest = largest_scores(leaves, kind)
    worst = largest[rows, tree.leaf_start[truth]]
    worst[is_surely_top(leaves, truth, tree)] = 0
    needed = node_thresholds_needed(leaves, largest, truth, tree)
    for read in (leaves, read_in_another_batch(leaves, seed)):
        scores = leaf_scores(read, kind, tree)
        assert (scores[rows, tree.leaf_start[truth]] <= worst + 1e-15).all()
        ladder = outside_ladder(read, scores, tree)
        nodes = ladder.nodes[rows, last_rung(ladder, needed[:, None])]
        assert covers(nodes, truth, tree).all()


@given(
    stated_probabilities(), st.sampled_from(sorted(RULES)), st.lists(st.floats(0, 2), min_size=2)
)
def test_a_higher_threshold_never_says_more(case, rule, thresholds):
    tree, leaves = case
    low, high = min(thresholds), max(thresholds)
    bold, careful = (predictions(rule, leaves, tree, threshold) for threshold in (low, high))
    assert all(
        information(tree, b) >= information(tree, c) - 1e-12
        for b, c in zip(bold.tolist(), careful.tolist(), strict=True)
    )
    if rule == "climb":
        assert covers(careful, bold, tree).all()


def test_blocks_of_samples_give_the_same_ladders(monkeypatch):
    leaves = np.random.default_rng(0).dirichlet(np.full(TREE.n_leaves, 0.3), size=50)
    whole = {rule: make_ladder(rule, leaves, TREE) for rule in RULES}
    monkeypatch.setattr("skh2edl.decisions._ladders._BLOCK_ELEMENTS", 3 * TREE.n_nodes)
    for rule, (nodes, scores) in whole.items():
        ladder = make_ladder(rule, leaves, TREE)
        np.testing.assert_array_equal(ladder.nodes, nodes)
        np.testing.assert_array_equal(ladder.scores, scores)


def test_a_probability_of_one_can_be_wrong_and_still_be_climbed_away_from():
    leaves = np.zeros((1, TREE.n_leaves))
    leaves[0, 0] = 1.0
    truth = np.array([TREE.node("c")])
    for rule in RULES:
        ladder = make_ladder(rule, leaves, TREE)
        needed = thresholds_needed(rule, leaves, truth, TREE)
        assert ladder.nodes[0, last_rung(ladder, needed[:, None])[0]] == 0


# Quantiles -----------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.7, 0.9, np.inf]), min_size=1, max_size=60),
    st.sampled_from([0.05, 0.5, 0.8, 0.9, 0.95, 0.99]),
)
def test_the_quantile_is_the_textbooks(values, coverage):
    n = len(values)
    # In whole hundredths, where nothing is rounded.
    rank = -(-(n + 1) * round(100 * coverage) // 100)
    expected = np.inf if rank > n else sorted(values)[rank - 1]
    found = conformal_quantile(np.array(values), coverage, np.ones(n))
    assert found == expected
    assert (samples_needed(coverage) <= n) == (rank <= n)
    np.testing.assert_equal(conformal_quantile(np.array(values), coverage, np.full(n, 7.3)), found)


def test_weights_say_how_many_new_samples_each_held_out_one_stands_for():
    values = np.array([1.0, 2.0, 3.0, 4.0])
    weight = np.array([4.0, 2.0, 1.0, 1.0])
    # With 4 for the new sample there are 12: half of it is 6, which the first two make.
    assert conformal_quantile(values, 0.5, weight) == 2.0
    assert conformal_quantile(values, 7 / 12, weight) == 3.0
    assert conformal_quantile(values, 9 / 12, weight) == np.inf
    with pytest.raises(ValueError, match=r"at least 3 calibration .*got 4 with .* count as 2.0"):
        check_enough(weight, 0.75, "lower it")


@pytest.mark.parametrize("n_samples", [1, 5, 7, 18, 28, 999, 2500])
def test_what_the_refusal_offers_instead_is_not_refused(n_samples):
    with pytest.raises(ValueError, match=r"got \d+: .*at most 0\.\d+\)") as caught:
        check_enough(np.ones(n_samples), 0.9999, "lower it")
    offered = float(re.search(r"at most ([\d.]+)\)", str(caught.value))[1])
    check_enough(np.ones(n_samples), offered, "lower it")
    # And hardly more would have done.
    assert n_samples / (n_samples + 1) - offered < 0.1 / n_samples
    with pytest.raises(ValueError, match="needs at least"):
        check_enough(np.ones(n_samples), offered + 0.1 / n_samples, "lower it")


@pytest.mark.parametrize("nines", range(1, 7))
def test_the_number_of_samples_needed_is_not_one_more_by_rounding(nines):
    # 0.9 needs 9, 0.99 needs 99.
    assert samples_needed(1 - 10.0**-nines) == 10**nines - 1
    assert samples_needed(float("0." + "9" * nines)) == 10**nines - 1


# Subtrees ------------------------------------------------------------------------------------


def test_subtrees_are_a_level_or_what_is_named():
    part, names = assign_subtrees("order", TREE)
    assert names == [["a"], ["b"], ["c"]]
    assert part.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    part, names = assign_subtrees(["b1", "s"], TREE)
    assert names == [["b1"], ["s"], ["(elsewhere)"]]
    assert part.tolist() == [2, 2, 2, 1, 0, 0, 2, 2, 2]
    with pytest.raises(ValueError, match="must not overlap, but 't' shares leaves"):
        assign_subtrees(["b", "t"], TREE)
    with pytest.raises(ValueError, match="subtrees names no subtree"):
        assign_subtrees([], TREE)


def test_small_parts_are_refused_or_pooled():
    part_of_leaf, names = assign_subtrees("order", TREE)
    part = np.repeat([0, 1, 2], [30, 12, 10])
    with pytest.raises(ValueError, match=r"19 calib.* 2 of 3 parts have fewer: 'b' 12, 'c' 10"):
        merge_small(part, np.ones(52), part_of_leaf, names, 0.95, "raise")
    new, new_of_leaf, new_names = merge_small(part, np.ones(52), part_of_leaf, names, 0.95, "pool")
    assert new_names == [["a"], ["b", "c"]]
    assert np.bincount(new).tolist() == [30, 22]
    assert new_of_leaf.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    with pytest.raises(ValueError, match=r"99 calib.* 3 of 3 parts have fewer, even together"):
        merge_small(part, np.ones(52), part_of_leaf, names, 0.99, "pool")


def test_the_information_of_a_node_is_what_it_rules_out():
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    # Two bits name a leaf, one bit its family.
    leaves = np.array([[0.55, 0.25, 0.15, 0.05]])
    assert tree.labels(predictions("information", leaves, tree, 0.6)) == ["cat"]
    # (1 + λ) 0.55 against (0.5 + λ) 0.8 meet at λ = 0.6; that against λ at λ = 2.
    ladder = make_ladder("darts", leaves, tree)
    assert tree.labels(ladder.nodes[0]) == ["root", "cat", "lynx"]
    np.testing.assert_allclose(ladder.scores[0, 1:], [2.0, 0.6])
