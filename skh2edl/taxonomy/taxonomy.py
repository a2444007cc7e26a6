"""The taxonomy: a rooted tree of named concepts, held as flat arrays."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from ..utils.files import write_atomically
from ..utils.optional import import_optional
from . import formats
from .builders import Builders
from .drawing import draw_tree
from .graphs import write_networkx
from .labels import Label, LabelIndex, Path
from .names import Name, check_leaf_names, check_separator, check_siblings, clean_names
from .newick import write_newick
from .tables import write_csv
from .tree import IntArray, Tree, number_nodes, read_only

# Lines of the tree in a notebook: about one screen.
_HTML_LINES = 40


class Taxonomy(Builders, Tree):
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
    n_nodes, n_leaves, n_branching, n_decisions, n_levels : int
        Numbers of nodes (the root included), of leaves, of nodes with two or more children, of
        their children, and the depth of the deepest node.
    names, parents, depths, heights, first_child, n_children : ndarray of shape (n_nodes,)
        The tree as arrays: name, parent (-1 for the root), edges from the root, edges of the
        longest path down, number of the first child, number of children.
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
        The last decision on the path to each node, -1 where there is none.
    parent_decision : ndarray of shape (n_decisions,)
        The decision before each decision on its path, -1 where there is none.

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
        Tree.__init__(self, numbered, depths, level_names)
        self.names = np.empty(order.size, dtype=object)
        self.names[:] = [given_names[position] for position in order.tolist()]
        self.names.setflags(write=False)
        self.separator = check_separator(separator)
        check_leaf_names(self.names[self.leaf_nodes].tolist())
        check_siblings(self.names, self.parents)
        if self._index.names_like_paths:
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
        return self._index.labels(super().as_nodes(nodes))

    def as_nodes(self, nodes: Any) -> IntArray:
        """Take labels where nodes are asked for; integers are always nodes."""
        if isinstance(nodes, str):
            return self.resolve([nodes])[0]
        if isinstance(nodes, (list, tuple)) and any(isinstance(n, (str, tuple)) for n in nodes):
            return self.resolve(nodes)
        array = np.asarray(nodes)
        return self.resolve(array) if array.dtype.kind in "OUT" else super().as_nodes(array)

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
        """Return the tree pruned to some clades: what is below them, and the paths to them.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox"], "bear": None})
        >>> tree.restrict(["cat", "bear"]).leaves
        ('lynx', 'puma', 'bear')
        """
        return self._keep(self.clade_mask(self._index.resolve(labels)))

    def prune_empty(self, labels: Iterable[Label] | None = None) -> Taxonomy:
        """Return the tree without the nodes that nothing stands for.

        Parameters
        ----------
        labels : sequence of labels, default=None
            Labels of samples: a node stays if some sample lies at or below it, and one whose
            samples all stop at it becomes a leaf. None drops what ends above the deepest level,
            such as a genus of a checklist without a species.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox"], "bear": None})
        >>> tree.prune_empty(["lynx", "fox", "dog"]).leaves
        ('lynx', 'fox')
        >>> tree.prune_empty().leaves
        ('lynx', 'puma', 'fox')
        """
        if labels is None:
            own = self.depths == self.n_levels
        else:
            own = np.bincount(self.resolve(labels), minlength=self.n_nodes) > 0
        return self._keep(self.sum_below(own.astype(np.int64)) > 0)

    def collapse(self, level: str | int) -> Taxonomy:
        """Return the tree cut off below a level, whose nodes become leaves.

        Parameters
        ----------
        level : str or int
            The level that is the deepest one of the new tree.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox"], "bear": None})
        >>> tree.collapse(1).leaves
        ('cat', 'dog', 'bear')
        """
        return self._keep(self.depths <= self.level_index(level))

    def rename(self, names: Mapping[Label, Any] | Callable[[Name], Any]) -> Taxonomy:
        """Return the same tree with other names.

        Parameters
        ----------
        names : mapping or callable
            New name by label, or a function of the name of every node, such as ``str.title``.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "other"], "dog": ["fox", "other"]})
        >>> tree.rename({"cat/other": "other cat", "dog/other": "other dog"}).leaves
        ('lynx', 'other cat', 'fox', 'other dog')
        """
        new = self.names.tolist()
        if callable(names):
            new = [names(name) for name in new]
        else:
            for node, name in zip(self.resolve(list(names)).tolist(), names.values(), strict=True):
                new[node] = name
        return Taxonomy(new, self.parents, level_names=self.level_names, separator=self.separator)

    def lca(self, labels: Iterable[Label]) -> Name:
        """Return the label of the lowest common ancestor of some nodes.

        Parameters
        ----------
        labels : sequence of labels
            At least one.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> tree.lca(["lynx", "puma"]), tree.lca(["lynx", "puma", "dog"])
        ('cat', 'root')
        """
        nodes = self.resolve(labels)
        if not nodes.size:
            raise ValueError("The lowest common ancestor of no label is not defined. Give one.")
        # The node whose leaves reach from the first to the last of all.
        first, last = nodes[self.leaf_start[nodes].argmin()], nodes[self.leaf_stop[nodes].argmax()]
        found = self.lowest_common_ancestor(int(first), int(last))
        shallow = nodes[self.depths[nodes].argmin()]  # of a chain, the given node itself
        return self.label(int(self.lowest_common_ancestor(int(found), int(shallow))))

    def _keep(self, kept: npt.NDArray[np.bool_]) -> Taxonomy:
        """Return the tree of some nodes, each with its parent."""
        old = np.flatnonzero(kept)
        parents = np.where(old == 0, -1, (np.cumsum(kept) - 1)[self.parents[old]])
        n_levels = int(self.depths[old].max(initial=0))
        levels = None if self.level_names is None else self.level_names[:n_levels]
        return Taxonomy(self.names[old], parents, level_names=levels, separator=self.separator)

    def to_json(self) -> str:
        """Write the tree as JSON text, which :meth:`from_json` reads."""
        return formats.write_json(self)

    def to_nested(self) -> dict[str, Any]:
        """Return the tree as records with a name and children, which :meth:`from_nested` reads.

        Examples
        --------
        >>> Taxonomy.flat(["cat", "dog"]).to_nested()
        {'name': 'root', 'children': [{'name': 'cat'}, {'name': 'dog'}]}
        """
        return formats.write_nested(self)

    def to_newick(self) -> str:
        """Write the tree as Newick text, which :meth:`from_newick` reads.

        Examples
        --------
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog's": None}).to_newick()
        "((lynx,puma)cat,'dog''s')root;"
        """
        return write_newick(self)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write a table with a line for each leaf and a column for each level.

        Parameters
        ----------
        path : path, default=None
            The file to write; None returns the text. :meth:`from_table` reads it.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> print(tree.to_csv(), end="")
        level_1,level_2
        cat,lynx
        cat,puma
        dog,
        """
        columns = self.level_names or [f"level_{d}" for d in range(1, self.n_levels + 1)]
        text = write_csv(map(self._index.path, self.leaf_nodes.tolist()), columns)
        if path is None:
            return text
        write_atomically(pathlib.Path(path), lambda file: file.write(text.encode()))
        return None

    def to_networkx(self) -> Any:
        """Return the tree as a directed networkx graph.

        Returns
        -------
        graph : networkx.DiGraph
            The nodes are paths, () the root, with the attributes `name` and `level`; edges point
            from parent to child. ``Taxonomy.from_networkx(graph, name="name")`` reads it.

        Examples
        --------
        >>> graph = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).to_networkx()
        >>> list(graph.successors(("cat",)))
        [('cat', 'lynx'), ('cat', 'puma')]
        """
        return write_networkx(import_optional("networkx", extra="networkx"), self)

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
        return draw_tree(self, counts, max_lines)

    def __str__(self) -> str:
        return self.draw()

    def _repr_html_(self) -> str:
        drawing = escape(self.draw(max_lines=_HTML_LINES))
        return f"<p>{escape(repr(self))}</p><pre>{drawing}</pre>"

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
