"""The most probable leaves of a large tree, without evaluating all of it.

No leaf is more probable than its ancestors. A node that is less probable than the leaves found so
far can therefore be skipped with all that is below it, and the result is still exact. Nodes are
evaluated for a group of samples at once, because one large matrix product is faster than many
small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..tree_ops import TreeSegments
from .blocks import Block

# Samples of a group: a node is evaluated for all of them if one needs it.
_GROUP = 64
# Logits evaluated at once: few enough for the cache of a processor, enough to outweigh the cost of
# a call. Fewer where features are long, because what one step finds may spare the next.
_MAX_VALUES = 2**20
_MAX_WEIGHTS = 2**24  # read for them
_MAX_VALUES_ON_DEVICE = 2**24  # 64 MB; a GPU has no such cache and wants large steps
# From so many decisions on, the best nodes of each sample are opened before the others: as many as
# leaves are asked for, and once, from many decisions on, so many more.
_SOME_DECISIONS = 512
_MANY_DECISIONS = 4096
_WIDE = 16
# One logit of one sample takes as long as the same logit for so many samples at once.
_COST_OF_A_PAIR = 32

# Nodes with their log P: branching positions (m,), and for each sample of the group (m, n).
_Nodes = tuple[Tensor, Tensor]


class SearchableHead(Protocol):
    """A head that can be asked for the decisions of some nodes alone."""

    segments: TreeSegments
    linear: nn.Linear

    def unnormalized_of(
        self, features: Tensor, block: Block, wanted: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return unnormalised probabilities of some decisions, and the log of their node's sum.

        Shapes are (n_block, n) and (n_nodes, n). The first are what the head has at hand,
        concentrations or logits; they may be overwritten. Where `wanted` excludes a node for a
        sample, any finite values will do.
        """

    def log_of_unnormalized(self, values: Tensor) -> Tensor:
        """Return the logs of unnormalised probabilities; `values` may be overwritten."""


