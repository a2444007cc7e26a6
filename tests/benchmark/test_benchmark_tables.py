"""Tables of the benchmark: what they compute from records, and how they are written."""

import copy
import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from skh2edl.benchmark import Table, make_tables, write_tables
from skh2edl.benchmark.table import BEST, Column, Row, paired_p

NLL = Column("NLL", "nll", 2, "low")
LEVELS = ("manufacturer", "family", "variant")


def table(rows, columns=(NLL,), headings=("method",)):
    return Table("main", "A caption", headings, columns, tuple(rows))


def row(name, *values, reference=None, **text):
    references = {} if reference is None else {"ours": reference}
    return Row((name,), {"nll": dict(enumerate(values))}, references, text)


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


def test_a_figure_of_one_row_alone_is_not_the_best():
    columns = [Column("NLL", "nll", 2, "low"), Column("ECE", "ece", 2, "low")]
    rows = [row("a", 1.0), Row(("b",), {"nll": {0: 2.0}, "ece": {0: 0.1}})]
    _, body = cells(table(rows, columns).to_markdown())
    assert [line[1:] for line in body] == [["**1.00**", ""], ["2.00", "0.10"]]


def test_the_t_test_is_paired_by_seed_and_marks_what_differs():
    ours, near, far = (1.0, 1.2, 1.1), (1.05, 1.12, 1.2), (1.51, 1.70, 1.60)
    first = row("ours", *ours)
    made = table([first, row("near", *near, reference=first), row("far", *far, reference=first)])
    for line, theirs in zip(made.rows[1:], (near, far), strict=True):
        difference = np.subtract(theirs, ours)
        statistic = difference.mean() / (difference.std(ddof=1) / np.sqrt(3))
        by_hand = 2 * stats.t.sf(abs(statistic), df=2)
        assert made.p_value(line, NLL, "ours") == pytest.approx(by_hand, rel=1e-9)
    assert np.isnan(made.p_value(made.rows[0], NLL, "ours"))
    _, body = cells(made.to_markdown())
    assert [("†" in line[1]) for line in body] == [False, False, True]


def test_equal_differences_need_no_statistic():
    ours = row("ours", 1.0, 2.0)
    same, shifted, one_seed = (
        row("theirs", *values, reference=ours) for values in ((1.0, 2.0), (2.0, 3.0), (5.0,))
    )
    assert Table.p_value(same, NLL, "ours") == 1
    assert Table.p_value(shifted, NLL, "ours") == 0
    assert np.isnan(Table.p_value(one_seed, NLL, "ours"))
    assert np.isnan(paired_p([1.0, 2.0, np.nan], [1.5, 2.0, 3.0]))
    assert np.isnan(paired_p([], []))


def test_each_reference_has_its_own_mark_and_its_own_p():
    flat, hier = row("flat", 1.0, 1.2, 1.1), row("hier", 3.0, 3.3, 3.1)
    near_flat, far = (1.05, 1.12, 1.2), (2.0, 2.21, 2.1)
    rows = [
        Row(("a",), {"nll": dict(enumerate(near_flat))}, {"flat": flat, "hier": hier}),
        Row(("b",), {"nll": dict(enumerate(far))}, {"flat": flat, "hier": hier}),
        Row(("hier",), hier.figures, {"flat": flat, "hier": None}),
    ]
    made = table(rows)
    marks = ["".join(c for c in line[1] if c in "†‡") for line in cells(made.to_markdown())[1]]
    assert marks == ["‡", "†‡", "†"]
    *_, last = csv.reader(io.StringIO(made.to_csv()))
    p = stats.ttest_rel(list(hier.figures["nll"].values()), list(flat.figures["nll"].values()))
    assert last[-2:] == [f"{p.pvalue:.3g}", ""]


