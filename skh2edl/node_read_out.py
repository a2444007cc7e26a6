"""A read-out of some nodes alone: those on the ways to the labels, or those of a search.

In a tree of a thousand leaves a batch passes through half of the nodes or less, and each of its
samples through a few. Rows of one node lie together, so that one product for each node copies
nothing but features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ._tree import concatenate_ranges
from .segments import Block, Paths

# How many multiplications of one large product take as long as a further product, as one of its
# multiplications, and as copying a feature.
_COST_OF_A_PRODUCT = 400_000
_COST_IN_A_SMALL_PRODUCT = 10
_COST_OF_A_FEATURE = 30
# Weights copied at once to read rows that lie apart: 8 MB stay in the cache.
_MAX_COPIED_WEIGHTS = 2**21


@dataclass(frozen=True)
class NodeGroups:
    """The segments of some ways in the order of their nodes.

    Attributes
    ----------
    sample : Tensor of shape (n_segments,)
        Sample of each segment.
    entry : Tensor of shape (n_entries,)
        Place of each entry in the ways.
    decision : Tensor of shape (n_rows,)
        Decisions of all nodes, each once.
    parts : list of tuple of slice
        Segments, entries, decisions, and rows of `decision`, of each node.
    """

    sample: Tensor
    entry: Tensor
    decision: Tensor
    parts: list[tuple[slice, slice, slice, slice]]

    @classmethod
    def of(cls, paths: Paths) -> NodeGroups:
        """Group ways that are on the processor."""
        node = paths.node.numpy()
        fan_out = np.bincount(paths.segment.numpy(), minlength=node.size)
        start = np.cumsum(fan_out) - fan_out
        order = np.argsort(node, kind="stable")
        n_segments = np.unique_counts(node).counts
        first = order[np.cumsum(n_segments) - n_segments]
        low, n_rows = paths.decision.numpy()[start[first]], fan_out[first]
        counts = (n_segments, n_segments * n_rows, n_rows)
        segments, entries, rows = (_slices(np.cumsum(n) - n, n) for n in counts)
        return cls(
            torch.from_numpy(paths.sample.numpy()[order]),
            torch.from_numpy(concatenate_ranges(start[order], fan_out[order])),
            torch.from_numpy(concatenate_ranges(low, n_rows)),
            list(zip(segments, entries, _slices(low, n_rows), rows, strict=True)),
        )


def cost_by_node(paths: Paths, n_features: int) -> float:
    """Return the rows of one large product, for one sample, that take as long as `read_nodes`."""
    n_products = np.unique_values(paths.node.numpy()).size
    multiplied = _COST_IN_A_SMALL_PRODUCT * paths.decision.shape[0]
    copied = _COST_OF_A_FEATURE * paths.node.shape[0]
    return _COST_OF_A_PRODUCT * n_products / n_features + multiplied + copied


def _slices(start: np.ndarray, count: np.ndarray) -> list[slice]:
    return list(map(slice, start.tolist(), (start + count).tolist()))


def read_nodes(
    features: Tensor, weight: Tensor, bias: Tensor, groups: NodeGroups, sparse: bool
) -> Tensor:
    """Return the logits of the decisions on the ways: (n_entries,).

    Parameters
    ----------
    features : Tensor of shape (n, n_features)
        What the backbone says of each sample.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The read-out.
    groups : NodeGroups
        The ways.
    sparse : bool
        Whether the gradient of the weight holds only the rows that were read.
    """
    return _ReadNodes.apply(features, weight, bias, groups, sparse)  # type: ignore[no-any-return]


class _ReadNodes(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, groups: NodeGroups, sparse: bool
    ) -> Tensor:
        own = features.index_select(0, groups.sample)
        logits = own.new_empty(groups.entry.shape[0])
        for segments, entries, decisions, _ in groups.parts:
            product = torch.addmm(bias[decisions], own[segments], weight[decisions].T)
            logits[entries] = product.view(-1)
        ctx.groups, ctx.sparse, ctx.n_samples = groups, sparse, features.shape[0]
        ctx.save_for_backward(own, weight)
        return torch.empty_like(logits).index_copy_(0, groups.entry, logits)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        own, weight = ctx.saved_tensors
        groups: NodeGroups = ctx.groups
        of_logits = gradient.index_select(0, groups.entry)
        of_bias = weight.new_zeros(weight.shape[0])
        of_own = torch.empty_like(own) if ctx.needs_input_grad[0] else None
        if ctx.sparse:
            of_rows = weight.new_empty(groups.decision.shape[0], weight.shape[1])
        else:
            of_rows = torch.zeros_like(weight)
        for segments, entries, decisions, rows in groups.parts:
            part = of_logits[entries].view(segments.stop - segments.start, -1)
            torch.mm(part.T, own[segments], out=of_rows[rows if ctx.sparse else decisions])
            torch.sum(part, 0, out=of_bias[decisions])
            if of_own is not None:
                torch.mm(part, weight[decisions], out=of_own[segments])
        of_weight = of_rows
        if ctx.sparse:
            of_weight = torch.sparse_coo_tensor(
                groups.decision[None], of_rows, weight.shape, check_invariants=False
            )
        of_features = None
        if of_own is not None:
            of_features = own.new_zeros(ctx.n_samples, own.shape[1])
            of_features.index_add_(0, groups.sample, of_own)
        return of_features, of_weight, of_bias, None, None


def read_block(
    features: Tensor, weight: Tensor, bias: Tensor, block: Block, wanted: Tensor | None = None
) -> Tensor:
    """Return the logits of some decisions for all samples: (n_rows, n).

    Parameters
    ----------
    features : Tensor of shape (n, n_features)
        What the backbone says of each sample.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The read-out.
    block : Block
        The decisions.
    wanted : Tensor of bool of shape (n_nodes, n), default=None
        The nodes that matter for each sample; the others get any finite logits. None means all.
    """
    own_bias = block.pick(bias)[:, None]
    at_once = max(1, _MAX_COPIED_WEIGHTS // weight.shape[1])
    if wanted is not None:
        row, sample = block.spread(wanted).nonzero().unbind(1)
        # Fewer at once, because each value is worked on no more than once: only copying counts.
        pairs = (index.split(max(1, at_once // 8)) for index in (block.decision[row], sample))
        products = [
            weight.index_select(0, some).mul_(features.index_select(0, of)).sum(1)
            for some, of in zip(*pairs, strict=True)
        ]
        logits = own_bias.repeat(1, features.shape[0])
        return logits.index_put_((row, sample), torch.cat(products), accumulate=True)
    if block.contiguous is not None:
        return torch.addmm(own_bias, block.pick(weight), features.T)
    some_rows = block.decision.split(at_once)
    products = [weight.index_select(0, rows) @ features.T for rows in some_rows]
    return torch.cat(products).add_(own_bias)
