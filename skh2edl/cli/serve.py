"""``skh2edl serve``: a page to try a model on."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

from .common import ModelArgument, QuietOption, UsageError, consoles, option


def serve(
    model: ModelArgument,
    host: Annotated[str, option("Address to listen at; by default only from here.")] = "127.0.0.1",
    port: Annotated[int, option("Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    max_upload_mb: Annotated[float, option("Most megabytes in a request.", min=0.001)] = 64,
    max_files: Annotated[int, option("Most images in one request.", min=1)] = 32,
    allow_host: Annotated[
        list[str] | None,
        option(
            "A name to call the server by, beside its address; can be repeated.",
            shown="localhost, and this machine's if --host is not loopback",
        ),
    ] = None,
    open_page: Annotated[bool, option("Open the page in the browser.", "--open")] = False,
    quiet: QuietOption = False,
) -> None:
    """Serve a page on which photographs can be tried, and the same as a JSON API.

    Drop photographs on the page, see how far down the tree the evidence carries, move the slider
    to ask for safer predictions, fuse several photographs of one subject, download all predictions.
    Images are read in memory and never kept. /api/openapi.json describes the API. Ctrl-C ends it.

    There is no login and no encryption. At another address than the default, everybody who can
    reach this machine can use the page.

    For example:

      skh2edl serve birds.safetensors --open

      skh2edl serve birds.safetensors --port 9000 --max-files 8 --max-upload-mb 20

      skh2edl serve birds.safetensors --host 0.0.0.0 --allow-host birds.lan
    """
    from ..utils.optional import import_optional

    results, remarks = consoles(quiet)
    for package in ("fastapi", "python_multipart", "uvicorn"):
        import_optional(package, extra="serve")
    from ..serve.server import serve_until_interrupted

    with _listen(host, port) as listener:
        address, own_port = listener.getsockname()[:2]
        is_loopback = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        names = ["localhost", host, *(allow_host or [])]
        if not is_loopback:
            names.append(socket.gethostname())
        application = _application(model, names, max_upload_mb, max_files)
        url = f"http://{_shown_address(host, address)}:{own_port}/"
        results.print(f"[bold green]Serving {model.name} at {url}[/bold green]", soft_wrap=True)
        if not is_loopback:
            remarks.print(
                "[yellow]Everybody who can reach this machine can use the page: there is no login "
                "and no encryption.[/yellow]",
                soft_wrap=True,
            )
        remarks.print("Ctrl-C ends it.")
        serve_until_interrupted(application, listener, url if open_page else None)
    # At once: there is nothing to save, and taking torch apart takes seconds.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _application(model: Path, names: list[str], max_upload_mb: float, max_files: int) -> Any:
    from ..serve import Limits, create_app

    limits = Limits(max_upload_mb=max_upload_mb, max_files=max_files)
    return create_app(model, limits=limits, hosts=names)


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before the model is loaded, or say at once that it is taken."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        raise UsageError(
            f"--host {host!r} is no address of this machine. Use 127.0.0.1 for this machine only, "
            "or 0.0.0.0 for all its networks."
        ) from None
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)  # whoever calls before the server runs waits a moment
    except OSError as error:
        listener.close()
        raise OSError(
            f"Nothing can listen at {host} port {port} ({error.strerror}). Choose another --port; "
            "0 takes a free one."
        ) from None
    return listener


def _shown_address(host: str, address: str) -> str:
    """Return an address that a browser on this machine can open."""
    if address in ("0.0.0.0", "::"):
        return "127.0.0.1"
    if host == "localhost":
        return host
    return f"[{address}]" if ":" in address else address
