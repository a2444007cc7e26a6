"""Features of a frozen backbone, computed once for each image."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import torch

from ..utils.files import write_atomically
from ..utils.hashing import hash_values, hash_weights
from .backbones import Backbone, extract_features
from .samples import ImageSamples

Features = npt.NDArray[np.float32]


def frozen_features(
    backbone: Backbone,
    samples: ImageSamples,
    *,
    memory: str | joblib.Memory | None = None,
    device: str | torch.device = "cpu",
    precision: str = "32-true",
    verbose: int = 0,
) -> Features:
    """Return the features of all images, from the cache where it has them.

    Parameters
    ----------
    backbone : Backbone
        Run in evaluation mode.
    samples : ImageSamples
        The images.
    memory : str, joblib.Memory or None, default=None
        Folder in which to keep the features, image by image, so that the folds and candidates of a
        search share them; None keeps nothing. Files in it are arrays; nothing is executed.
    device, precision, verbose
        As in `extract_features`.

    Returns
    -------
    features : ndarray of float32 of shape (n_images, n_features)
        NaN for bad images that were skipped.
    """
    location = memory.location if isinstance(memory, joblib.Memory) else memory
    if location is None:
        return _compute(backbone, samples, device, precision, verbose)
    recipe = hash_values(
        backbone.name, hash_weights(backbone), repr(backbone.data_config), precision
    )
    folder = FeatureFolder(Path(location) / "skh2edl_features" / recipe, backbone.n_features)
    keys = [samples.source.identity(position) for position in range(len(samples))]
    # The first position of each image: one that is in X twice is computed once.
    first = {key: position for position, key in reversed([*enumerate(keys)])}
    known = {key: folder.read(key) for key in first}
    missing = np.array(sorted(first[key] for key in known if known[key] is None), dtype=np.int64)
    if missing.size:
        computed = _compute(backbone, samples.subset(missing), device, precision, verbose)
        for position, values in zip(missing.tolist(), computed, strict=True):
            known[keys[position]] = values
            # A bad image stays out of the cache: the file may be mended.
            if not np.isnan(values).any():
                folder.write(keys[position], values)
    features = np.empty((len(samples), backbone.n_features), dtype=np.float32)
    for position, key in enumerate(keys):
        features[position] = known[key]
    return features


class FeatureFolder:
    """Features in ``.npy`` files, one for each image; a damaged one counts as missing.

    Parameters
    ----------
    path : Path
        The folder, made when the first file is written.
    n_features : int
        Length of a feature.
    """

    def __init__(self, path: Path, n_features: int) -> None:
        self.path = path
        self.is_writable = True
        # All files are alike but for their numbers, so nothing in them needs to be interpreted.
        self._zeros = _as_npy(np.zeros(n_features, dtype=np.float32))
        self._start = len(self._zeros) - 4 * n_features

    def _file(self, key: str) -> Path:
        # Folders of ten thousands of files are slow on some systems.
        return self.path / key[:2] / f"{key[2:34]}.npy"

    def read(self, key: str) -> Features | None:
        """Return the features of an image, None if they are not there or damaged.

        Parameters
        ----------
        key : str
            Identity of the image.
        """
        try:
            with self._file(key).open("rb") as file:
                content = file.read(len(self._zeros) + 1)
        except OSError:
            return None
        if len(content) != len(self._zeros) or not content.startswith(self._zeros[: self._start]):
            return None
        values = np.frombuffer(content, dtype=np.float32, offset=self._start)
        return values if np.isfinite(values).all() else None

    def write(self, key: str, values: Features) -> None:
        """Write the features of an image; if the disk is full, warn once and write no more.

        Parameters
        ----------
        key : str
            Identity of the image.
        values : ndarray of float32 of shape (n_features,)
            Its features.
        """
        if not self.is_writable:
            return
        try:
            content = _as_npy(values)
            write_atomically(self._file(key), lambda file: file.write(content), durable=False)
        except OSError as error:
            self.is_writable = False
            warnings.warn(
                f"Features cannot be kept in {self.path} ({error.strerror or error}), so the next "
                "fit computes them again. Free space there, or give another memory.",
                UserWarning,
                stacklevel=2,
            )


def _as_npy(values: Features) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return buffer.getvalue()


def _compute(
    backbone: Backbone, samples: ImageSamples, device: Any, precision: str, verbose: int
) -> Features:
    loader = samples.evaluation_loader()
    return extract_features(backbone, loader, device=device, precision=precision, verbose=verbose)
