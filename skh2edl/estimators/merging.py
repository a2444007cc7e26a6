"""Fold the steps of a pipeline into the network of the classifier behind them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from ..training.network import Network
from .features import ImageFeatureExtractor
from .views import TreeView
from .wrapping import TreeWrapper, look_inside

Steps = Sequence[tuple[str, Any]]


def merge(estimator: Any, steps: Steps = ()) -> Any:
    """Return one classifier or wrapper that predicts as a fitted pipeline or search does.

    Parameters
    ----------
    estimator : Pipeline, search, FrozenEstimator, wrapper or classifier
        Fitted.
    steps : sequence of (name, transformer), default=()
        What transforms X before the estimator reads it.
    """
    classifier, before = look_inside(estimator)
    own = [step for pipeline in before for step in pipeline.steps]
    steps = [*steps, *((name, step) for name, step in own if step not in (None, "passthrough"))]
    if isinstance(classifier, TreeView):
        return merge(classifier.estimator, steps)
    if isinstance(classifier, TreeWrapper):
        merged = copy.copy(classifier)
        merged._set_inner([merge(member, steps) for member in classifier._inner()])
        return merged
    if not hasattr(classifier, "network_"):
        raise TypeError(
            f"{type(classifier).__name__} is not a classifier of this package with a network, so "
            "it has no file of its own. Use joblib.dump."
        )
    return _with_steps(classifier, steps) if steps else classifier


def _with_steps(classifier: Any, steps: Steps) -> Any:
    """Return a copy of a classifier of features whose network does what came before it."""
    mean, scale = np.zeros(1), np.ones(1)
    extractor = None
    for position, (name, step) in enumerate(steps):
        if position == 0 and type(step) is ImageFeatureExtractor:
            extractor = step
        elif type(step) is StandardScaler:
            # ((x - mean) / scale - own mean) / own scale
            if step.with_mean:
                mean = mean + scale * step.mean_
            scale = scale * (1.0 if step.scale_ is None else step.scale_)
        else:
            raise TypeError(
                f"The step {name!r} ({type(step).__name__}) cannot become a part of the network; "
                "ImageFeatureExtractor at the beginning and StandardScaler can. Keep the pipeline "
                "with joblib.dump, or save its last step and apply the others before it."
            )
    merged, old = copy.copy(classifier), classifier.network_
    backbone = None if extractor is None else copy.deepcopy(extractor.backbone_)
    network = Network(backbone, copy.deepcopy(old.head)).to(old.feature_mean.dtype)
    own_mean, own_scale = old.feature_mean.double().numpy(), old.feature_scale.double().numpy()
    network.standardize(mean + scale * own_mean, scale * own_scale)
    merged.network_ = network.eval()
    if extractor is not None:
        merged.network_.float()
        same = {name: getattr(extractor, name) for name in ("backbone", "weights", "image_size")}
        merged.set_params(**same, finetune="head", on_bad_image=extractor.on_bad_image)
        merged._fitted_with = classifier._fitted_with | same
        for name in ("n_features_in_", "feature_names_in_"):
            vars(merged).pop(name, None)
    return merged
