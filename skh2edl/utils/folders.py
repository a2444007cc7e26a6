"""Find image files in nested folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from PIL import Image


def walk_images(
    top: Path, *, linked_files: bool = True
) -> Iterator[tuple[tuple[str, ...], list[Path]]]:
    """Yield every folder and the image files in it, in sorted order, parents first.

    Hidden files, hidden folders and linked folders are passed over.

    Parameters
    ----------
    top : Path
        The outermost folder.
    linked_files : bool, default=True
        Whether to include links to image files.

    Yields
    ------
    place : tuple of str
        The folder, as names below `top`.
    files : list of Path
        Its image files.
    """
    Image.init()  # fills Image.EXTENSION
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        place = waiting.pop()
        with os.scandir(top.joinpath(*place)) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        entries = [entry for entry in entries if not entry.name.startswith(".")]
        files = [Path(one.path) for one in entries if one.is_file(follow_symlinks=linked_files)]
        yield place, [file for file in files if file.suffix.lower() in Image.EXTENSION]
        # A link may lead out of the folder or back up.
        inner = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
        waiting += [(*place, name) for name in reversed(inner)]
