"""What all displays share: predictions of an estimator, axes, legends, level names, colours."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..decisions._opinions import check_opinion, opinion_method
from ..estimators.wrapping import find_taxonomy
from ..metrics.report import level_title
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..utils.optional import import_optional

# Okabe and Ito's palette for the colour-blind without its yellow, which is too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#767676"
# Six markers and dashes against seven colours: their combinations repeat only after 42 lines.
_MARKERS = ("o", "s", "D", "^", "v", "P")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))


def pyplot() -> Any:
    """Return matplotlib's pyplot, or raise an error that says how to install it."""
    return import_optional("matplotlib.pyplot", extra="plots")


def axes_or_new(ax: Any, size: tuple[float, float] = (5.6, 4.4)) -> Any:
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    # Constrained layout makes room for long names at the ticks.
    return pyplot().subplots(figsize=size, layout="constrained")[1]


def next_style(ax: Any, *, marker: bool = False) -> dict[str, Any]:
    """Return colour and dashes (or marker) of the next line; both differ, for print in grey."""
    place = sum(line.get_gid() == "skh2edl" for line in ax.get_lines())
    style = {"color": COLOURS[place % len(COLOURS)], "gid": "skh2edl"}
    if marker:
        return {**style, "marker": _MARKERS[place % len(_MARKERS)]}
    return {**style, "linestyle": _DASHES[place % len(_DASHES)]}


def line_options(style: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the style, overridden by the user's options under any of their names."""
    cbook = import_optional("matplotlib.cbook", extra="plots")
    lines = import_optional("matplotlib.lines", extra="plots")
    return {**style, **cbook.normalize_kwargs(given, lines.Line2D)}


def add_legend(ax: Any, loc: str) -> None:
    """Add a legend in a corner; matplotlib's loc="best" is slow on curves of many points."""
    show_dollar_signs(ax.legend(loc=loc))


def show_dollar_signs(legend: Any) -> None:
    """Keep matplotlib from reading dollar signs in names as mathematics."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def text_colour(shade: Any) -> str:
    """Return white or black, whichever is easier to read on an RGB colour."""
    return "white" if np.dot(shade[:3], [0.299, 0.587, 0.114]) < 0.5 else "black"


def shown_level(taxonomy: Taxonomy, depth: int) -> str:
    """Return the title of a level: its name, or one made from its depth."""
    return level_title(taxonomy, depth).replace("_", " ")


def shorten(text: str, length: int) -> str:
    """Cut out the middle of a text that is too long; names differ most at their ends.

    Examples
    --------
    >>> shorten("LATIN CAPITAL LETTER A", 14)
    'LATIN C…TTER A'
    """
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - max(length - head - 1, 0) :]}"


# Predictions --------------------------------------------------------------------------------------


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
