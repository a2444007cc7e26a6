"""Study of decisions under doubt on frozen features of the Grocery Store data.

Run it in four steps; the first two resume where they were interrupted::

    python docs/studies/decisions.py run GROCERY_FOLDER --weights WEIGHTS_FOLDER
    python docs/studies/decisions.py simulate
    python docs/studies/decisions.py table
    python docs/studies/decisions.py draw

`run` writes one JSON record for each fit to ``docs/studies/records/decisions``, `simulate` one for
each estimator on drawn data beside them; neither overwrites any. `table` makes
``docs/studies/decisions_tables.md`` and `draw` ``docs/pictures/decisions_operating.png``, both from
the records alone.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "decisions"
SIMULATED = HERE / "records" / "decisions_simulated"
TABLES = HERE / "decisions_tables.md"
PICTURE = HERE.parent / "pictures" / "decisions_operating.png"

BACKBONE, WEIGHTS = "tf_efficientnet_lite0", "tf_efficientnet_lite0.safetensors"
SEEDS = (0, 1, 2)
# None is the default of the class; a grid is chosen from by the validation images.
METHODS = {
    "H2EDL": ("H2EDLClassifier", (None,)),
    "Flat-CE": ("FlatCEClassifier", (0.03, 0.01, 0.003, 0.001)),
}
TARGET, BY_HAND = 0.95, (0.65, 0.8)
RULES = ("climb", "information", "darts")
N_SPLITS = 100
# Two coarse classes each time, which the classifier never sees and its tree does not hold.
LEFT_OUT = (
    ("Fruit/Apple", "Packages/Juice"),
    ("Fruit/Melon", "Packages/Milk"),
    ("Fruit/Pear", "Vegetables/Pepper"),
    ("Packages/Yoghurt", "Vegetables/Potato"),
    ("Fruit/Banana", "Vegetables/Tomato"),
)


def features_of(data, weights, cache):
    """Compute the features of all images once."""
    from skh2edl import ImageFeatureExtractor

    path = Path(cache) / f"{BACKBONE}.npy"
    if path.exists():
        return np.load(path)
    extractor = ImageFeatureExtractor(BACKBONE, weights=Path(weights) / WEIGHTS, verbose=1)
    features = extractor.fit_transform(list(data.images))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, features)
    return features


def judge(answers, truth, tree):
    """Return error, information, depth and share of roots and leaves of answers."""
    from skh2edl.decisions._ladders import information_of_nodes

    information = information_of_nodes(tree)
    meeting = tree.lowest_common_ancestor(answers, truth)
    size = tree.leaf_stop - tree.leaf_start
    return {
        "error": float(np.mean(meeting != answers)),
        # Of a wrong answer as much counts as it shares with the truth.
        "information": float(np.mean(information[meeting] / information[truth])),
        "depth": float(np.mean(tree.depths[answers])),
        "root": float(np.mean(size[answers] == tree.n_leaves)),
        "leaf": float(np.mean(size[answers] == 1)),
    }


def mean_of(results):
    """Average records key by key, with the deviation of the error."""
    means = {key: float(np.mean([one[key] for one in results])) for key in results[0]}
    means["error_deviation"] = float(np.std([one["error"] for one in results]))
    return means


def hedge(classifier, X, y, tree, seed):
    """Return what hedged answers are like, by where the threshold comes from."""
    from scipy.stats import ks_2samp

    from skh2edl.decisions._held_out import read_leaves
    from skh2edl.decisions._ladders import last_rung, make_ladder, thresholds_needed
    from skh2edl.decisions._quantile import conformal_quantile
    from skh2edl.metrics import operating_area, operating_curve

    truth = {part: tree.last_of_chain[tree.resolve(y[part])] for part in y}
    leaves = {part: read_leaves(classifier, X[part], tree) for part in X}
    record = {}
    for rule in RULES:
        ladders = {part: make_ladder(rule, leaves[part], tree) for part in leaves}
        needed = {part: thresholds_needed(ladders[part], truth[part], tree) for part in leaves}

        def answered(threshold, rows, ladder=ladders["test"]):
            part = type(ladder)(ladder.nodes[rows], ladder.scores[rows])
            return part.nodes[np.arange(len(rows)), last_rung(part, threshold)]

        every = np.arange(len(truth["test"]))
        threshold = conformal_quantile(needed["val"], TARGET, np.ones(len(needed["val"])))
        own = {"from_val": judge(answered(threshold, every), truth["test"], tree)}
        own["from_val"]["threshold"] = threshold
        rng, halves = np.random.default_rng(seed), []
        for _ in range(N_SPLITS):
            order = rng.permutation(every)
            held, new = order[: len(order) // 2], order[len(order) // 2 :]
            threshold = conformal_quantile(needed["test"][held], TARGET, np.ones(len(held)))
            halves.append(judge(answered(threshold, new), truth["test"][new], tree))
            halves[-1]["threshold"] = threshold
        own["from_half_of_test"] = mean_of(halves)
        if rule == "climb":
            for by_hand in BY_HAND:
                own[f"by_hand_{by_hand}"] = judge(answered(by_hand, every), truth["test"], tree)
            # Are validation and test images alike? Their leaves, and what they would need.
            own["val_leaf_error"] = float(np.mean(needed["val"] > 0))
            own["test_leaf_error"] = float(np.mean(needed["test"] > 0))
            own["ks_p_value"] = float(ks_2samp(needed["val"], needed["test"]).pvalue)
        record[rule] = own
    record["sets"] = {
        kind: cover(leaves["test"], truth["test"], tree, kind, seed)
        for kind in ("probability", "cumulative")
    }
    proba = leaves["test"][:, tree.leaf_order]
    proba = proba / proba.sum(axis=1, keepdims=True)
    curve = operating_curve(y["test"], proba, tree)
    picked = np.unique(np.linspace(0, len(curve.threshold) - 1, 200).astype(int))
    record["operating_area"] = float(operating_area(y["test"], proba, tree))
    record["curve"] = {
        "information": np.round(curve.information[picked], 5).tolist(),
        "accuracy": np.round(curve.accuracy[picked], 5).tolist(),
    }
    return record


def cover(leaves, truth, tree, kind, seed):
    """Return size and coverage of conformal sets, calibrated on one half of the test images."""
    from skh2edl.decisions._quantile import conformal_quantile
    from skh2edl.decisions.conformal import leaf_scores, write_as_nodes

    scores = leaf_scores(leaves, kind, tree)
    own = scores[np.arange(len(truth)), tree.leaf_start[truth]]
    rng, halves = np.random.default_rng(seed), []
    for _ in range(N_SPLITS // 5):
        order = rng.permutation(len(truth))
        held, new = order[: len(order) // 2], order[len(order) // 2 :]
        largest = conformal_quantile(own[held], TARGET, np.ones(len(held)))
        members = scores[new] <= largest
        halves.append(
            {
                "error": float(np.mean(own[new] > largest)),
                "leaves": float(members.sum(axis=1).mean()),
                "nodes": float(np.mean([len(one) for one in write_as_nodes(members, tree)])),
                "one_leaf": float(np.mean(members.sum(axis=1) == 1)),
            }
        )
    return mean_of(halves)


def find_novel(plain, calibrated, X, y, is_new, parents):
    """Return how well each score tells images of the classes left out."""
    from scipy.special import logsumexp
    from sklearn.frozen import FrozenEstimator
    from sklearn.metrics import roc_auc_score

    from skh2edl import NoveltyDetector

    def energy(fitted, samples):
        # Needs the logits, which a probability has lost.
        return -logsumexp(plain._read(samples, "read_out")[0].astype(np.float64), axis=1)

    measures = {
        "max-probability": (plain, "probability"),
        "max-probability, tempered": (calibrated, "probability"),
        "entropy": (plain, "entropy"),
    }
    if hasattr(plain, "predict_hyper_opinion"):
        measures |= {"U": (plain, "nonspecificity"), "largest mass": (plain, "mass")}
    else:
        measures["energy"] = (plain, energy)
    record = {}
    for name, (classifier, measure) in measures.items():
        detector = NoveltyDetector(FrozenEstimator(classifier), measure=measure)
        detector.fit(X["val"], y["val"])
        scores = detector.predict_novelty_score(X["test"])
        found = detector.predict_novelty(X["test"])
        concepts = detector.predict_concept(X["test"][is_new])
        record[name] = {
            "auroc": float(roc_auc_score(is_new, scores)),
            "found": float(found[is_new].mean()),
            "false_alarms": float(found[~is_new].mean()),
            "concept_right": float(np.mean(concepts[found[is_new]] == parents[found[is_new]])),
        }
    return record


def run(arguments):
    """Fit what has no record yet."""
    import torch

    import skh2edl
    from skh2edl.datasets import load_grocery_store

    torch.set_num_threads(arguments.threads)
    data = load_grocery_store(arguments.grocery, check="none")
    features = features_of(data, arguments.weights, arguments.cache)
    RECORDS.mkdir(parents=True, exist_ok=True)
    for left_out in ((), *LEFT_OUT):
        for seed in SEEDS:
            for method, (class_name, grid) in METHODS.items():
                for l2 in grid:
                    what = "-".join(name.split("/")[1] for name in left_out) or "hedging"
                    path = RECORDS / f"{what}-{seed}-{method}-{l2}.json"
                    if path.exists():
                        continue
                    record = one_fit(data, features, left_out, seed, class_name, l2)
                    record |= {"left_out": left_out, "seed": seed, "method": method}
                    record["version"] = skh2edl.__version__
                    temporary = path.with_suffix(".part")
                    temporary.write_text(json.dumps(record, indent=1) + "\n")
                    os.replace(temporary, path)
                    print(path.name, flush=True)


def one_fit(data, features, left_out, seed, class_name, l2):
    """Fit one classifier and return its record."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import train_test_split

    import skh2edl
    from skh2edl.metrics import level_nll

    full, labels, split = data.taxonomy, np.asarray(data.labels), np.asarray(data.split)
    nodes = full.resolve(labels)
    is_new = np.zeros(len(labels), dtype=bool)
    for name in left_out:
        node = full.node(name)
        is_new |= (full.leaf_start[nodes] >= full.leaf_start[node]) & (
            full.leaf_stop[nodes] <= full.leaf_stop[node]
        )
    known = [full.path(leaf) for leaf in np.unique(labels[~is_new]).tolist()]
    tree = full.restrict(known) if left_out else full
    train = np.flatnonzero((split == "train") & ~is_new)
    # Other nine tenths for each seed, as in the study of the defaults.
    rows, _ = train_test_split(train, train_size=0.9, stratify=labels[train], random_state=seed)
    plain = getattr(skh2edl, class_name)(tree, backbone=None)
    if l2 is not None:
        plain.set_params(l2=l2)
    plain.fit(features[rows], labels[rows])
    val, test = (split == "val") & ~is_new, split == "test"
    X = {"val": features[val], "test": features[test]}
    y = {"val": labels[val], "test": labels[test]}
    tempered = skh2edl.CalibratedTreeClassifier(FrozenEstimator(plain), method="temperature")
    tempered.fit(X["val"], y["val"])
    record = {
        "l2": plain.l2,
        "temperature": tempered.temperature_,
        "n_val": int(val.sum()),
        "val_nll": float(level_nll(y["val"], plain.predict_proba(X["val"]), tree)),
        "val_nll_tempered": float(level_nll(y["val"], tempered.predict_proba(X["val"]), tree)),
    }
    if left_out:
        parents = np.array([full.path(label)[0] for label in y["test"].tolist()])
        record["novelty"] = find_novel(plain, tempered, X, y, is_new[test], parents[is_new[test]])
        record["n_new"], record["n_known"] = int(is_new[test].sum()), int((~is_new)[test].sum())
    else:
        record["hedging"] = {
            "plain": hedge(plain, X, y, tree, seed),
            "tempered": hedge(tempered, X, y, tree, seed),
        }
    return record


