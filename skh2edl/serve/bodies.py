"""How bodies of requests are read: in a budget of bytes for all clients, and not too slowly."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from .app import Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class ByteBudget:
    """Bytes of bodies in memory, over all requests.

    A client may hold as many as are left for the others: alone it gets half of the budget, and
    however many clients fill it, a newcomer finds room.

    Parameters
    ----------
    max_bytes : int
        Size of the budget.

    Examples
    --------
    >>> budget = ByteBudget(100)
    >>> budget.take("a", 50), budget.take("a", 1), budget.take("b", 25), budget.take("c", 12)
    (True, False, True, True)
    >>> budget.give_back("a", 50)
    >>> budget.take("b", 9)
    True
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._held: Counter[str] = Counter()
        self._n_bytes = 0
        self._changed = asyncio.Event()

    def take(self, client: str, n_bytes: int) -> bool:
        """Take bytes if there is room.

        Parameters
        ----------
        client : str
            Who sends them.
        n_bytes : int
            Number of bytes.
        """
        free = self.max_bytes - self._n_bytes - n_bytes
        if n_bytes and self._held[client] + n_bytes > free:
            return False
        self._held[client] += n_bytes
        self._n_bytes += n_bytes
        return True

    def give_back(self, client: str, n_bytes: int) -> None:
        """Return bytes that are no longer in memory.

        Parameters
        ----------
        client, n_bytes
            As in :meth:`take`.
        """
        self._n_bytes -= n_bytes
        self._held[client] -= n_bytes
        if not self._held[client]:
            del self._held[client]
        # Those who wait look again; the next ones wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_and_take(self, client: str, n_bytes: int) -> None:
        """Take bytes as soon as there is room.

        Parameters
        ----------
        client, n_bytes
            As in :meth:`take`.
        """
        while not self.take(client, n_bytes):
            await self._changed.wait()


class Body:
    """The body of one request, piece by piece, for as long as it keeps to the limits.

    Parameters
    ----------
    receive : callable
        Where the pieces come from.
    client : str
        Who sends them.
    budget : ByteBudget
        Where their bytes count until :meth:`release`.
    limits : Limits
        How much may be sent, and how slowly.
    """

    def __init__(self, receive: Receive, client: str, budget: ByteBudget, limits: Limits) -> None:
        self._receive, self._client, self._budget = receive, client, budget
        self._limits = limits
        self._n_bytes = self._n_taken = 0
        # Seconds that may still be waited; what arrives earns more, up to the patience.
        self._left = limits.patience

    async def receive(self) -> Message:
        """Return the next piece, or refuse the request."""
        limits, clock = self._limits, asyncio.get_running_loop()
        started = clock.time()
        try:
            async with asyncio.timeout(self._left):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408,
                f"The request arrives too slowly: at least {limits.min_kb_per_second:g} kB must "
                f"come in a second, and it fell {limits.patience:g} seconds behind.",
            ) from None
        n_bytes = len(message.get("body", b""))
        earned = n_bytes / (1000 * limits.min_kb_per_second)
        # Never nothing: what has already arrived can be fetched without waiting.
        left = min(self._left - (clock.time() - started) + earned, limits.patience)
        self._left = max(left, 0.001)
        self._n_bytes += n_bytes
        if self._n_bytes > limits.max_upload_bytes:
            raise HTTPException(413, too_large(limits))
        try:
            async with asyncio.timeout(limits.patience):
                await self._budget.wait_and_take(self._client, n_bytes)
        except TimeoutError:
            raise HTTPException(
                503,
                "The server is busy with other requests. Send this one again in a moment.",
                {"retry-after": "5"},
            ) from None
        self._n_taken += n_bytes
        return message

    def release(self) -> None:
        """Give the bytes back to the budget."""
        self._budget.give_back(self._client, self._n_taken)
        self._n_taken = 0


def too_large(limits: Limits) -> str:
    """Say that a request is too large.

    Parameters
    ----------
    limits : Limits
        The limits.
    """
    return (
        f"A request may send at most {limits.max_upload_bytes / 1e6:g} MB. Send fewer or smaller "
        "images, or start the server with a larger --max-upload-mb."
    )


def client_of(scope: Message) -> str:
    """Return who sends a request: an address, of IPv6 the network that one customer has.

    Parameters
    ----------
    scope : mapping
        The ASGI scope.

    Examples
    --------
    >>> client_of({"client": ("2001:db8:1:2:3:4:5:6", 5000)}), client_of({"client": None})
    ('2001:db8:1:2::/64', '')
    """
    host = str((scope.get("client") or ("",))[0])
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))
