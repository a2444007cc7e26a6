"""Describe a classifier with a network for a model file, and rebuild it from what a file says.

The header's JSON holds the class name (looked up in a fixed list), the parameters, the taxonomy
and the backbone's data configuration. The tensors are the network's state. Everything is checked.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..images import make_transform
from ..taxonomy.formats import read_json
from ..taxonomy.names import shown
from ..taxonomy.taxonomy import Taxonomy
from ..training.backbones import Backbone, create_backbone
from ..training.network import Network
from ..training.recipe import SETTINGS, Recipe
from ..training.resuming import fixed_parameters
from .earlier import MOVED, regroup
from .plain_values import decode, encode, is_plain, plain

_HEAD_WEIGHT = "head.linear.weight"  # its shape says how many outputs and features there are
_MAX_MESSAGE = 1000  # what a file holds may stand in an error, but not all of it
_MAX_SIDE = 4096  # of an image before it is cropped: beyond the training size of any model

# What is compared between a file and a network before any tensor is read.
Kind = tuple[torch.dtype | None, tuple[int, ...]]
Kinds = dict[str, Kind]
_DTYPES = {
    "F32": torch.float32,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "BOOL": torch.bool,
}

# They speak of the machine that trained the model, not of the model.
_LEFT_OUT = {"taxonomy", "hardware", "verbose"}
# Files of earlier releases hold these two; they are not for a file to choose.
_DROPPED = {"n_workers", "verbose"}
# A file may not choose which other files are read or written.
_FORBIDDEN = {*_LEFT_OUT, "checkpoint_dir", "memory"}


def _is_number(value: Any) -> bool:
    return type(value) in (float, int)


def _is_history(value: Any) -> bool:
    columns = list(value.values()) if isinstance(value, dict) else [None]
    return all(isinstance(column, list) and all(map(_is_number, column)) for column in columns)


# What a fit sets beside the network -> whether a value that a file gives for it can be one.
_FITTED_VALUES: dict[str, Callable[[Any], bool]] = {
    "annealing_": lambda value: _is_number(value) and 0 <= value <= 1,
    "n_iter_": lambda value: type(value) is int,
    "n_features_in_": lambda value: type(value) is int,
    "best_epoch_": lambda value: type(value) is int,
    "best_score_": _is_number,
    "history_": _is_history,
}


class Tensors:
    """Tensors of a file: their kinds are known before any is read.

    Parameters
    ----------
    kinds : dict of str to (dtype, shape)
        What the file declares, by name.
    read : callable
        Returns the tensor of a name.
    """

    def __init__(self, kinds: Kinds, read: Callable[[str], Tensor]) -> None:
        self.kinds = kinds
        self.read = read

    @classmethod
    def of_file(cls, file: Any) -> Self:
        """Return all tensors of an open safetensors file."""
        # The library has checked that these kinds and shapes are as long as the file.
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return cls(
            {
                name: (_DTYPES.get(each.get_dtype()), tuple(each.get_shape()))
                for name, each in slices.items()
            },
            file.get_tensor,
        )

    def under(self, prefix: str) -> Self:
        """Return the tensors whose names begin with a prefix, which is taken off."""
        own = {
            name.removeprefix(prefix): kind
            for name, kind in self.kinds.items()
            if name.startswith(prefix)
        }
        return type(self)(own, lambda name: self.read(f"{prefix}{name}"))


def describe_network(estimator: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors of a fitted classifier.

    Parameters
    ----------
    estimator : classifier of this package
        Fitted, with a network.
    """
    from .methods import MODEL_CLASSES  # late: they inherit what calls this function

    name, network = type(estimator).__name__, estimator.network_
    if type(estimator) is not MODEL_CLASSES.get(name):
        raise TypeError(
            f"{name} is not a classifier of this package, so no file could bring it back. Save one "
            f"of {', '.join(MODEL_CLASSES)}, or use joblib.dump."
        )
    names = getattr(estimator, "feature_names_in_", None)
    # Parameters set after the fit do not belong to what was learnt.
    as_fitted = estimator.get_params(deep=False) | estimator._fitted_with
    if network.backbone is not None:
        network.backbone.check_rebuildable()
        as_fitted["backbone"] = network.backbone.name
    parameters = {
        name: plain(value)
        for name, value in as_fitted.items()
        if name not in _LEFT_OUT and is_plain(plain(value))
    }
    header = {
        "class": name,
        "parameters": encode(parameters),
        "taxonomy": estimator.taxonomy_.to_json(),
        "given_taxonomy": estimator.taxonomy is not None,
        "fitted": {
            name: getattr(estimator, name) for name in _FITTED_VALUES if hasattr(estimator, name)
        },
        "feature_names": None if names is None else names.tolist(),
        "backbone": _describe_backbone(network.backbone),
    }
    # Copies: two names of one tensor, as timm ties some, would not be written.
    state = {
        name: value.clone(memory_format=torch.contiguous_format)
        for name, value in network.state_dict().items()
    }
    return header, state


