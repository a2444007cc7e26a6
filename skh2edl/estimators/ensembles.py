"""Several classifiers as one: the mean of their probabilities, or their opinions fused."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_random_state, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import HasMethods, Interval, StrOptions, safe_indexing
from .wrapping import TreeWrapper, fit_arguments, has_opinions, leaf_log_probability, read_opinion


class TreeEnsembleClassifier(TreeWrapper):
    """Train one classifier several times and let the copies answer together (deep ensemble).

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
    how : {"probabilities", "opinions"}, default="probabilities"
        Mean of the members' probabilities; or of their evidence, which is averaging fusion of
        their opinions: members that learnt from the same data are no independent witnesses, so
        their evidence does not add up. Evidential estimators only.
    bootstrap : bool, default=False
        Whether each member is trained on as many samples drawn with replacement.
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
        "how": [StrOptions({"probabilities", "opinions"})],
        "bootstrap": ["boolean"],
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
        taxonomy: Taxonomy | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.how = how
        self.bootstrap = bootstrap
        self.taxonomy = taxonomy
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Train the members.

        Parameters
        ----------
        X : what the estimator reads
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
        if self.how == "opinions" and not has_opinions(self.estimator):
            raise ValueError(
                f"how='opinions' needs an estimator with predict_hyper_opinion, which "
                f"{type(self.estimator).__name__} has not. Use how='probabilities'."
            )
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_estimators)
        arguments = fit_arguments(self, sample_weight, groups)
        self.estimators_ = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_member)(self.estimator, seed, X, y, arguments, self.bootstrap)
            for seed in seeds.tolist()
        )
        self._take_over(self.estimators_[0], self.taxonomy)
        return self

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "classes_")
        if self.how == "opinions":
            return np.array(self.predict_hyper_opinion(X).log_leaf_probability)
        total: Any = -np.inf
        for member in self.estimators_:
            total = np.logaddexp(total, leaf_log_probability(member, X, self.taxonomy_))
        return np.asarray(total - np.log(len(self.estimators_)))

    @available_if(lambda self: self.how == "opinions")
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the averaging fusion of the members' opinions.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        opinions = [read_opinion(member, X, self.taxonomy_) for member in self.estimators_]
        # Bootstrapped members may have counted other base rates.
        return HyperOpinion.from_evidence(
            self.taxonomy_,
            np.mean([opinion.evidence for opinion in opinions], axis=0),
            np.mean([opinion.base_rate for opinion in opinions], axis=0),
            np.mean([opinion.prior_weight for opinion in opinions], axis=0),
            copy=False,
        )


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
        rows = random.randint(n_samples, size=n_samples)
        X, y = safe_indexing(X, rows), safe_indexing(y, rows)
        arguments = {name: safe_indexing(values, rows) for name, values in arguments.items()}
    return member.fit(X, y, **arguments)
