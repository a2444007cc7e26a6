"""Choose which samples to label next, and how deep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.tree import IntArray
from ._opinions import check_opinion

FloatArray = npt.NDArray[np.float64]


class AnnotationPlan(NamedTuple):
    """Samples to label, most useful first.

    Parameters
    ----------
    rows : ndarray of int of shape (budget,)
        Positions of the samples in the opinion.
    depths : ndarray of int of shape (budget,)
        How deep to label each, in edges from the root.
    nodes : list of labels
        The node of each sample at which most belief stops: annotators choose between its
        children.
    uncertainty : ndarray of shape (budget,)
        Belief that stops above the requested level, which a label would resolve.
    """

    rows: IntArray
    depths: IntArray
    nodes: list[Any]
    uncertainty: FloatArray


def rank_for_annotation(
    opinion: HyperOpinion,
    budget: int,
    level: str | int = "leaf",
    *,
    spread: bool = True,
    enough: float = 0.9,
) -> AnnotationPlan:
    """Choose the samples whose labels would resolve the most uncertainty, and how deep to label.

    A label down to some level resolves the belief that stops at the branching nodes above this
    level. The requested depth is the smallest that resolves most of it, because coarse labels are
    cheaper.

    Parameters
    ----------
    opinion : HyperOpinion
        One row for each sample that could be labelled.
    budget : int
        How many samples to choose, at most all of them.
    level : str or int, default="leaf"
        Finest level that the annotators can name.
    spread : bool, default=True
        Whether to spread the choice over the nodes: uncertainty at a node is divided by
        1 + the uncertainty at this node of the samples chosen so far. Without it, many of the
        chosen samples are often of one kind.
    enough : float, default=0.9
        Fraction of the uncertainty that the requested depth has to resolve.

    Returns
    -------
    plan : AnnotationPlan
        The arrays `rows`, `depths` and `uncertainty` and the list `nodes`.

    Notes
    -----
    This is a heuristic: vacuity does not measure how much a label would improve the model. On your
    data, compare it with labelling random samples.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy, rank_for_annotation
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> evidence = [[98, 0, 98, 0], [96, 2, 0, 0], [0, 0, 0, 0]]
    >>> plan = rank_for_annotation(HyperOpinion.from_evidence(tree, evidence), budget=2)
    >>> plan.rows, plan.depths, plan.nodes
    (array([2, 1]), array([1, 2]), ['root', 'cat'])
    """
    check_opinion(opinion)
    if not isinstance(budget, (int, np.integer)) or not 1 <= budget <= len(opinion):
        raise ValueError(
            f"budget must be an integer from 1 to {len(opinion)}, the number of samples, got "
            f"{budget!r}."
        )
    if not 0 < enough <= 1:
        raise ValueError(f"enough must be above 0 and at most 1, got {enough!r}.")
    tree = opinion.taxonomy
    deepest = tree.level_index(level)
    if deepest == 0:
        raise ValueError("level must be below the root, which is an ancestor of every label.")
    of_node = tree.depths[tree.branching_nodes]
    stops = opinion.mass[:, tree.n_leaves :].astype(np.float64)
    stops = np.where(of_node < deepest, stops, 0.0)
    rows = _choose(stops, int(budget), spread)

    by_depth = opinion.depth_profile[rows, :deepest]
    resolved = np.cumsum(by_depth, axis=1)
    uncertainty = resolved[:, -1]
    depths = 1 + np.argmax(resolved >= enough * uncertainty[:, None] * (1 - 1e-12), axis=1)
    nodes = tree.branching_nodes[stops[rows].argmax(axis=1)]
    return AnnotationPlan(rows, depths, tree.labels(nodes), uncertainty)


def _choose(stops: FloatArray, budget: int, spread: bool) -> IntArray:
    """Return the most uncertain samples; nodes of samples already chosen count less."""
    if not spread:
        return np.argsort(-stops.sum(axis=1), kind="stable")[:budget]
    chosen = np.empty(budget, dtype=np.int64)
    left = np.ones(len(stops), dtype=bool)
    taken = np.zeros(stops.shape[1])
    for position in range(budget):
        value = np.where(left, stops @ (1 / (1 + taken)), -1.0)
        row = int(value.argmax())
        chosen[position], left[row] = row, False
        taken += stops[row]
    return chosen
