"""The rivals with a softmax: each a head and its own few parameters."""

from __future__ import annotations

import inspect
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ._base import TreeClassifier
from ._validation import Interval, StrOptions
from .h2edl import H2EDLClassifier
from .heads import SoftmaxHead, SoftmaxTreeHead, TreeHead
from .penalties import L2_SHAPES
from .softmax_heads import HXEHead, SoftLabelHead
from .taxonomy import Taxonomy


class Baseline(TreeClassifier):
    """Base of the rivals, which take every shared parameter as :class:`H2EDLClassifier` does.

    A subclass names its own parameters in `_own_parameters`; the signature of its ``__init__``,
    from which scikit-learn reads the parameters, is put together from them and the shared ones,
    so that no default can differ between two methods.
    """

    _own_parameters: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        main = inspect.signature(H2EDLClassifier.__init__).parameters
        shared = [
            parameter
            for name, parameter in main.items()
            if name == "self" or name in TreeClassifier._parameter_constraints
        ]
        own = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in cls._own_parameters.items()
        ]
        signature = inspect.Signature([*shared[:2], *own, *shared[2:]])

        def __init__(self: Any, *args: Any, **parameters: Any) -> None:
            bound = signature.bind(self, *args, **parameters)
            bound.apply_defaults()
            for name, value in list(bound.arguments.items())[1:]:
                setattr(self, name, value)

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = __init__  # type: ignore[method-assign]

    def _teaches(self, taxonomy: Taxonomy, targets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        teaches = super()._teaches(taxonomy, targets)
        if getattr(self, "partial_labels", None) == "drop":
            teaches &= taxonomy.leaf_stop[targets] - taxonomy.leaf_start[targets] == 1
        return teaches


PARTIAL_LABELS = {
    "partial_labels": [StrOptions({"marginal", "soft", "drop"})],
}


class FlatCEClassifier(Baseline):
    """One softmax over the leaves, trained with cross-entropy (Flat-CE).

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: the sum of its leaves' probabilities, a uniform target
        over its leaves, or nothing.
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

    _own_parameters: ClassVar[dict[str, Any]] = {"partial_labels": "marginal"}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **PARTIAL_LABELS,
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return SoftmaxHead(taxonomy, n_features, self.partial_labels)


class HierCEClassifier(Baseline):
    """One softmax for every branching node, multiplied down the tree (Hier-CE).

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    l2_shape : {"uniform", "separation"}, default="uniform"
        How the penalty falls on the rows of the read-out, as in :class:`H2EDLClassifier`.
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

    _own_parameters: ClassVar[dict[str, Any]] = {"l2_shape": "uniform"}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        "l2_shape": [StrOptions(set(L2_SHAPES))],
    }

    def _penalty(self) -> dict[str, Any]:
        return super()._penalty() | {"l2_shape": self.l2_shape}

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return SoftmaxTreeHead(taxonomy, n_features)


class HXEClassifier(Baseline):
    """One softmax over the leaves whose loss counts upper decisions more (HXE).

    The loss is ``-exp(-a depth) log p(child | parent)``, added up over the decisions on the way
    to the label, with conditional probabilities from sums of leaves [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    depth_decay : float, default=0.1
        The rate a: 0 is cross-entropy, more makes mistakes milder and leaves less often right.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: the decisions above it, a uniform target over its leaves,
        or nothing.
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

    _own_parameters: ClassVar[dict[str, Any]] = {
        "depth_decay": 0.1,
        "partial_labels": "marginal",
    }
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


class SoftLabelClassifier(Baseline):
    """One softmax over the leaves, trained on labels softened by the tree.

    The target is ``q(leaf) ∝ exp(-b h / H)``, with h the height of the lowest common ancestor of
    leaf and label and H that of the tree [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    sharpness : float, default=10.0
        The rate b: a large one is cross-entropy, less makes mistakes milder and leaves less
        often right. The probabilities tend to the softened target, so they are under-confident
        by design.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: the sum of its leaves' probabilities, the softened target
        itself, or nothing.
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

    _own_parameters: ClassVar[dict[str, Any]] = {
        "sharpness": 10.0,
        "partial_labels": "marginal",
    }
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
