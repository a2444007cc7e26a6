"""The tables of the protocol, made from records and from nothing else."""

from __future__ import annotations

import functools
import importlib.resources
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    """What records must share to stand in one table."""

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
    """Make all tables that some records allow.

    Parameters
    ----------
    records : iterable of dict
        As :func:`read_records` returns them.

    Returns
    -------
    tables : dict of str to Table
        By "<dataset>-<network>-<table>", with "-frozen" before the table on frozen features; the
        table is "main", "levels", "severity", "doubt",
        "calibration", "budget", "coarsened" or "ablation".

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
        for make in _MAKERS:
            table = make(setting, settings[setting])
            if table.rows:
                tables[f"{setting.name}-{table.name}"] = table
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
    tables = make_tables(read_records(records))
    folder = Path(folder)
    written = []
    for name, table in tables.items():
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
    experiment = record["experiment"]
    network = experiment["features"] or experiment["parameters"].get("backbone") or "none"
    return Setting(experiment["dataset"], network, experiment["features"] is not None)


def _is_main(record: Record) -> bool:
    """Tell whether a record is of the shared recipe with all labels as they are."""
    return not record["experiment"]["coarse_fraction"] and _of_recipe(record)


def _of_recipe(record: Record) -> bool:
    """Tell whether a head was fitted until it converged, or a network for the usual epochs."""
    experiment = record["experiment"]
    return experiment["epochs"] is None if experiment["features"] else experiment["budget"] == 1


def _of(records: Iterable[Record], **fields: Any) -> list[Record]:
    return [
        record
        for record in records
        if all(record["experiment"][name] == value for name, value in fields.items())
    ]


def _number(value: Any, factor: float = 1.0) -> float:
    return float("nan") if value is None else factor * value


def _figures_of(record: Record, block: str) -> dict[str, float]:
    """Return all figures of one record that a table may show."""
    report, tree = record[block], record[block]["tree"]
    levels = [name for name in report if name != "tree"]
    leaf = report[levels[-1]]
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
        "calibrated_ece": _number(record["test_calibrated"][levels[-1]]["ece"], 100),
        "calibrated_nll": _number(record["test_calibrated"][levels[-1]]["nll"]),
        "best_epoch": _number(record["best_epoch"]) + 1,
    }
    for depth, name in enumerate(levels, start=1):
        figures[f"balanced_accuracy_{depth}"] = _number(report[name]["balanced_accuracy"], 100)
        figures[f"ece_{depth}"] = _number(report[name]["ece"], 100)
        figures[f"kept_{depth}"] = _number(report[name]["kept_ancestor"], 100)
    doubt = record["doubt"]
    for name in ("nonspecificity", "vacuity"):
        if name in doubt:
            figures["doubt"] = _number(doubt[name])
            figures["doubt_auroc"] = _number(doubt[f"{name}_error_auroc"])
    figures["confidence_auroc"] = _number(doubt["confidence_error_auroc"])
    return figures


def _by_seed(records: Iterable[Record], block: str = "test") -> Figures:
    figures: Figures = {}
    for record in records:
        if block in record:
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
    *,
    block: str = "test",
    reference: int | None = None,
    published: Mapping[str, Any] | None = None,
) -> Row:
    text = {f"published_{key}": f"{value:g}" for key, value in (published or {}).items()}
    choice = "chosen_calibrated" if block == "test_calibrated" else "chosen"
    penalties = [
        record[choice]["l2"]
        for record in sorted(records, key=lambda record: record["experiment"]["seed"])
        if "l2" in record[choice]
    ]
    text["l2"] = ", ".join(f"{penalty:g}" for penalty in penalties)
    return Row(title, _by_seed(records, block), reference, text)


def _methods(records: Iterable[Record], names: Iterable[str]) -> dict[str, list[Record]]:
    """Return the main records of each of the methods that has some."""
    found = {name: [r for r in _of(records, method=name) if _is_main(r)] for name in names}
    return {name: mine for name, mine in found.items() if mine}


def _both_blocks(
    records: Sequence[Record], published: Mapping[str, Mapping[str, Any]]
) -> tuple[Row, ...]:
    """Return a row for each method as it is, then one for each after calibration."""
    groups = _methods(records, (*METHODS, UNTOUCHED))
    rows: list[Row] = []
    for block, calibrated in (("test", "no"), ("test_calibrated", "yes")):
        reference = None
        if REFERENCE in groups:
            reference = len(rows) + list(groups).index(REFERENCE)
        for name, mine in groups.items():
            beside = published.get(name) if block == "test" else None
            title = (name, calibrated)
            rows.append(_row(title, mine, block=block, reference=reference, published=beside))
    return tuple(rows)


def _one_block(
    records: Sequence[Record],
    names: Iterable[str],
    published: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[Row, ...]:
    groups = _methods(records, names)
    reference = list(groups).index(REFERENCE) if REFERENCE in groups else None
    return tuple(
        _row((name,), mine, reference=reference, published=(published or {}).get(name))
        for name, mine in groups.items()
    )


@functools.cache
def _published() -> dict[str, Any]:
    text = importlib.resources.files(__package__).joinpath("published.json").read_text("utf-8")
    return dict(json.loads(text))


def _published_for(setting: Setting, table: str) -> dict[str, Any]:
    """Return row -> figure -> value of the published table, for the setting it is about."""
    if setting.frozen or setting.network != "resnet50":
        return {}
    return dict(_published().get(setting.dataset, {}).get(table, {}))


def _published_columns(published: Mapping[str, Any], columns: Iterable[Column]) -> list[Column]:
    keys = {key for row in published.values() for key in row}
    return [
        Column(f"published {column.title}", f"published_{column.key}", 0)
        for column in columns
        if column.key in keys
    ]


def _caption(setting: Setting, text: str, records: Iterable[Record], published: Any = None) -> str:
    seeds = len({record["experiment"]["seed"] for record in records})
    beside = f"; published: {_published()['source']}" if published else ""
    return f"{setting.words}: {text}; mean ± std over {seeds} seed(s); {_NOTE}{beside}"


def _levels(records: Sequence[Record]) -> list[str]:
    return [name for name in records[0]["test"] if name != "tree"]


# One function for each table ----------------------------------------------------------------------


def main_table(setting: Setting, records: Sequence[Record]) -> Table:
    """Leaf accuracy, calibration, likelihood and severity, before and after calibration."""
    published = _published_for(setting, "main")
    columns = [*_LEAF, _SEVERITY]
    columns += [_PENALTY] if setting.frozen else []
    return Table(
        "main",
        _caption(setting, "leaves, before and after calibration", records, published),
        ("method", "calibrated"),
        (*columns, *_published_columns(published, _LEAF)),
        _both_blocks(records, published),
    )


def levels_table(setting: Setting, records: Sequence[Record]) -> Table:
    """Balanced accuracy and ECE at every level."""
    columns = []
    for depth, name in enumerate(_levels(records), start=1):
        columns += [
            Column(f"{name} bAcc %", f"balanced_accuracy_{depth}", 1, "high"),
            Column(f"{name} ECE %", f"ece_{depth}", 1, "low"),
        ]
    return Table(
        "levels",
        _caption(setting, "every level", records),
        ("method", "calibrated"),
        tuple(columns),
        _both_blocks(records, {}),
    )


def severity_table(setting: Setting, records: Sequence[Record]) -> Table:
    """How bad mistakes are, and what of the path they keep."""
    published = _published_for(setting, "severity")
    kept = [
        Column(f"kept {name} %", f"kept_{depth}", 1, "high")
        for depth, name in enumerate(_levels(records)[:-1], start=1)
    ]
    columns = [
        _SEVERITY,
        Column("first-error depth", "first_error_depth", 3, "high"),
        *kept,
        Column("distance", "distance", 3, "low"),
        Column("hF %", "fscore", 1, "high"),
        Column("path consistency %", "consistency", 1, "high"),
        Column("operating area", "operating_area", 3, "high"),
    ]
    return Table(
        "severity",
        _caption(setting, "mistakes on the tree", records, published),
        ("method", "calibrated"),
        (*columns, *_published_columns(published, columns)),
        _both_blocks(records, published),
    )


def doubt_table(setting: Setting, records: Sequence[Record]) -> Table:
    """How much doubt is stated, and whether it tells errors from right answers."""
    columns = (
        Column("mean doubt", "doubt", 3),
        Column("AUROC of doubt", "doubt_auroc", 3, "high"),
        Column("AUROC of 1 - max P", "confidence_auroc", 3, "high"),
    )
    text = "errors told by stated doubt (vacuity, or belief that reaches no leaf) and by confidence"
    return Table(
        "doubt",
        _caption(setting, text, records),
        ("method",),
        columns,
        _one_block(records, {**METHODS, **ABLATION}),
    )


def calibration_table(setting: Setting, records: Sequence[Record]) -> Table:
    """Evidence scaling beside a temperature, for methods that allow both."""
    blocks = {
        "none": "test",
        "evidence, with its own choice of L2" if setting.frozen else "evidence": "test_calibrated",
        "temperature": "test_temperature",
    }
    rows = []
    for name, mine in _methods(records, {**METHODS, **ABLATION}).items():
        both = [record for record in mine if "test_temperature" in record]
        rows += [_row((name, title), both, block=block) for title, block in blocks.items() if both]
    return Table(
        "calibration",
        _caption(setting, "two ways to calibrate an opinion", records),
        ("method", "scaling"),
        (*_LEAF, _SEVERITY),
        tuple(rows),
    )


def budget_table(setting: Setting, records: Sequence[Record]) -> Table:
    """Once and twice the epochs."""
    in_epochs = [
        record
        for record in _of(records, coarse_fraction=0.0)
        if record["experiment"]["epochs"] is not None
    ]
    budgets = sorted({record["experiment"]["budget"] for record in in_epochs})
    rows: list[Row] = []
    for budget in budgets if len(budgets) > 1 else ():
        mine = _of(in_epochs, budget=budget)
        names = [name for name in BUDGET if _of(mine, method=name)]
        reference = len(rows) + names.index(REFERENCE) if REFERENCE in names else None
        for name in names:
            group = _of(mine, method=name)
            epochs = f"{group[0]['experiment']['epochs']} ({budget}×)"
            rows.append(_row((name, epochs), group, reference=reference))
    columns = (*_LEAF, _SEVERITY, *_CALIBRATED, Column("epoch kept", "best_epoch", 0))
    return Table(
        "budget",
        _caption(setting, "epochs of training", records),
        ("method", "epochs"),
        columns,
        tuple(rows),
    )


def coarsened_table(setting: Setting, records: Sequence[Record]) -> Table:
    """Training labels cut to an upper level, for a growing share of the images."""
    published = _published_for(setting, "coarsened")
    coarse = [r for r in records if r["experiment"]["coarse_fraction"] and _of_recipe(r)]
    if not coarse:
        return Table("coarsened", "", (), (), ())
    depth = coarse[0]["experiment"]["coarse_level"]
    level = _levels(records)[depth - 1]
    whole = _methods(records, METHODS)
    fractions = [0.0, *sorted({record["experiment"]["coarse_fraction"] for record in coarse})]
    rows: list[Row] = []
    for fraction in fractions:
        names = [name for name in COARSENED if _of(coarse, method=name)]
        reference = len(rows) + names.index(REFERENCE) if REFERENCE in names else None
        for name in names:
            at_zero = whole.get(COARSENED_FROM[name], [])
            group = _of(coarse, method=name, coarse_fraction=fraction) if fraction else at_zero
            row = _row(
                (name, f"{fraction:g}"),
                group,
                reference=reference,
                published=published.get(f"{name}, {fraction:g}"),
            )
            rows.append(_with_change(row, _by_seed(at_zero), f"balanced_accuracy_{depth}"))
    columns = (
        Column(f"{level} bAcc %", f"balanced_accuracy_{depth}", 2, "high"),
        Column("change of it", "change", 2),
        Column(f"{level} ECE %", f"ece_{depth}", 1, "low"),
        *_LEAF,
        *_CALIBRATED,
    )
    return Table(
        "coarsened",
        _caption(setting, f"a share of the labels cut to the level {level!r}", records, published),
        ("method", "share"),
        (*columns, *_published_columns(published, columns)),
        tuple(rows),
    )


def ablation_table(setting: Setting, records: Sequence[Record]) -> Table:
    """Compare the paper's variants and the default."""
    published = _published_for(setting, "main")
    columns = [
        *_LEAF,
        _SEVERITY,
        *_CALIBRATED,
        Column("U", "doubt", 3),
        Column("AUROC of U", "doubt_auroc", 3, "high"),
    ]
    columns += [_PENALTY] if setting.frozen else []
    rows = _one_block(records, ABLATION, published)
    what = "forms of H2EDL"
    return Table(
        "ablation",
        _caption(setting, what, records, published),
        ("form",),
        (*columns, *_published_columns(published, _LEAF)),
        rows if len(rows) > 2 else (),
    )


def _with_change(row: Row, whole: Figures, key: str) -> Row:
    """Return the row with the difference that coarse labels make, seed by seed."""
    before, after = whole.get(key, {}), row.figures.get(key, {})
    change = {seed: after[seed] - before[seed] for seed in after if seed in before}
    return Row(row.title, {**row.figures, "change": change}, row.reference, row.text)


_MAKERS: tuple[Callable[[Setting, Sequence[Record]], Table], ...] = (
    main_table,
    levels_table,
    severity_table,
    doubt_table,
    calibration_table,
    budget_table,
    coarsened_table,
    ablation_table,
)
