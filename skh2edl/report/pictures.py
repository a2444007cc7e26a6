"""Pictures inside a page: thumbnails and diagrams as data, so that no other file is needed."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

from ..images import ImageSource, image_source
from ..images.sources import BadImageError
from ..utils.optional import import_optional

_SIDE = 200
_SMALL = 64


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


def thumbnail(source: ImageSource | None, position: int) -> str | None:
    """Return one image as a data address, small; None where there is none or it is damaged.

    Parameters
    ----------
    source : ImageSource or None
        The images.
    position : int
        Which one.
    """
    if source is None:
        return None
    try:
        image = source.read(position, min_side=_SIDE)
    except BadImageError:
        return None
    content = io.BytesIO()
    if max(image.size) <= _SMALL:
        # A few pixels: kept as they are, because JPEG would smear them.
        image.save(content, "PNG")
        kind = "png"
    else:
        image.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        image.save(content, "JPEG", quality=82)
        kind = "jpeg"
    return as_data(content.getvalue(), f"image/{kind}")


def as_data(content: bytes, kind: str) -> str:
    """Return bytes as a data address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def diagram(display: Any) -> str:
    """Return the figure of a display as a data address, and close it.

    Parameters
    ----------
    display : display of this package
        Drawn.
    """
    mpl = import_optional("matplotlib", extra="plots")
    pyplot = import_optional("matplotlib.pyplot", extra="plots")
    content = io.BytesIO()
    # The same figures must give the same bytes: without the date, with fixed names of parts.
    with mpl.rc_context({"svg.hashsalt": "skh2edl", "svg.fonttype": "path"}):
        display.figure_.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(display.figure_)
    return as_data(content.getvalue(), "image/svg+xml")


def new_axes(size: tuple[float, float]) -> Any:
    """Return axes of a figure that no window shows.

    Parameters
    ----------
    size : tuple of float
        Width and height in inches.
    """
    figure = import_optional("matplotlib.figure", extra="plots").Figure(
        figsize=size, layout="constrained"
    )
    return figure.subplots()
