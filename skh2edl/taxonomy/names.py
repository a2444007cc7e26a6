"""What may be the name of a node, of a level, or of nothing."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Name = str | int | float | bool

# A name stands in labels, drawings and error messages; a longer one is a broken or hostile file.
MAX_NAME_LENGTH = 1000

# Control characters, lone surrogates, and the two separators that break lines in a drawing.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_shortener = reprlib.Repr()
_shortener.maxstring = _shortener.maxother = _shortener.maxlong = 80
_shortener.maxtuple = _shortener.maxlist = 12


def shown(value: Any) -> str:
    """Write a value into an error message, cut to a bearable length.

    Examples
    --------
    >>> shown("lynx")
    "'lynx'"
    >>> len(shown("x" * 10**6))
    80
    """
    return _shortener.repr(value)


def is_blank(value: Any) -> bool:
    """Return whether a table cell names nothing: None, NaN, NA or white space.

    Examples
    --------
    >>> [is_blank(value) for value in (None, float("nan"), " ", "x", 0)]
    [True, True, True, False, False]
    """
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    # pandas is not imported for this: its missing values are known by their types.
    return type(value).__name__ in {"NAType", "NaTType"}


def clean_names(names: Iterable[Any]) -> list[Name]:
    """Return names as plain Python values, or say which one cannot be a name."""
    listed = list(names)
    if (
        set(map(type, listed)) == {str}
        and all(map(str.strip, listed))
        and max(map(len, listed)) <= MAX_NAME_LENGTH
        and not _UNPRINTABLE.search("".join(listed))
    ):
        return listed  # the usual case, a million names in a tenth of a second
    return [clean_name(name) for name in listed]


def clean_name(name: Any) -> Name:
    """Return one name as a plain Python value, or say why it cannot be a name."""
    if isinstance(name, np.generic):
        name = name.item()
    if is_blank(name):
        raise ValueError(
            f"A node of the taxonomy has the empty name {shown(name)}. Give every node a name."
        )
    if isinstance(name, str):
        if len(name) > MAX_NAME_LENGTH:
            raise ValueError(
                f"The name {shown(name)} has {len(name)} characters, and at most "
                f"{MAX_NAME_LENGTH} are allowed. Shorten it."
            )
        if _UNPRINTABLE.search(name):
            raise ValueError(
                f"The name {shown(name)} holds a control character or a lone surrogate. "
                "Remove it from the name."
            )
        return str(name)
    if isinstance(name, (bool, int)) or (isinstance(name, float) and math.isfinite(name)):
        return name
    raise TypeError(
        f"A node's name must be a string or a finite number, got {shown(name)} of type "
        f"{type(name).__name__}. Convert it to a string."
    )


def name_root(names: Iterable[Any]) -> Name:
    """Return the name of a root that was given none.

    Above integers it is one too, so that the labels of all nodes are of one kind.

    Examples
    --------
    >>> name_root(["cat", "dog"]), name_root(["root"]), name_root([3, 1])
    ('root', '(root)', -1)
    """
    known = list(names)
    if known and all(type(name) is int or isinstance(name, np.integer) for name in known):
        return min(-1, int(min(known)) - 1)
    return "(root)" if any(isinstance(name, str) and name == "root" for name in known) else "root"


def trim_row(row: Iterable[Any]) -> list[Any]:
    """Drop trailing blanks; a blank before a name becomes None.

    Examples
    --------
    >>> trim_row(["cat", "", "lynx", float("nan")])
    ['cat', None, 'lynx']
    """
    cells = [None if is_blank(cell) else cell for cell in row]
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def fill_row(row: list[Any]) -> list[Any]:
    """Let the next named rank stand in for a missing one.

    Standing in keeps every name on the level of its own column; the node that stands in has one
    child, so no decision is added.

    Examples
    --------
    >>> fill_row(["cat", None, "lynx"])
    ['cat', 'lynx', 'lynx']
    """
    filled = list(row)
    for position in range(len(filled) - 2, -1, -1):
        if filled[position] is None:
            filled[position] = filled[position + 1]
    return filled


def check_separator(separator: Any) -> str:
    """Return what joins the names of a path, or say why it cannot."""
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator must be a non-empty string, got {shown(separator)}.")
    return separator


def check_level_names(level_names: Any, n_levels: int) -> tuple[str, ...] | None:
    """Return one name for each level, None if there are none, or say what is wrong with them."""
    if level_names is None:
        return None
    names = (level_names,) if isinstance(level_names, str) else tuple(level_names)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"level_names must be strings, got {shown(names)}.")
    if len(names) != n_levels or len(set(names)) != len(names):
        raise ValueError(
            f"level_names must hold {n_levels} different names, one for each level of the tree, "
            f"got {len(names)}: {shown(names)}."
        )
    return names


def find_level(level: Any, level_names: tuple[str, ...] | None, n_levels: int) -> int:
    """Return the depth of a level given by name, number or as "leaf"."""
    if isinstance(level, str):
        if level_names is not None and level in level_names:
            return level_names.index(level) + 1
        if level == "leaf":
            return n_levels
    elif (
        isinstance(level, (int, np.integer))
        and not isinstance(level, bool)
        and 0 <= level <= n_levels
    ):
        return int(level)
    names = f" or one of {list(level_names)}." if level_names else "; its levels have no names."
    raise ValueError(
        f"The taxonomy has no level {shown(level)}. Use a number from 0 to {n_levels}, 'leaf'"
        + names
    )


def check_siblings(names: npt.NDArray[np.object_], parents: npt.NDArray[np.int64]) -> None:
    """Refuse two children of one node whose paths would be written the same."""
    if len(set(map(str, names.tolist()))) == names.size:
        return
    seen = set()
    for name, parent in zip(names.tolist(), parents.tolist(), strict=True):
        if (parent, str(name)) in seen:
            raise ValueError(
                f"{names[parent]!r} has two children named {name!r}, whose paths would be the "
                "same. Merge them or rename one."
            )
        seen.add((parent, str(name)))


def check_leaf_names(names: Sequence[Name]) -> None:
    """Refuse leaf names that cannot be sorted into classes."""
    kinds = list(map(type, names))
    if str in kinds and set(kinds) != {str}:
        text = names[kinds.index(str)]
        number = next(name for name in names if not isinstance(name, str))
        raise TypeError(
            f"Leaf names mix strings and numbers, such as {text!r} and {number!r}, which cannot "
            "be sorted into classes. Make them all strings."
        )
