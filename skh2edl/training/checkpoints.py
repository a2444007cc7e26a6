"""Checkpoints of a training run: written whole or not at all, refused for another run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..utils.files import write_atomically

_FORMAT = 3  # of the file; a release reads its own

# What does not change the result of a fit: a run may be resumed with other values of these.
PARAMETERS_THAT_MAY_DIFFER = {
    "taxonomy",
    "verbose",
    "warm_start",
    "recipe",  # their own parameters count, one by one
    "hardware",
    "prior",
    "hardware__accelerator",
    "hardware__devices",
    "hardware__strategy",
    "hardware__n_workers",
    "hardware__checkpoint_dir",
    "hardware__memory",
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
            state: dict[str, Any] = content["state"]
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
        return state

    def check(
        self, state: Any, like: dict[str, Any], trained: Sequence[torch.Tensor], max_epochs: int
    ) -> None:
        """Refuse a state that no run like this one can have written.

        Parameters
        ----------
        state : dict
            What :meth:`load` returned.
        like : dict
            The state that the run itself would write now.
        trained : sequence of Tensor
            What the optimiser moves, in its order.
        max_epochs : int
            Epochs of the run.
        """
        try:
            _check_state(state, like, trained, max_epochs)
        except _OtherOptimizerError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"{self.path} holds impossible values ({said[:300]}). Remove it to start from the "
                "beginning."
            ) from error

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""
        content = {"format": _FORMAT, "identity": self.identity, "state": state}
        try:
            write_atomically(self.path, lambda file: torch.save(content, file))
        except (OSError, RuntimeError) as error:  # torch has its own error for a full disk
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise OSError(
                f"The checkpoint {self.path} could not be written ({reason}). Free space there and "
                "repeat the call: it resumes from the checkpoint of the epoch before."
            ) from error


class _OtherOptimizerError(ValueError):
    """A checkpoint of a run in another number of processes."""


def _check_state(
    state: Any, like: dict[str, Any], trained: Sequence[torch.Tensor], max_epochs: int
) -> None:
    _require(isinstance(state, dict) and state.keys() == like.keys(), "other parts than a run has")
    found, wanted = state["optimizer"], like["optimizer"]
    _require(isinstance(found, dict), "another kind of optimiser")
    if ("rows" in found) != ("rows" in wanted):
        raise _OtherOptimizerError(
            "In a tree as large as this a fit in one process updates only the weights on the "
            "batch's paths, one in several processes updates all, and the checkpoint belongs to "
            "the other kind: resume it with as many devices as it was written with, or give "
            "another checkpoint_dir."
        )
    _check_progress(state["progress"], like, max_epochs)
    _check_weights(state["network"], like["network"], "weights")
    if like["ema"] is not None:
        _check_weights(state["ema"], like["ema"], "mean weights")
    pairs = [(found[key], wanted[key]) for key in ("dense", "rows")] if "rows" in wanted else []
    rest = list(trained)
    for own, other in pairs or [(found, wanted)]:
        n_trained = sum(len(group["params"]) for group in other["param_groups"])
        _check_optimizer(own, other, rest[:n_trained])
        del rest[:n_trained]
    scaler = state["precision"]
    _require(isinstance(scaler, dict) and all(map(_is_finite, scaler.values())), "a wrong scaler")


def _check_progress(progress: Any, like: dict[str, Any], max_epochs: int) -> None:
    _require(progress.keys() == like["progress"].keys(), "another kind of progress")
    epoch, history = progress["epoch"], progress["history"]
    _require(type(epoch) is int and 0 < epoch <= max_epochs, f"epoch {epoch!r} of {max_epochs}")
    _require(
        type(history) is list
        and len(history) == epoch
        and all(type(record) is dict and record.keys() == history[0].keys() for record in history)
        and all(type(v) in (int, float) for record in history for v in record.values())
        and [record["epoch"] for record in history] == list(range(epoch)),
        "a history of other epochs",
    )
    best, score = progress["best_epoch"], progress["best_score"]
    _require(type(best) is int and -1 <= best < epoch, f"best epoch {best!r}")
    _require(type(score) is float, f"best score {score!r}")
    _require(type(progress["stopped"]) is bool, "no word on whether it stopped")
    if progress["best_weights"] is not None:
        _check_weights(progress["best_weights"], like["network"], "best weights")


def _check_weights(found: Any, wanted: dict[str, torch.Tensor], what: str) -> None:
    _require(found.keys() == wanted.keys(), f"{what} of another network")
    for name, value in wanted.items():
        _require(
            found[name].shape == value.shape and found[name].dtype == value.dtype,
            f"{what} of another network, first {name}",
        )
        _require(_is_finite(found[name]), f"NaN or infinity in the {what}, first {name}")


def _check_optimizer(found: Any, wanted: dict[str, Any], trained: Sequence[torch.Tensor]) -> None:
    groups, own_groups = found["param_groups"], wanted["param_groups"]
    _require(len(groups) == len(own_groups), "another number of groups of weights")
    for group, own in zip(groups, own_groups, strict=True):
        for key, value in own.items():
            # The schedule sets the learning rate anew; switches may differ between machines.
            if key != "lr" and type(value) in (int, float, list, tuple):
                _require(group[key] == value, f"{key}={group[key]!r} instead of {value!r}")
        _require(_is_finite(group["lr"]) and group["lr"] >= 0, f"learning rate {group['lr']!r}")
    _require(found["state"].keys() <= set(range(len(trained))), "moments of other weights")
    for number, moments in found["state"].items():
        for name, value in moments.items():
            is_right = _is_finite(value)
            if name in ("step", "exp_avg_sq"):  # a number in SparseAdam
                is_right = is_right and bool((torch.as_tensor(value) >= 0).all())
            if name != "step":
                is_right = is_right and value.shape == trained[number].shape
            _require(is_right, f"impossible moments of the weights, first {name}")


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    return type(value) in (int, float) and math.isfinite(value)


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)


def copy_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of a module's state on the CPU that later steps do not change."""
    state = module.state_dict()
    return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
