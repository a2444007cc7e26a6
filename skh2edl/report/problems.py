"""What is wrong with the data, as far as it can be seen from here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..images import ImageSource
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from .answers import BoolArray
from .findings import unlabelled

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
        Nodes of the classes concerned, where it is one of classes.
    """

    kind: str
    title: str
    meaning: str
    remedy: str
    names: tuple[str, ...]
    is_serious: bool
    nodes: tuple[int, ...] = ()


def content_hashes(
    source: Any, on_rows: Callable[[int], None] | None = None
) -> npt.NDArray[np.uint64]:
    """Hash what each sample holds: the bytes of a file, the pixels or the features of a row.

    Parameters
    ----------
    source : ImageSource or ndarray of shape (n_samples, n_features)
        The samples. A file that cannot be read gets a hash of its name.
    on_rows : callable, default=None
        Told 1 after each sample.

    Returns
    -------
    hashes : ndarray of uint64 of shape (n_samples,)
        Equal for equal content. Copies that were saved anew or cropped are not found.

    Examples
    --------
    >>> content_hashes(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])).argsort(kind="stable").size
    3
    """
    digests = []
    for position in range(len(source)):
        digests.append(hashlib.blake2b(_content(source, position), digest_size=8).digest())
        if on_rows is not None:
            on_rows(1)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _content(source: Any, position: int) -> bytes:
    if not isinstance(source, ImageSource):
        return np.ascontiguousarray(source[position]).tobytes()
    path = source_path(source, position)
    if path is None:
        return source.identity(position).encode()
    try:
        return Path(path).read_bytes()
    except OSError:
        return f"unreadable {path}".encode()


def source_path(source: ImageSource, position: int) -> str | None:
    """Return the file of an image, None for one in memory."""
    path = getattr(source, "path", None)
    return None if path is None else str(path(int(source._rows[position])))


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
        Nodes of the labels.
    names : sequence of str
        What each sample is called.
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
    if readable is not None and not readable.all():
        found.append(_unreadable(names, readable))
    if hashes is not None:
        if train_hashes is not None:
            found += _seen_in_training(names, hashes, train_hashes)
        found += _repeated(names, hashes, truth)
    divided = _divided_classes(taxonomy, divided_names(taxonomy, truth, train_truth))
    told = np.array([node for problem in divided for node in problem.nodes], dtype=np.int64)
    found += divided
    found += _labels(taxonomy, truth, names, told)
    if train_truth is not None:
        found += _untrained_leaves(taxonomy, train_truth, told)
    elif len(untaught):
        found.append(_untaught(untaught))
    return sorted(found, key=lambda problem: not problem.is_serious)


def _unreadable(names: Sequence[str], readable: BoolArray) -> DataProblem:
    rows = np.flatnonzero(~readable)
    return DataProblem(
        "unreadable",
        f"{_count(rows.size, 'image')} could not be read",
        "They are left out of all figures.",
        "Replace the damaged files or take them off the list.",
        _named(names, rows),
        False,
    )


def _seen_in_training(
    names: Sequence[str],
    hashes: npt.NDArray[np.uint64],
    train_hashes: npt.NDArray[np.uint64],
) -> list[DataProblem]:
    rows = np.flatnonzero(np.isin(hashes, train_hashes))
    if not rows.size:
        return []
    return [
        DataProblem(
            "seen_in_training",
            f"{_count(rows.size, 'evaluated image')} "
            f"{'is' if rows.size == 1 else 'are'} also in the training data, byte for byte",
            "The model has seen their answers, so the figures are too good.",
            "Remove them from one side, and measure again.",
            _named(names, rows),
            True,
        )
    ]


