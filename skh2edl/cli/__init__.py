"""The ``skh2edl`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the ``skh2edl`` command with the arguments of the process."""
    # Imported here, so that without the extra a user reads one sentence instead of a traceback.
    try:
        from .app import app
    except ModuleNotFoundError as missing:
        if missing.name not in {"rich", "typer"}:
            raise
        sys.exit(
            f"The skh2edl command needs the package {missing.name!r}, which is not installed. "
            "Install it with: pip install 'skh2edl[cli]'"
        )
    # A terminal that cannot show a character gets a question mark, not an exception.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="skh2edl")
