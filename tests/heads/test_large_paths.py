"""Logits of the decisions on the paths alone against the dense layer."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy
from skh2edl.heads.large import paths as large_paths
from skh2edl.heads.large.paths import logits_on_paths
from skh2edl.heads.tree_ops import TreeSegments

N_FEATURES = 3
# Without a copy, as on the processor, or with a copy of the weights on the paths.
IN_PLACE = {"in place": True, "gathered": False}


def linear_layer(tree, n_samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n_samples, N_FEATURES), (tree.n_decisions, N_FEATURES), (tree.n_decisions,))
    return [
        torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes
    ]


@pytest.mark.parametrize("in_place", IN_PLACE.values(), ids=IN_PLACE)
@settings(max_examples=40)
@given(tree=taxonomies(), sparse=st.booleans(), data=st.data())
def test_logits_and_gradients_are_those_of_the_dense_layer(in_place, tree, sparse, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), max_size=8))
    paths = TreeSegments(tree).paths(nodes)
    features, weight, bias = tensors = linear_layer(tree, len(nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_paths, "_in_place", lambda _: in_place)
        ours = logits_on_paths(*tensors, paths, sparse)
        expected = (features @ weight.T + bias)[paths.owner, paths.decision]
        torch.testing.assert_close(ours, expected)
        factor = torch.arange(1.0, len(ours) + 1, dtype=torch.float64)
        found = torch.autograd.grad((ours * factor).sum(), tensors)
    wanted = torch.autograd.grad((expected * factor).sum(), tensors)
    assert found[1].is_sparse == sparse
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.to_dense(), other)


def test_a_sparse_gradient_holds_the_weights_on_the_paths_each_once():
    tree = Taxonomy.from_nested({"a": ["b", "c"], "d": ["e", "f"], "g": None})
    paths = TreeSegments(tree).paths(tree.resolve(["e", "f", "e"]))
    features, weight, bias = linear_layer(tree, 3)
    logits_on_paths(features, weight, bias, paths, sparse=True).sum().backward()
    assert weight.grad._indices()[0].tolist() == sorted(set(paths.decision.tolist()))


def test_features_need_not_lie_in_order():
    tree = Taxonomy.from_nested({"a": ["b", "c"], "d": ["e", "f"], "g": None})
    paths = TreeSegments(tree).paths(tree.resolve(["e", "f", "a"]))
    features, weight, bias = (tensor.detach() for tensor in linear_layer(tree, 3))
    results = []
    for order in (lambda x: x, lambda x: x.T.contiguous().T):
        own = order(weight).requires_grad_()
        logits = logits_on_paths(order(features), own, bias, paths)
        results.append((logits, *torch.autograd.grad(logits.square().sum(), own)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
