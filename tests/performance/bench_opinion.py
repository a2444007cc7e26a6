"""Leaf probabilities of a hyper-opinion against one dense log_softmax of the same shape.

Run it by name, on a quiet machine: ``python tests/performance/bench_opinion.py``. The tasks take
turns in one process on one thread; the figures are medians of processor time. The script fails if
float64 leaf probabilities take more than three times as long as scipy's ``log_softmax``. float32
evidence is shown beside it; opinions are computed in float64 anyway, so that no mass is lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
import torch
from scipy.special import log_softmax

from skh2edl import HyperOpinion, Taxonomy

LIMIT = 3.0


def regular_tree(fan_outs: list[int]) -> Taxonomy:
    """Build a tree whose nodes all have the same number of children at one depth."""
    parents, level = [-1], [0]
    for fan_out in fan_outs:
        below = []
        for node in level:
            below += range(len(parents), len(parents) + fan_out)
            parents += [node] * fan_out
        level = below
    return Taxonomy(range(len(parents)), parents)


def random_tree(n_leaves: int, n_inner: int, seed: int) -> Taxonomy:
    """Build a ragged tree: inner nodes hang from random earlier ones, leaves from any of them."""
    rng = np.random.default_rng(seed)
    inner = [-1, *(int(rng.integers(max(0, node // 3), node)) for node in range(1, n_inner))]
    # An inner node without a child would be a leaf.
    childless = sorted(set(range(n_inner)) - set(inner))
    rest = rng.integers(0, n_inner, n_leaves - len(childless)).tolist()
    parents = inner + childless + rest
    return Taxonomy(range(len(parents)), parents)


TREES = {
    "flat": lambda: regular_tree([10_000]),
    "10 x 10 x 10 x 10": lambda: regular_tree([10] * 4),
    "100 x 100": lambda: regular_tree([100] * 2),
    "binary below 625": lambda: regular_tree([625] + [2] * 4),
    "ragged": lambda: random_tree(10_000, 1_500, seed=0),
}


def interleave(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Run the tasks in turn and return each one's median time in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats + 1):
        for name, task in tasks.items():
            start = process_time()
            task()
            times[name].append(1e3 * (process_time() - start))
    # The first round fills caches and does not count.
    return {name: median(values[1:]) for name, values in times.items()}


def measure(tree: Taxonomy, n_samples: int, dtype: str, repeats: int) -> dict[str, float]:
    """Time one tree."""
    rng = np.random.default_rng(0)
    evidence = rng.exponential(5.0, (n_samples, tree.n_decisions)).astype(dtype)
    logits = rng.normal(size=(n_samples, tree.n_leaves)).astype(dtype)
    tensor = torch.from_numpy(logits)
    opinion = HyperOpinion.from_evidence(tree, evidence)
    # A slice is a new opinion, without the values computed before.
    tasks: dict[str, Callable[[], object]] = {
        "scipy": lambda: log_softmax(logits, axis=1),
        "torch": lambda: torch.log_softmax(tensor, dim=1),
        "leaf_probability": lambda: opinion[:].leaf_probability,
        "with from_evidence": lambda: HyperOpinion.from_evidence(tree, evidence).leaf_probability,
        "log_leaf_probability": lambda: opinion[:].log_leaf_probability,
        "mass": lambda: opinion[:].mass,
    }
    return interleave(tasks, repeats)


def main() -> int:
    """Print the table and return whether the limit was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    worst = {"float64": 0.0, "float32": 0.0}
    for dtype in ("float64", "float32"):
        print(f"\n{arguments.samples} samples, 10,000 leaves, {dtype}; ms (times scipy)")
        for name, make in TREES.items():
            tree = make()
            times = measure(tree, arguments.samples, dtype, arguments.repeats)
            cells = [
                f"{task} {value:.0f} ({value / times['scipy']:.2f}x)"
                for task, value in times.items()
            ]
            print(f"{name:18} depth {tree.n_levels:2}  {'  '.join(cells)}", flush=True)
            worst[dtype] = max(worst[dtype], times["leaf_probability"] / times["scipy"])
    print(
        f"\nfloat64 leaf_probability takes at most {worst['float64']:.2f}x of scipy's log_softmax "
        f"(limit {LIMIT}x)"
    )
    return int(worst["float64"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
