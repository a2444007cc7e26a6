"""Sums over siblings and along paths in torch.

A decision is one child of one branching node; the decisions of a node are contiguous.
:class:`TreeSegments` works on matrices with a column for every decision, :class:`Paths` on the
decisions that the labels of one batch pass.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..taxonomy.sums import combine_along_paths, depth_slices
from ..taxonomy.taxonomy import Taxonomy

# Up to this many entries the paths to all nodes are listed once, else for each batch.
_MAX_KNOWN_STEPS = 2**20
# Up to here a product with a matrix of zeros and ones is faster than sums by index.
_MAX_LEAVES_OF_MATRIX = 256


def without_autocast(values: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off, so that a block computes in the precision of its inputs.

    Parameters
    ----------
    values : Tensor
        On the device of the block.
    """
    kind = values.device.type
    # Only where it is on: switching costs more than some terms of a small loss.
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def on_device(targets: Any, device: torch.device) -> Any:
    """Return a dataclass with its tensors on another device, copied without waiting."""
    own = {field.name: getattr(targets, field.name) for field in fields(targets)}
    tensors = {name: value for name, value in own.items() if isinstance(value, Tensor)}
    moved = {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
    return replace(targets, **moved)


@dataclass(frozen=True)
class Paths:
    """The decisions that labels supervise, as a ragged layout.

    A *segment* is one branching node on the path to the label of one sample, an *entry* one child
    of that node.

    Attributes
    ----------
    n_samples : int
        Samples of the batch.
    sample, node : Tensor of shape (n_segments,)
        Position in the batch, and branching position.
    target : Tensor of shape (n_segments,)
        Entry of the child on the path.
    decision, owner, segment : Tensor of shape (n_entries,)
        Decision, position in the batch and segment of each entry.
    order : Tensor of shape (n_entries,)
        The entries sorted by decision, stably.
    """

    n_samples: int
    sample: Tensor
    node: Tensor
    target: Tensor
    decision: Tensor
    owner: Tensor
    segment: Tensor
    order: Tensor

    def to(self, device: torch.device) -> Paths:
        """Return the same on another device, copied without waiting."""
        return on_device(self, device)

    @cached_property
    def has_previous(self) -> Tensor:
        """Whether the segment before is the node above on the same path: (n_segments,)."""
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
        return values.flatten().index_select(0, self.owner * values.shape[1] + self.decision)

    def sample_sum(self, values: Tensor) -> Tensor:
        """Add up the segments of each sample; a sample without any gets 0."""
        return values.new_zeros(self.n_samples).index_add(0, self.sample, values)

    def to_entries(self, values: Tensor) -> Tensor:
        """Repeat each segment's value for its entries: (n_segments,) to (n_entries,)."""
        return values.index_select(0, self.segment)

    def segment_sum(self, values: Tensor) -> Tensor:
        """Add up the entries of each segment."""
        return values.new_zeros(self.sample.shape[0]).index_add(0, self.segment, values)

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Normalise the entries of each segment to a distribution, in logs."""
        highest = logits.new_full((self.sample.shape[0],), -torch.inf)
        highest = highest.scatter_reduce(0, self.segment, logits.detach(), "amax")
        shifted = logits - self.to_entries(highest)
        return shifted - self.to_entries(self.segment_sum(shifted.exp()).log())


class TreeSegments(nn.Module):
    """Index arrays of one taxonomy, moved with the module that holds them.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.

    Examples
    --------
    >>> import torch
    >>> from skh2edl import Taxonomy
    >>> segments = TreeSegments(Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}))
    >>> segments.node_sum(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    tensor([[3., 7.]])
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        super().__init__()
        self.taxonomy = taxonomy
        depths = taxonomy.depths[taxonomy.branching_nodes]
        buffers = {
            "node": taxonomy.decision_nodes,
            "parent": taxonomy.parent_decision,
            "leaf_decision": taxonomy.last_decision[taxonomy.leaf_nodes],
            "fan_out": np.diff(taxonomy.decision_offsets),
            "first_decision": taxonomy.decision_offsets[:-1],
            "node_depth": depths,
            "below": _what_is_below(taxonomy),
        }
        for name, array in buffers.items():
            # Not saved: they follow from the taxonomy, which model files hold.
            self.register_buffer(name, torch.from_numpy(np.array(array)), persistent=False)
        on_path = None
        if taxonomy.n_leaves <= _MAX_LEAVES_OF_MATRIX:
            on_path = torch.from_numpy(_paths_to_leaves(taxonomy))
        self.register_buffer("on_path", on_path, persistent=False)
        self._depth_slices = depth_slices(taxonomy)
        self._nodes_per_slice = np.unique_counts(depths).counts.tolist()

    node: Tensor
    parent: Tensor
    leaf_decision: Tensor
    fan_out: Tensor
    first_decision: Tensor
    node_depth: Tensor
    below: Tensor
    on_path: Tensor | None

    def node_sum(self, values: Tensor) -> Tensor:
        """Add up the columns of each node: (n, n_decisions) to (n, n_branching)."""
        # Transposed, so that whole vectors over the samples are added at once.
        total = values.new_zeros(self.taxonomy.n_branching, values.shape[0])
        return total.index_add_(0, self.node, values.T).T

    def to_children(self, values: Tensor) -> Tensor:
        """Repeat each node's column for its decisions: (n, n_branching) to (n, n_decisions)."""
        return values[:, self.node]

    def log_softmax(self, logits: Tensor) -> Tensor:
        """Normalise the columns of each node to a distribution, in logs."""
        highest = logits.new_full((logits.shape[0], self.taxonomy.n_branching), -torch.inf)
        index = self.node.expand(logits.shape[0], -1)
        highest = highest.scatter_reduce(1, index, logits.detach(), "amax")
        shifted = logits - self.to_children(highest)
        return shifted - self.to_children(self.node_sum(shifted.exp()).log())

    def sum_to_leaves(self, values: Tensor) -> Tensor:
        """Add up the decisions on the path to each leaf: (n, n_decisions) to (n, n_leaves)."""
        if self.on_path is not None:
            return _exact_product(values, self.on_path)
        return self.sum_along_paths(values)[:, self.leaf_decision]

    def sum_along_paths(self, values: Tensor) -> Tensor:
        """Add to each decision all decisions before it on the path from the root."""
        steps = [(low, high, self.parent[low:high]) for low, high in self._depth_slices[1:]]
        total: Tensor = combine_along_paths(values.clone(), steps)
        return total

    def log_sum_below(self, leaves: Tensor) -> Tensor:
        """Add up exponentials of the leaves below each decision, in logs.

        Parameters
        ----------
        leaves : Tensor of shape (n, n_leaves)
            Logits of the leaves in tree order.

        Returns
        -------
        sums : Tensor of shape (n, n_decisions)
        """
        # Leaves first, then the branching nodes from the last one up.
        known, sums = leaves, []
        slices = zip(self._depth_slices, self._nodes_per_slice, strict=True)
        for (low, high), n_nodes in reversed(list(slices)):
            own = known[:, self.below[low:high]]
            sums.append(own)
            node = self.node[high - 1] - self.node[low:high]
            highest = own.new_full((own.shape[0], n_nodes), -torch.inf)
            highest = highest.scatter_reduce(1, node.expand_as(own), own.detach(), "amax")
            total = torch.zeros_like(highest).index_add(1, node, (own - highest[:, node]).exp())
            known = torch.cat([known, highest + total.log()], dim=1)
        return torch.cat(sums[::-1], dim=1)

    def paths(self, nodes: npt.ArrayLike) -> Paths:
        """List all decisions of every node on the path to each label, D(v*) in the paper.

        The path to an ancestor is shorter, and that to the root is empty: outputs below the label
        are not in the list and receive no gradient.

        Runs on the CPU, so that a training step on another device never waits for a length.

        Parameters
        ----------
        nodes : array-like of int of shape (n,)
            Target nodes.
        """
        tree = self.taxonomy
        nodes = np.asarray(nodes, dtype=np.int64)
        if tree.n_nodes * tree.n_levels <= _MAX_KNOWN_STEPS:
            table = self._paths_to_all_nodes.take(nodes, axis=0)
        else:
            table = self._paths_to(nodes)
        steps = table.ravel()
        place = (steps >= 0).nonzero()[0]
        chosen, sample = steps.take(place), place // table.shape[1]
        node = tree.decision_nodes.take(chosen)
        first, fan_out = tree.decision_offsets.take(node), self._fan_outs.take(node)
        # From the position of an entry to its decision, the same for all entries of a segment.
        shift = first - fan_out.cumsum() + fan_out
        segment = np.arange(sample.size).repeat(fan_out)
        decision = shift.take(segment)
        decision += np.arange(segment.size)
        # numpy sorts 16-bit numbers with a faster radix sort.
        key = decision.astype(np.uint16) if tree.n_decisions <= 2**16 else decision
        order = key.argsort(kind="stable")
        arrays = (sample, node, chosen - shift, decision, sample.take(segment), segment, order)
        return Paths(nodes.size, *map(torch.from_numpy, arrays))

    @cached_property
    def _fan_outs(self) -> npt.NDArray[np.int64]:
        return np.diff(self.taxonomy.decision_offsets)

    @cached_property
    def _paths_to_all_nodes(self) -> npt.NDArray[np.int64]:
        return self._paths_to(np.arange(self.taxonomy.n_nodes))

    def _paths_to(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """List the decisions on the path to each node, padded with -1 in front."""
        tree = self.taxonomy
        steps = [tree.last_decision[nodes]]
        while (known := steps[-1] >= 0).any():
            steps.append(np.where(known, tree.parent_decision[steps[-1]], -1))
        return np.stack(steps[::-1], axis=1)


def _exact_product(values: Tensor, matrix: Tensor) -> Tensor:
    # Autocast would round the inputs of a product, which it does not for a sum.
    with without_autocast(values):
        return values @ matrix.to(values.dtype)


def _paths_to_leaves(taxonomy: Taxonomy) -> npt.NDArray[np.float32]:
    """Mark the decisions on the path to each leaf: (n_decisions, n_leaves)."""
    leaf = np.arange(taxonomy.n_leaves)
    child = taxonomy.decision_children[:, None]
    return ((leaf >= taxonomy.leaf_start[child]) & (leaf < taxonomy.leaf_stop[child])).astype(
        np.float32
    )


def _what_is_below(taxonomy: Taxonomy) -> npt.NDArray[np.int64]:
    """Return for each decision its leaf, or n_leaves + its branching node counted from the end."""
    column = np.empty(taxonomy.n_nodes, dtype=np.int64)
    column[taxonomy.leaf_nodes] = np.arange(taxonomy.n_leaves)
    from_the_end = np.arange(taxonomy.n_branching)[::-1]
    column[taxonomy.branching_nodes] = taxonomy.n_leaves + from_the_end
    below: npt.NDArray[np.int64] = column[taxonomy.last_of_chain[taxonomy.decision_children]]
    return below
