"""Small pieces of HTML; every text that comes from data passes through `text`."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def text(value: Any) -> str:
    """Return a text that means itself inside HTML, also within quotes.

    Examples
    --------
    >>> text("<b>&'")
    '&lt;b&gt;&amp;&#x27;'
    """
    return html.escape(str(value), quote=True)


def number(value: float, digits: int = 3) -> str:
    """Write a number, a dash where there is none."""
    return "–" if not np.isfinite(value) else f"{value:.{digits}f}"


def word_id(name: str) -> str:
    """Return the address of a word among the explained ones.

    Examples
    --------
    >>> word_id("95 % interval")
    'word-95-interval'
    """
    return "word-" + re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def word(name: str, shown: str | None = None) -> str:
    """Return a word that leads to its explanation."""
    return f'<a class="word" href="#{word_id(name)}">{text(shown or name)}</a>'


# Columns that do not fit a telephone: their table says that it can be scrolled.
_MANY_COLUMNS = 6


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: str = "",
    row_kinds: Sequence[str] | None = None,
    left: Iterable[int] = (),
    bars: Iterable[int] = (),
) -> str:
    """Return a table; cells are HTML already, the first of each row is its heading.

    Parameters
    ----------
    caption : str
        What the table shows, as HTML.
    head : sequence of str
        Headings of the columns.
    rows : iterable of sequences of str
        Cells.
    kind : str, default=""
        Class of the table.
    row_kinds : sequence of str, default=None
        Class of each row.
    left : iterable of int, default=()
        Columns whose text begins at the left.
    bars : iterable of int, default=()
        Columns that draw what the next one says; a narrow screen leaves them out.
    """
    kinds = {column: "left" for column in left} | {column: "left bars" for column in bars}

    def place(column: int) -> str:
        return f' class="{kinds[column]}"' if column in kinds else ""

    heads = "".join(
        f'<th scope="col"{place(column)}>{cell}</th>' for column, cell in enumerate(head)
    )
    lines = []
    for index, row in enumerate(rows):
        of_row = f' class="{row_kinds[index]}"' if row_kinds and row_kinds[index] else ""
        cells = "".join(
            f"<td{place(column)}>{cell}</td>" for column, cell in enumerate(row[1:], start=1)
        )
        lines.append(f'<tr{of_row}><th scope="row">{row[0]}</th>{cells}</tr>')
    of_table = f' class="{kind}"' if kind else ""
    hint = ""
    if len(head) - sum(kind == "left bars" for kind in kinds.values()) >= _MANY_COLUMNS:
        hint = '<p class="hint" aria-hidden="true">Wide table: scroll it sideways.</p>'
    # A wide table scrolls inside its own frame, which the keyboard can reach too.
    return hint + (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(_bare(caption))}">'
        f"<table{of_table}><caption><span>{caption}</span></caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _bare(caption: str) -> str:
    return html.unescape(caption.split("<")[0])[:80]


def bar(share: float, mark: float | None = None) -> str:
    """Return a bar of a share, with a mark at another; empty for NaN."""
    if not np.isfinite(share):
        return ""
    marked = "" if mark is None else f'<i class="mark" style="left:{100 * mark:.1f}%"></i>'
    return (
        f'<span class="bar" aria-hidden="true"><i style="width:{100 * share:.1f}%"></i>'
        f"{marked}</span>"
    )


def span(low: float, middle: float, high: float) -> str:
    """Return a line from low to high with a mark in between; only the mark where they are NaN."""
    line = ""
    if np.isfinite(low) and np.isfinite(high):
        line = f'<i class="span" style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
    return (
        f'<span class="bar" aria-hidden="true">{line}'
        f'<i class="mark" style="left:{min(100 * middle, 99.0):.1f}%"></i></span>'
    )


def picture(data: str | None, alt: str) -> str:
    """Return a picture, or a field that says that there is none."""
    if data is None:
        return '<span class="none">no picture</span>'
    return f'<img class="shot" src="{data}" alt="{text(alt)}">'


def folded(summary: str, names: Sequence[str], most: int = 200) -> str:
    """Return a list that opens when asked; a short one is shown at once."""
    items = "".join(f"<li>{text(name)}</li>" for name in names[:most])
    if len(names) > most:
        items += f"<li>and {len(names) - most:,} more</li>"
    state = " open" if len(names) <= 6 else ""
    return f"<details{state}><summary>{text(summary)}</summary><ul>{items}</ul></details>"
