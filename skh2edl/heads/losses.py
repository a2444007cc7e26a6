"""The terms of the H2EDL objective as pure functions, one value per opinion.

=========================================  ===================================================
term of the paper                          function
=========================================  ===================================================
EDL risk L_edl, the Bayes risk             :func:`squared_risk`; variants: :func:`log_risk`,
                                           :func:`digamma_risk`
KL regulariser L_kl                        :func:`off_target_kl`
its weight λ_t, annealed from 0 to λ_max   :func:`annealed`
leaf term L_leaf = -log P(label)           the sum of :func:`log_risk` over the path
consistency variant                        :func:`rising_vacuity`
=========================================  ===================================================

They are weighted and added up in :meth:`skh2edl.heads.h2edl.OpinionTreeHead.loss`. What only a
baseline uses stands at the end of the table's functions: :func:`log_det_fisher` is I-EDL's.

An opinion is one branching node v on the path to the label of one sample. It is one *segment* of a
batch, and the children of v are its *entries*. Concentrations are ``alpha = e + W a``: evidence e,
prior weight W, base rate a. `prior` is ``W a``, `strength` is ``S = Σ alpha``, ``p = alpha / S``,
``y`` is one-hot at the true child c.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SegmentSum = Callable[[Tensor], Tensor]

# Above this a series in 1 / x is exact to float64.
_SERIES_FROM = 16.0


def squared_risk(
    probability: Tensor, strength: Tensor, target: Tensor, segment_sum: SegmentSum
) -> Tensor:
    """Return the paper's L_edl, ``sum (y - p)^2 + sum p (1 - p) / (S + 1)``.

    It is the expected squared error under the Dirichlet (Sensoy et al. 2018, eq. 5).

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
    """Return ``-log p_c = log S - log alpha_c`` (Sensoy 2018, eq. 3)."""
    return strength.log() - alpha.index_select(0, target).log()


def digamma_risk(alpha: Tensor, strength: Tensor, target: Tensor) -> Tensor:
    """Return the expected cross-entropy, ``psi(S) - psi(alpha_c)`` (Sensoy 2018, eq. 4)."""
    return torch.digamma(strength) - torch.digamma(alpha.index_select(0, target))


def off_target_kl(
    alpha: Tensor, prior: Tensor, is_target: Tensor, segment_sum: SegmentSum
) -> Tensor:
    """Return the paper's L_kl, ``KL(Dir(alpha~) || Dir(W a))``.

    ``alpha~ = y * W a + (1 - y) * alpha`` sets the true child to its prior: only evidence for
    other children is penalised.

    Parameters
    ----------
    alpha, prior : Tensor of shape (n_entries,)
        Concentrations and their prior part W a.
    is_target : Tensor of bool of shape (n_entries,)
        Which entries are true children.
    segment_sum : callable
        Adds up the entries of each segment.
    """
    return dirichlet_kl(torch.where(is_target, prior, alpha), prior, segment_sum)


def dirichlet_kl(alpha: Tensor, prior: Tensor, segment_sum: SegmentSum) -> Tensor:
    """Return ``KL(Dir(alpha) || Dir(prior))`` of each segment.

    Parameters
    ----------
    alpha, prior : Tensor of shape (n_entries,)
        Concentrations.
    segment_sum : callable
        Adds up the entries of each segment.
    """
    # Terms that grow like x log x cancel: float32 would lose the value from x = 1e6 on.
    wide = alpha.dtype if alpha.device.type == "mps" else torch.float64
    own, own_prior = alpha.to(wide), prior.to(wide)
    whole = _kl_term(segment_sum(own), segment_sum(own_prior))
    return (whole - segment_sum(_kl_term(own, own_prior))).to(alpha.dtype)


def _kl_term(x: Tensor, prior: Tensor) -> Tensor:
    """Return the term of one concentration; the KL is the term of S less those of all alpha."""
    return torch.lgamma(x) - torch.lgamma(prior) - (x - prior) * torch.digamma(x)


def trigamma(x: Tensor) -> Tensor:
    """Return ``ψ₁(x)`` of positive numbers.

    Examples
    --------
    >>> import torch
    >>> trigamma(torch.tensor(1.0))  # π² / 6
    tensor(1.6449)
    """
    return torch.polygamma(1, x)


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


def rising_vacuity(probability: Tensor, vacuity: Tensor, has_previous: Tensor) -> Tensor:
    """Return ``stopgrad(p_{v,c}) max(0, u_w - u_v)`` for consecutive nodes v, w of a path.

    It penalises vacuity that rises from a node to the child it is confident of.

    Parameters
    ----------
    probability : Tensor of shape (n_segments,)
        Probability of the true child at each node.
    vacuity : Tensor of shape (n_segments,)
        Vacuity u of each node.
    has_previous : Tensor of bool of shape (n_segments,)
        Whether the segment before is an earlier node on the same path.
    """
    rise = torch.zeros_like(vacuity)
    rise[1:] = probability.detach()[:-1] * torch.relu(vacuity[1:] - vacuity[:-1])
    return rise * has_previous


def annealed(weight: float, progress: float, ramp: float) -> float:
    """Return λ_t: a weight that rises linearly from 0 to its full value λ_max.

    Parameters
    ----------
    weight : float
        The full value.
    progress : float
        Fraction of the training that is done.
    ramp : float
        Fraction at which the full value is reached; 0 means from the start.

    Examples
    --------
    >>> [annealed(0.4, progress, 0.5) for progress in (0, 0.25, 0.5, 1)]
    [0.0, 0.2, 0.4, 0.4]
    """
    return weight if ramp <= 0 else weight * min(1.0, progress / ramp)
