"""Files that are written whole or not at all, by one process at a time; text fit for them."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

# Asked once: it can only be read by setting it, for all threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


def write_atomically(path: Path, write: Any, durable: bool = True) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in its place.

    Parameters
    ----------
    path : Path
        What to replace. It stays as it was if anything fails.
    write : callable
        Takes the open binary file.
    durable : bool, default=True
        Whether to wait for the disk, so that the file is whole even after a loss of power.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            if durable:
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


# What a spreadsheet takes for a formula at the start of a cell, unless it is a number.
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def csv_line(values: Iterable[Any]) -> str:
    r"""Return a line of a CSV file.

    A text that a spreadsheet would take for a formula gets an apostrophe in front. Numbers, also
    as text, stay as they are.

    Parameters
    ----------
    values : iterable
        The cells; None is an empty one.

    Examples
    --------
    >>> csv_line(["=1+1", "-0.5", -0.5, "robin, wren", None])
    '\'=1+1,-0.5,-0.5,"robin, wren",\n'
    """
    line = io.StringIO()
    # Both ends of a line in a cell are quoted, since both stand in this terminator.
    csv.writer(line, lineterminator="\r\n").writerow(map(_as_cell, values))
    return line.getvalue().removesuffix("\r\n") + "\n"


def is_formula(value: Any) -> bool:
    """Return whether a spreadsheet would take a cell for a formula.

    Parameters
    ----------
    value : object
        What is to stand in the cell.

    Examples
    --------
    >>> is_formula("@sum"), is_formula("-0.5"), is_formula(-0.5)
    (True, False, False)
    """
    return isinstance(value, str) and bool(_FORMULA.match(value)) and not _NUMBER.fullmatch(value)


def _as_cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"'{value}" if is_formula(value) else value
