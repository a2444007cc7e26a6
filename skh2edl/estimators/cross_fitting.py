"""A head on fixed features, fitted on all samples and calibrated on held-out folds."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_random_state

from ..images import image_source
from ..training.backbones import Backbone
from ..training.network import Network
from ..training.resuming import fixed_parameters
from ..training.samples import FeatureSamples
from ..utils.sklearn_tools import safe_indexing
from .calibration import fit_head_scale
from .splits import held_out_splits
from .wrapping import fit_on

IntArray = npt.NDArray[np.int64]

# More held-out samples make neither a scale nor a hedge better, and their predictions take memory.
_MOST_HELD = 50_000


class Fold(NamedTuple):
    """A classifier of features, and the positions of the samples that it was not fitted on."""

    model: Any
    held: IntArray


class Features(NamedTuple):
    """Samples as a head reads them.

    Parameters
    ----------
    backbone : Backbone or None
        What computed them; None if the samples are features themselves.
    X : ndarray or DataFrame of shape (n_samples, n_features)
        The features.
    usable : ndarray of bool of shape (n_samples,)
        False for an image that could not be read.
    """

    backbone: Backbone | None
    X: Any
    usable: npt.NDArray[np.bool_]


def frozen_backbone(estimator: Any) -> Backbone | None:
    """Return the backbone of a classifier, fitted or not; None without one.

    Parameters
    ----------
    estimator : classifier
        With a frozen backbone, or without one.
    """
    if hasattr(estimator, "network_"):
        own: Backbone | None = estimator.network_.backbone
        return own
    seed = int(check_random_state(estimator.random_state).randint(2**31 - 1))
    made: Backbone | None = estimator._make_backbone(seed)
    return made


def solves_heads(estimator: Any, backbone: Backbone | None, X: Any) -> bool:
    """Return whether a head is solved for, which takes seconds, and not trained in epochs.

    Parameters
    ----------
    estimator : classifier
        With a taxonomy.
    backbone : Backbone or None
        From :func:`frozen_backbone`.
    X : array-like or images
        The samples.
    """
    n_features = X.shape[1] if backbone is None else backbone.n_features
    samples = FeatureSamples(np.empty((0, n_features)))
    return not estimator._trains_by_epochs(estimator.taxonomy, samples)


def read_features(estimator: Any, backbone: Backbone | None, X: Any) -> Features:
    """Compute the features of all samples once.

    Parameters
    ----------
    estimator : classifier
        Without a backbone, or with a frozen one.
    backbone : Backbone or None
        From :func:`frozen_backbone`.
    X : array-like or images
        The samples.
    """
    if backbone is None:
        return Features(None, X, np.ones(len(X), dtype=bool))
    samples, usable = estimator._read_X(image_source(X), backbone, reset=False)
    return Features(backbone, samples.features, usable)


def fit_head(estimator: Any, features: Features, y: Any, groups: Any = None) -> Any:
    """Return a classifier fitted on features that were computed before.

    Parameters
    ----------
    estimator : classifier
        A clone of it is returned.
    features : Features
        From :func:`read_features`.
    y : array-like of shape (n_samples,)
        Labels.
    groups : array-like of shape (n_samples,), default=None
        Groups.
    """
    train = np.flatnonzero(features.usable)
    arguments = {} if groups is None else {"groups": groups}
    fitted = fit_on(_of_features(estimator), features.X, y, arguments, train)
    if features.backbone is None:
        return fitted
    whole = clone(estimator)
    learnt = {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    vars(whole).update({name: learnt[name] for name in learnt if name != "n_features_in_"})
    whole.network_ = Network(features.backbone, fitted.network_.head).eval()
    whole.network_.standardize(fitted.network_.feature_mean, fitted.network_.feature_scale)
    whole._fitted_with = fixed_parameters(whole)
    return whole


def fit_folds(
    estimator: Any, features: Features, y: Any, groups: Any = None, n_splits: int = 5
) -> list[Fold]:
    """Fit heads on all but a part of the samples, each part held out once.

    Parameters
    ----------
    estimator : classifier
        Unfitted, with a taxonomy.
    features : Features
        From :func:`read_features`.
    y : array-like of shape (n_samples,)
        Labels.
    groups : array-like of shape (n_samples,), default=None
        Groups, each in one part.
    n_splits : int, default=5
        Parts; fewer where no label, or too few groups, have so many samples.

    Returns
    -------
    folds : list of Fold
        Empty if every label has a single sample.
    """
    usable = np.flatnonzero(features.usable)
    nodes = estimator.taxonomy.resolve(y)[usable]
    splits = _divide(nodes, None if groups is None else np.asarray(groups)[usable], n_splits)
    step = 1 + len(nodes) // _MOST_HELD
    head, y = _of_features(estimator).set_params(hardware__checkpoint_dir=None), np.asarray(y)
    return [
        Fold(fit_on(head, features.X, y, {}, usable[train]), usable[held[::step]])
        for train, held in splits
    ]


def _divide(nodes: IntArray, groups: Any, n_splits: int) -> list[tuple[IntArray, IntArray]]:
    """Return positions to fit on and held out, labels in proportion; none if that is impossible."""
    n_most = np.bincount(nodes).max() if groups is None else np.unique(groups).size
    n_splits = min(n_splits, int(n_most))
    if n_splits < 2:
        return []
    with warnings.catch_warnings():
        # Of labels with fewer samples than parts, which are in as many parts as they can.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        return held_out_splits(n_splits, np.zeros(len(nodes)), nodes, groups)


def calibrate_together(folds: list[Fold], features: Features, y: Any, *models: Any) -> float:
    """Rescale the heads of folds, and of further models, by the best factor for held-out samples.

    Parameters
    ----------
    folds : list of Fold
        From :func:`fit_folds`.
    features : Features
        The samples.
    y : array-like of shape (n_samples,)
        Their labels.
    *models : classifiers
        Those fitted on all samples.

    Returns
    -------
    factor : float
        Below 1 if they were over-confident.
    """
    nodes = folds[0].model.taxonomy_.resolve(y)
    parts = []
    for model, held in folds:
        standardized, _ = model._head_output(safe_indexing(features.X, held), lambda head, own: own)
        parts.append((model.network_.head, standardized, nodes[held]))
    factor = fit_head_scale(parts)
    for model in (*(fold.model for fold in folds), *models):
        model.network_.head.rescale(factor)
    return factor


def on_features(estimator: Any, X: Any) -> tuple[Any, npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the classifier without its backbone, the features it then reads, and which are usable.

    Parameters
    ----------
    estimator : classifier
        Fitted; the head is shared, not copied.
    X : array-like or images
        The samples.
    """
    features, usable = estimator._head_output(X, lambda head, features: features)
    bare = copy.copy(estimator)
    bare.backbone, bare.n_features_in_ = None, features.shape[1]
    bare.__dict__.pop("feature_names_in_", None)
    # The features are standardised already.
    head = estimator.network_.head
    bare.network_ = Network(None, head).to(head.linear.weight.dtype).eval()
    return bare, np.where(usable[:, None], features, 0).astype(features.dtype), usable


def _of_features(estimator: Any) -> Any:
    # Solved in seconds: its bar would be a line for each iteration in a log.
    return clone(estimator).set_params(backbone=None, verbose=0)
