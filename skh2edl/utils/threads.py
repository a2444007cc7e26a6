"""Threads of the libraries that compute, which get in each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import current_thread, main_thread

from threadpoolctl import ThreadpoolController

# What the packages of numpy and scipy bring along for themselves. Elsewhere they may share one
# library with torch, which must not lose its threads.
_OWN_LIBRARY = "libscipy_openblas"


@contextmanager
def one_thread_for_numpy() -> Iterator[None]:
    """Keep products of numpy and scipy to one thread, for work that torch does most of.

    After a product their threads wait in a loop for the next one, on cores that torch needs by
    then: with two cores an evaluation of a fit takes three times as long, and now and then fifty
    times. It holds for the whole process, so only its main thread may ask; for others nothing
    changes.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl.utils.threads import one_thread_for_numpy
    >>> with one_thread_for_numpy():
    ...     product = np.ones((2, 3)) @ np.ones((3, 2))
    """
    if current_thread() is not main_thread():
        yield
        return
    with _libraries().limit(limits=1):
        yield


@cache
def _libraries() -> ThreadpoolController:
    # Looked for once: both are there when this is first asked for, and it takes milliseconds.
    return ThreadpoolController().select(prefix=_OWN_LIBRARY)
