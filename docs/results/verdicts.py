"""Say in words where H2EDL wins, ties and loses: called by ``make.py`` for each table of leaves.

A figure is won or lost if the paired t-test over the seeds has p < 0.05, and tied otherwise.
Without a test, because of one seed or of a seed without the figure, it is better, equal or worse.
"""

import numpy as np

from skh2edl.benchmark.table import SIGNIFICANCE, paired_p

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
        f"- **{ours} against {other}**: {_words(table.columns, rows[ours], rows[other])}."
        for other in rows
        if not other.startswith("H2EDL")
    ]


def _words(columns, ours, theirs):
    """Return the names of the figures that are won, tied and lost."""
    kinds = {"wins on": [], "ties on": [], "loses on": []}
    untested = {
        why: {"better on": [], "equal on": [], "worse on": []}
        for why in ("one seed, not tested", "not tested")
    }
    for column in columns:
        mine, others = (row.figures.get(column.key, {}) for row in (ours, theirs))
        seeds = sorted(set(mine) & set(others))
        gains = np.array([mine[seed] - others[seed] for seed in seeds], dtype=float)
        gains = gains[np.isfinite(gains)]
        if column.better is None or not gains.size:
            continue
        gain = float(gains.mean()) * (1 if column.better == "high" else -1)
        p = paired_p([mine[seed] for seed in seeds], [others[seed] for seed in seeds])
        if np.isnan(p):
            place = 1 - int(np.sign(round(gain, column.digits)))
            why = "one seed, not tested" if len(seeds) == 1 else "not tested"
            list(untested[why].values())[place].append(_name(column))
        else:
            place = 1 if p >= SIGNIFICANCE else 1 - int(np.sign(gain))
            list(kinds.values())[place].append(_name(column))
    said = [f"{kind} {_joined(names)}" for kind, names in kinds.items() if names]
    for why, of_kind in untested.items():
        parts = [f"{kind} {_joined(names)}" for kind, names in of_kind.items() if names]
        if parts:
            said.append(f"{', '.join(parts)} ({why})")
    return "; ".join(said) or "no figure in common"


def _name(column):
    """Return what a sentence calls a figure."""
    name, _, calibrated = column.title.replace(" %", "").partition(", ")
    return WORDS.get(name, name) + (" after calibration" if calibrated else "")


def _joined(names):
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
