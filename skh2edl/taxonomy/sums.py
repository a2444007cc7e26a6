"""Combine values along the paths of a tree, for ndarray and Tensor alike.

Decisions are numbered breadth first, so those of one depth are one slice of columns, and those
before them on a path lie to the left.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .tree import Tree

# First and last column of a depth, and for each the decision before it on the path.
Step = tuple[int, int, Any]


def depth_slices(tree: Tree) -> list[tuple[int, int]]:
    """Return the slice of decisions of each depth at which the tree branches.

    Parameters
    ----------
    tree : Tree
        The tree.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> depth_slices(Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}))
    [(0, 2), (2, 4)]
    """
    depths = tree.depths[tree.branching_nodes[tree.decision_nodes]]
    starts = np.flatnonzero(np.diff(depths, prepend=-1)).tolist()
    return list(pairwise([*starts, depths.size]))


def path_steps(tree: Tree) -> list[Step]:
    """Return the slices below the first branching node, with the decisions before them.

    Parameters
    ----------
    tree : Tree
        The tree.
    """
    return [(low, high, tree.parent_decision[low:high]) for low, high in depth_slices(tree)[1:]]


def combine_along_paths(
    values: Any, steps: Sequence[Step], combine: Callable[[Any, Any], Any] = operator.add
) -> Any:
    """Combine each decision's value with those before it on the path, in place.

    Parameters
    ----------
    values : ndarray or Tensor of shape (n, n_decisions)
        Changed in place.
    steps : sequence of (int, int, array)
        From :func:`path_steps`, with arrays of the same kind as `values`.
    combine : callable, default=operator.add
        Takes the own values and those before; `operator.mul` for products.

    Returns
    -------
    values : ndarray or Tensor of shape (n, n_decisions)

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> combine_along_paths(np.array([[0.8, 0.2, 0.5, 0.5]]), path_steps(tree), operator.mul)
    array([[0.8, 0.2, 0.4, 0.4]])
    """
    for low, high, before in steps:
        values[:, low:high] = combine(values[:, low:high], values[:, before])
    return values


def at_nodes(values: Any, tree: Tree, nodes: Any, top: float) -> Any:
    """Return what the path to each node has come to: the value of the last decision on it.

    Parameters
    ----------
    values : ndarray or Tensor of shape (n, n_decisions)
        Such as the result of :func:`combine_along_paths`.
    tree : Tree
        The tree.
    nodes : ndarray of int of shape (k,)
        The nodes.
    top : float
        Value of the root, and of a chain that begins there: no decision leads to them.

    Returns
    -------
    found : ndarray or Tensor of shape (n, k)

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> at_nodes(np.array([[0.8, 0.2, 0.4, 0.4]]), tree, np.array([0, 1, 3]), 1.0)
    array([[1. , 0.8, 0.4]])
    """
    decisions = tree.last_decision[nodes]
    found = values[:, decisions]
    (above_all,) = np.nonzero(decisions < 0)
    if above_all.size:
        found[:, above_all] = top
    return found
