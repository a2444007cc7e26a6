"""Predict the leaf or node with the smallest expected cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from ..estimators.targets import check_labels
from ..metrics.inputs import check_weight, label_nodes, mean_or_nan
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.sklearn_tools import StrOptions
from ._held_out import DecisionWrapper, label_array, read_leaves
from ._ladders import covers, information_of_nodes

FloatArray = npt.NDArray[np.float64]

_NAMED_COSTS = ("distance", "information", "lca_height", "zero_one")
# Costs computed at once: 32 MB.
_BLOCK_ELEMENTS = 1 << 22


def _is_cost_matrix(wrapper: Any, value: Any) -> bool:
    tree = wrapper.taxonomy_
    n_outputs = tree.n_leaves if wrapper.outputs == "leaves" else tree.n_nodes
    is_shape = value.dtype == np.float64 and value.shape == (n_outputs, tree.n_leaves)
    return bool(is_shape and np.isfinite(value).all())


class MinimumCostClassifier(DecisionWrapper):
    """Predict the leaf, or the node, with the smallest expected cost.

    The expected cost of a prediction is the sum, over all leaves, of the probability of the leaf
    times the cost of the prediction if that leaf is true. With the height of the lowest common
    ancestor as cost, this is CRM [1]_, which makes mistakes milder without retraining. Expected
    costs are only as good as the probabilities: calibrate them first, for example with
    :class:`~skh2edl.CalibratedTreeClassifier`.

    Parameters
    ----------
    estimator : classifier
        One of this package, or any other of scikit-learn with `predict_proba`. Fitted by `fit`
        unless it is in a :class:`~sklearn.frozen.FrozenEstimator`.
    cost : str, array-like, DataFrame, dict or callable, default="lca_height"
        The cost of a prediction if some leaf is true.

        - "lca_height": edges from the lowest common ancestor down to its deepest leaf;
        - "distance": edges between prediction and true leaf;
        - "zero_one": 1 if the true leaf is not under the prediction;
        - "information": 1 if the true leaf is not under the prediction, otherwise
          1 - log(L / m) / log(L) for a node with m of the L leaves;
        - an array with a row for each possible prediction and a column for each leaf, both in the
          order of `classes_`; with ``outputs="nodes"`` a row for each node of the taxonomy, in
          the order of node numbers;
        - a DataFrame with predictions as index and leaves as columns, in any order;
        - a dict such as ``{("benign", "melanoma"): 50}``: the cost of predictions at or under the
          first node if the truth is at or under the second; later entries override earlier ones,
          and `base_cost` gives all other costs;
        - a function of the label of a prediction and the label of a leaf.
    outputs : {"leaves", "nodes"}, default="leaves"
        What may be predicted. With "lca_height" no inner node is ever cheaper than the leaves
        below it; use "information" or your own costs with "nodes".
    base_cost : {"lca_height", "distance", "zero_one", "information"}, default="lca_height"
        Costs of the pairs that a dict does not name.
    taxonomy : Taxonomy, default=None
        None takes the estimator's, or makes a flat one of its classes.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    cost_matrix_ : ndarray of shape (n_outputs, n_leaves)
        Costs; rows in the order of `outputs_`, columns in the order of `classes_`.
    outputs_ : list of labels
        The possible predictions.
    taxonomy_ : Taxonomy
        The tree.
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    n_features_in_, feature_names_in_
        As of `estimator_`, if it has them.

    Notes
    -----
    Of equally cheap predictions the one with the fewest leaves is taken, of nodes with the same
    leaves the deepest, then the first of `outputs_`. Sample weights are passed to the estimator's
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
        **DecisionWrapper._parameter_constraints,
        "cost": [StrOptions(set(_NAMED_COSTS)), "array-like", dict, callable],
        "outputs": [StrOptions({"leaves", "nodes"})],
        "base_cost": [StrOptions(set(_NAMED_COSTS))],
    }
    _learned: ClassVar = {"cost_matrix_": _is_cost_matrix}

    def __init__(
        self,
        estimator: Any,
        cost: Any = "lca_height",
        *,
        outputs: str = "leaves",
        base_cost: str = "lca_height",
        taxonomy: Taxonomy | None = None,
    ) -> None:
        self.estimator = estimator
        self.cost = cost
        self.outputs = outputs
        self.base_cost = base_cost
        self.taxonomy = taxonomy

    def _derive(self) -> None:
        tree = self.taxonomy_
        if self.outputs == "leaves":
            self._nodes = tree.leaf_nodes[tree.leaf_order]
        else:
            self._nodes = np.arange(tree.n_nodes)
        self.outputs_ = tree.labels(self._nodes)

    def _learn(self) -> None:
        tree = self.taxonomy_
        in_tree_order = make_costs(self.cost, self._nodes, tree, self.base_cost)
        self.cost_matrix_ = in_tree_order[:, tree.leaf_order]

    def predict_cost(self, X: Any) -> FloatArray:
        """Return the expected cost of every possible prediction.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        costs : ndarray of shape (n_samples, n_outputs)
            Columns in the order of `outputs_`.
        """
        check_is_fitted(self, "cost_matrix_")
        leaves = read_leaves(self.estimator_, X, self.taxonomy_)[:, self.taxonomy_.leaf_order]
        return np.asarray(leaves @ self.cost_matrix_.T)

    def _cheapest(self, X: Any) -> IntArray:
        """Return the row of `cost_matrix_` of each prediction."""
        costs = self.predict_cost(X)
        tree = self.taxonomy_
        # Fewer leaves first; of nodes with the same leaves the deepest.
        above_the_last = tree.depths[tree.last_of_chain] - tree.depths
        size = (tree.leaf_stop - tree.leaf_start) * (tree.n_levels + 1) + above_the_last
        size = size[self._nodes]
        # A tolerance for rounding, relative because costs may have any unit.
        least = costs.min(axis=1, keepdims=True)
        tied = costs <= least + 1e-12 * np.abs(least)
        return np.where(tied, size, size.max() + 1).argmin(axis=1)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the leaf or node with the smallest expected cost.

        Parameters
        ----------
        X : array-like or images
            The samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        rows = self._cheapest(X)
        return label_array(self._nodes[rows], self.taxonomy_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the mean cost of the predictions, so that greater is better.

        Parameters
        ----------
        X : array-like or images
            The samples.
        y : array-like of shape (n_samples,)
            Labels; those above the leaves are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.

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


def make_costs(cost: Any, nodes: IntArray, tree: Taxonomy, base_cost: str) -> FloatArray:
    """Return the cost of each prediction for each true leaf, in tree order.

    Parameters
    ----------
    cost : str, array-like, DataFrame, dict or callable
        As in :class:`MinimumCostClassifier`.
    nodes : ndarray of int of shape (n_outputs,)
        The possible predictions.
    tree : Taxonomy
        The tree.
    base_cost : str
        Name of the costs that a dict does not give.

    Returns
    -------
    costs : ndarray of shape (n_outputs, n_leaves)
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
                f"cost must have shape ({nodes.size}, {tree.n_leaves}), a row for each prediction "
                f"and a column for each leaf, got {given.shape}. To set single costs, give a dict "
                "of pairs of labels."
            )
        costs = np.empty_like(given)
        costs[:, tree.leaf_order] = given
    if not np.isfinite(costs).all():
        row, column = np.argwhere(~np.isfinite(costs))[0].tolist()
        raise ValueError(
            f"Costs must be finite, got {costs[row, column]} for predicting "
            f"{tree.label(int(nodes[row]))!r} where {tree.leaves[column]!r} is true."
        )
    return costs


def _as_numbers(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Costs must be numbers ({error}). Check what cost holds.") from None


def _named_costs(name: str, nodes: IntArray, tree: Taxonomy) -> FloatArray:
    if name in ("zero_one", "information"):
        pairs = np.broadcast_to(nodes, (tree.n_leaves, nodes.size))
        gained = np.ones(tree.n_nodes) if name == "zero_one" else information_of_nodes(tree)
        return np.where(covers(pairs, tree.leaf_nodes, tree).T, 1 - gained[nodes, None], 1.0)
    costs = np.empty((nodes.size, tree.n_leaves))
    step = max(1, _BLOCK_ELEMENTS // tree.n_leaves)
    for low in range(0, nodes.size, step):
        pair = nodes[low : low + step, None], tree.leaf_nodes
        if name == "distance":
            costs[low : low + step] = tree.distance(*pair)
        else:
            costs[low : low + step] = tree.heights[tree.lowest_common_ancestor(*pair)]
    return costs


def _costs_of_pairs(
    pairs: Mapping[Any, Any], costs: FloatArray, nodes: IntArray, tree: Taxonomy
) -> FloatArray:
    for pair, value in pairs.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                f"A cost is given for a pair of labels, (prediction, truth), got {pair!r}. Write "
                'cost={("benign", "melanoma"): 50}.'
            )
        predicted, truth = tree.resolve(list(pair)).tolist()
        under = covers(np.full(nodes.size, predicted), nodes, tree)
        costs[under, tree.leaf_start[truth] : tree.leaf_stop[truth]] = _as_numbers(value)
    return costs


def _costs_of_frame(frame: Any, nodes: IntArray, tree: Taxonomy) -> FloatArray:
    row_of, column_of = np.full((2, tree.n_nodes), -1)
    # Nodes with the same leaves are the same prediction.
    row_of[label_nodes(list(frame.index), tree)] = np.arange(len(frame.index))
    column_of[label_nodes(list(frame.columns), tree)] = np.arange(len(frame.columns))
    rows, columns = row_of[tree.last_of_chain[nodes]], column_of[tree.leaf_nodes]
    missing = tree.labels(nodes[rows < 0]) + tree.labels(tree.leaf_nodes[columns < 0])
    if missing:
        raise ValueError(
            f"cost has no row or column for {len(missing)} label(s), first {missing[:5]}. Its "
            "index must name every possible prediction and its columns every leaf."
        )
    return _as_numbers(frame)[np.ix_(rows, columns)]


def _costs_of_function(
    cost: Callable[[Any, Any], float], nodes: IntArray, tree: Taxonomy
) -> FloatArray:
    return np.array(
        [[float(cost(label, leaf)) for leaf in tree.leaves] for label in tree.labels(nodes)]
    )
