"""Check what an opinion is made from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..taxonomy.taxonomy import Taxonomy
from .tree_walk import FloatArray, Matrix

# Far from overflow even when the evidence of a million children is added up.
_MOST_EVIDENCE = 1e300


def check_evidence(tree: Taxonomy, evidence: npt.ArrayLike, copy: bool) -> FloatArray:
    """Return the evidence as a float32 or float64 matrix, or say what is wrong with it."""
    array = np.asarray(evidence)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"evidence must hold real numbers, got an array of {array.dtype}.")
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != tree.n_decisions:
        raise ValueError(
            f"evidence must have shape (n_samples, {tree.n_decisions}), one column for each of "
            f"tree.decisions, got shape {np.shape(evidence)}."
        )
    dtype = array.dtype if array.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    array = np.array(array, dtype=dtype, order="C", copy=True if copy else None)
    most = min(_MOST_EVIDENCE, float(np.finfo(dtype).max))
    # Written so that NaN, which compares false, does not pass.
    if array.size and not (array.min() >= 0 and array.max() <= most):
        wrong = ~((array >= 0) & (array <= most))
        row, column = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"evidence must be finite and not negative, got {array[row, column]} in row {row} for "
            f"the decision {tree.decisions[column]} ({np.count_nonzero(wrong)} such value(s)). "
            "Pass it through softplus, or look for what made it NaN or infinite."
        )
    return array


def check_base_rate(tree: Taxonomy, base_rate: npt.ArrayLike | None) -> Matrix:
    """Return one base rate per decision, each node's summing to one."""
    fan_out = np.diff(tree.decision_offsets)
    if base_rate is None:
        return np.repeat(1 / fan_out, fan_out)
    array = np.array(base_rate, dtype=np.float64)
    if array.shape != (tree.n_decisions,):
        raise ValueError(
            f"base_rate must have shape ({tree.n_decisions},), one value for each of "
            f"tree.decisions, got shape {array.shape}."
        )
    if not (array.min() >= 0 and array.max() < np.inf):
        raise ValueError(
            f"base_rate must be finite and not negative, got values from {array.min()} to "
            f"{array.max()}."
        )
    total = np.add.reduceat(array, tree.decision_offsets[:-1])
    wrong = np.flatnonzero(np.abs(total - 1) > 1e-5)
    if wrong.size:
        raise ValueError(
            "base_rate must sum to one over the children of each branching node, got "
            f"{total[wrong[0]]:.6g} at {tree.branching[wrong[0]]} ({wrong.size} such node(s)). "
            "Divide each node's values by their sum."
        )
    # What float32 leaves is taken away, so that probabilities sum to one.
    return np.asarray(array / np.repeat(total, fan_out))


def check_prior_weight(tree: Taxonomy, prior_weight: npt.ArrayLike | None) -> Matrix:
    """Return one prior weight per branching node."""
    if prior_weight is None:
        return np.diff(tree.decision_offsets).astype(np.float64)
    array = np.asarray(prior_weight, dtype=np.float64)
    if array.shape not in ((), (tree.n_branching,)):
        raise ValueError(
            f"prior_weight must be a number or have shape ({tree.n_branching},), one value for "
            f"each of tree.branching, got shape {array.shape}."
        )
    if not (array.min() > 0 and array.max() <= _MOST_EVIDENCE):
        raise ValueError(
            f"prior_weight must be finite and greater than zero, got {array.min()} to "
            f"{array.max()}. Without a prior, no evidence would leave nothing to divide by."
        )
    return np.array(np.broadcast_to(array, tree.n_branching))
