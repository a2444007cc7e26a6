"""The record that every loader returns, and coarser labels for it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ..taxonomy import Taxonomy
from ..utils.files import write_atomically
from ..utils.hashing import unit_hash
from ._files import check_images

if TYPE_CHECKING:
    from ..images import ImageSource

SPLITS = ("train", "val", "test")

# Fields with one entry per image; `info` holds more of them.
_PER_IMAGE = ("images", "labels", "split", "ids", "groups")


@dataclass(frozen=True, eq=False, repr=False)
class LabelledImages:
    """Images with labels on a taxonomy, their split, ids and groups.

    The arrays are read-only, so that experiments can share a record.

    Parameters
    ----------
    name : str
        Short name, as used in tables.
    images : ndarray of str of shape (n,), or of uint8 of shape (n, H, W) or (n, H, W, 3)
        File paths or pixels; both are accepted as ``X`` by the classifiers.
    labels : ndarray of str of shape (n,)
        A leaf or an ancestor per image, as `taxonomy` spells it.
    taxonomy : Taxonomy
        The tree of classes.
    split : ndarray of str of shape (n,)
        "train", "val" or "test", the official one where the dataset has one.
    ids : ndarray of str of shape (n,)
        Unique names that are the same on every machine and in every run.
    groups : ndarray of str of shape (n,), default=None
        The subject of each image. None means that every image is its own group: the `ids`.
    licence : str, default=""
        The terms under which the images may be used.
    crop : tuple of int, default=(0, 0, 0, 0)
        Pixels to cut off at the left, top, right and bottom, in the order of
        ``PIL.ImageOps.crop``. Loaders do not change the files: `source` and `open` crop when they
        decode, and `crop_files` writes cropped copies.
    info : mapping of str to ndarray of shape (n, ...), default={}
        Further values for each image.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.datasets import LabelledImages
    >>> tree = Taxonomy.from_paths([("cat", "lion"), ("cat", "lynx"), ("dog",)])
    >>> zoo = LabelledImages(
    ...     name="zoo",
    ...     images=np.zeros((3, 8, 8), dtype=np.uint8),
    ...     labels=["lion", "cat", "dog"],
    ...     taxonomy=tree,
    ...     split=["train", "train", "test"],
    ...     ids=["a", "b", "c"],
    ... )
    >>> zoo
    LabelledImages('zoo': 3 images (2 train, 1 test), 3 leaves)
    >>> zoo.subset("train").labels.tolist()
    ['lion', 'cat']
    """

    name: str
    images: NDArray
    labels: NDArray
    taxonomy: Taxonomy
    split: NDArray
    ids: NDArray
    groups: NDArray = None  # type: ignore[assignment]  # __post_init__ puts ids in its place
    licence: str = ""
    crop: tuple[int, int, int, int] = (0, 0, 0, 0)
    info: Mapping[str, NDArray] = field(default_factory=dict)

    def __post_init__(self):
        n_images = len(self.images)
        groups = self.ids if self.groups is None else self.groups
        for key, values in [
            ("images", self.images),
            ("labels", np.asarray(self.labels, dtype=str)),
            ("split", np.asarray(self.split, dtype=str)),
            ("ids", np.asarray(self.ids, dtype=str)),
            ("groups", np.asarray(groups, dtype=str)),
        ]:
            object.__setattr__(self, key, self._per_image(key, values, n_images))
        info = {key: self._per_image(key, v, n_images) for key, v in self.info.items()}
        object.__setattr__(self, "info", MappingProxyType(info))

        unknown = sorted(set(self.split.tolist()) - set(SPLITS))
        if unknown:
            raise ValueError(
                f"split may hold {', '.join(map(repr, SPLITS))} only, got {unknown[:5]}. "
                "Rename those entries or drop the images."
            )
        values, counts = np.unique(self.ids, return_counts=True)
        if (counts > 1).any():
            repeated = values[counts > 1].tolist()
            raise ValueError(
                f"ids must be unique, got {len(repeated)} more than once, first {repeated[:5]}. "
                "Give every image its own id, for example its path."
            )

    @staticmethod
    def _per_image(key, values, n_images):
        array = np.asarray(values)
        if array.ndim == 0 or len(array) != n_images:
            raise ValueError(
                f"{key} must have one entry for each of the {n_images} images, got shape "
                f"{array.shape}."
            )
        array = array.view()
        array.flags.writeable = False
        return array

    def __len__(self):
        return len(self.images)

    def __repr__(self):
        counts = ", ".join(f"{n} {split}" for split, n in self.counts.items() if n)
        return (
            f"LabelledImages({self.name!r}: {len(self)} images ({counts}), "
            f"{self.taxonomy.n_leaves} leaves)"
        )

    @property
    def counts(self) -> dict[str, int]:
        """Images in each split."""
        return {split: int((self.split == split).sum()) for split in SPLITS}

    @property
    def source(self) -> "ImageSource":
        """The cropped images, as an ``X`` for classifiers."""
        from ..images import image_source  # here, because it imports torch

        if self.images.dtype.kind == "U":
            return image_source(self.images, crop=self.crop)
        left, top, right, bottom = self.crop
        height, width = self.images.shape[1:3]
        return image_source(self.images[:, top : height - bottom, left : width - right])

    def subset(self, *splits: str) -> "LabelledImages":
        """Return the images of one or more splits; the taxonomy stays whole.

        Parameters
        ----------
        *splits : str
            One or more of "train", "val" and "test". The images stay in the order of the record.

        Returns
        -------
        LabelledImages
        """
        unknown = [split for split in splits if split not in SPLITS]
        if unknown or not splits:
            raise ValueError(
                f"subset takes one or more of {', '.join(map(repr, SPLITS))}, got {splits}."
            )
        return self.select(np.isin(self.split, splits))

    def select(self, index: Any) -> "LabelledImages":
        """Return some of the images.

        Parameters
        ----------
        index : array-like of bool, array-like of int or slice
            Which images, as numpy indexes.

        Returns
        -------
        LabelledImages
        """
        if not isinstance(index, slice):
            index = np.asarray(index)
        chosen = {key: getattr(self, key)[index] for key in _PER_IMAGE}
        chosen["info"] = {key: values[index] for key, values in self.info.items()}
        return replace(self, **chosen)

    def resplit(self, *, val: float = 0.1, test: float = 0.2) -> "LabelledImages":
        """Split by a hash of the group, for data without an official split.

        An image stays in its split when others are added or removed, and images of one group stay
        together. The fractions are met on average, not exactly.

        Parameters
        ----------
        val, test : float
            Fractions of the groups, with a sum of at most 1.

        Returns
        -------
        LabelledImages
        """
        if not (0 <= val <= 1 and 0 <= test <= 1 and val + test <= 1):
            raise ValueError(
                f"val and test must be fractions with a sum of at most 1, got {val} and {test}."
            )
        place = unit_hash(self.groups, purpose="split")
        split = np.where(place < test, "test", np.where(place < test + val, "val", "train"))
        return replace(self, split=split)

    def open(self, index: int) -> Image.Image:
        """Return one image, decoded and cropped.

        Parameters
        ----------
        index : int
            Position in the record.

        Returns
        -------
        PIL.Image.Image
        """
        if self.images.dtype.kind == "U":
            with Image.open(self.images[index]) as file:
                image = ImageOps.exif_transpose(file)
                image.load()
        else:
            image = Image.fromarray(np.ascontiguousarray(self.images[index]))
        return ImageOps.crop(image, self.crop) if any(self.crop) else image

    def crop_files(self, folder: str | os.PathLike[str]) -> "LabelledImages":
        """Write cropped copies of the image files and return a record of the copies.

        Existing copies are kept, so a second call, or one after an interruption, writes only what
        is missing. If there is nothing to crop, nothing is written.

        Parameters
        ----------
        folder : path
            Where to write one file ``<id><suffix>`` for each image.

        Returns
        -------
        LabelledImages
            With the paths of the copies and no crop.
        """
        if self.images.dtype.kind != "U":
            raise TypeError("crop_files copies image files, and this record holds pixels.")
        if not any(self.crop):
            return self
        copies = []
        for index, (name, source) in enumerate(zip(self.ids, self.images, strict=True)):
            copy = Path(folder, name).with_suffix(Path(source).suffix)
            if not copy.is_file():
                image, kind = self.open(index), Image.registered_extensions()[copy.suffix.lower()]
                write_atomically(copy, partial(image.save, format=kind, quality=95))
            copies.append(str(copy))
        return replace(self, images=np.array(copies), crop=(0, 0, 0, 0))


def record_of_files(
    name: str,
    files: Sequence[str | Path],
    paths: Sequence[Sequence[str]],
    taxonomy: Taxonomy,
    check: str,
    **fields: Any,
) -> LabelledImages:
    """Check image files and return their record; their labels are paths in the taxonomy."""
    images = check_images(files, check, name)
    labels = taxonomy.labels_from_paths(paths)
    return LabelledImages(name=name, images=images, labels=labels, taxonomy=taxonomy, **fields)


def coarsen_labels(
    labels: Sequence,
    ids: Sequence,
    fraction: float,
    level: str | int,
    taxonomy: Taxonomy,
) -> NDArray:
    """Replace a fraction of the labels by their ancestors at a level.

    A hash of each sample's id alone decides which ones: they are the same for every method, seed
    and machine, and those of a smaller fraction are a subset of those of a larger one. The fraction
    is met on average, not exactly.

    Parameters
    ----------
    labels : sequence of shape (n,)
        Labels of the taxonomy.
    ids : sequence of shape (n,)
        Stable names of the samples, as in `LabelledImages.ids`.
    fraction : float
        Fraction of the labels to coarsen, between 0 and 1.
    level : str or int
        Name or depth of the level of the ancestors; 0 removes the label. A label above the level
        is not changed.
    taxonomy : Taxonomy
        The tree.

    Returns
    -------
    ndarray of shape (n,)
        Labels as the taxonomy spells them.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.datasets import coarsen_labels
    >>> tree = Taxonomy.from_paths([("cat", "lion"), ("cat", "lynx"), ("dog", "wolf")])
    >>> coarsen_labels(["lion", "lynx", "wolf"], ["a", "b", "c"], 0.5, 1, tree).tolist()
    ['lion', 'cat', 'wolf']
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, got {fraction}.")
    if len(labels) != len(ids):
        raise ValueError(
            f"labels and ids must have the same length, got {len(labels)} and {len(ids)}. Give "
            "one id for each label."
        )
    nodes = taxonomy.resolve(labels)
    above = taxonomy.project(nodes, level)
    chosen = (unit_hash(ids, purpose="coarsen") < fraction) & (above >= 0)
    return np.array(taxonomy.labels(np.where(chosen, above, nodes)))
