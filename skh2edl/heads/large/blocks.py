"""The decisions of some nodes for all samples, as a search evaluates them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from ..tree_ops import TreeSegments

# Up to so many decisions a node is taken together faster place by place than row by row.
_MAX_WIDTH_BY_PLACE = 8
# Weights copied at once to read rows that lie apart: 8 MB stay in the cache.
_MAX_COPIED_WEIGHTS = 2**21


@dataclass(frozen=True)
class Block:
    """The decisions of some nodes for all samples: one row a decision, one column a sample.

    Attributes
    ----------
    node : Tensor of shape (n_nodes,)
        Branching positions.
    decision, segment : Tensor of shape (n_rows,)
        Decision of each row, and the place of its node in `node`.
    contiguous : slice or None
        The same decisions as a slice, where they are one.
    width : int or None
        How many decisions each node has, where all have as many.
    """

    node: Tensor
    decision: Tensor
    segment: Tensor
    contiguous: slice | None
    width: int | None

    @classmethod
    def of(cls, segments: TreeSegments, node: Tensor) -> Block:
        """List the decisions of some nodes, for all samples.

        Parameters
        ----------
        segments : TreeSegments
            The tree.
        node : Tensor of shape (n_nodes,)
            Positions of branching nodes, at least one and none twice.
        """
        fan_out = segments.fan_out.index_select(0, node)
        stop = fan_out.cumsum(0)
        n_rows = int(stop[-1])
        segment = torch.repeat_interleave(fan_out, output_size=n_rows)
        # What to add to the place of a row, the same for all rows of a node.
        shift = segments.first_decision.index_select(0, node) - (stop - fan_out)
        decision = torch.arange(n_rows, device=node.device) + shift.index_select(0, segment)
        in_a_row = bool((node.diff() == 1).all())
        first, width = int(decision[0]), int(fan_out[0])
        return cls(
            node,
            decision,
            segment,
            slice(first, first + n_rows) if in_a_row else None,
            width if n_rows == width * node.shape[0] and bool((fan_out == width).all()) else None,
        )

    def of_nodes(self, chosen: Tensor) -> tuple[Block, Tensor]:
        """Return the decisions of the marked nodes alone, and which rows they are."""
        rows = self.to_decisions(chosen).nonzero().squeeze(1)
        decision, segment = (index.index_select(0, rows) for index in (self.decision, self.segment))
        return Block(self.node, decision, segment, None, None), rows

    def pick(self, values: Tensor) -> Tensor:
        """Return the rows of the decisions, without a copy where they are a slice."""
        if self.contiguous is not None:
            return values[self.contiguous]
        return values.index_select(0, self.decision)

    def to_decisions(self, values: Tensor) -> Tensor:
        """Repeat each node's row for its decisions."""
        return values.index_select(0, self.segment)

    def add_to_each(self, rows: Tensor, values: Tensor, sign: int = 1) -> Tensor:
        """Add each node's row to the rows of its decisions, or take it off, in place.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n)
            A row for each decision.
        values : Tensor of shape (n_nodes, n)
            A row for each node.
        sign : {1, -1}, default=1
            What to multiply it by.
        """
        if self.width is None:
            return rows.add_(self.to_decisions(values), alpha=sign)
        rows.unflatten(0, (-1, self.width)).add_(values[:, None], alpha=sign)
        return rows

    def node_sum(self, values: Tensor) -> Tensor:
        """Add up the rows of each node."""
        if (rows := self._rows_by_place(values)) is not None:
            return reduce(torch.add, rows)
        total = values.new_zeros(self.node.shape[0], values.shape[1])
        return total.index_add_(0, self.segment, values)

    def node_max(self, values: Tensor) -> Tensor:
        """Return the largest of the rows of each node."""
        if (rows := self._rows_by_place(values)) is not None:
            return reduce(torch.maximum, rows)
        highest = values.new_full((self.node.shape[0], values.shape[1]), -torch.inf)
        index = self.segment[:, None].expand_as(values)
        return highest.scatter_reduce_(0, index, values, "amax")

    def _rows_by_place(self, values: Tensor) -> tuple[Tensor, ...] | None:
        """Return the first row of each node, the second, and so on, if that is fast.

        Added up one after the other they give the same bits as all rows added in turn.
        """
        if self.width is None or self.width > _MAX_WIDTH_BY_PLACE:
            return None
        return values.unflatten(0, (-1, self.width)).unbind(1)

    def log_shares(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits less their node's largest, and the log of what they add up to."""
        shifted = logits - self.to_decisions(self.node_max(logits))
        return shifted, self.node_sum(shifted.exp()).log()


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
        row, sample = block.to_decisions(wanted).nonzero().unbind(1)
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
