"""The evidential baselines: each a head and its own few parameters."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..heads.base import TreeHead
from ..heads.evidential import FlatEDLHead, HENNHead, IEDLHead, REDLHead, group_nodes_at
from ..heads.prior import Prior
from ..taxonomy.taxonomy import Taxonomy
from ..training.recipe import resolve_settings
from ..utils.sklearn_tools import Interval
from .base import TreeClassifier
from .baselines import PARTIAL_LABELS
from .h2edl import (
    EVIDENCE_SCALE,
    INITIAL_VACUITY,
    KL_RAMP,
    KL_WEIGHT,
    H2EDLClassifier,
    evidence_options,
)

__all__ = [
    "FlatEDLClassifier",
    "HENNClassifier",
    "IEDLClassifier",
    "REDLClassifier",
    "ReEDLClassifier",
]


def _rules_of_h2edl(*names: str) -> dict[str, list[Any]]:
    """Return H2EDL's constraints of some parameters."""
    return {name: H2EDLClassifier._parameter_constraints[name] for name in names}


@dataclass(eq=False, repr=False, kw_only=True)
class EvidentialBaseline(TreeClassifier):
    """Base of the evidential baselines: how logits become evidence, and `predict_opinion`.

    How evidence starts, grows and is regularised is the same for them as for H2EDL.
    """

    evidence: str = "softplus"
    evidence_scale: float | str = EVIDENCE_SCALE
    initial_vacuity: float = INITIAL_VACUITY
    kl_weight: float = KL_WEIGHT
    kl_per_child: bool = True
    kl_ramp: float = KL_RAMP

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **_rules_of_h2edl(
            "evidence", "evidence_scale", "initial_vacuity", "kl_weight", "kl_per_child", "kl_ramp"
        ),
    }

    def _masses(self, X: Any) -> npt.NDArray[Any]:
        """Return the belief in leaves in tree order, in groups if there are, and the vacuity."""
        masses, readable = self._head_output(X, "masses")
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


@dataclass(eq=False, repr=False, kw_only=True)
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
    kl_weight : float, default=0.1
        Full weight of the KL regulariser, which takes evidence for wrong leaves away.
    kl_per_child : bool, default=True
        Whether that weight is divided by the number of leaves.
    kl_ramp : float, default=0.5
        Fraction of the training over which that weight rises from 0.
    prior : Prior or {"uniform", "inverse_frequency"}, default=None
        Base rates of the leaves and weight of the prior, whose "children" are the leaves; None
        means "uniform", which is ``Prior()``.
    risk : {"squared", "log", "digamma", "none"}, default="squared"
        The evidential risk.
    leaf_weight : float, default=0.0
        Weight of ``-log P(label)``.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: its leaves as one class, a uniform target over its leaves,
        or not at all.
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

    prior: Prior | str | None = None
    risk: str = "squared"
    leaf_weight: float = 0.0
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        **_rules_of_h2edl("prior", "risk", "leaf_weight"),
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        prior: Prior = resolve_settings("prior", self.prior)
        rarity = prior.rarity(label_weight[taxonomy.leaf_nodes])
        return FlatEDLHead(
            taxonomy,
            n_features,
            prior.weights(np.array([taxonomy.n_leaves])) * rarity / rarity.sum(),
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


@dataclass(eq=False, repr=False, kw_only=True)
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
        How an ancestor label is used: its leaves as one class, a uniform target over its leaves,
        or not at all.
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

    fisher_weight: float | None = None
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        "fisher_weight": [Interval(Real, 0, None, closed="left"), None],
    }

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


@dataclass(eq=False, repr=False, kw_only=True)
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
        How an ancestor label is used: its leaves as one class, a uniform target over its leaves,
        or not at all.
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

    relaxation: float = 1.0
    leaf_prior: float = 0.1
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        "relaxation": [Interval(Real, 0, None, closed="neither")],
        "leaf_prior": [Interval(Real, 0, None, closed="neither")],
    }

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


@dataclass(eq=False, repr=False, kw_only=True)
class ReEDLClassifier(EvidentialBaseline):
    """Evidential learning without nonessential settings (Re-EDL) [1]_.

    The projected probability ``(e + λ₂) / (Σe + λ₂ K)`` is fitted by its squared error alone:
    there is no variance term and no KL regulariser.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, initial_vacuity, kl_per_child, kl_ramp
        As in :class:`FlatEDLClassifier`, with the same defaults.
    kl_weight : float, default=0.0
        Weight of the KL regulariser, which Re-EDL leaves out.
    leaf_prior : float, default=0.8
        λ₂, the prior concentration of each leaf.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        How an ancestor label is used: its leaves as one class, a uniform target over its leaves,
        or not at all.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    References
    ----------
    .. [1] Chen, Gao, Xu: Revisiting essential and nonessential settings of evidential deep
       learning. arXiv preprint, 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import ReEDLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> ReEDLClassifier(backbone=None, l2=1e-3).fit(X, y).score(X, y) > 0.9
    True
    """

    kl_weight: float = 0.0
    leaf_prior: float = 0.8
    partial_labels: str = "marginal"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        "leaf_prior": [Interval(Real, 0, None, closed="neither")],
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return REDLHead(
            taxonomy,
            n_features,
            relaxation=1.0,
            leaf_prior=self.leaf_prior,
            partial_labels=self.partial_labels,
            **evidence_options(self),
        )


@dataclass(eq=False, repr=False, kw_only=True)
class HENNClassifier(EvidentialBaseline):
    """Evidence for leaves and for groups of leaves: a grouped Dirichlet (HENN) [1]_.

    Labels of every node are native: a group's label supervises the evidence for the group.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, initial_vacuity, kl_weight, kl_per_child, kl_ramp
        As in :class:`FlatEDLClassifier`, with the same defaults.
    group_level : str or int, default=None
        Name or depth of the level whose nodes are the groups; None means the first level that
        has two or more nodes.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    Attributes
    ----------
    groups_ : list
        Labels of the groups.

    References
    ----------
    .. [1] Li, Li, Ock, Guo, Kaplan, Jøsang, Chen, Jeong, Chen: Hyper evidential deep learning to
       quantify composite classification uncertainty. ICLR 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import HENNClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 3)) + 3 * np.repeat(np.eye(3), 30, axis=0)
    >>> y = np.repeat(["lynx", "puma", "dog"], 30)
    >>> y[:10] = "cat"
    >>> clf = HENNClassifier(tree, backbone=None).fit(X, y)
    >>> clf.groups_
    ['cat', 'dog']
    >>> belief, vacuity = clf.predict_opinion(X)
    >>> in_groups = clf.predict_group_belief(X)
    >>> bool(abs(belief.sum(axis=1) + in_groups.sum(axis=1) + vacuity - 1).max() < 1e-9)
    True
    """

    group_level: str | int | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        "group_level": [str, Interval(Integral, 1, None, closed="left"), None],
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        return HENNHead(
            taxonomy,
            n_features,
            group_nodes_at(taxonomy, self.group_level),
            **evidence_options(self),
        )

    @property
    def groups_(self) -> list[Any]:
        """Labels of the groups, in tree order."""
        nodes = group_nodes_at(self.taxonomy_, self.group_level)
        return self.taxonomy_.labels(nodes)

    def predict_group_belief(self, X: Any) -> npt.NDArray[Any]:
        """Return the belief in each group that is in none of its leaves.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`.

        Returns
        -------
        belief : ndarray of shape (n_samples, n_groups)
            Columns in the order of `groups_`. With what :meth:`predict_opinion` returns, a row
            sums to 1.
        """
        return self._masses(X)[:, self.taxonomy_.n_leaves : -1]
