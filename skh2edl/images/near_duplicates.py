"""Images that look the same though their files differ: saved anew, scaled, brightened."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from .sources import BadImageError, ImageSource

_SIDE = 16
# Of 512 bits. Saving or scaling an image anew mostly changes fewer; no two of 2,500 birds differ
# in fewer than 97.
MOST_BITS = 70
# Pairs that are compared at a time: about 100 MB.
_BLOCK = 1 << 20


def look_hashes(source: ImageSource) -> NDArray[np.uint64]:
    """Return which of neighbouring parts of each image is the brighter one (dHash).

    Parameters
    ----------
    source : ImageSource
        The images.

    Returns
    -------
    hashes : ndarray of uint64 of shape (n_images, 8)
        512 bits: 16 times 16 steps to the right and as many down. Few differ for images that look
        the same. Zeros for an image that cannot be read.
    """
    hashes = np.zeros((len(source), 2 * _SIDE**2 // 64), dtype=np.uint64)
    for position in range(len(source)):
        try:
            image = source.read(position, min_side=4 * _SIDE)
        except BadImageError:
            continue
        size = (_SIDE + 1, _SIDE + 1)
        grey = np.asarray(image.convert("L").resize(size, Image.Resampling.BOX), dtype=np.int16)
        right, down = np.diff(grey, axis=1)[:-1] > 0, np.diff(grey, axis=0)[:, :-1] > 0
        hashes[position] = np.packbits([right, down]).view(np.uint64)
    return hashes


def nearest_look(
    hashes: NDArray[np.uint64], others: NDArray[np.uint64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each image which other one looks most like it, and in how many bits they differ.

    Parameters
    ----------
    hashes : ndarray of uint64 of shape (n_images, 8)
        From :func:`look_hashes`.
    others : ndarray of uint64 of shape (n_others, 8), default=None
        The images to look among; None takes `hashes`, each without itself.

    Returns
    -------
    nearest : ndarray of int of shape (n_images,)
    n_bits : ndarray of int of shape (n_images,)

    Examples
    --------
    >>> from skh2edl.images import image_source
    >>> pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    >>> pixels[2] = pixels[0] // 2  # darker
    >>> nearest, n_bits = nearest_look(look_hashes(image_source(pixels)))
    >>> nearest.tolist(), (n_bits <= MOST_BITS).tolist()
    ([2, 2, 0], [True, False, True])
    """
    among = hashes if others is None else others
    nearest = np.zeros(len(hashes), dtype=np.int64)
    n_bits = np.full(len(hashes), np.iinfo(np.int64).max)
    if not len(among):
        return nearest, n_bits
    step = max(1, _BLOCK // len(among))
    for start in range(0, len(hashes), step):
        block = slice(start, start + step)
        differ = np.bitwise_count(hashes[block, None] ^ among[None]).sum(axis=2, dtype=np.int64)
        if others is None:
            rows = np.arange(len(differ))
            differ[rows, start + rows] = np.iinfo(np.int64).max
        nearest[block] = differ.argmin(axis=1)
        n_bits[block] = differ.min(axis=1)
    return nearest, n_bits
