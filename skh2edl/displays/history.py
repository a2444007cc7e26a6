"""Training history: loss, score and learning rate over the epochs of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._style import COLOURS, GREY, axes_or_new

_STEPS = ("epoch", "iteration")
# The x-axis, and what says nothing about the fit.
_NOT_SHOWN = (*_STEPS, "seconds")
# Fractions of the axes given, when they are divided into panels.
_GAP = 0.06


class TrainingHistoryDisplay:
    """The history of a fit: one panel for each quantity, over the same epochs.

    Make one with :meth:`from_estimator` or :meth:`from_history`. The dotted line marks the epoch
    whose weights were kept. If the loss falls while the score does not improve, the model
    over-fits; if the score still rises at the end, train for more epochs.

    Parameters
    ----------
    history : mapping of str to sequence of float
        One value for each epoch; "epoch" or "iteration" holds their numbers.
    keys : sequence of str, default=None
        Which quantities to show, from the top; None shows all but the seconds.
    best_epoch : int, default=None
        The epoch that was kept.

    Attributes
    ----------
    ax_, figure_
        Axes and figure. With several panels the axes are an empty frame around them.
    axes_ : ndarray of Axes of shape (n_keys,)
        The panels.
    lines_ : list of Line2D
        The line of each panel.

    Examples
    --------
    >>> from skh2edl.displays import TrainingHistoryDisplay
    >>> history = {"epoch": [0, 1, 2], "loss": [3.0, 2.0, 1.5], "val_score": [0.2, 0.5, 0.4]}
    >>> display = TrainingHistoryDisplay.from_history(history, best_epoch=1)
    >>> display.keys
    ('loss', 'val_score')
    >>> display.figure_.savefig("history.png")  # doctest: +SKIP
    """

    def __init__(
        self,
        history: Mapping[str, Sequence[float]],
        *,
        keys: Sequence[str] | None = None,
        best_epoch: int | None = None,
    ) -> None:
        self.history = dict(history)
        chosen = [key for key in history if key not in _NOT_SHOWN] if keys is None else list(keys)
        unknown = [key for key in chosen if key not in history]
        if unknown or not chosen:
            raise ValueError(
                f"keys must name one or more of {sorted(set(history) - set(_STEPS))}, got "
                f"{unknown or chosen}."
            )
        self.keys = tuple(chosen)
        self.best_epoch = best_epoch

    def plot(self, ax: Any = None, **kwargs: Any) -> TrainingHistoryDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; they are divided where there are several panels. None makes a figure.
        **kwargs
            Passed on to ``Axes.plot``.

        Returns
        -------
        self
        """
        n_panels = len(self.keys)
        self.ax_ = axes_or_new(ax, size=(5.6, 1.2 + 1.5 * n_panels))
        self.figure_ = self.ax_.figure
        self.axes_ = np.empty(n_panels, dtype=object)
        self.axes_[:] = [self.ax_] if n_panels == 1 else self._panels(n_panels)
        step = next((key for key in _STEPS if key in self.history), "epoch")
        steps = self.history.get(step, np.arange(len(self.history[self.keys[0]])))
        self.lines_ = []
        for panel, key, colour in zip(self.axes_, self.keys, COLOURS * n_panels, strict=False):
            values = self.history[key]
            # Without markers, a single epoch would be invisible.
            marker = "o" if len(values) < 40 else None
            options = {"color": colour, "marker": marker, "markersize": 3, **kwargs}
            (line,) = panel.plot(steps, values, **options)
            self.lines_.append(line)
            panel.set_ylabel(key.replace("_", " "))
            panel.grid(axis="y", color="#DDDDDD", linewidth=0.6)
            panel.set_axisbelow(True)
            if self.best_epoch is not None:
                panel.axvline(self.best_epoch, color=GREY, linestyle=":", linewidth=1.2)
        for panel in self.axes_[:-1]:
            panel.tick_params(labelbottom=False)
        self.axes_[-1].set_xlabel(step)
        self.axes_[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        if self.best_epoch is not None:
            self.axes_[0].set_title(
                f"kept: {step} {self.best_epoch}", fontsize="medium", color=GREY
            )
        return self

    def _panels(self, n_panels: int) -> list[Any]:
        """Divide the axes into panels with a common x-axis."""
        self.ax_.set_axis_off()
        height = (1 - _GAP * (n_panels - 1)) / n_panels
        panels: list[Any] = []
        for place in range(n_panels):
            bottom = 1 - height - place * (height + _GAP)
            common = {"sharex": panels[0]} if panels else {}
            panels.append(self.ax_.inset_axes((0, bottom, 1, height), **common))
        return panels

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, ax: Any = None, **kwargs: Any
    ) -> TrainingHistoryDisplay:
        """Draw the history of a fitted classifier.

        Parameters
        ----------
        estimator : object
            A fitted classifier with ``history_``; ``best_epoch_`` is marked where there is one.
        ax, **kwargs
            As in :meth:`from_history`.

        Returns
        -------
        display : TrainingHistoryDisplay
        """
        if not hasattr(estimator, "history_"):
            raise AttributeError(
                f"{type(estimator).__name__} has no history_. Fit it first, or use from_history."
            )
        best_epoch = getattr(estimator, "best_epoch_", None)
        return cls.from_history(estimator.history_, best_epoch=best_epoch, ax=ax, **kwargs)

    @classmethod
    def from_history(
        cls,
        history: Mapping[str, Sequence[float]],
        *,
        best_epoch: int | None = None,
        keys: Sequence[str] | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> TrainingHistoryDisplay:
        """Draw a history.

        Parameters
        ----------
        history : mapping of str to sequence of float
            One value for each epoch; "epoch" or "iteration" holds their numbers. For a DataFrame
            pass ``frame.to_dict("list")``.
        best_epoch : int, default=None
            The epoch that was kept.
        keys : sequence of str, default=None
            Which quantities to show, from the top; None shows all but the seconds.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            Passed on to ``Axes.plot``.

        Returns
        -------
        display : TrainingHistoryDisplay
        """
        return cls(history, keys=keys, best_epoch=best_epoch).plot(ax, **kwargs)
