"""What is exported: one node for each image, with its probability and the reason it stops there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..metrics.inputs import leaf_probabilities, node_probabilities, top_leaves
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.candidates import candidate_leaves, condition, warn_if_unlikely
from ..taxonomy.names import Name, shown
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray

FloatArray = npt.NDArray[np.float64]
Thresholds = Mapping[str | int, float]

# P(candidates) of a sample that probably shows something else.
_UNLIKELY = 0.01


@dataclass(frozen=True, eq=False)
class Identifications:
    """One node for each image, ready to be exported; see :meth:`from_proba`.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    ids : tuple of str
        Name of each image, such as its file.
    leaf_probability : ndarray of shape (n_samples, n_leaves)
        Columns in tree order.
    nodes : ndarray of int of shape (n_samples,)
        The node that each image is identified as.
    opinion : HyperOpinion, default=None
        Opinions on the same images.
    thresholds : mapping, default=None
        The probabilities that the nodes of each level reach.
    candidates : ndarray of bool of shape (n_leaves,), default=None
        The leaves that the probabilities are conditioned on.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> proba = [[0.1, 0.6, 0.3], [0.0, 0.95, 0.05]]  # dog, lynx, puma
    >>> found = Identifications.from_proba(proba, tree, ["1.jpg", "2.jpg"], thresholds={2: 0.8})
    >>> found.labels, found.probability.round(2).tolist()
    (['cat', 'lynx'], [0.9, 0.95])
    """

    taxonomy: Taxonomy
    ids: tuple[str, ...]
    leaf_probability: FloatArray
    nodes: IntArray
    opinion: HyperOpinion | None = None
    thresholds: Thresholds | None = None
    candidates: npt.NDArray[np.bool_] | None = None

    @classmethod
    def from_proba(
        cls,
        proba: Any,
        taxonomy: Taxonomy,
        ids: Iterable[Any],
        *,
        classes: Any = None,
        labels: Any = None,
        thresholds: Thresholds | None = None,
        candidates: Any = None,
        opinion: HyperOpinion | None = None,
    ) -> Identifications:
        """Identify each image from the probabilities of the leaves.

        Parameters
        ----------
        proba : array-like of shape (n_samples, n_leaves)
            Probabilities of the leaves.
        taxonomy : Taxonomy
            The tree.
        ids : sequence of str
            Name of each image, such as its file; each once.
        classes : sequence of labels, default=None
            Columns of `proba`; None means ``taxonomy.sorted_leaf_labels``.
        labels : array-like of shape (n_samples,), default=None
            What each image is identified as, such as the predictions of
            :class:`~skh2edl.HedgedClassifier`; None takes the most probable leaf.
        thresholds : mapping of levels to float, default=None
            Probability that a node of the level must have, as many deployed systems ask for; a
            node that has less is replaced by its nearest ancestor that has enough. A level that
            is not named takes the number of the next named level below, or else above. An
            ancestor of a right prediction is right, so that a guarantee of `labels` still holds.
        candidates : label or sequence of labels, default=None
            A clade, or any leaves and clades, such as the species of a park, that the
            probabilities are conditioned on: P(leaf) / P(candidates), with a warning where
            P(candidates) is less than 0.01. A guarantee for all classes
            does not hold within some of them, so that `labels` cannot be given too.
        opinion : HyperOpinion, default=None
            Opinions on the same images, for vacuities and fusion.

        Returns
        -------
        identifications : Identifications
        """
        leaves = leaf_probabilities(proba, taxonomy, classes)
        names = tuple(map(str, ids))
        _check_ids(names, len(leaves))
        if opinion is not None and (opinion.taxonomy != taxonomy or len(opinion) != len(leaves)):
            raise ValueError(
                f"opinion must hold {len(leaves)} opinions on the same taxonomy as the "
                f"probabilities, got {opinion!r}. Take both from one classifier and one X."
            )
        mask = None
        if candidates is not None:
            if labels is not None:
                raise ValueError(
                    "labels and candidates cannot both be given: labels were predicted among all "
                    "classes. Predict them with CandidateClassifier, or drop one of the two."
                )
            mask = candidate_leaves(taxonomy, candidates)
            leaves, inside = _conditioned(leaves, mask)
            warn_if_unlikely(inside, _UNLIKELY, stacklevel=2)
        if labels is None:
            nodes = taxonomy.leaf_nodes[top_leaves(leaves, taxonomy)]
        else:
            nodes = taxonomy.resolve(labels)
            if nodes.shape != (len(leaves),):
                raise ValueError(
                    f"labels must hold one label for each of {len(leaves)} images, got "
                    f"{nodes.size}."
                )
        if thresholds is not None:
            nodes = climb(nodes, node_probabilities(leaves, taxonomy), taxonomy, thresholds)
        return cls(taxonomy, names, leaves, nodes, opinion, thresholds, mask)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        ids: Iterable[Any] | None = None,
        *,
        thresholds: Thresholds | None = None,
        taxonomy: Taxonomy | None = None,
    ) -> Identifications:
        """Identify each image with a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            Fitted, with `predict_proba`; a :class:`~skh2edl.HedgedClassifier` may identify an
            image as an ancestor, others identify leaves. Opinions are read where it has any.
        X : array-like or images
            The images.
        ids : sequence of str, default=None
            Name of each image; None takes `X` where it holds files, and numbers otherwise.
        thresholds : mapping of levels to float, default=None
            As in :meth:`from_proba`.
        taxonomy : Taxonomy, default=None
            The tree; None takes the estimator's.

        Returns
        -------
        identifications : Identifications
        """
        from ..estimators.wrapping import find_taxonomy, opinion_method

        tree = find_taxonomy(estimator, taxonomy)
        if ids is None:
            is_files = len(X) > 0 and all(
                isinstance(one, str) or hasattr(one, "__fspath__") for one in X
            )
            ids = X if is_files else range(len(X))
        read_opinions = opinion_method(estimator)
        return cls.from_proba(
            estimator.predict_proba(X),
            tree,
            ids,
            classes=list(estimator.classes_),
            labels=estimator.predict(X),
            thresholds=thresholds,
            opinion=None if read_opinions is None else read_opinions(X),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def node_probability(self) -> FloatArray:
        """Probability of every node, (n_samples, n_nodes)."""
        return node_probabilities(self.leaf_probability, self.taxonomy)

    @property
    def probability(self) -> FloatArray:
        """Probability of the node of each image."""
        return np.clip(self.node_probability[np.arange(len(self)), self.nodes], 0, 1)

    @property
    def labels(self) -> list[Name]:
        """Label of the node of each image."""
        return self.taxonomy.labels(self.nodes)

    @cached_property
    def paths(self) -> list[tuple[Name, ...]]:
        """Names from the top level down to the node of each image."""
        known = {node: self.taxonomy._index.path(node) for node in set(self.nodes.tolist())}
        return [known[node] for node in self.nodes.tolist()]

    @property
    def levels(self) -> list[str]:
        """Name of the level of the node of each image; that of the root is empty."""
        names = level_names(self.taxonomy)
        return [names[len(path) - 1] if path else "" for path in self.paths]

    @property
    def vacuity(self) -> FloatArray | None:
        """Vacuity at the last decision on the path to each node, at the root's for the root."""
        if self.opinion is None:
            return None
        tree = self.taxonomy
        decision = tree.last_decision[self.nodes]
        which = np.where(decision >= 0, tree.decision_nodes[decision], 0)
        return np.asarray(self.opinion.vacuity[np.arange(len(self)), which], dtype=np.float64)

    @property
    def nonspecificity(self) -> FloatArray | None:
        """Belief that does not reach a leaf, for each image."""
        return None if self.opinion is None else np.asarray(self.opinion.nonspecificity)

    def fuse(self, groups: Any, *, dependence: float = 0.0) -> Identifications:
        """Return one identification for each group of images, such as those of one event.

        Opinions are fused (:func:`~skh2edl.fuse_subjects`); without opinions the probabilities
        are averaged. The most probable leaf is taken, and climbs as `thresholds` say. A guarantee
        for single images does not hold for groups, so that hedged labels are not carried over.

        Parameters
        ----------
        groups : array-like of shape (n_samples,)
            Group of each image.
        dependence : float, default=0.0
            Correlation of the images of a group, from 0 (independent) to 1 (duplicates).

        Returns
        -------
        identifications : Identifications
            In sorted order of the groups, which are its ids.
        """
        from ..decisions.subjects import fuse_subjects
        from ..utils.validation import check_groups

        names, member_of = check_groups(np.asarray(groups), len(self))
        opinion: HyperOpinion | None = None
        if self.opinion is not None:
            opinion = fuse_subjects(self.opinion, groups, dependence)
            leaves = opinion.leaf_probability.astype(np.float64)
        else:
            leaves = np.zeros((names.size, self.taxonomy.n_leaves))
            np.add.at(leaves, member_of, self.leaf_probability)
            leaves /= np.bincount(member_of)[:, None]
        if self.candidates is not None:
            leaves, _ = _conditioned(leaves, self.candidates)
        fused = Identifications.from_proba(
            leaves[:, self.taxonomy.leaf_order],
            self.taxonomy,
            names.tolist(),
            thresholds=self.thresholds,
            opinion=opinion,
        )
        return replace(fused, candidates=self.candidates)


