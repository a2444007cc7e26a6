"""What a read-out would say of each training sample, had it been left out of the fit.

The rows of a penalised read-out are sums over the samples, each with the slope of its loss. Leaving
one out takes its own part away, and by how much that moves its read-out is known without a fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import stdtrit
from torch import Tensor

from .curvature import Curvature

# Samples of one class are copies of each other, and left out together, if their cosine around the
# mean of the class is larger than this, and than that of one pair in so many by chance. Photographs
# of one scene are copies, and so is a sample that is given twice.
_ALIKE, _CHANCE = 0.5, 0.0001
# How close two samples are, as a part of their squares, that are the same but for rounding.
_SAME = 1e-5
# Samples of a class that are compared with each other at once.
_BLOCK = 256
# What is left of the metric in the direction of a sample without it, at least.
_LEAST_LEFT = 0.1


class LeavingOut:
    """How the read-outs of samples change when each is left out, with its copies or its group.

    Parameters
    ----------
    inputs : Tensor of shape (n_samples, n_features)
        What the read-out gets.
    classes : ndarray of int64 of shape (n_samples,)
        As in :func:`times_present`.
    weights : ndarray of shape (n_samples,)
        Weight of each sample, positive.
    curvature : Curvature
        Of the same samples, with the penalty of each row.
    groups : ndarray of int64 of shape (n_samples,), default=None
        What each sample belongs to, such as a patient, and is left out with; None looks for copies.
    parts : Tensor of shape (n_samples,), default=None
        The part of each sample in the metric of the penalty, as in :class:`WithinMetric`, which it
        is left out of as well; None if there is none.

    Attributes
    ----------
    share_with_copies : float
        Share of the samples that have copies which are not the same sample again, of those with a
        class; 0 where there are groups.
    times : Tensor of shape (n_samples,)
        What :func:`times_present` says, or 1 where there are groups. Where it is 0 a sample stays
        in: without it nothing would be known of its class.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skh2edl.curvature import Curvature
    >>> from skh2edl.leaving_out import LeavingOut
    >>> X = torch.tensor([[1.0], [-1.0], [3.0]])
    >>> bends = Curvature(torch.zeros(1), torch.full((1,), 0.5), X, torch.ones(3))
    >>> leaving_out = LeavingOut(X, np.array([0, 0, 1]), np.ones(3), bends)
    >>> leaving_out.times  # the last is alone
    tensor([1., 1., 0.])
    >>> leaving_out.changes(torch.tensor([[-0.3], [0.3], [0.3]])).T.round(decimals=2)
    tensor([[-0.0800,  0.0800,  0.0000]])
    """

    def __init__(
        self,
        inputs: Tensor,
        classes: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float64],
        curvature: Curvature,
        groups: npt.NDArray[np.int64] | None = None,
        parts: Tensor | None = None,
    ) -> None:
        share = weights / weights.sum()
        self.inputs, self.curvature = inputs, curvature
        self.of_metric: tuple[Tensor, Tensor] | None = None
        self.members: list[Tensor] = []
        self.share_with_copies = 0.0
        if groups is None:
            times, repeats = times_present(inputs, classes, share)
            of_class = share * (classes >= 0)
            found = float(of_class @ (times > (1 + _SAME) * repeats))
            self.share_with_copies = found / (float(of_class.sum()) or 1.0)
        else:
            times = np.where(is_whole_class(classes, groups), 0.0, 1.0)
            repeats = np.ones_like(times)
            order = np.argsort(groups, kind="stable")
            each = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
            self.members = [
                torch.from_numpy(rows) for rows in each if rows.size > 1 and times[rows].any()
            ]
        self.share = torch.from_numpy(share).to(inputs)
        self.times = torch.from_numpy(times).to(inputs)
        if parts is not None:
            _, label = np.unique(classes, return_inverse=True)
            # The same sample again leaves with it. Then the mean of the class is another, too, and
            # the sum of squares around it falls by more.
            left = 1 - repeats * share / np.bincount(label, share)[label]
            more = np.divide(repeats, left, out=np.zeros_like(left), where=left > _SAME)
            gone = torch.from_numpy(more * (times > 0)).to(parts)
            self.of_metric = _around_means(inputs, label, share), parts * gone

    def changes(self, slopes: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return what each sample's read-outs gain: (n_samples, n_rows).

        Of one sample it is the slope of its loss, times its share and its leverage in the fit
        without it; copies are taken to have the same slope. Samples of a group each add their own.
        Then the metric is left without the sample itself, which had made it costly to read the
        direction in which the sample is away from its class; copies and the rest of a group stay
        in it. All to first order, row by row, with the biases as they are.

        Parameters
        ----------
        slopes : Tensor of shape (n_samples, n_rows)
            Of the loss of each sample, in its read-outs.
        rows : Tensor of shape (n_rows, n_features), default=None
            The read-out; None leaves the metric as it is.
        """
        # The slope of -log p is p - 1 or p, and bends by p (1 - p) either way; of a loss that
        # weighs more the largest slope says how much.
        size = slopes.abs()
        weight = max(float(size.max()), 1.0)
        bends = size.addcmul_(size, size, value=-1 / weight).mul_(self.share[:, None])
        slopes = slopes * self.share[:, None]
        leverages = self.curvature.leverages(self.inputs, bends, self.times)
        found = leverages * slopes
        if self.members:
            sums = self.curvature.sums(self.inputs, bends, slopes, self.members)
            for members, of_group in zip(self.members, sums, strict=True):
                found[members] = of_group
        found.mul_(self.times[:, None])
        if self.of_metric is not None and rows is not None:
            found += self._without_metric(found, leverages, rows, *self.of_metric)
        return found

    def _without_metric(
        self, found: Tensor, leverages: Tensor, rows: Tensor, around: Tensor, parts: Tensor
    ) -> Tensor:
        """Return what read-outs gain when the metric, too, is without the sample.

        Without its part ``b r r'`` a row w gains ``H^-1 r`` times its penalty, b and w'r, over one
        less what that is of r itself. ``H^-1 r`` is taken to be as much shorter than r over the
        penalty as the leverage of the sample says of the sample.
        """
        squares = self.inputs.square().sum(1).clamp_(min=torch.finfo(self.inputs.dtype).tiny)
        along = (around * self.inputs).sum(1)
        # What rows without the sample read in that direction.
        read = (around @ rows.T).addcmul_(found, (along / squares)[:, None])
        shorter = leverages * self.curvature.penalties / squares[:, None]
        left = 1 - shorter * (parts * around.square().sum(1))[:, None]
        return read.mul_(shorter).mul_((parts * along)[:, None]).div_(left.clamp_(min=_LEAST_LEFT))


