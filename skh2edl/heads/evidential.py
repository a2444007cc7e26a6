"""Evidential heads that do not use the tree: one opinion on the leaves, or on groups of them.

To a flat head a label is a set of leaves: one leaf, or all leaves of an ancestor. The root
contributes nothing. What another ancestor contributes depends on `partial_labels`:

- ``"marginal"``: its leaves count as one class. A Dirichlet with merged cells is again a Dirichlet,
  whose concentration for the merged cell is the sum; the loss is that of the Dirichlet over *the
  set and each leaf outside it*;
- ``"soft"``: a uniform target over the leaves of the set;
- ``"drop"``: nothing.

The KL regulariser never penalises evidence for leaves of the set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..taxonomy.taxonomy import Taxonomy
from . import losses
from .base import EvidentialHead, FlatTargets, LeafRanges
from .fisher import log_det_fisher

# I-EDL's published weight of the log determinant; with many leaves that outweighs the risk, so the
# weight times the number of leaves is bounded too.
_FISHER_WEIGHT, _FISHER_WEIGHT_TIMES_LEAVES = 0.05, 2.0


@dataclass(frozen=True)
class Cells:
    """The cells of the Dirichlet that a label is compared with: each leaf, and last their sum.

    Attributes
    ----------
    evidence, prior : Tensor of shape (n, n_leaves + 1)
        Evidence and prior concentration; the last cell is the sum over the label's leaves.
    present : Tensor of bool of shape (n, n_leaves + 1)
        Which cells are used: together they hold every leaf once.
    target : Tensor of shape (n, n_leaves + 1)
        A distribution over the cells present.
    """

    evidence: Tensor
    prior: Tensor
    present: Tensor
    target: Tensor

    @cached_property
    def alpha(self) -> Tensor:
        """Concentrations; 1 for cells that are not present, where every loss is finite."""
        return torch.where(self.present, self.evidence + self.prior, 1.0)

    @cached_property
    def strength(self) -> Tensor:
        """S, the sum of the concentrations: (n, 1)."""
        return (self.alpha * self.present).sum(1, keepdim=True)

    @property
    def squared_risk(self) -> Tensor:
        """Terms of Sensoy's squared risk, one for each cell."""
        p = self.alpha * self.present / self.strength
        return (self.target - p).square() + p * (1 - p) / (self.strength + 1)


class FlatOpinionHead(FlatTargets, EvidentialHead):
    """Base of the flat evidential methods: one Dirichlet over the leaves.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    prior : ndarray of shape (n_leaves,)
        Prior concentration W a of each leaf, in tree order.
    partial_labels : {"marginal", "soft", "drop"}
        How an ancestor label is used.
    **options
        As in :class:`~skh2edl.heads.base.EvidentialHead`.
    """

    prior: Tensor

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        prior: npt.ArrayLike,
        *,
        partial_labels: str,
        **options: Any,
    ) -> None:
        super().__init__(taxonomy, n_features, prior, **options)
        self.register_buffer("prior", torch.tensor(prior, dtype=torch.float32))
        self.partial_labels = partial_labels

    def evidence(self, features: Tensor) -> Tensor:
        """Return the evidence for every leaf in tree order: (n, n_leaves)."""
        return self.to_evidence(self.logits(features))

    def masses(self, features: Tensor) -> Tensor:
        """Return the belief in every leaf and, last, the vacuity: (n, n_leaves + 1)."""
        evidence = self.evidence(features)
        weight = self.prior.sum()
        strength = evidence.sum(1, keepdim=True) + weight
        return torch.cat([evidence / strength, weight / strength], dim=1)

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        alpha = self.evidence(features) + self.prior
        return alpha.log() - alpha.sum(1, keepdim=True).log()

    def risk_of(self, cells: Cells) -> Tensor:
        """Return the method's risk of each sample."""
        raise NotImplementedError

    def loss(self, features: Tensor, targets: LeafRanges, progress: float) -> Tensor:
        """Return the loss of each sample."""
        evidence = self.evidence(features)
        n_leaves = evidence.shape[1]
        inside, ignored = leaves_of_labels(targets, n_leaves, self.partial_labels)
        loss = self.risk_of(self._cells(evidence, inside))
        kl_weight = self.kl_weight_at(progress)
        if kl_weight > 0:
            prior = self.prior.expand_as(evidence)
            divergence = losses.dirichlet_kl(
                torch.where(inside, prior, evidence + prior), prior, sum_last
            )
            loss = loss + kl_weight / (n_leaves if self.kl_per_child else 1) * divergence
        return loss.masked_fill(ignored, 0.0)

    def _cells(self, evidence: Tensor, inside: Tensor) -> Cells:
        return Cells(
            with_sum(evidence, inside),
            with_sum(self.prior.expand_as(evidence), inside),
            *cells_of(inside, self.partial_labels, evidence.dtype),
        )


