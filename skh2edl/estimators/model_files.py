"""Model files: one ``.safetensors`` file whose header says everything; nothing in it is executed.

The header describes a classifier with a network, or a wrapper: its class, its parameters, what it
learnt, and its members, each described in the same way. The tensors of a member begin with its
number, arrays that a wrapper learnt with ``learned.``.
"""

from __future__ import annotations

import io
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..metrics.inputs import leaf_probabilities
from ..taxonomy.names import shown
from ..utils.files import write_atomically
from .merging import merge
from .model_card import ModelCard, copy_with_card, read_card
from .network_files import Tensors, describe_network, make_taxonomy, refused, restore_network
from .plain_values import decode, encode, is_plain, plain, plain_number
from .wrapping import TreeWrapper

# Format 2 is that of a classifier with a network; only wrappers need more.
FORMAT_VERSION = 3
FORMAT_OF_NETWORKS = 2

# Nothing in a file has the size of such a tree, so a short text could claim any.
_MOST_OWN_LEAVES = 20_000

# By name, because decisions are built on estimators.
WRAPPERS = {
    "CalibratedTreeClassifier": ".calibration",
    "CandidateClassifier": ".candidates",
    "ConformalTreeClassifier": "..decisions",
    "HedgedClassifier": "..decisions",
    "MinimumCostClassifier": "..decisions",
    "NoveltyDetector": "..decisions",
    "OpinionClassifier": ".opinion_classifier",
    "TreeEnsembleClassifier": ".ensembles",
}
# Members and the tree are described beside the parameters; the others speak of one machine or of
# the fit, which a loaded model does not repeat.
_NOT_PARAMETERS = {"estimator", "taxonomy", "cv", "n_jobs", "random_state"}


def save_model(
    estimator: Any, path: str | os.PathLike[str], *, card: ModelCard | None = None
) -> None:
    """Write a fitted classifier to one file, whole or not at all.

    Parameters
    ----------
    estimator : classifier or wrapper of this package, Pipeline or search
        Fitted. Steps of a pipeline become a part of the network, so they must be ones that it
        can hold: ImageFeatureExtractor and StandardScaler.
    path : path
        The file; ``.safetensors`` is its customary ending.
    card : ModelCard, default=None
        What the command line notes about the model; in the file from the first moment.

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
    model = merge(estimator)
    is_wrapper = isinstance(model, TreeWrapper)
    header, state = _describe(model)
    header = {
        "format_version": FORMAT_VERSION if is_wrapper else FORMAT_OF_NETWORKS,
        **header,
        "versions": versions(),
    }
    text = json.dumps(header, default=plain_number)
    content = to_bytes(state, metadata={"skh2edl": text})

    def write(file: BinaryIO) -> None:
        if card is None:
            file.write(content)
        else:
            copy_with_card(io.BytesIO(content), file, card)

    write_atomically(Path(path), write)


def load_model(path: str | os.PathLike[str], *, backbone: torch.nn.Module | None = None) -> Any:
    """Read a classifier or wrapper that its method `save` wrote.

    Nothing in the file is executed, and everything in it is checked.

    Parameters
    ----------
    path : path
        The file.
    backbone : nn.Module, default=None
        The backbone of a model that was trained with a module, as it was given then; its weights
        come from the file. Others need none.

    Returns
    -------
    estimator : classifier
        Fitted; it predicts the same bits as the one that was saved. The estimator of a loaded
        wrapper is frozen: its `fit` takes held-out data and calibrates anew.

    Examples
    --------
    >>> from skh2edl import load_model
    >>> load_model("no-such-model.safetensors")
    Traceback (most recent call last):
    FileNotFoundError: There is no model file 'no-such-model.safetensors'.
    """
    place = repr(os.fspath(path))
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no model file {place}.")
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            header = _read_header(file.metadata() or {}, place)
            return _restore(header, Tensors.of_file(file), place, backbone)
    except SafetensorError as error:
        raise ValueError(
            f"{place} is not a safetensors file or is damaged ({error}). Copy or save it again."
        ) from error


def load_classifier(path: str | os.PathLike[str]) -> tuple[Any, ModelCard]:
    """Read a classifier with a network, and its card, for the commands and the web page.

    These set the options of the network and the hedge of the card, so they take no wrapper, which
    has a rule of its own.

    Parameters
    ----------
    path : path
        The model file.

    Returns
    -------
    estimator : classifier
        Fitted.
    card : ModelCard
        What the command line noted about it.
    """
    model = load_model(path)
    if isinstance(model, TreeWrapper):
        is_several = hasattr(model, "estimators_")
        inside = "one of its estimators_" if is_several else "its estimator_"
        raise TypeError(
            f"{os.fspath(path)!r} holds a {type(model).__name__}, and this needs a classifier "
            f"without a wrapper. Use it in Python with load_model, or save {inside} and calibrate "
            "that file with skh2edl calibrate."
        )
    return model, read_card(path)


def _describe(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors of a classifier or wrapper."""
    if not isinstance(model, TreeWrapper):
        return describe_network(model)
    name, members = type(model).__name__, model._inner()
    if name not in WRAPPERS or type(model) is not _wrapper_class(name):
        raise TypeError(
            f"{name} is not a wrapper of this package, so no file could bring it back. Save one of "
            f"{', '.join(WRAPPERS)}, or use joblib.dump."
        )
    model._check_learned()
    parameters = {
        key: plain(value)
        for key, value in model.get_params(deep=False).items()
        if key not in _NOT_PARAMETERS
    }
    for key, value in parameters.items():
        if not is_plain(value):
            raise TypeError(
                f"The parameter {key} of {name} is a {type(value).__name__}, and a file holds "
                "numbers, strings, lists and dicts. Give such a value (for costs, the array "
                "cost_matrix_), or use joblib.dump."
            )
    learned = {key: getattr(model, key, None) for key in model._learned}
    arrays = {key: value for key, value in learned.items() if isinstance(value, np.ndarray)}
    described = [_describe(member) for member in members]
    tree = model.taxonomy_
    own_tree = any(member.taxonomy_ != tree for member in members)
    if own_tree and tree.n_leaves > _MOST_OWN_LEAVES:
        raise ValueError(
            f"{name} has a taxonomy of {tree.n_leaves} leaves that is not its estimator's, and a "
            f"file holds one of {_MOST_OWN_LEAVES}. Give the estimator itself the taxonomy."
        )
    header = {
        "class": name,
        "parameters": encode(parameters),
        "taxonomy": tree.to_json() if own_tree else None,
        "learned": {key: encode(value) for key, value in learned.items() if key not in arrays},
        "members": [header for header, _ in described],
    }
    state = {
        f"learned.{key}": torch.from_numpy(np.array(value, order="C"))
        for key, value in arrays.items()
    }
    for number, (_, tensors) in enumerate(described):
        state |= {f"{number}.{key}": value for key, value in tensors.items()}
    return header, state


