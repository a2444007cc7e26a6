"""Divide the leaves into parts, each with a guarantee of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ._quantile import (
    effective_size,
    is_enough,
    quantile_of_votes,
    samples_needed,
    vote_weights,
)

FloatArray = npt.NDArray[np.float64]

ELSEWHERE = "(elsewhere)"  # name of the part that holds what no subtree does


def assign_subtrees(subtrees: Any, tree: Taxonomy) -> tuple[IntArray, list[list[Any]]]:
    """Return the part that each leaf belongs to, and the labels of each part.

    Parameters
    ----------
    subtrees : str, int, list of labels or None
        A level, the subtrees themselves, or None for the whole tree.
    tree : Taxonomy
        The tree.

    Returns
    -------
    part_of_leaf : ndarray of int of shape (n_leaves,)
    names : list of lists of labels

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> assign_subtrees(["cat"], tree)
    (array([0, 0, 1]), [['cat'], ['(elsewhere)']])
    """
    if subtrees is None:
        return np.zeros(tree.n_leaves, dtype=np.int64), [[tree.root_name]]
    if isinstance(subtrees, (list, tuple)):
        nodes = tree.resolve(list(subtrees))
    else:
        nodes = tree.level_nodes(subtrees)
    if not nodes.size:
        raise ValueError("subtrees names no subtree. Give labels, a level, or None.")
    part_of_leaf = np.full(tree.n_leaves, -1, dtype=np.int64)
    for number, node in enumerate(nodes.tolist()):
        own = slice(tree.leaf_start[node], tree.leaf_stop[node])
        if (part_of_leaf[own] >= 0).any():
            raise ValueError(
                f"subtrees must not overlap, but {tree.label(node)!r} shares leaves with another. "
                "Name subtrees none of which contains another."
            )
        part_of_leaf[own] = number
    names: list[list[Any]] = [[label] for label in tree.labels(nodes)]
    if (part_of_leaf < 0).any():
        part_of_leaf[part_of_leaf < 0] = len(names)
        names.append([ELSEWHERE])
    return part_of_leaf, names


def part_of_nodes(nodes: IntArray, part_of_leaf: IntArray, tree: Taxonomy) -> IntArray:
    """Return the part that holds each node, -1 for nodes above the parts."""
    first = part_of_leaf[tree.leaf_start[nodes]]
    return np.where(first == part_of_leaf[tree.leaf_stop[nodes] - 1], first, -1)


def merge_small(
    part: IntArray,
    weight: FloatArray,
    part_of_leaf: IntArray,
    names: list[list[Any]],
    coverage: float,
    small: str,
    group: IntArray | None = None,
) -> tuple[IntArray, IntArray, list[list[Any]]]:
    """Refuse or pool the parts that have too few samples for a guarantee.

    Parameters
    ----------
    part : ndarray of int of shape (n_samples,)
        The part of each held-out sample, -1 for none.
    weight : ndarray of shape (n_samples,)
        Sample weights.
    part_of_leaf, names
        As from :func:`assign_subtrees`.
    coverage : float
        What to guarantee.
    small : {"raise", "pool"}
        What to do with small parts.
    group : ndarray of int of shape (n_samples,), default=None
        Group of each sample.

    Returns
    -------
    part, part_of_leaf, names
        With all small parts pooled into one, the last.
    """
    votes, of_group = vote_weights(weight, group)

    def members(numbers: list[int]) -> tuple[FloatArray, FloatArray]:
        inside = np.isin(part, numbers)
        return votes[inside], of_group[inside]

    def enough(numbers: list[int]) -> bool:
        return is_enough(*members(numbers), coverage)

    few = [number for number in range(len(names)) if not enough([number])]
    if not few:
        return part, part_of_leaf, names
    if small == "pool" and enough(few):
        kept = [number for number in range(len(names)) if number not in few]
        new = np.empty(len(names) + 1, dtype=np.int64)
        new[kept], new[few], new[-1] = np.arange(len(kept)), len(kept), -1
        pooled = [label for number in few for label in names[number]]
        return new[part], new[part_of_leaf], [*(names[number] for number in kept), pooled]
    shown = ", ".join(f"{names[n][0]!r} {effective_size(*members([n])):.4g}" for n in few[:5])
    what = "sample" if group is None else "group"
    raise ValueError(
        f"A guarantee of {coverage:.6g} for each part needs at least {samples_needed(coverage)} "
        f"calibration {what}(s) in each; {len(few)} of {len(names)} parts have fewer"
        f"{', even together' * (small == 'pool')}: {shown}. Give more {what}s, lower the "
        "guarantee, choose larger parts"
        f"{', or pool the small ones (pool)' * (small != 'pool')}."
    )


def part_quantiles(
    values: FloatArray,
    coverages: Sequence[float],
    part: IntArray,
    n_parts: int,
    weight: FloatArray,
    group: IntArray | None = None,
) -> FloatArray:
    """Return the conformal quantile of every column within every part.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_columns)
        Held-out values.
    coverages : sequence of float of length n_columns
        The coverage of each column.
    part : ndarray of int of shape (n_samples,)
        The part of each sample, -1 for none.
    n_parts : int
        Number of parts.
    weight : ndarray of shape (n_samples,)
        Sample weights.
    group : ndarray of int of shape (n_samples,), default=None
        Group of each sample. Its vote in a part is the fraction of its samples there.

    Returns
    -------
    bounds : ndarray of shape (n_parts, n_columns)
    """
    votes, of_group = vote_weights(weight, group)
    bounds = np.empty((n_parts, len(coverages)))
    for number in range(n_parts):
        inside = part == number
        for column, coverage in enumerate(coverages):
            bounds[number, column] = quantile_of_votes(
                values[inside, column], coverage, votes[inside], of_group[inside]
            )
    return bounds
