"""Number the nodes of a rooted tree and derive the flat arrays that everything else reads.

Nodes are integers in breadth-first order, so a parent always has a smaller number than its
children, siblings are contiguous, and one depth is one slice. Leaves are counted depth first, so
every node covers one interval of leaf positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from .names import check_level_names, find_level

IntArray = npt.NDArray[np.int64]
Array = TypeVar("Array", bound=npt.NDArray[Any])
# What readers return: the names of nodes, and the position of each one's parent, -1 for the root.
NodeList = tuple[list[Any], IntArray]

# Far above any real taxonomy; a longer chain is a broken or hostile file.
MAX_DEPTH = 1000


class Tree:
    """A rooted tree of numbered nodes as flat, read-only arrays.

    Parameters
    ----------
    parents : ndarray of shape (n_nodes,)
        Parent of each node in breadth-first numbers, -1 for node 0.
    depths : ndarray of shape (n_nodes,)
        Edges from the root, never decreasing.
    level_names : sequence of str, default=None
        Name of each level below the root, from the top down.
    """

    def __init__(
        self, parents: IntArray, depths: IntArray, level_names: Iterable[str] | None = None
    ) -> None:
        n_nodes = parents.size
        n_children = np.bincount(parents[1:], minlength=n_nodes)
        # Breadth-first numbering: the children of node v follow those of every node before it.
        first_child = np.cumsum(n_children) - n_children + 1
        bounds = np.searchsorted(depths, np.arange(depths[-1] + 2))
        self._level_bounds = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))

        is_leaf = n_children == 0
        n_leaves_below = is_leaf.astype(np.int64)
        heights = np.zeros(n_nodes, dtype=np.int64)
        for low, high in self._level_bounds[:0:-1]:
            np.add.at(n_leaves_below, parents[low:high], n_leaves_below[low:high])
            np.maximum.at(heights, parents[low:high], heights[low:high] + 1)

        leaves_before = np.cumsum(n_leaves_below) - n_leaves_below
        leaf_start = np.zeros(n_nodes, dtype=np.int64)
        for low, high in self._level_bounds[1:]:
            above = parents[low:high]
            elder_siblings = leaves_before[low:high] - leaves_before[first_child[above]]
            leaf_start[low:high] = leaf_start[above] + elder_siblings
        leaf_nodes = np.flatnonzero(is_leaf)
        leaf_nodes = leaf_nodes[np.argsort(leaf_start[leaf_nodes])]

        branching = np.flatnonzero(n_children >= 2)
        fan_out = n_children[branching]
        decision_nodes = np.repeat(np.arange(branching.size), fan_out)
        decision_children = concatenate_ranges(first_child[branching], fan_out)
        last_decision = np.full(n_nodes, -1, dtype=np.int64)
        last_decision[decision_children] = np.arange(decision_children.size)
        for low, high in self._level_bounds[1:]:
            own = last_decision[low:high]
            last_decision[low:high] = np.where(own >= 0, own, last_decision[parents[low:high]])

        self.n_nodes = n_nodes
        self.n_leaves = leaf_nodes.size
        self.n_branching = branching.size
        self.n_decisions = decision_children.size
        self.n_levels = int(depths[-1])
        self.level_names = check_level_names(level_names, self.n_levels)
        self.parents = read_only(parents)
        self.depths = read_only(depths)
        self.heights = read_only(heights)
        self.first_child = read_only(first_child)
        self.n_children = read_only(n_children)
        self.leaf_nodes = read_only(leaf_nodes)
        self.leaf_start = read_only(leaf_start)
        self.leaf_stop = read_only(leaf_start + n_leaves_below)
        self.branching_nodes = read_only(branching)
        self.decision_offsets = read_only(np.concatenate([[0], np.cumsum(fan_out)]))
        self.decision_nodes = read_only(decision_nodes)
        self.decision_children = read_only(decision_children)
        self.last_decision = read_only(last_decision)
        self.parent_decision = read_only(last_decision[branching[decision_nodes]])

    @cached_property
    def last_of_chain(self) -> IntArray:
        """The deepest node with the same leaves as each node: only children are followed."""
        last = np.arange(self.n_nodes)
        for low, high in self._level_bounds[::-1]:
            nodes = low + np.flatnonzero(self.n_children[low:high] == 1)
            last[nodes] = last[self.first_child[nodes]]
        return read_only(last)

    @cached_property
    def focal_columns(self) -> IntArray:
        """The column of `HyperOpinion.mass` that each node's leaf set has, a chain's the same."""
        column = np.empty(self.n_nodes, dtype=np.int64)
        focal = np.concatenate([self.leaf_nodes, self.branching_nodes])
        column[focal] = np.arange(focal.size)
        return read_only(column[self.last_of_chain])

    def level_index(self, level: str | int) -> int:
        """Return the depth of a level given by name or number.

        Parameters
        ----------
        level : str or int
            A name of `level_names`, "leaf" for the deepest level, or a depth from 0 (the root).

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> tree = Taxonomy.from_paths([("a", "b"), ("a", "c")], level_names=("top", "fine"))
        >>> tree.level_index("fine")
        2
        """
        return find_level(level, self.level_names, self.n_levels)

    def level_nodes(self, level: str | int) -> IntArray:
        """Return the nodes of a level in tree order; leaves that end above it included.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}).level_nodes(2).tolist()
        [3, 4, 2]
        """
        return self.nodes_at_depth(self.level_index(level))

    def nodes_at_depth(self, depth: int) -> IntArray:
        """Return the nodes of one depth in tree order; leaves that end above it included."""
        ends_above = (self.depths < depth) & (self.n_children == 0)
        nodes = np.flatnonzero((self.depths == depth) | ends_above)
        return nodes[np.argsort(self.leaf_start[nodes])]

    def project(self, nodes: npt.ArrayLike, level: str | int) -> IntArray:
        """Return the node of a level that each node lies in, -1 where it ends above the level.

        Parameters
        ----------
        nodes : array-like of int
            Node numbers or labels.
        level : str or int
            The level. A leaf that ends above it stands for itself; so does its chain.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> tree.project(["puma", "dog", "cat"], 2).tolist()
        [4, 2, -1]
        """
        return self.climb_to_depth(self.as_nodes(nodes), self.level_index(level))

    def climb_to_depth(self, nodes: IntArray, depth: int) -> IntArray:
        """Return the ancestor at one depth, -1 for inner nodes that end above it."""
        found = self.last_of_chain[nodes]
        ends_above = (self.depths[found] < depth) & (self.n_children[found] > 0)
        while (below := self.depths[found] > depth).any():
            found = np.where(below, self.parents[found], found)
        return np.where(ends_above, -1, found)

    def lowest_common_ancestor(
        self, first: npt.ArrayLike, second: npt.ArrayLike
    ) -> npt.NDArray[np.int64]:
        """Return the lowest common ancestor of pairs of nodes.

        Parameters
        ----------
        first, second : array-like of int of shape (n_pairs,)
            Node numbers or labels; they broadcast against each other.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> tree.labels(tree.lowest_common_ancestor(["lynx", "lynx"], ["puma", "dog"]))
        ['cat', 'root']
        """
        one, two = np.broadcast_arrays(self.as_nodes(first), self.as_nodes(second))
        low, high = np.minimum(one, two).ravel(), np.maximum(one, two).ravel()
        found = low.copy()
        active = np.flatnonzero(low != high)
        low, high = low[active], high[active]
        while active.size:
            # Breadth-first numbers never grow upwards, so the larger one is never the ancestor.
            raised = self.parents[high]
            low, high = np.minimum(low, raised), np.maximum(low, raised)
            apart = low != high
            found[active[~apart]] = low[~apart]
            active, low, high = active[apart], low[apart], high[apart]
        return found.reshape(one.shape)

    def distance(self, first: npt.ArrayLike, second: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the number of edges between pairs of nodes.

        Parameters
        ----------
        first, second : array-like of int of shape (n_pairs,)
            Node numbers or labels; they broadcast against each other.

        Examples
        --------
        >>> from skh2edl import Taxonomy
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> int(tree.distance("lynx", "dog"))
        3
        """
        one, two = self.as_nodes(first), self.as_nodes(second)
        shared = self.depths[self.lowest_common_ancestor(one, two)]
        return np.asarray(self.depths[one] + self.depths[two] - 2 * shared)

    def as_nodes(self, nodes: npt.ArrayLike) -> IntArray:
        """Return nodes as integers, refusing what is none of the tree's.

        Parameters
        ----------
        nodes : array-like of int
            Indices of nodes.
        """
        array = np.asarray(nodes)
        if array.size == 0:
            return np.zeros(array.shape, dtype=np.int64)
        if array.dtype.kind not in "iu":
            raise TypeError(
                f"Nodes must be integers, got an array of {array.dtype}. Turn labels into nodes "
                "with Taxonomy.resolve."
            )
        if array.min() < 0 or array.max() >= self.n_nodes:
            raise ValueError(
                f"Nodes must lie between 0 and {self.n_nodes - 1}, got {array.min()} to "
                f"{array.max()}."
            )
        return array.astype(np.int64, copy=False)

    def sum_below(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Add up what belongs to each node and to all nodes below it.

        Parameters
        ----------
        values : array-like of shape (n_nodes,)
            What belongs to the node itself, such as the number or weight of its samples.
        """
        total = np.array(values)
        for low, high in self._level_bounds[:0:-1]:
            np.add.at(total, self.parents[low:high], total[low:high])
        return total

    def clade_mask(self, nodes: IntArray) -> npt.NDArray[np.bool_]:
        """Mark the nodes, all that is below them, and the paths from the root to them."""
        kept = np.zeros(self.n_nodes, dtype=bool)
        kept[nodes] = True
        for low, high in self._level_bounds[1:]:
            kept[low:high] |= kept[self.parents[low:high]]
        for low, high in self._level_bounds[:0:-1]:
            kept[self.parents[low:high][kept[low:high]]] = True
        return kept


def read_only(array: Array) -> Array:
    """Return the array itself, closed to writing."""
    array.setflags(write=False)
    return array


def concatenate_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Join the ranges ``start, start + 1, ... start + count - 1`` end to end.

    Examples
    --------
    >>> import numpy as np
    >>> concatenate_ranges(np.array([10, 3]), np.array([2, 3])).tolist()
    [10, 11, 3, 4, 5]
    """
    ends = np.cumsum(counts)
    shift = np.repeat(starts - (ends - counts), counts)
    return shift + np.arange(shift.size)


def check_depth(depth: int) -> None:
    """Refuse a depth that no classification needs."""
    if depth > MAX_DEPTH:
        raise ValueError(
            f"The taxonomy is deeper than {MAX_DEPTH} levels, which no classification needs. "
            "Check the source for a chain of nodes that should be siblings."
        )


def breadth_first_order(parents: IntArray) -> tuple[IntArray, IntArray]:
    """Visit the nodes level by level, siblings in the order they were given.

    Parameters
    ----------
    parents : ndarray of shape (n_nodes,)
        Position of each node's parent; -1 for the one root.

    Returns
    -------
    order : ndarray of shape (n_reached,)
        Positions in breadth-first order. Shorter than `parents` if there is a cycle.
    depths : ndarray of shape (n_reached,)
        Depth of each visited node.
    """
    by_parent = np.argsort(parents, kind="stable")
    counts = np.bincount(parents[parents >= 0], minlength=parents.size)
    starts = np.cumsum(counts) - counts + 1  # the root, whose parent is -1, sorts first
    levels = [by_parent[:1]]
    while (level := levels[-1]).size:
        check_depth(len(levels) - 1)
        levels.append(by_parent[concatenate_ranges(starts[level], counts[level])])
    depths = np.repeat(np.arange(len(levels)), [level.size for level in levels])
    return np.concatenate(levels), depths


def number_nodes(
    names: Sequence[Any], parents: npt.ArrayLike
) -> tuple[IntArray, IntArray, IntArray]:
    """Give numbers to nodes in any order, or say why they make no tree.

    Parameters
    ----------
    names : sequence
        Name of each node, for the error messages.
    parents : array-like of int of shape (n_nodes,)
        Position of each node's parent; -1 for the one root.

    Returns
    -------
    order, parents, depths : ndarray of shape (n_nodes,)
        The given position, the parent's number and the depth of each node, breadth first.
    """
    given = check_parents(names, parents)
    order, depths = breadth_first_order(given)
    if order.size < given.size:
        raise_cycle(names, given, order)
    check_leaves(names, given)
    number = np.empty_like(order)
    number[order] = np.arange(order.size)
    return order, np.where(depths == 0, -1, number[given[order]]), depths


def check_parents(names: Sequence[Any], parents: npt.ArrayLike) -> IntArray:
    """Return the parent positions, or say why they do not hang from one root."""
    array = np.asarray(parents)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"parents must be integers, got an array of {array.dtype}.")
    positions = array.astype(np.int64)
    if positions.shape != (len(names),):
        raise ValueError(f"parents must hold one position for each of the {len(names)} names.")
    if not names:
        raise ValueError("The taxonomy is empty. Give at least two leaves below one root.")
    if positions.min() < -1 or positions.max() >= len(names):
        raise ValueError(
            f"parents must lie between -1 and {len(names) - 1}, got {positions.min()} to "
            f"{positions.max()}."
        )
    roots = np.flatnonzero(positions == -1)
    if roots.size == 0:
        raise_cycle(names, positions, roots)
    if roots.size > 1:
        shown = [names[root] for root in roots[:5].tolist()]
        raise ValueError(
            f"The taxonomy has {roots.size} roots, first {shown}: nodes without a parent. "
            "Put one common root above them."
        )
    return positions


