"""The prior of an opinion: its base rate a and its weight W."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from ..utils.sklearn_tools import Interval, StrOptions


@dataclass(repr=False, kw_only=True)
class Prior(BaseEstimator):
    """What an opinion says without evidence: a base rate for each child, and how much it weighs.

    The default is the standard prior of K children: a base rate of ``1 / K`` and a weight of K.

    Parameters
    ----------
    power : float, default=0.0
        The base rate of a child is proportional to ``(count + smoothing) ** -power``, with the
        weight of its training labels as count: 0 is uniform, 1 gives rarer children a higher one
        (the paper's base-rate variant).
    smoothing : float, default=1.0
        Added to each count.
    weight : float or "children", default="children"
        Weight W: a number for every node, or each node's number of children K.
    scale : float, default=1.0
        Factor of that weight, the paper's w_scale: ``W = scale * K``.

    Examples
    --------
    >>> from skh2edl import H2EDLClassifier, Prior
    >>> clf = H2EDLClassifier(prior=Prior(power=0.5))
    >>> clf.set_params(prior__weight=2.0).prior
    Prior(power=0.5, weight=2.0)
    """

    power: float = 0.0
    smoothing: float = 1.0
    weight: float | str = "children"
    scale: float = 1.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "power": [Interval(Real, 0, 1, closed="both")],
        "smoothing": [Interval(Real, 0, None, closed="neither")],
        "weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"children"})],
        "scale": [Interval(Real, 0, None, closed="neither")],
    }

    def rarity(self, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return what base rates are proportional to among siblings.

        Parameters
        ----------
        counts : ndarray
            Weight of the training labels at or below each child.
        """
        return (counts + self.smoothing) ** -self.power

    def weights(self, n_children: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return W of each node.

        Parameters
        ----------
        n_children : ndarray
            Number of children of each node.
        """
        weight = n_children if self.weight == "children" else np.full(len(n_children), self.weight)
        return np.asarray(self.scale * weight, dtype=np.float64)
