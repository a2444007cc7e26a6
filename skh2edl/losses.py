"""Pure losses of a Dirichlet opinion and the schedule of their weights.

Each function takes one *segment* for every opinion it judges (a branching node on the way to a
sample's label) and returns one value a segment. Concentrations are ``alpha = e + W a``, with the
prior ``W a`` (`prior`); `strength` is their sum S; ``y`` is one-hot at the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SegmentSum = Callable[[Tensor], Tensor]

# Steps of the recurrence ψ₂(x) = ψ₂(x + 1) - 2 / x³ that take any x > 0 to where a series is exact.
_TETRAGAMMA_STEPS = 10
# Above this a series is exact to float64.
_SERIES_FROM = 16.0
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
# Steps of Γ(x + 1) = x Γ(x) that take any x > 0 to where Stirling's series is exact, and how many
# of these numbers that takes.
_STIRLING_STEPS = {torch.float32: 5, torch.float64: 8}
_STIRLING_TERMS = {torch.float32: 3, torch.float64: 7}
# As many numbers at once as the cache of a processor holds beside what is computed from them.
_BLOCK = 8192


def squared_risk(
    probability: Tensor, strength: Tensor, target: Tensor, segment_sum: SegmentSum
) -> Tensor:
    """Return the expected squared error, ``sum (y - p)^2 + sum p (1 - p) / (S + 1)``.

    This is equation 5 of Sensoy et al. (2018).

    Parameters
    ----------
    probability : Tensor of shape (n_entries,)
        Expected probabilities p.
    strength : Tensor of shape (n_segments,)
        S of each opinion.
    target : Tensor of shape (n_segments,)
        Entry of the true child.
    segment_sum : callable
        Adds up the entries of each segment.
    """
    squares = segment_sum(probability * probability)
    error = 1 - 2 * probability.index_select(0, target) + squares
    return error + (1 - squares) / (strength + 1)


def log_risk(alpha: Tensor, strength: Tensor, target: Tensor) -> Tensor:
    """Negative log of the expected probability, ``log S - log alpha_c`` (Sensoy 2018, eq. 3)."""
    return strength.log() - alpha.index_select(0, target).log()


def digamma_risk(alpha: Tensor, strength: Tensor, target: Tensor) -> Tensor:
    """Return the expected cross-entropy, ``psi(S) - psi(alpha_c)`` (Sensoy 2018, eq. 4)."""
    return torch.digamma(strength) - torch.digamma(alpha.index_select(0, target))


def misleading_evidence(
    alpha: Tensor, prior: Tensor, is_target: Tensor, segment_sum: SegmentSum
) -> Tensor:
    """Divergence of the evidence for wrong children from none, ``KL(Dir(alpha~) || Dir(W a))``.

    ``alpha~`` is alpha with the true child's evidence taken away.

    Parameters
    ----------
    alpha, prior : Tensor of shape (n_entries,)
        Concentrations and their prior part W a.
    is_target : Tensor of bool of shape (n_entries,)
        Which entries are true children; they contribute nothing of their own.
    segment_sum : callable
        Adds up the entries of each segment.
    """
    return dirichlet_divergence(torch.where(is_target, prior, alpha), prior, segment_sum)


def dirichlet_divergence(alpha: Tensor, prior: Tensor, segment_sum: SegmentSum) -> Tensor:
    """Return ``KL(Dir(alpha) || Dir(prior))``, sound in float32 for any concentration.

    With ``f(x, w) = lnΓ(x) - (x - w) ψ(x) + x`` the textbook form equals ``t(Σ alpha, Σ prior) -
    Σ t(alpha, prior)``, ``t(x, w) = f(x, w) - f(w, w)``: terms that grow like x and cancel are
    gone, only terms that grow like log x are left.

    Parameters
    ----------
    alpha, prior : Tensor of shape (n_entries,)
        Concentrations.
    segment_sum : callable
        Adds up the entries of each segment.
    """
    total = segment_sum(alpha)
    # All at once: for a small batch the number of operations counts, not their length.
    terms: Tensor = _DivergenceTerm.apply(
        torch.cat([alpha.flatten(), total.flatten()]),
        torch.cat([prior.flatten(), segment_sum(prior).flatten()]),
    )
    parts, whole = terms.tensor_split([alpha.numel()])
    return whole.view_as(total) - segment_sum(parts.view_as(alpha))


class _DivergenceTerm(torch.autograd.Function):
    """``t(x, w)`` above; its gradient in closed form spares half of the special functions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, prior: Tensor) -> Tensor:
        value, slope = divergence_term(x, prior)
        ctx.save_for_backward(x, prior, slope)
        return value - at_its_prior(prior)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, prior, slope = ctx.saved_tensors
        of_prior = None
        if ctx.needs_input_grad[1]:
            of_prior = gradient * (torch.digamma(x) - torch.digamma(prior) - 1)
        return gradient * slope, of_prior


