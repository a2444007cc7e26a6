"""Fit a head to fixed features with a full-batch quasi-Newton method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from .network import Network


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
    l2: float,
    max_iter: int,
    tol: float,
    verbose: int = 0,
) -> list[float]:
    """Minimise the weighted mean loss plus an L2 penalty of the read-out with L-BFGS.

    The objective is ``sum w loss / sum w + l2 / 2 |weight|^2``; biases are free. It has no
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
    l2 : float
        Strength of the penalty.
    max_iter : int
        Iterations at most.
    tol : float
        Largest component of the gradient at which to stop.
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
    share = torch.from_numpy(weights[counted] / weights[counted].sum())
    parameters = [parameter for parameter in head.parameters() if parameter.requires_grad]
    penalty = [float(l2) if parameter is head.linear.weight else 0.0 for parameter in parameters]

    def objective(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        _assign(parameters, flat)
        # In double precision, or rounding of the sum would end the line search early.
        loss = (share * head.loss(inputs, prepared, np.inf).double()).sum()
        gradients = torch.autograd.grad(loss, parameters)
        value, columns = float(loss.detach()), []
        for parameter, gradient, strength in zip(parameters, gradients, penalty, strict=True):
            weight = parameter.detach()
            if strength:
                value += strength / 2 * float(weight.square().sum(dtype=torch.float64))
                gradient = gradient + strength * weight
            columns.append(gradient.double().flatten())
        return value, torch.cat(columns).numpy()

    values: list[float] = []
    with tqdm(total=max_iter, disable=verbose <= 0, unit="iteration") as bar:

        def note(intermediate_result: Any) -> None:
            values.append(float(intermediate_result.fun))
            bar.update()
            bar.set_postfix(objective=f"{values[-1]:.5g}")

        start = torch.cat([parameter.detach().double().flatten() for parameter in parameters])
        result = minimize(
            objective,
            start.numpy(),
            jac=True,
            method="L-BFGS-B",
            callback=note,
            # Single precision cannot tell apart values closer than this.
            options={
                "maxiter": max_iter,
                "gtol": tol,
                "ftol": float(torch.finfo(inputs.dtype).eps),
            },
        )
    _assign(parameters, result.x)
    if not np.isfinite(result.fun):
        raise FloatingPointError(
            "The objective became NaN or infinite. Check the features for huge values, or raise l2."
        )
    if result.status == 1:
        warnings.warn(
            f"The head did not converge in {max_iter} iterations. Raise max_iter, tol or l2.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return values or [float(result.fun)]


def _assign(parameters: list[nn.Parameter], flat: npt.NDArray[np.float64]) -> None:
    position = 0
    with torch.no_grad():
        for parameter in parameters:
            part = flat[position : position + parameter.numel()]
            parameter.copy_(torch.from_numpy(part).view_as(parameter))
            position += parameter.numel()
