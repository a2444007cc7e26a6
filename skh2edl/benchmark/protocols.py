"""Lists of experiments: the paper's protocol, and the same on frozen features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..estimators.h2edl import PAPER, VARIANTS
from .experiment import Experiment

Rows = dict[str, tuple[str, dict[str, Any]]]

# Row -> class, and parameters that differ from its defaults. Every table has all of them, the
# paper's baselines first, then others, then the paper's four variants of H2EDL and the default.
METHODS: Rows = {
    "Flat-CE": ("FlatCEClassifier", {}),
    "Flat-EDL": ("FlatEDLClassifier", {}),
    "Hier-CE": ("HierCEClassifier", {}),
    "HENN": ("HENNClassifier", {}),
    "I-EDL": ("IEDLClassifier", {}),
    "R-EDL": ("REDLClassifier", {}),
    "Re-EDL": ("ReEDLClassifier", {}),
    "DAEDL": ("DAEDLClassifier", {}),
    "F-EDL": ("FEDLClassifier", {}),
    "HXE": ("HXEClassifier", {}),
    "Soft labels": ("SoftLabelClassifier", {}),
    **{f"H2EDL, {name}": ("H2EDLClassifier", dict(own)) for name, own in VARIANTS.items()},
    "H2EDL": ("H2EDLClassifier", {}),
}
# On frozen features only: H2EDL with its default parameters.
UNTOUCHED = "H2EDL, nothing chosen"

# Further rows of the constants' table: what a method's own paper has where our default differs.
# They share the annealing of Sensoy et al.: the whole KL after 10 of 100 epochs.
_PUBLISHED = {**PAPER, "kl_ramp": 0.1}
CONSTANTS: Rows = {
    "Flat-EDL, as published": ("FlatEDLClassifier", {**_PUBLISHED, "evidence": "relu"}),
    "HENN, as published": ("HENNClassifier", _PUBLISHED),
    "I-EDL, c = 0.05": ("IEDLClassifier", {"fisher_weight": 0.05}),
    "I-EDL, as published": ("IEDLClassifier", {**_PUBLISHED, "fisher_weight": 0.05}),
    "R-EDL, as published": ("REDLClassifier", _PUBLISHED),
    "H2EDL, plain, as published": ("H2EDLClassifier", {**PAPER, **VARIANTS["plain"]}),
}
# Treatments of ancestor labels; without such labels they are one method.
TREATMENTS = ("marginal", "soft", "drop")
COARSENED: Rows = {
    **{f"Flat-CE, {how}": ("FlatCEClassifier", {"partial_labels": how}) for how in TREATMENTS},
    **{name: row for name, row in METHODS.items() if name != "Flat-CE"},
}
QUICK = ("Flat-CE", "Hier-CE", "H2EDL")

FRACTIONS = (0.25, 0.5, 0.75)
# `fit_grid` extends the grid if its edge is chosen.
L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
SEEDS = (0, 1, 2)
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
    coarse_level: int = 1,
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
    coarse_level : int, default=1
        Level of the ancestors that replace labels.
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
    shared: dict[str, Any] = {"features": features, "weights": weights, "train_share": 0.9}
    grid = [{"l2": value} for value in l2_grid]
    rows = _chosen(METHODS, methods)
    untouched = {UNTOUCHED: METHODS["H2EDL"]} if "H2EDL" in rows else {}
    plans = {
        "main": [
            *_plan(dataset, rows, seeds, grid=grid, **shared),
            *_plan(dataset, untouched, seeds, **shared),
        ],
        "constants": _plan(dataset, _chosen(CONSTANTS, methods), seeds, grid=grid, **shared),
        "budget": [
            *_plan(dataset, rows, seeds, epochs=epochs, **shared),
            *_plan(dataset, rows, seeds, epochs=2 * epochs, budget=2, **shared),
        ],
        "coarsened": [
            *_plan(dataset, rows, seeds, grid=grid, **shared),
            *_coarsened(dataset, methods, seeds, coarse_level, grid=grid, **shared),
        ],
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
    coarse_level: int = 1,
    methods: Collection[str] | None = None,
    tables: Collection[str] | None = None,
) -> list[Experiment]:
    """List the experiments that train the whole network, as the paper does.

    All methods share one recipe, the default unless `parameters` name one, and the epoch with the
    best balanced accuracy of the leaves on the validation images is kept. A seed fixes the
    network's initial weights and the order of batches.

    Parameters
    ----------
    dataset : str
        Name of the data.
    backbone : str, default="resnet50"
        The network.
    weights : str, default="pretrained"
        Its initial weights, as in :class:`Experiment`.
    epochs : int, default=100
        Epochs of training; the budget table adds twice as many.
    coarse_epochs : int, default=None
        Epochs of the runs with coarse labels and of those without that stand beside them; None
        means `epochs`.
    seeds : sequence of int, default=(0, 1, 2)
        Seeds.
    parameters : mapping, default=None
        Parameters of all classifiers, such as the learning rate.
    coarse_level : int, default=1
        Level of the ancestors that replace labels.
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
    >>> from skh2edl.benchmark import finetuned_protocol
    >>> runs = finetuned_protocol("fgvc_aircraft", tables=["main", "budget"])
    >>> sorted({run.epochs for run in runs})
    [100, 200]
    """
    shared: dict[str, Any] = {
        "common": {"backbone": backbone, **(parameters or {})},
        "weights": weights,
    }
    rows = _chosen(METHODS, methods)
    usual = {**shared, "epochs": epochs}
    coarse = usual
    # Shorter runs are a part of the usual budget, so that the other tables leave them out.
    if coarse_epochs is not None and coarse_epochs != epochs:
        coarse = {**shared, "epochs": coarse_epochs, "budget": coarse_epochs / epochs}
    main = _plan(dataset, rows, seeds, **usual)
    plans = {
        "main": main,
        "constants": _plan(dataset, _chosen(CONSTANTS, methods), seeds, **usual),
        "budget": [*main, *_plan(dataset, rows, seeds, **shared, epochs=2 * epochs, budget=2)],
        "coarsened": [
            *_plan(dataset, rows, seeds, **coarse),
            *_coarsened(dataset, methods, seeds, coarse_level, **coarse),
        ],
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
    seeds: Sequence[int],
    *,
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
    dataset: str,
    methods: Collection[str] | None,
    seeds: Sequence[int],
    level: int,
    **fields: Any,
) -> list[Experiment]:
    """Return the runs with coarse labels, the largest fraction first."""
    rows = _chosen(COARSENED, methods)
    return [
        run
        for fraction in reversed(FRACTIONS)
        for run in _plan(
            dataset, rows, seeds, coarse_fraction=fraction, coarse_level=level, **fields
        )
    ]