def leaves_of_labels(
    targets: LeafRanges, n_leaves: int, partial_labels: str
) -> tuple[Tensor, Tensor]:
    """Mark the leaves of each label, (n, n_leaves), and the labels to ignore, (n,)."""
    ignored = targets.stop - targets.start == n_leaves
    if partial_labels == "drop":
        ignored = targets.stop - targets.start > 1
    # A Dirichlet needs two cells: these are computed as one leaf; their loss is to be set to 0.
    stop = torch.where(ignored, targets.start + 1, targets.stop)
    return replace(targets, stop=stop).inside(n_leaves), ignored


def cells_of(inside: Tensor, partial_labels: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cells present and the target among them, as in :class:`Cells`."""
    merged = partial_labels == "marginal"
    last = inside.new_full((len(inside), 1), merged)
    target = inside.to(dtype)
    return (
        torch.cat([~inside if merged else torch.ones_like(inside), last], dim=1),
        torch.cat([target * (not merged) / target.sum(1, keepdim=True), last], dim=1),
    )


class FlatEDLHead(FlatOpinionHead):
    """Evidential learning over the leaves (Flat-EDL; Sensoy et al. 2018).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    prior : ndarray of shape (n_leaves,)
        Prior concentration W a of each leaf, in tree order.
    risk : {"squared", "log", "digamma", "none"}
        The EDL risk.
    leaf_weight : float
        Weight of -log P(label).
    **options
        As in :class:`FlatOpinionHead`.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        prior: npt.ArrayLike,
        *,
        risk: str,
        leaf_weight: float,
        **options: Any,
    ) -> None:
        super().__init__(taxonomy, n_features, prior, **options)
        self.risk = risk
        self.leaf_weight = leaf_weight

    def risk_of(self, cells: Cells) -> Tensor:
        """Return Sensoy's risk, and beta times -log P(label)."""
        alpha, strength = cells.alpha, cells.strength
        surprise = (cells.target * (strength.log() - alpha.log())).sum(1)
        if self.risk == "squared":
            risk = cells.squared_risk.sum(1)
        elif self.risk == "digamma":
            digammas = torch.digamma(strength) - torch.digamma(alpha)
            risk = (cells.target * digammas).sum(1)
        else:
            risk = surprise if self.risk == "log" else torch.zeros_like(surprise)
        return risk + self.leaf_weight * surprise


