"""Read the forms in which people keep a taxonomy, each into names and parent positions.

Every reader returns ``(names, parents)``: a list of names, which `Taxonomy` checks all at once,
and an int64 array with the position of each node's parent, -1 for the root. Readers loop instead
of recursing, so that a deep file meets our limit and not Python's.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .names import Name, clean_name, clean_names, fill_row, is_blank, shown
from .tree import IntArray, check_depth

NodeList = tuple[list[Any], IntArray]

_JSON_FORMAT = "skh2edl.taxonomy"
# Nodes that parts standing in several places of a nested mapping may add.
_MAX_REPEATED = 1_000_000


def _rows_of(table: Any) -> Iterable[Any]:
    """Return the rows of a DataFrame, an array or any sequence of rows."""
    if hasattr(table, "itertuples"):
        rows: Iterable[Any] = table.itertuples(index=False, name=None)
        return rows
    if isinstance(table, str) or not isinstance(table, Iterable):
        raise TypeError(f"Give a sequence of rows, got {shown(table)}.")
    return table


def read_rows(rows: Any) -> Iterable[list[Any]]:
    """Yield the named ranks of each row from the top level down."""
    for number, row in enumerate(_rows_of(rows)):
        # The letters of a string would become ranks.
        if isinstance(row, str) or not isinstance(row, Iterable):
            raise TypeError(
                f"Row {number} is {shown(row)}, but each row must be a sequence of names from the "
                "top level down, such as ('Boeing', '737', '737-800')."
            )
        ranks = fill_row(row)
        check_depth(len(ranks))
        yield ranks


def read_paths(paths: Any, root_name: Name) -> NodeList:
    """Collect path rows, creating each prefix once."""
    names: list[Any] = [root_name]
    parents = [-1]
    children: dict[tuple[int, Any], int] = {}
    for number, path in enumerate(read_rows(paths)):
        if not path:
            raise ValueError(f"Row {number} has no name. Remove the empty row from the paths.")
        node = 0
        try:
            for name in path:
                child = children.setdefault((node, name), len(names))
                if child == len(names):
                    names.append(name)
                    parents.append(node)
                node = child
        except TypeError:  # a list or dict where a name should be
            clean_names(path)
            raise
    return names, np.asarray(parents, dtype=np.int64)


def read_edges(edges: Any) -> NodeList:
    """Collect (parent, child) pairs, in which a name stands for one node."""
    pairs = [
        edge if type(edge) is tuple and len(edge) == 2 else _as_pair(edge, number)
        for number, edge in enumerate(_rows_of(edges))
    ]
    position: dict[Any, int] = defaultdict(count().__next__)
    try:
        ends = np.fromiter(
            map(position.__getitem__, chain.from_iterable(pairs)), np.int64, 2 * len(pairs)
        )
    except TypeError:  # a list or dict where a name should be
        clean_names(chain.from_iterable(pairs))
        raise
    names = list(position)
    above, below = ends[0::2], ends[1::2]
    parents = np.full(len(names), -1, dtype=np.int64)
    parents[below] = above
    differ = np.flatnonzero(parents[below] != above)
    if differ.size:
        parent, child = above[differ[0]], below[differ[0]]
        raise ValueError(
            f"{shown(names[child])} has two parents, {shown(names[parent])} and "
            f"{shown(names[parents[child]])}. A taxonomy is a tree: keep one of them, or give the "
            "two nodes different names or use path rows."
        )
    return names, parents


def _as_pair(edge: Any, number: int) -> tuple[Any, Any]:
    ends = tuple(edge) if isinstance(edge, Iterable) and not isinstance(edge, str) else ()
    if len(ends) != 2:
        raise ValueError(
            f"Edge {number} is {shown(edge)}, but each edge must be a pair (parent, child)."
        )
    return ends


def read_parents(parents: Any) -> NodeList:
    """Collect a child -> parent map; a blank parent marks the root."""
    if not hasattr(parents, "items"):
        raise TypeError(
            f"parents must map each child to its parent, got {shown(parents)} of type "
            f"{type(parents).__name__}. For a list of pairs use Taxonomy.from_edges."
        )
    names, positions = read_edges(
        (parent, child) for child, parent in parents.items() if not is_blank(parent)
    )
    known = set(names)
    lonely = [child for child, parent in parents.items() if is_blank(parent) and child not in known]
    return names + lonely, _with_roots(positions, len(lonely))


def read_networkx(graph: Any) -> NodeList:
    """Collect the edges of a directed networkx graph that point from parent to child."""
    if not getattr(graph, "is_directed", lambda: False)():
        raise TypeError(
            "The graph must be a networkx.DiGraph with edges from parent to child, got "
            f"{type(graph).__name__}. For an undirected tree, first apply "
            "networkx.bfs_tree(graph, root)."
        )
    names, positions = read_edges(graph.edges())
    known = set(names)
    lonely = [node for node in graph.nodes if node not in known]
    return names + lonely, _with_roots(positions, len(lonely))


def _with_roots(positions: IntArray, n_roots: int) -> IntArray:
    return np.append(positions, np.full(n_roots, -1, dtype=np.int64))


def read_nested(nested: Any, root_name: Name) -> NodeList:
    """Collect nested mappings; a list, set or tuple holds leaves, None or {} ends a branch."""
    names: list[Any] = [root_name]
    parents = [-1]
    waiting: list[tuple[int, int, Any]] = [(0, 0, nested)]
    seen: set[int] = set()
    n_repeated = 0
    while waiting:
        node, depth, below = waiting.pop()
        if below is None:
            continue
        if isinstance(below, (Mapping, list, tuple, set, frozenset)):
            # A part that stands in two places is two parts; forty such levels are a trillion.
            n_repeated += len(below) if id(below) in seen else 0
            seen.add(id(below))
            if n_repeated > _MAX_REPEATED:
                raise ValueError(
                    f"The nested taxonomy repeats parts of itself to more than {_MAX_REPEATED:,} "
                    "nodes: the same mappings stand in several places on several levels. Give "
                    "each node its own mapping, or list the paths with Taxonomy.from_paths."
                )
        if isinstance(below, Mapping):
            children: Iterable[tuple[Any, Any]] = below.items()
        elif isinstance(below, (list, tuple)):
            children = ((child, None) for child in below)
        elif isinstance(below, (set, frozenset)):
            children = ((child, None) for child in sorted(below, key=str))
        else:
            children = ((below, None),)
        for name, deeper in children:
            # A mapping that holds itself would otherwise never end.
            check_depth(depth + 1)
            waiting.append((len(names), depth + 1, deeper))
            names.append(name)
            parents.append(node)
    return names, np.asarray(parents, dtype=np.int64)


def read_table_rows(
    table: Any, columns: Sequence[Hashable] | None
) -> tuple[list[list[Any]], list[str]]:
    """Return the ranks of each row that has any, and the names of the levels they reach."""
    if hasattr(table, "itertuples"):
        chosen = _check_columns(columns, list(table.columns), "The table")
        cells = table[chosen].itertuples(index=False, name=None)
    elif isinstance(table, (str, os.PathLike)):
        cells, chosen = _read_csv(Path(table), columns)
    else:
        raise TypeError(
            "table must be the path of a CSV file or a pandas DataFrame, got "
            f"{type(table).__name__}."
        )
    rows = [row for row in map(fill_row, cells) if row]
    return rows, [str(column) for column in chosen[: max(map(len, rows), default=0)]]


def _read_csv(path: Path, columns: Sequence[Hashable] | None) -> tuple[Any, list[Hashable]]:
    rows = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            header: list[Hashable] = [cell.strip() for cell in next(reader, [])]
            chosen = _check_columns(columns, header, str(path))
            wanted = [header.index(column) for column in chosen]
            for line in reader:
                if len(line) <= max(wanted) and any(line):
                    raise ValueError(
                        f"{path}, line {reader.line_num}, has {len(line)} cells, but the rank "
                        f"columns {shown(chosen)} need {max(wanted) + 1}. Complete the line; a "
                        "blank cell means a missing rank."
                    )
                rows.append([line[place].strip() for place in wanted] if any(line) else [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} cannot be read as CSV in UTF-8 after line {reader.line_num}: {error}. "
                "Save it again as UTF-8 CSV."
            ) from None
    return rows, chosen


def _check_columns(
    columns: Sequence[Hashable] | None, available: list[Hashable], source: str
) -> list[Hashable]:
    if isinstance(columns, str):
        columns = [columns]
    chosen = list(available if columns is None else columns)
    missing = [column for column in chosen if column not in available]
    if missing or not chosen:
        raise ValueError(
            f"{source} has the columns {shown(available)}, not "
            f"{shown(missing) if missing else 'any rank column'}. "
            "Name the rank columns from the top level down."
        )
    repeated = [column for column in chosen if (available + chosen).count(column) > 2]
    if repeated:
        raise ValueError(
            f"{source} has the column {shown(repeated[0])} more than once among the rank columns. "
            "Give each rank a column name of its own."
        )
    return chosen


def read_folder(directory: str | os.PathLike[str], root_name: Name | None) -> NodeList:
    """Collect the folders below a directory; hidden ones and links do not count."""
    top = Path(directory)
    if not top.is_dir():
        raise NotADirectoryError(f"{top} is not a folder. Give the folder that holds the classes.")
    names: list[Any] = [top.resolve().name if root_name is None else root_name]
    parents = [-1]
    waiting = [(0, 0, os.fspath(top))]
    while waiting:
        node, depth, folder = waiting.pop()
        with os.scandir(folder) as entries:
            # A link may lead out of the folder or around in a circle.
            found = sorted(
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
        for name in found:
            check_depth(depth + 1)
            waiting.append((len(names), depth + 1, os.path.join(folder, name)))
            names.append(name)
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
_NEWICK_FOLLOWS = {
    "": {"(", "name"},
    "(": {"(", "name", ",", ")", ":"},
    ",": {"(", "name", ",", ")", ":"},
    ")": {"name", ",", ")", ":", ";"},
    "name": {",", ")", ":", ";"},
    ":": {"length"},
    "length": {",", ")", ";"},
    ";": set(),
}


def read_newick(text: str, root_name: Name) -> NodeList:
    """Parse Newick text; branch lengths and comments are passed over.

    An inner node without a name is called after its first and last leaf, because Newick files
    rarely name them and a label needs something to say.
    """
    if not isinstance(text, str):
        raise TypeError(f"Newick text must be a string, got {type(text).__name__}.")
    names: list[Name | None] = [None]
    parents = [-1]
    node, depth, position, before = 0, 0, 0, ""
    end = len(text.rstrip())
    while position < end:
        match = _NEWICK_TOKEN.match(text, position)
        if match is None:
            raise _newick_error(text, position, "an open quote or a stray bracket")
        if not match["comment"]:
            kind = match["sign"] or ("length" if before == ":" else "name")
            if kind not in _NEWICK_FOLLOWS[before]:
                problem = "a second tree" if before == ";" else f"a misplaced {kind}"
                raise _newick_error(text, position, problem)
            if kind in ("(", ","):
                depth += kind == "("
                check_depth(depth)
                parent = node if kind == "(" else parents[node]
                if parent < 0:
                    raise _newick_error(text, position, "a ',' outside all brackets")
                node = len(names)
                names.append(None)
                parents.append(parent)
            elif kind == ")":
                depth -= 1
                node = parents[node]
                if node < 0:
                    raise _newick_error(text, position, "a ')' without its '('")
            elif kind == "name":
                # An unquoted underscore stands for a blank in Newick.
                names[node] = (
                    match["word"].replace("_", " ")
                    if match["word"]
                    else match["quoted"][1:-1].replace("''", "'")
                )
            before = kind
        position = match.end()
    if node != 0:
        raise _newick_error(text, end, "an end inside a bracket")
    return _name_clades(names, np.asarray(parents, dtype=np.int64), root_name)


def _newick_error(text: str, position: int, problem: str) -> ValueError:
    near = text[max(0, position - 10) : position + 20]
    return ValueError(
        f"Newick text has {problem} at character {position}, near {near!r}. Check brackets, "
        "commas and the closing ';', and quote names that hold spaces or signs."
    )


def _name_clades(names: list[Name | None], parents: IntArray, root_name: Name) -> NodeList:
    ends: dict[int, tuple[Name, Name]] = {}
    for node in range(len(names) - 1, -1, -1):  # children come after their parent
        name = names[node]
        if node not in ends:
            if name is None:
                raise ValueError("Newick text has a leaf with an empty name. Name every leaf.")
            clean_name(name)  # before long names are repeated in those of clades
            ends[node] = (name, name)
        if node:
            parent = int(parents[node])
            # Walking backwards, the first child met is the last one written.
            ends[parent] = (ends[node][0], ends.get(parent, ends[node])[1])
    if names[0] is None:
        names[0] = root_name
    return [
        (first if first == last else f"{first}..{last}") if name is None else name
        for name, (first, last) in zip(names, map(ends.__getitem__, range(len(names))), strict=True)
    ], parents


def write_json(
    names: npt.NDArray[np.object_],
    parents: IntArray,
    level_names: tuple[str, ...] | None,
    separator: str,
) -> str:
    """Write the arguments of a taxonomy as JSON."""
    record = {
        "format": _JSON_FORMAT,
        "version": 1,
        "separator": separator,
        "level_names": level_names,
        "names": names.tolist(),
        "parents": parents.tolist(),
    }
    return json.dumps(record, ensure_ascii=False)


def read_json(text: str) -> dict[str, Any]:
    """Return the arguments of a taxonomy written as JSON, checked for their types."""
    try:
        record = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"The taxonomy is not valid JSON: {error}.") from None
    if not isinstance(record, dict) or record.get("format") != _JSON_FORMAT:
        raise ValueError(
            f'JSON of a taxonomy is an object with "format": "{_JSON_FORMAT}"; this starts with '
            f"{shown(text[:60])}. Use Taxonomy.from_nested for nested objects."
        )
    if record.get("version") != 1:
        raise ValueError(
            f"The taxonomy has format version {shown(record.get('version'))}, and this release "
            "reads version 1. Install a newer skh2edl."
        )
    names, parents, levels = (record.get(key) for key in ("names", "parents", "level_names"))
    if not (
        isinstance(names, list)
        and isinstance(parents, list)
        and all(type(parent) is int for parent in parents)
        and (levels is None or isinstance(levels, list))
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
