"""What is none of the known classes, and which samples to have labelled next."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from skh2edl import H2EDLClassifier, NoveltyDetector, Taxonomy, rank_for_annotation

tree = Taxonomy.from_nested(
    {"loop": ["0", "6", "8"], "bow": ["2", "3", "5"], "straight": ["1", "4", "7"]}
)
X, y = load_digits(return_X_y=True)
y = y.astype(str)
known = y != "9"  # the model knows no nines
X_train, X_rest, y_train, y_rest = train_test_split(
    X[known], y[known], train_size=300, random_state=0
)
X_held, X_new, y_held, y_new = train_test_split(X_rest, y_rest, train_size=400, random_state=0)
clf = H2EDLClassifier(tree, backbone=None, random_state=0).fit(X_train, y_train)

print("Novelty: the rate of false alarms is guaranteed, the rate of discovery is not.")
for measure in ("nonspecificity", "probability"):
    detector = NoveltyDetector(FrozenEstimator(clf), false_alarm_rate=0.05, measure=measure)
    detector.fit(X_held, y_held)
    alarms = detector.predict_novelty(X_new).mean()
    found = detector.predict_novelty(X[~known]).mean()
    print(f"  by {measure:15} {alarms:.1%} false alarms, {found:.1%} of the nines found")
concepts, counts = np.unique(detector.predict_concept(X[~known]), return_counts=True)
print("  nines seem to lie under:", dict(zip(concepts.tolist(), counts.tolist(), strict=True)))

print("Annotation: a heuristic, so compare it with labelling at random.")
rng = np.random.default_rng(0)
start = rng.permutation(len(X_train))[:30]
first = H2EDLClassifier(tree, backbone=None, random_state=0)
first.fit(X_train[start], y_train[start])
print(f"  with {len(start)} labels: {first.score(X_new, y_new):.3f} right")
# X_held is the pool here: the samples to judge by must not be among those chosen.
plan = rank_for_annotation(first.predict_hyper_opinion(X_held), budget=40)
print(f"  first choice: sample {plan.rows[0]}, down to depth {plan.depths[0]}: ", end="")
print(f"{plan.doubt[0]:.2f} of its belief stops above the leaves, most at {plan.nodes[0]}")
at_random = rng.permutation(len(X_held))[:40]
for name, chosen in {"chosen": plan.rows, "random": at_random}.items():
    more = H2EDLClassifier(tree, backbone=None, random_state=0)
    more.fit(np.vstack([X_train[start], X_held[chosen]]), [*y_train[start], *y_held[chosen]])
    print(f"  with {len(chosen)} more, {name}: {more.score(X_new, y_new):.3f} right")
