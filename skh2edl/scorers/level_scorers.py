"""The metrics as scikit-learn scorers: for cross-validation and model selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest

from .. import metrics
from ..metrics.report import level_title
from ..taxonomy.taxonomy import Taxonomy

Respond = Callable[[str], Any]


class _Rule(NamedTuple):
    metric: Callable[..., float]
    sign: int
    response: str  # "answers": predict_proba where there is one, else predict


_OF_LEVELS = {
    "accuracy": _Rule(metrics.level_accuracy, 1, "answers"),
    "balanced_accuracy": _Rule(metrics.level_balanced_accuracy, 1, "answers"),
    "neg_nll": _Rule(metrics.level_nll, -1, "predict_proba"),
    "neg_brier": _Rule(metrics.level_brier, -1, "predict_proba"),
    "neg_ece": _Rule(metrics.level_ece, -1, "predict_proba"),
    "neg_adaptive_ece": _Rule(metrics.level_adaptive_ece, -1, "predict_proba"),
    "neg_risk_coverage_area": _Rule(metrics.risk_coverage_area, -1, "predict_proba"),
    "oracle_descent": _Rule(metrics.oracle_descent, 1, "predict_proba"),
    "kept_ancestor": _Rule(metrics.kept_ancestor, 1, "predict"),
}
_OF_OPINIONS = {
    "nonspecificity_auroc": _Rule(metrics.nonspecificity_auroc, 1, "predict_hyper_opinion"),
    "vacuity_auroc": _Rule(metrics.vacuity_auroc, 1, "predict_hyper_opinion"),
}
_OF_THE_TREE = {
    "path_consistency": _Rule(metrics.path_consistency, 1, "predict_proba"),
    "first_error_depth": _Rule(metrics.first_error_depth, 1, "predict"),
    "neg_mistake_severity": _Rule(metrics.mistake_severity, -1, "predict"),
    "neg_hierarchical_distance": _Rule(metrics.hierarchical_distance, -1, "predict"),
    "neg_top_k_hierarchical_distance": _Rule(
        metrics.top_k_hierarchical_distance, -1, "predict_proba"
    ),
    "hierarchical_precision": _Rule(metrics.hierarchical_precision, 1, "predict"),
    "hierarchical_recall": _Rule(metrics.hierarchical_recall, 1, "predict"),
    "hierarchical_fscore": _Rule(metrics.hierarchical_fscore, 1, "predict"),
    "operating_area": _Rule(metrics.operating_area, 1, "predict_proba"),
}


class _TakesSampleWeight:
    """The part of scikit-learn's metadata routing that concerns a scorer."""

    def set_score_request(self, *, sample_weight: bool | str | None) -> Any:
        """Ask scikit-learn's metadata routing for sample weights.

        Parameters
        ----------
        sample_weight : bool, str or None
            True passes `sample_weight` on, False leaves it out, a string is the name under
            which it is given, None makes giving it an error.

        Returns
        -------
        self
        """
        # The name under which sklearn.base.clone carries requests over.
        self._metadata_request = self._request(sample_weight)
        return self

    def get_metadata_routing(self) -> MetadataRequest:
        """Return what this scorer asks of scikit-learn's metadata routing."""
        return getattr(self, "_metadata_request", None) or self._request(None)

    def _request(self, sample_weight: bool | str | None) -> MetadataRequest:
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="sample_weight", alias=sample_weight)
        return request

    def _accept_sample_weight(self) -> bool:
        return True