def test_rows_that_are_measures_have_their_own_digits_and_best():
    low, high = Column("ECE", "ece", 1, "low"), Column("acc", "acc", 2, "high")
    columns = (Column("one", "1", 0), Column("Δ", "change", 0, signed=True))

    def measured(measure, name, value, change):
        return Row((measure.title, name), {"1": {0: value}, "change": {0: change}}, measure=measure)

    rows = [measured(low, "a", 1, 0.5), measured(low, "b", 2, -0.5),
            measured(high, "a", 1, 1), measured(high, "b", 2, -1)]  # fmt: skip
    _, body = cells(table(rows, columns, ("measure", "method")).to_markdown())
    assert [line[2] for line in body] == ["**1.0**", "2.0", "1.00", "**2.00**"]
    assert [line[3] for line in body] == ["+0.5", "-0.5", "+1.00", "-1.00"]


def test_the_seed_of_an_undefined_figure_does_not_count():
    made = table([row("a", 1.0, np.nan, 3.0), row("b", 1.0, 1.0, 1.0)])
    assert "2.00 ± 1.41 (n = 2)" in made.to_markdown()


def test_latex_has_no_bare_special_character():
    rows = [row("50 % of A_b & C", 1.0, 2.0), row("D", 3.0, 4.0)]
    made = table(rows, [Column("ECE %", "nll", 1, "low")])
    made = replace(made, note="p < 0.05, {x}^2 > |y|")
    text = made.to_latex()
    assert r"p $<$ 0.05, \{x\}\textasciicircum{}2 $>$ $|$y$|$." in text
    assert r"50 \% of A\_b \& C" in text
    assert r"\textbf{1.5 $\pm$ 0.7} \\" in text
    assert text.count(r"\\") == 3
    assert {r"\toprule", r"\midrule", r"\bottomrule"} <= set(text.splitlines())
    assert "±" not in text


def test_latex_underlines_the_second_best_as_the_paper_does():
    """The NLL of its main table on DERM12345, in which two variants share the first place."""
    published = {"Flat-CE": 2.48, "HENN": 1.99, "plain": 1.80, "leaf-path": 1.78, "cons.": 1.78}
    made = replace(table([row(name, nll) for name, nll in published.items()]), note=f"{BEST}")
    lines = {line.split(" & ")[0]: line for line in made.to_latex().splitlines()}
    assert lines["plain"] == r"plain & \underline{1.80} \\"
    for name in ("leaf-path", "cons."):
        assert lines[name] == rf"{name} & \textbf{{1.78}} \\"
    assert lines["HENN"] == r"HENN & 1.99 \\"
    assert "bold is the best mean, underlined is the second best." in made.to_latex()
    assert "underline" not in made.to_markdown() + made.legend


def test_a_change_that_rounds_to_zero_has_no_minus():
    change = Column("change", "nll", 1, signed=True)
    shown = table([row("a", -0.01, -0.03), row("b", -0.2, -0.4)], [change]).to_markdown()
    assert "| a | +0.0 ± 0.0 |" in shown
    assert "| b | -0.3 ± 0.1 |" in shown


def test_csv_holds_means_deviations_seeds_and_p():
    ours = row("a, b", 1.0, 2.0, l2="0.1, 0.2")
    made = table([ours, row("c", 3.0, 5.0, reference=ours)], (NLL, Column("L2", "l2", 0)))
    header, first, second = csv.reader(io.StringIO(made.to_csv()))
    assert header == ["method", "NLL mean", "NLL std", "NLL n", "NLL p against ours", "L2"]
    assert first == ["a, b", "1.5", "0.707107", "2", "", "0.1, 0.2"]
    p = stats.ttest_rel([3.0, 5.0], [1.0, 2.0]).pvalue
    assert second == ["c", "4", "1.41421", "2", f"{p:.3g}", ""]


# All tables -----------------------------------------------------------------------------------


PAPERS = ("Flat-CE", "Flat-EDL", "Hier-CE", "HENN", "I-EDL")
VARIANTS = ("H2EDL, plain", "H2EDL, leaf-path", "H2EDL, consistency", "H2EDL, base-rate")


