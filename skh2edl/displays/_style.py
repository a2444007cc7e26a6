"""What all displays share: axes, legends, level names, colours safe for colour blindness."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics.report import level_title
from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional

# Okabe and Ito's palette without its yellow, which is too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#767676"
# Six markers and dashes against seven colours: their combinations repeat only after 42 lines.
_MARKERS = ("o", "s", "D", "^", "v", "P")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))


def pyplot() -> Any:
    """Return matplotlib's pyplot, or raise an error that says how to install it."""
    return import_optional("matplotlib.pyplot", extra="plots")


def axes_or_new(ax: Any, size: tuple[float, float] = (5.6, 4.4)) -> Any:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    # Constrained layout makes room for long names at the ticks.
    return pyplot().subplots(figsize=size, layout="constrained")[1]


def next_style(ax: Any, *, marker: bool = False) -> dict[str, Any]:
    """Return colour and dashes (or marker) of the next line; both differ, for print in grey."""
    place = sum(line.get_gid() == "skh2edl" for line in ax.get_lines())
    style = {"color": COLOURS[place % len(COLOURS)], "gid": "skh2edl"}
    if marker:
        return {**style, "marker": _MARKERS[place % len(_MARKERS)]}
    return {**style, "linestyle": _DASHES[place % len(_DASHES)]}


def line_options(style: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the style, overridden by the user's options under any of their names."""
    cbook = import_optional("matplotlib.cbook", extra="plots")
    lines = import_optional("matplotlib.lines", extra="plots")
    return {**style, **cbook.normalize_kwargs(given, lines.Line2D)}


def add_legend(ax: Any, loc: str) -> None:
    """Add a legend in a corner; matplotlib's loc="best" is slow on curves of many points."""
    show_dollar_signs(ax.legend(loc=loc))


def show_dollar_signs(legend: Any) -> None:
    """Keep matplotlib from reading dollar signs in names as mathematics."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def text_colour(shade: Any) -> str:
    """Return white or black, whichever is easier to read on an RGB colour."""
    return "white" if np.dot(shade[:3], [0.299, 0.587, 0.114]) < 0.5 else "black"


def shown_level(taxonomy: Taxonomy, depth: int) -> str:
    """Return the title of a level: its name, or one made from its depth."""
    return level_title(taxonomy, depth).replace("_", " ")


def shorten(text: str, length: int) -> str:
    """Cut out the middle of a text that is too long; names differ most at their ends.

    Examples
    --------
    >>> shorten("LATIN CAPITAL LETTER A", 14)
    'LATIN C…TTER A'
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - max(length - head - 1, 0) :]}"
