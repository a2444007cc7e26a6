"""The tables of the protocol, made from records alone."""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .layouts import (
    FORMS,
    LAYOUTS,
    PERCENT,
    PLAIN,
    REFERENCES,
    Layout,
    Pivot,
    fraction_title,
)
from .protocols import AS_PUBLISHED, UNTOUCHED, base_of
from .records import Experiment, read_records
from .table import BEST, MARKS, SIGNIFICANCE, Column, Row, Table

Record = Mapping[str, Any]
# Figure -> seed -> value.
Figures = dict[str, dict[int, float]]
# Method -> its records.
Groups = dict[str, list[Record]]

# Methods whose probabilities are products over the decisions of the tree.
_OVER_THE_TREE = ("HierCEClassifier", "H2EDLClassifier")
# What a record calls the uncertainty that a method states.
_UNCERTAINTIES = ("nonspecificity", "vacuity", "variance")
# Block of a record -> the calibration that it was made with.
_BLOCKS = {"test": "none", "test_calibrated": "evidence", "test_temperature": "temperature"}


class Setting(NamedTuple):
    """Data, network and recipe of one table; records of other settings go into other tables."""

    dataset: str
    network: str
    frozen: bool
    recipe: str

    @property
    def name(self) -> str:
        """First part of the file names."""
        recipe = f"-{self.recipe}" if self.recipe else ""
        return f"{self.dataset}-{self.network}{recipe}" + ("-frozen" if self.frozen else "")


class Cell(NamedTuple):
    """A column of a pivot: its title, and the records of each method."""

    title: str
    groups: Groups
    block: str = "test"


def make_tables(
    records: Iterable[Record], tables: Collection[str] | None = None
) -> dict[str, Table]:
    """Make every table that the records have rows for.

    Parameters
    ----------
    records : iterable of dict
        As :func:`read_records` returns them.
    tables : collection of str, default=None
        Names of the tables, as in :func:`finetuned_protocol`; None means all.

    Returns
    -------
    tables : dict of str to Table
        By "<dataset>-<network>-<table>"; "frozen", or a recipe other than the default, stands after
        the network. `Table.missing` names what has no record.

    Examples
    --------
    >>> from skh2edl.benchmark import make_tables
    >>> make_tables([])
    {}
    """
    settings: dict[Setting, list[Record]] = {}
    for record in records:
        settings.setdefault(_setting(record), []).append(record)
    made = {}
    for setting in sorted(settings):
        for name, layout in LAYOUTS.items():
            if tables is not None and name not in tables:
                continue
            make: Any = _pivoted if isinstance(layout, Pivot) else _by_method
            table = make(name, layout, setting, settings[setting])
            if table is not None:
                made[f"{setting.name}-{name}"] = table
    return made


def write_tables(
    records: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    tables: Collection[str] | None = None,
) -> list[Path]:
    """Write the tables of a folder of records in Markdown, LaTeX and CSV.

    The same records give the same bytes.

    Parameters
    ----------
    records : path
        Folder of records.
    folder : path
        Where to write ``<dataset>-<network>-<table>.md``, ``.tex`` and ``.csv``.
    tables : collection of str, default=None
        Names of the tables; None means all.

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
    for name, table in make_tables(read_records(records), tables).items():
        texts = {
            "md": f"<!-- Made from records; do not edit. -->\n\n*{table.legend}*\n\n"
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


# Records ------------------------------------------------------------------------------------------


def _setting(record: Record) -> Setting:
    run = Experiment.from_dict(record["experiment"])
    recipe = record["experiment"]["parameters"].get("recipe") or ""
    recipe = "" if recipe == "fine_grained" else recipe  # the default
    return Setting(run.dataset, run.network, run.features is not None, recipe)


def _usual(records: Iterable[Record]) -> list[Record]:
    """Return the runs on leaf labels: heads fitted until they converge, or the usual epochs."""
    return [
        record
        for record in records
        if (run := record["experiment"])["coarse_fraction"] == 0
        and (run["epochs"] is None if run["features"] else run["budget"] == 1)
    ]


def _grouped(records: Iterable[Record], names: Iterable[str]) -> Groups:
    groups: Groups = {name: [] for name in names}
    for record in records:
        groups.get(record["experiment"]["method"], []).append(record)
    return {name: mine for name, mine in groups.items() if mine}


def _levels(record: Record) -> list[str]:
    return [name for name in record["test"] if name != "tree"]


def _suffix(depth: int, levels: Sequence[str]) -> str:
    """Return the end of the names of a level's figures; those of the leaves have none."""
    return f"_{depth}" if depth < len(levels) else ""


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _figures_of(record: Record, block: str) -> dict[str, float]:
    """Return all figures of one record that a table may show."""
    levels, figures = _levels(record), {}
    for prefix, report in (("", record[block]), ("calibrated_", record["test_calibrated"])):
        ends = {level: _suffix(depth, levels) for depth, level in enumerate(levels, start=1)}
        for row, end in {**ends, "tree": ""}.items():
            for key, value in report[row].items():
                factor = 100 if key in PERCENT else 1
                figures[f"{prefix}{key}{end}"] = factor * _number(value)
        if not prefix:
            figures |= {f"lost{end}": 100 - figures[f"kept_ancestor{end}"] for end in ends.values()}
    # The records name this block "doubt".
    uncertainty = record["doubt"]
    figures["confidence_auroc"] = _number(uncertainty["confidence_error_auroc"])
    for name in _UNCERTAINTIES:
        if name in uncertainty:
            figures["uncertainty"] = _number(uncertainty[name])
            figures["uncertainty_auroc"] = _number(uncertainty[f"{name}_error_auroc"])
    return figures


