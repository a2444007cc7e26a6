"""CUB-200-2011: photographs of two hundred species of birds."""

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from ..taxonomy import Taxonomy
from ._files import bad_line, check_fraction, find_root, read_numbered, read_table
from ._record import LabelledImages, record_of_files

_NAME = "cub_birds"
_FOLDER = "CUB_200_2011"
_LEVELS = ("order", "family", "species")
_TABLE = "index.csv"


def load_cub(
    root: str | os.PathLike[str], *, val_fraction: float = 0.1, check: str = "exists"
) -> LabelledImages:
    """Load CUB-200-2011: 11,788 photographs, 13 orders > 37 families > 200 species.

    The official files name the species alone; order and family come from a table of this package.
    A folder with an ``index.csv`` (columns path, split, order, family, species), as small copies
    have it, is read from that table. Ids, labels and split are the same in both. The tree is that
    of the table: the package has Baird's sparrow among the New World sparrows (Passerellidae).

    Parameters
    ----------
    root : path
        The folder with ``images.txt``, ``image_class_labels.txt``, ``classes.txt``,
        ``train_test_split.txt`` and ``images``, the folder that holds it as ``CUB_200_2011``, or
        a folder with ``index.csv``.
    val_fraction : float, default=0.1
        Fraction of the official training images to hold out as "val", stratified by species
        unless there are too few, the same images on every machine.
    check : {"exists", "decode", "none"}, default="exists"
        How to check the image files: that each exists and is not empty, that each can be decoded,
        or not at all.

    Returns
    -------
    LabelledImages
        With the official test images. An image's id is "train" or "test" and its official path.

    References
    ----------
    C. Wah, S. Branson, P. Welinder, P. Perona, S. Belongie, "The Caltech-UCSD Birds-200-2011
    dataset", California Institute of Technology, 2011.

    Examples
    --------
    >>> from skh2edl.datasets import load_cub
    >>> load_cub("CUB_200_2011")  # doctest: +SKIP
    LabelledImages('cub_birds': 11788 images (5394 train, 600 val, 5794 test), 200 leaves)
    """
    check_fraction(val_fraction)
    root = Path(root).expanduser()
    if (root / _TABLE).is_file():
        folder, rows = root, _read_index(root / _TABLE)
    else:
        folder = find_root(root, (".", _FOLDER), "images.txt", _NAME)
        rows = _read_official(folder)
        folder = folder / "images"
    # One order, so that both forms of the data hold out the same images.
    rows = sorted(rows)
    ids, places, split, paths = zip(*rows, strict=True)
    species = np.array([path[-1] for path in paths])
    return record_of_files(
        _NAME,
        [folder / place for place in places],
        paths,
        Taxonomy.from_paths(paths, level_names=_LEVELS),
        check,
        split=_hold_out(np.array(split), species, val_fraction),
        ids=ids,
        licence="non-commercial research and education only",
    )


# Id, path of the file below its folder, split, path in the taxonomy.
Row = tuple[str, str, str, tuple[str, ...]]


def _read_index(file: Path) -> list[Row]:
    rows = []
    for line, row in enumerate(read_table(file, ("path", "split", *_LEVELS), _NAME), start=2):
        path, split, *names = (row[name].strip() for name in ("path", "split", *_LEVELS))
        if not (path and all(names)):
            bad_line(file, line, f"a value in path, {', '.join(_LEVELS)}", row)
        rows.append((path, path, split, tuple(names)))
    return rows


def _read_official(folder: Path) -> list[Row]:
    table = files(__package__).joinpath("cub_birds.csv").read_text("utf-8").splitlines()
    above = {species: (order, family) for order, family, species in (t.split(",") for t in table)}
    images, classes, class_of, in_train = (
        read_numbered(folder / f"{name}.txt", _NAME)
        for name in ("images", "classes", "image_class_labels", "train_test_split")
    )
    rows: list[Row] = []
    for number, image in images.items():
        name = classes.get(class_of.get(number, ""), "")
        species = name.partition(".")[2].replace("_", " ")
        part = {"1": "train", "0": "test"}.get(in_train.get(number, ""))
        if species not in above or part is None:
            raise ValueError(
                f"{folder}: the image {number} ({image}) has the class {name!r} and the split "
                f"{in_train.get(number)!r}. Expected one of the 200 official classes and 0 or 1: "
                "the lists may be half-downloaded, so fetch them again."
            )
        rows.append((f"{part}/{image}", image, part, (*above[species], species)))
    return rows


def _hold_out(split: np.ndarray, species: np.ndarray, fraction: float) -> np.ndarray:
    """Move a stratified fraction of the training images to "val"."""
    if fraction == 0 or (split == "val").any():
        return split
    train = np.flatnonzero(split == "train")
    counts = np.unique(species[train], return_counts=True)[1]
    # A few images of each species cannot be divided evenly.
    even = counts.min() > 1 and fraction * len(train) >= len(counts)
    _, held = train_test_split(
        train, test_size=fraction, random_state=0, stratify=species[train] if even else None
    )
    split = split.astype("<U5")
    split[held] = "val"
    return split
