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
from .taxonomy import Taxonomy

# Pairs of steps and gradients that L-BFGS remembers: with ten, as in scipy's, a fit takes a sixth
# more iterations.
_MEMORY = 25

# The penalties that validation images chose, and the number of features they were chosen with.
_L2, _FEATURES_OF_L2 = {"uniform": 0.003, "tree": 0.02}, 1280

# How many times stronger a penalty shaped by the tree is at the deepest decisions than at the root,
# and the number of children beyond which it falls no further: no study had wider nodes.
_GROWTH = 3.0
_MOST_CHILDREN = 30

# How far the gradient of a new head must fall below its largest before a fit without a tolerance of
# its own may stop. Where all classes are alike rare it begins below any fixed tolerance.
LEAST_FALL = 50.0

L2_SHAPES = tuple(_L2)


def default_l2(n_features: int, shape: str = "uniform") -> float:
    """Return the penalty of a fit that names none.

    Scaled features have a mean square of one, so the same change of a weight moves a read-out of
    many features further than one of few. With few features the penalty stays what it is.

    Parameters
    ----------
    n_features : int
        Length of the feature.
    shape : {"uniform", "tree"}, default="uniform"
        As in :func:`row_penalties`.

    Examples
    --------
    >>> default_l2(64), default_l2(2560)
    (0.003, 0.006)
    """
    return _L2[shape] * max(1.0, n_features / _FEATURES_OF_L2)


def row_penalties(taxonomy: Taxonomy, shape: str) -> npt.NDArray[np.float64] | None:
    """Return the share of the penalty that falls on each row of a read-out with one per decision.

    A node of two children parts its samples at half the price of one row, and a top decision moves
    all leaves below it at the price of one: with equal penalties those fit the training images
    too well. Shaped by the tree, the penalty of a row is divided by the number of children that its
    node decides between, 30 at most, and grows by one factor from the first decision to the last.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    shape : {"uniform", "tree"}
        Whether all rows share alike, or as the tree has it.

    Returns
    -------
    shares : ndarray of shape (n_decisions,) or None
        None means 1 for all.

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.solvers import row_penalties
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None, "fox": None})
    >>> row_penalties(tree, "tree").round(3)
    array([0.192, 0.192, 0.192, 0.866, 0.866])
    """
    if shape == "uniform":
        return None
    n_children = np.diff(taxonomy.decision_offsets)[taxonomy.decision_nodes]
    share = 1 / np.minimum(n_children, _MOST_CHILDREN)
    n_above = _decisions_above(taxonomy)
    if n_above.max(initial=0) > 0:
        share = share * _GROWTH ** (n_above / n_above.max() - 0.5)
    return share


def _decisions_above(taxonomy: Taxonomy) -> npt.NDArray[np.int64]:
    """Count the decisions above each decision; a node with one child takes none."""
    n_above = np.zeros(taxonomy.n_decisions, dtype=np.int64)
    above = taxonomy.parent_decision
    while (exists := above >= 0).any():
        n_above += exists
        above = np.where(exists, taxonomy.parent_decision[above], -1)
    return n_above


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
    row_shares: npt.NDArray[np.float64] | None = None,
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
    l2 : float
        Strength of the penalty.
    row_shares : ndarray of shape (n_rows,), default=None
        Share of each row in it; None means 1 for all.
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
    share = torch.from_numpy(weights[counted] / weights[counted].sum())
    of_rows = None if row_shares is None else torch.from_numpy(row_shares)

    def objective() -> Tensor:
        # In double precision, or rounding of the sum would end the line search early.
        data_term = (share * head.loss(inputs, prepared, np.inf).double()).sum()
        squares = head.linear.weight.square()
        if of_rows is None:
            return data_term + l2 / 2 * squares.sum(dtype=torch.float64)
        return data_term + l2 / 2 * (squares.sum(1, dtype=torch.float64) @ of_rows)

    parameters = [parameter for parameter in head.parameters() if parameter.requires_grad]
    is_new = not bool(head.linear.weight.any())
    descent = _Descent(parameters, objective, tol, least_fall if is_new else 0.0)
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
    ) -> None:
        self.parameters = parameters
        self.objective = objective
        self.tol = tol
        self.least_fall = least_fall
        self.steepest = 0.0
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
            return -self.gradient / max(float(self.gradient.abs().sum()), 1.0)
        direction, shares = -self.gradient, []
        for step, change in reversed(self.memory):
            shares.append(float(step @ direction) / float(step @ change))
            direction = direction - shares[-1] * change
        step, change = self.memory[-1]
        direction = direction * (float(step @ change) / float(change @ change))
        for (step, change), share in zip(self.memory, reversed(shares), strict=True):
            rest = share - float(change @ direction) / float(step @ change)
            direction = direction + rest * step
        return direction

    def _is_flat(self) -> bool:
        steepness = float(self.gradient.abs().max())
        self.steepest = max(self.steepest, steepness)
        return steepness <= self.tol and steepness * self.least_fall <= self.steepest

    def _evaluate(self, point: Tensor) -> tuple[float, Tensor]:
        vector_to_parameters(point, self.parameters)
        loss = self.objective()
        gradients = torch.autograd.grad(loss, self.parameters)
        return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])
