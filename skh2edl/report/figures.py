"""The numbers of a report: levels, nodes of the tree, mistakes, confusions and uncertainty.

True labels are nodes, of a chain of only children the last.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from ..metrics import hierarchical_report, kept_ancestor
from ..metrics.inputs import is_labelled
from ..metrics.report import level_title
from ..taxonomy.tree import IntArray
from .predictions import BoolArray, Predictions


class LevelFigures(NamedTuple):
    """How good the predictions of one level are.

    Attributes
    ----------
    name : str
        Name of the level.
    depth : int
        Edges from the root.
    n_classes : int
        Nodes of the level.
    n_samples : int
        Samples whose label reaches the level.
    n_right : int
        Right predictions among these.
    low, high : float
        95 % interval of the accuracy (Wilson).
    balanced_accuracy, ece, nll, brier : float
        As in :mod:`skh2edl.metrics`.
    confidence : float
        Mean probability of the predictions.
    """

    name: str
    depth: int
    n_classes: int
    n_samples: int
    n_right: int
    low: float
    high: float
    balanced_accuracy: float
    ece: float
    nll: float
    brier: float
    confidence: float

    @property
    def accuracy(self) -> float:
        """Fraction of right predictions, NaN where no label reaches the level."""
        return self.n_right / self.n_samples if self.n_samples else np.nan


class NodeFigures(NamedTuple):
    """How the images of one node fare.

    Attributes
    ----------
    node : int
        The node; of a chain of only children the last.
    n_samples, n_right : int
        Images labelled with the node or below it, and how many were predicted there.
    n_passing : int
        Of `n_samples`, images labelled below the node.
    n_first_errors : int
        Of `n_passing`, predictions that are right down to the node and wrong below it.
    vacuity, stopping : float
        Mean vacuity of the node's decision, and mean belief that stops here, over the `n_samples`
        images; NaN for a leaf and without opinions.
    taken_for, n_taken : tuple of int
        What was predicted instead of the node (of a leaf: leaves, of others: nodes of its depth),
        most frequent first, and how often.
    n_training : int or None
        Training labels at or below the node, None where they are not known.
    """

    node: int
    n_samples: int
    n_right: int
    n_passing: int
    n_first_errors: int
    vacuity: float
    stopping: float
    taken_for: tuple[int, ...]
    n_taken: tuple[int, ...]
    n_training: int | None

    @property
    def n_wrong(self) -> int:
        """Images of the node that were predicted elsewhere."""
        return self.n_samples - self.n_right

    @property
    def accuracy(self) -> float:
        """Fraction of the node's images that were predicted there, NaN without any."""
        return self.n_right / self.n_samples if self.n_samples else np.nan


class Confusion(NamedTuple):
    """Two classes that are taken for each other.

    Attributes
    ----------
    truth, predicted : int
        Nodes of the more frequent direction: the label and the prediction.
    n_mistaken, n_truth : int
        How many samples of `truth` were predicted as `predicted`, of how many.
    n_back, n_predicted : int
        How many samples of `predicted` were predicted as `truth`, of how many.
    meeting : int
        Their lowest common ancestor.
    rows : ndarray of int
        Samples of `truth` predicted as `predicted`, the surest first.
    """

    truth: int
    predicted: int
    n_mistaken: int
    n_truth: int
    n_back: int
    n_predicted: int
    meeting: int
    rows: IntArray


class Mistake(NamedTuple):
    """A prediction that contradicts its label.

    Attributes
    ----------
    row : int
        The sample.
    truth, predicted : int
        Nodes of the label and of the most probable leaf.
    probability : float
        Of `predicted`.
    depth : int
        The first level that is wrong, in edges from the root.
    """

    row: int
    truth: int
    predicted: int
    probability: float
    depth: int


class UncertaintyFigures(NamedTuple):
    """Whether uncertainty tells wrong predictions from right ones.

    Attributes
    ----------
    n_wrong, n_right : int
        Wrong and right predictions among the images labelled with a leaf.
    of_wrong, of_right : float
        Their mean uncertainty.
    separation : float
        How often the wrong one of such a pair is more uncertain (ROC area); 0.5 is chance.
    """

    n_wrong: int
    n_right: int
    of_wrong: float
    of_right: float
    separation: float


