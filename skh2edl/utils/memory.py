"""What becomes of freed memory."""

from __future__ import annotations

import ctypes
import sys

# Parameters of glibc's mallopt, and the bytes that a process keeps: a batch of a large network.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 2**30


def keep_freed_memory() -> None:
    """Let this process keep what it frees, for the next batch.

    glibc gives large blocks back to the system at once, and a network on a processor asks for the
    same blocks again at every batch: a third to a half of the time of a prediction goes there. The
    setting is the whole process's, so a program decides on it and not a library. Elsewhere than on
    Linux with glibc nothing happens.

    Examples
    --------
    >>> from skh2edl.utils.memory import keep_freed_memory
    >>> keep_freed_memory()  # doctest: +SKIP
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
