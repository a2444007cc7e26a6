"""All metrics together, as text, as a dict or as a DataFrame."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional
from . import curves, levels, paths
from .inputs import check_truth_on_level, check_weight, leaf_probabilities


class Metric(NamedTuple):
    """A metric, whether more of it is better, and what it reads of an estimator."""

    compute: Callable[..., float]
    sign: int
    response: str  # "either": predict_proba where there is one, else predict


LEVEL_METRICS = {
    "accuracy": Metric(levels.level_accuracy, 1, "either"),
    "balanced_accuracy": Metric(levels.level_balanced_accuracy, 1, "either"),
    "nll": Metric(levels.level_nll, -1, "predict_proba"),
    "brier": Metric(levels.level_brier, -1, "predict_proba"),
    "ece": Metric(levels.level_ece, -1, "predict_proba"),
    "adaptive_ece": Metric(levels.level_adaptive_ece, -1, "predict_proba"),
    "risk_coverage_area": Metric(curves.risk_coverage_area, -1, "predict_proba"),
    "coverage_at_risk": Metric(curves.coverage_at_risk, 1, "predict_proba"),
    "kept_ancestor": Metric(paths.kept_ancestor, 1, "predict"),
    "oracle_descent": Metric(curves.oracle_descent, 1, "predict_proba"),
}
TREE_METRICS = {
    "full_path_accuracy": Metric(levels.full_path_accuracy, 1, "either"),
    "first_error_depth": Metric(paths.first_error_depth, 1, "predict"),
    "mistake_severity": Metric(paths.mistake_severity, -1, "predict"),
    "hierarchical_distance": Metric(paths.hierarchical_distance, -1, "predict"),
    "hops": Metric(paths.hops, 1, "predict_proba"),
    "hierarchical_precision": Metric(paths.hierarchical_precision, 1, "predict"),
    "hierarchical_recall": Metric(paths.hierarchical_recall, 1, "predict"),
    "hierarchical_fscore": Metric(paths.hierarchical_fscore, 1, "predict"),
    "information_precision": Metric(paths.information_precision, 1, "predict"),
    "information_recall": Metric(paths.information_recall, 1, "predict"),
    "operating_area": Metric(curves.operating_area, 1, "predict_proba"),
    "hierarchical_aurc": Metric(curves.hierarchical_aurc, -1, "predict_proba"),
}


def level_title(taxonomy: Taxonomy, depth: int) -> str:
    """Return the name of a level; without one, "leaf" for the deepest and "level_1", ... ."""
    if taxonomy.level_names is not None:
        return taxonomy.level_names[depth - 1]
    return "leaf" if depth == taxonomy.n_levels else f"level_{depth}"


def hierarchical_report(
    y_true: Any,
    y_proba: Any,
    taxonomy: Taxonomy,
    *,
    sample_weight: Any = None,
    classes: Any = None,
    digits: int = 3,
    output_dict: bool = False,
    as_frame: bool = False,
) -> Any:
    """Report every metric, for each level and for the tree as a whole.

    Parameters
    ----------
    y_true : sequence of labels of shape (n_samples,)
        True labels, leaves or ancestors.
    y_proba : array-like of shape (n_samples, n_leaves)
        Probabilities of the leaves.
    taxonomy : Taxonomy
        The tree.
    sample_weight, classes
        As in :func:`level_accuracy`.
    digits : int, default=3
        Decimals of the text.
    output_dict : bool, default=False
        Return a dict instead of text.
    as_frame : bool, default=False
        Return a DataFrame instead of text; needs pandas.

    Returns
    -------
    report : str, dict or DataFrame
        A row for each level from the top, then the row "tree". Columns have the names of the
        metrics; `classes` is the number of nodes and `support` the total weight of the labels
        that reach the level. The dict maps row names to dicts of columns. An undefined figure,
        such as the severity of no mistakes, is NaN, and "-" in the text.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.metrics import hierarchical_report
    >>> tree = Taxonomy.from_paths(
    ...     [("cat", "lynx"), ("cat", "puma"), ("dog", "fox")], level_names=("genus", "species")
    ... )
    >>> y_proba = [[0.1, 0.7, 0.2], [0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # fox, lynx, puma
    >>> report = hierarchical_report(["lynx", "puma", "fox"], y_proba, tree, output_dict=True)
    >>> report["genus"]["accuracy"], report["tree"]["mistake_severity"]
    (1.0, 1.0)
    """
    if output_dict and as_frame:
        raise ValueError("output_dict and as_frame exclude each other. Choose one of them.")
    rows = _figures(y_true, y_proba, taxonomy, sample_weight, classes)
    if output_dict:
        return rows
    if as_frame:
        pandas = import_optional("pandas", extra="pandas")
        return pandas.DataFrame.from_dict(rows, orient="index")
    return _as_text(rows, digits)


def _figures(
    y_true: Any, y_proba: Any, tree: Taxonomy, sample_weight: Any, classes: Any
) -> dict[str, dict[str, float]]:
    leaves = leaf_probabilities(y_proba, tree, classes)
    weight = check_weight(sample_weight, len(leaves))
    proba = leaves[:, tree.leaf_order]
    rows: dict[str, dict[str, float]] = {}
    with warnings.catch_warnings():
        # The reader sees the NaN in its place.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for depth in range(1, tree.n_levels + 1):
            _, on_level, _ = check_truth_on_level(y_true, leaves, tree, depth, weight)
            rows[level_title(tree, depth)] = {
                "classes": tree.nodes_at_depth(depth).size,
                "support": float(on_level.sum()),
            } | {
                name: metric.compute(y_true, proba, tree, depth, sample_weight=weight)
                for name, metric in LEVEL_METRICS.items()
            }
        rows["tree"] = {
            "classes": tree.n_leaves,
            "support": float(weight.sum()),
            "path_consistency": curves.path_consistency(proba, tree, sample_weight=weight),
        } | {
            name: metric.compute(y_true, proba, tree, sample_weight=weight)
            for name, metric in TREE_METRICS.items()
        }
    return rows


def _as_text(rows: dict[str, dict[str, float]], digits: int) -> str:
    *levels_, _ = rows
    columns = list(rows[levels_[0]])
    table = [["", *(column.replace("_", " ") for column in columns)]]
    table += [[name, *(_cell(key, rows[name][key], digits) for key in columns)] for name in levels_]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in table]
    whole = rows["tree"]
    width = max(map(len, whole))
    lines += [
        "",
        *(f"{n.replace('_', ' '):>{width}}  {_cell(n, v, digits)}" for n, v in whole.items()),
    ]
    return "\n".join(lines) + "\n"


def _cell(name: str, value: float, digits: int) -> str:
    if np.isnan(value):
        return "-"
    return f"{value:g}" if name in ("classes", "support") else f"{value:.{digits}f}"
