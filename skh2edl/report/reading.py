"""The figures in plain sentences: what to trust, and what is confused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from .findings import Confusion, DecisionFigures, LevelFigures, worst_rate
from .hedging import HedgeFigures
from .mended import Mended
from .problems import DataProblem

# Calibration errors (ECE) up to which probabilities are called good, and above which poor.
GOOD_ECE, POOR_ECE = 0.03, 0.1
# A level is used with care down to so much below what is called trustworthy.
CARE = 0.15
_FEW = 50
# Classes of a level that are named beside it.
_MOST_NAMED = 6
# Places that hold equally much belief and are named.
_MOST_EQUAL = 3


class Question(NamedTuple):
    """A question of a reader, and the answer that the figures give.

    Attributes
    ----------
    question : str
        The question.
    answer : str
        In a few words.
    sentences : tuple of str
        Why; or what to do, one after the other.
    are_steps : bool, default=False
        Whether the sentences are steps to take in this order.
    """

    question: str
    answer: str
    sentences: tuple[str, ...]
    are_steps: bool = False


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
    tree: Taxonomy,
    levels: Sequence[LevelFigures],
    hedges: Sequence[HedgeFigures],
    bar: float,
    mended: Mended | None = None,
) -> Question:
    """Answer which level can be trusted.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    levels : sequence of LevelFigures
        From the top.
    hedges : sequence of HedgeFigures
        What answers that may stop early would be.
    bar : float
        Share of right answers that is called enough.
    mended : Mended, default=None
        The figures without the faults of the data, where there are any.
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
        answer = f"Down to {_level(trusted)}{_members(tree, trusted)}, not below"
    if trusted is not None:
        sentences.append(f"At {_level(trusted)}, {_right(trusted)}.")
    for level in below:
        sentences.append(f"At {_level(level)}, {_right(level)}{_verdict(level, bar)}.")
    sentences.append(
        f"(“Trust” means here: at least {percent(bar)} right by the lower end of the interval; "
        f"“with care”: at least {percent(max(bar - CARE, 0))} right.)"
    )
    sentences.append(_calibration(measured[-1]))
    if any(hedge.n_samples for hedge in hedges):
        sentences.append(_hedge(hedges, mended))
    if mended is not None:
        sentences.append(_without_fault(levels, hedges, bar, mended))
    return Question(question, answer, tuple(sentences))


def _members(tree: Taxonomy, level: LevelFigures) -> str:
    if level.n_classes > _MOST_NAMED:
        return ""
    return f" ({', '.join(str(tree.names[n]) for n in tree.nodes_at_depth(level.depth))})"


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


def verdict_of(level: LevelFigures, bar: float) -> str:
    """Return "trust", "with care" or "not alone".

    Parameters
    ----------
    level : LevelFigures
        One level, with samples.
    bar : float
        Share of right answers that is called enough.
    """
    if level.low >= bar:
        return "trust"
    return "with care" if level.accuracy >= bar - CARE else "not alone"


def _verdict(level: LevelFigures, bar: float) -> str:
    if level.accuracy >= bar:
        return ": perhaps enough, but too few images to be sure"
    if verdict_of(level, bar) == "with care":
        return ": use with care"
    return ": do not rely on a single answer"


def _calibration(level: LevelFigures) -> str:
    gap = level.confidence - level.accuracy
    what = f"The probabilities at {_level(level)}"
    kept = (
        f"on average they promise {percent(level.confidence)}, and {percent(level.accuracy)} are "
        "right"
    )
    if level.ece <= GOOD_ECE:
        return f"{what} can be taken at face value (ECE {level.ece:.3f}): {kept}."
    off = f"ECE {level.ece:.3f}; up to {GOOD_ECE} is good"
    if abs(gap) > GOOD_ECE:
        return f"{what} are {'over-confident' if gap > 0 else 'too modest'} ({off}): {kept}."
    how_far = "far off" if level.ece > POOR_ECE else "a little off"
    return (
        f"{what} are {how_far} ({off}): {kept}, but some are too high and others too low (see the "
        "diagrams)."
    )


