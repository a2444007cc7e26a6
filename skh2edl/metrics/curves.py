"""Curves over a threshold or a depth: risk, coverage, information and forced decisions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from . import inputs
from .inputs import NO_LABEL, NO_LABEL_ON_LEVEL, FloatArray, Level, mean_or_nan, undefined
from .levels import top_confidence

# Probabilities worked on at once, which bounds memory and keeps masks of many leaves in the cache.
_CHUNK_ELEMENTS = 1 << 20


class RiskCoverageCurve(NamedTuple):
    """Fraction of wrong predictions at each coverage.

    Parameters
    ----------
    coverage : ndarray of shape (n_thresholds,)
        Fraction of the samples that are accepted, rising to 1. In a hierarchical curve it is the
        mean coverage of the predicted nodes.
    risk : ndarray of shape (n_thresholds,)
        Fraction of wrong predictions among them.
    threshold : ndarray of shape (n_thresholds,)
        Lowest confidence that is accepted, falling; infinite where nothing is.
    """

    coverage: FloatArray
    risk: FloatArray
    threshold: FloatArray

    @property
    def area(self) -> float:
        """Area under the steps of the curve: the mean risk; NaN if the curve is empty."""
        area = np.diff(self.coverage, prepend=0) @ self.risk
        return float(area) if self.risk.size else float("nan")


class OperatingCurve(NamedTuple):
    """Accuracy and information of predictions that climb the tree until they are likely enough.

    Parameters
    ----------
    information : ndarray of shape (n_thresholds,)
        Mean fraction of the label's information that the prediction gives: 0 for the root, 1
        for the label itself.
    accuracy : ndarray of shape (n_thresholds,)
        Fraction of predictions that do not contradict the label.
    threshold : ndarray of shape (n_thresholds,)
        Probability that a prediction has to exceed, falling; infinite where all are the root.
    """

    information: FloatArray
    accuracy: FloatArray
    threshold: FloatArray

    @property
    def area(self) -> float:
        """Area under the curve; NaN if it is empty."""
        area = np.trapezoid(self.accuracy, self.information)
        return float(area) if self.threshold.size else float("nan")


def risk_coverage_curve(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    confidence: Any = None,
    sample_weight: Any = None,
    classes: Any = None,
) -> RiskCoverageCurve:
    """Compute the fraction of wrong predictions among the most confident samples.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors. A sample counts if its label reaches the level.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves; the prediction is the likeliest node of the level.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default="leaf"
        Name or depth of the level.
    confidence : array-like of shape (n_samples,), default=None
        What ranks the samples, such as the negative vacuity; None takes the probability of the
        prediction. Equal confidences are accepted together.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    curve : RiskCoverageCurve
        The arrays `coverage`, `risk` and `threshold`; empty, with a warning, if no label
        reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import risk_coverage_curve
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> curve = risk_coverage_curve(["puma", "dog"], y_proba, tree)
    >>> curve.coverage, curve.risk
    (array([0.5, 1. ]), array([0. , 0.5]))
    """
    top, right, weight, counts = top_confidence(
        y_true, y_proba, taxonomy, level, sample_weight, classes
    )
    if confidence is not None:
        given = np.asarray(confidence, dtype=np.float64)
        if given.shape != counts.shape or not np.isfinite(given).all():
            raise ValueError(
                f"confidence must hold a finite number for each of the {counts.size} samples, got "
                f"shape {given.shape}."
            )
        top = given[counts]
    if not top.size:
        undefined(NO_LABEL_ON_LEVEL)
    values, which = np.unique(-top, return_inverse=True)
    mass = np.cumsum(np.bincount(which, weight, values.size))
    wrong = np.cumsum(np.bincount(which, weight * ~right, values.size))
    return RiskCoverageCurve(mass / (mass[-1] if mass.size else 1), wrong / mass, -values)


def risk_coverage_area(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    confidence: Any = None,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the area under the risk-coverage curve: the mean risk over all coverages.

    Parameters
    ----------
    y_true, y_proba, taxonomy, level, confidence, sample_weight, classes
        As in :func:`risk_coverage_curve`.

    Returns
    -------
    area : float
        Lower is better. NaN, with a warning, if no label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import risk_coverage_area
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> risk_coverage_area(["puma", "dog"], y_proba, tree)
    0.25
    """
    options = {"confidence": confidence, "sample_weight": sample_weight, "classes": classes}
    return risk_coverage_curve(y_true, y_proba, taxonomy, level, **options).area


