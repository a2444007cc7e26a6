"""Calibration after training: temperature for probabilities, a factor for evidence."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..heads.base import LeafRanges, TreeHead
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import HasMethods, StrOptions
from .targets import check_labels, check_something_to_learn, check_weight
from .wrapping import (
    TreeWrapper,
    find_taxonomy,
    fit_arguments,
    fit_on,
    has_opinions,
    leaf_log_probability,
    opinion_of,
    predict_held_out,
    split_unless_frozen,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Bounds of the logarithm of the factor, those of scikit-learn's temperature scaling.
_MOST_LOG_FACTOR = 10.0
_N_GRID = 21  # one of them is 0, no change


def _is_factor(value: Any) -> bool:
    """Return whether a number is one that calibration finds."""
    return isinstance(value, float) and abs(math.log(value)) <= _MOST_LOG_FACTOR


def _is_temperature(wrapper: Any, value: Any) -> bool:
    return (value is None) if wrapper._choose_method() == "evidence" else _is_factor(value)


def _is_evidence_scale(wrapper: Any, value: Any) -> bool:
    if wrapper._choose_method() == "temperature":
        return value is None
    if not wrapper.per_depth:
        return _is_factor(value)
    return value.shape == (wrapper.taxonomy_.n_levels,) and all(map(_is_factor, value.tolist()))


class CalibratedTreeClassifier(TreeWrapper):
    """Calibrate the probabilities of a classifier on data it was not trained on.

    *Temperature* divides the log-probabilities of the leaves by one number T and normalises them
    again. *Evidence* scaling multiplies the evidence of an evidential classifier:
    ``p = (s e + W a) / (s Σe + W)`` at every node, so that opinions stay opinions. Either number
    minimises the mean of ``-log P(label)``, a proper score; a label may be an ancestor, and one
    that is the root counts for nothing. A temperature keeps the order of the leaves; evidence
    scaling may change it, because nodes differ in how much of p is base rate.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. In a
        :class:`~sklearn.frozen.FrozenEstimator` it is taken as fitted, and `fit` is given
        held-out data.
    method : {"auto", "temperature", "evidence"}, default="auto"
        "auto" scales evidence if the estimator has `predict_hyper_opinion`.
    per_depth : bool, default=False
        Whether evidence has a factor of its own for each depth at which the taxonomy decides.
    cv : int, splitter or iterable of splits, default=None
        Where held-out predictions come from unless the estimator is frozen: it is fitted on all
        but each part in turn, and for use on everything. None means five parts with labels in
        equal proportions; given groups, each group is in one part. Splits with a group on both
        sides are refused.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes. Classes of an estimator
        that knows no tree may be any nodes.
    n_jobs : int, default=None
        Fits at the same time, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    method_ : {"temperature", "evidence"}
        What was done.
    temperature_ : float
        T, above 1 if the estimator was over-confident; if `method_` is "temperature".
    evidence_scale_ : float or ndarray of shape (n_levels,)
        s, below 1 if the estimator was over-confident; if `method_` is "evidence". With
        `per_depth`, by the depth of the node that decides; a depth at which no held-out label
        decides has the factor of all.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    See Also
    --------
    sklearn.calibration.CalibratedClassifierCV : Calibration of the leaves alone.

    Notes
    -----
    Calibration is on average over data like those given; it makes no single prediction right.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skh2edl import CalibratedTreeClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["lynx", "puma", "dog"], 30)
    >>> X = rng.normal(size=(90, 3)) + np.repeat(np.eye(3), 30, axis=0)
    >>> forest = RandomForestClassifier(20, random_state=0)
    >>> clf = CalibratedTreeClassifier(forest, taxonomy=tree).fit(X, y)
    >>> clf.temperature_ > 1  # the forest was too sure of itself
    True
    >>> clf.predict_level([[2, 2, 0]], 1)
    array(['cat'], dtype='<U3')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "method": [StrOptions({"auto", "temperature", "evidence"})],
        "per_depth": ["boolean"],
        "cv": ["cv_object"],
        "taxonomy": [Taxonomy, None],
        "n_jobs": [Integral, None],
    }
    _learned: ClassVar = {"temperature_": _is_temperature, "evidence_scale_": _is_evidence_scale}

    def __init__(
        self,
        estimator: Any,
        *,
        method: str = "auto",
        per_depth: bool = False,
        cv: Any = None,
        taxonomy: Taxonomy | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.per_depth = per_depth
        self.cv = cv
        self.taxonomy = taxonomy
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the estimator, unless it is frozen, and what calibrates it.

        Parameters
        ----------
        X : array-like or images
            Training samples, or held-out ones for a frozen estimator.
        y : array-like of shape (n_samples,)
            Labels: leaves or ancestors.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in training and in calibration.
        groups : array-like of shape (n_samples,), default=None
            Such as patients, kept together in the splits; also given to the estimator's own fit
            if that takes groups.

        Returns
        -------
        self
        """
        self._validate_params()
        self._derive()
        for name in self._learned:  # of an earlier fit
            self.__dict__.pop(name, None)
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        arguments = fit_arguments(self, sample_weight, groups, calibrates=True)
        self.estimator_ = fit_on(self.estimator, X, y, arguments)
        self._take_over(self.estimator_, self.taxonomy)

        labels = check_labels(y, len(y))
        nodes = self.taxonomy_.resolve(labels)
        weight = check_weight(sample_weight, None, labels)
        weight = np.where(self.taxonomy_.last_decision[nodes] < 0, 0.0, weight)
        check_something_to_learn(weight)
        splits = split_unless_frozen(self, X, nodes, groups)
        parts = predict_held_out(self, self._uncalibrated, X, y, splits, arguments)
        if self.method_ == "evidence":
            self.evidence_scale_ = fit_evidence_scale(
                [(opinion, nodes[held], weight[held]) for held, opinion in parts], self.per_depth
            )
        else:
            held = np.concatenate([held for held, _ in parts])
            log_leaves = np.concatenate([log_leaves for _, log_leaves in parts])
            self.temperature_ = fit_temperature(
                log_leaves, nodes[held], weight[held], self.taxonomy_
            )
        return self

    def _derive(self) -> None:
        self.method_ = self._choose_method()

    def _check_learned(self) -> None:
        super()._check_learned()
        if self._choose_method() == "evidence" and find_taxonomy(self.estimator_) != self.taxonomy_:
            raise ValueError("its opinions are on another taxonomy than its own.")

    def _export_parts(self) -> dict[str, Any]:
        if self.method_ == "temperature":
            return {"temperature": self.temperature_}
        return {"evidence_scale": self._scale_of_decisions()}

    def _scale_of_decisions(self) -> FloatArray:
        scale = np.broadcast_to(self.evidence_scale_, self.taxonomy_.n_levels)
        return np.asarray(scale[_decision_depths(self.taxonomy_)])

    def _choose_method(self) -> str:
        evidential = has_opinions(self.estimator)
        if self.method == "evidence" and not evidential:
            raise ValueError(
                f"method='evidence' needs an estimator with predict_hyper_opinion, which "
                f"{type(self.estimator).__name__} has not. Use method='temperature'."
            )
        method = self.method
        if method == "auto":
            method = "evidence" if evidential else "temperature"
        if self.per_depth and method == "temperature":
            raise ValueError(
                "per_depth=True scales evidence, but method is 'temperature'. Set per_depth=False, "
                "or wrap an evidential estimator."
            )
        return method

    def _uncalibrated(self, fitted: Any, X: Any) -> Any:
        predict = opinion_of if self.method_ == "evidence" else leaf_log_probability
        return predict(fitted, X, self.taxonomy_)

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "classes_")
        if self.method_ == "evidence":
            return np.array(self.predict_hyper_opinion(X).log_leaf_probability)
        tempered = self._uncalibrated(self.estimator_, X) / self.temperature_
        return np.asarray(tempered - logsumexp(tempered, axis=1, keepdims=True))

    @available_if(lambda self: self.method != "temperature" and has_opinions(self.estimator))
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the opinions of the estimator with calibrated evidence.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        opinion = self._uncalibrated(self.estimator_, X)
        return HyperOpinion.from_evidence(
            self.taxonomy_,
            opinion.evidence * self._scale_of_decisions(),
            opinion.base_rate,
            opinion.prior_weight,
            copy=False,
        )


def fit_temperature(
    log_leaves: FloatArray, nodes: IntArray, weight: FloatArray, taxonomy: Taxonomy
) -> float:
    """Return the temperature that minimises the mean of ``-log P(label)``.

    Parameters
    ----------
    log_leaves : ndarray of shape (n_samples, n_leaves)
        Log-probabilities of the leaves in tree order.
    nodes : ndarray of int of shape (n_samples,)
        True nodes.
    weight : ndarray of shape (n_samples,)
        Weights of the samples.
    taxonomy : Taxonomy
        The tree.

    Examples
    --------
    Right in three of four, and sure of it by 99 to 1:

    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> sure = np.log([[0.99, 0.01]] * 4)
    >>> temperature = fit_temperature(sure, np.array([1, 1, 1, 2]), np.ones(4), tree)
    >>> round(temperature, 4), round(float(np.log(99) / np.log(3)), 4)
    (4.1827, 4.1827)
    """
    counted = np.flatnonzero(weight > 0)
    logits = log_leaves[counted] - log_leaves[counted].max(axis=1, keepdims=True)
    start, stop = taxonomy.leaf_start[nodes[counted]], taxonomy.leaf_stop[nodes[counted]]
    share = weight[counted] / weight[counted].sum()
    of_first = np.take_along_axis(logits, start[:, None], axis=1)[:, 0]
    partial = np.flatnonzero(stop - start > 1)
    leaf = np.arange(taxonomy.n_leaves)
    outside = (leaf < start[partial, None]) | (leaf >= stop[partial, None])
    of_partial = np.where(outside, -np.inf, logits[partial])

    def nll(log_factor: float) -> float:
        factor = np.exp(log_factor)
        of_label = factor * of_first
        if partial.size:
            of_label[partial] = logsumexp(factor * of_partial, axis=1)
        total = np.log(np.exp(factor * logits).sum(axis=1))
        return float(share @ (total - of_label))

    return float(np.exp(-_minimize(nll)))


def fit_evidence_scale(
    parts: Sequence[tuple[HyperOpinion, IntArray, FloatArray]], per_depth: bool
) -> float | FloatArray:
    """Return the factor of the evidence that minimises the mean of ``-log P(label)``.

    Parameters
    ----------
    parts : sequence of (HyperOpinion, nodes, weight)
        Opinions, the true nodes and the weights of their samples, all on one taxonomy.
    per_depth : bool
        Whether to return a factor for each depth at which the taxonomy decides.

    Examples
    --------
    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> opinion = HyperOpinion.from_evidence(tree, [[98.0, 0.0]] * 4)
    >>> scale = fit_evidence_scale([(opinion, np.array([1, 1, 1, 2]), np.ones(4))], False)
    >>> round(98 * scale, 4)  # (2 + 1) / (2 + 2) is three of four
    2.0
    """
    columns = [_decisions_made(*part) for part in parts]
    chosen, total, prior, prior_weight, weight, depth = map(
        np.concatenate, zip(*columns, strict=True)
    )
    n_levels = parts[0][0].taxonomy.n_levels
    least = np.finfo(np.float64).tiny

    def fit_to(where: npt.NDArray[np.bool_]) -> float:
        e, total_e, wa, w, share = (
            values[where] for values in (chosen, total, prior, prior_weight, weight)
        )
        share = share / share.sum()

        def nll(log_factor: float) -> float:
            factor = np.exp(log_factor)
            probability = (factor * e + wa) / (factor * total_e + w)
            return float(-share @ np.log(np.maximum(probability, least)))

        return float(np.exp(_minimize(nll)))

    shared = fit_to(weight > 0)
    if not per_depth:
        return shared
    # -log P(label) is a sum over depths, so each factor can be found alone.
    supported = [(weight > 0) & (depth == level) for level in range(n_levels)]
    return np.array([fit_to(where) if where.any() else shared for where in supported])


def fit_head_scale(parts: Sequence[tuple[TreeHead, FloatArray, IntArray]]) -> float:
    """Return the factor for :meth:`TreeHead.rescale` that minimises the mean of ``-log P(label)``.

    It is the evidence scale of an evidential head and one over the temperature of a softmax.

    Parameters
    ----------
    parts : sequence of (TreeHead, features, nodes)
        Heads, the standardised features of samples that they were not fitted on, and the true
        nodes. The root as label counts for nothing.
    """
    held = []
    for head, features, nodes in parts:
        tree = head.segments.taxonomy
        counted = np.flatnonzero(tree.last_decision[nodes] >= 0)
        inside = LeafRanges.of(tree, nodes[counted]).inside(tree.n_leaves)
        held.append((head, torch.from_numpy(features[counted]), inside))

    @torch.inference_mode()
    def nll(log_factor: float) -> float:
        total, n_samples = 0.0, 0
        for head, features, inside in held:
            scaled = copy.deepcopy(head)
            scaled.rescale(float(np.exp(log_factor)))
            leaves = scaled.leaf_log_probability(features)
            total -= float(leaves.where(inside, -torch.inf).logsumexp(1).double().sum())
            n_samples += len(features)
        return total / n_samples

    return float(np.exp(_minimize(nll)))


def _decisions_made(opinion: HyperOpinion, nodes: IntArray, weight: FloatArray) -> Any:
    """Return six numbers for every decision on the paths to the labels.

    They are its evidence, that of its node, its prior concentration, the node's prior weight, the
    weight of the sample and the depth of the node.
    """
    tree = opinion.taxonomy
    evidence = opinion.evidence.astype(np.float64)
    totals = np.add.reduceat(evidence, tree.decision_offsets[:-1], axis=1)
    sample, decision = np.arange(len(nodes)), tree.last_decision[nodes]
    samples, decisions = [], []
    while (going := decision >= 0).any():
        sample, decision = sample[going], decision[going]
        samples.append(sample)
        decisions.append(decision)
        decision = tree.parent_decision[decision]
    sample = np.concatenate([*samples, np.empty(0, dtype=np.int64)])
    decision = np.concatenate([*decisions, np.empty(0, dtype=np.int64)])
    node = tree.decision_nodes[decision]
    prior_weight = opinion.prior_weight[node]
    return (
        evidence[sample, decision],
        totals[sample, node],
        prior_weight * opinion.base_rate[decision],
        prior_weight,
        weight[sample],
        _decision_depths(tree)[decision],
    )


def _decision_depths(tree: Taxonomy) -> IntArray:
    """Return the depth of the node that takes each decision."""
    return tree.depths[tree.branching_nodes][tree.decision_nodes]


def _minimize(nll: Callable[[float], float]) -> float:
    """Return the logarithm of the best factor, 0 if none is better than no change."""
    # With ancestors as labels there may be several valleys, so look everywhere first.
    grid = np.linspace(-_MOST_LOG_FACTOR, _MOST_LOG_FACTOR, _N_GRID)
    best = int(np.argmin([nll(point) for point in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, _N_GRID - 1)]
    found = minimize_scalar(nll, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return float(found.x) if found.fun < nll(0.0) else 0.0
