"""The default loss of opinions along the ways to the labels, with its gradient in closed form.

Term by term, dozens of small operations and their gradients would take as long as the read-out of
all features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import losses
from .segments import Paths, TreeSegments

# How many products take as long as adding one number to another.
_COST_OF_AN_ADDITION = 25


def log_risk_and_divergence(
    evidence: Tensor,
    prior: Tensor,
    prior_weight: Tensor,
    paths: Paths,
    risk_weight: Tensor,
    kl_weight: Tensor | None,
) -> Tensor:
    """Return the weighted log risk and divergence of misleading evidence of each sample.

    Parameters
    ----------
    evidence, prior : Tensor of shape (n_entries,)
        Evidence e and prior concentrations W a; the second gets no gradient.
    prior_weight : Tensor of shape (n_segments,)
        Prior weight W of each node.
    paths : Paths
        The ways.
    risk_weight : Tensor of shape (n_segments,)
        Weight of :func:`losses.log_risk`.
    kl_weight : Tensor of shape (n_segments,) or None
        Weight of :func:`losses.misleading_evidence`; None leaves it out.

    Returns
    -------
    loss : Tensor of shape (n_samples,)
    """
    return _LogRiskAndDivergence.apply(  # type: ignore[no-any-return]
        evidence, prior, prior_weight, paths, risk_weight, kl_weight
    )


class _LogRiskAndDivergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        evidence: Tensor,
        prior: Tensor,
        prior_weight: Tensor,
        paths: Paths,
        risk_weight: Tensor,
        kl_weight: Tensor | None,
    ) -> Tensor:
        target, n_entries = paths.target, evidence.shape[0]
        true_evidence, true_prior = evidence.index_select(0, target), prior.index_select(0, target)
        true_alpha = true_evidence + true_prior
        # Without the evidence of the true child; taken off the sum it would leave its rounding.
        misleading = (evidence + prior).index_copy_(0, target, true_prior)
        total = paths.segment_sum(misleading)
        strength = total + true_evidence
        loss = (strength / true_alpha).log_().mul_(risk_weight)
        of_segment = risk_weight / strength
        if kl_weight is None:
            gradient = paths.spread(of_segment)
        else:
            priors = torch.cat([prior, prior_weight])
            term, slope = losses.divergence_term(torch.cat([misleading, total]), priors)
            term -= losses.at_its_prior(priors)
            divergence = term[n_entries:] - paths.segment_sum(term[:n_entries])
            loss.addcmul_(kl_weight, divergence)
            gradient = paths.spread(torch.addcmul(of_segment, kl_weight, slope[n_entries:]))
            gradient.addcmul_(paths.spread(kl_weight), slope[:n_entries], value=-1)
        gradient.index_copy_(0, target, of_segment.sub_(risk_weight / true_alpha))
        ctx.row = paths.row
        ctx.save_for_backward(gradient)
        return paths.sample_sum(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * of_loss.index_select(0, ctx.row), None, None, None, None, None


def nested_evidence(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    scale: Tensor,
    evidence: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor, Tensor], Tensor],
    segments: TreeSegments,
    paths: Paths,
) -> Tensor:
    """Count evidence at the leaves, and add it up for the decisions on the ways to the labels.

    A leaf's logit is the sum of the rows on its way.

    Parameters
    ----------
    features : Tensor of shape (n, n_features)
        What the backbone says of each sample.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The read-out.
    scale : Tensor
        Factor of the evidence.
    evidence : callable
        From logits to evidence.
    slope : callable
        From logits and their evidence to its derivative.
    segments : TreeSegments
        The tree.
    paths : Paths
        The ways.

    Returns
    -------
    evidence : Tensor of shape (n_entries,)
    """
    return _NestedEvidence.apply(  # type: ignore[no-any-return]
        features, weight, bias, scale, evidence, slope, segments, paths
    )


class _NestedEvidence(torch.autograd.Function):
    """All sums go by rows, a sample a column: down the tree for logits, up for evidence."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        scale: Tensor,
        evidence: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor, Tensor], Tensor],
        segments: TreeSegments,
        paths: Paths,
    ) -> Tensor:
        n_decisions, n_leaves = segments.parent.shape[0], segments.leaf_decision.shape[0]
        # A sum of rows is linear: of many samples, the weights are added up instead of the logits.
        spared = features.shape[0] * (n_decisions - n_leaves)
        ctx.weights_first = spared > _COST_OF_AN_ADDITION * n_decisions
        if ctx.weights_first:
            weight = segments.leaf_rows(weight.clone())
            leaf_bias = segments.leaf_rows(bias[:, None].clone())
            logits = torch.mm(weight, features.T).add_(leaf_bias)
        else:
            logits = segments.leaf_rows(torch.mm(weight, features.T).add_(bias[:, None]))
        leaves = evidence(logits)
        slope_of_leaves = slope(logits, leaves).mul_(scale)
        leaves = leaves.mul_(scale)
        ctx.segments, ctx.paths = segments, paths
        ctx.save_for_backward(features, weight, slope_of_leaves, leaves, scale)
        return paths.gather_rows(segments.rows_below(leaves))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, slope, leaves, scale = ctx.saved_tensors
        segments: TreeSegments = ctx.segments
        rows = slope.new_zeros(segments.parent.shape[0], slope.shape[1])
        rows.view(-1).index_copy_(0, ctx.paths.place_in_rows, gradient)
        of_leaves = segments.leaf_rows(rows)
        of_scale = (of_leaves * leaves).sum() / scale if ctx.needs_input_grad[3] else None
        of_logits = of_leaves.mul_(slope)
        if not ctx.weights_first:
            of_logits = segments.rows_below(of_logits)
        of_weight, of_bias = torch.mm(of_logits, features), of_logits.sum(1, keepdim=True)
        if ctx.weights_first:
            of_weight, of_bias = segments.rows_below(of_weight), segments.rows_below(of_bias)
        of_features = torch.mm(of_logits.T, weight) if ctx.needs_input_grad[0] else None
        return of_features, of_weight, of_bias.squeeze(1), of_scale, None, None, None, None
