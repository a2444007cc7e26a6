"""One small module a method: feature -> parameters, loss, leaf log-probability.

Heads compute in float32 whatever the backbone's precision (float64 if they are given that),
because in half precision the variance of an opinion vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import losses
from .evidence_functions import EVIDENCE_FUNCTIONS as EVIDENCE_FUNCTIONS
from .layouts import Block, Paths
from .node_read_out import read_block
from .path_read_out import read_paths
from .segments import TreeSegments, without_autocast
from .taxonomy import Taxonomy


@dataclass(frozen=True)
class LeafRanges:
    """Targets of a flat head: each label as the range of its leaves.

    Attributes
    ----------
    start, stop : Tensor of shape (n,)
        The leaves ``start:stop`` of each label.
    partial : Tensor of shape (n_partial,)
        Rows of the labels that have several leaves.
    decision : Tensor of shape (n_partial,)
        Last decision on the way to those labels, -1 for the root.
    """

    start: Tensor
    stop: Tensor
    partial: Tensor
    decision: Tensor

    @classmethod
    def of(cls, taxonomy: Taxonomy, targets: npt.ArrayLike) -> LeafRanges:
        """Turn target nodes into ranges of leaves."""
        nodes = np.asarray(targets, dtype=np.int64)
        start, stop = taxonomy.leaf_start[nodes], taxonomy.leaf_stop[nodes]
        partial = np.flatnonzero(stop - start > 1)
        decision = taxonomy.last_decision[nodes[partial]]
        return cls(*map(torch.from_numpy, (start, stop, partial, decision)))

    def to(self, device: torch.device) -> LeafRanges:
        """Return the same on another device, copied without waiting."""
        tensors = (self.start, self.stop, self.partial, self.decision)
        return LeafRanges(*(tensor.to(device, non_blocking=True) for tensor in tensors))

    def inside(self, n_leaves: int) -> Tensor:
        """Mark the leaves of each label: (n, n_leaves)."""
        leaf = torch.arange(n_leaves, device=self.start.device)
        return (leaf >= self.start[:, None]) & (leaf < self.stop[:, None])


class Targets(Protocol):
    """What a head makes of target nodes: `Ways`, `Paths`, `LeafRanges` or its own."""

    def to(self, device: torch.device) -> Targets:
        """Return the same on another device."""


class TreeHead(nn.Module):
    """What every method has: a linear read-out of the feature, a loss, leaf log-probabilities.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    n_outputs : int
        Rows of the read-out.

    Attributes
    ----------
    is_separable : bool
        Whether each node can be read without the others, as `search_leaves` does.
    sparse_gradient : bool
        Whether :meth:`path_logits` gives the weight a gradient of the rows it read alone, which
        takes an optimiser made for that.
    """

    is_separable = False

    def __init__(self, taxonomy: Taxonomy, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.sparse_gradient = False
        self.segments = TreeSegments(taxonomy)
        # torch draws initial weights that are overwritten here; the caller's generator stays put.
        with torch.random.fork_rng(devices=[]):
            self.linear = nn.Linear(n_features, n_outputs)
        # A head that starts at zero makes no claim, and needs no random numbers.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def read_out(self, features: Tensor) -> Tensor:
        """Return the logits, in the precision of the head whatever surrounds it."""
        with without_autocast(features):
            return self.linear(features.to(self.linear.weight.dtype))

    def path_logits(self, features: Tensor, paths: Paths) -> Tensor:
        """Return the logits of the decisions on the ways to the labels: (n_entries,).

        In a large tree only the rows of those decisions are read, and only they get a gradient.

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            What the backbone says of each sample.
        paths : Paths
            The ways.
        """
        weight, bias = self.linear.weight, self.linear.bias
        with without_autocast(features):
            own = features.to(weight.dtype)
            return read_paths(own, weight, bias, paths, self.sparse_gradient)

    def block_logits(self, features: Tensor, block: Block, wanted: Tensor | None = None) -> Tensor:
        """Return the logits of some decisions for all samples: (n_rows, n).

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            What the backbone says of each sample.
        block : Block
            The decisions.
        wanted : Tensor of bool of shape (n_nodes, n), default=None
            The nodes that matter for each sample, if these are few; the others get any finite
            logits. None means all.
        """
        weight, bias = self.linear.weight, self.linear.bias
        with without_autocast(features):
            return read_block(features.to(weight.dtype), weight, bias, block, wanted)

    def prepare(self, targets: npt.ArrayLike) -> Targets:
        """Turn target nodes into what :meth:`loss` reads, before anything is on a device.

        Parameters
        ----------
        targets : array-like of int of shape (n,)
            Target nodes: leaves, ancestors, or the root, which contributes nothing.
        """
        return self.segments.paths(targets)

    def loss(self, features: Tensor, targets: Any, epochs_done: float) -> Tensor:
        """Return the loss of each sample.

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            What the backbone says of each sample.
        targets : Targets
            What :meth:`prepare` made of the target nodes.
        epochs_done : float
            Epochs trained so far, for weights that rise.
        """
        raise NotImplementedError

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        raise NotImplementedError

    def common_bias(self) -> Tensor:
        """Mark the biases that together raise what is read of every leaf alike: (n_outputs,)."""
        return torch.ones_like(self.linear.bias)

    def choices(self) -> dict[str, str]:
        """Return what a preset chose of how the head predicts, which no weight shows."""
        return {}

    def supervise(self, label_weight: np.ndarray) -> None:
        """Take note of the labels of further training, for heads that know what they were taught.

        Parameters
        ----------
        label_weight : ndarray of shape (n_nodes,)
            Total weight of the labels at or below each node.
        """


class SoftmaxHead(TreeHead):
    """One softmax over the leaves (Flat-CE).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: the sum of its leaves' probabilities, a uniform target
        over its leaves, or nothing.
    """

    def __init__(
        self, taxonomy: Taxonomy, n_features: int, partial_labels: str = "marginal"
    ) -> None:
        super().__init__(taxonomy, n_features, taxonomy.n_leaves)
        self.partial_labels = partial_labels

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.read_out(features).log_softmax(-1)

    def prepare(self, targets: npt.ArrayLike) -> LeafRanges:
        """Turn target nodes into ranges of leaves."""
        return LeafRanges.of(self.segments.taxonomy, targets)

    def loss(self, features: Tensor, targets: LeafRanges, epochs_done: float) -> Tensor:
        """Return the loss of each sample."""
        log_leaves = self.leaf_log_probability(features)

        def log_sum(inside: Tensor) -> Tensor:
            return log_leaves[targets.partial].masked_fill(~inside, -torch.inf).logsumexp(1)

        return label_cost(log_leaves, targets, self.partial_labels, log_sum)


def label_cost(
    leaf_scores: Tensor,
    targets: LeafRanges,
    partial_labels: str,
    score_as_one: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return minus the score of each label, an ancestor read as `partial_labels` says.

    Parameters
    ----------
    leaf_scores : Tensor of shape (n, n_leaves)
        What a label that is this leaf scores.
    targets : LeafRanges
        The labels.
    partial_labels : {"marginal", "soft", "drop"}
        Score an ancestor as one, as the mean of its leaves, or not at all.
    score_as_one : callable
        From the mask of their leaves to the scores of the partial labels.
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
    # The root says nothing, whichever way ancestors are read.
    return cost.index_copy(0, targets.partial, value.masked_fill(targets.decision < 0, 0.0))


class SoftmaxTreeHead(TreeHead):
    """One softmax for every branching node (Hier-CE).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    """

    is_separable = True

    def __init__(self, taxonomy: Taxonomy, n_features: int) -> None:
        super().__init__(taxonomy, n_features, taxonomy.n_decisions)

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.segments.sum_to_leaves(self.segments.log_softmax(self.read_out(features)))

    def shares_of(
        self, features: Tensor, block: Block, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what each of some decisions weighs, and the log of all of a node together."""
        return block.log_shares(self.block_logits(features, block, wanted))

    def log_of_shares(self, share: Tensor) -> Tensor:
        """Return the shares, which are logs already."""
        return share

    def loss(self, features: Tensor, paths: Paths, epochs_done: float) -> Tensor:
        """Return the loss of each sample."""
        log_conditional = paths.log_softmax(self.path_logits(features, paths))
        return -paths.sample_sum(log_conditional.index_select(0, paths.target))


