"""Taxonomy files of every kind: read by their ending, written by their ending."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._run import usage_error

if TYPE_CHECKING:
    from ..taxonomy.taxonomy import Taxonomy

NEWICK = (".nwk", ".newick", ".tre", ".tree")
READABLE = (".json", ".csv", *NEWICK, ".txt", ".safetensors")
WRITABLE = (".json", ".csv", ".nwk", ".newick", ".txt")


def read_tree(path: Path, levels: list[str] | None = None) -> Taxonomy:
    """Read a taxonomy from a file or a folder.

    Parameters
    ----------
    path : path
        A folder of folders; ``.json`` (what convert writes, nested objects, or child to parent);
        ``.csv`` with one column for each rank; ``.nwk`` and other endings of Newick; ``.txt`` with
        one path like ``Boeing/737/737-700`` in a line; or a model file.
    levels : list of str, default=None
        For a table the rank columns, for all others the names of the levels; None takes all
        columns, and what the file says.

    Returns
    -------
    taxonomy : Taxonomy
    """
    from ..taxonomy.taxonomy import Taxonomy

    if path.is_dir():
        return Taxonomy.from_folder(path, level_names=levels)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no taxonomy at {str(path)!r}. Give a file or a folder that exists."
        )
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return Taxonomy.from_table(path, levels)
    if suffix == ".safetensors":
        from ..estimators.model_files import load_model

        return load_model(path).taxonomy_
    if suffix not in READABLE:
        raise usage_error(
            f"{path} must be a folder or end in {', '.join(READABLE)}, which says how to read it; "
            f"it ends in {suffix or 'nothing'!r}."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8 ({error}). Save it as UTF-8.") from None
    if suffix in NEWICK:
        return Taxonomy.from_newick(text, level_names=levels)
    if suffix == ".txt":
        lines = [line.strip() for line in text.splitlines()]
        return Taxonomy.from_paths([line.split("/") for line in lines if line], level_names=levels)
    return _from_json(text, path, levels)


def _from_json(text: str, path: Path, levels: list[str] | None) -> Taxonomy:
    from ..taxonomy.taxonomy import Taxonomy

    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if isinstance(record, dict) and "format" in record and "parents" in record:
        return Taxonomy.from_json(text)
    if not isinstance(record, dict):
        raise ValueError(
            f"{path} must hold a JSON object: what `skh2edl taxonomy convert` writes, nested "
            f'objects, or {{"child": "parent"}}. It holds a {type(record).__name__}.'
        )
    if record and all(isinstance(parent, str) for parent in record.values()):
        return Taxonomy.from_parents(record, level_names=levels)
    return Taxonomy.from_nested(record, level_names=levels)


def tree_text(tree: Taxonomy, suffix: str) -> str:
    """Write a taxonomy in the form that belongs to an ending.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    suffix : str
        One of ``.json``, ``.csv``, ``.nwk``, ``.newick`` and ``.txt``.

    Returns
    -------
    text : str

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog's": None})
    >>> print(tree_text(tree, ".nwk"), end="")
    ((lynx,puma)cat,'dog''s')root;
    """
    if suffix == ".json":
        return tree.to_json() + "\n"
    if suffix in (".nwk", ".newick"):
        return _newick(tree) + "\n"
    paths = [_path(tree, node) for node in tree.leaf_nodes.tolist()]
    if suffix == ".csv":
        names = tree.level_names or [f"level_{d}" for d in range(1, tree.n_levels + 1)]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([*path, *[""] * (tree.n_levels - len(path))] for path in paths)
        return buffer.getvalue()
    slashed = next((name for path in paths for name in path if "/" in str(name)), None)
    if slashed is not None:
        raise ValueError(
            f"The name {slashed!r} holds a slash, which divides names in a .txt file. Convert to "
            ".json or .csv."
        )
    return "".join("/".join(map(str, path)) + "\n" for path in paths)


def _path(tree: Taxonomy, node: int) -> list[Any]:
    path = []
    while node > 0:
        path.append(tree.names[node])
        node = int(tree.parents[node])
    return path[::-1]


def _newick(tree: Taxonomy) -> str:
    # Deepest first, so that every node finds the text of its children; not recursive.
    texts: dict[int, str] = {}
    for node in range(tree.n_nodes - 1, -1, -1):
        first, count = int(tree.first_child[node]), int(tree.n_children[node])
        below = ",".join(texts.pop(child) for child in range(first, first + count))
        texts[node] = (f"({below})" if count else "") + _quoted(str(tree.names[node]))
    return texts[0] + ";"


def _quoted(name: str) -> str:
    if re.fullmatch(r"[^\s()\[\]',:;]+", name):
        return name
    return "'" + name.replace("'", "''") + "'"
