"""The classifiers of METHODS: those that a model file may name."""

from __future__ import annotations

from . import METHODS
from .base import TreeClassifier
from .baselines import *
from .dirichlet_baselines import *
from .evidential_baselines import *
from .h2edl import *

MODEL_CLASSES: dict[str, type[TreeClassifier]] = {
    name: globals()[name] for name in METHODS.values()
}
