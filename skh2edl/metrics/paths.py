"""Labels against predictions in the tree: how far apart they are, and what they share.

A prediction is a *mistake* if neither it nor the label is an ancestor of the other. A prediction
that stops early on the true path is imprecise, not mistaken; one below an ancestor label is not
known to be wrong. The root and the pass-through nodes below it hold all leaves and say nothing:
they do not count among the nodes of a path, and samples labelled with them are unlabelled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from . import inputs
from .inputs import NO_LABEL, BoolArray, FloatArray, Level, mean_or_nan

# What is missing where a metric is undefined.
_NO_MISTAKE = "no prediction that contradicts its label"
_ALL_ROOT = "no prediction below the root"


class _Pairs(NamedTuple):
    truth: IntArray
    predicted: IntArray
    common: IntArray  # their lowest common ancestor
    weight: FloatArray

    @property
    def mistaken(self) -> BoolArray:
        return (self.common != self.truth) & (self.common != self.predicted)


def _pairs(y_true: Any, y_pred: Any, tree: Taxonomy, sample_weight: Any, classes: Any) -> _Pairs:
    predicted = inputs.predicted_nodes(y_pred, tree, classes)
    truth, weight = inputs.check_truth(y_true, predicted, tree, sample_weight)
    return _Pairs(truth, predicted, tree.lowest_common_ancestor(truth, predicted), weight)


def first_error_depth(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the mean depth of the first wrong decision, over the mistakes.

    The root's decision has depth 0. The deeper the first error, the more of the path is right.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors.
    y_pred : sequence of labels of shape (n_samples,) or array of shape (n_samples, n_leaves)
        Predicted labels, or leaf probabilities, of which the largest is taken. A label that
        stops early on the true path is no mistake.
    taxonomy : Taxonomy
        The tree.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    depth : float
        NaN, with a warning, if there is no mistake.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import first_error_depth
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> first_error_depth(["lynx", "lynx", "fox"], ["puma", "fox", "fox"], tree)
    0.5
    """
    pairs = _pairs(y_true, y_pred, taxonomy, sample_weight, classes)
    weight = pairs.weight * pairs.mistaken
    return mean_or_nan(taxonomy.depths[pairs.common], weight, _NO_MISTAKE)


