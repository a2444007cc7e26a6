"""Fit a head to fixed features with a full-batch quasi-Newton method."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import line_search
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from .curvature import Curvature, share_variances
from .heads import TreeHead
from .network import Network
from .penalties import count_features, default_l2, row_penalties
from .penalty_metric import WithinMetric

# Pairs of steps and gradients that L-BFGS remembers: with ten, as in scipy's, a fit takes a sixth
# more iterations.
_MEMORY = 25

# What is taken to be left of how much the loss of the samples bends when a fit begins, less than
# all of it, because a direction that seems to bend much is followed only slowly; and how far that
# falls, as the objective does.
_CURVATURE_LEFT, _LEAST_LEFT = 0.1, 1e-4

# How far the gradient of a new head must fall below its largest before a fit without a tolerance of
# its own may stop. Where all classes are alike rare it begins below any fixed tolerance.
LEAST_FALL = 50.0


def scale_features(
    network: Network,
    features: npt.NDArray[Any],
    weights: npt.NDArray[np.float64],
    how: str,
) -> None:
    """Set the network's feature mean and scale from weighted samples.

    Parameters
    ----------
    network : Network
        Whose buffers are set.
    features : ndarray of shape (n_samples, n_features)
        Raw features.
    weights : ndarray of shape (n_samples,)
        Weight of each sample; one of weight 0 does not count.
    how : {"global", "feature"}
        Whether all features are divided by one number, or each by its own.
    """
    share = weights / weights.sum()
    mean = share @ features
    scale = np.sqrt(share @ np.square(features - mean))
    if how == "global":
        scale = np.full_like(scale, np.sqrt(np.mean(np.square(scale))))
    # A constant feature tells nothing, and its rounding noise must not be blown up to look it.
    constant = scale <= 10 * np.finfo(features.dtype).eps * np.abs(mean)
    network.standardize(mean, np.where(constant | (scale == 0), 1.0, scale))


def minimize_head(
    network: Network,
    features: npt.NDArray[Any],
    targets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    *,
    l2: float | None = None,
    l2_shape: str = "uniform",
    l2_metric: str = "identity",
    max_iter: int,
    tol: float,
    least_fall: float = 0.0,
    verbose: int = 0,
) -> list[float]:
    """Minimise the weighted mean loss plus an L2 penalty of the read-out with L-BFGS.

    The objective is ``sum w loss / sum w + l2 / 2 sum share |row|^2``, with the squares of rows by
    the metric; biases are free. It has no learning rate, moves no generator of the caller's, and
    ends with the same bits every time.

    Parameters
    ----------
    network : Network
        Whose head is fitted in place; its features are standardised already.
    features : ndarray of shape (n_samples, n_features)
        Raw features.
    targets : ndarray of int64 of shape (n_samples,)
        Target nodes.
    weights : ndarray of shape (n_samples,)
        Weight of each sample.
    l2 : float, default=None
        Strength of the penalty; None means that of :func:`default_l2`.
    l2_shape : {"uniform", "separation"}, default="uniform"
        Share of each row in it: 1, or that of :func:`row_penalties`.
    l2_metric : {"identity", "within"}, default="identity"
        What the square of a row is: that of its weights, or the one of :class:`WithinMetric`.
    max_iter : int
        Iterations at most.
    tol : float
        Largest component of the gradient at which to stop.
    least_fall : float, default=0.0
        How many times as large it must have been before, if the head begins at zero.
    verbose : int, default=0
        Whether to show progress.

    Returns
    -------
    objective : list of float
        Value after each iteration.
    """
    head = network.head
    counted = np.flatnonzero(weights > 0)
    nodes, weights = targets[counted], weights[counted]
    with torch.no_grad():
        inputs = network.standardized(torch.from_numpy(features[counted]))
    metric = None
    if l2_metric == "within" and bool(inputs.any()):
        metric = WithinMetric(head.segments.taxonomy, inputs, nodes, weights)
        inputs = metric.features(inputs)
    if l2 is None:
        # Whole numbers count like repeated samples; where all weights are small they say how much
        # the samples differ (Kish's effective number), not that there are few.
        effective = weights.sum() ** 2 / np.square(weights).sum()
        n_features = count_features(inputs.numpy())
        l2 = default_l2(n_features, max(weights.sum(), effective), l2_shape)
    penalties, curvature = torch.tensor(l2, dtype=torch.float64), None
    if l2_shape == "separation":
        tree = head.segments.taxonomy
        penalties = torch.from_numpy(l2 * row_penalties(tree, inputs.numpy(), nodes, weights))
        of_samples = torch.from_numpy(share_variances(tree, nodes, weights))
        curvature = Curvature(
            of_samples.to(inputs), penalties.to(inputs), inputs, torch.from_numpy(weights)
        )

    is_new = not bool(head.linear.weight.any())
    objective = _Objective(head, inputs, nodes, weights, penalties)
    if metric is not None:
        with torch.no_grad():
            head.linear.weight.copy_(metric.rows(head.linear.weight))
    try:
        descent = _Descent(head, objective, curvature, tol, least_fall if is_new else 0.0)
        descent.run(max_iter, verbose)
    finally:
        # Also after an interruption: a head that goes on from an earlier fit stays usable.
        if metric is not None:
            with torch.no_grad():
                head.linear.weight.copy_(metric.rows_back(head.linear.weight))
    if not np.isfinite(descent.values[-1]):
        raise FloatingPointError(
            "The objective became NaN or infinite. Check the features for huge values, or raise l2."
        )
    if not descent.done:
        warnings.warn(
            f"The head did not converge in {max_iter} iterations. Raise max_iter, tol or l2.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return descent.values[1:] or descent.values


class _Objective:
    """The weighted mean loss of some samples plus the penalty."""

    def __init__(
        self,
        head: TreeHead,
        inputs: Tensor,
        nodes: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float64],
        penalties: Tensor,
    ) -> None:
        self.head, self.inputs, self.penalties = head, inputs, penalties
        self.prepared = head.prepare(nodes)
        self.share = torch.from_numpy(weights / weights.sum())

    def __call__(self) -> Tensor:
        # In double precision, or rounding of the sum would end the line search early.
        losses = self.head.loss(self.inputs, self.prepared, np.inf).double()
        squares = self.head.linear.weight.square().sum(1, dtype=torch.float64)
        return self.share @ losses + (self.penalties * squares).sum() / 2


class _Descent:
    """L-BFGS, an iteration at a time, in the precision of the weights.

    scipy's own works in double precision, with bounds that no head has, which takes a third of
    the time of a fit; torch's takes seconds to import. The line search is scipy's.
    """

    def __init__(
        self,
        head: TreeHead,
        objective: Callable[[], Tensor],
        curvature: Curvature | None,
        tol: float,
        least_fall: float,
    ) -> None:
        # The rows first: they are what curvature is known of.
        others = [each for name, each in head.named_parameters() if not name.startswith("linear.")]
        self.parameters = [head.linear.weight, head.linear.bias]
        self.parameters += [parameter for parameter in others if parameter.requires_grad]
        self.objective = objective
        self.curvature = curvature
        self.tol = tol
        self.least_fall = least_fall
        self.steepest = 0.0
        self.point = parameters_to_vector(self.parameters).detach().clone()
        self.value, self.gradient = self._evaluate(self.point)
        self.values = [self.value]
        # Steps and the changes of the gradient along them, the latest last.
        self.memory: deque[tuple[Tensor, Tensor]] = deque(maxlen=_MEMORY)
        self.done = self._is_flat()

    def run(self, max_iter: int, verbose: int) -> None:
        """Go down until the gradient is flat, or for as many steps as there may be."""
        from tqdm.auto import tqdm

        with tqdm(total=max_iter, disable=verbose <= 0, unit="iteration") as bar:
            while not self.done and len(self.values) <= max_iter:
                self.step()
                bar.update()
                bar.set_postfix(objective=f"{self.values[-1]:.5g}")

    def step(self) -> None:
        """Search along one direction, and move to the end of the search."""
        direction = self._direction()
        seen: dict[float, tuple[float, Tensor]] = {}

        def look(distance: npt.NDArray[np.float64]) -> tuple[float, Tensor]:
            key = float(distance[0])
            if key not in seen:
                seen[key] = self._evaluate(self.point + key * direction)
            return seen[key]

        with warnings.catch_warnings():
            # Where rounding leaves nothing to gain the search fails.
            warnings.filterwarnings("ignore", ".*line search", RuntimeWarning)
            distance, *_ = line_search(
                lambda at: look(at)[0],
                lambda at: np.array([float(direction @ look(at)[1])]),
                np.zeros(1),
                np.ones(1),
                np.array([float(direction @ self.gradient)]),
                self.value,
            )
        if distance is None:
            # Along a direction of old gradients there may be nothing to gain where there still is
            # along the gradient itself.
            self.done = not self.memory
            self.memory.clear()
        else:
            self._move(distance * direction, *look(np.array([distance])))
        vector_to_parameters(self.point, self.parameters)

    def _move(self, step: Tensor, value: float, gradient: Tensor) -> None:
        change = gradient - self.gradient
        if float(step @ change) > 0:
            self.memory.append((step, change))
        # Single precision cannot tell apart values closer than this.
        least = torch.finfo(step.dtype).eps * max(abs(self.value), abs(value), 1.0)
        self.done = not self.value - value > least
        self.point, self.value, self.gradient = self.point + step, value, gradient
        self.values.append(value)
        self.done |= self._is_flat()

    def _direction(self) -> Tensor:
        """Return minus the gradient times the inverse Hessian, as the memory has it."""
        if not self.memory:
            direction = -self._scaled(self.gradient)
            return direction / self._length(direction)
        # In place: a vector is read often enough here to count.
        direction, shares = -self.gradient, []
        for step, change in reversed(self.memory):
            shares.append(float(step @ direction) / float(step @ change))
            direction.sub_(change, alpha=shares[-1])
        step, change = self.memory[-1]
        direction = self._scaled(direction)
        direction *= float(step @ change) / float(change @ self._scaled(change))
        for (step, change), share in zip(self.memory, reversed(shares), strict=True):
            rest = share - float(change @ direction) / float(step @ change)
            direction.add_(step, alpha=rest)
        return direction

    def _scaled(self, vector: Tensor) -> Tensor:
        """Divide by the Hessian, as far as it is known without steps."""
        if self.curvature is None:
            return vector
        first = self.values[0]
        ratio = self.value / first if first > 0 else 1.0
        left = _CURVATURE_LEFT * min(1.0, max(_LEAST_LEFT, ratio))
        rows, bias, others = self._split(vector)
        rows, bias = self.curvature.solve(rows, bias, left)
        return torch.cat([rows.flatten(), bias, others / left])

    def _length(self, direction: Tensor) -> float:
        """Return by what a first step is divided, so that it changes no read-out by much."""
        if self.curvature is None:
            return max(float(direction.abs().sum()), 1.0)
        return max(self.curvature.largest_change(*self._split(direction)[:2]), 1.0)

    def _split(self, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what of a vector belongs to rows, to their biases, and to anything else."""
        shape = self.parameters[0].shape
        rows, bias, others = vector.tensor_split([shape.numel(), shape.numel() + shape[0]])
        return rows.view(shape), bias, others

    def _is_flat(self) -> bool:
        steepness = float(self.gradient.abs().max())
        self.steepest = max(self.steepest, steepness)
        return steepness <= self.tol and steepness * self.least_fall <= self.steepest

    def _evaluate(self, point: Tensor) -> tuple[float, Tensor]:
        vector_to_parameters(point, self.parameters)
        loss = self.objective()
        gradients = torch.autograd.grad(loss, self.parameters)
        return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])
