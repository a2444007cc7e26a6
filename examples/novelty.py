"""
Novelty
=======

Detect samples of no known class. Far from the training data evidence is linear in the features: on
pixels a digit of an unknown class may collect as much as a known one. Kernel features vanish there,
and evidence with them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import train_test_split

from skh2edl import FlatCEClassifier, H2EDLClassifier, NoveltyDetector, Taxonomy

tree = Taxonomy.from_nested(
    {"loop": ["0", "6", "8"], "bow": ["2", "3", "5"], "straight": ["1", "4", "7"]}
)
pixels, y = load_digits(return_X_y=True)
y = y.astype(str)
known = y != "9"  # the model knows no nines
train, rest = train_test_split(np.flatnonzero(known), train_size=300, random_state=0)
held, new = train_test_split(rest, train_size=400, random_state=0)
kernel = Nystroem(gamma=1e-3, n_components=200, random_state=0).fit(pixels[train])
common = {"taxonomy": tree, "backbone": None, "random_state": 0}

print("Novelty: the rate of false alarms is guaranteed, the rate of detection is not.")
print(f"  {'features':10}{'method':9}{'measure':16}false alarms  nines found")
for features, X in {"pixels": pixels, "kernel": kernel.transform(pixels)}.items():
    h2edl = H2EDLClassifier(**common).fit(X[train], y[train])
    flat = FlatCEClassifier(**common).fit(X[train], y[train])
    for name, clf, measure in [
        ("Flat-CE", flat, "probability"),
        ("H2EDL", h2edl, "probability"),
        ("H2EDL", h2edl, "nonspecificity"),
    ]:
        detector = NoveltyDetector(FrozenEstimator(clf), false_alarm_rate=0.05, measure=measure)
        detector.fit(X[held], y[held])
        alarms = detector.predict_novelty(X[new]).mean()
        found = detector.predict_novelty(X[~known]).mean()
        print(f"  {features:10}{name:9}{measure:16}{alarms:12.1%}  {found:11.1%}")
concepts, counts = np.unique(detector.predict_concept(X[~known]), return_counts=True)
print("  nines seem to lie under:", dict(zip(concepts.tolist(), counts.tolist(), strict=True)))

# %%
# On kernel features, the belief that reaches no leaf is larger for the unknown digits.
for name, rows in {"known digits": new, "nines, never seen": ~known}.items():
    uncertainty = h2edl.predict_hyper_opinion(X[rows]).nonspecificity
    plt.hist(uncertainty, np.linspace(0, 1, 30), density=True, alpha=0.6, label=name)
plt.xlabel("nonspecificity U")
plt.ylabel("density")
plt.legend()
plt.show()
