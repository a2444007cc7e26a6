"""Which penalty on frozen features: ``python docs/studies/penalty_shape.py run GROCERY WEIGHTS``.

GROCERY is the folder of the Grocery Store photographs, WEIGHTS one that holds
``tf_efficientnet_lite0.safetensors`` and ``resnet50_imagenet_fp16.safetensors``. Each fit is one
line of ``penalty_shape.jsonl``, and a run that was interrupted goes on where it stopped. Validation
images alone are scored. ``table`` writes ``penalty_shape_tables.md`` from the lines.
"""

import argparse
import json
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np
from frozen_sets import DATASETS, NETWORKS, SEEDS, frozen_sets, training_rows_of

HERE = Path(__file__).resolve().parent
LINES = HERE / "penalty_shape.jsonl"
TABLE = HERE / "penalty_shape_tables.md"
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
DEFAULT_SHAPE, DEFAULT_STRENGTH, DEFAULT_PART = (
    "separation, over root of children, growth 5",
    216,
    1 / 24,
)
RELAXATIONS = (1.0, 1 / 3, 1 / 8, 1 / 72)
# Other ways to find the length: constant of the package -> its value.
LENGTHS = {
    "nothing left out": {"solvers.MOST_READ_OUTS": 0},
    "metric that has seen the sample": {"leaving_out._LEAST_LEFT": 1e9},
    "as samples left out ask": {
        "relaxation._TIMES_WITHIN": 1000.0,
        "relaxation._SHARE_IN_SCENES": 2,
    },
    "an eighth longer, with copies too": {"relaxation._SHARE_IN_SCENES": 2},
    "no longer than the samples ask": {"relaxation._TIMES_WITHIN": 1.0},
    "all of that part left": {"relaxation._LEFT_WITHOUT": 1.0},
    "a hundredth of that part left": {"relaxation._LEFT_WITHOUT": 0.01},
    "half as many main directions": {"curvature._N_DIRECTIONS": 32},
    "left out without copies": {"leaving_out._ALIKE": 2.0},
    "more copies": {"leaving_out._ALIKE": 0.4},
    "fewer copies": {"leaving_out._ALIKE": 0.6},
    "biases free": {"relaxation._SPREAD_OF_BIAS": 1e6},
    "biases moving less": {"relaxation._SPREAD_OF_BIAS": 1.0},
}


def variants():
    """List the fits: shape, strength, the part left for the length, and how that is found."""
    named = [(shape, l2, DEFAULT_PART, "default") for shape, some in SHAPES.items() for l2 in some]
    default = (DEFAULT_SHAPE, DEFAULT_STRENGTH)
    parts = [(*default, part, "default") for part in RELAXATIONS]
    return named + parts + [(*default, DEFAULT_PART, length) for length in LENGTHS]


@contextmanager
def another_length(name):
    """Set constants of the package for a while."""
    wanted = LENGTHS.get(name, {})
    before = {}
    for place, value in wanted.items():
        module, constant = place.split(".")
        module = import_module(f"skh2edl.{module}")
        before[module, constant] = getattr(module, constant)
        setattr(module, constant, value)
    try:
        yield
    finally:
        for (module, constant), value in before.items():
            setattr(module, constant, value)


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
    from skh2edl.h2edl import PRESETS

    torch.set_num_threads(1)
    done = {tuple(line["fit"]) for line in read_lines()}
    for dataset, network, data, features, held_out in frozen_sets(grocery, weights, cache):
        X, y = held_out["val"]
        for seed in SEEDS:
            rows = training_rows_of(data, seed)
            for shape, l2, part, length in variants():
                name = [dataset, network, seed, shape, l2, round(part, 4), length]
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
                )
                with another_length(length):
                    clf.fit(features[rows], data.labels[rows])
                proba = clf.predict_proba(X)
                line = {
                    "fit": name,
                    "nll": metrics.level_nll(y, proba, data.taxonomy),
                    "ece": metrics.level_ece(y, proba, data.taxonomy),
                    "doubt": float(clf.predict_hyper_opinion(X).nonspecificity.mean()),
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
    done = {tuple(line["fit"]): line for line in lines}
    sets = [(dataset, network) for dataset in DATASETS for network in NETWORKS]
    n_fits = len(sets) * len(SEEDS) * len(variants())
    if len(done) < n_fits:
        raise SystemExit(f"{n_fits - len(done)} of {n_fits} fits have no line yet: run them first.")

    def means(score):
        return {
            (shape, l2, part, length): [
                np.mean(
                    [done[*each, seed, shape, l2, round(part, 4), length][score] for seed in SEEDS]
                )
                for each in sets
            ]
            for shape, l2, part, length in variants()
        }

    nll, ece = means("nll"), means("ece")
    least = np.min(list(nll.values()), axis=0)
    heads = [f"{dataset}, {network}" for dataset, network in sets]
    text = [
        "| penalty | l2 | left for the length | length | "
        + " | ".join(heads)
        + " | mean excess % | mean ECE % |",
        "|---|---|---|---|" + "---|" * (len(sets) + 2),
    ]
    for (shape, l2, part, length), row in nll.items():
        excess = 100 * np.mean(np.log(row) - np.log(least))
        figures = " | ".join(f"{value:.3f}" for value in row)
        error = 100 * np.mean(ece[shape, l2, part, length])
        text.append(
            f"| {shape} | {l2:g} | 1/{1 / part:.0f} | {length} | {figures} | {excess:.1f} "
            f"| {error:.1f} |"
        )
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
