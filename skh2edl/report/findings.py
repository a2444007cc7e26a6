"""The numbers of a report: levels, confusions, classes and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..metrics import hierarchical_report
from ..metrics.report import level_title
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .answers import Answers, BoolArray

_NORMAL_95 = 1.959963984540054


class LevelFigures(NamedTuple):
    """How good the answers of one level are.

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
        Of these, how many were answered right.
    low, high : float
        95 % interval of the accuracy (Wilson).
    balanced_accuracy, ece, nll, brier : float
        As in :mod:`skh2edl.metrics`.
    confidence : float
        Mean probability of the answers.
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
        """Share of right answers, NaN where no label reaches the level."""
        return self.n_right / self.n_samples if self.n_samples else np.nan


class Confusion(NamedTuple):
    """Two classes that are taken for each other.

    Attributes
    ----------
    truth, answer : int
        Nodes: what it was, and what was answered more often than the other way round.
    n_mistaken, n_truth : int
        How many samples of `truth` were answered `answer`, of how many.
    n_back, n_answer : int
        How many samples of `answer` were answered `truth`, of how many.
    meeting : int
        Their lowest common ancestor.
    rows : ndarray of int
        The samples, the surest first.
    """

    truth: int
    answer: int
    n_mistaken: int
    n_truth: int
    n_back: int
    n_answer: int
    meeting: int
    rows: IntArray


class ClassFigures(NamedTuple):
    """How one leaf class fares.

    Attributes
    ----------
    node : int
        The leaf.
    n_samples, n_right : int
        Samples with this label, and right answers among them.
    taken_for : tuple of int
        Leaves that were answered instead, most frequent first.
    n_training : int or None
        Training labels of this very class, where they are known.
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
        Of these, answers that were right down to the node and wrong at its decision.
    stopping : float
        Mean belief that stops here, over all samples; NaN without opinions.
    children : tuple of int
        The children in these first errors, as label or answer, most frequent first.
    """

    node: int
    n_passing: int
    n_first_errors: int
    stopping: float
    children: tuple[int, ...]


def wilson_interval(n_right: float, n_samples: float) -> tuple[float, float]:
    """Return the 95 % score interval of a share.

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
    share, z2 = n_right / n_samples, _NORMAL_95**2
    middle = (share + z2 / (2 * n_samples)) / (1 + z2 / n_samples)
    half = np.sqrt(share * (1 - share) / n_samples + z2 / (4 * n_samples**2))
    half *= _NORMAL_95 / (1 + z2 / n_samples)
    # Rounding must not put a bound beyond what was seen.
    return max(min(float(middle - half), share), 0.0), min(max(float(middle + half), share), 1.0)


def level_figures(answers: Answers, truth: IntArray) -> list[LevelFigures]:
    """Measure the answers of every level, from the top.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    """
    tree = answers.taxonomy
    proba = answers.leaf_probability[:, tree.leaf_order]
    proba = proba / proba.sum(axis=1, keepdims=True)
    report = hierarchical_report(tree.labels(truth), proba, tree, output_dict=True)
    rows = []
    for depth in range(1, tree.n_levels + 1):
        wanted = tree.climb_to_depth(truth, depth)
        found, probability = answers.best_of_level(depth)
        counts = (wanted >= 0) & ~unlabelled(truth, tree)
        n_samples = int(counts.sum())
        n_right = int((wanted == found)[counts].sum())
        figures = report[level_title(tree, depth)]
        rows.append(
            LevelFigures(
                level_title(tree, depth).replace("_", " "),
                depth,
                int(tree.nodes_at_depth(depth).size),
                n_samples,
                n_right,
                *wilson_interval(n_right, n_samples),
                figures["balanced_accuracy"],
                figures["ece"],
                figures["nll"],
                figures["brier"],
                float(probability[counts].mean()) if n_samples else np.nan,
            )
        )
    return rows


def unlabelled(truth: IntArray, tree: Taxonomy) -> BoolArray:
    """Tell which labels say nothing: the root's, or that of a chain that begins there."""
    return np.asarray(tree.last_decision[truth] < 0)


def mistaken(answers: Answers, truth: IntArray) -> BoolArray:
    """Tell which answered leaves contradict their label; one below an ancestor label does not."""
    tree = answers.taxonomy
    ends = tree.last_of_chain[truth]
    return np.asarray(tree.lowest_common_ancestor(ends, answers.best_leaves) != ends)


