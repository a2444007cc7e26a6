"""Time and memory of a taxonomy of a million leaves; run as a script or with pytest."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from skh2edl import Taxonomy

N_LEAVES = 1_000_000
N_LEVELS = 12
LIMITS = {
    "build from an edge list": 20.0,
    "resolve 1,000,000 bare names": 3.0,
    "common ancestors of 1,000,000 pairs": 3.0,
}
MOST_MEMORY = 2.0


def edge_list() -> list[tuple[str, str]]:
    """Each level has about three times the nodes of the one above."""
    sizes = [round(N_LEAVES ** (level / N_LEVELS)) for level in range(N_LEVELS + 1)]
    return [
        (f"{level - 1}-{number * sizes[level - 1] // sizes[level]}", f"{level}-{number}")
        for level in range(1, N_LEVELS + 1)
        for number in range(sizes[level])
    ]


def peak_memory() -> float:
    """Largest size of this process so far in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def measure() -> tuple[dict[str, float], float]:
    """Return the seconds of each job, and the peak of memory after building."""
    seconds: dict[str, float] = {}

    def timed(name: str, job: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter()
        result = job(*arguments)
        seconds[name] = time.perf_counter() - start
        return result

    edges = edge_list()
    tree = timed("build from an edge list", Taxonomy.from_edges, edges)
    memory = peak_memory()
    assert (tree.n_leaves, tree.n_levels) == (N_LEAVES, N_LEVELS)

    names = [child for _, child in edges[-N_LEAVES:]]
    del edges
    nodes = timed("resolve 1,000,000 bare names", tree.resolve, names)
    assert tree.names[nodes[[0, -1]]].tolist() == [names[0], names[-1]]
    rng = np.random.default_rng(0)
    pairs = rng.permutation(nodes), rng.permutation(nodes)
    timed("common ancestors of 1,000,000 pairs", tree.lowest_common_ancestor, *pairs)
    paths = [tree._index.path(node) for node in nodes.tolist()]
    found = timed("resolve 1,000,000 path tuples", tree.resolve, paths)
    assert (found == nodes).all()
    joined = ["/".join(path) for path in paths]
    del paths
    found = timed("resolve 1,000,000 joined paths", tree.resolve, joined)
    assert (found == nodes).all()
    del joined
    timed("labels of all leaves, sorted", lambda: tree.sorted_leaf_labels)
    timed("JSON there and back", lambda: Taxonomy.from_json(tree.to_json()))
    timed("draw", str, tree)
    return seconds, memory


def test_a_million_leaves_within_the_limits():
    seconds, memory = measure()
    slow = {name: seconds[name] for name, limit in LIMITS.items() if seconds[name] >= limit}
    assert not slow
    assert memory < MOST_MEMORY


if __name__ == "__main__":
    figures, gibibytes = measure()
    print(f"{'Taxonomy of 1,000,000 leaves, 12 levels':<40} {'seconds':>8} {'limit':>6}")
    for name, figure in figures.items():
        print(f"{name:<40} {figure:8.2f} {LIMITS.get(name, ''):>6}")
    print(f"{'peak memory after building, GiB':<40} {gibibytes:8.2f} {MOST_MEMORY:>6}")
