"""The head of H2EDL: one Dirichlet opinion on every branching node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import losses
from .evidence_functions import EVIDENCE_AND_SLOPES, overwrite_with_evidence
from .heads import EvidentialHead
from .layouts import Block, Paths, Ways
from .nested_loss import nested_evidence, nested_log_risk
from .opinion_loss import ReadOut, RiskTerms, log_risk_and_divergence, log_risk_of_paths
from .segments import without_autocast
from .taxonomy import Taxonomy

RISKS = ("squared", "log", "digamma", "none")
READ_OUTS = ("nodes", "nested")
SHARED_EVIDENCE = ("doubt", "belief")


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
    shared_evidence : {"doubt", "belief"}, default="belief"
        What evidence counts as that all children of a node have alike, in proportion to their base
        rates, when opinions are reported. It speaks for none of them: as "doubt" it is added to
        the vacuity, which leaves every probability what it is.
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
    prior: Tensor
    speaks: Tensor
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
        shared_evidence: str = "belief",
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
        for name in ("prior", "speaks"):
            self.register_buffer(name, None, persistent=False)
        self._spread_over_decisions()
        self.weighs_depths = depth_weights is not None
        depth_weights = [1.0] * taxonomy.n_levels if depth_weights is None else depth_weights
        weights = torch.tensor(depth_weights, dtype=torch.float32)[self.segments.node_depth]
        self.register_buffer("depth_weights", weights, persistent=False)
        self.shared_evidence = shared_evidence
        self.risk = risk
        self.leaf_weight = leaf_weight
        self.consistency_weight = consistency_weight

    def _spread_over_decisions(self) -> None:
        """Write down for each decision its prior concentration W a, and 1 if its node has evidence.

        A step would take longer to find both again than to add up the evidence.
        """
        node = self.segments.node
        # New ones, because a graph may still hold those that were.
        self.prior = self.prior_weight.index_select(0, node) * self.base_rate
        self.speaks = self.supervised.index_select(0, node).to(self.base_rate.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.base_rate
        super()._apply(fn, recurse)
        # In another precision the product is not the same.
        if self.base_rate is not before:
            self._spread_over_decisions()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._spread_over_decisions()

    def evidence(self, features: Tensor) -> Tensor:
        """Return the evidence for every decision that opinions report: (n, n_decisions)."""
        if self.shared_evidence == "belief":
            return self.counted_evidence(features)
        return self.unshared_evidence(features)

    def unshared_evidence(self, features: Tensor) -> Tensor:
        """Return the evidence for every decision without what siblings share: (n, n_decisions).

        With the largest c that leaves no belief negative, ``b = (e - c a) / S`` and ``u = (W + c) /
        S``; in evidence beside the prior weight W that is ``W b / u``.
        """
        counted = self.counted_evidence(features)
        shared = self.segments.node_min(counted / self.base_rate)
        left = counted - self.base_rate * self.segments.spread(shared)
        part = self.prior_weight / (self.prior_weight + shared)
        # But for rounding, nothing is negative.
        return left.clamp_(min=0.0).mul_(self.segments.spread(part))

    def counted_evidence(self, features: Tensor) -> Tensor:
        """Return the evidence for every decision as it is counted: (n, n_decisions)."""
        logits = self.read_out(features)
        evidence = self.pooled_evidence(logits) if self.nested else self.to_evidence(logits)
        return evidence * self.speaks

    def common_bias(self) -> Tensor:
        """Mark the biases that together raise what is read of every leaf alike: (n_outputs,)."""
        if not self.nested:
            return super().common_bias()
        return (self.segments.parent < 0).to(self.linear.bias)

    def pooled_evidence(self, logits: Tensor) -> Tensor:
        """Count evidence at the leaves and add it up on the way to the root."""
        return self.segments.sum_below(self.to_evidence(self.segments.sum_to_leaves(logits)))

    def choices(self) -> dict[str, str]:
        """Return where evidence comes from, how it grows, and what it counts as."""
        return {
            "read_out": "nested" if self.nested else "nodes",
            "evidence": self.evidence_name,
            "shared_evidence": self.shared_evidence,
        }

    def supervise(self, label_weight: np.ndarray) -> None:
        """Let the nodes that labels pass through speak from now on."""
        passing = torch.from_numpy(nodes_passed(self.segments.taxonomy, label_weight))
        self.supervised |= passing.to(self.supervised.device)
        self._spread_over_decisions()

    def log_conditional(self, features: Tensor) -> Tensor:
        """Return log p of every decision: (n, n_decisions)."""
        alpha = self.counted_evidence(features) + self.prior
        return alpha.log() - self.segments.spread(self.segments.node_sum(alpha).log())

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.segments.sum_to_leaves(self.log_conditional(features))

    def evidence_at(self, features: Tensor, paths: Paths) -> Tensor:
        """Return the evidence for some decisions: (n_entries,)."""
        if self.nested:
            with without_autocast(features):
                evidence = nested_evidence(self._read_out_of(features), self.segments, paths)
        else:
            evidence = self.to_evidence(self.path_logits(features, paths))
        # As reported: a held-out label may pass through a node that no training label did.
        return evidence * self.speaks.index_select(0, paths.decision)

    def _weight_at(self, paths: Ways) -> Tensor | float:
        return self.depth_weights.index_select(0, paths.node) if self.weighs_depths else 1.0

    def _read_out_of(self, features: Tensor) -> ReadOut:
        return ReadOut(
            features.to(self.linear.weight.dtype),
            self.linear.weight,
            self.linear.bias,
            self.log_scale.exp(),
            EVIDENCE_AND_SLOPES[self.evidence_name],
        )

    def prior_at(self, paths: Paths) -> Tensor:
        """Return the prior concentrations of some decisions: (n_entries,)."""
        return self.prior.index_select(0, paths.decision)

    def shares_of(
        self, features: Tensor, block: Block, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what each of some decisions weighs, and the log of all of a node together."""
        logits = self.block_logits(features, block, wanted)
        evidence = overwrite_with_evidence(logits, self.evidence_name)
        factor = block.pick(self.speaks) * self.log_scale.exp()
        # In place, and not by addcmul, which takes three times as long as these two.
        alpha = evidence.mul_(factor[:, None]).add_(block.pick(self.prior)[:, None])
        return alpha, block.node_sum(alpha).log_()

    def log_of_shares(self, share: Tensor) -> Tensor:
        """Return the logs of shares, which are overwritten."""
        return share.log_()

    def prepare(self, targets: npt.ArrayLike) -> Ways:
        """Turn target nodes into what :meth:`loss` reads: no siblings where none are looked at."""
        if self.nested and self._in_closed_form and self.kl_weight == 0:
            return self.segments.ways(targets)
        return self.segments.paths(targets)

    @property
    def _in_closed_form(self) -> bool:
        return self.risk == "log" and self.consistency_weight == 0

    def loss(self, features: Tensor, paths: Ways, epochs_done: float) -> Tensor:
        """Return the loss of each sample."""
        kl_weight = self.kl_weight_after(epochs_done)
        if not self._in_closed_form:
            return self._loss_term_by_term(features, _with_siblings(paths), kl_weight)
        with without_autocast(features):
            return self._loss_in_closed_form(self._read_out_of(features), paths, kl_weight)

    def _loss_in_closed_form(self, read_out: ReadOut, ways: Ways, kl_weight: float) -> Tensor:
        weight = self._weight_at(ways)
        risk_weight = weight + self.leaf_weight
        if self.nested and kl_weight == 0:
            prior_weight = self.prior_weight.index_select(0, ways.node)
            priors = torch.stack([self.prior.index_select(0, ways.chosen), prior_weight])
            speaks = self.speaks.index_select(0, ways.chosen)
            return nested_log_risk(read_out, self.segments, ways, priors, speaks, risk_weight)
        paths = _with_siblings(ways)
        divergence = None
        if kl_weight > 0:
            prior_weight = self.prior_weight.index_select(0, paths.node)
            of_divergence = torch.full_like(prior_weight, kl_weight).mul_(weight)
            if self.kl_per_child:
                of_divergence /= self.segments.fan_out[paths.node]
            divergence = of_divergence, prior_weight
        terms = RiskTerms(self.prior_at(paths), risk_weight, divergence)
        speaks = self.speaks.index_select(0, paths.decision)
        if self.nested:
            evidence = nested_evidence(read_out, self.segments, paths)
            return log_risk_and_divergence(evidence * speaks, paths, terms)
        return log_risk_of_paths(read_out, paths, speaks, terms, self.sparse_gradient)

    def _loss_term_by_term(self, features: Tensor, paths: Paths, kl_weight: float) -> Tensor:
        evidence, prior = self.evidence_at(features, paths), self.prior_at(paths)
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
        loss = self._weight_at(paths) * risk
        if self.leaf_weight > 0:
            loss = loss + self.leaf_weight * surprise
        if self.consistency_weight > 0:
            loss = loss + self.consistency_weight * losses.rising_doubt(
                probability.index_select(0, paths.target),
                self.prior_weight.index_select(0, paths.node) / strength,
                paths.has_previous,
            )
        return paths.sample_sum(loss)


def _with_siblings(ways: Ways) -> Paths:
    if not isinstance(ways, Paths):
        raise TypeError(
            "The loss needs all decisions at the nodes of the ways, which this head did not when "
            "the targets were prepared. Prepare them again."
        )
    return ways
