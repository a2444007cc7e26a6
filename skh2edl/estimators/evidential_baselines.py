"""The evidential baselines: each a head and its own few parameters."""

from __future__ import annotations

import os
from numbers import Real
from typing import Any, ClassVar

import joblib
import numpy as np
import numpy.typing as npt

from ..heads.base import TreeHead
from ..heads.evidential import FlatEDLHead, IEDLHead, REDLHead
from ..taxonomy.taxonomy import Taxonomy
from ..training.recipe import Hardware, Recipe
from ..utils.sklearn_tools import Interval
from .base import DEFAULT_L2, TreeClassifier
from .baselines import PARTIAL_LABELS
from .h2edl import (
    EVIDENCE_SCALE,
    INITIAL_VACUITY,
    KL_RAMP,
    KL_WEIGHT,
    H2EDLClassifier,
    evidence_options,
)


def _rules_of_h2edl(*names: str) -> dict[str, list[Any]]:
    """Return H2EDL's constraints of some parameters."""
    return {name: H2EDLClassifier._parameter_constraints[name] for name in names}


class EvidentialBaseline(TreeClassifier):
    """Base of the evidential baselines: how logits become evidence, and `predict_opinion`.

    How evidence starts, grows and is regularised is the same for them as for H2EDL.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **_rules_of_h2edl(
            "evidence", "evidence_scale", "initial_vacuity", "kl_weight", "kl_per_child", "kl_ramp"
        ),
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        evidence: str = "softplus",
        evidence_scale: float | str = EVIDENCE_SCALE,
        initial_vacuity: float = INITIAL_VACUITY,
        kl_weight: float = KL_WEIGHT,
        kl_per_child: bool = True,
        kl_ramp: float = KL_RAMP,
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        image_size: int | tuple[int, int] | None = None,
        on_bad_image: str = "error",
        solver: str = "auto",
        l2: float = DEFAULT_L2,
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        recipe: Recipe | None = None,
        validation_fraction: float | None = 0.1,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        hardware: Hardware | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            taxonomy,
            backbone=backbone,
            weights=weights,
            finetune=finetune,
            image_size=image_size,
            on_bad_image=on_bad_image,
            solver=solver,
            l2=l2,
            tol=tol,
            max_iter=max_iter,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            recipe=recipe,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            memory=memory,
            n_workers=n_workers,
            hardware=hardware,
            random_state=random_state,
            verbose=verbose,
        )
        self.evidence = evidence
        self.evidence_scale = evidence_scale
        self.initial_vacuity = initial_vacuity
        self.kl_weight = kl_weight
        self.kl_per_child = kl_per_child
        self.kl_ramp = kl_ramp

    def _masses(self, X: Any) -> npt.NDArray[Any]:
        """Return the belief in leaves in tree order, in groups if there are, and the vacuity."""
        masses, readable = self._read(X, "masses")
        masses[~readable, :-1] = 0
        masses[~readable, -1] = 1
        return masses

    def predict_opinion(self, X: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the belief in each leaf and the vacuity, the belief committed to nothing.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`. An image that cannot be read, with ``on_bad_image="skip"``, gets
            the vacuous opinion.

        Returns
        -------
        belief : ndarray of shape (n_samples, n_leaves)
            Columns in the order of `classes_`.
        vacuity : ndarray of shape (n_samples,)
            Not a probability of error.
        """
        masses = self._masses(X)
        return masses[:, self.taxonomy_.leaf_order], masses[:, -1]


