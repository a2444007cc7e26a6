"""Calibration of a level: how far the top-1 probability is from the accuracy it states."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from .inputs import (
    NO_LABEL_ON_LEVEL,
    BoolArray,
    FloatArray,
    check_truth_on_level,
    leaf_probabilities,
    nan_with_warning,
    top_of_level,
)


class ReliabilityCurve(NamedTuple):
    """Accuracy against confidence in bins.

    Parameters
    ----------
    accuracy, confidence : ndarray of shape (n_bins,)
        Fraction of right predictions and mean top-1 probability in each bin; NaN in an empty bin.
    share : ndarray of shape (n_bins,)
        Fraction of the sample weight in each bin; sums to 1.
    edges : ndarray of shape (n_bins + 1,)
        Bin ``i`` holds the confidences from ``edges[i]`` up to, not including, ``edges[i + 1]``;
        the last bin includes 1.
    """

    accuracy: FloatArray
    confidence: FloatArray
    share: FloatArray
    edges: FloatArray


def level_ece(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    n_bins: int = 15,
    sample_weight: npt.ArrayLike | None = None,
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
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of `y_proba`, as in :func:`level_accuracy`.

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
    curve = _curve(y_true, y_proba, taxonomy, level, n_bins, "uniform", sample_weight, classes)
    return _calibration_error(curve)


def level_adaptive_ece(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    n_bins: int = 15,
    sample_weight: npt.ArrayLike | None = None,
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
    curve = _curve(y_true, y_proba, taxonomy, level, n_bins, "quantile", sample_weight, classes)
    return _calibration_error(curve)


def reliability_curve(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: str | int = "leaf",
    *,
    n_bins: int = 15,
    strategy: str = "uniform",
    sample_weight: npt.ArrayLike | None = None,
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
        The arrays `accuracy`, `confidence`, `share` and `edges`; the first three are NaN, with a
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
    return _curve(y_true, y_proba, taxonomy, level, n_bins, strategy, sample_weight, classes)


def top_confidence(
    y_true: Any, y_proba: Any, tree: Taxonomy, level: str | int, sample_weight: Any, classes: Any
) -> tuple[FloatArray, BoolArray, FloatArray, BoolArray]:
    """Return confidence, correctness and weight of the samples that count, and which these are."""
    depth = tree.level_index(level)
    predicted, confidence = top_of_level(leaf_probabilities(y_proba, tree, classes), tree, depth)
    truth, weight, counts = check_truth_on_level(y_true, predicted, tree, depth, sample_weight)
    # Sums of rounded probabilities may pass 1 by an ulp.
    return np.minimum(confidence[counts], 1.0), truth == predicted[counts], weight, counts


def _curve(
    y_true: Any,
    y_proba: Any,
    tree: Taxonomy,
    level: str | int,
    n_bins: int,
    strategy: str,
    sample_weight: Any,
    classes: Any,
) -> ReliabilityCurve:
    if not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ValueError(f"n_bins must be an integer of at least 1, got {n_bins!r}.")
    confidence, right, weight, _ = top_confidence(
        y_true, y_proba, tree, level, sample_weight, classes
    )
    edges = np.linspace(0, 1, n_bins + 1)
    if not confidence.size:
        nothing = np.full(n_bins, nan_with_warning(NO_LABEL_ON_LEVEL, stacklevel=4))
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
            share=mass / mass.sum(),
            edges=edges,
        )


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


def _calibration_error(curve: ReliabilityCurve) -> float:
    filled = curve.share != 0  # all of them, and NaN, if there is nothing to score
    gap = np.abs(curve.accuracy[filled] - curve.confidence[filled])
    return float(gap @ curve.share[filled])
