"""Which samples to label next, and how deep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.tree import IntArray

FloatArray = npt.NDArray[np.float64]


class AnnotationPlan(NamedTuple):
    """What to label, most useful first.

    Parameters
    ----------
    rows : ndarray of int of shape (budget,)
        Rows of the opinion.
    depths : ndarray of int of shape (budget,)
        How deep to label each, in edges from the root.
    nodes : list of labels
        Where most of the belief in each stops: the question is which child of it.
    doubt : ndarray of shape (budget,)
        Belief that stops above the level asked for, which the label would settle.
    """

    rows: IntArray
    depths: IntArray
    nodes: list[Any]
    doubt: FloatArray


def rank_for_annotation(
    opinion: HyperOpinion,
    budget: int,
    level: str | int = "leaf",
    *,
    spread: bool = True,
    enough: float = 0.9,
) -> AnnotationPlan:
    """Choose the samples whose labels would settle most doubt, and how deep to label them.

    The doubt that a label down to some level can settle in a sample is the belief that stops at
    the branching nodes above this level. Labels are asked only as deep as it takes to settle most
    of that: a coarse label is cheaper, and where the evidence already carries further down, or
    does not even reach the node, a deeper one adds little.

    Parameters
    ----------
    opinion : HyperOpinion
        One row for each sample that could be labelled.
    budget : int
        How many to choose; no more than there are.
    level : str or int, default="leaf"
        Finest level that the annotators can name.
    spread : bool, default=True
        Whether doubt at a node counts less the more samples with doubt there have been chosen:
        its weight is 1 / (1 + the doubt chosen so far). Without it the choice is often many
        samples of one kind.
    enough : float, default=0.9
        Share of the doubt that the depth asked for has to settle.

    Returns
    -------
    plan : AnnotationPlan
        The arrays `rows`, `depths` and `doubt` and the list `nodes`.

    Notes
    -----
    A heuristic: vacuity is not a measure of how much a label would improve the model. Compare it
    with labels of random samples on your data.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy, rank_for_annotation
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> evidence = [[98, 0, 98, 0], [96, 2, 0, 0], [0, 0, 0, 0]]
    >>> plan = rank_for_annotation(HyperOpinion.from_evidence(tree, evidence), budget=2)
    >>> plan.rows, plan.depths, plan.nodes
    (array([2, 1]), array([1, 2]), ['root', 'cat'])
    """
    if not isinstance(opinion, HyperOpinion):
        raise TypeError(
            f"opinion must be a HyperOpinion, got {type(opinion).__name__}. Take what "
            "predict_hyper_opinion returns."
        )
    if not isinstance(budget, (int, np.integer)) or not 1 <= budget <= len(opinion):
        raise ValueError(
            f"budget must be a whole number from 1 to the {len(opinion)} sample(s) there are, got "
            f"{budget!r}."
        )
    if not 0 < enough <= 1:
        raise ValueError(f"enough must be a share above 0 and at most 1, got {enough!r}.")
    tree = opinion.taxonomy
    deepest = tree.level_index(level)
    if deepest == 0:
        raise ValueError("level must be below the root, which every label holds.")
    of_node = tree.depths[tree.branching_nodes]
    stops = opinion.mass[:, tree.n_leaves :].astype(np.float64)
    stops = np.where(of_node < deepest, stops, 0.0)
    rows = _choose(stops, int(budget), spread)

    by_depth = opinion.depth_profile[rows, :deepest]
    settled = np.cumsum(by_depth, axis=1)
    doubt = settled[:, -1]
    depths = 1 + np.argmax(settled >= enough * doubt[:, None] * (1 - 1e-12), axis=1)
    nodes = tree.branching_nodes[stops[rows].argmax(axis=1)]
    return AnnotationPlan(rows, depths, tree.labels(nodes), doubt)


def _choose(stops: FloatArray, budget: int, spread: bool) -> IntArray:
    """Return the rows with most doubt, that at nodes already asked about counting less."""
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
