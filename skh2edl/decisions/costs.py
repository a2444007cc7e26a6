"""The answer with the least expected cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils import indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..estimators.targets import check_labels
from ..estimators.wrapping import TreeWrapper, fit_on, leaf_log_probability
from ..metrics.inputs import check_weight, label_nodes, mean_or_nan
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import HasMethods, StrOptions
from ._held_out import label_array, opinion_method, opinion_of, read_leaves
from ._ladders import information_of_nodes

FloatArray = npt.NDArray[np.float64]

_NAMED_COSTS = ("distance", "information", "lca_height", "zero_one")
_BLOCK_ELEMENTS = 1 << 22


class MinimumCostClassifier(TreeWrapper):
    """Answer with the leaf, or the node, whose expected cost is least.

    The expected cost of an answer is the sum over all leaves of their probability times what the
    answer costs if that leaf is the truth. With the height of the lowest common ancestor as cost
    this is known as CRM [1]_: milder mistakes without another training. Costs are only as good as
    the probabilities: calibrate them first, for example with
    :class:`~skh2edl.CalibratedTreeClassifier`.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. Fitted by `fit`
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
    cost : str, array-like, DataFrame, dict or callable, default="lca_height"
        What an answer costs if some leaf is the truth.

        - "lca_height": edges from the lowest common ancestor down to its deepest leaf;
        - "distance": edges between answer and truth;
        - "zero_one": 1 for an answer that does not hold the truth;
        - "information": 1 for such an answer, otherwise the share of information that it
          withholds, 1 - log(L / m) / log(L) for a node with m of the L leaves;
        - an array with a row for each answer and a column for each leaf, both in the order of
          `classes_`; with ``answers="nodes"`` rows are the nodes of the taxonomy by number;
        - a DataFrame with answers as index and leaves as columns, in any order;
        - a dict such as ``{("benign", "melanoma"): 50}``: answers at or under the first node cost
          so much where the truth is at or under the second; later entries go before earlier ones,
          all else costs as `base_cost` says;
        - a function of the labels of an answer and of a leaf.
    answers : {"leaves", "nodes"}, default="leaves"
        What may be answered. Under "lca_height" no inner node is ever cheaper than the leaves
        below it; "information" or costs of your own make use of them.
    base_cost : {"lca_height", "distance", "zero_one", "information"}, default="lca_height"
        What a dict leaves open.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.

    Attributes
    ----------
    estimator_ : classifier
        Fitted.
    cost_matrix_ : ndarray of shape (n_answers, n_leaves)
        Costs; columns in the order of `classes_`.
    answers_ : list of labels
        What the rows stand for.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    Notes
    -----
    Of equally cheap answers the one with the fewest leaves is given, of nodes with the same
    leaves the deepest, then the first of `answers_`. Weights of samples go to the estimator's
    own fit.

    References
    ----------
    .. [1] S. Karthik, A. Prabhu, P. Dokania, V. Gandhi, "No cost likelihood manipulation at test
       time for making better mistakes in deep networks", ICLR 2021.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from skh2edl import MinimumCostClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"benign": ["nevus", "wart"], "malignant": ["melanoma"]})
    >>> y = ["nevus"] * 6 + ["wart"] * 3 + ["melanoma"]
    >>> X = [[0]] * 10
    >>> MinimumCostClassifier(DummyClassifier(), taxonomy=tree).fit(X, y).predict([[0]])
    array(['nevus'], dtype='<U5')
    >>> costs = {("benign", "malignant"): 50, ("malignant", "benign"): 2}
    >>> MinimumCostClassifier(DummyClassifier(), costs, taxonomy=tree).fit(X, y).predict([[0]])
    array(['melanoma'], dtype='<U8')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "cost": [StrOptions(set(_NAMED_COSTS)), "array-like", dict, callable],
        "answers": [StrOptions({"leaves", "nodes"})],
        "base_cost": [StrOptions(set(_NAMED_COSTS))],
        "taxonomy": [Taxonomy, None],
    }

    def __init__(
        self,
        estimator: Any,
        cost: Any = "lca_height",
        *,
        answers: str = "leaves",
        base_cost: str = "lca_height",
        taxonomy: Taxonomy | None = None,
    ) -> None:
        self.estimator = estimator
        self.cost = cost
        self.answers = answers
        self.base_cost = base_cost
        self.taxonomy = taxonomy

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the estimator, unless it is frozen, and look up the costs.

        Parameters
        ----------
        X : what the estimator reads
            Training samples.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.
        groups : array-like of shape (n_samples,), default=None
            Given to the estimator's own fit if that takes groups.

        Returns
        -------
        self
        """
        self._validate_params()
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        self.estimator_ = fit_on(self.estimator, X, y, sample_weight, groups)
        self._take_over(self.estimator_, self.taxonomy)
        tree = self.taxonomy_
        if self.answers == "leaves":
            self._nodes = tree.leaf_nodes[tree.leaf_order]
        else:
            self._nodes = np.arange(tree.n_nodes)
        in_tree_order = make_costs(self.cost, self._nodes, tree, self.base_cost)
        self.cost_matrix_ = in_tree_order[:, tree.leaf_order]
        self.answers_ = tree.labels(self._nodes)
        return self

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "classes_")
        return leaf_log_probability(self.estimator_, X, self.taxonomy_)

    def predict_cost(self, X: Any) -> FloatArray:
        """Return the expected cost of every answer.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        costs : ndarray of shape (n_samples, n_answers)
            Columns in the order of `answers_`.
        """
        check_is_fitted(self, "cost_matrix_")
        leaves = read_leaves(self.estimator_, X, self.taxonomy_)[:, self.taxonomy_.leaf_order]
        return np.asarray(leaves @ self.cost_matrix_.T)

    def _cheapest(self, X: Any) -> IntArray:
        """Return the row of the answer to each sample."""
        costs = self.predict_cost(X)
        tree = self.taxonomy_
        # Fewer leaves first; of nodes with the same leaves the deepest.
        above_the_last = tree.depths[tree.last_of_chain] - tree.depths
        size = (tree.leaf_stop - tree.leaf_start) * (tree.n_levels + 1) + above_the_last
        size = size[self._nodes]
        # Sums in another order differ in their last digits; that must not decide, nor must the
        # unit of the costs.
        least = costs.min(axis=1, keepdims=True)
        tied = costs <= least + 1e-12 * np.abs(least)
        return np.where(tied, size, size.max() + 1).argmin(axis=1)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the answer with the least expected cost for each sample.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        rows = self._cheapest(X)
        return label_array(self._nodes[rows], self.taxonomy_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the mean cost of the answers, so that greater is better.

        Parameters
        ----------
        X : what the estimator reads
            The samples.
        y : array-like of shape (n_samples,)
            Labels; those that end above the leaves are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
        """
        rows = self._cheapest(X)
        tree = self.taxonomy_
        truth = label_nodes(check_labels(y, len(rows)), tree)
        weight = check_weight(sample_weight, truth.size)
        is_leaf = tree.n_children[truth] == 0
        costs = self.cost_matrix_[:, np.argsort(tree.leaf_order)][rows, tree.leaf_start[truth]]
        weight = np.where(is_leaf, weight, 0.0)
        return -mean_or_nan(np.where(is_leaf, costs, 0.0), weight, "no sample labelled with a leaf")

    @available_if(lambda self: opinion_method(self.estimator) is not None)
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the hyper-opinions of the estimator.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        check_is_fitted(self, "classes_")
        return opinion_of(self.estimator_, X, self.taxonomy_)


