"""The tables of the protocol, made from records alone."""

from __future__ import annotations

import functools
import importlib.resources
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .experiment import Experiment
from .protocols import ABLATION, BUDGET, COARSENED, COARSENED_FROM, METHODS, REFERENCE, UNTOUCHED
from .records import read_records
from .table import SIGNIFICANCE, Column, Row, Table

Record = Mapping[str, Any]
Figures = dict[str, dict[int, float]]

_LEAF = (
    Column("bAcc %", "balanced_accuracy", 1, "high"),
    Column("acc %", "accuracy", 1, "high"),
    Column("ECE %", "ece", 1, "low"),
    Column("NLL", "nll", 3, "low"),
)
_SEVERITY = Column("severity", "severity", 3, "low")
_CALIBRATED = (
    Column("ECE %, calibrated", "calibrated_ece", 1, "low"),
    Column("NLL, calibrated", "calibrated_nll", 3, "low"),
)
_PENALTY = Column("L2", "l2", 0)
_NOTE = (
    f"† differs from {REFERENCE} in a paired t-test over seeds, p < {SIGNIFICANCE}, not corrected "
    "for the number of tests; bold is the best mean"
)


class Setting(NamedTuple):
    """Data and network of one table; records of other settings go into other tables."""

    dataset: str
    network: str
    frozen: bool

    @property
    def name(self) -> str:
        """First part of the file names."""
        return f"{self.dataset}-{self.network}" + ("-frozen" if self.frozen else "")

    @property
    def words(self) -> str:
        """First words of the captions."""
        how = "frozen features" if self.frozen else "trained whole"
        return f"{self.dataset}, {self.network}, {how}"


def make_tables(records: Iterable[Record]) -> dict[str, Table]:
    """Make every table that the records have rows for.

    Parameters
    ----------
    records : iterable of dict
        As :func:`read_records` returns them.

    Returns
    -------
    tables : dict of str to Table
        By "<dataset>-<network>-<table>", or "<dataset>-<network>-frozen-<table>" for frozen
        features. The table is "main", "levels", "severity", "uncertainty", "calibration",
        "budget", "coarsened" or "ablation".

    Examples
    --------
    >>> from skh2edl.benchmark import make_tables
    >>> make_tables([])
    {}
    """
    settings: dict[Setting, list[Record]] = {}
    for record in records:
        settings.setdefault(_setting(record), []).append(record)
    tables = {}
    for setting in sorted(settings):
        for name, make in _CONTENTS.items():
            content = make(setting, settings[setting])
            if content.rows:
                tables[f"{setting.name}-{name}"] = _table(name, setting, settings[setting], content)
    return tables


def write_tables(records: str | os.PathLike[str], folder: str | os.PathLike[str]) -> list[Path]:
    """Write the tables of a folder of records in Markdown, LaTeX and CSV.

    The same records give the same bytes.

    Parameters
    ----------
    records : path
        Folder of records.
    folder : path
        Where to write ``<dataset>-<network>-<table>.md``, ``.tex`` and ``.csv``.

    Returns
    -------
    paths : list of Path
        What was written.

    Examples
    --------
    >>> import tempfile
    >>> from skh2edl.benchmark import write_tables
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     write_tables(empty, empty)
    []
    """
    folder = Path(folder)
    written = []
    for name, table in make_tables(read_records(records)).items():
        texts = {
            "md": f"<!-- Made from records; do not edit. -->\n\n*{table.caption}.*\n\n"
            + table.to_markdown(),
            "tex": table.to_latex(),
            "csv": table.to_csv(),
        }
        for suffix, text in texts.items():
            path = folder / f"{name}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8", newline="\n")
            written.append(path)
    return written


# Rows from records --------------------------------------------------------------------------------


def _setting(record: Record) -> Setting:
    run = Experiment.from_dict(record["experiment"])
    return Setting(run.dataset, run.network, run.features is not None)


def _of_recipe(record: Record) -> bool:
    """Tell whether a head was fitted until it converged, or a network for the usual epochs."""
    experiment = record["experiment"]
    return experiment["epochs"] is None if experiment["features"] else experiment["budget"] == 1


