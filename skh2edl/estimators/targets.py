"""Check what a fit is told of its samples: labels, the taxonomy they belong to, weights."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import assert_all_finite, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..taxonomy.names import is_blank, shown, trim_row
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import check_sample_weight

# What people join the names of a path with.
_SEPARATORS = ("/", "|", ";", ">", "::")


def check_labels(y: Any, n_samples: int) -> npt.NDArray[Any]:
    """Return labels as a 1-D array, one for each sample; path tuples stay whole.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_levels)
        Labels, or rows of the names of each level: those that end early are ancestor labels.
    n_samples : int
        Number of samples.

    Examples
    --------
    >>> check_labels(["cat", ("cat", "puma")], 2)
    array(['cat', ('cat', 'puma')], dtype=object)
    >>> check_labels(np.array([["cat", "puma"], ["cat", ""]]), 2)
    array([('cat', 'puma'), ('cat',)], dtype=object)
    """
    if y is None:
        raise ValueError("The classifier requires y to be passed, but the target y is None.")
    if isinstance(y, (list, tuple)) and any(isinstance(label, tuple) for label in y):
        labels = np.empty(len(y), dtype=object)
        labels[:] = y
    elif (rows := _rank_rows(y)) is not None:
        labels = rows
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


def _rank_rows(y: Any) -> npt.NDArray[Any] | None:
    """Return rows of rank names as paths; None if y is no table of names."""
    if isinstance(y, (list, tuple)) and y and all(isinstance(row, list) for row in y):
        rows = y
    elif getattr(y, "ndim", 1) == 2 and y.shape[1] > 1:
        rows = y.to_numpy().tolist() if hasattr(y, "to_numpy") else np.asarray(y).tolist()
    else:
        return None
    names = [cell for row in rows for cell in row if not is_blank(cell)]
    if any(isinstance(row, list) and len(row) < 2 for row in rows) or not names:
        return None
    # Several columns of floats are scores or indicators, which column_or_1d refuses.
    if any(isinstance(name, float) for name in names):
        return None
    labels = np.empty(len(rows), dtype=object)
    labels[:] = [tuple(trim_row(row)) for row in rows]
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
        The labels, which make a flat taxonomy where there is no other.
    known : Taxonomy, default=None
        That of the fit that this one resumes.
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
    paths = [label for label in labels.tolist() if isinstance(label, tuple)]
    if paths:
        raise ValueError(
            f"y holds {len(paths)} path(s), such as {shown(paths[0])}, and there is no taxonomy to "
            "find them in. Build the tree with Taxonomy.from_paths(y) and pass it as taxonomy=..., "
            "or give the last name of each path for a flat tree."
        )
    check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class, {classes.tolist()[0]!r}, but a classifier needs at least two "
            "classes. Give samples of another class, or a taxonomy that names it."
        )
    _warn_of_paths(classes)
    return Taxonomy.flat(classes.tolist())


def _warn_of_paths(classes: npt.NDArray[Any]) -> None:
    """Warn if the classes of a flat tree look like joined paths."""
    if classes.dtype.kind not in "UO":
        return
    names = list(map(str, classes.tolist()))
    for mark in _SEPARATORS:
        # Every class is joined, and some begin alike: units such as km/h do not.
        if all(mark in name.strip(mark) for name in names):
            tops = {name.split(mark)[0] for name in names}
            if len(tops) < len(names):
                warnings.warn(
                    f"All {len(names)} labels look like paths, such as {shown(names[0])}, but "
                    "there is no taxonomy, so that each is a class of a flat tree. To use the "
                    f"tree, pass taxonomy=Taxonomy.from_paths([label.split({mark!r}) for label in "
                    f"y], separator={mark!r}).",
                    UserWarning,
                    stacklevel=6,
                )
            return


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
    X = np.empty((len(labels), 1))
    weight: npt.NDArray[np.float64] = check_sample_weight(
        sample_weight, X, ensure_non_negative=True
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
