"""The page of a report: one HTML file without scripts, without any address but its own."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from .. import __version__
from . import cases, pairs, sections
from ._html import text, word_id
from .reading import listed

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

# What the page may load: nothing but the pictures and the style inside it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
# Of each branch in the sketch of the tree.
_MAX_BRANCHES = 40


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
    parts = [
        ("levels", "How good is each level?", sections.levels(report)),
        ("reliability", "Do the probabilities keep their promise?", sections.reliability(report)),
        ("depth", "How far down does the evidence carry?", sections.depth(report)),
        ("hedge", "What if answers may stop early?", sections.hedge(report)),
        ("confusions", "What is confused with what?", pairs.confusions(report)),
        ("decisions", "Where do the answers go wrong?", sections.decisions(report)),
        ("images", "Images to look at", cases.images(report)),
        ("problems", "Problems in the data", sections.problems(report)),
        ("words", "How to read this page", _words(report)),
    ]
    shown = [part for part in parts if part[2]]
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
        f"({levels}).</p>{_sketch(report)}"
    )


def _sketch(report: EvaluationReport) -> str:
    """Return the top two levels of the tree, folded away until asked for."""
    tree = report.taxonomy
    n_leaves = tree.leaf_stop - tree.leaf_start

    def named(node: int) -> str:
        count = f" ({n_leaves[node]:,} leaves)" if n_leaves[node] > 1 else ""
        return f"{text(tree.names[node])}{count}"

    def children(node: int) -> list[int]:
        first = int(tree.first_child[node])
        return list(range(first, first + int(tree.n_children[node])))

    def cut(parts: list[str], separator: str, more: str) -> str:
        left_off = len(parts) - _MAX_BRANCHES
        return separator.join(parts[:_MAX_BRANCHES]) + (
            more.format(f"and {left_off:,} more") if left_off > 0 else ""
        )

    items = []
    for branch in children(int(tree.last_of_chain[0])):
        below = cut([named(node) for node in children(branch)], ", ", ", {}")
        items.append(f"<li><strong>{named(branch)}</strong>{': ' if below else ''}{below}</li>")
    return (
        '<details class="sketch"><summary>The top of the tree</summary>'
        f"<ul>{cut(items, '', '<li>{}</li>')}</ul></details>"
    )


def _reading(report: EvaluationReport) -> str:
    cards = []
    for question in report.questions:
        tag = "li" if question.are_steps else "p"
        said = "".join(f"<{tag}>{text(sentence)}</{tag}>" for sentence in question.sentences)
        cards.append(
            f'<section class="card"><h2>{text(question.question)}</h2>'
            f'<p class="answer">{text(question.answer)}</p>'
            + (f"<ol>{said}</ol>" if question.are_steps else said)
            + "</section>"
        )
    return "".join(cards)


def _warning(report: EvaluationReport) -> str:
    n_serious = sum(problem.is_serious for problem in report.problems)
    if not n_serious:
        return ""
    steps = "step 1" if n_serious == 1 else f"steps 1 to {n_serious}"
    return (
        '<p><strong class="bad">Read the figures with care:</strong> some may be wrong until '
        f"{steps} of what to label next {'is' if n_serious == 1 else 'are'} done. "
        '<a href="#problems">See the problems in the data.</a></p>'
    )


_WORDS = {
    "level": "All classes at one depth of the tree. A leaf that ends above a level stands for "
    "itself there.",
    "95 % interval": "Where the share of right answers would lie for many more images of the same "
    "kind. Wide means: too few images to know.",
    "ECE": "Expected calibration error: how far promised and kept accuracy are apart on average, "
    "from 0 (good) to 1.",
    "NLL": "Negative log-likelihood of the true class, in nats: 0 is best, and sure mistakes are "
    "punished most.",
    "hedge": "Answer a coarser class when the fine one is not probable enough. The threshold comes "
    "from labelled images, and the promise holds on average for images like those. Saying nothing "
    "counts as right.",
    "threshold": "Probability that an answer must reach. Below it, the answer goes up to the next "
    "coarser class, in the end to none. It can be lower than the promise, because most answers "
    "are surer than the least sure one that it lets pass.",
}
_OPINION_WORDS = {
    "mass": "Belief that came as far as this class and no further: it stops there, not committed "
    "to anything finer. All masses of an image add up to 1.",
    "base rates": "How probable the classes are before the image is seen. They share out the "
    "belief that stopped, where a probability of a finer class is asked for.",
    "belief, plausibility": "What is committed to a class, and what is not committed against it. "
    "The probability lies between them by construction; they are no confidence interval.",
    "vacuity": "The share of belief that the decision at this class did not commit. Not a "
    "probability of error, not a measure of missing data, and not comparable between classes with "
    "different numbers of children.",
}


def _words(report: EvaluationReport) -> str:
    words = _WORDS | (_OPINION_WORDS if report.answers.opinion is not None else {})
    items = "".join(
        f'<dt id="{word_id(word)}">{text(word)}</dt><dd>{text(said)}</dd>'
        for word, said in words.items()
    )
    return f"<dl>{items}</dl>"


def _about(report: EvaluationReport) -> str:
    items = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in report.facts.items())
    facts = f"<dl>{items}</dl>" if items else ""
    return f"<footer>{facts}<p>Made by skh2edl {text(__version__)}.</p></footer>"
