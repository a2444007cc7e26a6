"""Fit a head to fixed features: scipy's L-BFGS, a plain L2 penalty, a ramp of the KL weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ..heads.base import EvidentialHead, TreeHead
from ..utils.threads import one_thread_for_numpy
from .network import Network

# Fractions of the KL weight at which an evidential head is solved, each from the solution before:
# at full weight from the start, many stop at a vacuous local minimum.
_KL_FRACTIONS = (0.1, 1.0)
# Iterations of a solve that only prepares the next one.
_FIRST_ITERATIONS = 15
# Logits that are computed at once, so that memory does not grow with the number of samples.
_MAX_LOGITS = 2**24


@one_thread_for_numpy()
def scale_features(
    network: Network, features: npt.NDArray[Any], weights: npt.NDArray[np.float64]
) -> None:
    """Centre the network's features and divide all of them by one number, their mean scale.

    One number keeps what the sizes of a network's features mean.

    Parameters
    ----------
    network : Network
        Whose buffers are set.
    features : ndarray of shape (n_samples, n_features)
        Raw features.
    weights : ndarray of shape (n_samples,)
        Weight of each sample; one of weight 0 does not count.
    """
    fraction = weights / weights.sum()
    mean = fraction @ features
    variance = fraction @ np.square(features - mean)
    # A constant feature does not count, nor does its rounding noise.
    varies = np.sqrt(variance) > 10 * np.finfo(features.dtype).eps * np.abs(mean)
    scale = np.sqrt(variance[varies].mean()) if varies.any() else 1.0
    network.standardize(mean, np.full_like(mean, scale))


@one_thread_for_numpy()
def minimize_head(
    network: Network,
    features: npt.NDArray[Any],
    nodes: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    *,
    l2: float,
    max_iter: int,
    tol: float,
    ramp: bool = True,
    verbose: int = 0,
    on_iteration: Callable[[Network, dict[str, float]], bool] | None = None,
) -> list[float]:
    """Minimise the sum of weighted losses plus ``l2 d / 2`` times the squared weights with L-BFGS.

    With d standardised features this is a Gaussian prior under which a logit has the variance
    ``1 / l2``, whatever the number of features and samples. Biases are free. The KL weight of an
    evidential head rises over several solves, each warm started. No learning rate, no random
    numbers: the same bits every time.

    Parameters
    ----------
    network : Network
        Whose head is fitted in place; its features are standardised already.
    features : ndarray of shape (n_samples, n_features)
        Raw features.
    nodes : ndarray of int64 of shape (n_samples,)
        Target nodes.
    weights : ndarray of shape (n_samples,)
        Weight of each sample.
    l2 : float
        Strength of the penalty: inverse prior variance of a logit.
    max_iter : int
        Iterations at most, of all solves together.
    tol : float
        Largest component of the gradient at which to stop.
    ramp : bool, default=True
        Whether the KL weight rises; a head that was fitted before needs no ramp.
    verbose : int, default=0
        Whether to show progress.
    on_iteration : callable, default=None
        Called after each iteration with the network and its record; True stops.

    Returns
    -------
    objective : list of float
        Value after each iteration.
    """
    from tqdm.auto import tqdm

    head = network.head
    counted = np.flatnonzero(weights > 0)
    with torch.no_grad():
        inputs = network.standardized(torch.from_numpy(features[counted]))
    n_varying = int((inputs != inputs[:1]).any(0).sum())
    objective = _Objective(head, inputs, nodes[counted], weights[counted], l2 * n_varying)
    values: list[float] = []
    with tqdm(disable=not verbose, unit="iteration", total=max_iter) as bar:

        def note(intermediate_result: Any) -> None:
            values.append(float(intermediate_result.fun))
            bar.update()
            bar.set_postfix(objective=f"{values[-1]:.5g}")
            if on_iteration is not None:
                objective.set(intermediate_result.x)  # what was tried last need not be the step
                record = {"iteration": len(values) - 1, "objective": values[-1]}
                objective.stopped = on_iteration(network, record)
            if objective.stopped:
                raise StopIteration

        *first, last = _stages(head) if ramp else (1.0,)
        for progress in first:
            objective.solve(progress, min(_FIRST_ITERATIONS, max_iter - len(values)), tol, note)
        converged = objective.solve(last, max_iter - len(values), tol, note)
    if not converged and not objective.stopped:
        warnings.warn(
            f"The head did not converge in {max_iter} iterations. Raise max_iter, tol or l2.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return values


def _stages(head: TreeHead) -> tuple[float, ...]:
    """Return the fractions of the training at which the head is solved."""
    if not isinstance(head, EvidentialHead) or head.kl_weight == 0 or head.kl_ramp == 0:
        return (1.0,)
    return tuple(fraction * head.kl_ramp for fraction in _KL_FRACTIONS)


class _Objective:
    """The weighted losses of some samples plus a penalty, over the sum of weights; its minimum."""

    def __init__(
        self,
        head: TreeHead,
        inputs: Tensor,
        nodes: npt.NDArray[np.int64],
        weights: npt.NDArray[np.float64],
        penalty: float,
    ) -> None:
        self.head, self.penalty = head, penalty / weights.sum()
        fraction = torch.from_numpy(weights / weights.sum())
        size = max(1, _MAX_LOGITS // head.linear.out_features)
        self.parts = [
            (inputs[start : start + size], head.prepare(nodes[start : start + size]), part)
            for start, part in zip(range(0, len(inputs), size), fraction.split(size), strict=True)
        ]
        self.trained = [item for item in head.parameters() if item.requires_grad]
        self.stopped = False

    def solve(self, progress: float, max_iter: int, tol: float, callback: Any) -> bool:
        """Minimise at one fraction of the training; tell whether it converged."""
        if max_iter <= 0 or self.stopped:
            return False
        start = torch.cat([item.detach().flatten() for item in self.trained])
        result = minimize(
            self._value_and_gradient,
            start.double().numpy(),
            args=(progress,),
            jac=True,
            method="L-BFGS-B",
            callback=callback,
            # Near a minimum a step lowers the objective by the square of the gradient.
            options={"maxiter": max_iter, "gtol": tol, "ftol": 1e4 * tol**2},
        )
        if not np.isfinite(result.fun):
            raise FloatingPointError(
                "The objective became NaN or infinite. Check the features and the parameters of "
                "the loss for huge values, or raise l2."
            )
        self.set(result.x)
        self.head.zero_grad()  # a fitted model holds no gradient
        # 1 is the limit of iterations; a line search that finds no lower value ends at rounding.
        return bool(result.status != 1)

    def set(self, values: npt.NDArray[np.float64]) -> None:
        """Give the head these parameters."""
        parts = torch.from_numpy(values).split([item.numel() for item in self.trained])
        with torch.no_grad():
            for item, part in zip(self.trained, parts, strict=True):
                item.copy_(part.view_as(item))

    def _value_and_gradient(
        self, values: npt.NDArray[np.float64], progress: float
    ) -> tuple[float, npt.NDArray[np.float64]]:
        self.set(values)
        self.head.zero_grad()
        total = 0.0
        for inputs, targets, fraction in self.parts:
            # In double precision, or rounding of the sum would end the line search early.
            loss = fraction @ self.head.loss(inputs, targets, progress).double()
            loss.backward()
            total += loss.item()
        penalty = self.penalty / 2 * self.head.linear.weight.double().square().sum()
        penalty.backward()
        gradient = torch.cat([cast(Tensor, item.grad).flatten() for item in self.trained])
        return total + penalty.item(), gradient.double().numpy()
