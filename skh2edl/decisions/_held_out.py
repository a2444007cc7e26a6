"""What the estimators that learn from held-out answers share: whose answers, and which count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..estimators.targets import check_labels, check_something_to_learn, check_weight
from ..estimators.wrapping import TreeWrapper, fit_on, leaf_log_probability
from ..metrics.inputs import check_weight as check_score_weight
from ..metrics.inputs import label_nodes, mean_or_nan
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import safe_indexing
from ._ladders import covers

FloatArray = npt.NDArray[np.float64]
# fitted estimator, samples, tree -> one row of numbers for each sample
Read = Callable[[Any, Any, Taxonomy], npt.NDArray[Any]]


class HeldOut(NamedTuple):
    """Answers on samples that their estimator was not fitted on.

    Parameters
    ----------
    answers : ndarray of shape (n_samples, ...)
        What was read.
    truth : ndarray of int of shape (n_samples,)
        True nodes, the deepest of those with the same leaves.
    weight : ndarray of shape (n_samples,)
        Weights, all above zero.
    """

    answers: npt.NDArray[Any]
    truth: IntArray
    weight: FloatArray


def read_leaves(fitted: Any, X: Any, taxonomy: Taxonomy) -> FloatArray:
    """Return the probability of each leaf in tree order."""
    return np.exp(leaf_log_probability(fitted, X, taxonomy))


def opinion_method(estimator: Any) -> Callable[[Any], Any] | None:
    """Return what gives an estimator's hyper-opinions, also in a Pipeline or a search; or None.

    Parameters
    ----------
    estimator : estimator
        Fitted or not.
    """
    if hasattr(estimator, "predict_hyper_opinion"):
        method: Callable[[Any], Any] = estimator.predict_hyper_opinion
        return method
    inside = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    if hasattr(inside, "best_estimator_"):
        return opinion_method(inside.best_estimator_)
    if hasattr(inside, "refit") and hasattr(inside, "estimator"):  # a search before its fit
        return opinion_method(inside.estimator)
    steps = getattr(inside, "steps", None)
    if not steps:
        return None
    last = opinion_method(steps[-1][1])
    if last is None or len(steps) == 1:
        return last
    return lambda X: last(inside[:-1].transform(X))


def opinion_of(fitted: Any, X: Any, taxonomy: Taxonomy) -> HyperOpinion:
    """Return the hyper-opinions of a fitted estimator that has them, on the taxonomy."""
    method = opinion_method(fitted)
    if method is None:
        raise AttributeError(
            f"{type(fitted).__name__} has no predict_hyper_opinion. Wrap an evidential "
            "estimator, such as H2EDLClassifier."
        )
    opinion: HyperOpinion = method(X)
    if opinion.taxonomy != taxonomy:
        raise ValueError(
            f"The opinions of {type(fitted).__name__} are on another taxonomy "
            f"({opinion.taxonomy!r}) than the one to decide in ({taxonomy!r}). Give the "
            "estimator itself the taxonomy."
        )
    return opinion


def label_array(nodes: IntArray, taxonomy: Taxonomy) -> npt.NDArray[Any]:
    """Return the labels of nodes as an array, of objects where text and numbers meet."""
    used, position = np.unique(nodes, return_inverse=True)
    labels = taxonomy.labels(used)
    kinds = {isinstance(label, str) for label in labels}
    array = np.array(labels) if len(kinds) == 1 else np.empty(len(labels), dtype=object)
    if len(kinds) != 1:
        array[:] = labels
    return np.asarray(array[position])


def share_right(nodes: IntArray, y: Any, sample_weight: Any, tree: Taxonomy) -> float:
    """Return the share of answers that cover their label, among those it can judge."""
    truth = label_nodes(check_labels(y, len(nodes)), tree)
    weight = check_score_weight(sample_weight, truth.size)
    right = covers(nodes, truth, tree)
    undecided = ~right & covers(truth, nodes, tree)
    weight = np.where(undecided | (tree.last_decision[truth] < 0), 0.0, weight)
    return mean_or_nan(right, weight, "no sample whose label can judge the answer")


class HeldOutWrapper(TreeWrapper):
    """Base of the estimators that set a threshold by held-out answers of another."""

    cv: Any
    taxonomy: Taxonomy | None
    n_jobs: int | None

    def _fit_held_out(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, read: Read, partial_labels: str
    ) -> HeldOut:
        """Set `estimator_` and all it decides; return held-out answers that count."""
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        labels = check_labels(y, 0 if y is None else len(y))
        if labels.dtype.kind == "f":
            check_classification_targets(labels)
        splits = self._splits(X, labels, groups)
        # One split is a plain division of the data: fitting again on all of it would make the
        # held-out part one that the estimator has seen.
        rows = splits[0][0] if len(splits) == 1 else None
        self.estimator_ = fit_on(self.estimator, X, y, sample_weight, groups, rows)
        self._take_over(self.estimator_, self.taxonomy)
        tree = self.taxonomy_
        if not splits:
            parts = [(np.arange(len(labels)), read(self.estimator_, X, tree))]
        elif len(splits) == 1:
            held = splits[0][1]
            parts = [(held, read(self.estimator_, safe_indexing(X, held), tree))]
        else:
            fitted = Parallel(n_jobs=self.n_jobs)(
                delayed(fit_on)(self.estimator, X, y, sample_weight, groups, rows)
                for rows, _ in splits
            )
            parts = [
                (held, read(one, safe_indexing(X, held), tree))
                for one, (_, held) in zip(fitted, splits, strict=True)
            ]
        self.guarantee_ = "exact" if len(splits) <= 1 else "approximate"
        held = np.concatenate([held for held, _ in parts])
        answers = np.concatenate([answers for _, answers in parts])
        return self._that_count(answers, held, labels, sample_weight, partial_labels)

    def _splits(self, X: Any, labels: npt.NDArray[Any], groups: Any) -> list[Any]:
        """Return (rows to fit on, rows held out); nothing for a frozen estimator."""
        if isinstance(self.estimator, FrozenEstimator):
            return []
        # Labels may be tuples, which scikit-learn cannot stratify.
        known: dict[Any, int] = {}
        codes = np.array([known.setdefault(label, len(known)) for label in labels.tolist()])
        splits = [
            (np.asarray(rows), np.asarray(held))
            for rows, held in check_cv(self.cv, codes, classifier=True).split(X, codes, groups)
        ]
        n_seen = sum(np.intersect1d(rows, held).size for rows, held in splits)
        if n_seen:
            raise ValueError(
                f"cv holds out {n_seen} sample(s) that the same split also fits on, whose answers "
                "are surer than those on new samples. Use splits whose two parts do not overlap."
            )
        held = np.concatenate([held for _, held in splits])
        if np.unique(held).size < held.size:
            raise ValueError(
                f"cv holds some samples out more than once ({held.size} answers for "
                f"{np.unique(held).size} samples), so that they would count as several. Use a "
                "single split, or parts without overlap such as StratifiedKFold."
            )
        return splits

    def _that_count(
        self,
        answers: npt.NDArray[Any],
        held: IntArray,
        labels: npt.NDArray[Any],
        sample_weight: Any,
        partial_labels: str,
    ) -> HeldOut:
        tree = self.taxonomy_
        truth = tree.last_of_chain[tree.resolve(labels)]
        weight = check_weight(sample_weight, None, labels)
        # The root stands for no label at all.
        weight = np.where(tree.last_decision[truth] < 0, 0.0, weight)
        check_something_to_learn(weight)
        if partial_labels == "drop":
            weight = np.where(tree.n_children[truth] > 0, 0.0, weight)
        truth, weight = truth[held], weight[held]
        counted = weight > 0
        self.n_calibration_ = int(counted.sum())
        if not self.n_calibration_:
            raise ValueError(
                "No held-out sample is left to learn a threshold from: those held out have the "
                "root as label, no weight, or with partial_labels='drop' no leaf as label. Give "
                "held-out samples labelled with leaves."
            )
        return HeldOut(answers[counted], truth[counted], weight[counted])

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "classes_")
        return leaf_log_probability(self.estimator_, X, self.taxonomy_)

    @available_if(lambda self: opinion_method(self.estimator) is not None)
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the hyper-opinions of the estimator.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        return opinion_of(self.estimator_, X, self.taxonomy_)
