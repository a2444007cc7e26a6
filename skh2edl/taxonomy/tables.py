"""Trees as tables with a column for each rank: read, bridge gaps in the ranks, write."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import warnings
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

from .names import Name, shown, trim_row

Row = list[Any]


def open_text(path: str | os.PathLike[str]) -> IO[str]:
    """Open a text file in UTF-8, unpacked if its name ends in ``.gz``."""
    given = Path(path).expanduser()
    if given.suffix.lower() == ".gz":
        return gzip.open(given, "rt", encoding="utf-8-sig", newline="")
    return given.open(encoding="utf-8-sig", newline="")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file in UTF-8, unpacked if its name ends in ``.gz``."""
    with open_text(path) as file:
        try:
            return file.read()
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{os.fspath(path)} cannot be read as text in UTF-8: {error}. It may be "
                "half-downloaded: fetch it again, or save it as UTF-8."
            ) from None


def load_json(path: str | os.PathLike[str]) -> Any:
    """Return what a JSON file holds, unpacked if its name ends in ``.gz``."""
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is not valid JSON: {error}.") from None


def rows_of(table: Any) -> Iterable[Any]:
    """Return the rows of a DataFrame, an array or any sequence of rows."""
    if hasattr(table, "itertuples"):
        rows: Iterable[Any] = table.itertuples(index=False, name=None)
        return rows
    if isinstance(table, str) or not isinstance(table, Iterable):
        raise TypeError(f"Give a sequence of rows, got {shown(table)}.")
    return table


def read_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each line; an error names the file and the line."""
    number, kind = 0, "CSV"
    try:
        with open_text(path) as file:
            start = file.readline()
            options: dict[str, Any] = {}
            if "\t" in start or path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")):
                # In such files, as GBIF writes them, a quote is a character like any other.
                options, kind = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}, "tab-separated text"
            reader = csv.reader(chain([start], file), **options)
            for line in reader:
                number = reader.line_num
                yield number, [cell.strip() for cell in line]
    except (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read as {kind} in UTF-8 after line {number}: {error}. "
            f"Save it again as UTF-8 {kind}."
        ) from None


def read_columns(
    table: Any, choose: Callable[[list[Hashable], str], list[Hashable]]
) -> dict[Hashable, list[Any]]:
    """Return some columns of a file or a DataFrame.

    Parameters
    ----------
    table : path or DataFrame
        The table; lines without any value are passed over.
    choose : callable
        Takes the names of all columns and the name of the table; returns those to read.
    """
    if hasattr(table, "itertuples"):
        return {name: table[name].tolist() for name in choose(list(table.columns), "The table")}
    if not isinstance(table, (str, os.PathLike)):
        raise TypeError(
            "table must be the path of a CSV file or a pandas DataFrame, got "
            f"{type(table).__name__}."
        )
    path = Path(table).expanduser()
    lines = read_cells(path)
    header: list[Hashable] = list(next(lines, (0, []))[1])
    chosen = choose(header, str(path))
    places = [header.index(name) for name in chosen]
    columns: dict[Hashable, list[Any]] = {name: [] for name in chosen}
    for number, line in lines:
        if not any(line):
            continue
        if len(line) <= max(places, default=0):
            raise ValueError(
                f"{path}, line {number}, has {len(line)} cells, but the columns {shown(chosen)} "
                f"need {max(places) + 1}. Complete the line; a blank cell means a missing rank."
            )
        if any(line[len(header) :]):
            raise ValueError(
                f"{path}, line {number}, has {len(line)} cells, and the header has {len(header)}. "
                "Put a cell with a comma in it into double quotes."
            )
        for name, place in zip(chosen, places, strict=True):
            columns[name].append(line[place])
    return columns


def read_table_rows(table: Any, columns: Sequence[Hashable] | None) -> tuple[list[Row], list[str]]:
    """Return the ranks of each row that has any, and the names of the levels they reach."""
    chosen = read_columns(table, lambda names, source: _check_columns(columns, names, source))
    rows = [row for row in map(trim_row, zip(*chosen.values(), strict=True)) if row]
    return rows, [str(name) for name in chosen][: max(map(len, rows), default=0)]


def _check_columns(
    columns: Sequence[Hashable] | None, available: list[Hashable], source: str
) -> list[Hashable]:
    if isinstance(columns, str):
        columns = [columns]
    chosen = list(available if columns is None else columns)
    missing = [column for column in chosen if column not in available]
    if missing or not chosen:
        raise ValueError(
            f"{source} has the columns {shown(available)}, not "
            f"{shown(missing) if missing else 'any rank column'}. "
            "Name the rank columns from the top level down."
        )
    repeated = [column for column in chosen if (available + chosen).count(column) > 2]
    if repeated:
        raise ValueError(
            f"{source} has the column {shown(repeated[0])} more than once among the rank columns. "
            "Give each rank a column name of its own."
        )
    return chosen


# Gaps ------------------------------------------------------------------------------------------


def close_gaps(rows: list[Row], bridge: bool | None) -> list[Row]:
    """Fill blank ranks from rows that name them, or warn that a class stands in two places.

    Parameters
    ----------
    rows : list of rows
        Ranks from the top level down; None is a blank rank.
    bridge : bool or None
        Whether to fill; None leaves the rows as they are and warns if filling would change them.

    Returns
    -------
    rows : list of rows

    Examples
    --------
    >>> close_gaps([["cat", "Lynx", "lynx"], ["cat", None, "lynx"]], True)
    [['cat', 'Lynx', 'lynx'], ['cat', 'Lynx', 'lynx']]
    """
    if bridge is False or not any(None in row for row in rows):
        return rows
    complete: dict[tuple[int, Any], set[tuple[Any, ...]]] = {}
    for row in rows:
        for place in range(1, row.index(None) if None in row else len(row)):
            complete.setdefault((place, row[place]), set()).add(tuple(row[:place]))
    closed = [_bridged(row, complete) if None in row else row for row in rows]
    changed = [(row, filled) for row, filled in zip(rows, closed, strict=True) if filled != row]
    if bridge or not changed:
        return closed
    names = list(dict.fromkeys(str(row[-1]) for row, _ in changed))
    row, filled = changed[0]
    warnings.warn(
        f"{len(names)} name(s) stand in two places of the tree, first {shown(names[:3])}, because "
        f"a rank is blank in some rows and named in others: {_shown_path(row)} beside "
        f"{_shown_path(filled)}. Each becomes two classes. Pass bridge_gaps=True to fill the blank "
        "ranks from the rows that name them, or bridge_gaps=False to keep both.",
        UserWarning,
        stacklevel=4,
    )
    return rows


def _bridged(row: Row, complete: dict[tuple[int, Any], set[tuple[Any, ...]]]) -> Row:
    filled = list(row)
    for place in range(1, len(row)):
        if filled[place] is None or filled[place - 1] is not None:
            continue
        fitting = [
            prefix
            for prefix in complete.get((place, filled[place]), ())
            if all(own is None or own == other for own, other in zip(filled, prefix, strict=False))
        ]
        if len(fitting) == 1:  # of two genera with such a species neither is meant for sure
            filled[:place] = fitting[0]
    return filled


def _shown_path(row: Row) -> str:
    return " > ".join("(blank)" if name is None else str(name) for name in row)


# Writing -----------------------------------------------------------------------------------------


def write_csv(paths: Iterable[Sequence[Name]], columns: Sequence[str]) -> str:
    """Write one line for each path; what a path does not reach is blank."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([*path, *[""] * (len(columns) - len(path))] for path in paths)
    return buffer.getvalue()
