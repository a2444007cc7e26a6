"""The most probable leaves of a large tree, without reading all of it.

No leaf is more probable than its ancestors, so a node whose probability is below that of the leaves
found so far hides no better one, and the answer is exact.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .segments import Paths, TreeSegments

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Decisions that one reading looks at: bounds the memory of a search that finds no way to stop.
_MAX_DECISIONS_AT_ONCE = 2**22


class SearchableHead(Protocol):
    """A head that can be asked for the decisions of some nodes alone."""

    segments: TreeSegments

    def log_conditional_at(self, features: Tensor, paths: Paths) -> Tensor:
        """Return log p of some decisions."""


@torch.inference_mode()
def search_leaves(head: SearchableHead, features: Tensor, k: int = 1) -> tuple[_Ints, _Floats]:
    """Return the k most probable leaves of each sample, best first.

    Equally probable leaves come in tree order, as far as rounding leaves them equal.

    Parameters
    ----------
    head : SearchableHead
        One row of its own for each decision.
    features : Tensor of shape (n, n_features)
        What the head reads.
    k : int, default=1
        How many; more than there are leaves means all.

    Returns
    -------
    leaves : ndarray of int64 of shape (n, k)
        Positions in tree order.
    log_probability : ndarray of float64 of shape (n, k)

    Examples
    --------
    >>> import torch
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.heads import SoftmaxTreeHead
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> leaves, _ = search_leaves(SoftmaxTreeHead(tree, 1), torch.zeros(1, 1))
    >>> tree.leaves[leaves[0, 0]]
    'dog'
    """
    search = _Search(head, features, min(k, head.segments.taxonomy.n_leaves))
    search.descend()
    search.close()
    return search.leaves, search.found


class _Search:
    """What is known of a batch: the best leaves so far, and the nodes that were not opened."""

    def __init__(self, head: SearchableHead, features: Tensor, k: int) -> None:
        self.head, self.features, self.k = head, features, k
        tree = head.segments.taxonomy
        n = features.shape[0]
        self.n_leaves, self.n_branching = tree.n_leaves, tree.n_branching
        self.fan_out = np.diff(tree.decision_offsets)
        self.below = head.segments.below.cpu().numpy()
        self.found = np.full((n, k), -np.inf)
        self.leaves = np.full((n, k), tree.n_leaves, dtype=np.int64)
        # Unopened nodes as (sample, branching position, log P), in parts.
        self.closed: list[tuple[_Ints, _Ints, _Floats]] = []

    def descend(self) -> None:
        """Follow the best child of each node down to leaves, until there are k of them."""
        sample: _Ints = np.arange(len(self.found))
        node: _Ints = np.zeros_like(sample)
        log_p: _Floats = np.zeros(len(sample))
        while sample.size:
            opened = self._open(sample, node, log_p)
            best = _first_of_each(opened[0], -opened[2], opened[1])
            self._put_back(opened, np.delete(np.arange(opened[0].size), best))
            sample, node, log_p = opened[0][best], opened[1][best], opened[2][best]
            # A way that ended at leaves, too few of them, goes on with the best node left.
            ended = np.setdiff1d(np.flatnonzero(np.isneginf(self.found[:, -1])), sample)
            if ended.size:
                further = self._take_best(ended)
                sample, node, log_p = (
                    np.concatenate(pair)
                    for pair in zip((sample, node, log_p), further, strict=True)
                )

    def close(self) -> None:
        """Open every node that may hide a better leaf, until there is none."""
        while self.closed:
            sample, node, log_p = self._take_all()
            may_be_better = log_p > self.found[sample, -1]
            sample, node, log_p = sample[may_be_better], node[may_be_better], log_p[may_be_better]
            # The most probable first: they raise the bar for the others.
            order = np.argsort(-log_p, kind="stable")
            total = np.cumsum(self.fan_out[node[order]])
            now = order[: max(1, int(np.searchsorted(total, _MAX_DECISIONS_AT_ONCE)))]
            later = np.setdiff1d(np.arange(sample.size), now)
            if later.size:
                self.closed.append((sample[later], node[later], log_p[later]))
            if now.size:
                now = np.sort(now)
                opened = self._open(sample[now], node[now], log_p[now])
                self._put_back(opened, np.arange(opened[0].size))

    def _open(self, sample: _Ints, node: _Ints, log_p: _Floats) -> tuple[_Ints, _Ints, _Floats]:
        """Read the children of nodes: note the leaves, return the others."""
        paths = self.head.segments.decisions_at(sample, node, len(self.found))
        device = self.features.device
        step = self.head.log_conditional_at(self.features, paths.to(device)).cpu().double().numpy()
        child_sample = paths.row.numpy()
        child_log_p = log_p[paths.segment.numpy()] + step
        child = self.below[paths.decision.numpy()]
        is_leaf = child < self.n_leaves
        self._note(child_sample[is_leaf], child[is_leaf], child_log_p[is_leaf])
        inner = ~is_leaf
        position = self.n_leaves + self.n_branching - 1 - child[inner]
        return child_sample[inner], position, child_log_p[inner]

    def _note(self, sample: _Ints, leaf: _Ints, log_p: _Floats) -> None:
        """Keep the k best leaves of each sample."""
        if not sample.size:
            return
        hopeful = log_p >= self.found[sample, -1]
        sample, leaf, log_p = sample[hopeful], leaf[hopeful], log_p[hopeful]
        touched = np.unique(sample)
        known = np.repeat(touched, self.k)
        sample = np.concatenate([known, sample])
        leaf = np.concatenate([self.leaves[touched].ravel(), leaf])
        log_p = np.concatenate([self.found[touched].ravel(), log_p])
        order = np.lexsort((leaf, -log_p, sample))
        first = np.flatnonzero(np.diff(sample[order], prepend=-1))
        best = order[first[:, None] + np.arange(self.k)]
        self.leaves[touched], self.found[touched] = leaf[best], log_p[best]

    def _put_back(self, nodes: tuple[_Ints, _Ints, _Floats], keep: _Ints) -> None:
        sample, node, log_p = (part[keep] for part in nodes)
        hopeful = log_p > self.found[sample, -1]
        if hopeful.any():
            self.closed.append((sample[hopeful], node[hopeful], log_p[hopeful]))

    def _take_all(self) -> tuple[_Ints, _Ints, _Floats]:
        parts: Any = [np.concatenate(part) for part in zip(*self.closed, strict=True)]
        self.closed = []
        return tuple(parts)

    def _take_best(self, wanted: _Ints) -> tuple[_Ints, _Ints, _Floats]:
        """Take the most probable unopened node of some samples."""
        nodes = self._take_all()
        best = _first_of_each(nodes[0], -nodes[2], nodes[1])
        best = best[np.isin(nodes[0][best], wanted)]
        keep = np.delete(np.arange(nodes[0].size), best)
        self.closed.append(tuple(part[keep] for part in nodes))  # type: ignore[arg-type]
        return tuple(part[best] for part in nodes)  # type: ignore[return-value]


def _first_of_each(key: _Ints, rank: _Floats, tie: _Ints) -> _Ints:
    """Return the place of the lowest rank of each key."""
    order = np.lexsort((tie, rank, key))
    first: _Ints = order[np.flatnonzero(np.diff(key[order], prepend=-1))]
    return first