def kept_ancestor(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    level: Level = 1,
    *,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of mistakes whose node of a level is still right.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`.
    level : str or int, default=1
        Name or depth of the level. A mistake counts if its true label reaches the level.

    Returns
    -------
    kept : float
        NaN, with a warning, if there is no mistake.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import kept_ancestor
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> kept_ancestor(["lynx", "lynx", "fox"], ["puma", "fox", "fox"], tree, level=1)
    0.5
    """
    depth = taxonomy.level_index(level)
    pairs = _pairs(y_true, y_pred, taxonomy, sample_weight, classes)
    truth = taxonomy.climb_to_depth(pairs.truth, depth)
    kept = truth == taxonomy.climb_to_depth(pairs.predicted, depth)
    weight = pairs.weight * (pairs.mistaken & (truth >= 0))
    return mean_or_nan(kept, weight, f"{_NO_MISTAKE} on or below the level")


def mistake_severity(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the mean height of the common ancestor of label and prediction, over the mistakes.

    It is the height of their lowest common ancestor, and the height of a node is the number of
    edges on the longest path down to a leaf. Read it beside :func:`hierarchical_distance`: a
    worse model that makes many small mistakes has a lower severity [1]_.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`.

    Returns
    -------
    height : float
        NaN, with a warning, if there is no mistake.

    References
    ----------
    .. [1] L. Bertinetto et al., "Making better mistakes", CVPR 2020.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import mistake_severity
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> mistake_severity(["lynx", "lynx", "fox"], ["puma", "fox", "fox"], tree)
    1.5
    """
    pairs = _pairs(y_true, y_pred, taxonomy, sample_weight, classes)
    weight = pairs.weight * pairs.mistaken
    return mean_or_nan(taxonomy.heights[pairs.common], weight, _NO_MISTAKE)


def hierarchical_distance(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the mean height of the lowest common ancestor of label and prediction.

    A prediction at or below the label costs 0. One that stops early on the true path costs its
    own height, so hedging is cheaper than a mistake but not free.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`.

    Returns
    -------
    height : float
        NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_distance
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> hierarchical_distance(["lynx", "lynx", "fox", "fox"], ["puma", "fox", "fox", "dog"], tree)
    1.0
    """
    pairs = _pairs(y_true, y_pred, taxonomy, sample_weight, classes)
    height = np.where(pairs.common == pairs.truth, 0, taxonomy.heights[pairs.common])
    return mean_or_nan(height, pairs.weight, NO_LABEL)


def top_k_hierarchical_distance(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    k: int = 5,
    *,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the mean hierarchical distance of the k likeliest leaves.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves.
    taxonomy : Taxonomy
        The tree.
    k : int, default=5
        Number of leaves. Among equally likely ones the first in ``classes_`` are taken.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    height : float
        NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import top_k_hierarchical_distance
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.5, 0.3, 0.1]]  # fox, lynx, puma, wolf
    >>> top_k_hierarchical_distance(["lynx"], y_proba, tree, k=2)
    0.5
    """
    _check_k(k, taxonomy)
    leaves = inputs.leaf_probabilities(y_proba, taxonomy, classes)
    truth, weight = inputs.check_truth(y_true, leaves, taxonomy, sample_weight)
    predicted = taxonomy.leaf_nodes[_ranking(leaves, taxonomy, k)]
    common = taxonomy.lowest_common_ancestor(truth[:, None], predicted)
    height = np.where(common == truth[:, None], 0, taxonomy.heights[common])
    return mean_or_nan(height.mean(axis=1), weight, NO_LABEL)


def hops(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    k: int | None = None,
    *,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the hierarchically ordered preference score (HOPS) of the ranking of the leaves.

    The tree orders the leaves around the true one: the true leaf first (preference 0), then those
    that share its lowest branching ancestor (1), the next one (2), and so on. Predictions give the
    leaves in order of probability. At each place the preference found is compared with the one
    expected, and the differences are added up with weights that fall from place to place:
    ``2 ** -r`` at the first place where preference r is expected, and linearly from there to that
    of the next preference, or to 0 after the last; 1 for the true leaf. The score is 1 less this
    sum over the sum of the reversed order, and not less than 0 [1]_.

    Unlike :func:`mistake_severity` it cannot be improved by more small mistakes, and unlike
    :func:`top_k_hierarchical_distance` it sees the order inside the first k leaves.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels; only samples labelled with a leaf count.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves. Equally likely ones are ranked as in ``classes_``.
    taxonomy : Taxonomy
        The tree.
    k : int, default=None
        Number of places that count; None means all of them. With 1 the score is the accuracy.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    score : float
        Between 0 and 1, higher is better. NaN, with a warning, if no sample is labelled with a
        leaf.

    References
    ----------
    .. [1] D. Sani and S. Anand, "Hier-COS: making deep features hierarchy-aware via composition
       of orthogonal subspaces", CVPR 2026; the places and weights are those of the authors' code.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hops
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.6, 0.2, 0.1], [0.2, 0.6, 0.1, 0.1]]  # fox, lynx, puma, wolf
    >>> round(hops(["lynx"], y_proba[:1], tree), 4), round(hops(["lynx"], y_proba[1:], tree), 4)
    (1.0, 0.75)
    """
    if k is not None:
        _check_k(k, taxonomy)
    leaves = inputs.leaf_probabilities(y_proba, taxonomy, classes)
    truth, weight = inputs.check_truth(y_true, leaves, taxonomy, sample_weight)
    counts = (taxonomy.n_children[truth] == 0) & (weight > 0)
    truth, leaves, weight = truth[counts], leaves[counts], weight[counts]
    ranking = _ranking(leaves, taxonomy, k)
    score = np.empty(truth.size)
    for leaf in np.unique(truth).tolist():
        own = truth == leaf
        score[own] = _preference_score(_preferences(leaf, taxonomy), ranking[own])
    return mean_or_nan(score, weight, "no sample that is labelled with a leaf")


