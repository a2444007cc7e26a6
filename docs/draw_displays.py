"""Draw the pictures of displays.md: ``python docs/draw_displays.py``.

Characters of four scripts, 197 leaves, told apart by the direction of their strokes: well enough
to have something to show, badly enough to leave uncertainty. The same versions draw the same bytes.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from sklearn.kernel_approximation import Nystroem

from skh2edl import FlatCEClassifier, H2EDLClassifier, Recipe
from skh2edl.datasets import make_glyphs
from skh2edl.displays import (
    DepthProfileDisplay,
    LCAConfusionDisplay,
    OperatingCurveDisplay,
    OpinionTreeDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    TrainingHistoryDisplay,
)

PICTURES = Path(__file__).parent / "pictures"


def strokes(images):
    """Return how strongly edges run in each of 8 directions, in 8 x 8 cells of each image."""
    down, right = np.gradient(images.astype(np.float32) / 255, axis=(1, 2))
    strength, direction = np.hypot(down, right), np.arctan2(down, right)
    octant = ((direction / np.pi + 1) * 4).astype(int) % 8
    n, height, width = images.shape
    by_octant = strength[..., None] * (octant[..., None] == np.arange(8))
    cells = by_octant.reshape(n, 8, height // 8, 8, width // 8, 8).sum(axis=(2, 4))
    return np.sqrt(cells.reshape(n, -1)).astype(np.float32)


def save(name, display):
    """Write a picture."""
    PICTURES.mkdir(exist_ok=True)
    # Without the version of matplotlib in the file, so that it differs only if the picture does.
    metadata = {"Software": None}
    display.figure_.savefig(PICTURES / f"{name}.png", dpi=110, metadata=metadata)


def main():
    """Fit two classifiers and draw every picture."""
    mpl.use("Agg")
    torch.set_num_threads(1)
    glyphs = make_glyphs(8000, blur=(0.0, 0.7), noise=(0.0, 0.05), random_state=0)
    train, test = glyphs.subset("train", "val"), glyphs.subset("test")
    tree = glyphs.taxonomy
    # Kernel features: no plane in the space of strokes divides one script from the others.
    kernel = Nystroem(gamma=0.045, n_components=700, random_state=0)
    X = kernel.fit_transform(strokes(train.images)).astype(np.float32)
    X_test, y_test = kernel.transform(strokes(test.images)).astype(np.float32), test.labels
    options = {"backbone": None, "solver": "adamw", "max_epochs": 25, "learning_rate": 3e-3}
    options |= {"recipe": Recipe(selection="neg_log_loss", weight_decay=1.0), "random_state": 0}
    h2edl = H2EDLClassifier(tree, **options).fit(X, train.labels)
    flat = FlatCEClassifier(tree, **options).fit(X, train.labels)

    save("reliability", ReliabilityDisplay.from_estimator(h2edl, X_test, y_test, name="H2EDL"))
    save("depth_profile", DepthProfileDisplay.from_estimator(h2edl, X_test, y_test))
    save("lca_confusion", LCAConfusionDisplay.from_estimator(h2edl, X_test, y_test, level="kind"))

    first = RiskCoverageDisplay.from_estimator(h2edl, X_test, y_test, name="H2EDL")
    save(
        "risk_coverage",
        RiskCoverageDisplay.from_estimator(flat, X_test, y_test, name="Flat-CE", ax=first.ax_),
    )
    first = OperatingCurveDisplay.from_estimator(h2edl, X_test, y_test, name="H2EDL")
    save(
        "operating_curve",
        OperatingCurveDisplay.from_estimator(flat, X_test, y_test, name="Flat-CE", ax=first.ax_),
    )

    opinion = h2edl.predict_hyper_opinion(X_test)
    order = np.argsort(opinion.nonspecificity)
    for name, place in {"clear": 0.02, "divided": 0.5, "vague": 0.98}.items():
        index = order[int(place * len(order))]
        display = OpinionTreeDisplay.from_predictions(
            opinion, index, image=test.images[index], label=y_test[index]
        )
        save(f"opinion_{name}", display)

    save("history", TrainingHistoryDisplay.from_estimator(h2edl))


if __name__ == "__main__":
    main()
