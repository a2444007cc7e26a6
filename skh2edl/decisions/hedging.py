"""Answers as deep in the tree as a promised accuracy allows."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..metrics.inputs import top_leaves
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.optional import import_optional
from ..utils.sklearn_tools import HasMethods, Interval, StrOptions
from ._held_out import HeldOutWrapper, label_array, opinion_method, read_leaves, share_right
from ._ladders import (
    Ladder,
    information_of_nodes,
    last_rung,
    make_ladder,
    thresholds_needed,
    thresholds_needed_by_level,
)
from ._quantile import check_enough, conformal_quantile
from ._subtrees import assign_subtrees, is_pooled, merge_small

FloatArray = npt.NDArray[np.float64]


class HedgedClassifier(HeldOutWrapper):
    """Answer with the deepest node that keeps a promised accuracy: a species, or only its family.

    The answer is wrong if the truth does not lie under it; the root is always right. How sure the
    classifier has to be before it goes deeper is learnt from held-out data: of each held-out
    sample the least threshold from which on its answer is right, and of these the
    ⌈(n + 1) target⌉-th smallest. If held-out and new samples are exchangeable, a new answer is
    then right with at least the promised probability, whatever the classifier is and however
    badly its probabilities are calibrated [1]_, [2]_.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. In a
        :class:`~sklearn.frozen.FrozenEstimator` it is taken as fitted and all data given to `fit`
        are held-out data: the promise is exact. Otherwise it is cloned and fitted as `cv` says.
    target_accuracy : float or dict, default=0.95
        Promised share of right answers. A dict such as ``{"family": 0.99, "species": 0.9}``
        promises that at each level the share of samples whose answer reaches the level and is
        wrong there is at most one minus its number, with a threshold for every level; a level
        that is not named takes the number of the next one below that is, or else above. Needs
        ``rule="climb"``.
    rule : {"climb", "darts", "information"}, default="climb"
        Which answers are considered as the threshold falls. "climb": the ancestors of the
        likeliest leaf, the deepest with P ≥ threshold. "information": the most informative node
        with P ≥ threshold, wherever it lies. "darts": the node with the greatest
        ``(information + λ) P``, λ the threshold [3]_. The information of a node with m of the L
        leaves is log(L / m) / log(L).
    subtrees : str, int or list of labels, default=None
        Promise the accuracy for each of these subtrees separately: the nodes of a level, or
        those named. Samples in none of them make one more part.
    subtrees_of : {"prediction", "truth"}, default="prediction"
        Whether a sample belongs to the subtree of its likeliest leaf (each subtree has a
        threshold of its own) or to that of its label. The second is the stronger promise: of the
        samples that are melanomas, so many are answered rightly. Since the truth is not known
        when answering, all use the largest of the thresholds.
    small_subtrees : {"raise", "pool"}, default="raise"
        What to do with subtrees that have too few held-out samples: refuse, or let them share
        one threshold and one promise. Which ones are few depends on the held-out samples, in
        which they are then fewer than among new ones: the shared promise is approximate.
    partial_labels : {"wrong", "drop"}, default="wrong"
        What a held-out label says that ends above the answer: it neither confirms nor refutes
        it. "wrong" counts what is not confirmed as wrong, which keeps the promise about the truth
        whatever made labels stop early, at the price of depth. "drop" leaves out held-out
        samples not labelled with a leaf, which is right only if labels stop early by chance,
        not because those samples are harder. Samples labelled with the root are unlabelled and
        always left out; with ``subtrees_of="truth"`` also those whose label lies above the
        subtrees.
    cv : int, splitter or iterable of splits, default=None
        How held-out answers are made if the estimator is not frozen. One split, such as
        ``ShuffleSplit(1)``: the estimator is fitted on its first part, the second is held out,
        the promise is exact. Several: as in cross-validation each part is held out from a fit of
        its own, and the estimator in use is fitted on everything; see Notes. None means five parts
        with labels in equal shares.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes. Classes of an estimator
        that knows no tree may be any nodes.
    n_jobs : int, default=None
        Fits at the same time, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    threshold_ : float or ndarray
        What the score of an answer has to reach: P of the node, or λ with ``rule="darts"``.
        Shape (n_levels,) with a target for each level, (n_subtrees,) with thresholds for
        subtrees, (n_subtrees, n_levels) with both.
    subtrees_ : list of lists of labels
        Which subtrees each promise is about; the last may be ``["(elsewhere)"]``.
    n_calibration_ : int
        Number of held-out samples.
    guarantee_ : {"exact", "approximate"}
        "approximate" after cross-validation, see Notes, and where small subtrees share a
        promise.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted; `predict` may also answer with other nodes.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    See Also
    --------
    ConformalTreeClassifier : Several answers, of which one is right with a promised probability.
    MinimumCostClassifier : The answer with the least expected cost.

    Notes
    -----
    *What is promised.* The probability is over a new sample and the held-out samples together:
    over many repetitions of drawing both, so many answers are right. It is not a promise for
    one class (see `subtrees`), nor for those answers that are leaves, nor for one fixed held-out
    set: given that, the accuracy varies by about ``sqrt(target (1 - target) / n)``. Data that
    differ from the held-out ones (other cameras, other places, classes not in the tree) void it.

    *Cross-validation.* The thresholds then come from other fits than the one in use, and no
    bound holds for every estimator. It works well where leaving out a part of the data changes
    the estimator little; with few samples and hardly any regularisation the one in use may be
    surer of itself than those the thresholds come from, and the promise is broken. Use a frozen
    estimator or a single split where the promise matters.

    *Weights* count in training, if the estimator takes them, and in calibration, where they say
    in which proportion held-out samples stand for new ones (for example true shares of classes
    over those among the held-out samples). The new sample is taken to be as heavy as the heaviest
    held-out one.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer, "Algorithmic learning in a random world", 2005.
    .. [2] A. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster, "Conformal risk control",
       ICLR 2024.
    .. [3] J. Deng, J. Krause, A. Berg, L. Fei-Fei, "Hedging your bets: optimizing
       accuracy-specificity trade-offs in large scale visual recognition", CVPR 2012. There λ is
       found by bisection, without a bound for finite samples; here by the quantile.

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
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "target_accuracy": [Interval(Real, 0, 1, closed="neither"), dict],
        "rule": [StrOptions({"climb", "darts", "information"})],
        "subtrees": [str, Integral, list, tuple, None],
        "subtrees_of": [StrOptions({"prediction", "truth"})],
        "small_subtrees": [StrOptions({"raise", "pool"})],
        "partial_labels": [StrOptions({"wrong", "drop"})],
        "cv": ["cv_object"],
        "taxonomy": [Taxonomy, None],
        "n_jobs": [Integral, None],
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Learn from held-out answers how sure the classifier has to be.

        Parameters
        ----------
        X : what the estimator reads
            Held-out samples for a frozen estimator, otherwise samples to fit and to hold out.
        y : array-like of shape (n_samples,)
            Labels: leaves or ancestors.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in training and in calibration.
        groups : array-like of shape (n_samples,), default=None
            Such as patients, for a `cv` that keeps them together; also given to the estimator's
            own fit if that takes groups. Several samples of one subject are not exchangeable
            with one of a new subject: hold out one sample of each, or read the promise with care.

        Returns
        -------
        self
        """
        self._validate_params()
        held = self._fit_held_out(X, y, sample_weight, groups, read_leaves, self.partial_labels)
        tree = self.taxonomy_
        targets = self._targets(tree)
        ladder = make_ladder(self.rule, held.answers, tree)
        if isinstance(self.target_accuracy, Mapping):
            needed = thresholds_needed_by_level(ladder, held.truth, tree)[:, 1:]
        else:
            needed = thresholds_needed(ladder, held.truth, tree)[:, None]

        part_of_leaf, names = assign_subtrees(self.subtrees, tree)
        part = part_of_leaf[top_leaves(held.answers, tree)]
        if self.subtrees_of == "truth":
            part = part_of_leaf[tree.leaf_start[held.truth]]
            # A label above the subtrees does not say which one it belongs to.
            part[part != part_of_leaf[tree.leaf_stop[held.truth] - 1]] = -1
        most = float(targets.max())
        if self.subtrees is None:
            check_enough(held.weight, most, "lower target_accuracy")
        else:
            part, part_of_leaf, names = merge_small(
                part, held.weight, part_of_leaf, names, most, self.small_subtrees
            )
            if is_pooled(names):
                self.guarantee_ = "approximate"
        thresholds = np.array(
            [
                [
                    conformal_quantile(values[part == number], target, held.weight[part == number])
                    for values, target in zip(needed.T, targets.tolist(), strict=True)
                ]
                for number in range(len(names))
            ]
        )
        if self.subtrees_of == "truth":
            thresholds[:] = thresholds.max(axis=0)
        self.subtrees_ = names
        self._part_of_leaf, self._thresholds = part_of_leaf, thresholds
        self.threshold_ = self._shown_thresholds(thresholds)
        return self

    def _targets(self, tree: Taxonomy) -> FloatArray:
        """Return the promise, or that of each level below the root."""
        if not isinstance(self.target_accuracy, Mapping):
            return np.array([float(self.target_accuracy)])
        if self.rule != "climb":
            raise ValueError(
                f"A target_accuracy for each level needs rule='climb', got rule={self.rule!r}, "
                "whose answers need not lie under each other. Give one number, or climb."
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
        below = [min((k for k in known if k >= d), default=max(known)) for d in depths]
        return np.array([float(known[depth]) for depth in below])

    def _shown_thresholds(self, thresholds: FloatArray) -> float | FloatArray:
        if not isinstance(self.target_accuracy, Mapping):
            thresholds = thresholds[:, 0]
        if self.subtrees is None:
            thresholds = thresholds[0]
        return float(thresholds) if np.ndim(thresholds) == 0 else thresholds

    def _decide(self, X: Any) -> tuple[Ladder, IntArray, FloatArray, FloatArray]:
        """Return the ladders, the rung answered, the threshold of each rung, P of the leaves."""
        check_is_fitted(self, "threshold_")
        tree = self.taxonomy_
        leaves = read_leaves(self.estimator_, X, tree)
        ladder = make_ladder(self.rule, leaves, tree)
        own = self._thresholds[self._part_of_leaf[top_leaves(leaves, tree)]]
        if isinstance(self.target_accuracy, Mapping):
            own = _thresholds_of_rungs(own, ladder.nodes, tree)
        thresholds = np.broadcast_to(own, ladder.scores.shape)
        return ladder, last_rung(ladder, thresholds), thresholds, leaves

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the node that each sample is answered with.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of leaves, inner nodes or the root.
        """
        ladder, rung, _, _ = self._decide(X)
        nodes = np.take_along_axis(ladder.nodes, rung[:, None], axis=1)[:, 0]
        return label_array(nodes, self.taxonomy_)

    def predict_frame(self, X: Any) -> Any:
        """Return the answers with what there is to say about them.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        frame : pandas.DataFrame
            One row for each sample: `node` (the answer), `level` (its name, or its depth),
            `depth`, `probability` and `information` (0 for the root, 1 for a leaf); `belief` and
            `plausibility` where the estimator has opinions on the tree; `leaf` and
            `leaf_probability` of the likeliest leaf; `reason` why the answer is no deeper.
        """
        pandas = import_optional("pandas", extra="pandas")
        ladder, rung, thresholds, leaves = self._decide(X)
        tree, rows = self.taxonomy_, np.arange(len(rung))
        nodes = ladder.nodes[rows, rung]
        running = np.concatenate([np.zeros((len(leaves), 1)), np.cumsum(leaves, axis=1)], axis=1)
        best = top_leaves(leaves, tree)
        columns: dict[str, Any] = {
            "node": tree.labels(nodes),
            "level": _level_titles(nodes, tree),
            "depth": tree.depths[nodes],
            "probability": running[rows, tree.leaf_stop[nodes]]
            - running[rows, tree.leaf_start[nodes]],
            "information": information_of_nodes(tree)[nodes],
        }
        columns |= self._bounds(X, nodes)
        columns["leaf"] = tree.labels(tree.leaf_nodes[best])
        columns["leaf_probability"] = leaves[rows, best]
        columns["reason"] = self._reasons(ladder, rung, thresholds)
        return pandas.DataFrame(columns)

    def _bounds(self, X: Any, nodes: IntArray) -> dict[str, FloatArray]:
        """Return belief in and plausibility of the answers, if opinions are on this tree."""
        method = opinion_method(self.estimator_)
        opinion = None if method is None else method(X)
        if opinion is None or opinion.taxonomy != self.taxonomy_:
            return {}
        belief, plausibility = np.empty(len(nodes)), np.empty(len(nodes))
        for node in np.unique(nodes).tolist():
            rows = np.flatnonzero(nodes == node)
            label = self.taxonomy_.label(node)
            belief[rows] = opinion[rows].belief(label)
            plausibility[rows] = opinion[rows].plausibility(label)
        return {"belief": belief, "plausibility": plausibility}

    def _reasons(self, ladder: Ladder, rung: IntArray, thresholds: FloatArray) -> list[str]:
        tree, n_rungs = self.taxonomy_, ladder.nodes.shape[1]
        reasons = []
        for row, own in enumerate(rung.tolist()):
            if tree.n_children[tree.last_of_chain[ladder.nodes[row, own]]] == 0:
                reasons.append("a leaf")
            elif own + 1 == n_rungs:
                reasons.append("most information expected")
            else:
                label = tree.label(int(ladder.nodes[row, own + 1]))
                score, wanted = ladder.scores[row, own + 1], thresholds[row, own + 1]
                name = "λ " if self.rule == "darts" else ""
                has, needs = f"{name}{score:.3g}", f"{name}{wanted:.3g}"
                # Often a threshold is just above a probability that many samples have.
                than = f"less than {needs}" if has != needs else "and needs more than that"
                reasons.append(f"{label} has {has}, {than}")
        return reasons

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of right answers: the truth, or an ancestor of it.

        It is about the target for any estimator, and 1 if all answers are the root: no figure to
        choose an estimator by. See :func:`~skh2edl.metrics.operating_area` for that.

        Parameters
        ----------
        X : what the estimator reads
            The samples.
        y : array-like of shape (n_samples,)
            Labels. A label above the answer cannot judge it: such samples are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        accuracy : float
        """
        ladder, rung, _, _ = self._decide(X)
        return share_right(
            ladder.nodes[np.arange(len(rung)), rung], y, sample_weight, self.taxonomy_
        )


def _thresholds_of_rungs(own: FloatArray, nodes: IntArray, tree: Taxonomy) -> FloatArray:
    """Return what the rung at each depth has to reach, given the threshold of each level.

    An answer is also one on the levels below it where it stands for itself: a leaf, or a node
    with an only child. It has to reach their thresholds too.
    """
    last = tree.last_of_chain[nodes]
    stands_for = np.where(tree.n_children[last] == 0, tree.n_levels, tree.depths[last])
    thresholds = np.zeros(nodes.shape)
    for depth in range(1, nodes.shape[1]):
        for level in range(depth, tree.n_levels + 1):
            also = stands_for[:, depth] >= level
            higher = np.maximum(thresholds[:, depth], own[:, level - 1])
            thresholds[:, depth] = np.where(also | (level == depth), higher, thresholds[:, depth])
    return thresholds


def _level_titles(nodes: IntArray, tree: Taxonomy) -> list[Any]:
    """Return the name of each node's level, or its depth where levels have none."""
    titles: list[Any] = [tree.root_name]
    titles += tree.level_names or range(1, tree.n_levels + 1)
    return [titles[depth] for depth in tree.depths[nodes].tolist()]
