"""How much of the true path is predicted, and how much of the prediction lies on it.

Nodes are counted, or weighed by their information. The root and the pass-through nodes below it
hold all leaves, say nothing and do not count. Samples labelled with them are unlabelled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from .inputs import (
    NO_LABEL,
    FloatArray,
    are_probabilities,
    check_length,
    check_truth,
    check_weight,
    is_labelled,
    mean_or_nan,
    node_information,
    predicted_nodes,
)

_ALL_ROOT = "no prediction below the root"


def hierarchical_precision(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    average: str = "micro",
    sample_weight: npt.ArrayLike | None = None,
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
    sample_weight: npt.ArrayLike | None = None,
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
    sample_weight: npt.ArrayLike | None = None,
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
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
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
    common, _, predicted, weight = _information(y_true, y_pred, taxonomy, sample_weight, classes)
    precision = np.divide(common, predicted, out=np.ones_like(common), where=predicted > 0)
    return mean_or_nan(precision, weight, NO_LABEL)


def information_recall(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: npt.ArrayLike | None = None,
    classes: Any = None,
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
    common, labelled, _, weight = _information(y_true, y_pred, taxonomy, sample_weight, classes)
    recall = np.divide(common, labelled, out=np.ones_like(common), where=labelled > 0)
    return mean_or_nan(recall, weight, NO_LABEL)


def _node_counts(
    y_true: Any, y_pred: Any, tree: Taxonomy, sample_weight: Any, classes: Any
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Count the nodes of each sample: common, of the label, of the prediction; and its weight."""
    # Sets of nodes, so here a pass-through node and its child are two.
    truth = tree.resolve(y_true)
    if are_probabilities(y_pred):
        predicted = predicted_nodes(y_pred, tree, classes)
    else:
        predicted = tree.resolve(y_pred)
    check_length(truth, predicted)
    weight = check_weight(sample_weight, truth.size) * is_labelled(truth, tree)
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
    return mean_or_nan(part[counted] / whole[counted], weight, nothing, stacklevel=5)


def _information(
    y_true: Any, y_pred: Any, tree: Taxonomy, sample_weight: Any, classes: Any
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the information of common ancestor, label and prediction, and the weight."""
    predicted = predicted_nodes(y_pred, tree, classes)
    truth, weight = check_truth(y_true, predicted, tree, sample_weight)
    common = tree.lowest_common_ancestor(truth, predicted)
    predicted = np.where(common == truth, truth, predicted)
    information = node_information(tree)
    weight = weight * is_labelled(truth, tree)
    return information[common], information[truth], information[predicted], weight
