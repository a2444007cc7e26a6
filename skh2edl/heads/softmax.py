"""Softmax heads: Flat-CE, Hier-CE, HXE and soft labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..taxonomy.taxonomy import Taxonomy
from .base import FlatTargets, LeafRanges, TreeHead
from .large.blocks import Block
from .tree_ops import Paths, on_device


class SoftmaxHead(FlatTargets, TreeHead):
    """One softmax over the leaves (Flat-CE).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    partial_labels : {"marginal", "soft", "drop"}
        How an ancestor label is used: the sum of its leaves' probabilities, a uniform target over
        its leaves, or not at all.
    label_smoothing : float
        Weight of a uniform target over the leaves, beside the label.
    """

    label_smoothing = 0.0  # of a pickle of a release without it

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        *,
        partial_labels: str,
        label_smoothing: float,
    ) -> None:
        super().__init__(taxonomy, n_features, taxonomy.n_leaves)
        self.partial_labels = partial_labels
        self.label_smoothing = label_smoothing

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.logits(features).log_softmax(-1)

    def loss(self, features: Tensor, targets: LeafRanges, progress: float) -> Tensor:
        """Return the loss of each sample."""
        log_leaves = self.leaf_log_probability(features)

        def log_sum(inside: Tensor) -> Tensor:
            below = log_leaves[targets.partial]
            score = below.masked_fill(~inside, -torch.inf).logsumexp(1, keepdim=True)
            return self._smoothed(score, below).squeeze(1)

        scores = self._smoothed(log_leaves, log_leaves)
        return label_cost(scores, targets, self.partial_labels, log_sum)

    def _smoothed(self, scores: Tensor, log_leaves: Tensor) -> Tensor:
        """Return scores of labels, mixed with that of the uniform target over the leaves."""
        if not self.label_smoothing:
            return scores
        return scores.lerp(log_leaves.mean(1, keepdim=True), self.label_smoothing)


def label_cost(
    leaf_scores: Tensor,
    targets: LeafRanges,
    partial_labels: str,
    score_as_one: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return minus the score of each label; `partial_labels` says how ancestors are scored.

    Parameters
    ----------
    leaf_scores : Tensor of shape (n, n_leaves)
        Score of each leaf as a label.
    targets : LeafRanges
        The labels.
    partial_labels : {"marginal", "soft", "drop"}
        Score an ancestor as one class, as the mean of its leaves, or not at all.
    score_as_one : callable
        From the mask of their leaves to the scores of the ancestor labels.
    """
    cost = -leaf_scores.gather(1, targets.start[:, None]).squeeze(1)
    if targets.partial.numel() == 0:
        return cost
    inside = targets.inside(leaf_scores.shape[1])[targets.partial]
    if partial_labels == "marginal":
        value = -score_as_one(inside)
    elif partial_labels == "soft":
        value = -(leaf_scores[targets.partial] * inside).sum(1) / inside.sum(1)
    else:
        value = torch.zeros_like(cost[targets.partial])
    # The root's label means unlabelled, whatever `partial_labels` is.
    return cost.index_copy(0, targets.partial, value.masked_fill(targets.decision < 0, 0.0))


class SoftmaxTreeHead(TreeHead):
    """One softmax for every branching node (Hier-CE).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    label_smoothing : float
        Weight of a uniform target over the children of each node on the path, beside the label.
    """

    is_separable = True
    label_smoothing = 0.0  # of a pickle of a release without it

    def __init__(self, taxonomy: Taxonomy, n_features: int, *, label_smoothing: float) -> None:
        super().__init__(taxonomy, n_features, taxonomy.n_decisions)
        self.label_smoothing = label_smoothing

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.segments.sum_to_leaves(self.segments.log_softmax(self.logits(features)))

    def unnormalized_of(
        self, features: Tensor, block: Block, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return shifted logits of some decisions, and each node's log sum of exponentials."""
        return block.shifted_logits(self.block_logits(features, block, wanted))

    def log_of_unnormalized(self, values: Tensor) -> Tensor:
        """Return the logits, which are logs already."""
        return values

    def loss(self, features: Tensor, paths: Paths, progress: float) -> Tensor:
        """Return the loss of each sample."""
        log_conditional = paths.log_softmax(self.path_logits(features, paths))
        on_path = log_conditional.index_select(0, paths.target)
        if self.label_smoothing:
            n_children = paths.segment_sum(torch.ones_like(log_conditional))
            uniform = paths.segment_sum(log_conditional) / n_children
            on_path = on_path.lerp(uniform, self.label_smoothing)
        return -paths.sample_sum(on_path)


class HXEHead(SoftmaxHead):
    """Hierarchical cross-entropy (HXE; Bertinetto et al. 2020).

    The loss is the sum of ``-exp(-a depth) log p(child | parent)`` over the decisions on the path
    to the label, with conditional probabilities from sums of leaves and the depth of the parent.
    With "marginal", the sum of an ancestor label stops at the ancestor.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    depth_decay : float
        The rate a; 0 gives cross-entropy.
    partial_labels : {"marginal", "soft", "drop"}
        How an ancestor label is used.
    """

    decision_weight: Tensor

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        *,
        depth_decay: float,
        partial_labels: str,
    ) -> None:
        super().__init__(taxonomy, n_features, partial_labels=partial_labels, label_smoothing=0.0)
        depth = self.segments.node_depth[self.segments.node]
        weight = (-depth_decay * depth.double()).exp().float()
        self.register_buffer("decision_weight", weight, persistent=False)

    def loss(self, features: Tensor, targets: LeafRanges, progress: float) -> Tensor:
        """Return the loss of each sample."""
        sums = self.segments.log_sum_below(self.logits(features))
        weighted = self.decision_weight * self.segments.log_softmax(sums)
        along = self.segments.sum_along_paths(weighted)

        def score_of_ancestor(inside: Tensor) -> Tensor:
            return along[targets.partial, targets.decision.clamp(min=0)]

        leaf_scores = along[:, self.segments.leaf_decision]
        return label_cost(leaf_scores, targets, self.partial_labels, score_of_ancestor)


