"""Uploaded files, in memory only."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ..images.decoding import decode
from ..images.sources import BadImageError, ImageSource
from .app import Limits

FIELD = "files"
_MAX_NAME = 200
_MAX_SECONDS = 120
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


class UploadSource(ImageSource):
    """Images whose files are in memory; read like those on a disk.

    Parameters
    ----------
    uploads : sequence of Upload
        The files.
    max_pixels : int
        An image that declares more is bad.
    """

    def __init__(self, uploads: Sequence[Upload], max_pixels: int) -> None:
        super().__init__(len(uploads), max_pixels)
        self._uploads = uploads

    def describe(self, position: int) -> str:
        """Name a file in messages."""
        return repr(self._uploads[self._rows[position]].name)

    def problem(self, position: int) -> str:
        """Say why an image could not be used."""
        try:
            self.read(position)
        except BadImageError as error:
            return str(error).split(". Repair or drop it")[0] + "."
        return f"{self.describe(position)} could not be used as an image."

    def _read(self, row: int, min_side: int | None) -> Image.Image:
        data = self._uploads[row].data
        if not data:
            raise ValueError("the file is empty")
        return decode(io.BytesIO(data), min_side, self.max_pixels)

    def _identity(self, row: int) -> bytes:
        return self._uploads[row].data


class _MemoryParser(MultiPartParser):
    """Reads a form without the temporary files that large parts would go to."""

    # Under both names that the attribute had; the guard bounds the whole body.
    spool_max_size = max_file_size = 1 << 62


async def read_uploads(request: Request, limits: Limits) -> list[Upload]:
    """Return the files of a form.

    Parameters
    ----------
    request : Request
        The request.
    limits : Limits
        How much may be sent.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
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
        async with asyncio.timeout(_MAX_SECONDS):
            form = await parser.parse()
    except TimeoutError:
        raise HTTPException(408, f"The images did not arrive in {_MAX_SECONDS} seconds.") from None
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise HTTPException(413, too_many) from None
        raise HTTPException(400, f"The form could not be read: {error.message}") from None
    except FormParserError as error:  # earlier releases of starlette let it through
        raise HTTPException(400, f"The form could not be read: {error}") from None
    try:
        parts = [part for name, part in form.multi_items() if name == FIELD]
        files = [part for part in parts if isinstance(part, UploadFile)]
        if not files:
            raise HTTPException(400, f"There is no file in the form. Name its parts {FIELD!r}.")
        if len(files) > limits.max_files:
            raise HTTPException(413, too_many)
        return [Upload(shown_name(file.filename), await file.read()) for file in files]
    finally:
        await form.close()


def shown_name(name: str | None) -> str:
    """Return a file name fit to be shown: no folders, no control characters, not too long.

    Parameters
    ----------
    name : str or None
        The client's name for the file.

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
