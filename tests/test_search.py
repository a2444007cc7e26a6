"""The search for the best leaves against reading all of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy
from skh2edl.heads import OpinionTreeHead, SoftmaxTreeHead
from skh2edl.search import search_leaves

N_FEATURES = 3


def random_head(tree, seed, spread, opinions):
    rng = np.random.default_rng(seed)
    fan_out = np.diff(tree.decision_offsets)
    if opinions:
        supervised = rng.random(tree.n_branching) < 0.8
        base_rate = (1 / fan_out)[tree.decision_nodes]
        head = OpinionTreeHead(tree, N_FEATURES, base_rate, fan_out * 1.0, supervised)
    else:
        head = SoftmaxTreeHead(tree, N_FEATURES)
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(0, spread, parameter.shape)))
    features = torch.from_numpy(rng.normal(size=(5, N_FEATURES)))
    return head.double().eval(), features


@pytest.mark.parametrize("opinions", [False, True])
@given(
    tree=taxonomies(),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    k=st.integers(1, 5),
)
@torch.inference_mode()
def test_the_search_finds_the_leaves_that_reading_all_of_them_finds(
    opinions, tree, seed, spread, k
):
    head, features = random_head(tree, seed, spread, opinions)
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


@torch.inference_mode()
def test_a_sure_head_is_asked_for_the_nodes_on_the_way_alone(monkeypatch):
    tree = Taxonomy.from_nested({f"{a}": [f"{a}{b}" for b in range(30)] for a in range(30)})
    head = SoftmaxTreeHead(tree, N_FEATURES).eval()
    head.linear.bias[tree.last_decision[tree.resolve(["7", "712"])]] = 20
    asked = []
    read = head.log_conditional_at
    monkeypatch.setattr(
        head,
        "log_conditional_at",
        lambda features, paths: asked.append(len(paths.decision)) or read(features, paths),
    )
    leaves, _ = search_leaves(head, torch.zeros(2, N_FEATURES))
    assert [tree.leaves[leaf] for leaf in leaves[:, 0]] == ["712", "712"]
    # Two samples, the thirty children of the root and of "7"; none of the other 870 leaves.
    assert sum(asked) == 2 * (30 + 30)


@torch.inference_mode()
def test_large_readings_are_taken_in_parts_with_the_same_answer(monkeypatch):
    tree = Taxonomy.from_nested({f"{a}": [f"{a}{b}" for b in range(9)] for a in range(9)})
    head, features = random_head(tree, 0, 0.01, opinions=True)
    at_once = search_leaves(head, features, 4)
    monkeypatch.setattr("skh2edl.search._MAX_DECISIONS_AT_ONCE", 10)
    np.testing.assert_array_equal(search_leaves(head, features, 4)[0], at_once[0])


@torch.inference_mode()
def test_rows_read_for_a_search_give_the_dense_logits(monkeypatch):
    tree = Taxonomy.from_nested({f"{a}": [f"{a}{b}" for b in range(9)] for a in range(9)})
    head, features = random_head(tree, 0, 1.0, opinions=False)
    paths = head.segments.decisions_at(np.array([0, 1, 4]), np.array([0, 3, 3]), 5)
    dense = paths.gather(head.read_out(features))
    for least, apart in ((0, 10**9), (10**9, 0)):  # rows copied once, rows read apart
        monkeypatch.setattr("skh2edl.heads._MIN_PRODUCTS_TO_SAVE", least)
        monkeypatch.setattr("skh2edl.heads._COST_OF_A_GATHERED_ROW", apart)
        monkeypatch.setattr("skh2edl.heads._COST_OF_A_COPIED_ROW", 0)
        torch.testing.assert_close(head.path_logits(features, paths), dense)
