"""Helpers of the benchmarks: ours and a baseline take turns, and trees to run them on."""

import time
from itertools import pairwise

import numpy as np


def take_turns(baseline, ours, repeats=7):
    """Return the seconds of each turn of both; a first turn does not count."""
    seconds = {"baseline": [], "ours": []}
    for turn in range(repeats + 1):
        for name, function in (("baseline", baseline), ("ours", ours)):
            started = time.perf_counter()
            function()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def row(what, against, target, seconds, better="less", **facts):
    """Return the record of one row: a ratio of times, or of speeds if more is better."""
    ours, baseline = (np.array(seconds[name]) for name in ("ours", "baseline"))
    ratios = ours / baseline if better == "less" else baseline / ours
    middle = np.median(ours) / np.median(baseline)
    return {
        "what": what,
        "against": against,
        "target": target,
        "ratio": float(middle if better == "less" else 1 / middle),
        "lowest": float(ratios.min()),
        "highest": float(ratios.max()),
        "ours_ms": 1000 * float(np.median(ours)),
        "baseline_ms": 1000 * float(np.median(baseline)),
        "repeats": len(ours),
        **facts,
    }


def balanced_tree(n_leaves, n_levels):
    """A tree whose levels grow by the same factor."""
    from skh2edl import Taxonomy

    factor = n_leaves ** (1 / n_levels)
    counts = [1, *(round(factor**level) for level in range(1, n_levels)), n_leaves]
    parents, first = {}, 0
    for above, count in pairwise(counts):
        below = first + above
        for child in range(count):
            parents[f"n{below + child}"] = f"n{first + child * above // count}"
        first = below
    return Taxonomy.from_parents(parents)