def at_its_prior(prior: Tensor) -> Tensor:
    """Return what :func:`divergence_term` is where there is no evidence."""
    return torch.lgamma(prior).add_(prior)


def divergence_term(x: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``lnΓ(x) - (x - w) ψ(x) + x``, which grows like log(x), and its slope in x.

    Stirling's series some steps above x, and what the steps down from there take off. Terms that
    grow like x, or like 1 where the sum falls like 1 / x, cancel on paper.

    Parameters
    ----------
    x : Tensor of shape (n,)
        Positive.
    prior : Tensor of shape (n,)
        The prior part w of x.

    Returns
    -------
    value, slope : Tensor of shape (n,)
    """
    if x.device.type != "cpu" or x.numel() <= _BLOCK:
        return _divergence_term(x, prior)
    value, slope = torch.empty_like(x), torch.empty_like(x)
    for start in range(0, x.numel(), _BLOCK):
        block = slice(start, start + _BLOCK)
        value[block], slope[block] = _divergence_term(x[block], prior[block])
    return value, slope


def _divergence_term(x: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    # In place wherever it can be: for a small batch the number of operations counts.
    steps, steps_left, *lower, series = _stirling(x.dtype, x.device)
    reached = x + _STIRLING_STEPS[x.dtype]
    inverse = reached.reciprocal()
    for coefficient in reversed(lower):
        series = torch.addcmul(coefficient, series, inverse)
    log_gamma, digamma, trigamma = series
    on_way = x + steps
    inverses = on_way.reciprocal()
    shares = inverses * (prior + steps)
    above = x - prior

    value = torch.addcmul(log_gamma, above, digamma).addcmul_(prior - 0.5, reached.log())
    value -= shares.sum(0)
    value -= on_way.mul_(inverse).prod(0).log_()
    slope = shares.mul_(inverses).sum(0).addcmul_(above, trigamma, value=-1)
    slope.addcmul_(inverse, prior - inverses.mul_(steps_left).sum(0))
    return value, slope


@cache
def _stirling(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
    """Return the steps done and left, and the coefficients of three series in z = 1 / x.

    ``lnΓ = (x - 1/2) log x - x + L(z)``, ``ψ = log x - D(z)`` and ``ψ₁ = z + T(z)``: each tensor
    holds the three coefficients of one power, the lowest first.
    """
    n_terms, n_steps = _STIRLING_TERMS[dtype], _STIRLING_STEPS[dtype]
    table = torch.zeros(2 * n_terms + 2, 3, 1, dtype=torch.float64)
    table[0, 0] = math.log(2 * math.pi) / 2
    table[1, 1] = table[2, 2] = 1 / 2
    for k, number in enumerate(_BERNOULLI[:n_terms], 1):
        table[2 * k - 1, 0] = number / (2 * k * (2 * k - 1))
        table[2 * k, 1] = number / (2 * k)
        table[2 * k + 1, 2] = number
    steps = torch.arange(n_steps, dtype=torch.float64)[:, None]
    tensors = (steps, n_steps - steps, *table.unbind())
    return tuple(tensor.to(device, dtype) for tensor in tensors)


def trigamma(x: Tensor) -> Tensor:
    """Return ``ψ₁(x)``, with a derivative that is a short series.

    Parameters
    ----------
    x : Tensor
        Positive.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> trigamma(x).backward()  # -2 ζ(3)
    >>> x.grad
    tensor(-2.4041)
    """
    return _Trigamma.apply(x)  # type: ignore[no-any-return]


class _Trigamma(torch.autograd.Function):
    """ψ₁; torch's own derivative goes through the zeta function, 20 times as slow."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.polygamma(1, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        steps = torch.zeros_like(x)
        for k in range(_TETRAGAMMA_STEPS):
            inverse = (x + k).reciprocal_()
            steps += inverse * inverse * inverse
        inverse = 1 / (x + _TETRAGAMMA_STEPS)
        square = inverse * inverse
        tail = 1 / 6 - square * (1 / 6 - square * (3 / 10 - square * (5 / 6 - square * 691 / 210)))
        series = square * (1 + inverse + square * (1 / 2 - square * tail))
        return -gradient * (2 * steps + series)


def log_det_fisher(alpha: Tensor, present: Tensor) -> Tensor:
    """Return the log determinant of the Fisher information of each row's Dirichlet.

    With ``h(x) = x - 1 / ψ₁(x)`` the textbook form ``Σ log ψ₁(α) + log(1 - Σ ψ₁(S) / ψ₁(α))``
    equals ``Σ log ψ₁(α) + log ψ₁(S) + log(Σ h(α) - h(S))``, in which nothing cancels.

    Parameters
    ----------
    alpha : Tensor of shape (n, n_cells)
        Concentrations.
    present : Tensor of bool of shape (n, n_cells)
        Which cells the Dirichlet of the row has, two at least.

    Examples
    --------
    >>> import torch
    >>> log_det_fisher(torch.tensor([[1.0, 1.0]]), torch.tensor([[True, True]])).exp()
    tensor([0.5841])
    """
    strength = (alpha * present).sum(-1)
    logs = (trigamma(alpha).log() * present).sum(-1)
    rest = (_trigamma_gap(alpha) * present).sum(-1) - _trigamma_gap(strength)
    return logs + trigamma(strength).log() + rest.log()


def _trigamma_gap(x: Tensor) -> Tensor:
    """Return ``x - 1 / ψ₁(x)``, which lies between 0 and 1/2."""
    is_low = x < _SERIES_FROM
    low, high = x.clamp(max=_SERIES_FROM), x.clamp(min=_SERIES_FROM / 2)
    inverse = 1 / high
    square = inverse * inverse
    # x ψ₁(x) = 1 + rest / x
    tail = 1 / 6 - square * (1 / 30 - square * (1 / 42 - square * (1 / 30 - square * (5 / 66))))
    rest = 1 / 2 + inverse * tail
    return torch.where(is_low, low - 1 / trigamma(low), rest / (1 + rest * inverse))


def rising_doubt(probability: Tensor, vacuity: Tensor, has_previous: Tensor) -> Tensor:
    """Consistency, ``stopgrad(p_{v,c}) max(0, u_w - u_v)`` for consecutive nodes v, w of a way.

    Parameters
    ----------
    probability : Tensor of shape (n_segments,)
        Probability of the true child at each node.
    vacuity : Tensor of shape (n_segments,)
        Vacuity u of each node.
    has_previous : Tensor of bool of shape (n_segments,)
        Whether the segment before is an earlier node on the same way.
    """
    rise = torch.zeros_like(vacuity)
    rise[1:] = probability.detach()[:-1] * torch.relu(vacuity[1:] - vacuity[:-1])
    return rise * has_previous


def annealed(weight: float, epochs_done: float, annealing_epochs: float) -> float:
    """Raise a weight linearly from 0 to its full value.

    Parameters
    ----------
    weight : float
        The full value.
    epochs_done : float
        Epochs trained so far, with fractions.
    annealing_epochs : float
        When the full value is reached; 0 means from the start.

    Examples
    --------
    >>> [annealed(0.5, epoch, 10) for epoch in (0, 5, 10, 20)]
    [0.0, 0.25, 0.5, 0.5]
    """
    return weight if annealing_epochs <= 0 else weight * min(1.0, epochs_done / annealing_epochs)
