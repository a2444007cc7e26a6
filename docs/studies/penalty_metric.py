"""Fits with and without a metric and a relaxed length: ``penalty_metric.py run GROCERY WEIGHTS``.

GROCERY and WEIGHTS are what ``penalty_shape.py`` asks for. Each fit is one line of
``penalty_metric.jsonl``, and a run that was interrupted goes on where it stopped. Of the
cross-entropies the penalty is chosen by the NLL of the validation images after a temperature;
H2EDL has no temperature, and its own penalty or one chosen in the same way. ``table`` writes
``penalty_metric_tables.md`` from the lines.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from frozen_sets import DATASETS, NETWORKS, SEEDS, frozen_sets, training_rows_of

HERE = Path(__file__).resolve().parent
LINES = HERE / "penalty_metric.jsonl"
TABLE = HERE / "penalty_metric_tables.md"
# Of the cross-entropies, as they are.
PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
# Row of the table -> method, its parameters, and its penalties: of H2EDL for one sample and 1,280
# features; None is the default.
ROWS = {
    "H2EDL": ("H2EDL", {}, (None,)),
    "H2EDL, penalty chosen": ("H2EDL", {}, (24, 72, 216, 648)),
    "H2EDL, identity": ("H2EDL", {"l2_metric": "identity"}, (24, 72, 216, 648)),
    "H2EDL, one fit": ("H2EDL", {"l2_relaxation": 1.0}, (4, 12, 36, 108)),
    "Flat-CE + temperature": ("Flat-CE", {"l2_metric": "within"}, PENALTIES),
    "Flat-CE + temperature, identity": ("Flat-CE", {"l2_metric": "identity"}, PENALTIES),
    "Hier-CE + temperature": ("Hier-CE", {"l2_metric": "within"}, PENALTIES),
    "Hier-CE + temperature, identity": ("Hier-CE", {"l2_metric": "identity"}, PENALTIES),
}
SCORES = ("accuracy", "ece", "nll", "kept")


def fits():
    """List the fits of one set of features and seed: row and strength."""
    return [(name, l2) for name, (_, _, strengths) in ROWS.items() for l2 in strengths]


def fit_all(grocery, weights, cache):
    """Fit what has no line yet."""
    import torch
    from sklearn.frozen import FrozenEstimator

    from skh2edl import (
        CalibratedTreeClassifier,
        FlatCEClassifier,
        H2EDLClassifier,
        HierCEClassifier,
        metrics,
    )

    torch.set_num_threads(1)
    classes = {"H2EDL": H2EDLClassifier, "Flat-CE": FlatCEClassifier, "Hier-CE": HierCEClassifier}
    done = {tuple(line["fit"]) for line in read_lines()}
    for dataset, network, data, features, held_out in frozen_sets(grocery, weights, cache):
        for seed in SEEDS:
            rows = training_rows_of(data, seed)
            for row, l2 in fits():
                name = [dataset, network, seed, row, l2]
                if tuple(name) in done:
                    continue
                method, parameters, _ = ROWS[row]
                strength = l2
                if method == "H2EDL" and l2 is not None:
                    strength = l2 * max(1.0, features.shape[1] / 1280) / len(rows)
                clf = classes[method](data.taxonomy, backbone=None, l2=strength, **parameters).fit(
                    features[rows], data.labels[rows]
                )
                line = {"fit": name, "n_iter": clf.n_iter_}
                if method == "H2EDL":
                    opinion = clf.predict_hyper_opinion(held_out["test"][0])
                    line["nonspecificity"] = float(opinion.nonspecificity.mean())
                else:
                    clf = CalibratedTreeClassifier(FrozenEstimator(clf), method="temperature")
                    clf.fit(*held_out["val"])
                    line["temperature"] = float(clf.temperature_)
                for part, (X, y) in held_out.items():
                    tree = data.taxonomy
                    proba = clf.predict_proba(X)
                    answers = tree.sorted_leaf_labels[proba.argmax(1)]
                    line[part] = {
                        "accuracy": metrics.level_accuracy(y, proba, tree),
                        "ece": metrics.level_ece(y, proba, tree),
                        "nll": metrics.level_nll(y, proba, tree),
                        "kept": metrics.kept_ancestor(y, answers, tree, level=2),
                    }
                with LINES.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def read_lines():
    """Return the fits that are done."""
    if not LINES.exists():
        return []
    return [json.loads(text) for text in LINES.read_text(encoding="utf-8").splitlines()]


def make_table(lines):
    """Return the table: a row for each set of features, method and form."""
    done = {tuple(line["fit"]): line for line in lines}
    sets = [(dataset, network) for dataset in DATASETS for network in NETWORKS]
    n_fits = len(sets) * len(SEEDS) * len(fits())
    if len(done) < n_fits:
        raise SystemExit(f"{n_fits - len(done)} of {n_fits} fits have no line yet: run them first.")
    text = [
        "| features | method | NLL of validation | accuracy % | ECE % | NLL | coarse class kept % "
        "| penalties |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for dataset, network in sets:
        for row, (_, _, strengths) in ROWS.items():
            best = [
                min(
                    (done[dataset, network, seed, row, l2] for l2 in strengths),
                    key=lambda line: line["val"]["nll"],
                )
                for seed in SEEDS
            ]
            figures = [f"{np.mean([line['val']['nll'] for line in best]):.3f}"]
            for score in SCORES:
                values = np.array([line["test"][score] for line in best])
                if score == "nll":
                    figures.append(f"{values.mean():.3f} ± {values.std():.3f}")
                else:
                    figures.append(f"{100 * values.mean():.1f} ± {100 * values.std():.1f}")
            taken = ", ".join(str(line["fit"][-1] or "default") for line in best)
            text.append(f"| {dataset}, {network} | {row} | {' | '.join(figures)} | {taken} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("grocery", nargs="?")
    parser.add_argument("weights", nargs="?")
    parser.add_argument("--features-cache")
    options = parser.parse_args()
    if options.what == "run":
        fit_all(options.grocery, options.weights, options.features_cache)
    TABLE.write_text(make_table(read_lines()), encoding="utf-8", newline="\n")
