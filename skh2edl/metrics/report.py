"""All metrics together, as text, as a dict or as a DataFrame."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import UndefinedMetricWarning

from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional
from .calibration import level_adaptive_ece, level_ece
from .curves import coverage_at_risk, hierarchical_aurc, operating_area, risk_coverage_area
from .descent import oracle_descent, path_consistency
from .inputs import check_truth, leaf_probabilities, truth_on_level
from .levels import (
    full_path_accuracy,
    level_accuracy,
    level_balanced_accuracy,
    level_brier,
    level_nll,
)
from .paths import (
    hierarchical_fscore,
    hierarchical_precision,
    hierarchical_recall,
    information_precision,
    information_recall,
)
from .severity import (
    first_error_depth,
    hierarchical_distance,
    hops,
    kept_ancestor,
    mistake_severity,
)

_Metric = Callable[..., float]
_OF_LEVELS: dict[str, _Metric] = {
    "accuracy": level_accuracy,
    "balanced_accuracy": level_balanced_accuracy,
    "nll": level_nll,
    "brier": level_brier,
    "ece": level_ece,
    "adaptive_ece": level_adaptive_ece,
    "risk_coverage_area": risk_coverage_area,
    "coverage_at_risk": coverage_at_risk,
    "kept_ancestor": kept_ancestor,
    "oracle_descent": oracle_descent,
}
_OF_THE_TREE: dict[str, _Metric] = {
    "full_path_accuracy": full_path_accuracy,
    "first_error_depth": first_error_depth,
    "mistake_severity": mistake_severity,
    "hierarchical_distance": hierarchical_distance,
    "hops": hops,
    "hierarchical_precision": hierarchical_precision,
    "hierarchical_recall": hierarchical_recall,
    "hierarchical_fscore": hierarchical_fscore,
    "information_precision": information_precision,
    "information_recall": information_recall,
    "operating_area": operating_area,
    "hierarchical_aurc": hierarchical_aurc,
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
    sample_weight: npt.ArrayLike | None = None,
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
    sample_weight : array-like of shape (n_samples,), default=None
        Weight of each sample; None weighs all the same.
    classes : sequence of labels, default=None
        Columns of `y_proba`, as in :func:`level_accuracy`.
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
    nodes, weight = check_truth(y_true, leaves, tree, sample_weight)
    proba = leaves[:, tree.leaf_order]
    rows: dict[str, dict[str, float]] = {}
    with warnings.catch_warnings():
        # The reader sees the NaN in its place.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for depth in range(1, tree.n_levels + 1):
            reaches = truth_on_level(nodes, tree, depth) >= 0
            rows[level_title(tree, depth)] = {
                "classes": tree.nodes_at_depth(depth).size,
                "support": float(weight[reaches].sum()),
            } | {
                name: metric(y_true, proba, tree, depth, sample_weight=weight)
                for name, metric in _OF_LEVELS.items()
            }
        rows["tree"] = {
            "classes": tree.n_leaves,
            "support": float(weight.sum()),
            "path_consistency": path_consistency(proba, tree, sample_weight=weight),
        }
        for name, metric in _OF_THE_TREE.items():
            rows["tree"][name] = metric(y_true, proba, tree, sample_weight=weight)
    return rows


def _as_text(rows: dict[str, dict[str, float]], digits: int) -> str:
    levels = {name: row for name, row in rows.items() if name != "tree"}
    columns = list(next(iter(levels.values())))
    table = [["", *(column.replace("_", " ") for column in columns)]]
    for name, row in levels.items():
        table.append([name, *(_cell(column, row[column], digits) for column in columns)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
    whole = {
        name.replace("_", " "): _cell(name, value, digits) for name, value in rows["tree"].items()
    }
    width = max(map(len, whole))
    lines += ["", *(f"{name:>{width}}  {value}" for name, value in whole.items())]
    return "\n".join(lines) + "\n"


def _cell(name: str, value: float, digits: int) -> str:
    if np.isnan(value):
        return "-"
    return f"{value:g}" if name in ("classes", "support") else f"{value:.{digits}f}"
