"""
A tree of tens of thousands of leaves
=====================================

Train, and predict the best leaves without computing all of them. In a large tree a training step
touches only the weights on the paths to its labels, and `predict` searches for the best leaf,
exactly, without computing the others.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

from skh2edl import H2EDLClassifier, Taxonomy

parser = argparse.ArgumentParser(description="Train on a large tree.")
parser.add_argument("--families", type=int, default=30)
parser.add_argument("--genera", type=int, default=30, help="of each family")
parser.add_argument("--species", type=int, default=25, help="of each genus")
parser.add_argument("--samples", type=int, default=2000)
options = parser.parse_args()

tree = Taxonomy.from_paths(
    [
        (f"family {f}", f"genus {f}.{g}", f"species {f}.{g}.{s}")
        for f in range(options.families)
        for g in range(options.genera)
        for s in range(options.species)
    ],
    level_names=("family", "genus", "species"),
)
print(repr(tree))

# Features are close to others of the same genus, and less close to others of the same family. Only
# a hundred species have samples.
rng = np.random.default_rng(0)
family = rng.normal(size=(options.families, 64))
genus = np.repeat(family, options.genera, axis=0)
genus = genus + 0.7 * rng.normal(size=genus.shape)
species = np.repeat(genus, options.species, axis=0)
species = species + 0.5 * rng.normal(size=species.shape)
seen = rng.choice(tree.n_leaves, 100, replace=False)
leaf = rng.choice(seen, options.samples)
X = (species[leaf] + 1.5 * rng.normal(size=(len(leaf), 64))).astype(np.float32)
y = np.array(tree.leaves)[leaf]
X_train, y_train, X_test, y_test = X[:-200], y[:-200], X[-200:], y[-200:]

clf = H2EDLClassifier(
    tree,
    backbone=None,
    solver="adamw",
    max_epochs=3,
    learning_rate=0.03,
    validation_fraction=None,
    random_state=0,
)
clf.fit(X_train, y_train)
print(f"{len(X_train)} training samples of {len(np.unique(y_train))} species")

# %%
# The three best of all species, found by search.
best, probability = clf.predict_top_k(X_test, k=3)
right = best == y_test[:, None]
print(f"right: {right[:, 0].mean():.3f}, among the first three: {right.any(axis=1).mean():.3f}")
print("first predictions:", best[0].tolist(), probability[0].round(2).tolist())

# %%
# Nodes without training samples report vacuity 1.
unseen = clf.unsupervised_nodes_
print(f"{len(unseen)} of {tree.n_branching} branching nodes are not supervised by any label")
opinion = clf.predict_hyper_opinion(X_test[:5])
vacuity = opinion.vacuity[:, tree.branching_nodes.tolist().index(tree.node(unseen[0]))]
print(f"vacuity at {unseen[0]}, one of them: {vacuity.round(2).tolist()}")

plt.hist(opinion.vacuity.ravel(), 40)
plt.yscale("log")
plt.xlabel("vacuity of a node")
plt.ylabel("nodes, for five samples")
plt.show()
