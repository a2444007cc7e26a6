"""Draw a tree as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .tree import IntArray, Tree


def draw_tree(tree: Any, counts: IntArray, max_lines: int) -> str:
    """Draw one line a node, folding what is deepest until the drawing fits.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    counts : ndarray of shape (n_nodes,)
        Number to write behind each name; none where it is negative.
    max_lines : int
        Lines to draw at most; the root and three of its children are always drawn.
    """
    nodes_down_to = np.cumsum(np.bincount(tree.depths))
    deepest = max(1, int((nodes_down_to <= max_lines).sum()) - 1)
    widest = max(3, max_lines - 1)

    def caption(node: int) -> str:
        name = str(tree.names[node])
        return f"{name} ({counts[node]})" if counts[node] >= 0 else name

    return "\n".join(_lines(tree, caption, deepest, widest))


def _lines(tree: Tree, caption: Callable[[int], str], deepest: int, widest: int) -> Iterator[str]:
    yield caption(0)
    waiting: list[tuple[int, str, bool]] = _children(tree, 0, "", widest)
    while waiting:
        node, indent, is_last = waiting.pop()
        branch = "└── " if is_last else "├── "
        if node < 0:
            yield f"{indent}{branch}... {-node} more"
            continue
        folded = tree.depths[node] >= deepest and tree.n_children[node] > 0
        yield f"{indent}{branch}{caption(node)}{' ...' if folded else ''}"
        if not folded:
            waiting += _children(tree, node, indent + ("    " if is_last else "│   "), widest)


def _children(tree: Tree, node: int, indent: str, widest: int) -> list[tuple[int, str, bool]]:
    """Children to visit, last first; a negative number stands for that many folded siblings."""
    first, count = int(tree.first_child[node]), int(tree.n_children[node])
    shown = list(range(first, first + count))
    if count > widest:
        shown = [*shown[: widest - 1], -(count - widest + 1)]
    return [(child, indent, child == shown[-1]) for child in reversed(shown)]
