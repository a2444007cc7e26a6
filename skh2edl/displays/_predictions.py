"""What the displays ask of a fitted estimator."""

from __future__ import annotations

from typing import Any, Self

from ..estimators.wrapping import find_taxonomy, opinion_method
from ..opinions.hyper_opinion import HyperOpinion, check_opinion
from ..taxonomy.taxonomy import Taxonomy


def probabilities(estimator: Any, X: Any) -> Any:
    """Return the class probabilities, or raise if the estimator has none."""
    return _found(getattr(estimator, "predict_proba", None), "predict_proba", estimator)(X)


def opinions(estimator: Any, X: Any) -> HyperOpinion:
    """Return the hyper-opinions, or raise if the estimator has none."""
    return check_opinion(_found(opinion_method(estimator), "predict_hyper_opinion", estimator)(X))


def _found(method: Any, name: str, estimator: Any) -> Any:
    if method is None:
        raise AttributeError(
            f"This display needs {name}, which {type(estimator).__name__} does not have. Use an "
            "estimator that has it, or from_predictions."
        )
    return method


class CurveDisplay:
    """Base of the displays that compare labels with probabilities of the leaves."""

    @classmethod
    def from_predictions(
        cls, y_true: Any, y_proba: Any, taxonomy: Taxonomy, **options: Any
    ) -> Self:
        """Draw given probabilities."""
        raise NotImplementedError

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        taxonomy: Taxonomy | None = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the predictions of a fitted classifier.

        Parameters
        ----------
        estimator : object
            A fitted classifier with ``predict_proba`` whose classes are labels of the taxonomy.
        X : array-like
            Samples.
        y : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors.
        taxonomy : Taxonomy, default=None
            The tree; None takes the estimator's, or makes a flat one of its classes.
        name : str, default=None
            Name for the legend; None takes the estimator's class.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            As in :meth:`from_predictions`.

        Returns
        -------
        display
        """
        return cls.from_predictions(
            y,
            probabilities(estimator, X),
            find_taxonomy(estimator, taxonomy),
            classes=estimator.classes_,
            name=type(estimator).__name__ if name is None else name,
            ax=ax,
            **kwargs,
        )
