"""Every accepted kind of image input behind one class."""

import contextlib
import hashlib
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from .decoding import (
    MAX_PIXELS,
    ORIENTATION_TAG,
    check_pixels,
    decode_file,
    known_formats,
    quiet,
    to_rgb,
    upright,
)

ACCEPTED_INPUT = (
    "X must hold images: file paths (list, array, pandas Series), a uint8 array of shape "
    "(n, H, W, 3) or (n, H, W), or a list of PIL images or of uint8 arrays (H, W, 3) or (H, W)"
)

_NO_CROP = (0, 0, 0, 0)


class BadImageError(ValueError):
    """An image that cannot be used; the message names it, the reason and the way out.

    Examples
    --------
    >>> raise bad_image("'cat.jpg' (X[3])", "the file is empty")
    Traceback (most recent call last):
    skh2edl.images.sources.BadImageError: 'cat.jpg' (X[3]) cannot be used as an image: the file \
is empty. Repair or drop it, or set on_bad_image="skip".
    """


def bad_image(name: str, reason: str) -> BadImageError:
    """Word the error for one image."""
    return BadImageError(
        f"{name} cannot be used as an image: {reason}. "
        'Repair or drop it, or set on_bad_image="skip".'
    )


class ImageSource:
    """Images of one kind behind one door; a subset shares the data of the whole.

    Use `image_source` to make one. ``source[rows]`` takes what a NumPy axis takes (integers,
    slice, mask) and copies no pixel.
    """

    in_memory = True

    def __init__(self, n: int, max_pixels: int) -> None:
        self._rows = np.arange(n)
        self.max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> "ImageSource":
        subset = object.__new__(type(self))
        subset.__dict__.update(self.__dict__)
        subset._rows = np.atleast_1d(self._rows[rows])
        return subset

    def describe(self, position: int) -> str:
        """Name an image in messages, by its index in the whole X."""
        return f"X[{self._rows[position]}]"

    def read(self, position: int, min_side: int | None = None) -> Image.Image:
        """Decode one image to RGB; a file may come scaled down, both sides >= `min_side`."""
        try:
            with quiet:
                return self._read(int(self._rows[position]), min_side)
        except MemoryError:
            raise
        except Exception as error:  # a damaged file raises nearly anything
            raise bad_image(self.describe(position), _reason(error)) from error

    def content_hash(self) -> str:
        """Hash what identifies the images: paths with size and time of change, or pixels."""
        digest = hashlib.blake2b(type(self).__name__.encode(), digest_size=16)
        for row in self._rows:
            digest.update(self._identity(int(row)))
        return digest.hexdigest()

    def identity(self, position: int) -> str:
        """Hash what identifies one image, wherever it stands in X."""
        return hashlib.blake2b(self._identity(int(self._rows[position]))).hexdigest()

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        raise NotImplementedError

    def _identity(self, row: int) -> bytes:
        raise NotImplementedError


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if type(error).__name__ == "UnidentifiedImageError":
        return f"it is in none of the formats {', '.join(known_formats())}, or damaged"
    return str(error).rstrip(".") or type(error).__name__


class PathSource(ImageSource):
    """Files, decoded when asked for."""

    in_memory = False

    def __init__(
        self, paths: Sequence[str], max_pixels: int, crop: tuple[int, int, int, int] = _NO_CROP
    ) -> None:
        super().__init__(len(paths), max_pixels)
        self._crop = crop
        # One buffer: a list of strings is copied page by page into every forked worker.
        encoded = [os.fsencode(path) for path in paths]
        self._buffer = b"".join(encoded)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)

    def path(self, row: int) -> str:
        """Give the path of one row of the whole X."""
        start = self._ends[row - 1] if row else 0
        return os.fsdecode(self._buffer[start : self._ends[row]])

    def describe(self, position: int) -> str:
        """Name a file in messages, with its index in the whole X."""
        row = int(self._rows[position])
        return f"{self.path(row)!r} (X[{row}])"

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        if not any(self._crop):
            return decode_file(self.path(row), min_side, self.max_pixels)
        # At full scale, where the pixels to cut off are counted.
        image = decode_file(self.path(row), None, self.max_pixels)
        return ImageOps.crop(image, self._crop)

    def _identity(self, row: int) -> bytes:
        path = self.path(row)
        try:
            facts = os.stat(path)
            size, time = facts.st_size, facts.st_mtime_ns
        except (OSError, ValueError):  # ValueError: a null byte in the name
            size = time = -1
        name = os.fsencode(path)
        cut = struct.pack("<4q", *self._crop) if any(self._crop) else b""
        return struct.pack("<qqq", len(name), size, time) + name + cut


class ArraySource(ImageSource):
    """One uint8 array."""

    is_prepared = False

    def __init__(self, data: np.ndarray, max_pixels: int) -> None:
        super().__init__(len(data), max_pixels)
        self._data = data

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every image."""
        return self._data.shape[1:3]

    def stack(self, positions: Sequence[int]) -> np.ndarray:
        """Give several images at once, (n, H, W, 3)."""
        images = self._data[self._rows[list(positions)]]
        return images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        image = self._data[row]
        check_pixels((image.shape[1], image.shape[0]), self.max_pixels)
        return Image.fromarray(image).convert("RGB")

    def _identity(self, row: int) -> bytes:
        return _array_identity(self._data[row])


class PreparedSource(ArraySource):
    """Pixels that the transform for evaluation has already brought to the network's size."""

    is_prepared = True

    def __init__(self, data: np.ndarray) -> None:
        super().__init__(data, MAX_PIXELS)


