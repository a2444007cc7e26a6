"""What every metric reads: labels as nodes, probabilities in tree order, weights, levels.

Nodes with the same leaves (a pass-through node and its only child) are one answer, so labels are
taken to the deepest node of their chain before anything is compared.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import UndefinedMetricWarning

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# float32 sums over thousands of leaves stay well inside; logits and counts do not.
_SUM_TOLERANCE = 1e-3


def are_probabilities(answers: Any) -> bool:
    """Tell a table of probabilities from a sequence of labels."""
    if isinstance(answers, (list, tuple)):
        # Lists cannot be labels, tuples are paths.
        return len(answers) > 0 and isinstance(answers[0], (list, np.ndarray))
    return getattr(answers, "ndim", 1) == 2


def label_nodes(labels: Any, tree: Taxonomy) -> IntArray:
    """Return the node each label means, the deepest of those with the same leaves."""
    return tree.last_of_chain[tree.resolve(labels)]


def leaf_probabilities(proba: Any, tree: Taxonomy, classes: Any = None) -> FloatArray:
    """Return checked probabilities of the leaves in tree order."""
    given = _as_floats(proba)
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
    in_tree_order = np.zeros((given.shape[0], tree.n_leaves))
    if classes is None:
        in_tree_order[:, tree.leaf_order] = given
        return in_tree_order
    if len(set(classes)) < n_columns:
        repeated = next(name for name in classes if list(classes).count(name) > 1)
        raise ValueError(
            f"classes names {repeated!r} more than once. Each column needs a class of its own."
        )
    nodes = label_nodes(classes, tree)
    starts, stops = tree.leaf_start[nodes], tree.leaf_stop[nodes]
    plain = np.zeros(n_columns, dtype=bool)
    plain[np.unique(nodes, return_index=True)[1]] = True
    plain &= stops - starts == 1
    in_tree_order[:, starts[plain]] = given[:, plain]
    for column in np.flatnonzero(~plain).tolist():
        # A second spelling of a leaf adds to it. An ancestor that a classifier learnt as a class
        # says nothing about what is below, so its probability goes there in equal parts.
        low, high = starts[column], stops[column]
        in_tree_order[:, low:high] += given[:, column, None] / (high - low)
    return in_tree_order


def _as_floats(proba: Any) -> FloatArray:
    try:
        return np.asarray(proba, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Probabilities must be a table of numbers, one row for each sample ({error}). This "
            "metric reads predict_proba, not labels."
        ) from None


def level_sums(leaves: FloatArray, tree: Taxonomy, depth: int) -> tuple[FloatArray, IntArray]:
    """Add up leaf probabilities to the nodes of a level; return the sums and the nodes."""
    nodes = tree.nodes_at_depth(depth)
    if nodes.size == tree.n_leaves:
        return leaves, nodes
    return np.add.reduceat(leaves, tree.leaf_start[nodes], axis=1), nodes


def node_probabilities(leaves: FloatArray, tree: Taxonomy) -> FloatArray:
    """Add up leaf probabilities to all nodes."""
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
    """Return the position of the likeliest leaf; of equals the first in the order of classes_."""
    # A classifier's predict takes the first maximum in that order.
    return tree.leaf_order[leaves[:, tree.leaf_order].argmax(axis=1)]


def top_of_level(
    leaves: FloatArray, tree: Taxonomy, depth: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the likeliest node of a level, its probability, and those of all its nodes."""
    sums, nodes = level_sums(leaves, tree, depth)
    column = top_leaves(sums, tree) if nodes.size == tree.n_leaves else sums.argmax(axis=1)
    return nodes[column], np.take_along_axis(sums, column[:, None], axis=1)[:, 0], sums


def columns_of(nodes: IntArray, tree: Taxonomy, depth: int) -> IntArray:
    """Return the position of nodes of a level among all nodes of that level."""
    starts = tree.leaf_start[tree.nodes_at_depth(depth)]
    return np.searchsorted(starts, tree.leaf_start[nodes])


def answer_leaves_or_nodes(answers: Any, tree: Taxonomy, classes: Any = None) -> IntArray:
    """Return the node of each answer: what the label means, or the likeliest leaf."""
    if are_probabilities(answers):
        return tree.leaf_nodes[top_leaves(leaf_probabilities(answers, tree, classes), tree)]
    return label_nodes(answers, tree)


def answers_on_level(answers: Any, tree: Taxonomy, depth: int, classes: Any = None) -> IntArray:
    """Return the node of a level that each answer gives, -1 where it stops above the level."""
    if are_probabilities(answers):
        return top_of_level(leaf_probabilities(answers, tree, classes), tree, depth)[0]
    return tree.climb_to_depth(label_nodes(answers, tree), depth)


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


def check_length(truth: npt.NDArray[Any], answers: npt.NDArray[Any]) -> None:
    """Refuse labels and answers of different length."""
    if len(truth) != len(answers):
        raise ValueError(
            f"y_true has {len(truth)} samples but the predictions have {len(answers)}. "
            "Give one prediction for each label."
        )


def mean_or_nan(values: npt.NDArray[Any], weight: FloatArray, nothing: str) -> float:
    """Return the weighted mean, or NaN and a warning that says what there was nothing of."""
    total = weight.sum()
    if not total > 0:
        return nan_with_warning(nothing, stacklevel=4)
    return float(values @ weight / total)


def nan_with_warning(nothing: str, stacklevel: int = 3) -> float:
    """Return NaN and warn: a figure over no sample at all is undefined, not 0."""
    message = f"There is {nothing}, so the metric is undefined and set to NaN."
    # The line to look at is the one that called the metric.
    warnings.warn(message, UndefinedMetricWarning, stacklevel=stacklevel)
    return float("nan")