def level_names(tree: Taxonomy) -> list[str]:
    """Return a name for each level below the root."""
    return list(tree.level_names or [f"level_{depth}" for depth in range(1, tree.n_levels + 1)])


def climb(
    nodes: IntArray, node_probability: FloatArray, tree: Taxonomy, thresholds: Thresholds
) -> IntArray:
    """Return the nearest ancestor of each node, or the node itself, that is probable enough.

    Parameters
    ----------
    nodes : ndarray of int of shape (n_samples,)
        Where to start.
    node_probability : ndarray of shape (n_samples, n_nodes)
        Probability of every node.
    tree : Taxonomy
        The tree.
    thresholds : mapping of levels to float
        As in :meth:`Identifications.from_proba`.
    """
    known = {tree.level_index(level): value for level, value in thresholds.items()}
    if not known or 0 in known:
        raise ValueError(
            f"thresholds must name at least one level and not the root, got {dict(thresholds)!r}. "
            f"Levels are {shown(level_names(tree))}, or numbers from 1 to {tree.n_levels}."
        )
    for level, value in thresholds.items():
        if isinstance(value, bool) or not 0 <= value <= 1:
            raise ValueError(
                f"A threshold must lie between 0 and 1, got {value!r} for level {level!r}."
            )
    depths = range(1, tree.n_levels + 1)
    named = [min((k for k in known if k >= d), default=max(known)) for d in depths]
    needed = np.array([0.0, *(float(known[depth]) for depth in named)])
    found, samples = nodes.copy(), np.arange(nodes.size)
    while True:
        low = node_probability[samples, found] < needed[tree.depths[found]]
        if not low.any():
            return found
        found = np.where(low, tree.parents[found], found)


def _conditioned(leaves: FloatArray, mask: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return P(leaf | candidates) and P(candidates)."""
    with np.errstate(divide="ignore"):
        log_leaves, inside = condition(np.log(leaves), mask)
    return np.exp(log_leaves), inside


def _check_ids(ids: tuple[str, ...], n_samples: int) -> None:
    if len(ids) != n_samples:
        raise ValueError(f"ids must name each of {n_samples} images, got {len(ids)}.")
    if len(set(ids)) < len(ids):
        repeated = Counter(ids).most_common(1)[0][0]
        raise ValueError(
            f"ids must be different for different images, and {shown(repeated)} is there twice. "
            "Use paths where file names repeat."
        )
