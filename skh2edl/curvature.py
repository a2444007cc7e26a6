"""How much the objective of a fit on fixed features bends, roughly, and steps that allow for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .taxonomy import Taxonomy

# The directions in which features vary most: enough for the means of many classes, and few to turn.
_N_DIRECTIONS = 64
# Further ones to find those well, and samples to find them in.
_OVERSAMPLING = 10
_MOST_SAMPLES = 8192
# What is left of how much a row bends when a sample is left out, at least.
_LEAST_LEFT = 0.2
# Samples whose products of all directions are held at once.
_BLOCK = 2048
# How many times less than another a row is taken to bend at most, and how many times less elsewhere
# than along its main directions: more than that, single precision cannot tell the two apart.
_RATIO_OF_ROWS, _RATIO_OF_DIRECTIONS = 1000.0, 10_000.0
# How many times as far as its row a bias moves at most. Free to go where the samples say, it would
# take the evidence of some class away from everywhere, from where no slope leads back.
_REACH_OF_BIAS = 10.0


class Curvature:
    """The Hessian of a linear read-out, a block a row: data along few directions, and a penalty.

    A loss of samples bends a row along the covariance of the features, in proportion to p (1 - p)
    for the share p of the samples below it, and the less the better samples are told apart.

    Parameters
    ----------
    of_rows : Tensor of shape (n_rows,)
        p (1 - p) of each row.
    penalties : Tensor of shape (n_rows,)
        Penalty of each row.
    features : Tensor of shape (n_samples, n_features)
        As the read-out gets them.
    weights : Tensor of shape (n_samples,)
        Weight of each sample.
    """

    def __init__(
        self, of_rows: Tensor, penalties: Tensor, features: Tensor, weights: Tensor
    ) -> None:
        self.of_rows, self.penalties = of_rows, penalties
        self.directions, self.variances, self.rest = main_directions(features, weights)

    def solve(self, rows: Tensor, bias: Tensor, left: float) -> tuple[Tensor, Tensor]:
        """Divide gradients of the rows and of their biases by roughly the Hessian.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Gradient of the weights.
        bias : Tensor of shape (n_rows,)
            Gradient of the biases, which have no penalty, but do not leave their rows far behind.
        left : float
            What is left of how much the loss of the samples bends where nothing is told apart.
        """
        bends = left * self.of_rows
        along = torch.outer(bends, self.variances).add_(self.penalties[:, None])
        elsewhere = bends * self.rest + self.penalties
        elsewhere = torch.maximum(elsewhere, along.amax(1) / _RATIO_OF_DIRECTIONS)
        # A row that hardly bends must not run away; with one class and no penalty none bends.
        least = float(elsewhere.max()) / _RATIO_OF_ROWS or 1.0
        along, elsewhere = along.clamp_(min=least), elsewhere.clamp_(min=least)
        of_bias = torch.maximum(bends, elsewhere / _REACH_OF_BIAS)
        parts = (rows @ self.directions.T).mul_(1 / along - 1 / elsewhere[:, None])
        return (rows / elsewhere[:, None]).addmm_(parts, self.directions), bias / of_bias

    def leverages(self, features: Tensor, bends: Tensor, times: Tensor) -> Tensor:
        """Return ``x' H^-1 x`` for each sample x and the Hessian H of each row without the sample.

        Parameters
        ----------
        features : Tensor of shape (n_samples, n_features)
            The samples.
        bends : Tensor of shape (n_samples, n_rows)
            How much the loss of each of them bends along a read-out.
        times : Tensor of shape (n_samples,)
            How many times each of them is there.

        Returns
        -------
        leverages : Tensor of shape (n_samples, n_rows)
        """
        along, elsewhere, inverse, price = self._inverses(features, bends)
        found = torch.outer(elsewhere, 1 / price)
        for block in _blocks(along):
            within = _products(along[block]) @ inverse.T
            # Elsewhere a sample is one of many; here it has a part of its own in what bends.
            own = times[block, None] * bends[block] * within
            found[block] += within / (1 - own).clamp_(min=_LEAST_LEFT)
        return found

    def sums(
        self, features: Tensor, bends: Tensor, slopes: Tensor, members: list[Tensor]
    ) -> list[Tensor]:
        """Return ``sum x' H^-1 x_j slope_j`` over the group of each sample x, a group an item.

        Parameters
        ----------
        features, bends
            As in :meth:`leverages`.
        slopes : Tensor of shape (n_samples, n_rows)
            What each sample pulls a row with.
        members : list of Tensor
            Positions of the samples of each group.
        """
        along, _, inverse, price = self._inverses(features, bends)
        n_directions = along.shape[1]
        inverse = inverse.unflatten(1, (n_directions, n_directions))
        found = []
        for rows in members:
            own, all_of_it, pulls = along[rows], features[rows], slopes[rows]
            pulled = own.T @ pulls
            moved = torch.einsum("rkl,lr->kr", inverse, pulled)
            elsewhere = all_of_it @ (all_of_it.T @ pulls) - own @ pulled
            found.append(own @ moved + elsewhere / price)
        return found

    def _inverses(self, features: Tensor, bends: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return samples along the main directions, their squares elsewhere, and what to divide by.

        That is the inverse of each row's Hessian in those directions, and one number elsewhere.
        """
        along = features @ self.directions.T
        elsewhere = features.square().sum(1).sub_(along.square().sum(1)).clamp_(min=0.0)
        n_directions = along.shape[1]
        n_others = features.shape[1] - n_directions
        if n_others == 0:
            elsewhere.zero_()  # but for rounding
        hessian = torch.diag_embed(self.penalties[:, None].expand(-1, n_directions)).flatten(1)
        for block in _blocks(along):
            hessian.addmm_(bends[block].T, _products(along[block]))
        inverse = hessian.unflatten(1, (n_directions, n_directions)).inverse().flatten(1)
        return along, elsewhere, inverse, self.penalties + elsewhere @ bends / max(n_others, 1)

    def largest_change(self, rows: Tensor, bias: Tensor) -> float:
        """Return the largest root mean square, over samples, by which a read-out would change.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Changes of the weights. Features are taken to be centred.
        bias : Tensor of shape (n_rows,)
            Changes of the biases.
        """
        along = (rows @ self.directions.T).square_()
        elsewhere = (rows.square().sum(1) - along.sum(1)).clamp_(min=0.0)
        squares = torch.addmv(bias.square(), along, self.variances).add_(self.rest * elsewhere)
        return float(squares.max().sqrt())