def _repeated(
    names: Sequence[str], hashes: npt.NDArray[np.uint64], truth: IntArray
) -> list[DataProblem]:
    order = np.argsort(hashes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(hashes[order]) != 0])
    same: list[int] = []
    disagreeing: list[int] = []
    for group in np.split(order, starts[1:]):
        if group.size > 1:
            is_one_label = np.unique(truth[group]).size == 1
            (same if is_one_label else disagreeing).extend(np.sort(group).tolist())
    problems = []
    if disagreeing:
        problems.append(
            DataProblem(
                "contradicting_copies",
                f"{_count(len(disagreeing), 'image')} are copies of each other with different "
                "labels",
                "At least one label of each is wrong or coarser than need be, so no model can be "
                "right on both.",
                "Look at them and keep one label.",
                _named(names, disagreeing),
                True,
            )
        )
    if same:
        problems.append(
            DataProblem(
                "copies",
                f"{_count(len(same), 'image')} are copies of each other",
                "They count several times, and intervals are narrower than they should be.",
                "Keep one of each.",
                _named(names, same),
                False,
            )
        )
    return problems


def _labels(
    taxonomy: Taxonomy, truth: IntArray, names: Sequence[str], told: IntArray
) -> list[DataProblem]:
    problems = []
    silent = unlabelled(truth, taxonomy)
    rows = np.flatnonzero(silent)
    if rows.size:
        problems.append(
            DataProblem(
                "unlabelled",
                f"{_count(rows.size, 'image')} {'has' if rows.size == 1 else 'have'} no label",
                "They count in no figure of accuracy.",
                "",
                _named(names, rows),
                False,
            )
        )
    ends = taxonomy.last_of_chain[truth]
    half_way = np.flatnonzero(~silent & (taxonomy.n_children[ends] > 0))
    if half_way.size:
        problems.append(
            DataProblem(
                "half_way",
                f"{_count(half_way.size, 'label')} "
                f"{'stops' if half_way.size == 1 else 'stop'} half-way down the tree",
                "They count on the levels they reach and on none below.",
                "Finish them where you can.",
                tuple(
                    f"{name}: {label}"
                    for name, label in zip(
                        _named(names, half_way), taxonomy.labels(truth[half_way]), strict=True
                    )
                ),
                False,
            )
        )
    counts = np.bincount(ends, minlength=taxonomy.n_nodes)[taxonomy.leaf_nodes]
    without = np.flatnonzero((counts == 0) & ~np.isin(taxonomy.leaf_nodes, told))
    if without.size:
        problems.append(
            DataProblem(
                "leaves_without_samples",
                f"{_count(without.size, 'leaf')} of {taxonomy.n_leaves} "
                f"{'has' if without.size == 1 else 'have'} no evaluated image",
                "Nothing here says how good the model is on them.",
                "Label some to measure them.",
                tuple(str(taxonomy.leaves[leaf]) for leaf in without.tolist()),
                False,
                tuple(taxonomy.leaf_nodes[without].tolist()),
            )
        )
    few = np.flatnonzero((counts > 0) & (counts < FEW_SAMPLES))
    if few.size:
        problems.append(
            DataProblem(
                "leaves_with_few_samples",
                f"{_count(few.size, 'leaf')} {'has' if few.size == 1 else 'have'} fewer than "
                f"{FEW_SAMPLES} evaluated images",
                "Figures of these classes alone mean little.",
                "Label some to measure them.",
                tuple(f"{taxonomy.leaves[leaf]}: {counts[leaf]}" for leaf in few.tolist()),
                False,
                tuple(taxonomy.leaf_nodes[few].tolist()),
            )
        )
    return problems


class DividedName(NamedTuple):
    """One name that stands at other places here than in training.

    Attributes
    ----------
    name : str
        The name.
    evaluated : tuple of int
        Leaves with evaluated images and without training images.
    trained : tuple of int
        Leaves of the name with training images.
    others : tuple of int
        Leaves of the name with neither.
    """

    name: str
    evaluated: tuple[int, ...]
    trained: tuple[int, ...]
    others: tuple[int, ...]


