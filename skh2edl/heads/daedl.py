"""DAEDL: evidence that a density of the features takes back far from the training samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ..taxonomy.taxonomy import Taxonomy
from . import losses
from .base import FlatTargets, LeafRanges, TreeHead
from .evidence import EVIDENCE_FUNCTIONS
from .evidential import cells_of, leaves_of_labels, sum_last, with_sum
from .familiarity import constant, squared_distance

_concentration = EVIDENCE_FUNCTIONS["exp"]

# Where a logit is very low, as in the authors' code.
_LEAST_CONCENTRATION = 1e-6
# The best leaf is still the best where all are about equally likely.
_LEAST_DENSITY = 1e-5


class DAEDLHead(FlatTargets, TreeHead):
    """Density-aware evidential learning (DAEDL; Yoon & Kim 2024).

    Trained with ``α = exp(logit)``, the squared risk and a KL regulariser that is not annealed. A
    prediction multiplies the logits by the density of its feature: the sum of one Gaussian for
    each leaf, all of the same covariance; its logarithm is brought to [0, 1] by the least and the
    greatest one of the training samples, each without its own part in the estimate. Far from them
    every leaf is about equally likely.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    kl_weight : float
        Weight of the KL regulariser.
    shrinkage : float
        Fraction of the covariance replaced by its mean variance times the identity.
    partial_labels : {"marginal", "soft", "drop"}
        How an ancestor label is used. The density is of samples labelled with a leaf.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        *,
        kl_weight: float,
        shrinkage: float,
        partial_labels: str,
    ) -> None:
        super().__init__(taxonomy, n_features, taxonomy.n_leaves)
        self.kl_weight = kl_weight
        self.shrinkage = shrinkage
        self.partial_labels = partial_labels
        self.has_density = constant(torch.zeros(taxonomy.n_leaves))
        self.leaf_mean = constant(torch.zeros(taxonomy.n_leaves, n_features))
        self.whitening = constant(torch.eye(n_features))
        self.density_range = constant(torch.tensor([0.0, 1.0]))

    def loss(self, features: Tensor, targets: LeafRanges, progress: float) -> Tensor:
        """Return the loss of each sample, without the density."""
        alpha = _concentration(self.logits(features)) + _LEAST_CONCENTRATION
        inside, ignored = leaves_of_labels(targets, alpha.shape[1], self.partial_labels)
        present, target = cells_of(inside, self.partial_labels, alpha.dtype)
        strength = alpha.sum(1, keepdim=True)
        p = with_sum(alpha, inside) * present / strength
        loss = ((target - p).square() + p * (1 - p) / (strength + 1)).sum(1)
        if self.kl_weight > 0:
            ones = torch.ones_like(alpha)
            kept = torch.where(inside, ones, alpha)
            loss = loss + self.kl_weight * losses.dirichlet_kl(kept, ones, sum_last)
        return loss.masked_fill(ignored, 0.0)

    @torch.no_grad()
    def fit_density(self, features: Tensor, leaf: Tensor, weight: Tensor) -> None:
        """Estimate the Gaussians; without samples the density stays out of the predictions.

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            Features as the head reads them.
        leaf : Tensor of int of shape (n,)
            Position of each sample's leaf in tree order.
        weight : Tensor of shape (n,)
            Positive weights, which count as so many samples.
        """
        x, w = features.double(), weight.double()
        n_leaves, n_features = self.leaf_mean.shape
        total = x.new_zeros(n_leaves).index_add(0, leaf, w)
        mean = x.new_zeros(n_leaves, n_features).index_add(0, leaf, w[:, None] * x)
        mean = torch.where(total[:, None] > 0, mean / total[:, None], 0.0)
        self.has_density.copy_(total > 0)
        self.leaf_mean.copy_(mean)
        if not len(x):
            return
        rest = x - mean[leaf]
        covariance = (w[:, None] * rest).T @ rest / w.sum()
        variance = covariance.diagonal().mean()
        covariance *= 1 - self.shrinkage
        covariance.diagonal().add_(self.shrinkage * torch.where(variance > 0, variance, 1.0))
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            raise ValueError(
                f"The covariance of {n_features} features cannot be inverted: {len(x)} samples "
                f"are too few for shrinkage={self.shrinkage}. Raise shrinkage."
            )
        identity = torch.eye(n_features, dtype=factor.dtype, device=factor.device)
        whitening = torch.linalg.solve_triangular(factor, identity, upper=False)
        self.whitening.copy_(whitening)
        density = self._leave_one_out_density(x @ whitening.T, mean @ whitening.T, leaf, w)
        density += whitening.diagonal().log().sum()
        self.density_range.copy_(torch.stack([density.min(), density.max()]))

    def _leave_one_out_density(self, x: Tensor, mean: Tensor, leaf: Tensor, w: Tensor) -> Tensor:
        """Return the leave-one-out log-density of each training sample.

        In closed form, with whitened features: its own weight, or 1 of it, leaves the mean of its
        leaf and, by the formula of Sherman and Morrison, the covariance. Among fewer samples than
        features its density would be far above that of any new sample otherwise.
        """
        own = x - mean[leaf]
        total = w.new_zeros(len(mean)).index_add(0, leaf, w)[leaf]
        removed = w.clamp(max=1)
        left = total - removed
        grown = total / left.clamp(min=torch.finfo(w.dtype).eps)
        a = own.square().sum(1)
        g = (1 - self.shrinkage) * removed * grown / w.sum()
        g = torch.where(left > 0, g, 0.0)
        across = (x * own).sum(1, keepdim=True) - own @ mean.T
        distance = squared_distance(x, mean)
        distance += (g / (1 - g * a))[:, None] * across.square()
        distance[torch.arange(len(x)), leaf] = grown.square() * a / (1 - g * a)
        absent = (self.has_density == 0).expand_as(distance).clone()
        absent[torch.arange(len(x)), leaf] = left <= 0
        logs = (-distance / 2).masked_fill(absent, -torch.inf).logsumexp(1)
        return logs.clamp(min=torch.finfo(torch.float32).min) - torch.log1p(-g * a) / 2

    def density(self, features: Tensor) -> Tensor:
        """Return the normalised density of each feature: (n,)."""
        low, high = self.density_range
        x = features.to(self.leaf_mean.dtype) @ self.whitening.T
        distance = squared_distance(x, self.leaf_mean @ self.whitening.T)
        logs = (-distance / 2).masked_fill(self.has_density == 0, -torch.inf)
        log_density = logs.logsumexp(1) + self.whitening.diagonal().log().sum()
        part = (log_density - low) / (high - low).clamp(min=torch.finfo(low.dtype).tiny)
        part = torch.where(self.has_density.sum() > 0, part, 1.0)
        return part.clamp(_LEAST_DENSITY, 1.0)

    def _scaled_logits(self, features: Tensor) -> Tensor:
        return self.logits(features) * self.density(features)[:, None]

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        return self._scaled_logits(features).log_softmax(1)

    def variance(self, features: Tensor) -> Tensor:
        """Return the variance of each leaf's probability: (n, n_leaves)."""
        alpha = _concentration(self._scaled_logits(features))
        strength = alpha.sum(1, keepdim=True)
        p = alpha / strength
        return p * (1 - p) / (strength + 1)
