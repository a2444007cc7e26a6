"""Tools of scikit-learn that replace labels by integers: refuse those, or decode them."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import HasMethods, encoding_tool
from .targets import check_labels
from .wrapping import (
    find_taxonomy,
    fit_on,
    hand_on_features,
    leaf_log_probability,
    taken_by_fit,
)

_DECODE = "wrap the classifier, DecodingClassifier(clf, labels=np.unique(y))"
_REMEDIES = {
    "BaggingClassifier": f"Use TreeEnsembleClassifier(clf, bootstrap=True), or {_DECODE}.",
    "VotingClassifier or StackingClassifier": f"To use it, {_DECODE}.",
    "CalibratedClassifierCV": "Use CalibratedTreeClassifier.",
    "cross_val_predict": (
        "Use skh2edl.cross_val_predict, which keeps labels and all leaves, or, where a calibrator "
        "calls it, CalibratedTreeClassifier."
    ),
    "OneVsRestClassifier or a tool like it": (
        "Its binary problems have no taxonomy: set taxonomy=None, or fit the classifier itself, "
        "which knows many classes."
    ),
}


def refuse_encoded(labels: npt.NDArray[Any], taxonomy: Taxonomy) -> None:
    """Refuse integers that stand for labels: nothing says which, and some may be labels too.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
        The labels of a fit.
    taxonomy : Taxonomy
        The tree that the classifier was given.
    """
    if labels.dtype.kind not in "iu":
        return
    tool = encoding_tool()
    names = taxonomy.labels(np.arange(taxonomy.n_nodes))
    integers = {name for name in names if isinstance(name, (int, np.integer))}
    found = np.unique(labels).tolist()
    # The codes of all leaves 0, 1, ... are these leaves.
    harmless = found == list(range(taxonomy.n_leaves)) and integers == set(found)
    if integers and (tool is None or harmless):
        return
    otherwise = f"Give the labels themselves; for a tool that encodes, {_DECODE}."
    remedy = _REMEDIES.get(tool or "", otherwise)
    who = "y was encoded" if tool is None else f"{tool} encodes y"
    raise ValueError(
        f"{who}: it holds the integers {found[:5]} in place of the taxonomy's labels, such as "
        f"{list(taxonomy.leaves[:2])}. {remedy}"
    )


class DecodingClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Give a classifier its labels back inside a tool that encodes them.

    VotingClassifier, StackingClassifier, BaggingClassifier and others replace the labels in y by
    their positions among the sorted labels, which a taxonomy does not know. This wrapper is told
    the labels.

    Parameters
    ----------
    estimator : classifier
        One of this package, or a pipeline or search around it.
    labels : array-like of shape (n_labels,)
        All labels that the tool's y holds: ``np.unique(y)``.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    classes_ : ndarray of shape (n_labels,)
        The codes 0, 1, ...; or the labels themselves if `fit` was given those.
    taxonomy_ : Taxonomy
        The tree.

    See Also
    --------
    TreeEnsembleClassifier : Bagging that keeps labels and all leaves.
    CalibratedTreeClassifier : Calibration that does.
    cross_val_predict : Held-out predictions that do.

    Notes
    -----
    A tool has one column for each label in y, so the probabilities are those given that one of
    these labels is right: leaves that y lacks are left out. A label with another one below it, an
    ancestor among leaves, is learnt from and never predicted: its probability is 0. Where labels
    are integers themselves, `fit` takes integers for codes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier, VotingClassifier
    >>> from skh2edl import DecodingClassifier, HierCEClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> X, y = np.repeat(np.eye(3), 9, axis=0), np.repeat(["lynx", "puma", "dog"], 9)
    >>> ours = DecodingClassifier(HierCEClassifier(tree, backbone=None), labels=np.unique(y))
    >>> forest = RandomForestClassifier(10, random_state=0)
    >>> vote = VotingClassifier([("tree", ours), ("forest", forest)], voting="soft").fit(X, y)
    >>> vote.predict([[0, 0, 1]])
    array(['dog'], dtype='<U4')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "labels": ["array-like"],
    }

    def __init__(self, estimator: Any, labels: Any) -> None:
        self.estimator = estimator
        self.labels = labels

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier on the labels that y stands for.

        Parameters
        ----------
        X : array-like or images
            Training samples.
        y : array-like of shape (n_samples,)
            Codes, or labels if these are strings.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        self
        """
        self._validate_params()
        known = np.unique(np.asarray(self.labels))
        given = check_labels(y, 0 if y is None else len(y))
        encoded = given.dtype.kind in "iu"
        if encoded and not np.isin(given, np.arange(len(known))).all():
            raise ValueError(
                f"y holds {np.setdiff1d(given, np.arange(len(known)))[:5].tolist()}, and the codes "
                f"of the {len(known)} labels are 0 to {len(known) - 1}. Give labels=np.unique(y) "
                "of the y that the tool is fitted on."
            )
        labels = known[given] if encoded else given
        labels_are_decoded = True  # noqa: F841  read by `encoding_tool`
        arguments = taken_by_fit(self.estimator, sample_weight=sample_weight)
        self.estimator_ = fit_on(self.estimator, X, labels, arguments)
        self.taxonomy_ = find_taxonomy(self.estimator_)
        self.classes_ = np.arange(len(known)) if encoded else known
        self._nodes = self.taxonomy_.resolve(known)
        hand_on_features(self.estimator_, self)
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the probability of each label, given that one of them is right.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_labels)
            Columns in the order of `classes_`.
        """
        check_is_fitted(self, "estimator_")
        leaves = np.exp(leaf_log_probability(self.estimator_, X, self.taxonomy_))
        below = np.concatenate([np.zeros((len(leaves), 1)), leaves.cumsum(axis=1)], axis=1)
        tree, nodes = self.taxonomy_, self._nodes
        proba = below[:, tree.leaf_stop[nodes]] - below[:, tree.leaf_start[nodes]]
        proba = np.where(_has_label_below(tree, nodes), 0.0, np.maximum(proba, 0.0))
        return np.asarray(proba / proba.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable label of each sample, in the form that `fit` was given.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return np.array(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def _has_label_below(tree: Taxonomy, nodes: IntArray) -> npt.NDArray[np.bool_]:
    """Return which of some nodes have another of them below."""
    start, stop = tree.leaf_start[nodes], tree.leaf_stop[nodes]
    inside = (start[:, None] <= start) & (stop <= stop[:, None])
    wider = (stop - start)[:, None] > stop - start
    return np.asarray((inside & wider).any(axis=1))
