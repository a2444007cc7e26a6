"""The terms of the H2EDL objective as pure functions, one value per opinion.

=========================================  ===================================================
term of the paper                          function
=========================================  ===================================================
EDL risk L_edl, the Bayes risk             :func:`squared_risk`; variants: :func:`log_risk`,
                                           :func:`digamma_risk`
KL regulariser L_kl                        :func:`off_target_kl`
its weight λ_t, annealed from 0 to λ_max   :func:`annealed`
leaf term L_leaf = -log P(label)           the sum of :func:`log_risk` over the path
consistency variant                        :func:`consistency_penalty`
=========================================  ===================================================

They are weighted and added up in :meth:`skh2edl.heads.h2edl.H2EDLHead.loss`.

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


def consistency_penalty(probability: Tensor, vacuity: Tensor, has_previous: Tensor) -> Tensor:
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

    Training in epochs evaluates it for every batch. L-BFGS solves at two of its values in turn.

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
