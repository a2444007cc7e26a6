"""Files and pictures of every mode to upright 8-bit RGB, and why one is refused."""

import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
from PIL import Image

from ..utils.threads import SharedContext

# Pillow's own hard limit: above it Pillow refuses to open a file whatever we allow.
MAX_PIXELS = 178_956_970

# Formats that are plain pixels. Pillow also opens formats that run other programs (EPS).
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "JPEG2000", "AVIF")

ORIENTATION_TAG = 0x0112
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Broken metadata does not make pixels wrong, and size is our own rule. `catch_warnings` alone
# leaves the filters changed when two threads leave it in the order they came.
quiet = SharedContext(_without_warnings)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to 8-bit RGB, transparent pixels on white."""
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        return image
    if mode.startswith("I;16") or mode in ("I", "F"):
        return Image.fromarray(_to_8_bit(np.asarray(image))).convert("RGB")
    if mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        # Premultiplied modes, La and RGBa, are converted by Pillow in one step only.
        rgba = image.convert(mode.upper() if mode in ("La", "RGBa") else "RGBA").convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _to_8_bit(values: np.ndarray) -> np.ndarray:
    """Scale 16-bit integers by 255/65535; take floats as 0..1 where they fit, else as 0..255."""
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        if not (low >= 0 and high <= 255):  # also true for NaN
            raise ValueError(f"its float pixels span {low:g} to {high:g}, outside 0 to 255")
        return np.rint(values * (255 if high <= 1 else 1)).astype(np.uint8)
    if low < 0 or high > 65535:
        raise ValueError(f"its pixels span {low} to {high}, outside 16 bits")
    return ((values.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def upright(image: Image.Image) -> Image.Image:
    """Turn an image as its EXIF orientation says."""
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # damaged metadata raises nearly anything, and the pixels are still good
        return image
    method = _TRANSPOSE.get(orientation)
    return image if method is None else image.transpose(method)


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
    """Refuse an image by its declared size, before any pixel is decoded."""
    if size[0] * size[1] > max_pixels:
        raise ValueError(
            f"it declares {size[0]} x {size[1]} pixels, more than max_pixels={max_pixels}"
        )


def decode_file(path: str, min_side: int | None, max_pixels: int) -> Image.Image:
    """Read a file as upright RGB, scaled down while both sides stay >= `min_side`."""
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode):  # a pipe or device would block for ever
        raise ValueError("it is not a regular file")
    if facts.st_size == 0:
        raise ValueError("the file is empty")
    return decode(path, min_side, max_pixels)


def decode(file: str | BinaryIO, min_side: int | None, max_pixels: int) -> Image.Image:
    """Do the same with the content of a file, wherever it is."""
    try:
        image: Image.Image = Image.open(file, formats=known_formats())
    except Image.DecompressionBombError as error:
        raise ValueError(f"{error}; PIL.Image.MAX_IMAGE_PIXELS sets that limit") from None
    with image:
        check_pixels(image.size, max_pixels)
        if min_side is not None and image.format in ("JPEG", "MPO"):
            # libjpeg leaves out what would be scaled away; the result stays >= min_side.
            image.draft(None, (min_side, min_side))
        image.load()
        return to_rgb(upright(image))


def known_formats() -> tuple[str, ...]:
    """Give the accepted formats that this Pillow can read."""
    if not set(FORMATS) <= set(Image.OPEN):
        Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)
