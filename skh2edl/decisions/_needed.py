"""Thresholds that held-out samples need, whatever the batches in which they are read.

A network in single precision gives a picture slightly other probabilities in a batch of one than in
a batch of a hundred. Let the probability of any set of leaves move by up to `TOLERANCE`. The number
found here for a held-out sample is the threshold at and above which the prediction is right for all
probabilities within that distance. The same number of a new sample, read in the batches of the
held-out ones, is exchangeable with theirs; below the quantile of theirs, its prediction is right in
every batch. So the guarantee holds however samples are served, and predictions need no rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..metrics.inputs import node_probabilities
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ._ladders import blocks, covers, distinct_nodes, information_of_nodes

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Above what the size of the batch moves the probabilities of a float32 network: 1e-6 to 9e-6. More
# would cost an overconfident classifier its depth, as most of its probabilities are that near to 1.
TOLERANCE = 1e-5


def thresholds_needed(
    rule: str, leaves: FloatArray, truth: IntArray, tree: Taxonomy, by_level: bool = False
) -> FloatArray:
    """Return the threshold from which on every prediction is right.

    A prediction may also be right at some smaller threshold, but a guarantee needs it to be right
    at all larger ones.

    Parameters
    ----------
    rule : {"climb", "darts", "information"}
        How predictions are made.
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    truth : ndarray of int of shape (n_samples,)
        True nodes.
    tree : Taxonomy
        The tree.
    by_level : bool, default=False
        Whether to return the thresholds of each level below the root; only for "climb".

    Returns
    -------
    needed : ndarray of shape (n_samples,) or (n_samples, n_levels)
        0 where no wrong node can be predicted.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> leaves, truth = np.array([[0.5, 0.3, 0.2]]), tree.resolve(["puma"])
    >>> thresholds_needed("climb", leaves, truth, tree).round(3)
    array([0.5])
    >>> thresholds_needed("climb", leaves, truth, tree, by_level=True).round(3)
    array([[0. , 0.5]])
    """
    parts = []
    for part in blocks(len(leaves), tree):
        probability = node_probabilities(leaves[part], tree)
        wrong = _wrong(truth[part], tree)
        if rule == "darts":
            parts.append(_largest_lambda(probability, wrong, truth[part], tree))
            continue
        if rule == "climb":
            possible = may_hold_top(leaves[part], tree)
        else:
            possible = _may_be_most_informative(probability, tree)
        needed = np.where(wrong & possible, _above(probability + TOLERANCE), 0.0)
        if by_level:
            depths = range(1, tree.n_levels + 1)
            parts.append(
                np.stack([needed[:, tree.nodes_at_depth(d)].max(axis=1) for d in depths], axis=1)
            )
        else:
            parts.append(needed.max(axis=1))
    return np.concatenate(parts)


def may_hold_top(leaves: FloatArray, tree: Taxonomy) -> BoolArray:
    """Return which nodes may hold the likeliest leaf, shape (n_samples, n_nodes)."""
    near = leaves >= leaves.max(axis=1, keepdims=True) - 2 * TOLERANCE
    counted = np.zeros((len(leaves), tree.n_leaves + 1), dtype=np.int64)
    np.cumsum(near, axis=1, out=counted[:, 1:])
    return np.asarray(counted[:, tree.leaf_stop] > counted[:, tree.leaf_start])


def node_thresholds_needed(
    leaves: FloatArray, scores: FloatArray, truth: IntArray, tree: Taxonomy
) -> FloatArray:
    """Return the score from which on no wrong node of a conformal classifier is predicted.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    scores : ndarray of shape (n_samples, n_leaves)
        Largest nonconformity score that each leaf may have beside a likelier one.
    truth : ndarray of int of shape (n_samples,)
        True nodes.
    tree : Taxonomy
        The tree.

    Returns
    -------
    needed : ndarray of shape (n_samples,)
        0 where no wrong node can be predicted.
    """
    parts = []
    for part in blocks(len(leaves), tree):
        outside = best_outside(scores[part], tree)
        possible = may_hold_top(leaves[part], tree)
        wrong = _wrong(truth[part], tree)
        parts.append(np.where(wrong & possible, _above(outside), 0.0).max(axis=1))
    return np.concatenate(parts)


def best_outside(scores: FloatArray, tree: Taxonomy) -> FloatArray:
    """Return the smallest score outside each node, shape (n_samples, n_nodes)."""
    none = np.full((len(scores), 1), np.inf)
    before = np.concatenate([none, np.minimum.accumulate(scores, axis=1)], axis=1)
    after = np.minimum.accumulate(np.concatenate([scores, none], axis=1)[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(before[:, tree.leaf_start], after[:, tree.leaf_stop])


def _above(values: FloatArray) -> FloatArray:
    return np.nextafter(values, np.inf)


def _wrong(truth: IntArray, tree: Taxonomy) -> BoolArray:
    """Return which nodes would be wrong predictions, shape (n_samples, n_nodes)."""
    nodes = np.broadcast_to(np.arange(tree.n_nodes), (len(truth), tree.n_nodes))
    return ~covers(nodes, truth, tree)


def _may_be_most_informative(probability: FloatArray, tree: Taxonomy) -> BoolArray:
    """Return which nodes may be the most informative above some threshold.

    Such a node is the likeliest of those with as many leaves, and likelier than all smaller ones.
    """
    possible = np.zeros(probability.shape, dtype=bool)
    n_below = tree.leaf_stop - tree.leaf_start
    best = np.zeros((len(probability), 1))
    for size in np.unique(n_below):
        nodes = np.flatnonzero(n_below == size)
        own = probability[:, nodes]
        best = np.maximum(best, own.max(axis=1, keepdims=True))
        possible[:, nodes] = own >= best - 2 * TOLERANCE
    return possible


def _largest_lambda(
    probability: FloatArray, wrong: BoolArray, truth: IntArray, tree: Taxonomy
) -> FloatArray:
    """Return the λ above which no wrong node has the greatest ``(information + λ) P``.

    A wrong node may be predicted while its line in λ, raised by the tolerance, is above those of
    all right nodes, lowered by it. Right are the true node and its ancestors.
    """
    nodes, reward = distinct_nodes(tree), information_of_nodes(tree)
    own, samples = probability[:, nodes] + TOLERANCE, np.arange(len(truth))
    low, high = np.zeros(own.shape), np.full(own.shape, np.inf)
    right, impossible = truth.copy(), ~wrong[:, nodes]
    for _ in range(tree.n_levels + 1):
        other = probability[samples, right][:, None] - TOLERANCE
        lead = reward[nodes] * own - reward[right][:, None] * other
        slope = own - other
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = -lead / slope
        high = np.where(slope < 0, np.minimum(high, crossing), high)
        low = np.where(slope > 0, np.maximum(low, crossing), low)
        impossible |= (slope == 0) & (lead < 0)
        right = np.maximum(tree.parents[right], 0)
    needed = np.where(impossible | (high < low), 0.0, _above(np.maximum(high, 0)))
    return np.asarray(needed.max(axis=1))
