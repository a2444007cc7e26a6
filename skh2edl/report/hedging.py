"""Thresholds of the hedge: predict a coarser class where the fine one is not probable enough."""

from __future__ import annotations

import numpy as np

from ..decisions._ladders import last_rung, make_ladder
from ..decisions._needed import thresholds_needed
from ..decisions._quantile import conformal_quantile, whole_votes
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .predictions import FloatArray, unlabelled

TARGETS = (0.9, 0.95, 0.99)


def needed_thresholds(
    leaf_probability: FloatArray, truth: IntArray, tree: Taxonomy, group: IntArray | None = None
) -> FloatArray:
    """Return the threshold that each held-out image, or subject, would have needed, sorted.

    A hedge at any target accuracy needs to know nothing else about the held-out images.

    Parameters
    ----------
    leaf_probability : ndarray of shape (n_samples, n_leaves)
        In tree order.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the labels. A prediction below an ancestor label may be right or wrong: it counts
        as wrong, as by default in :class:`HedgedClassifier`. The root's label does not count.
    tree : Taxonomy
        The tree.
    group : ndarray of int of shape (n_samples,), default=None
        Subject of each image. Each subject has one vote, which its images share: the result has
        one number for each subject.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> leaves = np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]])
    >>> needed_thresholds(leaves, tree.resolve(["puma", "lynx"]), tree).round(2)
    array([0. , 0.5])
    """
    ends = tree.last_of_chain[truth]
    counted = ~unlabelled(ends, tree)
    if not counted.any():
        return np.empty(0)
    needed = thresholds_needed("climb", leaf_probability[counted], ends[counted], tree)
    return np.sort(needed) if group is None else whole_votes(needed, group[counted])


def threshold_for(needed: FloatArray, target: float) -> float:
    """Return the probability that hedged predictions need for a target accuracy.

    Parameters
    ----------
    needed : ndarray of shape (n_samples,)
        From :func:`needed_thresholds`.
    target : float
        The guaranteed accuracy.

    Examples
    --------
    >>> needed = np.r_[np.zeros(16), 0.5, 0.6, 0.7]
    >>> threshold_for(needed, 0.9), threshold_for(needed, 0.99)
    (0.6, inf)
    """
    if not len(needed):
        return float("inf")
    return conformal_quantile(np.asarray(needed), target, np.ones(len(needed)))


def hedged_nodes(leaf_probability: FloatArray, tree: Taxonomy, threshold: float) -> IntArray:
    """Return the deepest node on the path to the best leaf that is probable enough.

    Parameters
    ----------
    leaf_probability : ndarray of shape (n_samples, n_leaves)
        In tree order.
    tree : Taxonomy
        The tree.
    threshold : float
        The least probability of a prediction.

    Returns
    -------
    nodes : ndarray of int of shape (n_samples,)
    """
    ladder = make_ladder("climb", leaf_probability, tree)
    rung = last_rung(ladder, threshold)
    return np.asarray(ladder.nodes[np.arange(len(rung)), rung])
