"""What the figures would be without the faults of the data that explain mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..taxonomy.tree import IntArray
from .answers import Answers, FloatArray
from .findings import LevelFigures, level_figures
from .hedging import TARGETS, HedgeFigures, hedge_figures
from .problems import DataProblem, DividedName


class Mended(NamedTuple):
    """The figures with the images of a fault counted as if it were mended.

    Attributes
    ----------
    n_samples : int
        Images concerned.
    levels : list of LevelFigures
        From the top.
    hedges : list of HedgeFigures
        At the same promised accuracies.
    """

    n_samples: int
    levels: list[LevelFigures]
    hedges: list[HedgeFigures]


def mended_figures(
    answers: Answers,
    truth: IntArray,
    divided: Sequence[DividedName],
    problems: Sequence[DataProblem],
    needed: FloatArray | None = None,
) -> Mended | None:
    """Measure again with images of one name where it stands in training, and without untaught ones.

    Parameters
    ----------
    answers : Answers
        What the classifier said of images that could be read.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    divided : sequence of DividedName
        Names at two places. Of several places in training the answered one counts.
    problems : sequence of DataProblem
        Of which leaves without training images count nowhere.
    needed : ndarray, default=None
        As in :func:`~skh2edl.report.hedging.hedge_figures`.

    Returns
    -------
    mended : Mended or None
        None where no image is concerned.
    """
    tree = answers.taxonomy
    ends = tree.last_of_chain[truth]
    moved = truth.copy()
    for each in divided:
        rows = np.isin(ends, each.evaluated)
        given = answers.best_leaves[rows]
        moved[rows] = np.where(np.isin(given, each.trained), given, each.trained[0])
    untaught = [p.nodes for p in problems if p.kind == "leaves_without_training"]
    moved[np.isin(ends, [node for nodes in untaught for node in nodes])] = 0  # the root: no label
    n_samples = int((moved != truth).sum())
    if not n_samples:
        return None
    return Mended(
        n_samples,
        level_figures(answers, moved),
        hedge_figures(answers, moved, needed=needed, targets=TARGETS),
    )
