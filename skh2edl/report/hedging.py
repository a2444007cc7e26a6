"""Thresholds of the hedge: predict a coarser class where the fine one is not probable enough."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..decisions._ladders import covers, last_rung, make_ladder
from ..decisions._needed import thresholds_needed
from ..decisions._quantile import conformal_quantile, whole_votes
from ..metrics.inputs import is_labelled
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .figures import labelled_with_leaf, wilson_interval
from .predictions import FloatArray, Predictions

TARGETS = (0.9, 0.95, 0.99)
# Of a hedge that is both set and measured on the evaluated images.
CROSS_CALIBRATED = (
    "Each half of these images set the thresholds of the other half, so that none set its own."
)


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
    counted = is_labelled(ends, tree)
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


class HedgeFigures(NamedTuple):
    """What the hedge gives at one target accuracy.

    Attributes
    ----------
    target : float
        The guaranteed accuracy.
    threshold : float
        Probability that a prediction must have; the mean over halves if each calibrated the
        other, infinity where there were too few images to guarantee anything.
    n_samples, n_right : int
        Images labelled with a leaf, and right predictions among them; the root is always right.
    low, high : float
        95 % interval of the accuracy.
    stops : tuple of (int, int)
        Predictions that stop at the root, at each level below it, and at a leaf (last): how many,
        and how many of these are right. Only images labelled with a leaf count.
    nodes : ndarray of int of shape (n_all,)
        The hedged predictions of all images.
    """

    target: float
    threshold: float
    n_samples: int
    n_right: int
    low: float
    high: float
    stops: tuple[tuple[int, int], ...]
    nodes: IntArray

    @property
    def accuracy(self) -> float:
        """Fraction of right predictions, NaN without samples."""
        return self.n_right / self.n_samples if self.n_samples else np.nan

    @property
    def given(self) -> tuple[int, int]:
        """Predictions other than the root, and right ones among them."""
        n_given, n_right = np.sum(self.stops[1:], axis=0).tolist()
        return n_given, n_right

    @property
    def is_missed(self) -> bool:
        """Whether the guarantee was surely not kept."""
        return bool(self.n_samples and self.high < self.target)


def hedge_figures(
    predictions: Predictions, truth: IntArray, needed: FloatArray | None = None
) -> list[HedgeFigures]:
    """Measure the hedge at each of :data:`TARGETS`.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    needed : ndarray, default=None
        Thresholds needed by held-out images. None divides the images into two halves, of which
        each sets the threshold of the other, so that no prediction sets its own threshold.
    """
    tree, leaves = predictions.taxonomy, predictions.leaf_probability
    counted = labelled_with_leaf(predictions, truth)
    half = np.zeros(len(leaves), dtype=np.int64)
    if needed is None:
        # Every second image, in an order that does not follow classes or folders.
        half[np.random.default_rng(0).permutation(len(leaves))[::2]] = 1
        others = [(half != side) & predictions.readable for side in (0, 1)]
        parts = [needed_thresholds(leaves[other], truth[other], tree) for other in others]
    else:
        parts = [np.asarray(needed, dtype=np.float64)]
    figures = []
    for target in TARGETS:
        thresholds = [threshold_for(part, target) for part in parts]
        nodes = np.empty(len(leaves), dtype=np.int64)
        for side, threshold in enumerate(thresholds):
            nodes[half == side] = hedged_nodes(leaves[half == side], tree, threshold)
        n_samples = int(counted.sum())
        is_right = covers(nodes[counted, None], truth[counted], tree)[:, 0]
        n_right = int(is_right.sum())
        place = stop_places(nodes[counted], tree)
        n_places = tree.n_levels + 1
        stops = (
            np.bincount(place, minlength=n_places).tolist(),
            np.bincount(place[is_right], minlength=n_places).tolist(),
        )
        figures.append(
            HedgeFigures(
                target,
                float(np.mean(thresholds)),
                n_samples,
                n_right,
                *wilson_interval(n_right, n_samples),
                tuple(zip(*stops, strict=True)),
                nodes,
            )
        )
    return figures


def stop_places(nodes: IntArray, tree: Taxonomy) -> IntArray:
    """Return the depth of each node: 0 for one that holds all leaves, the deepest for a leaf."""
    n_leaves = tree.leaf_stop[nodes] - tree.leaf_start[nodes]
    place = np.where(n_leaves == 1, tree.n_levels, tree.depths[nodes])
    return np.where(n_leaves == tree.n_leaves, 0, place)
