"""The page of a report: one HTML file from the templates, without scripts or outside addresses."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..displays import DepthProfileDisplay, ReliabilityDisplay
from ..displays._folding import Row, fold
from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional
from . import questions, wording
from .figures import Confusion, LevelFigures, classes_to_collect, uncertainty_figures
from .images import as_data, thumbnail

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

# How much is shown: branches of the sketch, decisions, classes, rows of an opinion, leaves.
_MAX_BRANCHES, _MAX_DECISIONS, _MAX_CLASSES, _MAX_ROWS, _MAX_LEAVES = 40, 8, 10, 14, 5
# ROC areas from which on uncertainty is called some help, and enough, to find mistakes.
_HELPS, _SORTS = 0.65, 0.8

_SECTIONS = {
    "levels": "How good is each level?",
    "reliability": "Are the probabilities calibrated?",
    "depth": "How far down does the evidence carry?",
    "hedge": "What if predictions may stop early?",
    "confusions": "What is confused with what?",
    "decisions": "Where do the predictions go wrong?",
    "images": "Images to look at",
    "problems": "Problems in the data",
    "words": "How to read this page",
}


def render(report: EvaluationReport) -> str:
    """Return the page of a report.

    Parameters
    ----------
    report : EvaluationReport
        What to show.

    Returns
    -------
    html : str
    """
    tree, predictions = report.taxonomy, report.predictions
    measured = [level for level in report.levels if level.n_samples]
    decisions = [row for row in report.decisions if row.n_passing]
    explained = questions.explained_classes(report.problems)
    is_shown = {
        "reliability": bool(measured),
        "depth": predictions.opinion is not None,
        "hedge": report.hedges[0].n_samples > 0,
        "decisions": bool(decisions),
        "images": any(map(len, report.chosen)),
    }
    page = _environment().get_template("page.html")
    return page.render(
        report=report,
        tree=tree,
        predictions=predictions,
        version=__version__,
        sections=[(key, title) for key, title in _SECTIONS.items() if is_shown.get(key, True)],
        level_sizes=[f"{level.n_classes:,} at “{level.name}”" for level in report.levels],
        sketch=_sketch(tree),
        n_short_leaves=int((tree.depths[tree.leaf_nodes] < tree.n_levels).sum()),
        even_guesses=[f"{np.log(level.n_classes):.2f} at {level.name}" for level in measured],
        reliability=_reliability(report, measured),
        depth=_depth(report),
        stop_columns=[(level.name, "") for level in report.levels[-2::-1]],
        pairs=[(pair, *_group(report, pair)) for pair in report.confusions],
        to_collect=classes_to_collect(report.classes, explained)[:_MAX_CLASSES],
        has_explained=bool(explained),
        decisions=decisions[:_MAX_DECISIONS],
        other_decisions=decisions[_MAX_DECISIONS:],
        has_class_faults=any(each.is_serious and each.nodes for each in report.problems),
        shot_of=partial(_shot, report),
        label_of=partial(_label, report),
        case_of=partial(_case, report),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        name: getattr(wording, name)
        for name in ("counted", "interval", "listed", "number", "part_of", "percent")
    }
    environment.filters |= {"thousands": "{:,}".format, "word_id": word_id}
    environment.globals |= {
        name: getattr(questions, name)
        for name in ("CARE", "GOOD_ECE", "POOR_ECE", "collecting_rule", "is_one_name", "verdict_of")
    }
    environment.globals |= {"HELPS": _HELPS, "SORTS": _SORTS}
    return environment


def word_id(name: str) -> str:
    """Return the address of a word among the explained ones.

    Examples
    --------
    >>> word_id("95 % interval")
    'word-95-interval'
    """
    return "word-" + re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def _label(report: EvaluationReport, row: int) -> Any:
    """Return the label of a sample, None for the root's."""
    tree, truth = report.taxonomy, int(report.truth[row])
    return None if tree.last_decision[truth] < 0 else tree.label(truth)


class _Shot(NamedTuple):
    """A picture as a data address, None for a damaged one, and words for who cannot see it."""

    data: str | None
    alt: str


def _shot(report: EvaluationReport, row: int) -> _Shot:
    assert report.images is not None
    label = report.taxonomy.label(int(report.truth[row]))
    return _Shot(thumbnail(report.images, row), f"{report.names[row]}, labelled {label}")


def _sketch(tree: Taxonomy) -> tuple[list[tuple[str, list[str], int]], int]:
    """Return the top two levels of the tree, each with the number of nodes that are not shown."""

    def named(node: int) -> str:
        n_leaves = tree.leaf_stop[node] - tree.leaf_start[node]
        return (
            f"{tree.names[node]} ({n_leaves:,} leaves)" if n_leaves > 1 else str(tree.names[node])
        )

    def children(node: int) -> tuple[range, int]:
        first, n_children = int(tree.first_child[node]), int(tree.n_children[node])
        n_shown = min(n_children, _MAX_BRANCHES)
        return range(first, first + n_shown), n_children - n_shown

    branches, n_more = children(int(tree.last_of_chain[0]))
    below = [children(branch) for branch in branches]
    return [
        (named(branch), list(map(named, nodes)), n_more_nodes)
        for branch, (nodes, n_more_nodes) in zip(branches, below, strict=True)
    ], n_more


def _diagram(display: Any) -> str:
    """Return the figure of a display as a data address, and close it."""
    mpl = import_optional("matplotlib", extra="plots")
    content = io.BytesIO()
    # The same figures must give the same bytes: without the date, with fixed names of parts.
    with mpl.rc_context({"svg.hashsalt": "skh2edl", "svg.fonttype": "path"}):
        display.figure_.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return as_data(content.getvalue(), "image/svg+xml")


def _axes(width: float, height: float) -> Any:
    """Return axes of a figure that no window shows."""
    figure = import_optional("matplotlib.figure", extra="plots").Figure
    return figure(figsize=(width, height), layout="constrained").subplots()


def _reliability(
    report: EvaluationReport, levels: Sequence[LevelFigures]
) -> list[tuple[LevelFigures, str]]:
    """Return each level with its reliability diagram."""
    rows = np.flatnonzero(report.predictions.readable)
    labels, proba = report.taxonomy.labels(report.truth[rows]), report.predictions[rows].proba
    diagrams = []
    for level in levels:
        display = ReliabilityDisplay.from_predictions(
            labels, proba, report.taxonomy, level=level.depth, ax=_axes(3.7, 3.5)
        )
        # Space at the corner, or the point of a level that is nearly always right would be cut.
        display.ax_.set(xlim=(-0.02, 1.09), ylim=(-0.02, 1.09))
        diagrams.append((level, _diagram(display)))
    return diagrams


def _depth(report: EvaluationReport) -> dict[str, Any] | None:
    """Return where belief stops, and whether that tells mistakes from right predictions."""
    if report.predictions.opinion is None:
        return None
    tree, rows = report.taxonomy, np.flatnonzero(report.predictions.readable)
    opinion, truth = report.predictions.opinion[rows], report.truth[rows]
    has_leaves = bool((tree.n_children[tree.last_of_chain[truth]] == 0).any())
    display = DepthProfileDisplay.from_predictions(
        opinion, tree.labels(truth) if has_leaves else None, ax=_axes(7.2, 2.6)
    )
    parts = [*opinion.depth_profile.mean(axis=0), 1 - opinion.nonspecificity.mean()]
    names = [tree.root_name, *(level.name for level in report.levels[:-1]), "single leaves"]
    return {
        "diagram": _diagram(display),
        "stops": [
            f"{wording.percent(part)} at {name}" for name, part in zip(names, parts, strict=True)
        ],
        "uncertainty": uncertainty_figures(report.predictions, report.truth),
    }


def _group(report: EvaluationReport, pair: Confusion) -> tuple[int, int, int | None]:
    """Return the leaf predicted most often in a pair, how often, and an image that really is it."""
    tree, predictions = report.taxonomy, report.predictions
    leaves, counts = np.unique(predictions.best_leaves[pair.rows], return_counts=True)
    leaf, n_leaf = int(leaves[counts.argmax()]), int(counts.max())
    for node in (leaf, pair.predicted):
        is_it = predictions.readable.copy()
        for nodes in (tree.last_of_chain[report.truth], predictions.best_leaves):
            is_it &= tree.leaf_start[nodes] >= tree.leaf_start[node]
            is_it &= tree.leaf_stop[nodes] <= tree.leaf_stop[node]
        rows = np.flatnonzero(is_it)
        if rows.size:
            return leaf, n_leaf, int(rows[predictions.path_probability[rows, -1].argmax()])
    return leaf, n_leaf, None


def _case(report: EvaluationReport, row: int) -> dict[str, Any]:
    """Return what is shown of one image."""
    predictions = report.predictions
    case: dict[str, Any] = {
        "row": row,
        "hedged": [
            f"{wording.percent(hedge.target)}: {_hedged(report, int(hedge.nodes[row]))}"
            for hedge in report.hedges
            if np.isfinite(hedge.threshold)
        ],
    }
    if predictions.opinion is None:
        leaves = predictions.leaf_probability[row]
        return case | {"leaves": np.argsort(-leaves, kind="stable")[:_MAX_LEAVES].tolist()}
    label = None
    if _label(report, row) is not None:
        label = int(report.taxonomy.last_of_chain[report.truth[row]])
    lines = fold(predictions.opinion[row], label=label, max_rows=_MAX_ROWS)
    return case | {
        "has_bare_lines": any(np.isnan(line.belief) for line in lines),
        "lines": [
            line._asdict()
            | {
                "title": _title(report, row, line),
                "is_label": label in line.nodes and not line.is_folded,
            }
            for line in lines
        ],
    }


def _hedged(report: EvaluationReport, node: int) -> Any:
    tree = report.taxonomy
    is_everything = tree.leaf_stop[node] - tree.leaf_start[node] == tree.n_leaves
    return "cannot tell" if is_everything else tree.label(node)


def _title(report: EvaluationReport, row: int, line: Row) -> str:
    """Return the heading of a row of the opinion; a folded one tells if it holds the best leaf."""
    if not line.is_folded:
        return line.text
    tree, nodes = report.taxonomy, np.array(line.nodes)
    starts, stops = tree.leaf_start[nodes], tree.leaf_stop[nodes]
    where = f"{tree.names[nodes[0]]}: " if nodes.size == 1 else ""
    title = f"{where}{int((stops - starts).sum()):,} leaves not shown"
    best = int(report.predictions.best_leaves[row])
    if ((starts <= tree.leaf_start[best]) & (tree.leaf_start[best] < stops)).any():
        sure = wording.number(report.predictions.path_probability[row, -1], 2)
        title += f", among them the best, {tree.label(best)} (probability {sure})"
    return title