def divided_names(
    taxonomy: Taxonomy, truth: IntArray, train_truth: IntArray | None
) -> list[DividedName]:
    """Find leaves of one name at several places, of which some lack samples that others have.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the labels.
    train_truth : ndarray of int or None
        Nodes of the training labels; None finds nothing.
    """
    if train_truth is None:
        return []
    places: dict[str, list[int]] = {}
    for leaf in taxonomy.leaf_nodes.tolist():
        places.setdefault(str(taxonomy.names[leaf]), []).append(leaf)
    is_evaluated, is_trained = np.zeros((2, taxonomy.n_nodes), dtype=bool)
    is_evaluated[taxonomy.last_of_chain[truth]] = True
    is_trained[taxonomy.last_of_chain[train_truth]] = True
    found = []
    for name, leaves in places.items():
        trained = tuple(leaf for leaf in leaves if is_trained[leaf])
        apart = [leaf for leaf in leaves if not is_trained[leaf]]
        evaluated = tuple(leaf for leaf in apart if is_evaluated[leaf])
        if trained and evaluated:
            others = tuple(leaf for leaf in apart if not is_evaluated[leaf])
            found.append(DividedName(name, evaluated, trained, others))
    return found


def _divided_classes(taxonomy: Taxonomy, divided: Sequence[DividedName]) -> list[DataProblem]:
    if not divided:
        return []

    def paths(leaves: Sequence[int]) -> str:
        return " and ".join(taxonomy.separator.join(_path(taxonomy, leaf)) for leaf in leaves)

    is_one = len(divided) == 1
    return [
        DataProblem(
            "divided_classes",
            f"{_count(len(divided), 'name')} {'stands' if is_one else 'stand'} at one place of the "
            "tree in training and at another in the evaluated data",
            "If that is one class in two folders, every image of it counts as a mistake.",
            f"Move the evaluated folder{'' if is_one else 's'} to where the training images are, "
            "and evaluate again; or, where the training images are at the wrong place, move those, "
            "and train again. (In a table, change the labels.)",
            tuple(
                f"“{each.name}” is at {paths(each.trained)} in training and at "
                f"{paths(each.evaluated)} in the evaluated data"
                for each in divided
            ),
            True,
            tuple(leaf for each in divided for part in each[1:] for leaf in part),
        )
    ]


def _path(taxonomy: Taxonomy, node: int) -> list[str]:
    path = []
    while node > 0:
        path.append(str(taxonomy.names[node]))
        node = int(taxonomy.parents[node])
    return path[::-1]


def _untrained_leaves(
    taxonomy: Taxonomy, train_truth: IntArray, told: IntArray
) -> list[DataProblem]:
    ends = taxonomy.last_of_chain[train_truth]
    counts = np.bincount(ends, minlength=taxonomy.n_nodes)[taxonomy.leaf_nodes]
    without = np.flatnonzero((counts == 0) & ~np.isin(taxonomy.leaf_nodes, told))
    if not without.size:
        return []
    return [
        DataProblem(
            "leaves_without_training",
            f"{_count(without.size, 'leaf')} {'has' if without.size == 1 else 'have'} no training "
            "image",
            "The model can only guess from relatives there.",
            "Label some for training.",
            tuple(str(taxonomy.leaves[leaf]) for leaf in without.tolist()),
            True,
            tuple(taxonomy.leaf_nodes[without].tolist()),
        )
    ]


def _untaught(nodes: Sequence[Any]) -> DataProblem:
    return DataProblem(
        "untaught_nodes",
        f"{_count(len(nodes), 'decision')} {'was' if len(nodes) == 1 else 'were'} never taught",
        "No training label lies below these nodes, so the model commits no belief there.",
        "Label images of their children for training.",
        tuple(map(str, nodes)),
        True,
    )


def _named(names: Sequence[str], rows: Any) -> tuple[str, ...]:
    return tuple(str(names[row]) for row in np.asarray(rows).tolist())


def _count(number: int, what: str) -> str:
    plural = "leaves" if what == "leaf" else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"
