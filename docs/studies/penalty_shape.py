"""Which penalty on frozen features: ``python docs/studies/penalty_shape.py run GROCERY WEIGHTS``.

GROCERY is the folder of the Grocery Store photographs, WEIGHTS one that holds
``tf_efficientnet_lite0.safetensors`` and ``resnet50_imagenet_fp16.safetensors``. Each fit is one
line of ``penalty_shape.jsonl``, and a run that was interrupted goes on where it stopped. Validation
images alone are scored. ``table`` writes ``penalty_shape_tables.md`` from the lines.
"""

import argparse
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
LINES = HERE / "penalty_shape.jsonl"
TABLE = HERE / "penalty_shape_tables.md"
NETWORKS = {
    "tf_efficientnet_lite0": "tf_efficientnet_lite0",
    "resnet50": "resnet50_imagenet_fp16",
}
DATASETS = ("grocery_store", "glyphs")
SEEDS = (0, 1, 2)
# How a penalty is shaped -> its strengths, of which a twenty-fourth is left for the length. A shape
# by separation is divided by the number of samples, which the uniform one is not.
SHAPES = {
    "uniform": (0.01, 0.03, 0.1),
    "separation": (72, 216, 648),
    "separation, growth 5": (72, 216, 648),
    "separation, over root of children": (72, 216, 648),
    "separation, over root of children, growth 5": (24, 72, 216, 648),
    "separation, over root of children, growth 25": (72, 216, 648),
    "separation, over children, growth 5": (216, 648, 1944),
}
# What else may be left for the length, of the default.
DEFAULT_SHAPE, DEFAULT_STRENGTH = "separation, over root of children, growth 5", 216
RELAXATIONS = (1.0, 1 / 3, 1 / 8, 1 / 72)


def variants():
    """List the penalties: shape, strength, and the part left for the length."""
    named = [(shape, l2, 1 / 24) for shape, strengths in SHAPES.items() for l2 in strengths]
    return named + [(DEFAULT_SHAPE, DEFAULT_STRENGTH, part) for part in RELAXATIONS]


def shares_of(shape):
    """Return a function that does what `row_penalties` does, with another shape."""
    from skh2edl.penalties import MOST_CHILDREN, decisions_above, variances

    growth = float(shape.rpartition("growth ")[2]) if "growth" in shape else 1.0
    power = 0.5 if "root of children" in shape else 1.0 if "over children" in shape else 0.0

    def row_penalties(taxonomy, features, targets, weights):
        depth = decisions_above(taxonomy)
        n_siblings = np.diff(taxonomy.decision_offsets)[taxonomy.decision_nodes]
        shares = growth ** (depth / depth.max() - 0.5)
        shares = shares / np.minimum(n_siblings, MOST_CHILDREN) ** power
        if "separation" in shape:
            within, between = variances(taxonomy, features, targets, weights)
            shares = shares * within**2 / between[depth]
        return shares

    return row_penalties


def fit_all(grocery, weights, cache):
    """Fit what has no line yet."""
    import torch

    from skh2edl import H2EDLClassifier, metrics, solvers
    from skh2edl.benchmark import Experiment, frozen_features_of, load_dataset
    from skh2edl.benchmark.running import training_rows
    from skh2edl.h2edl import PRESETS

    torch.set_num_threads(1)
    done = {tuple(line["fit"]) for line in read_lines()}
    for dataset in DATASETS:
        data = load_dataset(dataset, grocery, preset="study")
        val = np.flatnonzero(data.split == "val")
        for network, stem in NETWORKS.items():
            features = frozen_features_of(
                data, network, weights=Path(weights) / f"{stem}.safetensors", cache=cache
            )
            for seed in SEEDS:
                experiment = Experiment(
                    dataset, "H2EDL", "H2EDLClassifier", seed=seed, train_share=0.9
                )
                rows = training_rows(experiment, data, np.flatnonzero(data.split == "train"))
                for shape, l2, part in variants():
                    name = [dataset, network, seed, shape, l2, round(part, 4)]
                    if tuple(name) in done:
                        continue
                    solvers.row_penalties = shares_of(shape)
                    clf = H2EDLClassifier(
                        data.taxonomy,
                        backbone=None,
                        l2_shape="uniform" if shape == "uniform" else "separation",
                        l2_relaxation=part,
                        # In proportion to the number of features, as the default is.
                        l2=l2
                        * max(1.0, features.shape[1] / 1280)
                        / (len(rows) if "separation" in shape else 1.0),
                    ).fit(features[rows], data.labels[rows])
                    proba = clf.predict_proba(features[val])
                    opinion = clf.predict_hyper_opinion(features[val])
                    line = {
                        "fit": name,
                        "nll": metrics.level_nll(data.labels[val], proba, data.taxonomy),
                        "doubt": float(opinion.nonspecificity.mean()),
                        "n_iter": clf.n_iter_,
                        "kl_weight": PRESETS["default"]["kl_weight"],
                        "tol": PRESETS["default"]["tol"],
                    }
                    with LINES.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")


def read_lines():
    """Return the fits that are done."""
    if not LINES.exists():
        return []
    return [json.loads(text) for text in LINES.read_text(encoding="utf-8").splitlines()]


def make_table(lines):
    """Return the table: a row for each penalty, a column for each data set and network."""
    nll = {tuple(line["fit"]): line["nll"] for line in lines}
    sets = [(dataset, network) for dataset in DATASETS for network in NETWORKS]
    n_fits = len(sets) * len(SEEDS) * len(variants())
    if len(nll) < n_fits:
        raise SystemExit(f"{n_fits - len(nll)} of {n_fits} fits have no line yet: run them first.")
    means = {
        variant: [
            np.mean([nll[*each, seed, *variant[:2], round(variant[2], 4)] for seed in SEEDS])
            for each in sets
        ]
        for variant in variants()
    }
    least = np.min(list(means.values()), axis=0)
    heads = [f"{dataset}, {network}" for dataset, network in sets]
    text = [
        "| penalty | l2 | left for the length | " + " | ".join(heads) + " | mean excess % |",
        "|---|---|---|" + "---|" * (len(sets) + 1),
    ]
    for (shape, l2, part), row in means.items():
        excess = 100 * np.mean(np.log(row) - np.log(least))
        figures = " | ".join(f"{value:.3f}" for value in row)
        text.append(f"| {shape} | {l2:g} | 1/{1 / part:.0f} | {figures} | {excess:.1f} |")
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
