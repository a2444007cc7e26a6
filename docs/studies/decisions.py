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

BACKBONE, WEIGHTS = "tf_efficientnet_lite0", "tf_efficientnet_lite0.safetensors"
SEEDS = (0, 1, 2)
# None is the default of the class; a grid is chosen from by the validation images.
METHODS = {
    "H2EDL": ("H2EDLClassifier", (None,)),
    "Flat-CE": ("FlatCEClassifier", (0.1, 0.03, 0.01, 0.003, 0.001)),
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
                    write(path, record)
    for seed in SEEDS:
        path = RECORDS / f"annotation-{seed}.json"
        if not path.exists():
            record = {"annotation": annotate(data, features, seed)}
            write(path, record | {"left_out": None, "seed": seed, "method": "H2EDL"})


def write(path, record):
    """Write a record whole or not at all."""
    import skh2edl

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


N_LABELLED = 300


def annotate(data, features, seed):
    """Label 300 more images, chosen in several ways, and return what the next fit scores."""
    from skh2edl import H2EDLClassifier, rank_for_annotation
    from skh2edl.metrics import level_accuracy

    tree, labels, split = data.taxonomy, np.asarray(data.labels), np.asarray(data.split)
    test = split == "test"
    order = np.random.default_rng(seed).permutation(np.flatnonzero(split == "train"))
    start, pool = order[:N_LABELLED], order[N_LABELLED:]

    def fit(rows, y):
        return H2EDLClassifier(tree, backbone=None).fit(features[rows], y)

    def scores(clf):
        proba = clf.predict_proba(features[test])
        return {
            "leaf": float(level_accuracy(labels[test], proba, tree)),
            "coarse": float(level_accuracy(labels[test], proba, tree, 2)),
        }

    first = fit(start, labels[start])
    opinion = first.predict_hyper_opinion(features[pool])
    spread_out = rank_for_annotation(opinion, N_LABELLED)
    unsure = np.argsort(first.predict_proba(features[pool]).max(axis=1), kind="stable")
    chosen_rows = {
        "at random": np.arange(N_LABELLED),
        "least max-probability": unsure[:N_LABELLED],
        "most doubt": rank_for_annotation(opinion, N_LABELLED, spread=False).rows,
        "most doubt, spread": spread_out.rows,
    }
    record = {"start": scores(first)}
    for name, rows in chosen_rows.items():
        rows = np.concatenate([start, pool[rows]])
        record[name] = scores(fit(rows, labels[rows]))
    rows = pool[spread_out.rows]
    nodes = tree.resolve(labels[rows])
    while (deeper := tree.depths[nodes] > spread_out.depths).any():
        nodes = np.where(deeper, tree.parents[nodes], nodes)
    asked = np.concatenate([labels[start], tree.labels(nodes)])
    rows = np.concatenate([start, rows])
    record["most doubt, spread, as deep as asked"] = scores(fit(rows, asked))
    record["mean_depth_asked"] = float(spread_out.depths.mean())
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


if __name__ == "__main__":
    from decisions_report import draw, table

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
