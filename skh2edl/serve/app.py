"""The application, made only where its packages are installed."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..utils.optional import import_optional
from .limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

EXTRA = "serve"
LOOPBACK_NAMES = ("localhost",)


def create_app(
    model: Any,
    *,
    limits: Limits | None = None,
    hosts: Collection[str] = LOOPBACK_NAMES,
) -> FastAPI:
    """Make the web application that shows what a model says of images.

    Parameters
    ----------
    model : path or classifier
        A file that `save` or ``skh2edl fit`` wrote, or a fitted classifier of this package. It
        must read images; one without opinions on the tree shows probabilities only.
    limits : Limits, default=None
        How much may be sent and kept. None takes the defaults.
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
    from ..estimators.model_card import ModelCard, read_card
    from ..estimators.model_files import load_model
    from .routes import build
    from .service import Service

    limits = Limits() if limits is None else limits
    if isinstance(model, (str, os.PathLike)):
        estimator, card, name = load_model(model), read_card(model), Path(model).stem
    else:
        estimator, card, name = model, ModelCard(), type(model).__name__
    _prepare(estimator)
    return build(Service(estimator, card, name, limits), hosts)


def _prepare(estimator: Any) -> None:
    from ..estimators.base import TreeClassifier

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
    # In this process and without a bar; an image that cannot be read is told to its sender.
    estimator.set_params(on_bad_image="skip", n_workers=0, batch_size=16, verbose=0)
