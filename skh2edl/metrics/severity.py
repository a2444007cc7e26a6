"""How bad wrong predictions are: where they leave the true path, and how far from it they end.

A prediction is a *mistake* if neither it nor the label is an ancestor of the other. A prediction
that stops early on the true path is imprecise, not mistaken; one below an ancestor label is not
known to be wrong. Samples labelled with the root are unlabelled and never count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .inputs import (
    BoolArray,
    FloatArray,
    are_probabilities,
    check_length,
    check_truth,
    check_weight,
    leaf_probabilities,
    mean_or_nan,
    nan_with_warning,
    predicted_nodes,
)

_NO_LABEL = "no labelled sample"
_NO_MISTAKE = "no prediction that contradicts its label"


class _Pairs(NamedTuple):
    truth: IntArray
    predicted: IntArray
    common: IntArray  # their lowest common ancestor
    weight: FloatArray

    @property
    def mistaken(self) -> BoolArray:
        return (self.common != self.truth) & (self.common != self.predicted)


def first_error_depth(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
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
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of probabilities, as in :func:`level_accuracy`.

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
    level: str | int = 1,
    *,
    sample_weight: npt.ArrayLike | None = None,
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
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
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
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
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
    return mean_or_nan(height, pairs.weight, _NO_LABEL)


def top_k_hierarchical_distance(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    k: int = 5,
    *,
    sample_weight: npt.ArrayLike | None = None,
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
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of `y_proba`, as in :func:`level_accuracy`.

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
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= taxonomy.n_leaves:
        raise ValueError(
            f"k must be an integer between 1 and the {taxonomy.n_leaves} leaves, got {k!r}."
        )
    leaves = leaf_probabilities(y_proba, taxonomy, classes)
    truth, weight = check_truth(y_true, leaves, taxonomy, sample_weight)
    best = np.argsort(-leaves[:, taxonomy.leaf_order], axis=1, kind="stable")[:, :k]
    predicted = taxonomy.leaf_nodes[taxonomy.leaf_order[best]]
    common = taxonomy.lowest_common_ancestor(truth[:, None], predicted)
    height = np.where(common == truth[:, None], 0, taxonomy.heights[common])
    return mean_or_nan(height.mean(axis=1), weight * _is_labelled(truth, taxonomy), _NO_LABEL)


def hierarchical_precision(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of predicted nodes that are right, micro-averaged.

    Labels and predictions stand for themselves and their ancestors without the root. Predicted
    nodes below an ancestor label are not among the label's and count as wrong: on coarse labels
    read :func:`level_accuracy` instead.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`.

    Returns
    -------
    precision : float
        NaN, with a warning, if all predictions are the root.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_precision
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> hierarchical_precision(["lynx", "fox"], ["puma", "fox"], tree)
    0.75
    """
    common, _, predicted = _ancestor_counts(y_true, y_pred, taxonomy, sample_weight, classes)
    return common / predicted if predicted > 0 else nan_with_warning("no prediction below the root")


def hierarchical_recall(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of the labels' nodes that are predicted, micro-averaged.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`; ancestors as in :func:`hierarchical_precision`.

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
    common, labelled, _ = _ancestor_counts(y_true, y_pred, taxonomy, sample_weight, classes)
    return common / labelled if labelled > 0 else nan_with_warning(_NO_LABEL)


def hierarchical_fscore(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the harmonic mean of hierarchical precision and recall.

    Parameters
    ----------
    y_true, y_pred, taxonomy, sample_weight, classes
        As in :func:`first_error_depth`; ancestors as in :func:`hierarchical_precision`.

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
    common, labelled, predicted = _ancestor_counts(y_true, y_pred, taxonomy, sample_weight, classes)
    # 2PR / (P + R) with the common factor cancelled, which also holds where P is undefined.
    return 2 * common / (labelled + predicted) if labelled > 0 else nan_with_warning(_NO_LABEL)


def _is_labelled(truth: IntArray, tree: Taxonomy) -> BoolArray:
    return np.asarray(tree.leaf_stop[truth] - tree.leaf_start[truth] < tree.n_leaves)


def _pairs(y_true: Any, y_pred: Any, tree: Taxonomy, sample_weight: Any, classes: Any) -> _Pairs:
    predicted = predicted_nodes(y_pred, tree, classes)
    truth, weight = check_truth(y_true, predicted, tree, sample_weight)
    common = tree.lowest_common_ancestor(truth, predicted)
    return _Pairs(truth, predicted, common, weight * _is_labelled(truth, tree))


def _ancestor_counts(
    y_true: Any, y_pred: Any, tree: Taxonomy, sample_weight: Any, classes: Any
) -> tuple[float, float, float]:
    """Count nodes below the root: common to label and prediction, of labels, of predictions."""
    # Sets of nodes, so here a pass-through node and its child are two.
    truth = tree.resolve(y_true)
    if are_probabilities(y_pred):
        predicted = predicted_nodes(y_pred, tree, classes)
    else:
        predicted = tree.resolve(y_pred)
    check_length(truth, predicted)
    weight = check_weight(sample_weight, truth.size) * _is_labelled(truth, tree)
    common = tree.lowest_common_ancestor(truth, predicted)
    counts = [float(tree.depths[nodes] @ weight) for nodes in (common, truth, predicted)]
    return counts[0], counts[1], counts[2]