def coverage_at_risk(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level = "leaf",
    *,
    max_risk: float = 0.05,
    confidence: Any = None,
    sample_weight: Any = None,
    classes: Any = None,
) -> float:
    """Compute the largest coverage at which the risk does not exceed a limit.

    Parameters
    ----------
    y_true, y_proba, taxonomy, level, confidence, sample_weight, classes
        As in :func:`risk_coverage_curve`.
    max_risk : float, default=0.05
        Largest fraction of wrong predictions among the accepted ones.

    Returns
    -------
    coverage : float
        Higher is better; 0 if the risk is above the limit everywhere. NaN, with a warning, if no
        label reaches the level.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import coverage_at_risk
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> coverage_at_risk(["puma", "dog"], y_proba, tree)
    0.5
    """
    if not 0 <= max_risk <= 1:
        raise ValueError(f"max_risk must lie between 0 and 1, got {max_risk!r}.")
    options = {"confidence": confidence, "sample_weight": sample_weight, "classes": classes}
    curve = risk_coverage_curve(y_true, y_proba, taxonomy, level, **options)
    covered = curve.coverage[curve.risk <= max_risk]
    return float(covered.max(initial=0.0)) if curve.risk.size else float("nan")


def hierarchical_risk_coverage_curve(
    y_true: Any, y_proba: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> RiskCoverageCurve:
    """Compute risk against coverage of predictions that climb instead of abstaining.

    At each threshold the prediction climbs from the likeliest leaf to the lowest ancestor whose
    probability reaches the threshold. The coverage of a node with m of the L leaves is
    ``1 - log(m) / log(L)``: 1 for a leaf, 0 for the root, which is an abstention. The risk is the
    fraction of predictions that contradict the label; the root never does [1]_.

    Parameters
    ----------
    y_true, y_proba, taxonomy, sample_weight, classes
        As in :func:`operating_curve`. A prediction below an ancestor label is not wrong.

    Returns
    -------
    curve : RiskCoverageCurve
        The arrays `coverage`, `risk` and `threshold`; first every prediction is the root, last
        every one is a leaf. Empty, with a warning, if no sample is labelled.

    References
    ----------
    .. [1] S. Goren, I. Galil and R. El-Yaniv, "Hierarchical selective classification",
       NeurIPS 2024.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_risk_coverage_curve
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.3, 0.6, 0.0]]  # fox, lynx, puma, wolf
    >>> curve = hierarchical_risk_coverage_curve(["lynx"], y_proba, tree)
    >>> curve.coverage, curve.risk, curve.threshold
    (array([0. , 0.5, 1. ]), array([0., 0., 1.]), array([inf, 0.9, 0.6]))
    """
    truth, leaves, weight = _labelled(y_true, y_proba, taxonomy, sample_weight, classes)
    if not truth.size:
        empty = np.empty(0)
        return RiskCoverageCurve(empty, empty, empty)
    best = taxonomy.leaf_nodes[inputs.top_leaves(leaves, taxonomy)]
    path = np.stack(
        [taxonomy.climb_to_depth(best, d) for d in range(taxonomy.n_levels + 1)], axis=1
    )
    probability = np.empty(path.shape)
    step = max(1, _CHUNK_ELEMENTS // taxonomy.n_nodes)
    for low in range(0, truth.size, step):
        chunk = slice(low, low + step)
        of_nodes = inputs.node_probabilities(leaves[chunk], taxonomy)
        probability[chunk] = np.take_along_axis(of_nodes, path[chunk], axis=1)
    common = taxonomy.lowest_common_ancestor(truth[:, None], path)
    wrong = ((common != path) & (common != truth[:, None])).astype(np.float64)
    coverage = inputs.node_information(taxonomy)[path] / np.log(taxonomy.n_leaves)
    # Each node of the path is predicted from its own probability down to that of the next.
    fraction = (weight / weight.sum())[:, None]
    threshold, gained, lost = _accumulate(
        probability[:, 1:], fraction * np.diff(coverage), fraction * np.diff(wrong)
    )
    return RiskCoverageCurve(gained, lost, threshold)


def hierarchical_aurc(
    y_true: Any, y_proba: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the area under the hierarchical risk-coverage curve (hAURC), by trapezoids.

    Parameters
    ----------
    y_true, y_proba, taxonomy, sample_weight, classes
        As in :func:`hierarchical_risk_coverage_curve`.

    Returns
    -------
    area : float
        Lower is better. NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_aurc
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.3, 0.6, 0.0]]  # fox, lynx, puma, wolf
    >>> hierarchical_aurc(["lynx"], y_proba, tree)
    0.25
    """
    curve = hierarchical_risk_coverage_curve(
        y_true, y_proba, taxonomy, sample_weight=sample_weight, classes=classes
    )
    area = np.trapezoid(curve.risk, curve.coverage)
    return float(area) if curve.risk.size else float("nan")


def operating_curve(
    y_true: Any, y_proba: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> OperatingCurve:
    """Compute accuracy against information over all thresholds on the probability of a node.

    At each threshold the prediction is the most informative node whose probability exceeds it;
    among equally informative nodes it is the likeliest [1]_. The information of a node with m of
    the L leaves is log(L / m). A prediction off the true path has the information of the lowest
    common ancestor.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors; samples labelled with the root do not count.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves, which are summed to each node.
    taxonomy : Taxonomy
        The tree.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    curve : OperatingCurve
        The arrays `information`, `accuracy` and `threshold`; first every prediction is the root,
        last every one is a leaf. Empty, with a warning, if no sample is labelled.

    References
    ----------
    .. [1] J. Valmadre, "Hierarchical classification at multiple operating points",
       NeurIPS 2022.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import operating_curve
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.3, 0.6, 0.0]]  # fox, lynx, puma, wolf
    >>> curve = operating_curve(["lynx"], y_proba, tree)
    >>> curve.information, curve.accuracy, curve.threshold
    (array([0. , 0.5, 0.5]), array([1., 1., 0.]), array([inf, 0.9, 0.6]))
    """
    truth, leaves, weight = _labelled(y_true, y_proba, taxonomy, sample_weight, classes)
    if not truth.size:
        empty = np.empty(0)
        return OperatingCurve(empty, empty, empty)
    # Pass-through nodes repeat their child: same leaves, same probability.
    nodes = np.flatnonzero(taxonomy.n_children != 1)
    nodes = nodes[np.argsort((taxonomy.leaf_stop - taxonomy.leaf_start)[nodes], kind="stable")]
    step = max(1, _CHUNK_ELEMENTS // nodes.size)
    steps = [
        _prediction_steps(truth[low : low + step], leaves[low : low + step], nodes, taxonomy)
        for low in range(0, truth.size, step)
    ]
    sample = np.concatenate([part[0] + number * step for number, part in enumerate(steps)])
    threshold, information, accuracy = (
        np.concatenate([part[column] for part in steps]) for column in (1, 2, 3)
    )
    fraction = weight[sample] / weight.sum()
    threshold, gained, lost = _accumulate(threshold, fraction * information, fraction * accuracy)
    return OperatingCurve(gained, 1 + lost, threshold)


def operating_area(
    y_true: Any, y_proba: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the area under accuracy over information.

    The curve starts at no information, where the root is always right, and ends at the
    information of the most specific predictions; beyond it, accuracy counts as 0. A classifier
    whose leaves are always right has area 1.

    Parameters
    ----------
    y_true, y_proba, taxonomy, sample_weight, classes
        As in :func:`operating_curve`.

    Returns
    -------
    area : float
        Higher is better. NaN, with a warning, if no sample is labelled.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import operating_area
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.3, 0.6, 0.0]]  # fox, lynx, puma, wolf
    >>> operating_area(["lynx"], y_proba, tree)
    0.5
    """
    return operating_curve(
        y_true, y_proba, taxonomy, sample_weight=sample_weight, classes=classes
    ).area


