"""Tables and picture of the study of decisions, from its records alone; see decisions.py."""

import json

import numpy as np
from decisions import (
    BY_HAND,
    HERE,
    LEFT_OUT,
    METHODS,
    N_LABELLED,
    RECORDS,
    RULES,
    SEEDS,
    SIMULATED,
    TARGET,
)

TABLES = HERE / "decisions_tables.md"
PICTURE = HERE.parent / "pictures" / "decisions_operating.png"


def load():
    """Return all records."""
    return [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]


def chosen(records, method, seed, left_out, by="val_nll_tempered"):
    """Return the record of the penalty that the validation images prefer; None if not all ran."""
    mine = [
        record
        for record in records
        if (record["method"], record["seed"], record["left_out"]) == (method, seed, list(left_out))
    ]
    if len(mine) < len(METHODS[method][1]):
        return None
    return min(mine, key=lambda record: record[by])


# Title, method, which probabilities.
ROWS = (
    ("H²EDL", "H2EDL", "plain"),
    ("H²EDL + temperature", "H2EDL", "tempered"),
    ("Flat-CE + temperature", "Flat-CE", "tempered"),
    ("Flat-CE", "Flat-CE", "plain"),
)


def spread(values, digits=1, factor=100):
    """Write mean and deviation over the seeds."""
    values = factor * np.asarray(values)
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def table(arguments):
    """Write the tables from the records."""
    from scipy.stats import betabinom

    records = load()
    lines = ["<!-- Made by docs/studies/decisions.py from its records; do not edit. -->", ""]
    sources = {
        "from_half_of_test": "half of the test images",
        "from_val": "validation images",
        "by_hand_0.65": "0.65, by hand",
        "by_hand_0.8": "0.8, by hand",
    }
    header = ["classifier", "rule", "threshold from", "threshold", "error %", "information %"]
    header += ["depth", "leaves %", "root %"]
    lines += ["**Hedged answers**", "", "| " + " | ".join(header) + " |"]
    lines.append("|" + "---|" * len(header))
    for source, source_title in sources.items():
        # At these thresholds "information" is nearly always "climb", so it is shown once.
        rules = {"from_half_of_test": RULES, "from_val": ("climb", "darts")}
        for rule in rules.get(source, ("climb",)):
            for title, method, kind in ROWS:
                found = [
                    record["hedging"][kind][rule][source] | {"threshold_by_hand": source[8:]}
                    for seed in SEEDS
                    if (record := chosen(records, method, seed, ()))
                ]
                if len(found) < len(SEEDS):
                    continue
                threshold = (
                    spread([one["threshold"] for one in found], 2, 1)
                    if source.startswith("from")
                    else found[0]["threshold_by_hand"]
                )
                cells = [title, rule, source_title, threshold]
                cells += [spread([one[key] for one in found]) for key in ("error", "information")]
                cells.append(spread([one["depth"] for one in found], 2, 1))
                cells += [spread([one[key] for one in found]) for key in ("leaf", "root")]
                lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "**Conformal sets at 95 %**, calibrated on half of the test images", ""]
    lines += ["| classifier | score | misses % | leaves | nodes | one leaf % |"]
    lines.append("|---|---|---|---|---|---|")
    for kind_of_score in ("probability", "cumulative"):
        for title, method, kind in ROWS:
            found = [
                record["hedging"][kind]["sets"][kind_of_score]
                for seed in SEEDS
                if (record := chosen(records, method, seed, ()))
            ]
            if len(found) == len(SEEDS):
                cells = [title, kind_of_score, spread([one["error"] for one in found])]
                cells += [spread([one[key] for one in found], 2, 1) for key in ("leaves", "nodes")]
                cells.append(spread([one["one_leaf"] for one in found]))
                lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *penalty_lines(records)]
    lines += ["", "**Validation and test images**", ""]
    # The same test images in every fit, some of them of classes left out.
    (n_test,) = {record["n_new"] + record["n_known"] for record in records if record["left_out"]}
    header = ["classifier", "leaf error % on val", "on test", "KS p-value", "P(error as large)"]
    lines += ["| " + " | ".join([*header, "operating area"]) + " |", "|---|---|---|---|---|---|"]
    for title, method, kind in ROWS:
        found = [
            record["hedging"][kind]
            for seed in SEEDS
            if (record := chosen(records, method, seed, ()))
        ]
        if len(found) == len(SEEDS):
            climb = [one["climb"] for one in found]
            cells = [title]
            cells += [spread([c[key] for c in climb]) for key in ("val_leaf_error",)]
            cells += [spread([c["test_leaf_error"] for c in climb])]
            cells.append(", ".join(f"{c['ks_p_value']:.2f}" for c in climb))
            # Of exchangeable images the number of wrong answers is beta-binomial.
            n_val = chosen(records, method, SEEDS[0], ())["n_val"]
            rank = np.ceil((n_val + 1) * TARGET)
            kept = betabinom(n_test, n_val + 1 - rank, rank)
            wrong = [round(c["from_val"]["error"] * n_test) for c in climb]
            cells.append(", ".join(f"{kept.sf(number - 1):.2f}" for number in wrong))
            cells.append(spread([one["operating_area"] for one in found], 3, 1))
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *novelty_lines(records), "", *annotation_lines(records)]
    lines += ["", *simulated_lines()]
    TABLES.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def penalty_lines(records):
    """Return the table of Flat-CE at every penalty, to see what hangs on the choice."""
    lines = ["**Flat-CE at every penalty**, thresholds from half of the test images", ""]
    header = [
        "L2",
        "val. NLL, tempered",
        "information %: climb",
        "darts",
        "error % at 0.8, untempered",
    ]
    header += ["AUROC: max-probability", "entropy", "chosen"]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    picked = [chosen(records, "Flat-CE", seed, ())["l2"] for seed in SEEDS]
    for l2 in METHODS["Flat-CE"][1]:
        mine = [r for r in records if r["method"] == "Flat-CE" and r["l2"] == l2]
        hedging = [record["hedging"] for record in mine if "hedging" in record]
        new = [record["novelty"] for record in mine if "novelty" in record]
        nll = [record["val_nll_tempered"] for record in mine if "hedging" in record]
        cells = [str(l2), spread(nll, 3, 1)]
        for rule in ("climb", "darts"):
            found = [one["tempered"][rule]["from_half_of_test"]["information"] for one in hedging]
            cells.append(spread(found))
        cells.append(spread([one["plain"]["climb"]["by_hand_0.8"]["error"] for one in hedging]))
        for score in ("max-probability", "entropy"):
            cells.append(f"{100 * np.mean([one[score]['auroc'] for one in new]):.1f}")
        cells.append(f"{picked.count(l2)} of {len(SEEDS)}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def novelty_lines(records):
    """Return the tables of what was left out."""
    scores = [
        ("H²EDL: U", "H2EDL", "U"),
        ("H²EDL: largest mass", "H2EDL", "largest mass"),
        ("H²EDL: max-probability", "H2EDL", "max-probability"),
        ("Flat-CE: max-probability", "Flat-CE", "max-probability"),
        ("Flat-CE: max-probability, tempered", "Flat-CE", "max-probability, tempered"),
        ("Flat-CE: entropy", "Flat-CE", "entropy"),
        ("Flat-CE: energy", "Flat-CE", "energy"),
    ]
    done = [
        left_out
        for left_out in LEFT_OUT
        if all(chosen(records, m, s, left_out) for m in METHODS for s in SEEDS)
    ]
    names = [" + ".join(name.split("/")[1] for name in left_out) for left_out in done]
    lines = ["**AUROC of novelty, % (left out)**", ""]
    lines += ["| score | " + " | ".join([*names, "mean"]) + " |", "|" + "---|" * (len(names) + 2)]
    for title, method, score in scores:
        cells, every = [title], []
        for left_out in done:
            values = [
                chosen(records, method, s, left_out)["novelty"][score]["auroc"] for s in SEEDS
            ]
            cells.append(spread(values))
            every.append(np.mean(values))
        cells.append(f"{100 * np.mean(every):.1f}" if every else "")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "**At a false-alarm rate of 5 % on the validation images**", ""]
    lines += ["| score | novel images found % | false alarms on test % | concept right % |"]
    lines.append("|---|---|---|---|")
    for title, method, score in scores:
        cells = [title]
        for key in ("found", "false_alarms", "concept_right"):
            values = [
                np.mean(
                    [
                        chosen(records, method, seed, left_out)["novelty"][score][key]
                        for left_out in done
                    ]
                )
                for seed in SEEDS
            ]
            cells.append(spread(values) if done else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def annotation_lines(records):
    """Return the table of the next labels."""
    mine = [record["annotation"] for record in records if "annotation" in record]
    lines = [f"**{N_LABELLED} more labels after {N_LABELLED}**", ""]
    lines += ["| chosen | leaf accuracy % | coarse accuracy % |", "|---|---|---|"]
    if len(mine) == len(SEEDS):
        for name in [key for key in mine[0] if key != "mean_depth_asked"]:
            cells = [spread([one[name][level] for one in mine]) for level in ("leaf", "coarse")]
            lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
        depth = spread([one["mean_depth_asked"] for one in mine], 2, 1)
        lines += ["", f"Mean depth asked for: {depth} of 3."]
    return lines


def simulated_lines():
    """Return the table of the simulation."""
    lines = ["**Simulation: error % at a target of 10 %, mean ± its standard error**", ""]
    lines += ["| estimator | samples | one split | cross-validation |", "|---|---|---|---|"]
    for path in sorted(SIMULATED.glob("*.json")):
        record = json.loads(path.read_text())
        cells = [record["estimator"], str(record["n_samples"])]
        for kind in ("one split", "five parts"):
            own = record[kind]
            error = 100 * own["deviation"] / np.sqrt(own["n"])
            cells.append(f"{100 * own['mean']:.1f} ± {error:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def draw(arguments):
    """Draw the operating curves from the records."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    records = load()
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for number, (title, method, kind) in enumerate(ROWS):
        for seed in SEEDS:
            record = chosen(records, method, seed, ())
            hedging = record["hedging"][kind]
            curve = hedging["curve"]
            label = title if seed == SEEDS[0] else None
            color, style = f"C{number}", ("-", "-.", "--", ":")[number]
            axes.plot(curve["information"], curve["accuracy"], style, color=color, label=label)
            point = hedging["information"]["from_half_of_test"]
            axes.plot(point["information"], 1 - point["error"], "o", color=color)
            for by_hand, marker in zip(BY_HAND, ("^", "s"), strict=True):
                at = hedging["climb"][f"by_hand_{by_hand}"]
                axes.plot(at["information"], 1 - at["error"], marker, color=color, mfc="none")
    axes.axhline(TARGET, color="0.6", linewidth=0.8)
    axes.set(xlabel="information of the answers", ylabel="share of answers that are right")
    axes.set(xlim=(0.4, 1.0), ylim=(0.7, 1.0))
    axes.legend(loc="lower left")
    # Without the version of matplotlib in the file, so that it differs only if the picture does.
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})
