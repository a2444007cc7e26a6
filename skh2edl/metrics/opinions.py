"""How well uncertainty marks errors: whether it ranks wrong predictions before right ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .inputs import (
    FloatArray,
    Level,
    check_truth_on_level,
    predicted_on_levels,
    top_of_level,
    undefined,
)


def error_auroc(
    y_true: Any,
    y_pred: Any,
    uncertainty: npt.ArrayLike,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute how often a wrong prediction is more uncertain than a right one.

    Parameters
    ----------
    y_true, y_pred, taxonomy, level, sample_weight, classes
        As in :func:`level_accuracy`.
    uncertainty : array-like of shape (n_samples,)
        Any number that should be larger for wrong predictions.

    Returns
    -------
    auroc : float
        0.5 if uncertainty and errors are unrelated. NaN, with a warning, if the predictions are
        all right or all wrong.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import error_auroc
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> error_auroc(["lynx", "puma", "dog"], ["lynx", "lynx", "dog"], [0.1, 0.6, 0.2], tree)
    1.0
    """
    depth = taxonomy.level_index(level)
    predicted = predicted_on_levels(y_pred, taxonomy, [depth], classes)[:, 0]
    return _auroc(y_true, predicted, np.asarray(uncertainty), taxonomy, depth, sample_weight)


def nonspecificity_auroc(
    y_true: Any, opinion: HyperOpinion, level: Level = "leaf", *, sample_weight: Any = None
) -> float:
    """Compute how well belief that stops above a level marks its wrong predictions.

    The uncertainty is the belief that reaches no node of the level; for the leaves this is
    ``opinion.nonspecificity``. The prediction is the likeliest node of the level.

    Parameters
    ----------
    y_true, level, sample_weight
        As in :func:`level_accuracy`.
    opinion : HyperOpinion
        The opinions, one for each sample.

    Returns
    -------
    auroc : float
        NaN, with a warning, if the predictions are all right or all wrong.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.metrics import nonspecificity_auroc
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> opinion = HyperOpinion.from_evidence(tree, [[9, 0, 9, 0], [9, 0, 1, 0]])
    >>> nonspecificity_auroc(["lynx", "puma"], opinion)
    1.0
    """
    tree = opinion.taxonomy
    depth = tree.level_index(level)
    stopped = opinion.depth_profile[:, :depth].sum(axis=1)
    return _auroc(y_true, _likeliest(opinion, depth), stopped, tree, depth, sample_weight)


def vacuity_auroc(
    y_true: Any, opinion: HyperOpinion, level: Level = "leaf", *, sample_weight: Any = None
) -> float:
    """Compute how well the vacuity on the path to the prediction marks wrong predictions.

    The uncertainty is the mean vacuity of the decisions from the root to the likeliest node of
    the level.

    Parameters
    ----------
    y_true, opinion, level, sample_weight
        As in :func:`nonspecificity_auroc`.

    Returns
    -------
    auroc : float
        NaN, with a warning, if the predictions are all right or all wrong.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.metrics import vacuity_auroc
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> opinion = HyperOpinion.from_evidence(tree, [[9, 0, 9, 0], [9, 0, 1, 0]])
    >>> vacuity_auroc(["lynx", "puma"], opinion)
    1.0
    """
    tree = opinion.taxonomy
    depth = tree.level_index(level)
    predicted = _likeliest(opinion, depth)
    vacuity = _mean_vacuity(opinion, predicted)
    return _auroc(y_true, predicted, vacuity, tree, depth, sample_weight)


def _mean_vacuity(opinion: HyperOpinion, nodes: IntArray) -> FloatArray:
    """Return the mean vacuity of the decisions on the path to one node of each sample."""
    tree = opinion.taxonomy
    decision = tree.last_decision[nodes]
    total, count = np.zeros(nodes.size), np.zeros(nodes.size)
    while (samples := np.flatnonzero(decision >= 0)).size:
        total[samples] += opinion.vacuity[samples, tree.decision_nodes[decision[samples]]]
        count[samples] += 1
        decision[samples] = tree.parent_decision[decision[samples]]
    return total / np.maximum(count, 1)


def _likeliest(opinion: HyperOpinion, depth: int) -> IntArray:
    leaves = np.asarray(opinion.leaf_probability, dtype=np.float64)
    return top_of_level(leaves, opinion.taxonomy, depth)[0]


def _auroc(
    y_true: Any,
    predicted: IntArray,
    uncertainty: npt.NDArray[Any],
    tree: Taxonomy,
    depth: int,
    sample_weight: Any,
) -> float:
    # Late: it takes a tenth of a second to import, and every classifier imports this module.
    from sklearn.metrics import roc_auc_score

    truth, weight, counts = check_truth_on_level(y_true, predicted, tree, depth, sample_weight)
    if uncertainty.shape != counts.shape:
        raise ValueError(
            f"uncertainty must hold one number for each of the {counts.size} samples, got shape "
            f"{uncertainty.shape}."
        )
    wrong = truth != predicted[counts]
    if not 0 < np.count_nonzero(wrong) < wrong.size:
        return undefined("no wrong or no right prediction")
    return float(roc_auc_score(wrong, uncertainty[counts], sample_weight=weight))
