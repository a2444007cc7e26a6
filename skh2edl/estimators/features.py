"""ImageFeatureExtractor: images in, features of a frozen backbone out, as a Pipeline step."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any, ClassVar, Self

import joblib
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ..images import image_source, make_transform
from ..training.backbones import create_backbone
from ..training.devices import ACCELERATORS, find_device
from ..training.feature_cache import frozen_features
from ..training.recipe import resolve_precision
from ..training.samples import ImageSamples
from ..utils.sklearn_tools import Interval, StrOptions


class ImageFeatureExtractor(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turn images into the features of a pretrained network.

    Parameters
    ----------
    backbone : str or nn.Module, default="resnet50"
        Any model of timm, also by "hf-hub:" or "local-dir:" and its place; or a module, see
        :class:`ImageBackbone`.
    weights : "pretrained", "packaged", path or None, default="pretrained"
        timm's own weights, those of the extra ``packaged`` (tf_efficientnet_lite0, no download), a
        local ``.safetensors`` or ``.pth`` file, or a random start.
    image_size : int or (height, width), default=None
        None takes the size the weights were trained for.
    batch_size : int, default=64
        Images computed at once.
    on_bad_image : {"error", "skip"}, default="error"
        Whether an image that cannot be read stops the job, or gets a row of NaN and is counted in
        a warning.
    memory : str or joblib.Memory, default=None
        Where to keep features, image by image; None keeps nothing.
    n_workers : int, default=None
        Processes that decode; None chooses.
    accelerator : {"auto", "cpu", "gpu", "cuda", "mps"}, default="auto"
        Where to compute, as in :class:`Hardware`.
    precision : {"auto", "32-true", "bf16-mixed", "16-mixed"}, default="auto"
        Arithmetic; "auto" is bfloat16 where the device computes in it.
    random_state : int, default=0
        Seed of a random start.
    verbose : int, default=0
        Whether to show progress.

    Attributes
    ----------
    backbone_ : Backbone
        The network.
    n_features_out_ : int
        Length of a feature.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import ImageFeatureExtractor
    >>> images = np.zeros((3, 32, 32, 3), dtype=np.uint8)
    >>> extractor = ImageFeatureExtractor("test_resnet", weights=None, image_size=32)
    >>> extractor.fit_transform(images).shape
    (3, 96)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "backbone": [str, nn.Module],
        "weights": [str, os.PathLike, None],
        "image_size": [Interval(Integral, 1, None, closed="left"), tuple, None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "on_bad_image": [StrOptions({"error", "skip"})],
        "memory": [str, joblib.Memory, None],
        "n_workers": [Interval(Integral, 0, None, closed="left"), None],
        "accelerator": [StrOptions(set(ACCELERATORS))],
        "precision": [StrOptions({"auto", "32-true", "bf16-mixed", "16-mixed"})],
        "random_state": [Interval(Integral, 0, None, closed="left")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        backbone: str | nn.Module = "resnet50",
        *,
        weights: str | os.PathLike[str] | None = "pretrained",
        image_size: int | tuple[int, int] | None = None,
        batch_size: int = 64,
        on_bad_image: str = "error",
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        accelerator: str = "auto",
        precision: str = "auto",
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.backbone = backbone
        self.weights = weights
        self.image_size = image_size
        self.batch_size = batch_size
        self.on_bad_image = on_bad_image
        self.memory = memory
        self.n_workers = n_workers
        self.accelerator = accelerator
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the network; nothing is learnt from the images.

        Parameters
        ----------
        X : images
            File paths, a uint8 array (n, H, W, 3) or (n, H, W), a list of PIL images or arrays, or
            what else :func:`skh2edl.images.image_source` reads.
        y : ignored
            For Pipeline.

        Returns
        -------
        self
        """
        self._validate_params()
        image_source(X)
        backbone = create_backbone(
            self.backbone, self.weights, image_size=self.image_size, seed=self.random_state
        )
        self.backbone_ = backbone.freeze().eval()
        self.n_features_out_ = self._n_features_out = backbone.n_features
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the features of images.

        Parameters
        ----------
        X : images
            As in :meth:`fit`.

        Returns
        -------
        features : ndarray of float32 of shape (n_images, n_features_out)
        """
        check_is_fitted(self, "backbone_")
        evaluation = make_transform(self.backbone_.data_config)
        samples = ImageSamples(
            image_source(X),
            evaluation,
            evaluation,
            batch_size=self.batch_size,
            n_workers=self.n_workers,
            on_bad_image=self.on_bad_image,
        )
        return frozen_features(
            self.backbone_,
            samples,
            memory=self.memory,
            device=find_device(self.accelerator),
            precision=resolve_precision(self.precision),
            verbose=self.verbose,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.requires_fit = True
        return tags
