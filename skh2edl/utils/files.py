"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

# Asked once: it can only be read by setting it, for all threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


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
