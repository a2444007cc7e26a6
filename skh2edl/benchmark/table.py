"""A table of means over seeds, in Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from ..utils.files import csv_line

# Largest p at which a mean is marked as different from a reference.
SIGNIFICANCE = 0.05
# Mark of each reference, in the order of a row's references.
MARKS = "†‡"
# What a note says of the bold cells; in LaTeX the second best means are marked too.
BEST = "bold is the best mean"
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "%&_#${}"},
    "^": r"\textasciicircum{}",
    **{character: f"${character}$" for character in "<>|"},
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "Δ": r"$\Delta$",
    "~": r"$\sim$",
    "✓": r"\checkmark",
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
    signed : bool, default=False
        Whether the figure is a change: it has a sign, and none is the best.
    """

    title: str
    key: str
    digits: int
    better: str | None = None
    signed: bool = False


@dataclass(frozen=True)
class Row:
    """Figures of one method.

    Parameters
    ----------
    title : tuple of str
        Cells at the left.
    figures : mapping of str to mapping of int to float
        Figure -> seed -> value.
    references : mapping of str to Row or None, default={}
        Rows that this one is tested against, by their name; None is this row itself, or one that
        the table does not have.
    text : mapping of str to str, default={}
        Cells that are not means over seeds, by the column's key.
    measure : Column, default=None
        What all columns of this row show, where rows and not columns are the measures; None means
        that the columns are.
    """

    title: tuple[str, ...]
    figures: Mapping[str, Mapping[int, float]]
    references: Mapping[str, Row | None] = field(default_factory=dict)
    text: Mapping[str, str] = field(default_factory=dict)
    measure: Column | None = None

    def values(self, column: Column) -> np.ndarray:
        """Return the finite values of a figure, in the order of the seeds."""
        by_seed = self.figures.get(column.key, {})
        values = np.array([by_seed[seed] for seed in sorted(by_seed)], dtype=float)
        return values[np.isfinite(values)]


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p of a paired t-test.

    Parameters
    ----------
    ours, theirs : sequence of float
        A figure of two methods, in the same order of the seeds.

    Returns
    -------
    p : float
        NaN with fewer than two pairs or with a figure that is not finite; 1 where all pairs are
        equal.

    Examples
    --------
    >>> from skh2edl.benchmark.table import paired_p
    >>> round(paired_p([1.0, 2.0, 3.0], [1.1, 2.4, 3.1]), 3)
    0.184
    """
    pairs = np.array([ours, theirs], dtype=float)
    if pairs.shape[1] < 2 or not np.isfinite(pairs).all():
        return np.nan
    difference = pairs[0] - pairs[1]
    rounding = 1e-12 * np.abs(pairs).max()
    if np.ptp(difference) <= rounding:  # where the statistic is 0 / 0 or infinite
        return 1.0 if abs(difference[0]) <= rounding else 0.0
    return float(ttest_rel(*pairs).pvalue)


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
    note : str, default=""
        What its marks mean.
    missing : tuple of str, default=()
        What the table has room and no records for.

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
    note: str = ""
    missing: tuple[str, ...] = ()

    @property
    def legend(self) -> str:
        """The caption, the note and what is missing."""
        missing = f"No record of: {'; '.join(self.missing)}" if self.missing else ""
        return " ".join(f"{part}." for part in (self.caption, self.note, missing) if part)

    @staticmethod
    def p_value(row: Row, column: Column, reference: str) -> float:
        """Return the two-sided p of a paired t-test over seeds against a reference of the row.

        Parameters
        ----------
        row : Row
            The row.
        column : Column
            The column.
        reference : str
            Name of the reference.

        Returns
        -------
        p : float
            NaN without the reference or with fewer than two common seeds.
        """
        theirs = row.figures.get(column.key, {})
        other = row.references.get(reference)
        ours = other.figures.get(column.key, {}) if other else {}
        seeds = sorted(set(ours) & set(theirs))
        return paired_p([theirs[seed] for seed in seeds], [ours[seed] for seed in seeds])

    def to_markdown(self) -> str:
        """Return the table in Markdown, the best mean of each column in bold."""
        header, *body = ["| " + " | ".join(line) + " |" for line in self._cells(str, "**{}**")]
        rule = "|" + "---|" * (len(self.headings) + len(self.columns))
        return "\n".join([header, rule, *body])

    def to_latex(self) -> str:
        """Return the table in LaTeX, for the packages booktabs and amssymb.

        The best mean of each column is in bold and the second best is underlined.
        """
        columns = "l" * len(self.headings) + "r" * len(self.columns)
        legend = self.legend.replace(BEST, f"{BEST}, underlined is the second best")
        cells = self._cells(_latex, r"\textbf{{{}}}", r"\underline{{{}}}")
        header, *body = [" & ".join(line) + r" \\" for line in cells]
        lines = [
            r"\begin{table}",
            rf"\caption{{{_latex(legend)}}}",
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
        tested = list(dict.fromkeys(name for row in self.rows for name in row.references))
        figures = [any(column.key in row.figures for row in self.rows) for column in self.columns]
        parts = [" mean", " std", " n", *(f" p against {name}" for name in tested)]
        header: list[str] = list(self.headings)
        for column, has_figures in zip(self.columns, figures, strict=True):
            header += [column.title + part for part in parts] if has_figures else [column.title]
        lines = [csv_line(header)]
        for row in self.rows:
            line: list[Any] = list(row.title)
            for column, has_figures in zip(self.columns, figures, strict=True):
                if not has_figures or column.key in row.text:
                    line += [row.text.get(column.key, ""), *[""] * (has_figures * len(parts[1:]))]
                    continue
                values = row.values(column)
                mean = f"{values.mean():.6g}" if values.size else ""
                std = f"{values.std(ddof=1):.6g}" if values.size > 1 else ""
                p = [self.p_value(row, column, name) for name in tested]
                line += [mean, std, values.size, *("" if np.isnan(x) else f"{x:.3g}" for x in p)]
            lines.append(csv_line(line))
        return "".join(lines).rstrip("\n")

    def _cells(self, escape: Callable[[str], str], *marks: str) -> list[list[str]]:
        """Return the text of the header and of all rows; marks for the best means, the second."""
        n_seeds = max((len(v) for row in self.rows for v in row.figures.values()), default=0)
        lines = [[*self.headings, *(column.title for column in self.columns)]]
        lines += [
            [*row.title, *(_cell(row, column, n_seeds) for column in self.columns)]
            for row in self.rows
        ]
        lines = [[escape(text) for text in line] for line in lines]
        for j, column in enumerate(self.columns, start=len(self.headings)):
            for i, place in self._places(column):
                if place < len(marks):
                    lines[i + 1][j] = marks[place].format(lines[i + 1][j])
        return lines

    def _places(self, column: Column) -> list[tuple[int, int]]:
        """Return each row with a mean, and how many better means there are, rounded to digits.

        Where rows are measures, these are the places among the rows of every measure. A figure that
        one row alone has is no place.
        """
        groups: dict[Column, dict[int, float]] = {}
        for i, row in enumerate(self.rows):
            shown, values = row.measure or column, row.values(column)
            if shown.better is not None and not column.signed and values.size:
                groups.setdefault(shown, {})[i] = round(float(values.mean()), shown.digits)
        places = []
        for shown, means in groups.items():
            if len(means) < 2:
                continue
            order = sorted(set(means.values()), reverse=shown.better == "high")
            places += [(i, order.index(mean)) for i, mean in means.items()]
        return places


def _cell(row: Row, column: Column, n_seeds: int) -> str:
    if column.key in row.text:
        return row.text[column.key]
    values, digits = row.values(column), (row.measure or column).digits
    if values.size == 0:
        return ""
    # "z": a small negative mean is not shown as -0.0.
    text = f"{values.mean():{'+' if column.signed else ''}z.{digits}f}"
    if values.size > 1:
        text += f" ± {values.std(ddof=1):.{digits}f}"
    if values.size < n_seeds:
        text += f" (n = {values.size})"
    differs = (Table.p_value(row, column, name) < SIGNIFICANCE for name in row.references)
    return text + "".join(mark for mark, yes in zip(MARKS, differs, strict=False) if yes)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
