"""Tables of the benchmark: what they compute from records, and how they are written."""

import copy
import csv
import io
import json

import numpy as np
import pytest
from scipy import stats

from skh2edl.benchmark import Table, make_tables, write_tables
from skh2edl.benchmark.table import Column, Row

NLL = Column("NLL", "nll", 2, "low")
LEVELS = ("manufacturer", "family", "variant")


def table(rows, columns=(NLL,), headings=("method",)):
    return Table("main", "A caption", headings, columns, tuple(rows))


def row(name, *values, reference=None, **text):
    return Row((name,), {"nll": dict(enumerate(values))}, reference, text)


def record(method, seed, nll, *, dataset="zoo", features="plain", epochs=None, budget=1,
           fraction=0.0, top=0.9, evidential=False, l2=0.01):  # fmt: skip
    """Return a record with the given figures, and others that follow from them."""

    def report(nll, top):
        levels = {
            name: {
                "classes": 3 + depth, "support": 10.0, "accuracy": 0.5, "balanced_accuracy":
                top - depth / 10, "nll": nll, "brier": 0.1, "ece": nll / 10, "adaptive_ece": 0.1,
                "risk_coverage_area": 0.1, "kept_ancestor": 0.4 + depth / 10,
                "oracle_descent": 0.5,
            }
            for depth, name in enumerate(LEVELS)
        }  # fmt: skip
        tree = {
            "classes": 9, "support": 10.0, "path_consistency": 0.9, "first_error_depth": 0.7,
            "mistake_severity": 1.5, "hierarchical_distance": 0.8, "hierarchical_precision": 0.7,
            "hierarchical_recall": 0.7, "hierarchical_fscore": 0.7, "operating_area": 0.6,
        }  # fmt: skip
        return {**levels, "tree": tree}

    uncertainty = {"confidence": 0.2, "confidence_error_auroc": 0.8}
    blocks = {"test": report(nll, top), "test_calibrated": report(nll - 0.1, top)}
    if evidential:
        uncertainty |= {"nonspecificity": 0.1, "nonspecificity_error_auroc": 0.7}
        blocks["test_temperature"] = report(nll - 0.2, top)
    return {
        "experiment": {
            "dataset": dataset, "method": method, "classifier": "c", "grid": [],
            "parameters": {} if features else {"backbone": "resnet50"}, "features": features,
            "weights": None, "seed": seed, "train_share": 1.0, "epochs": epochs, "budget": budget,
            "coarse_fraction": fraction, "coarse_level": 1,
        },
        "chosen": {"l2": l2}, "chosen_calibrated": {"l2": 2 * l2}, "best_epoch": 4,
        "doubt": uncertainty, **blocks,
    }  # fmt: skip


