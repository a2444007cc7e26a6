"""Confusion by lowest common ancestor: the first level on which predictions are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..estimators.wrapping import find_taxonomy
from ..metrics.inputs import check_truth_on_level, label_nodes, predicted_nodes
from ..taxonomy.taxonomy import Taxonomy
from ._predictions import probabilities
from ._style import axes_or_new, shorten, shown_level, text_colour

FloatArray = npt.NDArray[np.float64]

# Letters of a name beside its row; longer ones would leave little room for the cells.
_LONGEST_NAME = 40


class LCAConfusionDisplay:
    """For each true class, the first level on which predictions are wrong.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`. A row is a true class; a
    column is the first wrong level. Label and prediction agree on all levels above it, so their
    lowest common ancestor lies one level higher. The fractions of a row add up to 1. The further
    to the left a mistake stands, the worse it is.

    Parameters
    ----------
    counts : array-like of shape (n_rows, n_columns)
        Total weight of the samples of each true class with each outcome.
    rows : sequence of str of length n_rows
        The true classes.
    columns : sequence of str of length n_columns
        The outcomes.
    level : str, default=None
        Name of the level of the rows, for the axis.

    Attributes
    ----------
    ax_, figure_
        Axes and figure.
    im_ : AxesImage
        The coloured table.
    text_ : ndarray of Text of shape (n_rows, n_columns)
        The numbers in it, in percent of the row.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.displays import LCAConfusionDisplay
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    >>> display = LCAConfusionDisplay.from_predictions(
    ...     ["lynx", "lynx", "puma", "fox"], ["lynx", "puma", "wolf", "fox"], tree
    ... )
    >>> display.columns
    ('level 1 wrong', 'leaf wrong', 'right')
    >>> display.rows
    ('all', 'cat', 'dog')
    >>> display.counts
    array([[1., 1., 2.],
           [1., 1., 1.],
           [0., 0., 1.]])
    >>> display.figure_.savefig("lca_confusion.png")  # doctest: +SKIP
    """

    def __init__(
        self,
        counts: npt.ArrayLike,
        rows: Sequence[str],
        columns: Sequence[str],
        *,
        level: str | None = None,
    ) -> None:
        self.counts = np.asarray(counts, dtype=np.float64)
        self.rows = tuple(rows)
        self.columns = tuple(columns)
        self.level = level

    def plot(self, ax: Any = None, **kwargs: Any) -> LCAConfusionDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure that is large enough.
        **kwargs
            Passed on to ``Axes.imshow``, such as `cmap`.

        Returns
        -------
        self
        """
        n_rows, n_columns = self.counts.shape
        size = (3.2 + 1.05 * n_columns, 1.6 + 0.27 * n_rows)
        self.ax_ = axes_or_new(ax, size=size)
        self.figure_ = self.ax_.figure
        total = self.counts.sum(axis=1)
        fractions = self.counts / np.where(total > 0, total, 1)[:, None]
        options = {"cmap": "Blues", "vmin": 0, "vmax": 1, "aspect": "auto", **kwargs}
        self.im_ = self.ax_.imshow(fractions, **options)
        self.text_ = np.empty(fractions.shape, dtype=object)
        for (row, column), fraction in np.ndenumerate(fractions):
            self.text_[row, column] = self.ax_.text(
                column,
                row,
                _percent(fraction),
                ha="center",
                va="center",
                fontsize="small",
                color=text_colour(self.im_.cmap(self.im_.norm(fraction))),
            )
        labels = [
            f"{shorten(name, _LONGEST_NAME)}  ({weight:.4g})"
            for name, weight in zip(self.rows, total, strict=True)
        ]
        self.ax_.set_yticks(np.arange(n_rows), labels, parse_math=False)
        titles = ["\n".join(title.rsplit(" ", 1)) for title in self.columns]
        self.ax_.set_xticks(np.arange(n_columns), titles, parse_math=False)
        self.ax_.set_xlabel("first level on which the prediction is wrong (% of the row)")
        what = "true class" if self.level is None else f"true {self.level}"
        self.ax_.set_ylabel(f"{what} (samples)")
        self.ax_.tick_params(length=0)
        # Thin gaps between columns, and a wider one below the row "all".
        self.ax_.set_xticks(np.arange(1, n_columns) - 0.5, minor=True)
        self.ax_.grid(which="minor", axis="x", color="white", linewidth=2)
        self.ax_.tick_params(which="minor", length=0)
        if n_rows > 1:
            self.ax_.axhline(0.5, color="white", linewidth=4)
        self.ax_.spines[:].set_visible(False)
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        taxonomy: Taxonomy | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> LCAConfusionDisplay:
        """Draw the confusion of a fitted classifier.

        Parameters
        ----------
        estimator : object
            A fitted classifier whose classes are labels of the taxonomy. Its ``predict_proba`` is
            used if it has one, otherwise ``predict``.
        X : array-like
            Samples.
        y : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors.
        taxonomy : Taxonomy, default=None
            The tree; None takes the estimator's, or makes a flat one of its classes.
        ax, **kwargs
            As in :meth:`from_predictions`.

        Returns
        -------
        display : LCAConfusionDisplay
        """
        has_proba = hasattr(estimator, "predict_proba")
        return cls.from_predictions(
            y,
            probabilities(estimator, X) if has_proba else estimator.predict(X),
            find_taxonomy(estimator, taxonomy),
            classes=estimator.classes_ if has_proba else None,
            ax=ax,
            **kwargs,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        taxonomy: Taxonomy,
        *,
        level: str | int = 1,
        max_rows: int = 30,
        sample_weight: npt.ArrayLike | None = None,
        classes: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> LCAConfusionDisplay:
        """Draw the confusion of given predictions.

        Parameters
        ----------
        y_true : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors; samples labelled with the root do not count. A
            prediction at or below an ancestor label is right.
        y_pred : sequence of labels of shape (n_samples,) or array of shape (n_samples, n_leaves)
            Labels, leaves or ancestors, or probabilities of the leaves, of which the largest is
            taken. Predictions that stop early on the true path have their own column.
        taxonomy : Taxonomy
            The tree.
        level : str or int, default=1
            Level whose classes are the rows.
        max_rows : int, default=30
            Largest number of rows. If there are more classes, those with the most mistakes are
            shown and one row adds up the others.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; None means equal weights.
        classes : sequence of labels, default=None
            Columns of probabilities; None means ``taxonomy.sorted_leaf_labels``.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            Passed on to :meth:`plot`.

        Returns
        -------
        display : LCAConfusionDisplay
        """
        if max_rows < 3:
            raise ValueError(
                f"max_rows must be at least 3 (all, one class, others), got {max_rows}."
            )
        depth = taxonomy.level_index(level)
        predicted = predicted_nodes(y_pred, taxonomy, classes)
        true_class, weight, counts = check_truth_on_level(
            y_true, predicted, taxonomy, depth, sample_weight
        )
        outcome = _outcomes(label_nodes(y_true, taxonomy), predicted, taxonomy)[counts]
        row_nodes = taxonomy.nodes_at_depth(depth)
        starts = taxonomy.leaf_start
        row = np.searchsorted(starts[row_nodes], starts[true_class])
        n_columns = taxonomy.n_levels + 2
        table = np.bincount(row * n_columns + outcome, weight, row_nodes.size * n_columns)
        labels = [str(label) for label in taxonomy.labels(row_nodes)]
        cells, names = _fold_rows(
            np.asarray(table, dtype=np.float64).reshape(-1, n_columns), labels, max_rows
        )
        levels = [shown_level(taxonomy, below) for below in range(1, taxonomy.n_levels + 1)]
        columns = [*(f"{name} wrong" for name in levels), "stops early", "right"]
        if not cells[:, -2].any():
            cells = np.delete(cells, -2, axis=1)
            del columns[-2]
        title = shown_level(taxonomy, depth)
        return cls(cells, names, columns, level=title).plot(ax, **kwargs)


def _outcomes(
    truth: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], tree: Taxonomy
) -> npt.NDArray[np.int64]:
    """Return the column of each sample: the depth of the common ancestor, stops early, or right."""
    meeting = tree.lowest_common_ancestor(truth, predicted)
    stops_early = np.where(meeting == predicted, tree.n_levels, tree.depths[meeting])
    return np.where(meeting == truth, tree.n_levels + 1, stops_early)


def _fold_rows(counts: FloatArray, names: list[str], max_rows: int) -> tuple[FloatArray, list[str]]:
    """Put the sum of all rows first, drop empty rows, and add up those beyond `max_rows`."""
    everything = counts.sum(axis=0)
    present = np.flatnonzero(counts.sum(axis=1) > 0)
    shown = present
    if present.size + 1 > max_rows:
        mistakes = counts[present, :-1].sum(axis=1)
        worst = np.argsort(-mistakes, kind="stable")[: max_rows - 2]
        shown = present[np.sort(worst)]
    table = [everything, *counts[shown]]
    titles = ["all", *(names[row] for row in shown.tolist())]
    n_folded = present.size - shown.size
    if n_folded:
        table.append(counts[np.setdiff1d(present, shown)].sum(axis=0))
        titles.append(f"{n_folded} others")
    return np.stack(table), titles


def _percent(fraction: float) -> str:
    """Format a fraction in percent; 0 and 100 are exact."""
    if 0 < fraction < 0.005:
        return "<1"
    if 0.995 <= fraction < 1:
        return ">99"
    return f"{100 * fraction:.0f}" if fraction > 0 else "·"
