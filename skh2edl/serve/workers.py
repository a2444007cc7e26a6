"""Threads that work beside the event loop, and never keep the server from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Workers:
    """A few threads for one kind of work, first come first served.

    They are daemons: a process that ends does not wait for them. They live while there is work.

    Parameters
    ----------
    n_threads : int
        Jobs that are done at the same time.

    Examples
    --------
    >>> workers = Workers(2)
    >>> asyncio.run(workers.run(lambda: sum(range(10))))
    45
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._jobs: deque[Callable[[], None]] = deque()
        self._n_running = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Do some work in a thread and return its result.

        Parameters
        ----------
        work : callable
            Without parameters. If the caller is cancelled it is finished all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result: Any = work()
                error = None
            except Exception as caught:
                result, error = None, caught
            # A loop that is closed has nobody who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_deliver, future, result, error)

        with self._lock:
            self._jobs.append(job)
            if self._n_running < self.n_threads:
                self._n_running += 1
                threading.Thread(target=self._work, daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._n_running -= 1
                    return
                job = self._jobs.popleft()
            job()


def _deliver(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():  # cancelled
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