def make_costs(cost: Any, nodes: IntArray, tree: Taxonomy, base_cost: str) -> FloatArray:
    """Return the cost of each answer for each leaf in tree order.

    Parameters
    ----------
    cost : str, array-like, DataFrame, dict or callable
        As in :class:`MinimumCostClassifier`.
    nodes : ndarray of int of shape (n_answers,)
        The answers.
    tree : Taxonomy
        The tree.
    base_cost : str
        Name of the cost of what a dict leaves open.

    Returns
    -------
    costs : ndarray of shape (n_answers, n_leaves)
    """
    if isinstance(cost, str):
        return _named_costs(cost, nodes, tree)
    if isinstance(cost, Mapping):
        costs = _costs_of_pairs(cost, _named_costs(base_cost, nodes, tree), nodes, tree)
    elif hasattr(cost, "columns") and hasattr(cost, "index"):
        costs = _costs_of_frame(cost, nodes, tree)
    elif callable(cost):
        costs = _costs_of_function(cost, nodes, tree)
    else:
        given = _as_numbers(cost)
        if given.shape != (nodes.size, tree.n_leaves):
            raise ValueError(
                f"cost must have shape ({nodes.size}, {tree.n_leaves}), a row for each answer and "
                f"a column for each leaf, got {given.shape}. A dict of pairs of labels names "
                "single costs."
            )
        costs = np.empty_like(given)
        costs[:, tree.leaf_order] = given
    if not np.isfinite(costs).all():
        row, column = np.argwhere(~np.isfinite(costs))[0].tolist()
        raise ValueError(
            f"Costs must be finite, got {costs[row, column]} for answering "
            f"{tree.label(int(nodes[row]))!r} where {tree.leaves[column]!r} is true."
        )
    return costs


