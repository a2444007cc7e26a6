"""Checks around every request: who may ask, how much may be sent and how slowly, what is loaded."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from .app import Limits

# The page's own files and the user's pictures; nothing else is loaded, sent to or framed by.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    # Responses are about people's photographs: no cache of browser or proxy keeps them.
    "cache-control": "no-store",
}
# Millions of bytes of a request without images. JSON of a megabyte may take 25 when it is read.
_MAX_MB_WITHOUT_IMAGES = 0.1
_logger = logging.getLogger("uvicorn.error")


class Guard:
    """Checks requests before the application sees them, and adds headers to every response.

    Parameters
    ----------
    app : ASGI application
        The application behind the checks.
    hosts : collection of str
        Names under which the server may be called, beside numeric addresses.
    limits : Limits
        How much may be sent, and how slowly.
    """

    def __init__(self, app: Any, hosts: Collection[str], limits: Limits) -> None:
        self.app = app
        self.hosts = {name.lower().rstrip(".") for name in hosts}
        self.limits = limits
        small = min(limits.max_upload_mb, _MAX_MB_WITHOUT_IMAGES)
        self.limits_without_images = replace(limits, max_upload_mb=small)
        self.budget = ByteBudget(limits.max_reading_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        async def respond(status: int, error: str) -> None:
            # The rest of the body is not read, and what follows it is not believed.
            response = JSONResponse({"error": error}, status, {"connection": "close"})
            await response(scope, receive, send_with_headers)

        kind = Headers(scope=scope).get("content-type", "")
        limits = self.limits if is_form(kind) else self.limits_without_images
        refusal = self._refuse(scope, limits)
        if refusal is not None:
            await respond(*refusal)
            return
        body = Body(receive, client_of(scope), self.budget, limits)
        try:
            await self.app(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            pass  # nobody waits for a response, and nothing is wrong with the server
        except Exception:
            if is_started:
                raise
            # In the log for those who run the server; visitors learn nothing of its insides.
            _logger.exception("A request failed: %s %s", scope["method"], scope["path"])
            await respond(500, "Something failed in the server; its log says what.")
        finally:
            body.release()

    def _refuse(self, scope: Scope, limits: Limits) -> tuple[int, str] | None:
        """Return status and reason of a refusal, None if the request may pass."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return 400, "A request must have exactly one Host header."
        host = hosts[0].lower()
        if not self._is_known(host_name(host)):
            # A foreign name that leads here is how a web page elsewhere reaches a local server.
            return 400, (
                f"This server does not go by the name {host_name(host)[:100]!r}. Call it by its "
                "address, or start it with --allow-host and that name."
            )
        origins = [origin.lower().partition("://")[2] for origin in headers.getlist("origin")]
        if scope["method"] not in ("GET", "HEAD") and any(origin != host for origin in origins):
            return 403, "Requests from pages of other sites are not answered."
        length = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:
            # Two programs that believe different ones see two different requests.
            return 400, "A request must not have both Content-Length and Transfer-Encoding."
        if not (length.isascii() and length.isdigit()):
            return 400, "Content-Length must be a number."
        # No number of 15 digits is small, and Python refuses to read very long ones.
        if len(length) > 15 or int(length) > limits.max_upload_bytes:
            return 413, _too_large(limits)
        return None

    def _is_known(self, name: str) -> bool:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True  # no name was looked up, so none can have been turned to this machine


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
        """Take bytes for a client if there is room."""
        free = self.max_bytes - self._n_bytes - n_bytes
        if n_bytes and self._held[client] + n_bytes > free:
            return False
        self._held[client] += n_bytes
        self._n_bytes += n_bytes
        return True

    def give_back(self, client: str, n_bytes: int) -> None:
        """Return bytes of a client that are no longer in memory."""
        self._n_bytes -= n_bytes
        self._held[client] -= n_bytes
        if not self._held[client]:
            del self._held[client]
        # Those who wait look again; the next ones wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_and_take(self, client: str, n_bytes: int) -> None:
        """Take bytes for a client as soon as there is room."""
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
            raise HTTPException(413, _too_large(limits))
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


def _too_large(limits: Limits) -> str:
    return (
        f"A request may send at most {limits.max_upload_bytes / 1e6:g} MB. Send fewer or smaller "
        "images, or start the server with a larger --max-upload-mb."
    )


def is_form(content_type: str) -> bool:
    """Tell whether a request says that it sends files.

    Examples
    --------
    >>> is_form("Multipart/form-data; boundary=x"), is_form("application/json")
    (True, False)
    """
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def client_of(scope: Scope) -> str:
    """Return who sends a request: an address, of IPv6 the network that one customer has.

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


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port.

    Examples
    --------
    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("example.org.")
    ('localhost', '::1', 'example.org')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")
