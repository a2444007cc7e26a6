"""Check what a fit is told of its samples: labels, the taxonomy they belong to, weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import assert_all_finite, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import check_sample_weight


def check_labels(y: Any, n_samples: int) -> npt.NDArray[Any]:
    """Return labels as a 1-D array, one for each sample; path tuples stay whole.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    n_samples : int
        Number of samples.

    Examples
    --------
    >>> check_labels(["cat", ("cat", "puma")], 2)
    array(['cat', ('cat', 'puma')], dtype=object)
    """
    if y is None:
        raise ValueError("The classifier requires y to be passed, but the target y is None.")
    if isinstance(y, (list, tuple)) and any(isinstance(label, tuple) for label in y):
        labels = np.empty(len(y), dtype=object)
        labels[:] = y
    else:
        labels = np.asarray(column_or_1d(y, warn=True))
        if labels.dtype.kind == "f":
            assert_all_finite(labels, input_name="y")
    if len(labels) != n_samples:
        raise ValueError(
            f"X holds {n_samples} samples and y {len(labels)} labels; they must be as many "
            "(inconsistent numbers of samples)."
        )
    return labels


def resolve_taxonomy(
    given: Taxonomy | None, labels: npt.NDArray[Any], known: Taxonomy | None = None
) -> Taxonomy:
    """Return the taxonomy of a fit: that of the earlier one, the given one, or a flat one.

    Parameters
    ----------
    given : Taxonomy or None
        The classifier's parameter.
    labels : ndarray of shape (n_samples,)
        The labels, which make a flat taxonomy where there is no other. The root of integers is
        -1, or the integer below the smallest.
    known : Taxonomy, default=None
        That of the fit which this one goes on from.
    """
    if known is not None:
        if given is not None and given != known:
            raise ValueError(
                "The taxonomy differs from that of the earlier fit, so training cannot go on. "
                "Set warm_start=False, or fit a new classifier."
            )
        return known
    if given is not None:
        return given
    check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class, {classes.tolist()[0]!r}, but a classifier needs at least two "
            "classes. Give samples of another class, or a taxonomy that names it."
        )
    # Numbers get a number as root, so that hedged predictions are of one kind.
    root = min(-1, int(classes.min()) - 1) if classes.dtype.kind in "iu" else None
    return Taxonomy.flat(classes.tolist(), root_name=root)


def check_weight(
    sample_weight: Any, class_weight: Any, labels: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Return the weight of each sample.

    Parameters
    ----------
    sample_weight : array-like of shape (n_samples,), number or None
        Weights of the samples.
    class_weight : dict, "balanced" or None
        Weights of their labels, as in scikit-learn.
    labels : ndarray of shape (n_samples,)
        The labels.
    """
    rows = np.empty((len(labels), 1))
    weight: npt.NDArray[np.float64] = check_sample_weight(
        sample_weight, rows, ensure_non_negative=True
    )
    if class_weight is not None:
        weight = weight * compute_sample_weight(class_weight, labels)
    return weight


def check_something_to_learn(weight: npt.NDArray[np.float64]) -> None:
    """Refuse samples of which none counts."""
    if not (weight > 0).any():
        raise ValueError(
            "There is nothing to learn from: all labels are the root, which means unlabelled, or "
            "no sample has a positive weight, or no image could be read. Label some samples below "
            "the root, or check sample_weight, class_weight and the files."
        )
