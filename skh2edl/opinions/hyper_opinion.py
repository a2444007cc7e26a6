"""The hyper-opinion: how far down a taxonomy the evidence reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ..taxonomy.labels import Label
from ..taxonomy.sums import at_nodes
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray, read_only
from ..utils.validation import check_groups
from .evidence import (
    FloatArray,
    Matrix,
    TreeWalk,
    check_base_rate,
    check_evidence,
    check_prior_weight,
)
from .explanation import NodeOpinion, SampleOpinion, explain, node_frame, opinion_html

# Largest evidence whose mean is worth computing for a repr: some tens of milliseconds.
_REPR_SIZE = 1_000_000


@dataclass(frozen=True, eq=False, repr=False)
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
        Group of each opinion, if it was fused from several samples.

    Notes
    -----
    Only the evidence is stored. The arrays of samples and columns (`mass`, `vacuity`, ...) are
    computed when first asked for and kept. They are read-only and have the dtype of the evidence;
    the arithmetic is float64. One number per sample, as from `belief`, is float64.

    Opinions are immutable; they can be indexed like an array (an integer gives an opinion on one
    sample), by the label or path of a node (see :meth:`nodes`), iterated, compared and pickled.

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
    >>> opinion["Boeing"].vacuity
    array([1.])
    """

    taxonomy: Taxonomy
    evidence: FloatArray
    base_rate: Matrix
    prior_weight: Matrix
    groups: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        for name in ("evidence", "base_rate", "prior_weight", "groups"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, read_only(np.asarray(values).view()))

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

    @property
    def focal_sets(self) -> tuple[Any, ...]:
        """Columns of `mass`: leaf labels in tree order, then paths of the branching nodes."""
        return self.taxonomy.leaves + self.taxonomy.branching

    # What is derived -------------------------------------------------------------------------

    @cached_property
    def _walk(self) -> TreeWalk:
        return TreeWalk(self.taxonomy, self.base_rate, self.prior_weight)

    def _derive(self, n_columns: int, compute: Callable[[Matrix, Matrix], Any]) -> FloatArray:
        """Compute blocks of samples from their evidence and strength."""
        out = np.empty((len(self), n_columns), dtype=self.evidence.dtype)
        for some, evidence, strength in self._walk.blocks(self.evidence):
            out[some] = compute(evidence, strength)
        return read_only(out)

    @cached_property
    def vacuity(self) -> FloatArray:
        """Belief not committed at each branching node, u = W / S, shape (n_samples, n_branching).

        Not a probability of error.
        """
        return self._derive(self.taxonomy.n_branching, lambda e, S: self.prior_weight / S)

    @cached_property
    def local_belief(self) -> FloatArray:
        """Belief in each child given its node, b = e / S, shape (n_samples, n_decisions)."""
        return self._derive(self.taxonomy.n_decisions, self._walk.belief)

    @cached_property
    def conditional_probability(self) -> FloatArray:
        """Probability of each child given its node, p = b + a·u, shape (n_samples, n_decisions)."""
        return self._derive(self.taxonomy.n_decisions, self._walk.conditional)

    def _reach(self, evidence: Matrix, strength: Matrix, nodes: IntArray) -> Matrix:
        """Return the product of b on the path to each node."""
        product = self._walk.multiply(self._walk.belief(evidence, strength))
        reach: Matrix = at_nodes(product, self.taxonomy, nodes, 1.0)
        return reach

    def _probability(self, nodes: IntArray) -> FloatArray:
        """Return the product of p on the path to each node, shape (n_samples, n_nodes)."""
        walk, tree = self._walk, self.taxonomy

        def compute(evidence: Matrix, strength: Matrix) -> Any:
            product = walk.multiply(walk.conditional(evidence, strength))
            return at_nodes(product, tree, nodes, 1.0)

        return self._derive(nodes.size, compute)

    @cached_property
    def reach(self) -> FloatArray:
        """Belief that arrives at each branching node, shape (n_samples, n_branching)."""
        branching = self.taxonomy.branching_nodes
        return self._derive(branching.size, lambda e, S: self._reach(e, S, branching))

    @cached_property
    def mass(self) -> FloatArray:
        """Belief in exactly each focal set and nothing finer, shape (n_samples, n_focal_sets).

        A leaf has its reach, a branching node its reach times its vacuity (eq. 6 of the paper).
        The columns are `focal_sets`, not nodes: :meth:`nodes` and ``opinion["name"]`` give the mass
        of a node.
        """
        tree = self.taxonomy
        focal = np.concatenate([tree.leaf_nodes, tree.branching_nodes])

        def compute(evidence: Matrix, strength: Matrix) -> Matrix:
            reach = self._reach(evidence, strength, focal)
            reach[:, tree.n_leaves :] *= self.prior_weight / strength
            return reach

        return self._derive(focal.size, compute)

    @cached_property
    def leaf_probability(self) -> FloatArray:
        """Probability of each leaf in tree order, shape (n_samples, n_leaves).

        The columns are ``taxonomy.leaves``; `class_probability` has those of a classifier.
        """
        return self._probability(self.taxonomy.leaf_nodes)

    @property
    def class_probability(self) -> FloatArray:
        """Probability of each leaf in the order of ``classes_``, as `predict_proba` gives it."""
        return self.leaf_probability.take(self.taxonomy.leaf_order, axis=1)

    @cached_property
    def log_leaf_probability(self) -> FloatArray:
        """Logarithm of `leaf_probability`, right where that is too small for a float."""
        walk, tree = self._walk, self.taxonomy

        def compute(evidence: Matrix, strength: Matrix) -> Any:
            conditional = walk.conditional(evidence, strength)
            with np.errstate(divide="ignore"):  # a base rate of zero without evidence
                total = walk.add(np.log(conditional, out=conditional))
            return at_nodes(total, tree, tree.leaf_nodes, 0.0)

        return self._derive(tree.n_leaves, compute)

    @cached_property
    def node_probability(self) -> FloatArray:
        """Probability of each node of the tree, shape (n_samples, n_nodes)."""
        return self._probability(np.arange(self.taxonomy.n_nodes))

    @cached_property
    def depth_profile(self) -> Matrix:
        """Belief that stops at each depth, shape (n_samples, n_levels).

        Column d adds up the masses of the branching nodes at depth d; all columns together make
        `nonspecificity`.
        """
        tree = self.taxonomy
        stops = self.mass[:, tree.n_leaves :]
        bounds = np.searchsorted(tree.depths[tree.branching_nodes], np.arange(tree.n_levels + 1))
        profile = np.empty((len(self), tree.n_levels))
        for depth, (low, high) in enumerate(pairwise(bounds.tolist())):
            stops[:, low:high].sum(axis=1, dtype=np.float64, out=profile[:, depth])
        return read_only(profile)

    @cached_property
    def nonspecificity(self) -> Matrix:
        """Belief that reaches no leaf, U = 1 − Σ belief(leaf), shape (n_samples,)."""
        stops = self.mass[:, self.taxonomy.n_leaves :]
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
        in_leaves, n_inside = self._members(A)
        tree = self.taxonomy
        n_leaves = (tree.leaf_stop - tree.leaf_start)[tree.branching_nodes]
        return self._total_mass(in_leaves, n_inside == n_leaves)

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
        in_leaves, n_inside = self._members(A)
        return self._total_mass(in_leaves, n_inside > 0)

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
        columns = np.flatnonzero(self._members(A)[0])
        return self.leaf_probability.take(columns, axis=1).sum(axis=1, dtype=np.float64)

    def _members(
        self, A: Label | Iterable[Label]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Mark the leaves of a set, and count them below each branching node."""
        tree = self.taxonomy
        is_collection = isinstance(A, Iterable) and not isinstance(A, (str, bytes, tuple))
        nodes = tree.resolve(list(A) if is_collection else [A])  # type: ignore[arg-type, list-item]
        in_leaves = tree.clade_mask(nodes)[tree.leaf_nodes]
        counted = np.concatenate([[0], np.cumsum(in_leaves)])
        branching = tree.branching_nodes
        return in_leaves, counted[tree.leaf_stop[branching]] - counted[tree.leaf_start[branching]]

    def _total_mass(
        self, in_leaves: npt.NDArray[np.bool_], in_branching: npt.NDArray[np.bool_]
    ) -> Matrix:
        columns = np.flatnonzero(np.concatenate([in_leaves, in_branching]))
        return self.mass.take(columns, axis=1).sum(axis=1, dtype=np.float64)

    # Nodes -----------------------------------------------------------------------------------

    def nodes(self, nodes: Any = None) -> NodeOpinion:
        """Return mass, belief, probability, plausibility and vacuity of some nodes.

        Parameters
        ----------
        nodes : array-like of shape (n_nodes,), default=None
            Node numbers or labels; None takes every node of the tree in the order of its numbers.

        Returns
        -------
        opinion : NodeOpinion
            Arrays of shape (n_samples, n_nodes). Nodes of a chain have the same leaves, and so the
            same numbers; a leaf takes no decision, and its vacuity is NaN.

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Fokker 70": None})
        >>> opinion = HyperOpinion.from_evidence(tree, [[16, 2, 0, 0]])
        >>> opinion.nodes(["Boeing", "737"]).plausibility
        array([[0.9, 0.9]])
        >>> opinion.nodes().mass
        array([[0.1, 0.8, 0.1, 0. , 0. ]])
        """
        tree, walk = self.taxonomy, self._walk
        numbers = np.arange(tree.n_nodes) if nodes is None else tree.as_nodes(nodes)
        columns = tree.focal_columns[numbers]
        vacuity = np.pad(self.vacuity, ((0, 0), (tree.n_leaves, 0)), constant_values=np.nan)

        def plausibility(evidence: Matrix, strength: Matrix) -> Any:
            stops = self.prior_weight / strength
            stops *= self._reach(evidence, strength, tree.branching_nodes)
            above = at_nodes(walk.add(walk.to_children(stops)), tree, numbers, 0.0)
            return self._reach(evidence, strength, numbers) + above

        return NodeOpinion(
            mass=self.mass[:, columns],
            belief=self._derive(numbers.size, lambda e, S: self._reach(e, S, numbers)),
            probability=self._probability(numbers),
            plausibility=self._derive(numbers.size, plausibility),
            vacuity=vacuity[:, columns],
        )

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
        fused = np.add.reduceat(self.evidence[order], starts, axis=0, dtype=np.float64)
        if how == "averaging":
            fused /= counts[:, None]
        if fused.max(initial=0) <= np.finfo(self.evidence.dtype).max:
            fused = fused.astype(self.evidence.dtype, copy=False)
        return self._with_evidence(fused, ids)

    def _with_evidence(self, evidence: FloatArray, groups: npt.NDArray[Any] | None) -> HyperOpinion:
        other = HyperOpinion(self.taxonomy, evidence, self.base_rate, self.prior_weight, groups)
        other.__dict__["_walk"] = self._walk  # that of the same tree and prior
        return other

    def __len__(self) -> int:
        return int(self.evidence.shape[0])

    @overload
    def __getitem__(self, index: str | tuple[Any, ...]) -> NodeOpinion: ...
    @overload
    def __getitem__(self, index: Any) -> HyperOpinion: ...
    def __getitem__(self, index: Any) -> HyperOpinion | NodeOpinion:
        """Return the numbers of a node, given by label or path, or the opinion on some samples."""
        if isinstance(index, (str, tuple)):
            return NodeOpinion(*(values[:, 0] for values in self.nodes([index])))
        positions = np.arange(len(self))[index]
        if positions.ndim > 1:
            raise IndexError(f"An opinion has one axis, its samples; got the index {index!r}.")
        # A slice or an integer keeps a view of the evidence, an array of positions makes a copy.
        if isinstance(index, slice):
            chosen: Any = index
        else:
            chosen = slice(int(positions), int(positions) + 1) if positions.ndim == 0 else positions
        groups = None if self.groups is None else self.groups[chosen]
        return self._with_evidence(self.evidence[chosen], groups)

    def __iter__(self) -> Iterator[HyperOpinion]:
        return (self[position] for position in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HyperOpinion):
            return NotImplemented
        (mine, *own), (theirs, *others) = self.__reduce__()[1], other.__reduce__()[1]
        return mine == theirs and all(map(np.array_equal, own, others))

    __hash__ = None  # type: ignore[assignment]

    # Without what was derived: it is cheaper to compute than to send.
    def __reduce__(self) -> tuple[Any, ...]:
        arguments = self.taxonomy, self.evidence, self.base_rate, self.prior_weight
        return HyperOpinion, (*arguments, self.groups)

    # For people ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        tree = self.taxonomy
        what = "sample" if self.groups is None else "group"
        text = (
            f"HyperOpinion({len(self)} {what}{'' if len(self) == 1 else 's'}, "
            f"{tree.n_leaves} leaves, {tree.n_branching} branching nodes"
        )
        # Not worth a computation that takes long.
        if 0 < self.evidence.size <= _REPR_SIZE:
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
        reach = self._walk.multiply(one.local_belief.astype(np.float64))[0]
        stops = one.mass[0, self.taxonomy.n_leaves :].astype(np.float64)
        return explain(
            self.taxonomy, SampleOpinion(reach, stops, one.leaf_probability[0].astype(np.float64))
        )

    def to_frame(self, by: str = "focal_set") -> Any:
        """Return a pandas DataFrame with one row per sample and focal set, or per sample and node.

        Parameters
        ----------
        by : {"focal_set", "node"}, default="focal_set"
            "focal_set" lists leaves and branching nodes, whose masses sum to 1 for each sample;
            "node" lists every node, also those with one child.

        Returns
        -------
        frame : pandas.DataFrame
            Columns `sample` (or `group` after fusion), `focal_set` or `node` (label), `depth`,
            `n_leaves`, `mass`, `belief`, `probability`, `plausibility` and `vacuity` (NaN for a
            leaf).

        Examples
        --------
        >>> tree = Taxonomy.from_nested({"Boeing": ["737", "747"], "Fokker 70": None})
        >>> frame = HyperOpinion.from_evidence(tree, [[16, 2, 0, 0]]).to_frame(by="node")
        >>> print(frame.drop(columns=["sample", "depth", "n_leaves"]).to_string(index=False))
             node  mass  belief  probability  plausibility  vacuity
             root   0.1     1.0        1.000           1.0      0.1
           Boeing   0.8     0.8        0.850           0.9      1.0
        Fokker 70   0.1     0.1        0.150           0.2      NaN
              737   0.0     0.0        0.425           0.9      NaN
              747   0.0     0.0        0.425           0.9      NaN
        """
        return node_frame(self, by)

    def _repr_html_(self) -> str:
        return opinion_html(self)


def check_opinion(opinion: Any) -> HyperOpinion:
    """Return the hyper-opinion, or raise a TypeError that says where to get one."""
    if not isinstance(opinion, HyperOpinion):
        raise TypeError(
            f"opinion must be a HyperOpinion, got {type(opinion).__name__}. Pass what "
            "predict_hyper_opinion returns."
        )
    return opinion
