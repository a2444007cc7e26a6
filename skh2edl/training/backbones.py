"""Backbones: timm's by name, any module of torch; frozen or not; their parameter groups."""

import copy
import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ..images import ImageLoader
from ..utils.hashing import hash_values
from ..utils.randomness import isolated_rng
from .adapters import ImageBackbone, adapt, probe
from .devices import full_precision, on_device
from .weight_files import check_connection, first_line, load_packaged, load_weights

__all__ = ["Backbone", "create_backbone", "extract_features", "parameter_groups"]

# Prefixes of names that timm looks up on Hugging Face's hub and in a local folder.
_SOURCES = ("hf-hub:", "hf_hub:", "local-dir:")

# Of weights and images; convolutions are faster in it.
_MEMORY_FORMAT = torch.channels_last

# Precision of the hardware -> type that autocast computes in.
_AUTOCAST = {
    "32-true": None,
    "bf16-mixed": torch.bfloat16,
    "16-mixed": torch.float16,
}


class Backbone(nn.Module):
    """A timm model without classifier that takes pixels; made by `create_backbone`.

    Parameters
    ----------
    model : nn.Module
        A timm model with `num_classes=0`, or an :class:`ImageBackbone`.
    name : str
        What timm rebuilds the model from, if it can.
    data_config : mapping
        As `timm.data.resolve_model_data_config` gives it.
    n_features : int

    Attributes
    ----------
    frozen : bool
        Whether the model stays in evaluation mode, without gradients.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        model: nn.Module,
        name: str,
        data_config: Mapping[str, Any],
        n_features: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.name = name
        self.data_config = dict(data_config)
        self.n_features = n_features
        self.frozen = False
        # Not in the state dict: they belong to the configuration, which is stored beside it.
        for key in ("mean", "std"):
            value = torch.tensor(data_config[key], dtype=torch.float32).view(1, -1, 1, 1)
            self.register_buffer(key, value * 255, persistent=False)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images."""
        height, width = self.data_config["input_size"][-2:]
        return height, width

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Give the features (n, n_features) of uint8 pixels, or of normalised floats."""
        if not images.is_floating_point():
            images = (images.float() - self.mean) / self.std
        return self.model(images.contiguous(memory_format=_MEMORY_FORMAT))

    def train(self, mode: bool = True) -> "Backbone":
        """Set the mode; a frozen model stays in evaluation mode (batch statistics too)."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    @property
    def is_module(self) -> bool:
        """Whether this is a module of the user's, which no name rebuilds."""
        return isinstance(self.model, ImageBackbone)

    def check_rebuildable(self) -> None:
        """Refuse to be described by a name that builds no such model."""
        if self.name.startswith(_SOURCES):
            raise TypeError(
                f"The backbone {self.name!r} has arguments that timm's name for its architecture "
                "does not say, so a file cannot rebuild it. Use joblib.dump or export_onnx."
            )

    def freeze(self, frozen: bool = True) -> "Backbone":
        """Keep all parameters and batch statistics as they are, or let them learn again."""
        self.frozen = frozen
        self.model.requires_grad_(not frozen)
        return self.train(self.training)


