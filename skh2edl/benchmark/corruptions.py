"""Corrupted images: steps of blur and occlusion, and pure noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Picture = npt.NDArray[np.uint8]

# Radius of the Gaussian, as a fraction of the shorter side.
BLUR_STEPS = (0.0, 0.01, 0.02, 0.04, 0.07, 0.12)
# Fraction of the area behind a grey square in the middle.
OCCLUSION_STEPS = (0.0, 0.1, 0.2, 0.35, 0.55, 0.8)
_GREY = 128  # the middle of 0 to 255


def blur(picture: Picture, fraction: float) -> Picture:
    """Blur a picture with a Gaussian.

    Parameters
    ----------
    picture : ndarray of uint8 of shape (height, width) or (height, width, 3)
        The picture.
    fraction : float
        Radius over the shorter side.

    Examples
    --------
    >>> import numpy as np
    >>> dot = np.zeros((9, 9), dtype=np.uint8)
    >>> dot[4, 4] = 255
    >>> int(blur(dot, 0.0)[4, 4]), int(blur(dot, 0.1)[4, 4]) < 100
    (255, True)
    """
    if fraction == 0:
        return picture
    radius = fraction * min(picture.shape[:2])
    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


def occlude(picture: Picture, fraction: float) -> Picture:
    """Put a grey rectangle of the picture's shape over its middle.

    Parameters
    ----------
    picture : ndarray of uint8 of shape (height, width) or (height, width, 3)
        The picture.
    fraction : float
        Fraction of the area that is hidden.

    Examples
    --------
    >>> import numpy as np
    >>> float((occlude(np.zeros((10, 10), dtype=np.uint8), 0.25) > 0).mean())
    0.25
    """
    hidden = picture.copy()
    height, width = picture.shape[:2]
    tall, wide = (round(np.sqrt(fraction) * side) for side in (height, width))
    top, left = (height - tall) // 2, (width - wide) // 2
    hidden[top : top + tall, left : left + wide] = _GREY
    return hidden


def uncertainty_under_corruption(
    uncertainty: Callable[[list[Picture]], npt.NDArray[Any]], pictures: list[Picture]
) -> dict[str, Any]:
    """Return the mean uncertainty of pictures at every step of blur and occlusion, and of noise.

    Parameters
    ----------
    uncertainty : callable
        From pictures to one number each, such as U of a hyper-opinion.
    pictures : list of ndarray of uint8
        Clean pictures.

    Examples
    --------
    >>> import numpy as np
    >>> rough = [np.random.default_rng(0).integers(0, 256, (16, 16), dtype=np.uint8)]
    >>> result = uncertainty_under_corruption(lambda some: [-x.std() for x in some], rough)
    >>> result["blur"] == sorted(result["blur"])
    True
    """
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 256, picture.shape, dtype=np.uint8) for picture in pictures]

    def mean_of(corrupted: list[Picture]) -> float:
        return float(np.mean(uncertainty(corrupted)))

    return {
        "blur": [mean_of([blur(each, step) for each in pictures]) for step in BLUR_STEPS],
        "occlusion": [
            mean_of([occlude(each, step) for each in pictures]) for step in OCCLUSION_STEPS
        ],
        "noise": mean_of(noise),
    }
