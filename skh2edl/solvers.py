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
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from .network import Network
from .penalties import count_features, default_l2, row_penalties
from .taxonomy import Taxonomy

# Pairs of steps and gradients that L-BFGS remembers: with ten, as in scipy's, a fit takes a sixth
# more iterations.
_MEMORY = 25

# What is left late in a fit of how much the loss bends at its beginning: samples are told apart.
_CURVATURE_LEFT = 0.03
# How many times as far as another a row may move.
_MOST_REACH = 1000.0

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
    max_iter: int,
    tol: float,
    least_fall: float = 0.0,
    verbose: int = 0,
) -> list[float]:
    """Minimise the weighted mean loss plus an L2 penalty of the read-out with L-BFGS.

    The objective is ``sum w loss / sum w + l2 / 2 sum share |row|^2``; biases are free. It has no
    learning rate, draws no random number, and ends with the same bits every time.

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
    from tqdm.auto import tqdm

    head = network.head
    counted = np.flatnonzero(weights > 0)
    prepared = head.prepare(targets[counted])
    with torch.no_grad():
        inputs = network.standardized(torch.from_numpy(features[counted]))
    total = float(weights[counted].sum())
    share = torch.from_numpy(weights[counted] / total)
    if l2 is None:
        # Whole numbers count like repeated samples; where all weights are small they say how much
        # the samples differ (Kish's effective number), not that there are few.
        effective = total**2 / np.square(weights[counted]).sum()
        n_features = count_features(inputs.numpy())
        l2 = default_l2(n_features, max(total, effective), l2_shape)
    parameters = [parameter for parameter in head.parameters() if parameter.requires_grad]
    of_rows = reach = None
    if l2_shape == "separation":
        tree, nodes = head.segments.taxonomy, targets[counted]
        penalties = row_penalties(tree, inputs.numpy(), nodes, weights[counted])
        of_rows = torch.from_numpy(penalties)
        curvature = _row_curvature(tree, nodes, weights[counted]) + l2 * penalties
        reach = _reach(parameters, head.linear.weight, curvature)

    def objective() -> Tensor:
        # In double precision, or rounding of the sum would end the line search early.
        data_term = (share * head.loss(inputs, prepared, np.inf).double()).sum()
        squares = head.linear.weight.square()
        if of_rows is None:
            return data_term + l2 / 2 * squares.sum(dtype=torch.float64)
        return data_term + l2 / 2 * (squares.sum(1, dtype=torch.float64) @ of_rows)

    is_new = not bool(head.linear.weight.any())
    descent = _Descent(parameters, objective, tol, least_fall if is_new else 0.0, reach)
    with tqdm(total=max_iter, disable=verbose <= 0, unit="iteration") as bar:
        while not descent.done and len(descent.values) <= max_iter:
            descent.step()
            bar.update()
            bar.set_postfix(objective=f"{descent.values[-1]:.5g}")
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


def _row_curvature(
    taxonomy: Taxonomy, targets: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return how much the mean loss bends along each row late in a fit, roughly.

    At the beginning, when nothing is known, it is p (1 - p) for the share p of the samples below.
    """
    below = taxonomy.sum_below(np.bincount(targets, weights, minlength=taxonomy.n_nodes))
    part = below[taxonomy.decision_children] / weights.sum()
    curvature: npt.NDArray[np.float64] = _CURVATURE_LEFT * part * (1 - part)
    return curvature


def _reach(
    parameters: list[nn.Parameter], weight: Tensor, curvature: npt.NDArray[np.float64]
) -> Tensor:
    """Return how far each parameter moves along its gradient at first: a row the less it bends.

    No step then has to find out how much the rows differ.
    """
    if not curvature.any():
        # One class and no penalty.
        curvature = np.ones_like(curvature)
    reach = 1 / np.maximum(curvature, curvature.max() / _MOST_REACH)
    of_rows = torch.from_numpy(reach / reach.mean()).to(weight.dtype)
    of_weight = of_rows.repeat_interleave(weight.shape[1])
    return torch.cat(
        [of_weight if each is weight else torch.ones_like(each).flatten() for each in parameters]
    )


class _Descent:
    """L-BFGS, an iteration at a time, in the precision of the weights.

    scipy's own works in double precision, with bounds that no head has, which takes a third of
    the time of a fit; torch's takes seconds to import. The line search is scipy's.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        objective: Callable[[], Tensor],
        tol: float,
        least_fall: float,
        reach: Tensor | None,
    ) -> None:
        self.parameters = parameters
        self.objective = objective
        self.tol = tol
        self.least_fall = least_fall
        self.steepest = 0.0
        self.reach = reach
        self.point = parameters_to_vector(parameters).detach().clone()
        self.value, self.gradient = self._evaluate(self.point)
        self.values = [self.value]
        # Steps and the changes of the gradient along them, the latest last.
        self.memory: deque[tuple[Tensor, Tensor]] = deque(maxlen=_MEMORY)
        self.done = self._is_flat()

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
            return direction / max(float(direction.abs().sum()), 1.0)
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
        return vector if self.reach is None else vector * self.reach

    def _is_flat(self) -> bool:
        steepness = float(self.gradient.abs().max())
        self.steepest = max(self.steepest, steepness)
        return steepness <= self.tol and steepness * self.least_fall <= self.steepest

    def _evaluate(self, point: Tensor) -> tuple[float, Tensor]:
        vector_to_parameters(point, self.parameters)
        loss = self.objective()
        gradients = torch.autograd.grad(loss, self.parameters)
        return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])
