"""The sections of the page that show figures: levels, promises, depth, decisions, problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..displays import DepthProfileDisplay, ReliabilityDisplay
from ..metrics.report import level_title
from ._html import bar, folded, number, table, text, word
from .cases import picture_of
from .choice import doubt, doubt_separates
from .findings import DecisionFigures, mistaken
from .pictures import diagram, new_axes
from .reading import (
    CARE,
    GOOD_ECE,
    POOR_ECE,
    interval,
    listed,
    percent,
    verdict_of,
    where_belief_stops,
)

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

_MAX_DECISIONS = 8
_TAGS = {"trust": "good", "with care": "care", "not alone": "bad"}
# Areas under the ROC curve from which on doubt is called some help, and enough, to find mistakes.
_HELPS, _SORTS = 0.65, 0.8


def levels(report: EvaluationReport) -> str:
    """Return the table of the levels, with the rules of its figures."""
    rows = []
    for level in report.levels:
        if not level.n_samples:
            rows.append([text(level.name), *["–"] * 7, f"{level.n_classes:,}", "0"])
            continue
        verdict = verdict_of(level, report.trust)
        rows.append(
            [
                text(level.name),
                f'<span class="tag {_TAGS[verdict]}">{verdict}</span>',
                bar(level.accuracy, report.trust),
                f"<strong>{percent(level.accuracy)}</strong>",
                interval(level.low, level.high),
                percent(level.balanced_accuracy),
                number(level.ece),
                number(level.nll, 2),
                f"{level.n_classes:,}",
                f"{level.n_samples:,}",
            ]
        )
    head = [word("level"), "verdict", "", "right", word("95 % interval"), "right, classes equal"]
    return table(
        "Answers of each level, from the top of the tree down. The black line marks "
        f"{percent(report.trust)}.{_short_branches(report)}",
        [*head, word("ECE"), word("NLL"), "classes", "images"],
        rows,
        left=(1,),
        bars=(2,),
    ) + (
        f"<p>Verdicts: <strong>trust</strong> if the lower end of the interval is at least "
        f"{percent(report.trust)}; <strong>with care</strong> if at least "
        f"{percent(max(report.trust - CARE, 0))} are right; <strong>not alone</strong> otherwise: "
        "do not rely on a single answer.</p>"
        "<p>Each level is answered on its own, by its most probable class. That can be another "
        "one than the class above the best leaf, so mistakes counted further down along the path "
        "of the best leaf can differ a little from these.</p>"
        "<p>“Right, classes equal” (balanced accuracy) counts every class the same, however many "
        "images it has. ECE and NLL judge the probabilities; smaller is better. An ECE up to "
        f"{GOOD_ECE} is good, one above {POOR_ECE} poor. An NLL of 0 is perfect; "
        f"{_even_guess(report)}</p>"
    )


def _short_branches(report: EvaluationReport) -> str:
    tree = report.taxonomy
    n_short = int((tree.depths[tree.leaf_nodes] < tree.n_levels).sum())
    if not n_short:
        return ""
    which = "1 leaf ends" if n_short == 1 else f"{n_short:,} leaves end"
    return (
        f" {which} above the deepest level and {'counts' if n_short == 1 else 'count'} as "
        f"{'its' if n_short == 1 else 'their'} own class on the levels below."
    )


def _even_guess(report: EvaluationReport) -> str:
    guesses = [
        f"{number(np.log(level.n_classes), 2)} at {text(level.name)}"
        for level in report.levels
        if level.n_samples
    ]
    if not guesses:
        return "guessing all classes alike gives the logarithm of their number."
    return f"guessing all classes alike would give {listed(guesses)}."


def _measured(report: EvaluationReport) -> tuple[list[Any], Any]:
    tree, seen = report.taxonomy, report.answers.readable
    labels = tree.labels(report.truth[seen])
    proba = report.answers.leaf_probability[seen][:, tree.leaf_order]
    return labels, proba / proba.sum(axis=1, keepdims=True)


def reliability(report: EvaluationReport) -> str:
    """Return the diagrams of promised and kept accuracy."""
    labels, proba = _measured(report)
    figures = []
    for level in report.levels:
        if not level.n_samples:
            continue
        display = ReliabilityDisplay.from_predictions(
            labels, proba, report.taxonomy, level=level.depth, ax=new_axes((3.7, 3.5))
        )
        # Room at the corner, or the point of a level that is nearly always right would be cut.
        display.ax_.set(xlim=(-0.02, 1.09), ylim=(-0.02, 1.09))
        alt = (
            f"Reliability diagram of the level {level.name}: on average the answers promise "
            f"{percent(level.confidence)}, and {percent(level.accuracy)} are right; ECE "
            f"{number(level.ece)}."
        )
        figures.append(
            f'<figure><img src="{diagram(display)}" alt="{text(alt)}"><figcaption>'
            f"<strong>{text(level.name)}</strong>: promised {percent(level.confidence)}, kept "
            f"{percent(level.accuracy)}.</figcaption></figure>"
        )
    if not figures:
        return ""
    return (
        "<p>An answer with probability 0.8 should be right 8 times in 10. Points on the dotted "
        "line do that; points below it promise too much, points above it too little. Large points "
        "stand for many images; pale points without a line stand for less than 1 % of them, and "
        f'mean little.</p><div class="diagrams">{"".join(figures)}</div>'
    )


def depth(report: EvaluationReport) -> str:
    """Return where belief stops, and whether that tells mistakes from right answers."""
    opinion = report.answers.opinion
    if opinion is None:
        return ""
    tree, seen = report.taxonomy, np.flatnonzero(report.answers.readable)
    kept = opinion[seen]
    ends = tree.last_of_chain[report.truth[seen]]
    labels = tree.labels(report.truth[seen])
    has_leaves = bool((tree.n_children[ends] == 0).any())
    display = DepthProfileDisplay.from_predictions(
        kept, labels if has_leaves else None, ax=new_axes((7.2, 2.6))
    )
    parts = [*kept.depth_profile.mean(axis=0).tolist(), float(1 - kept.nonspecificity.mean())]
    names = [str(tree.root_name), *_level_names(report)[:-1], "single leaves"]
    said = listed([f"{percent(part)} at {name}" for name, part in zip(names, parts, strict=True)])
    return (
        f'<figure class="wide"><img src="{diagram(display)}" '
        f'alt="{text("Where belief stops: " + said)}">'
        f"<figcaption>On average belief stops: {text(said)}.</figcaption></figure>"
        "<p>Belief that stops at a class is not committed to anything finer. This is not a "
        "probability of error: it says how much the network left open."
        f"{_usefulness(report)}</p>"
    )


def _usefulness(report: EvaluationReport) -> str:
    """Say whether mistakes leave more open than right answers, and enough to use it."""
    share = doubt_separates(report.answers, report.truth)
    if np.isnan(share):
        return ""
    tree, answers = report.taxonomy, report.answers
    counted = (tree.n_children[tree.last_of_chain[report.truth]] == 0) & answers.readable
    wrong, left_open = mistaken(answers, report.truth)[counted], doubt(answers)[counted]
    verdict = "enough to sort answers by it"
    if share < _SORTS:
        verdict = "some help in sorting answers, not more"
    if share < _HELPS:
        verdict = "too little to sort answers by it"
    return (
        f" Wrong answers leave {percent(left_open[wrong].mean())} open on average, right ones "
        f"{percent(left_open[~wrong].mean())}. Of a wrong and a right answer, the wrong one leaves "
        f"more open in {percent(share)} of the cases: {verdict} (50 % is chance; from "
        f"{percent(_HELPS)} on it is some help, from {percent(_SORTS)} on enough)."
    )


def _level_names(report: EvaluationReport) -> list[str]:
    tree = report.taxonomy
    return [level_title(tree, d).replace("_", " ") for d in range(1, tree.n_levels + 1)]


def hedge(report: EvaluationReport) -> str:
    """Return what answers would be that may stop early."""
    if not report.hedges or not report.hedges[0].n_samples:
        return ""
    places = ["says nothing", *(f"stops at {n}" for n in _level_names(report)[:-1]), "names a leaf"]
    rows = []
    for hedge in report.hedges:
        if np.isinf(hedge.threshold):
            threshold = "too few images"
        else:
            threshold = number(hedge.threshold, 2)
        rows.append(
            [
                percent(hedge.target),
                f"<strong>{percent(hedge.accuracy)}</strong>",
                *(percent(share) for share in reversed(hedge.shares)),
                interval(hedge.low, hedge.high),
                threshold,
            ]
        )
    caption = (
        "An answer less probable than the threshold goes up to the next coarser class, until it is "
        f"probable enough; on {report.hedges[0].n_samples:,} images labelled with a leaf. Saying "
        "nothing counts as right."
    )
    how = (
        "Thresholds were set on one half of these images and measured on the other, and the other "
        "way round."
        if report.is_cross_calibrated
        else f"Thresholds were set on images kept aside for it{_note(report.calibration_note)}."
    )
    head = [word("hedge", "promised"), "right", *map(text, reversed(places))]
    head += [word("95 % interval"), word("threshold")]
    return table(caption, head, rows) + (
        f"<p>{how} The promise is an average over all answers, for new images like those that set "
        "the threshold; it does not hold for each class, nor for images taken elsewhere, later or "
        "in another way. A threshold can be lower than its promise: it is the least that an answer "
        "must reach, and most are surer.</p>"
    )


def _note(note: str) -> str:
    return f" ({text(note)})" if note else ""


def decisions(report: EvaluationReport) -> str:
    """Return at which nodes the answers first leave the true path."""
    tree = report.taxonomy
    rows = []
    has_belief = report.answers.opinion is not None
    passed = [row for row in report.decisions if row.n_passing]
    for row in passed[:_MAX_DECISIONS]:
        error = row.n_first_errors / row.n_passing
        name = text(tree.root_name if row.node == 0 else tree.label(row.node))
        cells = [
            name,
            f"{row.n_passing:,}",
            f"<strong>{row.n_first_errors:,}</strong>",
            bar(error),
            percent(error),
        ]
        if has_belief:
            cells.append(percent(row.stopping))
        children = [text(tree.label(child)) for child in row.children[:4]]
        rows.append([*cells, ", ".join(children) if children else "–"])
    if not rows:
        return ""
    head = ["decision at", "images labelled below it", "first errors", "", "of these images"]
    head += ["belief that stops here"] if has_belief else []
    return (
        "<p>The path to the best leaf goes down the tree one decision at a time. Here is where it "
        "first left the path to the label.</p>"
        + table(
            f"Decisions with the most first errors.{_rest(passed)}",
            [*head, "above all between"],
            rows,
            left=(5 + has_belief,),
            bars=(3,),
        )
        + _plan(report)
    )


def _rest(passed: Sequence[DecisionFigures]) -> str:
    n_all = sum(row.n_first_errors for row in passed)
    n_rest = sum(row.n_first_errors for row in passed[_MAX_DECISIONS:])
    if not n_rest:
        return f" Together they are all {n_all:,} mistakes." if n_all > 1 else ""
    return (
        f" {n_rest:,} of all {n_all:,} mistakes begin at other decisions, which are left off here."
    )


def _plan(report: EvaluationReport) -> str:
    plan, tree = report.plan, report.taxonomy
    if plan is None or report.images is None:
        return ""
    opinion = report.answers.opinion
    assert opinion is not None
    items = "".join(
        f"<figure>{picture_of(report, row)}<figcaption>{text(_labelled(report, row))}. "
        f"{text(where_belief_stops(tree, opinion.mass[row, tree.n_leaves :]))}."
        "</figcaption></figure>"
        for row in plan.rows.tolist()
    )
    return (
        "<h3>Images with the most doubt</h3><p>They differ in where their belief stops, and show "
        "what is unclear to the model. To label such images first is not known to be better than "
        "to label any: mix them with others.</p>"
        f'<div class="row">{items}</div>'
    )


def _labelled(report: EvaluationReport, row: int) -> str:
    tree, truth = report.taxonomy, int(report.truth[row])
    return "No label" if tree.last_decision[truth] < 0 else f"Labelled {tree.label(truth)}"


def problems(report: EvaluationReport) -> str:
    """Return what was found in the data, each with its remedy."""
    if not report.problems:
        return "<p>None found.</p>"
    items = "".join(
        f"<li><strong{_kind(problem.is_serious)}>{text(problem.title)}.</strong> "
        f"{text(problem.meaning)} {text(problem.remedy)}{folded('Which?', problem.names)}</li>"
        for problem in report.problems
    )
    return f'<ul class="problems">{items}</ul>'


def _kind(is_serious: bool) -> str:
    return ' class="bad"' if is_serious else ""
