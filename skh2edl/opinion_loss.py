"""The log risk of opinions along the ways to the labels, with its gradient in closed form.

Term by term, dozens of small operations and their gradients would take as long as the read-out of
all features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import losses
from .layouts import Paths
from .path_read_out import once_only, path_gradients, path_logits


class RiskTerms(NamedTuple):
    """What the loss of some ways needs beside the evidence.

    Attributes
    ----------
    prior : Tensor of shape (n_entries,)
        Prior concentrations W a.
    risk_weight : Tensor of shape (n_segments,) or float
        Weight of :func:`losses.log_risk`.
    divergence : tuple of Tensor of shape (n_segments,) or None
        Weight of :func:`losses.misleading_evidence`, and the prior weight W of each node; None
        leaves it out.
    """

    prior: Tensor
    risk_weight: Tensor | float
    divergence: tuple[Tensor, Tensor] | None


def log_risk_and_divergence(evidence: Tensor, paths: Paths, terms: RiskTerms) -> Tensor:
    """Return the weighted log risk and divergence of misleading evidence of each sample.

    Parameters
    ----------
    evidence : Tensor of shape (n_entries,)
        Evidence for the decisions on the ways.
    paths : Paths
        The ways.
    terms : RiskTerms
        Priors and weights, which get no gradient.

    Returns
    -------
    loss : Tensor of shape (n_samples,)
    """
    return _LogRiskAndDivergence.apply(evidence, paths, terms)  # type: ignore[no-any-return]


class _LogRiskAndDivergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, evidence: Tensor, paths: Paths, terms: RiskTerms) -> Tensor:
        loss, gradient = _risk_and_gradient(evidence, paths, terms)
        ctx.row = paths.row
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_only
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * of_loss.index_select(0, ctx.row), None, None


def _risk_and_gradient(evidence: Tensor, paths: Paths, terms: RiskTerms) -> tuple[Tensor, Tensor]:
    """Return the loss of each sample and its derivative by the evidence of each entry."""
    prior, risk_weight, of_divergence = terms
    target, alpha = paths.target, evidence + prior
    true_alpha = alpha.index_select(0, target)
    if of_divergence is None:
        strength = paths.segment_sum(alpha)
    else:
        # Without the evidence of the true child; taken off the sum it would leave its rounding.
        misleading = alpha.index_copy_(0, target, prior.index_select(0, target))
        total = paths.segment_sum(misleading)
        strength = total + evidence.index_select(0, target)
    loss = (strength / true_alpha).log_().mul_(risk_weight)
    of_segment = risk_weight / strength
    if of_divergence is None:
        gradient = paths.spread(of_segment)
    else:
        kl_weight, prior_weight = of_divergence
        n_entries = evidence.shape[0]
        priors = torch.cat([prior, prior_weight])
        term, slope = losses.divergence_term(torch.cat([misleading, total]), priors)
        term -= losses.at_its_prior(priors)
        divergence = term[n_entries:] - paths.segment_sum(term[:n_entries])
        loss.addcmul_(kl_weight, divergence)
        gradient = paths.spread(torch.addcmul(of_segment, kl_weight, slope[n_entries:]))
        gradient.addcmul_(paths.spread(kl_weight), slope[:n_entries], value=-1)
    gradient.index_copy_(0, target, of_segment.sub_(risk_weight / true_alpha))
    return paths.sample_sum(loss), gradient


class ReadOut(NamedTuple):
    """What evidence is counted from.

    Attributes
    ----------
    features : Tensor of shape (n, n_features)
        What the backbone says of each sample.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The read-out.
    scale : Tensor
        Factor of the evidence.
    to_evidence : callable
        From logits to evidence and its derivative.
    """

    features: Tensor
    weight: Tensor
    bias: Tensor
    scale: Tensor
    to_evidence: Callable[[Tensor], tuple[Tensor, Tensor]]


def log_risk_of_paths(
    read_out: ReadOut, paths: Paths, speaks: Tensor, terms: RiskTerms, sparse: bool
) -> Tensor:
    """Return what :func:`log_risk_and_divergence` returns, where each decision has its own row.

    Parameters
    ----------
    read_out : ReadOut
        Of all decisions.
    paths : Paths
        The ways.
    speaks : Tensor of shape (n_entries,)
        1 where a decision has evidence, 0 where it has none.
    terms : RiskTerms
        Priors and weights, which get no gradient.
    sparse : bool
        Whether the gradient of the weight may hold only the rows that were read.
    """
    return _LogRiskOfPaths.apply(  # type: ignore[no-any-return]
        *read_out, paths, speaks, terms, sparse
    )


class _LogRiskOfPaths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        features, weight, bias, scale, to_evidence, ctx.paths, speaks, terms, ctx.sparse = inputs
        unscaled, slope = to_evidence(path_logits(features, weight, bias, ctx.paths))
        factor = speaks * scale
        evidence = unscaled * factor
        loss, gradient = _risk_and_gradient(evidence, ctx.paths, terms)
        of_logits = slope.mul_(factor).mul_(gradient)
        of_scale = gradient.mul_(unscaled).mul_(speaks) if ctx.needs_input_grad[3] else None
        ctx.save_for_backward(features, weight, of_logits, of_scale)
        return loss

    @staticmethod
    @once_only
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, of_logits, of_scale = ctx.saved_tensors
        of_entry = of_loss.index_select(0, ctx.paths.row)
        of_read_out = path_gradients(
            of_logits * of_entry,
            features,
            weight,
            ctx.paths,
            sparse=ctx.sparse,
            of_features=ctx.needs_input_grad[0],
        )
        if of_scale is not None:
            of_scale = of_scale.dot(of_entry)
        return *of_read_out, of_scale, *[None] * 5
