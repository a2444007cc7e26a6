"""Divide the leaves into the subtrees that promises are made for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ._quantile import effective_size, samples_needed

FloatArray = npt.NDArray[np.float64]

ELSEWHERE = "(elsewhere)"


def assign_subtrees(subtrees: Any, tree: Taxonomy) -> tuple[IntArray, list[list[Any]]]:
    """Return the part that each leaf belongs to, and what each part is called.

    Parameters
    ----------
    subtrees : str, int, list of labels or None
        A level, the subtrees themselves, or None for the tree as a whole.
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


def is_pooled(names: list[list[Any]]) -> bool:
    """Tell whether some parts were made one, in the light of the samples they have."""
    return any(len(labels) > 1 for labels in names)


def merge_small(
    part: IntArray,
    weight: FloatArray,
    part_of_leaf: IntArray,
    names: list[list[Any]],
    coverage: float,
    small: str,
) -> tuple[IntArray, IntArray, list[list[Any]]]:
    """Refuse parts with too few samples for a promise, or make one of them.

    Parameters
    ----------
    part : ndarray of int of shape (n_samples,)
        The part of each held-out sample, -1 for none.
    weight : ndarray of shape (n_samples,)
        Weights of the samples.
    part_of_leaf, names
        As from :func:`assign_subtrees`.
    coverage : float
        What is promised.
    small : {"raise", "pool"}
        What to do.

    Returns
    -------
    part, part_of_leaf, names
        With the small parts as one, the last.
    """
    needed = samples_needed(coverage)
    sizes = [effective_size(weight[part == number]) for number in range(len(names))]
    few = [number for number, size in enumerate(sizes) if size < needed - 1e-9]
    if not few:
        return part, part_of_leaf, names
    if small == "pool":
        new = np.empty(len(names) + 1, dtype=np.int64)
        kept = [number for number in range(len(names)) if number not in few]
        new[kept], new[few], new[-1] = np.arange(len(kept)), len(kept), -1
        pooled = [label for number in few for label in names[number]]
        if effective_size(weight[new[part] == len(kept)]) >= needed - 1e-9:
            return new[part], new[part_of_leaf], [*(names[number] for number in kept), pooled]
    shown = ", ".join(f"{names[number][0]!r} {sizes[number]:.4g}" for number in few[:5])
    raise ValueError(
        f"A promise of {coverage:.6g} for each part needs at least {needed} calibration sample(s) "
        f"in each; {len(few)} of {len(names)} have fewer{', even together' * (small == 'pool')}: "
        f"{shown}. Give more samples, promise less, choose larger parts"
        f"{', or let the small ones share a promise (pool)' * (small != 'pool')}."
    )
