"""Random inputs for property tests."""

import numpy as np
from hypothesis import strategies as st

from skh2edl import Taxonomy


@st.composite
def taxonomies(draw, max_nodes=16, widest=0, longest_chain=0):
    """A tree of any shape: pass-through nodes, leaves at any depth, names repeated in branches.

    At times one node gets up to `widest` more leaves, or up to `longest_chain` nodes in a row.
    """
    n_nodes = draw(st.integers(3, max_nodes))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, n_nodes))]
    if n_nodes - len(set(parents[1:])) < 2:
        parents[-1] = 0  # a single chain has nothing to decide
    if widest and draw(st.booleans()):
        parents += [draw(st.integers(0, n_nodes - 1))] * draw(st.integers(1, widest))
    if longest_chain and draw(st.booleans()):
        parents.append(draw(st.integers(0, n_nodes - 1)))
        parents += range(len(parents) - 1, len(parents) - 1 + draw(st.integers(1, longest_chain)))
    siblings: dict[int, int] = {}
    names = ["root"]
    # Drawn at once: a wide tree has more nodes than hypothesis would like to draw one by one.
    repeats = draw(st.integers(0, 2 ** len(parents) - 1))
    for node, parent in enumerate(parents[1:], start=1):
        siblings[parent] = siblings.get(parent, 0) + 1
        names.append(f"child {siblings[parent]}" if repeats >> node & 1 else f"node {node}")
    return Taxonomy(names, parents)


@st.composite
def priors(draw, tree):
    """Arguments of `HyperOpinion.from_evidence`: uniform or other base rates, W = K or fixed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arguments = {}
    if draw(st.booleans()):
        weights = rng.exponential(size=tree.n_decisions) + 1e-3
        total = np.bincount(tree.decision_nodes, weights)
        arguments["base_rate"] = weights / total[tree.decision_nodes]
    kind = draw(st.sampled_from(["number of children", "fixed", "per node"]))
    if kind == "fixed":
        arguments["prior_weight"] = draw(st.sampled_from([2.0, 0.1, 50.0]))
    elif kind == "per node":
        arguments["prior_weight"] = rng.uniform(0.1, 20, tree.n_branching)
    return arguments


@st.composite
def evidences(draw, tree, n_samples=3, dtype=np.float64):
    """Evidence from 0 to 1e6, many magnitudes in one row."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = n_samples, tree.n_decisions
    low, high = draw(st.sampled_from([(-1, 1), (-30, 6), (5, 6)]))
    evidence = 10 ** rng.uniform(low, high, shape)
    fraction_of_zeros = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    evidence[rng.random(shape) < fraction_of_zeros] = 0
    return evidence.astype(dtype)


@st.composite
def opinion_cases(draw, n_samples=3, dtype=np.float64):
    """A tree, evidence on it and a prior: `HyperOpinion.from_evidence(tree, evidence, **prior)`."""
    tree = draw(taxonomies(widest=200, longest_chain=4))
    return tree, draw(evidences(tree, n_samples, dtype)), draw(priors(tree))
