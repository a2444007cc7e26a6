"""Hold the paper's claims beside the records: called by ``make.py``, which writes the tables.

Each claim is a rule on figures of H2EDL and Flat-CE with the same data, network and epochs, as
means over the seeds that both have. "seen" and "not seen" follow from the rule alone.
"""

import numpy as np

OURS, FLAT = "H2EDL", "Flat-CE"
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
    ratio = ours["ece"] / flat["ece"]
    text = f"{100 * ours['ece']:.1f} against {100 * flat['ece']:.1f} %, {ratio:.2f}×"
    rows.append(("Leaf ECE is about half of Flat-CE's (at most 0.6×)", key, ratio <= 0.6, text))
    names = levels(next(iter(of[OURS].values())))
    gaps = [
        100 * (mean(of, FLAT, at(n, "ece"), OURS) - mean(of, OURS, at(n, "ece"), FLAT))
        for n in names
    ]
    text = ", ".join(f"{name} {gap:+.1f}" for name, gap in zip(names, gaps, strict=True))
    widens = bool((np.diff(gaps) > 0).all())
    rows.append(("That gain widens with depth", key, widens, f"{text} points"))
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
        rows.append(("It widens with twice the epochs, in ECE and NLL", key, wider, text))
    elif main is not None:
        rows.append(("It widens with twice the epochs, in ECE and NLL", key, None, ""))
    kept = names[0]
    text = (
        f"first-error depth {flat['first']:.3f} to {ours['first']:.3f}; keeps the right {kept} in "
        f"{100 * flat['kept']:.1f} to {100 * ours['kept']:.1f} % of errors"
    )
    milder = ours["first"] > flat["first"] and ours["kept"] > flat["kept"]
    rows.append(("Errors stay in the right subtree more often", key, milder, text))
    text = f"{100 * ours['acc']:.1f} against {100 * flat['acc']:.1f} %"
    tied = abs(ours["acc"] - flat["acc"]) <= 0.015
    rows.append(("Leaf balanced accuracy is tied (1.5 points)", key, tied, text))
    text = f"area under risk–coverage {ours['aurc']:.3f} against {flat['aurc']:.3f}"
    claim, no_gain = "No gain in selective prediction (0.005)", ours["aurc"] > flat["aurc"] - 0.005
    rows.append((claim, key, no_gain, text))
    return rows


FIGURES = {
    "ece": at(-1, "ece"),
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
            claim = f"{key[3]:.0%} of the labels cut to the top cost at most a point there"
            rows.append((claim, key, ours >= -1, ", ".join(texts) + " points of bAcc"))
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
    words = {None: "–", True: "seen", False: "**not\N{NO-BREAK SPACE}seen**"}
    head = ["", *(setting(key).replace(", ", "<br>") for key in settings)]
    lines = ["<!-- Made from records; do not edit. -->", ""]
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for claim in claims:
        cells = [words[found.get((claim, key), (None, ""))[0]] for key in settings]
        lines.append(f"| {' | '.join([claim, *cells])} |")
    for claim in claims:
        lines += ["", f"<details><summary>{claim}</summary>", "", "| | | figure |", "|---|---|---|"]
        for key in settings:
            verdict, text = found.get((claim, key), (None, ""))
            if verdict is not None:
                lines.append(f"| {setting(key)} | {words[verdict]} | {text} |")
        lines += ["", "</details>"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return path