@pytest.fixture
def records():
    made = []
    for seed in range(3):
        made += [
            record("Flat-CE", seed, 1.0 + seed / 10),
            record("Hier-CE", seed, 1.1 + seed**2 / 10),
            record("H2EDL", seed, 0.8 + seed / 10, evidential=True),
            record("H2EDL, leaf-path", seed, 0.7, evidential=True),
            record("H2EDL, plain", seed, 2.0, evidential=True),
            record("I-EDL, c = 0.05", seed, 3.0),
            record("H2EDL", seed, 0.9, fraction=0.75, top=0.88),
            record("Flat-CE, drop", seed, 1.5, fraction=0.75, top=0.7),
            record("Flat-CE", seed, 1.2 + seed / 10, epochs=10),
            record("Flat-CE", seed, 1.6 + seed / 5, epochs=20, budget=2),
            record("H2EDL", seed, 0.6, epochs=10),
            record("H2EDL", seed, 0.5, epochs=20, budget=2),
        ]
    return made


TABLE_NAMES = (
    "main", "levels", "severity", "descent", "consistency", "ablation", "uncertainty",
    "constants", "calibration", "budget", "coarsened",
)  # fmt: skip


def test_every_table_of_the_protocol_is_made(records):
    assert list(make_tables(records)) == [f"zoo-plain-frozen-{name}" for name in TABLE_NAMES]
    some = make_tables(records, ["budget", "main"])
    assert list(some) == ["zoo-plain-frozen-main", "zoo-plain-frozen-budget"]


def test_a_table_of_one_seed_says_that_nothing_is_tested(records):
    one = [each for each in records if each["experiment"]["seed"] == 1]
    for made in make_tables(one).values():
        assert ", seed 1: " in made.caption
        assert made.note.startswith("One seed, nothing is tested")
        assert "t-test" not in made.legend
        assert not set(made.to_markdown()) & set("±†‡")


def test_a_table_names_the_methods_settings_and_seeds_without_a_record(records):
    partial = [r for r in records if r["experiment"]["method"] != "Hier-CE"]
    partial = [
        r for r in partial
        if (r["experiment"]["method"], r["experiment"]["seed"]) != ("H2EDL, plain", 1)
        and not (r["experiment"]["budget"] == 2 and r["experiment"]["method"] == "Flat-CE")
    ]  # fmt: skip
    tables = make_tables(partial)
    main = tables["zoo-plain-frozen-main"]
    assert {"Hier-CE", "HENN", "H2EDL, base-rate", "H2EDL, plain, seed 1"} <= set(main.missing)
    assert not {"Flat-CE", "H2EDL", "H2EDL, plain"} & set(main.missing)
    assert "No record of: Flat-EDL; Hier-CE; HENN;" in main.legend
    assert "No record of: Flat-EDL; Hier-CE; HENN;" in main.to_latex()
    assert "Flat-CE at 20 epochs" in tables["zoo-plain-frozen-budget"].missing
    coarse = tables["zoo-plain-frozen-coarsened"].missing
    assert {"Flat-CE, soft", "H2EDL, plain", "f = 0.25", "f = 0.5"} <= set(coarse)
    assert "f = 0.75" not in coarse


def test_the_caption_says_what_was_run(records):
    made = [
        record("Flat-CE", seed, 1.0, features=None, epochs=epochs, budget=epochs / 30,
               fraction=fraction)
        for seed in (0, 5) for epochs, fraction in ((30, 0.0), (12, 0.0), (12, 0.5), (60, 0.0))
    ]  # fmt: skip
    for each in made:
        each["experiment"]["parameters"]["image_size"] = 64
        if each["experiment"]["coarse_fraction"]:
            each["experiment"]["method"] = "Flat-CE, drop"
    tables = make_tables(made)
    start = "zoo, resnet50, trained whole for"
    main, budget, coarse = (tables[f"zoo-resnet50-{n}"] for n in ("main", "budget", "coarsened"))
    assert main.caption.startswith(f"{start} 30 epochs at 64 px, seeds 0, 5: leaves")
    assert budget.caption.startswith(f"{start} 30, 60 epochs at 64 px, seeds 0, 5: epochs")
    assert coarse.caption.startswith(f"{start} 12 epochs at 64 px, seeds 0, 5: a fraction")
    frozen = make_tables(records)["zoo-plain-frozen-main"].caption
    assert "heads on frozen features, fitted until they converge, seeds 0, 1, 2" in frozen


