"""Uploaded files, in memory only."""

from __future__ import annotations

import io
import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ..images.decoding import decode, known_formats, quiet
from ..images.loading import ImageDataset
from ..images.sources import BadImageError, ImageSource
from ..images.transforms import ImageTransform
from .app import Limits
from .guard import is_form

FIELD = "files"
_MAX_NAME = 200
# Decoding must not take much longer than a picture of that size usually does.
_SLOW_FORMATS = {"JPEG2000", "PPM"}
_MAX_SCANS = 100  # as in libtiff; cameras and programs write ten or so
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Upload(NamedTuple):
    """One file.

    Attributes
    ----------
    name : str
        The client's name for it; only ever shown.
    data : bytes
        Its content.
    """

    name: str
    data: bytes


class Picture(NamedTuple):
    """One file as the network reads it, or why it cannot be used.

    Attributes
    ----------
    name : str
        Name of the file.
    pixels : ndarray of uint8 of shape (height, width, 3), or None
        At the size of the network.
    error : str or None
        The reason.
    """

    name: str
    pixels: npt.NDArray[np.uint8] | None
    error: str | None = None


class UploadSource(ImageSource):
    """An image whose file is in memory; read like one on a disk.

    Parameters
    ----------
    upload : Upload
        The file.
    max_pixels : int
        An image that declares more is bad.
    """

    def __init__(self, upload: Upload, max_pixels: int) -> None:
        super().__init__(1, max_pixels)
        self._upload = upload

    def describe(self, position: int) -> str:
        """Name the file in messages."""
        return repr(self._upload.name)

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        if not self._upload.data:
            raise ValueError("the file is empty")
        _check_effort(self._upload.data)
        return decode(io.BytesIO(self._upload.data), min_side, self.max_pixels)

    def _identity(self, row: int) -> bytes:
        return self._upload.data


def upload_formats() -> tuple[str, ...]:
    """Return the formats that are accepted from strangers."""
    return tuple(name for name in known_formats() if name not in _SLOW_FORMATS)


def _check_effort(data: bytes) -> None:
    """Refuse a file made to keep the processor busy for minutes."""
    try:
        with quiet, Image.open(io.BytesIO(data), formats=known_formats()) as image:
            # Pillow's own register has the decoders that are written in Python.
            is_slow = image.format in _SLOW_FORMATS or any(
                tile[0] in Image.DECODERS for tile in image.tile
            )
            if image.format in ("JPEG", "MPO"):
                # Each scan of a progressive JPEG is a pass over all pixels.
                is_slow = data.count(b"\xff\xda") > _MAX_SCANS
    except Image.DecompressionBombError:
        return  # refused for its size when it is decoded
    if is_slow:
        raise ValueError("its kind of compression takes too long to decode; send it as a PNG")


def declared_pixels(upload: Upload) -> int:
    """Return how many pixels a file says it has; 0 if it is no image.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (30, 20)).save(file, "PNG")
    >>> declared_pixels(Upload("a.png", file.getvalue())), declared_pixels(Upload("b", b"text"))
    (600, 0)
    """
    try:
        with quiet, Image.open(io.BytesIO(upload.data), formats=known_formats()) as image:
            return image.width * image.height
    except Exception:  # a damaged file raises nearly anything, and is refused when it is read
        return 0


def make_picture(upload: Upload, transform: ImageTransform, max_pixels: int) -> Picture:
    """Decode a file and bring it to the size of the network.

    Parameters
    ----------
    upload : Upload
        The file.
    transform : ImageTransform
        For evaluation.
    max_pixels : int
        An image that declares more is refused.
    """
    try:
        pixels, _ = ImageDataset(UploadSource(upload, max_pixels), transform)[0]
    except BadImageError as error:
        reason = str(error).split(". Repair or drop it")[0] + "."
        return Picture(upload.name, None, reason)
    return Picture(upload.name, pixels.permute(1, 2, 0).numpy())


class _MemoryParser(MultiPartParser):
    """Reads a form without the temporary files that large parts would go to."""

    # The guard bounds the whole body.
    spool_max_size = 1 << 62


async def read_uploads(request: Request, limits: Limits) -> list[Upload]:
    """Return the files of a form."""
    kind = request.headers.get("content-type", "")
    if not is_form(kind):
        raise HTTPException(
            415,
            f"Images are sent as multipart/form-data in parts named {FIELD!r}, got "
            f"{kind[:100] or 'no content type'!r}.",
        )
    parser = _MemoryParser(
        request.headers,
        request.stream(),
        max_files=limits.max_files + 1,  # one more, to tell too many from a broken form
        max_fields=16,
    )
    too_many = (
        f"A request may hold at most {limits.max_files} images. Send them in several requests, or "
        "start the server with a larger --max-files."
    )
    try:
        form = await parser.parse()
        parts = [part for name, part in form.multi_items() if name == FIELD]
        files = [part for part in parts if isinstance(part, UploadFile)]
        if not files:
            raise HTTPException(400, f"There is no file in the form. Name its parts {FIELD!r}.")
        if len(files) > limits.max_files:
            raise HTTPException(413, too_many)
        return [Upload(shown_name(file.filename), await file.read()) for file in files]
    # Not every release of starlette passes its parser's error on as its own.
    except (MultiPartException, FormParserError) as error:
        if "Too many files" in str(error):
            raise HTTPException(413, too_many) from None
        raise HTTPException(400, f"The form could not be read: {error}") from None
    finally:
        # Also the part that was not complete when the client left.
        for spool in parser._files_to_close_on_error:
            spool.close()


def shown_name(name: str | None) -> str:
    """Return a file name fit to be shown: no folders, no control characters, not too long.

    Examples
    --------
    >>> shown_name("../holiday/bird.jpg"), shown_name(None)
    ('bird.jpg', 'image')
    """
    last = re.split(r"[/\\]", name or "")[-1]
    clean = _CONTROLS.sub("", last).strip()
    if len(clean) > _MAX_NAME:
        clean = f"{clean[: _MAX_NAME - 13]}...{clean[-10:]}"
    return clean or "image"
