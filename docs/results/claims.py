"""Hold the paper's claims beside the records: called by ``make.py``, which writes the tables.

Each claim is a rule on figures of H2EDL and both cross-entropies with the same data, network and
epochs, as means over the seeds that they share. "seen" and "not seen" follow from the rule alone;
what a rule needs and no record has is "not measured". The claims are in the paper's order.
"""

import numpy as np
from scipy.stats import ttest_rel

OURS, FLAT, HIER = "H2EDL", "Flat-CE", "Hier-CE"
CHOSEN = "H2EDL, chosen"  # on frozen features, with its penalty chosen on validation images
MAIN = 20  # epochs of the usual budget
# How a reader calls data and networks.
SHORT = {
    "cub_birds": "birds",
    "glyphs": "characters",
    "grocery_store": "groceries",
    "tf_efficientnet_lite0": "lite0",
    "resnet50": "ResNet-50",
    "test_resnet": "small network",
    "frozen": "frozen",
    "from scratch": "from scratch",
}


def grouped(records):
    """Return records by (data, network, recipe, coarse fraction), then epochs, method and seed."""
    groups = {}
    for record in records:
        run = record["experiment"]
        network = run["features"] or run["parameters"]["backbone"]
        kind = "frozen" if run["features"] else run["parameters"].get("recipe", "from scratch")
        method = run["method"].removesuffix(", nothing chosen").removesuffix(", marginal")
        if run["features"] and run["method"] == OURS and run["grid"]:
            method = CHOSEN
        key = (run["dataset"], network, kind, run["coarse_fraction"])
        of_epochs = groups.setdefault(key, {}).setdefault(run["epochs"], {})
        of_epochs.setdefault(method, {})[run["seed"]] = record
    return groups


def mean(of_epochs, method, figure, *others):
    """Return the mean of a figure over the seeds that a method and the others share."""
    seeds = set(of_epochs.get(method, {})).intersection(*(of_epochs.get(o, {}) for o in others))
    return np.mean([figure(of_epochs[method][seed]) for seed in seeds]) if seeds else np.nan


def levels(record):
    """Return the names of the levels, from the top to the leaves."""
    return [name for name in record["test"] if name != "tree"]


def at(level, score):
    """Return a function that reads one score at a level: a name, 0 or -1."""

    def figure(record):
        name = level if isinstance(level, str) else levels(record)[level]
        return record["test"][name][score]

    return figure


def setting(key):
    """Return what a reader calls a data set, a network and a recipe."""
    return ", ".join([*(SHORT.get(part, part) for part in key[:2]), SHORT.get(key[2], "trained")])


