"""Agreement of the levels of one prediction, and the level at which accuracy is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .inputs import (
    FloatArray,
    check_truth,
    check_weight,
    leaf_probabilities,
    level_probabilities,
    mean_or_nan,
    nan_with_warning,
    take_nodes,
    top_leaves,
)

# Probabilities worked on at once, so that masks of many leaves stay in the processor's cache.
_CHUNK_ELEMENTS = 1 << 20


def path_consistency(
    y_proba: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of samples whose best node of every level lies above the best leaf.

    It needs no labels. Equally likely nodes agree with each other.

    Parameters
    ----------
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves, which are summed to each level.
    taxonomy : Taxonomy
        The tree.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of `y_proba`, as in :func:`level_accuracy`.

    Returns
    -------
    consistency : float
        NaN, with a warning, if there are no samples.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import path_consistency
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.4, 0.3, 0.3], [0.1, 0.6, 0.3]]  # dog, lynx, puma
    >>> path_consistency(y_proba, tree)
    0.5
    """
    leaves = leaf_probabilities(y_proba, taxonomy, classes)
    weight = check_weight(sample_weight, len(leaves))
    best = taxonomy.leaf_nodes[top_leaves(leaves, taxonomy)]
    consistent = np.ones(len(leaves), dtype=bool)
    for depth in range(1, taxonomy.n_levels):
        proba = level_probabilities(leaves, taxonomy, depth)
        above_best = take_nodes(proba, taxonomy.climb_to_depth(best, depth), taxonomy, depth)
        consistent &= above_best == proba.max(axis=1)
    return mean_or_nan(consistent, weight, "no sample")


def oracle_descent(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: str | int | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> Any:
    """Compute leaf accuracy when an oracle makes the decisions down to a level.

    The prediction is the likeliest leaf inside the true node of that level. The gain from one
    level to the next is the accuracy that the decisions in between lose.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels; only samples labelled with a leaf count.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default=None
        Name or depth of the level down to which decisions are forced; None computes the
        accuracy for every level.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of `y_proba`, as in :func:`level_accuracy`.

    Returns
    -------
    accuracy : float, or ndarray of shape (n_levels + 1,) if `level` is None
        From depth 0, nothing forced, to the leaves' depth, where it is 1. NaN, with a warning, if
        no sample is labelled with a leaf.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import oracle_descent
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.4, 0.3, 0.3], [0.4, 0.3, 0.3]]  # dog, lynx, puma
    >>> oracle_descent(["lynx", "puma"], y_proba, tree)
    array([0. , 0.5, 1. ])
    """
    leaves = leaf_probabilities(y_proba, taxonomy, classes)
    truth, weight = check_truth(y_true, leaves, taxonomy, sample_weight)
    counts = taxonomy.n_children[truth] == 0
    truth, leaves, weight = truth[counts], leaves[counts], weight[counts]
    every = list(range(taxonomy.n_levels + 1))
    depths = every if level is None else [taxonomy.level_index(level)]
    if not weight.sum() > 0:
        nothing = nan_with_warning("no sample that is labelled with a leaf")
        return np.full(len(depths), nothing) if level is None else nothing
    total = np.zeros(len(depths))
    step = max(1, _CHUNK_ELEMENTS // taxonomy.n_leaves)
    for low in range(0, truth.size, step):
        chunk = slice(low, low + step)
        total += _forced_accuracy(truth[chunk], leaves[chunk], weight[chunk], taxonomy, depths)
    accuracy = total / weight.sum()
    return accuracy if level is None else float(accuracy[0])


def _forced_accuracy(
    truth: IntArray, leaves: FloatArray, weight: FloatArray, tree: Taxonomy, depths: list[int]
) -> FloatArray:
    """Sum the weights of the samples whose best leaf inside the forced node is right."""
    position = tree.leaf_order
    ordered = leaves[:, position]
    right = np.empty(len(depths))
    for index, depth in enumerate(depths):
        forced = tree.climb_to_depth(truth, depth)[:, None]
        inside = (position >= tree.leaf_start[forced]) & (position < tree.leaf_stop[forced])
        best = position[np.where(inside, ordered, -1.0).argmax(axis=1)]
        right[index] = weight @ (tree.leaf_nodes[best] == truth)
    return right
