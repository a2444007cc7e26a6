"""Check evidence and its prior, and turn them into the numbers of an opinion, block by block.

Samples are taken in blocks that fit the cache, in float64 whatever the dtype of the evidence: a
path may hold a thousand factors.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.sums import combine_along_paths, path_steps
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import Tree

FloatArray = npt.NDArray[Any]
Matrix = npt.NDArray[np.float64]

# A few blocks of this many numbers stay in a second-level cache; but each depth costs a handful
# of numpy calls, which must not outweigh the numbers they work on.
_BLOCK_SIZE = 1 << 15
_BLOCK_SIZE_PER_LEVEL = 1 << 12  # from nine depths on
# Far from overflow even when the evidence of a million children is added up.
_MOST_EVIDENCE = 1e300


class TreeWalk:
    """Strength, conditional probability and products along the paths of one tree and prior.

    Parameters
    ----------
    tree : Tree
        The tree.
    base_rate : ndarray of shape (n_decisions,)
        Sums to one at each branching node.
    prior_weight : ndarray of shape (n_branching,)
        Positive.
    """

    def __init__(self, tree: Tree, base_rate: Matrix, prior_weight: Matrix) -> None:
        self.prior_weight = prior_weight
        self.prior = prior_weight[tree.decision_nodes] * base_rate
        self.first_decisions = tree.decision_offsets[:-1]
        self.nodes = tree.decision_nodes
        self.steps = path_steps(tree)

    def blocks(self, evidence: FloatArray) -> Iterator[tuple[slice, Matrix, Matrix]]:
        """Yield some samples, their evidence and their strength S at each branching node."""
        n_samples, n_decisions = evidence.shape
        size = max(_BLOCK_SIZE, _BLOCK_SIZE_PER_LEVEL * len(self.steps))
        step = max(1, size // n_decisions)
        for low in range(0, n_samples, step):
            some = slice(low, min(low + step, n_samples))
            block = evidence[some].astype(np.float64, order="C", copy=False)
            yield some, block, self.strength(block)

    def strength(self, evidence: Matrix) -> Matrix:
        """Return S, the evidence and the prior weight together, at each branching node."""
        # The prior weight is added as a whole: b and u then sum to one even if W·a is rounded.
        total = np.add.reduceat(evidence, self.first_decisions, axis=1)
        total += self.prior_weight
        return total

    def to_children(self, values: Matrix) -> Matrix:
        """Repeat the value of each branching node for its children."""
        return values.take(self.nodes, axis=1)

    def belief(self, evidence: Matrix, strength: Matrix) -> Matrix:
        """Return b = e / S of each decision."""
        return evidence / self.to_children(strength)

    def conditional(self, evidence: Matrix, strength: Matrix) -> Matrix:
        """Return p = α / S of each decision."""
        alpha = evidence + self.prior
        # Dividing by S, not multiplying by 1/S: no quotient is then above one by rounding.
        alpha /= self.to_children(strength)
        return alpha

    def multiply(self, factors: Matrix) -> Matrix:
        """Replace each decision's factor by the product on the path to it, in place."""
        product: Matrix = combine_along_paths(factors, self.steps, operator.mul)
        return product

    def add(self, terms: Matrix) -> Matrix:
        """Replace each decision's term by the sum on the path to it, in place."""
        total: Matrix = combine_along_paths(terms, self.steps)
        return total


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
    wrong = np.flatnonzero(np.abs(total - 1) > 1e-5)  # what float32 sums of many children leave
    if wrong.size:
        raise ValueError(
            "base_rate must sum to one over the children of each branching node, got "
            f"{total[wrong[0]]:.6g} at {tree.branching[wrong[0]]} ({wrong.size} such node(s)). "
            "Divide each node's values by their sum."
        )
    # What rounding leaves is taken away, so that probabilities sum to one.
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
