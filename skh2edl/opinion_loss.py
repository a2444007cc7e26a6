"""The default loss of opinions along the ways to the labels, with its gradient in closed form.

Term by term, dozens of small operations and their gradients would take as long as the read-out of
all features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import losses
from .segments import Paths


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
        target = paths.target
        true_evidence, true_prior = evidence.index_select(0, target), prior.index_select(0, target)
        true_alpha = true_evidence + true_prior
        # Without the evidence of the true child; taken off the sum it would leave its rounding.
        misleading = (evidence + prior).index_copy_(0, target, true_prior)
        total = paths.segment_sum(misleading)
        strength = total + true_evidence
        loss = risk_weight * (strength.log() - true_alpha.log())
        of_segment = risk_weight / strength
        if kl_weight is None:
            gradient = paths.spread(of_segment)
        else:
            n_entries = len(evidence)
            priors = torch.cat([prior, prior_weight])
            term, slope = losses.divergence_term(torch.cat([misleading, total]), priors)
            term = term.sub_(torch.lgamma(priors)).sub_(priors)
            loss += kl_weight * (term[n_entries:] - paths.segment_sum(term[:n_entries]))
            gradient = paths.spread(of_segment + kl_weight * slope[n_entries:])
            gradient -= paths.spread(kl_weight) * slope[:n_entries]
        gradient.index_copy_(0, target, of_segment - risk_weight / true_alpha)
        ctx.paths = paths
        ctx.save_for_backward(gradient)
        return paths.sample_sum(loss)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_loss: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        of_evidence = gradient * of_loss.index_select(0, ctx.paths.row)
        return of_evidence, None, None, None, None, None