def _by_seed(records: Iterable[Record], block: str = "test") -> Figures:
    figures: Figures = {}
    for record in records:
        seed = record["experiment"]["seed"]
        if seed in figures.get("nll", {}):
            raise ValueError(
                f"two records are of {record['experiment']['method']!r} with seed {seed} and "
                "differ in what the tables do not show. Keep runs of different presets, weights, "
                "epochs and image sizes in different folders."
            )
        for key, value in _figures_of(record, block).items():
            figures.setdefault(key, {})[seed] = value
    return figures


def _text_of(records: Sequence[Record]) -> dict[str, str]:
    """Return the cells that are no means over seeds."""
    in_order = sorted(records, key=lambda record: record["experiment"]["seed"])
    first = in_order[0]
    text = {
        "over_the_tree": "✓" if first["experiment"]["classifier"] in _OVER_THE_TREE else "",
        "uncertain": "✓" if set(_UNCERTAINTIES) & set(first["doubt"]) else "",
    }
    penalties = [record["chosen"]["l2"] for record in in_order if "l2" in record["chosen"]]
    return text | ({"l2": ", ".join(f"{each:g}" for each in penalties)} if penalties else {})


@functools.cache
def _published() -> dict[str, Any]:
    text = importlib.resources.files(__package__).joinpath("published.json").read_text("utf-8")
    return dict(json.loads(text))


def _published_for(setting: Setting, part: str) -> dict[str, dict[str, Any]]:
    """Return row -> figure -> text of what was published about networks trained on these data."""
    about = {} if setting.frozen else _published().get(setting.dataset, {})
    common = about.get("all", {}) if part == "methods" else {}
    return {name: {**common, **own} for name, own in about.get(part, {}).items()}


# Tables -------------------------------------------------------------------------------------------


def _by_method(
    name: str, layout: Layout, setting: Setting, records: Sequence[Record]
) -> Table | None:
    """Make a table with a row for each method."""
    names = (*layout.rows, *([UNTOUCHED] if setting.frozen else []))
    groups = _grouped(_usual(records), names)
    if not set(groups) & set(layout.needs):
        return None
    rows = {method: Row((method,), _by_seed(mine)) for method, mine in groups.items()}
    columns = _expanded(layout.columns, _levels(records[0]))
    published = _published_for(setting, "methods")
    made = []
    for method, row in _compared(rows, REFERENCES).items():
        figures, text = dict(row.figures), _text_of(groups[method])
        theirs = published.get(method, published.get(method.removesuffix(AS_PUBLISHED), {}))
        text |= {f"published_{key}": each for key, each in theirs.items()}
        for column in columns:
            kind, _, key = column.key.partition("_")
            if kind == "change" and PLAIN in rows:
                figures[column.key] = _difference(figures[key], rows[PLAIN].figures[key])
            if kind == "p":
                p = Table.p_value(row, replace(column, key=key), REFERENCES[0])
                text[column.key] = "" if math.isnan(p) else f"{p:.3f}"
        made.append(replace(row, figures=figures, text=text))
    used = [record for mine in groups.values() for record in mine]
    missing = _missing(names, {"": groups})
    return _table(name, layout.title, setting, used, columns, made, REFERENCES, missing)


