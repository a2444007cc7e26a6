"""The images of a report: what they hold, which of them are shown, and small pictures of them."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..images import ImageSource, image_source
from ..images.sources import BadImageError, PathSource
from ..taxonomy.tree import IntArray
from .figures import at_label_depth, mistaken, uncertainty
from .predictions import Predictions

# Sides in pixels: of a picture on the page, and of images that are kept as they are.
_SIDE, _SMALL = 200, 64


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


class Chosen(NamedTuple):
    """Positions of the images that a report shows.

    Attributes
    ----------
    surest, least_sure, surest_mistakes : ndarray of int
        The extreme ones first; no image twice.
    next_mistakes : ndarray of int
        Mistakes that follow on the surest; only their names are shown.
    """

    surest: IntArray
    least_sure: IntArray
    surest_mistakes: IntArray
    next_mistakes: IntArray


def choose_images(
    predictions: Predictions,
    truth: IntArray,
    *,
    explained: Sequence[int] = (),
    n_each: int = 3,
    n_next: int = 12,
) -> Chosen:
    """Choose the images to show: most certain, least certain, and certain but mistaken.

    The most certain have the highest probability of the best leaf, as in the confusions; the
    least certain leave the most belief open.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    explained : sequence of int, default=()
        Leaves with a known fault of the data; mistakes on these are not shown.
    n_each : int, default=3
        How many of each kind; of one class at most one among the surest, of one class taken for
        another at most one among the mistakes.
    n_next : int, default=12
        How many further mistakes.
    """
    tree, sure = predictions.taxonomy, predictions.path_probability[:, -1]
    ends, wrong = tree.last_of_chain[truth], mistaken(predictions, truth)
    rows = np.flatnonzero(predictions.readable & ~(wrong & np.isin(ends, explained)))
    order = rows[np.argsort(-sure[rows], kind="stable")]
    pairs = ends * tree.n_nodes + at_label_depth(predictions, ends)
    mistakes = _first_of_each(order[wrong[order]], pairs, n_each + n_next)
    shown = set(mistakes[:n_each])
    others = [row for row in order.tolist() if row not in shown]
    surest = _first_of_each(others, predictions.best_leaves, n_each)
    shown.update(surest)
    by_uncertainty = rows[np.argsort(-uncertainty(predictions)[rows], kind="stable")].tolist()
    least = [row for row in by_uncertainty if row not in shown][:n_each]
    parts = (surest, least, mistakes[:n_each], mistakes[n_each:])
    return Chosen(*(np.array(part, dtype=np.int64) for part in parts))


def _first_of_each(rows: Iterable[int], groups: IntArray, n_most: int) -> list[int]:
    """Return the first row of each group, in order."""
    found: dict[int, int] = {}
    for row in rows:
        if len(found) == n_most:
            break
        found.setdefault(int(groups[row]), int(row))
    return list(found.values())


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
