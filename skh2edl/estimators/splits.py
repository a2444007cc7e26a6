"""Splits of the wrappers: samples to fit on and samples held out, groups kept together."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv

from ..utils.validation import check_groups

IntArray = npt.NDArray[np.int64]
_N_SPLITS = 5  # as scikit-learn takes for cv=None


def held_out_splits(
    cv: Any, X: Any, labels: npt.NDArray[Any], groups: Any
) -> list[tuple[IntArray, IntArray]]:
    """Return pairs of positions: samples to fit on, and samples held out.

    Parameters
    ----------
    cv : int, splitter, iterable of splits or None
        Given groups, None and a number keep each group on one side, with labels in proportion as
        far as groups allow. Without, they are scikit-learn's stratified folds.
    X : array-like or images
        The samples.
    labels : ndarray of shape (n_samples,)
        Their labels, of any kind.
    groups : array-like of shape (n_samples,) or None
        Their groups.

    Examples
    --------
    >>> labels, groups = np.array(["cat", "dog", "cat", "dog"]), ["tom", "rex", "tom", "rex"]
    >>> [held.tolist() for _, held in held_out_splits(None, np.zeros(4), labels, groups)]
    [[1, 3], [0, 2]]
    """
    # Labels may be tuples, which scikit-learn cannot stratify.
    known: dict[Any, int] = {}
    codes = np.array([known.setdefault(label, len(known)) for label in labels.tolist()])
    if groups is None:
        splits = _as_arrays(check_cv(cv, codes, classifier=True).split(X, codes))
    else:
        _, member_of = check_groups(groups, len(codes))
        if cv is None or isinstance(cv, (int, np.integer)):
            splits = _grouped(cv, codes, member_of)
        else:
            splitter = check_cv(cv, codes, classifier=True)
            with warnings.catch_warnings():
                # Those that ignore groups say so; whether it matters is checked below.
                warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
                splits = _as_arrays(splitter.split(X, codes, groups))
        _check_groups_apart(splits, np.asarray(groups))
    n_seen = sum(np.intersect1d(train, held).size for train, held in splits)
    if n_seen:
        raise ValueError(
            f"cv holds out {n_seen} sample(s) that the same split also fits on, so their "
            "predictions are more confident than those for new samples. Use splits whose two "
            "parts do not overlap."
        )
    return splits


def _as_arrays(splits: Any) -> list[tuple[IntArray, IntArray]]:
    return [(np.asarray(train), np.asarray(held)) for train, held in splits]


def _grouped(cv: Any, codes: IntArray, member_of: IntArray) -> list[Any]:
    """Return folds of whole groups, stratified where that leaves no fold empty."""
    n_groups = int(member_of.max()) + 1
    n_splits = min(_N_SPLITS, n_groups) if cv is None else int(cv)
    if n_groups < max(2, n_splits):
        raise ValueError(
            f"{n_groups} group(s) cannot be divided into {max(2, n_splits)} parts. Give samples of "
            "more groups, or wrap a fitted estimator in FrozenEstimator and give held-out samples."
        )
    X, counts = np.zeros((len(codes), 1)), np.bincount(codes)
    # Labels too rare to be in every part are counted with the commonest.
    strata = np.where(counts < n_splits, counts.argmax(), np.arange(counts.size))[codes]
    splits = _as_arrays(StratifiedGroupKFold(n_splits).split(X, strata, member_of))
    if all(held.size for _, held in splits):
        return splits
    return _as_arrays(GroupKFold(n_splits).split(X, codes, member_of))


def _check_groups_apart(splits: list[tuple[IntArray, IntArray]], groups: npt.NDArray[Any]) -> None:
    """Raise if a group is on both sides of a split."""
    for train, held in splits:
        shared = np.intersect1d(groups[train], groups[held])
        if shared.size:
            raise ValueError(
                f"cv puts {shared.size} group(s) on both sides of a split, first "
                f"{shared[:5].tolist()}. The estimator knows those groups, so its predictions for "
                "them are better than for new ones. Leave cv=None, or use a splitter that keeps "
                "groups together, such as GroupShuffleSplit or StratifiedGroupKFold."
            )
