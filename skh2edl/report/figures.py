"""The numbers of a report: levels, confusions, classes, decisions, hedges and uncertainty."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from ..decisions._ladders import covers
from ..metrics import hierarchical_report, kept_ancestor
from ..metrics.report import level_title
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .hedging import TARGETS, hedged_nodes, needed_thresholds, threshold_for
from .predictions import BoolArray, FloatArray, Predictions, unlabelled

_NORMAL_95 = 1.959963984540054


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
        The samples, the surest first.
    """

    truth: int
    predicted: int
    n_mistaken: int
    n_truth: int
    n_back: int
    n_predicted: int
    meeting: int
    rows: IntArray


class ClassFigures(NamedTuple):
    """How one leaf class fares.

    Attributes
    ----------
    node : int
        The leaf.
    n_samples, n_right : int
        Samples with this label, and right predictions among them.
    taken_for : tuple of int
        Leaves that were predicted instead, most frequent first.
    n_training : int or None
        Training labels of this class, None where they are not known.
    """

    node: int
    n_samples: int
    n_right: int
    taken_for: tuple[int, ...]
    n_training: int | None


class DecisionFigures(NamedTuple):
    """What happens at one branching node.

    Attributes
    ----------
    node : int
        The branching node.
    n_passing : int
        Samples whose label lies below it.
    n_first_errors : int
        Of these, predictions that were right down to the node and wrong at its decision.
    stopping : float
        Mean belief that stops here, over the `n_passing` samples; NaN without opinions or samples.
    children : tuple of int
        The children in these first errors, as label or prediction, most frequent first.
    """

    node: int
    n_passing: int
    n_first_errors: int
    stopping: float
    children: tuple[int, ...]


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


class UncertaintyFigures(NamedTuple):
    """Whether uncertainty tells wrong predictions from right ones.

    Attributes
    ----------
    of_wrong, of_right : float
        Mean uncertainty of wrong and of right predictions.
    separation : float
        How often the wrong one of such a pair is more uncertain (ROC area); 0.5 is chance.
    """

    of_wrong: float
    of_right: float
    separation: float


def wilson_interval(n_right: float, n_samples: float) -> tuple[float, float]:
    """Return the 95 % score interval of a fraction.

    Parameters
    ----------
    n_right, n_samples : float
        Successes and trials.

    Examples
    --------
    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
    """
    if not n_samples:
        return np.nan, np.nan
    seen, z2 = n_right / n_samples, _NORMAL_95**2
    middle = (seen + z2 / (2 * n_samples)) / (1 + z2 / n_samples)
    half = np.sqrt(seen * (1 - seen) / n_samples + z2 / (4 * n_samples**2))
    half *= _NORMAL_95 / (1 + z2 / n_samples)
    # Rounding must not put a bound beyond what was seen.
    return max(min(float(middle - half), seen), 0.0), min(max(float(middle + half), seen), 1.0)


def mistaken(predictions: Predictions, truth: IntArray) -> BoolArray:
    """Tell which predicted leaves contradict their label; one below an ancestor label does not."""
    tree = predictions.taxonomy
    ends = tree.last_of_chain[truth]
    return np.asarray(tree.lowest_common_ancestor(ends, predictions.best_leaves) != ends)


def at_label_depth(predictions: Predictions, ends: IntArray) -> IntArray:
    """Return the ancestor of each best leaf that is no deeper than the label."""
    tree, found = predictions.taxonomy, predictions.best_leaves
    while (below := tree.depths[found] > tree.depths[ends]).any():
        found = np.where(below, tree.parents[found], found)
    return np.asarray(tree.last_of_chain[found])


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
    labels, proba = tree.labels(truth), predictions.proba
    report = hierarchical_report(labels, proba, tree, output_dict=True)
    rows = []
    for depth in range(1, tree.n_levels + 1):
        wanted = tree.climb_to_depth(truth, depth)
        found, probability = predictions.best_of_level(depth)
        counts = (wanted >= 0) & ~unlabelled(truth, tree)
        n_samples, n_right = int(counts.sum()), int((wanted == found)[counts].sum())
        metrics = report[level_title(tree, depth)]
        rows.append(
            LevelFigures(
                level_title(tree, depth).replace("_", " "),
                depth,
                int(tree.nodes_at_depth(depth).size),
                n_samples,
                n_right,
                *wilson_interval(n_right, n_samples),
                metrics["balanced_accuracy"],
                metrics["ece"],
                metrics["nll"],
                metrics["brier"],
                float(probability[counts].mean()) if n_samples else np.nan,
            )
        )
    return rows


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


