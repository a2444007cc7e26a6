"""The head of H2EDL: one Dirichlet opinion at every branching node.

In the symbols and equations of the paper, for a branching node v and the feature f = φ(x):

- evidence ``e_v = s softplus(W_v^T f + b_v)`` and concentrations ``α_v = e_v + W a_v``, with base
  rate a_v and prior weight W (eq. 2). The factor s, `evidence_scale`, is 1 in the paper;
- the opinion with strength ``S_v = Σ α_v``: belief ``b_v = e_v / S_v``, vacuity ``u_v = W / S_v``,
  expected probabilities ``p_v = α_v / S_v`` (eq. 1);
- the probability of a leaf, ``P(l | x) = Π p_{v,c}`` over the decisions (v, c) on the path to it,
  D(l) (eq. 3);
- the objective over the path to the label: ``L_path = Σ w_d (L_edl + λ_t L_kl)`` (eq. 7), EDL risk
  and annealed KL regulariser, plus ``β L_leaf``; all terms are in :mod:`skh2edl.heads.losses`. With
  `kl_per_child`, our default, λ_t is divided by the number of children. A label that is an
  ancestor has a shorter path and is treated the same.

The hyper-opinion of the same evidence (eq. 5 and 6) is :class:`skh2edl.HyperOpinion`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..taxonomy.taxonomy import Taxonomy
from . import losses
from .base import EvidentialHead
from .familiarity import Familiarity
from .large.blocks import Block
from .tree_ops import Paths

RISKS = ("squared", "log", "digamma", "none")


def supervised_nodes(taxonomy: Taxonomy, label_weight: np.ndarray) -> np.ndarray:
    """Return which branching nodes some label passes through to a child.

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