def _as_numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Costs must be numbers ({error}). Check what cost holds.") from None


def _named_costs(name: str, nodes: IntArray, tree: Taxonomy) -> FloatArray:
    holds = (tree.leaf_start[nodes, None] <= np.arange(tree.n_leaves)) & (
        np.arange(tree.n_leaves) < tree.leaf_stop[nodes, None]
    )
    if name == "zero_one":
        return (~holds).astype(np.float64)
    if name == "information":
        return np.where(holds, 1 - information_of_nodes(tree)[nodes, None], 1.0)
    costs = np.empty((nodes.size, tree.n_leaves))
    step = max(1, _BLOCK_ELEMENTS // tree.n_leaves)
    for low in range(0, nodes.size, step):
        some = np.repeat(nodes[low : low + step], tree.n_leaves)
        leaves = np.tile(tree.leaf_nodes, some.size // tree.n_leaves)
        if name == "distance":
            values = tree.distance(some, leaves)
        else:
            values = tree.heights[tree.lowest_common_ancestor(some, leaves)]
        costs[low : low + step] = values.reshape(-1, tree.n_leaves)
    return costs


def _costs_of_pairs(
    pairs: Mapping[Any, Any], costs: FloatArray, nodes: IntArray, tree: Taxonomy
) -> FloatArray:
    for pair, value in pairs.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                f"A cost is given for a pair of labels, (answer, truth), got {pair!r}. Write "
                'cost={("benign", "melanoma"): 50}.'
            )
        answer, truth = tree.resolve(list(pair)).tolist()
        under = (tree.leaf_start[nodes] >= tree.leaf_start[answer]) & (
            tree.leaf_stop[nodes] <= tree.leaf_stop[answer]
        )
        costs[under, tree.leaf_start[truth] : tree.leaf_stop[truth]] = _as_numbers(value)
    return costs


def _costs_of_frame(frame: Any, nodes: IntArray, tree: Taxonomy) -> FloatArray:
    rows, columns = tree.resolve(list(frame.index)), tree.resolve(list(frame.columns))
    # Nodes with the same leaves are the same answer.
    of_node = {int(node): row for row, node in enumerate(tree.last_of_chain[rows])}
    of_leaf = {int(node): column for column, node in enumerate(tree.last_of_chain[columns])}
    missing = [tree.label(n) for n in nodes.tolist() if int(tree.last_of_chain[n]) not in of_node]
    missing += [tree.label(node) for node in tree.leaf_nodes.tolist() if node not in of_leaf]
    if missing:
        raise ValueError(
            f"cost has no row or column for {len(missing)} label(s), first {missing[:5]}. Its "
            "index must name every answer and its columns every leaf."
        )
    values = _as_numbers(frame)
    own_rows = [of_node[int(tree.last_of_chain[node])] for node in nodes.tolist()]
    own_columns = [of_leaf[int(node)] for node in tree.leaf_nodes.tolist()]
    return values[np.ix_(own_rows, own_columns)]


def _costs_of_function(
    cost: Callable[[Any, Any], float], nodes: IntArray, tree: Taxonomy
) -> FloatArray:
    answers = tree.labels(nodes)
    return np.array([[float(cost(answer, leaf)) for leaf in tree.leaves] for answer in answers])
