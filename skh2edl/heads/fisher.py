"""The Fisher information of a Dirichlet, which I-EDL learns by."""

from __future__ import annotations

import torch
from torch import Tensor, polygamma

# Above this a series in 1 / x is exact to float64.
_SERIES_FROM = 16.0


def log_det_fisher(alpha: Tensor, present: Tensor) -> Tensor:
    """Return the log determinant of the Fisher information of each Dirichlet.

    With ``h(x) = x - 1 / ψ₁(x)`` the textbook form ``Σ log ψ₁(α) + log(1 - Σ ψ₁(S) / ψ₁(α))``
    equals ``Σ log ψ₁(α) + log ψ₁(S) + log(Σ h(α) - h(S))``, in which nothing cancels.

    Parameters
    ----------
    alpha : Tensor of shape (n, n_cells)
        Concentrations.
    present : Tensor of bool of shape (n, n_cells)
        Which cells each Dirichlet has, two at least.

    Examples
    --------
    >>> log_det_fisher(torch.tensor([[1.0, 1.0]]), torch.tensor([[True, True]])).exp()
    tensor([0.5841])
    """
    strength = (alpha * present).sum(-1)
    logs = (polygamma(1, alpha).log() * present).sum(-1)
    rest = (_trigamma_gap(alpha) * present).sum(-1) - _trigamma_gap(strength)
    return logs + polygamma(1, strength).log() + rest.log()


def _trigamma_gap(x: Tensor) -> Tensor:
    """Return ``x - 1 / ψ₁(x)``, which lies between 0 and 1/2."""
    is_low = x < _SERIES_FROM
    low, high = x.clamp(max=_SERIES_FROM), x.clamp(min=_SERIES_FROM / 2)
    inverse = 1 / high
    square = inverse * inverse
    # x ψ₁(x) = 1 + rest / x, by the asymptotic series of ψ₁, whose factors are Bernoulli numbers.
    tail = 1 / 6 - square * (1 / 30 - square * (1 / 42 - square * (1 / 30 - square * (5 / 66))))
    rest = 1 / 2 + inverse * tail
    return torch.where(is_low, low - 1 / polygamma(1, low), rest / (1 + rest * inverse))