def restore_network(
    header: dict[str, Any], tensors: Tensors, place: str, module: torch.nn.Module | None = None
) -> Any:
    """Return the classifier that a header and tensors describe.

    Parameters
    ----------
    header : dict
        As from :func:`describe_network`, or of an earlier format.
    tensors : Tensors
        Those of this classifier and no others.
    place : str
        The file, as an error calls it.
    module : nn.Module, default=None
        The backbone of a file that was written with a module.
    """
    estimator, network = _rebuild(header, tensors.kinds, place, module)
    _check_kinds(_kinds(network), tensors.kinds, place)
    network.load_state_dict({name: tensors.read(name) for name in tensors.kinds})
    estimator.network_ = network.eval()
    _check_numbers(network, place)
    try:
        estimator._unknown_leaf_probability()  # the priors must be those of this taxonomy
    except ValueError as error:
        raise ValueError(f"{place} cannot predict: {error}") from error
    return estimator


def refused(error: Exception, place: str) -> ValueError:
    """Return the error for a header that made something raise this one."""
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
    return ValueError(
        f"The header of {place} is not that of a model of this package: {kind}"
        f"{str(error)[:_MAX_MESSAGE]}"
    )


def _rebuild(
    header: dict[str, Any], kinds: Kinds, place: str, module: torch.nn.Module | None
) -> tuple[Any, Network]:
    """Make the unfitted estimator and a network, no larger than the tensors in the file."""
    dtype, shape = kinds.get(_HEAD_WEIGHT, (None, ()))
    if dtype not in (torch.float32, torch.float64) or len(shape) != 2 or 0 in shape:
        raise ValueError(f"{place} holds no matrix {_HEAD_WEIGHT}, so no classifier can be built.")
    n_outputs, n_features = shape
    try:
        if header.get("format_version") == 1:
            header = _from_format_1(header)
        estimator = _make_estimator(header["class"], header["parameters"])
        estimator._fitted_with = fixed_parameters(estimator)
        taxonomy = make_taxonomy(
            header["taxonomy"], n_outputs, f"its linear layer {n_outputs} outputs"
        )
        estimator.taxonomy = taxonomy if header["given_taxonomy"] else None
        estimator.taxonomy_ = taxonomy
        estimator.classes_ = taxonomy.sorted_leaf_labels
        _set_fitted(estimator, header, n_features)
        everywhere = np.ones(taxonomy.n_nodes)
        with torch.device("meta"):  # shapes without memory: the header may claim anything
            head = estimator._make_head(taxonomy, n_features, everywhere)
        in_head = {name: kind for name, kind in kinds.items() if name.startswith("head.")}
        _check_kinds(_kinds(head.to(dtype), "head."), in_head, place)
        backbone = _restore_backbone(
            header["backbone"], estimator.backbone, kinds, n_features, module
        )
        if backbone is not None and backbone.is_module:
            estimator.backbone = estimator._fitted_with["backbone"] = module
        network = Network(backbone, estimator._make_head(taxonomy, n_features, everywhere))
    except Exception as error:  # torch and timm raise nearly anything for a wrong parameter
        raise refused(error, place) from error
    return estimator, network.double() if dtype == torch.float64 else network


def _class_of(name: Any) -> Any:
    from .methods import MODEL_CLASSES

    if not isinstance(name, str) or name not in MODEL_CLASSES:
        raise ValueError(
            f"it names the class {shown(name)}, and this release knows {', '.join(MODEL_CLASSES)}."
        )
    return MODEL_CLASSES[name]


