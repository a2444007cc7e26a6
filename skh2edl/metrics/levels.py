"""Metrics of one level: accuracy, likelihood, Brier score and calibration."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from . import inputs
from .inputs import NO_LABEL_ON_LEVEL, BoolArray, FloatArray, Level, mean_or_nan, undefined


def level_accuracy(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    sample_weight: Any = None,
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
    level: Level = "leaf",
    *,
    sample_weight: Any = None,
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
        return undefined(NO_LABEL_ON_LEVEL)
    total = np.bincount(truth, weight)
    right = np.bincount(truth, weight * (truth == predicted))
    present = total > 0
    return float((right[present] / total[present]).mean())


def full_path_accuracy(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
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
    depths = range(1, taxonomy.n_levels + 1)
    predicted = inputs.predicted_on_levels(y_pred, taxonomy, depths, classes)
    truth, weight = inputs.check_truth(y_true, predicted, taxonomy, sample_weight)
    on_levels = np.stack([taxonomy.climb_to_depth(truth, depth) for depth in depths], axis=1)
    right = ((on_levels < 0) | (on_levels == predicted)).all(axis=1)
    return mean_or_nan(right, weight, inputs.NO_LABEL)


def level_nll(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    sample_weight: Any = None,
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
    sample_weight, classes
        As in :func:`level_accuracy`.

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
    level: Level = "leaf",
    *,
    sample_weight: Any = None,
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
    y_true: Any, y_pred: Any, tree: Taxonomy, level: Level, sample_weight: Any, classes: Any
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return true node, predicted node and weight of the samples that count."""
    depth = tree.level_index(level)
    predicted = inputs.predicted_on_levels(y_pred, tree, [depth], classes)[:, 0]
    truth, weight, counts = inputs.check_truth_on_level(
        y_true, predicted, tree, depth, sample_weight
    )
    return truth, predicted[counts], weight


