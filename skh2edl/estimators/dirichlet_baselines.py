"""The baselines with a distribution of probabilities that is no opinion: DAEDL and F-EDL."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from ..heads.base import TreeHead
from ..heads.daedl import DAEDLHead
from ..heads.fedl import FEDLHead
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import Interval
from .base import TreeClassifier
from .baselines import PARTIAL_LABELS

__all__ = ["DAEDLClassifier", "FEDLClassifier"]


class VarianceBaseline(TreeClassifier):
    """Base of the baselines that report variances; without a prior there is no vacuity."""

    def predict_variance(self, X: Any) -> npt.NDArray[Any]:
        """Return the variance of each leaf's probability; their sum is the epistemic uncertainty.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`. An image that cannot be read, with ``on_bad_image="skip"``, gets
            the variances of the uniform distribution over all probabilities.

        Returns
        -------
        variance : ndarray of shape (n_samples, n_leaves)
            Columns in the order of `classes_`.
        """
        variance, readable = self._head_output(X, "variance")
        n_leaves = self.taxonomy_.n_leaves
        variance[~readable] = (1 - 1 / n_leaves) / n_leaves / (n_leaves + 1)
        return variance[:, self.taxonomy_.leaf_order]


@dataclass(eq=False, repr=False, kw_only=True)
class DAEDLClassifier(VarianceBaseline):
    """Flat evidential learning scaled by the density of the features (DAEDL) [1]_.

    Concentrations are ``exp(logit)`` in training. In a prediction the logits are multiplied by
    the density of the feature, between 0 and 1: the sum of a Gaussian for each leaf, as a logarithm
    between the least and the greatest one of the training samples. Far from those every leaf is
    about equally likely. After :meth:`partial_fit` the density is that of its last samples.

    The authors give each class a covariance of its own and compare with densities that the
    training samples themselves have shaped. Both need far more samples than features. Here the
    covariance is shared and shrunk, and the densities of training samples are leave-one-out.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    kl_weight : float, default=0.05
        Weight of the KL regulariser, from the start.
    shrinkage : float, default=0.1
        Fraction of the covariance replaced by its mean variance times the identity.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: its leaves as one class, a uniform target over its leaves,
        or not at all. The density is of samples labelled with a leaf.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Yoon, Kim: Uncertainty estimation by density aware evidential deep learning. ICML 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import DAEDLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = DAEDLClassifier(backbone=None, kl_weight=0.01).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    >>> clf.predict_proba(X[:1] + 100).round(2)  # far from all flowers
    array([[0.33, 0.33, 0.33]])
    """

    kl_weight: float = 0.05
    shrinkage: float = 0.1
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **PARTIAL_LABELS,
        "kl_weight": [Interval(Real, 0, None, closed="left")],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return DAEDLHead(
            taxonomy,
            n_features,
            kl_weight=self.kl_weight,
            shrinkage=self.shrinkage,
            partial_labels=self.partial_labels,
        )

    def _after_training(self, X: Any, labels: npt.NDArray[Any], sample_weight: Any) -> None:
        features, nodes, weight = self._training_features(X, labels, sample_weight)
        tree, head = self.taxonomy_, self.network_.head
        assert isinstance(head, DAEDLHead)
        own = tree.leaf_start[nodes]
        is_leaf = tree.leaf_stop[nodes] - own == 1
        head.fit_density(*map(torch.from_numpy, (features[is_leaf], own[is_leaf], weight[is_leaf])))


@dataclass(eq=False, repr=False, kw_only=True)
class FEDLClassifier(VarianceBaseline):
    """Flat evidential learning with a flexible Dirichlet (F-EDL) [1]_.

    The head gives the concentrations of a Dirichlet, a probability for each leaf, and an amount
    that is added to the concentration of the leaf drawn from these probabilities. The distribution
    may have one mode for each leaf. The authors compute the last two with small networks; here all
    are linear in the feature.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: its leaves as one class, a uniform target over its leaves,
        or not at all.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Yoon, Kim: Uncertainty estimation by flexible evidential deep learning. NeurIPS 2025.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import FEDLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = FEDLClassifier(backbone=None).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    >>> clf.predict_variance(X).shape
    (150, 3)
    """

    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **PARTIAL_LABELS,
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return FEDLHead(taxonomy, n_features, partial_labels=self.partial_labels)
