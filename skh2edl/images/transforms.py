"""timm's transforms for evaluation and training, up to the uint8 pixels."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageOps


class ImageTransform:
    """Bring an RGB image to the size of the backbone; made by `make_transform`.

    Attributes
    ----------
    size : tuple of (height, width)
    random : bool
        Whether it draws random numbers.
    min_side : int
        A file may be decoded at a lower scale as long as no side falls below.
    """

    def __init__(self, steps: Any, size: tuple[int, int], min_side: int, random: bool) -> None:
        self.steps = steps
        self.size = size
        self.min_side = min_side
        self.random = random

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Give the pixels, (height, width, 3) uint8."""
        return np.asarray(self.steps(image))

    def keeps(self, size: tuple[int, int]) -> bool:
        """Whether an image of this (height, width) passes unchanged."""
        return not self.random and size == self.size == (self.min_side, self.min_side)


AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "timm": {},
    "randaugment": {"auto_augment": "rand-m9-mstd0.5-inc1"},
    "trivialaugment": {"auto_augment": "rand-n1-m9-mstd101"},
    "augmix": {"auto_augment": "augmix-m3-w3"},
}


Augmentation = str | Mapping[str, Any] | Callable[[Image.Image], Any]


class _OwnAugmentation:
    """A user's function of an image, and then the steps for evaluation."""

    def __init__(self, function: Callable[[Image.Image], Any], then: Callable[..., Any]) -> None:
        self.function = function
        self.then = then

    def __call__(self, image: Image.Image) -> Any:
        changed = self.function(image)
        if isinstance(changed, np.ndarray):
            changed = Image.fromarray(changed)
        if not isinstance(changed, Image.Image):
            raise TypeError(
                "augmentation must return a PIL image or a uint8 array (H, W, 3), got "
                f"{type(changed).__name__}. Leave normalisation and tensors to the classifier."
            )
        return self.then(changed.convert("RGB"))


def make_transform(
    data_config: Mapping[str, Any], augmentation: Augmentation | None = None
) -> ImageTransform:
    """Make timm's transform for evaluation or training, up to the uint8 pixels.

    Parameters
    ----------
    data_config : mapping
        What `timm.data.resolve_model_data_config` gives (`Backbone.data_config`).
    augmentation : str, mapping, callable or None, default=None
        None or "none": the transform for evaluation. "timm": a random resized crop and a
        horizontal flip. "randaugment", "trivialaugment", "augmix", or a string of timm's
        `auto_augment` such as "rand-m9-mstd0.5": that as well. A mapping is given to
        `timm.data.create_transform`, for example ``{"scale": (0.5, 1.0), "vflip": 0.5}``. A
        function takes an RGB image of PIL and returns one, or a uint8 array; the transform for
        evaluation follows.

    Returns
    -------
    transform : ImageTransform

    Examples
    --------
    >>> transform = make_transform({"input_size": (3, 32, 32), "crop_pct": 1.0}, "timm")
    >>> transform(Image.new("RGB", (90, 60))).shape
    (32, 32, 3)
    """
    from timm.data.transforms_factory import create_transform

    if callable(augmentation):
        evaluation = make_transform(data_config)
        own = _OwnAugmentation(augmentation, evaluation.steps)
        # It may crop, so files are decoded in full.
        return ImageTransform(own, evaluation.size, sys.maxsize, random=True)
    config = {key: data_config[key] for key in _TIMM_KEYS if key in data_config}
    height, width = config["input_size"][-2:]
    if augmentation is None or augmentation == "none":
        crop = config.get("crop_pct") or 0.875
        steps = create_transform(**config, normalize=False)
        min_side = max(int(height / crop), int(width / crop))
    else:
        options = _augmentation_options(augmentation)
        steps = create_transform(**config, **options, is_training=True, normalize=False)
        scale = options.get("scale") or (0.08, 1.0)
        ratio = options.get("ratio") or (3 / 4, 4 / 3)
        # The smallest crop must still not be enlarged because of the scaled decoding.
        shrink = (scale[0] * min(ratio[0], 1 / ratio[1])) ** 0.5
        min_side = int(np.ceil(max(height, width) / shrink))
    for operation in _operations(steps.transforms):
        if operation.aug_fn.__name__ == "posterize":
            operation.aug_fn = _posterize
    # timm ends with the conversion to a CHW tensor; batches are built from HWC pixels.
    steps.transforms = steps.transforms[:-1]
    is_random = not (augmentation is None or augmentation == "none")
    return ImageTransform(steps, (height, width), min_side, is_random)


def _operations(steps: Iterable[Any]) -> Iterator[Any]:
    """Find the operations inside timm's augmentations: lists of them, or lists of lists."""
    for step in steps:
        if hasattr(step, "aug_fn"):
            yield step
        elif isinstance(step, (list, tuple)):
            yield from _operations(step)
        else:
            yield from _operations(getattr(step, "ops", getattr(step, "policy", ())))


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    # At its strongest timm keeps 0 bits, which Pillow refuses: 1 is the least that shows a picture.
    return image if bits >= 8 else ImageOps.posterize(image, max(1, bits))


_TIMM_KEYS = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")


def _augmentation_options(augmentation: str | Mapping[str, Any]) -> dict[str, Any]:
    from timm.data.transforms_factory import create_transform

    options: dict[str, Any] = {"color_jitter": None}
    named = [augmentation] if isinstance(augmentation, str) else augmentation
    if mixing := [name for name in named if name.startswith(("mixup", "cutmix"))]:
        raise ValueError(
            f"augmentation cannot be {mixing[0]!r}: a mixed image has two labels and so two paths, "
            "and evidence for both would say that both were seen. Leave it out."
        )
    if isinstance(augmentation, Mapping):
        managed = {*_TIMM_KEYS, "is_training", "normalize", "separate", "use_prefetcher", "re_prob"}
        refused = sorted(managed & set(augmentation))
        if refused:
            raise ValueError(
                f"augmentation sets {refused}, which the backbone's data configuration or the "
                "loader decides; leave it out."
            )
        unknown = sorted(set(augmentation) - set(inspect.signature(create_transform).parameters))
        if unknown:
            raise ValueError(
                f"augmentation has the options {unknown}, which timm.data.create_transform does "
                "not take. Correct their names or leave them out."
            )
        return options | dict(augmentation)
    if augmentation in AUGMENTATIONS:
        return options | AUGMENTATIONS[augmentation]
    if augmentation.split("-")[0] in ("rand", "augmix", "original", "originalr", "v0", "v0r", "3a"):
        return options | {"auto_augment": augmentation}
    raise ValueError(
        f"augmentation={augmentation!r} is not known. Use 'none', one of {list(AUGMENTATIONS)}, a "
        "string of timm's auto_augment such as 'rand-m9-mstd0.5', or a mapping of options of "
        "timm.data.create_transform."
    )
