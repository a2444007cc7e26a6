"""Draw the photograph of the README: ``python docs/draw_photograph.py ASSETS``.

A head on a frozen EfficientNet-lite0 learns the groceries of the Grocery Store data set. Of every
fifth test photograph that the 90 % hedge rightly gives a coarse class, the one is shown of which
most belief stops there.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image

from skh2edl import H2EDLClassifier
from skh2edl.datasets import load_grocery_store
from skh2edl.displays import OpinionTreeDisplay
from skh2edl.report.hedging import hedged_nodes, needed_thresholds, threshold_for

PICTURE = Path(__file__).parent / "pictures" / "photograph.png"
CREDIT = "Photograph: M. Klasson and others, Grocery Store Dataset, MIT licence"


def shown(data):
    """Return every fifth test photograph."""
    test = data.subset("test")
    return test.select(np.arange(0, len(test), 5))


def opinions(data):
    """Return the opinions on the validation photographs and on every fifth test photograph."""
    train, val, test = data.subset("train"), data.subset("val"), shown(data)
    network = {"backbone": "tf_efficientnet_lite0", "weights": "packaged", "image_size": 128}
    clf = H2EDLClassifier(data.taxonomy, finetune="head", random_state=0, **network)
    clf.fit(train.images, train.labels)
    return clf.predict_hyper_opinion(val.images), clf.predict_hyper_opinion(test.images)


def choose(val, of_val, test, of_test):
    """Return which photograph to show."""
    tree = of_test.taxonomy
    needed = needed_thresholds(of_val.leaf_probability, tree.resolve(val.labels), tree)
    nodes = hedged_nodes(of_test.leaf_probability, tree, threshold_for(needed, 0.9))
    truth = tree.resolve(test.labels)
    is_right = tree.lowest_common_ancestor(truth, nodes) == nodes
    is_coarse = (tree.depths[nodes] == 2) & (tree.n_children[nodes] > 1)
    stopped = np.zeros(len(nodes))
    for row in np.flatnonzero(is_right & is_coarse):
        stopped[row] = of_test[row].nodes([nodes[row]]).mass[0, 0]
    return int(stopped.argmax())


def draw(data, of_val, of_test):
    """Draw the photograph beside its opinion."""
    mpl.use("Agg")
    test = shown(data)
    row = choose(data.subset("val"), of_val, test, of_test)
    photograph = Image.open(test.images[row]).convert("RGB")
    photograph.thumbnail((200, 200))
    display = OpinionTreeDisplay.from_predictions(
        of_test, row, image=np.asarray(photograph), label=test.labels[row]
    )
    print(test.ids[row], of_test.explain(row))
    display.figure_.text(0.01, 0.01, CREDIT, fontsize=6.5, color="0.4")
    display.figure_.savefig(PICTURE, dpi=100, metadata={"Software": None})
    # A palette of 256 colours keeps the file small.
    Image.open(PICTURE).convert("RGB").quantize(256).save(PICTURE, optimize=True)


if __name__ == "__main__":
    groceries = load_grocery_store(Path(sys.argv[1], "grocery_store"))
    draw(groceries, *opinions(groceries))
