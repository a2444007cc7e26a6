"""
Insects out of focus
====================

One insect, sharp and through five steps of blur: the prediction climbs from the species to the
genus to the order. The insects are drawn (`make_insects`); their species vanish first in a blur,
then their genera, then their orders.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import FlatCEClassifier, H2EDLClassifier, HedgedClassifier, TreeView
from skh2edl.datasets import make_insects
from skh2edl.displays import DepthProfileDisplay, OpinionTreeDisplay

insects = make_insects(4000, occlusion=0.0, random_state=0)
train, val, test = (insects.subset(name) for name in ("train", "val", "test"))
tree = insects.taxonomy
print(tree.draw(max_lines=12))


# %%
# Features that do not change when an insect turns: colours on circles around the centre, and the
# strength of their frequencies. For photographs, name a `backbone` instead.
def on_circles(images):
    n, size, _, _ = images.shape
    radius = np.linspace(1, size / 2 - 1, 16)[:, None]
    angle = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    row, column = (size / 2 - 0.5 + radius * wave(angle) for wave in (np.sin, np.cos))
    circles = images[:, row.round().astype(int), column.round().astype(int)] / 255
    return np.log1p(np.abs(np.fft.rfft(circles, axis=2))[:, :, :13]).reshape(n, -1)


def fit(classifier):
    kernel = Nystroem(gamma=5e-4, n_components=600, random_state=0)
    return make_pipeline(StandardScaler(), kernel, classifier).fit(
        on_circles(train.images), train.labels
    )


clf = fit(H2EDLClassifier(tree, backbone=None, random_state=0))
flat = fit(FlatCEClassifier(tree, backbone=None, random_state=0))
X_test = on_circles(test.images)
right = {}
for name, model in {"H2EDL": clf, "Flat-CE": flat}.items():
    view = TreeView(model)
    right[name] = [
        np.mean(
            view.predict_level(X_test, level)
            == [tree.ancestor(label, level) for label in test.labels]
        )
        for level in tree.level_names
    ]
    print(name, {k: f"{v:.1%} right" for k, v in zip(tree.level_names, right[name], strict=True)})

# %%
# The hedge holds the fraction of right predictions at 90 % and lets their depth vary. The same
# 200 insects are drawn six times, each time blurrier.
hedged = HedgedClassifier(FrozenEstimator(clf), target_accuracy=0.9, taxonomy=tree)
hedged.fit(on_circles(val.images), val.labels)
steps = [0.0, 0.8, 1.6, 2.4, 3.2, 4.0]
series = [make_insects(200, blur=blur, occlusion=0.0, random_state=1) for blur in steps]
predictions = np.array([hedged.predict(on_circles(part.images)) for part in series])
opinions = [TreeView(clf).predict_hyper_opinion(on_circles(part.images)) for part in series]
depth = tree.depths[tree.resolve(predictions.ravel())].reshape(predictions.shape)
uncertainty = np.array([opinion.nonspecificity.mean() for opinion in opinions])
for blur, depths, u in zip(steps, depth, uncertainty, strict=True):
    print(f"blur {blur}: mean depth {depths.mean():.2f}, mean U {u:.2f}")

# %%
# One of them: sharp, its species is named.
falls = (np.diff(depth, axis=0) <= 0).all(axis=0) & (depth[0] == 3)
insect = np.flatnonzero(falls)[np.argmax([len(set(depth[:, i])) for i in np.flatnonzero(falls)])]
figure, axes = plt.subplots(1, len(steps), figsize=(11, 2.4), layout="constrained")
for ax, part, prediction in zip(axes, series, predictions[:, insect], strict=True):
    ax.imshow(part.images[insect])
    ax.set_title("cannot tell" if prediction == "root" else prediction, fontsize=9)
    ax.axis("off")
plt.show()

# %%
# Where its belief stops when it is blurred.
OpinionTreeDisplay.from_predictions(
    opinions[2], insect, image=series[2].images[insect], label=series[2].labels[insect]
)
plt.show()

# %%
# All 200: from a blur of 1.6 pixels on, belief stops higher in the tree at every step.
every = type(opinions[0]).from_evidence(tree, np.concatenate([each.evidence for each in opinions]))
DepthProfileDisplay.from_predictions(every, groups=np.repeat([f"blur {b}" for b in steps], 200))
plt.show()