def _restore(header: Any, tensors: Tensors, place: str, module: torch.nn.Module | None) -> Any:
    """Return the classifier or wrapper that a header describes."""
    if not isinstance(header, dict) or "members" not in header:
        return restore_network(header, tensors, place, module)
    described = header["members"]
    if not isinstance(described, list):
        raise refused(ValueError(f"its members are {shown(described)}, not a list."), place)
    known = {"learned", *map(str, range(len(described)))}
    if unknown := sorted({name.partition(".")[0] for name in tensors.kinds} - known):
        raise refused(ValueError(f"it has tensors of no member, {shown(unknown[:5])}."), place)
    try:
        members = [
            _restore(member, tensors.under(f"{number}."), place, module)
            for number, member in enumerate(described)
        ]
    except RecursionError as error:
        raise refused(error, place) from error
    try:
        return _restore_wrapper(header, members, tensors.under("learned."))
    except Exception as error:  # parameters and arrays may be of any kind
        raise refused(error, place) from error


def _restore_wrapper(header: dict[str, Any], members: list[Any], tensors: Tensors) -> Any:
    """Return the wrapper of members that were checked."""
    parameters = decode(header["parameters"])
    if forbidden := sorted(_NOT_PARAMETERS & parameters.keys()):
        raise ValueError(f"it sets {', '.join(forbidden)}, which no saved model does.")
    wrapper = _wrapper_class(header["class"])(members[0], **parameters)
    wrapper._set_inner(members)
    text = header["taxonomy"]
    if text is not None:
        because = f"and that of a wrapper may have {_MOST_OWN_LEAVES}"
        wrapper.taxonomy = make_taxonomy(text, _MOST_OWN_LEAVES, because)
    wrapper._validate_params()
    wrapper._take_over(members[0], wrapper.taxonomy)
    tree = wrapper.taxonomy_
    for member in members:
        classes = member.classes_.tolist()
        # Refuses classes that the tree does not name.
        leaf_probabilities(np.full((1, len(classes)), 1 / len(classes)), tree, classes)
    learned = header["learned"]
    names = wrapper._learned.keys()
    if learned.keys() | tensors.kinds.keys() != names or learned.keys() & tensors.kinds.keys():
        raise ValueError(f"it says {sorted(learned)} was learnt, not {sorted(names)}.")
    values = {name: decode(value) for name, value in learned.items()}
    values |= {name: tensors.read(name).numpy() for name in tensors.kinds}
    for name in names:  # in the order in which they are checked
        if values[name] is not None:
            setattr(wrapper, name, values[name])
    wrapper._check_learned()
    wrapper._derive()
    return wrapper


def _wrapper_class(name: Any) -> Any:
    if not isinstance(name, str) or name not in WRAPPERS:
        raise ValueError(
            f"it names the wrapper {shown(name)}, and this release knows {', '.join(WRAPPERS)}."
        )
    return getattr(import_module(WRAPPERS[name], __package__), name)


def _read_header(metadata: dict[str, str], place: str) -> dict[str, Any]:
    if "skh2edl" not in metadata:
        raise ValueError(
            f"{place} is a safetensors file without a model of this package. Give it as "
            "weights= if it holds the weights of a backbone."
        )
    try:
        header = json.loads(metadata["skh2edl"])
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"The header of {place} is damaged ({error}).") from error
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"{place} has model format {shown(version)}, and this release reads up to "
            f"{FORMAT_VERSION}. "
            f"It was written with {shown(header.get('versions'))}; install that release of skh2edl "
            "or a newer one."
        )
    checked: dict[str, Any] = header
    return checked


def versions() -> dict[str, str]:
    """Return the releases that a file was made with."""
    import sklearn
    import timm

    from .. import __version__

    return {
        "skh2edl": __version__,
        "torch": str(torch.__version__),
        "timm": timm.__version__,
        "scikit-learn": sklearn.__version__,
    }
