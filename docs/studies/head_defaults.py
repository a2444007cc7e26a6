"""Study of the defaults on frozen features of the Grocery Store data.

Run it in two steps; the first one resumes where it was interrupted::

    python docs/studies/head_defaults.py run GROCERY_FOLDER --weights WEIGHTS_FOLDER
    python docs/studies/head_defaults.py table

`run` writes one JSON record for each fit to ``docs/studies/records`` and never overwrites one;
`table` makes ``docs/studies/head_defaults_tables.md`` from the records alone.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "head_defaults"
TABLES = HERE / "head_defaults_tables.md"

BACKBONES = {
    "tf_efficientnet_lite0": "tf_efficientnet_lite0.safetensors",
    "resnet50": "resnet50_imagenet_fp16.safetensors",
}
SEEDS = (0, 1, 2)
L2_GRID = (0.03, 0.01, 0.003, 0.001)
# Name -> class and parameters; None as the grid means that the default l2 is used as it is.
METHODS = {
    "H2EDL, paper's form": ("H2EDLClassifier", {"preset": "paper"}, (0.001, 0.0003)),
    "H2EDL, own row for each decision": ("H2EDLClassifier", {"read_out": "nodes"}, (None,)),
    "H2EDL, nested, no KL": ("H2EDLClassifier", {"kl_weight": 0.0}, (None,)),
    "H2EDL, default form": ("H2EDLClassifier", {}, L2_GRID),
    "Hier-CE": ("HierCEClassifier", {}, L2_GRID),
    "Flat-CE": ("FlatCEClassifier", {}, L2_GRID),
    "H2EDL, default": ("H2EDLClassifier", {}, (None,)),
}
COLUMNS = {"accuracy": "acc %", "ece": "ECE %", "nll": "NLL", "kept": "kept coarse %"}


def features_of(name, file, data, weights, cache):
    """Compute the features of all images once."""
    from skh2edl import ImageFeatureExtractor

    path = Path(cache) / f"{name}.npy"
    if path.exists():
        return np.load(path)
    extractor = ImageFeatureExtractor(name, weights=Path(weights) / file, verbose=1)
    features = extractor.fit_transform(list(data.images))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, features)
    return features


def scores(labels, proba, tree):
    """Score probabilities on the leaves and at the top."""
    from skh2edl import metrics

    answers = tree.sorted_leaf_labels[proba.argmax(axis=1)]
    return {
        "accuracy": 100 * metrics.level_accuracy(labels, proba, tree),
        "balanced_accuracy": 100 * metrics.level_balanced_accuracy(labels, proba, tree),
        "ece": 100 * metrics.level_ece(labels, proba, tree),
        "nll": metrics.level_nll(labels, proba, tree),
        "kept": 100 * metrics.kept_ancestor(labels, answers, tree, level=2),
        "top_balanced_accuracy": 100
        * metrics.level_balanced_accuracy(labels, proba, tree, level=1),
    }


def tempered(proba, temperature):
    """Sharpen or flatten probabilities."""
    logits = np.log(np.maximum(proba, np.finfo(float).tiny)) / temperature
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def run(arguments):
    """Fit every method, seed and penalty that has no record yet."""
    import torch
    from scipy.optimize import minimize_scalar
    from sklearn.model_selection import train_test_split

    import skh2edl
    from skh2edl import metrics
    from skh2edl.datasets import coarsen_labels, load_grocery_store

    torch.set_num_threads(arguments.threads)
    data = load_grocery_store(arguments.grocery, check="none")
    tree, split, labels = data.taxonomy, np.asarray(data.split), np.asarray(data.labels)
    RECORDS.mkdir(parents=True, exist_ok=True)
    for backbone, file in BACKBONES.items():
        if arguments.backbone not in (None, backbone):
            continue
        features = features_of(backbone, file, data, arguments.weights, arguments.cache)
        parts = {part: np.flatnonzero(split == part) for part in ("train", "val", "test")}
        jobs = [
            (seed, method, l2, 0.0)
            for method, (_, _, grid) in reversed(METHODS.items())
            for seed in SEEDS
            for l2 in grid
        ]
        jobs[3:3] = [(seed, "H2EDL, default", None, 0.75) for seed in SEEDS]
        for seed, method, l2, coarse in jobs:
            name = f"{backbone}-{seed}-{method}-{l2}-{coarse}".replace(" ", "_").replace(",", "")
            path = RECORDS / f"{name.replace(chr(39), '')}.json"
            if path.exists():
                continue
            # The official validation images are of other scenes than the training images; a
            # random part of the training images would be near copies of the rest.
            rows, _ = train_test_split(
                parts["train"], train_size=0.9, stratify=labels[parts["train"]], random_state=seed
            )
            y = coarsen_labels(labels[rows], np.asarray(data.ids)[rows], coarse, 1, tree)
            class_name, parameters, _ = METHODS[method]
            clf = getattr(skh2edl, class_name)(tree, backbone=None, **parameters)
            if l2 is not None:
                clf.set_params(l2=l2)
            clf.fit(features[rows], y)
            val, test = (
                clf.predict_proba(features[parts[part]]).astype(np.float64)
                for part in ("val", "test")
            )
            y_val, y_test = labels[parts["val"]], labels[parts["test"]]
            found = minimize_scalar(
                lambda log_t, val=val, y_val=y_val: metrics.level_nll(
                    y_val, tempered(val, np.exp(log_t)), tree
                ),
                bounds=(-2, 2),
                method="bounded",
            )
            temperature = float(np.exp(found.x))
            record = {
                "backbone": backbone,
                "seed": seed,
                "method": method,
                "l2": clf.l2,
                "coarse_fraction": coarse,
                "n_iter": clf.n_iter_,
                "temperature": temperature,
                "val": scores(y_val, val, tree),
                "test": scores(y_test, test, tree),
                "test_tempered": scores(y_test, tempered(test, temperature), tree),
                "val_nll_tempered": float(found.fun),
                "version": skh2edl.__version__,
            }
            if hasattr(clf, "predict_hyper_opinion"):
                opinion = clf.predict_hyper_opinion(features[parts["test"]])
                record["nonspecificity"] = float(opinion.nonspecificity.mean())
                record["error_auroc"] = float(metrics.nonspecificity_auroc(y_test, opinion))
            temporary = path.with_suffix(".part")
            temporary.write_text(json.dumps(record, indent=1) + "\n")
            os.replace(temporary, path)
            print(path.name, {k: round(v, 3) for k, v in record["test"].items()}, flush=True)


def table(arguments):
    """Write the tables from the records."""
    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    lines = ["<!-- Made by docs/studies/head_defaults.py from its records; do not edit. -->", ""]
    for backbone in BACKBONES:
        mine = [r for r in records if r["backbone"] == backbone and r["coarse_fraction"] == 0]
        header = ["method", "L2", *COLUMNS.values(), "U", "AUROC of U"]
        lines += [f"**{backbone}**", "", "| " + " | ".join(header) + " |"]
        lines += ["|" + "---|" * len(header)]
        for method, (_, _, grid) in METHODS.items():
            if len(grid) > 1:
                lines.append(_row(f"{method}", mine, method, "val", "test"))
                lines.append(_row(f"{method} + temperature", mine, method, "val", "test_tempered"))
            else:
                lines.append(_row(f"{method} (L2 not chosen)", mine, method, "val", "test"))
        lines.append("")
    lines += ["**Labels cut to their top group**", "", "| backbone | top bAcc %, all labels fine |"]
    lines[-1] += " top bAcc %, 75 % cut | difference |"
    lines.append("|---|---|---|---|")
    for backbone in BACKBONES:
        values = []
        for coarse in (0, 0.75):
            values.append(
                [
                    r["test"]["top_balanced_accuracy"]
                    for r in records
                    if r["backbone"] == backbone
                    and r["method"] == "H2EDL, default"
                    and r["coarse_fraction"] == coarse
                ]
            )
        if all(values):
            fine, cut = (float(np.mean(value)) for value in values)
            lines.append(f"| {backbone} | {fine:.2f} | {cut:.2f} | {cut - fine:+.2f} |")
    TABLES.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def _row(title, records, method, choose_by, report):
    """Average over seeds, each with the penalty that its own validation scores choose."""
    chosen = []
    for seed in SEEDS:
        candidates = [r for r in records if r["method"] == method and r["seed"] == seed]
        if report == "test_tempered":
            candidates.sort(key=lambda r: r["val_nll_tempered"])
        else:
            candidates.sort(key=lambda r: r[choose_by]["nll"])
        chosen += candidates[:1]
    if len(chosen) < len(SEEDS):
        return f"| {title} | not run |" + " |" * (len(COLUMNS) + 2)
    cells = [title, ", ".join(f"{r['l2']:g}" for r in chosen)]
    for key in COLUMNS:
        values = [r[report][key] for r in chosen]
        digits = 3 if key == "nll" else 1
        cells.append(f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}")
    for key in ("nonspecificity", "error_auroc"):
        known = [r[key] for r in chosen if key in r]
        cells.append(f"{np.mean(known):.3f}" if known and report == "test" else "")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    run_parser = commands.add_parser("run")
    run_parser.add_argument("grocery")
    run_parser.add_argument("--weights", required=True)
    run_parser.add_argument("--cache", default=HERE / "_cache")
    run_parser.add_argument("--backbone", choices=list(BACKBONES))
    run_parser.add_argument("--threads", type=int, default=2)
    run_parser.set_defaults(function=run)
    commands.add_parser("table").set_defaults(function=table)
    parsed = parser.parse_args()
    parsed.function(parsed)
