"""The device and the precision of predictions; their estimator keeps its network on the CPU."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from ..utils.threads import SharedContext

Module = TypeVar("Module", bound=nn.Module)

ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")

# Copies that are kept for the next call; an ensemble's members predict in turn.
_MAX_COPIES = 4


def find_device(accelerator: str = "auto", dtype: torch.dtype = torch.float32) -> torch.device:
    """Return the device to compute on; the processor where the one asked for is absent.

    A model predicts on any machine, whatever it was trained on.

    Parameters
    ----------
    accelerator : {"auto", "cpu", "cuda", "gpu", "mps"}, default="auto"
        As in :class:`Hardware`: "gpu" is CUDA or Apple's MPS, "auto" the best there is.
    dtype : torch.dtype, default=torch.float32
        Precision of the weights. MPS has no double precision, so such a network stays on the
        processor.

    Examples
    --------
    >>> find_device("cpu")
    device(type='cpu')
    """
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    on_mps = accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available()
    return torch.device("mps" if on_mps and dtype != torch.float64 else "cpu")


class _Copy(NamedTuple):
    original: weakref.ref[nn.Module]
    state: tuple[Any, ...]
    module: nn.Module


class _Copies:
    """The latest copies, by their original and their device."""

    def __init__(self) -> None:
        self.reset()
        # A forked worker must not inherit a lock that a thread of its parent held, nor a device.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        self.lock = threading.RLock()
        self.kept: OrderedDict[tuple[int, str], _Copy] = OrderedDict()

    def find(self, original: nn.Module, device: torch.device) -> nn.Module:
        key = id(original), str(device)
        with self.lock:
            found, state = self.kept.pop(key, None), _state(original)
            if found is None or found.original() is not original or found.state != state:
                # Without its original nobody asks for a copy again, and its memory is free.
                alive = weakref.ref(original, lambda _: self.forget(key))
                found = _Copy(alive, state, copy.deepcopy(original).to(device))
            self.kept[key] = found
            while len(self.kept) > _MAX_COPIES:
                self.kept.popitem(last=False)
            return found.module

    def forget(self, key: tuple[int, str]) -> None:
        with self.lock:
            found = self.kept.get(key)
            if found is not None and found.original() is None:
                del self.kept[key]


_copies = _Copies()


def on_device(module: Module, device: torch.device) -> Module:
    """Return a module on a device: itself if it is there, else a copy, kept for the next call.

    The module stays where it is. Threads can predict with it at the same time, and a pickled
    estimator holds no device.

    Parameters
    ----------
    module : Module
        In evaluation mode, on the CPU.
    device : torch.device
        Where to compute.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> on_device(layer, torch.device("cpu")) is layer
    True
    >>> there = on_device(layer, torch.device("meta"))
    >>> there.weight.device.type, layer.weight.device.type
    ('meta', 'cpu')
    >>> on_device(layer, torch.device("meta")) is there
    True
    """
    first = next(chain(module.parameters(), module.buffers()), None)
    if first is None:
        return module
    here = first.device
    if here.type == device.type and device.index in (None, here.index):
        return module
    return _copies.find(module, device)  # type: ignore[return-value]


@contextmanager
def _without_tf32() -> Iterator[None]:
    try:
        was_on = torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the user has set the precision of single operations
        was_on = False
    if was_on:
        torch.backends.cudnn.allow_tf32 = False
    yield
    if was_on:
        torch.backends.cudnn.allow_tf32 = True


_full_precision = SharedContext(_without_tf32)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute the convolutions of a GPU in float32 instead of TF32, which is torch's default.

    TF32 keeps ten bits, so that predictions depend on the size of the batch by more than the margin
    that thresholds leave for it.

    Parameters
    ----------
    device : torch.device
        Where the network is.

    Examples
    --------
    >>> with full_precision(torch.device("cuda")):
    ...     torch.backends.cudnn.allow_tf32
    False
    """
    with _full_precision if device.type == "cuda" else nullcontext():
        yield


def _state(module: nn.Module) -> tuple[Any, ...]:
    """Return what changes with every change of a weight, without reading one."""
    tensors = [*module.parameters(), *module.buffers()]
    return tuple((tensor.data_ptr(), tensor._version) for tensor in tensors)
