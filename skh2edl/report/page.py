"""The page of a report: one HTML file without scripts, without any address but its own."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from .._tree import IntArray
from ..displays import DepthProfileDisplay, ReliabilityDisplay
from ..displays._folding import Row, fold
from ..metrics.report import level_title
from ..taxonomy import Taxonomy
from ._html import bar, folded, number, picture, span, table, text
from .answers import BoolArray
from .pictures import diagram, new_axes, thumbnail
from .reading import interval, listed, percent

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

# What the page may load: nothing but the pictures and the style inside it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_MAX_ROWS = 14
_TOP_LEAVES = 5
_MAX_CLASSES = 10


def render(report: EvaluationReport) -> str:
    """Return the page of a report.

    Parameters
    ----------
    report : EvaluationReport
        What to say.

    Returns
    -------
    html : str
    """
    sections = [
        ("levels", "How good is each level?", _levels(report)),
        ("reliability", "Do the probabilities keep their promise?", _reliability(report)),
        ("depth", "How far down does the evidence carry?", _depth(report)),
        ("hedge", "What if answers may stop early?", _hedge(report)),
        ("confusions", "What is confused with what?", _confusions(report)),
        ("decisions", "Where do the answers go wrong?", _decisions(report)),
        ("images", "Images to look at", _images(report)),
        ("problems", "Problems in the data", _problems(report)),
        ("words", "How to read this page", _words(report)),
    ]
    shown = [section for section in sections if section[2]]
    links = "".join(f'<li><a href="#{name}">{text(title)}</a></li>' for name, title, _ in shown)
    body = "".join(
        f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{text(title)}</h2>'
        f"{content}</section>"
        for name, title, content in shown
    )
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="generator" content="skh2edl {text(__version__)}">'
        f"<title>{text(report.title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{text(report.title)}</h1>{_summary(report)}</header>"
        f'<main><div class="reading">{_reading(report)}</div>{_warning(report)}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>{body}</main>'
        f"{_about(report)}</body></html>\n"
    )


def _summary(report: EvaluationReport) -> str:
    tree = report.taxonomy
    things = "samples" if report.images is None else "images"
    is_all = report.n_labelled == report.n_samples
    labelled = "all labelled" if is_all else f"{report.n_labelled:,} of them labelled"
    levels = listed([f"{level.n_classes:,} at “{text(level.name)}”" for level in report.levels])
    return (
        f'<p class="lead soft">{report.n_samples:,} evaluated {things}, '
        f"{labelled}; {tree.n_leaves:,} leaf classes "
        f"({levels}).</p>"
    )


def _reading(report: EvaluationReport) -> str:
    return "".join(
        f'<section class="card"><h2>{text(question.question)}</h2>'
        f'<p class="answer">{text(question.answer)}</p>'
        + "".join(f"<p>{text(sentence)}</p>" for sentence in question.sentences)
        + "</section>"
        for question in report.questions
    )


def _warning(report: EvaluationReport) -> str:
    serious = [problem for problem in report.problems if problem.is_serious]
    if not serious:
        return ""
    titles = text(listed([problem.title for problem in serious]))
    return (
        f'<p><strong class="bad">Read the figures with care:</strong> {titles}. '
        '<a href="#problems">See the problems in the data.</a></p>'
    )


# Sections --------------------------------------------------------------------------------------


def _levels(report: EvaluationReport) -> str:
    rows = []
    for level in report.levels:
        if not level.n_samples:
            rows.append([text(level.name), f"{level.n_classes:,}", "0", *["–"] * 7])
            continue
        verdict = _verdict(level.low, level.accuracy, report.trust)
        rows.append(
            [
                text(level.name),
                f"{level.n_classes:,}",
                f"{level.n_samples:,}",
                bar(level.accuracy, report.trust),
                f"<strong>{percent(level.accuracy)}</strong>",
                interval(level.low, level.high),
                percent(level.balanced_accuracy),
                number(level.ece),
                number(level.nll, 2),
                verdict,
            ]
        )
    head = ["level", "classes", "images", "", "right", "95 % interval", "right, classes equal"]
    return table(
        "Answers of each level, from the top of the tree down. The black line marks "
        f"{percent(report.trust)}.",
        [*head, "ECE", "NLL", "verdict"],
        rows,
        left=(3, 9),
    ) + (
        "<p>“Right, classes equal” (balanced accuracy) counts every class the same, however many "
        "images it has. ECE and NLL judge the probabilities; smaller is better.</p>"
    )


def _verdict(low: float, accuracy: float, trust: float) -> str:
    if low >= trust:
        return '<span class="tag good">trust</span>'
    if accuracy >= trust - 0.15:
        return '<span class="tag care">with care</span>'
    return '<span class="tag bad">not alone</span>'


def _measured(report: EvaluationReport) -> tuple[list[Any], Any]:
    tree, seen = report.taxonomy, report.answers.readable
    labels = tree.labels(report.truth[seen])
    proba = report.answers.leaf_probability[seen][:, tree.leaf_order]
    return labels, proba / proba.sum(axis=1, keepdims=True)


def _reliability(report: EvaluationReport) -> str:
    labels, proba = _measured(report)
    figures = []
    for level in report.levels:
        if not level.n_samples:
            continue
        display = ReliabilityDisplay.from_predictions(
            labels, proba, report.taxonomy, level=level.depth, ax=new_axes((3.7, 3.5))
        )
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
        f'stand for many images.</p><div class="diagrams">{"".join(figures)}</div>'
    )


def _depth(report: EvaluationReport) -> str:
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
        "<p>Belief that stops at a class is not committed to anything finer. That is no chance of "
        "error: it says how much the network left open, and wrong answers should leave more open "
        "than right ones.</p>"
    )


def _level_names(report: EvaluationReport) -> list[str]:
    tree = report.taxonomy
    return [level_title(tree, d).replace("_", " ") for d in range(1, tree.n_levels + 1)]


def _hedge(report: EvaluationReport) -> str:
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
                threshold,
                f"<strong>{percent(hedge.accuracy)}</strong>",
                interval(hedge.low, hedge.high),
                *(percent(share) for share in hedge.shares),
            ]
        )
    caption = (
        f"Answers that climb until they are probable enough, on {report.hedges[0].n_samples:,} "
        "images labelled with a leaf."
    )
    how = (
        "Thresholds were set on one half of these images and measured on the other, and the other "
        "way round."
        if report.is_cross_calibrated
        else f"Thresholds were set on images kept aside for it{_note(report.calibration_note)}."
    )
    head = ["promised", "threshold", "right", "95 % interval", *map(text, places)]
    return table(caption, head, rows) + (
        f"<p>{how} The promise is an average over all answers, for new images that come from where "
        "these come from; it does not hold for each class, nor for other cameras, seasons or "
        "hospitals. Saying nothing counts as right.</p>"
    )


def _note(note: str) -> str:
    return f" ({text(note)})" if note else ""


def _confusions(report: EvaluationReport) -> str:
    if not report.confusions:
        return f"<p>No answer contradicts its label ({report.n_labelled:,} labelled images).</p>"
    tree, answers = report.taxonomy, report.answers
    ends = tree.last_of_chain[report.truth]
    items = []
    for pair in report.confusions:
        truth, answer = tree.label(pair.truth), tree.label(pair.answer)
        inside = [_below(tree, pair.answer, nodes) for nodes in (ends, answers.best_leaves)]
        typical = np.flatnonzero(inside[0] & inside[1])
        back = f"; the other way round {pair.n_back} of {pair.n_answer}" if pair.n_back else ""
        place = "nothing but the root" if pair.meeting == 0 else tree.label(pair.meeting)
        pictures = ""
        if report.images is not None:
            row = int(pair.rows[0])
            sure = answers.path_probability[row, -1]
            pictures = (
                '<div class="two"><figure>'
                f"{_picture(report, row)}<figcaption>is {text(truth)}, was taken for "
                f"{text(answer)} (probability {number(sure, 2)})</figcaption></figure>"
            )
            if typical.size:
                best = int(typical[answers.path_probability[typical, -1].argmax()])
                pictures += (
                    f"<figure>{_picture(report, best)}<figcaption>really is {text(answer)}"
                    "</figcaption></figure>"
                )
            pictures += "</div>"
        items.append(
            f"<li><h3>{text(truth)} → {text(answer)}</h3><p>{pair.n_mistaken} of {pair.n_truth}"
            f"{text(back)}. They share {text(place)}.</p>{pictures}</li>"
        )
    return f'<ul class="pairs">{"".join(items)}</ul>{_classes(report)}'


def _below(tree: Taxonomy, node: int, others: IntArray) -> BoolArray:
    """Tell which nodes are a node or lie under it."""
    start, stop = tree.leaf_start[node], tree.leaf_stop[node]
    return np.asarray((tree.leaf_start[others] >= start) & (tree.leaf_stop[others] <= stop))


def _classes(report: EvaluationReport) -> str:
    tree = report.taxonomy
    poor = [row for row in report.classes if row.n_right < row.n_samples][:_MAX_CLASSES]
    if not poor:
        return ""
    is_known = poor[0].n_training is not None
    rows = [
        [
            text(tree.label(row.node)),
            f"{row.n_samples:,}",
            f"<strong>{row.n_samples - row.n_right:,}</strong>",
            bar(1 - row.n_right / row.n_samples),
            text(", ".join(str(tree.label(node)) for node in row.taken_for[:3])),
            *([f"{row.n_training:,}"] if is_known else []),
        ]
        for row in poor
    ]
    head = ["class", "images", "wrong", "", "taken for"]
    head += ["training images"] if is_known else []
    return table("Classes with the most mistakes.", head, rows, left=(3, 4))


def _decisions(report: EvaluationReport) -> str:
    tree = report.taxonomy
    rows = []
    has_belief = report.answers.opinion is not None
    for row in report.decisions[:8]:
        if not row.n_passing:
            continue
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
    head = ["decision at", "images that pass", "first errors", "", "of these"]
    head += ["belief that stops here"] if has_belief else []
    return (
        "<p>An answer goes down the tree one decision at a time. Here is where it first left the "
        "true path: the first places to look at, and to label more images for.</p>"
        + table(
            "Decisions with the most first errors.",
            [*head, "above all between"],
            rows,
            left=(3, 5 + has_belief),
        )
        + _plan(report)
    )


def _plan(report: EvaluationReport) -> str:
    plan = report.plan
    if plan is None or report.images is None:
        return ""
    items = "".join(
        f"<figure>{_picture(report, int(row))}<figcaption>{text(_asked(report, node))} "
        f"{percent(doubt)} of the belief stops early</figcaption></figure>"
        for row, node, doubt in zip(plan.rows, plan.nodes, plan.doubt, strict=True)
    )
    return (
        "<h3>Images with the most doubt</h3><p>They differ in where their belief stops, and show "
        "what is unclear to the model. As a way to choose what to label, doubt was no better than "
        "chance in our own study: mix them with others.</p>"
        f'<div class="row">{items}</div>'
    )


def _asked(report: EvaluationReport, node: Any) -> str:
    tree = report.taxonomy
    number_of = tree.node(node)
    return "Which class at all?" if number_of == 0 else f"Which kind of {tree.label(number_of)}?"


def _images(report: EvaluationReport) -> str:
    chosen = report.chosen
    parts = [
        (
            "The surest mistakes",
            chosen.surest_mistakes,
            "Sure and yet against the label: first look whether the label is right. Of each "
            "confusion at most one.",
        ),
        ("The least certain", chosen.least_sure, "Here the model itself would rather not say."),
        ("The most certain", chosen.surest, "Of each class at most one."),
    ]
    return "".join(
        f"<h3>{title}</h3><p>{note}</p>" + "".join(_case(report, int(row)) for row in rows)
        for title, rows, note in parts
        if len(rows)
    )


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
    shown = _picture(report, row) if report.images is not None else ""
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


def _picture(report: EvaluationReport, row: int) -> str:
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
                f'<span class="in" style="padding-left:{1.1 * line.depth:.1f}em">'
                f"{text(line.text)}{star}</span>",
                bar(line.mass),
                number(line.mass, 2),
                span(line.belief, line.probability, line.plausibility),
                f'<span class="all">{_three(line)}</span>',
                number(line.vacuity, 2) if np.isfinite(line.vacuity) else "",
            ]
        )
        kinds.append("label" if star else "folded" if line.is_folded else "")
    head = ["class", "mass", "", "belief – probability – plausibility", "", "vacuity"]
    caption = "The opinion on the tree" + (" (★ the label)." if label is not None else ".")
    return table(caption, head, rows, kind="tree", row_kinds=kinds, left=(1, 3, 4))


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


def _problems(report: EvaluationReport) -> str:
    if not report.problems:
        return "<p>None found.</p>"
    items = "".join(
        f"<li><strong{_kind(problem.is_serious)}>{text(problem.title)}.</strong> "
        f"{text(problem.meaning)}{folded('Which?', problem.names)}</li>"
        for problem in report.problems
    )
    return f'<ul class="problems">{items}</ul>'


def _kind(is_serious: bool) -> str:
    return ' class="bad"' if is_serious else ""


_WORDS = {
    "level": "All classes at one depth of the tree. A leaf that ends above a level stands for "
    "itself there.",
    "95 % interval": "Where the share of right answers would lie for many more images of the same "
    "kind. Wide means: too few images to know.",
    "ECE": "Expected calibration error: how far promised and kept accuracy are apart on average, "
    "from 0 to 1.",
    "NLL": "Negative log-likelihood of the true class, in nats: punishes sure mistakes most.",
    "hedge": "Answer a coarser class when the fine one is not probable enough. The threshold comes "
    "from labelled images, and the promise holds on average for images like those.",
}
_OPINION_WORDS = {
    "mass": "Belief that came as far as this class and no further. All masses of an image add up "
    "to 1.",
    "belief, plausibility": "What is committed to a class, and what is not committed against it. "
    "The probability lies between them by construction; they are no confidence interval.",
    "vacuity": "The share of belief that the decision at this class did not commit. Not a "
    "probability of error, not a measure of missing data, and not comparable between classes with "
    "different numbers of children.",
}


def _words(report: EvaluationReport) -> str:
    words = _WORDS | (_OPINION_WORDS if report.answers.opinion is not None else {})
    items = "".join(f"<dt>{text(word)}</dt><dd>{text(said)}</dd>" for word, said in words.items())
    return f"<dl>{items}</dl>"


def _about(report: EvaluationReport) -> str:
    items = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in report.facts.items())
    facts = f"<dl>{items}</dl>" if items else ""
    return f"<footer>{facts}<p>Made by skh2edl {text(__version__)}.</p></footer>"
