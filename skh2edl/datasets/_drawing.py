"""What drawn data sets share: ranges of distortions, blur, split and random state."""

from numbers import Real

import numpy as np


def check_range(key, value, most=np.inf):
    """Return the (low, high) limits of a distortion given as a number or a pair.

    Parameters
    ----------
    key : str
        Name of the argument, for the error.
    value : float or pair of float
        What was given.
    most : float, default=inf
        Largest allowed value.

    Examples
    --------
    >>> check_range("blur", 2)
    (2.0, 2.0)
    """
    limits = (value, value) if isinstance(value, Real) else tuple(value)
    if len(limits) != 2 or not 0 <= limits[0] <= limits[1] <= most or np.isinf(limits[1]):
        limit = "" if np.isinf(most) else f" and at most {most}"
        raise ValueError(
            f"{key} must be a number or a (low, high) pair of at least 0{limit}, got {value!r}."
        )
    return float(limits[0]), float(limits[1])


def check_integers(**given):
    """Refuse sizes that are no integers of at least their limit.

    Parameters
    ----------
    **given : pair of the value and the least that is allowed
        By the name of the argument.

    Examples
    --------
    >>> check_integers(n_samples=(100, 1))
    """
    for key, (value, least) in given.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise ValueError(f"{key} must be an integer of at least {least}, got {value!r}.")


def blur_kernels(sigma, size):
    """Return (n, size, size) matrices that blur one axis; their rows sum to 1.

    Parameters
    ----------
    sigma : ndarray of shape (n,)
        Standard deviation of each blur, in pixels.
    size : int
        Pixels of the axis.

    Examples
    --------
    >>> blur_kernels(np.array([0.0]), 2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    offset = np.arange(size) - np.arange(size)[:, None]
    # Below a tenth of a pixel the kernel is the identity up to rounding.
    weight = np.exp(-0.5 * (offset / np.maximum(sigma, 0.1)[:, None, None]) ** 2)
    return (weight / weight.sum(axis=2, keepdims=True)).astype(np.float32)


def deal(pool, n, rng):
    """Return n entries of the pool in random order, whose counts differ by one at most.

    Parameters
    ----------
    pool : ndarray
        What to take from.
    n : int
        How many to take.
    rng : numpy.random.Generator
        Source of the order.
    """
    rounds = [rng.permutation(pool) for _ in range(-(-n // len(pool)))] if n else []
    return rng.permutation(np.concatenate([*rounds, pool[:0]])[:n])


def random_split(n, rng):
    """Return n names of splits in random order: 70 % "train", 10 % "val" and 20 % "test".

    Parameters
    ----------
    n : int
        How many.
    rng : numpy.random.Generator
        Source of the order.
    """
    n_test, n_val = round(0.2 * n), round(0.1 * n)
    return rng.permutation(np.repeat(["train", "val", "test"], [n - n_test - n_val, n_val, n_test]))


def generator(random_state):
    """Return a generator that leaves the global ones alone.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None
        None takes a fresh seed.
    """
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31 - 1))
    return np.random.default_rng(random_state)
