"""Lists of experiments: the paper's protocol, the same on frozen features, and named presets."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import datasets, estimators
from ..datasets import DATASETS, LabelledImages
from ..estimators.h2edl import PAPER, VARIANTS
from .records import Experiment

Rows = dict[str, tuple[str, dict[str, Any]]]

# Row -> class, and parameters that differ from its defaults. Every table has all of them: the
# baselines, then the paper's four variants of H2EDL and the default.
METHODS: Rows = {
    **{name: (kind, {}) for name, kind in estimators.METHODS.items() if name != "H2EDL"},
    **{f"H2EDL, {name}": ("H2EDLClassifier", dict(own)) for name, own in VARIANTS.items()},
    "H2EDL": ("H2EDLClassifier", {}),
}
# On frozen features only: H2EDL with its default parameters.
UNTOUCHED = "H2EDL, nothing chosen"

# Further rows of the constants' table: what a method's own paper has where our default differs.
# They share the annealing of Sensoy et al.: the whole KL after 10 of 100 epochs.
_PUBLISHED = {**PAPER, "kl_ramp": 0.1}
AS_PUBLISHED = ", as published"  # end of the names of rows with all published constants
CONSTANTS: Rows = {
    "Flat-EDL, as published": ("FlatEDLClassifier", {**_PUBLISHED, "evidence": "relu"}),
    "HENN, as published": ("HENNClassifier", _PUBLISHED),
    "I-EDL, c = 0.05": ("IEDLClassifier", {"fisher_weight": 0.05}),
    "I-EDL, as published": ("IEDLClassifier", {**_PUBLISHED, "fisher_weight": 0.05}),
    "R-EDL, as published": ("REDLClassifier", _PUBLISHED),
    "Re-EDL, as published": ("ReEDLClassifier", {"evidence_scale": 1.0}),
    "H2EDL, plain, as published": ("H2EDLClassifier", {**PAPER, **VARIANTS["plain"]}),
}
# Treatments of ancestor labels; without such labels they are one method.
TREATMENTS = ("marginal", "soft", "drop")
COARSENED: Rows = {
    **{f"Flat-CE, {how}": ("FlatCEClassifier", {"partial_labels": how}) for how in TREATMENTS},
    **{name: row for name, row in METHODS.items() if name != "Flat-CE"},
}
# Rows of the preset "quick": the two references and the method.
QUICK = ("Flat-CE", "Hier-CE", "H2EDL")

# Those of the paper.
FRACTIONS = (0.25, 0.5, 0.75)
# Penalties of frozen heads: a decade on either side of the default, and two more below it.
L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
SEEDS = (0, 1, 2)  # for a standard deviation and a paired test
# Table -> the runs that it is made from, in the order in which they are run.
TABLES: dict[str, tuple[str, ...]] = {
    "main": ("main",),
    "levels": ("main",),
    "severity": ("main",),
    "descent": ("main",),
    "consistency": ("main",),
    "ablation": ("main",),
    "uncertainty": ("main",),
    "calibration": ("main",),
    "constants": ("main", "constants"),
    "budget": ("budget",),
    "coarsened": ("coarsened",),
}


def base_of(name: str) -> str:
    """Return the method that a row is a form of, as `methods` of the protocols names it.

    Parameters
    ----------
    name : str
        A row of any table.
    """
    return max((each for each in METHODS if name.startswith(each)), key=len)


def frozen_protocol(
    dataset: str,
    features: str,
    *,
    weights: str | None = "pretrained",
    seeds: Sequence[int] = SEEDS,
    l2_grid: Sequence[float] = L2_GRID,
    epochs: int = 100,
    methods: Collection[str] | None = None,
    tables: Collection[str] | None = None,
) -> list[Experiment]:
    """List the experiments on the frozen features of one network.

    Heads are fitted until they converge. For every method, seed and fraction of coarse labels the
    L2 penalty is chosen from one grid on the validation images. A seed draws a random nine tenths
    of the training images. For the budget table the heads are trained with AdamW in epochs.

    Parameters
    ----------
    dataset : str
        Name of the data.
    features : str
        The network.
    weights : str, default="pretrained"
        Its weights, as in :class:`Experiment`.
    seeds : sequence of int, default=(0, 1, 2)
        Seeds.
    l2_grid : sequence of float
        Penalties to choose from.
    epochs : int, default=100
        Epochs of the budget table, which has them once and twice.
    methods : collection of str, default=None
        Rows of the tables; None means all.
    tables : collection of str, default=None
        Tables to run the experiments of: "main", "levels", "severity", "descent", "consistency",
        "ablation", "uncertainty" and "calibration", which share their runs, "constants", "budget"
        and "coarsened". None means all.

    Returns
    -------
    experiments : list of Experiment
        In the order of `tables`.

    Examples
    --------
    >>> from skh2edl.benchmark import frozen_protocol
    >>> runs = frozen_protocol("grocery_store", "resnet50", tables=["main"])
    >>> runs[0].method, len(runs[0].grid)
    ('Flat-CE', 7)
    """
    grid = [{"l2": value} for value in l2_grid]
    rows = _chosen(METHODS, methods)
    untouched = {UNTOUCHED: METHODS["H2EDL"]} if "H2EDL" in rows else {}
    plan = partial(_plan, dataset, seeds=seeds, features=features, weights=weights, train_share=0.9)
    main = plan(rows, grid=grid)
    plans = {
        "main": [*main, *plan(untouched)],
        "constants": plan(_chosen(CONSTANTS, methods), grid=grid),
        "budget": [*plan(rows, epochs=epochs), *plan(rows, epochs=2 * epochs, budget=2)],
        "coarsened": [*main, *_coarsened(methods, partial(plan, grid=grid))],
    }
    return _in_order(plans, tables)


def finetuned_protocol(
    dataset: str,
    backbone: str = "resnet50",
    *,
    weights: str | None = "pretrained",
    epochs: int = 100,
    coarse_epochs: int | None = None,
    seeds: Sequence[int] = SEEDS,
    parameters: Mapping[str, Any] | None = None,
    methods: Collection[str] | None = None,
    tables: Collection[str] | None = None,
) -> list[Experiment]:
    """List the experiments that train the whole network, as the paper does.

    All methods share one recipe, the default unless `parameters` name one, and the epoch with the
    best balanced accuracy of the leaves on the validation images is kept. A seed fixes the
    network's initial weights and the order of batches.

    Parameters
    ----------
    backbone : str, default="resnet50"
        The network.
    epochs : int, default=100
        Epochs of training; the budget table adds twice as many.
    coarse_epochs : int, default=None
        Epochs of the runs with coarse labels and of those without that stand beside them; None
        means `epochs`.
    parameters : mapping, default=None
        Parameters of all classifiers, such as the learning rate.
    dataset, weights, seeds, methods, tables
        As in :func:`frozen_protocol`.

    Returns
    -------
    experiments : list of Experiment
        In the order of `tables`.

    Examples
    --------
    >>> from skh2edl.benchmark import finetuned_protocol
    >>> runs = finetuned_protocol("fgvc_aircraft", tables=["main", "budget"])
    >>> sorted({run.epochs for run in runs})
    [100, 200]
    """
    common = {"backbone": backbone, **(parameters or {})}
    plan = partial(_plan, dataset, seeds=seeds, common=common, weights=weights)
    usual = coarse = partial(plan, epochs=epochs)
    # Shorter runs are a part of the usual budget, so that the other tables leave them out.
    if coarse_epochs is not None and coarse_epochs != epochs:
        coarse = partial(plan, epochs=coarse_epochs, budget=coarse_epochs / epochs)
    rows = _chosen(METHODS, methods)
    plans = {
        "main": usual(rows),
        "constants": usual(_chosen(CONSTANTS, methods)),
        "budget": [*usual(rows), *plan(rows, epochs=2 * epochs, budget=2)],
        "coarsened": [*coarse(rows), *_coarsened(methods, coarse)],
    }
    return _in_order(plans, tables)


def _chosen(rows: Rows, methods: Collection[str] | None) -> Rows:
    """Return the rows of these methods and of their forms."""
    unknown = [name for name in methods or () if name not in METHODS]
    if unknown:
        raise ValueError(f"methods may hold {tuple(METHODS)} only, got {unknown}.")
    return {name: row for name, row in rows.items() if methods is None or base_of(name) in methods}


def _in_order(
    plans: dict[str, list[Experiment]], tables: Collection[str] | None
) -> list[Experiment]:
    """Return the runs of the tables, each once."""
    unknown = [name for name in tables or () if name not in TABLES]
    if unknown:
        raise ValueError(f"tables may hold {tuple(TABLES)} only, got {unknown}.")
    needed = {plan for name in tables or TABLES for plan in TABLES[name]}
    return list(dict.fromkeys(run for name in plans if name in needed for run in plans[name]))


def _plan(
    dataset: str,
    rows: Rows,
    *,
    seeds: Sequence[int],
    common: Mapping[str, Any] | None = None,
    **fields: Any,
) -> list[Experiment]:
    """Return an experiment for each seed and row; a table can be made after the first seed."""
    return [
        Experiment(dataset, name, classifier, {**(common or {}), **own}, seed=seed, **fields)
        for seed in seeds
        for name, (classifier, own) in rows.items()
    ]


def _coarsened(
    methods: Collection[str] | None, plan: Callable[..., list[Experiment]]
) -> list[Experiment]:
    """Return the runs with coarse labels, the largest fraction first."""
    rows = _chosen(COARSENED, methods)
    return [run for fraction in reversed(FRACTIONS) for run in plan(rows, coarse_fraction=fraction)]


# Presets ------------------------------------------------------------------------------------------

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
_GLYPH_NETWORK = "test_resnet"  # a tiny network of timm, for an ordinary processor
_GLYPH_EPOCHS = 10  # seconds on one core
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
    load: Callable[..., LabelledImages] = getattr(datasets, DATASETS[dataset])
    if dataset == "glyphs":
        return load(**_GLYPHS[preset], random_state=0)
    if root is None:
        raise ValueError(f"{dataset} is read from a folder: name it as root.")
    return load(root)


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
        raise ValueError(f"dataset must be one of {tuple(DATASETS)}, got {dataset!r}.")
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {PRESETS}, got {preset!r}.")
