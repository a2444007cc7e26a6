"""Checks before every request: who may ask, how much may be sent, what a browser may load."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.requests import ClientDisconnect

from .app import Limits
from .bodies import Body, ByteBudget, Message, Receive, client_of, too_large

Send = Callable[[Message], Awaitable[None]]

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
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_NAMES = {name for name, _ in _ENCODED}
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
        self.budget = ByteBudget(limits.max_reading_bytes)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
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
                own = [pair for pair in message.get("headers", []) if pair[0] not in _NAMES]
                message = {**message, "headers": [*own, *_ENCODED]}
            await send(message)

        refusal = self._refuse(scope)
        if refusal is not None:
            await _respond(send_with_headers, *refusal)
            return
        body = Body(receive, client_of(scope), self.budget, self.limits)
        try:
            await self.app(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            pass  # nobody waits for a response, and nothing is wrong with the server
        except Exception:
            if is_started:
                raise
            # In the log for those who run the server; visitors learn nothing of its insides.
            _logger.exception("A request failed: %s %s", scope["method"], scope["path"])
            await _respond(
                send_with_headers, 500, "Something failed in the server; its log says what."
            )
        finally:
            body.release()

    def _refuse(self, scope: Message) -> tuple[int, str] | None:
        """Return status and reason of a refusal, None if the request may pass."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = headers.get(b"host", [])
        if len(hosts) != 1:
            return 400, "A request must have exactly one Host header."
        host = hosts[0].decode("latin-1").lower()
        if not self._is_known(host_name(host)):
            # A foreign name that leads here is how a web page elsewhere reaches a local server.
            return 400, (
                f"This server does not go by the name {host_name(host)[:100]!r}. Call it by its "
                "address, or start it with --allow-host and that name."
            )
        origins = headers.get(b"origin", [])
        if scope["method"] not in ("GET", "HEAD") and any(
            origin.decode("latin-1").lower().partition("://")[2] != host for origin in origins
        ):
            return 403, "Requests from pages of other sites are not answered."
        lengths = headers.get(b"content-length", [])
        if lengths and b"transfer-encoding" in headers:
            # Two programs that believe different ones see two different requests.
            return 400, "A request must not have both Content-Length and Transfer-Encoding."
        length = lengths[0] if lengths else b"0"
        if not length.isdigit():
            return 400, "Content-Length must be a number."
        if len(length) > 15 or int(length) > self.limits.max_upload_bytes:
            return 413, too_large(self.limits)
        return None

    def _is_known(self, name: str) -> bool:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True  # no name was looked up, so none can have been turned to this machine


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port.

    Parameters
    ----------
    host : str
        Value of the header.

    Examples
    --------
    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("example.org.")
    ('localhost', '::1', 'example.org')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


async def _respond(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    # The rest of the body is not read, and what follows it is not believed.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
