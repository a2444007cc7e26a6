"""The taxonomy: a rooted tree of named concepts, held as flat arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _taxonomy_formats as formats
from ._drawing import draw_tree
from ._labels import Label, LabelIndex, Path
from ._taxonomy_formats import Name
from ._tree import IntArray, Tree, breadth_first_order, check_parents, raise_cycle, read_only

_JSON_FORMAT = "skh2edl.taxonomy"


class Taxonomy(Tree):
    """A rooted tree of named concepts whose leaves are the classes.

    A taxonomy is immutable, hashable, comparable and picklable. Build one with a ``from_...``
    method. Nodes are integers in breadth-first order (the root is 0); users name them by *label*:
    a bare name where it names one node (or several nodes of one chain with the same leaves, of
    which the deepest is meant), a path tuple, or a path joined by `separator`. A joined path may
    start with the separator, which is how a top-level node with a repeated name is written.

    Parameters
    ----------
    names : sequence of str or number
        Name of each node.
    parents : array-like of int of shape (n_nodes,)
        Position of each node's parent in `names`; -1 for the one root.
    level_names : sequence of str, default=None
        Name of each level below the root, from the top down; None leaves the levels unnamed.
    separator : str, default="/"
        What joins the names of a path written as one string.

    Attributes
    ----------
    names, parents, depths, heights, first_child, n_children : ndarray of shape (n_nodes,)
        The tree as arrays: name, parent (-1 for the root), edges from the root, edges of the
        longest way down, number of the first child, number of children.
    leaf_nodes : ndarray of shape (n_leaves,)
        Node of each leaf in tree order (depth first).
    leaf_start, leaf_stop : ndarray of shape (n_nodes,)
        Each node covers the leaf positions ``leaf_start[v]:leaf_stop[v]``.
    branching_nodes : ndarray of shape (n_branching,)
        Nodes with two or more children, breadth first.
    decision_offsets : ndarray of shape (n_branching + 1,)
        The children of branching node ``b`` are the decisions ``offsets[b]:offsets[b + 1]``.
    decision_nodes, decision_children : ndarray of shape (n_decisions,)
        Branching position and child node of each decision.
    last_decision : ndarray of shape (n_nodes,)
        The last decision on the way to each node, -1 where there is none.
    parent_decision : ndarray of shape (n_decisions,)
        The decision before each decision on the way down, -1 where there is none.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_paths(
    ...     [("Boeing", "737", "737-700"), ("Boeing", "737", "737-800"), ("Fokker", "Fokker 70")],
    ...     level_names=("manufacturer", "family", "variant"),
    ... )
    >>> tree
    Taxonomy(3 leaves, 2 branching nodes, levels manufacturer > family > variant)
    >>> print(tree)
    root (3)
    ├── Boeing (2)
    │   └── 737 (2)
    │       ├── 737-700
    │       └── 737-800
    └── Fokker (1)
        └── Fokker 70
    >>> tree.ancestor("737-700", "family")
    '737'
    """

    def __init__(
        self,
        names: Sequence[Any],
        parents: npt.ArrayLike,
        *,
        level_names: Iterable[str] | None = None,
        separator: str = "/",
    ) -> None:
        given_names = [formats.clean_name(name) for name in names]
        given_parents = check_parents(given_names, parents)
        order, depths = breadth_first_order(given_parents)
        if order.size < given_parents.size:
            raise_cycle(given_names, given_parents, order)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        numbered = np.where(given_parents[order] < 0, -1, rank[given_parents[order]])
        self._names = np.empty(order.size, dtype=object)
        self._names[:] = [given_names[position] for position in order.tolist()]
        self._names.setflags(write=False)
        super().__init__(numbered, depths)
        self._separator = separator
        self._level_names = None if level_names is None else tuple(level_names)
        self._check()

    def _check(self) -> None:
        if not isinstance(self._separator, str) or not self._separator:
            raise ValueError(f"separator must be a non-empty string, got {self._separator!r}.")
        if self.n_leaves < 2:
            raise ValueError(
                f"The taxonomy has {self.n_leaves} leaf, {self._names[-1]!r}, but a classifier "
                "needs at least two leaves (classes) to choose between. Add the classes that are "
                "missing."
            )
        _check_siblings(self)
        is_text = {isinstance(self._names[leaf], str) for leaf in self.leaf_nodes.tolist()}
        if len(is_text) > 1:
            raise TypeError(
                "Leaf names mix strings and numbers, which cannot be sorted into classes. "
                "Make them all strings."
            )
        names = self._level_names
        if names is not None and (len(names) != self.n_levels or len(set(names)) != len(names)):
            raise ValueError(
                f"level_names must hold {self.n_levels} different names, one for each level below "
                f"the root, got {names}."
            )

    # Builders ------------------------------------------------------------------------------

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[Iterable[Any]],
        *,
        level_names: Iterable[str] | None = None,
        root_name: Name = "root",
        separator: str = "/",
    ) -> Taxonomy:
        """Build from rows of names, from the top level down.

        Parameters
        ----------
        paths : iterable of sequences
            Paths of leaves; rows for inner nodes and repeated rows are allowed. Blank names at
            the end of a row are dropped; a blank before a name is a missing rank, at which the
            next name stands for itself.
        level_names : sequence of str, default=None
            Names of the levels.
        root_name : str, default="root"
            The root's name, which as a label means "unlabelled".
        separator : str, default="/"
            What joins the names of a path.

        Examples
        --------
        >>> Taxonomy.from_paths([("cat", "lynx"), ("cat", "puma"), ("dog",)]).leaves
        ('lynx', 'puma', 'dog')
        """
        names, parents = formats.read_paths(paths, root_name)
        return cls(names, parents, level_names=level_names, separator=separator)

    @classmethod
    def from_edges(cls, edges: Iterable[tuple[Any, Any]], **options: Any) -> Taxonomy:
        """Build from (parent, child) pairs, in which a name stands for one node.

        Parameters
        ----------
        edges : iterable of pairs
            The edges in any order. The node without a parent is the root.
        **options
            `level_names` and `separator` as in :class:`Taxonomy`.

        Examples
        --------
        >>> Taxonomy.from_edges([("pet", "cat"), ("pet", "dog")]).path("cat")
        ('cat',)
        """
        return cls(*formats.read_edges(edges), **options)

    @classmethod
    def from_parents(cls, parents: Mapping[Any, Any], **options: Any) -> Taxonomy:
        """Build from a map of each child to its parent; the root may map to None.

        Parameters
        ----------
        parents : mapping
            Child name to parent name.
        **options
            `level_names` and `separator` as in :class:`Taxonomy`.

        Examples
        --------
        >>> Taxonomy.from_parents({"cat": "pet", "dog": "pet"}).root_name
        'pet'
        """
        return cls(*formats.read_parents(parents), **options)

    @classmethod
    def from_nested(cls, nested: Any, *, root_name: Name = "root", **options: Any) -> Taxonomy:
        """Build from nested mappings; a list holds leaves, None or {} ends a branch.

        Parameters
        ----------
        nested : mapping
            Name to what is below it.
        root_name : str, default="root"
            The root's name.
        **options
            `level_names` and `separator` as in :class:`Taxonomy`.

        Examples
        --------
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).n_leaves
        3
        """
        return cls(*formats.read_nested(nested, root_name), **options)

    @classmethod
    def from_table(
        cls,
        table: Any,
        columns: Sequence[Hashable] | None = None,
        *,
        root_name: Name = "root",
        separator: str = "/",
    ) -> Taxonomy:
        """Build from the rank columns of a CSV file or DataFrame, which name the levels.

        Parameters
        ----------
        table : path or DataFrame
            One row for each leaf or sample; a blank cell is a missing rank.
        columns : sequence of str, default=None
            Rank columns from the top level down; None means all columns.
        root_name : str, default="root"
            The root's name.
        separator : str, default="/"
            What joins the names of a path.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"family": ["cat", "cat", "dog"], "kind": ["lynx", "puma", None]})
        >>> Taxonomy.from_table(table, ["family", "kind"]).level("kind")
        ['lynx', 'puma', 'dog']
        """
        rows, chosen = formats.read_table_rows(table, columns)
        names, parents = formats.read_paths(rows, root_name)
        tree = cls(names, parents, separator=separator)
        used = (str(column) for column in chosen[: tree.n_levels])
        return cls(names, parents, level_names=used, separator=separator)

    @classmethod
    def from_folder(
        cls,
        directory: str | os.PathLike[str],
        *,
        root_name: Name | None = "root",
        **options: Any,
    ) -> Taxonomy:
        """Build from a folder of folders; hidden folders and links are passed over.

        Parameters
        ----------
        directory : path
            The folder that stands for the root.
        root_name : str, default="root"
            The root's name; None takes the folder's own.
        **options
            `level_names` and `separator` as in :class:`Taxonomy`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat/lynx", "cat/puma", "dog"):
        ...         pathlib.Path(folder, name).mkdir(parents=True)
        ...     Taxonomy.from_folder(folder).leaves
        ('lynx', 'puma', 'dog')
        """
        return cls(*formats.read_folder(directory, root_name), **options)

    @classmethod
    def from_newick(cls, text: str, *, root_name: Name = "root", **options: Any) -> Taxonomy:
        """Build from Newick text; branch lengths and comments are passed over.

        Parameters
        ----------
        text : str
            The tree. An inner node without a name is called after its first and last leaf.
        root_name : str, default="root"
            The root's name where the text has none.
        **options
            `level_names` and `separator` as in :class:`Taxonomy`.

        Examples
        --------
        >>> Taxonomy.from_newick("((lynx:1,puma:1)cat:2,dog);").path("puma")
        ('cat', 'puma')
        """
        return cls(*formats.read_newick(text, root_name), **options)

    @classmethod
    def from_networkx(cls, graph: Any, **options: Any) -> Taxonomy:
        """Build from a directed networkx graph with edges from parent to child.

        Parameters
        ----------
        graph : networkx.DiGraph
            A rooted tree.
        **options
            `level_names` and `separator` as in :class:`Taxonomy`.

        Examples
        --------
        >>> import networkx as nx
        >>> Taxonomy.from_networkx(nx.DiGraph([("pet", "cat"), ("pet", "dog")])).leaves
        ('cat', 'dog')
        """
        return cls(*formats.read_networkx(graph), **options)

    @classmethod
    def from_json(cls, text: str) -> Taxonomy:
        """Build from what :meth:`to_json` wrote.

        Parameters
        ----------
        text : str
            JSON text.

        Examples
        --------
        >>> tree = Taxonomy.flat(["cat", "dog"])
        >>> Taxonomy.from_json(tree.to_json()) == tree
        True
        """
        return cls(**formats.read_json(text, _JSON_FORMAT))

    @classmethod
    def flat(cls, names: Iterable[Any], *, root_name: Name = "root") -> Taxonomy:
        """Build a tree with one decision: all names hang from the root.

        Parameters
        ----------
        names : iterable of str or number
            The classes.
        root_name : str, default="root"
            The root's name.

        Examples
        --------
        >>> Taxonomy.flat([3, 1, 2]).sorted_leaf_labels
        array([1, 2, 3])
        """
        leaves = list(names)
        return cls([root_name, *leaves], np.array([-1] + [0] * len(leaves)))

    # Shape -----------------------------------------------------------------------------------

    @property
    def names(self) -> npt.NDArray[np.object_]:
        """Name of each node."""
        return self._names

    @property
    def root_name(self) -> Name:
        """Name of the root, which as a label means "unlabelled"."""
        name: Name = self._names[0]
        return name

    @property
    def separator(self) -> str:
        """What joins the names of a path written as one string."""
        return self._separator

    @property
    def level_names(self) -> tuple[str, ...] | None:
        """Names of the levels below the root, or None."""
        return self._level_names

    # Labels ----------------------------------------------------------------------------------

    @cached_property
    def _index(self) -> LabelIndex:
        return LabelIndex(self._names, self, self._separator)

    @cached_property
    def leaves(self) -> tuple[Name, ...]:
        """Labels of the leaves in tree order."""
        return tuple(self._index.label(node) for node in self.leaf_nodes.tolist())

    @cached_property
    def sorted_leaf_labels(self) -> npt.NDArray[Any]:
        """Labels of the leaves as ``np.unique`` sorts them: ``classes_`` of a classifier."""
        return read_only(np.array(self.leaves)[self.leaf_order])

    @cached_property
    def leaf_order(self) -> IntArray:
        """Position in tree order of each sorted leaf label."""
        return read_only(np.argsort(np.array(self.leaves), kind="stable"))

    @cached_property
    def branching(self) -> tuple[Path, ...]:
        """Paths of the branching nodes, breadth first."""
        return tuple(self._index.path(node) for node in self.branching_nodes.tolist())

    @cached_property
    def decisions(self) -> tuple[tuple[Path, Path], ...]:
        """Each child of a branching node as (path of the node, path of the child)."""
        nodes, children = self.decision_nodes, self.decision_children
        return tuple(
            (self.branching[node], self._index.path(child))
            for node, child in zip(nodes.tolist(), children.tolist(), strict=True)
        )

    def resolve(self, labels: Iterable[Label]) -> IntArray:
        """Return the nodes that labels mean.

        Parameters
        ----------
        labels : sequence of labels
            Bare names, joined paths or path tuples.

        Returns
        -------
        nodes : ndarray of int64 of shape (n_labels,)

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> tree.resolve(["dog", "cat/puma", ("cat",), "root"]).tolist()
        [2, 4, 1, 0]
        """
        return self._index.resolve(labels)

    def node(self, label: Label) -> int:
        """Return the node that one label means."""
        return int(self._index.resolve([label])[0])

    def label(self, node: int) -> Name:
        """Return the label of a node: its name, or its joined path where that is not enough."""
        return self._index.label(int(node))

    def labels(self, nodes: Iterable[int]) -> list[Name]:
        """Return the label of each node."""
        return [self._index.label(int(node)) for node in nodes]

    def path(self, label: Label) -> Path:
        """Return the names from the top level down to what a label means.

        Examples
        --------
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).path("puma")
        ('cat', 'puma')
        """
        return self._index.path(self.node(label))

    def labels_from_paths(self, rows: Any) -> npt.NDArray[Any]:
        """Turn rows of level names into labels.

        Parameters
        ----------
        rows : array-like or DataFrame of shape (n_samples, n_levels)
            Names from the top level down. Empty or None from some level on makes an ancestor
            label; an empty row means "unlabelled" and becomes the root's label.

        Returns
        -------
        labels : ndarray of shape (n_samples,)

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> tree.labels_from_paths([["cat", "puma"], ["cat", ""], ["dog", None]]).tolist()
        ['puma', 'cat', 'dog']
        """
        if hasattr(rows, "itertuples"):
            rows = rows.itertuples(index=False, name=None)
        paths = []
        for number, row in enumerate(rows):
            if isinstance(row, str):
                raise TypeError(f"Row {number} is the string {row!r}, not a row of level names.")
            paths.append(tuple(formats.fill_row(list(row))))
        labels = self.labels(self._index.resolve(paths))
        is_text = {isinstance(label, str) for label in labels}
        return np.array(labels, dtype=object if len(is_text) > 1 else None)

    # Levels ----------------------------------------------------------------------------------

    def level_index(self, level: str | int) -> int:
        """Return the depth of a level given by name or number.

        Parameters
        ----------
        level : str or int
            A name of `level_names`, "leaf" for the deepest level, or a depth from 0 (the root).

        Examples
        --------
        >>> Taxonomy.from_paths([("a", "b"), ("a", "c")], level_names=("top", "fine")).level_index(
        ...     "fine"
        ... )
        2
        """
        names = self._level_names or ()
        if isinstance(level, str):
            if level in names:
                return names.index(level) + 1
            if level == "leaf":
                return self.n_levels
        elif (
            type(level) is not bool
            and isinstance(level, (int, np.integer))
            and (0 <= level <= self.n_levels)
        ):
            return int(level)
        raise ValueError(
            f"The taxonomy has no level {level!r}. Use a number from 0 to {self.n_levels}, 'leaf'"
            + (f" or one of {list(names)}." if names else "; its levels have no names.")
        )

    def level_nodes(self, level: str | int) -> IntArray:
        """Return the nodes of a level in tree order; leaves that end above it included."""
        return self.nodes_at_depth(self.level_index(level))

    def level(self, level: str | int) -> list[Name]:
        """Return the labels of a level in tree order.

        Examples
        --------
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).level(1)
        ['cat', 'dog']
        """
        return self.labels(self.level_nodes(level))

    def project(self, nodes: npt.ArrayLike, level: str | int) -> IntArray:
        """Return the node of a level that each node lies in, -1 where it ends above the level.

        Parameters
        ----------
        nodes : array-like of int
            Node numbers.
        level : str or int
            The level. A leaf that ends above it stands for itself.
        """
        return self.climb_to_depth(self._as_nodes(nodes), self.level_index(level))

    def ancestor(self, label: Label, level: str | int) -> Name:
        """Return the label of the node of a level that something lies in.

        Examples
        --------
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).ancestor("puma", 1)
        'cat'
        """
        found = int(self.project([self.node(label)], level)[0])
        if found < 0:
            raise ValueError(
                f"{label!r} ends above level {level!r}, so it has no ancestor there. "
                "Choose a level at or above it."
            )
        return self.label(found)

    # Forms -----------------------------------------------------------------------------------

    def restrict(self, labels: Iterable[Label]) -> Taxonomy:
        """Return the tree pruned to some clades: what is below them, and the way to them.

        Parameters
        ----------
        labels : sequence of labels
            The clades to keep.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox"], "bear": None})
        >>> tree.restrict(["cat", "bear"]).leaves
        ('lynx', 'puma', 'bear')
        """
        kept = self.clade_mask(self._index.resolve(labels))
        old = np.flatnonzero(kept)
        parents = np.where(old == 0, -1, (np.cumsum(kept) - 1)[self.parents[old]])
        n_levels = int(self.depths[old].max(initial=0))
        levels = None if self._level_names is None else self._level_names[:n_levels]
        return Taxonomy(self._names[old], parents, level_names=levels, separator=self._separator)

    def draw(self, labels: Iterable[Label] | None = None, *, max_lines: int = 200) -> str:
        """Draw the tree as text.

        Parameters
        ----------
        labels : sequence of labels, default=None
            Labels of samples; each node then shows how many lie at or below it. None shows the
            number of leaves.
        max_lines : int, default=200
            Lines to draw at most, as far as the first level allows; the deepest levels fold.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> print(tree.draw(["lynx", "lynx", "cat"]))
        root (3)
        ├── cat (3)
        │   ├── lynx (2)
        │   └── puma (0)
        └── dog (0)
        """
        names = map(str, self._names)
        if labels is None:
            counts = self.leaf_stop - self.leaf_start
            shown = (self.n_children > 0).tolist()
        else:
            counts = self.sum_below(np.bincount(self.resolve(labels), minlength=self.n_nodes))
            shown = [True] * self.n_nodes
        captions = [
            f"{name} ({count})" if show else name
            for name, count, show in zip(names, counts.tolist(), shown, strict=True)
        ]
        return draw_tree(self, captions, max_lines)

    def to_json(self) -> str:
        """Write the tree as JSON text, which :meth:`from_json` reads."""
        return json.dumps(
            {
                "format": _JSON_FORMAT,
                "version": 1,
                "separator": self._separator,
                "level_names": self._level_names,
                "names": self._names.tolist(),
                "parents": self.parents.tolist(),
            },
            ensure_ascii=False,
        )

    def __str__(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        levels = f", levels {' > '.join(self._level_names)}" if self._level_names else ""
        return f"Taxonomy({self.n_leaves} leaves, {self.n_branching} branching nodes{levels})"

    def _key(self) -> tuple[Any, ...]:
        return self._names.tolist(), self._level_names, self._separator

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Taxonomy):
            return NotImplemented
        same_shape = np.array_equal(self.parents, other.parents)
        return same_shape and self._key() == other._key()

    @cached_property
    def _hash(self) -> int:
        names, levels, separator = self._key()
        return hash((tuple(names), self.parents.tobytes(), levels, separator))

    def __hash__(self) -> int:
        return self._hash

    # An immutable value: a copy would only cost memory, as with a tuple.
    def __copy__(self) -> Taxonomy:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Taxonomy:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._names, self.parents, self._level_names, self._separator)
        return _restore, arguments


def _restore(
    names: npt.NDArray[np.object_],
    parents: IntArray,
    level_names: tuple[str, ...] | None,
    separator: str,
) -> Taxonomy:
    return Taxonomy(names, parents, level_names=level_names, separator=separator)


def _check_siblings(tree: Taxonomy) -> None:
    names = tree.names
    for first, count in zip(
        tree.first_child[tree.branching_nodes].tolist(),
        np.diff(tree.decision_offsets).tolist(),
        strict=True,
    ):
        siblings = names[first : first + count].tolist()
        if len(set(siblings)) < count:
            repeated = next(name for name in siblings if siblings.count(name) > 1)
            parent = names[tree.parents[first]]
            raise ValueError(
                f"{parent!r} has two children named {repeated!r}, whose paths would be the same. "
                "Merge them or rename one."
            )
