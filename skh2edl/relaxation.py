"""The length of a read-out's rows: once their directions are found, with less of the penalty.

A strong penalty finds the better directions where samples are few, and makes rows too short. As the
relaxed lasso does, a second fit moves what the first one shrank, and nothing else: the one length
of all rows together, and the biases, which have no penalty. It is best fitted to what the rows say
of samples that they were not fitted to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.utils import skip_init

from .heads import Targets, TreeHead
from .leaving_out import LeavingOut

# Where this fit stops: the amount of evidence hangs on gradients as small as the weight of
# misleading evidence, and what a step gains less than this hardly a score shows. Of fewer samples
# than these the optimum is flat, and a step costs nothing: there it goes on for less.
_TOLERANCE, _MAX_ITER, _LEAST_GAIN, _FEW_SAMPLES = 1e-6, 100, 1e-5, 1000.0
# How many times longer or shorter rows become at most.
_LONGEST = 1000.0
# How little the loss is taken to bend along a bias.
_LEAST_CURVATURE = 1e-6
# How far a bias is expected to move, as a standard deviation: what validation images chose.
_SPREAD_OF_BIAS = 2.0
# By how much a step raises all read-outs together, as the loss says little of how much evidence is,
# and what part of one is allowed: where there is no evidence at all, no slope leads back.
_STEP_OF_AMOUNT, _MOST_OF_A_STEP = 100.0, 0.06
# What is left of the penalty, of the part that is left for the samples as they are, where samples
# are left out: enough that the length stays finite where nothing is mistaken.
_LEFT_WITHOUT = 0.1
# How many times as long rows become at most as the samples ask for that are not left out; and no
# longer at all if this share of them has copies: what is new in a new scene, such as another shop,
# those left out need not have.
_TIMES_WITHIN, _SHARE_IN_SCENES = 1.125, 0.05


def relax_rows(
    head: TreeHead,
    inputs: Tensor,
    targets: Targets,
    share: Tensor,
    squares: float,
    n_samples: float = np.inf,
    bends: Tensor | None = None,
    leaving_out: LeavingOut | None = None,
) -> float:
    """Minimise the mean loss plus a penalty over the length of all rows and the biases.

    Biases have a price of their own, as if they were expected to stay near where they are; to raise
    them all together has none, because how much evidence there is depends on it.
    The directions of the rows and the ratios of their lengths stay. After an interruption, and
    where the loss is not finite, the head is what it was.

    Parameters
    ----------
    head : TreeHead
        Whose rows and biases are fitted in place.
    inputs : Tensor of shape (n_samples, n_features)
        What the read-out gets.
    targets : Targets
        What the head made of the target nodes.
    share : Tensor of float64 of shape (n_samples,)
        Weights of the samples, which sum to 1.
    squares : float
        What the penalty of the rows as they are is, twice.
    n_samples : float, default=inf
        How many samples there are: the fewer, the more biases stay where they are.
    bends : Tensor of shape (n_rows,), default=None
        How much the loss bends along each bias, roughly: says how far a step goes. Not needed where
        samples are left out.
    leaving_out : LeavingOut, default=None
        How read-outs change when each sample is left out; None fits the samples as they are, which
        otherwise only say how long rows may become.

    Returns
    -------
    length : float
        By what the rows were multiplied.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skh2edl import Taxonomy
    >>> from skh2edl.heads import SoftmaxHead
    >>> from skh2edl.relaxation import relax_rows
    >>> tree = Taxonomy.flat(["lynx", "puma"])
    >>> head = SoftmaxHead(tree, 1)
    >>> _ = torch.nn.init.eye_(head.linear.weight)
    >>> X = torch.tensor([[1.0], [1.0], [1.0], [0.0], [0.0], [0.0]])
    >>> targets = head.prepare(tree.resolve(["lynx", "lynx", "puma", "puma", "puma", "lynx"]))
    >>> length = relax_rows(head, X, targets, torch.full((6,), 1 / 6, dtype=float), squares=0.0)
    >>> round(length, 3)  # 2 log 2: as many times as often, without a penalty
    1.386
    """
    linear = head.linear
    rows, start = linear.weight.detach(), linear.bias.detach().double().numpy()
    # Read-outs are fewer numbers than features, as a rule.
    by_read_outs = leaving_out is not None or rows.shape[0] <= rows.shape[1]
    unit = torch.eye(rows.shape[0], dtype=rows.dtype) if by_read_outs else rows
    with torch.no_grad():
        features = inputs @ rows.T if by_read_outs else inputs
    without = None
    if leaving_out is not None:
        slopes = _slopes(head, features, unit, targets)
        without = features + leaving_out.changes(slopes, rows)
        bends = share.to(slopes) @ slopes.square()
    price = 1 / (n_samples * _SPREAD_OF_BIAS**2)
    least_gain = _LEAST_GAIN * min(1.0, n_samples / _FEW_SAMPLES)
    # A class without samples does not bend at all.
    bent = 1.0 if bends is None else np.maximum(bends.double().numpy(), _LEAST_CURVATURE)
    curvature = price + bent
    alone = np.broadcast_to(1 / np.sqrt(curvature), start.shape)
    together = _STEP_OF_AMOUNT * head.common_bias().double().numpy()

    def place(at: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        return float(np.exp(at[0])), start + at[1] * together + at[2:] * alone

    def fit(features: Tensor, squares: float, longest: float, n_moved: int) -> Any:
        """Move the first of: the length, what all biases have in common, each bias."""

        def objective(some: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            at = np.concatenate([some, np.zeros(2 + alone.size - n_moved)])
            length, moved = place(at)
            with torch.no_grad():
                torch.mul(unit, length, out=stand_in.weight)
                stand_in.bias.copy_(torch.from_numpy(moved))
            loss = share @ head.loss(features, targets, np.inf).double()
            of_rows, of_bias = torch.autograd.grad(loss, [stand_in.weight, stand_in.bias])
            slope = float((of_rows * unit).sum(dtype=torch.float64)) * length + squares * length**2
            each, apart = of_bias.double().numpy(), at[2:] * alone
            gradient = np.concatenate([[slope, each @ together], (each + price * apart) * alone])
            penalty = squares * length**2 + price * float(apart @ apart)
            return loss.item() + penalty / 2, gradient[:n_moved]

        limits = [(-np.log(_LONGEST), np.log(longest)), (-_MOST_OF_A_STEP, _MOST_OF_A_STEP)]
        return minimize(
            objective,
            np.minimum(np.zeros(n_moved), [np.log(longest), *[0.0] * (n_moved - 1)]),
            jac=True,
            method="L-BFGS-B",
            bounds=limits + [(None, None)] * (n_moved - 2),
            options={"maxiter": _MAX_ITER, "gtol": _TOLERANCE, "ftol": least_gain},
        )

    with _other_rows(head, unit) as stand_in:
        if leaving_out is None or without is None:
            found = fit(features, squares, _LONGEST, 2 + alone.size)
        else:
            longest = float(np.exp(fit(features, squares, _LONGEST, 2).x[0]))
            if leaving_out.share_with_copies < _SHARE_IN_SCENES:
                longest = min(_TIMES_WITHIN * longest, _LONGEST)
            found = fit(without, _LEFT_WITHOUT * squares, longest, 2 + alone.size)
    if not np.isfinite(found.fun):
        return 1.0
    length, moved = place(np.asarray(found.x))
    with torch.no_grad():
        linear.weight.mul_(length)
        linear.bias.copy_(torch.from_numpy(moved))
    return length


def _slopes(head: TreeHead, read_outs: Tensor, unit: Tensor, targets: Targets) -> Tensor:
    """Return the slope of each sample's loss in its read-outs."""
    read_outs = read_outs.detach().requires_grad_()
    with _other_rows(head, unit) as stand_in:
        with torch.no_grad():
            stand_in.weight.copy_(unit)
        (slopes,) = torch.autograd.grad(head.loss(read_outs, targets, np.inf).sum(), [read_outs])
    return slopes


@contextmanager
def _other_rows(head: TreeHead, unit: Tensor) -> Iterator[nn.Linear]:
    """Give the head a read-out with other rows for a while, and the biases it has."""
    linear = head.linear
    # Without the random start that torch would draw.
    stand_in = skip_init(nn.Linear, unit.shape[1], unit.shape[0], dtype=unit.dtype)
    with torch.no_grad():
        stand_in.bias.copy_(linear.bias)
    head.linear = stand_in
    try:
        yield stand_in
    finally:
        head.linear = linear
