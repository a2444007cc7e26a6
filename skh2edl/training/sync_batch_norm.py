"""Batch normalisation over all processes, so that their number does not change the training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Those whose training is known here; a subclass may do more.
_KNOWN = {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormAct2d"}


@dataclass
class BatchPart:
    """The part of a batch that this process has.

    Parameters
    ----------
    is_empty : bool
        Whether it has nothing: what it computes with stands in, and does not count.
    """

    is_empty: bool = False


@contextmanager
def synchronized_batch_norm(network: nn.Module, n_processes: int) -> Iterator[BatchPart]:
    """Let the batch normalisations of a network see the batches of all processes while it trains.

    Unlike ``torch.nn.SyncBatchNorm`` this runs on the CPU too, knows a process without samples, and
    leaves the modules as they were.

    Parameters
    ----------
    network : Module
        Changed inside the block only.
    n_processes : int
        With 1 nothing is changed.

    Yields
    ------
    part : BatchPart
        To be set before each batch.

    Examples
    --------
    >>> with synchronized_batch_norm(nn.Sequential(nn.BatchNorm2d(3)), n_processes=1):
    ...     pass
    """
    part = BatchPart()
    normalising = [
        module
        for module in (network.modules() if n_processes > 1 else ())
        if isinstance(module, _PLAIN) and module.track_running_stats
    ]
    known: list[Any] = [module for module in normalising if type(module).__name__ in _KNOWN]
    if others := {type(module).__name__ for module in normalising} - _KNOWN:
        warnings.warn(
            f"{', '.join(sorted(others))} normalises by the batch of each process alone, so that "
            f"training depends a little on the number of processes, here {n_processes}.",
            UserWarning,
            stacklevel=2,
        )
    for module in known:
        module.forward = partial(_normalize, module, part)
    try:
        yield part
    finally:
        for module in known:
            del module.forward


@contextmanager
def naming_batches_of_one(n_samples: int, batch_size: int) -> Iterator[None]:
    """Say how to avoid a batch whose single value per channel has no spread to normalise by."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            "A batch holds one sample, and the batch normalisation of the backbone cannot learn "
            f"from it. Of {n_samples} samples batch_size={batch_size} leaves "
            f"{n_samples % batch_size or batch_size} for the last batch: choose another "
            "batch_size, or a larger image_size."
        ) from error


def _normalize(norm: Any, part: BatchPart, inputs: Tensor) -> Tensor:
    if not norm.training:
        return type(norm).forward(norm, inputs)  # type: ignore[no-any-return]
    from torch.distributed.nn.functional import all_reduce  # not every build of torch has it

    values = inputs.float() if inputs.dtype in (torch.float16, torch.bfloat16) else inputs
    others = [dim for dim in range(values.ndim) if dim != 1]
    shape = [1, -1] + [1] * (values.ndim - 2)
    counted = slice(0 if part.is_empty else None)
    count = values.new_full((1,), values[counted].numel() / values.shape[1])
    first = all_reduce(torch.cat([values[counted].sum(others), count]))
    n_values = first[-1].detach().clamp(min=1)
    mean = first[:-1] / n_values
    centred = values - mean.view(shape)
    # After the mean, not from the squares alone: those would cancel.
    variance = all_reduce((centred * centred)[counted].sum(others)) / n_values
    with torch.no_grad():
        norm.num_batches_tracked.add_(1)
        momentum = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), momentum)
        unbiased = variance * n_values / (n_values - 1).clamp(min=1)
        norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), momentum)
    outputs = centred * torch.rsqrt(variance + norm.eps).view(shape)
    if norm.affine:
        outputs = outputs * norm.weight.view(shape) + norm.bias.view(shape)
    outputs = outputs.to(inputs.dtype)
    # That of timm, BatchNormAct2d, holds the activation too.
    return norm.act(norm.drop(outputs)) if hasattr(norm, "act") else outputs