class EvidentialHead(TreeHead):
    """A read-out that is turned into evidence, and a penalty for misleading evidence that rises.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    n_outputs : int
        Rows of the read-out.
    evidence : {"softplus", "softplus_squared", "exp"}, default="softplus"
        How evidence grows with the read-out.
    evidence_scale : float, default=1.0
        Factor of the evidence.
    learn_evidence_scale : bool, default=False
        Whether that factor is trained.
    kl_weight : float, default=1.0
        Full weight of the divergence of misleading evidence.
    kl_annealing_epochs : float, default=10
        Epochs over which that weight rises.
    kl_per_child : bool, default=False
        Whether that weight is divided by the number of children of the node that decides.
    initial_bias : float, default=-2.0
        Bias at the start: negative, so that a new head is close to vacuous.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        n_outputs: int,
        *,
        evidence: str = "softplus",
        evidence_scale: float = 1.0,
        learn_evidence_scale: bool = False,
        kl_weight: float = 1.0,
        kl_annealing_epochs: float = 10,
        kl_per_child: bool = False,
        initial_bias: float = -2.0,
    ) -> None:
        super().__init__(taxonomy, n_features, n_outputs)
        nn.init.constant_(self.linear.bias, initial_bias)
        self.log_scale = nn.Parameter(
            torch.tensor(math.log(evidence_scale)), requires_grad=learn_evidence_scale
        )
        self.evidence_name = evidence
        self.evidence_function = EVIDENCE_FUNCTIONS[evidence]
        self.kl_weight = kl_weight
        self.kl_annealing_epochs = kl_annealing_epochs
        self.kl_per_child = kl_per_child

    def to_evidence(self, logits: Tensor) -> Tensor:
        """Turn the read-out, or some of it, into evidence."""
        return self.evidence_function(logits) * self.log_scale.exp()

    def kl_weight_after(self, epochs_done: float) -> float:
        """Return the weight of misleading evidence after some epochs."""
        return losses.annealed(self.kl_weight, epochs_done, self.kl_annealing_epochs)
