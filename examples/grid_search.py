"""
Search over parameters
======================

Choose parameters with GridSearchCV, by scores at the level that matters.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import H2EDLClassifier, Taxonomy
from skh2edl.scorers import make_level_scorer, make_tree_scorer

tree = Taxonomy.from_nested({"loop": [0, 6, 8, 9], "bow": [2, 3, 5], "straight": [1, 4, 7]})
X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=300, random_state=0)

search = GridSearchCV(
    make_pipeline(StandardScaler(), H2EDLClassifier(tree, backbone=None, random_state=0)),
    {"h2edlclassifier__l2": [0.003, 0.03, 0.3], "h2edlclassifier__kl_weight": [0, 0.1, 1]},
    scoring={
        "nll": make_level_scorer("neg_nll", "leaf", tree),
        "shape": make_level_scorer("balanced_accuracy", 1, tree),
        "distance": make_tree_scorer("neg_hierarchical_distance", tree),
    },
    refit="nll",  # a proper score: it rewards calibrated probabilities, not only right predictions
    cv=StratifiedKFold(3, shuffle=True, random_state=0),
)
search.fit(X_train, y_train)

# %%
# Every candidate has its scores; the NLL chooses.
print("   l2  kl_weight   NLL  shape  distance")
results = search.cv_results_
for candidate, parameters in enumerate(results["params"]):
    l2, kl_weight = parameters["h2edlclassifier__l2"], parameters["h2edlclassifier__kl_weight"]
    nll, shape, distance = (
        results[f"mean_test_{name}"][candidate] for name in ("nll", "shape", "distance")
    )
    print(f"{l2:5}  {kl_weight:9}  {-nll:.3f}  {shape:.3f}  {-distance:.3f}")
print("chosen:", search.best_params_)
print("score on test samples:", round(search.score(X_test, y_test), 3))

nll = -results["mean_test_nll"].reshape(3, 3)  # by kl_weight, then l2: in the order of their names
plt.imshow(nll, cmap="viridis_r")
plt.colorbar(label="NLL")
plt.xticks(range(3), search.param_grid["h2edlclassifier__l2"])
plt.yticks(range(3), search.param_grid["h2edlclassifier__kl_weight"])
plt.xlabel("l2")
plt.ylabel("kl_weight")
plt.show()
