"""The section on confusions: pairs of classes with pictures, and the classes to collect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from . import advice
from ._html import bar, number, table, text
from .answers import BoolArray
from .cases import picture_of
from .findings import Confusion, classes_to_collect
from .reading import is_one_name, percent, share_of

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

_MAX_CLASSES = 10


def confusions(report: EvaluationReport) -> str:
    """Return the pairs that are confused, with pictures, and the classes to collect."""
    if not report.confusions:
        return f"<p>No answer contradicts its label ({report.n_labelled:,} labelled images).</p>"
    items = "".join(_pair(report, pair) for pair in report.confusions)
    return (
        "<p>Pairs with the most mistakes, counted in both directions together; the share is that "
        "of the images of the class. The pair with the highest share (by the lower end of its "
        "95 % interval) is always among them.</p>"
        f'<ul class="pairs">{items}</ul>{_classes(report)}'
    )


def _pair(report: EvaluationReport, pair: Confusion) -> str:
    tree = report.taxonomy
    truth, answer = tree.label(pair.truth), tree.label(pair.answer)
    back = ""
    if pair.n_back:
        back = f"; the other way round {share_of(pair.n_back, pair.n_answer)}"
    shared = "nothing but the root" if pair.meeting == 0 else tree.label(pair.meeting)
    fault = ""
    if is_one_name(tree, pair, report.problems):
        fault = " One name in two places of the tree: see the problems in the data."
    leaf, n_leaf = most_answered(report, pair)
    group = ""
    if leaf != pair.answer:
        often = share_of(n_leaf, pair.n_mistaken)
        group = f" {answer} is a group; the leaf answered most is {tree.label(leaf)}, {often}."
    return (
        f"<li><h3>{text(truth)} → {text(answer)}</h3>"
        f"<p>{share_of(pair.n_mistaken, pair.n_truth)}{text(back)}. They share {text(shared)}."
        f"{text(group)}{fault}</p>{_pictures(report, pair, leaf)}</li>"
    )


def most_answered(report: EvaluationReport, pair: Confusion) -> tuple[int, int]:
    """Return the leaf that was answered most often in a confusion, and how often.

    Parameters
    ----------
    report : EvaluationReport
        The report.
    pair : Confusion
        One of its pairs; its answer is a group where the label ends above the answered leaf.
    """
    leaves, counts = np.unique(report.answers.best_leaves[pair.rows], return_counts=True)
    most = int(counts.argmax())
    return int(leaves[most]), int(counts[most])


def _pictures(report: EvaluationReport, pair: Confusion, leaf: int) -> str:
    """Return the surest mistake, beside an image that really is what was answered most."""
    if report.images is None:
        return ""
    tree, answers = report.taxonomy, report.answers
    row = int(pair.rows[0])
    shown = (
        f"<figure>{picture_of(report, row)}<figcaption>is {text(tree.label(pair.truth))}, was "
        f"taken for {text(tree.label(int(answers.best_leaves[row])))} (probability "
        f"{number(answers.path_probability[row, -1], 2)})</figcaption></figure>"
    )
    ends = tree.last_of_chain[report.truth]
    for node in dict.fromkeys((leaf, pair.answer)):
        is_it = [_below(tree, node, nodes) for nodes in (ends, answers.best_leaves)]
        typical = np.flatnonzero(is_it[0] & is_it[1] & answers.readable)
        if typical.size:
            best = int(typical[answers.path_probability[typical, -1].argmax()])
            name = text(tree.label(int(ends[best])))
            shown += (
                f"<figure>{picture_of(report, best)}<figcaption>really is {name}"
                "</figcaption></figure>"
            )
            break
    return f'<div class="two">{shown}</div>'


def _below(tree: Taxonomy, node: int, others: IntArray) -> BoolArray:
    """Tell which nodes are a node or lie under it."""
    start, stop = tree.leaf_start[node], tree.leaf_stop[node]
    return np.asarray((tree.leaf_start[others] >= start) & (tree.leaf_stop[others] <= stop))


def _classes(report: EvaluationReport) -> str:
    tree = report.taxonomy
    left_out = advice.explained_classes(report.problems)
    wanted = classes_to_collect(report.classes, left_out)
    if not wanted:
        return ""
    is_known = wanted[0].n_training is not None
    rows = [
        [
            text(tree.label(row.node)),
            f"{row.n_samples:,}",
            f"<strong>{row.n_samples - row.n_right:,}</strong>",
            bar(1 - row.n_right / row.n_samples),
            percent(1 - row.n_right / row.n_samples),
            text(", ".join(str(tree.label(node)) for node in row.taken_for[:3])),
            *([f"{row.n_training:,}"] if is_known else []),
        ]
        for row in wanted[:_MAX_CLASSES]
    ]
    head = ["class", "images", "wrong", "", "share wrong", "taken for"]
    head += ["training images"] if is_known else []
    rule = advice.collecting_rule(wanted, report.classes, left_out)
    caption = f"Classes to collect more images of. {rule}"
    if left_out:
        caption += " Classes named among the problems in the data are left out."
    return table(text(caption), head, rows, left=(5,), bars=(3,))
