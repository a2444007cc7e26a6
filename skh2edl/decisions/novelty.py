"""Detect samples of unknown classes, and the known concept that they fall under."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..estimators.wrapping import has_opinions, method_inside, opinion_of
from ..metrics.inputs import node_probabilities, top_leaves
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import Interval, StrOptions
from ._held_out import HeldOut, HeldOutWrapper, is_thresholds, label_array, read_leaves
from ._needed import TOLERANCE
from ._quantile import check_enough, conformal_quantile

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_OF_OPINIONS = ("familiarity", "nonspecificity", "mass")
_OF_PROBABILITIES = ("probability", "entropy")
# Power of the familiarity: far more than an opinion takes, whose probabilities must stay good.
_POWER = 16


class NoveltyDetector(HeldOutWrapper):
    """Detect samples of unknown classes, and the known concept that they fall under.

    Each sample gets a score that is large if the estimator commits to no leaf. The threshold is
    the ⌈(n + 1)(1 - false_alarm_rate)⌉-th smallest score of n held-out samples of known classes.
    If held-out and new samples of known classes are exchangeable, at most a fraction
    `false_alarm_rate` of the new ones is called novel. There is no guarantee on how many novel
    samples are found: measure that by leaving out known classes.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. A
        :class:`~sklearn.frozen.FrozenEstimator` is used as fitted, and all data given to `fit` are
        held-out data. Any other is cloned and fitted as `cv` says.
    false_alarm_rate : float, default=0.05
        Largest fraction of samples of known classes to be called novel.
    measure : str or callable, default="auto"
        The novelty score of a sample.

        - "familiarity": belief that would reach no leaf if the evidence were multiplied by the
          16th power of the familiarity; needs ``familiarity="density"`` of
          :class:`H2EDLClassifier`;
        - "nonspecificity": belief that reaches no leaf; needs opinions;
        - "mass": the largest belief that stops at one node; needs opinions;
        - "probability": one minus the largest leaf probability;
        - "entropy": entropy of the leaf probabilities;
        - a function of the fitted estimator and the samples that returns one number for each
          sample, larger for more novel ones, such as the energy of a softmax.

        "auto" takes the first of "familiarity", "nonspecificity" and "probability" that the
        estimator has.
    cv : int, splitter or iterable of splits, default=None
        As in :class:`HedgedClassifier`.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.
    n_jobs : int, default=None
        Number of parallel fits, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    measure_ : str or callable
        The measure in use.
    threshold_ : float
        Samples with a larger score are called novel.
    n_calibration_ : int
        Number of held-out samples.
    n_calibration_groups_ : int
        Number of their groups; without groups, of samples.
    guarantee_ : {"exact", "approximate"}
        "exact" where the bound is a theorem, as in :class:`HedgedClassifier`.
    taxonomy_ : Taxonomy
        The tree of known classes.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted; `predict` and `predict_proba` use these for novel samples
        too.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    Notes
    -----
    Labels of held-out samples are used only to drop those labelled with the root, which may be of
    unknown classes. Groups, sample weights and the margin for batches of other sizes are those of
    :class:`HedgedClassifier`; the scores of a function may move by 2e-5 of their size, and by 2e-5
    if they are below 1. Vacuity is the fraction of belief that was not committed; it does not
    measure missing data, and a classifier may be confident about a class it has never seen.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skh2edl import NoveltyDetector, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(["lynx", "puma", "fox", "wolf"], 400)
    >>> means = {"lynx": (-4, 3), "puma": (-4, -3), "fox": (4, 3), "wolf": (4, -3)}
    >>> X = rng.normal(size=(400, 2)) + [means[name] for name in y]
    >>> model = FrozenEstimator(GaussianNB().fit(X[:200], y[:200]))
    >>> detector = NoveltyDetector(model, taxonomy=tree).fit(X[200:], y[200:])
    >>> new = [[-4.0, 3.0], [-4.0, 0.0]]  # a lynx, and a cat between lynx and puma
    >>> detector.predict_novelty(new), detector.predict_concept(new)
    (array([False,  True]), array(['lynx', 'cat'], dtype='<U4'))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **HeldOutWrapper._parameter_constraints,
        "false_alarm_rate": [Interval(Real, 0, 1, closed="neither")],
        "measure": [StrOptions({"auto", *_OF_OPINIONS, *_OF_PROBABILITIES}), callable],
    }
    _learned: ClassVar = {
        **HeldOutWrapper._learned,
        "threshold_": lambda _, value: is_thresholds(value),
    }

    def __init__(
        self,
        estimator: Any,
        false_alarm_rate: float = 0.05,
        *,
        measure: str | Callable[[Any, Any], Any] = "auto",
        cv: Any = None,
        taxonomy: Taxonomy | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.false_alarm_rate = false_alarm_rate
        self.measure = measure
        self.cv = cv
        self.taxonomy = taxonomy
        self.n_jobs = n_jobs

    def _learn_from(self, held: HeldOut) -> None:
        coverage = 1 - float(self.false_alarm_rate)
        check_enough(held.weight, coverage, "raise false_alarm_rate", held.group)
        largest = held.predictions + self._tolerance(held.predictions)
        self.threshold_ = conformal_quantile(largest, coverage, held.weight, held.group)

    def _derive(self) -> None:
        self.measure_ = self._choose_measure()

    def _prepare(self) -> None:
        self._derive()

    def _tolerance(self, scores: FloatArray) -> FloatArray | float:
        """Return how far scores may move with the size of the batch."""
        if self.measure_ == "familiarity":
            return 2 * _POWER * TOLERANCE
        if callable(self.measure_):
            return 2 * TOLERANCE * np.maximum(1, np.abs(scores))
        if self.measure_ == "entropy":
            # Audenaert's bound: probabilities at this distance in total variation.
            rest = (1 - TOLERANCE) * np.log1p(-TOLERANCE)
            spread = np.log(max(self.taxonomy_.n_leaves - 1, 1))
            return float(TOLERANCE * (spread - np.log(TOLERANCE)) - rest)
        return TOLERANCE

    def _choose_measure(self) -> str | Callable[[Any, Any], Any]:
        evidential = has_opinions(self.estimator)
        is_familiar = evidential and _familiarity_of(self.estimator) is not None
        if self.measure == "familiarity" and not is_familiar:
            raise ValueError(
                "measure='familiarity' needs an estimator with predict_familiarity, which "
                f"{type(self.estimator).__name__} has not. Use H2EDLClassifier with "
                "familiarity='density', or another measure."
            )
        if self.measure in _OF_OPINIONS and not evidential:
            raise ValueError(
                f"measure={self.measure!r} needs an estimator with predict_hyper_opinion, which "
                f"{type(self.estimator).__name__} has not. Use one of {_OF_PROBABILITIES}."
            )
        if self.measure != "auto":
            return self.measure
        if is_familiar:
            return "familiarity"
        return "nonspecificity" if evidential else "probability"

    def _scores_of(self, fitted: Any, X: Any, tree: Taxonomy) -> FloatArray:
        """Return the novelty score of each sample."""
        if callable(self.measure_):
            scores = np.asarray(self.measure_(fitted, X), dtype=np.float64)
            if scores.ndim != 1 or not np.isfinite(scores).all():
                raise ValueError(
                    "measure must return one finite number for each sample, got "
                    f"{'other values' if scores.ndim == 1 else f'shape {scores.shape}'}."
                )
            return scores
        if self.measure_ == "familiarity":
            return np.array(_strict_opinion(fitted, X, tree).nonspecificity)
        if self.measure_ == "nonspecificity":
            return np.array(opinion_of(fitted, X, tree).nonspecificity)
        if self.measure_ == "mass":
            opinion = opinion_of(fitted, X, tree)
            return opinion.mass[:, tree.n_leaves :].max(axis=1).astype(np.float64)
        leaves = read_leaves(fitted, X, tree)
        if self.measure_ == "probability":
            return 1 - leaves.max(axis=1)
        return -(leaves * np.log(np.maximum(leaves, np.finfo(np.float64).tiny))).sum(axis=1)

    def predict_novelty_score(self, X: Any) -> FloatArray:
        """Return the novelty score of each sample.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "threshold_")
        return self._scores_of(self.estimator_, X, self.taxonomy_)

    def predict_novelty(self, X: Any) -> BoolArray:
        """Return which samples are of unknown classes.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        is_novel : ndarray of bool of shape (n_samples,)
        """
        return self.predict_novelty_score(X) > self.threshold_

    def predict_node_scores(self, X: Any) -> FloatArray:
        """Return for each branching node the score of an unknown class directly below it.

        The score is the probability of the node times the entropy over its children; with the
        measure "familiarity", of the opinion that the measure is taken of. The scores of all nodes
        add up to the entropy over the leaves.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_branching)
            Columns in the order of ``taxonomy_.branching``.
        """
        check_is_fitted(self, "threshold_")
        tree = self.taxonomy_
        if self.measure_ == "familiarity":
            leaves = _strict_opinion(self.estimator_, X, tree).leaf_probability
        else:
            leaves = read_leaves(self.estimator_, X, tree)
        probability = node_probabilities(leaves, tree)
        own = probability[:, tree.branching_nodes]
        children = probability[:, tree.decision_children]
        least = np.finfo(np.float64).tiny
        conditional = children / np.maximum(own[:, tree.decision_nodes], least)
        terms = -conditional * np.log(np.maximum(conditional, least))
        return own * np.add.reduceat(terms, tree.decision_offsets[:-1], axis=1)

    def predict_concept(self, X: Any) -> npt.NDArray[Any]:
        """Predict the likeliest leaf of known samples, and the concept above novel ones.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            For a novel sample the branching node with the largest of
            :meth:`predict_node_scores`; the root means that no concept below it fits.
        """
        novel = self.predict_novelty(X)
        tree = self.taxonomy_
        nodes: IntArray = tree.leaf_nodes[top_leaves(np.exp(self._log_leaves(X)), tree)]
        concepts = tree.branching_nodes[self.predict_node_scores(X).argmax(axis=1)]
        return label_array(np.where(novel, concepts, nodes), tree)


def _familiarity_of(estimator: Any) -> Callable[[Any], Any] | None:
    return method_inside(estimator, "predict_familiarity")


def _strict_opinion(fitted: Any, X: Any, tree: Taxonomy) -> HyperOpinion:
    """Return the opinion that counts only what looks like the training samples."""
    opinion, familiarity = opinion_of(fitted, X, tree), _familiarity_of(fitted)
    if familiarity is None:
        raise ValueError(
            f"The fitted {type(fitted).__name__} has no familiarity, though the one given to the "
            "detector has. Set familiarity='density' for every candidate of a search, or another "
            "measure."
        )
    # The evidence holds the first power.
    factor = familiarity(X)[:, tree.decision_nodes] ** (_POWER - 1)
    return HyperOpinion.from_evidence(
        tree,
        opinion.evidence * factor,
        base_rate=opinion.base_rate,
        prior_weight=opinion.prior_weight,
    )
