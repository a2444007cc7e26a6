"""Images in nested folders, which are the taxonomy."""

import os
from pathlib import Path

from ..taxonomy import Taxonomy
from ..utils.folders import walk_images
from ._record import LabelledImages, record_of_files

# Names of top folders that are splits and no classes.
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

    An image in an inner folder is labelled with that inner node; one in root itself is unlabelled.
    Hidden files and folders, linked folders and files that are not images are passed over. An
    empty folder is a class without images. If all folders in root are called "train", "val" or
    "test" (or "training", "valid", "validation", "testing"), they are the split and the taxonomy
    begins inside them; otherwise every image is in "train", and `LabelledImages.resplit` divides
    them.

    Parameters
    ----------
    root : path
        The outermost folder.
    level_names : tuple of str, default=None
        Names of the levels, one for each depth of folders.
    check : {"exists", "decode", "none"}, default="exists"
        How to check the image files: that each is not empty, that each can be decoded, or not at
        all.

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
    found = list(walk_images(folder))
    tops = {place[0].lower() for place, _ in found if place}
    if tops and tops <= set(_SPLIT_FOLDERS):
        found = [(place, images) for place, images in found if place]
        parts = [_SPLIT_FOLDERS[place[0].lower()] for place, _ in found]
        nodes = [place[1:] for place, _ in found]
    else:
        parts = ["train"] * len(found)
        nodes = [place for place, _ in found]
    files = [file for _, images in found for file in images]
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
    folder_of = [number for number, (_, images) in enumerate(found) for _ in images]
    return record_of_files(
        folder.resolve().name,
        files,
        [nodes[number] for number in folder_of],
        Taxonomy.from_paths((node for node in nodes if node), level_names=level_names),
        check,
        split=[parts[number] for number in folder_of],
        ids=[file.relative_to(folder).as_posix() for file in files],
    )
