"""TreeView: a fitted pipeline or search with all the methods of the classifier inside it."""

from __future__ import annotations

import copy
import os
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..training.network import Network
from .features import ImageFeatureExtractor
from .wrapping import (
    TreeWrapper,
    find_taxonomy,
    has_opinions,
    leaf_log_probability,
    look_inside,
    read_opinion,
)


class TreeView(TreeWrapper):
    """Ask a fitted pipeline or search everything that a classifier into a taxonomy can say.

    Pipelines and searches of scikit-learn forward `predict` and `predict_proba` and nothing else.
    A view adds levels, opinions, and files. The wrappers of this package look inside by
    themselves and need no view.

    Parameters
    ----------
    estimator : Pipeline, search or FrozenEstimator
        Fitted, with a classifier at its end. A classifier of scikit-learn has a flat taxonomy.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from skh2edl import H2EDLClassifier, Taxonomy, TreeView
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> X, y = np.repeat(np.eye(3), 9, axis=0), np.repeat(["lynx", "puma", "dog"], 9)
    >>> pipeline = make_pipeline(StandardScaler(), H2EDLClassifier(tree, backbone=None)).fit(X, y)
    >>> TreeView(pipeline).predict_level([[1, 0, 0]], 1)
    array(['cat'], dtype='<U3')
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @property
    def taxonomy_(self) -> Taxonomy:  # type: ignore[override]
        """The tree."""
        check_is_fitted(self.estimator)
        return find_taxonomy(self.estimator)

    @property
    def classes_(self) -> npt.NDArray[Any]:  # type: ignore[override]
        """Labels of all leaves, sorted."""
        return self.taxonomy_.sorted_leaf_labels

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit the estimator anew, in place.

        Parameters
        ----------
        X, y, **params
            As in the estimator's own `fit`.

        Returns
        -------
        self
        """
        self.estimator.fit(X, y, **params)
        return self

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        return leaf_log_probability(self.estimator, X, self.taxonomy_)

    @available_if(lambda self: has_opinions(self.estimator))
    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return the hyper-opinions of the classifier.

        Parameters
        ----------
        X : what the estimator reads
            The samples.

        Returns
        -------
        opinion : HyperOpinion
        """
        return read_opinion(self.estimator, X, self.taxonomy_)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the classifier with the steps before it to one file; see :func:`load_model`.

        The steps become a part of the network, so they must be ones that it can hold:
        ImageFeatureExtractor and StandardScaler.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced only when the new one is complete.
        """
        merge(self.estimator).save(path)

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the classifier with the steps before it as an ONNX model, as :meth:`save` does.

        Parameters
        ----------
        path : path
            The file; an existing one is replaced only when the new one is complete.
        """
        merge(self.estimator).export_onnx(path)


def merge(estimator: Any) -> Any:
    """Return one classifier that predicts as a fitted pipeline or search does.

    Parameters
    ----------
    estimator : Pipeline, search, FrozenEstimator or classifier
        Fitted.
    """
    classifier, before = look_inside(estimator)
    if not hasattr(classifier, "network_"):
        raise TypeError(
            f"{type(classifier).__name__} is not a classifier of this package with a network, so "
            "it has no file of its own. Use joblib.dump."
        )
    steps = [
        (name, step)
        for pipeline in before
        for name, step in pipeline.steps
        if step is not None and step != "passthrough"
    ]
    if not steps:
        return classifier
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
    return _with_steps(classifier, extractor, mean, scale)


def _with_steps(
    classifier: Any,
    extractor: ImageFeatureExtractor | None,
    mean: npt.NDArray[np.float64],
    scale: npt.NDArray[np.float64],
) -> Any:
    """Return a copy of a classifier of features whose network does what came before it."""
    merged, old = copy.copy(classifier), classifier.network_
    backbone = None if extractor is None else copy.deepcopy(extractor.backbone_)
    network = Network(backbone, copy.deepcopy(old.head))
    own_mean, own_scale = old.feature_mean.double().numpy(), old.feature_scale.double().numpy()
    network.standardize(mean + scale * own_mean, scale * own_scale)
    merged.network_ = network.to(old.feature_mean.dtype).eval()
    if extractor is not None:
        merged.network_.float()
        same = {name: getattr(extractor, name) for name in ("backbone", "weights", "image_size")}
        merged.set_params(**same, finetune="head", on_bad_image=extractor.on_bad_image)
        merged._fitted_with = classifier._fitted_with | same
        for name in ("n_features_in_", "feature_names_in_"):
            vars(merged).pop(name, None)
    return merged
