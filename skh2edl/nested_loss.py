"""Evidence that is counted at the leaves and adds up on the way to the root, and its log risk.

The gradients are in closed form, as those of :mod:`skh2edl.opinion_loss`. All sums go by rows, a
sample a column: down the tree for logits, up for evidence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .layouts import Paths, Ways
from .opinion_loss import ReadOut
from .path_read_out import once_only
from .segments import TreeSegments

# How many products take as long as adding one number to another.
_COST_OF_AN_ADDITION = 25


def nested_evidence(read_out: ReadOut, segments: TreeSegments, paths: Paths) -> Tensor:
    """Count evidence at the leaves, and add it up for the decisions on the ways to the labels.

    Parameters
    ----------
    read_out : ReadOut
        Of all decisions; a leaf's logit is the sum of the rows on its way.
    segments : TreeSegments
        The tree.
    paths : Paths
        The ways.

    Returns
    -------
    evidence : Tensor of shape (n_entries,)
    """
    return _NestedEvidence.apply(*read_out, segments, paths)  # type: ignore[no-any-return]


class _NestedEvidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *read_out, ctx.segments, ctx.paths = inputs
        leaves = _read_leaves(ctx, ReadOut(*read_out))
        rows = ctx.segments.rows_below(leaves)
        ctx.counted = ctx.paths.gather_rows(rows)
        return ctx.counted * ctx.scale

    @staticmethod
    @once_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        segments: TreeSegments = ctx.segments
        of_scale = gradient.dot(ctx.counted) if ctx.needs_input_grad[3] else None
        rows = gradient.new_zeros(segments.parent.shape[0], ctx.paths.n_samples)
        rows.view(-1).index_copy_(0, ctx.paths.place_in_rows, gradient * ctx.scale)
        of_read_out = _back_to_features(ctx, segments.leaf_rows(rows))
        return *of_read_out, of_scale, *[None] * 3


def nested_log_risk(
    read_out: ReadOut,
    segments: TreeSegments,
    ways: Ways,
    priors: Tensor,
    speaks: Tensor,
    risk_weight: Tensor | float,
) -> Tensor:
    """Return the weighted log risk of each sample where evidence is counted at the leaves.

    All evidence at a node is what came there from the node above, so that siblings of the nodes on
    the ways to the labels need not be looked at.

    Parameters
    ----------
    read_out : ReadOut
        Of all decisions; a leaf's logit is the sum of the rows on its way.
    segments : TreeSegments
        The tree.
    ways : Ways
        The ways.
    priors : Tensor of shape (2, n_segments)
        Prior concentration W a of the decision that the label makes at each node, and the prior
        weight W there.
    speaks : Tensor of shape (n_segments,)
        1 where a node has evidence, 0 where it has none.
    risk_weight : Tensor of shape (n_segments,) or float
        Weight of :func:`losses.log_risk`.

    Returns
    -------
    loss : Tensor of shape (n_samples,)
    """
    return _NestedLogRisk.apply(  # type: ignore[no-any-return]
        *read_out, segments, ways, priors, speaks, risk_weight
    )


class _NestedLogRisk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *read_out, ctx.segments, ways, priors, speaks, risk_weight = inputs
        leaves = _read_leaves(ctx, ReadOut(*read_out))
        rows = ctx.segments.rows_below(leaves, with_root=True)
        # What the label chose at each node, and what had come there; the root's row is the first.
        before = ctx.segments.parent.index_select(0, ways.chosen)
        passed = torch.stack([ways.chosen, before]).add_(1)
        ctx.place = passed.mul_(ways.n_samples).add_(ways.sample).view(-1)
        counted = rows.view(-1).index_select(0, ctx.place).view(2, -1)
        factor = speaks * ctx.scale
        concentration = torch.addcmul(priors, counted, factor)
        inverse = risk_weight / concentration
        inverse[0].neg_()
        ctx.of_counted = inverse * factor
        ctx.of_factor = inverse.mul_(counted).mul_(speaks) if ctx.needs_input_grad[3] else None
        ctx.sample = ways.sample
        alpha, strength = concentration
        loss: Tensor = ways.sample_sum((strength / alpha).log_().mul_(risk_weight))
        return loss

    @staticmethod
    @once_only
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        segments: TreeSegments = ctx.segments
        of_segment = of_loss.index_select(0, ctx.sample)
        of_scale = None if ctx.of_factor is None else (ctx.of_factor * of_segment).sum()
        rows = of_loss.new_zeros(1 + segments.parent.shape[0], of_loss.shape[0])
        of_counted = (ctx.of_counted * of_segment).view(-1)
        # Twice, where what was chosen at one node came to the next.
        rows.view(-1).index_add_(0, ctx.place, of_counted)
        of_read_out = _back_to_features(ctx, segments.leaf_rows(rows, with_root=True))
        return *of_read_out, of_scale, *[None] * 6


def _read_leaves(ctx: Any, read_out: ReadOut) -> Tensor:
    """Return the evidence of the leaves before it is scaled, (n_leaves, n).

    What the way back needs is kept.
    """
    features, weight, bias, ctx.scale, to_evidence = read_out
    segments: TreeSegments = ctx.segments
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
    leaves, slope = to_evidence(logits)
    ctx.save_for_backward(features, weight, slope)
    return leaves


def _back_to_features(ctx: Any, of_leaves: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of features, weight and bias; that of the leaves is lost."""
    features, weight, slope = ctx.saved_tensors
    segments: TreeSegments = ctx.segments
    of_logits = of_leaves.mul_(slope)
    if not ctx.weights_first:
        of_logits = segments.rows_below(of_logits)
    of_weight, of_bias = torch.mm(of_logits, features), of_logits.sum(1, keepdim=True)
    if ctx.weights_first:
        of_weight, of_bias = segments.rows_below(of_weight), segments.rows_below(of_bias)
    of_features = torch.mm(of_logits.T, weight) if ctx.needs_input_grad[0] else None
    return of_features, of_weight, of_bias.squeeze(1)
