"""How a network is trained and where: parameters that most users leave alone, in two objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from sklearn.base import BaseEstimator

from ..utils.sklearn_tools import Interval, StrOptions
from .devices import ACCELERATORS


class Recipe(BaseEstimator):
    """How a network is trained, beside its epochs, batch size and learning rate.

    Its parameters are reachable from a search: ``{"recipe__weight_decay": [0.01, 0.1]}``.

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
    """

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

    def __init__(
        self,
        *,
        optimizer: str = "adamw",
        weight_decay: float = 0.05,
        warmup_epochs: float = 0.0,
        backbone_lr_scale: float = 1.0,
        layer_decay: float | None = None,
        clip_norm: float | None = 1.0,
        ema_decay: float | None = None,
        augmentation: str | Mapping[str, Any] | Callable[..., Any] = "timm",
        selection: str | Callable[..., float] = "balanced_accuracy",
        patience: int | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.warmup_epochs = warmup_epochs
        self.backbone_lr_scale = backbone_lr_scale
        self.layer_decay = layer_decay
        self.clip_norm = clip_norm
        self.ema_decay = ema_decay
        self.augmentation = augmentation
        self.selection = selection
        self.patience = patience


class Hardware(BaseEstimator):
    """Where a network is trained, as in Lightning Fabric.

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

    Examples
    --------
    >>> from skh2edl import H2EDLClassifier, Hardware
    >>> clf = H2EDLClassifier(hardware=Hardware(devices=4, strategy="ddp"))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "accelerator": [StrOptions(set(ACCELERATORS))],
        "devices": [str, Integral, list],
        "strategy": [str],
        "precision": [StrOptions({"auto", "32-true", "bf16-mixed", "16-mixed"})],
        "compile": ["boolean"],
    }

    def __init__(
        self,
        *,
        accelerator: str = "auto",
        devices: int | str | list[int] = 1,
        strategy: str = "auto",
        precision: str = "auto",
        compile: bool = False,
    ) -> None:
        self.accelerator = accelerator
        self.devices = devices
        self.strategy = strategy
        self.precision = precision
        self.compile = compile


# Recipes by name. The paper states AdamW, its epochs and the selection; the rest is our choice.
RECIPES: dict[str, dict[str, Any]] = {
    "fine_grained": {},
    "paper": {"backbone_lr_scale": 0.1},
}


def find_recipe(recipe: Recipe | str | None) -> Recipe:
    """Return the recipe itself: None means "fine_grained", the defaults of :class:`Recipe`.

    Parameters
    ----------
    recipe : Recipe, str or None
        A recipe, or the name of one in `RECIPES`.

    Examples
    --------
    >>> find_recipe("paper").backbone_lr_scale
    0.1
    """
    if isinstance(recipe, Recipe):
        return recipe
    name = "fine_grained" if recipe is None else recipe
    if name not in RECIPES:
        raise ValueError(f"recipe must be a Recipe or one of {list(RECIPES)}, got {recipe!r}.")
    return Recipe(**RECIPES[name])


def find_hardware(hardware: Hardware | None) -> Hardware:
    """Return the hardware itself; None means one device, the best there is.

    Parameters
    ----------
    hardware : Hardware or None
        Where to train.
    """
    if hardware is not None and not isinstance(hardware, Hardware):
        raise ValueError(
            f"hardware must be a Hardware, such as Hardware(devices=2), got {hardware!r}."
        )
    return Hardware() if hardware is None else hardware


# Parameter of a classifier -> the object that groups parameters.
GROUPS: dict[str, type[Recipe] | type[Hardware]] = {"recipe": Recipe, "hardware": Hardware}


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
