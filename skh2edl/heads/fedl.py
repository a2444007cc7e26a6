"""F-EDL: a flexible Dirichlet over the leaves, which may have one mode for each of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..taxonomy.taxonomy import Taxonomy
from .base import FlatTargets, LeafRanges, TreeHead
from .evidence import MAX_EXPONENT
from .evidential import cells_of, leaves_of_labels, with_sum


class FEDLHead(FlatTargets, TreeHead):
    """Flexible evidential learning (F-EDL; Yoon & Kim 2025).

    The probabilities of the leaves have a flexible Dirichlet distribution: draw a leaf from p, add
    τ to its concentration in α, and draw the probabilities from that Dirichlet. Here
    ``α = exp(·)``, ``p = softmax(·)`` and ``τ = softplus(·)`` of linear outputs. The loss is the
    expected squared error plus the squared error of p. Merged leaves are again a flexible
    Dirichlet, with sums of α and p.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    partial_labels : {"marginal", "soft", "drop"}
        How an ancestor label is used.
    """

    def __init__(self, taxonomy: Taxonomy, n_features: int, *, partial_labels: str) -> None:
        super().__init__(taxonomy, n_features, 2 * taxonomy.n_leaves + 1)
        self.partial_labels = partial_labels

    def parameters_of(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return α and p of the leaves, and τ: (n, n_leaves) twice, and (n, 1)."""
        log_alpha, log_allocation, extra = self._outputs(features)
        return log_alpha.exp(), log_allocation.exp(), F.softplus(extra)

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        log_alpha, log_allocation, extra = self._outputs(features)
        # Far below 0 softplus(x) is exp(x), and too small for a float.
        log_extra = torch.where(extra < -MAX_EXPONENT, extra, F.softplus(extra).log())
        return torch.logaddexp(log_alpha, log_extra + log_allocation).log_softmax(1)

    def _outputs(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log α, log p and the logit of τ."""
        n_leaves = self.segments.taxonomy.n_leaves
        of_alpha, of_allocation, extra = self.logits(features).split([n_leaves, n_leaves, 1], 1)
        return of_alpha.clamp(max=MAX_EXPONENT), of_allocation.log_softmax(1), extra

    def variance(self, features: Tensor) -> Tensor:
        """Return the variance of each leaf's probability: (n, n_leaves)."""
        alpha, allocation, extra = self.parameters_of(features)
        return _flexible_moments(alpha, allocation, extra, alpha.sum(1, keepdim=True) + extra)[1]

    def loss(self, features: Tensor, targets: LeafRanges, progress: float) -> Tensor:
        """Return the loss of each sample."""
        alpha, allocation, extra = self.parameters_of(features)
        inside, ignored = leaves_of_labels(targets, alpha.shape[1], self.partial_labels)
        present, target = cells_of(inside, self.partial_labels, alpha.dtype)
        total = alpha.sum(1, keepdim=True) + extra
        allocation = with_sum(allocation, inside)
        mean, variance = _flexible_moments(with_sum(alpha, inside), allocation, extra, total)
        error = (target - mean).square() + variance + (target - allocation).square()
        return (error * present).sum(1).masked_fill(ignored, 0.0)


def _flexible_moments(
    alpha: Tensor, allocation: Tensor, extra: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of a flexible Dirichlet (Ongaro & Migliorati 2013)."""
    mean = (alpha + extra * allocation) / total
    between = extra.square() * allocation * (1 - allocation) / total
    return mean, (mean * (1 - mean) + between) / (total + 1)
