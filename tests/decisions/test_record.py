"""The record of held-out predictions agrees with the hedge itself."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy
from skh2edl.decisions._record import record_held_out
from skh2edl.report.hedging import hedged_nodes


@given(taxonomies(), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_stops_count_what_the_hedge_predicts_and_how_often_it_is_right(tree, seed, threshold):
    rng = np.random.default_rng(seed)
    leaves = rng.dirichlet(np.full(tree.n_leaves, 0.5), size=20)
    truth = tree.leaf_nodes[rng.integers(tree.n_leaves, size=20)]
    record = record_held_out(leaves, truth, tree)
    found = record.stops(threshold)
    nodes = hedged_nodes(leaves, tree, threshold)
    is_right = [
        int(node) in ancestors(tree, int(leaf)) for node, leaf in zip(nodes, truth, strict=True)
    ]
    assert found[:, 0].sum() == 20
    assert found[:, 1].sum() == sum(is_right)
    # A leaf stands for itself on all levels below it.
    depth = np.where(tree.n_children[nodes], tree.depths[nodes], tree.n_levels)
    for level in range(tree.n_levels + 1):
        assert found[level].tolist() == [
            (depth == level).sum(),
            sum(right for right, own in zip(is_right, depth, strict=True) if own == level),
        ]


def ancestors(tree, node):
    found = {node}
    while node:
        node = int(tree.parents[node])
        found.add(node)
    return found


def test_a_label_above_the_leaves_is_no_part_of_the_record():
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    leaves = np.array([[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]])
    record = record_held_out(leaves, tree.resolve(["cat", "dog"]), tree)
    assert len(record.n_right) == 1
    assert record_held_out(leaves, tree.resolve(["cat", "cat"]), tree) is None
