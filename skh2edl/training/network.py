"""A backbone and a head as one module, and its predictions batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..heads.base import Targets, TreeHead
from ..images.loading import EpochSampler
from .backbones import Backbone
from .devices import full_precision


class UncastTargets:
    """Targets hidden from mixed precision, which would round what they hold."""

    def __init__(self, content: Targets) -> None:
        self.content = content


class Network(nn.Module):
    """Input -> feature -> standardised feature -> head -> log-probabilities of the leaves.

    A plain module: ``network(x)`` takes what the backbone takes, uint8 pixels (n, 3, H, W) or
    normalised floats, or else features. ``torch.export``, hooks and gradients work on it.

    Parameters
    ----------
    backbone : Backbone or None
        None where the inputs are features already.
    head : TreeHead
        The method.

    Attributes
    ----------
    feature_mean, feature_scale : Tensor of shape (n_features,)
        What standardises the features; 0 and 1 unless :meth:`standardize` set them.
    """

    feature_mean: Tensor
    feature_scale: Tensor
    leaf_order: Tensor

    def __init__(self, backbone: Backbone | None, head: TreeHead) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        n_features = head.linear.in_features
        self.register_buffer("feature_mean", torch.zeros(n_features))
        self.register_buffer("feature_scale", torch.ones(n_features))
        # The taxonomy says it, so it is in no file.
        order = torch.from_numpy(np.array(head.segments.taxonomy.leaf_order))
        self.register_buffer("leaf_order", order, persistent=False)

    def standardize(self, mean: npt.ArrayLike, scale: npt.ArrayLike) -> None:
        """Set what is subtracted from the features, and what they are divided by."""
        for buffer, values in ((self.feature_mean, mean), (self.feature_scale, scale)):
            buffer.copy_(torch.as_tensor(np.asarray(values)))

    def features(self, inputs: Tensor) -> Tensor:
        """Return what the head reads, (n, n_features), of images or of a backbone's features."""
        if self.backbone is not None and inputs.ndim > 2:
            inputs = self.backbone(inputs)
        return self.standardized(inputs)

    def standardized(self, features: Tensor) -> Tensor:
        """Return features as the head expects them."""
        return (features.to(self.feature_mean.dtype) - self.feature_mean) / self.feature_scale

    def forward(self, inputs: Tensor) -> Tensor:
        """Return log P of each leaf, columns in the order of `classes_`: (n, n_leaves)."""
        return self.head.leaf_log_probability(self.features(inputs))[:, self.leaf_order]

    def loss(self, inputs: Tensor, targets: Targets, progress: float) -> Tensor:
        """Return the loss of each sample; the arguments are those of :meth:`TreeHead.loss`."""
        return self.head.loss(self.features(inputs), targets, progress)


class TrainingStep(nn.Module):
    """The loss of a network as a forward pass: strategies and compilers wrap only that.

    Parameters
    ----------
    network : Network
        The one to train.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor, targets: UncastTargets, progress: float) -> Tensor:
        """Return the loss of each sample."""
        return self.network.loss(inputs, targets.content, progress)


class FeatureLoader:
    """Batches of a feature matrix, in the manner of an image loader.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        The features.
    sampler : EpochSampler
        The order of the samples.
    """

    def __init__(self, features: npt.NDArray[Any], sampler: EpochSampler) -> None:
        self.features = torch.from_numpy(features)
        self.batch_sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass."""
        self.batch_sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.batch_sampler:
            positions = torch.tensor([position for _, position in batch], dtype=torch.int64)
            yield self.features[positions], positions


@torch.inference_mode()
def predict_batches(
    network: Network,
    function: Callable[[Tensor], Tensor],
    loader: Iterable[tuple[Tensor, Tensor]],
    n_samples: int,
    device: torch.device,
) -> npt.NDArray[np.float32]:
    """Apply a function to the features of every batch, in evaluation mode.

    Parameters
    ----------
    network : Network
        On `device`; put back into its mode afterwards.
    function : callable
        Features to outputs, such as ``network.head.leaf_log_probability``.
    loader : iterable of (inputs, positions)
        The batches.
    n_samples : int
        Length of the result.
    device : torch.device
        Where the network is.

    Returns
    -------
    outputs : ndarray of float32 of shape (n_samples, n_outputs)
        NaN for samples that the loader skipped.
    """
    was_training = network.training
    network.eval()
    outputs: npt.NDArray[np.float32] | None = None
    try:
        with full_precision(device):
            for inputs, positions in loader:
                values = (
                    function(network.features(inputs.to(device, non_blocking=True))).float().cpu()
                )
                if outputs is None:
                    outputs = np.full((n_samples, values.shape[1]), np.nan, dtype=np.float32)
                outputs[positions.numpy()] = values.numpy()
    finally:
        network.train(was_training)
    if outputs is None:
        width = function(network.feature_mean[None]).shape[1]
        outputs = np.full((n_samples, width), np.nan, dtype=np.float32)
    return outputs
