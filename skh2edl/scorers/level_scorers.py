"""The metrics as scikit-learn scorers, for cross-validation and model selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest

from .. import metrics
from ..estimators.wrapping import opinion_method
from ..metrics.report import LEVEL_METRICS, TREE_METRICS, Metric, level_title
from ..taxonomy.taxonomy import Taxonomy

_Predict = Callable[[str], Any]


def _negate_losses(table: dict[str, Metric]) -> dict[str, Metric]:
    return {name if metric.sign > 0 else f"neg_{name}": metric for name, metric in table.items()}


_OPINIONS = "predict_hyper_opinion"
_OF_OPINIONS = {
    "nonspecificity_auroc": Metric(metrics.nonspecificity_auroc, 1, _OPINIONS),
    "vacuity_auroc": Metric(metrics.vacuity_auroc, 1, _OPINIONS),
}
_OF_LEVELS = _negate_losses(LEVEL_METRICS)
_OF_THE_TREE = _negate_losses(
    {
        "path_consistency": Metric(metrics.path_consistency, 1, "predict_proba"),
        "top_k_hierarchical_distance": Metric(
            metrics.top_k_hierarchical_distance, -1, "predict_proba"
        ),
        **TREE_METRICS,
    }
)


class _TakesSampleWeight:
    """Request sample weights from scikit-learn's metadata routing."""

    def set_score_request(self, *, sample_weight: bool | str | None) -> Any:
        """Request sample weights from scikit-learn's metadata routing.

        Parameters
        ----------
        sample_weight : bool, str or None
            True passes `sample_weight` to the metric, False ignores it, a string is the name
            under which it is given, None raises an error if it is given.

        Returns
        -------
        self
        """
        # sklearn.base.clone copies the attribute of this name.
        self._metadata_request = self._request(sample_weight)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the request of this scorer."""
        return getattr(self, "_metadata_request", None) or self._request(None)

    def _request(self, sample_weight: bool | str | None) -> MetadataRequest:
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="sample_weight", alias=sample_weight)
        return request

    def _accept_sample_weight(self) -> bool:
        return True


class TreeScorer(_TakesSampleWeight, BaseEstimator):
    """A metric on a taxonomy as a scikit-learn scorer; greater is better.

    Made by :func:`make_level_scorer` and :func:`make_tree_scorer`. Call it as
    ``scorer(estimator, X, y, sample_weight=None)``. It can be cloned and pickled.

    Parameters
    ----------
    metric : str
        Name of the metric.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default=None
        The level; None for a metric of the whole tree.
    response_method : {"predict", "predict_proba"}, default=None
        What metrics that accept labels and probabilities read. None takes ``predict_proba`` for
        the accuracies if the estimator has it, and ``predict`` otherwise.
    options : dict, default=None
        More arguments of the metric, such as ``{"n_bins": 10}``.

    Examples
    --------
    >>> from sklearn.base import clone
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.scorers import TreeScorer
    >>> scorer = TreeScorer("neg_nll", Taxonomy.flat(["cat", "dog"]), level="leaf")
    >>> clone(scorer).metric
    'neg_nll'
    """

    def __init__(
        self,
        metric: str,
        taxonomy: Taxonomy,
        level: str | int | None = None,
        response_method: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.metric = metric
        self.taxonomy = taxonomy
        self.level = level
        self.response_method = response_method
        self.options = options

    def __call__(
        self, estimator: Any, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None
    ) -> float:
        """Score a fitted estimator.

        Parameters
        ----------
        estimator : object
            A fitted classifier whose classes are labels of the taxonomy.
        X : array-like
            Samples.
        y : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each sample.

        Returns
        -------
        score : float
            NaN, with a warning, where there is nothing to score.
        """
        return self._score(estimator, _predict_once(estimator, X), y, sample_weight)

    def _score(self, estimator: Any, predict: _Predict, y: Any, sample_weight: Any) -> float:
        rules = _OF_THE_TREE if self.level is None else {**_OF_LEVELS, **_OF_OPINIONS}
        rule = rules[_full_name(self.metric, rules)]
        response = _choose_response(rule, self.response_method, estimator)
        predictions = predict(response)
        options = dict(self.options or {})
        level = () if self.level is None else (self.level,)
        if rule.response == _OPINIONS:
            # Leaf probabilities can be mapped to another tree, an opinion cannot.
            if predictions.taxonomy != self.taxonomy:
                raise ValueError(
                    f"The opinions are on {predictions.taxonomy!r}, which differs from the "
                    f"scorer's {self.taxonomy!r}. Make the scorer with the taxonomy of the "
                    "estimator."
                )
            arguments: tuple[Any, ...] = (y, predictions, *level)
        elif rule.compute is metrics.path_consistency:
            arguments = (predictions, self.taxonomy)
        else:
            arguments = (y, predictions, self.taxonomy, *level)
        if rule.compute is metrics.top_k_hierarchical_distance:
            options.setdefault("k", min(5, self.taxonomy.n_leaves))
        if response == "predict_proba":
            options["classes"] = estimator.classes_
        return rule.sign * rule.compute(*arguments, sample_weight=sample_weight, **options)


class HierarchicalScorers(_TakesSampleWeight, dict[str, TreeScorer]):
    """A dict of scorers that can also be called as one scorer.

    Made by :func:`hierarchical_scorers`. scikit-learn accepts it wherever it accepts several
    scorers. Called with an estimator it returns a dict of scores, and the estimator predicts
    only once.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.scorers import hierarchical_scorers
    >>> scorers = hierarchical_scorers(Taxonomy.flat(["cat", "dog"]))
    >>> scorers["balanced_accuracy_leaf"].level
    'leaf'
    """

    def __call__(
        self, estimator: Any, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None
    ) -> dict[str, float]:
        """Score a fitted estimator with all scorers.

        Parameters
        ----------
        estimator, X, y, sample_weight
            As for a :class:`TreeScorer`.

        Returns
        -------
        scores : dict
            Score by name.
        """
        predict = _predict_once(estimator, X)
        return {
            name: scorer._score(estimator, predict, y, sample_weight)
            for name, scorer in self.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # The scorers, then the attributes of the collection itself.
        return type(self), (dict(self),), self.__dict__ or None


def make_level_scorer(
    metric: str,
    level: str | int,
    taxonomy: Taxonomy,
    *,
    response_method: str | None = None,
    **options: Any,
) -> TreeScorer:
    """Make a scikit-learn scorer from a metric of one level.

    It works for any classifier whose ``classes_`` are labels of the taxonomy. Columns of
    ``predict_proba`` are matched by name: leaves that are not in the training data have
    probability 0, and the probability of a class that is an ancestor is spread evenly over its
    leaves. The true labels may be ancestors, too.

    Parameters
    ----------
    metric : str
        "accuracy", "balanced_accuracy", "neg_nll", "neg_brier", "neg_ece", "neg_adaptive_ece",
        "neg_risk_coverage_area", "coverage_at_risk", "oracle_descent", "kept_ancestor", or for
        estimators with ``predict_hyper_opinion`` "nonspecificity_auroc" and "vacuity_auroc".
        Losses are negated, so greater is better; their names may be given without ``neg_``.
    level : str or int
        Name or depth of the level, "leaf" for the deepest.
    taxonomy : Taxonomy
        The tree.
    response_method : {"predict", "predict_proba"}, default=None
        What the accuracies and "kept_ancestor" read. None takes ``predict`` for
        "kept_ancestor". For the accuracies None takes ``predict_proba`` if the estimator has it:
        leaf probabilities are summed to the level before the largest is taken. Choose "predict"
        to score the labels of an estimator that hedges or minimises costs.
    **options
        More arguments of the metric, such as ``n_bins``.

    Returns
    -------
    scorer : TreeScorer
        Callable as ``scorer(estimator, X, y, sample_weight=None)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.scorers import make_level_scorer
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y = np.repeat(["lynx", "puma", "dog"], 10)
    >>> X = np.random.default_rng(0).normal(size=(30, 1)) + 9 * (y == "dog")[:, None]
    >>> scorer = make_level_scorer("balanced_accuracy", level=1, taxonomy=tree)
    >>> cross_val_score(GaussianNB(), X, y, scoring=scorer)
    array([1., 1., 1., 1., 1.])
    """
    name = _full_name(metric, {**_OF_LEVELS, **_OF_OPINIONS})
    taxonomy.level_index(level)
    _check_response_method(response_method)
    return TreeScorer(name, taxonomy, level, response_method, options or None)


def make_tree_scorer(
    metric: str, taxonomy: Taxonomy, *, response_method: str | None = None, **options: Any
) -> TreeScorer:
    """Make a scikit-learn scorer from a metric of the whole tree.

    Parameters
    ----------
    metric : str
        "path_consistency", "full_path_accuracy", "first_error_depth", "neg_mistake_severity",
        "neg_hierarchical_distance", "neg_top_k_hierarchical_distance", "hops",
        "hierarchical_precision", "hierarchical_recall", "hierarchical_fscore",
        "information_precision", "information_recall", "operating_area" or
        "neg_hierarchical_aurc". Losses are negated, so greater is better; their names may be
        given without ``neg_``.
    taxonomy : Taxonomy
        The tree.
    response_method : {"predict", "predict_proba"}, default=None
        What metrics that accept labels and probabilities read; None takes ``predict``, for
        "full_path_accuracy" ``predict_proba`` if the estimator has it.
    **options
        More arguments of the metric, such as ``k`` or ``average="macro"``.

    Returns
    -------
    scorer : TreeScorer
        Callable as ``scorer(estimator, X, y, sample_weight=None)``.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.scorers import make_tree_scorer
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> scorer = make_tree_scorer("neg_hierarchical_distance", tree)
    >>> clf = DummyClassifier().fit([[0], [0], [0]], ["lynx", "lynx", "dog"])
    >>> scorer(clf, [[0], [0]], ["puma", "dog"])
    -1.5
    """
    name = _full_name(metric, _OF_THE_TREE)
    _check_response_method(response_method)
    return TreeScorer(name, taxonomy, None, response_method, options or None)


def hierarchical_scorers(
    taxonomy: Taxonomy, *, opinions: bool = False, response_method: str | None = None
) -> HierarchicalScorers:
    """Make scorers for all metrics, at each level and of the whole tree.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    opinions : bool, default=False
        Add the scorers that need ``predict_hyper_opinion``.
    response_method : {"predict", "predict_proba"}, default=None
        As in :func:`make_level_scorer`.

    Returns
    -------
    scorers : HierarchicalScorers
        A dict of scorers. Their names end in the level, as in ``balanced_accuracy_family``;
        levels without names are ``level_1``, ... and ``leaf``. Scorers of the whole tree have
        the name of the metric. Pass it as `scoring` to ``cross_validate``, or with
        ``refit=name`` to ``GridSearchCV``.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.model_selection import cross_validate
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.scorers import hierarchical_scorers
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y = ["lynx", "puma", "dog"] * 4
    >>> scores = cross_validate(
    ...     DummyClassifier(strategy="constant", constant="lynx"),
    ...     [[0]] * 12,
    ...     y,
    ...     cv=2,
    ...     scoring=hierarchical_scorers(tree),
    ... )
    >>> scores["test_neg_hierarchical_distance"]
    array([-1., -1.])
    """
    scorers = HierarchicalScorers()
    of_levels = {**_OF_LEVELS, **(_OF_OPINIONS if opinions else {})}
    for metric in of_levels:
        # A mistake keeps no leaf, and an oracle down to the leaves is always right.
        trivial_at_leaves = metric in ("kept_ancestor", "oracle_descent")
        for depth in range(1, taxonomy.n_levels + 1 - trivial_at_leaves):
            title = level_title(taxonomy, depth)
            level = depth if title.startswith("level_") else title
            scorers[f"{metric}_{title}"] = make_level_scorer(
                metric, level, taxonomy, response_method=response_method
            )
    for metric in _OF_THE_TREE:
        scorers[metric] = make_tree_scorer(metric, taxonomy, response_method=response_method)
    return scorers


def _predict_once(estimator: Any, X: Any) -> _Predict:
    """Return a function that calls a method of the estimator on X, each method once."""
    known: dict[str, Any] = {}

    def predict(method: str) -> Any:
        if method not in known:
            known[method] = _method_of(estimator, method)(X)
        return known[method]

    return predict


def _method_of(estimator: Any, name: str) -> Any:
    """Return a prediction method of a fitted estimator, or None."""
    return opinion_method(estimator) if name == _OPINIONS else getattr(estimator, name, None)


def _choose_response(rule: Metric, response_method: str | None, estimator: Any) -> str:
    """Return the method of the estimator that gives what a metric reads."""
    chosen = rule.response
    if chosen in ("either", "predict") and response_method is not None:
        chosen = response_method
    elif chosen == "either":
        chosen = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
    if _method_of(estimator, chosen) is None:
        raise AttributeError(
            f"{rule.compute.__name__} needs {chosen}, which {type(estimator).__name__} does not "
            "have. Score it with a metric of labels, such as 'accuracy', or use an estimator that "
            "has it."
        )
    return chosen


def _full_name(metric: str, rules: dict[str, Metric]) -> str:
    for name in (metric, f"neg_{metric}"):
        if name in rules:
            return name
    raise ValueError(f"There is no such metric as {metric!r}. Choose one of {sorted(rules)}.")


def _check_response_method(response_method: str | None) -> None:
    if response_method not in (None, "predict", "predict_proba"):
        raise ValueError(
            f"response_method must be 'predict', 'predict_proba' or None, got {response_method!r}."
        )
