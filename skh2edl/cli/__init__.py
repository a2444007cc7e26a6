"""The ``skh2edl`` command."""

from __future__ import annotations

import sys
import warnings

from ..utils.memory import keep_freed_memory
from ..utils.optional import import_optional


def main() -> None:
    """Run the ``skh2edl`` command with the arguments of the process."""
    # Without the extra a user reads one sentence instead of a traceback.
    try:
        for package in ("typer", "rich.console"):
            import_optional(package, extra="cli")
    except ImportError as missing:
        sys.exit(f"The skh2edl command cannot start. {missing}")
    if sys.argv[1:2] != ["serve"]:  # which runs for long and stays small
        keep_freed_memory()
    from .app import app
    from .common import show_warning

    warnings.showwarning = show_warning
    # A terminal that cannot show a character gets a question mark, not an exception.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app(prog_name="skh2edl")
