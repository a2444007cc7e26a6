"""Write predictions to a file in the form of another program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import exports
from ..utils.files import csv_line, write_atomically
from . import FORMATS
from .identifications import Identifications


def write_export(
    identifications: Identifications,
    path: str | os.PathLike[str],
    format: str,
    **options: Any,
) -> None:
    """Write predictions to a file in the form of another program, whole or not at all.

    Parameters
    ----------
    identifications : Identifications
        What to write.
    path : path
        The file: ``.csv`` for tables, ``.json`` for the others.
    format : {"ranks", "darwin-core", "camtrap-dp", "label-studio", "fiftyone", "coco"}
        The form, made by :func:`rank_table`, :func:`darwin_core_occurrences`,
        :func:`camtrap_observations`, :func:`label_studio_tasks`, :func:`fiftyone_dataset` or
        :func:`coco_predictions`.
    **options
        Further arguments of that function.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.exports import Identifications, write_export
    >>> found = Identifications.from_proba([[0.9, 0.1]], Taxonomy.flat(["cat", "dog"]), ["1.jpg"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_export(found, pathlib.Path(folder, "ranks.csv"), "ranks")
    ...     print(pathlib.Path(folder, "ranks.csv").read_text(), end="")
    file_name,level_1,score,rank
    1.jpg,cat,0.9,level_1
    """
    make, ending = check_format(format, path)
    content = make(identifications, **options)
    text = table_text(content) if ending == ".csv" else json.dumps(content, ensure_ascii=False)
    write_atomically(Path(path), lambda file: file.write(text.encode()))


def check_format(format: str, path: str | os.PathLike[str]) -> tuple[Any, str]:
    """Return the function and the file ending of a format, or say what does not fit."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {list(FORMATS)}, got {format!r}.")
    name, ending = FORMATS[format]
    if Path(path).suffix.lower() != ending:
        raise ValueError(
            f"The format {format!r} is written to a {ending} file, got {os.fspath(path)!r}."
        )
    return getattr(exports, name), ending


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as CSV; a text that a spreadsheet would run as a formula is made harmless.

    Parameters
    ----------
    rows : sequence of dict
        Rows with the same columns.

    Examples
    --------
    >>> print(table_text([{"name": "=1+1", "score": -0.5}]), end="")
    name,score
    '=1+1,-0.5
    """
    return "".join(map(csv_line, [rows[0] if rows else [], *(row.values() for row in rows)]))
