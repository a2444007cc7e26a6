"""Some decisions of a tree alone: those on the paths to labels, and those of a search."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, reduce

import torch
from torch import Tensor

# Up to so many decisions a node is taken together faster place by place than row by row.
_MAX_WIDTH_BY_PLACE = 8


@dataclass(frozen=True)
class Paths:
    """The decisions that labels supervise, as a ragged layout.

    One *segment* for each (sample, branching node on the path to its label), one *entry* for each
    child of that node.

    Attributes
    ----------
    n_samples : int
        Samples of the batch.
    sample, node : Tensor of shape (n_segments,)
        Position in the batch, and branching position.
    target : Tensor of shape (n_segments,)
        Entry of the child on the path.
    decision, row, segment : Tensor of shape (n_entries,)
        Decision, position in the batch and segment of each entry.
    order : Tensor of shape (n_entries,)
        The entries sorted by decision, stably.
    """

    n_samples: int
    sample: Tensor
    node: Tensor
    target: Tensor
    decision: Tensor
    row: Tensor
    segment: Tensor
    order: Tensor

    def to(self, device: torch.device) -> Paths:
        """Return the same on another device, copied without waiting."""
        tensors = (getattr(self, field.name) for field in fields(self)[1:])
        return Paths(self.n_samples, *(item.to(device, non_blocking=True) for item in tensors))

    @cached_property
    def has_previous(self) -> Tensor:
        """Whether the segment before is an earlier node on the same path: (n_segments,)."""
        follows = torch.zeros_like(self.sample, dtype=torch.bool)
        follows[1:] = self.sample[1:] == self.sample[:-1]
        return follows

    @cached_property
    def is_target(self) -> Tensor:
        """Whether an entry is the child on the path: (n_entries,)."""
        mask = torch.zeros_like(self.decision, dtype=torch.bool)
        return mask.index_fill_(0, self.target, True)

    def gather(self, values: Tensor) -> Tensor:
        """Pick the entries from a dense matrix: (n, n_decisions) to (n_entries,)."""
        return values.flatten().index_select(0, self.row * values.shape[1] + self.decision)

    def sample_sum(self, values: Tensor) -> Tensor:
        """Add up the segments of each sample; a sample without any gets 0."""
        return values.new_zeros(self.n_samples).index_add(0, self.sample, values)

    def spread(self, values: Tensor) -> Tensor:
        """Repeat each segment's value for its entries: (n_segments,) to (n_entries,)."""
        return values.index_select(0, self.segment)

    def segment_sum(self, values: Tensor) -> Tensor:
        """Add up the entries of each segment."""
        return values.new_zeros(self.sample.shape[0]).index_add(0, self.segment, values)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Normalise the entries of each segment to a distribution, in logs."""
        highest = logits.new_full((self.sample.shape[0],), -torch.inf)
        highest = highest.scatter_reduce(0, self.segment, logits.detach(), "amax")
        shifted = logits - self.spread(highest)
        return shifted - self.spread(self.segment_sum(shifted.exp()).log())


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

    def of_nodes(self, chosen: Tensor) -> tuple[Block, Tensor]:
        """Return the decisions of the marked nodes alone, and which rows they are."""
        rows = self.spread(chosen).nonzero().squeeze(1)
        decision, segment = (index.index_select(0, rows) for index in (self.decision, self.segment))
        return Block(self.node, decision, segment, None, None), rows

    def pick(self, values: Tensor) -> Tensor:
        """Return the rows of the decisions, without a copy where they are a slice."""
        if self.contiguous is not None:
            return values[self.contiguous]
        return values.index_select(0, self.decision)

    def spread(self, values: Tensor) -> Tensor:
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
            return rows.add_(self.spread(values), alpha=sign)
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
        shifted = logits - self.spread(self.node_max(logits))
        return shifted, self.node_sum(shifted.exp()).log()