def rows_of(key, by_epochs):
    """Return the rows of one data set, network and recipe."""
    rows = []
    usual = [epochs for epochs, of in by_epochs.items() if {OURS, FLAT} <= set(of)]
    if not usual:
        return rows
    main = MAIN if MAIN in usual else usual[0]
    of = by_epochs[main]
    pair = {m: {f: mean(of, m, g, FLAT, OURS) for f, g in FIGURES.items()} for m in (FLAT, OURS)}
    flat, ours = pair[FLAT], pair[OURS]
    names = levels(next(iter(of[OURS].values())))
    text = f"{100 * ours['acc']:.1f} against {100 * flat['acc']:.1f} %"
    tied = abs(ours["acc"] - flat["acc"]) <= 0.015
    rows.append(("Leaf balanced accuracy is tied (1.5 points)", key, tied, text))
    rows += rows_of_three(key, of, names)
    text = f"{ours['nll']:.3f} against {flat['nll']:.3f}"
    rows.append(("Leaf NLL is lower than Flat-CE's", key, ours["nll"] < flat["nll"], text))
    rows += rows_of_flat_evidential(key, of)
    ratio = ours["ece"] / flat["ece"]
    text = f"{100 * ours['ece']:.1f} against {100 * flat['ece']:.1f} %, {ratio:.2f}×"
    rows.append(("Leaf ECE is about half of Flat-CE's (at most 0.6×)", key, ratio <= 0.6, text))
    pairs = [
        [at(names[0], "ece")(of[method][seed]) for seed in sorted(set(of[FLAT]) & set(of[OURS]))]
        for method in (OURS, FLAT)
    ]
    p = ttest_rel(*pairs).pvalue if len(pairs[0]) > 1 else np.nan
    text = f"{100 * np.mean(pairs[0]):.1f} against {100 * np.mean(pairs[1]):.1f} %, "
    text += "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    same = None if np.isnan(p) else bool(p >= 0.05)
    rows.append(("The ECE of the top level is tied (p at least 0.05)", key, same, text))
    gaps = [
        100 * (mean(of, FLAT, at(n, "ece"), OURS) - mean(of, OURS, at(n, "ece"), FLAT))
        for n in names
    ]
    text = ", ".join(f"{name} {gap:+.1f}" for name, gap in zip(names, gaps, strict=True))
    widens = bool((np.diff(gaps) > 0).all())
    rows.append(("The gain in ECE widens with depth", key, widens, f"{text} points"))
    if main is not None and 2 * main in usual:
        both = (of, by_epochs[2 * main])
        seeds = set.intersection(*(set(each[method]) for each in both for method in (OURS, FLAT)))

        def gap(each, score):
            figure = at(-1, score)
            return np.mean([figure(each[FLAT][seed]) - figure(each[OURS][seed]) for seed in seeds])

        change = {score: [gap(each, score) for each in both] for score in ("ece", "nll")}
        text = (
            f"ECE {100 * change['ece'][0]:+.1f} to {100 * change['ece'][1]:+.1f} points, "
            f"NLL {change['nll'][0]:+.3f} to {change['nll'][1]:+.3f}"
        )
        wider = all(after > before for before, after in change.values())
        rows.append(("The gain in ECE and NLL widens with twice the epochs", key, wider, text))
    elif main is not None:
        rows.append(("The gain in ECE and NLL widens with twice the epochs", key, None, ""))
    kept = names[0]
    text = (
        f"first-error depth {flat['first']:.3f} to {ours['first']:.3f}; keeps the right {kept} in "
        f"{100 * flat['kept']:.1f} to {100 * ours['kept']:.1f} % of errors"
    )
    milder = ours["first"] > flat["first"] and ours["kept"] > flat["kept"]
    rows.append(("Errors stay in the right subtree more often", key, milder, text))
    text = f"area under risk–coverage {ours['aurc']:.3f} against {flat['aurc']:.3f}"
    claim, no_gain = "No gain in selective prediction (0.005)", ours["aurc"] > flat["aurc"] - 0.005
    rows.append((claim, key, no_gain, text))
    return rows


def rows_of_three(key, of, names):
    """Return the rows for which both cross-entropies are needed."""
    tree_alone = "The tree alone gains no accuracy: Hier-CE is at most a point above Flat-CE"
    above = "Balanced accuracy above the leaves is higher than of both cross-entropies"
    tied = "Accuracy is tied once the true node of any level is given (1.3 points)"
    three = (OURS, FLAT, HIER)
    if HIER not in of:
        return [(claim, key, None, "") for claim in (tree_alone, above, tied)]

    def means(name, score):
        return [100 * mean(of, method, at(name, score), *three) for method in three]

    _, flat, hier = means(-1, "balanced_accuracy")
    rows = [(tree_alone, key, hier <= flat + 1, f"{hier:.1f} against {flat:.1f} %")]
    inner = {name: means(name, "balanced_accuracy") for name in names[:-1]}
    text = ", ".join(
        f"{n} {v[0]:.1f} against {v[1]:.1f} and {v[2]:.1f} %" for n, v in inner.items()
    )
    rows.append((above, key, all(v[0] > max(v[1:]) for v in inner.values()), text))
    forced = {name: means(name, "oracle_descent") for name in names[:-1]}
    spread = {name: max(values) - min(values) for name, values in forced.items()}
    text = ", ".join(f"{name} given: {points:.1f}" for name, points in spread.items())
    rows.append((tied, key, max(spread.values()) <= 1.3, f"{text} points between the methods"))
    return rows


