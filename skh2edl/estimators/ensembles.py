"""Several classifiers as one: the mean of their probabilities, or one opinion of all."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_random_state, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from ..metrics.inputs import node_probabilities
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import HasMethods, Interval, StrOptions, safe_indexing
from .wrapping import (
    TreeWrapper,
    find_taxonomy,
    fit_arguments,
    has_opinions,
    leaf_log_probability,
    opinion_of,
)

# Concentrations of members that agree to all digits; more evidence than any data gives.
_MOST_STRENGTH = 1e6
# Variances below this are rounding: all members are certain of the same child, or a single
# member reaches a node, which tells nothing of how members differ there.
_ROUNDING = 1e-9


class TreeEnsembleClassifier(TreeWrapper):
    """Train one classifier several times and let the copies predict together (deep ensemble).

    The members differ by their `random_state`: by first weights, order of samples and
    augmentation [1]_. An estimator that draws no random numbers, such as one of this package
    with ``backbone=None`` and the quasi-Newton solver, gives equal members, unless each is
    trained on a sample of its own (``bootstrap=True``).

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`.
    n_estimators : int, default=5
        Number of members.
    how : {"probabilities", "opinions", "moments"}, default="probabilities"
        What the members' predictions become:

        - "probabilities": their mean;
        - "opinions": the mean of their evidence, which is averaging fusion of their opinions:
          members that learnt from the same data are no independent witnesses, so their evidence
          does not add up. Evidential estimators only;
        - "moments": an opinion at each node, from the Dirichlet distribution with the mean and the
          variance of the members' probabilities there [2]_. Members that disagree leave much
          vacuity. Any estimator, two members at least.
    bootstrap : bool, default=False
        Whether each member is trained on as many samples drawn with replacement.
    prior_weight : float, default=2.0
        Weight W of the uniform prior for ``how="moments"``. An opinion has at least W / K of
        concentration on each of K children; less is raised to it.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.
    n_jobs : int, default=None
        Members trained at the same time, as in joblib.
    random_state : int, RandomState or None, default=None
        Source of the members' seeds.

    Attributes
    ----------
    estimators_ : list of classifiers
        Fitted.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of the members, if they have them.

    References
    ----------
    .. [1] Lakshminarayanan, Pritzel, Blundell: Simple and scalable predictive uncertainty
       estimation using deep ensembles. NeurIPS 2017.
    .. [2] Franzen, Pourkamali-Anaraki: Ensemble-based Dirichlet modeling for predictive
       uncertainty and selective classification. arXiv preprint, 2026.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import H2EDLClassifier, TreeEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = TreeEnsembleClassifier(
    ...     H2EDLClassifier(backbone=None), 3, how="opinions", bootstrap=True, random_state=0
    ... )
    >>> opinion = clf.fit(X, y).predict_hyper_opinion(X[:2])
    >>> opinion.belief(0) > 0.8
    array([ True,  True])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "how": [StrOptions({"probabilities", "opinions", "moments"})],
        "bootstrap": ["boolean"],
        "prior_weight": [Interval(Real, 0, None, closed="neither")],
        "taxonomy": [Taxonomy, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        n_estimators: int = 5,
        *,
        how: str = "probabilities",
        bootstrap: bool = False,
        prior_weight: float = 2.0,
        taxonomy: Taxonomy | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.how = how
        self.bootstrap = bootstrap
        self.prior_weight = prior_weight
        self.taxonomy = taxonomy
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Train the members.

        Parameters
        ----------
        X : array-like or images
            Training samples.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        groups : array-like of shape (n_samples,), default=None
            Given to the estimator's own fit if that takes groups.

        Returns
        -------
        self
        """
        self._validate_params()
        self._check_how()
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_estimators)
        arguments = fit_arguments(self, sample_weight, groups)
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_member)(self.estimator, seed, X, y, arguments, self.bootstrap)
            for seed in seeds.tolist()
        )
        self._take_over(self.estimators_[0], self.taxonomy)
        return self

    def _check_how(self) -> None:
        if self.how == "opinions" and not has_opinions(self.estimator):
            raise ValueError(
                f"how='opinions' needs an estimator with predict_hyper_opinion, which "
                f"{type(self.estimator).__name__} has not. Use how='probabilities' or 'moments'."
            )
        if self.how == "moments" and self.n_estimators < 2:
            raise ValueError(
                "how='moments' needs two members or more, because one has no variance, got "
                f"n_estimators={self.n_estimators}. Raise it."
            )

    def _inner(self) -> list[Any]:
        return self.estimators_

    def _set_inner(self, members: list[Any]) -> None:
        self.estimators_, self.estimator = members, clone(members[0])

    def _check_learned(self) -> None:
        self._check_how()
        if len(self.estimators_) != self.n_estimators:
            raise ValueError(
                f"n_estimators is {self.n_estimators}, and {len(self.estimators_)} are fitted. "
                "Fit the ensemble again."
            )
        if self.how == "opinions" and any(
            not has_opinions(member) or find_taxonomy(member) != self.taxonomy_
            for member in self.estimators_
        ):
            raise ValueError("how='opinions' needs members with opinions on one taxonomy.")

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "classes_")
        if self.how != "probabilities":
            return np.array(self.predict_hyper_opinion(X).log_leaf_probability)
        total: Any = -np.inf
        for member in self.estimators_:
            total = np.logaddexp(total, leaf_log_probability(member, X, self.taxonomy_))
        return np.asarray(total - np.log(len(self.estimators_)))

    @available_if(lambda self: self.how != "probabilities")
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the opinion that the members' opinions or probabilities become.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        if self.how == "moments":
            members = [
                np.exp(leaf_log_probability(member, X, self.taxonomy_))
                for member in self.estimators_
            ]
            return match_moments(np.stack(members), self.taxonomy_, self.prior_weight)
        opinions = [opinion_of(member, X, self.taxonomy_) for member in self.estimators_]
        # Bootstrapped members may have counted other base rates.
        return HyperOpinion.from_evidence(
            self.taxonomy_,
            np.mean([opinion.evidence for opinion in opinions], axis=0),
            np.mean([opinion.base_rate for opinion in opinions], axis=0),
            np.mean([opinion.prior_weight for opinion in opinions], axis=0),
            copy=False,
        )


def match_moments(
    members: npt.NDArray[np.float64], taxonomy: Taxonomy, prior_weight: float = 2.0
) -> HyperOpinion:
    """Return the opinions with the mean and variance of several probability vectors.

    At each branching node the members' probabilities of the children count with their
    probability of the node, so that without the prior the means multiply to the mean of the leaf
    probabilities. With mean m and variance v of each child, the Dirichlet distribution of strength
    ``S = Σ m (1 - m) / Σ v - 1`` has the mean and the total variance of the members.

    Parameters
    ----------
    members : ndarray of shape (n_members, n_samples, n_leaves)
        Probabilities of the leaves in tree order.
    taxonomy : Taxonomy
        The tree.
    prior_weight : float, default=2.0
        Weight W of the uniform prior; a concentration below W / K is raised to it.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.flat(["cat", "dog"])
    >>> agree = match_moments(np.array([[[0.8, 0.2]], [[0.7, 0.3]]]), tree)
    >>> disagree = match_moments(np.array([[[0.9, 0.1]], [[0.1, 0.9]]]), tree)
    >>> agree.vacuity.round(2), disagree.vacuity.round(2)
    (array([[0.05]]), array([[1.]]))
    """
    least = np.finfo(np.float64).tiny
    nodes = np.stack([node_probabilities(leaves, taxonomy) for leaves in members])
    above = nodes[..., taxonomy.branching_nodes[taxonomy.decision_nodes]]
    conditional = nodes[..., taxonomy.decision_children] / np.maximum(above, least)
    credit = above / np.maximum(above.sum(axis=0), least)
    mean = (credit * conditional).sum(axis=0)
    variance = (credit * np.square(conditional - mean)).sum(axis=0)
    # Without bias: the members' own parts in the mean are taken out.
    freedom = 1 - np.square(credit).sum(axis=0)
    largest = mean * (1 - mean)
    variance = np.divide(variance, freedom, out=largest.copy(), where=freedom > _ROUNDING)

    starts = taxonomy.decision_offsets[:-1]
    largest, variance = (np.add.reduceat(part, starts, axis=1) for part in (largest, variance))
    strength = np.maximum(largest / np.maximum(variance, least) - 1, 0.0)
    agree = (largest >= _MOST_STRENGTH * variance) | (largest < _ROUNDING)
    strength = np.where(agree, _MOST_STRENGTH, strength)
    fan_out = np.diff(taxonomy.decision_offsets)
    prior = np.repeat(prior_weight / fan_out, fan_out)
    evidence = np.maximum(strength[:, taxonomy.decision_nodes] * mean - prior, 0.0)
    return HyperOpinion.from_evidence(taxonomy, evidence, prior_weight=prior_weight, copy=False)


def _fit_member(
    estimator: Any,
    seed: int,
    X: Any,
    y: Any,
    arguments: dict[str, Any],
    bootstrap: bool,
) -> Any:
    """Fit a clone whose every random state comes from the seed."""
    random = np.random.RandomState(seed)
    member = clone(estimator)
    names = sorted(member.get_params(deep=True))
    member.set_params(
        **{
            name: int(random.randint(2**31 - 1))
            for name in names
            if name == "random_state" or name.endswith("__random_state")
        }
    )
    if bootstrap:
        n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
        drawn = random.randint(n_samples, size=n_samples)
        X, y = safe_indexing(X, drawn), safe_indexing(y, drawn)
        arguments = {name: safe_indexing(values, drawn) for name, values in arguments.items()}
    return member.fit(X, y, **arguments)
