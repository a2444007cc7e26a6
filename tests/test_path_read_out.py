"""Products of the ways alone against the dense read-out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy, path_read_out
from skh2edl.path_read_out import read_paths, reads_all
from skh2edl.segments import TreeSegments

N_FEATURES = 3
# How the products come about: costs that make one of the ways the cheapest, and whether nothing is
# copied, as on the processor.
WAYS = {
    "in place": {"_COST_OF_A_PRODUCT": -1e9},
    "gathered": {"_COST_OF_A_GATHERED_ROW": -1, "_in_place": lambda _: False},
    "dense": {"_COST_OF_A_PRODUCT": 1e9},
}


def read_out(tree, n_samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n_samples, N_FEATURES), (tree.n_decisions, N_FEATURES), (tree.n_decisions,))
    return [
        torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes
    ]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(tree=taxonomies(), sparse=st.booleans(), data=st.data())
def test_logits_and_gradients_are_those_of_the_dense_read_out(way, tree, sparse, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), max_size=8))
    paths = TreeSegments(tree).paths(nodes)
    features, weight, bias = tensors = read_out(tree, len(nodes))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(path_read_out, name, value)
        ours = read_paths(*tensors, paths, sparse)
        expected = (features @ weight.T + bias)[paths.row, paths.decision]
        torch.testing.assert_close(ours, expected)
        factor = torch.arange(1.0, len(ours) + 1, dtype=torch.float64)
        found = torch.autograd.grad((ours * factor).sum(), tensors)
    wanted = torch.autograd.grad((expected * factor).sum(), tensors)
    # Where there are no entries, nothing is what costs least.
    if len(paths.decision):
        assert found[1].is_sparse == (sparse and way != "dense")
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.to_dense(), other)


def test_rows_of_a_sparse_gradient_are_those_on_the_ways_each_once(monkeypatch):
    monkeypatch.setattr(path_read_out, "_COST_OF_A_PRODUCT", -1e9)
    tree = Taxonomy.from_nested({"a": ["b", "c"], "d": ["e", "f"], "g": None})
    paths = TreeSegments(tree).paths(tree.resolve(["e", "f", "e"]))
    features, weight, bias = read_out(tree, 3)
    read_paths(features, weight, bias, paths, sparse=True).sum().backward()
    assert weight.grad._indices()[0].tolist() == sorted(set(paths.decision.tolist()))


@pytest.mark.parametrize("n_features", [3, 2048])
@pytest.mark.parametrize(("n_children", "n_levels"), [(2, 1), (100, 1), (10, 3)])
def test_a_small_tree_is_read_whole_and_a_large_one_by_its_ways(n_children, n_levels, n_features):
    def grow(name, levels):
        if levels == 0:
            return None
        return {f"{name}{i}": grow(f"{name}{i}.", levels - 1) for i in range(n_children)}

    tree = Taxonomy.from_nested(grow("", n_levels))
    leaves = np.linspace(0, tree.n_leaves - 1, 64).astype(int)
    paths = TreeSegments(tree).paths(tree.leaf_nodes[leaves])
    generator = torch.Generator().manual_seed(0)
    features, weight = (torch.randn(n, n_features, generator=generator) for n in (64, 1110))
    weight = weight[: tree.n_decisions]
    # Each sample needs all rows of the trees of one level, and 30 of 1,110 of the other.
    assert reads_all(features, weight, paths) == (n_levels == 1 or n_features == 3)
    logits = read_paths(features, weight, torch.zeros(tree.n_decisions), paths)
    expected = (features.double() @ weight.double().T)[paths.row, paths.decision]
    torch.testing.assert_close(logits.double(), expected, rtol=1e-5, atol=1e-4)


def test_elsewhere_rows_are_copied_only_where_the_others_are_very_many(monkeypatch):
    monkeypatch.setattr(path_read_out, "_in_place", lambda _: False)
    tree = Taxonomy.from_nested({"a": ["b", "c"], "d": ["e", "f"], "g": None})
    paths = TreeSegments(tree).paths(tree.resolve(["e"] * 64))
    features = torch.empty(64, 2048, device="meta")
    for n_rows, whole in ((7, True), (700, True), (7_000, False)):
        assert reads_all(features, torch.empty(n_rows, 2048, device="meta"), paths) == whole


def test_features_need_not_lie_in_order():
    tree = Taxonomy.from_nested({"a": ["b", "c"], "d": ["e", "f"], "g": None})
    paths = TreeSegments(tree).paths(tree.resolve(["e", "f", "a"]))
    features, weight, bias = (tensor.detach() for tensor in read_out(tree, 3))
    results = []
    for order in (lambda x: x, lambda x: x.T.contiguous().T):
        own = order(weight).requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(path_read_out, "_COST_OF_A_PRODUCT", -1e9)
            logits = read_paths(order(features), own, bias, paths)
            results.append((logits, *torch.autograd.grad(logits.square().sum(), own)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
