"""How a network is trained and where: parameters that most users leave alone, in objects."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import joblib
import torch
from sklearn.base import BaseEstimator

from ..heads.prior import Prior
from ..utils.sklearn_tools import Interval, StrOptions
from .devices import ACCELERATORS


@dataclass(repr=False, kw_only=True)
class Recipe(BaseEstimator):
    """How a network is trained, beside its epochs, batch size and learning rate.

    Two recipes have a name, which a classifier takes in place of the object:

    - "fine_grained" is ``Recipe()``, the default: AdamW at one learning rate for the whole
      network. It is the simplest within a point of the best for Flat-CE on validation images.
    - "paper" is ``Recipe(backbone_lr_scale=0.1)``. The paper states AdamW, 100 epochs and the
      selection by balanced accuracy; the rest, as the backbone's learning rate, is our choice.

    A search can vary the recipe and its parameters: ``{"recipe": ["paper", "fine_grained"]}`` or
    ``{"recipe__weight_decay": [0.01, 0.1], "learning_rate": [1e-3, 3e-4]}``.

    Parameters
    ----------
    optimizer : {"adamw", "sgd"}, default="adamw"
        "sgd" has Nesterov's momentum of 0.9 and wants a larger `learning_rate`, such as 0.03.
    weight_decay : float, default=0.05
        Of the optimiser; biases and normalisations have none.
    warmup_epochs : float, default=0.0
        Epochs over which the learning rate rises, before a cosine takes it to 0.
    backbone_lr_scale : float, default=1.0
        Learning rate of the backbone over that of the head.
    layer_decay : float, default=None
        Factor of the learning rate from each layer of the backbone to the one below it; None
        gives all layers one rate.
    clip_norm : float, default=1.0
        Largest norm of the gradient; None does not clip.
    ema_decay : float, default=None
        Decay of the running mean of the weights, which is then the model; None keeps none.
    augmentation : str, mapping or callable, default="timm"
        Of training images: "none", "timm" (random crop and flip), "randaugment", any
        ``auto_augment`` string of timm, options of ``timm.data.create_transform``, or a function
        that takes an RGB image of PIL and returns one.
    selection : str or callable, default="balanced_accuracy"
        Score that chooses the epoch to keep, on the leaves of the validation samples: "accuracy",
        "balanced_accuracy", "neg_log_loss", "neg_brier_score", "neg_ece", another name of
        scikit-learn's scorers, or a scorer.
    patience : int, default=None
        Epochs without a better score after which training stops; None trains to the end.

    Examples
    --------
    >>> from skh2edl import H2EDLClassifier, Recipe
    >>> clf = H2EDLClassifier(recipe=Recipe(weight_decay=0.01))
    >>> clf.set_params(recipe__clip_norm=None).recipe
    Recipe(clip_norm=None, weight_decay=0.01)
    >>> H2EDLClassifier(recipe="paper").set_params(recipe__clip_norm=None).recipe
    Recipe(backbone_lr_scale=0.1, clip_norm=None)
    """

    optimizer: str = "adamw"
    weight_decay: float = 0.05
    warmup_epochs: float = 0.0
    backbone_lr_scale: float = 1.0
    layer_decay: float | None = None
    clip_norm: float | None = 1.0
    ema_decay: float | None = None
    augmentation: str | Mapping[str, Any] | Callable[..., Any] = "timm"
    selection: str | Callable[..., float] = "balanced_accuracy"
    patience: int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "optimizer": [StrOptions({"adamw", "sgd"})],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "warmup_epochs": [Interval(Real, 0, None, closed="left")],
        "backbone_lr_scale": [Interval(Real, 0, None, closed="neither")],
        "layer_decay": [Interval(Real, 0, 1, closed="right"), None],
        "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
        "ema_decay": [Interval(Real, 0, 1, closed="neither"), None],
        "augmentation": [str, dict, callable],
        "selection": [str, callable],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
    }


@dataclass(repr=False, kw_only=True)
class Hardware(BaseEstimator):
    """Where a network is trained: devices as in Lightning Fabric, processes and folders.

    Parameters
    ----------
    accelerator : {"auto", "cpu", "gpu", "cuda", "mps"}, default="auto"
        "gpu" is CUDA or Apple's MPS, "auto" the best there is. Predictions use it too, or the
        processor where it is absent.
    devices : int, str or list of int, default=1
        Devices to train on; their number does not change what is learnt.
    strategy : str, default="auto"
        Who starts the processes of several devices: a script or ``torchrun`` ("ddp"), or a
        notebook ("ddp_notebook").
    precision : {"auto", "32-true", "bf16-mixed", "16-mixed"}, default="auto"
        Arithmetic of the backbone in a fit; "auto" is bfloat16 on a GPU that computes in it.
        Predictions are computed in single precision.
    compile : bool, default=False
        Whether to run the network through ``torch.compile``.
    n_workers : int, default=None
        Processes that decode images; None chooses.
    checkpoint_dir : path, default=None
        Folder of a checkpoint after each epoch: the same call of `fit` resumes from it.
    memory : str or joblib.Memory, default=None
        Where the features of a frozen backbone are kept, image by image.

    Examples
    --------
    >>> from skh2edl import H2EDLClassifier, Hardware
    >>> clf = H2EDLClassifier(hardware=Hardware(devices=4, strategy="ddp"))
    """

    accelerator: str = "auto"
    devices: int | str | list[int] = 1
    strategy: str = "auto"
    precision: str = "auto"
    compile: bool = False
    n_workers: int | None = None
    checkpoint_dir: str | os.PathLike[str] | None = None
    memory: str | joblib.Memory | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "accelerator": [StrOptions(set(ACCELERATORS))],
        "devices": [str, Integral, list],
        "strategy": [str],
        "precision": [StrOptions({"auto", "32-true", "bf16-mixed", "16-mixed"})],
        "compile": ["boolean"],
        "n_workers": [Interval(Integral, 0, None, closed="left"), None],
        "checkpoint_dir": [str, os.PathLike, None],
        "memory": [str, joblib.Memory, None],
    }


# Recipes by name. The paper states AdamW, its epochs and the selection; the rest is our choice.
RECIPES: dict[str, dict[str, Any]] = {
    "fine_grained": {},
    "paper": {"backbone_lr_scale": 0.1},
}


# Priors by name.
PRIORS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "inverse_frequency": {"power": 1.0},  # the paper's base-rate variant
}
# Parameter of a classifier that takes an object with parameters of its own -> the class of that
# object, and the objects that have a name.
SETTINGS: dict[str, type[BaseEstimator]] = {"recipe": Recipe, "hardware": Hardware, "prior": Prior}
NAMED_SETTINGS = {"recipe": RECIPES, "hardware": {}, "prior": PRIORS}


def resolve_settings(parameter: str, value: Any) -> Any:
    """Return the recipe, hardware or prior that a parameter means: None means the default one.

    Parameters
    ----------
    parameter : {"recipe", "hardware", "prior"}
        Name of the classifier's parameter.
    value : object, str or None
        Its value.

    Examples
    --------
    >>> resolve_settings("recipe", "paper").backbone_lr_scale
    0.1
    >>> resolve_settings("hardware", None)
    Hardware()
    """
    kind, named = SETTINGS[parameter], NAMED_SETTINGS[parameter]
    if isinstance(value, kind):
        return value
    if value is None:
        return kind()
    if isinstance(value, str) and value in named:
        return kind(**named[value])
    others = f"or one of {list(named)}" if named else "or None"
    raise ValueError(f"{parameter} must be a {kind.__name__} {others}, got {value!r}.")


def resolve_precision(precision: str) -> str:
    """Choose the precision for "auto": bfloat16 where the hardware computes in it.

    Examples
    --------
    >>> resolve_precision("bf16-mixed")
    'bf16-mixed'
    """
    if precision != "auto":
        return precision
    # Without native bfloat16 a processor is many times slower with it than without.
    return (
        "bf16-mixed" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "32-true"
    )