def confusion_pairs(predictions: Predictions, truth: IntArray) -> list[Confusion]:
    """Return all pairs of classes that are taken for each other, the most frequent first.

    They are ordered by the number of mistakes in both directions together.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; an ancestor is compared with the predicted node of its depth.
    """
    tree = predictions.taxonomy
    ends = tree.last_of_chain[truth]
    predicted = at_label_depth(predictions, ends)
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in np.flatnonzero(mistaken(predictions, truth)).tolist():
        pairs[int(ends[row]), int(predicted[row])].append(row)
    n_labelled = np.bincount(ends, minlength=tree.n_nodes)
    sure = predictions.path_probability[:, -1]
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
                np.array(rows)[np.argsort(-sure[rows], kind="stable")],
            )
        )
    found.sort(key=lambda pair: (-pair.n_mistaken - pair.n_back, -pair.n_mistaken, pair.truth))
    return found


def worst_rate(confusions: Sequence[Confusion]) -> Confusion | None:
    """Return the pair with the largest fraction of one class taken for the other.

    Pairs are compared by lower ends of 95 % intervals, so that one image of one is not the worst.

    Parameters
    ----------
    confusions : sequence of Confusion
        All pairs.

    Returns
    -------
    pair : Confusion or None
        None where there is no pair.
    """

    def rate(pair: Confusion) -> float:
        there = wilson_interval(pair.n_mistaken, pair.n_truth)[0]
        return max(there, wilson_interval(pair.n_back, pair.n_predicted)[0] if pair.n_back else 0)

    return max(confusions, key=rate, default=None)


def class_figures(
    predictions: Predictions, truth: IntArray, train_truth: IntArray | None = None
) -> list[ClassFigures]:
    """Count right predictions of every leaf that has samples, those with the most mistakes first.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; those that are no leaves do not count.
    train_truth : ndarray of int, default=None
        Nodes of the training labels.
    """
    tree = predictions.taxonomy
    ends = tree.last_of_chain[truth]
    n_training = None
    if train_truth is not None:
        n_training = np.bincount(tree.last_of_chain[train_truth], minlength=tree.n_nodes)
    rows = []
    for leaf in tree.leaf_nodes.tolist():
        given = predictions.best_leaves[ends == leaf]
        if not given.size:
            continue
        others, counts = np.unique(given[given != leaf], return_counts=True)
        rows.append(
            ClassFigures(
                leaf,
                int(given.size),
                int((given == leaf).sum()),
                tuple(others[np.argsort(-counts, kind="stable")].tolist()),
                None if n_training is None else int(n_training[leaf]),
            )
        )
    rows.sort(key=lambda row: (row.n_right - row.n_samples, row.n_right / row.n_samples, row.node))
    return rows


def average_wrong(classes: Sequence[ClassFigures]) -> float:
    """Return the fraction of wrong predictions among all images of some leaves, NaN without any."""
    n_samples = sum(row.n_samples for row in classes)
    return sum(row.n_samples - row.n_right for row in classes) / n_samples if n_samples else np.nan


def classes_to_collect(
    classes: Sequence[ClassFigures], explained: Sequence[int] = ()
) -> list[ClassFigures]:
    """Order the classes by how much they need more training images.

    A class is among them if it is wrong at least as often as the average of those that are not
    explained. They are ordered by the lower end of the 95 % interval of their fraction wrong,
    divided by the number of training images where that is known.

    Parameters
    ----------
    classes : sequence of ClassFigures
        Leaves with samples.
    explained : sequence of int, default=()
        Leaves whose mistakes have another remedy; they do not count.

    Returns
    -------
    classes : list of ClassFigures

    Examples
    --------
    >>> rows = [ClassFigures(1, 10, 5, (3,), 90), ClassFigures(2, 10, 6, (3,), 10),
    ...         ClassFigures(3, 10, 9, (1,), 2)]
    >>> [row.node for row in classes_to_collect(rows)]
    [2, 1]
    """
    apart = set(explained)
    others = [row for row in classes if row.node not in apart]
    average = average_wrong(others)

    def need(row: ClassFigures) -> tuple[float, int, int]:
        low, _ = wilson_interval(row.n_samples - row.n_right, row.n_samples)
        return -low / (row.n_training or 1), row.n_right - row.n_samples, row.node

    poor = [
        row
        for row in others
        if row.n_right < row.n_samples and 1 - row.n_right / row.n_samples >= average - 1e-12
    ]
    return sorted(poor, key=need)


