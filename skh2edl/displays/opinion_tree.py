"""The opinion on one sample, drawn on the tree."""

from __future__ import annotations

import textwrap
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np

from ..images import image_source
from ..opinions.hyper_opinion import HyperOpinion, check_opinion
from ..utils.optional import import_optional
from ._folding import Row, fold
from ._predictions import opinions
from ._style import COLOURS, GREY, axes_or_new, shorten

_FONT_SIZE = 8.5  # in points, like all lengths below that are not in inches
_INDENT = 15.0  # of a child from its parent
_MARGIN = 8.0  # about one letter
_TEXT_GAP = 9.0  # from the centre of a node, whose radius is 7 at most, to its name
_LARGEST_NODE = 160.0  # in square points, for a mass of 1
_LONGEST_TEXT = 44  # letters of a name; longer ones leave no room for the columns
_ROW_INCHES = 0.24  # twice the font size
_IMAGE_INCHES = 1.7  # as wide as the widest column
# Columns beside the tree: title and width in inches.
_COLUMNS = {"mass": 1.25, "vacuity": 1.25, "belief – P – plausibility": 1.7}
_GAP_INCHES = 0.15  # between the columns
_SMALLEST_SCALE = 0.7  # of image and columns, on axes that are too small
_BOLD = 1.15  # width of bold letters relative to plain ones


