"""Held-out predictions of every sample, with the labels and the columns of the taxonomy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn.utils import indexable

from ..utils.sklearn_tools import safe_indexing
from .splits import held_out_splits
from .targets import check_labels
from .wrapping import fit_on, taken_by_fit

_PREDICTIONS = ("predict", "predict_proba", "predict_log_proba", "decision_function")


def cross_val_predict(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    method: str = "predict",
) -> npt.NDArray[Any]:
    """Predict every sample with an estimator that was fitted without it.

    scikit-learn's function of this name encodes y for the methods that return a column for each
    class, and has columns for the labels in y only. This one gives the estimator its labels, which
    may be ancestors, and has a column for every class of the estimator: with a taxonomy all
    leaves, those that y lacks too.

    Parameters
    ----------
    estimator : classifier
        Any; it is cloned for each split.
    X : array-like or images
        The samples.
    y : array-like of shape (n_samples,)
        Labels: leaves or ancestors.
    groups : array-like of shape (n_samples,), default=None
        For the splitter, and for the estimator's `fit` if that takes groups.
    sample_weight : array-like of shape (n_samples,), default=None
        For the estimator's `fit`.
    cv : int, splitter or iterable of splits, default=None
        None means five parts, stratified by label. Every sample is held out once.
    n_jobs : int, default=None
        Fits at the same time, as in joblib.
    method : {"predict", "predict_proba", "predict_log_proba", "decision_function"}, \
default="predict"
        What to return.

    Returns
    -------
    predictions : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Columns in the order of `classes_`.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import HierCEClassifier, Taxonomy, cross_val_predict
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["pug", "wolf"]})
    >>> X, y = np.repeat(np.eye(3), 10, axis=0), np.repeat(["lynx", "puma", "dog"], 10)
    >>> clf = HierCEClassifier(tree, backbone=None)
    >>> proba = cross_val_predict(clf, X, y, method="predict_proba")
    >>> proba.shape  # a column for each of the four leaves, although y has two of them
    (30, 4)
    """
    if method not in _PREDICTIONS:
        raise ValueError(f"method must be one of {list(_PREDICTIONS)}, got {method!r}.")
    X, y, groups, sample_weight = indexable(X, y, groups, sample_weight)
    labels = check_labels(y, 0 if y is None else len(y))
    splits = held_out_splits(cv, X, labels, groups)
    held = np.concatenate([test for _, test in splits])
    if not np.array_equal(np.sort(held), np.arange(len(labels))):
        raise ValueError(
            f"cv holds out {len(np.unique(held))} of {len(labels)} samples in {len(held)} "
            "predictions, and each must be held out once. Use a partition, such as KFold."
        )
    arguments = taken_by_fit(estimator, sample_weight=sample_weight, groups=groups)
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_predict_part)(estimator, X, y, arguments, train, test, method)
        for train, test in splits
    )
    classes = parts[0][1]
    for number, (_, other) in enumerate(parts):
        if method != "predict" and not np.array_equal(classes, other):
            raise ValueError(
                f"The estimator of split {number} knows the classes {list(other[:5])} ..., that of "
                f"split 0 {list(classes[:5])} ...: a label is missing in a part. Give the "
                "classifier a taxonomy, whose leaves are always all known."
            )
    return np.concatenate([values for values, _ in parts])[np.argsort(held)]


def _predict_part(
    estimator: Any,
    X: Any,
    y: Any,
    arguments: Mapping[str, Any],
    train: Any,
    held: Any,
    method: str,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    fitted = fit_on(estimator, X, y, arguments, train)
    values = np.asarray(getattr(fitted, method)(safe_indexing(X, held)))
    return values, np.asarray(fitted.classes_)
