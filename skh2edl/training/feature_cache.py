"""Features of a frozen backbone, computed once for each image."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import torch

from ..utils.hashing import hash_values, hash_weights
from .backbones import Backbone, extract_features
from .samples import ImageSamples


def frozen_features(
    backbone: Backbone,
    samples: ImageSamples,
    *,
    memory: str | joblib.Memory | None = None,
    device: str | torch.device = "cpu",
    precision: str = "32-true",
    verbose: int = 0,
) -> npt.NDArray[np.float32]:
    """Return the features of all images, from the cache where it has them.

    Parameters
    ----------
    backbone : Backbone
        Run in evaluation mode.
    samples : ImageSamples
        The images.
    memory : str, joblib.Memory or None, default=None
        Where to keep the features, image by image, so that the folds and candidates of a search
        share them; None keeps nothing.
    device, precision, verbose
        As in `extract_features`.

    Returns
    -------
    features : ndarray of float32 of shape (n_images, n_features)
        NaN in the rows of bad images that were skipped.
    """
    memory = joblib.Memory(memory, verbose=0) if isinstance(memory, str) else memory
    if memory is None or memory.location is None:
        return _compute(backbone, samples, device, precision, verbose)
    recipe = hash_values(
        backbone.name, hash_weights(backbone), repr(backbone.data_config), precision
    )
    keys = [f"{recipe}-{samples.source.identity(row)}" for row in range(len(samples))]
    recall = memory.cache(_recall, ignore=["known"])
    # The first row of each image: one that is in X twice is computed once.
    first = {key: row for row, key in reversed([*enumerate(keys)])}
    missing = np.array(
        sorted(row for key, row in first.items() if not recall.check_call_in_cache(key, None)),
        dtype=np.int64,
    )
    known: dict[str, npt.NDArray[np.float32]] = {}
    if missing.size:
        computed = _compute(backbone, samples.subset(missing), device, precision, verbose)
        known = {keys[row]: computed[position] for position, row in enumerate(missing)}
    features = np.empty((len(samples), backbone.n_features), dtype=np.float32)
    for row, key in enumerate(keys):
        # A bad image stays out of the cache: the file may be mended.
        bad = key in known and np.isnan(known[key]).any()
        features[row] = known[key] if bad else recall(key, known)
    return features


def _recall(key: str, known: dict[str, npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Hand one image's features to joblib, which stores them under the key."""
    return known[key]


def _compute(
    backbone: Backbone, samples: ImageSamples, device: Any, precision: str, verbose: int
) -> npt.NDArray[np.float32]:
    loader = samples.evaluation_loader()
    return extract_features(backbone, loader, device=device, precision=precision, verbose=verbose)
