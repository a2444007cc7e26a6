"""Is this checkout slower than another one? ``python bench_versions.py OTHER_CHECKOUT``.

Run by hand on a quiet machine. Each checkout has a process of its own with the same packages; the
two take turns, one case at a time, so that a change of the machine's pace meets both. The ratio is
the other's median time over ours: above 1 this checkout is faster. Cases are whole jobs of the
public API, and steps and searches of a large tree; a case that the other checkout does not have is
reported as such.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def timed(function):
    """Return the seconds of a call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def finetuning(name, n, files):
    """Return a function that gives the seconds of the second epoch of a fit."""
    from bench_networks import photographs
    from turns import balanced_tree

    from skh2edl import H2EDLClassifier

    tree = balanced_tree(81, 3)
    X = np.random.default_rng(0).integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)
    if files:
        X = photographs(tempfile.mkdtemp(), n, 300)
    y = np.array(tree.leaves)[np.arange(n) % 81]
    clf = H2EDLClassifier(
        tree,
        backbone=name,
        weights=None,
        image_size=64,
        max_epochs=2,
        validation_fraction=None,
        random_state=0,
    )
    return lambda: clf.fit(X, y).history_["seconds"][1]


def extraction(side, n):
    """Return a function that gives the seconds of the features of JPEG files."""
    from bench_networks import photographs

    from skh2edl import ImageFeatureExtractor

    paths = photographs(tempfile.mkdtemp(), n, side)
    extractor = ImageFeatureExtractor("resnet18", weights=None, random_state=0).fit(paths)
    return lambda: timed(lambda: extractor.transform(paths))


def large_fit(predict):
    """Return a function that gives the seconds of an epoch or of predictions."""
    from turns import balanced_tree

    from skh2edl import H2EDLClassifier

    tree = balanced_tree(100_000, 12)
    rng = np.random.default_rng(0)
    y = np.array(tree.leaves)[rng.integers(0, tree.n_leaves, 2048)]
    X = rng.normal(size=(len(y), 256)).astype(np.float32)
    options = {"backbone": None, "max_epochs": 2, "validation_fraction": None, "random_state": 0}
    clf = H2EDLClassifier(tree, **options)
    if not predict:
        return lambda: clf.fit(X, y).history_["seconds"][1]
    clf.fit(X, y)
    return lambda: timed(lambda: clf.predict(X))


def large_step(n_leaves, n_features):
    """Return a function that gives the seconds of ten steps with the optimiser."""
    import torch
    from bench_speed import make_step, opinion_head
    from turns import balanced_tree

    try:
        from skh2edl.training import sparse_adamw as module
    except ImportError:
        from skh2edl import row_optimizer as module
    make = getattr(module, "SparseAdamW", None) or module.RowOptimizer  # as in other versions
    tree = balanced_tree(n_leaves, 12)
    features = torch.randn(64, n_features, generator=torch.Generator().manual_seed(0))
    leaves = np.random.default_rng(0).integers(0, n_leaves, 64)
    head = opinion_head(tree, n_features)
    head.sparse_gradient = True
    optimizer = make(
        torch.optim.AdamW([head.linear.bias]), head.linear.weight, lr=1e-3, weight_decay=0.05
    )
    step = make_step(head, features, tree.leaf_nodes[leaves], [optimizer])
    return lambda: timed(lambda: [step() for _ in range(10)])


def search(n_leaves, n_levels, n_features, k, sure):
    """Return a function that gives the seconds of three searches for the best leaves."""
    import torch
    from bench_speed import opinion_head, pointed_at_leaves
    from turns import balanced_tree

    try:
        from skh2edl.heads.large.search import search_leaves
    except ImportError:
        from skh2edl.search import search_leaves
    head = opinion_head(balanced_tree(n_leaves, n_levels), n_features).eval()
    features = torch.randn(64, n_features, generator=torch.Generator().manual_seed(0))
    std = (12.0 if sure else 0.3) / n_features**0.5
    generator = torch.Generator().manual_seed(2)
    torch.nn.init.normal_(head.linear.weight, std=std, generator=generator)
    if sure:
        features = pointed_at_leaves(head, features)
    return lambda: timed(lambda: [search_leaves(head, features, k) for _ in range(3)])


CASES = {
    "fine-tuning resnet18, arrays": (finetuning, "resnet18", 512, False),
    "fine-tuning resnet18, JPEG paths": (finetuning, "resnet18", 512, True),
    "fine-tuning resnet50, arrays": (finetuning, "resnet50", 256, False),
    "features of 300 px JPEG files": (extraction, 300, 192),
    "features of 1000 px JPEG files": (extraction, 1000, 96),
    "epoch on features, 100,000 leaves": (large_fit, False),
    "predict on features, 100,000 leaves": (large_fit, True),
    "steps, 100,000 leaves, d = 2048": (large_step, 100_000, 2048),
    "steps, 1,000,000 leaves, d = 256": (large_step, 1_000_000, 256),
    "top 1 of 100,000 leaves, sure": (search, 100_000, 12, 2048, 1, True),
    "top 5 of 100,000 leaves, sure": (search, 100_000, 12, 2048, 5, True),
    "top 1 of 100,000 leaves, flat": (search, 100_000, 12, 2048, 1, False),
    "top 1 of 1,000,000 leaves, sure": (search, 1_000_000, 12, 256, 1, True),
    "top 5 of 2^20 leaves, 20 levels, sure": (search, 2**20, 20, 256, 5, True),
}


def work():
    """Answer each line, the name of a case, with its seconds or an error."""
    made = {}
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in made:
                made.clear()  # large trees hold gigabytes
                make, *arguments = CASES[name]
                made[name] = make(*arguments)
            said = {"seconds": made[name]()}
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


def start(checkout):
    """Start a process that works with a checkout and with its benchmarks."""
    folders = [checkout, checkout / "tests" / "performance"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    # -P keeps the folder of this file out of the path, for the other checkout has its own.
    command = [sys.executable, "-P", "-W", "ignore", __file__, "--worker"]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tempfile.gettempdir(),
    )


def ask(worker, name):
    """Return what a process says of a case."""
    worker.stdin.write(f"{name}\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def main():
    """Let the two checkouts take turns, and print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cases", nargs="+", choices=[*CASES], default=[*CASES])
    asked = parser.parse_args()
    workers = {"ours": start(HERE.parents[1]), "other": start(asked.other.resolve())}
    print("| case | ratio of medians (lowest to highest) | ours, s | other, s |\n|---|---|---|---|")
    for name in asked.cases:
        seconds = {"ours": [], "other": []}
        errors = {}
        for turn in range(asked.repeats + 1):
            for who, worker in workers.items():
                said = ask(worker, name)
                if "error" in said:
                    errors[who] = said["error"]
                elif turn:  # the first turn warms up
                    seconds[who].append(said["seconds"])
            if errors:
                break
        if errors:
            print(f"| {name} | not run: {errors} | | |", flush=True)
            continue
        ours, other = (np.array(seconds[who]) for who in ("ours", "other"))
        ratio, turns = np.median(other) / np.median(ours), other / ours
        spread = f"{ratio:.3f} ({turns.min():.3f} to {turns.max():.3f})"
        print(f"| {name} | {spread} | {np.median(ours):.3f} | {np.median(other):.3f} |", flush=True)
    for worker in workers.values():
        worker.stdin.close()


if __name__ == "__main__":
    work() if "--worker" in sys.argv else main()