def decision_figures(predictions: Predictions, truth: IntArray) -> list[DecisionFigures]:
    """Count first errors and stopped belief at every branching node, the worst first.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    """
    tree = predictions.taxonomy
    ends = tree.last_of_chain[truth]
    wrong = np.flatnonzero(mistaken(predictions, truth))
    given = predictions.best_leaves[wrong]
    meeting = tree.lowest_common_ancestor(ends[wrong], given)
    n_labelled = np.bincount(ends, minlength=tree.n_nodes)
    passing = tree.sum_below(n_labelled) - n_labelled
    stopping = np.full(tree.n_branching, np.nan)
    if predictions.opinion is not None:
        mass = predictions.opinion.mass[:, tree.n_leaves :]
        for branching, node in enumerate(tree.branching_nodes.tolist()):
            below = (tree.leaf_start[ends] >= tree.leaf_start[node]) & (ends != node)
            below &= tree.leaf_stop[ends] <= tree.leaf_stop[node]
            if below.any():
                stopping[branching] = mass[below, branching].mean(dtype=np.float64)
    involved: dict[int, Counter[int]] = defaultdict(Counter)
    for node, *both in zip(meeting.tolist(), ends[wrong].tolist(), given.tolist(), strict=True):
        involved[node].update(_child_towards(tree, node, end) for end in both)
    rows = []
    for branching, node in enumerate(tree.branching_nodes.tolist()):
        children = sorted(involved[node].items(), key=lambda item: (-item[1], item[0]))
        rows.append(
            DecisionFigures(
                node,
                int(passing[node]),
                int((meeting == node).sum()),
                float(stopping[branching]),
                tuple(child for child, _ in children),
            )
        )
    rows.sort(key=lambda row: (-row.n_first_errors, -np.nan_to_num(row.stopping), row.node))
    return rows


def _child_towards(tree: Taxonomy, node: int, end: int) -> int:
    while tree.parents[end] != node:
        end = int(tree.parents[end])
    return end


def hedge_figures(
    predictions: Predictions, truth: IntArray, needed: FloatArray | None = None
) -> list[HedgeFigures]:
    """Measure the hedge at each of :data:`~skh2edl.report.hedging.TARGETS`.

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
    ends = tree.last_of_chain[truth]
    counted = labelled_with_leaf(predictions, truth)
    half = np.zeros(len(leaves), dtype=np.int64)
    if needed is None:
        # Every second image, in an order that does not follow classes or folders.
        half[np.random.default_rng(0).permutation(len(leaves))[::2]] = 1
        others = [(half != side) & predictions.readable for side in (0, 1)]
        parts = [needed_thresholds(leaves[other], ends[other], tree) for other in others]
    else:
        parts = [np.asarray(needed, dtype=np.float64)]
    figures = []
    for target in TARGETS:
        thresholds = [threshold_for(part, target) for part in parts]
        nodes = np.empty(len(leaves), dtype=np.int64)
        for side, threshold in enumerate(thresholds):
            nodes[half == side] = hedged_nodes(leaves[half == side], tree, threshold)
        n_samples = int(counted.sum())
        is_right = covers(nodes[counted, None], ends[counted], tree)[:, 0]
        n_right = int(is_right.sum())
        figures.append(
            HedgeFigures(
                target,
                float(np.mean(thresholds)),
                n_samples,
                n_right,
                *wilson_interval(n_right, n_samples),
                _stops(tree, nodes[counted], is_right),
                nodes,
            )
        )
    return figures


def _stops(tree: Taxonomy, nodes: IntArray, is_right: BoolArray) -> tuple[tuple[int, int], ...]:
    """Count the nodes at the root, at each level, and at leaves, and the right ones of each."""
    n_leaves = tree.leaf_stop[nodes] - tree.leaf_start[nodes]
    place = np.where(n_leaves == 1, tree.n_levels, tree.depths[nodes])
    place[n_leaves == tree.n_leaves] = 0
    n_places = tree.n_levels + 1
    counts = np.bincount(place, minlength=n_places).tolist()
    right = np.bincount(place[is_right], minlength=n_places).tolist()
    return tuple(zip(counts, right, strict=True))


def labelled_with_leaf(predictions: Predictions, truth: IntArray) -> BoolArray:
    """Tell which images can be read and are labelled with a leaf."""
    tree = predictions.taxonomy
    return np.asarray((tree.n_children[tree.last_of_chain[truth]] == 0) & predictions.readable)


def uncertainty(predictions: Predictions) -> FloatArray:
    """Return the belief that reaches no leaf; without opinions, 1 - P of the best leaf."""
    if predictions.opinion is not None:
        return np.asarray(predictions.opinion.nonspecificity, dtype=np.float64)
    return 1 - predictions.path_probability[:, -1]


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
    wrong, left_open = mistaken(predictions, truth)[counted], uncertainty(predictions)[counted]
    if not wrong.any() or wrong.all():
        return None
    return UncertaintyFigures(
        of_wrong=float(left_open[wrong].mean()),
        of_right=float(left_open[~wrong].mean()),
        separation=float(roc_auc_score(wrong, left_open)),
    )
