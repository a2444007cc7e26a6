"""The hyper-opinion: how far down a taxonomy the evidence reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..taxonomy.labels import Label
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import read_only
from ..utils.optional import import_optional
from ..utils.validation import check_groups
from .checks import check_base_rate, check_evidence, check_prior_weight
from .explanation import OpinionRow, explain
from .tree_walk import FloatArray, Matrix, TreeWalk

_REPR_SIZE = 1_000_000


class HyperOpinion:
    """What evidence for the children of each branching node says about the leaves.

    Build one with :meth:`from_evidence`. At a branching node with evidence e, prior weight W and
    base rate a, the strength is S = Σe + W, the belief in a child b = e / S, the vacuity u = W / S
    and the conditional probability p = b + a·u. Two readings of these numbers are offered:

    - as a classifier: the probability of a leaf is the product of p on the path to it;
    - as a hyper-opinion: the reach m of a node is the product of b on the path to it. A leaf has
      its reach as mass, the leaf set of a branching node m·u: belief that stops there.

    For every set A of leaves ``belief(A) <= probability(A) <= plausibility(A)``. This holds by
    construction and is no confidence interval. Vacuity is the belief that is not
    committed at a node: not a probability of error, not a measure of missing data, and with W = K
    not comparable between nodes with different numbers of children.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    evidence : ndarray of shape (n_samples, n_decisions)
        Evidence for each child of each branching node, in the order of ``taxonomy.decisions``.
    base_rate : ndarray of shape (n_decisions,)
        Sums to one at each branching node.
    prior_weight : ndarray of shape (n_branching,)
        Weight W of the base rate at each branching node.
    groups : ndarray of shape (n_samples,), default=None
        What each row stands for, if it was fused from several samples.

    Notes
    -----
    Only the evidence is stored. Each of `mass`, `vacuity`, `reach`, `leaf_probability`,
    `log_leaf_probability`, `node_probability` and `conditional_probability` is computed when
    first asked for and kept: one array of its own shape, with a few blocks of samples beside it
    while it is made. They are read-only and have the dtype of the evidence (float32 or float64);
    the arithmetic is float64 for both. One number per sample, as from `belief`, is float64.

    Opinions are immutable; they can be indexed like an array (an integer gives an opinion of one
    row), iterated, compared and pickled.

    Examples
    --------
    >>> from skh2edl import HyperOpinion, Taxonomy
    >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Fokker 70": None})
    >>> [child for node, child in tree.decisions]
    [('Boeing',), ('Fokker 70',), ('Boeing', '737'), ('Boeing', '747')]
    >>> opinion = HyperOpinion.from_evidence(tree, [[16, 2, 0, 0]])
    >>> opinion.focal_sets
    ('737', '747', 'Fokker 70', (), ('Boeing',))
    >>> opinion.mass
    array([[0. , 0. , 0.1, 0.1, 0.8]])
    >>> opinion.belief("Boeing"), opinion.probability("Boeing"), opinion.plausibility("Boeing")
    (array([0.8]), array([0.85]), array([0.9]))
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        evidence: FloatArray,
        base_rate: Matrix,
        prior_weight: Matrix,
        groups: npt.NDArray[Any] | None = None,
        *,
        _walk: TreeWalk | None = None,
    ) -> None:
        self._taxonomy = taxonomy
        self._evidence = read_only(evidence.view())
        self._base_rate = read_only(base_rate.view())
        self._prior_weight = read_only(prior_weight.view())
        self._groups = None if groups is None else read_only(groups.view())
        self._walk = _walk or TreeWalk(taxonomy, base_rate, prior_weight)

    @classmethod
    def from_evidence(
        cls,
        tree: Taxonomy,
        evidence: npt.ArrayLike,
        base_rate: npt.ArrayLike | None = None,
        prior_weight: npt.ArrayLike | None = None,
        *,
        copy: bool = True,
    ) -> HyperOpinion:
        """Form the opinion that evidence expresses.

        Parameters
        ----------
        tree : Taxonomy
            The tree.
        evidence : array-like of shape (n_samples, n_decisions) or (n_decisions,)
            Evidence, zero or more, for each child of each branching node, in the order of
            ``tree.decisions``. One row may be given flat. float32 and float64 are kept.
        base_rate : array-like of shape (n_decisions,), default=None
            Prior probability of each child, summing to one at each branching node. None gives
            the children of a node equal probabilities.
        prior_weight : float or array-like of shape (n_branching,), default=None
            Weight of the prior at each branching node. None takes its number of children.
        copy : bool, default=True
            Whether to keep a copy of the evidence. Without one the array must not be changed
            afterwards.

        Returns
        -------
        opinion : HyperOpinion

        Examples
        --------
        >>> tree = Taxonomy.flat(["cat", "dog"])
        >>> HyperOpinion.from_evidence(tree, [3, 1], prior_weight=4).vacuity
        array([[0.5]])
        """
        if not isinstance(tree, Taxonomy):
            raise TypeError(f"tree must be a Taxonomy, got {type(tree).__name__}.")
        return cls(
            tree,
            check_evidence(tree, evidence, copy),
            check_base_rate(tree, base_rate),
            check_prior_weight(tree, prior_weight),
        )

    # What is stored --------------------------------------------------------------------------

    @property
    def taxonomy(self) -> Taxonomy:
        """The tree."""
        return self._taxonomy

    @property
    def evidence(self) -> FloatArray:
        """Evidence, shape (n_samples, n_decisions)."""
        return self._evidence

    @property
    def base_rate(self) -> Matrix:
        """Prior probability of each child, shape (n_decisions,)."""
        return self._base_rate

    @property
    def prior_weight(self) -> Matrix:
        """Weight of the prior at each branching node, shape (n_branching,)."""
        return self._prior_weight

    @property
    def groups(self) -> npt.NDArray[Any] | None:
        """Group that each row was fused from, shape (n_samples,); None before fusion."""
        return self._groups

    @property
    def focal_sets(self) -> tuple[Any, ...]:
        """Columns of `mass`: leaf labels in tree order, then paths of the branching nodes."""
        return self._taxonomy.leaves + self._taxonomy.branching

    # What is derived -------------------------------------------------------------------------

    def _derive(self, n_columns: int, fill: Callable[[Matrix, Matrix, Any], None]) -> FloatArray:
        """Let a function fill blocks of samples from their evidence and strength."""
        out = np.empty((len(self), n_columns), dtype=self._evidence.dtype)
        for some, evidence, strength in self._walk.blocks(self._evidence):
            fill(evidence, strength, out[some])
        return read_only(out)

    @cached_property
    def vacuity(self) -> FloatArray:
        """Belief not committed at each branching node, u = W / S, shape (n_samples, n_branching).

        Not a probability of error.
        """

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            out[:] = self._prior_weight / strength

        return self._derive(self._taxonomy.n_branching, fill)

    @cached_property
    def reach(self) -> FloatArray:
        """Belief that arrives at each branching node, shape (n_samples, n_branching)."""
        walk = self._walk

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            belief = walk.multiply(evidence / walk.to_children(strength))
            out[:, 0] = 1
            out[:, 1:] = belief.take(walk.branching_decisions, axis=1)

        return self._derive(self._taxonomy.n_branching, fill)

    @cached_property
    def mass(self) -> FloatArray:
        """Belief in exactly each focal set and nothing finer, shape (n_samples, n_focal_sets).

        A leaf has its reach, a branching node its reach times its vacuity (eq. 6 of the paper).
        """
        walk, n_leaves = self._walk, self._taxonomy.n_leaves

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            belief = walk.multiply(evidence / walk.to_children(strength))
            out[:, :n_leaves] = belief.take(walk.leaf_decisions, axis=1)
            # The first branching node has a reach of 1.
            stops = self._prior_weight / strength
            stops[:, 1:] *= belief.take(walk.branching_decisions, axis=1)
            out[:, n_leaves:] = stops

        return self._derive(n_leaves + self._taxonomy.n_branching, fill)

    @cached_property
    def conditional_probability(self) -> FloatArray:
        """Probability of each child given its node, p = b + a·u, shape (n_samples, n_decisions)."""

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            out[:] = self._walk.conditional(evidence, strength)

        return self._derive(self._taxonomy.n_decisions, fill)

    @cached_property
    def leaf_probability(self) -> FloatArray:
        """Probability of each leaf in tree order, shape (n_samples, n_leaves)."""
        walk = self._walk

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            product = walk.multiply(walk.conditional(evidence, strength))
            out[:] = product.take(walk.leaf_decisions, axis=1)

        return self._derive(self._taxonomy.n_leaves, fill)

    @cached_property
    def log_leaf_probability(self) -> FloatArray:
        """Logarithm of `leaf_probability`, right where that is too small for a float."""
        walk = self._walk

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            conditional = walk.conditional(evidence, strength)
            with np.errstate(divide="ignore"):  # a base rate of zero without evidence
                total = walk.add(np.log(conditional, out=conditional))
            out[:] = total.take(walk.leaf_decisions, axis=1)

        return self._derive(self._taxonomy.n_leaves, fill)

    @cached_property
    def node_probability(self) -> FloatArray:
        """Probability of each node of the tree, shape (n_samples, n_nodes)."""
        walk = self._walk
        above_all = walk.last_decision < 0

        def fill(evidence: Matrix, strength: Matrix, out: FloatArray) -> None:
            product = walk.multiply(walk.conditional(evidence, strength))
            out[:] = product.take(walk.last_decision, axis=1)
            out[:, above_all] = 1

        return self._derive(self._taxonomy.n_nodes, fill)

    @cached_property
    def depth_profile(self) -> Matrix:
        """Belief that stops at each depth, shape (n_samples, n_levels).

        Column d adds up the masses of the branching nodes at depth d; all columns together make
        `nonspecificity`.
        """
        tree = self._taxonomy
        stops = self.mass[:, tree.n_leaves :]
        bounds = np.searchsorted(tree.depths[tree.branching_nodes], np.arange(tree.n_levels + 1))
        profile = np.empty((len(self), tree.n_levels))
        for depth, (low, high) in enumerate(pairwise(bounds.tolist())):
            stops[:, low:high].sum(axis=1, dtype=np.float64, out=profile[:, depth])
        return read_only(profile)

    @cached_property
    def nonspecificity(self) -> Matrix:
        """Belief that reaches no leaf, U = 1 − Σ belief(leaf), shape (n_samples,)."""
        stops = self.mass[:, self._taxonomy.n_leaves :]
        return read_only(stops.sum(axis=1, dtype=np.float64))

    # Sets of leaves --------------------------------------------------------------------------

    def belief(self, A: Label | Iterable[Label]) -> Matrix:
        """Return the belief committed to a set of leaves: the masses of all focal sets inside it.

        Parameters
        ----------
        A : label or collection of labels
            A node, given by name, joined path or path tuple; or a list, set or array of labels,
            which stands for all their leaves. A tuple is a path, not a collection.

        Returns
        -------
        belief : ndarray of shape (n_samples,)

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> opinion = HyperOpinion.from_evidence(tree, [2, 4, 1, 0])
        >>> opinion.belief("cat"), opinion.belief(["lynx", "dog"])
        (array([0.25]), array([0.58333333]))
        """
        in_leaves = self._members(A)
        count = self._count_members(in_leaves)
        return self._total_mass(in_leaves, count == self._leaves_below)

    def plausibility(self, A: Label | Iterable[Label]) -> Matrix:
        """Return the belief not committed against a set: the masses of focal sets that meet it.

        Parameters
        ----------
        A : label or collection of labels
            As in :meth:`belief`.

        Returns
        -------
        plausibility : ndarray of shape (n_samples,)

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> HyperOpinion.from_evidence(tree, [2, 4, 1, 0]).plausibility("cat")
        array([0.5])
        """
        in_leaves = self._members(A)
        return self._total_mass(in_leaves, self._count_members(in_leaves) > 0)

    def probability(self, A: Label | Iterable[Label]) -> Matrix:
        """Return the probability of a set of leaves.

        Parameters
        ----------
        A : label or collection of labels
            As in :meth:`belief`.

        Returns
        -------
        probability : ndarray of shape (n_samples,)

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
        >>> HyperOpinion.from_evidence(tree, [2, 4, 1, 0]).probability("cat")
        array([0.375])
        """
        columns = np.flatnonzero(self._members(A))
        return self.leaf_probability.take(columns, axis=1).sum(axis=1, dtype=np.float64)

    def _members(self, A: Label | Iterable[Label]) -> npt.NDArray[np.bool_]:
        """Mark the leaves of a set."""
        tree = self._taxonomy
        is_collection = isinstance(A, Iterable) and not isinstance(A, (str, bytes, tuple))
        nodes = tree.resolve(list(A) if is_collection else [A])  # type: ignore[arg-type, list-item]
        # Every node covers an interval: open and close it, then add up from the left.
        edges = np.zeros(tree.n_leaves + 1, dtype=np.int64)
        np.add.at(edges, tree.leaf_start[nodes], 1)
        np.add.at(edges, tree.leaf_stop[nodes], -1)
        return np.cumsum(edges[:-1]) > 0

    def _count_members(self, in_leaves: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Count the marked leaves below each branching node."""
        tree = self._taxonomy
        counted = np.concatenate([[0], np.cumsum(in_leaves)])
        branching = tree.branching_nodes
        return counted[tree.leaf_stop[branching]] - counted[tree.leaf_start[branching]]

    @property
    def _leaves_below(self) -> npt.NDArray[np.int64]:
        tree = self._taxonomy
        return (tree.leaf_stop - tree.leaf_start)[tree.branching_nodes]

    def _total_mass(
        self, in_leaves: npt.NDArray[np.bool_], in_branching: npt.NDArray[np.bool_]
    ) -> Matrix:
        columns = np.flatnonzero(np.concatenate([in_leaves, in_branching]))
        return self.mass.take(columns, axis=1).sum(axis=1, dtype=np.float64)

    # Several samples -------------------------------------------------------------------------

    def fuse(self, groups: npt.ArrayLike, how: str = "cumulative") -> HyperOpinion:
        """Join the opinions on several samples of one subject into one opinion per group.

        Opinions with the same prior correspond one to one to their evidence. *Cumulative* fusion
        adds the evidence up: right for independent observations, such as pictures from several
        angles, because updating a Dirichlet with one and then the other adds the counts, and
        vacuity shrinks with each. *Averaging* fusion takes the mean: right for observations that
        repeat each other, such as frames of one film, which should not make the opinion more
        certain; the same opinion twice gives that opinion.

        Parameters
        ----------
        groups : array-like of shape (n_samples,)
            Group of each sample: numbers or strings.
        how : {"cumulative", "averaging"}, default="cumulative"
            How to fuse.

        Returns
        -------
        opinion : HyperOpinion
            One row per group, in sorted order; the ids are in ``opinion.groups``.

        Examples
        --------
        >>> tree = Taxonomy.flat(["cat", "dog"])
        >>> opinion = HyperOpinion.from_evidence(tree, [[3, 1], [5, 1], [0, 2]])
        >>> fused = opinion.fuse(["rex", "rex", "tom"])
        >>> fused.groups, fused.evidence
        (array(['rex', 'tom'], dtype='<U3'), array([[8., 2.],
               [0., 2.]]))
        >>> opinion.fuse(["rex", "rex", "tom"], how="averaging").evidence[0]
        array([4., 1.])
        """
        if how not in ("cumulative", "averaging"):
            raise ValueError(f"how must be 'cumulative' or 'averaging', got {how!r}.")
        ids, member_of = check_groups(groups, len(self))
        order = np.argsort(member_of, kind="stable")
        counts = np.bincount(member_of, minlength=ids.size)
        starts = np.cumsum(counts) - counts
        fused = np.add.reduceat(self._evidence[order], starts, axis=0, dtype=np.float64)
        if how == "averaging":
            fused /= counts[:, None]
        if fused.max(initial=0) <= np.finfo(self._evidence.dtype).max:
            fused = fused.astype(self._evidence.dtype, copy=False)
        return self._with_evidence(fused, ids)

    def _with_evidence(self, evidence: FloatArray, groups: npt.NDArray[Any] | None) -> HyperOpinion:
        return HyperOpinion(
            self._taxonomy,
            evidence,
            self._base_rate,
            self._prior_weight,
            groups,
            _walk=self._walk,
        )

    def __len__(self) -> int:
        return int(self._evidence.shape[0])

    def __getitem__(self, index: Any) -> HyperOpinion:
        rows = np.arange(len(self))[index]
        if rows.ndim > 1:
            raise IndexError(f"An opinion has one axis, its samples; got the index {index!r}.")
        # A slice or an integer keeps a view of the evidence, an array of rows makes a copy.
        if isinstance(index, slice):
            chosen: Any = index
        else:
            chosen = slice(int(rows), int(rows) + 1) if rows.ndim == 0 else rows
        groups = None if self._groups is None else self._groups[chosen]
        return self._with_evidence(self._evidence[chosen], groups)

    def __iter__(self) -> Iterator[HyperOpinion]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HyperOpinion):
            return NotImplemented
        if (self._groups is None) != (other._groups is None):
            return False
        return (
            self._taxonomy == other._taxonomy
            and np.array_equal(self._evidence, other._evidence)
            and np.array_equal(self._base_rate, other._base_rate)
            and np.array_equal(self._prior_weight, other._prior_weight)
            and (self._groups is None or np.array_equal(self._groups, other._groups))  # type: ignore[arg-type]
        )

    __hash__ = None  # type: ignore[assignment]

    # Without what was derived: it is cheaper to compute than to send.
    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self._taxonomy, self._evidence, self._base_rate, self._prior_weight
        return HyperOpinion, (*arguments, self._groups)

    # For people ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        tree = self._taxonomy
        what = "sample" if self._groups is None else "group"
        text = (
            f"HyperOpinion({len(self)} {what}{'' if len(self) == 1 else 's'}, "
            f"{tree.n_leaves} leaves, {tree.n_branching} branching nodes"
        )
        # Not worth a computation that takes long.
        if 0 < self._evidence.size <= _REPR_SIZE:
            text += f", mean nonspecificity {self.nonspecificity.mean():.2f}"
        return text + ")"

    def explain(self, i: int = 0) -> str:
        """Say in plain sentences how far the evidence carries and what it would choose between.

        Parameters
        ----------
        i : int, default=0
            The sample.

        Returns
        -------
        text : str

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Fokker 70": None})
        >>> print(HyperOpinion.from_evidence(tree, [97, 1, 1, 0]).explain())
        The evidence carries to Boeing (belief 0.97); below, it may be 737 or 747, leaning to 737
        (belief 0.32). 0.65 of the belief goes no further. Made to name one class, it would take 737
        (probability 0.65, most of it from the base rates) before 747 (0.33).
        """
        one = self[int(i)]
        walk = self._walk
        _, evidence, strength = next(walk.blocks(one._evidence))
        reach = walk.multiply(evidence / walk.to_children(strength))[0]
        stops = one.mass[0, self._taxonomy.n_leaves :].astype(np.float64)
        return explain(
            self._taxonomy, OpinionRow(reach, stops, one.leaf_probability[0].astype(np.float64))
        )

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per sample and focal set.

        Returns
        -------
        frame : pandas.DataFrame
            Columns `sample` (or `group` after fusion), `focal_set` (label), `depth`, `n_leaves`,
            `mass`, `belief`, `probability` and `plausibility`.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Fokker 70": None})
        >>> frame = HyperOpinion.from_evidence(tree, [[16, 2, 0, 0]]).to_frame()
        >>> print(frame[["focal_set", "mass", "belief", "probability", "plausibility"]])
           focal_set  mass  belief  probability  plausibility
        0        737   0.0     0.0        0.425           0.9
        1        747   0.0     0.0        0.425           0.9
        2  Fokker 70   0.1     0.1        0.150           0.2
        3       root   0.1     1.0        1.000           1.0
        4     Boeing   0.8     0.8        0.850           0.9
        """
        pandas = import_optional("pandas", extra="pandas")
        tree, n_samples = self._taxonomy, len(self)
        nodes = np.concatenate([tree.leaf_nodes, tree.branching_nodes])
        belief, plausibility = self._focal_bounds()
        rows = np.arange(n_samples) if self._groups is None else self._groups
        return pandas.DataFrame(
            {
                "sample" if self._groups is None else "group": np.repeat(rows, nodes.size),
                "focal_set": np.tile(np.array(tree.labels(nodes), dtype=object), n_samples),
                "depth": np.tile(tree.depths[nodes], n_samples),
                "n_leaves": np.tile((tree.leaf_stop - tree.leaf_start)[nodes], n_samples),
                "mass": self.mass.ravel(),
                "belief": belief.ravel(),
                "probability": self.node_probability.take(nodes, axis=1).ravel(),
                "plausibility": plausibility.ravel(),
            }
        )

    def _focal_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Return belief and plausibility of each focal set, in the columns of `mass`."""
        n_leaves, walk = self._taxonomy.n_leaves, self._walk
        belief = np.concatenate([self.mass[:, :n_leaves], self.reach], axis=1)
        above = walk.add(walk.to_children(self.mass[:, n_leaves:].astype(np.float64)))
        plausibility = belief.astype(np.float64)
        plausibility[:, :n_leaves] += above.take(walk.leaf_decisions, axis=1)
        plausibility[:, n_leaves + 1 :] += above.take(walk.branching_decisions, axis=1)
        return belief, plausibility.astype(self._evidence.dtype, copy=False)