def _blocks(rows: Tensor) -> list[slice]:
    return [slice(first, first + _BLOCK) for first in range(0, len(rows), _BLOCK)]


def _products(parts: Tensor) -> Tensor:
    """Return the products of all pairs of numbers in each row."""
    return (parts[:, :, None] * parts[:, None]).flatten(1)


def share_variances(
    taxonomy: Taxonomy, targets: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return p (1 - p) for the share p of the samples below each decision.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    targets : ndarray of int64 of shape (n_samples,)
        Target nodes.
    weights : ndarray of shape (n_samples,)
        Weight of each sample, not negative.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.curvature import share_variances
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> share_variances(tree, tree.resolve(["lynx", "cat", "dog", "dog"]), np.ones(4))
    array([0.25  , 0.25  , 0.1875, 0.    ])
    """
    below = taxonomy.sum_below(np.bincount(targets, weights, minlength=taxonomy.n_nodes))
    part = below[taxonomy.decision_children] / weights.sum()
    variances: npt.NDArray[np.float64] = part * (1 - part)
    return variances


def main_directions(features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, float]:
    """Find the directions in which features vary most, about their origin.

    By two steps of subspace iteration from a fixed start: the same bits every time, and no
    generator of the caller's moves.

    Parameters
    ----------
    features : Tensor of shape (n_samples, n_features)
        At least one sample.
    weights : Tensor of shape (n_samples,)
        Weight of each sample, positive.

    Returns
    -------
    directions : Tensor of shape (n_directions, n_features)
        Orthonormal rows.
    variances : Tensor of shape (n_directions,)
        Mean square along each, the largest first.
    rest : float
        Mean square along any other direction, on average.

    Examples
    --------
    >>> import torch
    >>> from skh2edl.curvature import main_directions
    >>> X = torch.tensor([[3.0, 0.0], [-3.0, 0.0]])
    >>> directions, variances, rest = main_directions(X, torch.ones(2))
    >>> variances
    tensor([9., 0.])
    """
    # Evenly spaced: files are often in the order of their classes.
    every = -(-features.shape[0] // _MOST_SAMPLES)
    some, weights = features[::every], weights[::every]
    if weights.min() < weights.max():
        some = some * (weights / weights.mean()).sqrt().to(some)[:, None]
    n_features = features.shape[1]
    n_directions = min(_N_DIRECTIONS, n_features)
    fixed = torch.Generator().manual_seed(0)
    n_tried = min(n_directions + _OVERSAMPLING, n_features)
    basis = torch.randn(n_features, n_tried, generator=fixed, dtype=some.dtype)
    for _ in range(2):
        basis, _ = torch.linalg.qr(some.T @ (some @ basis))
    parts = some @ basis
    squares = parts.T @ parts / some.shape[0]
    if not squares.isfinite().all():
        raise FloatingPointError(
            "The features are so large that their squares become infinite. Scale them first, or "
            "leave feature_scaling at its default."
        )
    variances, turn = torch.linalg.eigh(squares)
    # eigh begins with the smallest.
    directions = (basis @ turn).T.flip(0)[:n_directions]
    variances = variances.flip(0)[:n_directions].clamp(min=0.0)
    total = float(some.square().sum(dtype=torch.float64)) / some.shape[0]
    n_others = n_features - n_directions
    rest = max(0.0, total - float(variances.sum())) / n_others if n_others > 0 else 0.0
    return directions.contiguous(), variances, rest
