"""Reading what others wrote: every complaint says which file was expected where."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

AGAIN = "The file may be half-downloaded: fetch it again."


def find_root(root: str | os.PathLike[str], inside: Sequence[str], file: str, name: str) -> Path:
    """Return the first of root / inside that holds the file.

    Parameters
    ----------
    root : path
        What the user gave.
    inside : sequence of str
        Folders below root to look in; "." is root itself.
    file : str
        A file that shows where the dataset begins.
    name : str
        Name of the dataset, for the error.

    Returns
    -------
    pathlib.Path
    """
    given = Path(root).expanduser()
    if not given.is_dir():
        raise FileNotFoundError(f"{name}: root must be a folder, and there is none at {given}.")
    places = [given / folder for folder in inside]
    for place in places:
        if (place / file).is_file():
            return place
    expected = " or ".join(str(place / file) for place in places)
    raise FileNotFoundError(
        f"{name}: expected a file at {expected}. Unpack the dataset there, or give the folder "
        "that holds it as root."
    )


def expect_file(path: Path, name: str) -> Path:
    """Return the path, or say that the dataset lacks it."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{name}: expected a file at {path}. The dataset is incomplete: unpack or fetch it "
            "again."
        )
    return path


def read_lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    expect_file(path, name)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8 ({error}). {AGAIN}") from None
    lines = [(i, line.rstrip()) for i, line in enumerate(text.split("\n"), start=1)]
    lines = [(i, line) for i, line in lines if line]
    if not lines:
        raise ValueError(f"{path} is empty. {AGAIN}")
    yield from lines


def read_table(path: Path, columns: Iterable[str], name: str) -> list[dict[str, str]]:
    """Return the rows of a comma-separated file that has at least the given columns.

    Parameters
    ----------
    path : path
        The file, in UTF-8.
    columns : iterable of str
        Columns it must have.
    name : str
        Name of the dataset, for the error.

    Returns
    -------
    list of dict
    """
    expect_file(path, name)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = list(reader.fieldnames or ())
            missing = [column for column in columns if column not in header]
            if missing:
                raise ValueError(
                    f"{path} must have the column(s) {missing}, and has {header}. {AGAIN}"
                )
            rows = []
            for row in reader:
                # DictReader files what is too much under None, and fills what is missing with it.
                if None in row or None in row.values():
                    bad_line(path, reader.line_num, f"{len(header)} values", list(row.values()))
                rows.append(row)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8 ({error}). {AGAIN}") from None
    if not rows:
        raise ValueError(f"{path} has a header and no rows. {AGAIN}")
    return rows


def bad_line(path: Path, line: int, expected: str, got: Any) -> NoReturn:
    """Complain about one line of a file."""
    raise ValueError(f"{path}, line {line}: expected {expected}, got {got!r}. {AGAIN}")


def check_images(paths: Sequence[str | Path], how: str, name: str) -> NDArray[np.str_]:
    """Return the paths as an array, after looking at the files as closely as asked.

    Parameters
    ----------
    paths : sequence of path
        The image files.
    how : {"exists", "decode", "none"}
        "exists" asks for a file that is not empty, "decode" reads every pixel of it.
    name : str
        Name of the dataset, for the error.

    Returns
    -------
    ndarray of str
    """
    if how not in _FAULTS:
        raise ValueError(f"check must be one of {tuple(_FAULTS)}, got {how!r}.")
    fault = _FAULTS[how]
    if fault is not None:
        bad = [(path, why) for path in paths if (why := fault(path))]
        if bad:
            raise FileNotFoundError(
                f"{name}: {len(bad)} of {len(paths)} images cannot be read; the first was "
                f"expected at {bad[0][0]} and {bad[0][1]}. Unpack or fetch the dataset again."
            )
    return np.array([str(path) for path in paths], dtype=str)


def _missing(path: str | Path) -> str:
    try:
        return "" if os.stat(path).st_size else "is empty"
    except OSError:
        return "is not there"


def _undecodable(path: str | Path) -> str:
    why = _missing(path)
    if why:
        return why
    try:
        with Image.open(path) as image:
            image.load()
    # Pillow's plugins raise almost anything on damaged files.
    except Exception as error:
        return f"is damaged ({error})"
    return ""


_FAULTS: dict[str, Callable[[str | Path], str] | None] = {
    "exists": _missing,
    "decode": _undecodable,
    "none": None,
}