def drawn(n_samples, rng):
    """Draw samples of five overlapping classes in two groups, and their tree."""
    from skh2edl import Taxonomy

    groups = {"lynx": "cat", "puma": "cat", "fox": "dog", "jackal": "dog", "wolf": "dog"}
    tree = Taxonomy.from_paths([(group, name) for name, group in groups.items()])
    means = 0.6 * np.random.default_rng(9).normal(size=(5, 12))
    means[2:, 0] += 3
    which = rng.integers(0, 5, size=n_samples)
    return means[which] + rng.normal(size=(n_samples, 12)), np.array(list(groups))[which], tree


def simulate(arguments):
    """Compare one split with cross-validation where the truth is known."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import ShuffleSplit
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    from skh2edl import HedgedClassifier

    estimators = {
        "naive Bayes": GaussianNB(),
        "decision tree": DecisionTreeClassifier(min_samples_leaf=3, random_state=0),
        "logistic regression, hardly any penalty": LogisticRegression(C=100, max_iter=5000),
    }
    SIMULATED.mkdir(parents=True, exist_ok=True)
    for name, estimator in estimators.items():
        for n_samples in (60, 200):
            path = SIMULATED / f"{name.replace(' ', '_').replace(',', '')}-{n_samples}.json"
            if path.exists():
                continue
            rng, errors = np.random.default_rng(n_samples), {"one split": [], "five parts": []}
            for _ in range(200):
                X, y, tree = drawn(n_samples, rng)
                new, truth, _ = drawn(500, rng)
                half = ShuffleSplit(1, test_size=0.5, random_state=0)
                for kind, cv in (("one split", half), ("five parts", 5)):
                    clf = HedgedClassifier(estimator, 0.9, taxonomy=tree, cv=cv).fit(X, y)
                    errors[kind].append(1 - clf.score(new, truth))
            record = {"estimator": name, "n_samples": n_samples, "target": 0.9}
            for kind, values in errors.items():
                record[kind] = {"mean": float(np.mean(values)), "deviation": float(np.std(values))}
                record[kind]["n"] = len(values)
            path.write_text(json.dumps(record, indent=1) + "\n")
            print(path.name, flush=True)


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
    from scipy.stats import beta

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
        # Above one half "information" is "climb", so it is shown once.
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
    lines += ["", "**Validation and test images**", ""]
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
            # Given the held-out images the error of a kept promise is beta distributed.
            n_val = chosen(records, method, SEEDS[0], ())["n_val"]
            rank = np.ceil((n_val + 1) * TARGET)
            kept = beta(n_val + 1 - rank, rank)
            cells.append(", ".join(f"{kept.sf(c['from_val']['error']):.2f}" for c in climb))
            cells.append(spread([one["operating_area"] for one in found], 3, 1))
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *novelty_lines(records), "", *simulated_lines()]
    TABLES.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    run_parser = commands.add_parser("run")
    run_parser.add_argument("grocery")
    run_parser.add_argument("--weights", default=".")
    run_parser.add_argument("--cache", default=HERE / "_cache")
    run_parser.add_argument("--threads", type=int, default=2)
    run_parser.set_defaults(function=run)
    commands.add_parser("simulate").set_defaults(function=simulate)
    commands.add_parser("table").set_defaults(function=table)
    commands.add_parser("draw").set_defaults(function=draw)
    parsed = parser.parse_args()
    parsed.function(parsed)
