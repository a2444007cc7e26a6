"""What the results pages say in words follows from the figures."""

import sys
from pathlib import Path

import pytest

from skh2edl.benchmark import Table
from skh2edl.benchmark.table import Column, Row

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
COLUMNS = (
    Column("bAcc %", "bacc", 1, "high"),
    Column("ECE %", "ece", 1, "low"),
    Column("NLL, calibrated", "nll", 3, "low"),
    Column("L2", "l2", 0),
)


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))
    import verdicts

    yield verdicts.verdicts
    sys.modules.pop("verdicts")


def row(name, **figures):
    return Row((name,), {key: dict(enumerate(values)) for key, values in figures.items()})


def said(verdicts, *rows):
    return verdicts(Table("main", "A caption", ("method",), COLUMNS, rows))


def test_what_the_paired_test_tells_apart_is_won_or_lost_and_the_rest_is_tied(verdicts):
    # Differences of 5.0, 5.1, 4.9, of about 0, and of 0.5, 0.51, 0.49, whose signs mean the
    # opposite where low is good.
    flat = row("Flat-CE", bacc=[60.0, 61.0, 62.0], ece=[9.0, 8.0, 7.0], nll=[1.0, 1.1, 1.2])
    ours = row("H2EDL", bacc=[65.0, 66.1, 66.9], ece=[8.9, 8.2, 6.9], nll=[1.5, 1.61, 1.69])
    plain = row("H2EDL, plain", bacc=[1.0, 1.0, 1.0])
    assert said(verdicts, flat, plain, ours) == [
        "- **H2EDL against Flat-CE**: wins on balanced accuracy; ties on ECE; loses on NLL after "
        "calibration."
    ]


def test_one_seed_is_not_tested(verdicts):
    flat = row("Flat-CE", bacc=[60.0], ece=[9.0], nll=[1.0])
    ours = row("H2EDL, nothing chosen", bacc=[61.0], ece=[9.5], nll=[1.0])
    assert said(verdicts, flat, ours) == [
        "- **H2EDL, nothing chosen against Flat-CE**: better on balanced accuracy, equal on NLL "
        "after calibration, worse on ECE (one seed, not tested)."
    ]


def test_without_h2edl_nothing_is_said(verdicts):
    assert said(verdicts, row("Flat-CE", bacc=[60.0, 61.0])) == []
