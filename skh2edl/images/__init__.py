"""Turn every accepted kind of image input into batches of uint8 tensors.

How an image is read: an `ImageSource` reads it as an 8-bit RGB Pillow image, an `ImageTransform`
brings it to the size of the backbone, an `ImageLoader` stacks it into a batch. Batches stay uint8
(a quarter of the memory to move between processes and devices); the backbone normalises them.
"""

from .decoding import FORMATS, MAX_PIXELS
from .inputs import as_images, holds_images, image_source
from .loading import (
    EpochSampler,
    ImageBatch,
    ImageDataset,
    ImageLoader,
    default_n_workers,
    make_loader,
)
from .sources import BadImageError, ImageSource
from .transforms import AUGMENTATIONS, ImageTransform, make_transform

__all__ = [
    "AUGMENTATIONS",
    "FORMATS",
    "MAX_PIXELS",
    "BadImageError",
    "EpochSampler",
    "ImageBatch",
    "ImageDataset",
    "ImageLoader",
    "ImageSource",
    "ImageTransform",
    "as_images",
    "default_n_workers",
    "holds_images",
    "image_source",
    "make_loader",
    "make_transform",
]
