"""Limits on the threads of numerical libraries, and settings that threads of a process share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from threading import Lock, current_thread, main_thread

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


class SharedContext:
    """A context for settings of the whole process, on for as long as any thread is inside.

    Parameters
    ----------
    context : callable
        Returns the context manager that the first thread enters and the last one leaves.

    Examples
    --------
    >>> from contextlib import suppress
    >>> from skh2edl.utils.threads import SharedContext
    >>> shared = SharedContext(suppress)
    >>> with shared, shared:
    ...     pass
    """

    def __init__(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        self._context = context
        self._reset()
        # A forked worker must not inherit a lock that a thread of its parent held.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock, self._n_inside, self._entered = Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._entered.enter_context(self._context())
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._entered.close()
