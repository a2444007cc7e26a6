"""Files that are written whole or not at all, by one process at a time; text fit for them."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

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


def lock(file: IO[Any]) -> bool:
    """Lock an open file; the system drops the lock when the file is closed or the process ends.

    Parameters
    ----------
    file : file
        Open for writing.

    Returns
    -------
    is_ours : bool
        False if somebody else has locked it. Where the file system knows no locks, True.

    Examples
    --------
    >>> with tempfile.NamedTemporaryFile() as first, open(first.name, "ab") as second:
    ...     lock(first), lock(second)
    (True, False)
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            place = file.tell()
            # Far behind the content: a locked byte cannot be read through another handle.
            file.seek(2**31 - 2)
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            finally:
                file.seek(place)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


def printable(text: str) -> str:
    r"""Escape undecodable bytes in a file name.

    Parameters
    ----------
    text : str
        Any text.

    Examples
    --------
    >>> print(printable("caf\udce9.png"))
    caf\udce9.png
    """
    return text.encode("utf-8", "backslashreplace").decode()


_FORMULA = re.compile(r"[=+\-@\t\r]")


def csv_cell(value: Any) -> Any:
    """Put an apostrophe before a text that a spreadsheet would take for a formula.

    Parameters
    ----------
    value : object
        What is to stand in a cell; numbers, also as text, stay as they are.

    Examples
    --------
    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell(-0.5), csv_cell("robin"), csv_cell(None)
    ("'=1+1", '-0.5', -0.5, 'robin', '')
    """
    if value is None:
        return ""
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value if value == value.strip() else f"'{value}"
