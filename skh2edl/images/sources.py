"""Images of every accepted kind behind one class; `inputs.py` chooses the kind."""

import contextlib
import hashlib
import io
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
    decode,
    decode_file,
    known_formats,
    quiet,
    to_rgb,
    upright,
)

NO_CROP = (0, 0, 0, 0)  # the whole image


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
    slice, mask) and copies no pixel, so a search or a splitter reads no image before it is needed.
    """

    in_memory = True

    def __init__(self, n: int, max_pixels: int) -> None:
        self._rows = np.arange(n)
        self.max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int]:
        """The number of images; scikit-learn's splitters index what has a shape as a whole."""
        return (len(self._rows),)

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
        self, paths: Sequence[str], max_pixels: int, crop: tuple[int, int, int, int] = NO_CROP
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
    """One uint8 array: grey, (n, H, W), or with 1, 3 or 4 channels at the end."""

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
        if images.ndim == 3:
            images = images[..., None]
        if images.shape[3] == 4:
            return np.stack([np.asarray(from_array(image)) for image in images])
        return images if images.shape[3] == 3 else np.repeat(images, 3, axis=3)

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        image = self._data[row]
        check_pixels((image.shape[1], image.shape[0]), self.max_pixels)
        return from_array(image)

    def _identity(self, row: int) -> bytes:
        return _array_identity(self._data[row])


class PreparedSource(ArraySource):
    """Pixels that the transform for evaluation has already brought to the network's size."""

    is_prepared = True

    def __init__(self, data: np.ndarray) -> None:
        super().__init__(data, MAX_PIXELS)


class ItemSource(ImageSource):
    """Separate images: Pillow images, uint8 arrays, contents of files, or a data set of these.

    Parameters
    ----------
    items : sequence
        Anything with a length that is indexed by integers. An item that is a tuple, as data sets
        of torch give, begins with the image.
    max_pixels : int
        Largest image.
    in_memory : bool
        Whether an item costs nothing to get.
    """

    def __init__(self, items: Sequence[Any], max_pixels: int, in_memory: bool = True) -> None:
        super().__init__(len(items), max_pixels)
        self._items = items
        self.in_memory = in_memory

    def preload(self) -> None:
        """Decode what Pillow left in open files: forked workers would share one file offset."""
        if not isinstance(self._items, list):
            return  # a data set opens its files when it is asked
        for row in np.unique(self._rows):
            item = self._items[row]
            if isinstance(item, Image.Image):
                with contextlib.suppress(Exception), quiet:  # told again when it is read
                    check_pixels(item.size, self.max_pixels)
                    item.load()

    def _item(self, row: int) -> Any:
        item = self._items[row]
        item = item[0] if isinstance(item, tuple) else item
        if problem := refusal(item):
            raise TypeError(f"it is {problem}")
        return item

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        item = self._item(row)
        if isinstance(item, np.ndarray):
            check_pixels((item.shape[1], item.shape[0]), self.max_pixels)
            return from_array(item)
        if isinstance(item, Image.Image):
            check_pixels(item.size, self.max_pixels)
            return to_rgb(upright(item))
        path, content = _file(item)
        if content is None:
            return decode_file(os.fspath(path), min_side, self.max_pixels)
        if not len(content):
            raise ValueError("its content is empty")
        return decode(io.BytesIO(content), min_side, self.max_pixels)

    def _identity(self, row: int) -> bytes:
        try:
            item = self._item(row)
            if isinstance(item, np.ndarray):
                return _array_identity(item)
            if not isinstance(item, Image.Image):
                path, content = _file(item)
                return os.fsencode(path) if content is None else bytes(content)
            check_pixels(item.size, self.max_pixels)
            orientation = str(item.getexif().get(ORIENTATION_TAG, 1)).encode()
            return f"{item.mode} {item.size} ".encode() + orientation + item.tobytes()
        except Exception:  # a damaged image is reported when it is read
            return b"damaged"


def refusal(item: Any) -> str | None:
    """Describe what one item of X is, if it is no image."""
    if isinstance(item, (Image.Image, str, os.PathLike, bytes, bytearray, memoryview)):
        return None
    if isinstance(item, dict):
        if any(item.get(key) is not None for key in ("bytes", "path")):
            return None
        return f"a dict with the keys {list(item)[:5]}; give one column, such as X['image']"
    if isinstance(item, np.ndarray):
        shape, is_right = item.shape, item.dtype == np.uint8 and 0 not in item.shape
        if is_right and (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))):
            return None
        return f"an array of {item.dtype} of shape {shape}"
    if type(item).__module__.split(".")[0] == "torch":
        return (
            "a tensor, which does not say where its colours are; leave out the transform that "
            "makes tensors (the backbone's own is applied), or give as_images(tensor, layout)"
        )
    if item is None or item is np.nan or type(item).__name__ in ("NAType", "NaTType"):
        return f"missing ({item}); drop the samples without an image"
    if isinstance(item, float) and item != item:
        return "missing (nan); drop the samples without an image"
    if isinstance(item, tuple):
        return "a tuple, as a data set of torch gives; wrap the data set, image_source(dataset)"
    return type(item).__name__


def from_array(image: np.ndarray) -> Image.Image:
    """Make an RGB image of uint8 pixels: grey, or with 1, 3 or 4 channels at the end."""
    return to_rgb(Image.fromarray(image[..., 0] if image.shape[2:] == (1,) else image))


def _file(item: Any) -> tuple[Any, Any]:
    """Return the path and the content of a file, of which one may be missing."""
    if isinstance(item, dict):  # as Hugging Face's data sets store images
        return item.get("path"), item.get("bytes")
    return (item, None) if isinstance(item, (str, os.PathLike)) else (None, item)


def _array_identity(image: np.ndarray) -> bytes:
    return str(image.shape).encode() + np.ascontiguousarray(image).tobytes()