@dataclass(eq=False, repr=False)
class OpinionTreeDisplay:
    """The opinion on one sample, drawn on the taxonomy.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`. Every row is a node. Unlikely
    branches are folded into rows such as "23 other leaves" that keep their mass, so the masses of
    all rows add up to 1.

    - *mass*: belief that stops at this node; also shown by the area of the disc.
    - *vacuity*: the fraction of belief that the decision at this node did not commit. It is not a
      probability of error. With the standard prior it is not comparable between nodes with
      different numbers of children.
    - *belief - P - plausibility*: a line from the belief to the plausibility of the node, with a
      point at its probability. It is not a confidence interval.

    Parameters
    ----------
    rows : list of Row
        The rows to draw, parents before children.
    image : ndarray of uint8 of shape (height, width, 3), default=None
        The image.
    label : str, default=None
        The true label.
    label_node : int, default=None
        Its node, which gets a star.

    Attributes
    ----------
    ax_, figure_
        Axes and figure. The axes are an empty frame around those below.
    tree_ax_, mass_ax_, vacuity_ax_, interval_ax_ : Axes
        The tree and the columns beside it.
    image_ax_ : Axes or None
        The axes of the image.
    mass_bars_, vacuity_bars_ : BarContainer
        Bars of the columns, one for each row.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.displays import OpinionTreeDisplay
    >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Airbus": ["A330", "A380"]})
    >>> opinion = HyperOpinion.from_evidence(tree, [[96, 1, 12, 2, 0, 0]])
    >>> display = OpinionTreeDisplay.from_predictions(opinion)
    >>> for row in display.rows:
    ...     print("  " * row.depth + row.text, row.mass.round(3))
    root 0.02
      Boeing 0.121
        737 0.727
        747 0.121
      Airbus (2 leaves) 0.01
    >>> display.figure_.savefig("opinion.png")  # doctest: +SKIP
    """

    rows: list[Row]
    _: KW_ONLY
    image: Any = None
    label: str | None = None
    label_node: int | None = None

    def plot(self, ax: Any = None) -> OpinionTreeDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure that is large enough for all rows and names. On
            smaller axes names are shortened.

        Returns
        -------
        self
        """
        texts = [shorten(row.text, _LONGEST_TEXT) for row in self.rows]
        widths = self._widths(texts)
        height = 0.75 + _ROW_INCHES * max(len(self.rows), 5)
        self.ax_ = axes_or_new(ax, size=(sum(widths) + _GAP_INCHES * len(widths), height))
        self.figure_ = self.ax_.figure
        self.ax_.set_axis_off()
        if ax is not None:
            texts, widths = self._fit(texts, widths)
        places = self._divide(widths)
        self.image_ax_ = self._draw_image(places.pop(0)) if self.image is not None else None
        self.tree_ax_ = self._draw_tree(places[0], texts, 72 * widths[-4])
        self.mass_ax_, self.vacuity_ax_, self.interval_ax_ = map(self._column, places[1:], _COLUMNS)
        self.mass_bars_ = self._draw_bars(self.mass_ax_, "mass", COLOURS[0])
        self.vacuity_bars_ = self._draw_bars(self.vacuity_ax_, "vacuity", COLOURS[4])
        self._draw_intervals(self.interval_ax_)
        return self

    # Layout ----------------------------------------------------------------------------------

    def _widths(self, texts: list[str], scale: float = 1.0) -> list[float]:
        """Return the width in inches of image (if any), tree and columns."""
        image = [] if self.image is None else [scale * _IMAGE_INCHES]
        columns = [scale * width for width in _COLUMNS.values()]
        return [*image, self._tree_points(texts) / 72, *columns]

    def _tree_points(self, texts: list[str]) -> float:
        ends = [
            _node_start(row) + _TEXT_GAP + _text_width(text) * (_BOLD if self._is_label(row) else 1)
            for row, text in zip(self.rows, texts, strict=True)
        ]
        return max(ends) + _MARGIN

    def _is_label(self, row: Row) -> bool:
        return not row.is_folded and self.label_node in row.nodes

    def _fit(self, texts: list[str], widths: list[float]) -> tuple[list[str], list[float]]:
        """Shorten names until everything fits into the given axes."""
        if (engine := self.figure_.get_layout_engine()) is not None:
            engine.execute(self.figure_)  # sets the size of the axes
        extent = self.ax_.get_window_extent()
        available = extent.width / self.figure_.dpi - _GAP_INCHES * (len(widths) - 1)
        length = max(map(len, texts))
        while sum(widths) > available and length > 8:
            length -= 1
            texts = [shorten(text, length) for text in texts]
            widths = self._widths(texts, scale=_SMALLEST_SCALE)
        return texts, widths

    def _divide(self, widths: list[float]) -> list[tuple[float, float, float, float]]:
        """Return the bounds of each part as fractions of the axes."""
        total = sum(widths) + _GAP_INCHES * (len(widths) - 1)
        starts = np.cumsum([0, *(width + _GAP_INCHES for width in widths[:-1])])
        return [
            (float(start) / total, 0.0, width / total, 1.0)
            for start, width in zip(starts, widths, strict=True)
        ]

    # Drawing ---------------------------------------------------------------------------------

    def _draw_image(self, place: tuple[float, float, float, float]) -> Any:
        ax = self.ax_.inset_axes(place)
        ax.imshow(self.image)
        ax.set_anchor("N")
        ax.set(xticks=[], yticks=[])
        if self.label is not None:
            text = "\n".join(["true label (star):", *textwrap.wrap(self.label, 24)])
            ax.set_xlabel(text, fontsize=_FONT_SIZE, parse_math=False)
        return ax

    def _band(self, ax: Any) -> None:
        """Shade every second row, which makes long rows easier to read."""
        for row in range(0, len(self.rows), 2):
            ax.axhspan(row - 0.5, row + 0.5, color="#F2F2F2", linewidth=0, zorder=0)
        ax.set_ylim(len(self.rows) - 0.5, -0.5)

    def _draw_tree(
        self, place: tuple[float, float, float, float], texts: list[str], points: float
    ) -> Any:
        ax = self.ax_.inset_axes(place)
        ax.set_axis_off()
        self._band(ax)
        ax.set_xlim(0, points)
        for position, (row, text) in enumerate(zip(self.rows, texts, strict=True)):
            x = _node_start(row)
            if row.parent >= 0:
                trunk = _node_start(self.rows[row.parent])
                ax.plot(
                    [trunk, trunk, x], [row.parent, position, position], color=GREY, linewidth=0.8
                )
            is_label = self._is_label(row)
            ax.text(
                _node_start(row) + _TEXT_GAP,
                position,
                text,
                va="center_baseline",
                fontsize=_FONT_SIZE,
                fontstyle="italic" if row.is_folded else "normal",
                fontweight="bold" if is_label else "normal",
                color="#555555" if row.is_folded else "black",
                parse_math=False,
            )
            ax.scatter(
                [x],
                [position],
                s=110 if is_label else max(_LARGEST_NODE * row.mass, 8),
                marker="*" if is_label else "o",
                facecolor="white" if row.is_folded and row.mass < 0.01 else COLOURS[0],
                edgecolor="black",
                linewidth=0.6,
                zorder=3,
            )
        return ax

    def _column(self, place: tuple[float, float, float, float], title: str) -> Any:
        ax = self.ax_.inset_axes(place)
        self._band(ax)
        ax.set_title(title, fontsize=_FONT_SIZE)
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"], fontsize=_FONT_SIZE - 1)
        ax.set_yticks([])
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _values(self, name: str) -> Any:
        return np.array([getattr(row, name) for row in self.rows])

    def _draw_bars(self, ax: Any, name: str, colour: str) -> Any:
        values = self._values(name)
        bars = ax.barh(np.arange(len(values)), np.nan_to_num(values), height=0.62, color=colour)
        for bar, row in zip(bars, self.rows, strict=True):
            bar.set_alpha(0.5 if row.is_folded else 1.0)
        texts = ["" if np.isnan(value) else _number(value) for value in values]
        ax.bar_label(bars, texts, padding=2, fontsize=_FONT_SIZE - 1)
        # Space for the number beside the longest bar.
        ax.set_xlim(0, 1.38)
        return bars

    def _draw_intervals(self, ax: Any) -> None:
        rows = np.arange(len(self.rows))
        ax.hlines(
            rows, self._values("belief"), self._values("plausibility"), color=COLOURS[1], lw=2.2
        )
        ax.plot(self._values("probability"), rows, "o", color="black", markersize=3.5)
        ax.set_xlim(-0.04, 1.04)

    # Constructors ----------------------------------------------------------------------------

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        index: int = 0,
        *,
        image: Any = "auto",
        ax: Any = None,
        **kwargs: Any,
    ) -> OpinionTreeDisplay:
        """Draw the opinion of a fitted evidential classifier on one sample.

        Parameters
        ----------
        estimator : object
            A fitted classifier with ``predict_hyper_opinion``.
        X : array-like
            Samples; only one is read.
        index : int, default=0
            Position of the sample.
        image : "auto", array, PIL image, path or None, default="auto"
            The image beside the tree. "auto" shows the sample if `X` holds images, and nothing
            if it holds features.
        ax, **kwargs
            As in :meth:`from_predictions`.

        Returns
        -------
        display : OpinionTreeDisplay
        """
        n_samples = len(X)
        if not -n_samples <= index < n_samples:
            raise IndexError(f"index must name one of the {n_samples} samples, got {index}.")
        row = index % n_samples
        one = X.iloc[row : row + 1] if hasattr(X, "iloc") else X[row : row + 1]
        if isinstance(image, str) and image == "auto":
            image = _image_in(one)
        return cls.from_predictions(opinions(estimator, one), image=image, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        opinion: HyperOpinion,
        index: int = 0,
        *,
        image: Any = None,
        label: Any = None,
        min_probability: float = 0.03,
        max_rows: int = 30,
        ax: Any = None,
    ) -> OpinionTreeDisplay:
        """Draw one of the given opinions.

        Parameters
        ----------
        opinion : HyperOpinion
            The opinions.
        index : int, default=0
            Position of the opinion.
        image : array, PIL image or path, default=None
            The image beside the tree; None draws none.
        label : label, default=None
            The true label, leaf or ancestor. It is marked with a star and never folded.
        min_probability : float, default=0.03
            Less likely nodes are folded together with their unlikely siblings, and with siblings
            that are hardly likelier; 0 folds none.
        max_rows : int, default=30
            Largest number of rows; to stay within it, the least likely nodes are folded first.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        display : OpinionTreeDisplay
        """
        if max_rows < 2:
            raise ValueError(
                f"max_rows must be at least 2 (the root and the rest), got {max_rows}."
            )
        tree = check_opinion(opinion).taxonomy
        node = None if label is None else int(tree.last_of_chain[tree.node(label)])
        rows = fold(
            opinion[int(index)], label=node, min_probability=min_probability, max_rows=max_rows
        )
        if image is not None:
            image = np.asarray(image_source([image]).read(0))
        text = None if label is None else str(tree.label(tree.node(label)))
        return cls(rows, image=image, label=text, label_node=node).plot(ax)


def _image_in(X: Any) -> Any:
    """Return the first image in X, None if X holds features."""
    try:
        return image_source(X).read(0)
    except TypeError:
        return None


def _node_start(row: Row) -> float:
    return _MARGIN + _INDENT * row.depth


@cache
def _text_width(text: str) -> float:
    """Return the width of a text in points; no canvas is needed."""
    path = import_optional("matplotlib.textpath", extra="plots").TextPath
    # A letter at each end, to count the spaces there. "S" for "$", which would start a formula.
    return float(path((0, 0), f"x{text.replace('$', 'S')}x", size=_FONT_SIZE).get_extents().width)


def _number(value: float) -> str:
    """Format a number between 0 and 1; only an exact 0 is shown as 0."""
    if value < 0.005:
        return "<0.01" if value > 0 else "0"
    return f"{value:.2f}"
