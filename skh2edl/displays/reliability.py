"""Reliability diagram: whether predictions are right as often as their probability says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..metrics import ReliabilityCurve, reliability_curve
from ..taxonomy.taxonomy import Taxonomy
from ._predictions import CurveDisplay
from ._style import GREY, add_legend, axes_or_new, line_options, next_style, shown_level

_LARGEST_POINT = 700.0  # square points, for a bin with all samples
_SMALLEST_POINT = 10.0  # still visible


@dataclass(eq=False, repr=False)
class ReliabilityDisplay(CurveDisplay):
    """Accuracy against confidence, one line for each level.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`. On the diagonal, predictions
    are right as often as their probability says; below it they are over-confident. The area of a
    point is the fraction of the samples in its bin: a small point rests on few samples.

    Parameters
    ----------
    curves : mapping of str to ReliabilityCurve
        What :func:`skh2edl.metrics.reliability_curve` returns, by the name of the level.
    ece : mapping of str to float
        Calibration error of each level.
    name : str, default=None
        Name of the model in the legend.

    Attributes
    ----------
    ax_, figure_
        Axes and figure.
    lines_ : list of Line2D
        The line of each level.
    points_ : list of PathCollection
        The points of each level, one for each bin that is not empty.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.displays import ReliabilityDisplay
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> y_proba = [[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]  # dog, lynx, puma
    >>> display = ReliabilityDisplay.from_predictions(["lynx", "dog"], y_proba, tree)
    >>> {level: round(error, 2) for level, error in display.ece.items()}
    {'level 1': 0.15, 'leaf': 0.3}
    >>> display.figure_.savefig("reliability.png")  # doctest: +SKIP
    """

    curves: Mapping[str, ReliabilityCurve]
    ece: Mapping[str, float]
    _: KW_ONLY
    name: str | None = None

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        min_fraction: float = 0.01,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure. Several models can be drawn on the same axes.
        name : str, default=None
            Name for the legend; None takes that of the display.
        min_fraction : float, default=0.01
            Bins with a smaller fraction of the samples are points without a line.
        **kwargs
            Passed on to ``Axes.plot`` for the lines.

        Returns
        -------
        self
        """
        name = self.name if name is None else name
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        if not any(line.get_gid() == "diagonal" for line in self.ax_.get_lines()):
            self.ax_.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":", gid="diagonal")
        self.lines_, self.points_ = [], []
        for level, curve in self.curves.items():
            filled = curve.fraction > 0
            # The line skips bins of a few samples, which would only add noise.
            is_common = curve.fraction[filled] >= min_fraction
            style = line_options(next_style(self.ax_, marker=True), {"linewidth": 1.2, **kwargs})
            label = level if name is None else f"{name}, {level}"
            (line,) = self.ax_.plot(
                curve.confidence[filled],
                np.where(is_common, curve.accuracy[filled], np.nan),
                **{"label": f"{label} (ECE {self.ece[level]:.3f})", **style, "markersize": 3},
            )
            # The line has a small marker for the legend; the points are drawn over it.
            points = self.ax_.scatter(
                curve.confidence[filled],
                curve.accuracy[filled],
                s=np.maximum(_LARGEST_POINT * curve.fraction[filled], _SMALLEST_POINT),
                color=line.get_color(),
                marker=line.get_marker(),
                alpha=0.45,
                linewidths=0,
                zorder=line.get_zorder(),
            )
            self.lines_.append(line)
            self.points_.append(points)
        self.ax_.set(
            xlabel="confidence (probability of the prediction)",
            ylabel="accuracy",
            xlim=(-0.02, 1.02),
            ylim=(-0.02, 1.02),
            aspect="equal",
        )
        add_legend(self.ax_, "upper left")
        return self

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_proba: Any,
        taxonomy: Taxonomy,
        *,
        level: str | int | None = None,
        n_bins: int = 15,
        strategy: str = "uniform",
        sample_weight: npt.ArrayLike | None = None,
        classes: Any = None,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> ReliabilityDisplay:
        """Draw the calibration of given probabilities.

        Parameters
        ----------
        y_true, y_proba, taxonomy, n_bins, strategy, sample_weight, classes
            As in :func:`skh2edl.metrics.reliability_curve`.
        level : str or int, default=None
            Name or depth of one level; None draws all.
        name : str, default=None
            Name for the legend.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            `min_fraction`, and options of ``Axes.plot`` for the lines.

        Returns
        -------
        display : ReliabilityDisplay
        """
        depths = range(1, taxonomy.n_levels + 1)
        curves = {
            shown_level(taxonomy, depth): reliability_curve(
                y_true,
                y_proba,
                taxonomy,
                depth,
                n_bins=n_bins,
                strategy=strategy,
                sample_weight=sample_weight,
                classes=classes,
            )
            for depth in (depths if level is None else [taxonomy.level_index(level)])
        }
        ece = {title: curve.error for title, curve in curves.items()}
        return cls(curves, ece, name=name).plot(ax, **kwargs)
