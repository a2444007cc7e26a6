"""Single images on the page: the picture, what was said of it, and the opinion on the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..displays._folding import Row, fold
from ._html import bar, number, picture, span, table, text, word
from .pictures import thumbnail
from .reading import percent

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

_MAX_ROWS = 14
_TOP_LEAVES = 5


def images(report: EvaluationReport) -> str:
    """Return the surest mistakes, the least and the most certain images."""
    chosen = report.chosen
    known = ""
    if any(problem.is_serious and problem.nodes for problem in report.problems):
        known = ", and none of classes named among the problems in the data"
    parts = [
        (
            "The surest mistakes",
            chosen.surest_mistakes,
            "Sure and yet against the label: first look whether the label is right. The highest "
            "probability of a wrong answer comes first; of each class taken for another only the "
            f"surest image{known}.",
            _next_mistakes(report),
        ),
        ("The least certain", chosen.least_sure, "Here the model itself would rather not say.", ""),
        ("The most certain", chosen.surest, "Of each class at most one.", ""),
    ]
    return "".join(
        f"<h3>{title}</h3><p>{note}</p>{''.join(_case(report, int(row)) for row in rows)}{more}"
        for title, rows, note, more in parts
        if len(rows)
    )


def _next_mistakes(report: EvaluationReport) -> str:
    """Return the mistakes after the surest, by name, so that their labels can be checked."""
    tree, answers = report.taxonomy, report.answers
    rows = [
        [
            text(report.names[row]),
            number(answers.path_probability[row, -1], 2),
            text(tree.label(int(report.truth[row]))),
            text(tree.label(int(answers.best_leaves[row]))),
        ]
        for row in report.chosen.next_mistakes.tolist()
    ]
    if not rows:
        return ""
    head = ["image", "P", "label", "best leaf"]
    caption = "The next mistakes, the surest first (P: probability of the best leaf)."
    return table(caption, head, rows, kind="names", left=(2, 3))


def _case(report: EvaluationReport, row: int) -> str:
    tree, answers = report.taxonomy, report.answers
    truth = int(report.truth[row])
    label = "no label" if tree.last_decision[truth] < 0 else tree.label(truth)
    answer = tree.label(int(answers.best_leaves[row]))
    opinion = answers.opinion
    hedged = [
        f"{percent(hedge.target)}: {text(_hedged(report, int(hedge.nodes[row])))}"
        for hedge in report.hedges
        if np.isfinite(hedge.threshold)
    ]
    said = "" if opinion is None else f"<p>{text(opinion.explain(row))}</p>"
    shown = picture_of(report, row) if report.images is not None else ""
    facts = (
        f"<p>label: <strong>{text(label)}</strong><br>best leaf: <strong>{text(answer)}</strong>, "
        f"probability {number(answers.path_probability[row, -1], 2)}"
        + (f"<br>hedged answer at {'; '.join(hedged)}" if hedged else "")
        + "</p>"
    )
    tree_part = _leaf_table(report, row) if opinion is None else _opinion_table(report, row)
    sides = (
        f'<div class="sides"><div>{shown}</div><div>{facts}{said}{tree_part}</div></div>'
        if shown
        else f"{facts}{said}{tree_part}"
    )
    return f'<article class="case"><h3>{text(report.names[row])}</h3>{sides}</article>'


def _hedged(report: EvaluationReport, node: int) -> Any:
    tree = report.taxonomy
    is_everything = tree.leaf_stop[node] - tree.leaf_start[node] == tree.n_leaves
    return "says nothing" if is_everything else tree.label(node)


def picture_of(report: EvaluationReport, row: int) -> str:
    """Return the picture of a sample, with its name and label for who cannot see it."""
    label = report.taxonomy.label(int(report.truth[row]))
    return picture(thumbnail(report.images, row), f"{report.names[row]}, labelled {label}")


def _opinion_table(report: EvaluationReport, row: int) -> str:
    opinion = report.answers.opinion
    assert opinion is not None
    tree, truth = report.taxonomy, int(report.truth[row])
    label = int(tree.last_of_chain[truth]) if tree.last_decision[truth] >= 0 else None
    lines = fold(opinion[row], label=label, max_rows=_MAX_ROWS)
    rows, kinds = [], []
    for line in lines:
        star = " ★" if label is not None and not line.is_folded and label in line.nodes else ""
        rows.append(
            [
                f'<span class="in" style="--depth:{line.depth}">'
                f"{text(_title(report, line))}{text(_hidden_best(report, row, line))}{star}</span>",
                bar(line.mass),
                number(line.mass, 2),
                span(line.belief, line.probability, line.plausibility),
                f'<span class="all">{_three(line)}</span>',
                number(line.vacuity, 2) if np.isfinite(line.vacuity) else "",
            ]
        )
        kinds.append("label" if star else "folded" if line.is_folded else "")
    bounds = f"{word('belief, plausibility', 'belief')} – probability – plausibility"
    head = ["class", "", word("mass"), "", bounds, word("vacuity")]
    caption = "The opinion on the tree" + (" (★ the label)." if label is not None else ".")
    if any(np.isnan(line.belief) for line in lines):
        caption += (
            " A row with one number holds all classes below the one above it, and so the same "
            "belief and plausibility."
        )
    return table(caption, head, rows, kind="tree", row_kinds=kinds, left=(4,), bars=(1, 3))


def _title(report: EvaluationReport, line: Row) -> str:
    if not line.is_folded:
        return line.text
    tree, nodes = report.taxonomy, np.array(line.nodes)
    n_leaves = int((tree.leaf_stop - tree.leaf_start)[nodes].sum())
    where = f"{tree.names[nodes[0]]}: " if nodes.size == 1 else ""
    return f"{where}{n_leaves:,} leaves not shown"


def _hidden_best(report: EvaluationReport, row: int, line: Row) -> str:
    """Name the best leaf where it is folded away: a reader looks for it in its own table."""
    tree, best = report.taxonomy, int(report.answers.best_leaves[row])
    start = tree.leaf_start[best]
    nodes = np.array(line.nodes)
    if (
        not line.is_folded
        or not ((tree.leaf_start[nodes] <= start) & (start < tree.leaf_stop[nodes])).any()
    ):
        return ""
    sure = number(report.answers.path_probability[row, -1], 2)
    return f", among them the best, {tree.label(best)} (probability {sure})"


def _three(line: Row) -> str:
    middle = number(line.probability, 2)
    if np.isnan(line.belief):  # folded whole: its bounds would repeat the row above
        return middle
    return f"{number(line.belief, 2)} – {middle} – {number(line.plausibility, 2)}"


def _leaf_table(report: EvaluationReport, row: int) -> str:
    leaves = report.answers.leaf_probability[row]
    best = np.argsort(-leaves, kind="stable")[:_TOP_LEAVES]
    rows = [
        [text(report.taxonomy.leaves[leaf]), bar(leaves[leaf]), number(leaves[leaf], 2)]
        for leaf in best.tolist()
    ]
    return table("The likeliest leaves.", ["class", "", "probability"], rows, left=(1,))
