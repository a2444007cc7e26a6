"""ImageBackbone: any module of torch as a backbone, also those of open_clip and transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

# Of pixels from 0 to 1, as the authors of the weights publish them.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# Features of a model of transformers, the first that it gives.
_FIELDS = ("image_embeds", "pooler_output", "last_hidden_state")


class ImageBackbone(nn.Module):
    """Say how a module of torch turns images into features.

    A module that takes normalised images (n, 3, H, W) and returns features (n, d) or feature maps
    (n, d, h, w) can be given to a classifier as it is, ``H2EDLClassifier(tree, backbone=module)``.
    For any other, and for another size or normalisation than that of ImageNet, wrap it.

    Parameters
    ----------
    model : nn.Module
        Takes normalised images (n, 3, H, W).
    method : str, default="forward"
        The method of the model to call, such as "encode_image".
    output : str or int, default=None
        The key, attribute or position of the features in what the model returns, if that is not a
        tensor. "auto" takes what models of transformers give: "image_embeds", "pooler_output", or
        the first token of "last_hidden_state".
    pool : {"mean", "first"}, default=None
        How tokens (n, n_tokens, d) become one feature: their mean, or the first one. Feature maps
        (n, d, h, w) are averaged.
    image_size : int or (height, width), default=224
        Size of the images.
    mean, std : tuple of 3 floats, default=those of ImageNet
        Normalisation of pixels in 0..1.
    crop_pct : float, default=1.0
        Fraction of the short side that the central crop keeps.

    Notes
    -----
    A file holds the weights of a module and not its code, so load it with the module:
    ``load_model(path, backbone=module)``. A file of `export_onnx` needs no code.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import FlatCEClassifier, ImageBackbone
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU())
    >>> images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    >>> clf = FlatCEClassifier(
    ...     backbone=ImageBackbone(network, image_size=32), finetune="head", random_state=0
    ... )
    >>> clf.fit(images, ["cat", "dog"] * 3).network_.backbone.n_features
    8
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        method: str = "forward",
        output: str | int | None = None,
        pool: str | None = None,
        image_size: int | tuple[int, int] = 224,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        crop_pct: float = 1.0,
    ) -> None:
        super().__init__()
        if pool not in (None, "mean", "first"):
            raise ValueError(f"pool must be None, 'mean' or 'first', got {pool!r}.")
        if not callable(getattr(model, method, None)):
            raise ValueError(f"{type(model).__name__} has no method {method!r}.")
        self.model = model
        self.method = method
        self.output = output
        self.pool = pool
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        self.data_config: dict[str, Any] = {
            "input_size": (3, *size),
            "interpolation": "bicubic",
            "mean": tuple(mean),
            "std": tuple(std),
            "crop_pct": crop_pct,
            "crop_mode": "center",
        }

    @classmethod
    def from_open_clip(cls, model: nn.Module) -> Self:
        """Wrap a model of open_clip; its size and normalisation are its own.

        Parameters
        ----------
        model : nn.Module
            What ``open_clip.create_model`` returns.
        """
        visual: Any = model.visual
        return cls(
            model,
            method="encode_image",
            image_size=getattr(visual, "image_size", 224),
            mean=getattr(visual, "image_mean", None) or CLIP_MEAN,
            std=getattr(visual, "image_std", None) or CLIP_STD,
        )

    @classmethod
    def from_transformers(cls, model: nn.Module, processor: Any = None) -> Self:
        """Wrap a vision model of transformers, such as DINOv2, ViT or CLIP.

        Parameters
        ----------
        model : nn.Module
            What ``AutoModel.from_pretrained`` returns.
        processor : image processor, default=None
            What ``AutoImageProcessor.from_pretrained`` returns: its size and normalisation. None
            takes the size of the model's configuration and the normalisation of ImageNet.
        """
        config: Any = model.config
        config = getattr(config, "vision_config", config)
        size = getattr(config, "image_size", 224)
        if processor is not None:
            own = getattr(processor, "crop_size", None) or processor.size
            size = own.get("height", own.get("shortest_edge", size))
        side = size if isinstance(size, int) else tuple(size)
        return cls(
            model,
            method="get_image_features" if hasattr(model, "get_image_features") else "forward",
            output="auto",
            image_size=side,
            mean=tuple(getattr(processor, "image_mean", None) or IMAGENET_MEAN),
            std=tuple(getattr(processor, "image_std", None) or IMAGENET_STD),
        )

    def extra_repr(self) -> str:
        """Say how features are read."""
        return f"method={self.method!r}, output={self.output!r}, pool={self.pool!r}"

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (n, d) of normalised images."""
        values = self._pick(getattr(self.model, self.method)(images))
        if values.ndim == 4:
            return values.mean((2, 3))
        if values.ndim == 3 and self.pool is not None:
            return values.mean(1) if self.pool == "mean" else values[:, 0]
        if values.ndim == 3:
            raise ValueError(
                f"it gives tokens of shape {tuple(values.shape)}; wrap it, ImageBackbone(model, "
                "pool='mean') or pool='first'"
            )
        return values

    def _pick(self, result: Any) -> Tensor:
        """Find the features in what the model returns."""
        if isinstance(result, Tensor):
            return result
        for name in _FIELDS if self.output == "auto" else [self.output]:
            if isinstance(result, Mapping):
                value = result.get(name)
            elif isinstance(name, int):
                value = result[name]
            else:
                value = getattr(result, str(name), None)
            if isinstance(value, Tensor):
                is_first_token = self.output == "auto" and name == "last_hidden_state"
                return value[:, 0] if is_first_token else value
        offered = list(result) if isinstance(result, Mapping) else type(result).__name__
        raise ValueError(
            f"it returns {offered}, in which output={self.output!r} is no tensor; name the "
            "features, ImageBackbone(model, output=...)"
        )


def adapt(module: nn.Module, image_size: tuple[int, int] | None) -> ImageBackbone:
    """Return a module as an ImageBackbone, for images of the given size if there is one."""
    adapted = module if isinstance(module, ImageBackbone) else ImageBackbone(module)
    if image_size is not None:
        adapted.data_config["input_size"] = (3, *image_size)
    return adapted


def probe(model: nn.Module, input_size: tuple[int, int, int]) -> torch.Size:
    """Return the shape of the features of one image."""
    with torch.inference_mode():
        return model.eval()(torch.zeros(1, *input_size)).shape
