"""The decisions of some nodes for all samples, as a search evaluates them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..tree_ops import TreeSegments

# Weights copied at once where the decisions are not one slice: 8 MB stay in the cache.
_MAX_COPIED_WEIGHTS = 2**21


@dataclass(frozen=True)
class Block:
    """The decisions of some nodes for all samples: a matrix of decisions by samples.

    Attributes
    ----------
    node : Tensor of shape (n_nodes,)
        Branching positions.
    decision, segment : Tensor of shape (n_block,)
        The decisions, and the position in `node` of the node of each.
    contiguous : slice or None
        The decisions as a slice, if they are one.
    """

    node: Tensor
    decision: Tensor
    segment: Tensor
    contiguous: slice | None

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
        n_block = int(stop[-1])
        segment = torch.repeat_interleave(fan_out, output_size=n_block)
        # From the position in the block to the decision, the same for all decisions of a node.
        shift = segments.first_decision.index_select(0, node) - (stop - fan_out)
        decision = torch.arange(n_block, device=node.device) + shift.index_select(0, segment)
        is_contiguous, first = bool((node.diff() == 1).all()), int(decision[0])
        contiguous = slice(first, first + n_block) if is_contiguous else None
        return cls(node, decision, segment, contiguous)

    def pick(self, values: Tensor) -> Tensor:
        """Return the values of the block's decisions, without a copy where they are a slice."""
        if self.contiguous is not None:
            return values[self.contiguous]
        return values.index_select(0, self.decision)

    def to_decisions(self, values: Tensor) -> Tensor:
        """Repeat each node's values for its decisions."""
        return values.index_select(0, self.segment)

    def node_sum(self, values: Tensor) -> Tensor:
        """Add up the values of each node's decisions."""
        total = values.new_zeros(self.node.shape[0], values.shape[1])
        return total.index_add_(0, self.segment, values)

    def node_max(self, values: Tensor) -> Tensor:
        """Return the largest value of each node's decisions."""
        highest = values.new_full((self.node.shape[0], values.shape[1]), -torch.inf)
        index = self.segment[:, None].expand_as(values)
        return highest.scatter_reduce_(0, index, values, "amax")

    def shifted_logits(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Subtract each node's largest logit; return also the log of the sum of exponentials."""
        shifted = logits - self.to_decisions(self.node_max(logits))
        return shifted, self.node_sum(shifted.exp()).log()


def logits_of_block(
    features: Tensor, weight: Tensor, bias: Tensor, block: Block, wanted: Tensor | None = None
) -> Tensor:
    """Return the logits of some decisions for all samples: (n_block, n).

    Parameters
    ----------
    features : Tensor of shape (n, n_features)
        Output of the backbone.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The linear layer.
    block : Block
        The decisions.
    wanted : Tensor of bool of shape (n_nodes, n), default=None
        The nodes that matter for each sample; the others get any finite logits. None means all.
    """
    own_bias = block.pick(bias)[:, None]
    at_once = max(1, _MAX_COPIED_WEIGHTS // weight.shape[1])
    if wanted is not None:
        position, sample = block.to_decisions(wanted).nonzero().unbind(1)
        # Fewer at once: each copy is used for one product only, so small copies are cheapest.
        pairs = (index.split(max(1, at_once // 8)) for index in (block.decision[position], sample))
        products = [
            weight.index_select(0, some).mul_(features.index_select(0, of)).sum(1)
            for some, of in zip(*pairs, strict=True)
        ]
        logits = own_bias.repeat(1, features.shape[0])
        return logits.index_put_((position, sample), torch.cat(products), accumulate=True)
    if block.contiguous is not None:
        return torch.addmm(own_bias, block.pick(weight), features.T)
    parts = block.decision.split(at_once)
    return torch.cat([weight.index_select(0, part) @ features.T for part in parts]).add_(own_bias)
