"""TreeView: a fitted pipeline or search with all the methods of the classifier inside it."""

from __future__ import annotations

from typing import Any, Self

import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from .wrapping import (
    TreeWrapper,
    find_taxonomy,
    has_opinions,
    leaf_log_probability,
    opinion_of,
)


class TreeView(TreeWrapper):
    """Give a fitted pipeline or search all methods of the tree classifier inside it.

    Pipelines and searches of scikit-learn forward `predict` and `predict_proba` and nothing else.
    A view adds levels, opinions, and files. The wrappers of this package look inside by
    themselves and need no view.

    Parameters
    ----------
    estimator : Pipeline, search or FrozenEstimator
        Fitted, with a classifier at its end. A classifier of scikit-learn has a flat taxonomy.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skh2edl import H2EDLClassifier, Taxonomy, TreeView
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> X, y = np.repeat(np.eye(3), 9, axis=0), np.repeat(["lynx", "puma", "dog"], 9)
    >>> pipeline = make_pipeline(StandardScaler(), H2EDLClassifier(tree, backbone=None)).fit(X, y)
    >>> TreeView(pipeline).predict_level([[1, 0, 0]], 1)
    array(['cat'], dtype='<U3')
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @property
    def taxonomy_(self) -> Taxonomy:  # type: ignore[override]
        """The tree."""
        check_is_fitted(self.estimator)
        return find_taxonomy(self.estimator)

    @property
    def classes_(self) -> npt.NDArray[Any]:  # type: ignore[override]
        """Labels of all leaves, sorted."""
        return self.taxonomy_.sorted_leaf_labels

    def fit(self, X: Any, y: Any, **params: Any) -> Self:  # type: ignore[override]
        """Fit the estimator anew, in place.

        Parameters
        ----------
        X, y, **params
            As in the estimator's own `fit`.

        Returns
        -------
        self
        """
        self.estimator.fit(X, y, **params)
        return self

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        return leaf_log_probability(self.estimator, X, self.taxonomy_)

    @available_if(lambda self: has_opinions(self.estimator))
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the hyper-opinions of the classifier.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        return opinion_of(self.estimator, X, self.taxonomy_)