def _pivoted(name: str, pivot: Pivot, setting: Setting, records: Sequence[Record]) -> Table | None:
    """Make a table with a row for each measure and method."""
    cells = _SPLITS[pivot.field](records, pivot.rows)
    if len(cells) < 2 or (pivot.usual or "test") not in cells:
        return None
    used = [each for cell in cells.values() for mine in cell.groups.values() for each in mine]
    figures = {
        (method, key): _by_seed(mine, cell.block)
        for key, cell in cells.items()
        for method, mine in cell.groups.items()
    }
    levels, depth = _levels(records[0]), max(each["experiment"]["coarse_level"] for each in used)
    level = {"level": levels[depth - 1]}
    published = _published_for(setting, name)
    last = list(cells)[-1]
    has_change = bool(pivot.usual) and last != pivot.usual  # more than the usual epochs
    rows: list[Row] = []
    for column in pivot.columns:
        key = column.key.format(level=_suffix(depth, levels))
        measure = replace(column, title=column.title.format(**level), key=key)
        group = {}
        for method in pivot.rows:
            own = {key: figures.get((method, key), {}).get(measure.key, {}) for key in cells}
            if any(own.values()):
                if has_change:
                    own["change"] = _difference(own[last], own[pivot.usual])
                group[method] = Row((measure.title, method), own, measure=measure)
        compared = _compared(group, pivot.references)
        kind = pivot.beside.get(measure.key, "")
        for row in [*compared.values(), *_beside_flat(measure, compared, last, kind)]:
            theirs = published.get(row.title[1], {}).get(measure.key, {})
            text = {f"published_{key}": each for key, each in theirs.items()}
            rows.append(replace(row, text={**row.text, **text}))
    columns = [Column(cell.title, key, 0) for key, cell in cells.items()]
    if has_change:
        columns.append(Column("Δ", "change", 0, signed=True))
    missing = [title for key, title in pivot.expected.items() if key not in cells]
    missing += _missing(pivot.rows, {cell.title: cell.groups for cell in cells.values()})
    title = pivot.title.format(**level)
    return _table(name, title, setting, used, columns, rows, pivot.references, missing)


def _by_block(records: Sequence[Record], names: Iterable[str]) -> dict[str, Cell]:
    """Return the calibrations of the methods that allow two."""
    both = [record for record in _usual(records) if "test_temperature" in record]
    groups = _grouped(both, names)
    return {block: Cell(title, groups, block) for block, title in _BLOCKS.items() if groups}


def _by_budget(records: Sequence[Record], names: Iterable[str]) -> dict[str, Cell]:
    """Return the budgets; a part of the usual epochs belongs to the table of coarse labels."""
    cells: dict[str, list[Record]] = {}
    for record in records:
        run = record["experiment"]
        if run["coarse_fraction"] == 0 and run["epochs"] and run["budget"] % 1 == 0:
            cells.setdefault(f"{run['budget']:g}", []).append(record)
    return {
        key: Cell(_epochs(cells[key][0]["experiment"]["epochs"]), _grouped(cells[key], names))
        for key in sorted(cells)
    }


def _by_fraction(records: Sequence[Record], names: Iterable[str]) -> dict[str, Cell]:
    """Return the fractions of coarse labels, those without any from runs of the same epochs."""
    cells: dict[float, list[Record]] = {}
    for record in records:
        run = record["experiment"]
        if run["epochs"] is None or not run["features"]:
            cells.setdefault(run["coarse_fraction"], []).append(record)
    whole = cells.pop(0.0, [])
    epochs = {each["experiment"]["epochs"] for mine in cells.values() for each in mine}
    groups = {fraction: _grouped(mine, names) for fraction, mine in sorted(cells.items())}
    # With leaf labels alone all treatments of ancestors are one method.
    sources = {name: name if name in FORMS else base_of(name) for name in names}
    alike = _grouped(
        (each for each in whole if each["experiment"]["epochs"] in epochs), set(sources.values())
    )
    seen = {name for mine in groups.values() for name in mine}
    start = {name: alike[sources[name]] for name in seen if sources[name] in alike}
    return {
        f"{fraction:g}": Cell(fraction_title(fraction), mine)
        for fraction, mine in {0.0: start, **groups}.items()
        if mine
    }


_SPLITS = {"block": _by_block, "budget": _by_budget, "coarse_fraction": _by_fraction}


def _compared(rows: Mapping[str, Row], references: Iterable[str]) -> dict[str, Row]:
    """Return the rows, each with the references among the others."""
    return {
        name: replace(
            row, references={each: None if each == name else rows.get(each) for each in references}
        )
        for name, row in rows.items()
    }


def _beside_flat(measure: Column, group: Mapping[str, Row], last: str, kind: str) -> list[Row]:
    """Return the ratio or the gap of Flat-CE and each form of H2EDL, and the p of the last pair."""
    rows: list[Row] = []
    flat = group.get("Flat-CE")
    if not kind or flat is None:
        return rows
    for form in (name for name in FORMS if name in group):
        text = {}
        for key in group[form].figures:
            column = Column("", key, 0)
            theirs, ours = (row.values(column) for row in (flat, group[form]))
            if key != "change" and theirs.size and ours.size:
                pair = theirs.mean(), ours.mean()
                text[key] = (
                    f"{pair[0] / pair[1]:.1f}×" if kind == "ratio" else f"{pair[0] - pair[1]:.2f}"
                )
        p = Table.p_value(group[form], Column("", last, 0), "Flat-CE")
        text["change"] = "" if math.isnan(p) else f"p = {p:.3f}"
        title = f"{kind}: Flat-CE {'/' if kind == 'ratio' else '-'} {form}"
        rows.append(Row((measure.title, title), {}, text=text, measure=measure))
    return rows


