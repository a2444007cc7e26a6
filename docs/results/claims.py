"""Hold the paper's claims beside the records: called by ``make.py``, which writes the tables.

Each claim is a rule on figures of H2EDL and the methods that it names with the same data, network
and epochs, as means over the seeds that they share. "seen" and "not seen" follow from the rule
alone; what a rule needs and no record has is "not measured". The claims are in the paper's order.
"""

import numpy as np

from skh2edl.benchmark.table import SIGNIFICANCE, paired_p

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


def shared(figure, *runs):
    """Return a figure at the seeds that all runs (seed -> record) have, a line for each run."""
    seeds = sorted(set.intersection(*(set(run) for run in runs)))
    return np.array([[figure(run[seed]) for seed in seeds] for run in runs], dtype=float)


def means(figure, *runs):
    """Return the mean of a figure for each run over the seeds that all runs have."""
    values = shared(figure, *runs)
    return values.mean(axis=1) if values.size else np.full(len(runs), np.nan)


def judged(claim, key, text, holds, *numbers):
    """Return a row: it is not measured if a number that its rule needs is not finite."""
    measured = all(np.isfinite(each).all() for each in numbers)
    return claim, key, bool(holds) if measured else None, text


def compared(ours, flat):
    """Say whose figure is better in the mean, where low is good, and what a paired test says.

    The rule of a claim may ask for less or for more than that.
    """
    p, gain = paired_p(ours, flat), np.mean(flat) - np.mean(ours)
    better = "equal" if gain == 0 else f"{OURS if gain > 0 else FLAT} is better"
    if np.isnan(p):
        return f"{better}, not tested"
    of_test = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"{better}, {of_test}" if p < SIGNIFICANCE else f"{better}, not significant, {of_test}"


def levels(record):
    """Return the names of the levels, from the top to the leaves."""
    return [name for name in record["test"] if name != "tree"]


def at(level, score):
    """Return a function that reads one score at a level: a name, 0 or -1."""

    def figure(record):
        name = level if isinstance(level, str) else levels(record)[level]
        return record["test"][name][score]

    return figure


def setting(key, groups):
    """Return what a reader calls a data set, a network and a recipe, and if it has one seed."""
    parts = [*(SHORT.get(part, part) for part in key[:2]), SHORT.get(key[2], "trained")]
    seeds = {
        seed
        for group, by_epochs in groups.items()
        for of in by_epochs.values()
        for seed in {*of.get(OURS, {}), *of.get(CHOSEN, {})} & {*of.get(FLAT, {})}
        if group[:3] == key
    }
    return ", ".join([*parts, *(["one seed"] if len(seeds) == 1 else [])])


def rows_of(key, by_epochs):
    """Return the rows of one data set, network and recipe."""
    main = None if key[2] == "frozen" else MAIN
    of = by_epochs.get(main, {})
    if not {OURS, FLAT} <= set(of):
        return []
    both = of[OURS], of[FLAT]
    names = levels(next(iter(of[OURS].values())))

    acc = 100 * means(at(-1, "balanced_accuracy"), *both)
    by_seed = shared(at(-1, "balanced_accuracy"), *both)
    text = f"{acc[0]:.1f} against {acc[1]:.1f} %: {compared(*-by_seed) if by_seed.size else ''}"
    claim = "Leaf balanced accuracy is tied (1.5 points)"
    rows = [judged(claim, key, text, abs(acc[0] - acc[1]) <= 1.5, acc)]
    rows += rows_of_three(key, of, names)
    nll = means(at(-1, "nll"), *both)
    text = f"{nll[0]:.3f} against {nll[1]:.3f}"
    rows.append(judged("Leaf NLL is lower than Flat-CE's", key, text, nll[0] < nll[1], nll))
    rows += rows_of_flat_evidential(key, of)
    rows += rows_of_calibration(key, both, names)
    rows.append(row_of_twice(key, both, by_epochs.get(2 * main, {}) if main else {}))
    kept = 100 * means(at(0, "kept_ancestor"), *both)
    depth = means(lambda record: record["test"]["tree"]["first_error_depth"], *both)
    text = (
        f"first-error depth {depth[1]:.3f} to {depth[0]:.3f}; keeps the right {names[0]} in "
        f"{kept[1]:.1f} to {kept[0]:.1f} % of errors"
    )
    milder = depth[0] > depth[1] and kept[0] > kept[1]
    rows.append(
        judged("Errors stay in the right subtree more often", key, text, milder, depth, kept)
    )
    area = shared(at(-1, "risk_coverage_area"), *both)
    ours, flat = means(at(-1, "risk_coverage_area"), *both)
    text = f"area under risk–coverage {ours:.3f} against {flat:.3f}: "
    text += compared(*area) if area.size else ""
    claim = "No gain in selective prediction (0.005)"
    rows.append(judged(claim, key, text, ours > flat - 0.005, ours, flat))
    return rows


