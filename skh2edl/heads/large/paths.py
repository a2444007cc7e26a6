"""Logits of the decisions on the batch's paths alone, for trees of 20,000 leaves and more.

Each sample passes a few nodes, so that most of a dense layer is never looked at. The products are
those of the gradient of an embedding bag with respect to its weights, one for each entry, and the
gradients are embedding bags: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tree_ops import Paths

# As an embedding bag counts its ways to put rows together.
_SUM = 0
_dot = torch.ops.aten._embedding_bag_per_sample_weights_backward.default


def once_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse derivatives of a gradient that is written down, which torch would take for zero.

    Parameters
    ----------
    backward : callable
        Of an autograd function.
    """

    @wraps(backward)
    def checked(ctx: Any, *gradients: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "The loss of a tree head has no second derivative. Leave create_graph at False."
            )
        return backward(ctx, *gradients)

    return checked


def read_paths(
    features: Tensor, weight: Tensor, bias: Tensor, paths: Paths, sparse: bool = False
) -> Tensor:
    """Return the logits of the decisions on the ways: (n_entries,).

    Parameters
    ----------
    features : Tensor of shape (n, n_features)
        What the backbone says of each sample.
    weight, bias : Tensor of shape (n_decisions, n_features), (n_decisions,)
        The read-out.
    paths : Paths
        The ways.
    sparse : bool, default=False
        Whether the gradient of the weight may hold only the rows that were read.
    """
    return _ReadPaths.apply(features, weight, bias, paths, sparse)  # type: ignore[no-any-return]


class _ReadPaths(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, paths: Paths, sparse: bool
    ) -> Tensor:
        ctx.paths, ctx.sparse = paths, sparse
        ctx.save_for_backward(features, weight)
        return path_logits(features, weight, bias, paths)

    @staticmethod
    @once_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        gradients = path_gradients(
            gradient,
            features,
            weight,
            ctx.paths,
            sparse=ctx.sparse,
            of_features=ctx.needs_input_grad[0],
        )
        return *gradients, None, None


def path_logits(features: Tensor, weight: Tensor, bias: Tensor, paths: Paths) -> Tensor:
    """Do what :func:`read_paths` does, without keeping anything for a gradient."""
    if _in_place(features):
        # Where a bag starts is not looked at, since each entry says which one it is in.
        products = _dot(features, weight, paths.decision, paths.owner, paths.owner, _SUM)
    else:
        rows = weight.index_select(0, paths.decision)
        products = rows.mul_(features.index_select(0, paths.owner)).sum(1)
    return products.add_(bias.index_select(0, paths.decision))


def path_gradients(
    of_logits: Tensor,
    features: Tensor,
    weight: Tensor,
    paths: Paths,
    *,
    sparse: bool,
    of_features: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return the gradients of the features, if they want one, of the weight and of the bias.

    Parameters
    ----------
    of_logits : Tensor of shape (n_entries,)
        Gradient of the logits.
    features, weight, paths, sparse
        As in :func:`read_paths`.
    of_features : bool
        Whether the features want one.
    """
    n_rows, n_samples = weight.shape[0], features.shape[0]
    of_bias = of_logits.new_zeros(n_rows).index_add_(0, paths.decision, of_logits)
    by_feature = None
    if of_features:
        ends = torch.searchsorted(paths.owner, _count(n_samples + 1, paths.owner))
        by_feature = _weighted_sums(weight, paths.decision, of_logits, ends)
    decision, sample = (
        index.index_select(0, paths.order) for index in (paths.decision, paths.owner)
    )
    of_logits = of_logits.index_select(0, paths.order)
    if not sparse:
        ends = torch.searchsorted(decision, _count(n_rows + 1, decision))
        return by_feature, _weighted_sums(features, sample, of_logits, ends), of_bias
    if _in_place(features):
        decision, counts = decision.unique_consecutive(return_counts=True)
        ends = F.pad(counts.cumsum(0), (1, 0))
    else:
        # As many rows as entries, because to count different ones would wait for the device.
        ends = _count(decision.shape[0] + 1, decision)
    rows = _weighted_sums(features, sample, of_logits, ends)
    by_weight = torch.sparse_coo_tensor(
        decision[None],
        rows,
        weight.shape,
        check_invariants=False,
    )
    return by_feature, by_weight, of_bias


def _in_place(features: Tensor) -> bool:
    return features.device.type == "cpu"


def _count(stop: int, like: Tensor) -> Tensor:
    return torch.arange(stop, device=like.device)


def _weighted_sums(rows: Tensor, index: Tensor, factor: Tensor, ends: Tensor) -> Tensor:
    """Add up some rows times their factors for each row of the result."""
    return torch.embedding_bag(
        rows, index, ends, mode=_SUM, per_sample_weights=factor, include_last_offset=True
    )[0]
