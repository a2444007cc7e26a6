"""Some decisions of a tree alone: those on the ways to labels, and those of nodes of a search."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import Self

import torch
from torch import Tensor

# Up to so many decisions a node is taken together faster place by place than row by row.
_MAX_WIDTH_BY_PLACE = 8


@dataclass(frozen=True)
class Ways:
    """What labels decide: one *segment* for each (sample, node on its way).

    Attributes
    ----------
    n_samples : int
        Samples that there are.
    chosen, sample, node : Tensor of shape (n_segments,)
        Decision that the label makes, sample, and branching position.
    """

    n_samples: int
    chosen: Tensor
    sample: Tensor
    node: Tensor

    def to(self, device: torch.device) -> Self:
        """Return the same on another device, copied without waiting."""
        tensors = (getattr(self, field.name) for field in fields(self)[1:])
        return type(self)(self.n_samples, *(item.to(device, non_blocking=True) for item in tensors))

    def sample_sum(self, values: Tensor) -> Tensor:
        """Add up the segments of each sample; a sample without any gets 0."""
        return values.new_zeros(self.n_samples).index_add_(0, self.sample, values)


@dataclass(frozen=True)
class Paths(Ways):
    """The ragged layout: ways with one entry for each decision of their nodes.

    Attributes
    ----------
    decision, row, segment : Tensor of shape (n_entries,)
        Decision, sample and segment of each entry.
    target : Tensor of shape (n_segments,)
        Entry of the decision that the label makes.
    order : Tensor of shape (n_entries,)
        The entries in the order of their decisions, of one decision as they come.
    """

    decision: Tensor
    row: Tensor
    segment: Tensor
    target: Tensor
    order: Tensor

    @cached_property
    def has_previous(self) -> Tensor:
        """Whether the segment before is an earlier node on the same way: (n_segments,)."""
        follows = torch.zeros_like(self.sample, dtype=torch.bool)
        follows[1:] = self.sample[1:] == self.sample[:-1]
        return follows

    @cached_property
    def place_in_rows(self) -> Tensor:
        """Where the entries are in dense rows, one row after the other."""
        return self.decision * self.n_samples + self.row

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Pick the entries from dense rows: (n_decisions, n) to (n_entries,)."""
        return rows.flatten().index_select(0, self.place_in_rows)

    def spread(self, values: Tensor) -> Tensor:
        """Repeat each segment's value for its entries: (n_segments,) to (n_entries,)."""
        return values.index_select(0, self.segment)

    def segment_sum(self, values: Tensor) -> Tensor:
        """Add up the entries of each segment."""
        return values.new_zeros(self.sample.shape[0]).index_add_(0, self.segment, values)

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