def _hedge(hedges: Sequence[HedgeFigures], mended: Mended | None) -> str:
    chosen = _usual(hedges)
    nothing, leaf = chosen.shares[0], chosen.shares[-1]
    silent = f" and {percent(nothing)} say nothing, which counts as right" if nothing else ""
    broken = ""
    if is_missed(chosen):
        fault = ""
        if mended is not None and _usual(mended.hedges).accuracy > chosen.accuracy:
            fault = " The fault of the data is a part of it (see below)."
        broken = (
            f" That is less than the {percent(chosen.target)} promised. It may be that the images "
            "that set the threshold were too few, or that they differ from the ones evaluated "
            f"here.{fault}"
        )
    return (
        f"If answers may stop at a coarser class when in doubt (the {percent(chosen.target)} "
        f"hedge), {percent(chosen.accuracy)} of them are right: {percent(leaf)} still name "
        f"a single leaf{silent}.{broken}"
    )


def _usual(hedges: Sequence[HedgeFigures]) -> HedgeFigures:
    return min(hedges, key=lambda hedge: (not hedge.n_samples, abs(hedge.target - 0.95)))


def is_missed(hedge: HedgeFigures) -> bool:
    """Tell whether a promise was surely not kept.

    Parameters
    ----------
    hedge : HedgeFigures
        One promise.
    """
    return bool(hedge.n_samples and hedge.high < hedge.target)


def _without_fault(
    levels: Sequence[LevelFigures], hedges: Sequence[HedgeFigures], bar: float, mended: Mended
) -> str:
    """Say what hangs on the faults of the data."""
    changes, verdicts = [], []
    for before, after in zip(levels, mended.levels, strict=True):
        if not before.n_samples or not after.n_samples:
            continue
        if percent(before.accuracy) != percent(after.accuracy):
            changes.append(f"{_instead(before, after)} at {_level(before)}")
        if (verdict := verdict_of(after, bar)) != verdict_of(before, bar):
            verdicts.append(f"at {_level(before)} “{verdict}”")
    if all(any(each.n_samples for each in part) for part in (hedges, mended.hedges)):
        first, second = _usual(hedges), _usual(mended.hedges)
        if percent(first.accuracy) != percent(second.accuracy):
            changes.append(f"{_instead(first, second)} with the {percent(first.target)} hedge")
    images = "1 image" if mended.n_samples == 1 else f"{mended.n_samples:,} images"
    start = f"Without the fault of the data ({images}, see what to label next)"
    hangs = "No verdict would change."
    if verdicts:
        hangs = f"The verdict would be {listed(verdicts)}."
    if not changes:
        return f"{start} these figures would be the same to the percent. {hangs}"
    return f"{start} the shares right would be {listed(changes)}. {hangs}"


def _instead(before: LevelFigures | HedgeFigures, after: LevelFigures | HedgeFigures) -> str:
    return f"{percent(after.accuracy)} (not {percent(before.accuracy)})"


def which_classes(
    tree: Taxonomy,
    levels: Sequence[LevelFigures],
    confusions: Sequence[Confusion],
    decisions: Sequence[DecisionFigures],
    kept: Sequence[float],
    n_mistakes: int,
    n_labelled: int,
    problems: Sequence[DataProblem] = (),
) -> Question:
    """Answer which classes are confused.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    levels : sequence of LevelFigures
        From the top.
    confusions : sequence of Confusion
        All, the most frequent first.
    decisions : sequence of DecisionFigures
        The worst first.
    kept : sequence of float
        Share of the mistakes whose node of each level is still right.
    n_mistakes, n_labelled : int
        Answers that contradict their label, and labelled samples.
    problems : sequence of DataProblem, default=()
        Of which a class in two places explains its own confusion.
    """
    question = "Which classes are confused?"
    if not n_mistakes:
        return Question(question, "None", (f"All {n_labelled:,} answers agree with the labels.",))
    real = [pair for pair in confusions if not is_one_name(tree, pair, problems)]
    sentences = []
    if not real:
        answer = "None but one class in two places"
    elif real[0].n_mistaken + real[0].n_back < 2:
        answer = "No two classes more than once"
    else:
        answer = f"Most mistakes between {tree.label(real[0].truth)} and "
        answer += f"{tree.label(real[0].answer)}"
    sentences += [pair_sentence(tree, pair) for pair in real[:3]]
    if len(real) > 1:
        sentences.append(_order(tree, real))
    n_explained = sum(pair.n_mistaken + pair.n_back for pair in confusions)
    n_explained -= sum(pair.n_mistaken + pair.n_back for pair in real)
    if n_explained:
        sentences.append(
            f"Not in this list: {_count(n_explained, 'mistake')} between two places of one name, "
            "a fault of the data (see what to label next)."
        )
    worst = decisions[0]
    if worst.n_first_errors > 1 and tree.n_branching > 1:
        sentences.append(
            f"{worst.n_first_errors:,} of the {n_mistakes:,} mistakes take the wrong branch at "
            f"{place(tree, worst.node)}, more than anywhere else."
        )
    shares = [
        f"{percent(share)} are still right at {_level(level)}"
        for level, share in zip(levels[:-1], kept[:-1], strict=True)
        if np.isfinite(share)
    ]
    if shares:
        sentences.append(f"Of the {_count(n_mistakes, 'mistake')} in all, {listed(shares)}.")
    else:
        count = "is 1 mistake" if n_mistakes == 1 else f"are {n_mistakes:,} mistakes"
        sentences.append(f"There {count} on {n_labelled:,} images in all.")
    return Question(question, answer, tuple(sentences))