def rows_of_flat_evidential(key, of):
    """Return the rows on the flat evidential baselines."""
    lower = "Leaf NLL is lower than Flat-EDL's and HENN's"
    price = "Flat-EDL has the lower leaf ECE and the lower balanced accuracy"

    def means(method, score):
        own = mean(of, OURS, at(-1, score), method)
        return own, mean(of, method, at(-1, score), OURS)

    edl, henn = means("Flat-EDL", "nll"), means("HENN", "nll")
    measured = np.isfinite([*edl, *henn]).all()
    text = f"{edl[0]:.3f} against {edl[1]:.3f}, {henn[0]:.3f} against {henn[1]:.3f}"
    is_lower = bool(edl[0] < edl[1] and henn[0] < henn[1]) if measured else None
    rows = [(lower, key, is_lower, text)]
    ece, acc = means("Flat-EDL", "ece"), means("Flat-EDL", "balanced_accuracy")
    text = (
        f"ECE {100 * ece[1]:.1f} against {100 * ece[0]:.1f} %, "
        f"balanced accuracy {100 * acc[1]:.1f} against {100 * acc[0]:.1f} %"
    )
    is_so = bool(ece[1] < ece[0] and acc[1] < acc[0]) if np.isfinite([*ece, *acc]).all() else None
    return [*rows, (price, key, is_so, text)]


FIGURES = {
    "ece": at(-1, "ece"),
    "nll": at(-1, "nll"),
    "acc": at(-1, "balanced_accuracy"),
    "kept": at(0, "kept_ancestor"),
    "aurc": at(-1, "risk_coverage_area"),
    "first": lambda record: record["test"]["tree"]["first_error_depth"],
}


def coarse_rows(key, by_epochs, groups):
    """Return the row on coarse labels of one data set and network."""
    whole = groups.get((*key[:3], 0.0), {})
    rows = []
    for epochs, of in by_epochs.items():
        texts, ours = [], np.nan
        own = CHOSEN if key[2] == "frozen" else OURS  # all have a penalty that was chosen
        for method in (own, FLAT, "Flat-CE, drop"):
            before = whole.get(epochs, {})
            base = "Flat-CE" if method.startswith("Flat-CE") else method
            top = at(0, "balanced_accuracy")
            change = 100 * (mean(of, method, top) - mean(before, base, top))
            if np.isfinite(change):
                texts.append(f"{method} {change:+.2f}")
                ours = change if method == own else ours
        if np.isfinite(ours):
            cut = f"With {key[3]:.0%} of the labels cut to the top"
            claim = f"{cut}, balanced accuracy there falls by at most a point"
            rows.append((claim, key, ours >= -1, ", ".join(texts) + " points of bAcc"))
            claim = f"{cut}, leaves are as accurate as if these were dropped (a point), at less ECE"
            drop = "Flat-CE, drop"
            acc, ece = (
                [100 * mean(of, method, at(-1, score), own, drop) for method in (own, drop)]
                for score in ("accuracy", "ece")
            )
            is_so = None if np.isnan(acc[1]) else abs(acc[0] - acc[1]) <= 1 and ece[0] < ece[1]
            text = f"accuracy {acc[0]:.1f} against {acc[1]:.1f} %, "
            text += f"ECE {ece[0]:.1f} against {ece[1]:.1f} %"
            rows.append((claim, key, is_so, text))
    return rows


def write_claims(records, path):
    """Write which claims are seen where, and below it the figures of each, folded."""
    rows = []
    groups = grouped(records)
    for key, by_epochs in groups.items():
        if key[3]:
            rows += coarse_rows(key, by_epochs, groups)
        else:
            rows += rows_of(key, by_epochs)
    claims = dict.fromkeys(claim for claim, *_ in rows)
    # Trained networks first: the paper's case.
    settings = sorted({key[:3] for _, key, _, _ in rows}, key=lambda key: (key[2] == "frozen", key))
    found = {(claim, key[:3]): (verdict, text) for claim, key, verdict, text in rows}
    words = {None: "not measured", True: "seen", False: "**not\N{NO-BREAK SPACE}seen**"}
    head = ["", *(setting(key).replace(", ", "<br>") for key in settings)]
    lines = ["<!-- Made from records; do not edit. -->", ""]
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for claim in claims:
        cells = [words[found.get((claim, key), (None, ""))[0]] for key in settings]
        lines.append(f"| {' | '.join([claim, *cells])} |")
    for claim in claims:
        if all(found.get((claim, key), (None,))[0] is None for key in settings):
            continue
        lines += ["", f"<details><summary>{claim}</summary>", "", "| | | figure |", "|---|---|---|"]
        for key in settings:
            verdict, text = found.get((claim, key), (None, ""))
            if verdict is not None:
                lines.append(f"| {setting(key)} | {words[verdict]} | {text} |")
        lines += ["", "</details>"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return path
