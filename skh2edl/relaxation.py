"""The length of a read-out's rows: once their directions are found, with less of the penalty.

A strong penalty finds the better directions where samples are few, and makes rows too short. As the
relaxed lasso does, a second fit moves what the first one shrank, and nothing else: the one length
of all rows together, and the biases, which have no penalty.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.utils import skip_init

from .heads import Targets, TreeHead

# Where this fit stops: the amount of evidence hangs on gradients as small as the weight of
# misleading evidence, and single precision cannot tell apart values closer than the last.
_TOLERANCE, _MAX_ITER, _LEAST_GAIN = 1e-6, 30, 1e-8
# How many times longer or shorter rows become at most.
_LONGEST = 1000.0
# The part of p (1 - p) that a bias is taken to bend by, and how little it bends at least.
_PART_OF_VARIANCE, _LEAST_CURVATURE = 0.3, 1e-4
# By how much a step raises all read-outs together, as the loss says little of how much evidence is,
# and how many such steps are allowed: where there is no evidence at all, no slope leads back.
_STEP_OF_AMOUNT, _MOST_STEPS = 3.0, 2.0


def relax_rows(
    head: TreeHead,
    inputs: Tensor,
    targets: Targets,
    share: Tensor,
    squares: float,
    bends: npt.NDArray[np.float64] | None = None,
) -> float:
    """Minimise the mean loss plus a penalty over the length of all rows and the biases.

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
    bends : ndarray of shape (n_rows,), default=None
        p (1 - p) for the share p of the samples below each row, if it has one: says how far a step
        of its bias goes.

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
    rows, bias = linear.weight.detach(), linear.bias.detach()
    # Read-outs are fewer numbers than features, as a rule.
    is_short = rows.shape[0] <= rows.shape[1]
    with torch.no_grad():
        features = inputs @ rows.T if is_short else inputs
    unit = torch.eye(rows.shape[0], dtype=rows.dtype) if is_short else rows
    together = _STEP_OF_AMOUNT * head.common_bias().double().numpy()
    alone = np.ones(together.size)
    if bends is not None:
        alone = 1 / np.sqrt(np.maximum(_PART_OF_VARIANCE * bends, _LEAST_CURVATURE))
    limits = (float(np.log(_LONGEST)), _MOST_STEPS)
    # Without the random start that torch would draw.
    stand_in = skip_init(nn.Linear, unit.shape[1], unit.shape[0], dtype=rows.dtype)
    start = bias.double().numpy()

    def place(at: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        return float(np.exp(at[0])), start + at[1] * together + at[2:] * alone

    def objective(at: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        length, moved = place(at)
        with torch.no_grad():
            torch.mul(unit, length, out=stand_in.weight)
            stand_in.bias.copy_(torch.from_numpy(moved))
        loss = share @ head.loss(features, targets, np.inf).double()
        of_rows, of_bias = torch.autograd.grad(loss, [stand_in.weight, stand_in.bias])
        slope = float((of_rows * unit).sum(dtype=torch.float64)) * length + squares * length**2
        each = of_bias.double().numpy()
        gradient = np.concatenate([[slope, each @ together], each * alone])
        return loss.item() + squares * length**2 / 2, gradient

    head.linear = stand_in
    try:
        found = minimize(
            objective,
            np.zeros(2 + alone.size),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-most, most) for most in limits] + [(None, None)] * alone.size,
            options={"maxiter": _MAX_ITER, "gtol": _TOLERANCE, "ftol": _LEAST_GAIN},
        )
    finally:
        head.linear = linear
    if not np.isfinite(found.fun):
        return 1.0
    length, moved = place(found.x)
    with torch.no_grad():
        linear.weight.mul_(length)
        linear.bias.copy_(torch.from_numpy(moved))
    return length
