"""A table of means over seeds, in Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from ..utils.files import csv_line

# Largest p at which a mean is marked as different from the reference.
SIGNIFICANCE = 0.05
_MARK = "†"
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "%&_#$"},
    "±": r"$\pm$",
    _MARK: r"$\dagger$",
    "²": r"$^2$",
    "→": r"$\to$",
    "×": r"$\times$",
}


@dataclass(frozen=True)
class Column:
    """A figure that a table shows.

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
    reference : Row or None, default=None
        Row that this one is tested against.
    text : mapping of str to str, default={}
        Cells that are not means over seeds, by the column's key.
    """

    title: tuple[str, ...]
    figures: Mapping[str, Mapping[int, float]]
    reference: Row | None = None
    text: Mapping[str, str] = field(default_factory=dict)

    def values(self, column: Column) -> np.ndarray:
        """Return the finite values of a figure, in the order of the seeds."""
        by_seed = self.figures.get(column.key, {})
        values = np.array([by_seed[seed] for seed in sorted(by_seed)], dtype=float)
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class Table:
    """Rows of means ± standard deviations over seeds, with paired t-tests.

    Parameters
    ----------
    name : str
        Short name, used for the files.
    caption : str
        What the table shows.
    headings : tuple of str
        Headings of the cells at the left.
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

    @staticmethod
    def p_value(row: Row, column: Column) -> float:
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
        theirs = row.figures.get(column.key, {})
        ours = row.reference.figures.get(column.key, {}) if row.reference else {}
        pairs = np.array([(theirs[seed], ours[seed]) for seed in sorted(set(ours) & set(theirs))])
        if len(pairs) < 2 or not np.isfinite(pairs).all():
            return np.nan
        difference = pairs[:, 0] - pairs[:, 1]
        rounding = 1e-12 * np.abs(pairs).max()
        if np.ptp(difference) <= rounding:  # where the statistic is 0 / 0 or infinite
            return 1.0 if abs(difference[0]) <= rounding else 0.0
        return float(ttest_rel(pairs[:, 0], pairs[:, 1]).pvalue)

    def to_markdown(self) -> str:
        """Return the table in Markdown, the best mean of each column in bold."""
        header, *body = ["| " + " | ".join(line) + " |" for line in self._cells(str, "**{}**")]
        rule = "|" + "---|" * (len(self.headings) + len(self.columns))
        return "\n".join([header, rule, *body])

    def to_latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        columns = "l" * len(self.headings) + "r" * len(self.columns)
        cells = self._cells(_latex, r"\textbf{{{}}}")
        header, *body = [" & ".join(line) + r" \\" for line in cells]
        lines = [
            r"\begin{table}",
            rf"\caption{{{_latex(self.caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            header,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines)

    def to_csv(self) -> str:
        """Return the table as CSV: mean, standard deviation, seeds and p of every figure."""
        are_text = [any(column.key in row.text for row in self.rows) for column in self.columns]
        header: list[str] = list(self.headings)
        for column, is_text in zip(self.columns, are_text, strict=True):
            parts = [""] if is_text else [" mean", " std", " n", " p"]
            header += [column.title + part for part in parts]
        lines = [csv_line(header)]
        for row in self.rows:
            line: list[Any] = list(row.title)
            for column, is_text in zip(self.columns, are_text, strict=True):
                if is_text:
                    line.append(row.text.get(column.key, ""))
                    continue
                values, p = row.values(column), self.p_value(row, column)
                mean = f"{values.mean():.6g}" if values.size else ""
                std = f"{values.std(ddof=1):.6g}" if values.size > 1 else ""
                line += [mean, std, values.size, "" if np.isnan(p) else f"{p:.3g}"]
            lines.append(csv_line(line))
        return "".join(lines).rstrip("\n")

    def _cells(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the text of the header and of all rows, the best means in bold."""
        n_seeds = max((len(v) for row in self.rows for v in row.figures.values()), default=0)
        lines = [[*self.headings, *(column.title for column in self.columns)]]
        lines += [
            [*row.title, *(_cell(row, column, n_seeds) for column in self.columns)]
            for row in self.rows
        ]
        lines = [[escape(text) for text in line] for line in lines]
        for j, column in enumerate(self.columns, start=len(self.headings)):
            for i in self._best(column):
                lines[i + 1][j] = bold.format(lines[i + 1][j])
        return lines

    def _best(self, column: Column) -> list[int]:
        """Return the rows with the best mean of a column, after rounding to its digits."""
        means = {
            i: round(float(values.mean()), column.digits)
            for i, row in enumerate(self.rows)
            if (values := row.values(column)).size
        }
        if column.better is None or not means:
            return []
        top = (max if column.better == "high" else min)(means.values())
        return [i for i, mean in means.items() if mean == top]


def _cell(row: Row, column: Column, n_seeds: int) -> str:
    if column.key in row.text:
        return row.text[column.key]
    values = row.values(column)
    if values.size == 0:
        return ""
    text = f"{values.mean():.{column.digits}f}"
    if values.size > 1:
        text += f" ± {values.std(ddof=1):.{column.digits}f}"
    if values.size < n_seeds:
        text += f" (n = {values.size})"
    return text + (_MARK if Table.p_value(row, column) < SIGNIFICANCE else "")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
