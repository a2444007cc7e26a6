"""Base classes of the wrappers: probabilities, opinions, and calibration on held-out samples."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..estimators.targets import check_labels, check_something_to_learn, check_weight
from ..estimators.wrapping import (
    TreeWrapper,
    fit_arguments,
    fit_on,
    has_opinions,
    leaf_log_probability,
    opinion_of,
    predict_held_out,
    split_unless_frozen,
)
from ..metrics.inputs import check_weight as check_score_weight
from ..metrics.inputs import label_nodes, mean_or_nan
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import HasMethods
from ..utils.validation import check_groups
from ._ladders import covers
from ._subtrees import merge_small

FloatArray = npt.NDArray[np.float64]


class HeldOut(NamedTuple):
    """Predictions for samples that their estimator was not fitted on.

    Parameters
    ----------
    predictions : ndarray of shape (n_samples, ...)
        Probabilities of the leaves, or scores.
    truth : ndarray of int of shape (n_samples,)
        True nodes, the deepest of those with the same leaves.
    weight : ndarray of shape (n_samples,)
        Sample weights, all above zero.
    group : ndarray of int of shape (n_samples,) or None
        Group of each sample.
    """

    predictions: npt.NDArray[Any]
    truth: IntArray
    weight: FloatArray
    group: IntArray | None


def read_leaves(fitted: Any, X: Any, taxonomy: Taxonomy) -> FloatArray:
    """Return the probability of each leaf in tree order."""
    return np.exp(leaf_log_probability(fitted, X, taxonomy))


def label_array(nodes: IntArray, taxonomy: Taxonomy) -> npt.NDArray[Any]:
    """Return the labels of nodes as an array, all strings if any label of the tree is one.

    Parameters
    ----------
    nodes : ndarray of int of shape (n_samples,)
        The nodes.
    taxonomy : Taxonomy
        The tree.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": [1, 2], "dog": [3]})
    >>> label_array(tree.resolve([1, 3]), tree)  # as strings beside "cat"
    array(['1', '3'], dtype='<U1')
    """
    labels = taxonomy.labels(range(taxonomy.n_nodes))
    if any(isinstance(label, str) for label in labels):
        labels = [str(label) for label in labels]
    used, position = np.unique(nodes, return_inverse=True)
    return np.array([labels[node] for node in used.tolist()])[position]


class DecisionWrapper(TreeWrapper):
    """Base of all wrappers: the probabilities and opinions are those of `estimator_`."""

    estimator_: Any
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "taxonomy": [Taxonomy, None],
    }

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "classes_")
        return leaf_log_probability(self.estimator_, X, self.taxonomy_)

    @available_if(lambda self: has_opinions(self.estimator))
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the hyper-opinions of the estimator.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        return opinion_of(self.estimator_, X, self.taxonomy_)


def _is_count(_: Any, value: Any) -> bool:
    return type(value) is int and value > 0


def is_names(_: Any, value: Any) -> bool:
    """Return whether a value can be the labels of each part of the leaves."""
    return isinstance(value, list) and all(isinstance(part, list) for part in value)


def is_part_of_leaf(wrapper: Any, value: Any, n_parts: int) -> bool:
    """Return whether a value can be the number of the part that holds each leaf."""
    is_shape = value.dtype == np.int64 and value.shape == (wrapper.taxonomy_.n_leaves,)
    return bool(is_shape and ((value >= 0) & (value < n_parts)).all())


def is_thresholds(value: Any, *shape: int) -> bool:
    """Return whether a value can be thresholds, one number or an array of a shape."""
    value = np.asarray(value)
    return bool(value.dtype == np.float64 and value.shape == shape and not np.isnan(value).any())


class HeldOutWrapper(DecisionWrapper):
    """Base of the wrappers that learn a threshold from held-out predictions."""

    cv: Any
    taxonomy: Taxonomy | None
    n_jobs: int | None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DecisionWrapper._parameter_constraints,
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }
    _learned: ClassVar = {
        "guarantee_": lambda _, value: value in ("exact", "approximate"),
        "n_calibration_": _is_count,
        "n_calibration_groups_": _is_count,
    }

    # How held-out labels above the leaves count; a parameter of the wrappers that let users say.
    partial_labels: str = "wrong"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the estimator unless it is frozen, and learn thresholds from held-out samples.

        Parameters
        ----------
        X : array-like or images
            Held-out samples for a frozen estimator, otherwise samples to fit and to hold out.
        y : array-like of shape (n_samples,)
            Labels: leaves or ancestors.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights, in training and in calibration.
        groups : array-like of shape (n_samples,), default=None
            Groups such as patients. Splits keep them together, each has one vote in the
            calibration, and the guarantee holds for a sample of a new group; see Notes of
            :class:`HedgedClassifier`. Also passed to the estimator's own fit if that takes groups.

        Returns
        -------
        self
        """
        self._validate_params()
        self._prepare()
        self._learn_from(self._fit_held_out(X, y, sample_weight, groups))
        return self

    def _prepare(self) -> None:
        """Check and set what parameters alone decide, before anything is fitted."""

    def _learn_from(self, held: HeldOut) -> None:
        """Set the thresholds."""
        raise NotImplementedError

    def _scores_of(self, fitted: Any, X: Any, taxonomy: Taxonomy) -> npt.NDArray[Any]:
        """Return what thresholds are learnt from, one number or row for each sample."""
        return read_leaves(fitted, X, taxonomy)

    def _fit_held_out(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> HeldOut:
        """Set `estimator_` and its attributes; return the held-out predictions that count."""
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        labels = check_labels(y, 0 if y is None else len(y))
        if labels.dtype.kind == "f":
            check_classification_targets(labels)
        splits = self._splits(X, labels, groups)
        # A single split stays as it is: a fit on everything would have seen the held-out part.
        train = splits[0][0] if len(splits) == 1 else None
        arguments = fit_arguments(self, sample_weight, groups, calibrates=True)
        self.estimator_ = fit_on(self.estimator, X, y, arguments, train)
        self._take_over(self.estimator_, self.taxonomy)
        # Folds come from other fits, and strata make the held-out part more even than chance.
        is_stratified = isinstance(self.cv, StratifiedShuffleSplit)
        is_drawn = not splits or (len(splits) == 1 and not is_stratified)
        self.guarantee_ = "exact" if is_drawn else "approximate"
        fitted = [self.estimator_] if len(splits) == 1 else None
        parts = predict_held_out(
            self,
            lambda one, samples: self._scores_of(one, samples, self.taxonomy_),
            *(X, y, splits, arguments, fitted),
        )
        held = np.concatenate([held for held, _ in parts])
        predictions = np.concatenate([values for _, values in parts])
        group = None if groups is None else check_groups(groups, len(labels))[1][held]
        return self._counted(predictions, held, labels, sample_weight, group)

    def _splits(self, X: Any, labels: npt.NDArray[Any], groups: Any) -> list[Any]:
        """Return pairs of positions, to fit on and held out; none for a frozen estimator."""
        splits = split_unless_frozen(self, X, labels, groups)
        held = np.concatenate([np.zeros(0, dtype=np.int64), *(held for _, held in splits)])
        if np.unique(held).size < held.size:
            raise ValueError(
                f"cv holds some samples out more than once ({held.size} predictions for "
                f"{np.unique(held).size} samples), so they would count several times. Use a "
                "single split, or parts without overlap such as StratifiedKFold."
            )
        return splits

    def _counted(
        self,
        predictions: npt.NDArray[Any],
        held: IntArray,
        labels: npt.NDArray[Any],
        sample_weight: Any,
        group: IntArray | None,
    ) -> HeldOut:
        """Drop held-out samples without weight or without a usable label."""
        tree = self.taxonomy_
        truth = label_nodes(labels, tree)
        given = check_weight(sample_weight, None, labels)
        # The root as label means unlabelled.
        weight = np.where(tree.last_decision[truth] < 0, 0.0, given)
        check_something_to_learn(weight)
        if self.partial_labels == "drop":
            weight = np.where(tree.n_children[truth] > 0, 0.0, weight)
        truth, weight, given = truth[held], weight[held], given[held]
        counted = weight > 0
        self.n_calibration_ = int(counted.sum())
        if not self.n_calibration_:
            raise ValueError(
                "No held-out sample is left to learn a threshold from: all have the root as "
                "label, no weight, or with partial_labels='drop' no leaf as label. Hold out "
                "samples labelled with leaves."
            )
        group = None if group is None else group[counted]
        self.n_calibration_groups_ = (
            self.n_calibration_ if group is None else int(np.unique(group).size)
        )
        # New samples may be like those left out, and no theorem covers weights that are estimates.
        weight = weight[counted]
        if (given > 0).sum() > weight.size or weight.min() < weight.max():
            self.guarantee_ = "approximate"
        return HeldOut(predictions[counted], truth[counted], weight, group)

    def _check_parts(self, part: IntArray) -> None:
        """Take note of labels above the parts, which are left out."""
        if (part < 0).any():
            self.guarantee_ = "approximate"

    def _merge_small(
        self,
        part: IntArray,
        held: HeldOut,
        part_of_leaf: IntArray,
        names: list[list[Any]],
        coverage: float,
        small: str,
    ) -> tuple[IntArray, IntArray, list[list[Any]]]:
        """Call `merge_small`; the guarantee of pooled parts is approximate."""
        part, part_of_leaf, names = merge_small(
            part, held.weight, part_of_leaf, names, coverage, small, held.group
        )
        if max(map(len, names)) > 1:
            self.guarantee_ = "approximate"
        return part, part_of_leaf, names


class NodeWrapper(HeldOutWrapper):
    """Base of the wrappers that predict one node of any depth for each sample."""

    def _predict_nodes(self, X: Any) -> IntArray:
        raise NotImplementedError

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict one node for each sample.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of leaves, inner nodes or the root. Integer labels stay integers if all nodes
            have them; beside nodes named by strings they are strings.
        """
        return label_array(self._predict_nodes(X), self.taxonomy_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of correct predictions: the true node, or an ancestor of it.

        It is close to the target for any estimator, and 1 if every prediction is the root, so do
        not choose an estimator by it. Use :func:`~skh2edl.metrics.operating_area` for that.

        Parameters
        ----------
        X : array-like or images
            The samples.
        y : array-like of shape (n_samples,)
            Labels. Samples whose label is a proper ancestor of the prediction are left out,
            because such a label can neither confirm nor refute it.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

        Returns
        -------
        accuracy : float
        """
        nodes, tree = self._predict_nodes(X), self.taxonomy_
        truth = label_nodes(check_labels(y, len(nodes)), tree)
        weight = check_score_weight(sample_weight, truth.size)
        right = covers(nodes, truth, tree)
        undecided = ~right & covers(truth, nodes, tree)
        weight = np.where(undecided | (tree.last_decision[truth] < 0), 0.0, weight)
        return mean_or_nan(right, weight, "no sample whose label can judge the prediction")
