"""All methods of the package: every classifier that a model file may name."""

from __future__ import annotations

from . import baselines, dirichlet_baselines, evidential_baselines, h2edl
from .base import TreeClassifier

MODEL_CLASSES: dict[str, type[TreeClassifier]] = {
    name: kind
    for module in (h2edl, baselines, evidential_baselines, dirichlet_baselines)
    for name, kind in vars(module).items()
    if name.endswith("Classifier") and name != "TreeClassifier"
}
