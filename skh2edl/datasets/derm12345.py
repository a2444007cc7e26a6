"""DERM12345: dermatoscopic images of 40 kinds of skin lesion."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..taxonomy import Taxonomy
from ..utils.hashing import unit_hash
from ._files import bad_line, check_fraction, check_one_parent, find_root, read_table
from ._record import LabelledImages, record_of_files

_NAME = "derm12345"
_LEVELS = ("super_class", "main_class_1", "main_class_2", "label")
_CLASS_COLUMNS = ("super_class", "malignancy", "main_class_1", "main_class_2", "label")
_COLUMNS = ("image_id", "patient_id", *_CLASS_COLUMNS)
# Where the images of each part are, by the archives that hold them.
_FOLDERS = {
    "train": ("derm12345_train_part_1", "derm12345_train_part_2"),
    "test": ("derm12345_test",),
}
_MALIGNANCY = ("benign", "malignant", "indeterminate")


def load_derm12345(
    root: str | os.PathLike[str], *, val_fraction: float = 0.1, check: str = "exists"
) -> LabelledImages:
    """Load DERM12345: 12,345 dermatoscopic images, 40 kinds of lesion on four levels.

    The tree is that of the official columns: super class, main class 1, main class 2 and label,
    2 > 7 > 11 > 40 nodes, of which 15 branch. Letter case, which differs from row to row, is
    ignored. Malignancy is no level: a main class may hold both; it is in `info`.

    Parameters
    ----------
    root : path
        The folder with ``derm12345_metadata_train.csv`` and ``derm12345_metadata_test.csv``, and
        with the image folders.
    val_fraction : float, default=0.1
        Fraction of the patients of the official training part to hold out as "val": those whose
        ids have the smallest hashes, the same on every machine.
    check : {"exists", "decode", "none"}, default="exists"
        How to check the image files: that each exists and is not empty, that each can be decoded,
        or not at all.

    Returns
    -------
    LabelledImages
        With the official test part; groups are patients, ids are image ids, and
        ``info["malignancy"]`` is "benign", "malignant" or "indeterminate".

    References
    ----------
    A. Yilmaz, S. P. Yasar, G. Gencoglan, B. Temelkuran, "DERM12345: A large, multisource
    dermatoscopic skin lesion dataset with 40 subclasses", Scientific Data 11, 2024.

    Examples
    --------
    >>> from skh2edl.datasets import load_derm12345
    >>> record = load_derm12345("DERM12345")  # doctest: +SKIP
    >>> record.taxonomy.path("bcc")  # doctest: +SKIP
    ('nonmelanocytic', 'keratinocytic', 'keratinocytic', 'bcc')
    """
    check_fraction(val_fraction)
    folder = find_root(root, (".",), "derm12345_metadata_train.csv", _NAME)
    rows: list[tuple[str, str, str, tuple[str, ...], str, Path]] = []
    licences: set[str] = set()
    for part in ("train", "test"):
        file = folder / f"derm12345_metadata_{part}.csv"
        on_disk = _find_images(folder, part) if check != "none" else {}
        for line, row in enumerate(read_table(file, _COLUMNS, _NAME), start=2):
            image = row["image_id"].strip().removesuffix(".jpg")
            values = _read_classes(file, line, row)
            path = tuple(values[level] for level in _LEVELS)
            expected = folder / _FOLDERS[part][0] / path[-1] / f"{image}.jpg"
            # Without a patient id, the image is its own group.
            patient = row["patient_id"].strip() or image
            found = on_disk.get(image, expected)
            rows.append((image, patient, part, path, values["malignancy"], found))
            licences.add(row.get("copyright-license", "").strip())
    ids, patients, split, paths, malignancy, files = zip(*rows, strict=True)
    check_one_parent(((path[-1], path[:-1]) for path in paths), f"{folder}: the label")

    groups = np.array(patients)
    return record_of_files(
        _NAME,
        files,
        paths,
        Taxonomy.from_paths(paths, level_names=_LEVELS),
        check,
        split=_hold_out_patients(np.array(split, dtype="<U5"), groups, val_fraction),
        ids=ids,
        groups=groups,
        licence="; ".join(sorted(licences - {""})) or "see the dataset's page",
        info={"malignancy": malignancy},
    )


def _find_images(folder: Path, part: str) -> dict[str, Path]:
    """Return image id -> file; the table does not say which folder holds an image."""
    return {
        file.stem: file
        for name in _FOLDERS[part]
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() == ".jpg"
    }


def _read_classes(file: Path, line: int, row: dict[str, str]) -> dict[str, str]:
    """Return the names of the classes in one spelling, by column."""
    values = {column: "_".join(row[column].casefold().split()) for column in _CLASS_COLUMNS}
    if not all(values.values()) or not row["image_id"].strip():
        empty = [column for column in (*_CLASS_COLUMNS, "image_id") if not row[column].strip()]
        bad_line(file, line, f"a value in the column(s) {empty}", "")
    if values["malignancy"] not in _MALIGNANCY:
        bad_line(file, line, f"a malignancy of {_MALIGNANCY}", row["malignancy"])
    return values


def _hold_out_patients(split: NDArray, patients: NDArray, fraction: float) -> NDArray:
    """Move the patients with the smallest hash from "train" to "val"."""
    in_train = np.unique(patients[split == "train"])
    order = np.argsort(unit_hash(in_train, purpose="validation"), kind="stable")
    held_out = in_train[order[: round(fraction * len(in_train))]]
    return np.where((split == "train") & np.isin(patients, held_out), "val", split)
