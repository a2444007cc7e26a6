"""Walk evidence down a tree, for many samples at once.

Decisions are numbered breadth first, so the decisions of one depth are one slice of columns and
those before them on the way lie to the left. Samples are taken in blocks that fit the cache, in
float64 whatever the dtype of the evidence: a path may hold a thousand factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.tree import IntArray, Tree, concatenate_ranges

FloatArray = npt.NDArray[Any]
Matrix = npt.NDArray[np.float64]

# A few blocks of this many numbers stay in a second-level cache; but each depth costs a handful
# of numpy calls, which must not outweigh the numbers they work on.
_BLOCK_SIZE = 1 << 15
_BLOCK_SIZE_PER_LEVEL = 1 << 12

# Starting a segment of numpy's reduceat costs about as much as gathering this many columns.
_SHORT_SEGMENT = 6


class SegmentSum:
    """Add up segments of columns.

    Parameters
    ----------
    offsets : ndarray of shape (n_segments + 1,)
        Segment s holds the columns ``offsets[s]:offsets[s + 1]``; none is empty.

    Examples
    --------
    >>> SegmentSum(np.array([0, 2, 3, 6]))(np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    array([[ 3.,  3., 15.]])
    """

    def __init__(self, offsets: IntArray) -> None:
        lengths = np.diff(offsets)
        short = np.flatnonzero(lengths <= _SHORT_SEGMENT)
        long = np.flatnonzero(lengths > _SHORT_SEGMENT)
        # Longest first: the segments that have a k-th column are then the first so many.
        short = short[np.argsort(-lengths[short], kind="stable")]
        self.columns = [
            offsets[short[lengths[short] > k]] + k for k in range(lengths[short].max(initial=0))
        ]
        self.long_columns = concatenate_ranges(offsets[long], lengths[long])
        self.long_starts = np.cumsum(lengths[long]) - lengths[long]
        self.order = np.argsort(np.concatenate([short, long]))
        self.starts = offsets[:-1]
        self.mostly_long = _SHORT_SEGMENT * short.size < self.long_columns.size

    def __call__(self, values: Matrix) -> Matrix:
        """Return the sums, one column per segment."""
        if self.mostly_long:
            return np.add.reduceat(values, self.starts, axis=1)
        total = values.take(self.columns[0], axis=1)
        for columns in self.columns[1:]:
            total[:, : columns.size] += values.take(columns, axis=1)
        if self.long_columns.size:
            members = values.take(self.long_columns, axis=1)
            long_total = np.add.reduceat(members, self.long_starts, axis=1)
            total = np.concatenate([total, long_total], axis=1)
        return total.take(self.order, axis=1)


class Descent:
    """How to combine values along every way down one tree.

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
        self.sum_children = SegmentSum(tree.decision_offsets)
        self.nodes = tree.decision_nodes
        self.last_decision = tree.last_decision
        self.leaf_decisions = tree.last_decision[tree.leaf_nodes]
        # The first branching node is above all others: no decision leads to it.
        self.branching_decisions = tree.last_decision[tree.branching_nodes[1:]]
        depths = tree.depths[tree.branching_nodes[tree.decision_nodes]]
        bounds = [*np.flatnonzero(np.diff(depths, prepend=-1)).tolist(), depths.size]
        self.levels = [
            (low, high, tree.parent_decision[low:high]) for low, high in pairwise(bounds[1:])
        ]

    def blocks(self, evidence: FloatArray) -> Iterator[tuple[slice, Matrix, Matrix]]:
        """Yield rows, their evidence and their Dirichlet strength S at each decision's node."""
        n_samples, n_decisions = evidence.shape
        size = max(_BLOCK_SIZE, _BLOCK_SIZE_PER_LEVEL * len(self.levels))
        step = max(1, size // n_decisions)
        for low in range(0, n_samples, step):
            rows = slice(low, min(low + step, n_samples))
            block = evidence[rows].astype(np.float64, order="C", copy=False)
            yield rows, block, self.strength(block)

    def strength(self, evidence: Matrix) -> Matrix:
        """Return S, the evidence and the prior weight together, at each branching node."""
        # The prior weight is added as a whole: b and u then sum to one even if W·a is rounded.
        total = self.sum_children(evidence)
        total += self.prior_weight
        return total

    def spread(self, values: Matrix) -> Matrix:
        """Repeat a value per branching node for each of its children."""
        return values.take(self.nodes, axis=1)

    def conditional(self, evidence: Matrix, strength: Matrix) -> Matrix:
        """Return p = α / S of each decision."""
        alpha = evidence + self.prior
        # Dividing by S, not multiplying by 1/S: no quotient is then above one by rounding.
        alpha /= self.spread(strength)
        return alpha

    def multiply(self, factors: Matrix) -> Matrix:
        """Replace each decision's factor by the product on the way to it, in place."""
        for low, high, parents in self.levels:
            factors[:, low:high] *= factors.take(parents, axis=1)
        return factors

    def add(self, terms: Matrix) -> Matrix:
        """Replace each decision's term by the sum on the way to it, in place."""
        for low, high, parents in self.levels:
            terms[:, low:high] += terms.take(parents, axis=1)
        return terms
