"""Lists of experiments: the paper's protocol, and the same on frozen features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..estimators.h2edl import VARIANTS
from .experiment import Experiment

# Row -> class, and parameters that differ from its defaults.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "Flat-CE": ("FlatCEClassifier", {}),
    "Hier-CE": ("HierCEClassifier", {}),
    "HXE": ("HXEClassifier", {}),
    "Soft labels": ("SoftLabelClassifier", {}),
    "Flat-EDL": ("FlatEDLClassifier", {}),
    "I-EDL": ("IEDLClassifier", {}),
    "R-EDL": ("REDLClassifier", {}),
    "HENN": ("HENNClassifier", {}),
    "H2EDL": ("H2EDLClassifier", {}),
}
# The method that the others are compared with.
REFERENCE = "H2EDL"
# On frozen features only: the reference with its default parameters.
UNTOUCHED = "H2EDL, nothing chosen"

# The paper's four variants, and the default.
ABLATION: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"H2EDL, {name}": ("H2EDLClassifier", dict(own)) for name, own in VARIANTS.items()},
    "H2EDL": METHODS["H2EDL"],
}
COARSENED: dict[str, tuple[str, dict[str, Any]]] = {
    # With leaf labels alone the three treatments of ancestors are one method.
    "Flat-CE, marginal": ("FlatCEClassifier", {"partial_labels": "marginal"}),
    "Flat-CE, soft": ("FlatCEClassifier", {"partial_labels": "soft"}),
    "Flat-CE, drop": ("FlatCEClassifier", {"partial_labels": "drop"}),
    "HENN": METHODS["HENN"],
    "H2EDL": METHODS["H2EDL"],
}
# Row -> the row that it equals if no label is coarse.
COARSENED_FROM = {name: "Flat-CE" if name.startswith("Flat-CE") else name for name in COARSENED}
BUDGET = ("Flat-CE", "Hier-CE", "Flat-EDL", "HENN", "H2EDL")
QUICK = ("Flat-CE", "Hier-CE", "H2EDL")

FRACTIONS = (0.25, 0.5, 0.75)
# `fit_grid` extends the grid if its edge is chosen.
L2_GRID = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
SEEDS = (0, 1, 2)
TABLES = ("main", "ablation", "coarsened", "budget")


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
    tables: Collection[str] = TABLES,
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
        Rows of the main table; None means all.
    tables : collection of str, default=("main", "ablation", "coarsened", "budget")
        Tables to run the experiments of. All other tables are made from those of "main".

    Returns
    -------
    experiments : list of Experiment
        In the order of `tables`.

    Examples
    --------
    >>> from skh2edl.benchmark import frozen_protocol
    >>> runs = frozen_protocol("grocery_store", "resnet50", tables=["main"])
    >>> len(runs), runs[0].method, len(runs[0].grid)
    (30, 'Flat-CE', 7)
    """
    shared: dict[str, Any] = {"features": features, "weights": weights, "train_share": 0.9}
    grid = [{"l2": value} for value in l2_grid]
    rows = METHODS if methods is None else {name: METHODS[name] for name in methods}
    untouched = {UNTOUCHED: METHODS[REFERENCE]} if REFERENCE in rows else {}
    plans = {
        "main": [
            *_plan(dataset, rows, seeds, grid=grid, **shared),
            *_plan(dataset, untouched, seeds, **shared),
        ],
        "ablation": _plan(dataset, ABLATION, seeds, grid=grid, **shared),
        "coarsened": _coarsened(dataset, seeds, coarse_level, grid=grid, **shared),
        "budget": _budget(dataset, seeds, epochs, (1, 2), **shared),
    }
    return _in_order(plans, tables)


def finetuned_protocol(
    dataset: str,
    backbone: str = "resnet50",
    *,
    weights: str | None = "pretrained",
    epochs: int = 100,
    seeds: Sequence[int] = SEEDS,
    parameters: Mapping[str, Any] | None = None,
    coarse_level: int = 1,
    methods: Collection[str] | None = None,
    tables: Collection[str] = TABLES,
) -> list[Experiment]:
    """List the experiments that train the whole network, as the paper does.

    All methods share one recipe: AdamW, and the epoch with the best balanced accuracy of the
    leaves on the validation images is kept. A seed fixes the network's initial weights and the
    order of batches.

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
    seeds : sequence of int, default=(0, 1, 2)
        Seeds.
    parameters : mapping, default=None
        Parameters of all classifiers, such as the learning rate.
    coarse_level : int, default=1
        Level of the ancestors that replace labels.
    methods : collection of str, default=None
        Rows of the main table; None means all.
    tables : collection of str, default=("main", "ablation", "coarsened", "budget")
        Tables to run the experiments of. All other tables are made from those of "main".

    Returns
    -------
    experiments : list of Experiment
        In the order of `tables`.

    Examples
    --------
    >>> from skh2edl.benchmark import finetuned_protocol
    >>> runs = finetuned_protocol("fgvc_aircraft", tables=["main", "budget"])
    >>> len(runs), sorted({run.epochs for run in runs})
    (42, [100, 200])
    """
    shared: dict[str, Any] = {
        "common": {"backbone": backbone, **(parameters or {})},
        "weights": weights,
    }
    rows = METHODS if methods is None else {name: METHODS[name] for name in methods}
    plans = {
        "main": _plan(dataset, rows, seeds, epochs=epochs, **shared),
        "ablation": _plan(dataset, ABLATION, seeds, epochs=epochs, **shared),
        "coarsened": _coarsened(dataset, seeds, coarse_level, epochs=epochs, **shared),
        "budget": _budget(dataset, seeds, epochs, (2,), **shared),
    }
    return _in_order(plans, tables)


def _in_order(plans: dict[str, list[Experiment]], tables: Collection[str]) -> list[Experiment]:
    unknown = [name for name in tables if name not in plans]
    if unknown:
        raise ValueError(f"tables may hold {tuple(plans)} only, got {unknown}.")
    return list(dict.fromkeys(each for name in tables for each in plans[name]))


def _plan(
    dataset: str,
    rows: Mapping[str, tuple[str, dict[str, Any]]],
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


def _coarsened(dataset: str, seeds: Sequence[int], level: int, **fields: Any) -> list[Experiment]:
    from_all = {COARSENED_FROM[name]: METHODS[COARSENED_FROM[name]] for name in COARSENED}
    runs = _plan(dataset, from_all, seeds, **fields)
    for fraction in reversed(FRACTIONS):
        runs += _plan(
            dataset, COARSENED, seeds, coarse_fraction=fraction, coarse_level=level, **fields
        )
    return runs


def _budget(
    dataset: str, seeds: Sequence[int], epochs: int, budgets: Sequence[int], **fields: Any
) -> list[Experiment]:
    rows = {name: METHODS[name] for name in BUDGET}
    return [
        run
        for budget in budgets
        for run in _plan(dataset, rows, seeds, epochs=budget * epochs, budget=budget, **fields)
    ]