def check_leaves(names: Sequence[Any], parents: IntArray) -> None:
    """Refuse a tree with nothing to decide."""
    if len(names) == 1:
        raise ValueError(
            f"The taxonomy is empty: nothing hangs from its root {names[0]!r}. Give at least two "
            "leaves."
        )
    leaves = np.setdiff1d(np.arange(len(names)), parents)
    if leaves.size == 1:
        raise ValueError(
            f"The taxonomy has one leaf, {names[leaves[0]]!r}, but a classifier needs at least "
            "two leaves (classes) to choose between. Add the classes that are missing."
        )


def raise_cycle(names: Sequence[Any], parents: IntArray, reached: IntArray) -> NoReturn:
    """Name the nodes of a cycle among those that no path from the root reaches."""
    unreached = np.ones(len(names), dtype=bool)
    unreached[reached] = False
    node = int(np.flatnonzero(unreached)[0])
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        node = int(parents[node])
    cycle = [names[member] for member, position in seen.items() if position >= seen[node]]
    shown = " -> ".join(map(repr, [*cycle[:5], *(["..."] if len(cycle) > 5 else []), cycle[0]]))
    raise ValueError(
        f"The taxonomy has a cycle of {len(cycle)} node(s): {shown} (each one's parent follows). "
        "A tree has none: remove one of these edges."
    )
