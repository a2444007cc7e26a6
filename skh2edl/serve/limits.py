"""How much one visitor may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """How much may be sent in one request, and kept in memory between requests.

    Parameters
    ----------
    max_upload_mb : float, default=64
        Most that one request may send, all its files together, in millions of bytes.
    max_files : int, default=32
        Most images in one request; the page sends more of them in several requests.
    max_pixels : int, default=64_000_000
        An image that declares more pixels is refused before any is decoded: a small file can
        stand for gigabytes.
    max_kept_mb : float, default=256
        Opinions are kept in memory so that branches can be opened later and photographs fused;
        beyond this size the oldest are forgotten. Images are never kept.

    Examples
    --------
    >>> Limits(max_files=4).max_upload_bytes
    64000000
    >>> Limits(max_files=0)
    Traceback (most recent call last):
    ValueError: max_files must be greater than 0, got 0.
    """

    max_upload_mb: float = 64
    max_files: int = 32
    max_pixels: int = 64_000_000
    max_kept_mb: float = 256

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise ValueError(f"{each.name} must be greater than 0, got {value!r}.")

    @property
    def max_upload_bytes(self) -> int:
        """Most bytes of one request."""
        return int(self.max_upload_mb * _MEGABYTE)

    @property
    def max_kept_bytes(self) -> int:
        """Most bytes of opinions that are kept."""
        return int(self.max_kept_mb * _MEGABYTE)
