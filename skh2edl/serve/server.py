"""The web server around the application: how long it waits for clients, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import webbrowser
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# Beyond this number, a connection without a request makes room for each new one.
_MAX_CONNECTIONS = 150
_MAX_REQUESTS = 200
# Seconds that requests under way have to finish when the server ends.
_LAST_SECONDS = 1


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose next request does not arrive in time.

    uvicorn itself waits for the first byte, and for the end of the headers, for ever.
    """

    patience = 10.0
    _timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the connection has no request that waits for its response."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()
        others = [
            each
            for each in self.connections
            if isinstance(each, ImpatientProtocol)
            and each is not self
            and not each.transport.is_closing()
        ]
        idle = [each for each in others if each.is_idle]
        if len(others) >= _MAX_CONNECTIONS and idle:
            min(idle, key=lambda each: each._idle_since).transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a request."""
        super().data_received(data)
        if self.is_idle:
            self._watch()
        else:
            self._stop_watching()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, for as long as uvicorn keeps connections alive."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def _watch(self) -> None:
        if self._timer is None:
            self._idle_since = self.loop.time()
            self._timer = self.loop.call_later(self.patience, self._give_up)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.is_idle:
            self.transport.close()


class Server(uvicorn.Server):
    """Runs until Ctrl-C, and ends at once.

    Parameters
    ----------
    application : ASGI application
        What to serve.
    url : str or None, default=None
        Page to open in the browser when the server runs.
    """

    def __init__(self, application: Any, url: str | None = None) -> None:
        config = uvicorn.Config(
            application,
            http=ImpatientProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=_MAX_REQUESTS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_LAST_SECONDS,
            ws="none",
            lifespan="off",
        )
        super().__init__(config)
        self.url = url
        # They note every damaged form and image; its sender gets the reason.
        for name in ("python_multipart", "PIL"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets=sockets)
        if self.url is not None:
            webbrowser.open(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; requests that are cut off by it are no errors of the server."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)


def serve_until_interrupted(
    application: Any, listener: socket.socket, url: str | None = None
) -> None:
    """Serve an application until Ctrl-C.

    Parameters
    ----------
    application : ASGI application
        What to serve.
    listener : socket
        Where to listen.
    url : str or None, default=None
        Page to open in the browser.
    """
    with contextlib.suppress(KeyboardInterrupt):  # how a server ends
        Server(application, url).run(sockets=[listener])
