"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

# Asked once: it can only be read by setting it, for all threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


# A spreadsheet takes a cell that begins so for a formula and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would run as a formula.

    Parameters
    ----------
    value : object
        A cell; numbers stay as they are.

    Examples
    --------
    >>> safe_cell("=1+1"), safe_cell("Lynx lynx"), safe_cell(-1.5)
    ("'=1+1", 'Lynx lynx', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_atomically(path: Path, write: Any) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in its place.

    Parameters
    ----------
    path : Path
        What to replace. It stays as it was if anything fails.
    write : callable
        Takes the open binary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_UMASK)  # like any new file, not for the owner alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
