"""Say in words where H2EDL wins, ties and loses: called by ``make.py`` for each table of leaves.

A figure is won or lost if the paired t-test over the seeds has p < 0.05, and tied otherwise.
"""

from dataclasses import replace

import numpy as np

from skh2edl.benchmark.table import SIGNIFICANCE, Table

# Rows of H2EDL to compare with the others; the first that is there.
OURS = ("H2EDL", "H2EDL, nothing chosen")
WORDS = {"bAcc": "balanced accuracy", "acc": "accuracy"}


def verdicts(table):
    """Return a line for each other method of a table with a column for each figure."""
    rows = {row.title[0]: row for row in table.rows}
    ours = next((name for name in OURS if name in rows), None)
    if ours is None:
        return []
    return [
        f"- **{ours} against {other}**: {_words(table.columns, rows[ours], other, rows[other])}."
        for other in rows
        if not other.startswith("H2EDL")
    ]


def _words(columns, ours, other, theirs):
    """Return the names of the figures that are won, tied and lost."""
    kinds = {"wins on": [], "ties on": [], "loses on": []}
    untested = {"better on": [], "equal on": [], "worse on": []}
    ours = replace(ours, references={other: theirs})
    for column in columns:
        mine, others = (row.figures.get(column.key, {}) for row in (ours, theirs))
        gains = [mine[seed] - others[seed] for seed in sorted(set(mine) & set(others))]
        if column.better is None or not gains:
            continue
        gain = float(np.mean(gains)) * (1 if column.better == "high" else -1)
        p = Table.p_value(ours, column, other)
        if np.isnan(p):
            place = 1 - int(np.sign(round(gain, column.digits)))
            list(untested.values())[place].append(_name(column))
        else:
            place = 1 if p >= SIGNIFICANCE else 1 - int(np.sign(gain))
            list(kinds.values())[place].append(_name(column))
    said = [f"{kind} {_joined(names)}" for kind, names in kinds.items() if names]
    alone = [f"{kind} {_joined(names)}" for kind, names in untested.items() if names]
    if alone:
        said.append(f"{', '.join(alone)} (one seed, not tested)")
    return "; ".join(said) or "no seed in common"


def _name(column):
    """Return what a sentence calls a figure."""
    name, _, calibrated = column.title.replace(" %", "").partition(", ")
    return WORDS.get(name, name) + (" after calibration" if calibrated else "")


def _joined(names):
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
