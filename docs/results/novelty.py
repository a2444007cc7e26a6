"""Photographs of unknown classes: ``python docs/results/novelty.py ASSETS [--trained]``.

ASSETS is the folder with ``grocery_store``, ``cub_birds`` and ``weights``. Groups of classes,
families of birds and coarse classes of groceries, are left out of taxonomy and training. Heads are
fitted to frozen features of train images, or networks trained end to end; detectors are calibrated
on val images, all is scored on test images. An interrupted run resumes; ``make.py`` makes the table
from the records.
"""

import argparse
import copy
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np

from skh2edl import Hardware
from skh2edl.utils.memory import keep_freed_memory

RECORDS = Path(__file__).resolve().parent / "records" / "novelty"
CACHE = Path(tempfile.gettempdir()) / "skh2edl-features"
NETWORK = "tf_efficientnet_lite0"
SEEDS = (0, 1, 2)
# Pixels on the side of an image; the birds' are enlarged, the groceries' reduced for speed.
SIZE = {"cub_birds": 224, "grocery_store": 96}
# How many groups are left out; groups are the nodes at this depth.
LEFT_OUT, DEPTH = {"cub_birds": 8, "grocery_store": 10}, 2
# Networks trained end to end, as in trained.py.
TRAINED_SIZE, EPOCHS = 64, 20
# Enough for the order of the scores; the last digits of a minimum cost hours.
SOLVER = {"max_iter": 100, "tol": 1e-3}
OTHERS = ("max-probability", "energy", "Mahalanobis", "kNN", "DAEDL", "DAEDL, variance")
SHOWN = (*OTHERS[:4], "DAEDL")


def leave_out(data, seed):
    """Choose groups whose parent keeps two others; return them, their images and the known tree."""
    from skh2edl import Taxonomy

    rng = np.random.default_rng(seed)
    tree = data.taxonomy
    nodes = rng.permutation(tree.nodes_at_depth(DEPTH))
    groups = [tree.path(label) for label in tree.labels(nodes)]
    rest = {path[:1]: 0 for path in groups}
    for path in groups:
        rest[path[:1]] += 1
    left_out = []
    for path in groups:
        if len(left_out) < LEFT_OUT[data.name] and rest[path[:1]] > 2:
            left_out.append(path)
            rest[path[:1]] -= 1
    known = Taxonomy.from_paths(
        [path for path in map(tree.path, tree.leaves) if path[:DEPTH] not in left_out]
    )
    paths = [tree.path(label) for label in data.labels]
    return left_out, paths, known


def auroc(known, novel):
    """Return the probability that a novel sample has the larger score."""
    from sklearn.metrics import roc_auc_score

    is_novel = np.repeat([0, 1], [len(known), len(novel)])
    return float(roc_auc_score(is_novel, np.concatenate([known, novel])))


def features_of(clf, X):
    """Return what the head of a fitted classifier reads."""
    return clf._head_output(X, lambda head, features: features)[0]


def scores_of_others(flat, daedl, train, y, features):
    """Return the novelty scores of other methods, as functions of the samples.

    `features` makes features of samples; distances are those to features of the training samples.
    """
    from scipy.special import logsumexp
    from sklearn.covariance import LedoitWolf
    from sklearn.neighbors import NearestNeighbors

    train = features(train).astype(np.float64)
    classes, own = np.unique(y, return_inverse=True)
    means = np.stack([train[own == k].mean(axis=0) for k in range(len(classes))])
    precision = LedoitWolf(assume_centered=True).fit(train - means[own]).precision_

    def mahalanobis(x):
        squares = ((x @ precision) * x).sum(axis=1)[:, None]
        squares = squares - 2 * x @ precision @ means.T
        return (squares + ((means @ precision) * means).sum(axis=1)).min(axis=1)

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    neighbours = NearestNeighbors(n_neighbors=10).fit(unit(train))
    return {
        "max-probability": lambda X: -flat.predict_proba(X).max(axis=1),
        "energy": lambda X: -logsumexp(flat._head_output(X, "logits")[0], axis=1),
        "Mahalanobis": lambda X: mahalanobis(features(X)),
        "kNN": lambda X: neighbours.kneighbors(unit(features(X)))[0][:, -1],
        "DAEDL": lambda X: -daedl.predict_proba(X).max(axis=1),
        "DAEDL, variance": lambda X: daedl.predict_variance(X).sum(axis=1),
    }


