"""The metric of an L2 penalty: what a row costs that tells samples of one class apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .penalties import samples_of_classes
from .taxonomy import Taxonomy

L2_METRICS = ("identity", "within")

# The part of the identity in the metric: what validation images of four sets of features chose.
_SHRINKAGE = 0.6
# With more features than this the metric is left at the identity: its matrix would take a quarter
# of a gigabyte, and its root as long as a fit.
MOST_FEATURES = 8192
# Columns whose products with those before them are found at once.
_BLOCK = 256


class WithinMetric:
    """Coordinates in which the metric of the classes is the identity.

    The square of a row w is ``w' A w`` with ``A = c (0.4 S + 0.6 I)``, where S is the covariance of
    the features within classes, of mean variance one. The number c leaves the features' mean square
    what it is. With A = L L' a row is L' w in the new coordinates, a feature x is L^-1 x, and their
    product is what it was.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    inputs : Tensor of shape (n_samples, n_features)
        What the read-out gets, not all of it zero.
    targets : ndarray of int64 of shape (n_samples,)
        Target nodes. Samples of a label that others refine are of no class here.
    weights : ndarray of shape (n_samples,)
        Weight of each sample, not negative.

    Attributes
    ----------
    factor : Tensor of shape (n_features, n_features)
        L.
    inputs : Tensor of shape (n_samples, n_features)
        The samples in the new coordinates.
    parts : Tensor of shape (n_samples,)
        How much of each sample is in A, which is the identity in the new coordinates: this times
        the square of what the sample is away from the mean of its class. 0 where it is of none.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.penalty_metric import WithinMetric
    >>> tree = Taxonomy.flat(["lynx", "puma"])
    >>> X = torch.tensor([[3.0, 2.0], [3.0, -2.0], [-3.0, 2.0], [-3.0, -2.0]])
    >>> metric = WithinMetric(tree, X, tree.resolve(["lynx", "lynx", "puma", "puma"]), np.ones(4))
    >>> row = metric.rows(torch.tensor([[1.0, 1.0]]))
    >>> row.square().round(decimals=2)  # the second feature varies within classes alone
    tensor([[0.8200, 1.9200]])
    >>> (metric.features(X) @ row.T).round(decimals=2).T
    tensor([[ 5.,  1., -1., -5.]])
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        inputs: Tensor,
        targets: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float64],
    ) -> None:
        metric = torch.eye(inputs.shape[1], dtype=inputs.dtype)
        # The metric is the same for features of any size, but squares of huge ones are infinite; a
        # power of two rounds nothing.
        size = inputs.abs().amax().log2().ceil().exp2()
        inputs = inputs / size
        covariance, self.parts = _covariance_within(taxonomy, inputs, targets, weights)
        # A constant feature, which centred is zero, is none.
        mean_variance = covariance.diagonal().sum() / inputs.any(0).sum()
        of_covariance = (1 - _SHRINKAGE) / float(mean_variance) if mean_variance > 0 else 0.0
        if of_covariance > 0:
            metric = metric.mul_(_SHRINKAGE).add_(covariance, alpha=of_covariance)
        self.factor = torch.linalg.cholesky(metric)
        share = torch.from_numpy(weights / weights.sum()).to(inputs)
        turned = self.features(inputs)
        before, after = (share @ each.square().sum(1) for each in (inputs, turned))
        ratio = (after / before).sqrt()
        self.factor *= ratio
        self.inputs = turned.mul_(size / ratio)
        self.parts *= of_covariance * (ratio / size) ** 2

    def features(self, inputs: Tensor) -> Tensor:
        """Return features in the new coordinates: (n, n_features)."""
        columns = torch.linalg.solve_triangular(self.factor, inputs.T, upper=False)
        return columns.T.contiguous()

    def rows(self, weight: Tensor) -> Tensor:
        """Return rows of a read-out in the new coordinates: (n_rows, n_features)."""
        return weight @ self.factor

    def rows_back(self, weight: Tensor) -> Tensor:
        """Return rows of the new coordinates in the old ones: (n_rows, n_features)."""
        return torch.linalg.solve_triangular(self.factor, weight, upper=False, left=False)


def _covariance_within(
    taxonomy: Taxonomy,
    inputs: Tensor,
    targets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
) -> tuple[Tensor, Tensor]:
    """Return the covariance of features around the means of their classes, up to a factor.

    Of it no more than its diagonal and what is below is filled in, which is what a root takes. And
    what the square of each sample around its class adds to it.
    """
    rows, label = samples_of_classes(taxonomy, targets, weights)
    place = np.unique(label, return_inverse=True)[1]
    # In double precision as far as they are divided: of some class they may all be tiny.
    total = np.bincount(place, weights[rows])
    part = torch.from_numpy(weights[rows] / total[place]).to(inputs)
    weight = torch.from_numpy(weights[rows] / weights.max(initial=0.0)).to(inputs)
    own = inputs[torch.from_numpy(rows)]
    means = inputs.new_zeros(total.size, inputs.shape[1])
    means.index_add_(0, torch.from_numpy(place), own * part[:, None])
    around = (own - means[place]).mul_(weight.sqrt()[:, None])
    parts = inputs.new_zeros(len(inputs))
    parts[torch.from_numpy(rows)] = weight
    return _lower_squares(around), parts


def _lower_squares(around: Tensor) -> Tensor:
    """Return products of all pairs of columns, but for those above the diagonal's blocks."""
    n_features = around.shape[1]
    products = around.new_zeros(n_features, n_features)
    for first in range(0, n_features, _BLOCK):
        stop = first + _BLOCK
        torch.mm(around[:, first:stop].T, around[:, :stop], out=products[first:stop, :stop])
    return products
