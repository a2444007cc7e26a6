"""Products of the nodes on the ways against the dense read-out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy
from skh2edl.heads import SoftmaxTreeHead
from skh2edl.node_read_out import NodeGroups, read_nodes
from skh2edl.segments import TreeSegments

N_FEATURES = 3


def read_out(tree, n_samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n_samples, N_FEATURES), (tree.n_decisions, N_FEATURES), (tree.n_decisions,))
    return [
        torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes
    ]


@settings(max_examples=40)
@given(taxonomies(), st.booleans(), st.data())
def test_logits_and_gradients_are_those_of_the_dense_read_out(tree, sparse, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), max_size=8))
    paths = TreeSegments(tree).paths(nodes)
    features, weight, bias = tensors = read_out(tree, len(nodes))
    ours = read_nodes(*tensors, NodeGroups.of(paths), sparse)
    expected = (features @ weight.T + bias)[paths.row, paths.decision]
    torch.testing.assert_close(ours, expected)
    factor = torch.arange(1.0, len(ours) + 1, dtype=torch.float64)
    found = torch.autograd.grad((ours * factor).sum(), tensors)
    wanted = torch.autograd.grad((expected * factor).sum(), tensors)
    assert found[1].is_sparse == sparse
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.to_dense(), other)


def test_rows_of_a_sparse_gradient_are_those_on_the_ways_each_once():
    tree = Taxonomy.from_nested({"a": ["b", "c"], "d": ["e", "f"], "g": None})
    paths = TreeSegments(tree).paths(tree.resolve(["e", "f", "e"]))
    features, weight, bias = read_out(tree, 3)
    read_nodes(features, weight, bias, NodeGroups.of(paths), True).sum().backward()
    assert weight.grad._indices()[0].tolist() == sorted(set(paths.decision.tolist()))


@pytest.mark.parametrize(("n_children", "by_node"), [(2, False), (10, True)])
def test_a_small_tree_is_read_whole_and_a_large_one_by_its_nodes(n_children, by_node, monkeypatch):
    digits = range(n_children)
    tree = Taxonomy.from_nested(
        {f"{i}": {f"{i}{j}": [f"{i}{j}{k}" for k in digits] for j in digits} for i in digits}
    )
    head = SoftmaxTreeHead(tree, 2048)
    paths = head.prepare(tree.leaf_nodes[np.linspace(0, tree.n_leaves - 1, 64).astype(int)])
    taken = []
    monkeypatch.setattr(
        "skh2edl.heads.read_nodes", lambda *args: taken.append(1) or read_nodes(*args)
    )
    with torch.no_grad():
        head.linear.weight.normal_(generator=torch.Generator().manual_seed(0))
        features = torch.randn(64, 2048, generator=torch.Generator().manual_seed(1))
        ours = head.path_logits(features, paths)
        expected = (head.read_out(features))[paths.row, paths.decision]
    assert bool(taken) == by_node
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-3)
