"""One small module a method: feature -> parameters, loss, leaf log-probability.

Heads compute in float32 whatever the backbone's precision (float64 if they are given that),
because in half precision the variance of an opinion vanishes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import losses
from .evidence_functions import EVIDENCE_FUNCTIONS as EVIDENCE_FUNCTIONS
from .evidence_functions import EVIDENCE_SLOPES, overwrite_with_evidence
from .node_read_out import NodeGroups, cost_by_node, read_block, read_nodes
from .opinion_loss import log_risk_and_divergence, nested_evidence
from .segments import Block, Paths, TreeSegments
from .taxonomy import Taxonomy

# How many products of a dense read-out take as long as reading a row apart, or copying one.
_COST_OF_A_GATHERED_ROW = 150
_MIN_PRODUCTS_TO_GROUP = 2**15


RISKS = ("squared", "log", "digamma", "none")
READ_OUTS = ("nodes", "nested")


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
    """What a head makes of target nodes: `Paths`, `LeafRanges` or its own."""

    def to(self, device: torch.device) -> Targets:
        """Return the same on another device."""


def nodes_passed(taxonomy: Taxonomy, label_weight: np.ndarray) -> np.ndarray:
    """Tell which branching nodes some label passes through; one that ends there decides nothing.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    label_weight : ndarray of shape (n_nodes,)
        Total weight of the labels at or below each node.
    """
    below = label_weight[taxonomy.decision_children]
    passed: np.ndarray = np.add.reduceat(below, taxonomy.decision_offsets[:-1]) > 0
    return passed


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
        with torch.autocast(features.device.type, enabled=False):
            return self.linear(features.to(self.linear.weight.dtype))

    def read_out_rows(self, features: Tensor) -> Tensor:
        """Return the logits with a row for each output: (n_outputs, n)."""
        weight, bias = self.linear.weight, self.linear.bias
        with torch.autocast(features.device.type, enabled=False):
            return torch.addmm(bias[:, None], weight, features.to(weight.dtype).T)

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
        n_samples, n_rows = features.shape[0], self.linear.out_features
        apart, dense = paths.decision.shape[0] * _COST_OF_A_GATHERED_ROW, n_samples * n_rows
        weight, bias = self.linear.weight, self.linear.bias
        on_processor = features.device.type == "cpu" and dense > _MIN_PRODUCTS_TO_GROUP
        with torch.autocast(features.device.type, enabled=False):
            own = features.to(weight.dtype)
            if on_processor and cost_by_node(paths, weight.shape[1]) < min(apart, dense):
                return read_nodes(own, weight, bias, NodeGroups.of(paths), self.sparse_gradient)
            if apart >= dense:
                return paths.gather_rows(self.read_out_rows(own))
            rows = F.embedding(paths.decision, weight, sparse=self.sparse_gradient)
            products = rows * own.index_select(0, paths.row)
            return products.sum(1) + bias.index_select(0, paths.decision)

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
        with torch.autocast(features.device.type, enabled=False):
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


class OpinionTreeHead(EvidentialHead):
    """One Dirichlet opinion for every branching node (H2EDL).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    base_rate : ndarray of shape (n_decisions,)
        Base rate a, which sums to 1 at each node.
    prior_weight : ndarray of shape (n_branching,)
        Prior weight W of each node.
    supervised : ndarray of bool of shape (n_branching,)
        Nodes that some training label passes through; the others report no evidence.
    read_out : {"nodes", "nested"}, default="nodes"
        Where a decision's evidence comes from: its own row of the read-out, or the leaves below
        it. Nested, a leaf's logit is the sum of the rows on its way from the root, its evidence
        is counted once, and the evidence for a node is that of all leaves below it.
    risk : {"squared", "log", "digamma", "none"}, default="squared"
        The EDL risk.
    leaf_weight : float, default=0.0
        Weight of -log P(label).
    consistency_weight : float, default=0.0
        Weight of the penalty for vacuity that rises down the way.
    depth_weights : sequence of float, default=None
        Weight of the decisions of each depth; None means 1.
    **options
        As in :class:`EvidentialHead`.
    """

    base_rate: Tensor
    prior_weight: Tensor
    supervised: Tensor
    depth_weights: Tensor

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        base_rate: np.ndarray,
        prior_weight: np.ndarray,
        supervised: np.ndarray,
        *,
        read_out: str = "nodes",
        risk: str = "squared",
        leaf_weight: float = 0.0,
        consistency_weight: float = 0.0,
        depth_weights: Sequence[float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(taxonomy, n_features, taxonomy.n_decisions, **options)
        self.nested = read_out == "nested"
        self.is_separable = not self.nested
        if self.nested:
            # One bias on each way, of which all leaves together start with the evidence.
            with torch.no_grad():
                self.linear.bias.sub_(math.log(taxonomy.n_leaves)).mul_(self.common_bias())
        self.register_buffer("base_rate", torch.tensor(base_rate, dtype=torch.float32))
        self.register_buffer("prior_weight", torch.tensor(prior_weight, dtype=torch.float32))
        self.register_buffer("supervised", torch.tensor(supervised, dtype=torch.bool))
        depth_weights = [1.0] * taxonomy.n_levels if depth_weights is None else depth_weights
        weights = torch.tensor(depth_weights, dtype=torch.float32)[self.segments.node_depth]
        self.register_buffer("depth_weights", weights, persistent=False)
        self.risk = risk
        self.leaf_weight = leaf_weight
        self.consistency_weight = consistency_weight

    @property
    def prior(self) -> Tensor:
        """Prior concentration W a of each decision."""
        return self.prior_weight[self.segments.node] * self.base_rate

    def evidence(self, features: Tensor) -> Tensor:
        """Return the evidence for every decision: (n, n_decisions)."""
        logits = self.read_out(features)
        evidence = self.pooled_evidence(logits) if self.nested else self.to_evidence(logits)
        return evidence * self.supervised[self.segments.node]

    def common_bias(self) -> Tensor:
        """Mark the biases that together raise what is read of every leaf alike: (n_outputs,)."""
        if not self.nested:
            return super().common_bias()
        return (self.segments.parent < 0).to(self.linear.bias)

    def pooled_evidence(self, logits: Tensor) -> Tensor:
        """Count evidence at the leaves and add it up on the way to the root."""
        return self.segments.sum_below(self.to_evidence(self.segments.sum_to_leaves(logits)))

    def choices(self) -> dict[str, str]:
        """Return where evidence comes from and how it grows."""
        read_out = "nested" if self.nested else "nodes"
        return {"read_out": read_out, "evidence": self.evidence_name}

    def supervise(self, label_weight: np.ndarray) -> None:
        """Let the nodes that labels pass through speak from now on."""
        passing = torch.from_numpy(nodes_passed(self.segments.taxonomy, label_weight))
        self.supervised |= passing.to(self.supervised.device)

    def log_conditional(self, features: Tensor) -> Tensor:
        """Return log p of every decision: (n, n_decisions)."""
        alpha = self.evidence(features) + self.prior
        return alpha.log() - self.segments.spread(self.segments.node_sum(alpha).log())

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.segments.sum_to_leaves(self.log_conditional(features))

    def evidence_at(self, features: Tensor, paths: Paths) -> Tensor:
        """Return the evidence for some decisions: (n_entries,)."""
        if self.nested:
            with torch.autocast(features.device.type, enabled=False):
                evidence = nested_evidence(
                    features.to(self.linear.weight.dtype),
                    self.linear.weight,
                    self.linear.bias,
                    self.log_scale.exp(),
                    self.evidence_function,
                    EVIDENCE_SLOPES[self.evidence_name],
                    self.segments,
                    paths,
                )
        else:
            evidence = self.to_evidence(self.path_logits(features, paths))
        # As reported: a held-out label may pass through a node that no training label did.
        return evidence * paths.spread(self.supervised.index_select(0, paths.node).to(evidence))

    def prior_at(self, paths: Paths) -> Tensor:
        """Return the prior concentrations of some decisions: (n_entries,)."""
        prior_weight = self.prior_weight.index_select(0, paths.node)
        return self.base_rate.index_select(0, paths.decision) * paths.spread(prior_weight)

    def shares_of(
        self, features: Tensor, block: Block, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what each of some decisions weighs, and the log of all of a node together."""
        logits = self.block_logits(features, block, wanted)
        evidence = overwrite_with_evidence(logits, self.evidence_name)
        prior_weight = self.prior_weight.index_select(0, block.node)
        prior = block.pick(self.base_rate) * block.spread(prior_weight)
        supervised = self.supervised.index_select(0, block.node)
        scale = block.spread(supervised * self.log_scale.exp())
        # In place, and not by addcmul, which takes three times as long as these two.
        alpha = evidence.mul_(scale[:, None]).add_(prior[:, None])
        return alpha, block.node_sum(alpha).log_()

    def log_of_shares(self, share: Tensor) -> Tensor:
        """Return the logs of shares, which are overwritten."""
        return share.log_()

    def loss(self, features: Tensor, paths: Paths, epochs_done: float) -> Tensor:
        """Return the loss of each sample."""
        evidence, prior = self.evidence_at(features, paths), self.prior_at(paths)
        kl_weight = self.kl_weight_after(epochs_done)
        if self.risk != "log" or self.consistency_weight > 0:
            return self._loss_term_by_term(evidence, prior, paths, kl_weight)
        weight = self.depth_weights.index_select(0, paths.node)
        of_divergence = None
        if kl_weight > 0:
            of_divergence = kl_weight * weight
            if self.kl_per_child:
                of_divergence /= self.segments.fan_out[paths.node]
        prior_weight = self.prior_weight.index_select(0, paths.node)
        return log_risk_and_divergence(
            evidence, prior, prior_weight, paths, weight + self.leaf_weight, of_divergence
        )

    def _loss_term_by_term(
        self, evidence: Tensor, prior: Tensor, paths: Paths, kl_weight: float
    ) -> Tensor:
        alpha = evidence + prior
        strength = paths.segment_sum(alpha)
        probability = alpha / paths.spread(strength)

        surprise = losses.log_risk(alpha, strength, paths.target)
        if self.risk == "squared":
            risk = losses.squared_risk(probability, strength, paths.target, paths.segment_sum)
        elif self.risk == "digamma":
            risk = losses.digamma_risk(alpha, strength, paths.target)
        else:
            risk = surprise if self.risk == "log" else torch.zeros_like(surprise)
        if kl_weight > 0:
            is_target = torch.zeros_like(alpha, dtype=torch.bool).index_fill(0, paths.target, True)
            divergence = losses.misleading_evidence(alpha, prior, is_target, paths.segment_sum)
            if self.kl_per_child:
                divergence = divergence / self.segments.fan_out[paths.node]
            risk = risk + kl_weight * divergence
        loss = self.depth_weights.index_select(0, paths.node) * risk
        if self.leaf_weight > 0:
            loss = loss + self.leaf_weight * surprise
        if self.consistency_weight > 0:
            loss = loss + self.consistency_weight * losses.rising_doubt(
                probability.index_select(0, paths.target),
                self.prior_weight.index_select(0, paths.node) / strength,
                paths.has_previous,
            )
        return paths.sample_sum(loss)
