"""How the L2 penalty of a fit on fixed features falls on the rows of a read-out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .taxonomy import Taxonomy

L2_SHAPES = ("separation", "uniform")

# What validation images chose: one penalty for all rows; and one that siblings' separation shapes,
# for one sample, which falls in proportion to their number.
_UNIFORM_L2, _SEPARATION_L2 = 0.003, 216.0
# The number of features these were chosen with.
_FEATURES_OF_L2 = 1280

# How many times stronger the shaped penalty is at the last decision of the longest way than at the
# first, beyond what the separation asks for.
_GROWTH = 5.0
# The number of children beyond which it falls no further: no study had wider nodes.
MOST_CHILDREN = 30
# What samples of one class vary, and siblings differ, at least, as shares of the whole variance:
# with a sample a class the first would be nothing, and with siblings that are alike the second.
_LEAST_WITHIN, _LEAST_BETWEEN = 0.1, 0.001


def default_l2(n_features: int, n_samples: float, shape: str = "uniform") -> float:
    """Return the penalty of a fit that names none.

    Scaled features have a mean square of one, so the same change of a weight moves a read-out of
    many features further than one of few. With few, a uniform penalty stays what it is; one shaped
    by separation falls with the root of their number, towards the one its reasons ask for.

    Parameters
    ----------
    n_features : int
        Length of the feature.
    n_samples : float
        Samples, or their total weight; a penalty shaped by separation is divided by it.
    shape : {"separation", "uniform"}, default="uniform"
        As in :func:`row_penalties`.

    Examples
    --------
    >>> from skh2edl.penalties import default_l2
    >>> default_l2(64, 1000), default_l2(2560, 1000)
    (0.003, 0.006)
    >>> default_l2(1280, 1000, "separation"), default_l2(320, 1000, "separation")
    (0.216, 0.108)
    """
    times = n_features / _FEATURES_OF_L2
    if shape == "uniform":
        return _UNIFORM_L2 * max(1.0, times)
    return _SEPARATION_L2 / n_samples * max(times**0.5, times)


def count_features(features: npt.NDArray[Any]) -> int:
    """Count the features that tell samples apart; a constant one is none.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        At least one sample.
    """
    return int(np.count_nonzero(np.ptp(features, axis=0)))


def row_penalties(
    taxonomy: Taxonomy,
    features: npt.NDArray[Any],
    targets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the share of the penalty that falls on each row of a read-out with one per decision.

    Were classes balls of variance s around means that scatter with variance v around the mean of
    their siblings, the best rows would be the differences of the means over s, and a penalty in
    proportion to s^2 / v the logarithm of their prior. Both are read from the samples, v for all
    siblings of one depth together: where siblings hardly differ, as groups do whose members do not
    look alike, their rows have to be small. What was found to help with features of photographs
    beyond that: a penalty over the square root of the number of siblings, 30 at most, that grows
    fivefold from the first decision to the last of the longest way.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    features : ndarray of shape (n_samples, n_features)
        As the read-out gets them.
    targets : ndarray of int64 of shape (n_samples,)
        Target nodes. A label that others refine says nothing here.
    weights : ndarray of shape (n_samples,)
        Weight of each sample, not negative.

    Returns
    -------
    shares : ndarray of shape (n_decisions,)

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.penalties import row_penalties
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y = tree.resolve(np.repeat(["lynx", "puma", "fox", "wolf"], 2))
    >>> X = np.array([[3, 2], [3, 4], [3, 3], [3, 5], [0, 4], [0, 2], [0, 3], [0, 5]])
    >>> row_penalties(tree, X, y, np.ones(8)).round(3)
    array([0.035, 0.035, 1.581, 1.581, 1.581, 1.581])
    """
    within, between = variances(taxonomy, features, targets, weights)
    n_siblings = np.diff(taxonomy.decision_offsets)[taxonomy.decision_nodes]
    n_above = decisions_above(taxonomy)
    growth = _GROWTH ** (n_above / n_above.max() - 0.5) if n_above.max(initial=0) > 0 else 1.0
    shares: npt.NDArray[np.float64] = (
        within**2 / between[n_above] * growth / np.sqrt(np.minimum(n_siblings, MOST_CHILDREN))
    )
    return shares


