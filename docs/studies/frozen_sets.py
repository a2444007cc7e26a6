"""The frozen features that the studies of the penalty are made on.

Photographs of the Grocery Store data, and drawn characters, with two networks each. Glyphs cost
nothing but the time to draw them: further ones are drawn with other seeds to choose and judge by,
because 500 images of a hundred classes leave the calibration error to chance.
"""

from pathlib import Path

import numpy as np

NETWORKS = {
    "tf_efficientnet_lite0": "tf_efficientnet_lite0",
    "resnet50": "resnet50_imagenet_fp16",
}
DATASETS = ("grocery_store", "glyphs")
SEEDS = (0, 1, 2)
# Part -> number of further glyphs and their seed.
FURTHER_GLYPHS = {"val": (2500, 11), "test": (5000, 12)}


def frozen_sets(grocery, weights, cache):
    """Yield name, network, data, features, and the held-out parts: (features, labels) of each."""
    from skh2edl.benchmark import frozen_features_of, load_dataset
    from skh2edl.datasets import make_glyphs

    for dataset in DATASETS:
        data = load_dataset(dataset, grocery, preset="study")
        for network, stem in NETWORKS.items():
            file = Path(weights) / f"{stem}.safetensors"
            features = frozen_features_of(data, network, weights=file, cache=cache)
            held_out = {
                part: (features[data.split == part], data.labels[data.split == part])
                for part in ("val", "test")
            }
            if dataset == "glyphs":
                for part, (n_samples, seed) in FURTHER_GLYPHS.items():
                    further = make_glyphs(
                        n_samples, scripts=("Latin", "Greek"), image_size=24, random_state=seed
                    )
                    folder = None if cache is None else Path(cache) / part
                    X = frozen_features_of(further, network, weights=file, cache=folder)
                    held_out[part] = (X, further.labels)
            yield dataset, network, data, features, held_out


def training_rows_of(data, seed):
    """Return the nine tenths of the training images that a seed stands for."""
    from skh2edl.benchmark import Experiment
    from skh2edl.benchmark.running import training_rows

    experiment = Experiment(data.name, "H2EDL", "H2EDLClassifier", seed=seed, train_share=0.9)
    return training_rows(experiment, data, np.flatnonzero(data.split == "train"))