def _make_estimator(name: Any, parameters: Any) -> Any:
    decoded = {key: value for key, value in decode(parameters).items() if key not in _DROPPED}
    if forbidden := sorted(_FORBIDDEN & decoded.keys()):
        raise ValueError(f"it sets {', '.join(forbidden)}, which no saved model does.")
    for key, kind in SETTINGS.items():
        if isinstance(decoded.get(key), dict):
            decoded[key] = kind(**decoded[key][kind.__name__])
    estimator = _class_of(name)(**regroup(decoded))
    estimator._validate_params()
    return estimator


def _from_format_1(header: dict[str, Any]) -> dict[str, Any]:
    """Return a header of the first format with today's parameters.

    What trained the model is gone where today has nothing like it; what predicts is kept.
    """
    choices, old = decode(header["head"]), decode(header["parameters"])
    if choices.get("read_out") == "nested":
        raise ValueError(
            "it shares weights between siblings (read_out='nested'), which this release does not. "
            "Fit the model again."
        )
    names = inspect.signature(_class_of(header["class"])).parameters
    new = {name: value for name, value in old.items() if name in names and name not in SETTINGS}
    # None was the choice of a preset; it trained the model and predicts nothing.
    defaults = {name: names[name].default for name, value in new.items() if value is None}
    new |= {name: value for name, value in defaults.items() if value is not None}
    new |= {name: value for name, value in choices.items() if name in names}
    recipe = Recipe().get_params().keys() & old.keys()
    if old.get("augmentation", "") is None:
        old["augmentation"] = "none"
    new["recipe"] = {"Recipe": {name: old[name] for name in recipe}}
    new |= {name: old[name] for name in MOVED.keys() & old.keys()}
    if "base_rate_power" in new and old.get("prior") != "inverse_frequency":
        new["base_rate_power"] = 0.0
    for name in ("weights", "backbone", "validation_fraction"):
        new[name] = old[name]
    return header | {"parameters": encode(new)}


def make_taxonomy(text: Any, most_leaves: int, because: str) -> Taxonomy:
    """Return the tree that JSON describes, unless it is larger than the tensors allow.

    Parameters
    ----------
    text : str
        The JSON.
    most_leaves : int
        How many leaves it may have.
    because : str
        Where the number comes from, for the error.
    """
    record = read_json(text)
    # Before a tree is built from it: a line of text can claim a million leaves.
    n_leaves = len(record["names"]) - len({*record["parents"]} - {-1})
    if n_leaves > most_leaves:
        raise ValueError(f"its taxonomy has {n_leaves} leaves, {because}.")
    return Taxonomy(**record)


def _set_fitted(estimator: Any, header: dict[str, Any], n_features: int) -> None:
    fitted, names = header["fitted"], header["feature_names"]
    if not isinstance(fitted, dict) or not fitted.keys() <= _FITTED_VALUES.keys():
        raise ValueError(
            f"its fitted values are {shown(fitted)}, not some of {list(_FITTED_VALUES)}."
        )
    if estimator.backbone is None and "n_features_in_" not in fitted:
        raise ValueError("it does not say n_features_in_.")
    for name, value in fitted.items():
        is_other = name == "n_features_in_" and value != n_features
        if is_other or not _FITTED_VALUES[name](value):
            raise ValueError(f"its {name} is {shown(value)}.")
        setattr(estimator, name, value)
    if names is not None:
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not is_list or len(names) != n_features:
            raise ValueError(f"its feature names are {shown(names)}, not {n_features} strings.")
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def _kinds(module: torch.nn.Module, prefix: str = "") -> Kinds:
    state = module.state_dict()
    return {f"{prefix}{name}": (value.dtype, tuple(value.shape)) for name, value in state.items()}


