"""Random numbers that leave the global generators as they were, and seeds made from seeds."""

import contextlib
import hashlib
import os
import random
import struct
import threading
from collections.abc import Callable, Iterator

import numpy as np
import torch

# One fit at a time may draw from the global generators: threads would mix their draws.
_locks = [threading.RLock()]
# A forked worker must not inherit a lock that a thread of its parent held.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _locks.__setitem__(0, threading.RLock()))


@contextlib.contextmanager
def isolated_rng(seed: int | None = None) -> Iterator[Callable[[int], None]]:
    """Let code draw from the global generators of Python, NumPy and torch, and restore them.

    Parameters
    ----------
    seed : int, default=None
        Where the generators start inside the block. None leaves them where they are.

    Yields
    ------
    reseed : callable
        `reseed(seed)` starts all three again.

    Examples
    --------
    >>> with isolated_rng(0):
    ...     first = torch.rand(1)
    >>> with isolated_rng(0):
    ...     bool(torch.rand(1) == first)
    True
    """
    with _locks[0]:
        state = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        try:
            if seed is not None:
                _reseed(seed)
            yield _reseed
        finally:
            random.setstate(state[0])
            np.random.set_state(state[1])  # noqa: NPY002
            torch.set_rng_state(state[2])


def _reseed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002 - timm draws from the legacy generator
    # Not torch.manual_seed: that would reach for the GPU, in every worker.
    torch.default_generator.manual_seed(seed)


def sample_seed(seed: int, epoch: int, position: int) -> int:
    """Return the seed of one sample in one epoch."""
    key = struct.pack("<qqq", seed, epoch, position)
    # 63 bits: torch refuses larger seeds than a signed integer holds.
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def epoch_seed(seed: int, epoch: int, rank: int = 0) -> int:
    """Seed what a network draws, such as dropout: other numbers in each process."""
    key = (seed, epoch, rank) if rank else (seed, epoch)
    return int(np.random.default_rng(key).integers(2**62))