def rows_of_calibration(key, both, names):
    """Return the rows on the ECE of H2EDL and Flat-CE at the leaves, the top and every level."""
    ece = {name: 100 * means(at(name, "ece"), *both) for name in names}
    (top, flat_top), (leaf, flat_leaf) = ece[names[0]], ece[names[-1]]
    claim = "Leaf ECE is about half of Flat-CE's (at most 0.6×)"
    ratio = leaf / flat_leaf
    text = f"{leaf:.1f} against {flat_leaf:.1f} %, {ratio:.2f}×"
    rows = [judged(claim, key, text, ratio <= 0.6, ratio)]
    claim = "The ECE of the top level is tied (p at least 0.05)"
    by_seed = shared(at(names[0], "ece"), *both)
    p = paired_p(*by_seed)
    text = f"{top:.1f} against {flat_top:.1f} %: {compared(*by_seed) if by_seed.size else ''}"
    rows.append(judged(claim, key, text, p >= SIGNIFICANCE, p))
    gaps = [flat - ours for ours, flat in ece.values()]
    text = ", ".join(f"{name} {gap:+.1f}" for name, gap in zip(names, gaps, strict=True))
    widens = (np.diff(gaps) > 0).all()
    claim = "The gain in ECE widens with depth"
    return [*rows, judged(claim, key, f"{text} points", widens, gaps)]


def row_of_twice(key, both, twice):
    """Return the row on the gain after the usual epochs and after twice as many."""
    runs = (*both, twice.get(OURS, {}), twice.get(FLAT, {}))
    ece, nll = 100 * means(at(-1, "ece"), *runs), means(at(-1, "nll"), *runs)
    (ece, ece_twice), (nll, nll_twice) = ((v[1] - v[0], v[3] - v[2]) for v in (ece, nll))
    text = f"ECE {ece:+.1f} to {ece_twice:+.1f} points, NLL {nll:+.3f} to {nll_twice:+.3f}"
    claim = "The gain in ECE and NLL widens with twice the epochs"
    wider = ece_twice > ece and nll_twice > nll
    return judged(claim, key, text, wider, ece, ece_twice, nll, nll_twice)


