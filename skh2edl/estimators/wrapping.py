"""What the estimators around any probabilistic classifier share: its tree, its leaves, its fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from ..metrics.inputs import leaf_probabilities
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import safe_indexing
from .predictions import TreeAnswers
from .targets import resolve_taxonomy

# Added to every probability before its logarithm, as scikit-learn's own temperature scaling does.
_LEAST = 1e-12


def find_taxonomy(fitted: Any, given: Taxonomy | None = None) -> Taxonomy:
    """Return the tree to answer in: the given one, that of a classifier, or a flat one.

    Parameters
    ----------
    fitted : classifier
        Fitted; a pipeline or a search is asked for what is inside.
    given : Taxonomy, default=None
        Goes before all else.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> find_taxonomy(GaussianNB().fit([[0], [1]], ["cat", "dog"])).leaves
    ('cat', 'dog')
    """
    if given is not None:
        return given
    inside = fitted
    while inside is not None:
        if hasattr(inside, "taxonomy_"):
            return inside.taxonomy_
        steps = getattr(inside, "steps", None)
        inside = steps[-1][1] if steps else getattr(inside, "best_estimator_", None)
    return resolve_taxonomy(None, np.asarray(fitted.classes_))


def leaf_log_probability(fitted: Any, X: Any, taxonomy: Taxonomy) -> npt.NDArray[np.float64]:
    """Return log P of each leaf in tree order, finite.

    Parameters
    ----------
    fitted : classifier
        With `predict_proba` and `classes_`, which name nodes of the taxonomy.
    X : what it reads
        The samples.
    taxonomy : Taxonomy
        The tree. A leaf that the classifier does not know has the least probability; that of an
        ancestor among its classes goes to the leaves below in equal parts.
    """
    classes = np.asarray(fitted.classes_)
    if hasattr(fitted, "taxonomy_") and np.array_equal(classes, taxonomy.sorted_leaf_labels):
        # Its own logarithms are right where probabilities are too small for a float.
        known = np.asarray(fitted.predict_log_proba(X), dtype=np.float64)
        if np.isnan(known).any():
            row = int(np.isnan(known).any(axis=1).argmax())
            raise ValueError(
                f"{type(fitted).__name__} gives NaN as log-probability, first in row {row}. Check "
                "those samples, and fit the estimator again if all are like this."
            )
        log_leaves = np.empty_like(known)
        log_leaves[:, taxonomy.leaf_order] = known
        return np.maximum(log_leaves, np.log(np.finfo(np.float64).tiny))
    proba = leaf_probabilities(fitted.predict_proba(X), taxonomy, classes.tolist())
    return np.asarray(np.log(proba + _LEAST))


def read_opinion(fitted: Any, X: Any, taxonomy: Taxonomy) -> HyperOpinion:
    """Return the hyper-opinion of an evidential classifier, which must be on the taxonomy.

    Parameters
    ----------
    fitted : classifier
        With `predict_hyper_opinion`.
    X : what it reads
        The samples.
    taxonomy : Taxonomy
        The tree.
    """
    opinion: HyperOpinion = fitted.predict_hyper_opinion(X)
    if opinion.taxonomy != taxonomy:
        raise ValueError(
            f"The opinions of {type(fitted).__name__} are on another taxonomy "
            f"({opinion.taxonomy.n_leaves} leaves) than {taxonomy.n_leaves} leaves wanted here. "
            "Give the estimator itself the taxonomy, so that every fit uses the same."
        )
    return opinion


def fit_arguments(estimator: Any, sample_weight: Any, groups: Any) -> dict[str, Any]:
    """Return what an estimator's fit takes beside X and y, of what there is.

    Parameters
    ----------
    estimator : classifier
        The one to fit.
    sample_weight, groups : array-like of shape (n_samples,) or None
        None is not passed on.
    """
    if sample_weight is not None and not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            f"sample_weight was given, but {type(estimator).__name__}.fit takes none. "
            "Leave it out, or wrap an estimator that does."
        )
    arguments = {"sample_weight": sample_weight, "groups": groups}
    return {
        name: value
        for name, value in arguments.items()
        if value is not None and has_fit_parameter(estimator, name)
    }


def fit_on(
    estimator: Any, X: Any, y: Any, sample_weight: Any, groups: Any, rows: Any = None
) -> Any:
    """Fit a clone on some rows; None means all. What is frozen stays as it is.

    Parameters
    ----------
    estimator : classifier
        The one to clone.
    X, y, sample_weight, groups
        As in a fit.
    rows : ndarray of int, default=None
        The rows.
    """
    if rows is not None:
        X, y, sample_weight, groups = (
            None if values is None else safe_indexing(values, rows)
            for values in (X, y, sample_weight, groups)
        )
    own = clone(estimator)
    if isinstance(estimator, FrozenEstimator):
        return own.fit(X, y)
    return own.fit(X, y, **fit_arguments(own, sample_weight, groups))


def has_opinions(estimator: Any) -> bool:
    """Tell whether an estimator, fitted or not, is evidential on a tree."""
    return hasattr(estimator, "predict_hyper_opinion")


class TreeWrapper(MetaEstimatorMixin, TreeAnswers, ClassifierMixin, BaseEstimator):
    """Base of the estimators around a classifier: they read what it reads."""

    estimator: Any

    def _take_over(self, fitted: Any, taxonomy: Taxonomy | None) -> None:
        """Set the attributes that a fitted estimator decides."""
        self.taxonomy_ = find_taxonomy(fitted, taxonomy)
        self.classes_ = self.taxonomy_.sorted_leaf_labels
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags
