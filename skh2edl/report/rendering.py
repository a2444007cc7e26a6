"""The page of a report: one HTML file from the templates, which loads nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from .. import __version__
from ..metrics import reliability_curve
from ..taxonomy.taxonomy import Taxonomy
from . import questions, wording
from .figures import LevelFigures, Mistake, NodeFigures, labelled_with_leaf, mistaken
from .hedging import CROSS_CALIBRATED, HedgeFigures, stop_places
from .images import thumbnail

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

# Mistakes with a picture: about 2 MB of them.
_MAX_CARDS = 300
# Children of a node that are shown at once, and names of those without images.
_MAX_CHILDREN, _MAX_EMPTY = 12, 20
# Classes of a level that are all named in the heading.
_MAX_MEMBERS = 4

_SECTIONS = {
    "levels": ("Levels", "How often is it right?"),
    "tree": ("Tree", "Where in the tree is it good?"),
    "mistakes": ("Mistakes", "The mistakes"),
    "probabilities": ("Probabilities", "Can I believe its probabilities?"),
    "depth": ("Depth", "How far down does the evidence reach?"),
    "data": ("Data", "Problems in the data"),
    "words": ("Words", "Words on this page"),
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
    measured = [level for level in report.levels if level.n_samples]
    is_shown = {
        "levels": bool(measured),
        "tree": bool(report.nodes),
        "mistakes": bool(report.mistakes),
        "probabilities": bool(measured),
        "depth": report.predictions.opinion is not None,
    }
    environment = _environment()
    assert environment.loader is not None
    script = environment.loader.get_source(environment, "page.js")[0]
    return environment.get_template("page.html").render(
        report=report,
        tree=report.taxonomy,
        predictions=report.predictions,
        version=__version__,
        sections=[(key, *titles) for key, titles in _SECTIONS.items() if is_shown.get(key, True)],
        measured=measured,
        names=[questions.level_name(level.name) for level in report.levels],
        members=[_members(report.taxonomy, level.depth) for level in report.levels],
        top=_branch(report, 0) if report.nodes else None,
        cards=[_card(report, mistake) for mistake in report.mistakes[:_MAX_CARDS]],
        bins={level.depth: _bins(report, level) for level in measured},
        depth=_depth(report),
        script=script,
        # Names from the data can never become a script that runs: only this text may.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
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
        finalize=_unbroken,
    )
    environment.filters |= {
        name: getattr(wording, name)
        for name in ("counted", "interval", "number", "part_of", "percent")
    }
    environment.filters |= {
        "heading": questions.level_heading,
        "thousands": "{:,}".format,
        "word_id": word_id,
    }
    environment.globals |= {
        name: getattr(questions, name)
        for name in ("CARE", "GOOD_ECE", "calibration_sentence", "verdict_of")
    }
    environment.globals["CROSS_CALIBRATED"] = CROSS_CALIBRATED
    return environment


def _unbroken(value: Any) -> Any:
    """Keep a number and its percent sign on one line."""
    if type(value) is not str:
        return value
    return re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", value)


def word_id(name: str) -> str:
    """Return the address of a word among the explained ones.

    Examples
    --------
    >>> word_id("95 % interval")
    'word-95-interval'
    """
    return "word-" + re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def _members(tree: Taxonomy, depth: int) -> str:
    """Name the classes of a level, or the first two of many."""
    nodes = tree.nodes_at_depth(depth)
    few = nodes.size <= _MAX_MEMBERS
    said = ", ".join(str(tree.names[node]) for node in (nodes if few else nodes[:2]))
    return said if few else f"such as {said}"


class _Branch(NamedTuple):
    """A node of the tree on the page, with the children that have images, the worst first."""

    title: str
    figures: NodeFigures
    children: list[_Branch]
    more: list[_Branch]
    empty: list[str]


def _branch(report: EvaluationReport, first: int) -> _Branch:
    """Return a node, of a chain of only children all names, and what is below."""
    tree, chain = report.taxonomy, [first]
    while tree.n_children[chain[-1]] == 1:
        chain.append(int(tree.first_child[chain[-1]]))
    start, n_children = int(tree.first_child[chain[-1]]), int(tree.n_children[chain[-1]])
    nodes = range(start, start + n_children)
    known = [node for node in nodes if int(tree.last_of_chain[node]) in report.nodes]
    empty = [str(tree.names[node]) for node in nodes if node not in known]
    if len(empty) > _MAX_EMPTY:
        empty = [*empty[:_MAX_EMPTY], f"{len(empty) - _MAX_EMPTY:,} more"]
    children = [_branch(report, node) for node in known]
    children.sort(key=lambda each: (each.figures.accuracy, -each.figures.n_samples))
    # Groceries have the chain Lime > Lime: a name is said once.
    names = dict.fromkeys(str(tree.names[node]) for node in chain)
    title = " › ".join(names) if first else "All images"
    return _Branch(
        title, report.nodes[chain[-1]], children[:_MAX_CHILDREN], children[_MAX_CHILDREN:], empty
    )


def _card(report: EvaluationReport, mistake: Mistake) -> dict[str, Any]:
    """Return what the wall shows of one mistake."""
    tree, row = report.taxonomy, mistake.row
    hedge = questions.usual_hedge(report.hedges)
    label = tree.label(mistake.truth)
    return {
        **mistake._asdict(),
        "name": report.names[row],
        "label": label,
        "said": tree.label(mistake.predicted),
        "level": questions.level_name(report.levels[mistake.depth - 1].name),
        "picture": None if report.images is None else thumbnail(report.images, row),
        "alt": f"{report.names[row]}, labelled {label}",
        "label_path": _path_ids(tree, mistake.truth),
        "said_path": _path_ids(tree, mistake.predicted),
        "hedged": _hedged(report, hedge, row) if np.isfinite(hedge.threshold) else "",
        "opinion": "" if (each := report.predictions.opinion) is None else each.explain(row),
    }


def _path_ids(tree: Taxonomy, node: int) -> str:
    """Return the nodes from the root to a node, for the filter of the wall."""
    path = [node]
    while path[-1]:
        path.append(int(tree.parents[path[-1]]))
    return " ".join(map(str, reversed(path)))


def _hedged(report: EvaluationReport, hedge: HedgeFigures, row: int) -> str:
    """Say what the hedge predicts for one image, and how often it is right at this level."""
    node = hedge.nodes[row : row + 1]
    depth = int(stop_places(node, report.taxonomy)[0])
    start = f"The {wording.percent(hedge.target)} hedge"
    if not depth:
        return f"{start} cannot tell."
    n_given, n_right = hedge.stops[depth]
    level = questions.level_name(report.levels[depth - 1].name)
    right = f"; at {level} it is right for {n_right:,} of {n_given:,}" if n_given else ""
    return f"{start} says {report.taxonomy.label(int(node[0]))}{right}."


def _bins(report: EvaluationReport, level: LevelFigures) -> list[tuple[float, float, int]]:
    """Return mean probability, accuracy and number of images of the bins of a level."""
    rows = np.flatnonzero(report.predictions.readable)
    labels, proba = report.taxonomy.labels(report.truth[rows]), report.predictions[rows].proba
    curve = reliability_curve(labels, proba, report.taxonomy, level=level.depth)
    filled = curve.fraction > 0
    counts = np.rint(curve.fraction[filled] * level.n_samples).astype(int)
    columns = curve.confidence[filled], curve.accuracy[filled], counts
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _depth(report: EvaluationReport) -> dict[str, Any] | None:
    """Return the mean belief that stops at each level, for right predictions and for mistakes."""
    predictions, opinion = report.predictions, report.predictions.opinion
    if opinion is None:
        return None
    counted = labelled_with_leaf(predictions, report.truth)
    wrong = mistaken(predictions, report.truth)
    groups = {"right predictions": counted & ~wrong, "mistakes": counted & wrong}
    if not counted.any():
        groups = {"all images": predictions.readable}
    groups = {name: rows for name, rows in groups.items() if rows.any()}
    headings = (questions.level_heading(level.name) for level in report.levels)
    stops = np.column_stack([opinion.depth_profile, 1 - opinion.nonspecificity])
    return {
        "groups": [(name, int(rows.sum())) for name, rows in groups.items()],
        "rows": list(
            zip(
                [wording.CANNOT_TELL, *headings],
                np.transpose([stops[rows].mean(axis=0) for rows in groups.values()]).tolist(),
                strict=True,
            )
        ),
    }
