"""Photographs of unknown classes: ``python docs/results/novelty.py ASSETS``.

ASSETS is the folder with ``grocery_store``, ``cub_birds`` and ``weights``. Groups of classes,
families of birds and coarse classes of groceries, are left out of taxonomy and training; heads are
fitted to frozen features of train images, detectors calibrated on val images, all scored on test
images. An interrupted run resumes; ``make.py`` makes the table from the records.
"""

import argparse
import copy
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np

RECORDS = Path(__file__).resolve().parent / "records" / "novelty"
CACHE = Path(tempfile.gettempdir()) / "skh2edl-features"
NETWORK = "tf_efficientnet_lite0"
SEEDS = (0, 1, 2)
# Pixels on the side of an image; the birds' are enlarged, the groceries' reduced for speed.
SIZE = {"cub_birds": 224, "grocery_store": 96}
# How many groups are left out; groups are the nodes at this depth.
LEFT_OUT, DEPTH = {"cub_birds": 8, "grocery_store": 10}, 2
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


def scores_of_others(flat, daedl, train, y):
    """Return the novelty scores of other methods, as functions of the features."""
    import torch
    from sklearn.covariance import LedoitWolf
    from sklearn.neighbors import NearestNeighbors

    def energy(X):
        network = flat.network_
        with torch.inference_mode():
            logits = network.head.logits(network.standardized(torch.from_numpy(X)))
        return -logits.logsumexp(dim=1).numpy()

    classes, own = np.unique(y, return_inverse=True)
    means = np.stack([train[own == k].mean(axis=0) for k in range(len(classes))])
    precision = LedoitWolf(assume_centered=True).fit(train - means[own]).precision_

    def mahalanobis(X):
        squares = ((X @ precision) * X).sum(axis=1)[:, None]
        squares = squares - 2 * X @ precision @ means.T
        return (squares + ((means @ precision) * means).sum(axis=1)).min(axis=1)

    def unit(X):
        return X / np.linalg.norm(X, axis=1, keepdims=True)

    neighbours = NearestNeighbors(n_neighbors=10).fit(unit(train))
    return {
        "max-probability": lambda X: -flat.predict_proba(X).max(axis=1),
        "energy": energy,
        "Mahalanobis": mahalanobis,
        "kNN": lambda X: neighbours.kneighbors(unit(X))[0][:, -1],
        "DAEDL": lambda X: -daedl.predict_proba(X).max(axis=1),
        "DAEDL, variance": lambda X: daedl.predict_variance(X).sum(axis=1),
    }


def run(data, features, other, noise, seed):
    """Return the record of one choice of groups."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.metrics import accuracy_score, log_loss

    from skh2edl import DAEDLClassifier, FlatCEClassifier, H2EDLClassifier, NoveltyDetector

    left_out, paths, tree = leave_out(data, seed)
    is_novel = np.array([path[:DEPTH] in left_out for path in paths])
    rows = {part: np.flatnonzero((data.split == part) & ~is_novel) for part in ("train", "val")}
    known = np.flatnonzero((data.split == "test") & ~is_novel)
    novel = np.flatnonzero((data.split == "test") & is_novel)
    X = {part: features[chosen] for part, chosen in rows.items()}
    y = {
        part: tree.labels_from_paths([paths[row] for row in chosen])
        for part, chosen in {**rows, "test": known}.items()
    }
    sets = {
        "known": features[known],
        "novel": features[novel],
        "noise": noise,
        "other data": other,
    }
    options = {"backbone": None, **SOLVER}
    models = {
        "density": H2EDLClassifier(tree, familiarity="density", **options),
        "flat": FlatCEClassifier(tree, **options),
        "daedl": DAEDLClassifier(tree, **options),
    }
    for model in models.values():
        model.fit(X["train"], y["train"])
    # The same fit: familiarity is estimated after it.
    models["none"] = copy.deepcopy(models["density"]).set_params(familiarity="none")
    models["none"].network_.head.familiarity = None
    scores = scores_of_others(models["flat"], models["daedl"], X["train"], y["train"])
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
        found.setdefault(record["dataset"], []).append(record)
    lines = []
    for dataset, runs in found.items():

        def mean(*keys, runs=runs):
            values = runs
            for key in keys:
                values = [value[key] for value in values]
            return np.mean(values), np.std(values)

        lines += [
            f"**{dataset}**, frozen {runs[0]['network']} at {SIZE[dataset]} px, "
            f"{len(runs)} choices of what is left out",
            "",
            "| score | unknown classes | noise | another data set |",
            "|---|---|---|---|",
        ]
        for name in (*SHOWN, "U, none", "U, density", "detector"):
            cells = [mean("auroc", name, part) for part in ("novel", "noise", "other data")]
            novel = f"{cells[0][0]:.3f} ± {cells[0][1]:.3f}"
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


def main():
    """Run what has no record yet."""
    from skh2edl import ImageFeatureExtractor
    from skh2edl.datasets import load_cub, load_grocery_store

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("assets", type=Path)
    parser.add_argument("--datasets", nargs="+", default=list(LEFT_OUT))
    options = parser.parse_args()
    weights = options.assets / "weights" / f"{NETWORK}.safetensors"
    loaders = {"cub_birds": load_cub, "grocery_store": load_grocery_store}
    data = {name: load(options.assets / name) for name, load in loaders.items()}
    RECORDS.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        size = SIZE[name]
        extractor = ImageFeatureExtractor(NETWORK, weights=weights, image_size=size)
        pixels = np.random.default_rng(0).integers(0, 256, (200, size, size, 3)).astype(np.uint8)
        noise = extractor.fit_transform(pixels)
        (other,) = (each for each in data.values() if each.name != name)
        strange = extractor.transform(other.source[np.flatnonzero(other.split == "test")[::10]])
        cache = CACHE / f"{name}-{NETWORK}-{size}px.npy"
        if not cache.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            np.save(cache, extractor.transform(data[name].source))
        features = np.load(cache)
        for seed in SEEDS:
            path = RECORDS / f"{name}-{NETWORK}-seed{seed}.json"
            if path.exists():
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of heads that stop at max_iter
                record = run(data[name], features, strange, noise, seed)
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8", newline="\n")
            print(path.name, flush=True)


if __name__ == "__main__":
    main()
