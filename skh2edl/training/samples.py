"""What a classifier is given, images or features, behind one small interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..heads.base import TreeHead
from ..images import EpochSampler, ImageSource, ImageTransform, make_loader
from ..utils.hashing import hash_values
from .network import FeatureLoader, Network, predict_batches

# Rows of features that are read at once: enough to keep a processor busy, little to hold.
_ROWS_AT_ONCE = 4096

# A method of the head by name, or a function of the head and the features.
Output = str | Callable[[TreeHead, Tensor], Tensor]


def reading(head: TreeHead, output: Output) -> Callable[[Tensor], Tensor]:
    """Return what reads features, from its name or as a function of the head."""
    if isinstance(output, str):
        method: Callable[[Tensor], Tensor] = getattr(head, output)
        return method
    return partial(output, head)


class Samples(Protocol):
    """Inputs that can be cut, batched, read by a network, named and hashed."""

    def __len__(self) -> int: ...

    def subset(self, rows: npt.NDArray[np.int64]) -> Samples:
        """Return some of the samples."""

    def training_loader(
        self, batch_size: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> Any:
        """Return a process's share of batches in an order of seed and epoch alone."""

    def read(self, network: Network, output: Output, device: torch.device) -> npt.NDArray[Any]:
        """Return what a method of the network's head says of every sample."""

    def describe(self, position: int) -> str:
        """Name a sample in a message."""

    def content_hash(self) -> str:
        """Hash what identifies the samples."""


@dataclass(frozen=True)
class FeatureSamples:
    """Rows of a feature matrix.

    Parameters
    ----------
    features : ndarray of float of shape (n_samples, n_features)
        The rows; the head computes in their precision.
    """

    features: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.features)

    def subset(self, rows: npt.NDArray[np.int64]) -> FeatureSamples:
        """Return some of the rows."""
        return FeatureSamples(self.features[rows])

    def training_loader(
        self, batch_size: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> FeatureLoader:
        """Return a process's share of batches in an order of seed and epoch alone."""
        sampler = EpochSampler(
            len(self), batch_size, seed=seed, shuffle=True, rank=rank, n_ranks=n_processes
        )
        return FeatureLoader(self.features, sampler)

    def read(self, network: Network, output: Output, device: torch.device) -> npt.NDArray[Any]:
        """Return what a method of the network's head says of every row."""
        read = reading(network.head, output)
        parts = []
        with torch.inference_mode():
            for start in range(0, max(len(self), 1), _ROWS_AT_ONCE):
                rows = torch.from_numpy(self.features[start : start + _ROWS_AT_ONCE])
                # The network's precision first: a device need not know double precision.
                rows = rows.to(network.feature_mean.dtype).to(device)
                parts.append(read(network.standardized(rows)).cpu().numpy())
        return np.concatenate(parts)

    def describe(self, position: int) -> str:
        """Name a row in a message."""
        return f"row {position}"

    def content_hash(self) -> str:
        """Hash the rows."""
        return hash_values(self.features)


@dataclass(frozen=True)
class ImageSamples:
    """Images of any accepted kind.

    Parameters
    ----------
    source : ImageSource
        The images.
    evaluation, training : ImageTransform
        How to bring an image to the backbone's size, without and with augmentation.
    batch_size : int
        Images read at once when predicting.
    n_workers : int or None
        Processes that decode; None chooses.
    on_bad_image : {"error", "skip"}
        What to do with an image that cannot be read.
    verbose : int
        Whether to show progress.
    """

    source: ImageSource
    evaluation: ImageTransform
    training: ImageTransform
    batch_size: int = 64
    n_workers: int | None = None
    on_bad_image: str = "error"
    verbose: int = 0

    def __len__(self) -> int:
        return len(self.source)

    def subset(self, rows: npt.NDArray[np.int64]) -> ImageSamples:
        """Return some of the images."""
        return replace(self, source=self.source[rows])

    def training_loader(
        self, batch_size: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> Any:
        """Return a process's share of batches in an order of seed and epoch alone."""
        return make_loader(
            self.source,
            self.training,
            batch_size=batch_size,
            shuffle=True,
            seed=seed,
            n_workers=self.n_workers,
            on_bad_image=self.on_bad_image,
            persistent_workers=True,
            rank=rank,
            n_ranks=n_processes,
        )

    def evaluation_loader(self) -> Any:
        """Return batches in the order of the images, without augmentation."""
        return make_loader(
            self.source,
            self.evaluation,
            batch_size=self.batch_size,
            n_workers=self.n_workers,
            on_bad_image=self.on_bad_image,
        )

    def read(self, network: Network, output: Output, device: torch.device) -> npt.NDArray[Any]:
        """Return what a method of the network's head says of every image."""
        from tqdm.auto import tqdm

        loader = self.evaluation_loader()
        batches: Iterable[tuple[Tensor, Tensor]] = tqdm(
            loader, total=len(loader), unit="batch", disable=self.verbose < 2, leave=False
        )
        read = reading(network.head, output)
        outputs = predict_batches(network, read, batches, len(self), device)
        # What could not be read has no answer; a network without an answer is another matter.
        unanswered = np.flatnonzero(np.isnan(outputs).any(axis=1)).tolist()
        if broken := [position for position in unanswered if position not in loader.bad]:
            names = ", ".join(self.describe(position) for position in broken[:5])
            raise FloatingPointError(
                f"The network gives NaN for {len(broken)} image(s), first {names}. Its weights are "
                "damaged or too large: train it again with a lower learning_rate."
            )
        return outputs

    def describe(self, position: int) -> str:
        """Name an image in a message."""
        return self.source.describe(position)

    def content_hash(self) -> str:
        """Hash what identifies the images."""
        return self.source.content_hash()


@dataclass(frozen=True)
class TrainingSet:
    """Samples with what a fit is told of them.

    Parameters
    ----------
    samples : Samples
        The inputs.
    targets : ndarray of int64 of shape (n_samples,)
        Target nodes.
    weight : ndarray of float64 of shape (n_samples,)
        Sample weights.
    """

    samples: Samples
    targets: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]

    def subset(self, positions: npt.NDArray[np.int64]) -> TrainingSet:
        """Return some of the samples."""
        return TrainingSet(
            self.samples.subset(positions), self.targets[positions], self.weight[positions]
        )
