"""Rules that trade depth for safety: each gives every sample a ladder of candidate nodes.

The first rung of a ladder is the root, which is always right. Each further rung is a more specific
node with a score that never exceeds the score of the rung before. Given a threshold, the
prediction is the last rung such that it and all rungs before it score at least the threshold. The
guarantees need nothing but the ladder, so every rule has the same ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..metrics.inputs import node_probabilities, top_leaves
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Finite, so that a threshold of infinity always leads back to the root.
_MOST = np.finfo(np.float64).max / 2
# Probabilities of nodes computed at once: 16 MB.
_BLOCK_ELEMENTS = 1 << 21


class Ladder(NamedTuple):
    """Candidate nodes of each sample, from the root to the most specific.

    Parameters
    ----------
    nodes : ndarray of int of shape (n_samples, n_rungs)
        The candidates.
    scores : ndarray of shape (n_samples, n_rungs)
        Largest threshold at which each is predicted; infinity for nodes that are always right.
    """

    nodes: IntArray
    scores: FloatArray


def information_of_nodes(tree: Taxonomy) -> FloatArray:
    """Return the information of each node relative to a leaf: log(L / m) / log(L).

    Parameters
    ----------
    tree : Taxonomy
        The tree, with L leaves, of which m are below the node.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> information_of_nodes(tree)
    array([0. , 0.5, 0.5, 1. , 1. , 1. , 1. ])
    """
    n_below = tree.leaf_stop - tree.leaf_start
    return np.log(tree.n_leaves / n_below) / np.log(tree.n_leaves)


def climb(leaves: FloatArray, tree: Taxonomy) -> Ladder:
    """Return the path from the root to the likeliest leaf, scored by probability.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    tree : Taxonomy
        The tree.

    Returns
    -------
    ladder : Ladder
        Rung d is the ancestor at depth d; a leaf that ends above stands for itself.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> nodes, scores = climb(np.array([[0.5, 0.3, 0.2]]), tree)
    >>> tree.labels(nodes[0]), scores
    (['root', 'cat', 'lynx'], array([[inf, 0.8, 0.5]]))
    """
    probability = node_probabilities(leaves, tree)
    nodes = paths_to(tree.leaf_nodes[top_leaves(leaves, tree)], tree)
    scores = np.take_along_axis(probability, nodes, axis=1)
    scores[holds_all_leaves(tree)[nodes]] = np.inf
    return Ladder(nodes, scores)


def paths_to(node: IntArray, tree: Taxonomy) -> IntArray:
    """Return the ancestor of each node at every depth, the node itself below its own."""
    nodes = np.empty((len(node), tree.n_levels + 1), dtype=np.int64)
    for depth in range(tree.n_levels, -1, -1):
        node = np.where(tree.depths[node] > depth, tree.parents[node], node)
        nodes[:, depth] = node
    return nodes


def most_informative(leaves: FloatArray, tree: Taxonomy) -> Ladder:
    """Return the most informative node above each probability; of equals the likeliest.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    tree : Taxonomy
        The tree.

    Returns
    -------
    ladder : Ladder
        Scored by probability. Below one half, a rung need not lie under the one before.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> nodes, scores = most_informative(np.array([[0.3, 0.3, 0.4]]), tree)
    >>> tree.labels(nodes[0]), scores  # straight to dog, likelier than lynx and puma
    (['root', 'cat', 'dog'], array([[inf, 0.6, 0.4]]))
    """
    n_below = tree.leaf_stop - tree.leaf_start
    candidates = distinct_nodes(tree)
    # By information, and among equals by the order in which ties between leaves are broken.
    rank = np.arange(tree.n_nodes)
    rank[tree.leaf_nodes[tree.leaf_order]] = np.arange(tree.n_leaves)
    candidates = candidates[np.lexsort((rank[candidates], -n_below[candidates]))]
    probability = node_probabilities(leaves, tree)[:, candidates]
    _, first = np.unique(-n_below[candidates], return_index=True)
    groups = np.split(np.arange(candidates.size), first[1:])
    best = np.stack([part[probability[:, part].argmax(axis=1)] for part in groups], axis=1)
    scores = np.take_along_axis(probability, best, axis=1)
    # Never predicted: a node with a more informative one that is at least as likely.
    finer = np.maximum.accumulate(scores[:, :0:-1], axis=1)[:, ::-1]
    skipped = np.zeros(scores.shape, dtype=bool)
    skipped[:, 1:-1] = scores[:, 1:-1] <= finer[:, 1:]
    column = np.maximum.accumulate(np.where(skipped, 0, np.arange(len(groups))), axis=1)
    scores[:, 0] = np.inf
    nodes = np.take_along_axis(candidates[best], column, axis=1)
    return Ladder(nodes, np.take_along_axis(scores, column, axis=1))


def darts(leaves: FloatArray, tree: Taxonomy) -> Ladder:
    """Return the node with the greatest ``(information + λ) P(node)`` for each λ from 0 up.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    tree : Taxonomy
        The tree.

    Returns
    -------
    ladder : Ladder
        Scored by λ. The last rung has the greatest expected information. A rung need not lie
        under the one before.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> nodes, scores = darts(np.array([[0.7, 0.1, 0.1, 0.1]]), tree)
    >>> tree.labels(nodes[0]), scores.round(3)  # cat never pays
    (['root', 'lynx'], array([[  inf, 2.333]]))
    """
    candidates = distinct_nodes(tree)
    probability = node_probabilities(leaves, tree)[:, candidates]
    reward = information_of_nodes(tree)[candidates]
    value = reward * probability
    samples = np.arange(len(leaves))
    current = np.zeros(len(leaves), dtype=np.int64)  # the root, or the end of its chain
    columns, scores = [current], [np.full(len(leaves), np.inf)]
    while True:
        # Lines value + λ probability: as λ falls, a flatter line overtakes where they cross.
        gain = value - value[samples, current][:, None]
        price = probability[samples, current][:, None] - probability
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            crossing = np.where(price > 0, gain / price, np.inf)
        crossing[(gain <= 0) | (price < 0)] = -np.inf
        best = crossing.argmax(axis=1)
        bound = np.minimum(crossing[samples, best], np.minimum(scores[-1], _MOST))
        moves = bound > 0
        if not moves.any():
            break
        # Of several lines through one point take the flattest.
        ties = np.where(crossing == crossing[samples, best][:, None], gain, -np.inf)
        current = np.where(moves, ties.argmax(axis=1), current)
        columns.append(current)
        scores.append(np.where(moves, bound, scores[-1]))
    return Ladder(candidates[np.stack(columns, axis=1)], np.stack(scores, axis=1))


def blocks(n_samples: int, tree: Taxonomy) -> list[slice]:
    """Return slices of samples, at least one, each small enough for a table of all nodes.

    Parameters
    ----------
    n_samples : int
        Number of samples.
    tree : Taxonomy
        The tree.
    """
    step = max(1, _BLOCK_ELEMENTS // tree.n_nodes)
    return [slice(low, low + step) for low in range(0, max(n_samples, 1), step)]


RULES = {"climb": climb, "darts": darts, "information": most_informative}


def make_ladder(rule: str, leaves: FloatArray, tree: Taxonomy) -> Ladder:
    """Return the ladders of a rule, computed in blocks of samples to save memory.

    Parameters
    ----------
    rule : {"climb", "darts", "information"}
        Name of the rule.
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    tree : Taxonomy
        The tree.
    """
    parts = [RULES[rule](leaves[part], tree) for part in blocks(len(leaves), tree)]
    n_rungs = max(part.nodes.shape[1] for part in parts)

    def padded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # Repeating the last rung changes no prediction.
        return np.pad(values, ((0, 0), (0, n_rungs - values.shape[1])), mode="edge")

    return Ladder(
        np.concatenate([padded(part.nodes) for part in parts]),
        np.concatenate([padded(part.scores) for part in parts]),
    )


def covers(nodes: IntArray, truth: IntArray, tree: Taxonomy) -> BoolArray:
    """Return which predictions are certainly right: the true node or an ancestor of it.

    Parameters
    ----------
    nodes : ndarray of int of shape (n_samples, ...)
        Predictions.
    truth : ndarray of int of shape (n_samples,)
        True nodes. A node strictly below the truth does not count as right.
    tree : Taxonomy
        The tree.
    """
    truth = truth.reshape(truth.shape + (1,) * (nodes.ndim - 1))
    return np.asarray(
        (tree.leaf_start[nodes] <= tree.leaf_start[truth])
        & (tree.leaf_stop[nodes] >= tree.leaf_stop[truth])
    )


def last_rung(ladder: Ladder, threshold: float | FloatArray) -> IntArray:
    """Return the rung that is predicted at a threshold.

    Parameters
    ----------
    ladder : Ladder
        Candidate nodes.
    threshold : float or ndarray that broadcasts to (n_samples, n_rungs)
        What the scores have to reach.
    """
    reached = ladder.scores >= threshold
    reached[:, 0] = True
    return np.logical_and.accumulate(reached, axis=1).sum(axis=1) - 1


def distinct_nodes(tree: Taxonomy) -> IntArray:
    """Return the deepest node of each set of leaves; the one with all leaves comes first."""
    nodes = np.flatnonzero(tree.n_children != 1)
    return nodes[np.argsort(~holds_all_leaves(tree)[nodes], kind="stable")]


def holds_all_leaves(tree: Taxonomy) -> BoolArray:
    """Return which nodes are above all leaves, and so always right."""
    return np.asarray(tree.leaf_stop - tree.leaf_start == tree.n_leaves)
