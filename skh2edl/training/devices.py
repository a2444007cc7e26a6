"""Names of devices, the same in every class, and the device that a prediction uses."""

from __future__ import annotations

import torch

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
