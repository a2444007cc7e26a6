"""Recognise every accepted kind of X, and say what to do with any other."""

import os
from typing import Any

import numpy as np
from PIL import Image

from .decoding import MAX_PIXELS
from .sources import NO_CROP, ArraySource, ImageSource, ItemSource, PathSource, refusal

ACCEPTED_INPUT = (
    "X must hold images: file paths (list, array, column of a table), a uint8 array of shape "
    "(n, H, W, 3), (n, H, W), (n, H, W, 1) or (n, H, W, 4), a list of PIL images or such arrays "
    "or of the bytes of files, a data set of torch or an image column of Hugging Face"
)


def image_source(
    X: Any, *, max_pixels: int = MAX_PIXELS, crop: tuple[int, int, int, int] = NO_CROP
) -> ImageSource:
    """Accept every kind of image input.

    Classifiers with a backbone call it on their X. Call it yourself to give a data set of torch to
    a search or a splitter of scikit-learn: they index the result without reading an image.

    Parameters
    ----------
    X : list, ndarray, column of a table, data set or ImageSource
        File paths; a uint8 array (n, H, W, 3), (n, H, W), (n, H, W, 1) or (n, H, W, 4); a list of
        PIL images, of such arrays of any sizes, or of the bytes of files. Paths and bytes may be
        a column of pandas, polars or pyarrow, or an image column of Hugging Face. A data set of
        torch with a length, such as ``ImageFolder`` or ``Subset``, gives images or tuples that
        begin with one. Files may be JPEG, PNG, WebP, TIFF, BMP, GIF, PPM, JPEG 2000 or AVIF.
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
    X = _column(X)
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUT":
        _check_array(X)
        return ArraySource(X, max_pixels)
    if isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.ndim == 1):
        return _from_list(list(X), max_pixels, crop)
    if _is_lazy(X):
        return _from_dataset(X, max_pixels, crop)
    raise TypeError(f"{ACCEPTED_INPUT}. Got {_describe(X)}.")


def as_images(tensor: Any, layout: str) -> np.ndarray:
    """Return a uint8 tensor of images as the array that classifiers read, without a copy.

    Parameters
    ----------
    tensor : Tensor or ndarray of uint8 with 4 dimensions
        The images, on any device.
    layout : {"NCHW", "NHWC"}
        Where the colours are: before height and width, as in torchvision, or after.

    Returns
    -------
    images : ndarray of uint8 of shape (n, H, W, C)

    Examples
    --------
    >>> import torch
    >>> as_images(torch.zeros(2, 3, 8, 6, dtype=torch.uint8), "NCHW").shape
    (2, 8, 6, 3)
    """
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be 'NCHW' or 'NHWC', got {layout!r}.")
    array = np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)
    if array.ndim == 4 and layout == "NCHW":
        array = array.transpose(0, 2, 3, 1)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] not in (1, 3, 4):
        raise TypeError(
            f"A tensor of images is uint8, with 4 dimensions of which one holds 1, 3 or 4 colours; "
            f"with layout={layout!r} this one is {array.dtype} of shape {array.shape} as (n, H, W, "
            "C). Choose the other layout, or scale and cast it."
        )
    return array


def holds_images(X: Any) -> bool:
    """Return whether X is image input and cannot be a matrix of features."""
    if isinstance(X, ImageSource) or (_is_photograph(X) and X.ndim > 2):
        return True
    X = _column(X)
    if not isinstance(X, (list, tuple, np.ndarray)) or getattr(X, "ndim", 1) != 1 or not len(X):
        return False
    # A text that is a number would become a feature.
    return isinstance(X[0], (str, os.PathLike, bytes, Image.Image)) or _is_photograph(X[0])


def _is_photograph(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype == np.uint8 and item.ndim >= 2


def _column(X: Any) -> Any:
    """Return a column of pandas, polars or pyarrow as an array or a list, anything else as is."""
    if hasattr(X, "to_pylist") and not hasattr(X, "column_names"):  # pyarrow
        return X.to_pylist()
    if len(getattr(X, "shape", ())) != 1 or isinstance(X, np.ndarray):
        return X
    if hasattr(X, "to_list") and not hasattr(X, "iloc"):  # polars
        return X.to_list()
    return X.to_numpy() if hasattr(X, "to_numpy") else X


def _check_array(X: np.ndarray) -> None:
    shape = X.shape
    if X.ndim == 2:
        raise TypeError(
            f"{ACCEPTED_INPUT}. Got {_describe(X)}. To classify features, set backbone=None; a "
            "single grey image goes into a list, [X]."
        )
    if X.dtype != np.uint8:
        raise TypeError(f"{ACCEPTED_INPUT}. Got an array of {X.dtype}: scale and cast it.")
    if X.ndim == 3 and shape[2] in (1, 3, 4) and 0 not in shape:
        raise TypeError(
            f"{ACCEPTED_INPUT}. Got {_describe(X)}, which looks like a single image: put it in a "
            f"list, [X]. If it holds {shape[0]} grey images, give X[..., None]."
        )
    if X.ndim == 4 and shape[1] in (1, 3, 4) and shape[3] not in (1, 3, 4):
        raise TypeError(
            f"{ACCEPTED_INPUT}. Got {_describe(X)}, with the colours first: give "
            "skh2edl.images.as_images(X, 'NCHW')."
        )
    if not (X.ndim == 3 or (X.ndim == 4 and shape[3] in (1, 3, 4))) or 0 in shape[1:]:
        raise TypeError(f"{ACCEPTED_INPUT}. Got {_describe(X)}.")


def _from_list(items: list[Any], max_pixels: int, crop: tuple[int, int, int, int]) -> ImageSource:
    for index, item in enumerate(items):
        if problem := refusal(item):
            raise TypeError(f"{ACCEPTED_INPUT}. X[{index}] is {problem}.")
    is_path = [isinstance(item, (str, os.PathLike)) for item in items]
    if all(is_path):
        return PathSource([os.fspath(item) for item in items], max_pixels, crop)
    if any(is_path):
        index = is_path.index(True)
        raise TypeError(f"{ACCEPTED_INPUT}. Paths and images are mixed: X[{index}] is a path.")
    decoded = all(isinstance(item, (Image.Image, np.ndarray)) for item in items)
    return ItemSource(items, max_pixels, in_memory=decoded)


def _is_lazy(X: Any) -> bool:
    """Return whether X has a length and is indexed by integers, as data sets are."""
    is_text_or_table = isinstance(X, (str, bytes, dict, np.ndarray)) or hasattr(X, "columns")
    is_tensor = hasattr(X, "detach")
    has_length = hasattr(X, "__len__") and hasattr(X, "__getitem__")
    return has_length and not is_text_or_table and not is_tensor and not hasattr(X, "column_names")


def _from_dataset(X: Any, max_pixels: int, crop: tuple[int, int, int, int]) -> ImageSource:
    from torch.utils.data import Subset

    if type(X) is Subset:
        return image_source(X.dataset, max_pixels=max_pixels, crop=crop)[np.asarray(X.indices)]
    if _is_plain_folder(X):
        return PathSource([path for path, _ in X.samples], max_pixels, crop)
    if len(X):
        item = X[0]
        if problem := refusal(item[0] if isinstance(item, tuple) and item else item):
            raise TypeError(f"{ACCEPTED_INPUT}. The first item of {_describe(X)} is {problem}.")
    return ItemSource(X, max_pixels, in_memory=False)


def _is_plain_folder(X: Any) -> bool:
    """Return whether X is torchvision's ImageFolder that gives its files unchanged."""
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(X).__mro__]
    return (
        "torchvision.datasets.folder.ImageFolder" in names
        and X.transforms is None
        and X.loader.__name__ == "default_loader"
    )


def _describe(X: Any) -> str:
    """Say what X is, and what to do with it where that is known."""
    kind = type(X).__name__
    if isinstance(X, np.ndarray):
        text = f"an array of {X.dtype} of shape {X.shape}"
        if X.dtype.kind in "OUT":
            text += "; give one column, X[:, 0]" + _ONE_COLUMN
        return text
    if hasattr(X, "detach"):
        return f"{kind}: say where its colours are, skh2edl.images.as_images(X, 'NCHW') or 'NHWC'"
    names = getattr(X, "column_names", None)
    names = getattr(X, "columns", None) if names is None else names
    if names is not None:
        some = [str(name) for name in list(names)[:5]]
        return (
            f"{kind} with the columns {some}; give the column that holds the images, such as "
            f"X[{some[0] if some else 'image'!r}]{_ONE_COLUMN}. To classify features, set "
            "backbone=None"
        )
    return kind


_ONE_COLUMN = " (in a ColumnTransformer name it without brackets, 'image' and not ['image'])"