def rows_of_three(key, of, names):
    """Return the rows for which both cross-entropies are needed."""
    runs = [of.get(method, {}) for method in (OURS, FLAT, HIER)]
    _, flat, hier = 100 * means(at(-1, "balanced_accuracy"), *runs)
    claim = "The tree alone gains no accuracy: Hier-CE is at most a point above Flat-CE"
    text = f"{hier:.1f} against {flat:.1f} %"
    rows = [judged(claim, key, text, hier <= flat + 1, hier, flat)]
    claim = "Balanced accuracy above the leaves is higher than of both cross-entropies"
    inner = {name: 100 * means(at(name, "balanced_accuracy"), *runs) for name in names[:-1]}
    text = ", ".join(
        f"{n} {v[0]:.1f} against {v[1]:.1f} and {v[2]:.1f} %" for n, v in inner.items()
    )
    higher = all(v[0] > max(v[1:]) for v in inner.values())
    rows.append(judged(claim, key, text, higher, *inner.values()))
    claim = "Accuracy is tied once the true node of any level is given (1.3 points)"
    forced = {name: 100 * means(at(name, "oracle_descent"), *runs) for name in names[:-1]}
    spread = {name: np.ptp(values) for name, values in forced.items()}
    text = ", ".join(f"{name} given: {points:.1f}" for name, points in spread.items())
    text += " points between the methods"
    tied = all(points <= 1.3 for points in spread.values())
    return [*rows, judged(claim, key, text, tied, *spread.values())]


def rows_of_flat_evidential(key, of):
    """Return the rows on the flat evidential baselines."""
    ours, edl, henn = (of.get(method, {}) for method in (OURS, "Flat-EDL", "HENN"))
    pairs = [means(at(-1, "nll"), ours, theirs) for theirs in (edl, henn)]
    text = ", ".join(f"{own:.3f} against {other:.3f}" for own, other in pairs)
    lower = all(own < other for own, other in pairs)
    rows = [judged("Leaf NLL is lower than Flat-EDL's and HENN's", key, text, lower, *pairs)]
    ece = 100 * means(at(-1, "ece"), edl, ours)
    acc = 100 * means(at(-1, "balanced_accuracy"), edl, ours)
    text = (
        f"ECE {ece[0]:.1f} against {ece[1]:.1f} %, "
        f"balanced accuracy {acc[0]:.1f} against {acc[1]:.1f} %"
    )
    claim = "Flat-EDL has the lower leaf ECE and the lower balanced accuracy"
    is_so = ece[0] < ece[1] and acc[0] < acc[1]
    return [*rows, judged(claim, key, text, is_so, ece, acc)]


def coarse_rows(key, by_epochs, groups):
    """Return the rows on coarse labels of one data set and network."""
    whole = groups.get((*key[:3], 0.0), {})
    own, drop = CHOSEN if key[2] == "frozen" else OURS, "Flat-CE, drop"  # penalties are chosen
    cut = f"With {key[3]:.0%} of the labels cut to the top"
    rows = []
    for epochs, of in by_epochs.items():
        before, changes = whole.get(epochs, {}), {}
        for method in (own, FLAT, drop):
            base = FLAT if method == drop else method
            top = means(at(0, "balanced_accuracy"), of.get(method, {}), before.get(base, {}))
            changes[method] = 100 * (top[0] - top[1])
        text = ", ".join(f"{m} {change:+.2f}" for m, change in changes.items() if change == change)
        claim = f"{cut}, balanced accuracy there falls by at most a point"
        ours = changes[own]
        rows.append(judged(claim, key, f"{text} points of bAcc", ours >= -1, ours))
        claim = f"{cut}, leaves are as accurate as if these were dropped (a point), at less ECE"
        runs = of.get(own, {}), of.get(drop, {})
        acc, ece = (100 * means(at(-1, score), *runs) for score in ("accuracy", "ece"))
        text = f"accuracy {acc[0]:.1f} against {acc[1]:.1f} %, "
        text += f"ECE {ece[0]:.1f} against {ece[1]:.1f} %"
        is_so = abs(acc[0] - acc[1]) <= 1 and ece[0] < ece[1]
        rows.append(judged(claim, key, text, is_so, acc, ece))
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
    called = {key: setting(key, groups) for key in settings}
    words = {None: "not measured", True: "seen", False: "**not\N{NO-BREAK SPACE}seen**"}
    head = ["", *(name.replace(", ", "<br>") for name in called.values())]
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
                lines.append(f"| {called[key]} | {words[verdict]} | {text} |")
        lines += ["", "</details>"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return path
