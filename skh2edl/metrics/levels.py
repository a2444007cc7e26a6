"""Metrics of one level: accuracy, balanced accuracy, likelihood and Brier score."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .inputs import (
    NO_LABEL,
    NO_LABEL_ON_LEVEL,
    FloatArray,
    are_probabilities,
    check_truth,
    check_truth_on_level,
    is_labelled,
    label_nodes,
    leaf_probabilities,
    level_probabilities,
    mean_or_nan,
    nan_with_warning,
    predicted_on_level,
    take_nodes,
    top_of_level,
    truth_on_level,
)


def level_accuracy(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of samples whose predicted node of a level is right.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors. A sample counts if its label reaches the level.
    y_pred : sequence of labels of shape (n_samples,) or array of shape (n_samples, n_leaves)
        Predicted labels or leaf probabilities. A label that stops above the level is wrong.
        Probabilities are summed to the level before the largest is taken.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default="leaf"
        Name or depth of the level.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Labels of the columns of probabilities; None means ``taxonomy.sorted_leaf_labels``. A
        leaf without a column has probability 0. The probability of an ancestor is spread evenly
        over its leaves.

    Returns
    -------
    accuracy : float
        NaN, with a warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import level_accuracy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_true, y_pred = ["lynx", "puma", "fox", "dog"], ["lynx", "lynx", "cat", "wolf"]
    >>> level_accuracy(y_true, y_pred, tree, level=1)
    0.75
    >>> round(level_accuracy(y_true, y_pred, tree), 4)
    0.3333
    """
    truth, predicted, weight = _on_level(y_true, y_pred, taxonomy, level, sample_weight, classes)
    return mean_or_nan(truth == predicted, weight, NO_LABEL_ON_LEVEL)


def level_balanced_accuracy(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the mean recall over the classes of a level that occur in `y_true`.

    Parameters
    ----------
    y_true, y_pred, taxonomy, level, sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    balanced_accuracy : float
        NaN, with a warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import level_balanced_accuracy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_true, y_pred = ["lynx", "lynx", "puma", "fox"], ["lynx", "puma", "lynx", "wolf"]
    >>> level_balanced_accuracy(y_true, y_pred, tree, level=1)
    1.0
    >>> round(level_balanced_accuracy(y_true, y_pred, tree), 4)
    0.1667
    """
    truth, predicted, weight = _on_level(y_true, y_pred, taxonomy, level, sample_weight, classes)
    if not truth.size:
        return nan_with_warning(NO_LABEL_ON_LEVEL)
    total = np.bincount(truth, weight)
    right = np.bincount(truth, weight * (truth == predicted))
    present = total > 0
    return float((right[present] / total[present]).mean())


def full_path_accuracy(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the fraction of samples that are right on every level.

    With probabilities each level has a prediction of its own, its likeliest node, so a right leaf
    is not enough: the likeliest node of a higher level may lie elsewhere.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors. An ancestor is judged on the levels that it reaches.
    y_pred, taxonomy, sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    accuracy : float
        NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import full_path_accuracy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.4, 0.3, 0.3], [0.1, 0.6, 0.3]]  # dog, lynx, puma
    >>> full_path_accuracy(["dog", "lynx"], y_proba, tree)
    0.5
    """
    leaves = leaf_probabilities(y_pred, taxonomy, classes) if are_probabilities(y_pred) else None
    labels = label_nodes(y_pred if leaves is None else [], taxonomy)
    given: npt.NDArray[Any] = labels if leaves is None else leaves
    truth, weight = check_truth(y_true, given, taxonomy, sample_weight)
    right = is_labelled(truth, taxonomy)
    weight = weight * right
    for depth in range(1, taxonomy.n_levels + 1):
        if leaves is None:
            predicted = taxonomy.climb_to_depth(labels, depth)
        else:
            predicted, _ = top_of_level(leaves, taxonomy, depth)
        on_level = truth_on_level(truth, taxonomy, depth)
        right = right & ((on_level < 0) | (on_level == predicted))
    return mean_or_nan(right, weight, NO_LABEL)


def level_nll(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the mean negative log-likelihood of the true node of a level, in nats.

    Probabilities are clipped at the smallest normal float64, so a true node of probability 0
    costs 708 and not infinity.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors. A sample counts if its label reaches the level.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default="leaf"
        Name or depth of the level. Leaf probabilities are summed to its nodes.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of `y_proba`, as in :func:`level_accuracy`.

    Returns
    -------
    nll : float
        NaN, with a warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import level_nll
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3]]  # dog, lynx, puma
    >>> round(level_nll(["lynx"], y_proba, tree), 4)
    0.6931
    >>> round(level_nll(["lynx"], y_proba, tree, level=1), 4)
    0.2231
    """
    of_truth, _, weight = _truth_probability(
        y_true, y_proba, taxonomy, level, sample_weight, classes
    )
    clipped = np.maximum(of_truth, np.finfo(np.float64).tiny)
    return mean_or_nan(-np.log(clipped), weight, NO_LABEL_ON_LEVEL)


def level_brier(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the Brier score of a level: the squared error summed over its nodes.

    Parameters
    ----------
    y_true, y_proba, taxonomy, level, sample_weight, classes
        As in :func:`level_nll`.

    Returns
    -------
    brier : float
        Between 0 and 2, also for a level of two nodes. NaN, with a warning, if no label reaches
        the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import level_brier
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3]]  # dog, lynx, puma
    >>> round(level_brier(["lynx"], y_proba, tree), 4)
    0.38
    >>> round(level_brier(["lynx"], y_proba, tree, level=1), 4)
    0.08
    """
    of_truth, proba, weight = _truth_probability(
        y_true, y_proba, taxonomy, level, sample_weight, classes
    )
    squares = np.einsum("ij,ij->i", proba, proba)
    return mean_or_nan(squares - 2 * of_truth + 1, weight, NO_LABEL_ON_LEVEL)


def _on_level(
    y_true: Any, y_pred: Any, tree: Taxonomy, level: str | int, sample_weight: Any, classes: Any
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return true node, predicted node and weight of the samples that count."""
    depth = tree.level_index(level)
    predicted = predicted_on_level(y_pred, tree, depth, classes)
    truth, weight, counts = check_truth_on_level(y_true, predicted, tree, depth, sample_weight)
    return truth, predicted[counts], weight


def _truth_probability(
    y_true: Any, y_proba: Any, tree: Taxonomy, level: str | int, sample_weight: Any, classes: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return probability of the true node, of all nodes, and weight of the samples that count."""
    depth = tree.level_index(level)
    proba = level_probabilities(leaf_probabilities(y_proba, tree, classes), tree, depth)
    truth, weight, counts = check_truth_on_level(y_true, proba, tree, depth, sample_weight)
    proba = proba[counts]
    return take_nodes(proba, truth, tree, depth), proba, weight
