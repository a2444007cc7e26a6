"""The figures in plain sentences: what to trust, what is confused, and what to label next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..taxonomy.taxonomy import Taxonomy
from .figures import (
    ClassFigures,
    Confusion,
    DecisionFigures,
    HedgeFigures,
    LevelFigures,
    average_wrong,
    classes_to_collect,
    worst_rate,
)
from .problems import DataProblem
from .wording import counted, interval, listed, part_of, percent

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

# Calibration errors (ECE) up to which probabilities are called good, and above which poor.
GOOD_ECE, POOR_ECE = 0.03, 0.1
# A level is used with care down to so much below what is called trustworthy.
CARE = 0.15
# Samples below which a level says that they are few.
_FEW = 50
# Classes of a level that are named.
_MOST_NAMED = 6
# Classes to collect that are named.
_MOST_CLASSES = 3

# The headline where a fault of this kind is the first thing to mend.
_FIRST = {
    "seen_in_training": "First take out the images that it was trained on",
    "contradicting_copies": "First settle the labels of duplicates",
    "divided_classes": "First bring {} to one place of the tree",
    "leaves_without_training": "First label images of {} for training",
    "untaught_nodes": "First label images under {} for training",
}


class Question(NamedTuple):
    """A question of a reader, and what the figures answer.

    Attributes
    ----------
    question : str
        The question.
    answer : str
        In a few words.
    sentences : tuple of str
        The reasons, or what to do.
    are_steps : bool, default=False
        Whether the sentences are steps to take in this order.
    """

    question: str
    answer: str
    sentences: tuple[str, ...]
    are_steps: bool = False


# Which level can I trust? ------------------------------------------------------------------------


def which_level(report: EvaluationReport) -> Question:
    """Answer which level can be trusted."""
    question, bar = "Which level can I trust?", report.trust
    measured = [level for level in report.levels if level.n_samples]
    if not measured:
        return Question(question, "Not measured", ("No evaluated image has a label.",))
    trusted = trusted_level(measured, bar)
    below = [level for level in measured if trusted is None or level.depth > trusted.depth]
    sentences = []
    if trusted is not None:
        answer = f"All levels, down to {_level(trusted)}"
        if below:
            answer = f"Down to {_level(trusted)}{_members(report.taxonomy, trusted)}, not below"
        sentences.append(f"At {_level(trusted)}, {_right(trusted)}.")
    elif below[0].accuracy >= bar:
        answer = f"Perhaps {_level(below[0])}: too few images to be sure"
    else:
        answer = "None without a second look"
    sentences += [f"At {_level(level)}, {_right(level)}: {_use(level, bar)}." for level in below]
    sentences.append(
        f"(“Trust” means here: at least {percent(bar)} right by the lower end of the interval; "
        f"“with care”: at least {percent(max(bar - CARE, 0))} right.)"
    )
    sentences.append(_calibration(measured[-1]))
    if report.hedges[0].n_samples:
        sentences.append(_hedge(report))
    if report.mended is not None:
        sentences.append(_without_fault(report))
    return Question(question, answer, tuple(sentences))


def trusted_level(levels: Sequence[LevelFigures], bar: float) -> LevelFigures | None:
    """Return the deepest level down to which every level is surely above the bar.

    Parameters
    ----------
    levels : sequence of LevelFigures
        From the top.
    bar : float
        Accuracy that the lower end of the interval must reach.
    """
    found = None
    for level in levels:
        if level.n_samples and level.low < bar:
            break
        found = level if level.n_samples else found
    return found


def verdict_of(level: LevelFigures, bar: float) -> str:
    """Return "trust", "with care" or "not alone" for a level with samples."""
    if level.low >= bar:
        return "trust"
    return "with care" if level.accuracy >= bar - CARE else "not alone"


def is_missed(hedge: HedgeFigures) -> bool:
    """Tell whether a guarantee was surely not kept."""
    return bool(hedge.n_samples and hedge.high < hedge.target)


def _members(tree: Taxonomy, level: LevelFigures) -> str:
    if level.n_classes > _MOST_NAMED:
        return ""
    return f" ({', '.join(str(tree.names[n]) for n in tree.nodes_at_depth(level.depth))})"


def _level(level: LevelFigures) -> str:
    return level.name if level.name.startswith("level ") else f"“{level.name}”"


def _right(level: LevelFigures) -> str:
    few = ", a small sample" if level.n_samples < _FEW else ""
    return (
        f"{percent(level.accuracy)} of the predictions are right ({level.n_right:,} of "
        f"{level.n_samples:,}; 95 % interval {interval(level.low, level.high)}{few})"
    )


def _use(level: LevelFigures, bar: float) -> str:
    if level.accuracy >= bar:
        return "perhaps enough, but too few images to be sure"
    if verdict_of(level, bar) == "with care":
        return "use with care"
    return "do not rely on a single prediction"


def _calibration(level: LevelFigures) -> str:
    gap = level.confidence - level.accuracy
    off = f"ECE {level.ece:.3f}; up to {GOOD_ECE} is good"
    but = ""
    if level.ece <= GOOD_ECE:
        verdict = f"can be taken at face value (ECE {level.ece:.3f})"
    elif abs(gap) > GOOD_ECE:
        verdict = f"are {'over-confident' if gap > 0 else 'too modest'} ({off})"
    else:
        verdict = f"are {'far off' if level.ece > POOR_ECE else 'a little off'} ({off})"
        but = ", but some are too high and others too low (see the diagrams)"
    return (
        f"The probabilities at {_level(level)} {verdict}: on average they say "
        f"{percent(level.confidence)}, and {percent(level.accuracy)} are right{but}."
    )


def _hedge(report: EvaluationReport) -> str:
    hedge = _usual(report.hedges)
    n_given, n_right = hedge.given
    said = f"it predicts something for {part_of(n_given, hedge.n_samples)} of the images"
    if n_given:
        said += f" and is then right for {part_of(n_right, n_given)}"
    broken = ""
    if is_missed(hedge):
        broken = (
            f" That is less than the guaranteed {percent(hedge.target)}. The images that set the "
            "threshold may be too few, or differ from the ones evaluated here."
        )
        if report.mended is not None and _usual(report.mended.hedges).accuracy > hedge.accuracy:
            broken += " The fault of the data is a part of it (see below)."
    return (
        f"If predictions may stop at a coarser class when uncertain (the {percent(hedge.target)} "
        f"hedge), {said}. With “cannot tell” counted as right, {percent(hedge.accuracy)} are "
        f"right.{broken}"
    )


def _usual(hedges: Sequence[HedgeFigures]) -> HedgeFigures:
    return next(hedge for hedge in hedges if hedge.target == 0.95)


def _without_fault(report: EvaluationReport) -> str:
    """Say what depends on the faults of the data."""
    mended = report.mended
    assert mended is not None
    changes, verdicts = [], []
    for before, after in zip(report.levels, mended.levels, strict=True):
        if before.n_samples and after.n_samples:
            if percent(before.accuracy) != percent(after.accuracy):
                changes.append(f"{_instead(before, after)} at {_level(before)}")
            if (verdict := verdict_of(after, report.trust)) != verdict_of(before, report.trust):
                verdicts.append(f"at {_level(before)} “{verdict}”")
    first, second = _usual(report.hedges), _usual(mended.hedges)
    is_measured = first.n_samples and second.n_samples
    if is_measured and percent(first.accuracy) != percent(second.accuracy):
        changes.append(f"{_instead(first, second)} with the {percent(first.target)} hedge")
    figures = "these figures would be the same to the percent"
    if changes:
        figures = f"the accuracy would be {listed(changes)}"
    verdict = (
        f"The verdict would be {listed(verdicts)}." if verdicts else "No verdict would change."
    )
    return (
        f"Without the fault of the data ({counted(mended.n_samples, 'image')}, see what to label "
        f"next) {figures}. {verdict}"
    )


def _instead(before: LevelFigures | HedgeFigures, after: LevelFigures | HedgeFigures) -> str:
    return f"{percent(after.accuracy)} (not {percent(before.accuracy)})"


# Which classes are confused? ---------------------------------------------------------------------


def which_classes(report: EvaluationReport, pairs: Sequence[Confusion]) -> Question:
    """Answer which classes are confused.

    Parameters
    ----------
    report : EvaluationReport
        The figures.
    pairs : sequence of Confusion
        All pairs, the most frequent first.
    """
    tree, n_mistakes = report.taxonomy, report.n_mistakes
    question = "Which classes are confused?"
    if not n_mistakes:
        said = f"All {report.n_labelled:,} predictions agree with the labels."
        return Question(question, "None", (said,))
    real = [pair for pair in pairs if not is_one_name(report, pair)]
    if not real:
        answer = "None but one class in two places"
    elif real[0].n_mistaken + real[0].n_back < 2:
        answer = "No two classes more than once"
    else:
        names = tree.labels([real[0].truth, real[0].predicted])
        answer = f"Most mistakes between {names[0]} and {names[1]}"
    sentences = [_pair_sentence(tree, pair) for pair in real[:3]]
    if len(real) > 1:
        sentences.append(_order(tree, real))
    explained = [pair for pair in pairs if is_one_name(report, pair)]
    if n_explained := sum(pair.n_mistaken + pair.n_back for pair in explained):
        sentences.append(
            f"Not in this list: {counted(n_explained, 'mistake')} between two places of one name, "
            "a fault of the data (see what to label next)."
        )
    worst = report.decisions[0]
    if worst.n_first_errors > 1 and tree.n_branching > 1:
        sentences.append(
            f"{worst.n_first_errors:,} of the {n_mistakes:,} mistakes take the wrong branch at "
            f"{place(tree, worst.node)}, more than anywhere else."
        )
    kept = [
        f"{percent(fraction)} are still right at {_level(level)}"
        for level, fraction in zip(report.levels[:-1], report.kept[:-1], strict=True)
        if np.isfinite(fraction)
    ]
    if kept:
        sentences.append(f"Of the {counted(n_mistakes, 'mistake')} in all, {listed(kept)}.")
    else:
        are = "is" if n_mistakes == 1 else "are"
        mistakes = counted(n_mistakes, "mistake")
        sentences.append(f"There {are} {mistakes} on {report.n_labelled:,} images in all.")
    return Question(question, answer, tuple(sentences))


def is_one_name(report: EvaluationReport, pair: Confusion) -> bool:
    """Tell whether a pair is a class that was found to stand in two places."""
    first, second = report.taxonomy.names[pair.truth], report.taxonomy.names[pair.predicted]
    both = {pair.truth, pair.predicted}
    return bool(first == second) and both <= {*_nodes_of(report.problems, "divided_classes")}


def _nodes_of(problems: Sequence[DataProblem], *kinds: str) -> list[int]:
    return [node for problem in problems if problem.kind in kinds for node in problem.nodes]


def _order(tree: Taxonomy, pairs: Sequence[Confusion]) -> str:
    """Say how the pairs are ordered, and which one would be first by its rate."""
    rule = "(Ordered by the number of mistakes in both directions"
    worst = worst_rate(pairs)
    if worst is None or worst is pairs[0]:
        return f"{rule}.)"
    if any(pair is worst for pair in pairs[:3]):
        names = listed(list(map(str, tree.labels([worst.truth, worst.predicted]))))
        return f"{rule}; {names} have the highest rate.)"
    return f"{rule}.) The highest rate: {_pair_sentence(tree, worst)}"


def _pair_sentence(tree: Taxonomy, pair: Confusion) -> str:
    back = ""
    if pair.n_back:
        back = f", and {part_of(pair.n_back, pair.n_predicted)} the other way round"
    return (
        f"{part_of(pair.n_mistaken, pair.n_truth)} {tree.label(pair.truth)} "
        f"{'image was' if pair.n_truth == 1 else 'images were'} taken for "
        f"{tree.label(pair.predicted)}{back}."
    )


def place(tree: Taxonomy, node: int) -> str:
    """Name a node, the root by what it is."""
    if node == 0:
        return f"the top of the tree ({tree.root_name})"
    return str(tree.label(node))


# What should I label next? -----------------------------------------------------------------------


def what_to_label(report: EvaluationReport) -> Question:
    """Answer what to label next, as steps in order."""
    faults = [problem for problem in report.problems if problem.is_serious]
    if report.n_mistakes:
        answer, steps = _mend_mistakes(report)
    else:
        answer, steps = _where_vague(report.taxonomy, report.decisions)
    if faults:
        answer = _headline(report.taxonomy, faults[0])
    steps = [_fault(problem, report.classes) for problem in faults] + steps + _hedge_images(report)
    return Question("What should I label next?", answer, tuple(steps), are_steps=True)


def explained_classes(problems: Sequence[DataProblem]) -> list[int]:
    """Return the leaves whose mistakes are caused by a fault of the data."""
    return _nodes_of(problems, "divided_classes", "leaves_without_training")


def _headline(tree: Taxonomy, fault: DataProblem) -> str:
    names = fault.names
    if fault.kind == "divided_classes":
        names = tuple(dict.fromkeys(f"“{tree.names[node]}”" for node in fault.nodes))
    return _FIRST[fault.kind].format(listed(_some(names, 2)))


def _fault(fault: DataProblem, classes: Sequence[ClassFigures]) -> str:
    about = fault.title
    if fault.kind == "divided_classes":
        about = "; ".join(_some(fault.names))  # each says what the title counts
    elif fault.kind not in ("seen_in_training", "contradicting_copies"):
        about = f"{listed(_some(fault.names))}: {fault.title}"
    nodes = set(fault.nodes)
    concerned = [row for row in classes if row.node in nodes]
    n_samples = sum(row.n_samples for row in concerned)
    n_wrong = n_samples - sum(row.n_right for row in concerned)
    cost = f"; {n_wrong:,} of {n_samples:,} evaluated images wrong" if n_wrong else ""
    return f"{about}{cost}. {fault.remedy}"


def _some(names: Sequence[str], most: int = 5) -> list[str]:
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    return [*names[:most], *more]


def _mend_mistakes(report: EvaluationReport) -> tuple[str, list[str]]:
    """Return the headline and the steps where there are mistakes and no faults."""
    tree = report.taxonomy
    steps = [
        "Look at the surest mistakes (in “Images to look at”): some may be wrong labels. Where you "
        "cannot tell two classes apart yourself, more images will not help: predict one level "
        "higher, or merge them."
    ]
    steps += [
        f"{problem.title}. {problem.remedy} That is cheaper than new images."
        for problem in report.problems
        if problem.kind == "half_way"
    ]
    explained = explained_classes(report.problems)
    wanted = classes_to_collect(report.classes, explained)
    if wanted:
        shown = listed([_class(tree, row) for row in wanted[:_MOST_CLASSES]])
        steps.append(
            f"Collect training images of {shown}. How many are needed cannot be said from here: "
            f"add some, train and evaluate again. {collecting_rule(report)}"
        )
        names = listed([str(tree.label(row.node)) for row in wanted[:2]])
        return f"First check the surest mistakes, then collect more {names}", steps
    if not explained:
        worst = report.decisions[0]
        steps.append(
            f"Collect images under {place(tree, worst.node)}: {worst.n_first_errors:,} of the "
            f"{report.n_mistakes:,} mistakes are first made there."
        )
    return "First check the surest mistakes", steps


def _class(tree: Taxonomy, row: ClassFigures) -> str:
    trained = ""
    if row.n_training is not None:
        trained = f"; {counted(row.n_training, 'training image')}"
    n_wrong = row.n_samples - row.n_right
    return f"{tree.label(row.node)} ({n_wrong:,} of {row.n_samples:,} wrong{trained})"


def collecting_rule(report: EvaluationReport) -> str:
    """Say how the classes to collect are chosen and ordered."""
    explained = set(explained_classes(report.problems))
    others = [row for row in report.classes if row.node not in explained]
    n_explained = sum(row.n_samples for row in report.classes if row.node in explained)
    without, per = "", ""
    if n_explained:
        without = f", not counting the {counted(n_explained, 'image')} of the fault of the data"
    if others[0].n_training is not None:
        per = ", divided by the number of training images"
    return (
        f"Rule: of the classes wrong at least as often as the average "
        f"({percent(average_wrong(others))}{without}), first those with the largest fraction wrong "
        f"(lower end of its 95 % interval){per}."
    )


def _where_vague(tree: Taxonomy, decisions: Sequence[DecisionFigures]) -> tuple[str, list[str]]:
    """Return the headline and the step where no prediction is wrong."""
    vague = max(decisions, key=lambda row: np.nan_to_num(row.stopping))
    if np.isnan(vague.stopping):
        return "Nothing stands out", [
            "No prediction is wrong: evaluate on more, or harder, images."
        ]
    where = place(tree, vague.node)
    return f"More images under {where}", [
        f"No prediction is wrong, but {percent(vague.stopping)} of the belief in its images stops "
        f"at {where}, "
        "more than anywhere else."
    ]


def _hedge_images(report: EvaluationReport) -> list[str]:
    """Ask for more held-out images where they set the hedge and its guarantee is not kept."""
    hedges = report.hedges if report.mended is None else report.mended.hedges
    missed = [hedge for hedge in hedges if is_missed(hedge)]
    if report.is_cross_calibrated or not missed:
        return []
    kept = [f"{percent(hedge.accuracy)} instead of {percent(hedge.target)}" for hedge in missed]
    has_faults = bool(explained_classes(report.problems))
    apart = ", even without the fault of the data" if has_faults else ""
    return [
        "Set aside more images to calibrate the hedge with, like those it will be used on: its "
        f"guarantee is not kept ({listed(kept)} right{apart})."
    ]
