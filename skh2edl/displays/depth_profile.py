"""Depth profile: how far down the tree belief is carried before it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..metrics.inputs import check_length, check_weight, label_nodes
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ._answers import check_opinion, opinions
from ._style import axes_or_new, pyplot, shorten, shown_level

_ROOM_FOR_A_NUMBER = 0.055  # share of the bar's length
_COLUMNS = 4  # of the legend


class DepthProfileDisplay:
    """Mean belief that stops at each depth, as a bar from the root to the leaves.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`. A bar adds up to 1: what
    stops at the root (nothing is known), what stops at each level below it (known so far, and
    no further), and at its end what reaches single leaves. Belief that stops is not a chance of
    error.

    Parameters
    ----------
    profiles : mapping of str to array-like of shape (n_levels + 1,)
        Mean mass that stops at each depth, then the mass that a leaf, for each group of
        samples.
    stops : sequence of str of length n_levels + 1
        What the parts are called.

    Attributes
    ----------
    ax_, figure_
        Axes and figure.
    bars_ : list of BarContainer
        The bars of each depth, one for each group.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> from skh2edl.displays import DepthProfileDisplay
    >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Fokker 70": None})
    >>> opinion = HyperOpinion.from_evidence(tree, [[16, 2, 0, 0]])
    >>> display = DepthProfileDisplay.from_predictions(opinion)
    >>> display.stops
    ('root', 'level 1', 'a leaf')
    >>> display.profiles["all (n = 1)"].round(2)
    array([0.1, 0.8, 0.1])
    >>> display.figure_.savefig("depth_profile.png")  # doctest: +SKIP
    """

    def __init__(self, profiles: Mapping[str, npt.ArrayLike], stops: Sequence[str]) -> None:
        self.profiles = {name: np.asarray(profile) for name, profile in profiles.items()}
        self.stops = tuple(stops)

    def plot(self, ax: Any = None, **kwargs: Any) -> DepthProfileDisplay:
        """Draw the picture.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            Passed on to ``Axes.barh``.

        Returns
        -------
        self
        """
        rows = len(self.profiles)
        self.ax_ = axes_or_new(ax, size=(7.2, 1.5 + 0.5 * rows))
        self.figure_ = self.ax_.figure
        # Dark where nothing is known, light where belief arrives: order is seen without hue.
        shades = pyplot().get_cmap("cividis")(np.linspace(0, 1, len(self.stops)))
        table = np.stack(list(self.profiles.values()))
        left = np.zeros(rows)
        self.bars_ = []
        for stop, shade, shares in zip(self.stops, shades, table.T, strict=True):
            options = {"height": 0.7, "color": shade, "edgecolor": "white", **kwargs}
            bars = self.ax_.barh(np.arange(rows), shares, left=left, label=stop, **options)
            is_dark = shade[:3] @ [0.299, 0.587, 0.114] < 0.5
            self.ax_.bar_label(
                bars,
                [f"{share:.2f}" if share >= _ROOM_FOR_A_NUMBER else "" for share in shares],
                label_type="center",
                color="white" if is_dark else "black",
                fontsize="small",
            )
            self.bars_.append(bars)
            left = left + shares
        names = [shorten(name, 40) for name in self.profiles]
        self.ax_.set_yticks(np.arange(rows), names, parse_math=False)
        self.ax_.set(xlabel="mean share of belief", xlim=(0, 1), ylim=(rows - 0.5, -0.5))
        # matplotlib fills legends by columns, but lines of text are read by rows.
        in_rows = [
            place for first in range(_COLUMNS) for place in range(len(self.stops))[first::_COLUMNS]
        ]
        legend = self.ax_.legend(
            [self.bars_[place] for place in in_rows],
            [self.stops[place] for place in in_rows],
            title="belief stops at",
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=_COLUMNS,
            handlelength=1.2,
            columnspacing=1.2,
            frameon=False,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        groups: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> DepthProfileDisplay:
        """Draw the profile of a fitted evidential classifier.

        Parameters
        ----------
        estimator : object
            A fitted classifier with ``predict_hyper_opinion``.
        X : array-like
            Samples.
        y, groups, sample_weight, ax, **kwargs
            As in :meth:`from_predictions`.

        Returns
        -------
        display : DepthProfileDisplay
        """
        return cls.from_predictions(
            opinions(estimator, X), y, groups=groups, sample_weight=sample_weight, ax=ax, **kwargs
        )

    @classmethod
    def from_predictions(
        cls,
        opinion: HyperOpinion,
        y_true: Any = None,
        *,
        groups: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> DepthProfileDisplay:
        """Draw the profile of given opinions.

        Parameters
        ----------
        opinion : HyperOpinion
            The opinions, one for each sample.
        y_true : sequence of labels of shape (n_samples,), default=None
            True labels: one bar for the samples whose likeliest leaf is right, one for those
            where it is wrong. Samples whose label is no leaf are left out.
        groups : array-like of shape (n_samples,), default=None
            Instead of labels: one bar for each group, such as "sharp" and "blurred".
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each sample; None weighs all the same.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        **kwargs
            Passed on to ``Axes.barh``.

        Returns
        -------
        display : DepthProfileDisplay
        """
        tree = check_opinion(opinion).taxonomy
        weight = check_weight(sample_weight, len(opinion))
        if y_true is not None and groups is not None:
            raise ValueError("Bars are divided by y_true or by groups, got both. Give one of them.")
        members = _right_and_wrong(opinion, y_true) if groups is None else _members(opinion, groups)
        stopping = opinion.depth_profile
        parts = np.column_stack([stopping, 1 - stopping.sum(axis=1)])
        profiles = {
            f"{name} (n = {np.count_nonzero(chosen)})": np.average(
                parts[chosen], axis=0, weights=weight[chosen]
            )
            for name, chosen in members.items()
            if weight[chosen].sum() > 0
        }
        if not profiles:
            raise ValueError(
                "There is no sample to draw: none has a weight, or no label is a leaf. Give "
                "samples with weight, or leave y_true out."
            )
        return cls(profiles, _stop_names(tree)).plot(ax, **kwargs)


def _stop_names(tree: Taxonomy) -> list[str]:
    inner = [shown_level(tree, depth) for depth in range(1, tree.n_levels)]
    return [str(tree.root_name), *inner, "a leaf"]


def _right_and_wrong(opinion: HyperOpinion, y_true: Any) -> dict[str, npt.NDArray[np.bool_]]:
    if y_true is None:
        return {"all": np.ones(len(opinion), dtype=bool)}
    tree = opinion.taxonomy
    truth = label_nodes(y_true, tree)
    answers = tree.leaf_nodes[opinion.leaf_probability.argmax(axis=1)]
    check_length(truth, answers)
    is_leaf = tree.n_children[truth] == 0
    right = truth == answers
    return {"right answer": right & is_leaf, "wrong answer": ~right & is_leaf}


def _members(opinion: HyperOpinion, groups: npt.ArrayLike) -> dict[str, npt.NDArray[np.bool_]]:
    given = np.asarray(groups)
    if given.shape != (len(opinion),):
        raise ValueError(
            f"groups must hold one group for each of the {len(opinion)} samples, got shape "
            f"{given.shape}."
        )
    # In the order in which they come, which is more often meant than the alphabet's.
    values, first = np.unique(given, return_index=True)
    return {str(value): given == value for value in values[np.argsort(first)]}