@torch.inference_mode()
def search_leaves(
    head: SearchableHead, features: Tensor, k: int = 1
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the k most probable leaves of each sample, best first.

    Equally probable leaves come in tree order, as far as rounding leaves them equal.

    Parameters
    ----------
    head : SearchableHead
        With one output of its linear layer for each decision.
    features : Tensor of shape (n, n_features)
        Input of the head.
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
    >>> from skh2edl.heads.softmax import SoftmaxTreeHead
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> leaves, _ = search_leaves(SoftmaxTreeHead(tree, 1, label_smoothing=0.0), torch.zeros(1, 1))
    >>> tree.leaves[leaves[0, 0]]
    'dog'
    """
    if not bool(features.isfinite().all()):
        raise ValueError(
            "features must be finite, got NaN or infinity in "
            f"{int((~features.isfinite()).any(1).sum())} of {features.shape[0]} sample(s). "
            "Find out where they come from, or drop these samples."
        )
    k = min(k, head.segments.taxonomy.n_leaves)
    found = [_Search(head, group, k).run() for group in features.split(_group_size(head))]
    leaves, log_p = (torch.cat(parts, dim=1).T for parts in zip(*found, strict=True))
    return leaves.cpu().numpy(), log_p.cpu().double().numpy()


def _group_size(head: SearchableHead) -> int:
    """Return how many samples form a group: fewer where one node alone is large."""
    largest = int(np.diff(head.segments.taxonomy.decision_offsets).max())
    return max(1, min(_GROUP, _MAX_VALUES_ON_DEVICE // largest))


class _Search:
    """The k best leaves of each sample of a group so far, best first: (k, n)."""

    def __init__(self, head: SearchableHead, features: Tensor, k: int) -> None:
        self.head, self.features, self.k = head, features, k
        self.segments, tree = head.segments, head.segments.taxonomy
        self.n_leaves, self.n_nodes = tree.n_leaves, tree.n_leaves + tree.n_branching
        n = features.shape[0]
        at_once = _MAX_VALUES if features.device.type == "cpu" else _MAX_VALUES_ON_DEVICE
        self.max_block = max(
            1, min(at_once // max(1, n), _MAX_WEIGHTS // max(1, features.shape[1]))
        )
        self.root = (
            torch.zeros(1, dtype=torch.int64, device=features.device),
            head.linear.weight.new_zeros(1, n),
        )
        # Finite, so that a difference to it is never undefined.
        self.lowest = torch.finfo(self.root[1].dtype).min
        self.found = self.root[1].new_full((k, n), self.lowest)
        self.leaves = self.root[0].new_full((k, n), tree.n_leaves)

    def run(self) -> tuple[Tensor, Tensor]:
        """Open every node that may hide a better leaf, and return the best leaves and log P."""
        waiting = [self.root] if self.features.shape[0] else []
        looked_wide = False
        while waiting:
            nodes = self._hopeful(waiting.pop())
            n_decisions = self._n_decisions(nodes)
            # Good leaves that are found early spare most of the other nodes.
            if n_decisions > _SOME_DECISIONS and bool((self.found[-1] == self.lowest).any()):
                nodes, rest = _best_of_each_sample(nodes, self.k)
                waiting.append(rest)
            elif n_decisions > _MANY_DECISIONS and not looked_wide:
                nodes, rest = _best_of_each_sample(nodes, self.k + _WIDE)
                waiting.append(rest)
                looked_wide = True
            # Depth first, so that only siblings of the nodes being evaluated wait.
            parts = list(self._parts(nodes))
            waiting += parts[:0:-1]
            waiting += [self._open(part) for part in parts[:1]]
        self._fill_up()
        return self.leaves, self.found

    def _n_decisions(self, nodes: _Nodes) -> int:
        return int(self.segments.fan_out.index_select(0, nodes[0]).sum())

    def _parts(self, nodes: _Nodes) -> Iterator[_Nodes]:
        """Split nodes so that the decisions of a part, but for its last node, are not too many."""
        fan_out = self.segments.fan_out.index_select(0, nodes[0])
        part = (fan_out.cumsum(0) - fan_out) // self.max_block
        sizes = part.unique_consecutive(return_counts=True)[1].tolist()
        return zip(*(values.split(sizes) for values in nodes), strict=True)

    def _hopeful(self, nodes: _Nodes) -> _Nodes:
        """Return the nodes that may hide a leaf as good as the worst one found, for some sample.

        If these are most, return all: the weights of nodes without a gap need no copy.
        """
        above = self._above(nodes[1]) >= 0
        return nodes if _most(above) else _select(nodes, above)

    def _above(self, log_p: Tensor) -> Tensor:
        """Return by how much nodes exceed the worst leaf found, for the sample they do most for."""
        # A largest difference, because `any` over comparisons takes ten times as long.
        return (log_p - self.found[-1]).amax(1)

    def _open(self, nodes: _Nodes) -> _Nodes:
        """Evaluate the children of nodes: note the leaves, return the others."""
        block = Block.of(self.segments, nodes[0])
        wanted = self._few_wanted(nodes, block)
        values, total = self.head.unnormalized_of(self.features, block, wanted)
        # In this order: subtracting the total from log P first would round ties apart.
        log_p = self.head.log_of_unnormalized(values).sub_(block.to_decisions(total))
        if wanted is not None:
            log_p.masked_fill_(~block.to_decisions(wanted), -torch.inf)
        log_p.add_(block.to_decisions(nodes[1]))
        child = block.pick(self.segments.below)
        is_leaf, above = child < self.n_leaves, self._above(log_p)
        # Of equally probable leaves the first in tree order count.
        may_count = (above > 0) | ((above == 0) & (child < self.leaves[-1].max()))
        self._note(*_select((child, log_p), may_count & is_leaf))
        child, log_p = _select((child, log_p), ~is_leaf)
        return self.n_nodes - 1 - child, log_p

    def _few_wanted(self, nodes: _Nodes, block: Block) -> Tensor | None:
        """Return the samples to which the nodes matter, if it pays to evaluate these alone."""
        if block.contiguous is not None:
            return None
        wanted = nodes[1] >= self.found[-1]
        few = _COST_OF_A_PAIR * int(wanted.count_nonzero()) < wanted.numel()
        return wanted if few else None

    def _note(self, leaf: Tensor, log_p: Tensor) -> None:
        """Keep the k best leaves of each sample."""
        if not leaf.numel():
            return
        worst, column = self.found[-1], leaf[:, None]
        better = (log_p > worst) | ((log_p == worst) & (column < self.leaves[-1]))
        # Sorting is slow, so only what may be among the best is sorted.
        better &= log_p >= log_p.topk(min(self.k, leaf.numel()), dim=0).values[-1]
        some = better.any(1).nonzero().squeeze(1)
        if not some.numel():
            return
        # In tree order, which a stable sort keeps among equally probable leaves.
        leaf, order = leaf[some].sort()
        some = some[order]
        log_p = log_p[some].masked_fill_(~better[some], self.lowest)
        log_p, order = log_p.sort(dim=0, descending=True, stable=True)
        log_p, leaves = log_p[: self.k], leaf[order[: self.k]]
        leaves = leaves.masked_fill_(log_p == self.lowest, self.n_leaves)
        # The best of them among those found before.
        leaves, order = torch.cat([self.leaves, leaves]).sort(dim=0, stable=True)
        log_p = torch.cat([self.found, log_p]).gather(0, order)
        log_p, order = log_p.sort(dim=0, descending=True, stable=True)
        self.found, self.leaves = log_p[: self.k], leaves.gather(0, order[: self.k])

    def _fill_up(self) -> None:
        """Name the first of the impossible leaves where fewer than k are possible."""
        for sample in (self.found[-1] == self.lowest).nonzero().flatten().tolist():
            n_possible = int((self.found[:, sample] > self.lowest).sum())
            first = torch.arange(self.k, device=self.leaves.device)
            rest = first[~torch.isin(first, self.leaves[:n_possible, sample])]
            self.leaves[n_possible:, sample] = rest[: self.k - n_possible]
            self.found[n_possible:, sample] = -torch.inf


def _most(mask: Tensor) -> bool:
    return 4 * int(mask.count_nonzero()) > 3 * mask.numel()


def _select(nodes: _Nodes, mask: Tensor) -> _Nodes:
    """Return the marked nodes, without a copy if that is all of them."""
    marked = mask.nonzero().squeeze(1)
    if marked.shape == mask.shape:
        return nodes
    return nodes[0].index_select(0, marked), nodes[1].index_select(0, marked)


def _best_of_each_sample(nodes: _Nodes, width: int) -> tuple[_Nodes, _Nodes]:
    """Return the best nodes of each sample, and the rest; no sample meets a node twice."""
    position, log_p = nodes
    if position.shape[0] <= width:
        return nodes, (position[:0], log_p[:0])
    best, place = log_p.topk(width, dim=0)
    alone = torch.full_like(log_p, -torch.inf).scatter(0, place, best)
    is_best = alone.amax(1) > -torch.inf
    if _COST_OF_A_PAIR * width < int(is_best.count_nonzero()):
        # Each for its own samples only, as single pairs.
        return _select((position, alone), is_best), (position, log_p.scatter(0, place, -torch.inf))
    # The rest keeps their places, impossible: nodes without a gap need no copy of their weights.
    return _select(nodes, is_best), (position, log_p.masked_fill(is_best[:, None], -torch.inf))
