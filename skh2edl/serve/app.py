"""The application and its limits; the packages it needs are imported when it is made."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..utils.optional import import_optional

if TYPE_CHECKING:
    from fastapi import FastAPI

EXTRA = "serve"
LOOPBACK_NAMES = ("localhost",)
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limits:
    """How much may be sent in one request, how slowly, and kept in memory between requests.

    Parameters
    ----------
    max_upload_mb : float, default=64
        Most that one request may send, all its files together, in millions of bytes.
    max_files : int, default=32
        Most images in one request; the page sends more of them in several requests.
    max_pixels : int, default=64_000_000
        An image that declares more pixels is refused before any is decoded: a small file can
        stand for gigabytes.
    max_request_pixels : int, default=256_000_000
        Most pixels that all images of one request may declare; images beyond are refused.
    max_reading_mb : float, default=256
        Most that the bodies of all requests together may take, in millions of bytes. A client may
        hold as much of it as is left for others; beyond, it waits for `patience` and is refused.
    min_kb_per_second : float, default=64
        A body that arrives more slowly, in thousands of bytes, is refused after `patience`.
    patience : float, default=10
        Seconds that a body may fall behind that rate.
    max_kept_mb : float, default=256
        Opinions are kept in memory so that branches can be opened later and photographs fused;
        beyond this size the client that has most loses its oldest. Images are never kept.

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
    max_request_pixels: int = 256_000_000
    max_reading_mb: float = 256
    min_kb_per_second: float = 64
    patience: float = 10
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
    def max_reading_bytes(self) -> int:
        """Most bytes of all bodies that are in memory; always enough for one request."""
        return max(int(self.max_reading_mb * _MEGABYTE), 2 * self.max_upload_bytes)

    @property
    def max_kept_bytes(self) -> int:
        """Most bytes of opinions that are kept."""
        return int(self.max_kept_mb * _MEGABYTE)


def create_app(
    model: Any, *, limits: Limits | None = None, hosts: Collection[str] = LOOPBACK_NAMES
) -> FastAPI:
    """Make the web application that classifies images with a model.

    Parameters
    ----------
    model : path or classifier
        A file that `save` or ``skh2edl fit`` wrote, or a fitted classifier of this package. It
        must read images; one without opinions on the tree shows probabilities only.
    limits : Limits, default=None
        How much may be sent and kept; None takes the defaults.
    hosts : collection of str, default=("localhost",)
        Names under which the server may be called, beside numeric addresses. Requests under other
        names are refused, so that no web page can reach a local server by a name of its own.

    Returns
    -------
    app : fastapi.FastAPI
        For any ASGI server. ``GET /`` is the page, ``/api/openapi.json`` describes the API.

    Notes
    -----
    Images are decoded in memory and forgotten; nothing is written to disk. There is no login and
    no encryption: behind a public address both are the task of a proxy.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import H2EDLClassifier
    >>> from skh2edl.serve import create_app
    >>> X = np.random.default_rng(0).integers(256, size=(8, 32, 32, 3), dtype=np.uint8)
    >>> clf = H2EDLClassifier(backbone="test_resnet", weights=None, finetune="head", image_size=32)
    >>> app = create_app(clf.fit(X, ["cat", "dog"] * 4))
    >>> sorted(app.openapi()["paths"])
    ['/api/children', '/api/find', '/api/fuse', '/api/model', '/api/predict']
    """
    for package in ("fastapi", "python_multipart"):
        import_optional(package, extra=EXTRA)
    from ..estimators.base import TreeClassifier
    from ..estimators.model_card import ModelCard
    from ..estimators.model_files import load_classifier
    from .routes import build
    from .service import Service

    limits = Limits() if limits is None else limits
    if isinstance(model, (str, os.PathLike)):
        (estimator, card), name = load_classifier(model), Path(model).stem
    else:
        estimator, card, name = model, ModelCard(), type(model).__name__
    if not isinstance(estimator, TreeClassifier):
        raise TypeError(
            f"model must be a model file or a classifier of this package, got "
            f"{type(estimator).__name__}."
        )
    if estimator.backbone is None:
        raise ValueError(
            "The model reads columns of numbers, not images, so there is nothing to drop on a "
            "page. Fit one with a backbone, or use skh2edl predict."
        )
    # In this process and without a bar; the sender of an unreadable image gets its error.
    estimator.set_params(on_bad_image="skip", hardware__n_workers=0, batch_size=16, verbose=0)
    return build(Service(estimator, card, name, limits), hosts)
