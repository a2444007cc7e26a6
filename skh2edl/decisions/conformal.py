"""Predict sets of nodes, or one node, with a guaranteed coverage."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..metrics.inputs import top_leaves
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
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
from ._ladders import Ladder, climb, last_rung
from ._needed import TOLERANCE, best_outside, node_thresholds_needed
from ._quantile import check_enough, conformal_quantile
from ._subtrees import assign_subtrees, part_of_nodes, part_quantiles

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class ConformalTreeClassifier(NodeWrapper):
    """Predict sets of nodes that cover the truth with a guaranteed probability.

    Each leaf has a nonconformity score that says how badly it fits a sample. The set holds the
    leaves whose score is at most the ⌈(n + 1)(1 - alpha)⌉-th smallest score of the true leaf among
    n held-out samples; leaves that make up a whole subtree are written as its node. If held-out
    and new samples are exchangeable, the truth is in the set with probability 1 - alpha or more,
    for any classifier [1]_. :meth:`predict` returns one node instead: it climbs from the likeliest
    leaf until no leaf outside fits too well, with its own threshold and the same guarantee.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. A
        :class:`~sklearn.frozen.FrozenEstimator` is used as fitted, and all data given to `fit` are
        held-out data. Any other is cloned and fitted as `cv` says.
    alpha : float, default=0.1
        Largest fraction of sets that miss the truth.
    nonconformity : {"probability", "cumulative"}, default="probability"
        The score of a leaf: one minus its probability, which gives the smallest sets on average
        [2]_; or the probability of all leaves at least as likely, which gives sets whose size
        follows the uncertainty of each sample [3]_. The likeliest leaf always scores 0.
    conditional_on : str, int or list of labels, default=None
        Guarantee the coverage for each class separately (Mondrian): for the nodes of a level,
        "leaf" being the deepest, or for the subtrees listed. A leaf is then compared with the
        threshold of its class, and :meth:`predict` returns the smallest node over the set.
    small_classes : {"raise", "pool", "include"}, default="raise"
        What to do with classes that have too few held-out samples: raise an error; pool them
        under one threshold, with an approximate guarantee as in :class:`HedgedClassifier`; or
        include their leaves in every set, which needs no samples.
    partial_labels : {"wrong", "drop"}, default="wrong"
        How to count held-out labels above the leaves. "wrong" requires the set to hold all leaves
        below the label, so that the guarantee holds whatever made labels stop early. "drop"
        leaves such samples out, which is valid only if labels stop early at random. With
        `conditional_on`, labels above the classes are always left out. Where something was left
        out, the guarantee is approximate.
    cv : int, splitter or iterable of splits, default=None
        As in :class:`HedgedClassifier`.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.
    n_jobs : int, default=None
        Number of parallel fits, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    threshold_ : float or ndarray of shape (n_conditional_classes,)
        Largest score of a leaf in the set; with `conditional_on` one for each of
        `conditional_classes_`, infinite for classes that are in every set.
    node_threshold_ : float
        Score that all leaves outside the predicted node reach; only without `conditional_on`.
    conditional_classes_ : list of lists of labels
        The classes of each threshold.
    n_calibration_ : int
        Number of held-out samples.
    n_calibration_groups_ : int
        Number of their groups; without groups, of samples.
    guarantee_ : {"exact", "approximate"}
        "exact" where the bound is a theorem, as in :class:`HedgedClassifier`.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    See Also
    --------
    HedgedClassifier : One node, as deep as a guaranteed accuracy allows.

    Notes
    -----
    The probability is over the draw of the held-out samples and a new one together. It holds for
    the sets and for the single nodes separately, and needs new samples like the held-out ones.
    Groups, sample weights and the margin for batches of other sizes are those of
    :class:`HedgedClassifier`. With `conditional_on`, a group's vote in a class is the fraction of
    its samples of that class.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer, "Algorithmic learning in a random world", 2005.
    .. [2] M. Sadinle, J. Lei, L. Wasserman, "Least ambiguous set-valued classifiers with bounded
       error levels", JASA 2019.
    .. [3] Y. Romano, M. Sesia, E. Candès, "Classification with valid and adaptive coverage",
       NeurIPS 2020; here without random numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skh2edl import ConformalTreeClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(["lynx", "puma", "dog"], 300)
    >>> X = rng.normal(size=(300, 1)) + np.select([y == "lynx", y == "puma"], [2, 4], 0)[:, None]
    >>> model = FrozenEstimator(GaussianNB().fit(X[:100], y[:100]))
    >>> clf = ConformalTreeClassifier(model, alpha=0.1, taxonomy=tree).fit(X[100:], y[100:])
    >>> clf.predict_set([[-1.0], [1.0], [3.0]])
    [['dog'], ['lynx', 'dog'], ['cat']]
    >>> clf.predict([[-1.0], [1.0], [3.0]])
    array(['dog', 'root', 'cat'], dtype='<U4')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **HeldOutWrapper._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "nonconformity": [StrOptions({"probability", "cumulative"})],
        "conditional_on": [str, Integral, list, tuple, None],
        "small_classes": [StrOptions({"raise", "pool", "include"})],
        "partial_labels": [StrOptions({"wrong", "drop"})],
    }
    _learned: ClassVar = {
        **HeldOutWrapper._learned,
        "conditional_classes_": is_names,
        "_part_of_leaf": lambda own, value: is_part_of_leaf(
            own, value, len(own.conditional_classes_)
        ),
        "_thresholds": lambda own, value: is_thresholds(value, len(own.conditional_classes_)),
        "node_threshold_": lambda own, value: (
            is_thresholds(value) if own.conditional_on is None else value is None
        ),
    }

    def __init__(
        self,
        estimator: Any,
        alpha: float = 0.1,
        *,
        nonconformity: str = "probability",
        conditional_on: Any = None,
        small_classes: str = "raise",
        partial_labels: str = "wrong",
        cv: Any = None,
        taxonomy: Taxonomy | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.nonconformity = nonconformity
        self.conditional_on = conditional_on
        self.small_classes = small_classes
        self.partial_labels = partial_labels
        self.cv = cv
        self.taxonomy = taxonomy
        self.n_jobs = n_jobs

    def _learn_from(self, held: HeldOut) -> None:
        tree, coverage = self.taxonomy_, 1 - float(self.alpha)
        scores = largest_scores(held.predictions, self.nonconformity)
        # For a label above the leaves, even the leaf that fits worst has to be in the set.
        worst = _largest_below(scores, held.truth, tree)
        worst[is_surely_top(held.predictions, held.truth, tree)] = 0
        part_of_leaf, names = assign_subtrees(self.conditional_on, tree)
        part = part_of_nodes(held.truth, part_of_leaf, tree)
        self._check_parts(part)
        self.__dict__.pop("node_threshold_", None)  # of an earlier fit
        if self.conditional_on is None:
            check_enough(held.weight, coverage, "raise alpha", held.group)
            needed = node_thresholds_needed(held.predictions, scores, held.truth, tree)
            self.node_threshold_ = conformal_quantile(needed, coverage, held.weight, held.group)
        elif self.small_classes != "include":
            part, part_of_leaf, names = self._merge_small(
                part, held, part_of_leaf, names, coverage, self.small_classes
            )
        quantiles = part_quantiles(
            worst[:, None], [coverage], part, len(names), held.weight, held.group
        )[:, 0]
        self._part_of_leaf, self._thresholds = part_of_leaf, quantiles
        self.conditional_classes_ = names
        self._derive()

    def _derive(self) -> None:
        one = self.conditional_on is None
        self.threshold_ = float(self._thresholds[0]) if one else self._thresholds

    def _scores(self, X: Any) -> tuple[FloatArray, FloatArray]:
        check_is_fitted(self, "threshold_")
        leaves = read_leaves(self.estimator_, X, self.taxonomy_)
        return leaves, leaf_scores(leaves, self.nonconformity, self.taxonomy_)

    def _members(self, X: Any) -> BoolArray:
        """Return which leaves are in the set of each sample, in tree order."""
        return np.asarray(self._scores(X)[1] <= self._thresholds[self._part_of_leaf])

    def predict_leaf_set(self, X: Any) -> BoolArray:
        """Return which leaves are in the set of each sample.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        members : ndarray of bool of shape (n_samples, n_leaves)
            Columns in the order of `classes_`. No set is empty.
        """
        return self._members(X)[:, self.taxonomy_.leaf_order]

    def predict_set(self, X: Any) -> list[list[Any]]:
        """Return the set of each sample, written with as few nodes as possible.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        sets : list of lists of labels
            Nodes in tree order, none under another.
        """
        return write_as_nodes(self._members(X), self.taxonomy_)

    def _predict_nodes(self, X: Any) -> IntArray:
        leaves, scores = self._scores(X)
        if self.conditional_on is None:
            threshold = self.node_threshold_
        else:
            # Above zero: all leaves outside exceed the thresholds of their classes.
            scores = scores - self._thresholds[self._part_of_leaf]
            threshold = float(np.nextafter(0, 1))
        ladder = outside_ladder(leaves, scores, self.taxonomy_)
        rung = last_rung(ladder, threshold)
        return np.asarray(ladder.nodes[np.arange(len(rung)), rung])


def leaf_scores(leaves: FloatArray, nonconformity: str, tree: Taxonomy) -> FloatArray:
    """Return the nonconformity score of each leaf, from 0 (the likeliest) to about 1.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities in tree order.
    nonconformity : {"probability", "cumulative"}
        One minus the probability, or the probability of all that are at least as likely.
    tree : Taxonomy
        The tree.

    Examples
    --------
    >>> tree = Taxonomy.flat(["a", "b", "c"])
    >>> leaf_scores(np.array([[0.25, 0.5, 0.25]]), "cumulative", tree)
    array([[0.75, 0.  , 1.  ]])
    """
    if nonconformity == "probability":
        scores = 1 - leaves
    else:
        # Ties in the order of classes_, as for the likeliest leaf.
        order = tree.leaf_order[np.argsort(-leaves[:, tree.leaf_order], axis=1, kind="stable")]
        running = np.cumsum(np.take_along_axis(leaves, order, axis=1), axis=1)
        scores = np.empty_like(leaves)
        np.put_along_axis(scores, order, running, axis=1)
    scores[np.arange(len(leaves)), top_leaves(leaves, tree)] = 0
    return scores


def largest_scores(leaves: FloatArray, nonconformity: str) -> FloatArray:
    """Return the largest score that each leaf may have beside a likelier one.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities in tree order, of which any sum may move by `TOLERANCE`.
    nonconformity : {"probability", "cumulative"}
        As in :func:`leaf_scores`.

    Examples
    --------
    >>> largest_scores(np.array([[0.25, 0.5, 0.25]]), "cumulative").round(3)
    array([[1. , 0.5, 1. ]])
    """
    if nonconformity == "probability":
        return 1 - leaves + TOLERANCE
    scores = np.empty_like(leaves)
    for sample, own in enumerate(leaves):
        ordered = np.sort(own)
        # All leaves that may be at least as likely.
        first = np.searchsorted(ordered, own - 2 * TOLERANCE)
        scores[sample] = np.cumsum(ordered[::-1])[::-1][first] + TOLERANCE
    return scores


def is_surely_top(leaves: FloatArray, truth: IntArray, tree: Taxonomy) -> BoolArray:
    """Return which true nodes are leaves that no other leaf comes near.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities in tree order.
    truth : ndarray of int of shape (n_samples,)
        True nodes.
    tree : Taxonomy
        The tree.
    """
    near = leaves >= leaves.max(axis=1, keepdims=True) - 2 * TOLERANCE
    is_top = leaves.argmax(axis=1) == tree.leaf_start[truth]
    return np.asarray((near.sum(axis=1) == 1) & is_top & (tree.n_children[truth] == 0))


def outside_ladder(leaves: FloatArray, scores: FloatArray, tree: Taxonomy) -> Ladder:
    """Return the path to the likeliest leaf; a node scores as the best-fitting leaf outside it.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities in tree order.
    scores : ndarray of shape (n_samples, n_leaves)
        Nonconformity score of each leaf.
    tree : Taxonomy
        The tree.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> leaves = np.array([[0.5, 0.3, 0.2]])
    >>> outside_ladder(leaves, 1 - leaves, tree).scores
    array([[inf, 0.8, 0.7]])
    """
    nodes = climb(leaves, tree).nodes
    outside = np.take_along_axis(best_outside(scores, tree), nodes, axis=1)
    return Ladder(nodes, outside)


def write_as_nodes(members: BoolArray, tree: Taxonomy) -> list[list[Any]]:
    """Return the fewest nodes whose leaves are exactly those of each set.

    Parameters
    ----------
    members : ndarray of bool of shape (n_samples, n_leaves)
        Which leaves are in the set, in tree order.
    tree : Taxonomy
        The tree.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> write_as_nodes(np.array([[True, True, False], [True, False, True]]), tree)
    [['cat'], ['lynx', 'dog']]
    """
    counted = np.concatenate(
        [np.zeros((len(members), 1), dtype=np.int64), np.cumsum(members, axis=1)], axis=1
    )
    size = tree.leaf_stop - tree.leaf_start
    whole = counted[:, tree.leaf_stop] - counted[:, tree.leaf_start] == size
    whole[:, 1:] &= ~whole[:, tree.parents[1:]]
    sets: list[list[Any]] = [[] for _ in range(len(members))]
    samples, nodes = np.nonzero(whole)
    order = np.lexsort((tree.leaf_start[nodes], samples))
    labels = tree.labels(tree.last_of_chain[nodes[order]])
    for sample, label in zip(samples[order].tolist(), labels, strict=True):
        sets[sample].append(label)
    return sets


def _largest_below(scores: FloatArray, truth: IntArray, tree: Taxonomy) -> FloatArray:
    """Return the largest score of the leaves under each true node."""
    start, stop = tree.leaf_start[truth], tree.leaf_stop[truth]
    largest = scores[np.arange(len(truth)), start]
    for sample in np.flatnonzero(stop - start > 1).tolist():
        largest[sample] = scores[sample, start[sample] : stop[sample]].max()
    return largest
