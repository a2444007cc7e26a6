"""Sums within nodes and along paths against loops over the tree's paths."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy
from skh2edl.heads.tree_ops import TreeSegments

# A pass-through root, pass-through nodes in the middle and at the end, a leaf above the others,
# and repeated names.
TREE = Taxonomy.from_nested(
    {
        "all": {
            "cat": {"wild": {"lynx": None, "other": None, "puma": None}, "tom": None},
            "dog": {"dog": {"pug": None, "other": None}},
            "fish": None,
        }
    }
)


def dense(tree, n_samples=3, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n_samples, tree.n_decisions)))


def columns_of_nodes(tree):
    return [
        [column for column, (parent, _) in enumerate(tree.decisions) if parent == path]
        for path in tree.branching
    ]


@given(taxonomies())
def test_node_sums_and_softmax_equal_loops_over_nodes(tree):
    segments, values = TreeSegments(tree), dense(tree)
    groups = columns_of_nodes(tree)
    expected = torch.stack([values[:, columns].sum(1) for columns in groups], dim=1)
    torch.testing.assert_close(segments.node_sum(values), expected)
    spread = segments.to_children(expected)
    softmax = segments.log_softmax(values)
    for node, columns in enumerate(groups):
        for column in columns:
            torch.testing.assert_close(spread[:, column], expected[:, node])
        torch.testing.assert_close(softmax[:, columns], values[:, columns].log_softmax(1))


def segments_in_both_forms(tree):
    """By a matrix, as small trees are added up, and by index, as large ones."""
    by_matrix, by_index = TreeSegments(tree), TreeSegments(tree)
    assert by_matrix.on_path is not None
    by_index.on_path = None
    return by_matrix, by_index


@given(taxonomies())
def test_sums_to_leaves_follow_each_path(tree):
    values = dense(tree)
    for segments in segments_in_both_forms(tree):
        ours = segments.sum_to_leaves(values)
        for position, leaf in enumerate(tree.leaf_nodes.tolist()):
            path = [columns[target] for _, columns, target in reference.decisions_to(tree, leaf)]
            torch.testing.assert_close(ours[:, position], values[:, path].sum(1))


@given(taxonomies())
def test_sums_along_paths_follow_each_path(tree):
    values = dense(tree)
    ours = TreeSegments(tree).sum_along_paths(values)
    for column, child in enumerate(tree.decision_children.tolist()):
        path = [columns[target] for _, columns, target in reference.decisions_to(tree, child)]
        torch.testing.assert_close(ours[:, column], values[:, path].sum(1))


@given(taxonomies())
def test_log_sums_below_decisions_add_up_their_leaves(tree):
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(3, tree.n_leaves)))
    ours = TreeSegments(tree).log_sum_below(logits)
    for column, child in enumerate(tree.decision_children.tolist()):
        path = reference.path_to(tree, child)
        inside = [
            leaf
            for leaf, node in enumerate(tree.leaf_nodes.tolist())
            if reference.path_to(tree, node)[: len(path)] == path
        ]
        torch.testing.assert_close(ours[:, column], logits[:, inside].logsumexp(1))


def test_log_sums_below_decisions_have_right_gradients_and_no_overflow():
    segments = TreeSegments(TREE)
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(2, TREE.n_leaves)))
    assert torch.autograd.gradcheck(segments.log_sum_below, logits.requires_grad_())
    huge = (logits.detach().sign() * 1e4).float().requires_grad_()
    segments.log_sum_below(huge).sum().backward()
    assert torch.isfinite(huge.grad).all()


@given(taxonomies(), st.data())
def test_paths_hold_the_decisions_of_each_label_and_no_others(tree, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), max_size=6))
    paths = TreeSegments(tree).paths(nodes)
    rows, columns, targets, samples, branching, follows = [], [], [], [], [], []
    for sample, node in enumerate(nodes):
        for step, (position, options, target) in enumerate(reference.decisions_to(tree, node)):
            targets.append(len(columns) + target)
            rows += [sample] * len(options)
            columns += options
            samples.append(sample)
            branching.append(position)
            follows.append(step > 0)
    assert paths.n_samples == len(nodes)
    assert paths.owner.tolist() == rows
    assert paths.decision.tolist() == columns
    assert paths.target.tolist() == targets
    assert paths.sample.tolist() == samples
    assert paths.node.tolist() == branching
    assert paths.has_previous.tolist() == follows
    assert paths.order.tolist() == sorted(range(len(columns)), key=columns.__getitem__)
    assert paths.is_target.nonzero().flatten().tolist() == targets
    values = dense(tree, len(nodes))
    expected = [values[row, column].item() for row, column in zip(rows, columns, strict=True)]
    assert paths.gather(values).tolist() == expected


def test_sums_of_the_ragged_layout():
    segments = TreeSegments(TREE)
    nodes = TREE.resolve(["lynx", "root", "fish"])
    paths = segments.paths(nodes)
    # lynx: three kinds of animal, wild or tom, three wild cats; fish: three kinds again
    ones = torch.ones(len(paths.owner))
    assert paths.segment_sum(ones).tolist() == [3, 2, 3, 3]
    assert paths.sample_sum(torch.tensor([1.0, 10, 100, 1000])).tolist() == [111, 0, 1000]
    values, picked = dense(TREE), (paths.owner, paths.decision)
    expected = segments.log_softmax(values)[picked]
    torch.testing.assert_close(paths.log_softmax(values[picked]), expected)


@pytest.mark.parametrize("nodes", [[], [0], [0, 0, 0]])
def test_labels_that_decide_nothing_make_empty_paths(nodes):
    paths = TreeSegments(TREE).paths(nodes)
    assert paths.owner.numel() == paths.sample.numel() == 0
    assert paths.sample_sum(torch.zeros(0)).tolist() == [0.0] * len(nodes)


def test_a_softmax_of_huge_numbers_is_finite_and_has_a_gradient():
    logits = (dense(TREE).float().sign() * 1e4).requires_grad_()
    segments = TreeSegments(TREE)
    value = segments.log_softmax(logits)
    assert torch.isfinite(value).all()
    torch.testing.assert_close(
        segments.node_sum(value.exp()), torch.ones(3, TREE.n_branching), rtol=1e-6, atol=1e-6
    )
    value.sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_softmax_gradients_are_right_in_both_layouts():
    segments = TreeSegments(TREE)
    paths = segments.paths(TREE.resolve(["puma", "dog", "fish"]))
    logits = dense(TREE).requires_grad_()
    assert torch.autograd.gradcheck(segments.log_softmax, logits)
    assert torch.autograd.gradcheck(
        lambda x: paths.log_softmax(x[paths.owner, paths.decision]), logits
    )


def test_indices_are_not_stored_with_the_weights():
    assert TreeSegments(TREE).state_dict() == {}


def test_paths_move_as_a_whole():
    paths = TreeSegments(TREE).paths([3, 0, 5])
    moved = paths.to(torch.device("meta"))
    assert moved.n_samples == 3
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 7
    assert {tensor.device.type for tensor in tensors} == {"meta"}