def is_whole_class(
    classes: npt.NDArray[np.int64], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Tell which samples are of a class that their group has to itself.

    Parameters
    ----------
    classes, groups : ndarray of int64 of shape (n_samples,)
        Class and group of each sample; a class of -1 is none.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl.leaving_out import is_whole_class
    >>> is_whole_class(np.array([0, 0, 1, 1, -1]), np.array([7, 7, 7, 8, 8]))
    array([ True,  True, False, False, False])
    """
    first = np.unique(classes, return_index=True, return_inverse=True)[1:]
    mixed = np.bincount(first[1], groups != groups[first[0]][first[1]]) > 0
    whole: npt.NDArray[np.bool_] = ~mixed[first[1]] & (classes >= 0)
    return whole


def times_present(
    inputs: Tensor,
    classes: npt.NDArray[np.int64],
    share: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return how many times as much as its own a sample and its copies weigh in their class.

    A large class is searched in parts of 256 samples, in the order they are given.

    Parameters
    ----------
    inputs : Tensor of shape (n_samples, n_features)
        What the read-out gets.
    classes : ndarray of int64 of shape (n_samples,)
        Class of each sample; -1 where its label is one that others refine. Those may be alike
        because they are of one class that nobody named, and only the same sample is a copy there.
    share : ndarray of shape (n_samples,)
        Weight of each sample, positive.

    Returns
    -------
    times : ndarray of shape (n_samples,)
        1 for a sample without a copy, and 0 where no other sample of the class would be left.
    repeats : ndarray of shape (n_samples,)
        The same of copies that are the sample itself, given again.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skh2edl.leaving_out import times_present
    >>> X = torch.cat([torch.eye(9), torch.eye(9)[:1] + 0.01])
    >>> times_present(X, np.array([0] * 8 + [1, 0]), np.full(10, 0.1))[0]
    array([2., 1., 1., 1., 1., 1., 1., 1., 0., 2.])
    """
    _, label = np.unique(classes, return_inverse=True)
    is_class = classes >= 0
    around = _around_means(inputs, label, share)
    least = max(_ALIKE, _cosine_by_chance(around, label, share * is_class))
    total = np.bincount(label, share)
    times, repeats = np.zeros(len(label)), np.ones(len(label))
    for rows, products, same in _pairs_of_classes(around, label):
        alike = same
        # In one direction all on one side are alike but for rounding.
        if is_class[rows[0]] and least < 1 - _SAME:
            squares = products.diagonal()
            alike = same | (products > least * np.sqrt(np.outer(squares, squares)))
        copies = alike @ share[rows]
        left = total[label[rows]] - copies
        is_known = (left > _SAME * copies) | ~is_class[rows]
        times[rows] = np.where(is_known, copies / share[rows], 0.0)
        repeats[rows] = same @ share[rows] / share[rows]
    return times, repeats


def _around_means(
    inputs: Tensor, label: npt.NDArray[np.int64], share: npt.NDArray[np.float64]
) -> Tensor:
    """Return samples less the mean of their class."""
    part = torch.from_numpy(share / np.bincount(label, share)[label]).to(inputs)
    place = torch.from_numpy(label)
    means = inputs.new_zeros(int(label.max()) + 1, inputs.shape[1])
    means.index_add_(0, place, inputs * part[:, None])
    return inputs - means[place]


def _pairs_of_classes(
    around: Tensor, label: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]]:
    """Yield some samples of a class, their products, and which of them are the same."""
    order = np.argsort(label, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(label))[:-1]):
        for first in range(0, members.size, _BLOCK):
            rows = members[first : first + _BLOCK]
            own = around[torch.from_numpy(rows)]
            products = (own @ own.T).double().numpy()
            both = products.diagonal()[:, None] + products.diagonal()
            yield rows, products, both - 2 * products <= _SAME * both


def _cosine_by_chance(
    around: Tensor, label: npt.NDArray[np.int64], share: npt.NDArray[np.float64]
) -> float:
    """Return what the cosine of two samples of a class rarely exceeds."""
    variance = n_pairs = of_pairs = 0.0
    if share.sum() == 0:
        return 1.0
    for rows, products, same in _pairs_of_classes(around, label):
        variance += share[rows] @ products.diagonal() / share.sum()
        pairs = np.outer(share[rows], share[rows]) * ~same
        n_pairs += pairs.sum()
        of_pairs += (pairs * np.square(products)).sum()
    if of_pairs == 0:
        return 1.0
    # In how many directions samples of a class differ: the fewer, the more are alike by chance.
    freedom = max(variance**2 * n_pairs / of_pairs - 1, _SAME)
    quantile = float(stdtrit(freedom, 1 - _CHANCE))
    return quantile / (freedom + quantile**2) ** 0.5
