"""A table of means over seeds, in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

# Where the mean of a column differs from the reference's by chance in fewer than this.
SIGNIFICANCE = 0.05
_MARK = "†"


@dataclass(frozen=True)
class Column:
    """What a column shows.

    Parameters
    ----------
    title : str
        Heading.
    key : str
        Name of the figure.
    digits : int
        Decimals.
    better : {"high", "low"} or None, default=None
        Which mean is printed bold.
    """

    title: str
    key: str
    digits: int
    better: str | None = None


@dataclass(frozen=True)
class Row:
    """Figures of one method.

    Parameters
    ----------
    title : tuple of str
        Cells at the left.
    figures : mapping of str to mapping of int to float
        Figure -> seed -> value.
    reference : int or None, default=None
        Position of the row that this one is tested against.
    text : mapping of str to str, default={}
        Cells that are no means over seeds, by the column's key.
    """

    title: tuple[str, ...]
    figures: Mapping[str, Mapping[int, float]]
    reference: int | None = None
    text: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Table:
    """Rows of means ± standard deviations over seeds, with paired t-tests.

    Parameters
    ----------
    name : str
        Short name, of the files.
    caption : str
        What the table shows.
    headings : tuple of str
        Of the cells at the left.
    columns : tuple of Column
        The figures.
    rows : tuple of Row
        The methods.

    Examples
    --------
    >>> from skh2edl.benchmark import Table
    >>> from skh2edl.benchmark.table import Column, Row
    >>> rows = (Row(("ours",), {"nll": {0: 1.0, 1: 1.2}}), Row(("theirs",), {"nll": {0: 1.5}}))
    >>> table = Table("main", "Test", ("method",), (Column("NLL", "nll", 2, "low"),), rows)
    >>> print(table.to_markdown())
    | method | NLL |
    |---|---|
    | ours | **1.10 ± 0.14** |
    | theirs | 1.50 (n = 1) |
    """

    name: str
    caption: str
    headings: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def p_value(self, row: Row, column: Column) -> float:
        """Return the two-sided p of a paired t-test over seeds against the row's reference.

        Parameters
        ----------
        row : Row
            The row.
        column : Column
            The column.

        Returns
        -------
        p : float
            NaN without a reference or with fewer than two common seeds.
        """
        if row.reference is None or self.rows[row.reference] is row:
            return np.nan
        ours = self.rows[row.reference].figures.get(column.key, {})
        theirs = row.figures.get(column.key, {})
        seeds = sorted(set(ours) & set(theirs))
        pairs = np.array([(theirs[seed], ours[seed]) for seed in seeds])
        if len(seeds) < 2 or not np.isfinite(pairs).all():
            return np.nan
        difference = pairs[:, 0] - pairs[:, 1]
        rounding = 1e-12 * np.abs(pairs).max()
        if np.ptp(difference) <= rounding:  # where the statistic is 0 / 0 or infinite
            return 1.0 if abs(difference[0]) <= rounding else 0.0
        return float(ttest_rel(pairs[:, 0], pairs[:, 1]).pvalue)

    def cells(self) -> list[list[str]]:
        """Return the text of each cell, without marks for the best."""
        most = max((len(v) for row in self.rows for v in row.figures.values()), default=0)
        return [
            [*row.title, *(self._cell(row, column, most) for column in self.columns)]
            for row in self.rows
        ]

    def _cell(self, row: Row, column: Column, most: int) -> str:
        if row.text and column.key in row.text:
            return row.text[column.key]
        values = _values(row, column)
        if values.size == 0:
            return ""
        text = f"{values.mean():.{column.digits}f}"
        if values.size > 1:
            text += f" ± {values.std(ddof=1):.{column.digits}f}"
        if values.size < most:
            text += f" (n = {values.size})"
        return text + (_MARK if self.p_value(row, column) < SIGNIFICANCE else "")

    def _best(self) -> set[tuple[int, int]]:
        """Return the cells with the best mean of their column, as far as the digits tell."""
        best = set()
        for j, column in enumerate(self.columns):
            if column.better is None:
                continue
            means = {
                i: round(float(values.mean()), column.digits)
                for i, row in enumerate(self.rows)
                if (values := _values(row, column)).size
            }
            if not means:
                continue
            choose = max if column.better == "high" else min
            top = choose(means.values())
            best |= {(i, j + len(self.headings)) for i, mean in means.items() if mean == top}
        return best

    def to_markdown(self) -> str:
        """Return the table in Markdown, the best of each column in bold."""
        best = self._best()
        header = [*self.headings, *(column.title for column in self.columns)]
        lines = [header, ["---"] * len(header)]
        for i, cells in enumerate(self.cells()):
            lines.append(
                [f"**{text}**" if (i, j) in best else text for j, text in enumerate(cells)]
            )
        text = ["| " + " | ".join(line) + " |" for line in lines]
        text[1] = "|" + "---|" * len(header)
        return "\n".join(text)

    def to_latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        best = self._best()
        header = [*self.headings, *(column.title for column in self.columns)]
        columns = "l" * len(self.headings) + "r" * len(self.columns)
        lines = [
            r"\begin{table}",
            rf"\caption{{{_latex(self.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(_latex, header)) + r" \\",
            r"\midrule",
        ]
        for i, cells in enumerate(self.cells()):
            texts = [
                rf"\textbf{{{_latex(text)}}}" if (i, j) in best else _latex(text)
                for j, text in enumerate(cells)
            ]
            lines.append(" & ".join(texts) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join(lines)

    def to_csv(self) -> str:
        """Return the table as CSV: mean, standard deviation, seeds and p of every figure."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        header: list[str] = list(self.headings)
        for column in self.columns:
            if self._is_text(column):
                header.append(column.title)
            else:
                header += [f"{column.title} {part}" for part in ("mean", "std", "n", "p")]
        writer.writerow(header)
        for row in self.rows:
            line: list[Any] = list(row.title)
            for column in self.columns:
                if self._is_text(column):
                    line.append((row.text or {}).get(column.key, ""))
                    continue
                values = _values(row, column)
                mean = f"{values.mean():.6g}" if values.size else ""
                std = f"{values.std(ddof=1):.6g}" if values.size > 1 else ""
                p = self.p_value(row, column)
                line += [mean, std, values.size, "" if np.isnan(p) else f"{p:.3g}"]
            writer.writerow(line)
        return out.getvalue().rstrip("\n")

    def _is_text(self, column: Column) -> bool:
        return any(row.text and column.key in row.text for row in self.rows)


def _values(row: Row, column: Column) -> np.ndarray:
    by_seed = row.figures.get(column.key, {})
    values = np.array([by_seed[seed] for seed in sorted(by_seed)], dtype=float)
    return values[np.isfinite(values)]


_LATEX: Sequence[tuple[str, str]] = (
    ("\\", r"\textbackslash{}"),
    *((character, "\\" + character) for character in "%&_#$"),
    ("±", r"$\pm$"),
    (_MARK, r"$\dagger$"),
    ("²", r"$^2$"),
    ("→", r"$\to$"),
    ("×", r"$\times$"),
)


def _latex(text: str) -> str:
    for character, instead in _LATEX:
        text = text.replace(character, instead)
    return text
