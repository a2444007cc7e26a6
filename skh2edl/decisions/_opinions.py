"""Find the hyper-opinions of an estimator, also inside a Pipeline or a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy


def check_opinion(opinion: Any) -> HyperOpinion:
    """Return the hyper-opinion, or raise a TypeError that says where to get one."""
    if not isinstance(opinion, HyperOpinion):
        raise TypeError(
            f"opinion must be a HyperOpinion, got {type(opinion).__name__}. Pass what "
            "predict_hyper_opinion returns."
        )
    return opinion


def opinion_method(estimator: Any) -> Callable[[Any], HyperOpinion] | None:
    """Return the method that gives an estimator's hyper-opinions, or None.

    FrozenEstimator, searches and Pipeline do not forward `predict_hyper_opinion`, so this
    function looks inside them.

    Parameters
    ----------
    estimator : estimator
        Fitted or not.
    """
    if hasattr(estimator, "predict_hyper_opinion"):
        method: Callable[[Any], HyperOpinion] = estimator.predict_hyper_opinion
        return method
    if isinstance(estimator, FrozenEstimator):
        return opinion_method(estimator.estimator)
    if hasattr(estimator, "refit") and hasattr(estimator, "estimator"):  # a search
        return opinion_method(getattr(estimator, "best_estimator_", estimator.estimator))
    if not isinstance(estimator, Pipeline):
        return None
    last = opinion_method(estimator.steps[-1][1])
    if last is None or len(estimator.steps) == 1:
        return last
    return lambda X: last(estimator[:-1].transform(X))


def opinion_of(fitted: Any, X: Any, taxonomy: Taxonomy) -> HyperOpinion:
    """Return the hyper-opinions of a fitted estimator, which must be on the taxonomy."""
    method = opinion_method(fitted)
    if method is None:
        raise AttributeError(
            f"{type(fitted).__name__} has no predict_hyper_opinion. Wrap an evidential "
            "estimator, such as H2EDLClassifier."
        )
    opinion = method(X)
    if opinion.taxonomy != taxonomy:
        raise ValueError(
            f"The opinions of {type(fitted).__name__} are on another taxonomy "
            f"({opinion.taxonomy!r}) than the one in use here ({taxonomy!r}). Give the estimator "
            "itself the taxonomy."
        )
    return opinion
