"""
Predictions with a guarantee
============================

Predictions as deep in the tree as a guaranteed accuracy allows, from two kinds of classifiers. The
guarantee needs calibration data like the new data. A threshold set by hand guarantees nothing: the
last line of each classifier shows what 0.8 gives.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skh2edl import H2EDLClassifier, HedgedClassifier, Taxonomy

tree = Taxonomy.from_nested({"loop": [0, 6, 8, 9], "bow": [2, 3, 5], "straight": [1, 4, 7]})
X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=6, size=X.shape)  # ambiguous digits
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=500, random_state=0)
X_held, X_new, y_held, y_new = train_test_split(X_rest, y_rest, train_size=500, random_state=0)

models = {
    "H2EDL": H2EDLClassifier(tree, backbone=None, random_state=0),
    "random forest": RandomForestClassifier(100, random_state=0),
}
depths = {}
for name, model in models.items():
    model.fit(X_train, y_train)
    print(f"{name}: {np.mean(model.predict(X_new) == y_new):.1%} of the digits right")
    for target in (0.9, 0.95, 0.99):
        hedged = HedgedClassifier(FrozenEstimator(model), target, taxonomy=tree)
        hedged.fit(X_held, y_held)  # the model is frozen: only the threshold is learnt
        depth = tree.depths[tree.resolve(hedged.predict(X_new))]
        depths[f"{name}, {target:.0%}"] = [np.mean(depth == level) for level in (2, 1, 0)]
        print(
            f"  guaranteed {target:.0%}, {hedged.score(X_new, y_new):.1%} right: "
            f"{np.mean(depth == 2):.0%} digits, {np.mean(depth == 1):.0%} shapes, "
            f"{np.mean(depth == 0):.0%} neither (threshold {hedged.threshold_:.2f})"
        )
    sure = model.predict_proba(X_new).max(axis=1) >= 0.8
    wrong = np.count_nonzero(model.predict(X_new)[sure] != y_new[sure])
    print(f"  0.8 set by hand: {sure.sum()} of {len(sure)} digits named, {wrong} of them wrong")

# %%
# The reason for each prediction.
frame = hedged.predict_frame(X_new[:3])
print(frame[["node", "probability", "reason"]].to_string())

# %%
# The higher the target, the more predictions stop at the shape.
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
left = np.zeros(len(depths))
for level, values in zip(
    ("digit", "shape", "neither"), zip(*depths.values(), strict=True), strict=True
):
    ax.barh(list(depths), values, left=left, label=level)
    left += values
ax.invert_yaxis()
ax.set_xlabel("fraction of the predictions")
ax.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()