def _of(records: Iterable[Record], **fields: Any) -> list[Record]:
    """Return the records whose experiment has these values."""
    return [
        record
        for record in records
        if all(record["experiment"][name] == value for name, value in fields.items())
    ]


def _methods(records: Iterable[Record], names: Iterable[str]) -> dict[str, list[Record]]:
    """Return the records of each method: the shared recipe, no coarse labels."""
    main = [record for record in _of(records, coarse_fraction=0.0) if _of_recipe(record)]
    found = {name: _of(main, method=name) for name in names}
    return {name: mine for name, mine in found.items() if mine}


def _figures_of(record: Record, block: str) -> dict[str, float]:
    """Return all figures of one record that a table may show."""
    report, tree = record[block], record[block]["tree"]
    levels = _levels(record)
    leaf, calibrated = report[levels[-1]], record["test_calibrated"][levels[-1]]
    # The records name this block "doubt".
    uncertainty = record["doubt"]
    figures = {
        "balanced_accuracy": _number(leaf["balanced_accuracy"], 100),
        "accuracy": _number(leaf["accuracy"], 100),
        "ece": _number(leaf["ece"], 100),
        "nll": _number(leaf["nll"]),
        "severity": _number(tree["mistake_severity"]),
        "first_error_depth": _number(tree["first_error_depth"]),
        "distance": _number(tree["hierarchical_distance"]),
        "fscore": _number(tree["hierarchical_fscore"], 100),
        "consistency": _number(tree["path_consistency"], 100),
        "operating_area": _number(tree["operating_area"]),
        "calibrated_ece": _number(calibrated["ece"], 100),
        "calibrated_nll": _number(calibrated["nll"]),
        "best_epoch": _number(record["best_epoch"]) + 1,
        "confidence_auroc": _number(uncertainty["confidence_error_auroc"]),
    }
    for depth, name in enumerate(levels, start=1):
        figures[f"balanced_accuracy_{depth}"] = _number(report[name]["balanced_accuracy"], 100)
        figures[f"ece_{depth}"] = _number(report[name]["ece"], 100)
        figures[f"kept_{depth}"] = _number(report[name]["kept_ancestor"], 100)
    for name in ("nonspecificity", "vacuity"):
        if name in uncertainty:
            figures["uncertainty"] = _number(uncertainty[name])
            figures["uncertainty_auroc"] = _number(uncertainty[f"{name}_error_auroc"])
    return figures


def _number(value: Any, factor: float = 1.0) -> float:
    return float("nan") if value is None else factor * value


def _by_seed(records: Iterable[Record], block: str = "test") -> Figures:
    figures: Figures = {}
    for record in records:
        seed = record["experiment"]["seed"]
        if seed in figures.get("nll", {}):
            raise ValueError(
                f"two records are of {record['experiment']['method']!r} with seed {seed} and "
                "differ in what the tables do not show. Keep runs of different presets in "
                "different folders."
            )
        for key, value in _figures_of(record, block).items():
            figures.setdefault(key, {})[seed] = value
    return figures


def _row(
    title: tuple[str, ...],
    records: Sequence[Record],
    block: str = "test",
    published: Mapping[str, float] | None = None,
) -> Row:
    choice = "chosen_calibrated" if block == "test_calibrated" else "chosen"
    text = {f"published_{key}": f"{value:g}" for key, value in (published or {}).items()}
    in_order = sorted(records, key=lambda record: record["experiment"]["seed"])
    penalties = [record[choice]["l2"] for record in in_order if "l2" in record[choice]]
    text["l2"] = ", ".join(f"{penalty:g}" for penalty in penalties)
    return Row(title, _by_seed(records, block), text=text)


