"""From labels to nodes and back: bare names, joined paths, path tuples."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .names import Name, is_blank, shown
from .tree import IntArray, Tree

Path = tuple[Name, ...]
Label = Name | Path

# Comparing spellings with a million names takes seconds; an error message need not.
_MOST_SPELLINGS = 20_000


class LabelIndex:
    """What every label of one tree means.

    Parameters
    ----------
    names : ndarray of object of shape (n_nodes,)
        Name of each node.
    tree : Tree
        The tree.
    separator : str
        What joins the names of a path.
    """

    def __init__(self, names: npt.NDArray[np.object_], tree: Tree, separator: str) -> None:
        self.names = names
        self.tree = tree
        self.separator = separator

    # From a node -----------------------------------------------------------------------------

    def path(self, node: int) -> Path:
        """Return the names from the top level down to the node; () for the root."""
        path = []
        while node > 0:
            path.append(self.names[node])
            node = int(self.tree.parents[node])
        return tuple(reversed(path))

    def labels(self, nodes: IntArray) -> list[Name]:
        """Return the shortest label that means each node (or one with the same leaves)."""
        names: list[Name] = self.names[nodes].tolist()
        plain = self._plain_names
        if len(plain) == self.tree.n_nodes:
            return names
        # Leaves are sorted together, so if one number needs a path, a string, then all do.
        leaves = self.names[self.tree.leaf_nodes].tolist()
        by_path = not isinstance(leaves[0], str) and any(name not in plain for name in leaves)
        return [
            name
            if name in plain and not (by_path and self.tree.n_children[node] == 0)
            else self._long_label(node)
            for name, node in zip(names, nodes.tolist(), strict=True)
        ]

    def _long_label(self, node: int) -> str:
        """Join the node's path; one name, or none for the root, is led by the separator."""
        mark, joined = self.separator, self._joined[node]
        if self.tree.parents[node] <= 0:
            joined = mark + joined
        if not self.names_like_paths:
            return joined
        # A leading separator rules out that the text is the bare name of another node.
        for label in (joined, mark + joined):
            # A text of one meaning may still be that of a name that begins with the separator.
            meant = self._candidates(label)
            if meant and self._mean_the_same([node, *meant]):
                return label
        raise ValueError(
            f"{shown(joined)} is the joined path of more than one node, because names "
            f"hold the separator {mark!r}. Build the taxonomy with another separator."
        )

    # From a label ----------------------------------------------------------------------------

    def resolve(self, labels: Iterable[Any]) -> IntArray:
        """Return the node that each label means."""
        sequence = _as_sequence(labels)
        try:
            found = np.fromiter(
                map(self._plain_names.get, sequence, repeat(-1)), np.int64, len(sequence)
            )
        except TypeError:
            raise TypeError(
                "Each label must be a name, a joined path or a tuple of names, got "
                f"{shown(next(label for label in sequence if not _is_hashable(label)))}."
            ) from None
        missing = np.flatnonzero(found < 0).tolist()
        known = {
            label: self._resolve_one(label)
            for label in dict.fromkeys(sequence[place] for place in missing)
        }
        unknown = [label for label, node in known.items() if node < 0]
        if unknown:
            self._raise_unknown(unknown)
        found[missing] = [known[sequence[place]] for place in missing]
        return found

    def _resolve_one(self, label: Any) -> int:
        """Resolve a label that is no plain name; -1 for an unknown one."""
        if isinstance(label, tuple):
            return self._at_path(label)
        if is_blank(label):
            raise ValueError(
                f"A label is missing ({label!r}). Use the root's label {self.names[0]!r} for a "
                "sample without a label, or drop the sample."
            )
        candidates = self._candidates(label)
        if candidates and not self._mean_the_same(candidates):
            paths = shown([self.path(node) for node in candidates[:5]])
            raise ValueError(
                f"The label {shown(label)} is ambiguous: it names {len(candidates)} nodes, first "
                f"{paths}. Give the path instead, as a tuple or joined by {self.separator!r}; "
                "start with the separator where the path is a single name."
            )
        return max(candidates, default=-1)

    def _candidates(self, label: Any) -> list[int]:
        """Return every node that a label could mean."""
        nodes = self._nodes_named(label)
        if isinstance(label, str):
            nodes = nodes + self._at_joined_path(label)
            if not nodes:
                # NumPy turns [1, "cat"] into strings, so a number is also known by its spelling.
                nodes = self._nodes_named(self._numbers.get(label))
        return list(dict.fromkeys(nodes))

    def _nodes_named(self, name: Any) -> list[int]:
        if name in self._plain_names:
            return [self._plain_names[name]]
        return self._ambiguous_names.get(name, [])

    def _mean_the_same(self, nodes: Sequence[int]) -> bool:
        # Nodes of one chain have the same leaves, hence the same decisions.
        return len({int(self.tree.last_of_chain[node]) for node in nodes}) == 1

    def _at_joined_path(self, label: str) -> list[int]:
        """Return the nodes whose joined path a text is, with or without a leading separator."""
        if self.separator not in label:
            return []  # a bare name
        nodes = self._by_joined_path.get(label, [])
        if label.startswith(self.separator):
            nodes = nodes + self._by_joined_path.get(label.removeprefix(self.separator), [])
        return nodes

    def _at_path(self, path: Iterable[Any]) -> int:
        """Return the node at a path; a blank name is a rank that the path leaves out."""
        node, n_blank = 0, 0
        for name in path:
            child = self._children.get((node, name), -1)
            if n_blank or child < 0:
                if is_blank(name):
                    n_blank += 1
                    continue
                if not n_blank:
                    return -1
                child = self._across_gap(node, n_blank, name)
            node, n_blank = child, 0
        return node

    def _across_gap(self, top: int, n_blank: int, name: Any) -> int:
        """Return the node of some name that many ranks further down, -1 if there is none."""
        node = top
        for _ in range(n_blank + 1):  # where it stands for itself in the ranks that it lacks
            node = self._children.get((node, name), -1)
        if node >= 0:
            return node
        tree, depth = self.tree, int(self.tree.depths[top]) + n_blank + 1
        inside = (tree.leaf_start >= tree.leaf_start[top]) & (tree.leaf_stop <= tree.leaf_stop[top])
        level = np.flatnonzero(inside & (tree.depths == depth))
        found = [node for node in level.tolist() if str(self.names[node]) == str(name)]
        if len(found) > 1:
            raise ValueError(
                f"{shown(name)} stands {len(found)} times below {shown(self.names[top])}, first at "
                f"{shown([self.path(node) for node in found[:3]])}, so a path that leaves ranks "
                "blank does not say which is meant. Name the ranks."
            )
        return found[0] if found else -1

    # Tables, made when first needed ------------------------------------------------------------

    @cached_property
    def names_like_paths(self) -> list[str]:
        """Names that hold the separator, or make one more with those around them."""
        mark = self.separator
        texts = list(map(str, self.names.tolist()))
        # Usually there are none, which one search of all names together tells soonest.
        if len(mark) == 1 and mark not in "\n".join(texts):
            return []
        return [text for text in texts if mark in f"{mark}{text}{mark}"[1:-1]]

    @cached_property
    def _joined(self) -> list[str]:
        """The joined path of each node."""
        texts = [""]
        for name, parent in zip(
            self.names[1:].tolist(), self.tree.parents[1:].tolist(), strict=True
        ):
            texts.append(f"{texts[parent]}{self.separator}{name}" if parent else str(name))
        return texts

    @cached_property
    def _by_joined_path(self) -> dict[str, list[int]]:
        """Each joined path and its nodes; several if names hold the separator."""
        nodes: dict[str, list[int]] = {}
        for node, text in enumerate(self._joined):
            nodes.setdefault(text, []).append(node)
        return nodes

    @cached_property
    def _children(self) -> dict[tuple[int, Any], int]:
        """Each child by its parent and its name; a number is also known by its spelling."""
        edges = list(zip(self.tree.parents.tolist(), self.names.tolist(), strict=True))[1:]
        children = {edge: node for node, edge in enumerate(edges, start=1)}
        for node, (parent, name) in enumerate(edges, start=1):
            if not isinstance(name, str):
                children[parent, str(name)] = node
        return children

    @cached_property
    def _last_named(self) -> dict[Any, int]:
        """Each name and the last node that bears it."""
        names = self.names.tolist()
        return dict(zip(names, range(len(names)), strict=True))

    @cached_property
    def _ambiguous_names(self) -> dict[Any, list[int]]:
        """Each name with more than one meaning, and the nodes that bear it."""
        names, last = self.names.tolist(), self._last_named
        ambiguous: dict[Any, list[int]] = {}
        if len(last) < len(names):
            chain = self.tree.last_of_chain
            meant = np.fromiter(map(last.__getitem__, names), np.int64, len(names))
            ambiguous = {names[node]: [] for node in np.flatnonzero(chain != chain[meant]).tolist()}
            for node, name in enumerate(names):
                if name in ambiguous:
                    ambiguous[name].append(node)
        for name in self.names_like_paths:
            if name in last and not self._mean_the_same([last[name], *self._at_joined_path(name)]):
                ambiguous.setdefault(name, [last[name]])
        return ambiguous

    @cached_property
    def _plain_names(self) -> dict[Any, int]:
        """Each name with one meaning, and the deepest of the nodes of its chain."""
        ambiguous = self._ambiguous_names
        if not ambiguous:
            return self._last_named
        return {name: node for name, node in self._last_named.items() if name not in ambiguous}

    @cached_property
    def _numbers(self) -> dict[str, Name]:
        """Each number among the names by its spelling."""
        return {str(name): name for name in self.names.tolist() if not isinstance(name, str)}

    # Errors ----------------------------------------------------------------------------------

    def _raise_unknown(self, unknown: list[Any]) -> NoReturn:
        hints = []
        for label in unknown[:5]:
            near = self._nearest(label)
            if near:
                hints.append(f"{shown(label)} is close to {' or '.join(map(repr, near))}")
        raise ValueError(
            f"{len(unknown)} label(s) are not in the taxonomy, first {shown(unknown[:5])}. "
            + (f"{'; '.join(hints)}. " if hints else "")
            + "Correct the spelling, add them to the taxonomy or drop them."
        )

    def _nearest(self, label: Any) -> list[Name]:
        """Return labels of the one or two nodes whose names are spelled most alike."""
        text = str(label[-1] if isinstance(label, tuple) and label else label)
        text = text.rsplit(self.separator, 1)[-1].casefold()
        spellings = {str(name).casefold(): node for node, name in enumerate(self.names.tolist())}
        if len(spellings) > _MOST_SPELLINGS:
            spellings = {key: node for key, node in spellings.items() if key[:2] == text[:2]}
        near = difflib.get_close_matches(text, list(spellings)[:_MOST_SPELLINGS], n=2)
        return self.labels(np.array([spellings[key] for key in near], dtype=np.int64))


def _as_sequence(labels: Any) -> Sequence[Any]:
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        raise TypeError(
            f"Labels must be a sequence of labels, got the single label {shown(labels)}. "
            "Put it in a list."
        )
    if isinstance(labels, (list, tuple)):
        return labels
    if not hasattr(labels, "__array__"):
        return list(labels)
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(
            f"Labels must be one-dimensional, got shape {array.shape}. For rows of level names "
            "use Taxonomy.labels_from_paths."
        )
    items: list[Any] = array.tolist()
    return items


def _is_hashable(value: Any) -> bool:
    # A tuple with a list inside counts as Hashable, so only trying tells.
    try:
        hash(value)
    except TypeError:
        return False
    return True
