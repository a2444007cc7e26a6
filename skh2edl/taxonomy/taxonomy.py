"""The taxonomy: a rooted tree of named concepts, held as flat arrays."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from . import formats as formats
from .drawing import draw_tree
from .labels import Label, LabelIndex, Path
from .names import Name, check_leaf_names, check_separator, check_siblings, clean_names, shown
from .tree import IntArray, Tree, number_nodes, read_only


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

    names: npt.NDArray[np.object_]
    separator: str

    def __init__(
        self,
        names: Iterable[Any],
        parents: npt.ArrayLike,
        *,
        level_names: Iterable[str] | None = None,
        separator: str = "/",
    ) -> None:
        given_names = clean_names(names)
        order, numbered, depths = number_nodes(given_names, parents)
        super().__init__(numbered, depths, level_names)
        self.names = np.empty(order.size, dtype=object)
        self.names[:] = [given_names[position] for position in order.tolist()]
        self.names.setflags(write=False)
        self.separator = check_separator(separator)
        check_leaf_names(self.names[self.leaf_nodes].tolist())
        if not self._index.has_distinct_names:
            check_siblings(self.names, self.parents)
        if self._index.names_that_read_as_paths:
            self.labels(np.arange(self.n_nodes))  # or say now that some node can have no label
        self._is_complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_is_complete" in self.__dict__:
            raise AttributeError(
                f"A taxonomy cannot be changed, so {name!r} cannot be set. Build another one, "
                "for example with restrict."
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"A taxonomy cannot be changed, so {name!r} cannot be deleted.")

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
            `level_names` and `separator`.

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
            `level_names` and `separator`.

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
            `level_names` and `separator`.

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
        **options: Any,
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
        **options
            `separator`.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"family": ["cat", "cat", "dog"], "kind": ["lynx", "puma", None]})
        >>> Taxonomy.from_table(table, ["family", "kind"]).level("kind")
        ['lynx', 'puma', 'dog']
        """
        rows, level_names = formats.read_table_rows(table, columns)
        names, parents = formats.read_paths(rows, root_name)
        return cls(names, parents, level_names=level_names or None, **options)

    @classmethod
    def from_folder(
        cls, directory: str | os.PathLike[str], *, root_name: Name | None = "root", **options: Any
    ) -> Taxonomy:
        """Build from a folder of folders; hidden folders and links are passed over.

        Parameters
        ----------
        directory : path
            The folder that stands for the root.
        root_name : str, default="root"
            The root's name; None takes the folder's own.
        **options
            `level_names` and `separator`.

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
            `level_names` and `separator`.

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
            `level_names` and `separator`.

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

        Examples
        --------
        >>> tree = Taxonomy.flat(["cat", "dog"])
        >>> Taxonomy.from_json(tree.to_json()) == tree
        True
        """
        return cls(**formats.read_json(text))

    @classmethod
    def flat(
        cls, names: Iterable[Any], *, root_name: Name | None = None, **options: Any
    ) -> Taxonomy:
        """Build a tree with one decision: all names hang from the root.

        Parameters
        ----------
        names : iterable of str or number
            The classes.
        root_name : str, default=None
            The root's name; None means "root", or "(root)" where that is the name of a class.
        **options
            `level_names` and `separator`.

        Examples
        --------
        >>> Taxonomy.flat([3, 1, 2]).sorted_leaf_labels
        array([1, 2, 3])
        """
        if isinstance(names, str):
            raise TypeError(f"names must be a sequence of classes, got the string {shown(names)}.")
        leaves = clean_names(names)
        if root_name is None:
            root_name = "(root)" if "root" in leaves else "root"
        return cls([root_name, *leaves], np.array([-1] + [0] * len(leaves)), **options)

    @property
    def root_name(self) -> Name:
        """Name of the root, which as a label means "unlabelled"."""
        name: Name = self.names[0]
        return name

    @cached_property
    def _index(self) -> LabelIndex:
        return LabelIndex(self.names, self, self.separator)

    @cached_property
    def leaves(self) -> tuple[Name, ...]:
        """Labels of the leaves in tree order."""
        return tuple(self._index.labels(self.leaf_nodes))

    @cached_property
    def _leaf_labels(self) -> npt.NDArray[Any]:
        labels = np.array(self.leaves)
        if labels.tolist() != list(self.leaves):  # a large integer rounded beside a fraction
            labels = np.array(self.leaves, dtype=object)
        return read_only(labels)

    @cached_property
    def sorted_leaf_labels(self) -> npt.NDArray[Any]:
        """Labels of the leaves as ``np.unique`` sorts them: ``classes_`` of a classifier."""
        return read_only(self._leaf_labels[self.leaf_order])

    @cached_property
    def leaf_order(self) -> IntArray:
        """Position in tree order of each sorted leaf label."""
        return read_only(np.argsort(self._leaf_labels, kind="stable"))

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
            Bare names, joined paths or path tuples. A number is also known by its spelling.

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
        """Return the node that one label means.

        Examples
        --------
        >>> Taxonomy.flat(["cat", "dog"]).node("dog")
        2
        """
        return int(self._index.resolve([label])[0])

    def label(self, node: int) -> Name:
        """Return the label of a node: its name, or its joined path where that is not enough.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "other"], "dog": ["fox", "other"]})
        >>> tree.label(3), tree.label(4)
        ('lynx', 'cat/other')
        """
        return self.labels([node])[0]

    def labels(self, nodes: npt.ArrayLike) -> list[Name]:
        """Return the label of each node.

        Examples
        --------
        >>> Taxonomy.flat(["cat", "dog"]).labels([2, 0])
        ['dog', 'root']
        """
        return self._index.labels(super()._as_nodes(nodes))

    def _as_nodes(self, nodes: Any) -> IntArray:
        """Take labels where nodes are asked for; integers are always nodes."""
        if isinstance(nodes, str):
            return self.resolve([nodes])[0]
        if isinstance(nodes, (list, tuple)) and any(isinstance(n, (str, tuple)) for n in nodes):
            return self.resolve(nodes)
        array = np.asarray(nodes)
        return self.resolve(array) if array.dtype.kind in "OUT" else super()._as_nodes(array)

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
        paths = [tuple(row) for row in formats.read_rows(rows)]
        labels = self.labels(self._index.resolve(paths))
        kinds = {isinstance(label, str) for label in labels}
        return np.array(labels, dtype=None if len(kinds) == 1 else object)

    def level(self, level: str | int) -> list[Name]:
        """Return the labels of a level in tree order.

        Examples
        --------
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).level(1)
        ['cat', 'dog']
        """
        return self.labels(self.level_nodes(level))

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

    def restrict(self, labels: Iterable[Label]) -> Taxonomy:
        """Return the tree pruned to some clades: what is below them, and the way to them.

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
        levels = None if self.level_names is None else self.level_names[:n_levels]
        return Taxonomy(self.names[old], parents, level_names=levels, separator=self.separator)

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
        if labels is None:
            counts = np.where(self.n_children > 0, self.leaf_stop - self.leaf_start, -1)
        else:
            counts = self.sum_below(np.bincount(self.resolve(labels), minlength=self.n_nodes))
        return draw_tree(self, self.names, counts, max_lines)

    def to_json(self) -> str:
        """Write the tree as JSON text, which :meth:`from_json` reads."""
        return formats.write_json(self.names, self.parents, self.level_names, self.separator)

    def __str__(self) -> str:
        return self.draw()

    def __repr__(self) -> str:
        levels = f", levels {' > '.join(self.level_names)}" if self.level_names else ""
        return f"Taxonomy({self.n_leaves} leaves, {self.n_branching} branching nodes{levels})"

    def _key(self) -> tuple[Any, ...]:
        names = self.names.tolist()
        # 1, 1.0 and True are equal in Python, but make different classes.
        kinds = [] if set(map(type, names)) == {str} else list(map(type, names))
        return tuple(names), tuple(kinds), self.level_names, self.separator

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Taxonomy):
            return NotImplemented
        return np.array_equal(self.parents, other.parents) and self._key() == other._key()

    @cached_property
    def _hash(self) -> int:
        return hash((self._key(), self.parents.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    # An immutable value: a copy would only cost memory, as with a tuple.
    def __copy__(self) -> Taxonomy:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Taxonomy:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        build = partial(Taxonomy, level_names=self.level_names, separator=self.separator)
        return build, (self.names.tolist(), self.parents)
