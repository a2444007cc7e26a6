"""Predict as deep in the tree as a guaranteed accuracy allows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..estimators.wrapping import opinion_method
from ..metrics.inputs import node_probabilities, top_leaves
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.optional import import_optional
from ..utils.sklearn_tools import Interval, StrOptions
from ._held_out import (
    HeldOut,
    HeldOutWrapper,
    NodeWrapper,
    is_names,
    is_part_of_leaf,
    is_thresholds,
    read_leaves,
)
from ._ladders import (
    Ladder,
    holds_all_leaves,
    information_of_nodes,
    last_rung,
    make_ladder,
    paths_to,
)
from ._needed import TOLERANCE, thresholds_needed
from ._quantile import check_enough
from ._subtrees import assign_subtrees, part_of_nodes, part_quantiles

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# Warn if labels above the leaves make a twentieth more of the predictions the root.
_MANY = 0.05


class HedgedClassifier(NodeWrapper):
    """Predict the deepest node that keeps a guaranteed accuracy: a species, or only its family.

    A prediction is wrong if the true node does not lie at or under it; the root is always right.
    The probability that a node must have is learnt from held-out data: for each held-out sample
    the smallest threshold from which on its prediction is right, and of these the
    ⌈(n + 1) target⌉-th smallest. If held-out and new samples are exchangeable, a new prediction is
    right with at least the target probability, for any classifier, calibrated or not [1]_, [2]_.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. A
        :class:`~sklearn.frozen.FrozenEstimator` is used as fitted, and all data given to `fit` are
        held-out data. Any other is cloned and fitted as `cv` says.
    target_accuracy : float or dict, default=0.95
        Guaranteed fraction of right predictions. A dict such as
        ``{"family": 0.99, "species": 0.9}`` gives each level its own threshold and guarantee: the
        fraction of samples whose prediction reaches the level and is wrong there is at most one
        minus its number. A level that is not named takes the number of the next named level
        below, or else above. Needs ``rule="climb"``.
    rule : {"climb", "darts", "information"}, default="climb"
        Which nodes are considered as the threshold falls. "climb": the ancestors of the
        likeliest leaf, the deepest with P ≥ threshold. "information": the most informative node
        with P ≥ threshold, anywhere in the tree. "darts": the node with the largest
        ``(information + λ) P``, λ the threshold [3]_. The information of a node with m of the L
        leaves is log(L / m) / log(L).
    subtrees : str, int or list of labels, default=None
        Guarantee the accuracy within each of these subtrees: the nodes of a level, or the nodes
        listed. Samples outside all of them form one more part.
    subtrees_of : {"prediction", "truth"}, default="prediction"
        Whether a sample belongs to the subtree of its likeliest leaf (each subtree has its own
        threshold) or to that of its label. "truth" is the stronger guarantee: it bounds the
        errors among the actual melanomas. Because the truth of a new sample is not known, all
        samples then use the largest of the thresholds.
    small_subtrees : {"raise", "pool"}, default="raise"
        What to do with subtrees that have too few held-out samples: raise an error, or pool them
        under one threshold. The guarantee of pooled subtrees is approximate, because they were
        chosen for having few held-out samples.
    partial_labels : {"wrong", "drop"}, default="wrong"
        How to count a held-out label that ends above the prediction and so neither confirms nor
        refutes it. "wrong" counts the prediction as wrong. The guarantee then holds whatever made
        the labels stop early, but predictions are less deep. "drop" uses only held-out samples
        labelled with a leaf, which is valid only if labels stop early at random and not because
        those samples are harder. Samples labelled with the root count as unlabelled and are
        always dropped; with ``subtrees_of="truth"`` so are labels above the subtrees. Where
        something was dropped, the guarantee is approximate.
    cv : int, splitter or iterable of splits, default=None
        How to hold out samples if the estimator is not frozen. A single split, such as
        ``ShuffleSplit(1)`` or with groups ``GroupShuffleSplit(1)``, fits the estimator on its
        first part and holds out the second. With several splits, held-out predictions come from
        cross-validation and the final estimator is fitted on all samples; see Notes. None means
        stratified five-fold cross-validation that keeps groups together. A split with a group
        on both sides is refused.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes. The classes of an
        estimator without a tree may be any nodes.
    n_jobs : int, default=None
        Number of parallel fits, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    threshold_ : float or ndarray
        What the score of a node has to reach: P of the node, or λ with ``rule="darts"``.
        Shape (n_levels,) with a target for each level, (n_subtrees,) with `subtrees`,
        (n_subtrees, n_levels) with both.
    subtrees_ : list of lists of labels
        The subtrees of each threshold; the last may be ``["(elsewhere)"]``.
    n_calibration_ : int
        Number of held-out samples.
    n_calibration_groups_ : int
        Number of their groups; without groups, of samples.
    guarantee_ : {"exact", "approximate"}
        "exact" where the bound is a theorem, see Notes.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted; `predict` may also return other nodes.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    See Also
    --------
    ConformalTreeClassifier : Sets of nodes with a guaranteed coverage.
    MinimumCostClassifier : The prediction with the smallest expected cost.

    Notes
    -----
    *What is guaranteed.* The probability is over the draw of the held-out samples and a new one
    together. It does not hold for each class (see `subtrees`), nor among the predictions that are
    leaves, nor for one fixed held-out set: given that, the accuracy varies by about
    ``sqrt(target (1 - target) / n)``. It does not hold for data unlike the held-out samples: other
    cameras, other places, classes that are not in the tree.

    *Exact* means that the bound is a theorem for any classifier and any number of samples, if
    held-out and new samples, or with `groups` their groups, are exchangeable. The guarantee is
    "approximate" after cross-validation or a stratified split, where held-out samples were dropped
    because of their labels, with unequal sample weights, with pooled subtrees, and where the
    subtree of a held-out sample's prediction is a tie.

    *Groups.* Several photographs of one subject are not several samples. Given groups, each of K
    subjects has one vote, which its photographs share equally. The threshold is the smallest with
    ``(K + 1) target`` votes at or below it: hierarchical conformal prediction, with a bound that
    holds for a photograph of a new subject if subjects are exchangeable and so are the photographs
    of each [4]_. Every subject counts the same, however often it is photographed. With K subjects,
    at most ``K / (K + 1)`` can be guaranteed. With `subtrees`, a subject's vote in a subtree is the
    fraction of its photographs there, and the errors are those among photographs of the subtree:
    conformal risk control [2]_.

    *Rounding.* The probabilities of a network in single precision depend on the size of the batch.
    Thresholds leave a margin: a held-out sample counts as right only if it stays right when the
    probability of any set of leaves moves by 1e-5, which is more than batches change. So a sample
    is served alone with the guarantee of a batch. Networks of this package predict in single
    precision, on a GPU without TF32, which would round more.

    *Cross-validation.* The thresholds come from other fits than the final one, so no bound holds
    for every estimator. It works well if leaving out a part of the data changes the estimator
    little. With few samples and little regularisation, the final estimator may be more confident
    than those of the folds, and the accuracy falls below the target. Use a frozen estimator or a
    single split where the guarantee matters.

    *Sample weights* are used in training, if the estimator takes them, and in calibration, where
    they say how many new samples each held-out sample stands for (for example the true class
    frequency over that among the held-out samples). A new sample is given the largest weight.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer, "Algorithmic learning in a random world", 2005.
    .. [2] A. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster, "Conformal risk control",
       ICLR 2024.
    .. [3] J. Deng, J. Krause, A. Berg, L. Fei-Fei, "Hedging your bets: optimizing
       accuracy-specificity trade-offs in large scale visual recognition", CVPR 2012. There λ is
       found by bisection, without a bound for finite samples; here by the quantile.
    .. [4] Y. Lee, R. F. Barber, R. Willett, "Distribution-free inference with hierarchical data",
       arXiv:2306.06342, 2023, theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skh2edl import HedgedClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(["lynx", "puma", "dog"], 300)
    >>> X = rng.normal(size=(300, 1)) + np.select([y == "lynx", y == "puma"], [2, 4], -4)[:, None]
    >>> model = GaussianNB().fit(X[:100], y[:100])
    >>> clf = HedgedClassifier(FrozenEstimator(model), target_accuracy=0.95, taxonomy=tree)
    >>> clf.fit(X[100:], y[100:]).predict([[-4.0], [3.0], [6.0]])
    array(['dog', 'cat', 'puma'], dtype='<U4')
    >>> clf.predict_frame([[3.0]])["reason"][0]
    'puma has 0.613, less than 0.695'
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **HeldOutWrapper._parameter_constraints,
        "target_accuracy": [Interval(Real, 0, 1, closed="neither"), dict],
        "rule": [StrOptions({"climb", "darts", "information"})],
        "subtrees": [str, Integral, list, tuple, None],
        "subtrees_of": [StrOptions({"prediction", "truth"})],
        "small_subtrees": [StrOptions({"raise", "pool"})],
        "partial_labels": [StrOptions({"wrong", "drop"})],
    }
    _learned: ClassVar = {
        **HeldOutWrapper._learned,
        "subtrees_": is_names,
        "_part_of_leaf": lambda own, value: is_part_of_leaf(own, value, len(own.subtrees_)),
        "_thresholds": lambda own, value: is_thresholds(
            value, len(own.subtrees_), len(own._targets(own.taxonomy_))
        ),
    }

    def __init__(
        self,
        estimator: Any,
        target_accuracy: float | Mapping[str | int, float] = 0.95,
        rule: str = "climb",
        *,
        subtrees: Any = None,
        subtrees_of: str = "prediction",
        small_subtrees: str = "raise",
        partial_labels: str = "wrong",
        cv: Any = None,
        taxonomy: Taxonomy | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.target_accuracy = target_accuracy
        self.rule = rule
        self.subtrees = subtrees
        self.subtrees_of = subtrees_of
        self.small_subtrees = small_subtrees
        self.partial_labels = partial_labels
        self.cv = cv
        self.taxonomy = taxonomy
        self.n_jobs = n_jobs

    def _learn_from(self, held: HeldOut) -> None:
        tree = self.taxonomy_
        targets = self._targets(tree)
        by_level = isinstance(self.target_accuracy, Mapping)
        needed = thresholds_needed(self.rule, held.predictions, held.truth, tree, by_level)
        needed = needed.reshape(len(needed), -1)

        part_of_leaf, names = assign_subtrees(self.subtrees, tree)
        if self.subtrees_of == "truth":
            part = part_of_nodes(held.truth, part_of_leaf, tree)
            self._check_parts(part)
        else:
            part = part_of_leaf[top_leaves(held.predictions, tree)]
            self._check_ties(held.predictions, part_of_leaf, len(names))
        if self.subtrees is None:
            check_enough(held.weight, max(targets), "lower target_accuracy", held.group)
        else:
            part, part_of_leaf, names = self._merge_small(
                part, held, part_of_leaf, names, max(targets), self.small_subtrees
            )
        self.subtrees_ = names
        thresholds = self._quantiles(needed, targets, part, held)
        self._part_of_leaf, self._thresholds = part_of_leaf, thresholds
        self._derive()
        is_leaf = tree.n_children[held.truth] == 0
        if not is_leaf.all():
            group = None if held.group is None else held.group[is_leaf]
            rest = held._replace(weight=held.weight[is_leaf], group=group)
            of_leaves = self._quantiles(needed[is_leaf], targets, part[is_leaf], rest)
            self._warn_of_root(held, is_leaf, of_leaves)

    def _derive(self) -> None:
        by_level = isinstance(self.target_accuracy, Mapping)
        shown = self._thresholds if by_level else self._thresholds[:, 0]
        shown = shown[0] if self.subtrees is None else shown
        self.threshold_: float | FloatArray = shown if np.ndim(shown) else float(shown)

    def _export_parts(self) -> dict[str, Any]:
        if self.rule != "climb":
            raise TypeError(
                f"rule={self.rule!r} cannot be written as an ONNX model. Use rule='climb', or "
                "export estimator_ and apply the rule to the probabilities."
            )
        # The path to each leaf, and what a node on it has to reach.
        tree = self.taxonomy_
        nodes = paths_to(tree.leaf_nodes, tree)
        own = self._thresholds_of(self._thresholds[self._part_of_leaf], nodes)
        always = holds_all_leaves(tree)[nodes]
        return {"nodes": nodes, "thresholds": np.where(always, -np.inf, own)}

    def _quantiles(
        self, needed: FloatArray, targets: list[float], part: IntArray, held: HeldOut
    ) -> FloatArray:
        """Return the thresholds of each subtree; samples of part -1 are in none."""
        thresholds = part_quantiles(
            needed, targets, part, len(self.subtrees_), held.weight, held.group
        )
        if self.subtrees_of == "truth":
            thresholds[:] = thresholds.max(axis=0)
        return thresholds

    def _warn_of_root(self, held: HeldOut, is_leaf: BoolArray, of_leaves: FloatArray) -> None:
        """Warn if labels above the leaves make many predictions the root."""
        tree = self.taxonomy_
        at_root = []
        for thresholds in (self._thresholds, of_leaves):
            ladder, rung, _ = self._choose(held.predictions, thresholds)
            nodes = ladder.nodes[np.arange(len(rung)), rung]
            at_root.append(np.average(tree.last_decision[nodes] < 0, weights=held.weight))
        if at_root[0] > at_root[1] + _MANY:
            warnings.warn(
                f"{np.sum(~is_leaf)} of {is_leaf.size} held-out labels end above the leaves. A "
                "prediction below such a label counts as wrong, so "
                f"{100 * at_root[0]:.0f} % of the held-out predictions are the root; without "
                f"these labels it would be {100 * at_root[1]:.0f} %. Hold out samples labelled "
                "with leaves, or set partial_labels='drop' if labels end early at random.",
                UserWarning,
                stacklevel=4,
            )

    def _check_ties(self, leaves: FloatArray, part_of_leaf: IntArray, n_parts: int) -> None:
        """Take note of samples that may be of another subtree in another batch."""
        near = leaves >= leaves.max(axis=1, keepdims=True) - 2 * TOLERANCE
        n_near = sum(near[:, part_of_leaf == part].any(axis=1) for part in range(n_parts))
        if np.any(n_near > 1):
            self.guarantee_ = "approximate"

    def _targets(self, tree: Taxonomy) -> list[float]:
        """Return the target, or the target of each level below the root."""
        if not isinstance(self.target_accuracy, Mapping):
            return [float(self.target_accuracy)]
        if self.rule != "climb":
            raise ValueError(
                f"A target_accuracy for each level needs rule='climb', got rule={self.rule!r}, "
                "whose candidates need not lie under each other. Give one number, or use 'climb'."
            )
        given: Mapping[Any, Any] = self.target_accuracy
        known = {tree.level_index(level): value for level, value in given.items()}
        if not known or 0 in known:
            raise ValueError(
                f"target_accuracy must name at least one level and not the root, which is always "
                f"right, got {dict(given)!r}. Levels are numbered from 1 to "
                f"{tree.n_levels}."
            )
        for level, value in given.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
                raise ValueError(
                    f"target_accuracy must lie between 0 and 1, got {value!r} for level {level!r}."
                )
        depths = range(1, tree.n_levels + 1)
        named = [min((k for k in known if k >= d), default=max(known)) for d in depths]
        return [float(known[depth]) for depth in named]

    def _decide(self, X: Any) -> tuple[Ladder, IntArray, FloatArray, FloatArray]:
        """Return ladders, the predicted rungs, thresholds of all rungs, and leaf probabilities."""
        check_is_fitted(self, "threshold_")
        tree = self.taxonomy_
        leaves = read_leaves(self.estimator_, X, tree)
        return *self._choose(leaves, self._thresholds), leaves

    def _choose(
        self, leaves: FloatArray, part_thresholds: FloatArray
    ) -> tuple[Ladder, IntArray, FloatArray]:
        """Return ladders, the predicted rungs, and thresholds of all rungs."""
        tree = self.taxonomy_
        ladder = make_ladder(self.rule, leaves, tree)
        own = part_thresholds[self._part_of_leaf[top_leaves(leaves, tree)]]
        thresholds = self._thresholds_of(own, ladder.nodes)
        return ladder, last_rung(ladder, thresholds), thresholds

    def _thresholds_of(self, own: FloatArray, nodes: IntArray) -> FloatArray:
        """Return the threshold of each rung, given those of the sample's subtree."""
        if isinstance(self.target_accuracy, Mapping):
            return _thresholds_of_rungs(own, nodes, self.taxonomy_)
        return np.broadcast_to(own, nodes.shape)

    def _predict_nodes(self, X: Any) -> IntArray:
        ladder, rung, _, _ = self._decide(X)
        return np.asarray(ladder.nodes[np.arange(len(rung)), rung])

    def predict_frame(self, X: Any) -> Any:
        """Return the predictions as a table, with their probabilities and reasons.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        frame : pandas.DataFrame
            One row for each sample: `node` (the prediction), `level` (its name, or its depth),
            `depth`, `probability` and `information` (0 for the root, 1 for a leaf); `belief` and
            `plausibility` where the estimator has opinions on the tree; `leaf` and
            `leaf_probability` of the likeliest leaf; `reason` why the prediction is no deeper.
        """
        pandas = import_optional("pandas", extra="pandas")
        ladder, rung, thresholds, leaves = self._decide(X)
        tree, samples = self.taxonomy_, np.arange(len(rung))
        nodes = ladder.nodes[samples, rung]
        best = top_leaves(leaves, tree)
        levels = [tree.root_name, *(tree.level_names or range(1, tree.n_levels + 1))]
        columns: dict[str, Any] = {
            "node": tree.labels(nodes),
            "level": [levels[depth] for depth in tree.depths[nodes].tolist()],
            "depth": tree.depths[nodes],
            "probability": node_probabilities(leaves, tree)[samples, nodes],
            "information": information_of_nodes(tree)[nodes],
            **self._bounds(X, nodes),
            "leaf": tree.labels(tree.leaf_nodes[best]),
            "leaf_probability": leaves[samples, best],
            "reason": self._reasons(ladder, rung, thresholds),
        }
        return pandas.DataFrame(columns)

    def _bounds(self, X: Any, nodes: IntArray) -> dict[str, FloatArray]:
        """Return belief and plausibility of the nodes, if there are opinions on this tree."""
        method = opinion_method(self.estimator_)
        opinion = None if method is None else method(X)
        if opinion is None or opinion.taxonomy != self.taxonomy_:
            return {}
        belief, plausibility = np.empty(len(nodes)), np.empty(len(nodes))
        for node in np.unique(nodes).tolist():
            samples = np.flatnonzero(nodes == node)
            label = self.taxonomy_.label(node)
            belief[samples] = opinion[samples].belief(label)
            plausibility[samples] = opinion[samples].plausibility(label)
        return {"belief": belief, "plausibility": plausibility}

    def _reasons(self, ladder: Ladder, rung: IntArray, thresholds: FloatArray) -> list[str]:
        tree, n_rungs = self.taxonomy_, ladder.nodes.shape[1]
        reasons = []
        for sample, own in enumerate(rung.tolist()):
            if tree.n_children[tree.last_of_chain[ladder.nodes[sample, own]]] == 0:
                reasons.append("a leaf")
            elif own + 1 == n_rungs:
                reasons.append("most information expected")
            else:
                label = tree.label(int(ladder.nodes[sample, own + 1]))
                score, wanted = ladder.scores[sample, own + 1], thresholds[sample, own + 1]
                name = "λ " if self.rule == "darts" else ""
                has, needs = f"{name}{score:.3g}", f"{name}{wanted:.3g}"
                # A threshold is often just above a probability that many samples have.
                than = f"less than {needs}" if has != needs else "and needs more than that"
                reasons.append(f"{label} has {has}, {than}")
        return reasons


def _thresholds_of_rungs(own: FloatArray, nodes: IntArray, tree: Taxonomy) -> FloatArray:
    """Return the threshold of the rung at each depth, given the threshold of each level.

    A leaf, or a node with an only child, also stands for itself on the levels below it, so it has
    to reach their thresholds too.
    """
    last = tree.last_of_chain[nodes]
    stands_for = np.where(tree.n_children[last] == 0, tree.n_levels, tree.depths[last])
    thresholds = np.zeros(nodes.shape)
    for depth in range(1, nodes.shape[1]):
        for level in range(depth, tree.n_levels + 1):
            also = (stands_for[:, depth] >= level) | (level == depth)
            higher = np.maximum(thresholds[:, depth], own[:, level - 1])
            thresholds[:, depth] = np.where(also, higher, thresholds[:, depth])
    return thresholds
