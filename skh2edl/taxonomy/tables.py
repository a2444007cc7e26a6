"""Trees as tables with a column for each rank: read, bridge gaps in the ranks, write."""

from __future__ import annotations

import csv
import gzip
import io
import os
import warnings
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
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


def is_tab_separated(path: Path) -> bool:
    """Tell by its name whether a table has tabs between its cells."""
    endings = [ending.lower() for ending in path.suffixes if ending.lower() != ".gz"]
    return bool(endings) and endings[-1] in (".tsv", ".tab")


def read_cells(file: Iterable[str], path: Path, tabs: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each line; an error names the file and the line."""
    # In tab-separated files, as GBIF writes them, a quote is a character like any other.
    reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(file)
    kind = "tab-separated text" if tabs else "CSV"
    try:
        for line in reader:
            yield reader.line_num, [cell.strip() for cell in line]
    except (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read as {kind} in UTF-8 after line {reader.line_num}: {error}. "
            f"Save it again as UTF-8 {kind}."
        ) from None


def read_table_rows(table: Any, columns: Sequence[Hashable] | None) -> tuple[list[Row], list[str]]:
    """Return the ranks of each row that has any, and the names of the levels they reach."""
    if hasattr(table, "itertuples"):
        chosen = _check_columns(columns, list(table.columns), "The table")
        cells = table[chosen].itertuples(index=False, name=None)
    elif isinstance(table, (str, os.PathLike)):
        cells, chosen = _read_file(Path(table).expanduser(), columns)
    else:
        raise TypeError(
            "table must be the path of a CSV file or a pandas DataFrame, got "
            f"{type(table).__name__}."
        )
    rows = [row for row in map(trim_row, cells) if row]
    return rows, [str(column) for column in chosen[: max(map(len, rows), default=0)]]


def _read_file(path: Path, columns: Sequence[Hashable] | None) -> tuple[Any, list[Hashable]]:
    rows = []
    with open_text(path) as file:
        lines = read_cells(file, path, is_tab_separated(path))
        header: list[Hashable] = list(next(lines, (0, []))[1])
        chosen = _check_columns(columns, header, str(path))
        wanted = [header.index(column) for column in chosen]
        for number, line in lines:
            if len(line) <= max(wanted) and any(line):
                raise ValueError(
                    f"{path}, line {number}, has {len(line)} cells, but the rank "
                    f"columns {shown(chosen)} need {max(wanted) + 1}. Complete the line; a "
                    "blank cell means a missing rank."
                )
            rows.append([line[place] for place in wanted] if any(line) else [])
    return rows, chosen


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
    wanted = {
        (place, row[place])
        for row in rows
        for place in range(1, len(row))
        if row[place - 1] is None and row[place] is not None
    }
    complete: dict[tuple[int, Any], set[tuple[Any, ...]]] = {}
    for row in rows:
        end = row.index(None) if None in row else len(row)
        for place in range(1, end):
            if (place, row[place]) in wanted:
                complete.setdefault((place, row[place]), set()).add(tuple(row[:place]))
    closed, changed = [], []
    for row in rows:
        filled = _bridged(row, complete) if None in row else row
        if filled != row:
            changed.append((row, filled))
        closed.append(filled)
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
