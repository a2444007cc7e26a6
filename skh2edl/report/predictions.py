"""What a fitted classifier predicts for samples, read once and in blocks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..estimators.base import TreeClassifier
from ..estimators.h2edl import H2EDLClassifier
from ..estimators.wrapping import find_taxonomy, has_opinions, leaf_log_probability, opinion_of
from ..metrics.inputs import leaf_probabilities, top_leaves, top_of_level
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_BLOCK = 256


@dataclass(frozen=True)
class Predictions:
    """Probabilities of the leaves, with the opinions where the classifier has any.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    leaf_probability : ndarray of shape (n_samples, n_leaves)
        Columns in tree order.
    opinion : HyperOpinion or None
        Of an evidential classifier on the tree.
    readable : ndarray of bool of shape (n_samples,)
        False for an image that could not be read; its values mean nothing.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> predictions = Predictions.from_proba([[0.1, 0.6, 0.3]], tree)  # dog, lynx, puma
    >>> tree.labels(predictions.best_leaves), predictions.path_probability.round(2).tolist()
    (['lynx'], [[1.0, 0.9, 0.6]])
    """

    taxonomy: Taxonomy
    leaf_probability: FloatArray
    opinion: HyperOpinion | None
    readable: BoolArray

    @classmethod
    def from_proba(
        cls,
        proba: Any,
        taxonomy: Taxonomy,
        *,
        opinion: HyperOpinion | None = None,
        classes: Any = None,
    ) -> Predictions:
        """Take probabilities whose columns are `classes`, by default the sorted leaves.

        Parameters
        ----------
        proba : array-like of shape (n_samples, n_leaves)
            Probabilities of the leaves.
        taxonomy : Taxonomy
            The tree.
        opinion : HyperOpinion, default=None
            Opinions on the same samples.
        classes : sequence of labels, default=None
            Columns of `proba`; None means ``taxonomy.sorted_leaf_labels``.
        """
        leaves = leaf_probabilities(proba, taxonomy, classes)
        if opinion is not None and (opinion.taxonomy != taxonomy or len(opinion) != len(leaves)):
            raise ValueError(
                f"opinion must hold {len(leaves)} opinions on the same taxonomy as the "
                f"probabilities, got {opinion!r}. Take both from one classifier and one X."
            )
        return cls(taxonomy, leaves, opinion, np.ones(len(leaves), dtype=bool))

    def __len__(self) -> int:
        return len(self.leaf_probability)

    def __getitem__(self, rows: IntArray) -> Predictions:
        opinion = None if self.opinion is None else self.opinion[rows]
        return Predictions(self.taxonomy, self.leaf_probability[rows], opinion, self.readable[rows])

    @cached_property
    def best_leaves(self) -> IntArray:
        """Node of the most probable leaf of each sample; of equals the first of ``classes_``."""
        best = top_leaves(self.leaf_probability, self.taxonomy)
        return np.asarray(self.taxonomy.leaf_nodes[best])

    @cached_property
    def path(self) -> IntArray:
        """Nodes from the root to the best leaf, (n, n_levels + 1); a short path repeats it."""
        depths = range(self.taxonomy.n_levels + 1)
        return np.stack([self.taxonomy.climb_to_depth(self.best_leaves, d) for d in depths], axis=1)

    @cached_property
    def path_probability(self) -> FloatArray:
        """Probability of each node of `path`, (n, n_levels + 1)."""
        return self.probability_of(self.path)

    def probability_of(self, nodes: IntArray) -> FloatArray:
        """Return the probability of some nodes of each sample.

        Parameters
        ----------
        nodes : ndarray of shape (n_samples, k)
            Node ids.

        Returns
        -------
        probability : ndarray of shape (n_samples, k)
        """
        tree = self.taxonomy
        sums = np.zeros((len(self), tree.n_leaves + 1))
        np.cumsum(self.leaf_probability, axis=1, out=sums[:, 1:])
        high = np.take_along_axis(sums, tree.leaf_stop[nodes], axis=1)
        low = np.take_along_axis(sums, tree.leaf_start[nodes], axis=1)
        return np.clip(high - low, 0, 1)

    @property
    def proba(self) -> FloatArray:
        """Probabilities in the order of ``classes_``, each sample's sum exactly 1."""
        proba = self.leaf_probability[:, self.taxonomy.leaf_order]
        return np.asarray(proba / proba.sum(axis=1, keepdims=True))

    def best_of_level(self, depth: int) -> tuple[IntArray, FloatArray]:
        """Return the most probable node of a level, and its probability, for each sample."""
        nodes, probability = top_of_level(self.leaf_probability, self.taxonomy, depth)
        return nodes, np.minimum(probability, 1)

    def bounds_of(self, nodes: IntArray) -> tuple[FloatArray, FloatArray] | None:
        """Return belief and plausibility of one node for each sample, None without opinions.

        Parameters
        ----------
        nodes : ndarray of shape (n_samples,)
            Node ids.
        """
        if self.opinion is None:
            return None
        distinct, column = np.unique(nodes, return_inverse=True)
        numbers, rows = self.opinion.nodes(distinct), np.arange(len(self))
        bounds = numbers.belief[rows, column], numbers.plausibility[rows, column]
        return np.clip(bounds[0], 0, 1, dtype=float), np.clip(bounds[1], 0, 1, dtype=float)

    def vacuity_on_path(self) -> FloatArray | None:
        """Return the vacuity at each depth of the path to the best leaf, NaN without a decision.

        Returns
        -------
        vacuity : ndarray of shape (n_samples, n_levels) or None
        """
        if self.opinion is None:
            return None
        tree = self.taxonomy
        number = np.full(tree.n_nodes, -1)
        number[tree.branching_nodes] = np.arange(tree.n_branching)
        which = number[self.path[:, :-1]]
        # A leaf that ends above the deepest level is repeated below: no decision there.
        vacuity = np.take_along_axis(self.opinion.vacuity, np.maximum(which, 0), axis=1)
        return np.where(which >= 0, vacuity.astype(np.float64), np.nan)


