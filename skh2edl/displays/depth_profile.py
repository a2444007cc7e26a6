"""Depth profile: how far down the tree belief reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..metrics.inputs import check_length, check_weight, label_nodes
from ..opinions.hyper_opinion import HyperOpinion, check_opinion
from ..utils.validation import check_groups
from ._predictions import opinions
from ._style import axes_or_new, pyplot, shorten, show_dollar_signs, shown_level, text_colour

_SHORTEST_WITH_NUMBER = 0.055  # fraction of the bar's length
_COLUMNS = 4  # of the legend


class DepthProfileDisplay:
    """Mean belief that stops at each depth, as a bar from the root to the leaves.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`. The parts of a bar add up to
    1: belief that stops at the root (nothing is known), belief that stops at each level below,
    and belief that reaches single leaves. Belief that stops is not a probability of error.

    Parameters
    ----------
    profiles : mapping of str to array-like of shape (n_levels + 1,)
        For each group of samples the mean mass that stops at each depth, and last the mean mass
        on leaves.
    stops : sequence of str of length n_levels + 1
        Names of the parts.

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
        # From dark (nothing is known) to light (a leaf), so that the order shows without hue.
        shades = pyplot().get_cmap("cividis")(np.linspace(0, 1, len(self.stops)))
        table = np.stack(list(self.profiles.values()))
        left = np.zeros(rows)
        self.bars_ = []
        for stop, shade, parts in zip(self.stops, shades, table.T, strict=True):
            options = {"height": 0.7, "color": shade, "edgecolor": "white", **kwargs}
            bars = self.ax_.barh(np.arange(rows), parts, left=left, label=stop, **options)
            self.ax_.bar_label(
                bars,
                [f"{part:.2f}" if part >= _SHORTEST_WITH_NUMBER else "" for part in parts],
                label_type="center",
                color=text_colour(shade),
                fontsize="small",
            )
            self.bars_.append(bars)
            left = left + parts
        names = [shorten(name, 40) for name in self.profiles]
        self.ax_.set_yticks(np.arange(rows), names, parse_math=False)
        self.ax_.set(xlabel="mean fraction of belief", xlim=(0, 1), ylim=(rows - 0.5, -0.5))
        # matplotlib fills legends by columns, but they are read by rows.
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
        show_dollar_signs(legend)
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, ax: Any = None, **kwargs: Any
    ) -> DepthProfileDisplay:
        """Draw the profile of a fitted evidential classifier.

        Parameters
        ----------
        estimator : object
            A fitted classifier with ``predict_hyper_opinion``.
        X : array-like
            Samples.
        y : sequence of labels of shape (n_samples,), default=None
            True labels, as `y_true` of :meth:`from_predictions`.
        ax, **kwargs
            As in :meth:`from_predictions`.

        Returns
        -------
        display : DepthProfileDisplay
        """
        return cls.from_predictions(opinions(estimator, X), y, ax=ax, **kwargs)

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
            True labels: one bar for the samples whose likeliest leaf is right and one for the
            others. Samples whose label is not a leaf are left out.
        groups : array-like of shape (n_samples,), default=None
            Instead of labels: one bar for each group, such as "sharp" and "blurred".
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights; None means equal weights.
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
            raise ValueError("Give y_true or groups to divide the samples into bars, not both.")
        if groups is None:
            members = _right_and_wrong(opinion, y_true)
        else:
            ids, member_of = check_groups(groups, len(opinion))
            # In order of appearance, which is more often meant than alphabetical order.
            order = np.argsort(np.unique(member_of, return_index=True)[1])
            members = {str(ids[group]): member_of == group for group in order}
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
                "There is no sample to draw: all weights are zero, or no label is a leaf. Give "
                "samples with weight, or leave out y_true."
            )
        inner = [shown_level(tree, depth) for depth in range(1, tree.n_levels)]
        return cls(profiles, [str(tree.root_name), *inner, "a leaf"]).plot(ax, **kwargs)


def _right_and_wrong(opinion: HyperOpinion, y_true: Any) -> dict[str, npt.NDArray[np.bool_]]:
    if y_true is None:
        return {"all": np.ones(len(opinion), dtype=bool)}
    tree = opinion.taxonomy
    truth = label_nodes(y_true, tree)
    predicted = tree.leaf_nodes[opinion.leaf_probability.argmax(axis=1)]
    check_length(truth, predicted)
    is_leaf = tree.n_children[truth] == 0
    right = truth == predicted
    return {"right prediction": right & is_leaf, "wrong prediction": ~right & is_leaf}