class IEDLHead(FlatOpinionHead):
    """Evidential learning weighted by Fisher information (I-EDL; Deng et al. 2023).

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    fisher_weight : float or None
        Weight c of the log determinant; None means ``min(0.05, 2 / n_leaves)``, because the
        published 0.05 collapses where there are a hundred leaves.
    **options
        As in :class:`FlatOpinionHead`.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        *,
        fisher_weight: float | None,
        **options: Any,
    ) -> None:
        super().__init__(taxonomy, n_features, np.ones(taxonomy.n_leaves), **options)
        if fisher_weight is None:
            fisher_weight = min(_FISHER_WEIGHT, _FISHER_WEIGHT_TIMES_LEAVES / taxonomy.n_leaves)
        self.fisher_weight = fisher_weight

    def risk_of(self, cells: Cells) -> Tensor:
        """Return the squared risk weighted by the trigamma function, less c log det F."""
        risk = (cells.squared_risk * torch.polygamma(1, cells.alpha)).sum(1)
        return risk - self.fisher_weight * log_det_fisher(cells.alpha, cells.present)


class REDLHead(FlatOpinionHead):
    """Relaxed evidential learning (R-EDL; Chen et al. 2024).

    ``p_k = (e_k + λ₂) / (e_k + λ₁ Σ_{j≠k} e_j + λ₂ K)``. With λ₁ = 1 these are expected
    probabilities; otherwise they do not sum to one, and leaf probabilities are these divided by
    their sum.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    relaxation : float
        λ₁, the weight of the evidence for other leaves.
    leaf_prior : float
        λ₂, the prior concentration of each leaf.
    **options
        As in :class:`FlatOpinionHead`.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        *,
        relaxation: float,
        leaf_prior: float,
        **options: Any,
    ) -> None:
        super().__init__(taxonomy, n_features, np.full(taxonomy.n_leaves, leaf_prior), **options)
        self.relaxation = relaxation

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        evidence = self.evidence(features)
        everything = torch.ones_like(evidence, dtype=torch.bool)
        return self._relaxed(evidence, self.prior, everything).log().log_softmax(1)

    def risk_of(self, cells: Cells) -> Tensor:
        """Return the squared error of the relaxed probabilities; there is no variance term."""
        p = self._relaxed(cells.evidence, cells.prior, cells.present) * cells.present
        return (cells.target - p).square().sum(1)

    def _relaxed(self, evidence: Tensor, prior: Tensor, present: Tensor) -> Tensor:
        others = (evidence * present).sum(1, keepdim=True) - evidence
        relaxed = self.relaxation * torch.where(present, others, 0.0)
        return (evidence + prior) / (evidence + relaxed + self.prior.sum())


def group_nodes_at(taxonomy: Taxonomy, level: str | int | None) -> npt.NDArray[np.int64]:
    """Return the nodes of a level; None means the first level with two or more nodes.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    level : str, int or None
        Name or depth of the level.
    """
    if level is None:
        level = int(taxonomy.depths[taxonomy.branching_nodes[0]]) + 1
    return taxonomy.level_nodes(level)


