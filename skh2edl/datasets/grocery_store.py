"""Grocery Store: photographs of fruit, vegetables and packages in shops."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ..taxonomy import Taxonomy
from ._files import bad_line, check_one_parent, find_root, read_lines, read_table
from ._record import SPLITS, LabelledImages, record_of_files

_NAME = "grocery_store"
_COLUMNS = ("Class Name (str)", "Class ID (int)", "Coarse Class Name (str)")
_ICON = "Iconic Image Path (str)"


def load_grocery_store(root: str | os.PathLike[str], *, check: str = "exists") -> LabelledImages:
    """Load the Grocery Store dataset: 5,421 photographs, 3 groups > 43 coarse > 81 fine classes.

    The fine and coarse class of an image come from its line in ``train.txt``, ``val.txt`` or
    ``test.txt``, with names from ``classes.csv``; the top group is the first folder of its path.
    Deeper folders are not used, because one class lies in two of them.

    Parameters
    ----------
    root : path
        The folder with ``classes.csv``, or the repository with that folder as ``dataset``.
    check : {"exists", "decode", "none"}, default="exists"
        How to check the image files: that each exists and is not empty, that each can be decoded,
        or not at all.

    Returns
    -------
    LabelledImages
        With the official split; an image's id is its path below root.

    References
    ----------
    M. Klasson, C. Zhang, H. Kjellström, "A hierarchical grocery store image dataset with visual
    and semantic labels", WACV 2019.

    Examples
    --------
    >>> from skh2edl.datasets import load_grocery_store
    >>> load_grocery_store("GroceryStoreDataset")  # doctest: +SKIP
    LabelledImages('grocery_store': 5421 images (2640 train, 296 val, 2485 test), 81 leaves)
    """
    folder = find_root(root, (".", "dataset"), "classes.csv", _NAME)
    classes = _read_classes(folder / "classes.csv")
    rows = [(*row, part) for part in SPLITS for row in _read_list(folder / f"{part}.txt", classes)]
    ids, paths, split = zip(*rows, strict=True)
    return record_of_files(
        _NAME,
        [folder / image for image in ids],
        paths,
        _make_taxonomy(classes, paths),
        check,
        split=split,
        ids=ids,
        licence="MIT (Marcus Klasson and others)",
    )


def _read_classes(file: Path) -> dict[str, tuple[str, str, str]]:
    """Return fine id -> (top group of the icon, coarse name, fine name)."""
    classes = {}
    for line, row in enumerate(read_table(file, (*_COLUMNS, _ICON), _NAME), start=2):
        fine, number, coarse = (row[column].strip() for column in _COLUMNS)
        folders = PurePosixPath(row[_ICON].strip().lstrip("/")).parts
        if not (fine and number.isdecimal() and coarse) or len(folders) < 3 or number in classes:
            bad_line(file, line, "a class name, an id of its own and a coarse name", row)
        classes[number] = (folders[1], coarse, fine)
    return classes


def _read_list(file: Path, classes: dict) -> list[tuple[str, tuple[str, str, str]]]:
    """Return (path below root, path in the taxonomy) of each image."""
    rows = []
    for line, text in read_lines(file, _NAME):
        image, *numbers = (part.strip() for part in text.split(","))
        folders = PurePosixPath(image).parts
        if len(numbers) != 2 or len(folders) < 4 or numbers[0] not in classes:
            bad_line(file, line, "'<split>/<group>/.../<image>, <fine id>, <coarse id>'", text)
        _, coarse, fine = classes[numbers[0]]
        rows.append((image, (folders[1], coarse, fine)))
    return rows


def _make_taxonomy(classes: dict, paths: Iterable[tuple[str, str, str]]) -> Taxonomy:
    top = check_one_parent(((path[1:], path[0]) for path in paths), f"{_NAME}: the class")
    # Classes without images are in the tree too, at the place of their icon.
    rows = [
        (top.get((coarse, fine), icon), coarse, fine) for icon, coarse, fine in classes.values()
    ]
    return Taxonomy.from_paths(rows, level_names=("top", "coarse", "fine"))
