"""Logits of the decisions on the batch's paths alone, for trees of 20,000 leaves and more.

Each sample passes only a few nodes, so most of a dense layer would be computed for nothing. The
forward pass is what torch computes as the gradient of an embedding bag with respect to its
per-sample weights, and the gradients are embedding bags, so no weight is copied.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tree_ops import Paths

# torch's code for an embedding bag that adds its vectors up.
_SUM = 0
_dot = torch.ops.aten._embedding_bag_per_sample_weights_backward.default


def logits_on_paths(
    features: Tensor, weight: Tensor, bias: Tensor, paths: Paths, sparse: bool = False
) -> Tensor:
    """Return the logits of the decisions on the paths: (n_entries,).

    Parameters
    ----------
    features : Tensor of shape (n, n_features)
        Output of the backbone.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The linear layer.
    paths : Paths
        The paths.
    sparse : bool, default=False
        Whether the gradient of the weight is sparse: it holds only the decisions on the paths.
    """
    return _LogitsOnPaths.apply(features, weight, bias, paths, sparse)  # type: ignore[no-any-return]


class _LogitsOnPaths(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, paths: Paths, sparse: bool
    ) -> Tensor:
        ctx.paths, ctx.sparse = paths, sparse
        ctx.save_for_backward(features, weight)
        if _in_place(features):
            # torch ignores where a bag starts: each entry already names its bag.
            products = _dot(features, weight, paths.decision, paths.owner, paths.owner, _SUM)
        else:
            on_paths = weight.index_select(0, paths.decision)
            products = on_paths.mul_(features.index_select(0, paths.owner)).sum(1)
        return products.add_(bias.index_select(0, paths.decision))

    @staticmethod
    def backward(ctx: Any, of_logits: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # torch would take the derivative of this gradient for zero
            raise RuntimeError(
                "The loss of a tree head has no second derivative. Leave create_graph at False."
            )
        features, weight = ctx.saved_tensors
        paths, n_decisions = ctx.paths, weight.shape[0]
        of_bias = of_logits.new_zeros(n_decisions).index_add_(0, paths.decision, of_logits)
        of_features = None
        if ctx.needs_input_grad[0]:
            ends = torch.searchsorted(paths.owner, _count(features.shape[0] + 1, paths.owner))
            of_features = _weighted_sums(weight, paths.decision, of_logits, ends)
        decision, sample = (
            index.index_select(0, paths.order) for index in (paths.decision, paths.owner)
        )
        of_logits = of_logits.index_select(0, paths.order)
        if not ctx.sparse:
            ends = torch.searchsorted(decision, _count(n_decisions + 1, decision))
            of_weight = _weighted_sums(features, sample, of_logits, ends)
            return of_features, of_weight, of_bias, None, None
        if _in_place(features):
            decision, counts = decision.unique_consecutive(return_counts=True)
            ends = F.pad(counts.cumsum(0), (1, 0))
        else:
            # One value per entry: to merge equal decisions would wait for the device.
            ends = _count(decision.shape[0] + 1, decision)
        values = _weighted_sums(features, sample, of_logits, ends)
        of_weight = torch.sparse_coo_tensor(
            decision[None], values, weight.shape, check_invariants=False
        )
        return of_features, of_weight, of_bias, None, None


def _in_place(features: Tensor) -> bool:
    return features.device.type == "cpu"


def _count(stop: int, like: Tensor) -> Tensor:
    return torch.arange(stop, device=like.device)


def _weighted_sums(vectors: Tensor, index: Tensor, factor: Tensor, ends: Tensor) -> Tensor:
    """Add up the indexed vectors times their factors, one sum between every two `ends`."""
    return torch.embedding_bag(
        vectors, index, ends, mode=_SUM, per_sample_weights=factor, include_last_offset=True
    )[0]