def run(data, samples, other, noise, seed, options):
    """Return the record of one choice of groups.

    `samples` are those of the data, `other` those of another data set; `options` are of all
    classifiers.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.metrics import accuracy_score, log_loss

    from skh2edl import DAEDLClassifier, FlatCEClassifier, H2EDLClassifier, NoveltyDetector

    left_out, paths, tree = leave_out(data, seed)
    is_novel = np.array([path[:DEPTH] in left_out for path in paths])
    rows = {part: np.flatnonzero((data.split == part) & ~is_novel) for part in ("train", "val")}
    known = np.flatnonzero((data.split == "test") & ~is_novel)
    novel = np.flatnonzero((data.split == "test") & is_novel)
    X = {part: samples[chosen] for part, chosen in rows.items()}
    y = {
        part: tree.labels_from_paths([paths[row] for row in chosen])
        for part, chosen in {**rows, "test": known}.items()
    }
    sets = {
        "known": samples[known],
        "novel": samples[novel],
        "noise": noise,
        "other data": other,
    }
    models = {
        "density": H2EDLClassifier(tree, familiarity="density", **options),
        "flat": FlatCEClassifier(tree, **options),
        "daedl": DAEDLClassifier(tree, **options),
    }
    for model in models.values():
        model.fit(X["train"], y["train"], X_val=X["val"], y_val=y["val"])
    # The same fit: familiarity is estimated after it.
    models["none"] = copy.deepcopy(models["density"]).set_params(familiarity="none")
    models["none"].network_.head.familiarity = None

    def features(Z):
        # Frozen features are taken as they are: the head reads them centred, which kNN minds.
        return Z if options["backbone"] is None else features_of(models["flat"], Z)

    scores = scores_of_others(models["flat"], models["daedl"], X["train"], y["train"], features)
    detectors, known_figures = {}, {}
    for name in ("none", "density", "flat"):
        detector = NoveltyDetector(FrozenEstimator(models[name]))
        detectors[name] = detector.fit(X["val"], y["val"])
    for name in ("none", "density"):
        proba = models[name].predict_proba(sets["known"])
        known_figures[name] = {
            "accuracy": float(accuracy_score(y["test"], models[name].predict(sets["known"]))),
            "nll": float(log_loss(y["test"], proba, labels=models[name].classes_)),
        }
        scores[f"U, {name}"] = lambda Z, name=name: (
            models[name].predict_hyper_opinion(Z).nonspecificity
        )
    scores["detector"] = detectors["density"].predict_novelty_score
    values = {name: {part: score(Z) for part, Z in sets.items()} for name, score in scores.items()}
    parent = np.array([tree.branching.index(paths[row][: DEPTH - 1]) for row in novel])
    where = {
        name: float(np.mean(detector.predict_node_scores(sets["novel"]).argmax(axis=1) == parent))
        for name, detector in detectors.items()
    }
    for name in ("none", "density"):
        mass = models[name].predict_hyper_opinion(sets["novel"]).mass[:, tree.n_leaves :]
        where[f"mass, {name}"] = float(np.mean(mass.argmax(axis=1) == parent))
    return {
        "dataset": data.name,
        "network": NETWORK,
        "epochs": options.get("max_epochs"),
        "seed": seed,
        "left_out": ["/".join(path) for path in left_out],
        "n_known": len(known),
        "n_novel": len(novel),
        "n_branching": tree.n_branching,
        "auroc": {
            name: {part: auroc(each["known"], each[part]) for part in sets if part != "known"}
            for name, each in values.items()
        },
        "mean_u": {
            name: {part: float(each.mean()) for part, each in values[f"U, {name}"].items()}
            for name in ("none", "density")
        },
        "known": known_figures,
        "where": where,
        "false_alarms": float(detectors["density"].predict_novelty(sets["known"]).mean()),
        "found": float(detectors["density"].predict_novelty(sets["novel"]).mean()),
    }


def write_table(records, path):
    """Write the mean of the seeds for each data set, with the spread of the novelty AUROC."""
    found = {}
    for file in sorted(records.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        epochs = record.get("epochs")  # none of frozen features
        regime = (
            f"frozen {record['network']} at {SIZE[record['dataset']]} px"
            if epochs is None
            else f"{record['network']} trained end to end for {epochs} epochs at {TRAINED_SIZE} px"
        )
        found.setdefault((record["dataset"], regime), []).append(record)
    lines = []
    for (dataset, regime), runs in found.items():

        def mean(*keys, runs=runs):
            values = runs
            for key in keys:
                values = [value[key] for value in values]
            return np.mean(values), np.std(values)

        lines += [
            f"**{dataset}**, {regime}, choices of what is left out: {len(runs)}",
            "",
            "| score | unknown classes | noise | another data set |",
            "|---|---|---|---|",
        ]
        for name in (*SHOWN, "U, none", "U, density", "detector"):
            cells = [mean("auroc", name, part) for part in ("novel", "noise", "other data")]
            novel = f"{cells[0][0]:.3f}" + (f" ± {cells[0][1]:.3f}" if len(runs) > 1 else "")
            rest = " | ".join(f"{cell[0]:.3f}" for cell in cells[1:])
            lines.append(f"| {name} | {novel} | {rest} |")
        chance = np.mean([1 / run["n_branching"] for run in runs])
        figures = {
            name: [mean("known", name, key)[0] for key in ("accuracy", "nll")]
            for name in ("none", "density")
        }
        where = {name: mean("where", name)[0] for name in ("flat", "none", "density")}
        lines += [
            "",
            f"Known test photographs: accuracy {figures['none'][0]:.2%} without and "
            f"{figures['density'][0]:.2%} with familiarity, NLL {figures['none'][1]:.3f} and "
            f"{figures['density'][1]:.3f}. The detector calls {mean('false_alarms')[0]:.1%} of "
            f"them novel (5 % allowed) and {mean('found')[0]:.1%} of the unknown classes. It names "
            f"the parent of the group left out for {where['density']:.0%} of these photographs, "
            f"max-probability for {where['flat']:.0%}, H2EDL without familiarity for "
            f"{where['none']:.0%}; chance is {chance:.0%}.",
            "",
        ]
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    return path


def frozen(name, data, other, weights):
    """Return frozen features of the data, of a part of the others and of noise, and options."""
    from skh2edl import ImageFeatureExtractor

    size = SIZE[name]
    extractor = ImageFeatureExtractor(NETWORK, weights=weights, image_size=size)
    noise = extractor.fit_transform(noise_of(size))
    strange = extractor.transform(some_of(other))
    cache = CACHE / f"{name}-{NETWORK}-{size}px.npy"
    if not cache.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        np.save(cache, extractor.transform(data.source))
    return np.load(cache), strange, noise, {"backbone": None, **SOLVER}


def trained(data, other, weights):
    """Return the images of the data, of a part of the others and of noise, and options."""
    options = {
        "backbone": NETWORK,
        "weights": weights,
        "image_size": TRAINED_SIZE,
        "max_epochs": EPOCHS,
        "hardware": Hardware(n_workers=0),
    }
    return data.source, some_of(other), noise_of(TRAINED_SIZE), options


def noise_of(size):
    """Return images of pure noise."""
    return np.random.default_rng(0).integers(0, 256, (200, size, size, 3)).astype(np.uint8)


def some_of(data):
    """Return every tenth test image."""
    return data.source[np.flatnonzero(data.split == "test")[::10]]


def main():
    """Run what has no record yet."""
    from skh2edl.datasets import load_cub, load_grocery_store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    parser.add_argument("--datasets", nargs="+", default=list(LEFT_OUT))
    parser.add_argument("--seeds", nargs="+", type=int, default=[*SEEDS])
    parser.add_argument("--trained", action="store_true", help="train networks end to end")
    asked = parser.parse_args()
    keep_freed_memory()
    weights = asked.assets / "weights" / f"{NETWORK}.safetensors"
    loaders = {"cub_birds": load_cub, "grocery_store": load_grocery_store}
    data = {name: load(asked.assets / name) for name, load in loaders.items()}
    RECORDS.mkdir(parents=True, exist_ok=True)
    for name in asked.datasets:
        own = data[name]
        (other,) = (each for each in data.values() if each.name != name)
        samples, strange, noise, options = (
            trained(own, other, weights) if asked.trained else frozen(name, own, other, weights)
        )
        for seed in asked.seeds:
            regime = f"-{EPOCHS}epochs" if asked.trained else ""
            path = RECORDS / f"{name}-{NETWORK}{regime}-seed{seed}.json"
            if path.exists():
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of heads that stop at max_iter
                record = run(own, samples, strange, noise, seed, {**options, "random_state": seed})
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8", newline="\n")
            print(path.name, flush=True)


if __name__ == "__main__":
    main()