def read_predictions(
    estimator: Any,
    X: Any,
    *,
    taxonomy: Taxonomy | None = None,
    on_rows: Callable[[int], None] | None = None,
) -> Predictions:
    """Read everything a fitted classifier predicts, in one pass.

    Parameters
    ----------
    estimator : classifier
        Fitted, with `predict_proba`; opinions are read where it has `predict_hyper_opinion`.
    X : images or array-like
        The samples, of a kind that the classifier accepts.
    taxonomy : Taxonomy, default=None
        The tree; None takes the classifier's.
    on_rows : callable, default=None
        Called with the number of samples after each block.

    Returns
    -------
    predictions : Predictions
    """
    tree = find_taxonomy(estimator, taxonomy)
    n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
    if not n_samples:
        raise ValueError("There is no sample to read. Give at least one.")
    blocks = []
    for start in range(0, n_samples, _BLOCK):
        rows = slice(start, start + _BLOCK)
        block = _read_block(estimator, X.iloc[rows] if hasattr(X, "iloc") else X[rows], tree)
        blocks.append(block)
        if on_rows is not None:
            on_rows(len(block))
    return _joined(blocks)


def _read_block(estimator: Any, X: Any, tree: Taxonomy) -> Predictions:
    opinion: HyperOpinion | None = None
    if isinstance(estimator, TreeClassifier) and estimator.taxonomy_ == tree:
        with warnings.catch_warnings():
            # Which images were skipped is in `readable`.
            warnings.filterwarnings("ignore", message=".*image.*", category=UserWarning)
            if isinstance(estimator, H2EDLClassifier):
                evidence, readable = estimator._head_output(X, "evidence")
                evidence[~readable] = 0
                opinion = estimator._opinion(evidence)
                return Predictions(tree, opinion.leaf_probability.astype(float), opinion, readable)
            log_leaves, readable = estimator._head_output(X, "leaf_log_probability")
            log_leaves[~readable] = np.log(estimator._unknown_leaf_probability())
        return Predictions(tree, np.exp(log_leaves.astype(np.float64)), None, readable)
    if has_opinions(estimator):
        opinion = opinion_of(estimator, X, tree)
    leaves = np.exp(leaf_log_probability(estimator, X, tree))
    leaves /= leaves.sum(axis=1, keepdims=True)
    return Predictions(tree, leaves, opinion, np.ones(len(leaves), dtype=bool))


def _joined(blocks: list[Predictions]) -> Predictions:
    if len(blocks) == 1:
        return blocks[0]
    first, opinion = blocks[0], None
    if first.opinion is not None:
        evidence = np.concatenate([block.opinion.evidence for block in blocks if block.opinion])
        opinion = HyperOpinion.from_evidence(
            first.taxonomy, evidence, first.opinion.base_rate, first.opinion.prior_weight
        )
    return Predictions(
        first.taxonomy,
        np.concatenate([block.leaf_probability for block in blocks]),
        opinion,
        np.concatenate([block.readable for block in blocks]),
    )
