"""What a display asks a fitted estimator for."""

from __future__ import annotations

from typing import Any

from ..opinions.hyper_opinion import HyperOpinion
from ..scorers.level_scorers import method_of
from ..taxonomy.taxonomy import Taxonomy


def taxonomy_of(estimator: Any, taxonomy: Taxonomy | None) -> Taxonomy:
    """Return the taxonomy given, or that of the estimator or of the last step of a Pipeline."""
    if taxonomy is not None:
        return taxonomy
    steps = getattr(estimator, "steps", None)
    owner = steps[-1][1] if steps else estimator
    found = getattr(owner, "taxonomy_", None)
    if not isinstance(found, Taxonomy):
        raise ValueError(
            f"{type(estimator).__name__} has no taxonomy_, so the tree is not known. Fit it, or "
            "give taxonomy=..."
        )
    return found


def name_of(estimator: Any, name: str | None) -> str:
    """Return the name given, or that of the estimator's class."""
    return type(estimator).__name__ if name is None else name


def probabilities(estimator: Any, X: Any) -> Any:
    """Return the probabilities of the classes, or say what lacks them."""
    return _method(estimator, "predict_proba")(X)


def opinions(estimator: Any, X: Any) -> HyperOpinion:
    """Return the opinions on the samples, or say what has none."""
    return check_opinion(_method(estimator, "predict_hyper_opinion")(X))


def check_opinion(opinion: Any) -> HyperOpinion:
    """Return the opinions given, or say what was wanted."""
    if not isinstance(opinion, HyperOpinion):
        raise TypeError(
            f"opinion must be a HyperOpinion, got {type(opinion).__name__}. Take what "
            "predict_hyper_opinion returns, or use from_estimator."
        )
    return opinion


def _method(estimator: Any, name: str) -> Any:
    method = method_of(estimator, name)
    if method is None:
        raise AttributeError(
            f"This picture needs {name}, which {type(estimator).__name__} does not have. Use an "
            "estimator that has it, or from_predictions."
        )
    return method
