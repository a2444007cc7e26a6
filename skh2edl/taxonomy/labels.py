"""From labels to nodes and back: bare names, joined paths, path tuples."""

from __future__ import annotations

import difflib
import re
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
        by_path = self._number_leaves_need_paths
        above: dict[int, str] = {}  # joined paths of parents, which many nodes share
        return [
            name
            if name in plain and not (by_path and self.tree.n_children[node] == 0)
            else self._long_label(node, above)
            for name, node in zip(names, nodes.tolist(), strict=True)
        ]

    @cached_property
    def _number_leaves_need_paths(self) -> bool:
        """Leaves are sorted together, so if one number needs a path, a string, then all do."""
        leaves = self.names[self.tree.leaf_nodes].tolist()
        return not isinstance(leaves[0], str) and any(
            name not in self._plain_names for name in leaves
        )

    def _long_label(self, node: int, above: dict[int, str]) -> str:
        """Join the node's path; one name, or none for the root, is led by the separator."""
        mark, parent = self.separator, int(self.tree.parents[node])
        if parent < 0:
            joined = mark
        else:
            if parent not in above:
                above[parent] = mark.join(map(str, self.path(parent)))
            joined = f"{above[parent]}{mark}{self.names[node]}"
        if not self.names_that_read_as_paths:
            return joined
        # A leading separator rules out that the text is the bare name of another node.
        for label in (joined, mark + joined):
            # A text of one meaning may still be that of a name that begins with the separator.
            meant = self._candidates(label)
            if meant and self._mean_the_same([node, *meant]):
                return label
        raise ValueError(
            f"{shown(joined)} is the joined path of more than one node, because names hold the "
            f"separator {mark!r}. Build the taxonomy with another separator."
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
        missing = np.flatnonzero(found < 0)
        if missing.size:
            found[missing] = self._resolve_paths([sequence[place] for place in missing.tolist()])
        return found

    def _resolve_paths(self, labels: list[Any]) -> list[int]:
        """Resolve what the table of plain names does not answer."""
        # Labels share their prefixes, so each prefix is looked up once.
        prefixes: dict[Any, int] = {(): 0, "": 0}
        known: dict[Any, int] = {}
        found = []
        for label in labels:
            parent, last = None, None
            if self._has_one_reading(label):
                above, last = self._split(label)
                parent = prefixes.get(above)
                if parent is None:
                    parent = self._resolve_prefix(above, prefixes)
            node = -1 if parent is None else self._child(parent, last)
            if node < 0:
                if label not in known:
                    known[label] = self._resolve_one(label)
                node = known[label]
            found.append(node)
        unknown = [label for label, node in known.items() if node < 0]
        if unknown:
            self._raise_unknown(unknown)
        return found

    def _has_one_reading(self, label: Any) -> bool:
        """Tell whether a label can only be a path, and is cut in one way."""
        if isinstance(label, str):
            mark = self.separator
            is_path = mark in label and not label.startswith(mark)
            return is_path and not self.names_that_read_as_paths
        return isinstance(label, tuple) and label != ()

    def _split(self, path: Any) -> tuple[Any, Any]:
        if isinstance(path, str):
            above, _, last = path.rpartition(self.separator)
            return above, last
        return path[:-1], path[-1]

    def _resolve_prefix(self, path: Any, prefixes: dict[Any, int]) -> int:
        steps = []
        while path not in prefixes:
            above, last = self._split(path)
            steps.append((path, last))
            path = above
        node = prefixes[path]
        for step, last in reversed(steps):
            node = prefixes[step] = self._child(node, last)
        return node

    def _resolve_one(self, label: Any) -> int:
        """Resolve one label of any kind; -1 for an unknown one."""
        if isinstance(label, tuple):
            return self._at_path(label)
        if is_blank(label):
            raise ValueError(
                f"A label is missing ({label!r}). Use the root's label {self.names[0]!r} for a "
                "sample without a label, or drop the sample."
            )
        candidates = self._candidates(label)
        if not candidates:
            return -1
        if not self._mean_the_same(candidates):
            paths = shown([self.path(node) for node in candidates[:5]])
            raise ValueError(
                f"The label {shown(label)} is ambiguous: it names {len(candidates)} nodes, first "
                f"{paths}. Give the path instead, as a tuple or joined by {self.separator!r}; "
                "start with the separator where the path is a single name."
            )
        return max(candidates)

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

    # Walking down ------------------------------------------------------------------------------

    def _child(self, node: int, name: Any) -> int:
        """Return the child of a node with some name, -1 if there is none."""
        if node < 0:  # an unknown prefix; the root's own parent is -1, too
            return -1
        child = self._last_named.get(name, 0)
        if child and self._parents[child] == node:
            return child
        child = self._other_children.get((node, name), -1)
        return self._number_children.get((node, name), -1) if child < 0 else child

    def _at_path(self, path: Iterable[Any]) -> int:
        """Return the node at a path; a blank name is a rank that the path leaves out."""
        node, n_blank = 0, 0
        for name in path:
            if is_blank(name):
                n_blank += 1
                continue
            node = self._across_gap(node, n_blank, name) if n_blank else self._child(node, name)
            n_blank = 0
            if node < 0:
                break
        return node

    def _across_gap(self, top: int, n_blank: int, name: Any) -> int:
        """Return the node of some name that many ranks further down, -1 if there is none."""
        node = top
        for _ in range(n_blank + 1):  # where it stands for itself in the ranks that it lacks
            node = self._child(node, name)
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

    def _at_joined_path(self, label: str) -> list[int]:
        """Return the nodes that a text means if it is read as a path."""
        mark = self.separator
        if label == mark:
            return [0, *self._at_text(label)]
        if label.startswith(mark):
            return self._at_text(label) + self._at_text(label[len(mark) :])
        # Without a separator the text is a bare name.
        return self._at_text(label) if mark in label else []

    def _at_text(self, text: str) -> list[int]:
        """Return the nodes whose joined path is the text; several if names hold the separator."""
        cuts = [match.start() for match in self._cut.finditer(text)]
        starts = [0, *(cut + len(self.separator) for cut in cuts)]
        most = self._most_cuts_in_a_name
        reached: list[list[int]] = [[0]]
        for place, stop in enumerate([*cuts, len(text)]):
            nodes = [
                child
                for first in range(max(0, place - most), place + 1)
                if starts[first] < stop
                for parent in reached[first]
                if (child := self._child(parent, text[starts[first] : stop])) >= 0
            ]
            reached.append(nodes)
            if not any(reached[-most - 1 :]):
                return []
        return reached[-1]

    @cached_property
    def _cut(self) -> re.Pattern[str]:
        # Looking ahead also finds occurrences that overlap, as of "--" in "---".
        return re.compile(f"(?={re.escape(self.separator)})")

    @cached_property
    def names_that_read_as_paths(self) -> dict[str, int]:
        """Names that hold the separator, or make one more with those around them: how many."""
        mark = self.separator
        texts = list(map(str, self.names.tolist()))
        # One search of all names together is the fast way to the usual answer, none.
        if len(mark) == 1 and mark not in "\n".join(texts):
            return {}
        counts = {text: len(self._cut.findall(f"{mark}{text}{mark}")) - 2 for text in texts}
        return {text: count for text, count in counts.items() if count > 0}

    @cached_property
    def _most_cuts_in_a_name(self) -> int:
        return max(self.names_that_read_as_paths.values(), default=0)

    # Tables, made when first needed ------------------------------------------------------------

    @cached_property
    def _parents(self) -> list[int]:
        return self.tree.parents.tolist()

    @property
    def has_distinct_names(self) -> bool:
        """Whether no two nodes have names that are written the same."""
        return len(self._last_named) == len(self.names) and not self._numbers

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
        for name in self.names_that_read_as_paths:
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
    def _other_children(self) -> dict[tuple[int, Any], int]:
        """Child by parent and name, where another node further down has the same name."""
        names, last = self.names.tolist(), self._last_named
        if len(last) == len(names):
            return {}
        return {
            (self._parents[node], name): node
            for node, name in enumerate(names)
            if last[name] != node
        }

    @cached_property
    def _numbers(self) -> dict[str, Name]:
        names = self.names.tolist()
        if set(map(type, names)) == {str}:
            return {}
        return {str(name): name for name in names if not isinstance(name, str)}

    @cached_property
    def _number_children(self) -> dict[tuple[int, Any], int]:
        if not self._numbers:
            return {}
        return {
            (self._parents[node], str(name)): node
            for node, name in enumerate(self.names.tolist())
            if not isinstance(name, str)
        }

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
