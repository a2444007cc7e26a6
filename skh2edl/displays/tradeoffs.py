"""Selective prediction: risk against coverage, and accuracy against information."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy.typing as npt

from ..metrics import OperatingCurve, RiskCoverageCurve, operating_curve, risk_coverage_curve
from ..taxonomy.taxonomy import Taxonomy
from ._predictions import CurveDisplay
from ._style import GREY, add_legend, axes_or_new, line_options, next_style, shown_level

Options = dict[str, Any]


class _AreaDisplay(CurveDisplay):
    """Base of the displays of one line and the area under it."""

    area: float
    name: str | None

    def draw_curve(
        self, ax: Any, x: Any, y: Any, name: str | None, style: Options, given: Options
    ) -> None:
        """Draw a line whose style the user's options override."""
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        name = self.name if name is None else name
        score = f"area {self.area:.3f}"
        label = score if name is None else f"{name} ({score})"
        options = line_options(next_style(self.ax_), given)
        (self.line_,) = self.ax_.plot(x, y, **{"label": label, **style, **options})


@dataclass(eq=False, repr=False)
class RiskCoverageDisplay(_AreaDisplay):
    """Fraction of wrong predictions among the most confident samples.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`; pass ``ax=display.ax_`` of the
    first to draw several models on the same axes. The lower the line, the better the confidence
    separates right from wrong predictions; at coverage 1 it ends at the error rate.

    Parameters
    ----------
    curve : RiskCoverageCurve
        What :func:`skh2edl.metrics.risk_coverage_curve` returns.
    area : float
        Area under it.
    level : str
        Name of the level for the axis.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    ax_, figure_
        Axes and figure.
    line_ : Line2D
        The curve.
    chance_level_ : Line2D or None
        The error rate, if it is drawn.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.displays import RiskCoverageDisplay
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> display = RiskCoverageDisplay.from_predictions(["puma", "dog"], y_proba, tree)
    >>> display.area
    0.25
    >>> display.figure_.savefig("risk_coverage.png")  # doctest: +SKIP
    """

    curve: RiskCoverageCurve
    area: float
    _: KW_ONLY
    level: str = "leaf"
    name: str | None = None

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        plot_chance_level: bool = False,
        **kwargs: Any,
    ) -> RiskCoverageDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure. Several models can be drawn on the same axes.
        name : str, default=None
            Name for the legend; None takes that of the display.
        plot_chance_level : bool, default=False
            Whether to draw the error rate, the risk of a random ranking.
        **kwargs
            Passed on to ``Axes.plot``.

        Returns
        -------
        self
        """
        # A step function, as in the area.
        style = {"drawstyle": "steps-pre"}
        self.draw_curve(ax, self.curve.coverage, self.curve.risk, name, style, kwargs)
        self.chance_level_ = None
        if plot_chance_level and self.curve.risk.size:
            self.chance_level_ = self.ax_.axhline(
                self.curve.risk[-1], color=GREY, linestyle=":", linewidth=1, label="error rate"
            )
        self.ax_.set(
            xlabel="coverage (fraction of samples kept)",
            ylabel=f"risk (fraction of wrong predictions, {self.level})",
            xlim=(-0.02, 1.02),
        )
        self.ax_.set_ylim(bottom=0)
        add_legend(self.ax_, "upper left")
        return self

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_proba: Any,
        taxonomy: Taxonomy,
        *,
        level: str | int = "leaf",
        confidence: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
        classes: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> RiskCoverageDisplay:
        """Draw the curve of given probabilities.

        Parameters
        ----------
        y_true, y_proba, taxonomy, level, confidence, sample_weight, classes
            As in :func:`skh2edl.metrics.risk_coverage_curve`.
        name : str, default=None
            Name for the legend.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            `plot_chance_level`, and options of ``Axes.plot``.

        Returns
        -------
        display : RiskCoverageDisplay
        """
        curve = risk_coverage_curve(
            y_true,
            y_proba,
            taxonomy,
            level,
            confidence=confidence,
            sample_weight=sample_weight,
            classes=classes,
        )
        title = shown_level(taxonomy, taxonomy.level_index(level))
        return cls(curve, curve.area, level=title, name=name).plot(ax, **kwargs)


@dataclass(eq=False, repr=False)
class OperatingCurveDisplay(_AreaDisplay):
    """Accuracy against information as the probability required of a node varies.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`; pass ``ax=display.ax_`` of the
    first to draw several models on the same axes. At the left every prediction is the root, which
    is always right and says nothing. Towards the right predictions become more specific; at the
    last point all are leaves. The higher the line, the better.

    Parameters
    ----------
    curve : OperatingCurve
        What :func:`skh2edl.metrics.operating_curve` returns.
    area : float
        Area under it.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    ax_, figure_
        Axes and figure.
    line_ : Line2D
        The curve.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.displays import OperatingCurveDisplay
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> y_proba = [[0.1, 0.3, 0.6, 0.0]]  # fox, lynx, puma, wolf
    >>> display = OperatingCurveDisplay.from_predictions(["lynx"], y_proba, tree)
    >>> display.area
    0.5
    >>> display.figure_.savefig("operating_curve.png")  # doctest: +SKIP
    """

    curve: OperatingCurve
    area: float
    _: KW_ONLY
    name: str | None = None

    def plot(
        self, ax: Any = None, *, name: str | None = None, **kwargs: Any
    ) -> OperatingCurveDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure. Several models can be drawn on the same axes.
        name : str, default=None
            Name for the legend; None takes that of the display.
        **kwargs
            Passed on to ``Axes.plot``.

        Returns
        -------
        self
        """
        # A marker at the last point, where all predictions are leaves.
        style = {"marker": "o", "markersize": 5, "markevery": [-1]}
        self.draw_curve(ax, self.curve.information, self.curve.accuracy, name, style, kwargs)
        self.ax_.set(
            xlabel="information (0 root, 1 the label itself)",
            ylabel="accuracy (predictions that do not contradict the label)",
            xlim=(-0.02, 1.02),
        )
        self.ax_.set_ylim(0, 1.02)
        add_legend(self.ax_, "lower left")
        return self

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_proba: Any,
        taxonomy: Taxonomy,
        *,
        sample_weight: npt.ArrayLike | None = None,
        classes: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> OperatingCurveDisplay:
        """Draw the curve of given probabilities.

        Parameters
        ----------
        y_true, y_proba, taxonomy, sample_weight, classes
            As in :func:`skh2edl.metrics.operating_curve`.
        name : str, default=None
            Name for the legend.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            Passed on to ``Axes.plot``.

        Returns
        -------
        display : OperatingCurveDisplay
        """
        curve = operating_curve(
            y_true, y_proba, taxonomy, sample_weight=sample_weight, classes=classes
        )
        return cls(curve, curve.area, name=name).plot(ax, **kwargs)
