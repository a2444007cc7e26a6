"""Read the files of a data set; errors name the file and what was expected in it."""

import csv
import io
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..taxonomy.tables import read_text

# The way out where a file does not hold what it should.
AGAIN = "The file may be half-downloaded: fetch it again."


def find_root(root: str | os.PathLike[str], inside: Sequence[str], file: str, name: str) -> Path:
    """Return the folder of a data set: the first of root / inside that holds the file.

    Parameters
    ----------
    root : path
        The folder that the user gave.
    inside : sequence of str
        Folders below root to look in; "." is root itself.
    file : str
        A file that marks the folder.
    name : str
        Name of the data set, for the error.

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


def _read_text(path: Path, name: str) -> str:
    """Return the text of a file, or raise an error that names the data set or the file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{name}: expected a file at {path}. The dataset is incomplete: unpack or fetch it "
            "again."
        )
    return read_text(path)


def read_lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line that is not blank."""
    numbered = enumerate(_read_text(path, name).split("\n"), start=1)
    lines = [(number, line.rstrip()) for number, line in numbered if line.strip()]
    if not lines:
        raise ValueError(f"{path} is empty. {AGAIN}")
    yield from lines


def read_numbered(path: Path, name: str) -> dict[str, str]:
    """Return number -> text of a file with a number, a space and a text on every line."""
    values: dict[str, str] = {}
    for line, text in read_lines(path, name):
        number, _, value = text.partition(" ")  # texts may hold spaces
        if not number.isdecimal() or not value.strip() or number in values:
            bad_line(path, line, "a number not listed before, a space and a text", text)
        values[number] = value.strip()
    return values


def read_table(path: Path, columns: Iterable[str], name: str) -> list[dict[str, str]]:
    """Return the rows of a comma-separated file that has at least the given columns.

    Parameters
    ----------
    path : path
        The file, in UTF-8.
    columns : iterable of str
        Columns it must have.
    name : str
        Name of the data set, for the error.

    Returns
    -------
    list of dict
    """
    reader = csv.DictReader(io.StringIO(_read_text(path, name)))
    header = list(reader.fieldnames or ())
    missing = [column for column in columns if column not in header]
    if missing:
        raise ValueError(f"{path} must have the column(s) {missing}, and has {header}. {AGAIN}")
    rows = []
    for row in reader:
        # DictReader uses None as the key of surplus values and as the value of missing ones.
        if None in row or None in row.values():
            bad_line(path, reader.line_num, f"{len(header)} values", list(row.values()))
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} has a header and no rows. {AGAIN}")
    return rows


def bad_line(path: Path, line: int, expected: str, got: Any) -> NoReturn:
    """Raise an error about one line of a file."""
    raise ValueError(f"{path}, line {line}: expected {expected}, got {got!r}. {AGAIN}")


def check_one_parent(
    pairs: Iterable[tuple[Hashable, Hashable]], where: str
) -> dict[Hashable, Hashable]:
    """Return the parent of each class, or raise an error if one has two.

    Parameters
    ----------
    pairs : iterable of (class, parent)
        May repeat.
    where : str
        What holds the classes, for the error.
    """
    parents: dict[Hashable, Hashable] = {}
    for child, parent in pairs:
        if parents.setdefault(child, parent) != parent:
            raise ValueError(
                f"{where} {child!r} lies under both {parents[child]!r} and {parent!r}. Each class "
                "must have one parent: correct the lists, or fetch the dataset again."
            )
    return parents


def check_images(paths: Sequence[str | Path], how: str, name: str) -> NDArray[np.str_]:
    """Check the image files and return their paths as an array.

    Parameters
    ----------
    paths : sequence of path
        The image files.
    how : {"exists", "decode", "none"}
        "exists" requires a file that is not empty, "decode" reads every pixel.
    name : str
        Name of the data set, for the error.

    Returns
    -------
    ndarray of str
    """
    if how not in ("exists", "decode", "none"):
        raise ValueError(f"check must be one of ('exists', 'decode', 'none'), got {how!r}.")
    checked = [] if how == "none" else paths
    bad = [(path, why) for path in checked if (why := _fault(path, decode=how == "decode"))]
    if bad:
        raise FileNotFoundError(
            f"{name}: {len(bad)} of {len(paths)} images cannot be read; the first was "
            f"expected at {bad[0][0]} and {bad[0][1]}. Correct the path, or fetch the data again."
        )
    return np.array([str(path) for path in paths], dtype=str)


def check_fraction(val_fraction: float) -> None:
    """Refuse a fraction of images to hold out that leaves none to learn from."""
    if not 0 <= val_fraction < 1:
        raise ValueError(f"val_fraction must be at least 0 and below 1, got {val_fraction}.")


def _fault(path: str | Path, *, decode: bool) -> str:
    """Say what is wrong with an image file, "" if nothing is."""
    try:
        if not os.stat(path).st_size:
            return "is empty"
    except OSError:
        return "is not there"
    try:
        if decode:
            with Image.open(path) as image:
                image.load()
    # Pillow's plugins raise almost anything on damaged files.
    except Exception as error:
        return f"is damaged ({error})"
    return ""