def _difference(values: Mapping[int, float], base: Mapping[int, float]) -> dict[int, float]:
    return {seed: value - base[seed] for seed, value in values.items() if seed in base}


def _expanded(columns: Iterable[Column], levels: Sequence[str]) -> list[Column]:
    """Return the columns, those of levels once for each."""
    expanded = []
    for column in columns:
        if "{" not in column.key:
            expanded.append(column)
            continue
        for depth, level in enumerate(levels, start=1):
            end = _suffix(depth, levels)
            if end or "{all}" in column.key:
                key = column.key.format(all=end, inner=end)
                expanded.append(replace(column, title=column.title.format(level=level), key=key))
    return expanded


def _missing(names: Iterable[str], cells: Mapping[str, Groups]) -> list[str]:
    """Name the methods, columns and seeds without a record."""

    def seeds(records: Iterable[Record]) -> set[int]:
        return {record["experiment"]["seed"] for record in records}

    every = set().union(*(seeds(mine) for groups in cells.values() for mine in groups.values()))
    missing = []
    for name in names:
        if not any(name in groups for groups in cells.values()):
            missing.append(name)
            continue
        for title, groups in cells.items():
            if lacking := sorted(every - seeds(groups.get(name, ()))):
                where = f"{name} at {title}" if title else name
                number = f", seed {', '.join(map(str, lacking))}" if name in groups else ""
                missing.append(where + number)
    return missing


def _caption(title: str, setting: Setting, records: Sequence[Record]) -> str:
    """Say what was run and what is shown."""
    runs = [record["experiment"] for record in records]

    def values(of: Iterable[Any]) -> str:
        return ", ".join(f"{each}" for each in sorted({each for each in of if each is not None}))

    epochs = values(run["epochs"] for run in runs)
    pixels = values(run["parameters"].get("image_size") for run in runs)
    recipes = values(run["parameters"].get("recipe") for run in runs)
    how = "heads on frozen features" if setting.frozen else "trained whole"
    how += f" for {_epochs(epochs)}" if epochs else ", fitted until they converge"
    how += (f" at {pixels} px" if pixels else "") + (f", recipe {recipes}" if recipes else "")
    seeds = values(run["seed"] for run in runs)
    seeds = f"seeds {seeds}" if "," in seeds else f"seed {seeds}"
    return f"{setting.dataset}, {setting.network}, {how}, {seeds}: {title}"


def _epochs(number: Any) -> str:
    return f"{number} epoch" + ("" if str(number) == "1" else "s")


def _note(references: Sequence[str], used: Sequence[Record]) -> str:
    """Say what the marks of a table mean."""
    if len({record["experiment"]["seed"] for record in used}) == 1:
        return "One seed, nothing is tested" + (f"; {BEST}" if references else "")
    note = "Mean ± std over seeds"
    if references:
        note += f"; {BEST}; " + " and ".join(
            f"{mark} differs from {name}" for mark, name in zip(MARKS, references, strict=True)
        )
        note += f" in a paired t-test, p < {SIGNIFICANCE}, not corrected for the number of tests"
    return note


def _table(
    name: str,
    title: str,
    setting: Setting,
    used: Sequence[Record],
    columns: Iterable[Column],
    rows: Sequence[Row],
    references: Sequence[str],
    missing: Iterable[str],
) -> Table:
    """Put published figures beside the columns, and leave out columns without any value."""
    shown: list[Column] = []
    note, titles = _note(references, used), _published()["titles"]
    for column in columns:
        heading = titles.get(column.key, column.title)
        beside = Column(f"published {heading}", f"published_{column.key}", 0)
        published = any(row.text.get(beside.key) for row in rows)
        own = any(row.text.get(column.key) or row.values(column).size for row in rows)
        if published or own:
            shown += [column, *([beside] if published else [])]
    if any(column.key.startswith("published_") for column in shown):
        note += f"; published: {_published()['source']}"
    if any(column.key.startswith("p_") for column in shown):
        title += f"; p is that of a paired t-test against {REFERENCES[0]}"
    headings = ("measure", "method")[-len(rows[0].title) :]
    caption = _caption(title, setting, used)
    return Table(name, caption, headings, tuple(shown), tuple(rows), note, tuple(missing))
