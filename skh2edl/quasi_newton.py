"""L-BFGS in the precision of the weights, for an objective that torch differentiates."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import line_search
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from .curvature import Curvature

# Pairs of steps and gradients that are remembered: with ten, as in scipy's, a fit takes a sixth
# more iterations.
_MEMORY = 25

# What is taken to be left of how much the loss of the samples bends when a fit begins, less than
# all of it, because a direction that seems to bend much is followed only slowly; and how far that
# falls, as the objective does.
_CURVATURE_LEFT, _LEAST_LEFT = 0.1, 1e-4


class QuasiNewton:
    """L-BFGS, an iteration at a time, in the precision of the weights.

    scipy's own works in double precision, with bounds that no head has, which takes a third of
    the time of a fit; torch's takes seconds to import. The line search is scipy's.

    Parameters
    ----------
    parameters : list of Tensor
        What to move. Where curvature is known of rows, they and their biases come first.
    objective : callable
        Returns the value to minimise, with its graph.
    curvature : Curvature or None
        What is known of the Hessian.
    tol : float
        Largest component of the gradient at which to stop.
    least_fall : float
        How many times as large it must have been before.

    Attributes
    ----------
    values : list of float
        The objective at the start and after each step.
    done : bool
        Whether there is nothing more to gain.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        objective: Callable[[], Tensor],
        curvature: Curvature | None,
        tol: float,
        least_fall: float,
    ) -> None:
        self.parameters = parameters
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