class ItemSource(ImageSource):
    """Separate images in memory: Pillow images and uint8 arrays."""

    def __init__(self, items: Sequence[Any], max_pixels: int) -> None:
        super().__init__(len(items), max_pixels)
        self._items = items

    def preload(self) -> None:
        """Decode what Pillow left in open files: forked workers would share one file offset."""
        for row in np.unique(self._rows):
            item = self._items[row]
            if isinstance(item, Image.Image):
                with contextlib.suppress(Exception), quiet:  # told again when it is read
                    check_pixels(item.size, self.max_pixels)
                    item.load()

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        item = self._items[row]
        if isinstance(item, np.ndarray):
            item = Image.fromarray(item)
        check_pixels(item.size, self.max_pixels)
        return to_rgb(upright(item))

    def _identity(self, row: int) -> bytes:
        item = self._items[row]
        if isinstance(item, np.ndarray):
            return _array_identity(item)
        try:
            check_pixels(item.size, self.max_pixels)
            orientation = str(item.getexif().get(ORIENTATION_TAG, 1)).encode()
            return f"{item.mode} {item.size} ".encode() + orientation + item.tobytes()
        except Exception:  # a damaged image is reported when it is read
            return b"damaged"


def _array_identity(image: np.ndarray) -> bytes:
    return str(image.shape).encode() + np.ascontiguousarray(image).tobytes()


def image_source(
    X: Any, *, max_pixels: int = MAX_PIXELS, crop: tuple[int, int, int, int] = _NO_CROP
) -> ImageSource:
    """Accept every kind of image input.

    Parameters
    ----------
    X : list, ndarray, Series or ImageSource
        File paths, a uint8 array (n, H, W, 3) or (n, H, W), or a list of PIL images or uint8
        arrays of any sizes. Files may be JPEG, PNG, WebP, TIFF, BMP, GIF, PPM, JPEG 2000 or AVIF.
    max_pixels : int, default=178_956_970
        An image that declares more pixels is bad. Pillow sets a limit of its own, equal to the
        default.
    crop : tuple of int, default=(0, 0, 0, 0)
        Pixels to cut off each file's image at the left, top, right and bottom, such as a banner.

    Returns
    -------
    source : ImageSource

    Notes
    -----
    Images are turned as their EXIF orientation says. Grey, palette and CMYK images become RGB
    (without colour management), transparency is laid on white, 16-bit pixels are scaled by
    255/65535, float pixels count as 0 to 1 where all fit, else as 0 to 255. Of an animation, the
    first frame is used.

    Examples
    --------
    >>> source = image_source(np.zeros((4, 8, 8, 3), dtype=np.uint8))
    >>> len(source), len(source[1:]), source[1:].describe(0)
    (4, 3, 'X[1]')
    """
    if isinstance(X, ImageSource):
        return X
    if hasattr(X, "to_numpy") and getattr(X, "ndim", len(getattr(X, "shape", ()))) == 1:
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUT":
        if X.dtype != np.uint8:
            raise TypeError(f"{ACCEPTED_INPUT}. Got an array of {X.dtype}: scale and cast it.")
        if not (X.ndim == 3 or (X.ndim == 4 and X.shape[3] == 3)) or 0 in X.shape[1:]:
            raise TypeError(f"{ACCEPTED_INPUT}. Got an array of shape {X.shape}.")
        return ArraySource(X, max_pixels)
    if isinstance(X, np.ndarray) and X.ndim != 1:
        raise TypeError(f"{ACCEPTED_INPUT}. Got an array of {X.dtype} of shape {X.shape}.")
    if not isinstance(X, (list, tuple, np.ndarray)):
        raise TypeError(f"{ACCEPTED_INPUT}. Got {type(X).__name__}.")
    is_path = [isinstance(item, (str, os.PathLike)) for item in X]
    if all(is_path):
        return PathSource([os.fspath(item) for item in X], max_pixels, crop)
    for index, item in enumerate(X):
        if is_path[index]:
            raise TypeError(f"{ACCEPTED_INPUT}. Paths and images are mixed: X[{index}] is a path.")
        if not (isinstance(item, Image.Image) or _is_image_array(item)):
            what = type(item).__name__
            if isinstance(item, np.ndarray):
                what = f"an array of {item.dtype} of shape {item.shape}"
            raise TypeError(f"{ACCEPTED_INPUT}. X[{index}] is {what}.")
    return ItemSource(list(X), max_pixels)


def _is_image_array(item: Any) -> bool:
    if not isinstance(item, np.ndarray) or item.dtype != np.uint8 or 0 in item.shape:
        return False
    return item.ndim == 2 or (item.ndim == 3 and item.shape[2] == 3)
