"""The evidential rivals: each a head and its own few parameters."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ._base import TreeClassifier
from ._validation import Interval
from .baselines import PARTIAL_LABELS, Baseline
from .flat_heads import FlatEDLHead, HENNHead, IEDLHead, REDLHead
from .h2edl import H2EDLClassifier
from .heads import TreeHead
from .taxonomy import Taxonomy

_PRIOR_AND_RISK = {
    "prior": "uniform",
    "prior_weight": "children",
    "base_rate_power": 1.0,
    "base_rate_smoothing": 1.0,
    "risk": "squared",
    "leaf_weight": 0.0,
}


def _rules_of_h2edl(names: Iterable[str]) -> dict[str, list[Any]]:
    """Return H2EDL's constraints of some parameters; without a preset, None is no value."""
    rules = H2EDLClassifier._parameter_constraints
    return {name: [rule for rule in rules[name] if rule is not None] for name in names}


class EvidentialBaseline(Baseline):
    """Base of the evidential rivals: how read-outs become evidence, and `predict_opinion`.

    The defaults are the published ones; what H2EDL may tune, they may tune too. Their risks are
    bounded or grow slowly, so on fixed features they want a smaller `l2` than a log-likelihood.
    """

    _own_parameters: ClassVar[dict[str, Any]] = {
        "evidence": "softplus",
        "evidence_scale": 1.0,
        "kl_weight": 1.0,
        "kl_annealing_epochs": 10,
        "kl_per_child": False,
        "initial_bias": -2.0,
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        **_rules_of_h2edl(_own_parameters),
    }

    def _evidence_options(self) -> dict[str, Any]:
        """Return what every evidential head takes."""
        learn = self.evidence_scale == "learn"
        return {
            "evidence": self.evidence,
            "evidence_scale": 1.0 if learn else self.evidence_scale,
            "learn_evidence_scale": learn,
            "kl_weight": self.kl_weight,
            "kl_annealing_epochs": self.kl_annealing_epochs,
            "kl_per_child": self.kl_per_child,
            "initial_bias": self.initial_bias,
        }

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
    evidence : {"softplus", "softplus_squared", "exp"}, default="softplus"
        How evidence grows with the read-out.
    evidence_scale : float or "learn", default=1.0
        Factor of the evidence.
    kl_weight : float, default=1.0
        Weight of the divergence that takes evidence for wrong leaves away.
    kl_annealing_epochs : float, default=10
        Epochs over which that weight rises from 0; a quasi-Newton fit uses the full weight.
    kl_per_child : bool, default=False
        Whether that weight is divided by the number of leaves.
    initial_bias : float, default=-2.0
        Bias of the read-out at the start.
    prior : {"uniform", "inverse_frequency"}, default="uniform"
        Base rates: equal for all leaves, or larger for rarer ones.
    prior_weight : float or "children", default="children"
        Weight W of the prior: a number, or the number of leaves.
    base_rate_power, base_rate_smoothing : float, default=1.0 and 1.0
        The inverse-frequency base rate is proportional to ``(count + smoothing) ** -power``.
    risk : {"squared", "log", "digamma", "none"}, default="squared"
        The evidential risk.
    leaf_weight : float, default=0.0
        Weight of ``-log P(label)``.
    partial_labels : {"marginal", "soft", "drop"}, default="marginal"
        What an ancestor label teaches: its leaves as one, a uniform target over its leaves, or
        nothing.
    backbone, ... : shared parameters
        As in :class:`H2EDLClassifier`.

    Notes
    -----
    On fixed features choose `l2` by cross-validation: the shared default suits a log-likelihood
    and is too strong for this risk, which leaves the model under-confident.

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

    _own_parameters: ClassVar[dict[str, Any]] = {
        **EvidentialBaseline._own_parameters,
        **_PRIOR_AND_RISK,
        "partial_labels": "marginal",
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **EvidentialBaseline._parameter_constraints,
        **PARTIAL_LABELS,
        **_rules_of_h2edl(_PRIOR_AND_RISK),
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        power = 0.0 if self.prior == "uniform" else self.base_rate_power
        rarity = (label_weight[taxonomy.leaf_nodes] + self.base_rate_smoothing) ** -power
        return FlatEDLHead(
            taxonomy,
            n_features,
            base_rate=rarity / rarity.sum(),
            prior_weight=None if self.prior_weight == "children" else self.prior_weight,
            risk=self.risk,
            leaf_weight=self.leaf_weight,
            partial_labels=self.partial_labels,
            **self._evidence_options(),
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
    evidence, evidence_scale, kl_weight, kl_annealing_epochs, kl_per_child, initial_bias
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

    Notes
    -----
    On fixed features choose `l2` by cross-validation: the shared default suits a log-likelihood
    and is too strong for this risk, which leaves the model under-confident.

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

    _own_parameters: ClassVar[dict[str, Any]] = {
        **EvidentialBaseline._own_parameters,
        "fisher_weight": None,
        "partial_labels": "marginal",
    }
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
            **self._evidence_options(),
        )


class REDLClassifier(EvidentialBaseline):
    """Relaxed evidential learning over the leaves (R-EDL) [1]_.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, kl_weight, kl_annealing_epochs, kl_per_child, initial_bias
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

    Notes
    -----
    On fixed features choose `l2` by cross-validation: the shared default suits a log-likelihood
    and is too strong for this risk, which leaves the model under-confident.

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

    _own_parameters: ClassVar[dict[str, Any]] = {
        **EvidentialBaseline._own_parameters,
        "relaxation": 1.0,
        "leaf_prior": 0.1,
        "partial_labels": "marginal",
    }
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
            **self._evidence_options(),
        )


class HENNClassifier(EvidentialBaseline):
    """Evidence for leaves and for groups of leaves: a grouped Dirichlet (HENN) [1]_.

    Labels of every node are native: a group's label teaches the evidence for the group.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels.
    evidence, evidence_scale, kl_weight, kl_annealing_epochs, kl_per_child, initial_bias
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

    Notes
    -----
    On fixed features choose `l2` by cross-validation: the shared default suits a log-likelihood
    and is too strong for this risk, which leaves the model under-confident.

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

    _own_parameters: ClassVar[dict[str, Any]] = {
        **EvidentialBaseline._own_parameters,
        "group_level": None,
    }
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
            group_nodes=_group_nodes(taxonomy, self.group_level),
            **self._evidence_options(),
        )

    @property
    def groups_(self) -> list[Any]:
        """Labels of the groups, in tree order."""
        nodes = _group_nodes(self.taxonomy_, self.group_level)
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


def _group_nodes(taxonomy: Taxonomy, level: str | int | None) -> npt.NDArray[np.int64]:
    if level is None:
        # Nodes above the first that branches are alone on their level.
        level = int(taxonomy.depths[taxonomy.branching_nodes[0]]) + 1
    return taxonomy.level_nodes(level)