class H2EDLHead(EvidentialHead):
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
    risk : {"squared", "log", "digamma", "none"}
        The EDL risk L_edl; the paper's is "squared".
    leaf_weight : float
        Weight β of the leaf term, -log P(label).
    consistency_weight : float
        Weight γ of the penalty for vacuity that rises down the path.
    depth_weights : sequence of float or None
        Weights w_d of the decisions of each depth; None means 1.
    familiarity : {"none", "density"}
        Whether predictions multiply the evidence of a node by the familiarity of the feature.
    **options
        As in :class:`EvidentialHead`.
    """

    is_separable = True

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
        risk: str,
        leaf_weight: float,
        consistency_weight: float,
        depth_weights: Sequence[float] | None,
        familiarity: str,
        **options: Any,
    ) -> None:
        prior = np.asarray(prior_weight)[taxonomy.decision_nodes] * base_rate
        super().__init__(taxonomy, n_features, prior, **options)
        self.register_buffer("base_rate", torch.tensor(base_rate, dtype=torch.float32))
        self.register_buffer("prior_weight", torch.tensor(prior_weight, dtype=torch.float32))
        self.register_buffer("supervised", torch.tensor(supervised, dtype=torch.bool))
        depth_weights = [1.0] * taxonomy.n_levels if depth_weights is None else depth_weights
        weights = torch.tensor(depth_weights, dtype=torch.float32)[self.segments.node_depth]
        self.register_buffer("depth_weights", weights, persistent=False)
        self.familiarity: Familiarity | None = None
        if familiarity == "density":
            self.familiarity = Familiarity(self.segments, n_features)
        self.risk = risk
        self.leaf_weight = leaf_weight
        self.consistency_weight = consistency_weight

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a pickle's state, also one of a release without familiarity."""
        super().__setstate__(state)
        if "familiarity" not in self._modules:
            self.__dict__.setdefault("familiarity", None)

    @property
    def prior(self) -> Tensor:
        """Prior concentration W a of every decision."""
        return self.prior_weight.index_select(0, self.segments.node) * self.base_rate

    @property
    def is_supervised(self) -> Tensor:
        """1 for the decisions of supervised nodes, else 0."""
        return self.supervised.index_select(0, self.segments.node).to(self.base_rate.dtype)

    def mark_supervised(self, label_weight: np.ndarray) -> None:
        """Mark the nodes that further labels pass through as supervised."""
        passed = torch.from_numpy(supervised_nodes(self.segments.taxonomy, label_weight))
        self.supervised |= passed.to(self.supervised.device)

    def evidence(self, features: Tensor) -> Tensor:
        """Return the evidence for every decision: (n, n_decisions)."""
        evidence = self.to_evidence(self.logits(features)) * self.is_supervised
        if self.familiarity is None:
            return evidence
        return evidence * self.segments.to_children(self.familiarity(features))

    def log_conditional(self, features: Tensor) -> Tensor:
        """Return log p of every decision: (n, n_decisions)."""
        alpha = self.evidence(features) + self.prior
        return alpha.log() - self.segments.to_children(self.segments.node_sum(alpha).log())

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self.segments.sum_to_leaves(self.log_conditional(features))

    def unnormalized_of(
        self, features: Tensor, block: Block, wanted: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the concentrations α of some decisions, and log S of each node."""
        factor = block.to_decisions(self.supervised[block.node]) * self.log_scale.exp()
        prior = block.to_decisions(self.prior_weight[block.node]) * block.pick(self.base_rate)
        evidence = self.evidence_function(self.block_logits(features, block, wanted))
        alpha = evidence.mul_(factor[:, None]).add_(prior[:, None])
        return alpha, block.node_sum(alpha).log_()

    def log_of_unnormalized(self, values: Tensor) -> Tensor:
        """Return the logs of concentrations, which are overwritten."""
        return values.log_()

    def loss(self, features: Tensor, paths: Paths, progress: float) -> Tensor:
        """Return the loss of each sample: L_path + β L_leaf + γ times the penalty.

        Only the nodes on the path to the label enter, so outputs below an ancestor label receive
        no gradient.
        """
        prior_weight = self.prior_weight.index_select(0, paths.node)
        base_rate = self.base_rate.index_select(0, paths.decision)
        prior = paths.to_entries(prior_weight) * base_rate
        # A sample of weight 0 may pass through a node that no other passes.
        supervised = paths.to_entries(self.supervised.index_select(0, paths.node))
        alpha = self.to_evidence(self.path_logits(features, paths)) * supervised + prior
        strength = paths.segment_sum(alpha)
        probability = alpha / paths.to_entries(strength)

        # One value for each node on the paths. The sum of the first over a path is -log P, L_leaf.
        log_loss = losses.log_risk(alpha, strength, paths.target)
        node_loss = self._edl_risk(alpha, strength, probability, log_loss, paths)
        kl_weight = self.kl_weight_at(progress)
        if kl_weight > 0:
            kl = losses.off_target_kl(alpha, prior, paths.is_target, paths.segment_sum)
            if self.kl_per_child:
                kl = kl / self.segments.fan_out.index_select(0, paths.node)
            node_loss = node_loss + kl_weight * kl
        depth_weight = self.depth_weights.index_select(0, paths.node)
        loss = depth_weight * node_loss + self.leaf_weight * log_loss
        if self.consistency_weight > 0:
            loss = loss + self.consistency_weight * losses.consistency_penalty(
                probability.index_select(0, paths.target),
                prior_weight / strength,
                paths.has_previous,
            )
        return paths.sample_sum(loss)

    def _edl_risk(
        self, alpha: Tensor, strength: Tensor, probability: Tensor, log_loss: Tensor, paths: Paths
    ) -> Tensor:
        """Return L_edl of every opinion on the paths, in the form that `risk` names."""
        if self.risk == "squared":
            return losses.squared_risk(probability, strength, paths.target, paths.segment_sum)
        if self.risk == "digamma":
            return losses.digamma_risk(alpha, strength, paths.target)
        return log_loss if self.risk == "log" else torch.zeros_like(log_loss)


OpinionTreeHead = H2EDLHead  # what pickles of version 0.1.0 call it
