"""
Pictures of a model
===================

Displays work like scikit-learn's: `from_estimator` takes a fitted model, `from_predictions` its
predictions, `plot(ax=...)` draws again on axes of your own. `ax_` and `figure_` let you change and
save the result; the numbers of a picture are attributes of its display.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem

from skh2edl import FlatCEClassifier, H2EDLClassifier, Recipe
from skh2edl.datasets import make_glyphs
from skh2edl.displays import (
    DepthProfileDisplay,
    LCAConfusionDisplay,
    OperatingCurveDisplay,
    OpinionTreeDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    TrainingHistoryDisplay,
)

glyphs = make_glyphs(4000, image_size=16, noise=(0.0, 0.05), random_state=0)
train, test = glyphs.subset("train", "val"), glyphs.subset("test")
tree, y_test = glyphs.taxonomy, test.labels
kernel = Nystroem(gamma=0.02, n_components=400, random_state=0)
X = kernel.fit_transform(train.images.reshape(len(train), -1) / 255)
X_test = kernel.transform(test.images.reshape(len(test), -1) / 255)
options = {"backbone": None, "solver": "adamw", "max_epochs": 20, "learning_rate": 3e-3}
options |= {"recipe": Recipe(selection="neg_log_loss", weight_decay=0.1), "random_state": 0}
h2edl = H2EDLClassifier(tree, **options).fit(X, train.labels)
flat = FlatCEClassifier(tree, **options).fit(X, train.labels)

# %%
# One opinion on the tree. *Mass* is the belief that arrives at a node and stops there; *vacuity* is
# the fraction of belief that the node's decision does not commit. The last column draws a line from
# belief to plausibility with a point at the probability; it is no confidence interval. Rows in
# italics are folded, and a star marks the true label.
opinion = h2edl.predict_hyper_opinion(X_test)
row = np.argsort(opinion.nonspecificity)[len(y_test) // 2]
OpinionTreeDisplay.from_predictions(opinion, row, image=test.images[row], label=y_test[row])
plt.show()

# %%
# How far belief reaches, for right and wrong predictions. A bar reads from left to right as the
# path down: what stops at the root, at each level below, and what arrives at single leaves.
DepthProfileDisplay.from_predictions(opinion, y_test)
plt.show()

# %%
# Reliability at every level. Below the diagonal a model is over-confident, above it
# under-confident. Bins with less than 1 % of the samples are points without a line.
ReliabilityDisplay.from_estimator(h2edl, X_test, y_test, name="H2EDL")
plt.show()

# %%
# Confusion by lowest common ancestor. The columns say which level is the first to be wrong;
# mistakes on the left are the severe ones.
LCAConfusionDisplay.from_estimator(h2edl, X_test, y_test, level="kind")
plt.show()

# %%
# Risk against coverage. From left to right the model predicts for more and more samples, the most
# confident first; lower is better.
first = RiskCoverageDisplay.from_estimator(h2edl, X_test, y_test, name="H2EDL")
RiskCoverageDisplay.from_estimator(flat, X_test, y_test, name="Flat-CE", ax=first.ax_)
plt.show()

# %%
# Accuracy against information. A prediction climbs the tree until it is likely enough; at the top
# left every prediction is the root, at the other end a leaf. A flat softmax with summed
# probabilities is hard to beat here (`Valmadre 2022 <https://arxiv.org/abs/2210.10929>`_): draw one
# beside your model.
first = OperatingCurveDisplay.from_estimator(h2edl, X_test, y_test, name="H2EDL")
OperatingCurveDisplay.from_estimator(flat, X_test, y_test, name="Flat-CE", ax=first.ax_)
plt.show()

# %%
# The history of a fit; the dotted line marks the epoch whose weights are kept.
TrainingHistoryDisplay.from_estimator(h2edl)
plt.show()
