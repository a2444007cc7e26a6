"""Opinions on random trees with extreme evidence: python tests/performance/extreme_evidence.py.

Prints the largest distance of sums of masses and probabilities from one; a NaN ends the run.
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "opinions"))
from test_opinion import random_trees

from skh2edl import HyperOpinion


def main(n_trees=10_000):
    started = time.perf_counter()
    worst = {"mass": 0.0, "leaf_probability": 0.0}
    n_leaves = n_levels = 0
    for tree, rng in random_trees(n_trees, seed=0):
        n_decisions = tree.n_decisions
        one_hot = np.zeros((3, n_decisions))
        one_hot[range(3), rng.integers(n_decisions, size=3)] = 1e6
        constant = np.repeat([[0.0], [1e-30], [1e30]], n_decisions, axis=1)
        mixed = rng.choice([0, 1e-30, 1, 1e6, 1e30], (3, n_decisions))
        evidence = np.concatenate([constant, one_hot, mixed]).astype(np.float32)
        opinion = HyperOpinion.from_evidence(tree, evidence)
        for name in ("mass", "vacuity", "reach", "leaf_probability", "node_probability"):
            values = getattr(opinion, name)
            if not ((values >= 0).all() and (values <= 1).all()):
                sys.exit(f"{name} is not in 0..1 on {tree!r} for {evidence!r}")
        for name in worst:
            total = getattr(opinion, name).sum(axis=1, dtype=np.float64)
            worst[name] = max(worst[name], float(np.abs(total - 1).max()))
        n_leaves, n_levels = max(n_leaves, tree.n_leaves), max(n_levels, tree.n_levels)
    print(
        f"{n_trees} trees of up to {n_leaves} leaves and {n_levels} levels, 9 samples of "
        f"float32 evidence each, {time.perf_counter() - started:.0f} s; farthest from one: "
        + ", ".join(f"{name} {value:.1e}" for name, value in worst.items())
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