def wilson_interval(n_right: int, n_samples: int) -> tuple[float, float]:
    """Return the 95 % score interval of a fraction, NaN without samples.

    Parameters
    ----------
    n_right, n_samples : int
        Successes and trials.

    Examples
    --------
    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if not n_samples:
        return np.nan, np.nan
    interval = binomtest(n_right, n_samples).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def mistaken(predictions: Predictions, truth: IntArray) -> BoolArray:
    """Tell which predicted leaves contradict their label; one below an ancestor label does not."""
    meeting = predictions.taxonomy.lowest_common_ancestor(truth, predictions.best_leaves)
    return np.asarray(meeting != truth)


def labelled_with_leaf(predictions: Predictions, truth: IntArray) -> BoolArray:
    """Tell which images can be read and are labelled with a leaf."""
    return np.asarray((predictions.taxonomy.n_children[truth] == 0) & predictions.readable)


def level_figures(predictions: Predictions, truth: IntArray) -> list[LevelFigures]:
    """Measure the predictions of every level, from the top.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    """
    tree = predictions.taxonomy
    report = hierarchical_report(tree.labels(truth), predictions.proba, tree, output_dict=True)
    levels = []
    for depth in range(1, tree.n_levels + 1):
        wanted = np.where(is_labelled(truth, tree), tree.climb_to_depth(truth, depth), -1)
        found, probability = predictions.best_of_level(depth)
        counts = wanted >= 0
        n_samples, n_right = int(counts.sum()), int((wanted == found)[counts].sum())
        title = level_title(tree, depth)
        levels.append(
            LevelFigures(
                title.replace("_", " "),
                depth,
                int(tree.nodes_at_depth(depth).size),
                n_samples,
                n_right,
                *wilson_interval(n_right, n_samples),
                report[title]["balanced_accuracy"],
                report[title]["ece"],
                report[title]["nll"],
                report[title]["brier"],
                float(probability[counts].mean()) if n_samples else np.nan,
            )
        )
    return levels


def kept_ancestors(predictions: Predictions, truth: IntArray) -> list[float]:
    """Return the fraction of mistakes whose node of each level is still right, NaN without any."""
    tree, wrong = predictions.taxonomy, mistaken(predictions, truth)
    if not wrong.any():
        return [np.nan] * tree.n_levels
    labels, given = tree.labels(truth[wrong]), tree.labels(predictions.best_leaves[wrong])
    with warnings.catch_warnings():
        # The report does not mention a level that no mistaken label reaches.
        warnings.simplefilter("ignore")
        return [kept_ancestor(labels, given, tree, depth) for depth in range(1, tree.n_levels + 1)]


def node_figures(
    predictions: Predictions, truth: IntArray, train_truth: IntArray | None = None
) -> dict[int, NodeFigures]:
    """Measure every node that has images, each on its own images.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    train_truth : ndarray of int, default=None
        Nodes of the training labels.

    Returns
    -------
    nodes : dict of int to NodeFigures
        From the root down; of a chain of only children the last.
    """
    tree, opinion, best = predictions.taxonomy, predictions.opinion, predictions.best_leaves
    meeting = tree.lowest_common_ancestor(truth, best)
    labelled = np.flatnonzero(is_labelled(truth, tree))
    order = labelled[np.argsort(tree.leaf_start[truth[labelled]], kind="stable")]
    starts = tree.leaf_start[truth[order]]
    branching = dict(zip(tree.branching_nodes.tolist(), range(tree.n_branching), strict=True))
    n_training = None
    if train_truth is not None:
        n_training = tree.sum_below(np.bincount(train_truth, minlength=tree.n_nodes))
    found = {}
    for node in np.flatnonzero(tree.last_of_chain == np.arange(tree.n_nodes)).tolist():
        start, stop = int(tree.leaf_start[node]), int(tree.leaf_stop[node])
        rows = order[slice(*np.searchsorted(starts, (start, stop)))]
        # A label above the node may begin at the same leaf.
        rows = rows[tree.leaf_stop[truth[rows]] <= stop]
        if not rows.size:
            continue
        leaf = tree.leaf_start[best[rows]]
        away = best[rows[(leaf < start) | (leaf >= stop)]]
        if node in branching:
            away = tree.last_of_chain[tree.climb_to_depth(away, int(tree.depths[node]))]
        taken = sorted(Counter(away.tolist()).items(), key=lambda item: (-item[1], item[0]))
        passing = rows[truth[rows] != node]
        vacuity = stopping = np.nan
        if opinion is not None and node in branching:
            column = branching[node]
            vacuity = float(opinion.vacuity[rows, column].mean(dtype=np.float64))
            stopping = float(opinion.mass[rows, tree.n_leaves + column].mean(dtype=np.float64))
        found[node] = NodeFigures(
            node,
            rows.size,
            rows.size - away.size,
            passing.size,
            int((meeting[passing] == node).sum()),
            vacuity,
            stopping,
            tuple(other for other, _ in taken),
            tuple(number for _, number in taken),
            None if n_training is None else int(n_training[node]),
        )
    return found


def find_mistakes(predictions: Predictions, truth: IntArray) -> list[Mistake]:
    """Return the predictions that contradict their label, the surest first.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted; images that could not be read do not count.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    """
    tree, sure = predictions.taxonomy, predictions.path_probability[:, -1]
    rows = np.flatnonzero(mistaken(predictions, truth) & predictions.readable)
    rows = rows[np.argsort(-sure[rows], kind="stable")]
    given = predictions.best_leaves[rows]
    depths = tree.depths[tree.lowest_common_ancestor(truth[rows], given)] + 1
    columns = (rows, truth[rows], given, sure[rows], depths)
    return [Mistake(*each) for each in zip(*(c.tolist() for c in columns), strict=True)]


def confusion_pairs(predictions: Predictions, truth: IntArray) -> list[Confusion]:
    """Return all pairs of classes that are taken for each other, the most frequent first.

    They are ordered by the number of mistakes in both directions together.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted; images that could not be read do not count.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; an ancestor is compared with the predicted node of its depth.
    """
    tree = predictions.taxonomy
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for mistake in find_mistakes(predictions, truth):
        predicted = mistake.predicted
        while tree.depths[predicted] > tree.depths[mistake.truth]:
            predicted = int(tree.parents[predicted])
        pairs[mistake.truth, int(tree.last_of_chain[predicted])].append(mistake.row)
    n_labelled = np.bincount(truth[predictions.readable], minlength=tree.n_nodes)
    found = []
    for (first, second), rows in pairs.items():
        n_back = len(pairs.get((second, first), ()))
        # Each pair once, from the side of the more frequent mistake.
        if (n_back, second) > (len(rows), first):
            continue
        found.append(
            Confusion(
                first,
                second,
                len(rows),
                int(n_labelled[first]),
                n_back,
                int(n_labelled[second]),
                int(tree.lowest_common_ancestor(first, second)),
                np.array(rows),
            )
        )
    found.sort(key=lambda pair: (-pair.n_mistaken - pair.n_back, -pair.n_mistaken, pair.truth))
    return found


def uncertainty_figures(predictions: Predictions, truth: IntArray) -> UncertaintyFigures | None:
    """Measure whether uncertainty tells mistakes from right predictions, None without both.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; only those that are leaves count.
    """
    counted = labelled_with_leaf(predictions, truth)
    # Belief that reaches no leaf; without opinions, 1 - P of the best leaf.
    left_open = 1 - predictions.path_probability[:, -1]
    if predictions.opinion is not None:
        left_open = predictions.opinion.nonspecificity
    wrong, left_open = mistaken(predictions, truth)[counted], left_open[counted]
    if not wrong.any() or wrong.all():
        return None
    return UncertaintyFigures(
        n_wrong=int(wrong.sum()),
        n_right=int((~wrong).sum()),
        of_wrong=float(left_open[wrong].mean()),
        of_right=float(left_open[~wrong].mean()),
        separation=float(roc_auc_score(wrong, left_open)),
    )