def _preference_score(preference: IntArray, ranking: IntArray) -> FloatArray:
    """Return the HOPS of rankings (n, k) of leaves whose preferences are given."""
    k = ranking.shape[1]
    found, expected = preference[ranking], np.sort(preference)[:k]
    if k == 1:
        return (found[:, 0] == 0).astype(np.float64)
    sizes = np.bincount(preference)
    parts = [np.ones(1)]
    for rank, size in enumerate(sizes[1:], start=1):
        end = 0.0 if rank == len(sizes) - 1 else 0.5
        parts.append(0.5**rank * np.linspace(1, end, size, endpoint=False))
    place_weight = np.concatenate(parts)[:k]
    worst = place_weight @ np.abs(expected - expected[::-1])
    return np.maximum(1 - np.abs(found - expected) @ place_weight / worst, 0.0)


def _preferences(leaf: int, tree: Taxonomy) -> IntArray:
    """Return how many decisions above a leaf lies its common ancestor with each leaf."""
    preference = np.zeros(tree.n_leaves, dtype=np.int64)
    start, stop, rank, node = int(tree.leaf_start[leaf]), int(tree.leaf_stop[leaf]), 0, leaf
    while node > 0:
        node = int(tree.parents[node])
        low, high = int(tree.leaf_start[node]), int(tree.leaf_stop[node])
        rank += high - low > stop - start
        preference[low:start] = preference[stop:high] = rank
        start, stop = low, high
    return preference


def _ranking(leaves: FloatArray, tree: Taxonomy, k: int | None) -> IntArray:
    """Return positions of the k likeliest leaves; among equals the first in `classes_`."""
    return tree.leaf_order[np.argsort(-leaves[:, tree.leaf_order], axis=1, kind="stable")[:, :k]]


def _check_k(k: int, tree: Taxonomy) -> None:
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= tree.n_leaves:
        raise ValueError(
            f"k must be an integer between 1 and the {tree.n_leaves} leaves, got {k!r}."
        )


