"""Rows of predictions: spooled to disk line by line, then written as one table."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ..utils.files import csv_line, lock, printable, write_atomically
from ..utils.optional import import_optional

FORMATS = (".csv", ".parquet", ".json", ".jsonl")
_ROWS_AT_ONCE = 4096

Row = dict[str, Any]


class Spool:
    """Rows that are done, in a file beside the one to be written.

    If a run is interrupted the file stays, and the same run resumes from it; another run starts
    afresh. When all rows are there, :meth:`finish` writes the wanted file, whole or not at all.
    The file is locked, so that two runs cannot write to it at once.

    Parameters
    ----------
    target : path
        The file to be written.
    columns : sequence of str
        Names of the columns.
    identity : str
        Model, inputs and settings of the run.
    """

    def __init__(self, target: Path, columns: Sequence[str], identity: str) -> None:
        self.target = target
        self.columns = [printable(column) for column in columns]
        self._keys = list(columns)
        self.path = target.with_name(f".{target.name}.partial")
        digest = hashlib.blake2b(json.dumps([self._keys, identity]).encode(), digest_size=16)
        self._head = json.dumps({"rows of": digest.hexdigest()}).encode() + b"\n"
        if target.suffix.lower() == ".parquet":
            import_optional("pyarrow", extra="parquet")  # now, not after the last row
        target.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._claim()
        self.n_done = self._recover()
        if not self.n_done:
            self._file.seek(0)
            self._file.write(self._head)
        self._file.truncate()

    def _claim(self) -> BinaryIO:
        """Open the file for this run alone."""
        while True:
            file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            if not lock(file):
                file.close()
                raise FileExistsError(
                    f"Another run is writing {self.target} (it has locked {self.path}). Wait until "
                    "it ends, or give another --out."
                )
            # The run before may have finished, and removed what was just opened.
            if self.path.exists() and os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                return file
            file.close()

    def _recover(self) -> int:
        """Count the rows of an earlier run, and stop before the first that is not whole."""
        if self._file.readline() != self._head:
            return 0
        n_rows, end = 0, self._file.tell()
        for line in self._file:
            if not self._is_row(line):
                break
            n_rows, end = n_rows + 1, end + len(line)
        self._file.seek(end)
        return n_rows

    def _is_row(self, line: bytes) -> bool:
        try:
            row = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            return False
        return (
            isinstance(row, list)
            and len(row) == len(self.columns)
            and all(value is None or isinstance(value, (str, int, float)) for value in row)
        )

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows and make sure that they are on the disk.

        Parameters
        ----------
        rows : iterable of dict
            One for each sample.
        """
        for row in rows:
            values = [row.get(column) for column in self._keys]
            text = [printable(value) if isinstance(value, str) else value for value in values]
            self._file.write(json.dumps(text, ensure_ascii=False).encode() + b"\n")
            self.n_done += 1
        self._file.flush()
        os.fsync(self._file.fileno())

    def values(self, column: str) -> list[Any]:
        """Return the values of a column so far; none if there is no such column.

        Parameters
        ----------
        column : str
            Its name.
        """
        if column not in self._keys:
            return []
        place = self._keys.index(column)
        return [row[place] for row in self._rows()]

    def close(self) -> None:
        """Close the spool and keep its rows."""
        self._file.close()

    def finish(self, n_rows: int) -> None:
        """Write the wanted file and remove the spool.

        Parameters
        ----------
        n_rows : int
            Number of rows that there must be.
        """
        self._file.flush()
        n_found = sum(1 for _ in self._lines())
        if not n_rows == n_found == self.n_done:
            raise ValueError(
                f"{self.path} holds {n_found} rows, and {n_rows} belong there: something else has "
                "changed it. Remove it and run the command again."
            )
        write = {
            ".csv": self._write_csv,
            ".json": self._write_json,
            ".jsonl": self._write_json_lines,
            ".parquet": self._write_parquet,
        }[self.target.suffix.lower()]
        write_atomically(self.target, write)
        if os.name == "nt":  # which removes no open file
            self.close()
        self.path.unlink(missing_ok=True)
        self.close()

    def _lines(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            next(file)
            yield from file

    def _rows(self) -> Iterator[list[Any]]:
        return map(json.loads, self._lines())

    def _write_csv(self, file: BinaryIO) -> None:
        file.write(csv_line(self.columns).encode())
        for row in self._rows():
            file.write(csv_line(row).encode())

    def _write_json(self, file: BinaryIO) -> None:
        for number, row in enumerate(self._rows()):
            file.write(b"[\n" if number == 0 else b",\n")
            file.write(self._as_json(row))
        file.write(b"\n]\n" if self.n_done else b"[]\n")

    def _write_json_lines(self, file: BinaryIO) -> None:
        for row in self._rows():
            file.write(self._as_json(row) + b"\n")

    def _as_json(self, row: list[Any]) -> bytes:
        pairs = dict(zip(self.columns, row, strict=True))
        return json.dumps(pairs, ensure_ascii=False).encode()

    def _write_parquet(self, file: BinaryIO) -> None:
        arrow = import_optional("pyarrow", extra="parquet")
        parquet = import_optional("pyarrow.parquet", extra="parquet")
        # Numbers where every row has a number or nothing.
        texts = {place for row in self._rows() for place, v in enumerate(row) if isinstance(v, str)}
        converters = [str if place in texts else float for place in range(len(self.columns))]
        kinds = [arrow.string() if kind is str else arrow.float64() for kind in converters]
        schema = arrow.schema(list(zip(self.columns, kinds, strict=True)))
        rows = self._rows()
        with parquet.ParquetWriter(file, schema) as writer:
            while True:
                block = list(islice(rows, _ROWS_AT_ONCE))
                columns = zip(*block, strict=True) if block else [()] * len(kinds)
                arrays = [
                    arrow.array([None if v is None else convert(v) for v in values], type=kind)
                    for values, convert, kind in zip(columns, converters, kinds, strict=True)
                ]
                writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
                if len(block) < _ROWS_AT_ONCE:
                    break
