"""FGVC-Aircraft: ten thousand photographs of aircraft."""

import os
import shutil
import tarfile
import tempfile
import zlib
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

from ..taxonomy import Taxonomy
from ._files import check_one_parent, find_root, read_numbered
from ._record import SPLITS, LabelledImages, record_of_files

URL = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz"

_NAME = "fgvc_aircraft"
_FOLDER = "fgvc-aircraft-2013b"
_LEVELS = ("manufacturer", "family", "variant")
_BANNER = 20  # pixels at the bottom that name the photographer


def load_fgvc_aircraft(
    root: str | os.PathLike[str], download: bool = False, *, check: str = "exists"
) -> LabelledImages:
    """Load FGVC-Aircraft: 10,000 images, 30 manufacturers > 70 families > 100 variants.

    Every image has a banner of 20 pixels at the bottom that names the photographer. The `crop` of
    the record removes it: its `source`, which classifiers accept as ``X``, is read without the
    banner, and `crop_files` writes copies without it.

    Parameters
    ----------
    root : path
        The folder that holds ``fgvc-aircraft-2013b``, that folder, or the ``data`` inside it.
    download : bool, default=False
        Whether to download the archive (2.7 GB) into root if the data set is not there.
    check : {"exists", "decode", "none"}, default="exists"
        How to check the image files: that each exists and is not empty, that each can be decoded,
        or not at all.

    Returns
    -------
    LabelledImages
        With the official split; "train" and "val" together are the usual 6,667 training images.
        An image's id is its seven digits.

    References
    ----------
    S. Maji, J. Kannala, E. Rahtu, M. Blaschko, A. Vedaldi, "Fine-grained visual classification
    of aircraft", 2013.

    Examples
    --------
    >>> from skh2edl.datasets import load_fgvc_aircraft
    >>> load_fgvc_aircraft("data", download=True)  # doctest: +SKIP
    LabelledImages('fgvc_aircraft': 10000 images (3334 train, 3333 val, 3333 test), 100 leaves)
    """
    root = Path(root).expanduser()
    inside = (".", "data", f"{_FOLDER}/data")
    marker = "images_variant_train.txt"
    if download and not any((root / place / marker).is_file() for place in inside):
        _download(root)
    folder = find_root(root, inside, marker, _NAME)

    ids: list[str] = []
    split: list[str] = []
    paths: list[tuple[str, ...]] = []
    for part in SPLITS:
        columns = {
            level: read_numbered(folder / f"images_{level}_{part}.txt", _NAME) for level in _LEVELS
        }
        _check_same_images(folder, part, columns)
        images = list(columns["variant"])
        ids += images
        split += [part] * len(images)
        paths += [tuple(columns[level][image] for level in _LEVELS) for image in images]
    for depth in (1, 2):
        pairs = ((path[depth], path[depth - 1]) for path in paths)
        check_one_parent(pairs, f"{folder}: the {_LEVELS[depth]}")

    return record_of_files(
        _NAME,
        [folder / "images" / f"{image}.jpg" for image in ids],
        paths,
        Taxonomy.from_paths(paths, level_names=_LEVELS),
        check,
        split=split,
        ids=ids,
        licence="non-commercial research only; the photographers of airliners.net hold the rights",
        crop=(0, 0, 0, _BANNER),
    )


def _check_same_images(folder: Path, part: str, columns: dict[str, dict[str, str]]) -> None:
    for level in _LEVELS[:2]:
        odd = columns[level].keys() ^ columns["variant"].keys()
        if odd:
            raise ValueError(
                f"{folder / f'images_{level}_{part}.txt'} and images_variant_{part}.txt must list "
                f"the same images, and {len(odd)} are in one only, first {sorted(odd)[:5]}. One "
                "may be half-downloaded: fetch the dataset again."
            )


def _download(root: Path) -> None:
    """Download and unpack the archive; a failure leaves nothing in root."""
    if (root / _FOLDER).exists():
        raise FileExistsError(
            f"{root / _FOLDER} is there and lacks data/images_variant_train.txt: it was unpacked "
            "in part. Remove it and try again."
        )
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        archive = Path(scratch, "archive.tar.gz")
        with closing(urlopen(URL, timeout=60)) as source, archive.open("wb") as file:
            shutil.copyfileobj(source, file)
            expected = source.headers.get("Content-Length")
        again = f"Try again later, or fetch it by other means and unpack it in {root}."
        if expected is not None and archive.stat().st_size != int(expected):
            raise OSError(f"{URL} sent {archive.stat().st_size} of {expected} bytes. {again}")
        try:
            with tarfile.open(archive) as bundle:
                bundle.extractall(scratch, filter="data")
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise OSError(
                f"{URL} sent an archive that cannot be unpacked ({error}). {again}"
            ) from error
        unpacked = Path(scratch, _FOLDER)
        if not unpacked.is_dir():
            raise OSError(f"{URL} holds no folder {_FOLDER}, so it is not the official archive.")
        unpacked.replace(root / _FOLDER)
