"""Labels that stop half-way are training data too: what they teach, and what dropping them costs.

A quick annotator said only "loop", "bow" or "straight" for most of the digits.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skh2edl import H2EDLClassifier, Taxonomy
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
# Which labels are cut depends on a hash of the ids: the same ones in every run.
cut = coarsen_labels(y_train, ids, fraction=0.8, level=1, taxonomy=tree)
fine = np.isin(cut, tree.leaves)
print(f"{len(cut)} training samples, {np.count_nonzero(~fine)} of them known only by shape")

print(f"{'training labels':34}shape  digit")
for name, rows, labels in [
    ("all fine (not to be had)", slice(None), y_train),
    ("as they are", slice(None), cut),
    ("only the fine ones", fine, cut),
]:
    # read_out="nodes": a label that stops half-way sends no gradient below its node.
    for read_out in ("nested", "nodes"):
        clf = H2EDLClassifier(tree, backbone=None, read_out=read_out, random_state=0)
        answers = clf.fit(X_train[rows], labels[rows]).predict(X_test)
        right = [level_accuracy(y_test, answers, tree, level) for level in (1, 2)]
        print(f"{name + ', ' + read_out:34}{right[0]:.3f}  {right[1]:.3f}")
