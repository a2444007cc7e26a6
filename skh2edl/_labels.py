"""From labels to nodes and back: bare names, joined paths, path tuples."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from ._taxonomy_formats import Name, is_blank
from ._tree import IntArray, Tree

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

    def join(self, node: int) -> str:
        """Write the node's path as one string; the root's is its separator alone."""
        joined = self.separator.join(map(str, self.path(node)))
        # Without a separator it would read as a bare name.
        return joined if self.tree.depths[node] > 1 else self.separator + joined

    def label(self, node: int) -> Name:
        """Return the shortest label that means the node (or one with the same leaves)."""
        name: Name = self.names[node]
        meant = self._by_name[name]
        # The same leaf interval means the same chain, hence the same decisions.
        if len(meant) == 1 or self._same_leaves(meant):
            if not isinstance(name, str) or self.separator not in name:
                return name
            if self._same_leaves(self._candidates(name)):
                return name
        joined = self.join(node)
        if not self._same_leaves(self._candidates(joined)):
            raise ValueError(
                f"{joined!r} is the joined path of more than one node, because names hold the "
                f"separator {self.separator!r}. Build the taxonomy with another separator."
            )
        return joined

    # From a label ----------------------------------------------------------------------------

    def resolve(self, labels: Iterable[Any]) -> IntArray:
        """Return the node that each label means."""
        sequence = self._as_sequence(labels)
        try:
            found = np.fromiter(
                map(self._plain_names.get, sequence, repeat(-1)), np.int64, len(sequence)
            )
        except TypeError:
            raise TypeError(
                "Each label must be a name, a joined path or a tuple of names, got "
                f"{next(item for item in sequence if not isinstance(item, Hashable))!r}."
            ) from None
        known: dict[Any, int] = {}
        unknown: list[Any] = []
        for position in np.flatnonzero(found < 0).tolist():
            label = sequence[position]
            if label not in known:
                known[label] = self._resolve_rare(label)
                if known[label] < 0:
                    unknown.append(label)
            found[position] = known[label]
        if unknown:
            self._raise_unknown(unknown)
        return found

    @staticmethod
    def _as_sequence(labels: Any) -> Sequence[Any]:
        if isinstance(labels, (str, bytes)):
            raise TypeError(
                f"Labels must be a sequence of labels, got the single label {labels!r}. "
                "Put it in a list."
            )
        if isinstance(labels, (list, tuple)):
            return labels
        array = np.asarray(labels)
        if array.ndim != 1:
            raise ValueError(
                f"Labels must be one-dimensional, got shape {array.shape}. For rows of level "
                "names use Taxonomy.labels_from_paths."
            )
        items: list[Any] = array.tolist()
        return items

    def _resolve_rare(self, label: Any) -> int:
        """Resolve what the table of plain names does not answer; -1 for an unknown label."""
        if isinstance(label, tuple):
            node = 0
            for name in label:
                node = self._children.get((node, name), -1)
                if node < 0:
                    return -1
            return node
        if is_blank(label):
            raise ValueError(
                f"A label is missing ({label!r}). Use the root's label {self.names[0]!r} for a "
                "sample without a label, or drop the sample."
            )
        candidates = self._candidates(label)
        if not candidates:
            return -1
        if not self._same_leaves(candidates):
            paths = [self.path(node) for node in candidates[:5]]
            raise ValueError(
                f"The label {label!r} is ambiguous: it names {len(candidates)} nodes, "
                f"first {paths}. Give the path instead, as a tuple or joined by "
                f"{self.separator!r}."
            )
        return max(candidates)

    def _candidates(self, label: Any) -> list[int]:
        nodes = list(self._by_name.get(label, ()))
        if isinstance(label, str) and self.separator in label:
            nodes += [node for node in self._by_joined_path.get(label, ()) if node not in nodes]
            if label.startswith(self.separator):
                nodes += self._by_joined_path.get(label[len(self.separator) :], ())
        return nodes

    def _same_leaves(self, nodes: Sequence[int]) -> bool:
        starts, stops = self.tree.leaf_start, self.tree.leaf_stop
        return len({(int(starts[node]), int(stops[node])) for node in nodes}) == 1

    # Tables, made when first needed ------------------------------------------------------------

    @cached_property
    def _by_name(self) -> dict[Any, tuple[int, ...]]:
        return _group(self.names.tolist())

    @cached_property
    def _plain_names(self) -> dict[Any, int]:
        """Names that need no second look: one meaning, and no separator in them."""
        return {
            name: nodes[-1]
            for name, nodes in self._by_name.items()
            if (len(nodes) == 1 or self._same_leaves(nodes))
            and not (isinstance(name, str) and self.separator in name)
        }

    @cached_property
    def _by_joined_path(self) -> dict[Any, tuple[int, ...]]:
        joined = [""]
        for node, parent in enumerate(self.tree.parents[1:].tolist(), start=1):
            prefix = joined[parent]
            joined.append(f"{prefix}{self.separator if prefix else ''}{self.names[node]}")
        # The root is written as the separator alone, which '' matches once that is cut off.
        return _group(joined)

    @cached_property
    def _children(self) -> dict[tuple[int, Any], int]:
        names, parents = self.names[1:].tolist(), self.tree.parents[1:].tolist()
        return {key: node for node, key in enumerate(zip(parents, names, strict=True), start=1)}

    # Errors ----------------------------------------------------------------------------------

    def _raise_unknown(self, unknown: list[Any]) -> None:
        hints = []
        for label in unknown[:5]:
            near = self._nearest(label)
            if near:
                hints.append(f"{label!r} is close to {' or '.join(map(repr, near))}")
        raise ValueError(
            f"{len(unknown)} label(s) are not in the taxonomy, first {unknown[:5]}. "
            + (f"{'; '.join(hints)}. " if hints else "")
            + "Correct the spelling, add them to the taxonomy or drop those samples."
        )

    def _nearest(self, label: Any) -> list[str]:
        text = str(label[-1] if isinstance(label, tuple) and label else label)
        text = text.rsplit(self.separator, 1)[-1].casefold()
        spellings: dict[str, str] = {}
        for name in self._by_name:
            spellings.setdefault(str(name).casefold(), str(name))
        if len(spellings) > _MOST_SPELLINGS:
            spellings = {key: name for key, name in spellings.items() if key[:2] == text[:2]}
        near = difflib.get_close_matches(text, list(spellings)[:_MOST_SPELLINGS], n=2)
        return [spellings[key] for key in near]


def _group(keys: Sequence[Any]) -> dict[Any, tuple[int, ...]]:
    """Map each key to the positions that hold it, in order."""
    groups: dict[Any, tuple[int, ...]] = {}
    for position, key in enumerate(keys):
        earlier = groups.get(key)
        groups[key] = (position,) if earlier is None else (*earlier, position)
    return groups
