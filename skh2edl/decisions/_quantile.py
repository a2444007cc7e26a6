"""The conformal quantile: a bound on the next score, learnt from held-out scores."""

from __future__ import annotations

from math import ceil, floor, log10

import numpy as np
import numpy.typing as npt

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


def effective_size(weight: FloatArray) -> float:
    """Return the sum of the weights divided by the largest: n for n equal weights."""
    return float(weight.sum() / weight.max()) if weight.size and weight.max() > 0 else 0.0


def is_enough(weight: FloatArray, coverage: float) -> bool:
    """Tell whether held-out samples with these weights can guarantee a coverage."""
    return effective_size(weight) >= samples_needed(coverage) - _ROUNDING


def conformal_quantile(values: FloatArray, coverage: float, weight: FloatArray) -> float:
    """Return a bound that a new value stays at or below with at least the given probability.

    With equal weights it is the ⌈(n + 1) coverage⌉-th smallest value. If the held-out values and
    the new one are exchangeable, the new one is at most this bound with probability ``coverage``
    or more, whatever their distribution. Weights say how many new samples each held-out sample
    stands for; the new sample is given the largest weight.

    Parameters
    ----------
    values : ndarray of shape (n_samples,)
        Held-out values; may be infinite.
    coverage : float
        Between 0 and 1.
    weight : ndarray of shape (n_samples,)
        Sample weights, not negative.

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
    if not is_enough(weight, coverage):
        return float("inf")
    if weight.min() == weight.max():
        rank = max(1, ceil((values.size + 1) * coverage * (1 - _ROUNDING)))
        return float(np.partition(values, rank - 1)[rank - 1])
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    wanted = coverage * (below[-1] + weight.max())
    position = np.searchsorted(below, wanted * (1 - _ROUNDING))
    return float(values[order[min(int(position), values.size - 1)]])


def check_enough(weight: FloatArray, coverage: float, remedy: str) -> None:
    """Raise if there are too few samples to guarantee a coverage.

    Parameters
    ----------
    weight : ndarray of shape (n_samples,)
        Weights of the calibration samples.
    coverage : float
        What to guarantee.
    remedy : str
        Which parameter to change, and how, such as "raise alpha".
    """
    if is_enough(weight, coverage):
        return
    n_samples, size = int((weight > 0).sum()), effective_size(weight)
    got = f"{n_samples}"
    if floor(size + _ROUNDING) != n_samples:
        got += f" with unequal weights, which count as {size:.1f}"
    # Rounded down, so that the coverage named in the message is not refused as well.
    unit = 10 ** ceil(log10(size + 1) + 1)
    most = floor(size / (size + 1) * unit + _ROUNDING) / unit
    raise ValueError(
        f"A guarantee of {coverage:.6g} needs at least {samples_needed(coverage)} calibration "
        f"sample(s), got {got}: with fewer, only the root is a safe prediction. Give more samples, "
        f"or {remedy} (these can guarantee at most {most:.12g})."
    )