class HENNHead(FlatTargets, EvidentialHead):
    """Evidence for leaves and for groups of leaves: a grouped Dirichlet (HENN; Li et al. 2024).

    With α = e + 1, A_j the sum of α in group j and β_j = A_j + c_j, the probabilities of the
    groups are Dirichlet with β and, independently, those of the leaves of a group given the group
    are Dirichlet with its α. Every label is therefore native: the expected -log of the probability
    of its leaves is ``ψ(Σβ) - ψ(β_j) + ψ(A_j) - ψ(Σ α of its leaves)`` at or below a group, and
    ``ψ(Σβ) - ψ(Σ β of its groups)`` above. The divergence from the prior (α = 1, c = 0) is taken
    with the α of the label's leaves set to 1 where the label is below a group, and with the c of
    the label's groups set to 0 where it is a group or above.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    group_nodes : ndarray of shape (n_groups,)
        Nodes whose leaves are the groups, in tree order, such as :func:`group_nodes_at` returns.
    **options
        As in :class:`~skh2edl.heads.base.EvidentialHead`.
    """

    group: Tensor
    group_start: Tensor
    group_stop: Tensor

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        group_nodes: npt.ArrayLike,
        **options: Any,
    ) -> None:
        start = taxonomy.leaf_start[np.asarray(group_nodes)]
        stop = taxonomy.leaf_stop[np.asarray(group_nodes)]
        if not np.array_equal([0, *stop], [*start, taxonomy.n_leaves]):
            raise ValueError(
                "Groups must hold every leaf once, in tree order, but they cover the leaf "
                f"positions {list(zip(start.tolist(), stop.tolist(), strict=True))[:5]}. Give the "
                "nodes of one level."
            )
        # A group's evidence has no prior of its own; it starts with as much as a leaf's.
        super().__init__(taxonomy, n_features, np.ones(taxonomy.n_leaves + start.size), **options)
        buffers = {
            "group": np.repeat(np.arange(start.size), stop - start),
            "group_start": start,
            "group_stop": stop,
        }
        for name, array in buffers.items():
            # Not saved: they follow from the taxonomy and `group_nodes`.
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def evidence(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the evidence for leaves and for groups: (n, n_leaves) and (n, n_groups)."""
        evidence = self.to_evidence(self.logits(features))
        leaves, groups = evidence.tensor_split([len(self.group)], dim=1)
        # A group of one leaf has no evidence of its own.
        return leaves, groups * (self.group_stop - self.group_start > 1)

    def masses(self, features: Tensor) -> Tensor:
        """Return the belief in every leaf, in every group and, last, the vacuity."""
        leaves, groups = self.evidence(features)
        total = leaves.sum(1, keepdim=True) + groups.sum(1, keepdim=True)
        strength = total + len(self.group)
        prior = torch.full_like(strength, len(self.group))
        return torch.cat([leaves, groups, prior], dim=1) / strength

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        leaves, groups = self.evidence(features)
        alpha = leaves + 1
        within = self._group_sum(alpha)
        beta = within + groups
        # Logs of fractions: differences of logs of large concentrations would lose digits.
        of_group = beta / beta.sum(1, keepdim=True)
        return (alpha / within[:, self.group]).log() + of_group.log()[:, self.group]

    def loss(self, features: Tensor, targets: LeafRanges, progress: float) -> Tensor:
        """Return the loss of each sample."""
        leaves, groups = self.evidence(features)
        alpha = leaves + 1
        within = self._group_sum(alpha)
        beta = within + groups
        inside = targets.inside(alpha.shape[1])
        start, stop = targets.start[:, None], targets.stop[:, None]
        group_inside = (self.group_start >= start) & (self.group_stop <= stop)

        # The group of the label's first leaf; used only where the label lies at or below it.
        own = self.group[start]
        is_below = stop <= self.group_stop[own]
        chosen = torch.where(is_below, beta.gather(1, own), _masked_sum(beta, group_inside))
        of_group = torch.where(is_below, within.gather(1, own), 1.0)
        of_label = torch.where(is_below, _masked_sum(alpha, inside), 1.0)
        loss = (
            torch.digamma(beta.sum(1, keepdim=True))
            - torch.digamma(chosen)
            + torch.digamma(of_group)
            - torch.digamma(of_label)
        ).squeeze(1)
        kl_weight = self.kl_weight_at(progress)
        if kl_weight > 0:
            names_groups = (group_inside.any(1) & (targets.stop - targets.start > 1))[:, None]
            kept_alpha = torch.where(inside & ~names_groups, 1.0, alpha)
            kept_groups = torch.where(group_inside & names_groups, 0.0, groups)
            divergence = self._divergence(kept_alpha, kept_groups)
            loss = loss + kl_weight / (len(self.group) if self.kl_per_child else 1) * divergence
        return loss.masked_fill(targets.stop - targets.start == len(self.group), 0.0)

    def _divergence(self, alpha: Tensor, groups: Tensor) -> Tensor:
        """Divergence of the grouped Dirichlet from its prior: of the groups, and within each."""
        within = self._group_sum(alpha)
        ones = torch.ones_like(alpha)
        of_groups = losses.dirichlet_kl(within + groups, self._group_sum(ones), sum_last)
        return of_groups + sum_last(losses.dirichlet_kl(alpha, ones, self._group_sum))

    def _group_sum(self, values: Tensor) -> Tensor:
        total = values.new_zeros(len(self.group_start), values.shape[0])
        return total.index_add(0, self.group, values.T).T


def sum_last(values: Tensor) -> Tensor:
    """Add up the last axis."""
    return values.sum(-1)


def _masked_sum(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum(1, keepdim=True)


def with_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Append the sum over a mask: (n, n_leaves + 1)."""
    return torch.cat([values, _masked_sum(values, mask)], dim=1)