def create_backbone(
    name: str | nn.Module,
    weights: str | os.PathLike | None = "pretrained",
    *,
    image_size: int | tuple[int, int] | None = None,
    crop_pct: float | None = None,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    seed: int = 0,
    n_features: int | None = None,
) -> Backbone:
    """Create a timm model by name, without its classifier, or make a backbone of a module.

    Parameters
    ----------
    name : str or nn.Module
        As in `timm.list_models()`, with a tag if wanted ("resnet50.a1_in1k"); "hf-hub:" and a name
        on Hugging Face's hub, or "local-dir:" and a folder, as in `timm.create_model`. A module is
        copied; what is no :class:`ImageBackbone` becomes one.
    weights : "pretrained", "packaged", path or None, default="pretrained"
        "pretrained" lets timm download; "packaged" are ImageNet weights of tf_efficientnet_lite0
        that the extra ``packaged`` installs; a `.safetensors` or `.pth` file is read without
        running anything in it; None starts at random. A module keeps its own weights
        unless it is a path.
    image_size : int or (height, width), default=None
        None takes the size the weights were trained for.
    crop_pct : float, default=None
        Fraction of the short side that the central crop keeps. None takes timm's value at timm's
        size, and 1 (the whole side) at any other.
    mean, std : tuple of 3 floats, default=None
        Normalisation of pixels in 0..1. None takes that of the weights.
    seed : int, default=0
        For the random start; the global generators stay untouched.
    n_features : int, default=None
        Length of the features, where it is known. None runs one image to find out.

    Returns
    -------
    backbone : Backbone

    Examples
    --------
    >>> backbone = create_backbone("test_resnet", weights=None, image_size=32)
    >>> backbone.n_features, backbone.image_size
    (96, (32, 32))
    >>> backbone(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 96])
    """
    size = None if image_size is None else _as_pair(image_size)
    if isinstance(name, nn.Module):
        return _from_module(name, weights, size, crop_pct, mean, std)
    config = _pretrained_config(name)
    if weights == "packaged" and name != "tf_efficientnet_lite0":
        raise ValueError(
            f'weights="packaged" are those of backbone="tf_efficientnet_lite0", got {name!r}. '
            "Choose that backbone, or other weights."
        )
    fixes_size = size is not None and config.get("fixed_input_size")
    options = {"img_size": size} if fixes_size else {}
    with isolated_rng(seed):
        model = _build(name, weights == "pretrained", options)
        if weights == "packaged":
            load_packaged(model)
        elif weights is not None and weights != "pretrained":
            load_weights(model, weights)
        data = _data_config(model, size, crop_pct, mean, std)
        model = model.to(memory_format=_MEMORY_FORMAT)
        if n_features is None:
            n_features = _count_features(model, name, data["input_size"])
    if name.startswith(_SOURCES):
        name = _find_architecture(model, data) or name
    return Backbone(model, name, data, n_features)


def _find_architecture(model: nn.Module, data: Mapping[str, Any]) -> str | None:
    """Return the name that timm builds this model from, or None if that name builds another."""
    name = getattr(model, "pretrained_cfg", {}).get("architecture")
    if name is None or not hasattr(model, "_model_args"):
        return None
    from timm.models import get_model_args

    def describe(built: nn.Module) -> tuple[Any, Any]:
        arguments = {**get_model_args(built), "img_size": None}  # as the file has it
        return arguments, {key: value.shape for key, value in built.state_dict().items()}

    plain = create_backbone(name, None, image_size=data["input_size"][-2:], n_features=1)
    return str(name) if describe(plain.model) == describe(model) else None


def _from_module(
    module: nn.Module,
    weights: str | os.PathLike | None,
    size: tuple[int, int] | None,
    crop_pct: float | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
) -> Backbone:
    """Make a backbone of a copy of a module."""
    model = adapt(copy.deepcopy(module), size)
    if weights is not None and weights != "pretrained":
        load_weights(model.model, weights)
    given = {"crop_pct": crop_pct, "mean": mean, "std": std}
    data = model.data_config | {key: value for key, value in given.items() if value is not None}
    # Its layers and how features are read from them: what a cache must tell apart.
    kind = type(model.model).__name__
    name = f"{kind}-{hash_values(repr(model))[:8]}"
    model = model.to(memory_format=_MEMORY_FORMAT)
    return Backbone(model, name, data, _count_features(model, kind, data["input_size"]))


