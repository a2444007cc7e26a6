"""Restrict the predictions of any probabilistic classifier to some of its classes."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..taxonomy.candidates import candidate_leaves, condition, warn_if_unlikely
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import HasMethods, Interval
from .wrapping import TreeWrapper, leaf_log_probability


class CandidateClassifier(TreeWrapper):
    """Predict among some candidates only, such as the species of a park.

    The probability of a leaf is conditioned on the candidates: P(leaf) / P(candidates), and 0 for
    all others. That is what the classifier believes if it is certain that the sample is one of the
    candidates; it is not the same as a classifier trained on the candidates alone.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. Fitted by `fit`
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
    candidates : label or sequence of labels, default=None
        A clade, or any leaves and clades; None means all leaves.
    warn_below : float, default=0.01
        Warn if P(candidates) of a sample is smaller: then it probably shows something else, and
        what the candidates get says little.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    candidates_ : list of labels
        The leaves that can be predicted, in tree order.
    taxonomy_ : Taxonomy
        The whole tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted; those that are no candidates have probability 0.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    Notes
    -----
    Put a :class:`~skh2edl.HedgedClassifier` around this one, and hold out samples of the
    candidates: a guarantee for all classes does not hold within some of them.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skh2edl import CandidateClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> X, y = [[0.0], [0.2], [1.0], [1.2], [3.0], [3.2]], ["lynx"] * 2 + ["puma"] * 2 + ["dog"] * 2
    >>> clf = CandidateClassifier(GaussianNB(var_smoothing=0.2), ["lynx", "dog"], taxonomy=tree)
    >>> clf.fit(X, y).predict([[1.1]])
    array(['lynx'], dtype='<U4')
    >>> clf.candidate_probability([[1.1]]).round(2)
    array([0.18])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "warn_below": [Interval(Real, 0, 1, closed="both")],
        "taxonomy": [Taxonomy, None],
    }

    def __init__(
        self,
        estimator: Any,
        candidates: Any = None,
        *,
        warn_below: float = 0.01,
        taxonomy: Taxonomy | None = None,
    ) -> None:
        self.estimator = estimator
        self.candidates = candidates
        self.warn_below = warn_below
        self.taxonomy = taxonomy

    def _derive(self) -> None:
        self._mask = candidate_leaves(self.taxonomy_, self.candidates)
        self.candidates_ = self.taxonomy_.labels(self.taxonomy_.leaf_nodes[self._mask])

    def candidate_probability(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability that each sample is one of the candidates.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        probability : ndarray of shape (n_samples,)
        """
        return self._condition(X)[1]

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        log_leaves, probability = self._condition(X)
        warn_if_unlikely(probability, self.warn_below, stacklevel=3)
        return log_leaves

    def _condition(self, X: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        check_is_fitted(self, "candidates_")
        log_leaves = leaf_log_probability(self.estimator_, X, self.taxonomy_, least=0.0)
        return condition(log_leaves, self._mask)