def cells(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    header, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return header, body


# One table ------------------------------------------------------------------------------------


def test_a_cell_is_the_mean_and_the_sample_standard_deviation():
    text = table([row("a", 1.0, 2.0, 6.0)]).to_markdown()
    # The mean of 1, 2, 6 is 3; squared deviations 4 + 1 + 9 = 14, over n - 1 = 2.
    assert f"3.00 ± {np.sqrt(7):.2f}" in text


def test_fewer_seeds_than_others_are_counted_and_none_leave_the_cell_empty():
    rows = [row("a", 1.0, 2.0, 3.0), row("b", 1.0, 2.0), row("c", 4.0), row("d")]
    _, body = cells(table(rows).to_markdown())
    assert [line[1] for line in body] == [
        "2.00 ± 1.00",
        "**1.50 ± 0.71 (n = 2)**",
        "4.00 (n = 1)",
        "",
    ]


def test_the_best_mean_is_bold_and_so_is_one_that_the_digits_cannot_tell_from_it():
    rows = [row("a", 1.0), row("b", 1.004), row("c", 2.0)]
    low = table(rows).to_markdown()
    assert [("**" in line[1]) for line in cells(low)[1]] == [True, True, False]
    high = table(rows, [Column("NLL", "nll", 2, "high")]).to_markdown()
    assert [("**" in line[1]) for line in cells(high)[1]] == [False, False, True]
    neither = table(rows, [Column("NLL", "nll", 2)]).to_markdown()
    assert "**" not in neither


def test_the_t_test_is_paired_by_seed_and_marks_what_differs():
    ours, near, far = (1.0, 1.2, 1.1), (1.05, 1.12, 1.2), (1.51, 1.70, 1.60)
    first = row("ours", *ours)
    made = table([first, row("near", *near, reference=first), row("far", *far, reference=first)])
    for line, theirs in zip(made.rows[1:], (near, far), strict=True):
        difference = np.subtract(theirs, ours)
        statistic = difference.mean() / (difference.std(ddof=1) / np.sqrt(3))
        by_hand = 2 * stats.t.sf(abs(statistic), df=2)
        assert made.p_value(line, NLL) == pytest.approx(by_hand, rel=1e-9)
    assert np.isnan(made.p_value(made.rows[0], NLL))
    _, body = cells(made.to_markdown())
    assert [("†" in line[1]) for line in body] == [False, False, True]


def test_equal_differences_need_no_statistic():
    ours = row("ours", 1.0, 2.0)
    same, shifted, one_seed = (
        row("theirs", *values, reference=ours) for values in ((1.0, 2.0), (2.0, 3.0), (5.0,))
    )
    assert Table.p_value(same, NLL) == 1
    assert Table.p_value(shifted, NLL) == 0
    assert np.isnan(Table.p_value(one_seed, NLL))


def test_the_seed_of_an_undefined_figure_does_not_count():
    made = table([row("a", 1.0, np.nan, 3.0), row("b", 1.0, 1.0, 1.0)])
    assert "2.00 ± 1.41 (n = 2)" in made.to_markdown()


def test_latex_has_no_bare_special_character():
    made = table([row("50 % of A_b & C", 1.0, 2.0)], [Column("ECE %", "nll", 1, "low")])
    text = made.to_latex()
    assert r"50 \% of A\_b \& C" in text
    assert r"\textbf{1.5 $\pm$ 0.7} \\" in text
    assert text.count(r"\\") == 2
    assert {r"\toprule", r"\midrule", r"\bottomrule"} <= set(text.splitlines())
    assert "±" not in text


def test_csv_holds_means_deviations_seeds_and_p():
    ours = row("a, b", 1.0, 2.0, l2="0.1, 0.2")
    made = table([ours, row("c", 3.0, 5.0, reference=ours)], (NLL, Column("L2", "l2", 0)))
    header, first, second = csv.reader(io.StringIO(made.to_csv()))
    assert header == ["method", "NLL mean", "NLL std", "NLL n", "NLL p", "L2"]
    assert first == ["a, b", "1.5", "0.707107", "2", "", "0.1, 0.2"]
    p = stats.ttest_rel([3.0, 5.0], [1.0, 2.0]).pvalue
    assert second == ["c", "4", "1.41421", "2", f"{p:.3g}", ""]


# All tables -----------------------------------------------------------------------------------


@pytest.fixture
def records():
    made = []
    for seed in range(3):
        made += [
            record("Flat-CE", seed, 1.0 + seed / 10),
            record("H2EDL", seed, 0.8 + seed / 10, evidential=True),
            record("H2EDL, leaf-path", seed, 0.7, evidential=True),
            record("H2EDL, plain", seed, 2.0, evidential=True),
            record("H2EDL", seed, 0.9, fraction=0.75, top=0.88),
            record("Flat-CE, drop", seed, 1.5, fraction=0.75, top=0.7),
            record("H2EDL", seed, 0.6, epochs=10),
            record("H2EDL", seed, 0.5, epochs=20, budget=2),
        ]
    return made


def test_every_table_of_the_protocol_is_made(records):
    tables = make_tables(records)
    assert list(tables) == [
        f"zoo-plain-frozen-{name}"
        for name in (
            "main",
            "levels",
            "severity",
            "uncertainty",
            "calibration",
            "budget",
            "coarsened",
            "ablation",
        )
    ]


def test_the_main_table_shows_each_method_before_and_after_calibration(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-main"].to_markdown())
    assert header[:4] == ["method", "calibrated", "bAcc %", "acc %"]
    rows = {(line[0], line[1]): line for line in body}
    assert set(rows) == {(m, c) for m in ("Flat-CE", "H2EDL") for c in ("no", "yes")}
    nll, penalty = header.index("NLL"), header.index("L2")
    # 0.8, 0.9, 1.0 before and 0.1 less after, as the records say.
    assert rows["H2EDL", "no"][nll].strip("*†") == "0.900 ± 0.100"
    assert rows["H2EDL", "yes"][nll].strip("*†") == "0.800 ± 0.100"
    assert rows["H2EDL", "yes"][penalty] == "0.02, 0.02, 0.02"
    # Coarse labels and other budgets stay out of it.
    assert rows["Flat-CE", "no"][nll].rstrip("†") == "1.100 ± 0.100"


def test_the_coarsened_table_shows_the_change_at_the_level_the_labels_name(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-coarsened"].to_markdown())
    assert header[:4] == ["method", "fraction", "manufacturer bAcc %", "change of it"]
    change = {(line[0], line[1]): line[3].rstrip("†") for line in body}
    assert change == {
        ("H2EDL", "0"): "0.00 ± 0.00", ("H2EDL", "0.75"): "-2.00 ± 0.00",
        ("Flat-CE, drop", "0"): "0.00 ± 0.00", ("Flat-CE, drop", "0.75"): "-20.00 ± 0.00",
    }  # fmt: skip


def test_the_uncertainty_table_shows_what_the_method_states_beside_its_confidence(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-uncertainty"].to_markdown())
    assert header == ["method", "mean uncertainty", "AUROC of uncertainty", "AUROC of 1 - max P"]
    plain = {line[0]: [cell.strip("*") for cell in line[1:]] for line in body}
    assert plain["Flat-CE"] == ["", "", "0.800 ± 0.000"]
    assert plain["H2EDL"] == ["0.100 ± 0.000", "0.700 ± 0.000", "0.800 ± 0.000"]


def test_the_budget_table_needs_two_budgets(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-budget"].to_markdown())
    assert [(line[0], line[1]) for line in body] == [("H2EDL", "10 (1×)"), ("H2EDL", "20 (2×)")]
    assert body[0][header.index("epoch kept")] == "5 ± 0"
    one = [r for r in records if r["experiment"]["budget"] == 1]
    assert "zoo-plain-frozen-budget" not in make_tables(one)


def test_published_figures_stand_beside_ours_where_they_are_about_the_same(records):
    methods = ("Flat-CE", "H2EDL", "H2EDL, plain", "H2EDL, base-rate")
    ours = [
        record(name, 0, 1.0, dataset="fgvc_aircraft", features=None, epochs=100) for name in methods
    ]
    tables = make_tables(ours)
    header, body = cells(tables["fgvc_aircraft-resnet50-main"].to_markdown())
    first = header.index("published bAcc %")
    assert header[first:] == ["published bAcc %", "published ECE %", "published NLL"]
    # The paper's table of FGVC-Aircraft.
    assert body[0][first:] == ["53.6", "19.5", "2"]
    assert body[1][first:] == ["", "", ""]  # the default is none of the paper's four variants
    assert body[2][first:] == ["", "", ""]  # nothing was published after calibration
    header, body = cells(tables["fgvc_aircraft-resnet50-ablation"].to_markdown())
    first = header.index("published bAcc %")
    assert {line[0]: line[first:] for line in body} == {
        "H2EDL, plain": ["54.9", "8.8", "1.95"],
        "H2EDL, base-rate": ["55.3", "8.5", "1.91"],
        "H2EDL": ["", "", ""],
    }
    header, body = cells(tables["fgvc_aircraft-resnet50-severity"].to_markdown())
    assert body[1][header.index("published first-error depth")] == "0.713"
    assert body[1][header.index("published kept manufacturer %")] == "46.2"
    assert "Liu and Zhuang" in tables["fgvc_aircraft-resnet50-main"].caption
    frozen = make_tables([record("Flat-CE", 0, 1.0, dataset="fgvc_aircraft")])
    assert "published" not in frozen["fgvc_aircraft-plain-frozen-main"].to_markdown()
    assert "published" not in make_tables(records)["zoo-plain-frozen-main"].to_markdown()


def test_two_records_of_one_row_and_seed_are_refused(records):
    again = copy.deepcopy(records[0])
    again["experiment"]["train_share"] = 0.5
    with pytest.raises(ValueError, match="two records are of 'Flat-CE' with seed 0"):
        make_tables([*records, again])


def test_the_same_records_give_the_same_bytes_whatever_their_order(records, tmp_path):
    for folder, order in (("a", records), ("b", records[::-1])):
        (tmp_path / folder).mkdir()
        for number, each in enumerate(order):
            name = f"{each['experiment']['method']}-{number:02d}.json"
            (tmp_path / folder / name).write_text(json.dumps(each))
        write_tables(tmp_path / folder, tmp_path / f"tables-{folder}")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / f"tables-{folder}").iterdir()}
        for folder in "ab"
    )
    assert len(first) == 8 * 3
    assert first == second
