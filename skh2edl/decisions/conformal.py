"""Sets of nodes, or one node, that hold the truth with a promised probability."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..metrics.inputs import top_leaves
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import HasMethods, Interval, StrOptions
from ._held_out import HeldOut, HeldOutWrapper, label_array, read_leaves, share_right
from ._ladders import Ladder, climb, last_rung, thresholds_needed
from ._quantile import check_enough, conformal_quantile
from ._subtrees import assign_subtrees, is_pooled, merge_small

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class ConformalTreeClassifier(HeldOutWrapper):
    """Answer with sets of nodes that hold the truth with a promised probability.

    Each leaf has a score that says how badly it fits a sample. The set holds the leaves whose
    score is at most the ⌈(n + 1)(1 - alpha)⌉-th smallest score of the true leaf among n held-out
    samples; leaves that together make up a subtree are written as its node. If held-out and new
    samples are exchangeable, the truth is in the set with probability 1 - alpha or more, whatever
    the classifier is [1]_. :meth:`predict` gives one node instead: it climbs from the likeliest
    leaf until no leaf outside fits too well, with a threshold of its own and the same promise.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. In a
        :class:`~sklearn.frozen.FrozenEstimator` it is taken as fitted and all data given to `fit`
        are held-out data. Otherwise it is cloned and fitted as `cv` says.
    alpha : float, default=0.1
        Largest share of sets that miss the truth.
    nonconformity : {"probability", "cumulative"}, default="probability"
        How badly a leaf fits: one minus its probability, which gives the smallest sets on average
        [2]_; or the probability of all leaves at least as likely, which gives sets whose size
        follows the doubt in each sample [3]_. The likeliest leaf always fits.
    conditional_on : str, int or list of labels, default=None
        Promise the coverage for each class separately (Mondrian): for the nodes of a level,
        "leaf" being the deepest, or for the subtrees named. A leaf is then held against the
        threshold of its class; the single node is the smallest one over the set.
    small_classes : {"raise", "pool", "include"}, default="raise"
        What to do with classes that have too few held-out samples: refuse; let them share one
        threshold and one promise, which is approximate, as in :class:`HedgedClassifier`; or have
        their leaves in every set, which needs no samples.
    partial_labels : {"wrong", "drop"}, default="wrong"
        What a held-out label above the leaves says. "wrong" asks the set to hold all leaves
        below it, which keeps the promise about the truth whatever made labels stop early. "drop"
        leaves such samples out, which is right only if labels stop early by chance. With
        `conditional_on`, labels that do not reach the classes are left out in any case.
    cv : int, splitter or iterable of splits, default=None
        As in :class:`HedgedClassifier`: exact with one split, approximate with several.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.
    n_jobs : int, default=None
        Fits at the same time, as in joblib.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    threshold_ : float or ndarray of shape (n_parts,)
        Largest score of a leaf in the set; for each of `classes_of_promise_` if `conditional_on`
        is given, infinite for classes that are in every set.
    node_threshold_ : float
        Score that all leaves outside the single node exceed; without `conditional_on` only.
    classes_of_promise_ : list of lists of labels
        Which classes each promise is about.
    n_calibration_ : int
        Number of held-out samples.
    guarantee_ : {"exact", "approximate"}
        "approximate" after cross-validation, and where small classes share a promise.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    See Also
    --------
    HedgedClassifier : One node as deep as a promised accuracy allows.

    Notes
    -----
    The promise is over new and held-out samples together, holds for the sets and for the single
    nodes each on its own, and needs new samples like the held-out ones. Weights of samples are
    used as in :class:`HedgedClassifier`.

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
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "nonconformity": [StrOptions({"probability", "cumulative"})],
        "conditional_on": [str, Integral, list, tuple, None],
        "small_classes": [StrOptions({"raise", "pool", "include"})],
        "partial_labels": [StrOptions({"wrong", "drop"})],
        "cv": ["cv_object"],
        "taxonomy": [Taxonomy, None],
        "n_jobs": [Integral, None],
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Learn from held-out samples how badly the truth may fit.

        Parameters
        ----------
        X : what the estimator reads
            Held-out samples for a frozen estimator, otherwise samples to fit and to hold out.
        y : array-like of shape (n_samples,)
            Labels: leaves or ancestors.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in training and in calibration.
        groups : array-like of shape (n_samples,), default=None
            As in :meth:`HedgedClassifier.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        held = self._fit_held_out(X, y, sample_weight, groups, read_leaves, self.partial_labels)
        tree, coverage = self.taxonomy_, 1 - float(self.alpha)
        scores = leaf_scores(held.answers, self.nonconformity, tree)
        # Of a label above the leaves the leaf that fits worst has to be in the set.
        worst = _largest_below(scores, held.truth, tree)
        self._part_of_leaf, self.classes_of_promise_ = assign_subtrees(self.conditional_on, tree)
        self.__dict__.pop("node_threshold_", None)  # of an earlier fit
        if self.conditional_on is not None:
            self._thresholds = self._fit_classes(held, worst, coverage)
            self.threshold_: float | FloatArray = self._thresholds
            return self
        check_enough(held.weight, coverage, "raise alpha")
        self.threshold_ = conformal_quantile(worst, coverage, held.weight)
        self._thresholds = np.array([self.threshold_])
        needed = thresholds_needed(rival_ladder(held.answers, scores, tree), held.truth, tree)
        self.node_threshold_ = conformal_quantile(needed, coverage, held.weight)
        return self

    def _fit_classes(self, held: HeldOut, worst: FloatArray, coverage: float) -> FloatArray:
        """Return the threshold of each class."""
        tree, of_leaf = self.taxonomy_, self._part_of_leaf
        part = of_leaf[tree.leaf_start[held.truth]]
        part[part != of_leaf[tree.leaf_stop[held.truth] - 1]] = -1
        if self.small_classes != "include":
            part, self._part_of_leaf, self.classes_of_promise_ = merge_small(
                part, held.weight, of_leaf, self.classes_of_promise_, coverage, self.small_classes
            )
            if is_pooled(self.classes_of_promise_):
                self.guarantee_ = "approximate"
        return np.array(
            [
                conformal_quantile(worst[part == number], coverage, held.weight[part == number])
                for number in range(len(self.classes_of_promise_))
            ]
        )

    def _scores(self, X: Any) -> tuple[FloatArray, FloatArray]:
        check_is_fitted(self, "threshold_")
        leaves = read_leaves(self.estimator_, X, self.taxonomy_)
        return leaves, leaf_scores(leaves, self.nonconformity, self.taxonomy_)

    def predict_leaf_set(self, X: Any) -> BoolArray:
        """Return which leaves are in the set of each sample.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        members : ndarray of bool of shape (n_samples, n_leaves)
            Columns in the order of `classes_`. No set is empty.
        """
        _, scores = self._scores(X)
        return self._members(scores)[:, self.taxonomy_.leaf_order]

    def _members(self, scores: FloatArray) -> BoolArray:
        return np.asarray(scores <= self._thresholds[self._part_of_leaf])

    def predict_set(self, X: Any) -> list[list[Any]]:
        """Return the set of each sample, as few nodes as name exactly its leaves.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        sets : list of lists of labels
            Nodes in tree order, none under another.
        """
        _, scores = self._scores(X)
        return write_as_nodes(self._members(scores), self.taxonomy_)

    def _answers(self, X: Any) -> IntArray:
        leaves, scores = self._scores(X)
        if self.conditional_on is None:
            threshold = self.node_threshold_
        else:
            # Above zero: all leaves outside exceed the thresholds of their classes.
            scores = scores - self._thresholds[self._part_of_leaf]
            threshold = float(np.nextafter(0, 1))
        ladder = rival_ladder(leaves, scores, self.taxonomy_)
        rung = last_rung(ladder, threshold)
        return np.take_along_axis(ladder.nodes, rung[:, None], axis=1)[:, 0]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return one node for each sample, under which the truth lies as often as promised.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of leaves, inner nodes or the root.
        """
        return label_array(self._answers(X), self.taxonomy_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of single nodes under which the truth lies.

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
        coverage : float
        """
        return share_right(self._answers(X), y, sample_weight, self.taxonomy_)


def leaf_scores(leaves: FloatArray, nonconformity: str, tree: Taxonomy) -> FloatArray:
    """Return how badly each leaf fits, between 0 and about 1; 0 for the likeliest.

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
        # Equals in the order of classes_, as the likeliest leaf is chosen.
        order = tree.leaf_order[np.argsort(-leaves[:, tree.leaf_order], axis=1, kind="stable")]
        running = np.cumsum(np.take_along_axis(leaves, order, axis=1), axis=1)
        scores = np.empty_like(leaves)
        np.put_along_axis(scores, order, running, axis=1)
    scores[np.arange(len(leaves)), top_leaves(leaves, tree)] = 0
    return scores


def rival_ladder(leaves: FloatArray, scores: FloatArray, tree: Taxonomy) -> Ladder:
    """Return the way to the likeliest leaf, each node scored by the best fit outside it.

    Parameters
    ----------
    leaves : ndarray of shape (n_samples, n_leaves)
        Probabilities in tree order.
    scores : ndarray of shape (n_samples, n_leaves)
        How badly each leaf fits.
    tree : Taxonomy
        The tree.

    Examples
    --------
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> leaves = np.array([[0.5, 0.3, 0.2]])
    >>> rival_ladder(leaves, 1 - leaves, tree).scores
    array([[inf, 0.8, 0.7]])
    """
    nodes = climb(leaves, tree).nodes
    none = np.full((len(leaves), 1), np.inf)
    before = np.concatenate([none, np.minimum.accumulate(scores, axis=1)], axis=1)
    after = np.minimum.accumulate(np.concatenate([scores, none], axis=1)[:, ::-1], axis=1)[:, ::-1]
    outside = np.minimum(
        np.take_along_axis(before, tree.leaf_start[nodes], axis=1),
        np.take_along_axis(after, tree.leaf_stop[nodes], axis=1),
    )
    return Ladder(nodes, outside)


def write_as_nodes(members: BoolArray, tree: Taxonomy) -> list[list[Any]]:
    """Return the fewest nodes that name exactly the leaves of each set.

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
    rows, nodes = np.nonzero(whole)
    order = np.lexsort((tree.leaf_start[nodes], rows))
    labels = tree.labels(tree.last_of_chain[nodes[order]])
    for row, label in zip(rows[order].tolist(), labels, strict=True):
        sets[row].append(label)
    return sets


def _largest_below(scores: FloatArray, truth: IntArray, tree: Taxonomy) -> FloatArray:
    """Return the largest score of the leaves under each true node."""
    start, stop = tree.leaf_start[truth], tree.leaf_stop[truth]
    largest = scores[np.arange(len(truth)), start]
    for row in np.flatnonzero(stop - start > 1).tolist():
        largest[row] = scores[row, start[row] : stop[row]].max()
    return largest
