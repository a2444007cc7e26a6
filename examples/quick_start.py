"""
Quick start
===========

From data to predictions in a few lines: handwritten digits on a tree of three shapes.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skh2edl import H2EDLClassifier, Taxonomy
from skh2edl.displays import OpinionTreeDisplay

tree = Taxonomy.from_nested({"loop": [0, 6, 8, 9], "bow": [2, 3, 5], "straight": [1, 4, 7]})
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
clf = H2EDLClassifier(tree, backbone=None, random_state=0).fit(X_train, y_train)

print("digits right:", round(clf.score(X_test, y_test), 3))
print("digits:", clf.predict(X_test[:4]), "and their shapes:", clf.predict_level(X_test[:4], 1))

# %%
# An opinion says how far down the tree the evidence reaches.
opinion = clf.predict_hyper_opinion(X_test)
vaguest = opinion.nonspecificity.argmax()
print("the least certain one:", opinion.explain(vaguest))
pixels = (255 - 15 * X_test[vaguest]).astype("uint8").reshape(8, 8)
OpinionTreeDisplay.from_predictions(opinion, vaguest, image=pixels, label=y_test[vaguest])
plt.show()
