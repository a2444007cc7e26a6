"""Turn evidence into the numbers of an opinion, block by block.

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
from ..taxonomy.tree import Tree

FloatArray = npt.NDArray[Any]
Matrix = npt.NDArray[np.float64]

# A few blocks of this many numbers stay in a second-level cache; but each depth costs a handful
# of numpy calls, which must not outweigh the numbers they work on.
_BLOCK_SIZE = 1 << 15
_BLOCK_SIZE_PER_LEVEL = 1 << 12


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
