"""A folder of folders: the folders are the taxonomy."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from skh2edl.datasets._files import check_images
from skh2edl.datasets._record import LabelledImages
from skh2edl.taxonomy import Taxonomy

_SPLIT_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


def load_image_folder(
    root: str | os.PathLike[str],
    *,
    level_names: tuple[str, ...] | None = None,
    check: str = "exists",
) -> LabelledImages:
    """Load images from nested folders, which are the taxonomy.

    An image in an inner folder has that inner node as its label; one in root itself is
    unlabelled. Hidden files and folders, linked folders and files that are no images are passed
    over. An empty folder is a class without images. Where all folders of root are called
    "train", "val" or "test" (or "training", "valid", "validation", "testing"), they are the
    split and the taxonomy begins inside; otherwise every image is in "train", and
    `LabelledImages.resplit` divides them.

    Parameters
    ----------
    root : path
        The outermost folder.
    level_names : tuple of str, default=None
        Names of the levels, one for each depth of folders.
    check : {"exists", "decode", "none"}, default="exists"
        How closely to look at the image files: that each is not empty, that each can be decoded,
        or not at all.

    Returns
    -------
    LabelledImages
        An image's id is its path below root, with "/" on every system.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> from skh2edl.datasets import load_image_folder
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for place in ("cat/lion/1.png", "cat/lynx/2.png", "cat/3.png", "dog/4.png"):
    ...         file = pathlib.Path(root, place)
    ...         file.parent.mkdir(parents=True, exist_ok=True)
    ...         Image.new("L", (8, 8)).save(file)
    ...     record = load_image_folder(root)
    >>> dict(zip(record.ids.tolist(), record.labels.tolist()))
    {'cat/3.png': 'cat', 'cat/lion/1.png': 'lion', 'cat/lynx/2.png': 'lynx', 'dog/4.png': 'dog'}
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"root must be a folder of images, and there is none at {folder}.")
    Image.init()  # fills the table of extensions
    splits = _split_folders(folder)
    nodes: list[tuple[str, ...]] = []
    paths: list[tuple[str, ...]] = []
    files: list[Path] = []
    split: list[str] = []
    for top, part in splits:
        for place, images in _walk(top):
            nodes.append(place)
            files += images
            paths += [place] * len(images)
            split += [part] * len(images)
    if not files:
        raise FileNotFoundError(
            f"expected images in the folders of {folder}, such as {folder / 'class' / '1.jpg'}, "
            f"and found none in {len(nodes)} folder(s)."
        )
    if not any(nodes):
        raise ValueError(
            f"the {len(files)} image(s) lie in {folder} itself, and the folders below it name the "
            f"classes: move each to its own, such as {folder / 'class' / files[0].name}, or list "
            "files and labels in a table."
        )
    taxonomy = Taxonomy.from_paths((node for node in nodes if node), level_names=level_names)
    return LabelledImages(
        name=folder.resolve().name,
        images=check_images(files, check, f"folder {folder.name}"),
        labels=taxonomy.labels_from_paths(paths),
        taxonomy=taxonomy,
        split=np.array(split),
        ids=np.array([file.relative_to(folder).as_posix() for file in files]),
    )


def _split_folders(folder: Path) -> list[tuple[Path, str]]:
    inner = _subfolders(folder)
    if inner and all(each.name.lower() in _SPLIT_FOLDERS for each in inner):
        return [(each, _SPLIT_FOLDERS[each.name.lower()]) for each in inner]
    return [(folder, "train")]


def _walk(top: Path, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Path]]]:
    """Yield each folder's path in the taxonomy and the images in it, in sorted order."""
    images = [
        file
        for file in sorted(top.iterdir())
        if file.suffix.lower() in Image.EXTENSION and _is_shown(file) and file.is_file()
    ]
    yield place, images
    for folder in _subfolders(top):
        yield from _walk(folder, (*place, folder.name))


def _subfolders(folder: Path) -> list[Path]:
    # A link may lead back up, and then the tree has no end.
    inner = (each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    return sorted(each for each in inner if _is_shown(each))


def _is_shown(path: Path) -> bool:
    return not path.name.startswith(".")