def _check_kinds(wanted: Kinds, found: Kinds, place: str) -> None:
    missing = sorted(wanted.keys() - found.keys())
    extra = sorted(found.keys() - wanted.keys())
    differing = [
        f"{name} {found[name]} instead of {wanted[name]}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]
    if missing or extra or differing:
        raise ValueError(
            f"The tensors of {place} do not fit its header: missing {missing[:5]}, "
            f"unexpected {extra[:5]}, of another kind {differing[:5]}. Save the model again."
        )


def _check_numbers(network: Network, place: str) -> None:
    trained = {name for name, _ in network.head.named_parameters()}
    positive = {f"head.{name}" for name in network.head.state_dict().keys() - trained}
    positive.add("feature_scale")
    for name, value in network.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{place} holds NaN or infinity in {name}, so it cannot predict.")
        if name in positive and value.is_floating_point() and not bool((value > 0).all()):
            raise ValueError(f"{place} holds zero or less in {name}, so it cannot predict.")
    with torch.inference_mode():
        log_leaves = network.head.leaf_log_probability(torch.zeros_like(network.feature_mean[None]))
    if not bool(torch.isfinite(log_leaves).all()):
        raise ValueError(f"{place} holds weights that predict NaN or infinity.")


def _describe_backbone(backbone: Backbone | None) -> dict[str, Any] | None:
    if backbone is None:
        return None
    config = {key: value for key, value in backbone.data_config.items() if is_plain(value)}
    described = {"name": backbone.name, "data_config": encode(config), "frozen": backbone.frozen}
    return described | ({"is_module": True} if backbone.is_module else {})


def _restore_backbone(
    description: dict[str, Any] | None,
    parameter: str | None,
    kinds: Kinds,
    n_features: int,
    module: torch.nn.Module | None,
) -> Backbone | None:
    name = None if description is None else description["name"]
    if name != parameter:
        raise ValueError(f"it describes the backbone {shown(name)}, and sets {shown(parameter)}.")
    if description is None or name is None:
        return None
    if description.get("is_module"):
        return _with_module(description, module)
    if ":" in name or "/" in name:
        raise ValueError(f"it names the backbone {shown(name)}, which is none of timm's own.")
    config = decode(description["data_config"])
    _check_data_config(config)
    options = {"image_size": config["input_size"][1:], "mean": config["mean"], "std": config["std"]}
    try:
        with torch.device("meta"):  # a short name can stand for billions of weights
            shapes: Any = create_backbone(name, None, **options)
    except (NotImplementedError, RuntimeError):
        shapes = None  # some models of early releases of timm cannot be built without memory
    if shapes is not None:
        wanted = _kinds(shapes, "backbone.")
        found = {key: kind for key, kind in kinds.items() if key.startswith("backbone.")}
        _check_kinds(wanted, found, f"a model with the backbone {name!r}")
    backbone = create_backbone(name, None, n_features=n_features, **options)
    backbone.data_config.update(config)
    make_transform(backbone.data_config)
    return backbone.freeze(bool(description["frozen"]))


def _with_module(description: dict[str, Any], module: torch.nn.Module | None) -> Backbone:
    """Return the module that the caller gave as a backbone; its weights come from the file."""
    name = description["name"]
    if module is None:
        raise ValueError(
            f"its backbone is a module, {shown(name)}, of which a file holds the weights and not "
            "the code. Give the module: load_model(path, backbone=module)."
        )
    config = decode(description["data_config"])
    _check_data_config(config)
    backbone = create_backbone(
        module, image_size=config["input_size"][1:], mean=config["mean"], std=config["std"]
    )
    if backbone.name != name:
        raise ValueError(
            f"its backbone is the module {shown(name)}, and the one given is {backbone.name!r}: "
            "its layers, or how features are read from them, differ."
        )
    backbone.data_config.update(config)
    make_transform(backbone.data_config)
    return backbone.freeze(bool(description["frozen"]))


def _check_data_config(config: Any) -> None:
    """Refuse what would make images of absurd size, or no numbers, out of any image."""
    channels, *sides = config["input_size"]
    statistics = [*config["mean"], *config["std"]]
    crop = config.get("crop_pct", 1)
    is_right = (
        channels == 3
        and len(sides) == 2
        and all(type(side) is int and side > 0 for side in sides)
        and len(config["mean"]) == len(config["std"]) == 3
        and all(type(value) in (int, float) and math.isfinite(value) for value in statistics)
        and min(config["std"]) > 0
        and 0.1 <= crop <= 10
        # An image is resized to this before the middle is cut out.
        and max(sides) <= _MAX_SIDE * min(crop, 1)
    )
    if not is_right:
        raise ValueError(f"its images are prepared in an impossible way, {shown(config)}.")
