"""Read the forms in which people keep a taxonomy, each into names and parent positions.

Every reader returns ``(names, parents)``: a list of names and an int64 array with the position of
each node's parent, -1 for the root. Readers loop instead of recursing, so depth is no limit.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._tree import IntArray

Name = str | int | float | bool
NodeList = tuple[list[Name], IntArray]

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_blank(value: Any) -> bool:
    """Tell whether a table cell names nothing: None, NaN, NA or white space."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    # pandas' NA and NaT refuse comparison or differ from themselves, like NaN.
    if isinstance(value, (str, int)):
        return False
    return type(value).__name__ in {"NAType", "NaTType"} or value != value


def clean_name(name: Any) -> Name:
    """Return a node's name as a plain Python value, or say why it cannot be one."""
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(name, str):
        if not name.strip():
            raise ValueError(
                f"A node of the taxonomy has the empty name {name!r}. Give every node a name."
            )
        if _UNPRINTABLE.search(name):
            raise ValueError(
                f"The name {name!r} holds a control character or a lone surrogate. "
                "Remove it from the name."
            )
        return name
    if isinstance(name, (bool, int)) or (isinstance(name, float) and math.isfinite(name)):
        return name
    raise TypeError(
        f"A node's name must be a string or a finite number, got {name!r} of type "
        f"{type(name).__name__}. Convert it to a string."
    )


class PathCollector:
    """Grow a tree from paths, creating each prefix once."""

    def __init__(self, root_name: Name) -> None:
        self.names: list[Name] = [clean_name(root_name)]
        self.parents: list[int] = [-1]
        self._children: dict[tuple[int, Any], int] = {}

    def add(self, path: Iterable[Any]) -> None:
        """Add one path below the root."""
        node = 0
        for name in path:
            child = self._children.get((node, name))
            if child is None:
                child = len(self.names)
                self._children[node, name] = child
                self.names.append(clean_name(name))
                self.parents.append(node)
            node = child

    def finish(self) -> NodeList:
        """Return what was collected."""
        return self.names, np.asarray(self.parents, dtype=np.int64)


def fill_row(row: Sequence[Any]) -> list[Any]:
    """Drop trailing blanks and let the next named rank stand in for a missing one.

    Standing in keeps every name on the level of its own column; the node that stands in has one
    child, so no decision is added.
    """
    last = len(row)
    while last and is_blank(row[last - 1]):
        last -= 1
    filled = list(row[:last])
    for position in range(last - 2, -1, -1):
        if is_blank(filled[position]):
            filled[position] = filled[position + 1]
    return filled


def read_paths(paths: Iterable[Any], root_name: Name) -> NodeList:
    """Collect path rows; a string is refused because its letters would become nodes."""
    collector = PathCollector(root_name)
    for number, path in enumerate(paths):
        if isinstance(path, str) or not isinstance(path, Iterable):
            raise TypeError(
                f"Row {number} is {path!r}, but each path must be a sequence of names from the "
                "top level down, such as ('Boeing', '737', '737-800')."
            )
        row = fill_row(list(path))
        if not row:
            raise ValueError(f"Row {number} has no name. Remove the empty row from the paths.")
        collector.add(row)
    return collector.finish()


def read_edges(edges: Iterable[tuple[Any, Any]]) -> NodeList:
    """Collect (parent, child) pairs, in which a name stands for one node."""
    position: dict[Any, int] = {}
    names: list[Name] = []
    parents: list[int] = []

    def node(name: Any) -> int:
        known = position.get(name)
        if known is None:
            known = position[name] = len(names)
            names.append(clean_name(name))
            parents.append(-1)
        return known

    for number, edge in enumerate(edges):
        try:
            parent_name, child_name = edge
        except (TypeError, ValueError):
            raise ValueError(
                f"Edge {number} is {edge!r}, but each edge must be a pair (parent, child)."
            ) from None
        if isinstance(edge, str):
            raise ValueError(f"Edge {number} is the string {edge!r}, not a pair (parent, child).")
        parent, child = node(parent_name), node(child_name)
        if parents[child] not in (-1, parent):
            raise ValueError(
                f"{child_name!r} has two parents, {names[parents[child]]!r} and {parent_name!r}. "
                "A taxonomy is a tree: keep one of them, or give the two nodes different names "
                "or use path rows."
            )
        parents[child] = parent
    return names, np.asarray(parents, dtype=np.int64)


