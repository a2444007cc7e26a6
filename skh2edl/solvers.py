"""Fit a head to fixed features with a full-batch quasi-Newton method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ._threads import one_thread_for_numpy
from .curvature import Curvature, share_variances
from .heads import TreeHead
from .leaving_out import LeavingOut
from .network import Network
from .penalties import count_features, default_l2, row_penalties, samples_of_classes
from .penalty_metric import MOST_FEATURES, WithinMetric
from .quasi_newton import QuasiNewton
from .relaxation import relax_rows

# How far the gradient of a new head must fall below its largest before a fit without a tolerance of
# its own may stop. Where all classes are alike rare it begins below any fixed tolerance.
LEAST_FALL = 50.0
# Beyond so many read-outs of all samples together none is left out to find the length of rows.
MOST_READ_OUTS = 2**26
# And so with more rows than this, and than features.
MOST_ROWS = 1024
# And so where more than this part of the penalty's pull is not balanced by the samples.
MOST_OFF_BALANCE = 0.5


@one_thread_for_numpy()
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


@one_thread_for_numpy()
def minimize_head(
    network: Network,
    features: npt.NDArray[Any],
    targets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    *,
    groups: npt.NDArray[np.int64] | None = None,
    l2: float | None = None,
    l2_shape: str = "uniform",
    l2_metric: str = "identity",
    l2_relaxation: float = 1.0,
    max_iter: int,
    tol: float,
    least_fall: float = 0.0,
    verbose: int = 0,
) -> list[float]:
    """Minimise the weighted mean loss plus an L2 penalty of the read-out with L-BFGS.

    The objective is ``sum w loss / sum w + l2 / 2 sum share |row|^2``, with the squares of rows by
    the metric; biases are free. With less of the penalty the length of all rows is then found once
    more. It has no learning rate, moves no generator of the caller's, and ends with the same bits
    every time.

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
    groups : ndarray of int64 of shape (n_samples,), default=None
        What each sample belongs to, such as a patient; None looks for copies instead.
    l2 : float, default=None
        Strength of the penalty; None means that of :func:`default_l2`.
    l2_shape : {"uniform", "separation"}, default="uniform"
        Share of each row in it: 1, or that of :func:`row_penalties`.
    l2_metric : {"identity", "within"}, default="identity"
        What the square of a row is: that of its weights, or the one of :class:`WithinMetric`.
    l2_relaxation : float, default=1.0
        Part of the penalty that is left for :func:`relax_rows`; 1 is the fit as it is.
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
    if l2_metric == "within" and inputs.shape[1] <= MOST_FEATURES and bool(inputs.any()):
        metric = WithinMetric(head.segments.taxonomy, inputs, nodes, weights)
        inputs = metric.inputs
    # Whole numbers count like repeated samples; where all weights are small they say how much the
    # samples differ (Kish's effective number), not that there are few.
    relative = weights / weights.max()
    n_samples = max(weights.sum(), relative.sum() ** 2 / np.square(relative).sum())
    if l2 is None:
        l2 = default_l2(count_features(inputs.numpy()), n_samples, l2_shape)
    penalties = torch.full((head.linear.out_features,), l2, dtype=torch.float64)
    bends = None
    if l2_shape == "separation":
        tree = head.segments.taxonomy
        penalties = torch.from_numpy(l2 * row_penalties(tree, inputs.numpy(), nodes, weights))
        bends = torch.from_numpy(share_variances(tree, nodes, weights)).to(inputs)
    curvature = None
    if bends is not None or l2_relaxation < 1:
        of_rows = torch.zeros_like(head.linear.bias) if bends is None else bends
        curvature = Curvature(of_rows, penalties.to(inputs), inputs, torch.from_numpy(weights))

    is_new = not bool(head.linear.weight.any())
    objective = _Objective(head, inputs, nodes, weights, penalties)
    if metric is not None:
        with torch.no_grad():
            head.linear.weight.copy_(metric.rows(head.linear.weight))
    of_length = (inputs, objective.prepared, objective.share)
    before = [parameter.detach().clone() for parameter in (head.linear.weight, head.linear.bias)]
    try:
        squares = objective.squares().item()
        if l2_relaxation < 1 and not is_new and squares > 0:
            # A head that goes on is as long as the fit before left it.
            relax_rows(head, *of_length, squares, np.inf, bends)
        # The rows first: they are what curvature is known of.
        others = [each for name, each in head.named_parameters() if not name.startswith("linear.")]
        moved = [head.linear.weight, head.linear.bias, *(p for p in others if p.requires_grad)]
        known = None if bends is None else curvature
        descent = QuasiNewton(moved, objective, known, tol, least_fall if is_new else 0.0)
        descent.run(max_iter, verbose)
        if not np.isfinite(descent.values[-1]):
            raise FloatingPointError(
                "The objective became NaN or infinite. Check the features for huge values, or "
                "raise l2."
            )
        squares = l2_relaxation * objective.squares().item()
        # Rows that nothing shrank are as long as they should be.
        if curvature is not None and l2_relaxation < 1 and squares > 0:
            leaving_out = None
            if _can_leave_out(head, inputs, descent.gradient, penalties):
                classes = np.full(nodes.size, -1)
                rows, label = samples_of_classes(head.segments.taxonomy, nodes, weights)
                classes[rows] = label
                own = None if groups is None else groups[counted]
                parts = None if metric is None else metric.parts
                leaving_out = LeavingOut(inputs, classes, weights, curvature, own, parts)
            elif groups is not None:
                warnings.warn(
                    "groups are not used in this fit: samples are not left out where l2 is very "
                    "small, or where there are too many samples and rows. Raise l2, or leave "
                    "groups to the splitter.",
                    UserWarning,
                    stacklevel=3,
                )
            relax_rows(head, *of_length, squares, n_samples, bends, leaving_out)
    except BaseException:
        # Whatever happened, the fit before is not lost.
        if not is_new:
            with torch.no_grad():
                head.linear.weight.copy_(before[0])
                head.linear.bias.copy_(before[1])
        raise
    finally:
        if metric is not None:
            with torch.no_grad():
                head.linear.weight.copy_(metric.rows_back(head.linear.weight))
    if not descent.done:
        warnings.warn(
            f"The head did not converge in {max_iter} iterations. Raise max_iter, tol or l2.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return descent.values[1:] or descent.values


def _can_leave_out(head: TreeHead, inputs: Tensor, gradient: Tensor, penalties: Tensor) -> bool:
    """Tell whether what a sample adds to the rows is known, and the read-outs are not too many."""
    n_rows, n_features = head.linear.weight.shape
    if len(inputs) * n_rows > MOST_READ_OUTS or n_rows > max(MOST_ROWS, n_features):
        return False
    # Rows are the sum of what samples add where the penalty balances it; with hardly any a fit
    # stops long before.
    pull = penalties.to(inputs)[:, None] * head.linear.weight.detach()
    left = gradient[: n_rows * n_features]
    return bool(left.norm() <= MOST_OFF_BALANCE * pull.norm())


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
        return self.share @ losses + self.squares() / 2

    def squares(self) -> Tensor:
        """Return the squares of the rows, each times its penalty."""
        squares = self.head.linear.weight.square().sum(1, dtype=torch.float64)
        return (self.penalties * squares).sum()
