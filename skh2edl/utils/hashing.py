"""Hashes: of values, of weights, and of names that decide a split."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def hash_values(*parts: Any) -> str:
    """Hash arrays and plain values to a short text.

    Parameters
    ----------
    *parts : ndarray or JSON-able value
        What to hash; anything else counts by its ``repr`` without its place in memory.

    Examples
    --------
    >>> hash_values([1, 2]) == hash_values([1, 2]) != hash_values([2, 1])
    True
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype != object:
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=_shown).encode())
    return digest.hexdigest()


def _shown(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def hash_weights(module: torch.nn.Module) -> str:
    """Hash the state of a module."""
    import torch

    state = module.state_dict()
    return hash_values(
        *(
            part
            for name in sorted(state)
            for part in (name, state[name].detach().to("cpu", torch.float64).numpy())
        )
    )


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
    >>> from skh2edl.utils.hashing import unit_hash
    >>> unit_hash(["a", "b", "a"], purpose="demo").round(3).tolist()
    [0.952, 0.128, 0.952]
    """
    person = purpose.encode()
    digests = b"".join(
        hashlib.blake2b(
            # A file name that is not UTF-8 counts by its bytes.
            str(name).encode("utf-8", "surrogateescape"),
            digest_size=8,
            person=person,
        ).digest()
        for name in names
    )
    # 53 bits are what a float64 holds exactly; more could round up to 1.0.
    return (np.frombuffer(digests, dtype=">u8") >> 11) / float(2**53)
