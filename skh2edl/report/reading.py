"""The figures in plain sentences: what to trust, what is confused, what to label next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..taxonomy import Taxonomy
from .findings import ClassFigures, Confusion, DecisionFigures, LevelFigures
from .hedging import HedgeFigures
from .problems import DataProblem

# Promised minus kept, above which probabilities are called wrong rather than a little off.
_MISCALIBRATED = 0.03
_FEW = 50
_CARE = 0.15


class Question(NamedTuple):
    """A question of a reader, and the answer that the figures give.

    Attributes
    ----------
    question : str
        The question.
    answer : str
        In a few words.
    sentences : tuple of str
        Why.
    """

    question: str
    answer: str
    sentences: tuple[str, ...]


def percent(share: float) -> str:
    """Write a share as whole percents, never rounding something to nothing or to all.

    Examples
    --------
    >>> percent(0.5), percent(0.999), percent(1.0), percent(0.001), percent(float("nan"))
    ('50 %', 'over 99 %', '100 %', 'under 1 %', '-')
    """
    if np.isnan(share):
        return "-"
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def interval(low: float, high: float) -> str:
    """Write an interval of shares."""
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Write "a, b and c".

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    shown = list(parts)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def trusted_level(levels: Sequence[LevelFigures], bar: float) -> LevelFigures | None:
    """Return the deepest level down to which every level is surely above the bar.

    Parameters
    ----------
    levels : sequence of LevelFigures
        From the top.
    bar : float
        Share of right answers that the lower end of the interval must reach.
    """
    found = None
    for level in levels:
        if not level.n_samples:
            continue
        if level.low < bar:
            break
        found = level
    return found


def which_level(
    levels: Sequence[LevelFigures], hedges: Sequence[HedgeFigures], bar: float
) -> Question:
    """Answer which level can be trusted.

    Parameters
    ----------
    levels : sequence of LevelFigures
        From the top.
    hedges : sequence of HedgeFigures
        What answers that may stop early would be.
    bar : float
        Share of right answers that is called enough.
    """
    question = "Which level can I trust?"
    measured = [level for level in levels if level.n_samples]
    if not measured:
        return Question(question, "Not measured", ("No evaluated image has a label.",))
    trusted = trusted_level(measured, bar)
    below = [level for level in measured if trusted is None or level.depth > trusted.depth]
    sentences = []
    if trusted is None:
        answer = "None without a second look"
        if below[0].accuracy >= bar:
            answer = f"Perhaps {_level(below[0])}: too few images to be sure"
    elif not below:
        answer = f"All levels, down to {_level(trusted)}"
    else:
        answer = f"Down to {_level(trusted)}, not below"
    if trusted is not None:
        sentences.append(f"At {_level(trusted)}, {_right(trusted)}.")
    for level in below:
        sentences.append(f"At {_level(level)}, {_right(level)}{_verdict(level, bar)}.")
    sentences.append(
        f"(“Trust” means here: at least {percent(bar)} right, by the lower end of the interval.)"
    )
    sentences.append(_calibration(measured[-1]))
    if any(hedge.n_samples for hedge in hedges):
        sentences.append(_hedge(hedges))
    return Question(question, answer, tuple(sentences))


def _level(level: LevelFigures) -> str:
    return level.name if level.name.startswith("level ") else f"“{level.name}”"


def _right(level: LevelFigures) -> str:
    few = ""
    if level.n_samples < _FEW:
        few = ", a small sample"
    return (
        f"{percent(level.accuracy)} of the answers are right ({level.n_right:,} of "
        f"{level.n_samples:,}; 95 % interval {interval(level.low, level.high)}{few})"
    )


def _verdict(level: LevelFigures, bar: float) -> str:
    if level.accuracy >= bar:
        return ": perhaps enough, but too few images to be sure"
    if level.accuracy >= bar - _CARE:
        return ": use with care"
    return ": do not rely on a single answer"


def _calibration(level: LevelFigures) -> str:
    gap = level.confidence - level.accuracy
    said = f"on average they promise {percent(level.confidence)}"
    kept = f"{percent(level.accuracy)} are right"
    if abs(gap) <= _MISCALIBRATED:
        return (
            f"The probabilities at {_level(level)} can be taken at face value on average: "
            f"{said}, and {kept}."
        )
    verdict = "over-confident" if gap > 0 else "too modest"
    return f"The probabilities at {_level(level)} are {verdict}: {said}, and {kept}."


def _hedge(hedges: Sequence[HedgeFigures]) -> str:
    chosen = min((each for each in hedges if each.n_samples), key=lambda h: abs(h.target - 0.95))
    nothing, leaf = chosen.shares[0], chosen.shares[-1]
    silent = f" and {percent(nothing)} do not commit to anything" if nothing else ""
    broken = ""
    if chosen.high < chosen.target:
        broken = (
            " That is less than promised: by chance, if few images set the threshold, or because "
            "those are not like these."
        )
    return (
        f"If answers may stop at a coarser class when in doubt (the {percent(chosen.target)} "
        f"hedge), {percent(chosen.accuracy)} of them are right: {percent(leaf)} still name "
        f"a single leaf{silent}.{broken}"
    )


def which_classes(
    tree: Taxonomy,
    levels: Sequence[LevelFigures],
    confusions: Sequence[Confusion],
    kept: Sequence[float],
    n_mistakes: int,
    n_labelled: int,
) -> Question:
    """Answer which classes are confused.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    levels : sequence of LevelFigures
        From the top.
    confusions : sequence of Confusion
        The most frequent first.
    kept : sequence of float
        Share of the mistakes whose node of each level is still right.
    n_mistakes, n_labelled : int
        Answers that contradict their label, and labelled samples.
    """
    question = "Which classes are confused?"
    if not n_mistakes:
        return Question(question, "None", (f"All {n_labelled:,} answers agree with the labels.",))
    first = confusions[0]
    if first.n_mistaken + first.n_back < 2:
        answer = "No two classes more than once"
    else:
        answer = f"Most of all {tree.label(first.truth)} and {tree.label(first.answer)}"
    sentences = [_pair(tree, pair) for pair in confusions[:3]]
    shares = [
        f"{percent(share)} are still right at {_level(level)}"
        for level, share in zip(levels[:-1], kept[:-1], strict=True)
        if np.isfinite(share)
    ]
    if shares:
        count = "mistake" if n_mistakes == 1 else "mistakes"
        sentences.append(f"Of the {n_mistakes:,} {count} in all, {listed(shares)}.")
    else:
        count = "is 1 mistake" if n_mistakes == 1 else f"are {n_mistakes:,} mistakes"
        sentences.append(f"There {count} on {n_labelled:,} images in all.")
    return Question(question, answer, tuple(sentences))


def _pair(tree: Taxonomy, pair: Confusion) -> str:
    truth, answer = tree.label(pair.truth), tree.label(pair.answer)
    back = ""
    if pair.n_back:
        back = f", and {pair.n_back:,} of {pair.n_answer:,} the other way round"
    images = "image was" if pair.n_truth == 1 else "images were"
    return f"{pair.n_mistaken:,} of {pair.n_truth:,} {truth} {images} taken for {answer}{back}."


def what_to_label(
    tree: Taxonomy,
    decisions: Sequence[DecisionFigures],
    classes: Sequence[ClassFigures],
    problems: Sequence[DataProblem],
    n_mistakes: int,
) -> Question:
    """Answer what to label next.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    decisions : sequence of DecisionFigures
        The worst first.
    classes : sequence of ClassFigures
        Those with the most mistakes first.
    problems : sequence of DataProblem
        What is wrong with the data.
    n_mistakes : int
        Answers that contradict their label.
    """
    question = "What should I label next?"
    sentences = []
    by_kind = {problem.kind: problem for problem in problems}
    if "divided_classes" in by_kind:
        problem = by_kind["divided_classes"]
        sentences.append(f"First of all look at {_some(problem.names)}: {problem.title}.")
    worst = [row for row in decisions if row.n_first_errors][:2]
    if worst:
        answer = f"More images of {_what(tree, worst[0])}"
        for row in worst:
            sentences.append(_where(tree, row, n_mistakes))
        poor = [row for row in classes if row.n_right < row.n_samples][:3]
        if poor:
            sentences.append(f"Most mistakes by class: {listed([_class(tree, r) for r in poor])}.")
    else:
        vague = max(decisions, key=lambda row: np.nan_to_num(row.stopping))
        if np.isnan(vague.stopping):
            answer = "Nothing stands out"
        else:
            answer = f"More images under {_place(tree, vague.node)}"
            sentences.append(
                f"No answer is wrong, but {percent(vague.stopping)} of all belief stops at "
                f"{_place(tree, vague.node)}, more than anywhere else."
            )
    for kind in ("leaves_without_training", "untaught_nodes"):
        if kind in by_kind:
            problem = by_kind[kind]
            names = _some(problem.names)
            sentences.append(f"{problem.title}, so label some: {names}.")
    if "half_way" in by_kind:
        sentences.append(f"{by_kind['half_way'].title}: finishing them is cheaper than new images.")
    if n_mistakes:
        sentences.append(
            "Before that, look at the surest mistakes below: some may be wrong labels. Where you "
            "cannot tell two classes apart yourself, more images will not help: answer one level "
            "higher, or merge them."
        )
    return Question(question, answer, tuple(sentences))


def _class(tree: Taxonomy, row: ClassFigures) -> str:
    trained = ""
    if row.n_training is not None:
        trained = f"; {row.n_training:,} training image{'' if row.n_training == 1 else 's'}"
    n_wrong = row.n_samples - row.n_right
    return f"{tree.label(row.node)} ({n_wrong:,} of {row.n_samples:,} wrong{trained})"


def _what(tree: Taxonomy, row: DecisionFigures) -> str:
    names = [str(tree.label(child)) for child in row.children[:3]]
    return listed(names)


def _where(tree: Taxonomy, row: DecisionFigures, n_mistakes: int) -> str:
    belief = ""
    if np.isfinite(row.stopping):
        belief = f"; {percent(row.stopping)} of all belief stops there uncommitted"
    are = "is" if row.n_first_errors == 1 else "are"
    share = f"{row.n_first_errors:,} of the {n_mistakes:,} mistakes {are}"
    if row.n_first_errors == n_mistakes:
        share = "The only mistake is" if n_mistakes == 1 else f"All {n_mistakes:,} mistakes are"
    return (
        f"{share} first made at {_place(tree, row.node)}, above all between {_what(tree, row)}"
        f"{belief}."
    )


def _place(tree: Taxonomy, node: int) -> str:
    if node == 0:
        return f"the top of the tree ({tree.root_name})"
    return str(tree.label(node))


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most:,} more")
    return listed(shown)
