"""The images of a report: what they hold, and small pictures of them."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..images import ImageSource, image_source
from ..images.sources import BadImageError, PathSource

# Sides in pixels: of a picture on the page, and of images that are kept as they are.
_SIDE, _SMALL = 160, 64


def picture_source(images: Any) -> ImageSource | None:
    """Return the images to show, None for features.

    Parameters
    ----------
    images : images or array-like or None
        What a classifier accepts as X.
    """
    if images is None:
        return None
    try:
        return image_source(images)
    except TypeError:
        return None


def content_hashes(
    source: Any, on_rows: Callable[[int], None] | None = None
) -> npt.NDArray[np.uint64]:
    """Hash the content of each sample: the bytes of a file, the pixels or the features.

    Parameters
    ----------
    source : ImageSource or ndarray of shape (n_samples, n_features)
        The samples. A file that cannot be read gets a hash of its name.
    on_rows : callable, default=None
        Called with 1 after each sample.

    Returns
    -------
    hashes : ndarray of uint64 of shape (n_samples,)
        Equal for equal content. Images that were saved anew or cropped have other hashes.

    Examples
    --------
    >>> first, second, third = content_hashes(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    digests = []
    for position in range(len(source)):
        digests.append(hashlib.blake2b(_content(source, position), digest_size=8).digest())
        if on_rows is not None:
            on_rows(1)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _content(source: Any, position: int) -> bytes:
    if not isinstance(source, ImageSource):
        return np.ascontiguousarray(source[position]).tobytes()
    if not isinstance(source, PathSource):
        return source.identity(position).encode()
    path = source.path(int(source._rows[position]))
    try:
        return Path(path).read_bytes()
    except OSError:
        return f"unreadable {path}".encode()


def thumbnail(source: ImageSource, position: int) -> str | None:
    """Return a small picture of one image as a data address, None where it is damaged.

    Parameters
    ----------
    source : ImageSource
        The images.
    position : int
        Which one.
    """
    try:
        image = source.read(position, min_side=_SIDE)
    except BadImageError:
        return None
    content = io.BytesIO()
    if max(image.size) <= _SMALL:
        # JPEG would smear an image of a few pixels.
        image.save(content, "PNG")
        return as_data(content.getvalue(), "image/png")
    image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    image.save(content, "JPEG", quality=82)
    return as_data(content.getvalue(), "image/jpeg")


def as_data(content: bytes, kind: str) -> str:
    """Return bytes as a data address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
