"""What all pictures share: axes, colours that colour-blind readers tell apart, level names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics.report import level_title
from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional

# Okabe and Ito's palette without its yellow, which is too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#767676"
# As many as have no divisor in common with the colours, so that pairs repeat late.
_MARKERS = ("o", "s", "D", "^", "v", "P")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))


def pyplot() -> Any:
    """Return matplotlib's pyplot, or say how to install it."""
    return import_optional("matplotlib.pyplot", extra="plots")


def axes_or_new(ax: Any, size: tuple[float, float] = (5.6, 4.4)) -> Any:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    # Constrained: long names at the ticks make the axes smaller and are never cut off.
    return pyplot().subplots(figsize=size, layout="constrained")[1]


def next_style(ax: Any, *, marker: bool = False) -> dict[str, Any]:
    """Return colour and dashes (or marker) of the next line on the axes.

    Lines differ in two ways, so that they can be told apart in print without colour.
    """
    place = sum(line.get_gid() == "skh2edl" for line in ax.get_lines())
    style = {"color": COLOURS[place % len(COLOURS)], "gid": "skh2edl"}
    if marker:
        return {**style, "marker": _MARKERS[place % len(_MARKERS)]}
    return {**style, "linestyle": _DASHES[place % len(_DASHES)]}


def line_options(style: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Let what the user gave, under any of its names, replace the style."""
    cbook = import_optional("matplotlib.cbook", extra="plots")
    lines = import_optional("matplotlib.lines", extra="plots")
    return {**style, **cbook.normalize_kwargs(given, lines.Line2D)}


def add_legend(ax: Any) -> None:
    """Add a legend in the emptiest corner, in which a dollar sign is a dollar sign."""
    labels = ax.get_legend_handles_labels()[1]
    # About its size on axes of the usual size.
    width = min(0.14 + 0.018 * max(map(len, labels)), 1)
    legend = ax.legend(loc=_emptiest_corner(ax, width, min(0.03 + 0.06 * len(labels), 1)))
    for text in legend.get_texts():
        text.set_parse_math(False)


def _emptiest_corner(ax: Any, width: float, height: float) -> str:
    """Return the corner where the lines have the least length, on linear axes.

    matplotlib's own search for the best place is slow, and warns, on long curves.
    """
    inside = dict.fromkeys(("upper left", "lower right", "upper right", "lower left"), 0.0)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for line in ax.get_lines():
        points = np.asarray(line.get_xydata())
        points = points[np.isfinite(points).all(axis=1)]
        if line.get_gid() != "skh2edl" or not len(points):
            continue
        x = (points[:, 0] - left) / (right - left)
        y = (points[:, 1] - low) / (high - low)
        # Evenly spaced along the line, so that crowded points do not count more.
        way = np.concatenate([[0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
        steps = np.linspace(0, way[-1], 200)
        x, y = np.interp(steps, way, x), np.interp(steps, way, y)
        for corner in inside:
            beside = x < width if "left" in corner else x > 1 - width
            above = y > 1 - height if "upper" in corner else y < height
            inside[corner] += float(np.mean(beside & above))
    return min(inside, key=lambda corner: inside[corner])


def shown_level(taxonomy: Taxonomy, depth: int) -> str:
    """Return how a picture writes a level: its name, or one made from its depth."""
    return level_title(taxonomy, depth).replace("_", " ")


def chosen_depths(taxonomy: Taxonomy, level: str | int | None) -> list[int]:
    """Return the depth of a level, or all depths below the root for None."""
    if level is None:
        return list(range(1, taxonomy.n_levels + 1))
    return [taxonomy.level_index(level)]


def shorten(text: str, length: int) -> str:
    """Cut the middle out of a text that is too long: the ends tell names apart.

    Examples
    --------
    >>> shorten("LATIN CAPITAL LETTER A", 14)
    'LATIN C…TTER A'
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - max(length - head - 1, 0) :]}"
