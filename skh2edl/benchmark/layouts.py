"""What each table shows, as data: its columns, its rows and the runs that it compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from .protocols import COARSENED, CONSTANTS, FRACTIONS, METHODS, base_of
from .table import Column

# Methods that the others are tested against.
REFERENCES = ("Flat-CE", "Hier-CE")
# The variant that changes are counted from.
PLAIN = "H2EDL, plain"
FORMS = tuple(name for name in METHODS if name.startswith("H2EDL"))

# Figures of a record that the tables show in percent.
PERCENT = {
    "accuracy",
    "balanced_accuracy",
    "ece",
    "full_path_accuracy",
    "hierarchical_fscore",
    "kept_ancestor",
    "oracle_descent",
    "path_consistency",
}


class Layout(NamedTuple):
    """A table with a row for each method and a column for each figure.

    A figure is a metric of the leaves or of the tree, by its name in `hierarchical_report`.

    - "{all}" at its end repeats the column for every level, "{inner}" for every level above the
      leaves; "{level}" in a title is the name of the level.
    - "calibrated_" before it means after calibration.
    - "change_" before it means its difference from the plain variant of H2EDL.
    - "p_" before it means its p against the first reference.

    A column without any value is left out. The table is made if a row of `needs` has a record.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...] = tuple(METHODS)
    needs: tuple[str, ...] = tuple(METHODS)


class Pivot(NamedTuple):
    """A table with a row for each measure and method and a column for each value of a field.

    Parameters
    ----------
    title : str
        What the table shows.
    field : str
        Field of an experiment, or "block": the reports of one record.
    columns : tuple of Column
        The measures.
    rows : tuple of str
        The methods.
    usual : str
        Value that changes are counted from; "" shows none.
    references : tuple of str
        Methods that the others are tested against.
    beside : mapping of str to str
        Measure -> "ratio" or "gap" of Flat-CE and each form of H2EDL, in further rows.
    expected : mapping of str to str
        Value -> title of the columns that a whole table has.
    """

    title: str
    field: str
    columns: tuple[Column, ...]
    rows: tuple[str, ...] = tuple(METHODS)
    usual: str = ""
    references: tuple[str, ...] = REFERENCES
    beside: Mapping[str, str] = {}
    expected: Mapping[str, str] = {}


def fraction_title(fraction: float) -> str:
    """Return the heading of a fraction of coarse labels."""
    return f"f = {fraction:g}"


# Columns that several tables show.
_BACC = Column("bAcc %", "balanced_accuracy", 1, "high")
_ACC = Column("acc %", "accuracy", 1, "high")
_ECE = Column("ECE %", "ece", 1, "low")
_NLL = Column("NLL", "nll", 3, "low")
_CALIBRATED = (
    Column("ECE %, calibrated", "calibrated_ece", 1, "low"),
    Column("NLL, calibrated", "calibrated_nll", 3, "low"),
)
_SEVERITY = Column("severity", "mistake_severity", 3, "low")
_CONSISTENCY = Column("path consistency %", "path_consistency", 1, "high")
_UNCERTAINTY = Column("mean uncertainty", "uncertainty", 3)
_AUROC = Column("AUROC of uncertainty", "uncertainty_auroc", 3, "high")
_PENALTY = Column("L2", "l2", 0)

