"""Choose the constants that the paper leaves open, on validation data only.

    python docs/studies/defaults.py run ASSETS [--sets NAME ...] [--candidates NAME ...]
    python docs/studies/defaults.py table

A candidate differs from the base in one constant or, in the second round, from the default.
Networks are trained end to end, on photographs at 64 px from ImageNet weights and on drawn
characters from scratch. Heads are fitted to frozen features and to tables of scikit-learn. No test
image is read. Each fit writes one JSON record, which is never overwritten: an interrupted run
resumes, and several processes can run at once.
ASSETS is the folder with ``grocery_store``, ``cub_birds`` and ``weights``.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "records" / "defaults"
TABLE = HERE / "defaults_table.md"
CACHE = Path(tempfile.gettempdir()) / "skh2edl-defaults"  # of features, for the next call
NETWORK = "tf_efficientnet_lite0"

# Round one compares single constants around a base, round two the default and its neighbours.
BASE = {"l2": 3e-3, "initial_vacuity": 0.1, "kl_weight": 0.3}
DEFAULT = {"l2": 1e-2, "initial_vacuity": 0.5, "kl_weight": 0.1}
# What differs from the base. The paper has leaf_weight 0.1 and evidence_scale 1.
CANDIDATES = {
    "base": {},
    "kl_weight=1": {"kl_weight": 1.0},
    "initial_vacuity=0.5": {"initial_vacuity": 0.5},
    "leaf_weight=0.1": {"leaf_weight": 0.1},
    "evidence_scale=30": {"evidence_scale": 30.0},
    "kl_weight=0.1": {"kl_weight": 0.1},
    "evidence_scale=1000": {"evidence_scale": 1000.0},
    "kl_weight=0.01, not per child": {"kl_weight": 0.01, "kl_per_child": False},
    "kl_ramp=1": {"kl_ramp": 1.0},
    "evidence_scale=100": {"evidence_scale": 100.0},
    "initial_vacuity=0.02": {"initial_vacuity": 0.02},
    "evidence_scale=1": {"evidence_scale": 1.0},
    "paper": {"evidence_scale": 1.0, "kl_per_child": False, "kl_weight": 1.0, "leaf_weight": 0.1},
    # The default, and its neighbours.
    "default": DEFAULT,
    "default, kl_weight=0.03": {**DEFAULT, "kl_weight": 0.03},
    "default, kl_weight=0.3": {**DEFAULT, "kl_weight": 0.3},
    "default, kl_weight=1": {**DEFAULT, "kl_weight": 1.0},
    "default, initial_vacuity=0.1": {**DEFAULT, "initial_vacuity": 0.1},
}
# The penalty concerns frozen features alone.
PENALTIES = {f"l2={value:g}": {"l2": value} for value in (3e-2, 1e-2, 1e-3)}
# For comparison; they choose nothing.
BASELINES = ("Flat-CE", "Hier-CE")
TRAINED = {"grocery_64": 10, "cub_64": 8, "glyphs": 10}  # set -> epochs
FROZEN = ("grocery_frozen", "cub_frozen", "digits", "wine", "breast_cancer")
CLASS = {"Flat-CE": "FlatCEClassifier", "Hier-CE": "HierCEClassifier"}


def load(name, assets):
    """Return the taxonomy, and (X, y) to train on and to choose by."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    from skh2edl import Taxonomy
    from skh2edl.benchmark import frozen_features_of
    from skh2edl.datasets import make_glyphs

    if name in ("digits", "wine", "breast_cancer"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        X = X if name == "digits" else (X - X.mean(0)) / X.std(0)  # features of different units
        X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
        return Taxonomy.flat(np.unique(y).tolist()), (X, y), (X_val, y_val)
    if name == "glyphs":
        drawn = {"scripts": ("Latin", "Greek"), "image_size": 24}
        train = make_glyphs(2500, random_state=0, **drawn).subset("train")
        held = make_glyphs(2000, random_state=11, **drawn)
    else:
        train, held = photographs(name, assets)
    if not name.endswith("frozen"):
        return train.taxonomy, (train.source, train.labels), (held.source, held.labels)
    features = []
    for part, data in (("train", train), ("val", held)):
        options = {"weights": assets / "weights" / f"{NETWORK}.safetensors"}
        options["cache"] = CACHE / part
        features.append((frozen_features_of(data, NETWORK, **options), data.labels))
    return train.taxonomy, *features


def photographs(name, assets):
    """Return the photographs to train on and to choose by, none of the test split."""
    from sklearn.model_selection import train_test_split

    from skh2edl.datasets import load_cub, load_grocery_store

    if name.startswith("grocery"):
        data = load_grocery_store(assets / "grocery_store")
        return data.subset("train"), data.subset("val")
    data = load_cub(assets / "cub_birds", val_fraction=0).subset("train")
    every = np.arange(len(data))
    train, held = train_test_split(every, test_size=1000, random_state=0, stratify=data.labels)
    return data.select(train), data.select(held)


def classifier(candidate, name, taxonomy, assets):
    """Return the unfitted classifier of a candidate on a set."""
    import skh2edl

    kind = getattr(skh2edl, CLASS.get(candidate, "H2EDLClassifier"))
    clf = kind(taxonomy, random_state=0)
    if candidate in BASELINES:
        clf.set_params(l2=BASE["l2"])
    else:
        clf.set_params(**BASE | {**CANDIDATES, **PENALTIES}[candidate])
    if name in FROZEN:
        return clf.set_params(backbone=None)
    clf.set_params(max_epochs=TRAINED[name], validation_fraction=None, hardware__n_workers=0)
    if name == "glyphs":
        return clf.set_params(
            backbone="test_resnet",
            weights=None,
            image_size=24,
            learning_rate=0.01,
            recipe__augmentation="none",
            recipe__backbone_lr_scale=1.0,
            recipe__warmup_epochs=1.0,
        )
    weights = assets / "weights" / f"{NETWORK}.safetensors"
    return clf.set_params(backbone=NETWORK, weights=weights, image_size=64)


def measure(clf, X, y):
    """Return the scores of validation samples, and how uncertain the opinions are."""
    from skh2edl import metrics

    tree, proba = clf.taxonomy_, clf.predict_proba(X)
    scores = {
        "nll": metrics.level_nll(y, proba, tree, "leaf"),
        "accuracy": metrics.level_accuracy(y, clf.predict(X), tree, "leaf"),
        "ece": metrics.level_ece(y, proba, tree, "leaf"),
        "auroc_confidence": metrics.error_auroc(y, proba, 1 - proba.max(axis=1), tree),
    }
    if hasattr(clf, "predict_hyper_opinion"):
        U = clf.predict_hyper_opinion(X).nonspecificity
        scores |= {"U": U.mean(), "auroc_U": metrics.error_auroc(y, proba, U, tree)}
        if clf.backbone is not None:
            shape = (64, *np.asarray(X.read(0)).shape)
            noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
            scores["U_noise"] = clf.predict_hyper_opinion(noise).nonspecificity.mean()
    return {key: float(value) for key, value in scores.items()}


def jobs(sets, candidates):
    """Yield the data set and the candidate of every fit, one candidate after the other."""
    for candidate in candidates:
        for name in sets:
            if candidate not in PENALTIES or name in FROZEN:
                yield name, candidate


def run(assets, sets, candidates):
    """Fit every candidate that has no record and that no other process is fitting."""
    import torch

    torch.set_num_threads(1)
    RECORDS.mkdir(parents=True, exist_ok=True)
    for name, candidate in jobs(sets, candidates):
        path = RECORDS / f"{name}-{candidate.replace(' ', '_')}.json"
        lock = path.with_suffix(".lock")
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        try:
            if not path.exists():
                taxonomy, train, held = load(name, assets)
                clf = classifier(candidate, name, taxonomy, assets)
                started = time.perf_counter()
                clf.fit(*train)
                seconds = time.perf_counter() - started
                record = {"set": name, "candidate": candidate, **measure(clf, *held)}
                record["n_iter"], record["seconds"] = clf.n_iter_, round(seconds, 1)
                partial = path.with_suffix(".part")
                partial.write_text(json.dumps(record, indent=1) + "\n")
                partial.replace(path)
                print(f"{path.stem}: {seconds:.0f} s", flush=True)
        finally:
            lock.unlink()


def write_table():
    """Write NLL relative to the best candidate of each set, and the mean over the sets."""
    records = [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]
    nll = {(each["set"], each["candidate"]): each["nll"] for each in records}
    sets = [name for name in (*TRAINED, *FROZEN) if (name, "base") in nll]
    best = {
        name: min(value for key, value in nll.items() if key[0] == name and key[1] not in BASELINES)
        for name in sets
    }
    lines = [
        "<!-- Made from records by defaults.py; do not edit. -->",
        "",
        f"| candidate | {' | '.join(sets)} | mean, trained | mean, frozen | mean |",
        f"|---|{'---|' * (len(sets) + 3)}",
    ]
    for candidate in (*BASELINES, *CANDIDATES, *PENALTIES):
        own = {name: nll[name, candidate] / best[name] for name in sets if (name, candidate) in nll}
        if not own:
            continue
        cells = [f"{own[name]:.3f}" if name in own else "" for name in sets]
        for some in (TRAINED, FROZEN, sets):
            part = [own[name] for name in some if name in own]
            whole = len(part) == len([name for name in some if name in sets])
            cells.append(f"{np.mean(part):.3f}" if part and whole else "")
        lines.append(f"| {candidate} | {' | '.join(cells)} |")
    lines += ["", f"| candidate | {' | '.join(f'{name}: U, noise' for name in TRAINED)} |"]
    lines.append(f"|---|{'---|' * len(TRAINED)}")
    seen = {(each["set"], each["candidate"]): each for each in records}
    for candidate in CANDIDATES:
        cells = []
        for name in TRAINED:
            each = seen.get((name, candidate))
            cells.append("" if each is None else f"{each['U']:.2f}, {each['U_noise']:.2f}")
        lines.append(f"| {candidate} | {' | '.join(cells)} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("assets", type=Path)
    runs.add_argument("--sets", nargs="+", default=[*TRAINED, *FROZEN])
    runs.add_argument("--candidates", nargs="+", default=[*BASELINES, *CANDIDATES, *PENALTIES])
    commands.add_parser("table")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.assets, arguments.sets, arguments.candidates)
    write_table()


if __name__ == "__main__":
    main()
