"""Classifiers that say what they are told, and samples drawn from known probabilities."""

import numpy as np
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from strategies import taxonomies

from skh2edl import Taxonomy

# Leaves at three depths, an only child, and branching nodes of two and three children.
TREE = Taxonomy.from_nested(
    {
        "a": {"a1": ["p", "q", "r"], "a2": ["s"]},
        "b": {"b1": ["t", "u"], "b2": ["v", "w"]},
        "c": None,
    },
    level_names=("order", "family", "species"),
)


class Told(ClassifierMixin, BaseEstimator):
    """Its samples are the probabilities of the leaves in tree order."""

    def __init__(self, taxonomy):
        self.taxonomy = taxonomy

    def fit(self, X, y=None):
        self.taxonomy_ = self.taxonomy
        self.classes_ = self.taxonomy.sorted_leaf_labels
        return self

    def predict_proba(self, X):
        return np.asarray(X)[:, self.taxonomy.leaf_order]

    def predict_log_proba(self, X):
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def population(n_samples, sharpness=1.0, seed=0, tree=TREE):
    """Samples with true probabilities q, labels drawn from q, and stated ones ∝ q ** sharpness.

    1 is a calibrated classifier, more an over-confident and less an under-confident one.
    """
    rng = np.random.default_rng(seed)
    # Nested draws: sure of the upper decisions more often than of the lower ones.
    probability = np.ones((n_samples, tree.n_nodes))
    for node in tree.branching_nodes.tolist():
        first, n_children = tree.first_child[node], tree.n_children[node]
        concentration = 0.25 if tree.depths[node] == 0 else 0.7
        conditional = rng.dirichlet([concentration] * n_children, size=n_samples)
        probability[:, first : first + n_children] = conditional
    for node in range(1, tree.n_nodes):
        probability[:, node] *= probability[:, tree.parents[node]]
    true = np.maximum(probability[:, tree.leaf_nodes], 1e-300)
    true /= true.sum(axis=1, keepdims=True)
    drawn = (rng.random((n_samples, 1)) > np.cumsum(true, axis=1)).sum(axis=1)
    stated = true**sharpness
    stated /= stated.sum(axis=1, keepdims=True)
    return stated, tree.leaf_nodes[np.minimum(drawn, tree.n_leaves - 1)]


@st.composite
def stated_probabilities(draw, n_samples=4):
    """A tree of any shape with leaf probabilities, among them zeros and ties."""
    tree = draw(taxonomies())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["smooth", "tied", "sharp", "uniform"]))
    if kind == "smooth":
        leaves = rng.dirichlet(np.ones(tree.n_leaves), size=n_samples)
    elif kind == "tied":
        leaves = rng.integers(0, 3, size=(n_samples, tree.n_leaves)).astype(float)
        leaves[:, 0] += leaves.sum(axis=1) == 0
    elif kind == "sharp":
        leaves = rng.dirichlet(np.full(tree.n_leaves, 0.05), size=n_samples)
    else:
        leaves = np.ones((n_samples, tree.n_leaves))
    return tree, leaves / leaves.sum(axis=1, keepdims=True)
