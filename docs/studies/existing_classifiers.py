"""Opinions for classifiers that have none: ``python docs/studies/existing_classifiers.py ASSETS``.

Flat-CE and scikit-learn's LogisticRegression on frozen features of photographs, each in an
OpinionClassifier and, with the same held-out photographs, in temperature scaling. A fifth of the
families (CUB birds) or coarse classes (Grocery Store) is left out of training: their test
photographs are novel. A seed draws what is left out and held out. Each run writes one JSON record,
which is never overwritten; the test photographs are scored once. ASSETS is the folder with
``grocery_store``, ``cub_birds`` and ``weights``.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "existing_classifiers"
TABLE = HERE / "existing_classifiers_table.md"
CACHE = Path(tempfile.gettempdir()) / "skh2edl-features"
# Data -> the frozen network, and the file of its weights.
DATASETS = {
    "cub_birds": ("tf_efficientnet_lite0", "tf_efficientnet_lite0"),
    "grocery_store": ("resnet50", "resnet50_imagenet_fp16"),
}
METHODS = ("Flat-CE", "LogisticRegression")
SEEDS = (0, 1, 2)
LEFT_OUT, HELD_OUT = 0.2, 0.2


def load(name, assets):
    """Return a data set and the features of its photographs."""
    from skh2edl.benchmark import frozen_features_of
    from skh2edl.datasets import load_cub, load_grocery_store

    data = (load_cub if name == "cub_birds" else load_grocery_store)(assets / name)
    network, start = DATASETS[name]
    weights = assets / "weights" / f"{start}.safetensors"
    return data, frozen_features_of(data, network, weights=weights, cache=CACHE)


def run(data, features, method, seed):
    """Return the figures of one run."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from skh2edl import CalibratedTreeClassifier, FlatCEClassifier, OpinionClassifier
    from skh2edl.metrics import error_auroc, level_accuracy, level_nll

    tree = data.taxonomy
    group = tree.climb_to_depth(tree.resolve(data.labels), 2)
    groups, rng = np.unique(group), np.random.default_rng(seed)
    left_out = rng.choice(groups, round(LEFT_OUT * groups.size), replace=False)
    is_novel, is_test = np.isin(group, left_out), data.split == "test"
    known = tree.restrict([tree.label(node) for node in np.setdiff1d(groups, left_out).tolist()])
    train, held = train_test_split(
        np.flatnonzero(~is_novel & ~is_test), test_size=HELD_OUT, random_state=seed
    )
    if method == "Flat-CE":
        inside = FlatCEClassifier(known, backbone=None)
    else:
        inside = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    fitted = FrozenEstimator(inside.fit(features[train], data.labels[train]))
    scaled = CalibratedTreeClassifier(fitted, taxonomy=known)
    scaled.fit(features[held], data.labels[held])
    clf = OpinionClassifier(fitted, known).fit(features[held], data.labels[held])

    test, novel = np.flatnonzero(~is_novel & is_test), np.flatnonzero(is_novel & is_test)
    y, is_of_novel = data.labels[test], np.repeat([0, 1], [test.size, novel.size])
    both = features[np.concatenate([test, novel])]
    unsure = {
        "confidence": 1 - scaled.predict_proba(both).max(axis=1),
        "U": clf.predict_hyper_opinion(both).nonspecificity,
    }
    record = {"c0": clf.coefficients_[0], "c2": clf.coefficients_[1], "T": clf.temperature_}
    for name, one in (("confidence", scaled), ("U", clf)):
        proba = one.predict_proba(features[test])
        record |= {
            f"{name} nll": level_nll(y, proba, known, "leaf"),
            f"{name} accuracy": level_accuracy(y, proba, known, "leaf"),
            f"{name} errors": error_auroc(y, proba, unsure[name][: test.size], known),
            f"{name} novelty": roc_auc_score(is_of_novel, unsure[name]),
            f"{name} mean known": unsure[name][: test.size].mean(),
            f"{name} mean novel": unsure[name][test.size :].mean(),
        }
    return {name: float(value) for name, value in record.items()}


def table():
    """Write the table from the records."""
    lines = [
        "<!-- Made from records by existing_classifiers.py; do not edit. -->",
        "",
        "| data, classifier | NLL: temperature, opinions | AUROC of errors: confidence, U "
        "| AUROC of novelty: confidence, U | mean U: known, novel |",
        "|---|---|---|---|---|",
    ]
    for name in DATASETS:
        for method in METHODS:
            files = sorted(RECORDS.glob(f"{name}-{method}-seed*.json"))
            runs = [json.loads(file.read_text()) for file in files]
            if not runs:
                continue
            cells = [f"{name}, {DATASETS[name][0]}, {method} ({len(runs)} seeds)"]
            for what in ("nll", "errors", "novelty"):
                values = [
                    np.mean([one[f"{k} {what}"] for one in runs]) for k in ("confidence", "U")
                ]
                cells.append(f"{values[0]:.3f}, {values[1]:.3f}")
            means = [np.mean([one[f"U mean {k}"] for one in runs]) for k in ("known", "novel")]
            cells.append(f"{means[0]:.3f}, {means[1]:.3f}")
            lines.append(f"| {' | '.join(cells)} |")
    TABLE.write_text("\n".join(lines) + "\n")


def main():
    """Run what has no record yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    options = parser.parse_args()
    RECORDS.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        data, features = load(name, options.assets)
        for seed in SEEDS:
            for method in METHODS:
                record = RECORDS / f"{name}-{method}-seed{seed}.json"
                if not record.exists():
                    found = run(data, features, method, seed)
                    record.write_text(json.dumps(found, indent=1) + "\n")
    table()


if __name__ == "__main__":
    main()
