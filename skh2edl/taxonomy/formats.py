"""Read the forms in which people keep a taxonomy, each into names and parent positions.

Every reader returns ``(names, parents)``: a list of names, which `Taxonomy` checks all at once,
and an int64 array with the position of each node's parent, -1 for the root. Readers loop instead
of recursing, so that a deep file meets our limit and not Python's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .names import Name, clean_names, fill_row, name_root, shown, trim_row
from .tables import close_gaps, load_json, rows_of
from .tree import NodeList, check_depth

# Tells our JSON from any other object.
_JSON_FORMAT = "skh2edl.taxonomy"
# Nodes that parts standing in several places of a nested mapping may add.
_MAX_REPEATED = 1_000_000


def read_rows(rows: Any) -> Iterable[list[Any]]:
    """Yield the ranks of each row from the top level down; None is a blank before a name."""
    for number, row in enumerate(rows_of(rows)):
        # The letters of a string would become ranks.
        if isinstance(row, str) or not isinstance(row, Iterable):
            raise TypeError(
                f"Row {number} is {shown(row)}, but each row must be a sequence of names from the "
                "top level down, such as ('Boeing', '737', '737-800')."
            )
        ranks = trim_row(row)
        check_depth(len(ranks))
        yield ranks


def read_paths(paths: Any, root_name: Name | None, bridge_gaps: bool | None = None) -> NodeList:
    """Collect path rows, creating each prefix once."""
    names: list[Any] = [root_name]
    parents = [-1]
    children: dict[tuple[int, Any], int] = {}
    rows = list(read_rows(paths))
    try:
        for number, path in enumerate(map(fill_row, close_gaps(rows, bridge_gaps))):
            if not path:
                raise ValueError(f"Row {number} has no name. Remove the empty row from the paths.")
            node = 0
            for name in path:
                child = children.setdefault((node, name), len(names))
                if child == len(names):
                    names.append(name)
                    parents.append(node)
                node = child
    except TypeError:  # a list or dict where a name should be
        clean_names(name for row in rows for name in row if name is not None)
        raise
    if root_name is None:
        names[0] = name_root(names[1:])
    return names, np.asarray(parents, dtype=np.int64)


def walk_down(top: Any, describe: Callable[[Any], tuple[Any, Iterable[Any]]]) -> NodeList:
    """Collect an item and all below it; `describe` returns an item's name and its children."""
    names: list[Any] = []
    parents: list[int] = []
    waiting: list[tuple[int, int, Any]] = [(-1, 0, top)]
    while waiting:
        parent, depth, item = waiting.pop()
        check_depth(depth)  # an item that holds itself would otherwise never end
        name, children = describe(item)
        waiting += [(len(names), depth + 1, child) for child in reversed(list(children))]
        names.append(name)
        parents.append(parent)
    return names, np.asarray(parents, dtype=np.int64)


def read_nested(nested: Any, root_name: Name | None) -> NodeList:
    """Collect nested mappings; a list, set or tuple holds leaves, None or {} ends a branch.

    Records ``{"name": ..., "children": [...]}`` are read as such, one or a list of them.
    """
    if isinstance(nested, os.PathLike):
        nested = load_json(nested)
    if _is_record(nested):
        return walk_down(nested, _describe_record)
    names, parents = _read_below(nested, root_name)
    if root_name is None:
        names[0] = name_root(names[1:])
    return names, parents


def _read_below(nested: Any, root_name: Name | None) -> NodeList:
    """Collect a root and what is nested below it."""
    if isinstance(nested, (list, tuple)) and nested and all(map(_is_record, nested)):
        return walk_down({"name": root_name, "children": nested}, _describe_record)
    seen: set[int] = set()
    n_repeated = 0

    def describe(item: tuple[Any, Any]) -> tuple[Any, Iterable[Any]]:
        nonlocal n_repeated
        name, below = item
        if below is None:
            return name, ()
        if not isinstance(below, (Mapping, list, tuple, set, frozenset)):
            return name, [(below, None)]
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
            return name, below.items()
        is_set = isinstance(below, (set, frozenset))
        return name, [(child, None) for child in (sorted(below, key=str) if is_set else below)]

    return walk_down((root_name, nested), describe)


def _is_record(value: Any) -> bool:
    """Tell ``{"name": "cat", "children": [...]}`` from a mapping of names to what is below."""
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), (str, int, float)):
        return False
    below = value.get("children")
    return below is None or (
        isinstance(below, (list, tuple))
        and all(isinstance(child, Mapping) and "name" in child for child in below)
    )


def _describe_record(record: Mapping[str, Any]) -> tuple[Any, Iterable[Any]]:
    children = record.get("children") or ()
    for child in children:
        if not isinstance(child, Mapping) or "name" not in child:
            raise ValueError(
                f"Each node must be an object with a name and children, got {shown(child)} below "
                f"{shown(record['name'])}."
            )
    return record["name"], children


def read_nltk(tree: Any) -> NodeList:
    """Collect an nltk.Tree: a list with a label, whose items are such trees or leaves."""
    if not callable(getattr(tree, "label", None)) or not isinstance(tree, list):
        raise TypeError(
            f"Give an nltk.Tree, got {type(tree).__name__}. nltk.Tree.fromstring makes one of text "
            "such as '(cat lynx puma)'."
        )

    def describe(item: Any) -> tuple[Any, Iterable[Any]]:
        return (item.label(), item) if hasattr(item, "label") else (item, ())

    return walk_down(tree, describe)


def write_nested(tree: Any) -> dict[str, Any]:
    """Return ``{"name": ..., "children": [...]}``, as JSON of many programs has it."""
    records: list[dict[str, Any]] = [{"name": name} for name in tree.names.tolist()]
    for node, parent in enumerate(tree.parents.tolist()):
        if parent >= 0:
            records[parent].setdefault("children", []).append(records[node])
    return records[0]


def read_folder(directory: str | os.PathLike[str], root_name: Name | None) -> NodeList:
    """Collect the folders below a directory; hidden ones and links do not count."""
    top = Path(directory)
    if not top.is_dir():
        raise NotADirectoryError(f"{top} is not a folder. Give the folder that holds the classes.")

    def describe(item: tuple[Any, str]) -> tuple[Any, Iterable[Any]]:
        with os.scandir(item[1]) as entries:
            # A link may lead out of the folder or around in a circle.
            return item[0], sorted(
                (entry.name, entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )

    return walk_down((top.resolve().name if root_name is None else root_name, top), describe)


def write_json(tree: Any) -> str:
    """Write the arguments of a taxonomy as JSON."""
    record = {
        "format": _JSON_FORMAT,
        "version": 1,
        "separator": tree.separator,
        "level_names": tree.level_names,
        "names": tree.names.tolist(),
        "parents": tree.parents.tolist(),
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