def _as_pair(image_size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise ValueError(
            f"image_size must be a positive integer or (height, width), got {image_size!r}."
        )
    return pair  # type: ignore[return-value]


def _pretrained_config(name: str) -> dict[str, Any]:
    import timm

    if isinstance(name, str) and name.startswith(_SOURCES):
        # Weights are not needed to know whether the size of the images is built in.
        return dict(_build(name, False, {}).pretrained_cfg)  # type: ignore[arg-type]
    if not isinstance(name, str) or not timm.is_model(name):
        known = timm.list_models()
        near = difflib.get_close_matches(str(name).split(".")[0], known, n=5, cutoff=0.5)
        hint = f"Near spellings: {', '.join(near)}." if near else ""
        raise ValueError(
            f"backbone={name!r} is not a model of timm. {hint} The documentation of timm lists all."
        )
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        architecture = name.split(".")[0]
        tags = timm.list_models(f"{architecture}.*", pretrained=True)
        raise ValueError(
            f"backbone={name!r} has a tag that timm does not know. Known: {', '.join(tags[:5])}. "
            f"{architecture!r} alone takes the default."
        ) from error
    return config.to_dict() if config is not None else {}


def _build(name: str, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    import timm

    is_elsewhere = name.startswith(_SOURCES)
    if not pretrained and not is_elsewhere:
        return timm.create_model(name, pretrained=False, num_classes=0, **options)
    remedy = (
        "pass weights='packaged' with backbone='tf_efficientnet_lite0', "
        "weights='path/to/file.safetensors' (or .pth), or weights=None for a random start"
    )
    if not is_elsewhere and not timm.is_model_pretrained(name):
        raise ValueError(f"timm offers no pretrained weights for backbone={name!r}; {remedy}.")
    try:
        check_connection(name)
        return timm.create_model(name, pretrained=pretrained, num_classes=0, **options)
    except Exception as error:  # the hub's client raises errors of several libraries
        raise OSError(
            f"timm could not load {'' if is_elsewhere else 'the pretrained weights of '}{name!r} "
            f"({type(error).__name__}: {first_line(error)}). Without a connection, "
            f"{'name a folder, local-dir:path, or a model of timm' if is_elsewhere else remedy}."
        ) from error


def _data_config(
    model: nn.Module,
    size: tuple[int, int] | None,
    crop_pct: float | None,
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
) -> dict[str, Any]:
    from timm.data.config import resolve_model_data_config

    data = dict(resolve_model_data_config(model))
    if size is not None and size != tuple(data["input_size"][-2:]):
        # timm itself evaluates whole images when it leaves the training size (test_crop_pct).
        data |= {"input_size": (3, *size), "crop_pct": 1.0}
    given = {"crop_pct": crop_pct, "mean": mean, "std": std}
    return data | {key: value for key, value in given.items() if value is not None}


def _count_features(model: nn.Module, name: str, input_size: tuple[int, int, int]) -> int:
    """Run one image: attributes of timm models do not always tell, nor which sizes they take."""
    training = model.training
    try:
        shape = probe(model, input_size)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"backbone={name!r} cannot take images of {input_size[1]} x {input_size[2]} pixels "
            f"({first_line(error)}). Choose another image_size."
        ) from error
    finally:
        model.train(training)
    if len(shape) != 2:
        raise ValueError(
            f"backbone={name!r} gives features of shape {tuple(shape)} for one image, and a head "
            "needs (1, n_features). Choose a model with global pooling."
        )
    return int(shape[1])


class _WithHead:
    """The backbone with a head where timm expects the classifier, as timm's grouping reads it."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        model: Any = backbone.model
        self.pretrained_cfg = getattr(model, "pretrained_cfg", {})
        if hasattr(model, "group_matcher"):
            self.group_matcher = model.group_matcher
        classifier = self.pretrained_cfg.get("classifier") or "head"
        place = classifier if isinstance(classifier, str) else classifier[0]
        self._parameters = [
            *model.named_parameters(),
            *((f"{place}.{name}", parameter) for name, parameter in head.named_parameters()),
        ]
        own = getattr(model, "no_weight_decay", set)
        self.no_decay: set[str] = set(own())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return iter(self._parameters)


def parameter_groups(
    backbone: Backbone,
    head: nn.Module,
    *,
    weight_decay: float = 0.05,
    layer_decay: float | None = None,
    backbone_lr_scale: float = 1.0,
) -> list[dict[str, Any]]:
    """Group parameters for an optimiser as timm does, the head in the classifier's place.

    Biases and normalisations get no weight decay. Frozen parameters are left out.

    Parameters
    ----------
    backbone : Backbone
    head : nn.Module
    weight_decay : float, default=0.05
    layer_decay : float, default=None
        Each layer below the head learns at this times the rate of the layer above it.
    backbone_lr_scale : float, default=1.0
        Learning rate of the backbone over that of the head.

    Returns
    -------
    groups : list of dict
        With "params", "weight_decay" and "lr_scale", which timm's schedulers multiply with the
        learning rate.

    Examples
    --------
    >>> backbone = create_backbone("test_resnet", weights=None, image_size=32)
    >>> groups = parameter_groups(backbone, nn.Linear(96, 3), backbone_lr_scale=0.1)
    >>> sorted({(group["lr_scale"], group["weight_decay"]) for group in groups})
    [(0.1, 0.0), (0.1, 0.05), (1.0, 0.0), (1.0, 0.05)]
    """
    from timm import optim as timm_optim

    optim: Any = timm_optim  # timm marks no name of it as exported
    view: Any = _WithHead(backbone, head)
    if layer_decay is None:
        groups = optim.param_groups_weight_decay(
            view, weight_decay=weight_decay, no_weight_decay_list=view.no_decay
        )
    else:
        groups = optim.param_groups_layer_decay(
            view,
            weight_decay=weight_decay,
            no_weight_decay_list=view.no_decay,
            layer_decay=layer_decay,
        )
    own = {id(parameter) for parameter in head.parameters()}
    result = []
    for group in groups:
        rate = group.get("lr_scale", 1.0)
        for of_head in (False, True):
            members = [p for p in group["params"] if (id(p) in own) == of_head]
            if members:
                scale = rate if of_head else rate * backbone_lr_scale
                result.append({**group, "params": members, "lr_scale": scale})
    return result


def extract_features(
    backbone: Backbone,
    loader: ImageLoader,
    *,
    device: str | torch.device = "cpu",
    precision: str = "32-true",
    verbose: int = 0,
) -> np.ndarray:
    """Run the backbone over all images in evaluation mode.

    Parameters
    ----------
    backbone : Backbone
        Stays where it is; put back into its mode.
    loader : ImageLoader
    device : str or torch.device, default="cpu"
    precision : {"32-true", "bf16-mixed", "16-mixed"}, default="32-true"
    verbose : int, default=0
        A progress bar when above 0.

    Returns
    -------
    features : ndarray of shape (n_images, n_features), float32
        A row of NaN for each image that the loader skipped.

    Examples
    --------
    >>> from skh2edl.images import image_source, make_loader, make_transform
    >>> backbone = create_backbone("test_resnet", weights=None, image_size=32)
    >>> source = image_source(np.zeros((3, 32, 32, 3), dtype=np.uint8))
    >>> loader = make_loader(source, make_transform(backbone.data_config))
    >>> extract_features(backbone, loader).shape
    (3, 96)
    """
    from tqdm.auto import tqdm

    if precision not in _AUTOCAST:
        raise ValueError(f"precision must be one of {list(_AUTOCAST)}, got {precision!r}.")
    device = torch.device(device)
    dtype = _AUTOCAST[precision]
    features = np.full((loader.n_samples, backbone.n_features), np.nan, dtype=np.float32)
    backbone = on_device(backbone, device)
    training = backbone.training
    backbone.eval()
    try:
        with (
            torch.inference_mode(),
            full_precision(device),
            torch.autocast(device.type, dtype=dtype, enabled=dtype is not None),
            tqdm(total=loader.n_samples, unit="image", disable=verbose <= 0) as bar,
        ):
            for images, positions in loader:
                output = backbone(images.to(device, non_blocking=True)).float().cpu().numpy()
                broken = positions[~np.isfinite(output).all(axis=1)].tolist()
                if broken:
                    source = loader.dataset.source  # type: ignore[attr-defined]
                    raise ValueError(
                        f"The backbone gives NaN or infinity for {len(broken)} image(s) of a "
                        f"batch, first {', '.join(source.describe(i) for i in broken[:5])}. "
                        'Check the weights, or use precision="32-true".'
                    )
                features[positions.numpy()] = output
                bar.update(len(positions))
    finally:
        backbone.train(training)
    return features
