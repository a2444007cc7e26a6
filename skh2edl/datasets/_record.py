"""The one record that every loader returns."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from skh2edl.taxonomy import Taxonomy

from ..utils.hashing import unit_hash

if TYPE_CHECKING:
    from skh2edl.images import ImageSource

SPLITS = ("train", "val", "test")

# Fields with one entry per image; `info` holds more of them under names of the dataset's choice.
_PER_IMAGE = ("images", "labels", "split", "ids", "groups")


@dataclass(frozen=True, eq=False, repr=False)
class LabelledImages:
    """Images with labels on a taxonomy, and what a fair experiment needs to know about them.

    The arrays are read-only: a record is shared between experiments, none may change it.

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
        Unique names that stay the same between machines and runs.
    groups : ndarray of str of shape (n,), default=None
        Images that show one subject share a group. None means that every image stands alone,
        and repeats `ids`.
    licence : str, default=""
        The terms under which the images may be used.
    crop : tuple of int, default=(0, 0, 0, 0)
        Pixels to cut off at the left, top, right and bottom before anything else, in the order
        of ``PIL.ImageOps.crop``. Loaders do not change the files: `source` is read with it, `open`
        applies it to one image, and `crop_files` writes cropped copies of all.
    info : mapping of str to ndarray of shape (n, ...), default={}
        Whatever else is known about each image.

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
                "Rename those entries or leave the images out."
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
        """The images as classifiers should read them: an ``X`` that is cropped when decoded."""
        from skh2edl.images import image_source  # here: a record alone needs no torch

        return image_source(self._cropped_pixels(), crop=self.crop)

    def _cropped_pixels(self) -> NDArray:
        """Return pixels without what is to be cut off, or the paths as they are."""
        if self.images.dtype.kind == "U" or not any(self.crop):
            return self.images
        left, top, right, bottom = self.crop
        height, width = self.images.shape[1:3]
        return self.images[:, top : height - bottom, left : width - right]

    def subset(self, *splits: str) -> "LabelledImages":
        """Return the images of one or more splits, with the whole taxonomy.

        Parameters
        ----------
        *splits : str
            "train", "val" or "test"; several are taken together, in the order of the record.

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
        """Split anew by a hash of the group, for data that come without an official split.

        An image keeps its place when others are added or removed, and images of one group stay
        together. The shares are met on average, not exactly.

        Parameters
        ----------
        val, test : float
            Shares of the groups, between 0 and 1, together at most 1.

        Returns
        -------
        LabelledImages
        """
        if not (0 <= val <= 1 and 0 <= test <= 1 and val + test <= 1):
            raise ValueError(
                f"val and test must be shares with a sum of at most 1, got {val} and {test}."
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
        """Write cropped copies of the image files, and return the record of the copies.

        A copy that is there already is kept, so a second call, or one after an interruption,
        only writes what is missing. Where there is nothing to crop, nothing is written.

        Parameters
        ----------
        folder : path
            Where to write, one file ``<id><suffix>`` for each image.

        Returns
        -------
        LabelledImages
            With the paths of the copies, and nothing left to crop.
        """
        if self.images.dtype.kind != "U":
            raise TypeError("crop_files copies image files, and this record holds pixels.")
        if not any(self.crop):
            return self
        copies = []
        for index, (name, source) in enumerate(zip(self.ids, self.images, strict=True)):
            copy = Path(folder, name).with_suffix(Path(source).suffix)
            if not copy.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                # Under another name until complete, so that a half-written copy is never kept.
                partial = copy.with_name(f".{os.getpid()}-{copy.name}")
                self.open(index).save(partial, quality=95)
                partial.replace(copy)
            copies.append(str(copy))
        return replace(self, images=np.array(copies), crop=(0, 0, 0, 0))
