"""Checkpoints of a training run: written whole or not at all, refused for another run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..utils.files import write_atomically

_FORMAT = 3

# What does not change the result of a fit: a run may be resumed with other values of these.
PARAMETERS_THAT_MAY_DIFFER = {
    "taxonomy",
    "checkpoint_dir",
    "memory",
    "n_workers",
    "verbose",
    "warm_start",
    "accelerator",
    "devices",
    "strategy",
    "recipe",  # their own parameters count, one by one
    "hardware",
    # Of a fit on fixed features, which has no checkpoints.
    "l2",
    "tol",
    "max_iter",
}


class CheckpointFile:
    """The one checkpoint of a run.

    Parameters
    ----------
    directory : path
        Folder of the checkpoint; made if it does not exist.
    identity : mapping of str to str
        Hashes of what the run is made of, by the name a user knows it by.
    """

    def __init__(self, directory: str | os.PathLike[str], identity: Mapping[str, str]) -> None:
        self.path = Path(directory) / "checkpoint.pt"
        self.identity = dict(identity)

    def load(self) -> dict[str, Any] | None:
        """Return the state to resume from, or None if there is none yet."""
        if not self.path.exists():
            return None
        try:
            # Only tensors and plain values: nothing in the file is executed.
            content = torch.load(self.path, map_location="cpu", weights_only=True)
            found, version = content["identity"], content["format"]
        except Exception as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of this package or is damaged ({error}). "
                "Remove it to start from the beginning."
            ) from error
        if version != _FORMAT:
            raise ValueError(
                f"{self.path} has checkpoint format {version}, and this release reads {_FORMAT}. "
                "Finish that run with the release that began it, or remove the file."
            )
        differing = [key for key, value in self.identity.items() if found.get(key) != value]
        if differing:
            raise ValueError(
                f"{self.path} belongs to another fit: other {', '.join(differing)}. Repeat that "
                "fit's call to resume it, or give another checkpoint_dir, or remove the file."
            )
        state: dict[str, Any] = content["state"]
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        content = {"format": _FORMAT, "identity": self.identity, "state": state}
        try:
            write_atomically(self.path, lambda file: torch.save(content, file))
        except (OSError, RuntimeError) as error:  # torch has its own error for a full disk
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise OSError(
                f"The checkpoint {self.path} could not be written ({reason}). Make room there and "
                "repeat the call: it resumes from the checkpoint of the epoch before."
            ) from error


def copy_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of a module's state on the CPU that later steps do not change."""
    state = module.state_dict()
    return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
