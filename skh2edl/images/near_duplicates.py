"""Images that look the same though their files differ: saved anew, scaled, brightened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .sources import BadImageError, ImageSource

_SIDE = 16
# Cosine: most copies are above it, photographs of different birds below 0.85
# (docs/studies/near_duplicates.py).
SAME_LOOK = 0.98
# Root mean square of the steps in grey levels; below it an image is blank but for noise.
_LEAST_CONTRAST = 2.0
# Pairs that are compared at a time: 64 MB.
_BLOCK = 1 << 24


def look_vectors(
    source: ImageSource, on_rows: Callable[[int], None] | None = None
) -> NDArray[np.float32]:
    """Return the steps of colour between neighbouring parts of each image.

    A plain background has no steps, and brightness only scales them.

    Parameters
    ----------
    source : ImageSource
        The images.
    on_rows : callable, default=None
        Called with 1 after each image.

    Returns
    -------
    vectors : ndarray of float32 of shape (n_images, 1536)
        16 times 16 steps to the right and as many down, in three colours, of length 1. Zeros for
        an image that is blank or cannot be read.
    """
    vectors = np.zeros((len(source), 2 * 3 * _SIDE**2), dtype=np.float32)
    for position in range(len(source)):
        with suppress(BadImageError):
            vectors[position] = _steps(source.read(position, min_side=4 * _SIDE))
        if on_rows is not None:
            on_rows(1)
    return vectors


def _steps(image: Image.Image) -> NDArray[np.float32]:
    small = image.resize((_SIDE + 1, _SIDE + 1), Image.Resampling.HAMMING)
    pixels = np.asarray(small, dtype=np.float32)
    steps = np.stack([np.diff(pixels, axis=1)[:-1], np.diff(pixels, axis=0)[:, :-1]]).ravel()
    length = np.linalg.norm(steps)
    if length < _LEAST_CONTRAST * np.sqrt(steps.size):
        return np.zeros_like(steps)
    return steps / length


def nearest_look(
    vectors: NDArray[np.float32], others: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return for each image which other one looks most like it, and how much.

    Parameters
    ----------
    vectors : ndarray of float32 of shape (n_images, 1536)
        From :func:`look_vectors`.
    others : ndarray of float32 of shape (n_others, 1536), default=None
        The images to look among; None takes `vectors`, each without itself.

    Returns
    -------
    nearest : ndarray of int of shape (n_images,)
    cosine : ndarray of float32 of shape (n_images,)
        1 for the same look. 0 next to a blank image, and -1 where there is no other.

    Examples
    --------
    >>> from skh2edl.images import image_source
    >>> pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    >>> pixels[2] = pixels[0] // 2  # darker
    >>> nearest, cosine = nearest_look(look_vectors(image_source(pixels)))
    >>> nearest.tolist(), (cosine >= SAME_LOOK).tolist()
    ([2, 2, 0], [True, False, True])
    """
    among = vectors if others is None else others
    nearest = np.zeros(len(vectors), dtype=np.int64)
    cosine = np.full(len(vectors), -1, dtype=np.float32)
    if not len(among):
        return nearest, cosine
    step = max(1, _BLOCK // len(among))
    for start in range(0, len(vectors), step):
        block = slice(start, start + step)
        alike = vectors[block] @ among.T
        rows = np.arange(len(alike))
        if others is None:
            alike[rows, start + rows] = -1
        nearest[block] = alike.argmax(axis=1)
        cosine[block] = alike[rows, nearest[block]]
    return nearest, cosine
