"""
Labels that stop early
======================

Labels above the leaves are training data too: what does dropping them cost? Most of the digits
are labelled only "loop", "bow" or "straight". From such a label H2EDL learns the decisions above
it, and nothing below it. A flat softmax drops it, or sums the probabilities of its leaves.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skh2edl import FlatCEClassifier, H2EDLClassifier, Taxonomy
from skh2edl.datasets import coarsen_labels
from skh2edl.metrics import level_accuracy

tree = Taxonomy.from_nested(
    {"loop": ["0", "6", "8", "9"], "bow": ["2", "3", "5"], "straight": ["1", "4", "7"]}
)
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y.astype(str), train_size=200, random_state=0
)
ids = np.arange(len(y_train))
# A hash of the ids chooses which labels become coarse: the same ones in every run.
mixed = coarsen_labels(y_train, ids, fraction=0.8, level=1, taxonomy=tree)
fine = np.isin(mixed, tree.leaves)
print(f"{len(mixed)} training samples, {np.count_nonzero(~fine)} of them known only by shape")

# %%
# Every fit sees the same samples, or leaves out those with a coarse label.
common = {"taxonomy": tree, "backbone": None, "random_state": 0}
h2edl = H2EDLClassifier(**common)
drop = FlatCEClassifier(partial_labels="drop", **common)
marginal = FlatCEClassifier(partial_labels="marginal", **common)
results = {}
print(f"{'method':18}{'training labels':25}shape  digit")
for name, clf, training, chosen, labels in [
    ("H2EDL", h2edl, "the fine ones", fine, mixed),
    ("H2EDL", h2edl, "as they are", slice(None), mixed),
    ("H2EDL", h2edl, "all fine (unavailable)", slice(None), y_train),
    ("Flat-CE, drop", drop, "as they are", slice(None), mixed),
    ("Flat-CE, marginal", marginal, "as they are", slice(None), mixed),
    ("Flat-CE", drop, "all fine (unavailable)", slice(None), y_train),
]:
    predictions = clf.fit(X_train[chosen], labels[chosen]).predict(X_test)
    shape, digit = (level_accuracy(y_test, predictions, tree, level) for level in (1, 2))
    print(f"{name:18}{training:25}{shape:.3f}  {digit:.3f}")
    results[f"{name}: {training}"] = shape, digit

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
places = np.arange(len(results))
for offset, (level, values) in enumerate(
    zip(("shape", "digit"), zip(*results.values(), strict=True), strict=True)
):
    ax.barh(places + 0.4 * offset, values, 0.38, label=level)
ax.set_yticks(places + 0.2, list(results))
ax.invert_yaxis()
ax.set(xlabel="accuracy", xlim=(0.5, 1))
ax.legend()
plt.show()