def _labelled(
    y_true: Any, y_proba: Any, tree: Taxonomy, sample_weight: Any, classes: Any
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return truth, leaf probabilities and weight of the labelled samples; warn if none is."""
    leaves = inputs.leaf_probabilities(y_proba, tree, classes)
    truth, weight = inputs.check_truth(y_true, leaves, tree, sample_weight)
    counts = weight > 0
    if not counts.any():
        undefined(NO_LABEL)
    return truth[counts], leaves[counts], weight[counts]


def _accumulate(threshold: FloatArray, *changes: FloatArray) -> tuple[FloatArray, ...]:
    """Add up changes as the threshold falls from infinity; equal ones take effect together."""
    values, which = np.unique(-threshold, return_inverse=True)
    totals = (np.bincount(which.ravel(), change.ravel(), values.size) for change in changes)
    return np.append(np.inf, -values), *(np.append(0.0, np.cumsum(total)) for total in totals)


def _prediction_steps(
    truth: IntArray, leaves: FloatArray, nodes: IntArray, tree: Taxonomy
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Find where each sample's prediction changes as the threshold falls.

    Returns sample, threshold, and by how much information and accuracy change there.
    """
    n_below = tree.leaf_stop - tree.leaf_start
    probability = inputs.node_probabilities(leaves, tree)[:, nodes]
    # One best node for each amount of information, from the leaves to just below the root.
    _, first = np.unique(n_below[nodes], return_index=True)
    groups = np.split(np.arange(nodes.size), first[1:])[:-1]
    best = np.stack([columns[probability[:, columns].argmax(axis=1)] for columns in groups], axis=1)
    likely = np.take_along_axis(probability, best, axis=1)
    # A node is predicted at some threshold if no more informative one is as likely.
    beaten = np.maximum.accumulate(likely, axis=1)
    is_used = likely > np.concatenate([np.zeros((len(likely), 1)), beaten[:, :-1]], axis=1)
    # Reversed, from the root down: each step follows the less informative prediction.
    sample, column = np.nonzero(is_used[:, ::-1])
    column = len(groups) - 1 - column
    predicted, truth = nodes[best[sample, column]], truth[sample]
    common = tree.lowest_common_ancestor(truth, predicted)
    all_information = inputs.node_information(tree)
    information = all_information[common] / all_information[truth]
    right = ((common == predicted) | (common == truth)).astype(np.float64)
    # Before its first step the prediction is the root: right, and without information.
    is_first = np.diff(sample, prepend=-1) > 0
    before_information = np.where(is_first, 0.0, np.roll(information, 1))
    before_right = np.where(is_first, 1.0, np.roll(right, 1))
    threshold = likely[sample, column]
    return sample, threshold, information - before_information, right - before_right


def path_consistency(
    y_proba: Any, taxonomy: Taxonomy, *, sample_weight: Any = None, classes: Any = None
) -> float:
    """Compute the fraction of samples whose best node of every level lies above the best leaf.

    It needs no labels. Equally likely nodes agree with each other.

    Parameters
    ----------
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves, which are summed to each level.
    taxonomy : Taxonomy
        The tree.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    consistency : float
        NaN, with a warning, if there are no samples.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import path_consistency
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.4, 0.3, 0.3], [0.1, 0.6, 0.3]]  # dog, lynx, puma
    >>> path_consistency(y_proba, tree)
    0.5
    """
    leaves = inputs.leaf_probabilities(y_proba, taxonomy, classes)
    weight = inputs.check_weight(sample_weight, len(leaves))
    best = taxonomy.leaf_nodes[inputs.top_leaves(leaves, taxonomy)]
    consistent = np.ones(len(leaves), dtype=bool)
    for depth in range(1, taxonomy.n_levels):
        proba = inputs.level_probabilities(leaves, taxonomy, depth)
        above = taxonomy.climb_to_depth(best, depth)
        above_best = inputs.take_nodes(proba, above, taxonomy, depth)
        consistent &= above_best == proba.max(axis=1)
    return mean_or_nan(consistent, weight, "no sample")


def oracle_descent(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    level: Level | None = None,
    *,
    sample_weight: Any = None,
    classes: Any = None,
) -> Any:
    """Compute leaf accuracy when an oracle makes the decisions down to a level.

    The prediction is the likeliest leaf inside the true node of that level. The gain from one
    level to the next is the accuracy that the decisions in between lose.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels; only samples labelled with a leaf count.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default=None
        Name or depth of the level down to which decisions are forced; None computes the
        accuracy for every level.
    sample_weight, classes
        As in :func:`level_accuracy`.

    Returns
    -------
    accuracy : float, or ndarray of shape (n_levels + 1,) if `level` is None
        From depth 0, nothing forced, to the leaves' depth, where it is 1. NaN, with a warning, if
        no sample is labelled with a leaf.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import oracle_descent
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.4, 0.3, 0.3], [0.4, 0.3, 0.3]]  # dog, lynx, puma
    >>> oracle_descent(["lynx", "puma"], y_proba, tree)
    array([0. , 0.5, 1. ])
    """
    leaves = inputs.leaf_probabilities(y_proba, taxonomy, classes)
    truth, weight = inputs.check_truth(y_true, leaves, taxonomy, sample_weight)
    counts = taxonomy.n_children[truth] == 0
    truth, leaves, weight = truth[counts], leaves[counts], weight[counts]
    every = list(range(taxonomy.n_levels + 1))
    depths = every if level is None else [taxonomy.level_index(level)]
    if not weight.sum() > 0:
        nothing = undefined("no sample that is labelled with a leaf")
        return np.full(len(depths), nothing) if level is None else nothing
    total = np.zeros(len(depths))
    step = max(1, _CHUNK_ELEMENTS // taxonomy.n_leaves)
    for low in range(0, truth.size, step):
        chunk = slice(low, low + step)
        total += _forced_accuracy(truth[chunk], leaves[chunk], weight[chunk], taxonomy, depths)
    accuracy = total / weight.sum()
    return accuracy if level is None else float(accuracy[0])


def _forced_accuracy(
    truth: IntArray, leaves: FloatArray, weight: FloatArray, tree: Taxonomy, depths: list[int]
) -> FloatArray:
    """Sum the weights of the samples whose best leaf inside the forced node is right."""
    position = tree.leaf_order
    ordered = leaves[:, position]
    right = np.empty(len(depths))
    for index, depth in enumerate(depths):
        forced = tree.climb_to_depth(truth, depth)[:, None]
        inside = (position >= tree.leaf_start[forced]) & (position < tree.leaf_stop[forced])
        best = position[np.where(inside, ordered, -1.0).argmax(axis=1)]
        right[index] = weight @ (tree.leaf_nodes[best] == truth)
    return right