def worst_confusions(answers: Answers, truth: IntArray, n_most: int | None = 8) -> list[Confusion]:
    """Return the pairs of classes that are most often taken for each other.

    They are ordered by the number of mistakes in both directions together.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; an ancestor is compared with the answer's node of its depth.
    n_most : int or None, default=8
        How many pairs; None means all.
    """
    tree = answers.taxonomy
    ends = tree.last_of_chain[truth]
    wrong = np.flatnonzero(mistaken(answers, truth))
    if not wrong.size:
        return []
    answered = at_depth_of(tree, answers.best_leaves[wrong], ends[wrong])
    pairs: dict[tuple[int, int], list[int]] = {}
    for row, *pair in zip(wrong, ends[wrong], answered, strict=True):
        pairs.setdefault((int(pair[0]), int(pair[1])), []).append(int(row))
    n_labelled = np.bincount(ends, minlength=tree.n_nodes)
    sure = answers.path_probability[:, -1]
    found = []
    for (first, second), rows in pairs.items():
        back = pairs.get((second, first), [])
        # Each pair once, from the side of the more frequent mistake.
        if (len(back), second) > (len(rows), first):
            continue
        members = np.array(rows)
        found.append(
            Confusion(
                first,
                second,
                len(rows),
                int(n_labelled[first]),
                len(back),
                int(n_labelled[second]),
                int(tree.lowest_common_ancestor(first, second)),
                members[np.argsort(-sure[members], kind="stable")],
            )
        )
    found.sort(key=lambda pair: (-pair.n_mistaken - pair.n_back, -pair.n_mistaken, pair.truth))
    return found[:n_most]


def worst_rate(confusions: Sequence[Confusion]) -> Confusion | None:
    """Return the pair with the largest share of one class taken for the other.

    Compared are lower ends of 95 % intervals, so that one image of one does not come first.

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
        back = wilson_interval(pair.n_back, pair.n_answer)[0] if pair.n_back else 0.0
        return max(there, back)

    return max(confusions, key=rate, default=None)


def classes_to_collect(
    classes: Sequence[ClassFigures], left_out: Sequence[int] = ()
) -> list[ClassFigures]:
    """Order classes by how much they ask for more training images.

    Those are meant that are wrong at least as often as the average of all that are not left out.
    They are ordered by the lower end of the 95 % interval of their share wrong, divided by the
    number of training images where that is known. What is often answered in place of others, and
    seldom wrong itself, is not among them.

    Parameters
    ----------
    classes : sequence of ClassFigures
        Leaves with samples.
    left_out : sequence of int, default=()
        Leaves that have another remedy.

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
    left = set(left_out)
    others = [row for row in classes if row.node not in left]
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


def average_wrong(classes: Sequence[ClassFigures]) -> float:
    """Return the share of wrong answers among all images labelled with a leaf, NaN without any."""
    n_samples = sum(row.n_samples for row in classes)
    return sum(row.n_samples - row.n_right for row in classes) / n_samples if n_samples else np.nan


def class_figures(
    answers: Answers, truth: IntArray, train_truth: IntArray | None = None
) -> list[ClassFigures]:
    """Count right answers of every leaf that has samples, those with the most mistakes first.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; those that are no leaves are left out.
    train_truth : ndarray of int, default=None
        Nodes of the training labels.
    """
    tree = answers.taxonomy
    ends = tree.last_of_chain[truth]
    n_training = None
    if train_truth is not None:
        n_training = np.bincount(tree.last_of_chain[train_truth], minlength=tree.n_nodes)
    rows = []
    for leaf in tree.leaf_nodes.tolist():
        given = answers.best_leaves[ends == leaf]
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


def at_depth_of(tree: Taxonomy, nodes: IntArray, others: IntArray) -> IntArray:
    """Return the ancestors of nodes that are no deeper than the other node of each pair."""
    found = nodes.copy()
    while (below := tree.depths[found] > tree.depths[others]).any():
        found = np.where(below, tree.parents[found], found)
    return np.asarray(tree.last_of_chain[found])


def decision_figures(answers: Answers, truth: IntArray) -> list[DecisionFigures]:
    """Count first errors and stopped belief at every branching node, the worst first.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    """
    tree = answers.taxonomy
    ends = tree.last_of_chain[truth]
    wrong = np.flatnonzero(mistaken(answers, truth))
    meeting = tree.lowest_common_ancestor(ends[wrong], answers.best_leaves[wrong])
    passing = tree.sum_below(np.bincount(ends, minlength=tree.n_nodes))
    passing = passing - np.bincount(ends, minlength=tree.n_nodes)
    stopping = np.full(tree.n_branching, np.nan)
    if answers.opinion is not None:
        stopping = answers.opinion.mass[:, tree.n_leaves :].mean(axis=0, dtype=np.float64)
    involved: dict[int, dict[int, int]] = {}
    for row, node in zip(wrong.tolist(), meeting.tolist(), strict=True):
        counts = involved.setdefault(node, {})
        for end in (int(ends[row]), int(answers.best_leaves[row])):
            child = _child_towards(tree, node, end)
            counts[child] = counts.get(child, 0) + 1
    rows = []
    for branching, node in enumerate(tree.branching_nodes.tolist()):
        counts = involved.get(node, {})
        rows.append(
            DecisionFigures(
                node,
                int(passing[node]),
                int((meeting == node).sum()),
                float(stopping[branching]),
                tuple(sorted(counts, key=lambda child: (-counts[child], child))),
            )
        )
    rows.sort(key=lambda row: (-row.n_first_errors, -np.nan_to_num(row.stopping), row.node))
    return rows


def _child_towards(tree: Taxonomy, node: int, end: int) -> int:
    while tree.parents[end] != node:
        end = int(tree.parents[end])
    return end
