"""
Calibration and baselines
=========================

H2EDL beside its baselines on the same features, before and after calibration on held-out data. A
toy with few samples: it shows how to compare, and is no benchmark of the methods.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skh2edl import (
    CalibratedTreeClassifier,
    FlatCEClassifier,
    FlatEDLClassifier,
    H2EDLClassifier,
    HierCEClassifier,
    Taxonomy,
)
from skh2edl.displays import ReliabilityDisplay
from skh2edl.estimators.h2edl import VARIANTS
from skh2edl.scorers import make_level_scorer, make_tree_scorer

tree = Taxonomy.from_nested({"loop": [0, 6, 8, 9], "bow": [2, 3, 5], "straight": [1, 4, 7]})
X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=4, size=X.shape)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=400, random_state=0)
X_held, X_test, y_held, y_test = train_test_split(X_rest, y_rest, train_size=400, random_state=0)

scorers = {
    "accuracy": make_level_scorer("accuracy", "leaf", tree),
    "NLL": make_level_scorer("nll", "leaf", tree),
    "ECE": make_level_scorer("ece", "leaf", tree),
    "severity": make_tree_scorer("mistake_severity", tree),
}
common = {"taxonomy": tree, "backbone": None, "random_state": 0}
models = {
    "Flat-CE": FlatCEClassifier(**common),
    "Hier-CE": HierCEClassifier(**common),
    "Flat-EDL": FlatEDLClassifier(**common),
    "H2EDL, plain": H2EDLClassifier(**VARIANTS["plain"], **common),  # a variant of the paper
    "H2EDL": H2EDLClassifier(**common),
}
# %%
# H2EDL's evidence is scaled, the others' probabilities get a temperature.
print(f"{'':40}" + "".join(f"{name:>10}" for name in scorers))
for name, model in models.items():
    model.fit(X_train, y_train)
    calibrated = CalibratedTreeClassifier(FrozenEstimator(model)).fit(X_held, y_held)
    if calibrated.method_ == "evidence":
        how = f" + evidence x {calibrated.evidence_scale_:.2f}"
    else:
        how = f" + temperature {calibrated.temperature_:.2f}"
    for title, scored in {name: model, name + how: calibrated}.items():
        # A scorer negates a loss, so that greater is better; abs undoes that.
        values = [abs(scorer(scored, X_test, y_test)) for scorer in scorers.values()]
        print(f"{title:40}" + "".join(f"{value:10.3f}" for value in values))

# %%
# On the diagonal, predictions with confidence 0.7 are right in 70 % of cases.
ReliabilityDisplay.from_estimator(models["H2EDL"], X_test, y_test, name="H2EDL")
plt.show()