@dataclass(frozen=True)
class SoftTargets:
    """Targets of :class:`SoftLabelHead`: a distribution over leaves for each different label.

    Attributes
    ----------
    distribution : Tensor of shape (n_different, n_leaves)
        Target distributions.
    index : Tensor of shape (n,)
        Position of each sample's distribution among them.
    ranges : LeafRanges
        The labels.
    """

    distribution: Tensor
    index: Tensor
    ranges: LeafRanges

    def to(self, device: torch.device) -> SoftTargets:
        """Return the same on another device, copied without waiting."""
        return on_device(replace(self, ranges=self.ranges.to(device)), device)


class SoftLabelHead(SoftmaxHead):
    """Cross-entropy against labels softened by the tree (Bertinetto et al. 2020).

    The target is ``q(leaf) ∝ exp(-b h / H)``, with h the height of the lowest common ancestor of
    leaf and label and H that of the first branching node. For an ancestor label, "soft" takes this
    target as it is, nearly uniform inside for a large b; "marginal" adds up both q and p inside.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    sharpness : float
        The rate b; a large one gives cross-entropy.
    partial_labels : {"marginal", "soft", "drop"}
        How an ancestor label is used.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        *,
        sharpness: float,
        partial_labels: str,
    ) -> None:
        super().__init__(taxonomy, n_features, partial_labels=partial_labels, label_smoothing=0.0)
        self.sharpness = sharpness

    def prepare(self, nodes: npt.ArrayLike) -> SoftTargets:  # type: ignore[override]
        """Turn the nodes of labels into distributions over leaves."""
        taxonomy = self.segments.taxonomy
        distinct, index = np.unique(np.asarray(nodes, dtype=np.int64), return_inverse=True)
        # Of the first decision: pass-through nodes above it must change nothing.
        rate = self.sharpness / int(taxonomy.heights[taxonomy.branching_nodes[0]])
        distribution = np.empty((distinct.size, taxonomy.n_leaves))
        for target, node in zip(
            distribution, taxonomy.last_of_chain[distinct].tolist(), strict=True
        ):
            _fill_with_kinship(taxonomy, node, rate, target)
        return SoftTargets(
            torch.from_numpy(distribution).to(self.linear.weight.dtype),
            torch.from_numpy(index),
            LeafRanges.of(taxonomy, nodes),
        )

    def loss(self, features: Tensor, targets: SoftTargets, progress: float) -> Tensor:  # type: ignore[override]
        """Return the loss of each sample."""
        log_leaves = self.leaf_log_probability(features)
        q = targets.distribution[targets.index]
        loss = -(q * log_leaves).sum(1)
        partial, ranges = targets.ranges.partial, targets.ranges
        if partial.numel() == 0:
            return loss
        value = loss[partial]
        if self.partial_labels == "marginal":
            inside = ranges.inside(q.shape[1])[partial]
            log_inside = log_leaves[partial].masked_fill(~inside, -math.inf).logsumexp(1)
            outside = (q[partial] * log_leaves[partial]).masked_fill(inside, 0.0).sum(1)
            value = -(q[partial] * inside).sum(1) * log_inside - outside
        elif self.partial_labels == "drop":
            value = torch.zeros_like(value)
        return loss.index_copy(0, partial, value.masked_fill(ranges.decision < 0, 0.0))


def _fill_with_kinship(
    taxonomy: Taxonomy, node: int, rate: float, target: npt.NDArray[np.float64]
) -> None:
    """Write ``q ∝ exp(-rate · height of the lowest common ancestor with the node)``."""
    lowest = int(taxonomy.heights[node])
    low = high = int(taxonomy.leaf_start[node])
    while node >= 0:
        start, stop = int(taxonomy.leaf_start[node]), int(taxonomy.leaf_stop[node])
        value = math.exp(-rate * (int(taxonomy.heights[node]) - lowest))
        target[start:low] = target[high:stop] = value
        low, high, node = start, stop, int(taxonomy.parents[node])
    target /= target.sum()
