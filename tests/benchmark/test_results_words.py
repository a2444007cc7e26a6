"""What the results pages say in words follows from the figures."""

import importlib
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
    yield importlib.import_module("verdicts").verdicts
    sys.modules.pop("verdicts")


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Return a function from records to the text on the claims."""
    monkeypatch.syspath_prepend(str(RESULTS))
    claims = importlib.import_module("claims")
    yield lambda records: claims.write_claims(records, tmp_path / "claims.md").read_text("utf-8")
    sys.modules.pop("claims")


@pytest.fixture
def judged(written):
    """Return a function from records to claim -> verdict, of the first data set."""

    def read(records):
        page = written(records)
        table = page.split("<details>")[0].splitlines()[3:]
        cells = [line.strip("| ").split(" | ") for line in table if line.startswith("|")]
        return {claim: verdict.strip("*").replace("\xa0", " ") for claim, verdict in cells[1:]}

    return read


def record(method, seed, top, leaf, epochs=20, coarse=0.0):
    """Return a record of balanced accuracy, ECE and NLL at two levels."""
    names = ("balanced_accuracy", "ece", "nll", "accuracy", "oracle_descent")
    test = {
        level: dict(zip(names, (*figures, figures[0], figures[0]), strict=True))
        | {"kept_ancestor": 0.5, "risk_coverage_area": 0.2}
        for level, figures in (("top", top), ("leaf", leaf))
    }
    run = {
        "dataset": "zoo", "features": None, "method": method, "seed": seed, "epochs": epochs,
        "parameters": {"backbone": "resnet50", "recipe": "paper"}, "grid": [],
        "coarse_fraction": coarse,
    }  # fmt: skip
    return {"experiment": run, "test": test | {"tree": {"first_error_depth": 1.0}}}


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


def test_a_seed_without_the_figure_is_left_out_and_not_tested(verdicts):
    # Severity is undefined where a seed makes no mistake.
    nan = float("nan")
    flat = row("Flat-CE", bacc=[60.0, 61.0, 62.0], ece=[9.0, 8.0, 7.0], nll=[nan, nan, nan])
    ours = row("H2EDL", bacc=[65.0, 66.1, 66.9], ece=[nan, 8.5, 7.5], nll=[1.5, 1.6, 1.7])
    assert said(verdicts, flat, ours) == [
        "- **H2EDL against Flat-CE**: wins on balanced accuracy; worse on ECE (not tested)."
    ]


def test_without_h2edl_nothing_is_said(verdicts):
    assert said(verdicts, row("Flat-CE", bacc=[60.0, 61.0])) == []


FLAT = ("Flat-CE", (0.90, 0.050, 0.3), (0.60, 0.20, 1.5))
HIER = ("Hier-CE", (0.89, 0.060, 0.3), (0.58, 0.21, 1.6))
EDL = ("Flat-EDL", (0.90, 0.050, 0.3), (0.55, 0.10, 1.7))
HENN = ("HENN", (0.90, 0.050, 0.3), (0.60, 0.12, 1.3))
OURS = ("H2EDL", (0.92, 0.045, 0.3), (0.61, 0.11, 1.4))


def test_a_claim_is_seen_where_its_rule_holds(judged):
    # The ECE of the top varies by more than the methods differ.
    records = [
        record(name, seed, (top[0], top[1] + 0.01 * (seed - 1) * sign, top[2]), leaf)
        for sign, (name, top, leaf) in ((1, FLAT), (0, HIER), (0, EDL), (0, HENN), (-1, OURS))
        for seed in range(3)
    ]
    seen = judged(records)
    assert seen == {
        "Leaf balanced accuracy is tied (1.5 points)": "seen",  # 61 and 60
        "The tree alone gains no accuracy: Hier-CE is at most a point above Flat-CE": "seen",
        "Balanced accuracy above the leaves is higher than of both cross-entropies": "seen",
        # 92 and 89 % at the top.
        "Accuracy is tied once the true node of any level is given (1.3 points)": "not seen",
        "Leaf NLL is lower than Flat-CE's": "seen",
        "Leaf NLL is lower than Flat-EDL's and HENN's": "not seen",  # 1.4 and 1.3
        "Flat-EDL has the lower leaf ECE and the lower balanced accuracy": "seen",
        "Leaf ECE is about half of Flat-CE's (at most 0.6×)": "seen",  # 0.55
        "The ECE of the top level is tied (p at least 0.05)": "seen",
        "The gain in ECE widens with depth": "seen",  # 0.5 and 9 points
        "The gain in ECE and NLL widens with twice the epochs": "not measured",
        "Errors stay in the right subtree more often": "not seen",  # the same
        "No gain in selective prediction (0.005)": "seen",  # the same
    }


def test_what_a_rule_needs_and_no_record_has_is_not_measured(judged):
    verdicts = judged([record(*FLAT[:1], 0, *FLAT[1:]), record(*OURS[:1], 0, *OURS[1:])])
    not_measured = [
        claim.split(":")[0] for claim, said in verdicts.items() if said == "not measured"
    ]
    assert not_measured == [
        "The tree alone gains no accuracy",
        "Balanced accuracy above the leaves is higher than of both cross-entropies",
        "Accuracy is tied once the true node of any level is given (1.3 points)",
        "Leaf NLL is lower than Flat-EDL's and HENN's",
        "Flat-EDL has the lower leaf ECE and the lower balanced accuracy",
        "The ECE of the top level is tied (p at least 0.05)",  # one seed
        "The gain in ECE and NLL widens with twice the epochs",
    ]


TREE_ALONE = "The tree alone gains no accuracy: Hier-CE is at most a point above Flat-CE"
TWICE = "The gain in ECE and NLL widens with twice the epochs"


def runs(method, seeds, **changes):
    name, top, leaf = method
    return [record(name, seed, top, leaf, **changes) for seed in seeds]


def test_methods_without_a_common_seed_are_not_compared(judged):
    three = judged([*runs(FLAT, (0, 1)), *runs(OURS, (0, 1)), *runs(HIER, (2,))])
    assert three["Leaf NLL is lower than Flat-CE's"] == "seen"
    assert three[TREE_ALONE] == "not measured"
    assert set(judged([*runs(FLAT, (0, 1)), *runs(OURS, (2, 3))]).values()) == {"not measured"}


def test_twice_the_epochs_need_a_seed_that_all_four_runs_have(judged):
    usual = [*runs(FLAT, (0, 1)), *runs(OURS, (0, 1))]
    # ECE gains 9 points and NLL 0.1 after 20 epochs; 15 and 0.3 after 40.
    flat, ours = ("Flat-CE", FLAT[1], (0.6, 0.25, 1.8)), ("H2EDL", OURS[1], (0.61, 0.1, 1.5))
    met = judged([*usual, *runs(flat, (1,), epochs=40), *runs(ours, (1,), epochs=40)])
    assert met[TWICE] == "seen"
    unmet = judged([*usual, *runs(flat, (1,), epochs=40), *runs(ours, (0,), epochs=40)])
    assert unmet[TWICE] == "not measured"


def test_other_epochs_do_not_stand_for_the_usual_ones(written):
    few = [*runs(FLAT, (0,), epochs=5), *runs(OURS, (0,), epochs=5)]
    assert "seen" not in written(few)


def test_a_figure_that_is_null_is_not_measured(judged):
    records = [*runs(FLAT, (0, 1)), *runs(OURS, (0, 1))]
    records[0]["test"]["tree"]["first_error_depth"] = None
    verdicts = judged(records)
    assert verdicts["Errors stay in the right subtree more often"] == "not measured"
    assert verdicts["Leaf NLL is lower than Flat-CE's"] == "seen"


def test_an_ece_that_is_equal_in_all_seeds_is_tied(written):
    tied = [
        *runs(("Flat-CE", FLAT[1], FLAT[2]), (0, 1)),
        *runs(("H2EDL", FLAT[1], OURS[2]), (0, 1)),
    ]
    assert "| seen | 5.0 against 5.0 %: equal, not significant, p = 1.000 |" in written(tied)


def test_the_figure_says_who_is_better_where_the_claim_does_not(written):
    # An ECE of the top of 4.5 and 5 % in both seeds, and the same area.
    page = written([*runs(FLAT, (0, 1)), *runs(OURS, (0, 1))])
    assert "| 4.5 against 5.0 %: H2EDL is better, p < 0.001 |" in page
    one = [*runs(FLAT, (0,)), *runs(OURS, (0,))]
    one[0]["test"]["leaf"]["risk_coverage_area"] = 0.1
    page = written(one)
    assert "seen | 61.0 against 60.0 %: H2EDL is better, not tested" in page
    assert "zoo<br>ResNet-50<br>trained<br>one seed" in page
    assert (
        "seen | area under risk–coverage 0.200 against 0.100: Flat-CE is better, not tested" in page
    )


def test_coarse_labels_are_compared_over_the_seeds_with_and_without_them(written):
    before = [record("H2EDL", seed, (acc, 0.1, 1.0), OURS[2]) for seed, acc in ((0, 0.9), (1, 0.6))]
    after = [
        record("H2EDL", seed, (acc, 0.1, 1.0), OURS[2], coarse=0.75)
        for seed, acc in ((1, 0.595), (2, 0.2))
    ]
    # Seed 1 alone has both: 60 and 59.5 %.
    assert "| seen | H2EDL -0.50 points of bAcc |" in written([*before, *after])
    assert "seen" not in written([*before, after[1]])
