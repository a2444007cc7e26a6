"""Familiarity: how similar a feature is to training features below each branching node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from sklearn.covariance import LedoitWolf
from torch import Tensor, nn

from ..taxonomy.sums import depth_slices
from .tree_ops import TreeSegments, without_autocast

# Fraction of the training samples whose leave-one-out distance is beyond the limit of a node.
_BEYOND = 0.01
# Decay of the familiarity beyond the median; at the limit it is exp(-_DECAY).
_DECAY = 0.25
# Beyond what any distance in single precision may be, so that a ratio of two stays a number.
_FARTHEST = 1e30
# Samples compared with all means at once.
_SAMPLES_AT_ONCE = 1024


class Familiarity(nn.Module):
    """How similar a feature is to training features below each branching node, from 0 to 1.

    Every label has the mean of its training features, all labels share one covariance, shrunk as
    by Ledoit and Wolf. At a node two numbers say how strange a feature is: its squared Mahalanobis
    distance d to the nearest mean below the node, and d over the squared distance to the centre of
    those means, which is near 1 where no child fits better than any other. Both are compared with
    the leave-one-out numbers of the node's own training samples: the median becomes 0, and the
    limit that a hundredth of them exceeds becomes 1. If t is the larger of the two, familiarity is
    ``exp(-t² / 4)``, and 1 for t below 0.

    Parameters
    ----------
    segments : TreeSegments
        The tree.
    n_features : int
        Length of the feature.
    """

    def __init__(self, segments: TreeSegments, n_features: int) -> None:
        super().__init__()
        tree = segments.taxonomy
        self.segments = segments
        self._steps = depth_slices(tree)[:0:-1]
        self.known = constant(torch.zeros(tree.n_decisions))
        self.mean = constant(torch.zeros(tree.n_decisions, n_features))
        self.centre = constant(torch.zeros(tree.n_branching, n_features))
        self.whitening = constant(torch.eye(n_features))
        self.middle = constant(torch.zeros(2, tree.n_branching))
        self.spread = constant(torch.ones(2, tree.n_branching))

    @torch.no_grad()
    def fit(self, features: npt.NDArray[np.floating], nodes: npt.NDArray[np.int64]) -> None:
        """Estimate means and covariance, and the limits from leave-one-out distances.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features as the head reads them.
        nodes : ndarray of int of shape (n_samples,)
            Target nodes: leaves or ancestors, which count where their decisions reach.
        """
        tree = self.segments.taxonomy
        own = tree.last_decision[nodes]
        x, own = features[own >= 0].astype(np.float64), own[own >= 0]
        count = np.bincount(own, minlength=tree.n_decisions)
        mean = np.zeros((tree.n_decisions, x.shape[1]))
        np.add.at(mean, own, x)
        mean /= np.maximum(count, 1)[:, None]
        estimate = LedoitWolf(assume_centered=True, store_precision=False).fit(x - mean[own])
        covariance = estimate.covariance_
        variance = covariance.trace() / len(covariance)
        # Constant features, and classes of one sample each, leave no variance to divide by.
        covariance[np.diag_indices_from(covariance)] += 1e-6 * variance if variance > 0 else 1.0
        whitening = np.linalg.inv(np.linalg.cholesky(covariance))
        mean = mean @ whitening.T
        below = _means_below(self.segments) & (count > 0)
        centre = below @ mean / np.maximum(below.sum(axis=1), 1)[:, None]
        for parameter, values in (
            (self.known, count > 0),
            (self.mean, mean),
            (self.centre, centre),
            (self.whitening, whitening),
        ):
            parameter.copy_(torch.from_numpy(np.asarray(values, dtype=np.float64)))
        weight = 1 - estimate.shrinkage_
        self._calibrate(x @ whitening.T, own, count, mean, centre, weight)

    def _calibrate(
        self,
        x: npt.NDArray[np.float64],
        own: npt.NDArray[np.int64],
        count: npt.NDArray[np.int64],
        mean: npt.NDArray[np.float64],
        centre: npt.NDArray[np.float64],
        weight: float,
    ) -> None:
        """Set median and spread of each node from whitened features."""
        # A class of one sample has no mean without it.
        x, own = x[count[own] > 1], own[count[own] > 1]
        points = torch.from_numpy(np.concatenate([mean, centre]))
        passes = _means_below(self.segments)
        # Of each node on the path of each sample; those of all nodes would not fit into memory.
        found, nodes = [np.zeros((2, 0))], [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(x), _SAMPLES_AT_ONCE):
            batch = slice(start, start + _SAMPLES_AT_ONCE)
            left_out = _distances_without_own(
                torch.from_numpy(x[batch]),
                torch.from_numpy(own[batch]),
                points,
                torch.from_numpy(count[own[batch]]).double(),
                weight / count.sum(),
            )
            on_path = passes[:, own[batch]].T
            of_all = self._strangeness(left_out, torch.from_numpy(count > 0)).numpy()
            found.append(of_all[:, on_path])
            nodes.append(np.nonzero(on_path)[1])
        strangeness, of_node = np.concatenate(found, axis=1), np.concatenate(nodes)
        for node in range(len(centre)):
            values = strangeness[:, of_node == node]
            if values.size == 0:  # then nothing is strange
                middle, spread = np.full(2, _FARTHEST), np.full(2, _FARTHEST)
            else:
                middle = np.median(values, axis=1)
                limit = np.quantile(values, 1 - _BEYOND, axis=1, method="higher")
                # Of samples that are all alike, a hundredth of the limit.
                spread = np.maximum(limit - middle, limit / 100)
            self.middle[:, node] = torch.from_numpy(middle)
            self.spread[:, node] = torch.from_numpy(spread)

    def _strangeness(self, distance: Tensor, known: Tensor) -> Tensor:
        """Return d and its ratio to the centre's for each node: (2, n, n_branching).

        The distances are those to the means of all decisions and to the centres of all nodes.
        """
        segments = self.segments
        n_decisions = len(segments.node)
        distance = distance.clamp(max=_FARTHEST)
        nearest = torch.where(known, distance[:, :n_decisions], _FARTHEST)
        for low, high in self._steps:
            above = segments.parent[low:high].expand(nearest.shape[0], -1)
            nearest = nearest.scatter_reduce(1, above, nearest[:, low:high], "amin")
        start = nearest.new_full((nearest.shape[0], segments.taxonomy.n_branching), _FARTHEST)
        index = segments.node.expand(nearest.shape[0], -1)
        nearest = start.scatter_reduce(1, index, nearest, "amin")
        least = torch.finfo(distance.dtype).tiny
        return torch.stack([nearest, nearest / distance[:, n_decisions:].clamp(min=least)])

    def forward(self, features: Tensor) -> Tensor:
        """Return the familiarity of each feature at each node: (n, n_branching)."""
        with without_autocast(features):
            x = features.to(self.mean.dtype) @ self.whitening.T
            distance = squared_distance(x, torch.cat([self.mean, self.centre]))
            strangeness = self._strangeness(distance, self.known > 0)
            least = torch.finfo(self.spread.dtype).tiny
            excess = (strangeness - self.middle[:, None]) / self.spread[:, None].clamp(min=least)
            familiarity = (-_DECAY * excess.clamp(min=0).amax(dim=0).square()).exp()
            return torch.where(self.known.sum() > 0, familiarity, 1.0)


def _means_below(segments: TreeSegments) -> npt.NDArray[np.bool_]:
    """Return which decisions lie at or below each branching node: (n_branching, n_decisions)."""
    tree = segments.taxonomy
    below = np.zeros((tree.n_branching, tree.n_decisions), dtype=bool)
    decision, above = np.arange(tree.n_decisions), np.arange(tree.n_decisions)
    while decision.size:
        below[tree.decision_nodes[above], decision] = True
        above = tree.parent_decision[above]
        decision, above = decision[above >= 0], above[above >= 0]
    return below


def squared_distance(x: Tensor, points: Tensor) -> Tensor:
    """Return the squared distance of every sample to every point; ONNX knows no cdist."""
    squares = x.square().sum(1, keepdim=True) + points.square().sum(1)
    return (squares - 2 * x @ points.T).clamp(min=0)


def _distances_without_own(
    x: Tensor, own: Tensor, points: Tensor, count: Tensor, weight: float
) -> Tensor:
    """Return leave-one-out squared distances of training samples to some points.

    In closed form, with whitened features: the sample leaves the mean of its own label and, by the
    formula of Sherman and Morrison, the covariance, to which a residual r adds ``weight r r^T``.
    """
    residual = x - points[own]
    grown = count / (count - 1)
    a = residual.square().sum(1)
    removed = weight * grown
    correction = removed / (1 - removed * a).clamp(min=torch.finfo(a.dtype).eps)
    across = (x * residual).sum(1, keepdim=True) - residual @ points.T
    distance = squared_distance(x, points) + correction[:, None] * across.square()
    distance[torch.arange(len(x)), own] = grown.square() * (a + correction * a.square())
    return distance


def constant(values: Tensor) -> nn.Parameter:
    """Return a parameter that is saved with the model, but neither trained nor resumed."""
    return nn.Parameter(values, requires_grad=False)