LAYOUTS: dict[str, Layout | Pivot] = {
    "main": Layout(
        "leaves, as they are and calibrated; Hier.: defined over the tree, Unc.: states an "
        "uncertainty",
        (
            Column("Hier.", "over_the_tree", 0),
            Column("Unc.", "uncertain", 0),
            _BACC,
            _ECE,
            _NLL,
            _ACC,
            *_CALIBRATED,
            _SEVERITY,
            _PENALTY,
        ),
    ),
    "levels": Layout(
        "every level",
        (
            Column("{level} bAcc %", "balanced_accuracy{all}", 1, "high"),
            Column("{level} ECE %", "ece{all}", 1, "low"),
            Column("{level} ECE %, calibrated", "calibrated_ece{all}", 1, "low"),
        ),
    ),
    "severity": Layout(
        "mistakes on the tree",
        (
            Column("first-error depth", "first_error_depth", 3, "high"),
            Column("p of first-error depth", "p_first_error_depth", 3),
            Column("kept {level} %", "kept_ancestor{inner}", 1, "high"),
            Column("p of kept {level}", "p_kept_ancestor{inner}", 3),
            _ACC,
            Column("p of acc", "p_accuracy", 3),
            _SEVERITY,
            Column("distance", "hierarchical_distance", 3, "low"),
            Column("hF %", "hierarchical_fscore", 1, "high"),
            Column("HOPS", "hops", 3, "high"),
            Column("operating area", "operating_area", 3, "high"),
        ),
    ),
    "descent": Layout(
        "accuracy of the leaves if the true node of a level is given, and the fraction of the "
        "wrong leaves that lie below a wrong node of a level",
        (
            Column("acc %, none given", "accuracy", 1, "high"),
            Column("acc %, {level} given", "oracle_descent{inner}", 1, "high"),
            Column("wrong {level}, % of errors", "lost{inner}", 1, "low"),
        ),
    ),
    "consistency": Layout(
        "images whose best node of every level lies above the best leaf",
        (
            _CONSISTENCY,
            Column("path consistency %, calibrated", "calibrated_path_consistency", 1, "high"),
            Column("full-path acc %", "full_path_accuracy", 1, "high"),
            _BACC,
        ),
    ),
    "ablation": Layout(
        f"forms of H2EDL; changes are from {PLAIN}",
        (
            _BACC,
            Column("change of bAcc", "change_balanced_accuracy", 1, signed=True),
            _ECE,
            Column("change of ECE", "change_ece", 1, signed=True),
            _NLL,
            Column("change of NLL", "change_nll", 3, signed=True),
            *_CALIBRATED,
            _CONSISTENCY,
            _UNCERTAINTY,
            _AUROC,
            _PENALTY,
        ),
        needs=tuple(name for name in FORMS if name != "H2EDL"),
    ),
    "uncertainty": Layout(
        "errors ranked by uncertainty (vacuity, belief that reaches no leaf, or the summed "
        "variance of the probabilities) and by confidence; AURC is the area under risk and "
        "coverage by confidence",
        (
            _UNCERTAINTY,
            _AUROC,
            Column("AUROC of 1 - max P", "confidence_auroc", 3, "high"),
            Column("AURC", "risk_coverage_area", 3, "low"),
            Column("hAURC", "hierarchical_aurc", 3, "low"),
            Column("coverage at 5 % risk", "coverage_at_risk", 3, "high"),
        ),
    ),
    "constants": Layout(
        "constants of the methods' own papers beside the defaults; I-EDL has c = min(0.05, 2/K), "
        "as published: KL weight 1 (Re-EDL: none) from a tenth of the epochs on, evidence not "
        "scaled, c = 0.05",
        (_BACC, _ACC, _ECE, _NLL, *_CALIBRATED, _UNCERTAINTY, _PENALTY),
        rows=tuple(
            name
            for method in METHODS
            for name in (method, *(each for each in CONSTANTS if base_of(each) == method))
        ),
        needs=tuple(CONSTANTS),
    ),
    "calibration": Pivot(
        "two calibrations of an opinion",
        "block",
        tuple(replace(column, better=None) for column in (_BACC, _ECE, _NLL, _SEVERITY)),
        rows=FORMS,
        references=(),
    ),
    "budget": Pivot(
        "epochs of training",
        "budget",
        (_BACC, _ECE, _NLL, *_CALIBRATED),
        usual="1",
        beside={"ece": "ratio", "nll": "gap"},
    ),
    "coarsened": Pivot(
        "a fraction of the training labels cut to the level {level!r}",
        "coarse_fraction",
        (
            Column("{level} bAcc %", "balanced_accuracy{level}", 1, "high"),
            Column("leaf acc %", "accuracy", 1, "high"),
            Column("leaf ECE %", "ece", 1, "low"),
            Column("leaf NLL", "nll", 3, "low"),
            *_CALIBRATED,
        ),
        rows=tuple(COARSENED),
        usual="0",
        references=("Flat-CE, drop", "Hier-CE"),
        expected={f"{each:g}": fraction_title(each) for each in (0.0, *FRACTIONS)},
    ),
}