def read_parents(parents: Mapping[Any, Any]) -> NodeList:
    """Collect a child -> parent map; a missing or None parent marks the root."""
    blank_parents = {child for child, parent in parents.items() if is_blank(parent)}
    names, positions = read_edges(
        (parent, child) for child, parent in parents.items() if child not in blank_parents
    )
    for lonely in blank_parents.difference(names):
        names.append(clean_name(lonely))
        positions = np.append(positions, -1)
    return names, positions


def read_nested(nested: Any, root_name: Name) -> NodeList:
    """Collect nested mappings; a list, set or tuple holds leaves, None or {} ends a branch."""
    names: list[Name] = [clean_name(root_name)]
    parents = [-1]
    waiting: list[tuple[int, Any]] = [(0, nested)]
    while waiting:
        node, below = waiting.pop()
        if below is None:
            continue
        if isinstance(below, Mapping):
            children: Iterable[tuple[Any, Any]] = below.items()
        elif isinstance(below, (list, tuple, set, frozenset)):
            ordered = sorted(below, key=str) if isinstance(below, (set, frozenset)) else below
            children = ((child, None) for child in ordered)
        else:
            children = ((below, None),)
        for name, deeper in children:
            waiting.append((len(names), deeper))
            names.append(clean_name(name))
            parents.append(node)
    return names, np.asarray(parents, dtype=np.int64)


def read_table_rows(
    table: Any, columns: Sequence[Hashable] | None
) -> tuple[list[list[Any]], list[Hashable]]:
    """Return the rank cells of a CSV file or DataFrame, and the columns they came from."""
    if hasattr(table, "columns") and hasattr(table, "itertuples"):
        available = list(table.columns)
        chosen = _check_columns(columns, available, "The table")
        return [list(row) for row in table[chosen].itertuples(index=False, name=None)], chosen
    path = Path(table)
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header: list[Hashable] = list(next(reader, []))
        chosen = _check_columns(columns, header, str(path))
        wanted = [header.index(column) for column in chosen]
        rows = []
        for line in reader:
            if len(line) <= max(wanted) and any(line):
                raise ValueError(
                    f"{path}, line {reader.line_num}, has {len(line)} cells, but the rank columns "
                    f"{chosen} need {max(wanted) + 1}. Complete the line; a blank cell means a "
                    "missing rank."
                )
            if any(line):
                rows.append([line[position].strip() for position in wanted])
    return rows, chosen


def _check_columns(
    columns: Sequence[Hashable] | None, available: list[Hashable], source: str
) -> list[Hashable]:
    chosen = list(available if columns is None else columns)
    missing = [column for column in chosen if column not in available]
    if missing or not chosen:
        raise ValueError(
            f"{source} has the columns {available}, not {missing or 'any rank column'}. "
            "Name the rank columns from the top level down."
        )
    return chosen


def read_folder(directory: str | os.PathLike[str], root_name: Name | None) -> NodeList:
    """Collect the folders below a directory; hidden ones and links do not count."""
    top = Path(directory)
    if not top.is_dir():
        raise NotADirectoryError(f"{top} is not a folder. Give the folder that holds the classes.")
    names: list[Name] = [clean_name(top.resolve().name if root_name is None else root_name)]
    parents = [-1]
    waiting = [(0, top)]
    while waiting:
        node, folder = waiting.pop()
        for child in sorted(folder.iterdir(), key=lambda entry: entry.name):
            # A link may lead out of the folder or around in a circle.
            if child.name.startswith(".") or child.is_symlink() or not child.is_dir():
                continue
            waiting.append((len(names), child))
            names.append(clean_name(child.name))
            parents.append(node)
    return names, np.asarray(parents, dtype=np.int64)


_NEWICK_TOKEN = re.compile(
    r"""\s*(?:
        (?P<comment>\[[^\]]*\])
      | (?P<quoted>'(?:[^']|'')*')
      | (?P<sign>[(),:;])
      | (?P<word>[^\s()\[\]',:;]+)
    )""",
    re.VERBOSE,
)