def _compared(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows, each tested against the one of the reference method among them."""
    reference = next((row for row in rows if row.title[0] == REFERENCE), None)
    return tuple(row if row is reference else replace(row, reference=reference) for row in rows)


def _calibrated_or_not(
    records: Sequence[Record], published: Mapping[str, Mapping[str, float]]
) -> tuple[Row, ...]:
    """Return a row for each method without calibration, then one for each after it."""
    groups = _methods(records, (*METHODS, UNTOUCHED)).items()
    plain = [_row((name, "no"), mine, published=published.get(name)) for name, mine in groups]
    calibrated = [_row((name, "yes"), mine, "test_calibrated") for name, mine in groups]
    return _compared(plain) + _compared(calibrated)


def _levels(record: Record) -> list[str]:
    return [name for name in record["test"] if name != "tree"]


@functools.cache
def _published() -> dict[str, Any]:
    text = importlib.resources.files(__package__).joinpath("published.json").read_text("utf-8")
    return dict(json.loads(text))


def _published_for(setting: Setting, table: str) -> dict[str, dict[str, float]]:
    """Return row -> figure -> value of the published table, for the setting it is about."""
    if setting.frozen or setting.network != "resnet50":
        return {}
    return dict(_published().get(setting.dataset, {}).get(table, {}))


# One function for each table ----------------------------------------------------------------------


class Content(NamedTuple):
    """What one table shows, before the caption and the published columns are completed."""

    caption: str
    headings: tuple[str, ...]
    columns: Sequence[Column]
    rows: tuple[Row, ...]
    published: Mapping[str, Mapping[str, float]] | None = None


def _table(name: str, setting: Setting, records: Sequence[Record], content: Content) -> Table:
    """Complete the caption, and put the published figures beside the columns."""
    seeds = len({record["experiment"]["seed"] for record in records})
    caption = f"{setting.words}: {content.caption}; mean ± std over {seeds} seed(s); {_NOTE}"
    published = content.published or {}
    if published:
        caption += f"; published: {_published()['source']}"
    keys = {key for figures in published.values() for key in figures}
    beside = [
        Column(f"published {column.title}", f"published_{column.key}", 0)
        for column in content.columns
        if column.key in keys
    ]
    return Table(name, caption, content.headings, (*content.columns, *beside), content.rows)


def _main(setting: Setting, records: Sequence[Record]) -> Content:
    """Show accuracy, calibration, likelihood and severity of the leaves."""
    published = _published_for(setting, "main")
    return Content(
        "leaves, before and after calibration",
        ("method", "calibrated"),
        [*_LEAF, _SEVERITY, *([_PENALTY] if setting.frozen else [])],
        _calibrated_or_not(records, published),
        published,
    )


def _every_level(setting: Setting, records: Sequence[Record]) -> Content:
    """Show balanced accuracy and ECE at every level."""
    columns = []
    for depth, name in enumerate(_levels(records[0]), start=1):
        columns += [
            Column(f"{name} bAcc %", f"balanced_accuracy_{depth}", 1, "high"),
            Column(f"{name} ECE %", f"ece_{depth}", 1, "low"),
        ]
    rows = _calibrated_or_not(records, {})
    return Content("every level", ("method", "calibrated"), columns, rows)


def _severity(setting: Setting, records: Sequence[Record]) -> Content:
    """Show how bad mistakes are, and how much of the path they keep."""
    published = _published_for(setting, "severity")
    columns = [
        _SEVERITY,
        Column("first-error depth", "first_error_depth", 3, "high"),
        *(
            Column(f"kept {name} %", f"kept_{depth}", 1, "high")
            for depth, name in enumerate(_levels(records[0])[:-1], start=1)
        ),
        Column("distance", "distance", 3, "low"),
        Column("hF %", "fscore", 1, "high"),
        Column("path consistency %", "consistency", 1, "high"),
        Column("operating area", "operating_area", 3, "high"),
    ]
    rows = _calibrated_or_not(records, published)
    return Content("mistakes on the tree", ("method", "calibrated"), columns, rows, published)


def _uncertainty(setting: Setting, records: Sequence[Record]) -> Content:
    """Show how uncertain predictions are, and how well that tells wrong from right ones."""
    groups = _methods(records, {**METHODS, **ABLATION})
    return Content(
        "errors ranked by uncertainty (vacuity, or belief that reaches no leaf) and by confidence",
        ("method",),
        [
            Column("mean uncertainty", "uncertainty", 3),
            Column("AUROC of uncertainty", "uncertainty_auroc", 3, "high"),
            Column("AUROC of 1 - max P", "confidence_auroc", 3, "high"),
        ],
        _compared([_row((name,), mine) for name, mine in groups.items()]),
    )


def _calibration(setting: Setting, records: Sequence[Record]) -> Content:
    """Show evidence scaling beside a temperature, for methods that allow both."""
    blocks = {
        "none": "test",
        "evidence, with its own choice of L2" if setting.frozen else "evidence": "test_calibrated",
        "temperature": "test_temperature",
    }
    rows: list[Row] = []
    for name, mine in _methods(records, {**METHODS, **ABLATION}).items():
        both = [record for record in mine if "test_temperature" in record]
        rows += [_row((name, title), both, block) for title, block in blocks.items() if both]
    text = "two calibrations of an opinion"
    return Content(text, ("method", "scaling"), [*_LEAF, _SEVERITY], tuple(rows))


def _budget(setting: Setting, records: Sequence[Record]) -> Content:
    """Show once and twice the epochs."""
    in_epochs = [
        record
        for record in _of(records, coarse_fraction=0.0)
        if record["experiment"]["epochs"] is not None
    ]
    budgets = sorted({record["experiment"]["budget"] for record in in_epochs})
    rows: tuple[Row, ...] = ()
    for budget in budgets if len(budgets) > 1 else ():
        groups = {name: _of(in_epochs, budget=budget, method=name) for name in BUDGET}
        rows += _compared(
            [
                _row((name, f"{mine[0]['experiment']['epochs']} ({budget}×)"), mine)
                for name, mine in groups.items()
                if mine
            ]
        )
    columns = [*_LEAF, _SEVERITY, *_CALIBRATED, Column("epoch kept", "best_epoch", 0)]
    return Content("epochs of training", ("method", "epochs"), columns, rows)


def _coarsened(setting: Setting, records: Sequence[Record]) -> Content:
    """Show training labels cut to an upper level, for a growing fraction of the images."""
    published = _published_for(setting, "coarsened")
    coarse = [r for r in records if r["experiment"]["coarse_fraction"] and _of_recipe(r)]
    if not coarse:
        return Content("", (), (), ())
    depth = coarse[0]["experiment"]["coarse_level"]
    level, key = _levels(records[0])[depth - 1], f"balanced_accuracy_{depth}"
    names = [name for name in COARSENED if _of(coarse, method=name)]
    methods = _methods(records, METHODS)
    whole = {name: methods.get(COARSENED_FROM[name], []) for name in names}
    rows: tuple[Row, ...] = ()
    for fraction in [0.0, *sorted({record["experiment"]["coarse_fraction"] for record in coarse})]:
        group = []
        for name in names:
            mine = _of(coarse, method=name, coarse_fraction=fraction) if fraction else whole[name]
            beside = published.get(f"{name}, {fraction:g}")
            row = _row((name, f"{fraction:g}"), mine, published=beside)
            before, after = _by_seed(whole[name]).get(key, {}), row.figures.get(key, {})
            change = {seed: after[seed] - before[seed] for seed in after if seed in before}
            group.append(replace(row, figures={**row.figures, "change": change}))
        rows += _compared(group)
    columns = [
        Column(f"{level} bAcc %", key, 2, "high"),
        Column("change of it", "change", 2),
        Column(f"{level} ECE %", f"ece_{depth}", 1, "low"),
        *_LEAF,
        *_CALIBRATED,
    ]
    text = f"a fraction of the labels cut to the level {level!r}"
    return Content(text, ("method", "fraction"), columns, rows, published)


def _ablation(setting: Setting, records: Sequence[Record]) -> Content:
    """Show the paper's variants and the default."""
    published = _published_for(setting, "main")
    columns = [
        *_LEAF,
        _SEVERITY,
        *_CALIBRATED,
        Column("U", "uncertainty", 3),
        Column("AUROC of U", "uncertainty_auroc", 3, "high"),
        *([_PENALTY] if setting.frozen else []),
    ]
    groups = _methods(records, ABLATION).items()
    rows = [_row((name,), mine, published=published.get(name)) for name, mine in groups]
    compared = _compared(rows) if len(rows) > 2 else ()
    return Content("forms of H2EDL", ("form",), columns, compared, published)


_CONTENTS = {
    "main": _main,
    "levels": _every_level,
    "severity": _severity,
    "uncertainty": _uncertainty,
    "calibration": _calibration,
    "budget": _budget,
    "coarsened": _coarsened,
    "ablation": _ablation,
}
