"""Numbers and lists as words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..taxonomy.taxonomy import Taxonomy

# The prediction of a hedge that stops at no class.
CANNOT_TELL = "cannot tell"


def percent(fraction: float) -> str:
    """Write a fraction as whole percents, never rounding something to nothing or to all.

    Examples
    --------
    >>> percent(0.5), percent(0.999), percent(1.0), percent(0.001), percent(float("nan"))
    ('50 %', 'over 99 %', '100 %', 'under 1 %', '-')
    """
    if np.isnan(fraction):
        return "-"
    if 0 < fraction < 0.005:
        return "under 1 %"
    if 0.995 <= fraction < 1:
        return "over 99 %"
    return f"{100 * fraction:.0f} %"


def interval(low: float, high: float) -> str:
    """Write an interval of fractions, rounded outwards: 0.897 is not said to reach 90 %.

    Examples
    --------
    >>> interval(0.897, 0.944)
    '89 to 95 %'
    """
    return f"{np.floor(100 * low):.0f} to {np.ceil(100 * high):.0f} %"


def number(value: float, digits: int = 3) -> str:
    """Write a number, a dash where there is none."""
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Write "a, b and c", or "a, b or c".

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return f" {last} ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def counted(n: int, one: str, several: str = "") -> str:
    """Write a number of things.

    Examples
    --------
    >>> counted(1, "image"), counted(1200, "image"), counted(2, "leaf has", "leaves have")
    ('1 image', '1,200 images', '2 leaves have')
    """
    return f"{n:,} {one if n == 1 else several or f'{one}s'}"


def part_of(part: int, whole: int) -> str:
    """Write a count, the whole it is a part of, and the fraction.

    Examples
    --------
    >>> part_of(18, 19)
    '18 of 19 (95 %)'
    """
    return f"{part:,} of {whole:,} ({percent(part / whole)})"


def level_words(tree: Taxonomy, depth: int) -> str:
    """Return the name of a level, or what to call it where the tree gives it none.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> level_words(tree, 1), level_words(tree, 2)
    ('level 1', 'finest level')
    """
    if tree.level_names is not None:
        return tree.level_names[depth - 1]
    return "finest level" if depth == tree.n_levels else f"level {depth}"
