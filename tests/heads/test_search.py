"""The search for the best leaves against the probabilities of all leaves."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_heads import make_head
from strategies import taxonomies

from skh2edl import Taxonomy
from skh2edl.heads.h2edl import H2EDLHead
from skh2edl.heads.large.search import search_leaves
from skh2edl.heads.softmax import SoftmaxTreeHead

N_FEATURES = 3


# What a head with opinions counts as evidence; None is a head without.
HEADS = [None, "softplus", "relu", "exp"]


def random_head(tree, seed, spread, evidence):
    rng = np.random.default_rng(seed)
    fan_out = np.diff(tree.decision_offsets)
    if evidence is not None:
        supervised = rng.random(tree.n_branching) < 0.8
        base_rate = (1 / fan_out)[tree.decision_nodes]
        head = make_head(
            H2EDLHead,
            tree,
            N_FEATURES,
            base_rate,
            fan_out * 1.0,
            supervised,
            evidence=evidence,
            evidence_scale=3,
        )
    else:
        head = make_head(SoftmaxTreeHead, tree, N_FEATURES)
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(0, spread, parameter.shape)))
    features = torch.from_numpy(rng.normal(size=(5, N_FEATURES)))
    return head.double().eval(), features


CATS = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
# Thresholds of the search that send small trees through each of its branches.
BRANCHES = {
    "all at once": {},
    "looking ahead": {"_SOME_DECISIONS": 0, "_MANY_DECISIONS": 0, "_WIDE": 1},
    "in parts": {"_MAX_VALUES": 1},
    "looking wide": {"_MANY_DECISIONS": 0},
    "looking ahead in parts": {"_SOME_DECISIONS": 3, "_MANY_DECISIONS": 6, "_MAX_VALUES": 20},
    "one sample at a time": {"_GROUP": 1, "_SOME_DECISIONS": 0},
    "large nodes": {"_MAX_VALUES_ON_DEVICE": 8, "_MAX_VALUES": 8},
    "pairs": {"_COST_OF_A_PAIR": 0, "_SOME_DECISIONS": 0, "_MANY_DECISIONS": 4, "_WIDE": 1},
}


@pytest.fixture(params=BRANCHES)
def branch(request, monkeypatch):
    for name, value in BRANCHES[request.param].items():
        monkeypatch.setattr(f"skh2edl.heads.large.search.{name}", value)
    # Weights that lie apart are copied a few at a time.
    monkeypatch.setattr("skh2edl.heads.large.blocks._MAX_COPIED_WEIGHTS", 4 * N_FEATURES)


@pytest.mark.slow
@pytest.mark.parametrize("evidence", HEADS)
@pytest.mark.usefixtures("branch")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tree=taxonomies(),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    k=st.integers(1, 5),
)
@torch.inference_mode()
def test_the_search_finds_the_most_probable_of_all_leaves(evidence, tree, seed, spread, k):
    head, features = random_head(tree, seed, spread, evidence)
    leaves, log_probability = search_leaves(head, features, k)
    everything = head.leaf_log_probability(features).numpy()
    k = min(k, tree.n_leaves)
    assert leaves.shape == log_probability.shape == (5, k)
    # The same probabilities, and leaves that have them: equal ones may change places by rounding.
    expected = -np.sort(-everything, axis=1)[:, :k]
    np.testing.assert_allclose(log_probability, expected, rtol=1e-9, atol=1e-12)
    own = np.take_along_axis(everything, leaves, axis=1)
    np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-12)
    assert all(len(set(row)) == k for row in leaves.tolist())


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("k", [1, 4, 27])
def test_equally_probable_leaves_come_in_tree_order(k):
    tree = Taxonomy.from_nested(
        {f"{a}": {f"{a}{b}": [f"{a}{b}{c}" for c in range(3)] for b in range(3)} for a in range(3)}
    )
    leaves, log_probability = search_leaves(
        make_head(SoftmaxTreeHead, tree, 1), torch.zeros(2, 1), k
    )
    np.testing.assert_array_equal(leaves, [range(k)] * 2)
    np.testing.assert_allclose(np.exp(log_probability), 1 / 27, rtol=1e-6)


def test_equal_leaves_of_several_depths_come_in_tree_order():
    # Leaves of 1/4 each: those right below "b" are met before the deeper ones below "a".
    tree = Taxonomy.from_nested({"a": {"only": ["a1", "a2"]}, "b": ["b1", "b2"]})
    leaves, _ = search_leaves(make_head(SoftmaxTreeHead, tree, 1), torch.zeros(1, 1), 3)
    assert [tree.leaves[leaf] for leaf in leaves[0]] == ["a1", "a2", "b1"]


def test_leaves_without_evidence_come_in_tree_order_by_paths_of_any_fan_out():
    # 2 x 3 x 4 leaves, and 2 x 4 x 3: the same factors in another order.
    nested = {"a": (3, 4), "b": (4, 3)}
    tree = Taxonomy.from_nested(
        {
            top: {f"{top}{i}": [f"{top}{i}{j}" for j in range(inner)] for i in range(outer)}
            for top, (outer, inner) in nested.items()
        }
    )
    base_rate = (1 / np.diff(tree.decision_offsets))[tree.decision_nodes]
    supervised = np.zeros(tree.n_branching, dtype=bool)
    head = make_head(H2EDLHead, tree, 1, base_rate, np.full(tree.n_branching, 2.0), supervised)
    features = torch.zeros(1, 1, dtype=torch.float64)
    leaves, _ = search_leaves(head.double().eval(), features, tree.n_leaves)
    np.testing.assert_array_equal(leaves, [range(24)])


@pytest.mark.parametrize("evidence", HEADS)
@pytest.mark.parametrize("spread", [0.05, 1.0, 20.0])
@torch.inference_mode()
def test_a_large_tree_in_single_precision_is_searched_as_the_dense_layer_says(evidence, spread):
    names = [f"{a}-{b}-{c}" for a in range(20) for b in range(20) for c in range(20)]
    paths = [["root", name.split("-")[0], name.rsplit("-", 1)[0], name] for name in names]
    tree = Taxonomy.from_parents({child: above for p in paths for above, child in pairwise(p)})
    head, features = random_head(tree, 0, spread, evidence)
    head, features = head.float(), features.float()
    leaves, log_probability = search_leaves(head, features, 3)
    # Stable, because evidence that is clamped makes some leaves equal.
    best = head.leaf_log_probability(features).sort(descending=True, stable=True)
    np.testing.assert_array_equal(leaves, best.indices[:, :3])
    np.testing.assert_allclose(log_probability, best.values[:, :3], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("k", [1, 3, 6])
def test_impossible_leaves_come_last_and_in_tree_order(k):
    # Only "a2" and "b" have a base rate, and the others have no evidence.
    tree = Taxonomy.from_nested({"a": ["a1", "a2", "a3"], "b": None, "c": ["c1", "c2"]})
    # Of the root, of "a" and of "c".
    base_rate = np.array([*(0.5, 0.5, 0.0), *(0.0, 1.0, 0.0), *(0.5, 0.5)])
    supervised = np.zeros(tree.n_branching, dtype=bool)
    head = make_head(H2EDLHead, tree, 1, base_rate, np.ones(tree.n_branching), supervised).eval()
    leaves, log_probability = search_leaves(head, torch.zeros(2, 1), k)
    names = ["a2", "b", "a1", "a3", "c1", "c2"]
    assert [[tree.leaves[leaf] for leaf in row] for row in leaves] == [names[:k]] * 2
    expected = [[-np.log(2)] * 2 + [-np.inf] * 4] * 2
    np.testing.assert_allclose(log_probability, np.array(expected)[:, :k], rtol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_features_that_are_no_numbers_are_refused(wrong):
    head = make_head(SoftmaxTreeHead, CATS, 1)
    with pytest.raises(ValueError, match=r"must be finite, got NaN or infinity in 1 of 2 sample"):
        search_leaves(head, torch.tensor([[0.0], [wrong]]))


def test_no_samples_have_no_leaves():
    head = make_head(SoftmaxTreeHead, CATS, 1)
    leaves, log_probability = search_leaves(head, torch.zeros(0, 1), 2)
    assert leaves.shape == log_probability.shape == (0, 2)


@pytest.fixture
def decisions_read(monkeypatch):
    """The number of decisions in each reading."""
    counts = []
    read = SoftmaxTreeHead.unnormalized_of

    def count(head, features, block, wanted):
        counts.append(len(block.decision))
        return read(head, features, block, wanted)

    monkeypatch.setattr(SoftmaxTreeHead, "unnormalized_of", count)
    return counts


@torch.inference_mode()
def test_a_sure_head_is_asked_for_the_nodes_on_the_path_alone(decisions_read):
    tree = Taxonomy.from_nested({f"{a}": [f"{a}{b}" for b in range(30)] for a in range(30)})
    head = make_head(SoftmaxTreeHead, tree, N_FEATURES).eval()
    head.linear.bias[tree.last_decision[tree.resolve(["7", "712"])]] = 10
    leaves, _ = search_leaves(head, torch.zeros(2, N_FEATURES))
    assert [tree.leaves[leaf] for leaf in leaves[:, 0]] == ["712", "712"]
    # The children of the root, and those of "7" once; none of the other 870 leaves.
    assert decisions_read == [30, 30]


@torch.inference_mode()
@pytest.mark.parametrize("cost_of_a_pair", [0, 1, 32])
def test_opening_the_best_nodes_first_changes_nothing(cost_of_a_pair, monkeypatch):
    # Four levels of nodes that differ in size, so that their decisions lie at different places.
    paths = [
        (f"{a}", f"{a}{b}", f"{a}{b}{c}", f"{a}{b}{c}{d}")
        for a in range(3)
        for b in range(2 + a)
        for c in range(5 - b)
        for d in range(2 + (a + c) % 3)
    ]
    tree = Taxonomy.from_paths(paths)
    head = make_head(SoftmaxTreeHead, tree, N_FEATURES).eval()
    torch.nn.init.normal_(head.linear.weight, generator=torch.Generator().manual_seed(0))
    features = torch.randn(7, N_FEATURES, generator=torch.Generator().manual_seed(1))
    # Both looks early, and the second wider than the first.
    for name, value in (("SOME_DECISIONS", 2), ("MANY_DECISIONS", 5), ("WIDE", 2)):
        monkeypatch.setattr(f"skh2edl.heads.large.search._{name}", value)
    monkeypatch.setattr("skh2edl.heads.large.search._COST_OF_A_PAIR", cost_of_a_pair)
    dense = head.leaf_log_probability(features)
    for k in (1, 4):
        leaves, log_p = search_leaves(head, features, k)
        expected, order = dense.topk(k)
        np.testing.assert_array_equal(leaves, order)
        np.testing.assert_allclose(log_p, expected, rtol=1e-5)


def test_no_reading_is_larger_than_it_may_be(decisions_read, monkeypatch):
    tree = Taxonomy.from_nested({f"{a}": [f"{a}{b}" for b in range(9)] for a in range(9)})
    monkeypatch.setattr("skh2edl.heads.large.search._MAX_VALUES", 5 * 20)
    search_leaves(make_head(SoftmaxTreeHead, tree, N_FEATURES), torch.zeros(5, N_FEATURES))
    # Twenty decisions of five samples, and at most the rest of the node that reaches beyond them.
    assert sum(decisions_read) == 90
    assert max(decisions_read) == 27
