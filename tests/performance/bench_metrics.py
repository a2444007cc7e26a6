"""Time every label metric on a million samples of a tree with 10,000 leaves.

Run by hand: ``python tests/performance/bench_metrics.py``. As a test
(``pytest tests/performance/bench_metrics.py``) it holds each to two seconds.
"""

import sys
import time

import numpy as np
import pytest

from skh2edl import Taxonomy
from skh2edl.metrics import (
    first_error_depth,
    hierarchical_distance,
    hierarchical_fscore,
    hierarchical_precision,
    hierarchical_recall,
    kept_ancestor,
    level_accuracy,
    level_balanced_accuracy,
    mistake_severity,
)

N_SAMPLES = 1_000_000
MOST_SECONDS = 2.0
METRICS = {
    "level_accuracy": level_accuracy,
    "level_balanced_accuracy": level_balanced_accuracy,
    "level_balanced_accuracy, level 2": lambda *given: level_balanced_accuracy(*given, level=2),
    "first_error_depth": first_error_depth,
    "kept_ancestor, level 1": kept_ancestor,
    "mistake_severity": mistake_severity,
    "hierarchical_distance": hierarchical_distance,
    "hierarchical_precision": hierarchical_precision,
    "hierarchical_recall": hierarchical_recall,
    "hierarchical_fscore": hierarchical_fscore,
}


def make_case():
    """Return labels, predictions and a tree of 10,000 leaves."""
    paths = [
        (f"a{i}", f"a{i}b{j}", f"a{i}b{j}c{k}", f"a{i}b{j}c{k}d{m}")
        for i in range(10)
        for j in range(10)
        for k in range(10)
        for m in range(10)
    ]
    tree = Taxonomy.from_paths(paths)
    rng = np.random.default_rng(0)
    labels = np.array(tree.labels(range(1, tree.n_nodes)))
    leaves = np.array(tree.leaves)
    y_true = leaves[rng.integers(leaves.size, size=N_SAMPLES)]
    y_pred = np.where(
        rng.random(N_SAMPLES) < 0.7, y_true, labels[rng.integers(labels.size, size=N_SAMPLES)]
    )
    return y_true, y_pred, tree


@pytest.fixture(scope="module")
def case():
    return make_case()


def seconds(metric, case):
    # Processor time: one thread is busy, and other programs on the machine do not count.
    started = time.process_time()
    metric(*case)
    return time.process_time() - started


@pytest.mark.parametrize("name", METRICS)
def test_a_million_samples_take_less_than_two_seconds(name, case):
    assert min(seconds(METRICS[name], case) for _ in range(3)) < MOST_SECONDS


def main():
    made = make_case()
    for name, metric in METRICS.items():
        print(f"{name:35s} {min(seconds(metric, made) for _ in range(3)):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
