"""Which images to look at, and whether doubt tells mistakes from right answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from ..taxonomy.tree import IntArray
from .answers import Answers, FloatArray
from .findings import at_depth_of, mistaken


def doubt(answers: Answers) -> FloatArray:
    """Return what images are ordered by: belief that reaches no leaf, or 1 - P of the answer."""
    if answers.opinion is not None:
        return np.asarray(answers.opinion.nonspecificity, dtype=np.float64)
    return 1 - answers.path_probability[:, -1]


def doubt_separates(answers: Answers, truth: IntArray) -> float:
    """Return how often a mistake is in more doubt than a right answer, NaN without both.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels; only those that are leaves count.

    Returns
    -------
    share : float
        Of all pairs of a mistake and a right answer (ROC area); 0.5 is chance.
    """
    tree = answers.taxonomy
    counted = (tree.n_children[tree.last_of_chain[truth]] == 0) & answers.readable
    wrong = mistaken(answers, truth)[counted]
    if not wrong.any() or wrong.all():
        return np.nan
    return float(roc_auc_score(wrong, doubt(answers)[counted]))


class Chosen(NamedTuple):
    """Rows of the images that a report shows.

    Attributes
    ----------
    surest, least_sure, surest_mistakes : ndarray of int
        At most so many as asked for, the extreme ones first; no image twice.
    next_mistakes : ndarray of int
        Mistakes that follow on the surest, to be named only.
    """

    surest: npt.NDArray[np.int64]
    least_sure: npt.NDArray[np.int64]
    surest_mistakes: npt.NDArray[np.int64]
    next_mistakes: npt.NDArray[np.int64]


def choose_images(
    answers: Answers,
    truth: IntArray,
    n_each: int = 3,
    n_next: int = 12,
    explained: Sequence[int] = (),
) -> Chosen:
    """Choose the images to show: most certain, least certain, and certain but mistaken.

    Sure is who gives the answered leaf a high probability, as in the confusions; least sure is
    who leaves most belief open.

    Parameters
    ----------
    answers : Answers
        What the classifier said.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    n_each : int, default=3
        How many of each kind; of one class at most one among the surest, of one class taken for
        another at most one among the mistakes.
    n_next : int, default=12
        How many further mistakes.
    explained : sequence of int, default=()
        Leaves with a known fault of the data; mistakes on these are not shown.
    """
    tree, doubts, sure = answers.taxonomy, doubt(answers), answers.path_probability[:, -1]
    wrong = mistaken(answers, truth)
    ends = tree.last_of_chain[truth]
    rows = np.flatnonzero(answers.readable & ~(wrong & np.isin(ends, explained)))
    order = rows[np.argsort(-sure[rows], kind="stable")]
    # The same pairs as in the confusions: an answer counts at the depth of its label.
    pairs = ends * tree.n_nodes + at_depth_of(tree, answers.best_leaves, ends)
    mistakes = _first_of_each(order[wrong[order]], pairs, n_each + n_next)
    shown = set(mistakes[:n_each])
    left = [row for row in order.tolist() if row not in shown]
    surest = _first_of_each(left, answers.best_leaves, n_each)
    shown.update(surest)
    by_doubt = rows[np.argsort(-doubts[rows], kind="stable")].tolist()
    least = [row for row in by_doubt if row not in shown][:n_each]
    parts = (surest, least, mistakes[:n_each], mistakes[n_each:])
    return Chosen(*(np.array(part, dtype=np.int64) for part in parts))


def _first_of_each(rows: Iterable[int], groups: IntArray, n_most: int) -> list[int]:
    """Return the first row of each group, in order."""
    found: dict[int, int] = {}
    for row in rows:
        if len(found) == n_most:
            break
        found.setdefault(int(groups[row]), int(row))
    return list(found.values())