def variances(
    taxonomy: Taxonomy,
    features: npt.NDArray[Any],
    targets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
) -> tuple[float, npt.NDArray[np.float64]]:
    """Return the variance of a feature within classes, and between siblings of each depth.

    Parameters
    ----------
    taxonomy, features, targets, weights
        As in :func:`row_penalties`.

    Returns
    -------
    within : float
        Mean over features and samples.
    between : ndarray of shape (n_depths,)
        Mean over features and all siblings of a depth, which is counted in decisions.
    """
    n_above = decisions_above(taxonomy)
    n_depths = int(n_above.max(initial=0)) + 1
    rows, label = samples_of_classes(taxonomy, targets, weights)
    weight = np.bincount(label, weights[rows], minlength=n_above.size)
    total_weight = weight.sum()
    if total_weight == 0:
        return 1.0, np.ones(n_depths)

    # In the precision of the features, of which there may be many.
    precision = np.result_type(features.dtype, np.float32)
    centred = features - np.average(features, axis=0, weights=weights).astype(precision)
    share = (weights[rows] / weight[label]).astype(precision)
    means = csr_array((share, (label, rows)), (n_above.size, len(features))) @ centred
    squares = (weights[rows] / total_weight).astype(precision) @ np.square(centred[rows])
    within = float(squares.sum() - weight @ np.square(means).sum(1) / total_weight)

    known = weight > 0
    spread, freedom = np.zeros(n_depths), np.zeros(n_depths)
    for depth in reversed(range(n_depths)):
        siblings = np.flatnonzero(known & (n_above == depth))
        node, place, count = np.unique(
            taxonomy.decision_nodes[siblings], return_inverse=True, return_counts=True
        )
        entries = (1 / count[place]).astype(precision), (place, siblings)
        of_node = csr_array(entries, (node.size, n_above.size)) @ means
        spread[depth] = np.square(means[siblings] - of_node[place]).sum()
        freedom[depth] = siblings.size - node.size
        above = taxonomy.parent_decision[taxonomy.decision_offsets[node]]
        means[above[above >= 0]] = of_node[above >= 0]
        known[above[above >= 0]] = True

    whole = within + spread.sum() / max(freedom.sum(), 1.0)
    if whole <= 0:
        return 1.0, np.ones(n_depths)
    # A depth where no two siblings have samples takes the mean of the others.
    of_all = spread.sum() / freedom.sum() if freedom.sum() > 0 else whole
    between = np.where(freedom > 0, spread / np.maximum(freedom, 1.0), of_all)
    n_features = max(count_features(features), 1)
    within = max(within, _LEAST_WITHIN * whole) / n_features
    return within, np.maximum(between, _LEAST_BETWEEN * whole) / n_features


def samples_of_classes(
    taxonomy: Taxonomy, targets: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the samples whose label no other label refines, and the last decision of each.

    Parameters
    ----------
    taxonomy, targets, weights
        As in :func:`row_penalties`; a sample of weight 0 is none.

    Returns
    -------
    rows, decision : ndarray of int64 of shape (n_rows,)
    """
    decision = taxonomy.last_decision[targets]
    counted = (decision >= 0) & (weights > 0)
    has_label = np.bincount(decision[counted], minlength=taxonomy.n_decisions) > 0
    is_refined = np.zeros_like(has_label)
    above = taxonomy.parent_decision[has_label]
    while above.size:
        above = np.unique(above[above >= 0])
        is_refined[above] = True
        above = taxonomy.parent_decision[above]
    rows = np.flatnonzero(counted & ~is_refined[decision])
    return rows, decision[rows]


def decisions_above(taxonomy: Taxonomy) -> npt.NDArray[np.int64]:
    """Count the decisions above each decision; a node with one child takes none."""
    n_above = np.zeros(taxonomy.n_decisions, dtype=np.int64)
    above = taxonomy.parent_decision
    while (exists := above >= 0).any():
        n_above += exists
        above = np.where(exists, taxonomy.parent_decision[above], -1)
    return n_above