class TreeScorer(_TakesSampleWeight, BaseEstimator):
    """A metric on a taxonomy as a scikit-learn scorer; greater is better.

    Made by :func:`make_level_scorer` and :func:`make_tree_scorer`. It is called as
    ``scorer(estimator, X, y, sample_weight=None)``, can be cloned and pickled.

    Parameters
    ----------
    metric : str
        Name of the metric.
    taxonomy : Taxonomy
        The tree.
    level : str or int, default=None
        The level; None for a metric of the whole tree.
    response_method : {"predict", "predict_proba"}, default=None
        What a metric that takes answers of either kind reads; None takes ``predict_proba`` for
        the accuracies where the estimator has it, ``predict`` otherwise.
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
        return self._score(estimator, _ask(estimator, X), y, sample_weight)

    def _score(self, estimator: Any, respond: Respond, y: Any, sample_weight: Any) -> float:
        rule = _rule(self.metric, of_level=self.level is not None)
        response = _choose_response(rule, self.response_method, estimator)
        answers = respond(response)
        options = dict(self.options or {})
        level = () if self.level is None else (self.level,)
        if rule.response == "predict_hyper_opinion":
            _check_same_tree(answers.taxonomy, self.taxonomy)
            arguments: tuple[Any, ...] = (y, answers, *level)
        elif rule.metric is metrics.path_consistency:
            arguments = (answers, self.taxonomy)
        elif rule.metric is metrics.top_k_hierarchical_distance:
            # The usual five, or as many as there are.
            k = options.pop("k", min(5, self.taxonomy.n_leaves))
            arguments = (y, answers, self.taxonomy, k)
        else:
            arguments = (y, answers, self.taxonomy, *level)
        if response == "predict_proba":
            options["classes"] = estimator.classes_
        return rule.sign * rule.metric(*arguments, sample_weight=sample_weight, **options)


class HierarchicalScorers(_TakesSampleWeight, dict[str, TreeScorer]):
    """Scorers by name, which can also be called together.

    Made by :func:`hierarchical_scorers`. As a dict of scorers it goes wherever scikit-learn takes
    several; called with an estimator it returns a dict of scores, for which the estimator
    predicts only once.

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
        respond = _ask(estimator, X)
        return {
            name: scorer._score(estimator, respond, y, sample_weight)
            for name, scorer in self.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # The plain form: scorers first, then what was set on the collection itself.
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

    It works for any classifier whose ``classes_`` are labels of the taxonomy: columns of
    ``predict_proba`` are found by name, leaves that were not in the training data have
    probability 0, and the probability of an ancestor that was learnt as a class is spread evenly
    over its leaves. Labels to score against may be ancestors.

    Parameters
    ----------
    metric : str
        "accuracy", "balanced_accuracy", "neg_nll", "neg_brier", "neg_ece", "neg_adaptive_ece",
        "neg_risk_coverage_area", "oracle_descent", "kept_ancestor", or for estimators with
        ``predict_hyper_opinion`` "nonspecificity_auroc" and "vacuity_auroc". Losses are negated,
        so greater is better; their names are understood without ``neg_``, too.
    level : str or int
        Name or depth of the level, "leaf" for the deepest.
    taxonomy : Taxonomy
        The tree.
    response_method : {"predict", "predict_proba"}, default=None
        What the accuracies and "kept_ancestor" read. None takes ``predict_proba`` for the
        accuracies, so that leaf probabilities are added up to the level before the largest is
        taken, and ``predict`` where there is none. Choose "predict" to judge the labels of an
        estimator that hedges or weighs costs.
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
        "path_consistency", "first_error_depth", "neg_mistake_severity",
        "neg_hierarchical_distance", "neg_top_k_hierarchical_distance",
        "hierarchical_precision", "hierarchical_recall", "hierarchical_fscore" or
        "operating_area". Losses are negated, so greater is better; their names are understood
        without ``neg_``, too.
    taxonomy : Taxonomy
        The tree.
    response_method : {"predict", "predict_proba"}, default=None
        What a metric of answers reads; None takes ``predict``.
    **options
        More arguments of the metric, such as ``k``.

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
    """Make all scorers for a taxonomy: each metric at each level, and those of the whole tree.

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
        A dict of scorers by name: ``balanced_accuracy_family`` for a level named family,
        ``..._level_1``, ... and ``..._leaf`` where levels have no names, the metric alone for
        the whole tree. Give it as `scoring` to ``cross_validate``, or with ``refit=name`` to
        ``GridSearchCV``.

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


def _ask(estimator: Any, X: Any) -> Respond:
    """Return a function that calls a method of the estimator on X, once."""
    known: dict[str, Any] = {}

    def respond(method: str) -> Any:
        if method not in known:
            known[method] = method_of(estimator, method)(X)
        return known[method]

    return respond


def method_of(estimator: Any, name: str) -> Any:
    """Return a method of an estimator, or of the last step of a Pipeline; None if it has none."""
    # A Pipeline passes predict_proba on, but not what only our classifiers have.
    steps = getattr(estimator, "steps", None)
    if steps and not hasattr(estimator, name) and hasattr(steps[-1][1], name):
        return lambda X: getattr(steps[-1][1], name)(estimator[:-1].transform(X))
    return getattr(estimator, name, None)


def _choose_response(rule: _Rule, response_method: str | None, estimator: Any) -> str:
    """Return the method of the estimator that gives what a metric reads."""
    chosen = rule.response
    if chosen in ("answers", "predict"):
        if response_method is not None:
            chosen = response_method
        elif chosen == "answers":
            chosen = "predict_proba" if hasattr(estimator, "predict_proba") else "predict"
    if method_of(estimator, chosen) is None:
        raise AttributeError(
            f"{rule.metric.__name__} needs {chosen}, which {type(estimator).__name__} does not "
            "have. Score it with a metric of labels, such as 'accuracy', or use an estimator that "
            "has it."
        )
    return chosen


def _full_name(metric: str, rules: dict[str, _Rule]) -> str:
    for name in (metric, f"neg_{metric}"):
        if name in rules:
            return name
    raise ValueError(f"There is no such metric as {metric!r}. Choose one of {sorted(rules)}.")


def _rule(metric: str, *, of_level: bool) -> _Rule:
    rules = {**_OF_LEVELS, **_OF_OPINIONS} if of_level else _OF_THE_TREE
    return rules[_full_name(metric, rules)]


def _check_same_tree(of_opinions: Taxonomy, of_scorer: Taxonomy) -> None:
    # An opinion cannot be carried over to another tree, as leaf probabilities can.
    if of_opinions != of_scorer:
        raise ValueError(
            f"The opinions are on {of_opinions!r}, which differs from the scorer's {of_scorer!r}. "
            "Make the scorer with the taxonomy of the estimator."
        )


def _check_response_method(response_method: str | None) -> None:
    if response_method not in (None, "predict", "predict_proba"):
        raise ValueError(
            f"response_method must be 'predict', 'predict_proba' or None, got {response_method!r}."
        )
