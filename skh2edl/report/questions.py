"""The figures in plain sentences: what to trust, what is confused, what to do, what to avoid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..taxonomy.taxonomy import Taxonomy
from .figures import Confusion, LevelFigures, NodeFigures, wilson_interval
from .hedging import HedgeFigures
from .problems import DataProblem
from .wording import counted, listed, part_of, percent

if TYPE_CHECKING:
    from .evaluation import EvaluationReport

# Calibration error (ECE) up to which probabilities are taken at face value.
GOOD_ECE = 0.03
# A level is used with care down to so much below what is called trustworthy.
CARE = 0.15
# The hedge of the sentences; the page has all of them.
USUAL_TARGET = 0.95

# The headline where a fault of this kind is the first thing to mend.
_FIRST = {
    "seen_in_training": "First take out the images that it was trained on",
    "contradicting_copies": "First settle the labels of duplicates",
    "divided_classes": "First bring {} to one place of the tree",
    "leaves_without_training": "First label images of {} for training",
    "untaught_nodes": "First label images under {} for training",
}

# Why nothing is to be expected of classes with this problem.
_LACKS = {
    "leaves_without_training": "it has seen no training image of them",
    "leaves_without_samples": "none was evaluated, so nothing is known about them",
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


def level_name(name: str) -> str:
    """Return a level's name in quotes, or what it is where the tree gives it none.

    Examples
    --------
    >>> level_name("genus"), level_name("leaf"), level_name("level 1")
    ('“genus”', 'the finest level', 'level 1')
    """
    if name == "leaf":
        return "the finest level"
    return name if name.startswith("level ") else f"“{name}”"


def level_heading(name: str) -> str:
    """Return a level's name for a table.

    Examples
    --------
    >>> level_heading("genus"), level_heading("leaf")
    ('genus', 'finest level')
    """
    return "finest level" if name == "leaf" else name


# Which level can I trust? ------------------------------------------------------------------------


def verdict_of(level: LevelFigures, bar: float) -> str:
    """Return "trust", "with care" or "not alone" for a level with samples.

    Parameters
    ----------
    level : LevelFigures
        How often it is right.
    bar : float
        Accuracy that the lower end of the interval must reach for "trust".
    """
    if level.low >= bar:
        return "trust"
    return "with care" if level.accuracy >= bar - CARE else "not alone"


def verdict(report: EvaluationReport) -> str:
    """Say in one line which levels to trust, how often they are right, and which not to trust."""
    measured = [level for level in report.levels if level.n_samples]
    if not measured:
        return "Nothing is measured: no evaluated image has a label."
    groups: dict[str, list[str]] = {"trust": [], "with care": [], "not alone": []}
    for level in measured:
        right = f"{percent(level.accuracy)} right, {level.n_right:,} of {level.n_samples:,}"
        if level.accuracy >= report.trust > level.low:
            right += f"; too few images to be sure of {percent(report.trust)}"
        groups[verdict_of(level, report.trust)].append(f"{level_name(level.name)} ({right})")
    said = []
    if groups["trust"]:
        said.append(f"trust {listed(groups['trust'])}")
    if groups["with care"]:
        said.append(f"use with care {listed(groups['with care'])}")
    if groups["not alone"]:
        said.append(f"do not rely on {listed(groups['not alone'], 'or')}")
    return f"If it must name every image: {'; '.join(said)}."


def which_level(report: EvaluationReport) -> Question:
    """Answer which level can be trusted."""
    measured = [level for level in report.levels if level.n_samples]
    trusted = [level for level in measured if verdict_of(level, report.trust) == "trust"]
    if not measured:
        answer = "Not measured"
    elif not trusted:
        answer = "None, if it must name every image"
    elif len(trusted) == len(measured):
        answer = f"All levels, down to {level_name(trusted[-1].name)}"
    else:
        only = listed([level_name(level.name) for level in trusted])
        answer = f"Only {only}, if it must name every image"
    sentences = [verdict(report)]
    if report.hedges[0].n_samples:
        sentences.append(hedge_sentence(report))
    if measured:
        deepest = measured[-1]
        sentences.append(
            f"The probabilities at {level_name(deepest.name)} {calibration_sentence(deepest)}"
        )
    return Question("Which level can I trust?", answer, tuple(sentences))


def usual_hedge(hedges: Sequence[HedgeFigures]) -> HedgeFigures:
    """Return the hedge at the target that sentences speak of."""
    return next(hedge for hedge in hedges if hedge.target == USUAL_TARGET)


def hedge_sentence(report: EvaluationReport) -> str:
    """Say how often the hedge predicts at each level, and how often it is right there."""
    hedge = usual_hedge(report.hedges)
    start = (
        "If it may say a coarser class when unsure, to be right "
        f"{percent(hedge.target)} of the time (the hedge)"
    )
    if not np.isfinite(hedge.threshold):
        return f"{start}: too few images to set that."
    parts = []
    for level, (n_given, n_right) in zip(report.levels[::-1], hedge.stops[:0:-1], strict=True):
        if n_given:
            right = f"{percent(n_right / n_given)} right"
            parts.append(f"{level_name(level.name)} for {n_given:,} ({right})")
    parts.append(f"“cannot tell” for {hedge.stops[0][0]:,}")
    said = f"{start}: of {hedge.n_samples:,} images it says {listed(parts)}."
    n_given, n_right = hedge.given
    if n_given:
        said += (
            f" When it predicts, {part_of(n_right, n_given)} are right; with “cannot tell” counted "
            f"as right, {percent(hedge.accuracy)} of {hedge.n_samples:,}."
        )
    if surer := _surer(report, hedge):
        it = "them" if len(surer) > 1 else "it"
        said += f" Trust its {listed(surer)}: the hedge names {it} only where the model is sure."
    if hedge.is_missed:
        said += (
            f" That is less than the guaranteed {percent(hedge.target)}: the images that set it "
            "may be too few, or unlike these."
        )
    return said


def _surer(report: EvaluationReport, hedge: HedgeFigures) -> list[str]:
    """Return the levels that are to be trusted where the hedge stops, and not everywhere."""
    return [
        level_name(level.name)
        for level, (n_given, n_right) in zip(report.levels, hedge.stops[1:], strict=True)
        if n_given
        and wilson_interval(n_right, n_given)[0] >= report.trust
        and verdict_of(level, report.trust) != "trust"
    ]


def calibration_sentence(level: LevelFigures) -> str:
    """Say what is to be thought of the probabilities of a level with samples."""
    gap = level.confidence - level.accuracy
    if level.ece <= GOOD_ECE:
        verdict = "can be taken at face value"
    elif abs(gap) > GOOD_ECE:
        verdict = "are over-confident" if gap > 0 else "are too modest"
    else:
        verdict = "are partly too high and partly too low"
    return (
        f"{verdict}: on average they say {percent(level.confidence)}, and "
        f"{percent(level.accuracy)} of {level.n_samples:,} are right (ECE {level.ece:.3f})."
    )


# Which classes are confused? ---------------------------------------------------------------------


def which_classes(report: EvaluationReport) -> Question:
    """Answer which classes are confused."""
    tree, n_mistakes = report.taxonomy, report.n_mistakes
    question = "Which classes are confused?"
    if not n_mistakes:
        said = f"All {counted(report.n_labelled, 'prediction')} agree with the labels."
        return Question(question, "None", (said,))
    first = report.confusions[0]
    if first.n_mistaken + first.n_back < 2:
        answer = "No two classes more than once"
    else:
        answer = f"Most often {tree.label(first.truth)} and {tree.label(first.predicted)}"
    sentences = [_pair_sentence(tree, pair) for pair in report.confusions[:3]]
    kept = [
        f"{percent(fraction)} are still right at {level_name(level.name)}"
        for level, fraction in zip(report.levels[:-1], report.kept[:-1], strict=True)
        if np.isfinite(fraction)
    ]
    ending = f": {listed(kept)}" if kept else ""
    mistakes = counted(n_mistakes, "mistake")
    sentences.append(f"{mistakes} on {report.n_labelled:,} labelled images{ending}.")
    return Question(question, answer, tuple(sentences))


def _pair_sentence(tree: Taxonomy, pair: Confusion) -> str:
    back = ""
    if pair.n_back:
        back = f", and {part_of(pair.n_back, pair.n_predicted)} the other way round"
    return (
        f"{part_of(pair.n_mistaken, pair.n_truth)} {tree.label(pair.truth)} "
        f"{'image was' if pair.n_truth == 1 else 'images were'} taken for "
        f"{tree.label(pair.predicted)}{back}."
    )


# What should I do next? --------------------------------------------------------------------------


def what_next(report: EvaluationReport) -> Question:
    """Answer what to do next, as steps in order."""
    tree, faults = report.taxonomy, [each for each in report.problems if each.is_serious]
    steps = [_fault_step(report, fault) for fault in faults]
    answer = "Evaluate on more, or harder, images"
    if faults:
        answer = _FIRST[faults[0].kind].format(listed(_named(tree, faults[0])))
    elif report.n_mistakes:
        answer = "Check the surest mistakes"
    if report.n_mistakes:
        steps.append(
            "Look at the surest mistakes below: some may be wrong labels. Where you cannot tell "
            "two classes apart yourself, use the level above them, or merge them."
        )
    steps += [f"{each.title}. {each.remedy}" for each in report.problems if each.kind == "half_way"]
    explained = _explained(report.problems)
    poor = [row for row in report.classes if row.n_wrong and row.node not in explained]
    if poor:
        steps.append(
            f"Collect training images of the classes with most mistakes: "
            f"{listed([_class(tree, row) for row in poor[:3]])}. Train and evaluate again."
        )
    missed = [hedge for hedge in report.hedges if hedge.is_missed]
    if missed and not report.is_cross_calibrated:
        kept = [f"{percent(each.accuracy)} instead of {percent(each.target)}" for each in missed]
        steps.append(
            "Set the hedge on more images, like those it will be used on: its guarantee is not "
            f"kept ({listed(kept)} right)."
        )
    if not steps:
        steps.append("No prediction is wrong here: evaluate on more, or harder, images.")
    return Question("What should I do next?", answer, tuple(steps), are_steps=True)


def _explained(problems: Sequence[DataProblem]) -> set[int]:
    """Return the leaves whose mistakes are caused by a fault of the data."""
    kinds = ("divided_classes", "leaves_without_training")
    return {node for problem in problems if problem.kind in kinds for node in problem.nodes}


def _named(tree: Taxonomy, fault: DataProblem) -> list[str]:
    if fault.kind == "divided_classes":
        return _some(list(dict.fromkeys(f"“{tree.names[node]}”" for node in fault.nodes)), 2)
    return _some(fault.names, 2)


def _fault_step(report: EvaluationReport, fault: DataProblem) -> str:
    about = fault.title
    if fault.kind == "divided_classes":
        about = "; ".join(_some(fault.names, 3))  # each says what the title counts
    elif fault.kind not in ("seen_in_training", "contradicting_copies"):
        about = f"{listed(_some(fault.names, 3))}: {fault.title}"
    concerned = [row for row in report.classes if row.node in fault.nodes]
    n_wrong, n_samples = sum(r.n_wrong for r in concerned), sum(r.n_samples for r in concerned)
    cost = f"; {n_wrong:,} of {n_samples:,} evaluated images wrong" if n_wrong else ""
    return f"{about}{cost}. {fault.remedy}"


def _some(names: Sequence[str], most: int) -> list[str]:
    more = [f"{len(names) - most:,} more"] if len(names) > most else []
    return [*names[:most], *more]


def _class(tree: Taxonomy, row: NodeFigures) -> str:
    trained = ""
    if row.n_training is not None:
        trained = f"; {counted(row.n_training, 'training image')}"
    return f"{tree.label(row.node)} ({row.n_wrong:,} of {row.n_samples:,} wrong{trained})"


# When should I not use it? -----------------------------------------------------------------------


def when_not(report: EvaluationReport) -> Question:
    """Answer where the figures do not hold."""
    sentences = [
        f"For images unlike these {report.n_samples:,}: another place, season, camera or quality. "
        "The figures hold for images like them.",
        f"For things that are none of its {report.taxonomy.n_leaves:,} classes: it names one of "
        "them all the same, or cannot tell.",
    ]
    lacking = {each.kind: each for each in report.problems}
    for kind in ("leaves_without_training", "leaves_without_samples"):
        if kind in lacking:
            sentences.append(f"For {listed(_some(lacking[kind].names, 3))}: {_LACKS[kind]}.")
    measured = [level for level in report.levels if level.n_samples]
    trusted = [level for level in measured if verdict_of(level, report.trust) == "trust"]
    sentences += filter(None, (_exceptions(report, level) for level in trusted[:1]))
    if measured and (n_wrong := measured[0].n_samples - measured[0].n_right):
        sentences.append(
            f"Where one mistake is too many: even at {level_name(measured[0].name)} {n_wrong:,} of "
            f"{measured[0].n_samples:,} were wrong."
        )
    return Question("When should I not use it?", "For images unlike these", tuple(sentences))


def _exceptions(report: EvaluationReport, level: LevelFigures) -> str:
    """Say for which classes of a trusted level the predictions are surely worse than that."""
    tree, worse = report.taxonomy, []
    for node in tree.nodes_at_depth(level.depth).tolist():
        row = report.nodes.get(int(tree.last_of_chain[node]))
        if row and wilson_interval(row.n_right, row.n_samples)[1] < report.trust:
            worse.append((row.accuracy, f"{tree.label(node)} ({row.n_right} of {row.n_samples})"))
    if not worse:
        return ""
    names = _some([name for _, name in sorted(worse)], 3)
    return (
        f"Where the image may show {listed(names, 'or')}: so many of these are right at "
        f"{level_name(level.name)}, though {percent(level.accuracy)} of all images are."
    )