def _order(tree: Taxonomy, pairs: Sequence[Confusion]) -> str:
    """Say how the pairs are ordered, and which one would be first by its share."""
    rule = "(Ordered by the number of mistakes in both directions"
    by_rate = worst_rate(pairs)
    if by_rate is None or by_rate is pairs[0]:
        return f"{rule}.)"
    if any(pair is by_rate for pair in pairs[:3]):
        names = listed([str(tree.label(node)) for node in (by_rate.truth, by_rate.answer)])
        return f"{rule}; by share {names} are the worst.)"
    return f"{rule}.) By share the worst: {pair_sentence(tree, by_rate)}"


def is_one_name(tree: Taxonomy, pair: Confusion, problems: Sequence[DataProblem]) -> bool:
    """Tell whether a pair is a class that was found to stand in two places.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    pair : Confusion
        Two classes.
    problems : sequence of DataProblem
        What was found.
    """
    divided = {n for each in problems if each.kind == "divided_classes" for n in each.nodes}
    return {pair.truth, pair.answer} <= divided and bool(
        tree.names[pair.truth] == tree.names[pair.answer]
    )


def pair_sentence(tree: Taxonomy, pair: Confusion) -> str:
    """Say how often two classes are taken for each other, with both rates.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    pair : Confusion
        The two classes.
    """
    truth, answer = tree.label(pair.truth), tree.label(pair.answer)
    back = ""
    if pair.n_back:
        back = f", and {share_of(pair.n_back, pair.n_answer)} the other way round"
    images = "image was" if pair.n_truth == 1 else "images were"
    return (
        f"{share_of(pair.n_mistaken, pair.n_truth, f'{truth} {images}')} taken for {answer}{back}."
    )


def share_of(part: int, whole: int, of_what: str = "") -> str:
    """Write a count, what it is a part of, and the share.

    Examples
    --------
    >>> share_of(18, 19), share_of(1, 4, "lynxes")
    ('18 of 19 (95 %)', '1 of 4 (25 %) lynxes')
    """
    what = f" {of_what}" if of_what else ""
    return f"{part:,} of {whole:,} ({percent(part / whole)}){what}"


def place(tree: Taxonomy, node: int) -> str:
    """Name a node, the root by what it is."""
    if node == 0:
        return f"the top of the tree ({tree.root_name})"
    return str(tree.label(node))


def where_belief_stops(tree: Taxonomy, stops: npt.ArrayLike) -> str:
    """Say how much of the belief in one image reaches no leaf, and where the largest part stops.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    stops : array-like of shape (n_branching,)
        Belief that stops at each branching node.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> where_belief_stops(tree, [0.1, 0.4, 0.2])
    '70 % of the belief reaches no leaf, and most of that (40 %) stops at cat'
    >>> where_belief_stops(tree, [0.2, 0.3, 0.2])
    '70 % of the belief reaches no leaf; the largest part (30 %) stops at cat'
    """
    parts = np.asarray(stops, dtype=np.float64)
    said = f"{percent(parts.sum())} of the belief reaches no leaf"
    largest = parts.max()
    # Parts that are written alike are alike for the reader.
    equal = [i for i in np.argsort(-parts, kind="stable") if percent(parts[i]) == percent(largest)]
    places = [place(tree, int(tree.branching_nodes[i])) for i in equal]
    if len(places) > _MOST_EQUAL:
        return f"{said}; it stops at many places"
    if len(places) > 1:
        return f"{said}; the largest parts ({percent(largest)} each) stop at {listed(places)}"
    if largest > parts.sum() / 2:
        return f"{said}, and most of that ({percent(largest)}) stops at {places[0]}"
    return f"{said}; the largest part ({percent(largest)}) stops at {places[0]}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