class FlatEDLClassifier(EvidentialBaseline):
    """One Dirichlet opinion over the leaves (Flat-EDL).

    On a flat taxonomy this is :class:`H2EDLClassifier` with the same parameters [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence : {"softplus", "relu", "exp"}, default="softplus"
        How evidence grows with the logit.
    evidence_scale : float or "learn", default=300.0
        Factor of the evidence.
    initial_vacuity : float, default=0.5
        Vacuity before training, which sets the initial biases.
    kl_weight : float, default=0.3
        Full weight of the KL regulariser, which takes evidence for wrong leaves away.
    kl_per_child : bool, default=True
        Whether that weight is divided by the number of leaves.
    kl_ramp : float, default=0.5
        Fraction of the training over which that weight rises from 0.
    base_rate_power, base_rate_smoothing : float, default=0.0 and 1.0
        The base rate of a leaf is proportional to ``(count + smoothing) ** -power``; 0 is uniform.
    prior_weight : float or "children", default="children"
        Weight W of the prior: a number, or the number of leaves.
    risk : {"squared", "log", "digamma", "none"}, default="squared"
        The evidential risk.
    leaf_weight : float, default=0.0
        Weight of ``-log P(label)``.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: its leaves as one, a uniform target over its leaves, or
        nothing.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Sensoy, Kaplan, Kandemir: Evidential deep learning to quantify classification
       uncertainty. NeurIPS 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import FlatEDLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = FlatEDLClassifier(backbone=None, l2=1e-3).fit(X, y)
    >>> clf.score(X, y) > 0.9
    True
    >>> belief, vacuity = clf.predict_opinion(X)
    >>> bool(abs(belief.sum(axis=1) + vacuity - 1).max() < 1e-9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        **_rules_of_h2edl(
            "base_rate_power", "base_rate_smoothing", "prior_weight", "risk", "leaf_weight"
        ),
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        evidence: str = "softplus",
        evidence_scale: float | str = EVIDENCE_SCALE,
        initial_vacuity: float = INITIAL_VACUITY,
        kl_weight: float = KL_WEIGHT,
        kl_per_child: bool = True,
        kl_ramp: float = KL_RAMP,
        base_rate_power: float = 0.0,
        base_rate_smoothing: float = 1.0,
        prior_weight: float | str = "children",
        risk: str = "squared",
        leaf_weight: float = 0.0,
        partial_labels: str = "marginal",
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        image_size: int | tuple[int, int] | None = None,
        on_bad_image: str = "error",
        solver: str = "auto",
        l2: float = DEFAULT_L2,
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        recipe: Recipe | None = None,
        validation_fraction: float | None = 0.1,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        hardware: Hardware | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            taxonomy,
            evidence=evidence,
            evidence_scale=evidence_scale,
            initial_vacuity=initial_vacuity,
            kl_weight=kl_weight,
            kl_per_child=kl_per_child,
            kl_ramp=kl_ramp,
            backbone=backbone,
            weights=weights,
            finetune=finetune,
            image_size=image_size,
            on_bad_image=on_bad_image,
            solver=solver,
            l2=l2,
            tol=tol,
            max_iter=max_iter,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            recipe=recipe,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            memory=memory,
            n_workers=n_workers,
            hardware=hardware,
            random_state=random_state,
            verbose=verbose,
        )
        self.base_rate_power = base_rate_power
        self.base_rate_smoothing = base_rate_smoothing
        self.prior_weight = prior_weight
        self.risk = risk
        self.leaf_weight = leaf_weight
        self.partial_labels = partial_labels

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        counts = label_weight[taxonomy.leaf_nodes] + self.base_rate_smoothing
        rarity = counts**-self.base_rate_power
        return FlatEDLHead(
            taxonomy,
            n_features,
            base_rate=rarity / rarity.sum(),
            prior_weight=None if isinstance(self.prior_weight, str) else self.prior_weight,
            risk=self.risk,
            leaf_weight=self.leaf_weight,
            partial_labels=self.partial_labels,
            **evidence_options(self),
        )

    def _unknown_leaf_probability(self) -> npt.NDArray[np.float64]:
        head = self.network_.head
        assert isinstance(head, FlatEDLHead)
        prior = head.prior.double().numpy()
        return prior / prior.sum()


class IEDLClassifier(EvidentialBaseline):
    """Flat evidential learning weighted by Fisher information (I-EDL) [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, initial_vacuity, kl_weight, kl_per_child, kl_ramp
        As in :class:`FlatEDLClassifier`, with the same defaults.
    fisher_weight : float, default=None
        Weight c of the log determinant of the Fisher information; None means
        ``min(0.05, 2 / n_leaves)``, because the published 0.05 collapses where there are a
        hundred leaves.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: its leaves as one, a uniform target over its leaves, or
        nothing.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Deng, Chen, Yu, Liu, Heng: Uncertainty estimation by Fisher information-based
       evidential deep learning. ICML 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import IEDLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> IEDLClassifier(backbone=None, l2=1e-3).fit(X, y).score(X, y) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        "fisher_weight": [Interval(Real, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        evidence: str = "softplus",
        evidence_scale: float | str = EVIDENCE_SCALE,
        initial_vacuity: float = INITIAL_VACUITY,
        kl_weight: float = KL_WEIGHT,
        kl_per_child: bool = True,
        kl_ramp: float = KL_RAMP,
        fisher_weight: float | None = None,
        partial_labels: str = "marginal",
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        image_size: int | tuple[int, int] | None = None,
        on_bad_image: str = "error",
        solver: str = "auto",
        l2: float = DEFAULT_L2,
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        recipe: Recipe | None = None,
        validation_fraction: float | None = 0.1,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        hardware: Hardware | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            taxonomy,
            evidence=evidence,
            evidence_scale=evidence_scale,
            initial_vacuity=initial_vacuity,
            kl_weight=kl_weight,
            kl_per_child=kl_per_child,
            kl_ramp=kl_ramp,
            backbone=backbone,
            weights=weights,
            finetune=finetune,
            image_size=image_size,
            on_bad_image=on_bad_image,
            solver=solver,
            l2=l2,
            tol=tol,
            max_iter=max_iter,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            recipe=recipe,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            memory=memory,
            n_workers=n_workers,
            hardware=hardware,
            random_state=random_state,
            verbose=verbose,
        )
        self.fisher_weight = fisher_weight
        self.partial_labels = partial_labels

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return IEDLHead(
            taxonomy,
            n_features,
            fisher_weight=self.fisher_weight,
            partial_labels=self.partial_labels,
            **evidence_options(self),
        )


class REDLClassifier(EvidentialBaseline):
    """Relaxed evidential learning over the leaves (R-EDL) [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, initial_vacuity, kl_weight, kl_per_child, kl_ramp
        As in :class:`FlatEDLClassifier`, with the same defaults.
    relaxation : float, default=1.0
        λ₁, the weight of the evidence for other leaves in the probability of one.
    leaf_prior : float, default=0.1
        λ₂, the prior concentration of each leaf.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: its leaves as one, a uniform target over its leaves, or
        nothing.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Chen, Gao, Xu: R-EDL: Relaxing nonessential settings of evidential deep learning.
       ICLR 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import REDLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> REDLClassifier(backbone=None, l2=1e-3).fit(X, y).score(X, y) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        "relaxation": [Interval(Real, 0, None, closed="neither")],
        "leaf_prior": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        evidence: str = "softplus",
        evidence_scale: float | str = EVIDENCE_SCALE,
        initial_vacuity: float = INITIAL_VACUITY,
        kl_weight: float = KL_WEIGHT,
        kl_per_child: bool = True,
        kl_ramp: float = KL_RAMP,
        relaxation: float = 1.0,
        leaf_prior: float = 0.1,
        partial_labels: str = "marginal",
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        image_size: int | tuple[int, int] | None = None,
        on_bad_image: str = "error",
        solver: str = "auto",
        l2: float = DEFAULT_L2,
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        recipe: Recipe | None = None,
        validation_fraction: float | None = 0.1,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        hardware: Hardware | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            taxonomy,
            evidence=evidence,
            evidence_scale=evidence_scale,
            initial_vacuity=initial_vacuity,
            kl_weight=kl_weight,
            kl_per_child=kl_per_child,
            kl_ramp=kl_ramp,
            backbone=backbone,
            weights=weights,
            finetune=finetune,
            image_size=image_size,
            on_bad_image=on_bad_image,
            solver=solver,
            l2=l2,
            tol=tol,
            max_iter=max_iter,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            recipe=recipe,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            warm_start=warm_start,
            checkpoint_dir=checkpoint_dir,
            memory=memory,
            n_workers=n_workers,
            hardware=hardware,
            random_state=random_state,
            verbose=verbose,
        )
        self.relaxation = relaxation
        self.leaf_prior = leaf_prior
        self.partial_labels = partial_labels

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return REDLHead(
            taxonomy,
            n_features,
            relaxation=self.relaxation,
            leaf_prior=self.leaf_prior,
            partial_labels=self.partial_labels,
            **evidence_options(self),
        )
