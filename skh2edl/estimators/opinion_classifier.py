"""Opinions for a classifier that has none: its probabilities, and a vacuity that is learnt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from ..heads import losses
from ..heads.softmax import SoftmaxHead
from ..heads.tree_ops import TreeSegments
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.names import shown
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import HasMethods, Interval, StrOptions, safe_indexing
from .calibration import fit_temperature
from .targets import check_labels, check_something_to_learn, check_weight
from .wrapping import (
    TreeWrapper,
    fit_arguments,
    fit_on,
    has_opinions,
    leaf_log_probability,
    look_inside,
    predict_held_out,
    split_unless_frozen,
    transformed,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# Log-odds of belief against vacuity are kept in this range.
_MOST_LOG_ODDS = 20.0
# How far the softmax of scores may be from predict_proba for the scores to count as logits.
_SAME = 1e-3
_N_PROBED = 100  # samples that this is looked up for
# Longest of Newton's steps after the solver has converged.
_POLISH = 1e-3
# Least standard deviation of the strength, relative to its mean, from which c2 can be learnt.
_LEAST_SPREAD = 1e-6


class OpinionClassifier(TreeWrapper):
    """Give any classifier an opinion at every branching node of a taxonomy.

    At a node the children have the probabilities q of the classifier, calibrated by one
    temperature, among themselves. The evidence is ``e = E q``, so that with the uniform base rate a
    and W = K children

        u = W / (E + W),    p = (1 - u) q + u a.

    The odds of vacuity against belief, W / E, are the probability ``1 - max q`` that the likeliest
    child is not the right one, times ``exp(-c0 - c2 x)``. Here x is the total strength of the node,
    the logarithm of the sum of ``exp(logit)`` over its leaves, and c2 is at least 0: the stronger
    the logits, the less vacuity. Without logits there is no such term. c0 and c2 minimise the
    objective of H2EDL (squared risk, KL regulariser and ``-log P(label)``) on held-out samples.

    Parameters
    ----------
    estimator : classifier
        Any with `predict_proba`. In a :class:`~sklearn.frozen.FrozenEstimator` it is taken as
        fitted, and `fit` is given held-out data. For the scores of a model that is elsewhere, a
        :class:`ScoreTable`. One that has opinions is refused: they would be lost.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.
    kl_weight : float, default=0.003
        Weight of the KL regulariser, divided by the number of children of the node. Larger values
        give more vacuity, and move the probabilities towards the base rates.
    leaf_weight : float, default=1.0
        Weight of ``-log P(label)``.
    cv : int, splitter or iterable of splits, default=None
        Where held-out predictions come from unless the estimator is frozen; as in
        :class:`CalibratedTreeClassifier`.
    n_jobs : int, default=None
        Fits at the same time, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    temperature_ : float
        What the logarithms of the leaves' probabilities are divided by.
    coefficients_ : ndarray of shape (2,)
        c0 and c2. That c2 is 0 says that the strength of the logits does not tell, on held-out
        samples, what their probabilities do not.
    has_logits_ : bool
        Whether the total strength is that of logits: `decision_function` gives a column for each
        class, its softmax is `predict_proba`, and it is not the logarithm of that. Of this
        package's own classifiers, :class:`FlatCEClassifier` on the same tree has logits.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    See Also
    --------
    CalibratedTreeClassifier : Calibrated probabilities without opinions.

    Notes
    -----
    Why not the opinions whose p is q exactly: ``e = S q - W a`` is negative unless u is at most
    ``K min q``, so vacuity would be another name for the least probability. With evidence in
    proportion to q, samples of one p can have any u, and p differs from q by at most u.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skh2edl import OpinionClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["lynx", "puma", "dog"], 50)
    >>> X = rng.normal(size=(150, 2)) + np.repeat([[0, 3], [1, 3], [4, 0]], 50, axis=0)
    >>> clf = OpinionClassifier(LogisticRegression(), tree).fit(X, y)
    >>> opinion = clf.predict_hyper_opinion([[0.5, 3.0]])  # a cat, between lynx and puma
    >>> opinion["cat"].belief > 0.9, opinion["lynx"].belief < 0.6
    (array([ True]), array([ True]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "taxonomy": [Taxonomy, None],
        "kl_weight": [Interval(Real, 0, None, closed="left")],
        "leaf_weight": [Interval(Real, 0, None, closed="left")],
        "cv": ["cv_object"],
        "n_jobs": [Integral, None],
    }
    _learned: ClassVar = {
        "temperature_": lambda _, value: isinstance(value, float) and 0 < value < np.inf,
        "coefficients_": lambda _, value: _are_coefficients(value),
        "has_logits_": lambda _, value: isinstance(value, bool),
    }

    def __init__(
        self,
        estimator: Any,
        taxonomy: Taxonomy | None = None,
        *,
        kl_weight: float = 0.003,
        leaf_weight: float = 1.0,
        cv: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.taxonomy = taxonomy
        self.kl_weight = kl_weight
        self.leaf_weight = leaf_weight
        self.cv = cv
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the estimator, unless it is frozen, its temperature and its vacuity.

        Parameters
        ----------
        X : array-like or images
            Training samples, or held-out ones for a frozen estimator.
        y : array-like of shape (n_samples,)
            Labels: leaves or ancestors.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in training and after.
        groups : array-like of shape (n_samples,), default=None
            Such as patients, kept together in the splits; also given to the estimator's own fit
            if that takes groups.

        Returns
        -------
        self
        """
        self._validate_params()
        if has_opinions(self.estimator):
            raise TypeError(
                f"{type(self.estimator).__name__} has opinions of its own, which those made of "
                "its probabilities would replace. Use it as it is, or CalibratedTreeClassifier, "
                "which scales its evidence."
            )
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        arguments = fit_arguments(self, sample_weight, groups, calibrates=True)
        self.estimator_ = fit_on(self.estimator, X, y, arguments)
        self._take_over(self.estimator_, self.taxonomy)
        self.has_logits_ = _has_logits(self.estimator_, X, self.taxonomy_)

        tree, labels = self.taxonomy_, check_labels(y, len(y))
        nodes = tree.resolve(labels)
        weight = check_weight(sample_weight, None, labels)
        weight = np.where(tree.last_decision[nodes] < 0, 0.0, weight)
        check_something_to_learn(weight)
        splits = split_unless_frozen(self, X, nodes, groups)
        parts = predict_held_out(self, self._logits_of, X, y, splits, arguments)
        held = np.concatenate([held for held, _ in parts])
        logits = np.concatenate([logits for _, logits in parts])
        self.temperature_ = fit_temperature(logits, nodes[held], weight[held], tree)
        self.coefficients_ = fit_vacuity(
            logits / self.temperature_,
            nodes[held],
            weight[held],
            tree,
            kl_weight=self.kl_weight,
            leaf_weight=self.leaf_weight,
            has_logits=self.has_logits_,
        )
        return self

    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the opinion on each sample.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        tree = self.taxonomy_
        q, against, strength = _describe(
            self._logits_of(self.estimator_, X) / self.temperature_, tree
        )
        c0, c2 = self.coefficients_
        log_odds = np.clip(c0 + against + c2 * strength, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        total = np.diff(tree.decision_offsets) * np.exp(log_odds)
        return HyperOpinion.from_evidence(tree, total[:, tree.decision_nodes] * q, copy=False)

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        return np.array(self.predict_hyper_opinion(X).log_leaf_probability)

    def _logits_of(self, fitted: Any, X: Any) -> FloatArray:
        """Return the logits of the leaves in tree order; without any their log-probabilities."""
        inside, before = look_inside(fitted)
        if _is_softmax(inside) and inside.taxonomy_ == self.taxonomy_:
            logits, readable = inside._head_output(
                transformed(X, before), lambda head, f: head.logits(f)
            )
            return np.where(readable[:, None], logits, 0).astype(np.float64)
        log_leaves = leaf_log_probability(fitted, X, self.taxonomy_)
        if self.has_logits_:
            log_leaves += logsumexp(fitted.decision_function(X), axis=1, keepdims=True)
        return log_leaves


class ScoreTable(ClassifierMixin, BaseEstimator):
    """Take the scores of a classifier that is elsewhere as samples, and return them.

    With it :class:`OpinionClassifier`, :class:`HedgedClassifier` and the other wrappers read a
    table of scores in place of images or features.

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        Class of each column of X: all strings or all numbers. Columns of a table that have names
        are found by them, in any order.
    kind : {"probabilities", "logits"}, default="probabilities"
        What the scores are. Probabilities are divided by their sum.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        `classes`, sorted.

    Examples
    --------
    >>> from skh2edl import ScoreTable
    >>> table = ScoreTable(["puma", "lynx"], kind="logits").fit([[0.0, 0.0]])
    >>> table.predict_proba([[1.0986, 0.0]]).round(2)  # lynx, puma
    array([[0.25, 0.75]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "classes": ["array-like"],
        "kind": [StrOptions({"probabilities", "logits"})],
    }

    def __init__(self, classes: Any, kind: str = "probabilities") -> None:
        self.classes = classes
        self.kind = kind

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the table; nothing is learnt.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes)
            Scores.
        y : array-like of shape (n_samples,), default=None
            Ignored.

        Returns
        -------
        self
        """
        self._validate_params()
        _check_names(self.classes)
        self.classes_ = np.unique(self.classes)
        if self.classes_.size < np.size(self.classes):
            raise ValueError(
                f"classes names {np.size(self.classes) - self.classes_.size} class(es) more than "
                "once. Give each column of the scores a class of its own."
            )
        self.n_features_in_ = self.classes_.size
        self._columns(X)
        return self

    def _columns(self, X: Any) -> FloatArray:
        """Return the scores with their columns in the order of `classes_`."""
        check_is_fitted(self, "classes_")
        order = self._order(X)
        scores = check_array(X, dtype=np.float64)
        if scores.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {scores.shape[1]} column(s) of scores for {self.n_features_in_} classes. "
                "Give one column for each of `classes`, in that order."
            )
        if self.kind == "probabilities" and not ((scores >= 0).all() and scores.any(axis=1).all()):
            row = int(((scores < 0).any(axis=1) | ~scores.any(axis=1)).argmax())
            raise ValueError(
                f"Row {row} of X holds no probabilities: its least number is {scores[row].min():g} "
                f"and its largest {scores[row].max():g}. Set kind='logits' if these are logits."
            )
        return np.asarray(scores[:, order])

    def _order(self, X: Any) -> IntArray:
        """Return the column of each of `classes_`: by name where the columns have names."""
        columns = list(getattr(X, "columns", ()))
        if not columns or not all(isinstance(name, str) for name in columns):
            return np.argsort(np.asarray(self.classes), kind="stable")
        names = list(map(str, self.classes_.tolist()))
        if sorted(columns) != sorted(names):
            missing, more = sorted(set(names) - set(columns)), sorted(set(columns) - set(names))
            raise ValueError(
                f"The columns of X must be named like `classes`, each once, got {len(columns)} "
                f"column(s) for {len(names)} classes; missing are {missing[:5]}, and no classes "
                f"are {more[:5]}. Rename the columns, or give an array with the columns in the "
                "order of `classes`."
            )
        return np.array([columns.index(name) for name in names])

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes)
            Scores.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        scores = self._columns(X)
        if self.kind == "logits":
            return np.asarray(softmax(scores, axis=1))
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class with the largest score.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes)
            Scores.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return np.asarray(self.classes_[self._columns(X).argmax(axis=1)])

    @available_if(lambda self: self.kind == "logits")
    def decision_function(self, X: Any) -> FloatArray:
        """Return the logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes)
            Scores.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        return self._columns(X)


def fit_vacuity(
    logits: FloatArray,
    nodes: IntArray,
    weight: FloatArray,
    taxonomy: Taxonomy,
    *,
    kl_weight: float,
    leaf_weight: float,
    has_logits: bool,
) -> FloatArray:
    """Return c0 and c2 of :class:`OpinionClassifier`, which minimise the objective of H2EDL.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_leaves)
        Logits or log-probabilities of the leaves in tree order.
    nodes : ndarray of int of shape (n_samples,)
        True nodes.
    weight : ndarray of shape (n_samples,)
        Weights of the samples.
    taxonomy : Taxonomy
        The tree.
    kl_weight, leaf_weight : float
        Weights of the terms of the objective.
    has_logits : bool
        Whether the strength of a node says more than its probability; otherwise, and where the
        strength is constant, c2 is 0.

    Returns
    -------
    coefficients : ndarray of shape (2,)

    Examples
    --------
    More weight of the KL regulariser, more vacuity:

    >>> tree, logits = Taxonomy.flat(["cat", "dog"]), np.log([[0.75, 0.25]] * 4)
    >>> labels = np.array([1, 1, 1, 2]), np.ones(4), tree
    >>> of = {"leaf_weight": 1.0, "has_logits": False}
    >>> little, much = (fit_vacuity(logits, *labels, kl_weight=kl, **of) for kl in (0.01, 0.1))
    >>> bool(little[0] > much[0])
    True
    """
    counted = np.flatnonzero(weight > 0)
    described = map(torch.from_numpy, _describe(logits[counted], taxonomy))
    paths = (segments := TreeSegments(taxonomy)).paths(nodes[counted])
    q, against, strength = (
        paths.gather(next(described)),
        *(term[paths.sample, paths.node] for term in described),
    )
    prior = torch.ones_like(q)
    fan_out = segments.fan_out[paths.node].double()
    fraction = torch.from_numpy(weight[counted])[paths.sample]
    fraction = fraction / fraction.sum()
    # Logits may have any scale; with a variance of 1 the solver is quick.
    center = float(fraction @ strength)
    scale = float(fraction @ (strength - center) ** 2) ** 0.5
    if scale < _LEAST_SPREAD * max(1.0, abs(center)):  # constant but for rounding
        has_logits, scale = False, 1.0
    strength = (strength - center) / scale

    def mean_loss(c: torch.Tensor) -> torch.Tensor:
        log_odds = (c[0] + against + c[1] * strength).clamp(-_MOST_LOG_ODDS, _MOST_LOG_ODDS)
        total = fan_out * log_odds.exp()
        alpha = paths.to_entries(total) * q + prior
        p = alpha / paths.to_entries(total + fan_out)
        kl = losses.off_target_kl(alpha, prior, paths.is_target, paths.segment_sum)
        loss = losses.squared_risk(p, total + fan_out, paths.target, paths.segment_sum)
        loss = loss + kl_weight / fan_out * kl
        return fraction @ (
            loss + leaf_weight * losses.log_risk(alpha, total + fan_out, paths.target)
        )

    bounds = [(-_MOST_LOG_ODDS, _MOST_LOG_ODDS), (0, _MOST_LOG_ODDS if has_logits else 0)]
    c0, c2 = _minimize(mean_loss, np.array([1.0, 0.1 if has_logits else 0.0]), bounds)
    return np.array([c0 - c2 / scale * center, c2 / scale])


def _minimize(
    loss: Callable[[torch.Tensor], torch.Tensor],
    start: FloatArray,
    bounds: Sequence[tuple[float, float]],
) -> FloatArray:
    """Return where a function of few numbers is least, to the last digits."""

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        c = torch.tensor(values, requires_grad=True)
        value = loss(c)
        (gradient,) = torch.autograd.grad(value, c)
        return value.item(), gradient.numpy()

    c = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    free = (np.array(bounds)[:, 0] < c) & (c < np.array(bounds)[:, 1])
    for _ in range(2):  # Newton's steps, for the digits that a line search cannot see
        hessian = torch.autograd.functional.hessian(loss, torch.tensor(c)).numpy()
        step = np.linalg.lstsq(hessian[np.ix_(free, free)], objective(c)[1][free])[0]
        c[free] -= np.clip(step, -_POLISH, _POLISH)
        c = np.clip(c, *np.transpose(bounds))
    return np.asarray(c)


def _describe(logits: FloatArray, taxonomy: Taxonomy) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return q of each decision, and of each node ``-log(1 - max q)`` and its strength."""
    below = TreeSegments(taxonomy).log_sum_below(torch.from_numpy(logits)).numpy()
    first, node = taxonomy.decision_offsets[:-1], taxonomy.decision_nodes
    highest = np.maximum.reduceat(below, first, axis=1)
    strength = highest + np.log(np.add.reduceat(np.exp(below - highest[:, node]), first, axis=1))
    rest = -np.expm1(np.minimum(highest - strength, 0))
    against = -np.log(np.maximum(rest, np.exp(-_MOST_LOG_ODDS)))
    return np.exp(below - strength[:, node]), against, strength


def _has_logits(fitted: Any, X: Any, taxonomy: Taxonomy) -> bool:
    """Return whether a classifier has logits of the leaves, by some samples."""
    inside, _ = look_inside(fitted)
    if hasattr(inside, "network_"):  # of this package: decision_function is log-probabilities
        return _is_softmax(inside) and inside.taxonomy_ == taxonomy
    if not hasattr(fitted, "decision_function"):
        return False
    some = safe_indexing(X, slice(_N_PROBED))
    scores, proba = np.asarray(fitted.decision_function(some)), fitted.predict_proba(some)
    if scores.shape != proba.shape or not np.allclose(softmax(scores, axis=1), proba, atol=_SAME):
        return False
    # Log-probabilities have the same softmax, and no strength.
    return not np.allclose(logsumexp(scores, axis=1), 0, atol=_SAME)


def _is_softmax(classifier: Any) -> bool:
    """Return whether a classifier is one of this package with one softmax over the leaves."""
    return isinstance(getattr(getattr(classifier, "network_", None), "head", None), SoftmaxHead)


def _check_names(classes: Any) -> None:
    """Raise ValueError unless classes are one list of strings or of numbers."""
    names = classes.tolist() if hasattr(classes, "tolist") else list(classes)
    if not isinstance(names, list) or not any(
        all(isinstance(name, kind) for name in names) for kind in (str, Real)
    ):
        raise ValueError(
            f"classes must be one list of names, all strings or all numbers, got {shown(names)}. "
            "Give a single name for each column, such as ['lynx', 'puma']."
        )


def _are_coefficients(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray) and value.shape == (2,)
    return is_array and bool(np.isfinite(value).all() and value[1] >= 0)
