"""The conformal quantile: a bound on the next score, learnt from held-out scores."""

from __future__ import annotations

from math import ceil, floor, log10

import numpy as np
import numpy.typing as npt

from ..taxonomy.tree import IntArray

FloatArray = npt.NDArray[np.float64]

# Products such as 20 * 0.95 may come out just above the whole number they stand for.
_ROUNDING = 1e-9


def samples_needed(coverage: float) -> int:
    """Return the smallest number of held-out samples that can guarantee a coverage.

    Parameters
    ----------
    coverage : float
        Between 0 and 1.

    Examples
    --------
    >>> samples_needed(0.95), samples_needed(0.99)
    (19, 99)
    """
    coverage *= 1 - 1e-14  # 0.9999 / (1 - 0.9999) comes out above 9999
    return max(1, ceil(coverage / (1 - coverage)))


def vote_weights(weight: FloatArray, group: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """Return the weight of each sample's vote, and that of all votes of its group.

    The votes of a group add up to the mean weight of its samples: with equal weights, to one vote
    a group.

    Parameters
    ----------
    weight : ndarray of shape (n_samples,)
        Sample weights.
    group : ndarray of int of shape (n_samples,) or None
        Group of each sample; None means that each is a group of its own.

    Returns
    -------
    votes, of_group : ndarray of shape (n_samples,)

    Examples
    --------
    >>> vote_weights(np.ones(3), np.array([0, 0, 1]))
    (array([0.5, 0.5, 1. ]), array([1., 1., 1.]))
    """
    if group is None or not group.size:
        return weight, weight
    _, group, size = np.unique(group, return_inverse=True, return_counts=True)
    votes = weight / size[group]
    return votes, np.bincount(group, votes).astype(np.float64)[group]


def effective_size(votes: FloatArray, of_group: FloatArray) -> float:
    """Return the sum of votes divided by a new group's: the number of groups or samples.

    Parameters
    ----------
    votes, of_group : ndarray of shape (n_samples,)
        From :func:`vote_weights`, or some of them.
    """
    new = of_group.max(initial=0.0)
    return float(votes.sum() / new) if new > 0 else 0.0


def is_enough(votes: FloatArray, of_group: FloatArray, coverage: float) -> bool:
    """Return whether held-out samples with these votes can guarantee a coverage."""
    return effective_size(votes, of_group) >= samples_needed(coverage) - _ROUNDING


def conformal_quantile(
    values: FloatArray, coverage: float, weight: FloatArray, group: IntArray | None = None
) -> float:
    """Return a bound that a new value stays at or below with at least the given probability.

    With equal weights it is the ⌈(n + 1) coverage⌉-th smallest value. If the held-out values and
    the new one are exchangeable, the new one is at most this bound with probability ``coverage``
    or more, whatever their distribution. Weights say how many new samples each held-out sample
    stands for; the new sample is given the largest weight.

    With groups, each of the K groups has one vote that its values share equally, and the new group
    has one that lies at infinity: the bound is the smallest value with ``(K + 1) coverage`` votes
    at or below it. It is hierarchical conformal prediction [1]_: if groups are exchangeable, and so
    are the samples within each, the bound holds for a sample of a new group.

    Parameters
    ----------
    values : ndarray of shape (n_samples,)
        Held-out values; may be infinite.
    coverage : float
        Between 0 and 1.
    weight : ndarray of shape (n_samples,)
        Sample weights, not negative.
    group : ndarray of int of shape (n_samples,), default=None
        Group of each sample; None means that each is a group of its own.

    Returns
    -------
    bound : float
        Infinity if there are too few samples or groups.

    References
    ----------
    .. [1] Y. Lee, R. F. Barber, R. Willett, "Distribution-free inference with hierarchical data",
       arXiv:2306.06342, 2023, theorem 1.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), 0.9, np.ones(19))
    18.0
    >>> conformal_quantile(np.arange(1.0, 9.0), 0.9, np.ones(8))
    inf
    >>> conformal_quantile(np.arange(6.0), 0.6, np.ones(6), np.array([0, 0, 1, 1, 2, 2]))
    4.0
    """
    return quantile_of_votes(values, coverage, *vote_weights(weight, group))


def quantile_of_votes(
    values: FloatArray, coverage: float, votes: FloatArray, of_group: FloatArray
) -> float:
    """Return the bound of :func:`conformal_quantile` among some of the samples.

    A group that has only a part of its samples here has that part of its votes, and a new group may
    have all of its own. So the expected votes of a new group's samples beyond the bound are at most
    ``1 - coverage`` of the votes that it has here, which is conformal risk control [1]_.

    Parameters
    ----------
    values : ndarray of shape (n_samples,)
        Held-out values; may be infinite.
    coverage : float
        Between 0 and 1.
    votes, of_group : ndarray of shape (n_samples,)
        From :func:`vote_weights` of all samples.

    References
    ----------
    .. [1] A. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster, "Conformal risk control",
       ICLR 2024; the loss is the votes beyond the bound minus ``1 - coverage`` times all votes.

    Examples
    --------
    >>> votes, of_group = vote_weights(np.ones(8), np.array([0, 0, 1, 1, 2, 2, 3, 3]))
    >>> some = np.array([True, False, True, True, True, True, False, True])  # 1/2, 1, 1, 1/2
    >>> quantile_of_votes(np.arange(6.0), 0.7, votes[some], of_group[some])
    5.0
    """
    if not is_enough(votes, of_group, coverage):
        return float("inf")
    new = float(of_group.max())
    if votes.min() == votes.max() == new:
        rank = max(1, ceil((values.size + 1) * coverage * (1 - _ROUNDING)))
        return float(np.partition(values, rank - 1)[rank - 1])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(votes[order])
    wanted = coverage * (below[-1] + new)
    position = np.searchsorted(below, wanted * (1 - _ROUNDING))
    return float(values[order[min(int(position), values.size - 1)]])


def whole_votes(values: FloatArray, group: IntArray) -> FloatArray:
    """Return one value a group from which :func:`conformal_quantile` finds a bound.

    The k-th is the smallest value with k votes at or below it, so the bound is that of the groups
    with ``(K + 1) coverage`` rounded up, which is never smaller.

    Parameters
    ----------
    values : ndarray of shape (n_samples,)
        Held-out values.
    group : ndarray of int of shape (n_samples,)
        Group of each sample.

    Returns
    -------
    votes : ndarray of shape (n_groups,)
        Sorted.

    Examples
    --------
    >>> whole_votes(np.array([0.0, 0.2, 0.4, 0.6]), np.array([0, 0, 1, 1]))
    array([0.2, 0.6])
    """
    votes, _ = vote_weights(np.ones(values.size), group)
    order = np.argsort(values, kind="stable")
    below = np.cumsum(votes[order])
    wanted = np.arange(1, np.unique(group).size + 1)
    position = np.searchsorted(below, wanted * (1 - _ROUNDING))
    return values[order[np.minimum(position, values.size - 1)]]


def check_enough(
    weight: FloatArray, coverage: float, remedy: str, group: IntArray | None = None
) -> None:
    """Raise if there are too few samples, or groups, to guarantee a coverage.

    Parameters
    ----------
    weight : ndarray of shape (n_samples,)
        Weights of the calibration samples.
    coverage : float
        What to guarantee.
    remedy : str
        Which parameter to change, and how, such as "raise alpha".
    group : ndarray of int of shape (n_samples,), default=None
        Their groups.
    """
    votes, of_group = vote_weights(weight, group)
    if is_enough(votes, of_group, coverage):
        return
    counted, size = weight > 0, effective_size(votes, of_group)
    n_votes = int(counted.sum()) if group is None else int(np.unique(group[counted]).size)
    what = "sample" if group is None else "group"
    got = f"{n_votes}"
    if group is not None:
        got += f" ({counted.sum()} samples)"
    if floor(size + _ROUNDING) != n_votes:
        got += f" with unequal weights, which count as {size:.1f}"
    # Rounded down, so that the coverage named in the message is not refused as well.
    unit = 10 ** ceil(log10(size + 1) + 1)
    most = floor(size / (size + 1) * unit + _ROUNDING) / unit
    raise ValueError(
        f"A guarantee of {coverage:.6g} needs at least {samples_needed(coverage)} calibration "
        f"{what}(s), got {got}: with fewer, only the root is a safe prediction. Give more {what}s, "
        f"or {remedy} (these can guarantee at most {most:.12g})."
    )