def hierarchical_precision(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    average: str = "micro",
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of predicted nodes that are right.

    Labels and predictions stand for themselves and their ancestors without the root. Predicted
    nodes below an ancestor label are not among the label's and count as wrong: on coarse labels
    read :func:`level_accuracy` instead.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`.
    average : {"micro", "macro"}, default="micro"
        "micro" divides sums over all samples, "macro" is the mean of the samples' own fractions
        [1]_; a sample whose prediction is the root has none and does not count.

    Returns
    -------
    precision : float
        NaN, with a warning, if all predictions are the root.

    References
    ----------
    .. [1] F. M. Miranda et al., "HiClass: a Python library for local hierarchical classification
       compatible with scikit-learn", JMLR 2023.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_precision
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_true, y_pred = ["lynx", "fox"], ["cat", "lynx"]
    >>> round(hierarchical_precision(y_true, y_pred, tree), 4)
    0.3333
    >>> hierarchical_precision(y_true, y_pred, tree, average="macro")
    0.5
    """
    common, _, predicted, weight = _node_counts(y_true, y_pred, taxonomy, sample_weight, classes)
    return _ratio(common, predicted, weight, average, _ALL_ROOT)


def hierarchical_recall(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    average: str = "micro",
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of the labels' nodes that are predicted.

    Parameters
    ----------
    y_true, y_pred, taxonomy, average, sample_weight, classes
        As in :func:`hierarchical_precision`.

    Returns
    -------
    recall : float
        NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_recall
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> hierarchical_recall(["lynx", "fox"], ["cat", "fox"], tree)
    0.75
    """
    common, labelled, _, weight = _node_counts(y_true, y_pred, taxonomy, sample_weight, classes)
    return _ratio(common, labelled, weight, average, NO_LABEL)


def hierarchical_fscore(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    average: str = "micro",
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the harmonic mean of hierarchical precision and recall.

    Parameters
    ----------
    y_true, y_pred, taxonomy, average, sample_weight, classes
        As in :func:`hierarchical_precision`. "macro" is the mean of the samples' own F-scores.

    Returns
    -------
    fscore : float
        NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_fscore
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> round(hierarchical_fscore(["lynx", "fox"], ["cat", "fox"], tree), 4)
    0.8571
    """
    common, labelled, predicted, weight = _node_counts(
        y_true, y_pred, taxonomy, sample_weight, classes
    )
    # 2PR / (P + R) with the common factor cancelled, which also holds where P is undefined.
    return _ratio(2 * common, labelled + predicted, weight, average, NO_LABEL)


def information_precision(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the mean fraction of the prediction's information that is right.

    The information of a node with m of the L leaves is log(L / m). What is right is the
    information of the lowest common ancestor of label and prediction [1]_. The root claims
    nothing and has precision 1. So has a prediction at or below its label: what an ancestor label
    leaves open is not judged.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`.

    Returns
    -------
    precision : float
        NaN, with a warning, if no sample is labelled.

    References
    ----------
    .. [1] J. Valmadre, "Hierarchical classification at multiple operating points",
       NeurIPS 2022.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import information_precision
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> information_precision(["lynx", "lynx"], ["puma", "cat"], tree)
    0.75
    """
    pairs = _pairs(y_true, y_pred, taxonomy, sample_weight, classes)
    claimed = np.where(pairs.common == pairs.truth, pairs.truth, pairs.predicted)
    return _information_ratio(pairs, claimed, taxonomy)


def information_recall(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the mean fraction of the label's information that is predicted.

    It is what :func:`operating_curve` calls information, for one prediction of each sample.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`information_precision`.

    Returns
    -------
    recall : float
        NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import information_recall
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> information_recall(["lynx", "lynx"], ["lynx", "cat"], tree)
    0.75
    """
    pairs = _pairs(y_true, y_pred, taxonomy, sample_weight, classes)
    return _information_ratio(pairs, pairs.truth, taxonomy)


def _information_ratio(pairs: _Pairs, nodes: IntArray, tree: Taxonomy) -> float:
    """Return the mean information of the common ancestor relative to that of some nodes."""
    information = inputs.node_information(tree)
    common, whole = information[pairs.common], information[nodes]
    ratio = np.divide(common, whole, out=np.ones_like(common), where=whole > 0)
    return mean_or_nan(ratio, pairs.weight, NO_LABEL)


def _node_counts(
    y_true: Any, y_pred: Any, tree: Taxonomy, sample_weight: Any, classes: Any
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Count the nodes of each sample: common, of the label, of the prediction; and its weight."""
    # Sets of nodes, so here a pass-through node and its child are two.
    from_proba = inputs.are_probabilities(y_pred)
    predicted = (
        inputs.predicted_nodes(y_pred, tree, classes) if from_proba else tree.resolve(y_pred)
    )
    _, weight = inputs.check_truth(y_true, predicted, tree, sample_weight)
    truth = tree.resolve(y_true)
    common = tree.lowest_common_ancestor(truth, predicted)
    # From the first decision on: the nodes above it hold all leaves.
    counts = np.maximum(tree.depths - tree.depths[tree.last_of_chain[0]], 0).astype(np.float64)
    return counts[common], counts[truth], counts[predicted], weight


def _ratio(
    part: FloatArray, whole: FloatArray, weight: FloatArray, average: str, nothing: str
) -> float:
    if average not in ("micro", "macro"):
        raise ValueError(f"average must be 'micro' or 'macro', got {average!r}.")
    counted = whole > 0
    weight = weight[counted] * (whole[counted] if average == "micro" else 1.0)
    return mean_or_nan(part[counted] / whole[counted], weight, nothing)