def _truth_probability(
    y_true: Any, y_proba: Any, tree: Taxonomy, level: Level, sample_weight: Any, classes: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return probability of the true node, of all nodes, and weight of the samples that count."""
    depth = tree.level_index(level)
    leaves = inputs.leaf_probabilities(y_proba, tree, classes)
    proba = inputs.level_probabilities(leaves, tree, depth)
    truth, weight, counts = inputs.check_truth_on_level(y_true, proba, tree, depth, sample_weight)
    proba = proba[counts]
    return inputs.take_nodes(proba, truth, tree, depth), proba, weight


class ReliabilityCurve(NamedTuple):
    """Accuracy against confidence in bins.

    Parameters
    ----------
    accuracy, confidence : ndarray of shape (n_bins,)
        Fraction of right predictions and mean top-1 probability in each bin; NaN in an empty bin.
    fraction : ndarray of shape (n_bins,)
        Fraction of the sample weight in each bin; sums to 1.
    edges : ndarray of shape (n_bins + 1,)
        Bin ``i`` holds the confidences from ``edges[i]`` up to, not including, ``edges[i + 1]``;
        the last bin includes 1.
    """

    accuracy: FloatArray
    confidence: FloatArray
    fraction: FloatArray
    edges: FloatArray

    @property
    def error(self) -> float:
        """Mean gap of accuracy and confidence (ECE); NaN if there is nothing to score."""
        filled = self.fraction != 0
        gap = np.abs(self.accuracy[filled] - self.confidence[filled])
        return float(gap @ self.fraction[filled])


def level_ece(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the expected calibration error of a level's top-1 probability.

    The bins have equal width. Each includes its lower edge; the last one includes 1, too. numpy
    and netcal use the same bins; torchmetrics gives confidences of exactly 1 a bin of their own.

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
    n_bins : int, default=15
        Number of bins.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    ece : float
        NaN, with a warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import level_ece
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> round(level_ece(["lynx", "dog"], y_proba, tree), 4)
    0.3
    >>> round(level_ece(["lynx", "dog"], y_proba, tree, level=1), 4)
    0.15
    """
    options = {"n_bins": n_bins, "sample_weight": sample_weight, "classes": classes}
    return reliability_curve(y_true, y_proba, taxonomy, level, **options).error


def level_adaptive_ece(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the calibration error over bins that hold equally many samples.

    With samples sorted by confidence, each belongs to the bin that holds the middle of its
    weight. Equal confidences fall into one bin, so the order of samples does not matter.

    Parameters
    ----------
    y_true, y_proba, taxonomy, level, n_bins, sample_weight, classes
        As in :func:`level_ece`.

    Returns
    -------
    ece : float
        NaN, with a warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import level_adaptive_ece
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> round(level_adaptive_ece(["lynx", "dog"], y_proba, tree, n_bins=1), 4)
    0.3
    """
    options = {"n_bins": n_bins, "sample_weight": sample_weight, "classes": classes}
    return reliability_curve(y_true, y_proba, taxonomy, level, strategy="quantile", **options).error


def reliability_curve(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    n_bins: int = 15,
    strategy: str = "uniform",
    sample_weight: Any = None,
    classes: Any = None,
) -> ReliabilityCurve:
    """Compute accuracy against confidence in bins, as a reliability diagram shows it.

    Parameters
    ----------
    y_true, y_proba, taxonomy, level, n_bins, sample_weight, classes
        As in :func:`level_ece`.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, as in :func:`level_ece`, or with equally many samples, as in
        :func:`level_adaptive_ece`.

    Returns
    -------
    curve : ReliabilityCurve
        The arrays `accuracy`, `confidence`, `fraction` and `edges`; the first three are NaN, with a
        warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import reliability_curve
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> reliability_curve(["puma", "dog"], y_proba, tree, n_bins=2).accuracy
    array([nan, 0.5])
    """
    if strategy not in ("uniform", "quantile"):
        raise ValueError(f"strategy must be 'uniform' or 'quantile', got {strategy!r}.")
    if not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ValueError(f"n_bins must be an integer of at least 1, got {n_bins!r}.")
    confidence, right, weight, _ = top_confidence(
        y_true, y_proba, taxonomy, level, sample_weight, classes
    )
    edges = np.linspace(0, 1, n_bins + 1)
    if not confidence.size:
        nothing = np.full(n_bins, undefined(NO_LABEL_ON_LEVEL))
        return ReliabilityCurve(nothing, nothing, nothing, edges)
    if strategy == "uniform":
        place = np.minimum(np.searchsorted(edges, confidence, side="right") - 1, n_bins - 1)
    else:
        place, edges = _equal_mass_bins(confidence, weight, n_bins)
    mass = np.bincount(place, weight, n_bins)
    with np.errstate(invalid="ignore"):
        return ReliabilityCurve(
            accuracy=np.bincount(place, weight * right, n_bins) / mass,
            confidence=np.bincount(place, weight * confidence, n_bins) / mass,
            fraction=mass / mass.sum(),
            edges=edges,
        )


def top_confidence(
    y_true: Any, y_proba: Any, tree: Taxonomy, level: Level, sample_weight: Any, classes: Any
) -> tuple[FloatArray, BoolArray, FloatArray, BoolArray]:
    """Return confidence, correctness and weight of the samples that count, and which these are."""
    depth = tree.level_index(level)
    leaves = inputs.leaf_probabilities(y_proba, tree, classes)
    predicted, confidence = inputs.top_of_level(leaves, tree, depth)
    truth, weight, counts = inputs.check_truth_on_level(
        y_true, predicted, tree, depth, sample_weight
    )
    # Sums of rounded probabilities may pass 1 by an ulp.
    return np.minimum(confidence[counts], 1.0), truth == predicted[counts], weight, counts


def _equal_mass_bins(
    confidence: FloatArray, weight: FloatArray, n_bins: int
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    values, which = np.unique(confidence, return_inverse=True)
    mass = np.bincount(which, weight)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    bin_of_value = np.minimum((middle * n_bins).astype(np.int64), n_bins - 1)
    first = np.searchsorted(bin_of_value, np.arange(1, n_bins))
    inner = np.append(values, 1.0)[first]
    return bin_of_value[which], np.concatenate([[0.0], inner, [1.0]])
