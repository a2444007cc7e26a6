"""Pure losses of a Dirichlet opinion and the schedule of their weights.

Each function takes one *segment* for every opinion it judges (a branching node on the way to a
sample's label) and returns one value a segment. Concentrations are ``alpha = e + W a``, with the
prior ``W a`` (`prior`); `strength` is their sum S; ``y`` is one-hot at the target.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SegmentSum = Callable[[Tensor], Tensor]


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
    error = 1 - 2 * probability[target] + squares
    return error + (1 - squares) / (strength + 1)


def log_risk(alpha: Tensor, strength: Tensor, target: Tensor) -> Tensor:
    """Negative log of the expected probability, ``log S - log alpha_c`` (Sensoy 2018, eq. 3)."""
    return strength.log() - alpha[target].log()


def digamma_risk(alpha: Tensor, strength: Tensor, target: Tensor) -> Tensor:
    """Return the expected cross-entropy, ``psi(S) - psi(alpha_c)`` (Sensoy 2018, eq. 4)."""
    return torch.digamma(strength) - torch.digamma(alpha[target])


def misleading_evidence(
    alpha: Tensor, prior: Tensor, is_target: Tensor, segment: Tensor, segment_sum: SegmentSum
) -> Tensor:
    """Divergence of the evidence for wrong children from none, ``KL(Dir(alpha~) || Dir(W a))``.

    ``alpha~`` is alpha with the true child's evidence taken away.

    Parameters
    ----------
    alpha, prior : Tensor of shape (n_entries,)
        Concentrations and their prior part W a.
    is_target : Tensor of bool of shape (n_entries,)
        Which entries are true children; they contribute nothing of their own.
    segment : Tensor of shape (n_entries,)
        Segment of each entry.
    segment_sum : callable
        Adds up the entries of each segment.
    """
    kept = torch.where(is_target, prior, alpha)
    kept_strength, prior_strength = segment_sum(kept), segment_sum(prior)
    spread = torch.digamma(kept) - torch.digamma(kept_strength)[segment]
    terms = torch.lgamma(prior) - torch.lgamma(kept) + (kept - prior) * spread
    return torch.lgamma(kept_strength) - torch.lgamma(prior_strength) + segment_sum(terms)


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