def test_the_main_table_shows_each_method_as_it_is_and_calibrated(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-main"].to_markdown())
    assert header[:6] == ["method", "Unc.", "bAcc %", "ECE %", "NLL", "acc %"]
    rows = {line[0]: line for line in body}
    assert list(rows) == ["Flat-CE", "Hier-CE", "H2EDL, plain", "H2EDL, leaf-path", "H2EDL"]
    assert [rows[name][1] for name in ("Flat-CE", "H2EDL")] == ["", "✓"]
    nll, after = header.index("NLL"), header.index("NLL, calibrated")
    # 0.8, 0.9, 1.0 before and 0.1 less after, as the records say.
    assert rows["H2EDL"][nll].strip("*†‡") == "0.900 ± 0.100"
    assert rows["H2EDL"][after].strip("*†‡") == "0.800 ± 0.100"
    assert rows["H2EDL"][header.index("L2")] == "0.01, 0.01, 0.01"
    # Coarse labels and other budgets stay out of it.
    assert rows["Flat-CE"][nll].strip("*†‡") == "1.100 ± 0.100"


def test_every_level_has_its_accuracy_and_calibration(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-levels"].to_markdown())
    names = [f"{level} {what}" for what in ("bAcc %", "ECE %", "ECE %, calibrated")
             for level in LEVELS]  # fmt: skip
    assert header == ["method", *names]
    # 0.9, 0.8 and 0.7 from the top, as the records say.
    assert [cell.strip("*†‡") for cell in body[0][1:4]] == [
        "90.0 ± 0.0", "80.0 ± 0.0", "70.0 ± 0.0",
    ]  # fmt: skip


def test_the_descent_shows_the_accuracy_with_a_level_given_and_where_errors_are_made(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-descent"].to_markdown())
    assert header[1:] == [
        "acc %, none given", "acc %, manufacturer given", "acc %, family given",
        "wrong manufacturer, % of errors", "wrong family, % of errors",
    ]  # fmt: skip
    # Kept ancestors are 0.4 and 0.5 of the errors; the others are wrong there.
    assert [cell.strip("*†‡").split()[0] for cell in body[0][4:]] == ["60.0", "50.0"]


def test_the_ablation_counts_changes_from_the_plain_variant(records):
    table = make_tables(records)["zoo-plain-frozen-ablation"]
    header, body = cells(table.to_markdown())
    change = {line[0]: line[header.index("change of NLL")].strip("†‡") for line in body}
    assert change["H2EDL, plain"] == "+0.000 ± 0.000"
    assert change["H2EDL, leaf-path"] == "-1.300 ± 0.000"
    assert change["H2EDL"] == "-1.100 ± 0.100"
    without = [r for r in records if r["experiment"]["method"] not in VARIANTS]
    assert "zoo-plain-frozen-ablation" not in make_tables(without)


def test_the_constants_stand_below_their_method(records):
    made = [*records, *(record("I-EDL", seed, 2.5) for seed in range(3))]
    _, body = cells(make_tables(made)["zoo-plain-frozen-constants"].to_markdown())
    names = [line[0] for line in body]
    assert names.index("I-EDL, c = 0.05") == names.index("I-EDL") + 1


def test_the_coarsened_table_shows_the_change_of_every_measure(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-coarsened"].to_markdown())
    assert header == ["measure", "method", "f = 0", "f = 0.75", "Δ"]
    change = {(line[0], line[1]): line[4].rstrip("†‡") for line in body}
    # The top level has 0.9 without coarse labels, and 0.88 and 0.7 with them.
    assert change["manufacturer bAcc %", "H2EDL"] == "-2.0 ± 0.0"
    assert change["manufacturer bAcc %", "Flat-CE, drop"] == "-20.0 ± 0.0"
    assert {measure for measure, _ in change} == {
        "manufacturer bAcc %", "leaf acc %", "leaf ECE %", "leaf NLL", "ECE %, calibrated",
        "NLL, calibrated",
    }  # fmt: skip


def test_the_uncertainty_table_shows_what_the_method_states_beside_its_confidence(records):
    header, body = cells(make_tables(records)["zoo-plain-frozen-uncertainty"].to_markdown())
    assert header == [
        "method", "mean uncertainty", "AUROC of uncertainty", "AUROC of 1 - max P", "AURC",
    ]  # fmt: skip
    plain = {line[0]: [cell.strip("*") for cell in line[1:]] for line in body}
    assert plain["Flat-CE"][:3] == ["", "", "0.800 ± 0.000"]
    assert plain["H2EDL"][:3] == ["0.100 ± 0.000", "0.700 ± 0.000", "0.800 ± 0.000"]


def test_the_budget_table_has_the_change_the_ratio_and_the_gap(records):
    made = make_tables(records)["zoo-plain-frozen-budget"]
    header, body = cells(made.to_markdown())
    assert header == ["measure", "method", "10 epochs", "20 epochs", "Δ"]
    rows = {(line[0], line[1]): [cell.strip("*†‡") for cell in line[2:]] for line in body}
    # The ECE of a record is a tenth of its NLL: 13, 18 and 6, 5 percent.
    assert rows["ECE %", "Flat-CE"] == ["13.0 ± 1.0", "18.0 ± 2.0", "+5.0 ± 1.0"]
    ratio = rows["ECE %", "ratio: Flat-CE / H2EDL"]
    gap = rows["NLL", "gap: Flat-CE - H2EDL"]
    p = stats.ttest_rel([0.16, 0.18, 0.2], [0.05] * 3).pvalue
    assert ratio == ["2.2×", "3.6×", f"p = {p:.3f}"]
    assert gap == ["0.70", "1.30", f"p = {p:.3f}"]
    assert not any("ratio" in name for measure, name in rows if measure == "bAcc %")
    one = [r for r in records if r["experiment"]["budget"] == 1]
    assert "zoo-plain-frozen-budget" not in make_tables(one)


# The paper's figures ----------------------------------------------------------------------------


def published(dataset, table, budgets=(1,), fractions=(0.0,), methods=(*PAPERS, *VARIANTS)):
    """Return row -> column -> published figure, from records of every method in the paper."""
    levels = {"derm12345": ("super", "main-1", "main-2", "label")}.get(dataset, LEVELS)
    made = []
    further = ("H2EDL", "I-EDL, c = 0.05", "I-EDL, as published", "HENN, as published",
               "H2EDL, plain, as published", "Flat-CE, soft", "Flat-CE, drop")  # fmt: skip
    for method in (*methods, *further):
        for fraction in fractions:
            for budget in budgets:
                each = record(method, 0, 1.0, dataset=dataset, features=None, fraction=fraction,
                              epochs=int(100 * budget), budget=budget)  # fmt: skip
                for block in ("test", "test_calibrated"):
                    figures = each[block]["variant"]
                    each[block] = {name: figures for name in levels} | {"tree": each[block]["tree"]}
                made.append(each)
    made = make_tables(made)[f"{dataset}-resnet50-{table}"]
    header, body = cells(made.to_markdown())
    assert "Liu and Zhuang" in made.legend
    n = len(made.headings)
    return {
        line[n - 1] if n == 1 else tuple(line[:n]): {
            name.removeprefix("published "): cell
            for name, cell in zip(header, line, strict=True) if name.startswith("published ")
        }
        for line in body
    }  # fmt: skip


def test_the_published_figures_stand_at_the_variant_that_the_paper_means():
    main = published("fgvc_aircraft", "main")
    assert main["Flat-CE"] == {"bAcc %": "53.6 ± 0.5", "ECE %": "19.5 ± 1.9", "NLL": "2.00 ± 0.10"}
    assert main["H2EDL, plain"]["bAcc %"] == "54.9 ± 1.7"
    assert main["H2EDL, base-rate"]["NLL"] == "1.91 ± 0.01"
    assert set(main["H2EDL"].values()) == {""}  # the default is none of the paper's four
    derm = published("derm12345", "main")
    assert derm["HENN"]["bAcc %"] == "35.8 ± 1.4"
    assert derm["H2EDL, consistency"]["ECE %"] == "16.0 ± 3.5"
    for rows in (main, derm):
        assert all(rows[name]["NLL"] for name in (*PAPERS, *VARIANTS))


def test_the_published_figures_of_levels_severity_descent_and_consistency():
    levels = published("derm12345", "levels")
    wanted = {"super bAcc %": "88.6 ± 0.3", "main-1 bAcc %": "59.2 ± 2.4",
              "main-2 bAcc %": "48.3 ± 2.1", "label bAcc %": "33.8 ± 2.9",
              "label ECE %": "17.3 ± 1.8"}  # fmt: skip
    assert levels["H2EDL, leaf-path"] == wanted
    aircraft = published("fgvc_aircraft", "levels")
    assert aircraft["Flat-CE"]["manufacturer bAcc %"] == "77.1"
    severity = published("fgvc_aircraft", "severity")["H2EDL, plain"]
    assert severity == {
        "first-error depth": "0.713 ± 0.031", "p of first-error depth": "0.036",
        "kept manufacturer %": "46.2 ± 2.6", "p of kept manufacturer": "0.060",
        "p of acc": "0.21 or 0.73",
    }  # fmt: skip
    assert published("derm12345", "severity")["Flat-CE"]["kept main-1 %"] == "25.6 ± 2.5"
    descent = published("derm12345", "descent")["HENN"]
    assert descent == {
        "acc %, none given": "~57", "acc %, super given": "~79",
        "wrong main-1, % of errors": "~70 to 74",
    }  # fmt: skip
    consistency = published("fgvc_aircraft", "consistency")
    assert consistency["H2EDL, plain"]["path consistency %"] == "93.1"
    assert consistency["H2EDL, consistency"]["path consistency %"] == "92.3"


def test_rows_with_published_constants_have_the_published_figures_beside_them():
    aircraft = published("fgvc_aircraft", "constants")
    for row in ("I-EDL, c = 0.05", "I-EDL, as published"):
        assert aircraft[row]["bAcc %"] == "16.9"
        assert aircraft[row]["NLL"] == ""
    assert aircraft["HENN, as published"] == aircraft["HENN"]
    assert aircraft["HENN, as published"]["ECE %"] == "8.6 ± 2.8"
    assert aircraft["H2EDL, plain, as published"]["NLL"] == "1.95 ± 0.06"
    # Where 0.05 is what the paper takes, the row has its figures.
    lesions = published("derm12345", "constants")
    assert lesions["I-EDL, as published"]["NLL"] == "2.36 ± 0.02"


def test_the_published_figures_of_the_budget_and_of_coarse_labels():
    budget = published("fgvc_aircraft", "budget", budgets=(1, 2))
    assert budget["ECE %", "Flat-CE"] == {
        "100 epochs": "19.5 ± 1.9", "200 epochs": "24.1 ± 1.8", "Δ": "+4.6",
    }  # fmt: skip
    ratio = budget["ECE %", "ratio: Flat-CE / H2EDL, plain"]
    assert list(ratio.values()) == ["2.2×", "2.8×", "p = 0.009"]
    gap = budget["NLL", "gap: Flat-CE - H2EDL, plain"]
    assert list(gap.values()) == ["0.05", "0.26", "p = 0.006"]
    coarse = published("derm12345", "coarsened", fractions=(0.0, 0.25, 0.5, 0.75), budgets=(0.4,))
    assert list(coarse["super bAcc %", "H2EDL, plain"].values()) == [
        "87.4 ± 1.4", "88.0 ± 0.6", "86.2 ± 1.5", "87.0 ± 1.9", "-0.4",
    ]  # fmt: skip
    assert coarse["leaf acc %", "Flat-CE, soft"]["f = 0.75"] == "37.6 ± 4.8"
    assert coarse["leaf NLL", "Flat-CE, drop"]["f = 0.5"] == "2.31 ± 0.02"


def test_frozen_features_and_other_data_have_no_published_figures(records):
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
    assert len(first) == len(TABLE_NAMES) * 3
    assert first == second
