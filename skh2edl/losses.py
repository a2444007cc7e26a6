"""Pure losses of a Dirichlet opinion and the schedule of their weights.

Each function takes one *segment* for every opinion it judges (a branching node on the way to a
sample's label) and returns one value a segment. Concentrations are ``alpha = e + W a``, with the
prior ``W a`` (`prior`); `strength` is their sum S; ``y`` is one-hot at the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SegmentSum = Callable[[Tensor], Tensor]

# Steps of the recurrence ψ₂(x) = ψ₂(x + 1) - 2 / x³ that take any x > 0 to where a series is exact.
_TETRAGAMMA_STEPS = 10
# Above this a series of five terms is exact to float64.
_SERIES_FROM = 16.0
# Above this Stirling's is good to eleven digits, with a term for each of these numbers.
_STIRLING_FROM = 6.0
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _stirling(n_terms: int) -> tuple[tuple[float, ...], ...]:
    """Coefficients in 1/x² of what lnΓ, -ψ and ψ₁ have beyond their first terms."""
    numbers = list(enumerate(_BERNOULLI[:n_terms], 1))
    return (
        tuple(b / (2 * k * (2 * k - 1)) for k, b in numbers),
        tuple(b / (2 * k) for k, b in numbers),
        tuple(b for _, b in numbers),
    )


_STIRLING = {torch.float32: _stirling(4), torch.float64: _stirling(7)}


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    *lower, last = coefficients
    value: Any = last
    for coefficient in reversed(lower):
        value = value * x + coefficient
    return value  # type: ignore[no-any-return]


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

    With ``g(x) = lnΓ(x) - x ψ(x) + x`` the textbook form equals ``t(Σ alpha, Σ prior) -
    Σ t(alpha, prior)``, ``t(x, w) = g(x) - g(w) + w (ψ(x) - ψ(w))``: terms that grow like x and
    cancel are gone, only terms that grow like log x are left.

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
        return value - (torch.lgamma(prior) + prior)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, prior, slope = ctx.saved_tensors
        of_prior = None
        if ctx.needs_input_grad[1]:
            of_prior = gradient * (torch.digamma(x) - torch.digamma(prior) - 1)
        return gradient * slope, of_prior


def divergence_term(x: Tensor, prior: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return ``lnΓ(x) - (x - w) ψ(x) + x``, which grows like log(x), and its slope in x.

    Below the reach of Stirling's series, ``Γ(x + 6) = Γ(x) P`` carries it there, with ``P =
    x (x + 1) ... (x + 5) = q (q + 4) (q + 6)`` and ``q = x (x + 5)``. What grows like x cancels on
    paper, not in the sum; and torch's own special functions take several times as long.

    Parameters
    ----------
    x : Tensor
        Positive.
    prior : Tensor or float
        The prior part w of x.

    Returns
    -------
    value, slope : Tensor
    """
    is_low = (x < _STIRLING_FROM).to(x.dtype)
    low = x.clamp(max=_STIRLING_FROM)
    q = low * (low + 5)
    product = q * (q * (q + 10) + 24)
    # (log P)' = (2 x + 5) r, with r the same in q.
    r = (q * (3 * q + 20) + 24) / product
    middle = 2 * low + 5
    steps = middle * r * is_low
    square_steps = (middle * middle * (r * r - (6 * q + 20) / product) - 2 * r) * is_low
    power = (low + 6) ** 3
    log_steps = (power * power / product * math.exp(-6)).log() * is_low

    shifted = x + 6 * is_low
    inverse = shifted.reciprocal()
    square = inverse * inverse
    log_gamma, digamma, trigamma = (_polynomial(c, square) for c in _STIRLING[x.dtype])
    above = x - prior
    value = (
        (prior - 0.5) * shifted.log()
        + log_steps
        + (log_gamma * inverse + math.log(2 * math.pi) / 2)
        + above * (inverse / 2 + square * digamma + steps)
    )
    slope = (prior + 6 * is_low) * inverse - above * (
        square / 2 + square * inverse * trigamma + square_steps
    )
    return value, slope


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


def log_gamma_excess(x: Tensor) -> Tensor:
    """Return ``lnΓ(x) - x ψ(x) + x``, which grows like -log(x) / 2, without cancellation.

    Parameters
    ----------
    x : Tensor
        Positive.
    """
    return divergence_term(x, 0.0)[0]


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
