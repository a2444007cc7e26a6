"""Model files: one ``.safetensors`` file whose header says everything; nothing in it is executed.

The header's JSON holds the class name (looked up in a fixed list), the parameters, the taxonomy,
the backbone's data configuration and the versions. The tensors are the network's state.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from .backbones import Backbone, create_backbone
from .checkpoints import write_atomically
from .network import Network
from .taxonomy import Taxonomy

FORMAT_VERSION = 1
_READ_OUT = "head.linear.weight"

# Class name in a file -> the module that defines it: a file cannot ask for anything else.
MODEL_CLASSES = {
    "H2EDLClassifier": "h2edl",
    "FlatCEClassifier": "baselines",
    "HierCEClassifier": "baselines",
    "FlatEDLClassifier": "evidential_baselines",
    "IEDLClassifier": "evidential_baselines",
    "REDLClassifier": "evidential_baselines",
    "HENNClassifier": "evidential_baselines",
    "HXEClassifier": "baselines",
    "SoftLabelClassifier": "baselines",
}
# They speak of the machine that trained the model, not of the model.
_LEFT_OUT = {"taxonomy", "checkpoint_dir", "memory"}
_FITTED_VALUES = ("n_iter_", "n_features_in_", "best_epoch_", "best_score_", "history_")


def save_model(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted classifier to one file, whole or not at all.

    Parameters
    ----------
    estimator : classifier of this package
        Fitted.
    path : path
        The file; ``.safetensors`` is its customary ending.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import H2EDLClassifier, load_model
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = H2EDLClassifier(backbone=None).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(f"{folder}/iris.safetensors")
    ...     same = load_model(f"{folder}/iris.safetensors")
    >>> bool((same.predict_proba(X) == clf.predict_proba(X)).all())
    True
    """
    network = estimator.network_
    names = getattr(estimator, "feature_names_in_", None)
    parameters = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in _LEFT_OUT and _is_plain(value)
    }
    header = {
        "format_version": FORMAT_VERSION,
        "class": type(estimator).__name__,
        "parameters": _encode(parameters),
        "taxonomy": estimator.taxonomy_.to_json(),
        "given_taxonomy": estimator.taxonomy is not None,
        "fitted": {
            name: getattr(estimator, name) for name in _FITTED_VALUES if hasattr(estimator, name)
        },
        "feature_names": None if names is None else [str(name) for name in names],
        "backbone": _describe_backbone(network.backbone),
        "versions": versions(),
    }
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    text = json.dumps(header, default=_plain_number)
    content = to_bytes(state, metadata={"skh2edl": text})
    write_atomically(Path(path), lambda file: file.write(content))


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a classifier that :meth:`H2EDLClassifier.save` (or a rival's) wrote.

    Nothing in the file is executed, and everything in it is checked.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    estimator : classifier
        Fitted; it predicts the same bits as the one that was saved.

    Examples
    --------
    >>> from skh2edl import load_model
    >>> load_model("no-such-model.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: There is no model file 'no-such-model.safetensors'.
    """
    shown = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no model file {shown!r}.")
    try:
        with safe_open(shown, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = file.keys()
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in tensors}
            header = _read_header(metadata, shown)
            estimator, network = _rebuild(header, shapes, shown)
            state = {name: file.get_tensor(name) for name in tensors}
    except SafetensorError as error:
        raise ValueError(
            f"{shown!r} is not a safetensors file or is damaged ({error}). Copy or save it again."
        ) from error
    for name, value in state.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{shown!r} holds NaN or infinity in {name}, so it cannot predict.")
    if state[_READ_OUT].dtype == torch.float64:
        network.double()
    network.load_state_dict(state)
    estimator.network_ = network.eval()
    return estimator


def _rebuild(header: dict[str, Any], shapes: dict[str, Any], shown: str) -> tuple[Any, Network]:
    """Make the unfitted estimator and a network of the shapes in the file."""
    try:
        module = import_module(f"{__package__}.{MODEL_CLASSES[header['class']]}")
        estimator = getattr(module, header["class"])(**_decode(header["parameters"]))
        estimator._validate_params()
        taxonomy = Taxonomy.from_json(header["taxonomy"])
        if header["given_taxonomy"]:
            estimator.taxonomy = taxonomy
        estimator.taxonomy_ = taxonomy
        estimator.classes_ = taxonomy.sorted_leaf_labels
        for name in _FITTED_VALUES:
            if name in header["fitted"]:
                setattr(estimator, name, header["fitted"][name])
        if header["feature_names"] is not None:
            estimator.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
        n_features = shapes[_READ_OUT][1]
        everywhere = np.ones(taxonomy.n_nodes)
        with torch.device("meta"):  # shapes without memory: the file may claim anything
            head = estimator._make_head(taxonomy, n_features, everywhere)
        wanted = {f"head.{name}": tuple(value.shape) for name, value in head.state_dict().items()}
        _check_shapes(wanted, {k: v for k, v in shapes.items() if k.startswith("head.")}, shown)
        backbone = _restore_backbone(header["backbone"])
        network = Network(backbone, estimator._make_head(taxonomy, n_features, everywhere))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"The header of {shown!r} is not that of a model of this package: "
            f"{type(error).__name__} {error}."
        ) from error
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    _check_shapes(wanted, shapes, shown)
    return estimator, network


def _check_shapes(wanted: dict[str, Any], found: dict[str, Any], shown: str) -> None:
    missing = sorted(wanted.keys() - found.keys())
    extra = sorted(found.keys() - wanted.keys())
    differing = [
        f"{name} {found[name]} instead of {wanted[name]}"
        for name in sorted(wanted.keys() & found.keys())
        if wanted[name] != found[name]
    ]
    if missing or extra or differing:
        raise ValueError(
            f"The tensors of {shown!r} do not fit its header: missing {missing[:5]}, "
            f"unexpected {extra[:5]}, of another shape {differing[:5]}. Save the model again."
        )


def _read_header(metadata: dict[str, str], shown: str) -> dict[str, Any]:
    if "skh2edl" not in metadata:
        raise ValueError(
            f"{shown!r} is a safetensors file without a model of this package. Give it as "
            "weights= if it holds the weights of a backbone."
        )
    try:
        header = json.loads(metadata["skh2edl"])
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"The header of {shown!r} is damaged ({error}).") from error
    if version != FORMAT_VERSION:
        written_by = header.get("versions", {})
        raise ValueError(
            f"{shown!r} has model format {version!r}, and this release reads {FORMAT_VERSION}. It "
            f"was written with {written_by}; install that release of skh2edl or a newer one."
        )
    checked: dict[str, Any] = header
    return checked


def _describe_backbone(backbone: Backbone | None) -> dict[str, Any] | None:
    if backbone is None:
        return None
    config = {key: value for key, value in backbone.data_config.items() if _is_plain(value)}
    return {"name": backbone.name, "data_config": _encode(config), "frozen": backbone.frozen}


def _restore_backbone(description: dict[str, Any] | None) -> Backbone | None:
    if description is None:
        return None
    config = _decode(description["data_config"])
    name = description["name"]
    if ":" in name or "/" in name:
        raise ValueError(f"The file names the backbone {name!r}, which is none of timm's own.")
    backbone = create_backbone(
        name,
        None,
        image_size=tuple(config["input_size"][-2:]),
        mean=config["mean"],
        std=config["std"],
    )
    backbone.data_config.update(config)
    return backbone.freeze(bool(description["frozen"]))


def versions() -> dict[str, str]:
    """Return the releases that a file was made with."""
    import sklearn
    import timm

    from . import __version__

    return {
        "skh2edl": __version__,
        "torch": str(torch.__version__),
        "timm": timm.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _is_plain(value: Any) -> bool:
    """Tell whether JSON can hold a value; a scorer, for example, is left to its default."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, (str, bool, int, float, np.number, np.bool_))


def _encode(value: Any) -> Any:
    """Mark what JSON would not give back as it was: tuples, and keys that are no strings."""
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[_encode(key), _encode(item)] for key, item in value.items()]}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if "tuple" in value:
            return tuple(_decode(item) for item in value["tuple"])
        return {_decode(key): _decode(item) for key, item in value["dict"]}
    return value


def _plain_number(value: Any) -> Any:
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    raise TypeError(f"{value!r} cannot be written to a model file.")
