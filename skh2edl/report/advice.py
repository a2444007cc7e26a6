"""What to do next, step by step: faults of the data, the surest mistakes, classes to collect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..taxonomy.taxonomy import Taxonomy
from .findings import ClassFigures, DecisionFigures, average_wrong, classes_to_collect
from .hedging import HedgeFigures
from .problems import DataProblem
from .reading import Question, is_missed, listed, percent, place

_MOST_CLASSES = 3

# The headline, where a fault of this kind is the first thing to mend.
_FIRST = {
    "seen_in_training": "First take out the images that it was trained on",
    "contradicting_copies": "First settle the labels of copies",
    "divided_classes": "First bring {} to one place of the tree",
    "leaves_without_training": "First label images of {} for training",
    "untaught_nodes": "First label images under {} for training",
}


def explained_classes(problems: Sequence[DataProblem]) -> list[int]:
    """Return the leaves whose mistakes have a fault of the data for a cause.

    Parameters
    ----------
    problems : sequence of DataProblem
        What was found.
    """
    kinds = ("divided_classes", "leaves_without_training")
    return [node for problem in problems if problem.kind in kinds for node in problem.nodes]


def what_to_label(
    tree: Taxonomy,
    decisions: Sequence[DecisionFigures],
    classes: Sequence[ClassFigures],
    problems: Sequence[DataProblem],
    n_mistakes: int,
    hedges: Sequence[HedgeFigures] = (),
) -> Question:
    """Answer what to label next, as steps in order.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    decisions : sequence of DecisionFigures
        The worst first.
    classes : sequence of ClassFigures
        Leaves with samples.
    problems : sequence of DataProblem
        What is wrong with the data.
    n_mistakes : int
        Answers that contradict their label.
    hedges : sequence of HedgeFigures, default=()
        Promises whose threshold was set on images kept aside, without the faults of the data.
    """
    faults = [problem for problem in problems if problem.is_serious]
    steps = [_fault(problem, classes) for problem in faults]
    answer, more = _without_faults(tree, decisions, classes, problems, n_mistakes)
    if faults:
        answer = _headline(tree, faults[0])
    steps += more + _hedge_images(hedges, bool(explained_classes(problems)))
    return Question("What should I label next?", answer, tuple(steps), are_steps=True)


def _headline(tree: Taxonomy, fault: DataProblem) -> str:
    names = fault.names
    if fault.kind == "divided_classes":
        names = tuple(dict.fromkeys(f"“{tree.names[node]}”" for node in fault.nodes))
    return _FIRST[fault.kind].format(_some(names, 2))


def _fault(fault: DataProblem, classes: Sequence[ClassFigures]) -> str:
    about = fault.title
    if fault.kind == "divided_classes":
        about = _some(fault.names, separator="; ")  # each says what the title counts
    elif fault.kind not in ("seen_in_training", "contradicting_copies"):
        about = f"{_some(fault.names)}: {fault.title}"
    concerned = [row for row in classes if row.node in fault.nodes]
    n_wrong = sum(row.n_samples - row.n_right for row in concerned)
    cost = ""
    if n_wrong:
        n_samples = sum(row.n_samples for row in concerned)
        cost = f"; {n_wrong:,} of {n_samples:,} evaluated images wrong"
    return f"{about}{cost}. {fault.remedy}"


def _without_faults(
    tree: Taxonomy,
    decisions: Sequence[DecisionFigures],
    classes: Sequence[ClassFigures],
    problems: Sequence[DataProblem],
    n_mistakes: int,
) -> tuple[str, list[str]]:
    """Return the headline and the steps of data without faults."""
    if not n_mistakes:
        return _where_vague(tree, decisions)
    steps = [
        "Look at the surest mistakes (in “Images to look at”): some may be wrong labels. Where you "
        "cannot tell two classes apart yourself, more images will not help: answer one level "
        "higher, or merge them."
    ]
    steps += [
        f"{problem.title}. {problem.remedy} That is cheaper than new images."
        for problem in problems
        if problem.kind == "half_way"
    ]
    left_out = explained_classes(problems)
    wanted = classes_to_collect(classes, left_out)
    if wanted:
        names = listed([str(tree.label(row.node)) for row in wanted[:2]])
        steps.append(_collect(tree, wanted, classes, left_out))
        return f"First check the surest mistakes, then collect more {names}", steps
    worst = decisions[0]
    if not left_out:
        steps.append(
            f"Collect images under {place(tree, worst.node)}: {worst.n_first_errors:,} of the "
            f"{n_mistakes:,} mistakes are first made there."
        )
    return "First check the surest mistakes", steps


def _hedge_images(hedges: Sequence[HedgeFigures], has_faults: bool) -> list[str]:
    missed = [hedge for hedge in hedges if is_missed(hedge)]
    if not missed:
        return []
    kept = [f"{percent(hedge.accuracy)} instead of {percent(hedge.target)}" for hedge in missed]
    apart = ", even without the fault of the data" if has_faults else ""
    return [
        "Set aside more images to set the hedge with, and such as are like those it will be used "
        f"on: its promise is not kept ({listed(kept)} right{apart})."
    ]


def _collect(
    tree: Taxonomy,
    wanted: Sequence[ClassFigures],
    classes: Sequence[ClassFigures],
    left_out: Sequence[int],
) -> str:
    shown = [_class(tree, row) for row in wanted[:_MOST_CLASSES]]
    return (
        f"Collect training images of {listed(shown)}. How many are needed cannot be said from "
        "here: add some, train and evaluate again. "
        f"{collecting_rule(wanted, classes, left_out)}"
    )


def collecting_rule(
    wanted: Sequence[ClassFigures], classes: Sequence[ClassFigures], left_out: Sequence[int]
) -> str:
    """Say how the classes to collect are chosen and ordered.

    Parameters
    ----------
    wanted : sequence of ClassFigures
        The classes to collect, at least one.
    classes : sequence of ClassFigures
        All leaves with samples.
    left_out : sequence of int
        Leaves whose mistakes have a fault of the data for a cause.
    """
    counted = [row for row in classes if row.node not in left_out]
    n_others = sum(row.n_samples for row in classes) - sum(row.n_samples for row in counted)
    without = ""
    if n_others:
        images = "image" if n_others == 1 else "images"
        without = f", not counting the {n_others:,} {images} of the fault of the data"
    per = "" if wanted[0].n_training is None else ", divided by the number of training images"
    return (
        f"Rule: of the classes wrong at least as often as the average "
        f"({percent(average_wrong(counted))}{without}), first those with the largest share wrong "
        f"(lower end of its 95 % interval){per}."
    )


def _class(tree: Taxonomy, row: ClassFigures) -> str:
    trained = ""
    if row.n_training is not None:
        trained = f"; {row.n_training:,} training image{'' if row.n_training == 1 else 's'}"
    n_wrong = row.n_samples - row.n_right
    return f"{tree.label(row.node)} ({n_wrong:,} of {row.n_samples:,} wrong{trained})"


def _where_vague(tree: Taxonomy, decisions: Sequence[DecisionFigures]) -> tuple[str, list[str]]:
    vague = max(decisions, key=lambda row: np.nan_to_num(row.stopping))
    if np.isnan(vague.stopping):
        return "Nothing stands out", ["No answer is wrong: evaluate on more, or harder, images."]
    where = place(tree, vague.node)
    return f"More images under {where}", [
        f"No answer is wrong, but {percent(vague.stopping)} of all belief stops at {where}, more "
        "than anywhere else."
    ]


def _some(names: Sequence[str], most: int = 5, separator: str = ", ") -> str:
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most:,} more")
    return listed(shown) if separator == ", " else separator.join(shown)
