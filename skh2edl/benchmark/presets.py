"""Named combinations of data and protocol, as the command line offers them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from ..datasets import (
    LabelledImages,
    load_cub,
    load_derm12345,
    load_fgvc_aircraft,
    load_grocery_store,
    make_glyphs,
)
from .experiment import Experiment
from .protocols import QUICK, finetuned_protocol, frozen_protocol

LOADERS: dict[str, Callable[..., LabelledImages]] = {
    "grocery_store": load_grocery_store,
    "fgvc_aircraft": load_fgvc_aircraft,
    "derm12345": load_derm12345,
    "cub_birds": load_cub,
}
DATASETS = (*LOADERS, "glyphs")
PRESETS = ("paper", "study", "quick")
# Epochs of the paper's runs with coarse labels.
_COARSE_EPOCHS = 40

# Fits one core and a few seconds: two scripts with many shapes in common, and a small network at
# the images' own size. The learning rate is the best of Flat-CE on validation images.
_SMALL_GLYPHS: dict[str, Any] = {
    "n_samples": 2500,
    "scripts": ("Latin", "Greek"),
    "image_size": 24,
}
_GLYPHS = {"paper": {"n_samples": 20_000}, "study": _SMALL_GLYPHS, "quick": _SMALL_GLYPHS}
_GLYPH_NETWORK = "test_resnet"
_GLYPH_EPOCHS = 10
_GLYPH_RECIPE: dict[str, Any] = {
    "image_size": 24,
    "learning_rate": 0.01,
    "recipe__augmentation": "none",
    "recipe__backbone_lr_scale": 1.0,
    "recipe__warmup_epochs": 1.0,
}


def load_dataset(
    dataset: str, root: str | os.PathLike[str] | None = None, preset: str = "paper"
) -> LabelledImages:
    """Load a data set by its name.

    Parameters
    ----------
    dataset : {"grocery_store", "fgvc_aircraft", "derm12345", "cub_birds", "glyphs"}
        The name.
    root : path, default=None
        Folder of the data; the glyphs need none.
    preset : {"paper", "study", "quick"}, default="paper"
        Which glyphs to draw: 197 characters of four scripts, or 101 of two.

    Returns
    -------
    data : LabelledImages

    Examples
    --------
    >>> from skh2edl.benchmark import load_dataset
    >>> load_dataset("glyphs", preset="quick")
    LabelledImages('glyphs': 2500 images (1750 train, 250 val, 500 test), 101 leaves)
    """
    _check(dataset, preset)
    if dataset == "glyphs":
        return make_glyphs(**_GLYPHS[preset], random_state=0)
    if root is None:
        raise ValueError(f"{dataset} is read from a folder: name it as root.")
    return LOADERS[dataset](root)


def preset_experiments(
    dataset: str,
    preset: str,
    *,
    backbone: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    tables: Collection[str] | None = None,
    frozen: bool | None = None,
    epochs: int | None = None,
    seeds: Sequence[int] | None = None,
    methods: Collection[str] | None = None,
    image_size: int | None = None,
) -> list[Experiment]:
    """List the experiments of a preset.

    Parameters
    ----------
    dataset : {"grocery_store", "fgvc_aircraft", "derm12345", "cub_birds", "glyphs"}
        The data.
    preset : {"paper", "study", "quick"}
        "paper" is the paper's protocol: ResNet-50 fine-tuned for 100 epochs with the recipe
        "paper", 40 with coarse labels. "study" has all methods and tables with heads on frozen
        features, or with a small network trained from scratch on the glyphs. "quick" is one seed
        of three methods.
    backbone : str, default=None
        Network; None means ResNet-50, EfficientNet-lite0 for "quick", or a small one for glyphs.
    weights : path or "none", default=None
        File of its weights, or "none" for random weights; None means timm's own, or random
        weights for the glyphs.
    tables : collection of str, default=None
        Tables to run the experiments of, as in :func:`finetuned_protocol`; None means all, or
        those of the main runs for "quick".
    frozen : bool, default=None
        Whether to fit heads on frozen features of the network, or to train the whole network;
        None means what the preset says.
    epochs : int, default=None
        Epochs of training, at most 40 of them with coarse labels for "paper"; None means the
        preset's. Heads on frozen features are trained in epochs for the budget table alone.
    seeds : sequence of int, default=None
        Seeds; None means the preset's.
    methods : collection of str, default=None
        Rows of the tables; None means the preset's.
    image_size : int, default=None
        Side of the images in pixels; None means the network's own. Not for frozen features.

    Returns
    -------
    experiments : list of Experiment

    Examples
    --------
    >>> from skh2edl.benchmark import preset_experiments
    >>> [run.method for run in preset_experiments("glyphs", "quick")]
    ['Flat-CE', 'Hier-CE', 'H2EDL']
    >>> sorted({run.epochs for run in preset_experiments("fgvc_aircraft", "paper")})
    [40, 100, 200]
    >>> preset_experiments("glyphs", "quick", frozen=True)[0].features
    'tf_efficientnet_lite0'
    """
    _check(dataset, preset)
    random = str(weights) == "none" or (weights is None and dataset == "glyphs" and not frozen)
    start = None if random else "pretrained" if weights is None else Path(weights).stem
    options: dict[str, Any] = {"weights": start, "tables": tables}
    if preset == "quick":
        options |= {"methods": QUICK, "seeds": (0,), "tables": tables or ("main",)}
    given = {"epochs": epochs, "seeds": seeds, "methods": methods}
    options |= {name: value for name, value in given.items() if value is not None}
    if frozen is None:
        frozen = preset != "paper" and dataset != "glyphs"
    if frozen:
        if image_size is not None:
            raise ValueError(
                f"image_size={image_size} is for networks that are trained; frozen features are "
                "those of the network's own size."
            )
        if preset == "quick":
            options["l2_grid"] = (0.01, 0.001)
        usual = "tf_efficientnet_lite0" if preset == "quick" else "resnet50"
        return frozen_protocol(dataset, backbone or usual, **options)
    recipe: dict[str, Any] = {} if image_size is None else {"image_size": image_size}
    if dataset == "glyphs" and preset != "paper":
        options.setdefault("epochs", _GLYPH_EPOCHS)
        recipe = {**_GLYPH_RECIPE, **recipe}
        return finetuned_protocol(dataset, backbone or _GLYPH_NETWORK, parameters=recipe, **options)
    if preset == "paper":
        recipe["recipe"] = "paper"
        options["coarse_epochs"] = min(_COARSE_EPOCHS, options.get("epochs", _COARSE_EPOCHS))
    return finetuned_protocol(dataset, backbone or "resnet50", parameters=recipe, **options)


def _check(dataset: str, preset: str) -> None:
    if dataset not in DATASETS:
        raise ValueError(f"dataset must be one of {DATASETS}, got {dataset!r}.")
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {PRESETS}, got {preset!r}.")
