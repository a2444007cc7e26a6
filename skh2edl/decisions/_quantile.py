"""The quantile of held-out scores that keeps a promise about the next sample."""

from __future__ import annotations

from math import ceil, floor, log10

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Products such as 20 * 0.95 may come out just above the whole number they stand for.
_ROUNDING = 1e-9


def samples_needed(coverage: float) -> int:
    """Return the least number of samples with which a quantile can promise a coverage.

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


def effective_size(weight: FloatArray) -> float:
    """Return how many samples there are, each counted in parts of the heaviest."""
    return float(weight.sum() / weight.max()) if weight.size and weight.max() > 0 else 0.0


def conformal_quantile(values: FloatArray, coverage: float, weight: FloatArray) -> float:
    """Return the bound that a new value stays at or below with at least some probability.

    With equal weights it is the ⌈(n + 1) coverage⌉-th smallest value. If the values and the next
    one are exchangeable, the next one is at most this large with probability ``coverage`` or
    more, whatever their distribution. With weights the held-out samples stand for others in that
    proportion; the next sample may weigh as much as the heaviest of them.

    Parameters
    ----------
    values : ndarray of shape (n_samples,)
        Held-out values; may be infinite.
    coverage : float
        Between 0 and 1.
    weight : ndarray of shape (n_samples,)
        Weights of the samples, not negative.

    Returns
    -------
    bound : float
        Infinity if there are too few samples.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 20.0), 0.9, np.ones(19))
    18.0
    >>> conformal_quantile(np.arange(1.0, 9.0), 0.9, np.ones(8))
    inf
    """
    if effective_size(weight) < samples_needed(coverage) - _ROUNDING:
        return float("inf")
    if weight.min() == weight.max():
        rank = max(1, ceil((values.size + 1) * coverage * (1 - _ROUNDING)))
        return float(np.partition(values, rank - 1)[rank - 1])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    wanted = coverage * (below[-1] + weight.max())
    position = np.searchsorted(below, wanted * (1 - _ROUNDING))
    return float(values[order[min(int(position), values.size - 1)]])


def check_enough(weight: FloatArray, coverage: float, parameter: str, where: str = "") -> None:
    """Refuse a promise that too few samples could keep only by saying nothing.

    Parameters
    ----------
    weight : ndarray of shape (n_samples,)
        Weights of the calibration samples.
    coverage : float
        What is promised.
    parameter : str
        Which parameter makes the promise, in words that say how to relax it.
    where : str, default=""
        Which part of the samples this is about.
    """
    needed, size = samples_needed(coverage), effective_size(weight)
    if size >= needed - _ROUNDING:
        return
    n_samples = int((weight > 0).sum())
    got = f"{n_samples}" if floor(size + _ROUNDING) == n_samples else f"the worth of {size:.1f}"
    # Rounded down, so that what the message offers is not refused as well.
    unit = 10 ** ceil(log10(size + 1) + 1)
    most = floor(size / (size + 1) * unit + _ROUNDING) / unit
    raise ValueError(
        f"A promise of {coverage:.6g} needs at least {needed} calibration sample(s){where}, got "
        f"{got}: with fewer, only answers that say nothing would keep it. Give more samples, or "
        f"{parameter} (at most {most:.12g} can be promised with these)."
    )
