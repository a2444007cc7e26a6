"""
Real photographs
================

Groceries on shelves, a frozen EfficientNet-lite0 and one opinion for each photograph. The script
needs the `Grocery Store data <https://github.com/marcusklasson/GroceryStoreDataset>`_ (MIT licence)
and weights, in the folder that the environment variable SKH2EDL_ASSETS names. Without it, it runs
on drawn letters with random weights, so that only its steps are shown.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from skh2edl import H2EDLClassifier, Hardware
from skh2edl.datasets import load_grocery_store, make_glyphs
from skh2edl.displays import OpinionTreeDisplay, ReliabilityDisplay

assets = os.environ.get("SKH2EDL_ASSETS")
if assets:
    data = load_grocery_store(Path(assets, "grocery_store"))
    weights = Path(assets, "weights", "tf_efficientnet_lite0.safetensors")
    network = {"backbone": "tf_efficientnet_lite0", "weights": str(weights), "image_size": 128}
else:
    data = make_glyphs(3000, scripts=("Common", "Georgian"), random_state=0)
    network = {"backbone": "test_resnet", "weights": None, "image_size": 32}

# Some are enough to show the steps.
rng = np.random.default_rng(0)
train, test = (
    part.select(np.sort(rng.permutation(len(part))[:number]))
    for part, number in ((data.subset("train"), 900), (data.subset("test"), 300))
)
tree = data.taxonomy
print(data)

# %%
# The network reads each photograph once; only the head is fitted.
here = Hardware(n_workers=0)
clf = H2EDLClassifier(tree, finetune="head", hardware=here, random_state=0, **network)
clf.fit(train.images, train.labels)
opinion = clf.predict_hyper_opinion(test.images)
for level in range(1, tree.n_levels + 1):
    right = clf.predict_level(test.images, level) == [
        tree.ancestor(label, level) for label in test.labels
    ]
    print(f"right at level {level}: {right.mean():.1%} of {len(test)}")


# %%
# The photograph with most belief that reaches no leaf, and one with little.
def picture(row):
    image = test.images[row]
    return np.asarray(Image.open(image) if isinstance(image, str | Path) else image)


order = np.argsort(opinion.nonspecificity)
for row in (order[-1], order[len(order) // 10]):
    OpinionTreeDisplay.from_predictions(opinion, row, image=picture(row), label=test.labels[row])
    print(opinion.explain(row))
plt.show()

# %%
# Are the probabilities right? On the diagonal they are.
ReliabilityDisplay.from_estimator(clf, test.images, test.labels)
plt.show()
