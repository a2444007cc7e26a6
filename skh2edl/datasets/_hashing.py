"""Choices that depend on a sample's name and on nothing else."""

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def unit_hash(names: Iterable, *, purpose: str) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each name, the same on every machine and in every run.

    Parameters
    ----------
    names : iterable
        Names; each is hashed as its ``str``.
    purpose : str of at most 16 bytes
        Keeps choices independent: the samples coarsened are not the ones held out.

    Returns
    -------
    ndarray of float64 of shape (n,)

    Examples
    --------
    >>> from skh2edl.datasets._hashing import unit_hash
    >>> unit_hash(["a", "b", "a"], purpose="demo").round(3).tolist()
    [0.952, 0.128, 0.952]
    """
    person = purpose.encode()
    digests = b"".join(
        hashlib.blake2b(str(name).encode("utf-8"), digest_size=8, person=person).digest()
        for name in names
    )
    # 53 bits are what a float64 holds exactly; more could round up to 1.0.
    return (np.frombuffer(digests, dtype=">u8") >> 11) / float(2**53)
