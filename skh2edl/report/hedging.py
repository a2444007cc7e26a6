"""What answers would be that stop early when in doubt, at several promised accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..decisions._ladders import covers, last_rung, make_ladder, thresholds_needed
from ..decisions._quantile import conformal_quantile
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .answers import Answers, FloatArray
from .findings import unlabelled, wilson_interval

TARGETS = (0.9, 0.95, 0.99)


class HedgeFigures(NamedTuple):
    """What one promised accuracy would give.

    Attributes
    ----------
    target : float
        The accuracy promised.
    threshold : float
        Probability that an answer must have; the mean over halves if each calibrated the other,
        infinity where there were too few images to promise anything.
    n_samples, n_right : int
        Images labelled with a leaf, and right answers among them; the root is always right.
    low, high : float
        95 % interval of the accuracy.
    shares : tuple of float
        Share of answers that stop at the root, at each level below it, and at a leaf (last).
    nodes : ndarray of int of shape (n_all,)
        The answers to all images.
    """

    target: float
    threshold: float
    n_samples: int
    n_right: int
    low: float
    high: float
    shares: tuple[float, ...]
    nodes: IntArray

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.n_right / self.n_samples if self.n_samples else np.nan


def needed_thresholds(leaf_probability: FloatArray, truth: IntArray, tree: Taxonomy) -> FloatArray:
    """Return the threshold that each held-out image would have needed, sorted.

    They are all that a hedge at any promised accuracy needs to know of the held-out images.

    Parameters
    ----------
    leaf_probability : ndarray of shape (n_samples, n_leaves)
        In tree order.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the labels. Of an answer below an ancestor label nobody knows whether it is
        right: it counts as wrong, as by default in :class:`HedgedClassifier`. The root's label
        says nothing and does not count.
    tree : Taxonomy
        The tree.

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
    ladder = make_ladder("climb", leaf_probability[counted], tree)
    return np.sort(thresholds_needed(ladder, ends[counted], tree))


def threshold_for(needed: FloatArray, target: float) -> float:
    """Return the probability that answers need for a promised accuracy.

    Parameters
    ----------
    needed : ndarray of shape (n_samples,)
        From :func:`needed_thresholds`.
    target : float
        The accuracy promised.

    Examples
    --------
    >>> needed = np.r_[np.zeros(16), 0.5, 0.6, 0.7]
    >>> threshold_for(needed, 0.9), threshold_for(needed, 0.99)
    (0.6, inf)
    """
    if not len(needed):
        return float("inf")
    return conformal_quantile(np.asarray(needed), target, np.ones(len(needed)))


def hedged_answers(leaf_probability: FloatArray, tree: Taxonomy, threshold: float) -> IntArray:
    """Return the deepest node above the likeliest leaf that is probable enough.

    Parameters
    ----------
    leaf_probability : ndarray of shape (n_samples, n_leaves)
        In tree order.
    tree : Taxonomy
        The tree.
    threshold : float
        What is enough.

    Returns
    -------
    nodes : ndarray of int of shape (n_samples,)
    """
    ladder = make_ladder("climb", leaf_probability, tree)
    rung = last_rung(ladder, threshold)
    return np.asarray(ladder.nodes[np.arange(len(rung)), rung])


def hedge_figures(
    answers: Answers,
    truth: IntArray,
    *,
    needed: FloatArray | None = None,
    targets: Sequence[float] = TARGETS,
) -> list[HedgeFigures]:
    """Measure the hedge at several promised accuracies.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    needed : ndarray, default=None
        Thresholds needed by images held out for the purpose. None divides the images into two
        halves, of which each sets the threshold of the other, so that no answer is measured on
        what set its threshold.
    targets : sequence of float, default=(0.9, 0.95, 0.99)
        Promised accuracies.
    """
    tree, leaves = answers.taxonomy, answers.leaf_probability
    ends = tree.last_of_chain[truth]
    counted = (tree.n_children[ends] == 0) & answers.readable
    half = np.zeros(len(answers), dtype=np.int64)
    if needed is None:
        # Every second labelled image, in an order that does not follow classes or folders.
        order = np.random.default_rng(0).permutation(len(answers))
        half[order[::2]] = 1
        parts = [
            needed_thresholds(leaves[other], ends[other], tree)
            for other in ((half != side) & answers.readable for side in (0, 1))
        ]
    else:
        parts = [np.asarray(needed, dtype=np.float64)]
    figures = []
    for target in targets:
        thresholds = np.array([threshold_for(part, target) for part in parts])
        nodes = np.empty(len(answers), dtype=np.int64)
        for side, threshold in enumerate(thresholds.tolist()):
            of_side = half == side
            nodes[of_side] = hedged_answers(leaves[of_side], tree, threshold)
        right = covers(nodes[counted, None], ends[counted], tree)[:, 0]
        n_samples, n_right = int(counted.sum()), int(right.sum())
        figures.append(
            HedgeFigures(
                float(target),
                float(thresholds.mean()),
                n_samples,
                n_right,
                *wilson_interval(n_right, n_samples),
                _shares(tree, nodes[answers.readable]),
                nodes,
            )
        )
    return figures


def _shares(tree: Taxonomy, nodes: IntArray) -> tuple[float, ...]:
    depth = tree.depths[nodes]
    says_nothing = tree.leaf_stop[nodes] - tree.leaf_start[nodes] == tree.n_leaves
    is_leaf = tree.leaf_stop[nodes] - tree.leaf_start[nodes] == 1
    place = np.where(says_nothing, 0, np.where(is_leaf, tree.n_levels, depth))
    counts = np.bincount(place, minlength=tree.n_levels + 1)
    return tuple((counts / max(len(nodes), 1)).tolist())
