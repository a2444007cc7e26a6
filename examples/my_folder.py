"""
A folder of images
==================

From a folder of images, in folders of any depth, to a model file and its predictions::

    python examples/my_folder.py photos

Without an argument it first draws a small folder. An image may lie in an inner folder: its label
then stops there. Photographs need none of the options of the toy: timm's resnet50 with its
pretrained weights is the default.
"""

import argparse
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from skh2edl import H2EDLClassifier, Hardware, Recipe, load_model
from skh2edl.datasets import load_image_folder, make_glyphs
from skh2edl.metrics import level_accuracy

# A tiny network with random weights, for drawn characters of 32 x 32 pixels.
TOY = {"backbone": "test_resnet", "weights": None, "image_size": 32}
TOY |= {"learning_rate": 1e-2, "batch_size": 32}
TOY |= {
    "hardware": Hardware(n_workers=0),
    "recipe": Recipe(backbone_lr_scale=1.0, augmentation="none"),
}


def draw(folder):
    """Write some characters as PNG files: folder/script/kind/character/number.png."""
    glyphs = make_glyphs(2000, scripts=("Common", "Georgian"), blur=(0, 0.5), random_state=0)
    chosen = np.isin(glyphs.info["character"], list("0123აბგ"))
    for number in np.flatnonzero(chosen):
        place = Path(folder, *glyphs.taxonomy.path(glyphs.labels[number]))
        if number % 10 == 0:
            place = place.parent  # a label that stops above the leaf
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(glyphs.images[number]).save(place / f"{number}.png")


parser = argparse.ArgumentParser(description="Train on a folder of images.")
parser.add_argument("folder", nargs="?", help="folders that are the taxonomy")
parser.add_argument("--epochs", type=int, default=15)
options = parser.parse_args()
made = Path(tempfile.mkdtemp())  # for the files of this example
if options.folder is None:
    draw(made / "drawn")

photos = load_image_folder(options.folder or made / "drawn").resplit(val=0.15, test=0.2)
tree = photos.taxonomy
train, val, test = photos.subset("train"), photos.subset("val"), photos.subset("test")
is_leaf = np.isin(photos.labels, tree.leaves)
print(photos)
print(f"{len(photos) - is_leaf.sum()} labels stop above the leaves")
print(tree.draw(max_lines=12))

figure, axes = plt.subplots(1, 6, figsize=(9, 2))
for ax, path, label in zip(axes, train.images, train.labels, strict=False):
    ax.imshow(Image.open(path), cmap="gray")
    ax.set_title(label.lower(), fontsize=7)
    ax.axis("off")
plt.show()

# %%
# The epoch with the best score on the validation images is kept.

method = {} if options.folder else TOY
clf = H2EDLClassifier(tree, max_epochs=options.epochs, random_state=0, **method)
clf.fit(train.images, train.labels, X_val=val.images, y_val=val.labels)
print(f"kept: epoch {clf.best_epoch_} of {clf.n_iter_}, by its score on the validation images")

# %%
# A model is one file without pickle.
clf.save(made / "model.safetensors")
predictions = load_model(made / "model.safetensors").predict(test.images)
for level in range(1, tree.n_levels + 1):
    print(f"right at level {level}: {level_accuracy(test.labels, predictions, tree, level):.2f}")
for path, prediction in zip(test.ids[:3], predictions, strict=False):
    print(f"{path}: {prediction}")
