"""What is wrong with the data, as far as labels and contents show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..metrics.inputs import is_labelled
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .predictions import BoolArray
from .wording import counted

FEW_SAMPLES = 5


class DataProblem(NamedTuple):
    """One kind of problem.

    Attributes
    ----------
    kind : str
        Short name, for programs.
    title : str
        What was found, with its number.
    meaning : str
        What it does to the figures.
    remedy : str
        The one thing to do about it, empty where nothing needs to be done.
    names : tuple of str
        Images or classes concerned.
    is_serious : bool
        Whether figures of the report may be wrong because of it.
    nodes : tuple of int, default=()
        Nodes of the classes concerned, where it is a problem of classes.
    """

    kind: str
    title: str
    meaning: str
    remedy: str
    names: tuple[str, ...]
    is_serious: bool
    nodes: tuple[int, ...] = ()


# What each kind does to the figures, the remedy, and whether figures may be wrong because of it.
_KINDS = {
    "unreadable": (
        "They are left out of all figures.",
        "Replace the damaged files or take them off the list.",
        False,
    ),
    "seen_in_training": (
        "The model has seen their labels, so the figures are too good.",
        "Remove them from one side, and measure again.",
        True,
    ),
    "contradicting_copies": (
        "At least one label of each is wrong or coarser than need be, so no model can be right on "
        "both.",
        "Look at them and keep one label.",
        True,
    ),
    "copies": (
        "They count several times, and intervals are narrower than they should be.",
        "Keep one of each.",
        False,
    ),
    "divided_classes": (
        "If that is one class in two folders, every image of it counts as a mistake.",
        "Move the evaluated images to the place of the training images, and evaluate again; or, "
        "where the training images are at the wrong place, move those, and train again. (In a "
        "table, change the labels.)",
        True,
    ),
    "unlabelled": ("They count in no figure of accuracy.", "", False),
    "half_way": (
        "They count on the levels they reach and on none below.",
        "Finish them where you can.",
        False,
    ),
    "leaves_without_samples": (
        "Nothing here says how good the model is on them.",
        "Label some to measure them.",
        False,
    ),
    "leaves_with_few_samples": (
        "Figures of these classes alone mean little.",
        "Label some to measure them.",
        False,
    ),
    "leaves_without_training": (
        "The model can only guess from relatives there.",
        "Label some for training.",
        True,
    ),
    "untaught_nodes": (
        "No training label lies below these classes, so the model cannot tell their kinds apart.",
        "Label images of their kinds for training.",
        True,
    ),
}


def _problem(kind: str, title: str, names: Iterable[Any], nodes: Iterable[int] = ()) -> DataProblem:
    meaning, remedy, is_serious = _KINDS[kind]
    return DataProblem(
        kind, title, meaning, remedy, tuple(map(str, names)), is_serious, tuple(nodes)
    )


def find_problems(
    taxonomy: Taxonomy,
    truth: IntArray,
    names: Sequence[str],
    *,
    readable: BoolArray | None = None,
    hashes: npt.NDArray[np.uint64] | None = None,
    train_hashes: npt.NDArray[np.uint64] | None = None,
    train_truth: IntArray | None = None,
    untaught: Sequence[Any] = (),
) -> list[DataProblem]:
    """Look for what makes figures wrong or shaky.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the labels, of a chain of only children the last.
    names : sequence of str
        Name of each sample.
    readable : ndarray of bool, default=None
        False for an image that could not be read.
    hashes, train_hashes : ndarray of uint64, default=None
        Contents of the samples, and of those that the model was trained on.
    train_truth : ndarray of int, default=None
        Nodes of the training labels.
    untaught : sequence of labels, default=()
        Branching nodes that no training label passed through.

    Returns
    -------
    problems : list of DataProblem
        Serious ones first. A class that stands in two places is named there, and not once more
        among those without images.
    """
    found: list[DataProblem] = []
    of_row = np.array(list(map(str, names)), dtype=object)
    if readable is not None and not readable.all():
        rows = np.flatnonzero(~readable)
        title = f"{counted(rows.size, 'image')} could not be read"
        found.append(_problem("unreadable", title, of_row[rows]))
    if hashes is not None:
        found += _same_content(of_row, truth, hashes, train_hashes)
    divided = _divided_classes(taxonomy, truth, train_truth)
    found += [] if divided is None else [divided]
    found += _label_problems(taxonomy, truth, of_row)
    told = () if divided is None else divided.nodes
    found += _leaf_problems(taxonomy, truth, train_truth, told)
    if train_truth is None and len(untaught):
        title = f"{counted(len(untaught), 'class was', 'classes were')} never divided in training"
        found.append(_problem("untaught_nodes", title, untaught))
    return sorted(found, key=lambda problem: not problem.is_serious)


def _same_content(
    names: npt.NDArray[np.object_],
    truth: IntArray,
    hashes: npt.NDArray[np.uint64],
    train_hashes: npt.NDArray[np.uint64] | None,
) -> list[DataProblem]:
    """Find images of equal content, in the training data and among the evaluated ones."""
    found = []
    if train_hashes is not None and (seen := np.isin(hashes, train_hashes)).any():
        n_seen = counted(int(seen.sum()), "evaluated image is", "evaluated images are")
        title = f"{n_seen} also in the training data, byte for byte"
        found.append(_problem("seen_in_training", title, names[np.flatnonzero(seen)]))
    order = np.argsort(hashes, kind="stable")
    same: list[int] = []
    contradicting: list[int] = []
    for group in np.split(order, np.flatnonzero(np.diff(hashes[order])) + 1):
        if group.size > 1:
            is_one_label = np.unique(truth[group]).size == 1
            (same if is_one_label else contradicting).extend(np.sort(group).tolist())
    if contradicting:
        title = f"{counted(len(contradicting), 'image')} are duplicates with different labels"
        found.append(_problem("contradicting_copies", title, names[contradicting]))
    if same:
        title = f"{counted(len(same), 'image')} are duplicates of each other"
        found.append(_problem("copies", title, names[same]))
    return found


def _label_problems(
    taxonomy: Taxonomy, truth: IntArray, names: npt.NDArray[np.object_]
) -> list[DataProblem]:
    """Find samples whose label stops above the leaves."""
    problems = []
    without = ~is_labelled(truth, taxonomy)
    if n_without := int(without.sum()):
        title = f"{counted(n_without, 'image has', 'images have')} no label"
        problems.append(_problem("unlabelled", title, names[np.flatnonzero(without)]))
    is_inner = taxonomy.n_children[truth] > 0
    rows = np.flatnonzero(~without & is_inner)
    if rows.size:
        title = f"{counted(rows.size, 'label stops', 'labels stop')} half-way down the tree"
        labels = zip(names[rows], taxonomy.labels(truth[rows]), strict=True)
        problems.append(_problem("half_way", title, [f"{name}: {label}" for name, label in labels]))
    return problems


def _leaf_problems(
    taxonomy: Taxonomy, truth: IntArray, train_truth: IntArray | None, told: Sequence[int]
) -> list[DataProblem]:
    """Find leaves with few or no samples, except those that were told of already."""
    counts, others = _leaf_counts(taxonomy, truth), ~np.isin(taxonomy.leaf_nodes, told)
    few = (counts > 0) & (counts < FEW_SAMPLES)
    of_all = f" of {taxonomy.n_leaves:,}"
    kinds = [
        ("leaves_without_samples", (counts == 0) & others, of_all, "no evaluated image"),
        ("leaves_with_few_samples", few, "", f"fewer than {FEW_SAMPLES} evaluated images"),
    ]
    if train_truth is not None:
        without = (_leaf_counts(taxonomy, train_truth) == 0) & others
        kinds.append(("leaves_without_training", without, "", "no training image"))
    problems = []
    for kind, is_concerned, of, lack in kinds:
        leaves = np.flatnonzero(is_concerned).tolist()
        if leaves:
            noun = "classes" if of or len(leaves) > 1 else "class"
            verb = "has" if len(leaves) == 1 else "have"
            title = f"{len(leaves):,}{of} {noun} {verb} {lack}"
            shown = [str(taxonomy.leaves[leaf]) for leaf in leaves]
            if is_concerned is few:
                shown = [f"{name}: {counts[i]}" for name, i in zip(shown, leaves, strict=True)]
            nodes = taxonomy.leaf_nodes[leaves].tolist()
            problems.append(_problem(kind, title, shown, nodes))
    return problems


def _leaf_counts(taxonomy: Taxonomy, truth: IntArray) -> IntArray:
    return np.bincount(truth, minlength=taxonomy.n_nodes)[taxonomy.leaf_nodes]


def _divided_classes(
    taxonomy: Taxonomy, truth: IntArray, train_truth: IntArray | None
) -> DataProblem | None:
    """Find names at several leaves, some with training images, others with evaluated ones only."""
    if train_truth is None:
        return None
    places: dict[str, list[int]] = {}
    for leaf in taxonomy.leaf_nodes.tolist():
        places.setdefault(str(taxonomy.names[leaf]), []).append(leaf)
    has_training = set(train_truth.tolist())
    is_apart = set(truth.tolist()) - has_training

    def paths(leaves: Iterable[int]) -> str:
        found = [taxonomy.path(taxonomy.label(leaf)) for leaf in leaves]
        return " and ".join(taxonomy.separator.join(map(str, path)) for path in found)

    said, nodes = [], []
    for name, leaves in places.items():
        trained = [leaf for leaf in leaves if leaf in has_training]
        evaluated = [leaf for leaf in leaves if leaf in is_apart]
        if trained and evaluated:
            said.append(
                f"“{name}” is at {paths(trained)} in training and at {paths(evaluated)} in the "
                "evaluated data"
            )
            nodes += leaves
    if not said:
        return None
    title = (
        f"{counted(len(said), 'name stands', 'names stand')} at one place of the tree in "
        "training and at another in the evaluated data"
    )
    return _problem("divided_classes", title, said, nodes)
