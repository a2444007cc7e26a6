"""Metrics of one level: how good are the answers, or the probabilities, on the nodes of a depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .inputs import (
    FloatArray,
    answers_on_level,
    check_length,
    check_weight,
    columns_of,
    label_nodes,
    leaf_probabilities,
    level_sums,
    mean_or_nan,
    nan_with_warning,
)

_NO_LABEL = "no sample whose label reaches the level"


def level_accuracy(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the share of samples whose node of a level is right.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors. A sample counts if its label reaches the level.
    y_pred : sequence of labels of shape (n_samples,) or array of shape (n_samples, n_leaves)
        Answers: labels, of which one that stops above the level is wrong there; or leaf
        probabilities, which are added up to the level before the largest is taken.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default="leaf"
        Name or depth of the level.
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        What the columns of probabilities stand for; None means
        ``taxonomy.sorted_leaf_labels``. A leaf that is not named has probability 0, a named
        ancestor's probability is spread evenly over its leaves.

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
    truth, answers, weight = _on_level(y_true, y_pred, taxonomy, level, sample_weight, classes)
    return mean_or_nan(truth == answers, weight, _NO_LABEL)


def level_balanced_accuracy(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
) -> float:
    """Compute the mean recall of the classes of a level that are present.

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
    truth, answers, weight = _on_level(y_true, y_pred, taxonomy, level, sample_weight, classes)
    present = np.bincount(truth, weight)
    right = np.bincount(truth, weight * (truth == answers))
    counted = present > 0
    if not counted.any():
        return nan_with_warning(_NO_LABEL)
    return float((right[counted] / present[counted]).mean())


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

    Probabilities are clipped at the smallest normal float64, so that one impossible truth costs
    708 and not infinity.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors. A sample counts if its label reaches the level.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default="leaf"
        Name or depth of the level, to which the leaf probabilities are added up.
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
    return mean_or_nan(-np.log(clipped), weight, _NO_LABEL)


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
    of_truth, sums, weight = _truth_probability(
        y_true, y_proba, taxonomy, level, sample_weight, classes
    )
    squares = np.einsum("ij,ij->i", sums, sums)
    return mean_or_nan(squares - 2 * of_truth + 1, weight, _NO_LABEL)


def _on_level(
    y_true: Any, y_pred: Any, tree: Taxonomy, level: str | int, sample_weight: Any, classes: Any
) -> tuple[IntArray, IntArray, FloatArray]:
    depth = tree.level_index(level)
    truth = tree.climb_to_depth(label_nodes(y_true, tree), depth)
    answers = answers_on_level(y_pred, tree, depth, classes)
    check_length(truth, answers)
    weight = check_weight(sample_weight, truth.size)
    counts = truth >= 0
    return truth[counts], answers[counts], weight[counts]


def _truth_probability(
    y_true: Any, y_proba: Any, tree: Taxonomy, level: str | int, sample_weight: Any, classes: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    depth = tree.level_index(level)
    truth = tree.climb_to_depth(label_nodes(y_true, tree), depth)
    sums, _ = level_sums(leaf_probabilities(y_proba, tree, classes), tree, depth)
    check_length(truth, sums)
    weight = check_weight(sample_weight, truth.size)
    counts = truth >= 0
    truth, sums, weight = truth[counts], sums[counts], weight[counts]
    column = columns_of(truth, tree, depth)
    return np.take_along_axis(sums, column[:, None], axis=1)[:, 0], sums, weight
