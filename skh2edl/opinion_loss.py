"""The default loss of opinions along the ways to the labels, with its gradient in closed form.

Term by term, dozens of small operations and their gradients would take as long as the read-out of
all features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


class LeafReadOut(NamedTuple):
    """What evidence is counted from at the leaves, whose logits are sums of the rows on their ways.

    Attributes
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
    """

    features: Tensor
    weight: Tensor
    bias: Tensor
    scale: Tensor
    evidence: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    segments: TreeSegments


def nested_evidence(read_out: LeafReadOut, paths: Paths) -> Tensor:
    """Count evidence at the leaves, and add it up for the decisions on the ways to the labels.

    Parameters
    ----------
    read_out : LeafReadOut
        Of all leaves.
    paths : Paths
        The ways.

    Returns
    -------
    evidence : Tensor of shape (n_entries,)
    """
    return _NestedEvidence.apply(*read_out, paths)  # type: ignore[no-any-return]


class _NestedEvidence(torch.autograd.Function):
    """All sums go by rows, a sample a column: down the tree for logits, up for evidence."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *read_out, ctx.paths = inputs
        leaves = _read_leaves(ctx, LeafReadOut(*read_out))
        rows: Tensor = ctx.paths.gather_rows(ctx.segments.rows_below(leaves))
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        segments: TreeSegments = ctx.segments
        rows = gradient.new_zeros(segments.parent.shape[0], ctx.paths.n_samples)
        rows.view(-1).index_copy_(0, ctx.paths.place_in_rows, gradient)
        return *_back_to_features(ctx, segments.leaf_rows(rows)), None, None, None, None


def nested_log_risk(
    read_out: LeafReadOut,
    paths: Paths,
    priors: tuple[Tensor, Tensor],
    supervised: Tensor,
    risk_weight: Tensor,
) -> Tensor:
    """Return the weighted log risk of each sample where evidence is counted at the leaves.

    All evidence at a node is what came there from the node above, so that siblings of the nodes on
    the ways to the labels need not be looked at.

    Parameters
    ----------
    read_out : LeafReadOut
        Of all leaves.
    paths : Paths
        The ways.
    priors : tuple of Tensor of shape (n_segments,)
        Prior concentration W a of the decision that the label makes at each node, and the prior
        weight W there.
    supervised : Tensor of shape (n_segments,)
        1 where a node has evidence, 0 where it has none.
    risk_weight : Tensor of shape (n_segments,)
        Weight of :func:`losses.log_risk`.

    Returns
    -------
    loss : Tensor of shape (n_samples,)
    """
    return _NestedLogRisk.apply(  # type: ignore[no-any-return]
        *read_out, paths, priors, supervised, risk_weight
    )


class _NestedLogRisk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *read_out, paths, priors, supervised, risk_weight = inputs
        leaves = _read_leaves(ctx, LeafReadOut(*read_out))
        rows, goes_on = ctx.segments.rows_below(leaves), paths.has_previous
        ctx.place = paths.place_in_rows.index_select(0, paths.target)
        chosen = rows.view(-1).index_select(0, ctx.place)
        # Of the decision before, or of all leaves at the first.
        arriving = torch.where(goes_on, chosen.roll(1), leaves.sum(0).index_select(0, paths.sample))
        alpha = torch.addcmul(priors[0], chosen, supervised)
        strength = torch.addcmul(priors[1], arriving, supervised)
        of_alpha, of_strength = supervised * risk_weight / torch.stack([alpha, strength])
        passed_on = torch.where(goes_on, of_strength, 0.0).roll(-1)
        ctx.sample, ctx.n_samples = paths.sample, paths.n_samples
        ctx.of_chosen, ctx.of_all = passed_on - of_alpha, torch.where(goes_on, 0.0, of_strength)
        loss: Tensor = paths.sample_sum((strength / alpha).log_().mul_(risk_weight))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        segments: TreeSegments = ctx.segments
        of_segment = of_loss.index_select(0, ctx.sample)
        rows = of_loss.new_zeros(segments.parent.shape[0], ctx.n_samples)
        rows.view(-1).index_copy_(0, ctx.place, ctx.of_chosen * of_segment)
        of_all = torch.zeros_like(of_loss).index_add_(0, ctx.sample, ctx.of_all * of_segment)
        of_leaves = segments.leaf_rows(rows).add_(of_all)
        return *_back_to_features(ctx, of_leaves), *[None] * 7


def _read_leaves(ctx: Any, read_out: LeafReadOut) -> Tensor:
    """Return the evidence of the leaves, (n_leaves, n), and keep what the way back needs."""
    features, weight, bias, scale, evidence, slope, segments = read_out
    n_decisions, n_leaves = segments.parent.shape[0], segments.leaf_decision.shape[0]
    # A sum of rows is linear: of many samples, the weights are added up instead of the logits.
    spared = features.shape[0] * (n_decisions - n_leaves)
    ctx.weights_first = spared > _COST_OF_AN_ADDITION * n_decisions
    if ctx.weights_first:
        weight = segments.leaf_rows(weight.clone())
        leaf_bias = segments.leaf_rows(bias[:, None].clone())
        logits = torch.addmm(leaf_bias, weight, features.T)
    else:
        logits = segments.leaf_rows(torch.addmm(bias[:, None], weight, features.T))
    leaves = evidence(logits)
    slope_of_leaves = slope(logits, leaves).mul_(scale)
    leaves = leaves.mul_(scale)
    ctx.segments = segments
    ctx.save_for_backward(features, weight, slope_of_leaves, leaves, scale)
    return leaves


def _back_to_features(ctx: Any, of_leaves: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of features, weight, bias and scale; that of the leaves is lost."""
    features, weight, slope, leaves, scale = ctx.saved_tensors
    segments: TreeSegments = ctx.segments
    of_scale = (of_leaves * leaves).sum() / scale if ctx.needs_input_grad[3] else None
    of_logits = of_leaves.mul_(slope)
    if not ctx.weights_first:
        of_logits = segments.rows_below(of_logits)
    of_weight, of_bias = torch.mm(of_logits, features), of_logits.sum(1, keepdim=True)
    if ctx.weights_first:
        of_weight, of_bias = segments.rows_below(of_weight), segments.rows_below(of_bias)
    of_features = torch.mm(of_logits.T, weight) if ctx.needs_input_grad[0] else None
    return of_features, of_weight, of_bias.squeeze(1), of_scale
