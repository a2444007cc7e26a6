"""A read-out of some nodes for all samples, as a search wants it."""

from __future__ import annotations

import torch
from torch import Tensor

from .layouts import Block

# Weights copied at once to read rows that lie apart: 8 MB stay in the cache.
_MAX_COPIED_WEIGHTS = 2**21


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
