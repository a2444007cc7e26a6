"""The baselines with a softmax: each a head and its own few parameters."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..heads.base import TreeHead
from ..heads.softmax import HXEHead, SoftLabelHead, SoftmaxHead, SoftmaxTreeHead
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import Interval, StrOptions
from .base import TreeClassifier

__all__ = ["FlatCEClassifier", "HXEClassifier", "HierCEClassifier", "SoftLabelClassifier"]

PARTIAL_LABELS = {
    "partial_labels": [StrOptions({"marginal", "soft", "drop"})],
}
_LABEL_SMOOTHING = {"label_smoothing": [Interval(Real, 0, 1, closed="left")]}


@dataclass(eq=False, repr=False, kw_only=True)
class FlatCEClassifier(TreeClassifier):
    """One softmax over the leaves, trained with cross-entropy (Flat-CE).

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: the sum of its leaves' probabilities, a uniform target over
        its leaves, or not at all.
    label_smoothing : float, default=0.0
        Weight of a uniform target over the leaves, beside the label.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import FlatCEClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> FlatCEClassifier(backbone=None).fit(X, y).score(X, y) > 0.9
    True
    """

    partial_labels: str = "marginal"
    label_smoothing: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **PARTIAL_LABELS,
        **_LABEL_SMOOTHING,
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return SoftmaxHead(
            taxonomy,
            n_features,
            partial_labels=self.partial_labels,
            label_smoothing=self.label_smoothing,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class HierCEClassifier(TreeClassifier):
    """One softmax for every branching node, multiplied down the tree (Hier-CE).

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    label_smoothing : float, default=0.0
        Weight of a uniform target over the children of each node on the path, beside the label.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import HierCEClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> HierCEClassifier(backbone=None).fit(X, y).score(X, y) > 0.9
    True
    """

    label_smoothing: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **_LABEL_SMOOTHING,
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return SoftmaxTreeHead(taxonomy, n_features, label_smoothing=self.label_smoothing)


@dataclass(eq=False, repr=False, kw_only=True)
class HXEClassifier(TreeClassifier):
    """One softmax over the leaves whose loss counts upper decisions more (HXE).

    The loss is ``-exp(-a depth) log p(child | parent)``, added up over the decisions on the path
    to the label, with conditional probabilities from sums of leaves [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    depth_decay : float, default=0.1
        The rate a: 0 is cross-entropy, more makes mistakes milder and leaves less often right.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: for the decisions above it, as a uniform target over its
        leaves, or not at all.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Bertinetto, Mueller, Tertikas, Samangooei, Lord: Making better mistakes. CVPR 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import HXEClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> HXEClassifier(backbone=None).fit(X, y).score(X, y) > 0.9
    True
    """

    depth_decay: float = 0.1
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **PARTIAL_LABELS,
        "depth_decay": [Interval(Real, 0, None, closed="left")],
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return HXEHead(
            taxonomy,
            n_features,
            depth_decay=self.depth_decay,
            partial_labels=self.partial_labels,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class SoftLabelClassifier(TreeClassifier):
    """One softmax over the leaves, trained on labels softened by the tree.

    The target is ``q(leaf) ∝ exp(-b h / H)``, with h the height of the lowest common ancestor of
    leaf and label and H that of the first branching node [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    sharpness : float, default=10.0
        The rate b: a large one is cross-entropy, less makes mistakes milder and leaves less
        often right. The probabilities tend to the softened target, so they are under-confident
        by design.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: the sum of its leaves' probabilities, the softened target
        itself, or not at all.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Bertinetto, Mueller, Tertikas, Samangooei, Lord: Making better mistakes. CVPR 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import SoftLabelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> SoftLabelClassifier(backbone=None).fit(X, y).score(X, y) > 0.9
    True
    """

    sharpness: float = 10.0
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **PARTIAL_LABELS,
        "sharpness": [Interval(Real, 0, None, closed="neither")],
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return SoftLabelHead(
            taxonomy, n_features, sharpness=self.sharpness, partial_labels=self.partial_labels
        )
