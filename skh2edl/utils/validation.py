"""Checks of input that need numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def check_groups(
    groups: npt.ArrayLike, n_samples: int
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the sorted group ids and each sample's position among them."""
    array = np.asarray(groups)
    if array.shape != (n_samples,):
        raise ValueError(
            f"groups must hold one id for each of the {n_samples} sample(s), got shape "
            f"{array.shape}."
        )
    # NaN is the only value that differs from itself.
    if array.dtype.kind in "fO" and any(item is None or item != item for item in array.tolist()):
        raise ValueError("groups must not hold missing values (None or NaN). Drop those samples.")
    try:
        ids, member_of = np.unique(array, return_inverse=True)
    except TypeError:
        raise TypeError(
            "groups mix kinds that cannot be sorted, such as strings and numbers. Make them all "
            "strings."
        ) from None
    return ids, member_of