def read_newick(text: str, root_name: Name) -> NodeList:
    """Parse Newick text; branch lengths and comments are passed over.

    An inner node without a name is called after its first and last leaf, because Newick files
    rarely name them and a label needs something to say.
    """
    names: list[Name | None] = [None]
    parents = [-1]
    node, position, expects_length, closed = 0, 0, False, False
    end = len(text.rstrip())
    while position < end:
        match = _NEWICK_TOKEN.match(text, position)
        if match is None or closed:
            raise ValueError(
                f"Newick text cannot be read at character {position}: "
                f"{text[position : position + 20]!r}. Check quotes, brackets and the closing ';'."
            )
        position = match.end()
        if match["comment"]:
            continue
        sign = match["sign"]
        if sign in ("(", ","):
            parent = node if sign == "(" else parents[node]
            if parent < 0 or (sign == "(" and names[node] is not None):
                raise ValueError(f"Newick text has a misplaced {sign!r} at character {position}.")
            node = len(names)
            names.append(None)
            parents.append(parent)
        elif sign == ")":
            node = parents[node]
            if node < 0:
                raise ValueError(f"Newick text closes one bracket too many at {position}.")
        elif sign == ";":
            closed = True
        elif sign is None and not expects_length:
            if names[node] is not None:
                raise ValueError(
                    f"Newick text names one node twice, {names[node]!r} and {match[0].strip()!r}. "
                    "Quote names that hold spaces."
                )
            word = match["word"]
            # An unquoted underscore stands for a blank in Newick.
            names[node] = (
                word.replace("_", " ") if word else match["quoted"][1:-1].replace("''", "'")
            )
        expects_length = sign == ":"
    if node != 0:
        raise ValueError("Newick text ends inside a bracket. Close every '(' and end with ';'.")
    return _name_clades(names, np.asarray(parents, dtype=np.int64), root_name)


def _name_clades(names: list[Name | None], parents: IntArray, root_name: Name) -> NodeList:
    ends: dict[int, tuple[Name, Name]] = {}
    for node in range(len(names) - 1, -1, -1):  # children come after their parent
        name = names[node]
        if node not in ends:
            if name is None:
                raise ValueError("Newick text has a leaf with an empty name. Name every leaf.")
            ends[node] = (name, name)
        if node:
            parent = int(parents[node])
            # Walking backwards, the first child met is the last one written.
            ends[parent] = (ends[node][0], ends.get(parent, ends[node])[1])
    if names[0] is None:
        names[0] = root_name
    clades = (
        f"{ends[node][0]}..{ends[node][1]}" if name is None else name
        for node, name in enumerate(names)
    )
    return [clean_name(name) for name in clades], parents


def read_networkx(graph: Any) -> NodeList:
    """Collect the edges of a directed networkx graph that point from parent to child."""
    if not getattr(graph, "is_directed", lambda: False)():
        raise TypeError(
            "The graph must be a networkx.DiGraph with edges from parent to child, got "
            f"{type(graph).__name__}. For an undirected tree, first apply "
            "networkx.bfs_tree(graph, root)."
        )
    names, parents = read_edges(edge[:2] for edge in graph.edges())
    known = set(names)
    isolated = [clean_name(node) for node in graph.nodes if node not in known]
    return names + isolated, np.append(parents, np.full(len(isolated), -1, dtype=np.int64))


def read_json(text: str, expected_format: str) -> dict[str, Any]:
    """Return the arguments of a taxonomy written as JSON, checked for their types."""
    try:
        record = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The taxonomy is not valid JSON: {error}") from None
    if not isinstance(record, dict) or record.get("format") != expected_format:
        raise ValueError(
            f'JSON of a taxonomy is an object with "format": "{expected_format}"; this is '
            f"{str(record)[:60]!r}. Use Taxonomy.from_nested for nested objects."
        )
    if record.get("version") != 1:
        raise ValueError(
            f"The taxonomy has format version {record.get('version')!r}, and this release reads "
            "version 1. Install a newer skh2edl."
        )
    names, parents, levels = (record.get(key) for key in ("names", "parents", "level_names"))
    if not (
        isinstance(names, list)
        and isinstance(parents, list)
        and all(type(parent) is int for parent in parents)
        and (levels is None or isinstance(levels, list))
        and all(isinstance(level, str) for level in levels or ())
    ):
        raise ValueError(
            'JSON of a taxonomy needs "names" (a list), "parents" (a list of integers) and '
            '"level_names" (a list of strings or null).'
        )
    return {
        "names": names,
        "parents": parents,
        "level_names": levels,
        "separator": record.get("separator", "/"),
    }
