"""Trees as Newick text, and the trees of Bio.Phylo.

These formats rarely name inner nodes, and a label needs something to say: an inner node without a
name is called after its first and last leaf.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from .formats import walk_down
from .names import Name, clean_name, shown
from .tables import read_text
from .tree import IntArray, NodeList, check_depth

# Endings of Newick files.
ENDINGS = (".nwk", ".newick", ".tre", ".tree")

# A comment, a quoted name in which '' is a quote, a sign, or a bare name or length.
_NEWICK_TOKEN = re.compile(
    r"""\s*(?:
        (?P<comment>\[[^\]]*\])
      | (?P<quoted>'(?:[^']|'')*')
      | (?P<sign>[(),:;])
      | (?P<word>[^\s()\[\]',:;]+)
    )""",
    re.VERBOSE,
)
# What may come after each kind of token.
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


def read_newick(text: str | os.PathLike[str], root_name: Name) -> NodeList:
    """Parse Newick text, or that of a file; branch lengths and comments are passed over."""
    if isinstance(text, os.PathLike):
        text = read_text(text)
    if not isinstance(text, str):
        raise TypeError(f"Newick text must be a string, got {type(text).__name__}.")
    _check_is_no_file(text)
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


def _check_is_no_file(text: str) -> None:
    """Refuse the name of a file where the tree itself is wanted."""
    if any(sign in text for sign in "(,;\n"):
        return
    ending = Path(text).suffix.lower()
    if ending in ENDINGS or (len(text) < 1000 and ending and os.path.isfile(text)):
        raise ValueError(
            f"from_newick reads the text of a tree, such as '((lynx,puma)cat,dog);', and "
            f"{shown(text)} looks like the name of a file. Pass pathlib.Path({text!r}) to read it."
        )


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
                raise ValueError("The tree has a leaf with an empty name. Name every leaf.")
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


def write_newick(tree: Any) -> str:
    """Write the tree as Newick text, with names in quotes where they need them."""
    # Deepest first, so that every node finds the text of its children; not recursive.
    texts: dict[int, str] = {}
    for node in range(tree.n_nodes - 1, -1, -1):
        first, count = int(tree.first_child[node]), int(tree.n_children[node])
        below = ",".join(texts.pop(child) for child in range(first, first + count))
        texts[node] = (f"({below})" if count else "") + _quoted(str(tree.names[node]))
    return texts[0] + ";"


def _quoted(name: str) -> str:
    # An underscore outside quotes would be read as a blank.
    if re.fullmatch(r"[^\s()\[\]',:;_]+", name):
        return name
    return "'" + name.replace("'", "''") + "'"


def read_phylo(tree: Any, root_name: Name) -> NodeList:
    """Collect a Bio.Phylo tree or clade; clades without a name are called after their leaves."""
    root = getattr(tree, "root", tree)
    if not hasattr(root, "clades"):
        raise TypeError(
            f"Give a tree of Bio.Phylo, got {type(tree).__name__}. Bio.Phylo.read makes one of a "
            "Newick, NEXUS or phyloXML file."
        )
    nodes = walk_down(root, lambda clade: (clade.name or None, clade.clades))
    return _name_clades(*nodes, root_name)
