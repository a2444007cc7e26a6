"""The device that predictions use; their estimator keeps its network on the CPU."""

from __future__ import annotations

import copy
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)

ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")


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


# The latest copy of each module, with what it was copied from; it goes when its original goes.
_copies: WeakKeyDictionary[nn.Module, tuple[torch.device, Any, nn.Module]] = WeakKeyDictionary()


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
    tensors = [*module.parameters(), *module.buffers()]
    here = tensors[0].device if tensors else device
    if here.type == device.type and device.index in (None, here.index):
        return module
    # Addresses and versions change with every change of a weight, without reading one.
    state = [(tensor.data_ptr(), tensor._version) for tensor in tensors]
    found = _copies.get(module)
    if found is None or found[:2] != (device, state):
        found = _copies[module] = device, state, copy.deepcopy(module).to(device)
    return found[2]  # type: ignore[return-value]
