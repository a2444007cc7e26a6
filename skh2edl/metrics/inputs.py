"""Check the input of metrics, and turn labels and probabilities into nodes of the tree.

A pass-through node and its only child have the same leaves and mean the same class. Labels are
therefore moved to the deepest node of such a chain before they are compared. A label that names
all leaves, the root or a pass-through node below it, means "unlabelled".
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import UndefinedMetricWarning

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray

Level = str | int
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# What is missing where a metric is undefined.
NO_LABEL = "no labelled sample"
NO_LABEL_ON_LEVEL = "no sample whose label reaches the level"
# float32 sums over thousands of leaves stay well inside; logits and counts do not.
_SUM_TOLERANCE = 1e-3


def are_probabilities(y_pred: Any) -> bool:
    """Tell a table of probabilities from a sequence of labels."""
    if isinstance(y_pred, (list, tuple)):
        # A label may be a tuple (a path), but not a list.
        return len(y_pred) > 0 and isinstance(y_pred[0], (list, np.ndarray))
    return getattr(y_pred, "ndim", 1) == 2


def label_nodes(labels: Any, tree: Taxonomy) -> IntArray:
    """Return the node of each label, the deepest of those with the same leaves."""
    return tree.last_of_chain[tree.resolve(labels)]


def is_labelled(truth: IntArray, tree: Taxonomy) -> BoolArray:
    """Return which labels carry information: those that some decision leads to."""
    return np.asarray(tree.last_decision[truth] >= 0)


def node_information(tree: Taxonomy) -> FloatArray:
    """Return the information of each node in nats: log(L / m) with m of the L leaves below it."""
    return np.log(tree.n_leaves / (tree.leaf_stop - tree.leaf_start))


def leaf_probabilities(proba: Any, tree: Taxonomy, classes: Any = None) -> FloatArray:
    """Check probabilities and return those of the leaves in tree order.

    Parameters
    ----------
    proba : array-like of shape (n_samples, n_classes)
        Probabilities; each row sums to 1.
    tree : Taxonomy
        The tree.
    classes : sequence of labels, default=None
        Label of each column; None means ``tree.sorted_leaf_labels``. A leaf without a column has
        probability 0. The probability of an ancestor is spread evenly over its leaves.

    Returns
    -------
    leaves : ndarray of shape (n_samples, n_leaves)
    """
    try:
        given = np.asarray(proba, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Probabilities must be a table of numbers, one row for each sample ({error}). This "
            "metric reads predict_proba, not labels."
        ) from None
    n_columns = tree.n_leaves if classes is None else len(classes)
    if given.ndim != 2 or given.shape[1] != n_columns:
        raise ValueError(
            f"Probabilities must have shape (n_samples, {n_columns}), one column for each "
            f"{'leaf' if classes is None else 'of the classes'}, got {given.shape}. "
            "Name the columns with classes=... if they are not taxonomy.sorted_leaf_labels."
        )
    if given.size and not (np.isfinite(given).all() and given.min() >= 0):
        raise ValueError(
            "Probabilities must be finite and not negative. Turn logits into probabilities first."
        )
    off = np.abs(given.sum(axis=1) - 1)
    if given.size and off.max() > _SUM_TOLERANCE:
        row = int(off.argmax())
        raise ValueError(
            f"Probabilities must sum to 1 in each row, row {row} sums to {given[row].sum():.6g}. "
            "Normalise the rows."
        )
    leaves = np.zeros((given.shape[0], tree.n_leaves))
    if classes is None:
        leaves[:, tree.leaf_order] = given
        return leaves
    if len(set(classes)) < n_columns:
        repeated = next(name for name in classes if list(classes).count(name) > 1)
        raise ValueError(
            f"classes names {repeated!r} more than once. Each column needs a class of its own."
        )
    nodes = label_nodes(classes, tree)
    starts, stops = tree.leaf_start[nodes], tree.leaf_stop[nodes]
    if np.unique(nodes).size == n_columns and (stops - starts == 1).all():
        leaves[:, starts] = given
        return leaves
    # A second spelling of a leaf adds to it.
    for column, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        leaves[:, start:stop] += given[:, column, None] / (stop - start)
    return leaves


def level_probabilities(leaves: FloatArray, tree: Taxonomy, depth: int) -> FloatArray:
    """Sum leaf probabilities to the nodes of a level, in the order of `nodes_at_depth`."""
    nodes = tree.nodes_at_depth(depth)
    if nodes.size == tree.n_leaves:
        return leaves
    return np.add.reduceat(leaves, tree.leaf_start[nodes], axis=1)


def node_probabilities(leaves: FloatArray, tree: Taxonomy) -> FloatArray:
    """Sum leaf probabilities to all nodes."""
    nodes = np.zeros((len(leaves), tree.n_nodes))
    nodes[:, tree.leaf_nodes] = leaves
    for depth in range(tree.n_levels - 1, -1, -1):
        # From the children and not from differences of running sums: a node whose other
        # children have probability 0 is then exactly as likely as its child.
        low, high = np.searchsorted(tree.depths, [depth, depth + 1])
        above = low + np.flatnonzero(tree.n_children[low:high])
        below = nodes[:, high : np.searchsorted(tree.depths, depth + 2)]
        nodes[:, above] = np.add.reduceat(below, tree.first_child[above] - high, axis=1)
    return nodes


def top_leaves(leaves: FloatArray, tree: Taxonomy) -> IntArray:
    """Return the position of the likeliest leaf; among equals the first in `classes_`."""
    # A classifier's predict takes the first maximum in that order.
    return tree.leaf_order[leaves[:, tree.leaf_order].argmax(axis=1)]


def top_of_level(leaves: FloatArray, tree: Taxonomy, depth: int) -> tuple[IntArray, FloatArray]:
    """Return the likeliest node of a level and its probability."""
    nodes, probability = tree.nodes_at_depth(depth), level_probabilities(leaves, tree, depth)
    is_leaves = nodes.size == tree.n_leaves
    column = top_leaves(probability, tree) if is_leaves else probability.argmax(axis=1)
    return nodes[column], np.take_along_axis(probability, column[:, None], axis=1)[:, 0]


def take_nodes(
    probability: FloatArray, nodes: IntArray, tree: Taxonomy, depth: int
) -> npt.NDArray[Any]:
    """Return the probability of one node of a level for each sample."""
    starts = tree.leaf_start[tree.nodes_at_depth(depth)]
    column = np.searchsorted(starts, tree.leaf_start[nodes])
    return np.take_along_axis(probability, column[:, None], axis=1)[:, 0]


def predicted_nodes(y_pred: Any, tree: Taxonomy, classes: Any = None) -> IntArray:
    """Return the predicted node of each sample: that of its label, or its likeliest leaf."""
    if are_probabilities(y_pred):
        return tree.leaf_nodes[top_leaves(leaf_probabilities(y_pred, tree, classes), tree)]
    return label_nodes(y_pred, tree)


def predicted_on_levels(
    y_pred: Any, tree: Taxonomy, depths: Iterable[int], classes: Any = None
) -> IntArray:
    """Return the predicted node of each level, -1 where the prediction stops above the level."""
    if are_probabilities(y_pred):
        leaves = leaf_probabilities(y_pred, tree, classes)
        columns = [top_of_level(leaves, tree, depth)[0] for depth in depths]
    else:
        nodes = label_nodes(y_pred, tree)
        columns = [tree.climb_to_depth(nodes, depth) for depth in depths]
    return np.stack(columns, axis=1)


def check_truth(
    y_true: Any, predictions: npt.NDArray[Any], tree: Taxonomy, sample_weight: Any
) -> tuple[IntArray, FloatArray]:
    """Return the true node and the weight of each sample; unlabelled ones weigh nothing."""
    truth = label_nodes(y_true, tree)
    check_length(truth, predictions)
    return truth, check_weight(sample_weight, truth.size) * is_labelled(truth, tree)


def check_truth_on_level(
    y_true: Any, predictions: npt.NDArray[Any], tree: Taxonomy, depth: int, sample_weight: Any
) -> tuple[IntArray, FloatArray, BoolArray]:
    """Return true nodes and weights of the samples that count on a level, and which these are."""
    nodes, weight = check_truth(y_true, predictions, tree, sample_weight)
    truth = tree.climb_to_depth(nodes, depth)
    counts = (truth >= 0) & (weight > 0)
    return truth[counts], weight[counts], counts


def check_weight(sample_weight: Any, n_samples: int) -> FloatArray:
    """Return one weight for each sample."""
    if sample_weight is None:
        return np.ones(n_samples)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight for each sample, got "
            f"{weight.shape}."
        )
    if n_samples and not (np.isfinite(weight).all() and weight.min() >= 0):
        raise ValueError("sample_weight must be finite and not negative.")
    return weight


def check_length(truth: npt.NDArray[Any], predictions: npt.NDArray[Any]) -> None:
    """Refuse labels and predictions of different length."""
    if len(truth) != len(predictions):
        raise ValueError(
            f"y_true has {len(truth)} samples but the predictions have {len(predictions)}. "
            "Give one prediction for each label."
        )


def mean_or_nan(values: npt.NDArray[Any], weight: FloatArray, nothing: str) -> float:
    """Return the weighted mean, or NaN and a warning if the weights sum to 0."""
    total = weight.sum()
    return float(values @ weight / total) if total > 0 else undefined(nothing)


def undefined(nothing: str) -> float:
    """Return NaN and warn that a metric is undefined.

    Parameters
    ----------
    nothing : str
        What is missing, as in "There is no labelled sample".
    """
    message = f"There is {nothing}, so the metric is undefined and set to NaN."
    depth = 1  # of the line outside this package that asked for the metric
    while sys._getframe(depth).f_globals.get("__name__", "").startswith("skh2edl."):
        depth += 1
    warnings.warn(message, UndefinedMetricWarning, stacklevel=depth + 1)
    return float("nan")
