"""Fits that a test runs in one process and a launcher in two: python distributed_job.py FOLDER."""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch

from skh2edl import FlatCEClassifier, H2EDLClassifier, Hardware, HENNClassifier, Recipe, Taxonomy
from skh2edl.training import loop as training
from skh2edl.training.checkpoints import CheckpointFile

TREE = Taxonomy.from_nested({"warm": ["red", "yellow"], "cold": ["green", "blue"]})
# Of 33 samples in eights and of 19 in sixes the last batch holds one: a second process has none.
N_IMAGES, N_ROWS = 33, 19
ALONE = {"validation_fraction": None}


def rank():
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


class Watch:
    """Notes the loss of every step over all processes, and the checkpoints of this one."""

    def __init__(self):
        self.losses, self.n_saved = [], 0

    def __enter__(self):
        self._check, self._save = training._Run._check_numbers, CheckpointFile.save

        def check(run, batch_losses, epoch):
            self.losses += batch_losses.tolist()
            self._check(run, batch_losses, epoch)

        def save(file, state):
            self.n_saved += 1
            self._save(file, state)

        training._Run._check_numbers, CheckpointFile.save = check, save
        return self

    def __exit__(self, *_):
        training._Run._check_numbers, CheckpointFile.save = self._check, self._save


def data(n_samples, shape, dtype):
    rng = np.random.default_rng(n_samples)
    labels = np.array([*TREE.leaves, "warm"], dtype=object)[rng.integers(5, size=n_samples)]
    X = rng.integers(0, 256, size=(n_samples, *shape)).astype(dtype)
    return X, labels, rng.uniform(0.5, 2, n_samples)


def images_classifier(backbone="test_resnet", **options):
    return H2EDLClassifier(
        TREE, backbone=backbone, weights=None, image_size=64, max_epochs=2, batch_size=8,
        recipe=Recipe(
            backbone_lr_scale=0.1, augmentation={"scale": (0.6, 1.0)}, selection="neg_log_loss"
        ),
        hardware=Hardware(accelerator="cpu", n_workers=0), random_state=3, **ALONE,
    ).set_params(**options)  # fmt: skip


def rows_classifier(kind=H2EDLClassifier, **options):
    return kind(
        TREE, backbone=None, solver="adamw", max_epochs=4, batch_size=6, learning_rate=0.05,
        recipe=Recipe(selection="neg_log_loss"), hardware=Hardware(accelerator="cpu"),
        random_state=3, **ALONE,
    ).set_params(**options)  # fmt: skip


def report(classifier, X, watch):
    return {
        "losses": watch.losses,
        "n_saved": watch.n_saved,
        "val_score": classifier.history_.get("val_score", []),
        "n_iter": classifier.n_iter_,
        "proba": classifier.predict_proba(X).tolist(),
    }


def fit_images(**options):
    X, y, weight = data(N_IMAGES + 5, (64, 64, 3), np.uint8)
    with Watch() as watch:
        classifier = images_classifier(**options)
        classifier.fit(X[:-5], y[:-5], weight[:-5], X_val=X[-5:], y_val=y[-5:])
    return report(classifier, X, watch)


def fit_rows(kind=H2EDLClassifier, **options):
    """Fit features, with one held-out sample: a second process has none."""
    X, y, weight = data(N_ROWS, (4,), np.float32)
    X /= 255
    with Watch() as watch:
        classifier = rows_classifier(kind, **options)
        classifier.fit(X, y, weight, X_val=X[:1], y_val=["red"])
    return report(classifier, X, watch)


def fits(**where):
    return {
        "images": fit_images(**where),
        # It cannot take an empty batch.
        "transformer": fit_images(backbone="test_vit", **where),
        "mean of weights": fit_rows(recipe__ema_decay=0.9, **where),
        "flat": fit_rows(FlatCEClassifier, **where),
        "groups": fit_rows(HENNClassifier, **where),
    }


def die_in_epoch(number, chosen):
    one_epoch = training._Run._one_epoch

    def one_epoch_or_die(run, epoch):
        if epoch == number and rank() == chosen:
            os.kill(os.getpid(), signal.SIGKILL)
        return one_epoch(run, epoch)

    training._Run._one_epoch = one_epoch_or_die


def main(folder, devices="2"):
    torch.set_num_threads(1)
    folder = Path(folder)
    where = {"hardware__devices": int(devices), "hardware__strategy": "ddp"}
    found = fits(**where)
    if (folder / "begun").is_dir():
        found["resumed"] = fit_rows(hardware__checkpoint_dir=folder / "begun", **where)
        try:
            rows_classifier(**where).set_params(random_state=None).fit(
                *data(N_ROWS, (4,), "f4")[:2]
            )
        except ValueError as error:
            found["disagreement"] = str(error)
    (folder / f"{rank()}.json").write_text(json.dumps(found))
    if (folder / "begun").is_dir():
        die_in_epoch(2, chosen=1)
        fit_rows(hardware__checkpoint_dir=folder / "killed", **where)


if __name__ == "__main__":
    main(*sys.argv[1:])
