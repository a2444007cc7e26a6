"""Held-out samples and the score that chooses the epoch to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from ..metrics import levels
from ..taxonomy.taxonomy import Taxonomy

# What is better when smaller enters with a minus, as in scikit-learn.
LEVEL_SCORES: dict[str, tuple[Callable[..., float], int]] = {
    "accuracy": (levels.level_accuracy, 1),
    "balanced_accuracy": (levels.level_balanced_accuracy, 1),
    "neg_log_loss": (levels.level_nll, -1),
    "neg_brier_score": (levels.level_brier, -1),
    "neg_ece": (levels.level_ece, -1),
}


def split_validation(
    nodes: npt.NDArray[np.int64],
    groups: npt.NDArray[Any] | None,
    fraction: float,
    seed: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose the samples to train on and those to hold out.

    Parameters
    ----------
    nodes : ndarray of int64 of shape (n_samples,)
        Target nodes; each is split in proportion where it has two samples or more.
    groups : ndarray of shape (n_samples,) or None
        Samples of one group stay on one side.
    fraction : float
        Fraction to hold out.
    seed : int
        Chooses the samples.

    Returns
    -------
    train, validation : ndarray of int64

    Examples
    --------
    >>> train, validation = split_validation(np.repeat([1, 2], 10), None, 0.2, seed=0)
    >>> len(train), len(validation)
    (16, 4)
    """
    # Late, here and below: they take a tenth of a second to import, and not every fit needs them.
    from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit, StratifiedShuffleSplit

    n_samples = len(nodes)
    n_held_out = int(np.ceil(fraction * n_samples))
    if n_held_out >= n_samples:
        raise ValueError(
            f"validation_fraction={fraction} leaves none of the {n_samples} sample(s) to train on. "
            "Lower it, set it to None, or give more samples."
        )
    X = np.zeros((n_samples, 1))
    options: dict[str, Any] = {"n_splits": 1, "test_size": n_held_out, "random_state": seed}
    if groups is not None:
        if len(np.unique(groups)) < 2:
            raise ValueError(
                "All samples are of one group, so none can be held out. Set "
                "validation_fraction=None or give validation data."
            )
        options["test_size"] = fraction
        return next(GroupShuffleSplit(**options).split(X, groups=groups))
    _, strata, counts = np.unique(nodes, return_inverse=True, return_counts=True)
    # A label that occurs once cannot be on both sides: all such labels form one stratum.
    strata = np.where(counts[strata] < 2, len(counts), strata)
    n_strata = len(np.unique(strata))
    lonely = np.bincount(strata)[-1] == 1
    if lonely or n_held_out < n_strata or n_samples - n_held_out < n_strata:
        return next(ShuffleSplit(**options).split(X))
    return next(StratifiedShuffleSplit(**options).split(X, strata))


class KnownPredictions(ClassifierMixin, BaseEstimator):
    """Stands for a classifier whose predictions for one X are known, so that scorers can read them.

    Parameters
    ----------
    proba : ndarray of shape (n_samples, n_classes)
        The predictions.
    classes : ndarray of shape (n_classes,)
        Their columns.
    """

    def __init__(self, proba: npt.NDArray[Any], classes: npt.NDArray[Any]) -> None:
        self.proba = proba
        self.classes = classes
        self.classes_ = classes

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the known probabilities."""
        return self.proba

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each sample."""
        best: npt.NDArray[Any] = self.classes[self.proba.argmax(axis=1)]
        return best


def make_selection(
    selection: str | Callable[..., float], labels: npt.NDArray[Any], taxonomy: Taxonomy
) -> Callable[[npt.NDArray[Any]], float]:
    """Return what scores the predictions for held-out samples, greater is better.

    Parameters
    ----------
    selection : str or callable
        A name of `LEVEL_SCORES` (on leaves), of scikit-learn's scorers, or a scorer.
    labels : ndarray of shape (n_samples,)
        Labels of the held-out samples.
    taxonomy : Taxonomy
        The tree.
    """
    if isinstance(selection, str) and selection in LEVEL_SCORES:
        metric, sign = LEVEL_SCORES[selection]
        return lambda proba: sign * metric(labels, proba, taxonomy, "leaf")
    from sklearn.metrics import get_scorer, get_scorer_names

    if isinstance(selection, str) and selection not in get_scorer_names():
        raise ValueError(
            f"selection={selection!r} is not known. Use one of {sorted(LEVEL_SCORES)}, a name of "
            "sklearn.metrics.get_scorer_names(), or a scorer."
        )
    scorer = get_scorer(selection) if isinstance(selection, str) else selection
    classes = taxonomy.sorted_leaf_labels
    # No scorer looks into X when the predictions are known; only its length counts.
    X = np.zeros((len(labels), 1))
    return lambda proba: float(scorer(KnownPredictions(proba, classes), X, labels))
