"""What a classifier is given, images or features, behind one small interface."""

from __future__ import annotations

import warnings
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

# Samples whose features are evaluated at once: enough to keep a processor busy, little to hold.
_SAMPLES_AT_ONCE = 4096

# A value so many times what is usual leaves nothing of the usual ones in single precision.
_FAR = 1e7
# Samples that decide what is usual in a column.
_ROWS_OF_A_GLANCE = 1000

# A method of the head by name, or a function of the head and the features.
Output = str | Callable[[TreeHead, Tensor], Tensor]


def output_function(head: TreeHead, output: Output) -> Callable[[Tensor], Tensor]:
    """Return the function from features to an output of the head."""
    if isinstance(output, str):
        method: Callable[[Tensor], Tensor] = getattr(head, output)
        return method
    return partial(output, head)


class Samples(Protocol):
    """Inputs that can be cut, batched, given to a network, named and hashed."""

    def __len__(self) -> int: ...

    def subset(self, positions: npt.NDArray[np.int64]) -> Samples:
        """Return some of the samples."""

    def training_loader(
        self, batch_size: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> Any:
        """Return this process's batches; their order depends only on seed and epoch."""

    def compute(self, network: Network, output: Output, device: torch.device) -> npt.NDArray[Any]:
        """Return an output of the network's head for every sample."""

    def describe(self, position: int) -> str:
        """Name a sample in a message."""

    def content_hash(self) -> str:
        """Hash what identifies the samples."""


def warn_of_outliers(features: npt.NDArray[Any]) -> None:
    """Warn of rows with a value beside which all others of its column look alike.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        The rows.

    Examples
    --------
    >>> rows = np.arange(12.0).reshape(6, 2)
    >>> rows[4, 1] = 1e30
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_outliers(rows)
    >>> print(caught[0].message)
    X holds values far from all others of their column in 1 row(s), first row 4: 1e+30 in column \
1. They decide the scale of what is learnt: correct or drop these rows.
    """
    glance = features[:: max(1, len(features) // _ROWS_OF_A_GLANCE)]
    with np.errstate(over="ignore"):
        centre = np.median(glance, axis=0)
        reach = np.maximum(features.max(axis=0) - centre, centre - features.min(axis=0))
        suspects = np.flatnonzero(reach > _FAR * _usual(glance, centre)).tolist()
        found: dict[int, int] = {}
        for column in suspects:
            values = features[:, column]
            middle = np.median(values)
            usual = _usual(values[:, None], middle)[0]
            for row in np.flatnonzero(np.abs(values - middle) > _FAR * usual).tolist():
                found.setdefault(row, column)
    if found:
        first = min(found)
        warnings.warn(
            f"X holds values far from all others of their column in {len(found)} row(s), first row "
            f"{first}: {features[first, found[first]]:g} in column {found[first]}. They decide the "
            "scale of what is learnt: correct or drop these rows.",
            UserWarning,
            stacklevel=2,
        )


def _usual(features: npt.NDArray[Any], centre: Any) -> npt.NDArray[Any]:
    """Return the median of the distances from the centre, in each column, that are not 0."""
    distances = np.sort(np.abs(features - centre), axis=0)
    n_zeros = (distances == 0).sum(axis=0)
    middle = np.minimum(n_zeros + (len(features) - n_zeros) // 2, len(features) - 1)
    usual: npt.NDArray[Any] = np.take_along_axis(distances, middle[None], axis=0)[0]
    return usual


@dataclass(frozen=True)
class FeatureSamples:
    """Rows of a feature matrix.

    Parameters
    ----------
    features : ndarray of float of shape (n_samples, n_features)
        The head computes in their precision.
    """

    features: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.features)

    def subset(self, positions: npt.NDArray[np.int64]) -> FeatureSamples:
        """Return some of the samples."""
        return FeatureSamples(self.features[positions])

    def training_loader(
        self, batch_size: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> FeatureLoader:
        """Return this process's batches; their order depends only on seed and epoch."""
        sampler = EpochSampler(
            len(self), batch_size, seed=seed, shuffle=True, rank=rank, n_ranks=n_processes
        )
        return FeatureLoader(self.features, sampler)

    def compute(self, network: Network, output: Output, device: torch.device) -> npt.NDArray[Any]:
        """Return an output of the network's head for every sample."""
        function = output_function(network.head, output)
        parts = []
        with torch.inference_mode():
            for start in range(0, max(len(self), 1), _SAMPLES_AT_ONCE):
                batch = self.features[start : start + _SAMPLES_AT_ONCE]
                inputs = torch.from_numpy(np.require(batch, requirements="W"))  # else torch warns
                # The network's precision first: a device need not know double precision.
                inputs = inputs.to(network.feature_mean.dtype).to(device)
                standardized = network.standardized(inputs)
                self._warn_of_strangers(standardized, start)
                parts.append(function(standardized).cpu().numpy())
        return np.concatenate(parts)

    def _warn_of_strangers(self, standardized: Tensor, start: int) -> None:
        """Warn of rows that are far from everything that the network was trained on."""
        if not standardized.numel() or max(-standardized.min(), standardized.max()) <= _FAR:
            return
        size, column = standardized.abs().max(dim=1)
        far = torch.nonzero(~(size <= _FAR)).flatten().tolist()
        row, place = start + far[0], int(column[far[0]])
        warnings.warn(
            f"X holds values far from all training data in {len(far)} row(s), first row {row}: "
            f"{self.features[row, place]:g} in column {place}. Predictions for such rows mean "
            "nothing: correct or drop them.",
            UserWarning,
            stacklevel=2,
        )

    def describe(self, position: int) -> str:
        """Name a row in a message."""
        return f"row {position}"

    def content_hash(self) -> str:
        """Hash the features."""
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

    def subset(self, positions: npt.NDArray[np.int64]) -> ImageSamples:
        """Return some of the images."""
        return replace(self, source=self.source[positions])

    def training_loader(
        self, batch_size: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> Any:
        """Return this process's batches; their order depends only on seed and epoch."""
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

    def compute(self, network: Network, output: Output, device: torch.device) -> npt.NDArray[Any]:
        """Return an output of the network's head for every image."""
        from tqdm.auto import tqdm

        loader = self.evaluation_loader()
        batches: Iterable[tuple[Tensor, Tensor]] = tqdm(
            loader, total=len(loader), unit="batch", disable=self.verbose < 2, leave=False
        )
        function = output_function(network.head, output)
        outputs = predict_batches(network, function, batches, len(self), device)
        # NaN is expected for an unreadable image; for any other image it is an error.
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
    nodes : ndarray of int64 of shape (n_samples,)
        The node that each label means.
    weight : ndarray of float64 of shape (n_samples,)
        Sample weights.
    """

    samples: Samples
    nodes: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]

    def subset(self, positions: npt.NDArray[np.int64]) -> TrainingSet:
        """Return some of the samples."""
        return TrainingSet(
            self.samples.subset(positions), self.nodes[positions], self.weight[positions]
        )
