"""What the estimators around any probabilistic classifier share: its tree, its leaves, its fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from ..metrics.inputs import leaf_probabilities
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.names import shown
from ..taxonomy.taxonomy import Taxonomy
from ..utils.sklearn_tools import safe_indexing
from .predictions import TreePredictions
from .splits import held_out_splits
from .targets import resolve_taxonomy

# Added to every probability before its logarithm, as scikit-learn's own temperature scaling does.
_LEAST = 1e-12


def look_inside(estimator: Any) -> tuple[Any, list[Pipeline]]:
    """Return the classifier inside pipelines, searches and FrozenEstimator, and what comes before.

    These forward only scikit-learn's own methods, so whatever else a classifier can do is asked
    of it directly.

    Parameters
    ----------
    estimator : estimator
        Fitted or not.

    Returns
    -------
    classifier : estimator
        What is neither a pipeline, a search nor frozen.
    before : list of Pipeline
        The steps before it, in the order in which they transform X.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> classifier, before = look_inside(make_pipeline(StandardScaler(), GaussianNB()))
    >>> classifier, len(before)
    (GaussianNB(), 1)
    """
    before = []
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "refit") and hasattr(estimator, "estimator"):  # a search
            estimator = getattr(estimator, "best_estimator_", estimator.estimator)
        elif isinstance(estimator, Pipeline):
            if len(estimator.steps) > 1:
                before.append(estimator[:-1])
            estimator = estimator.steps[-1][1]
        else:
            return estimator, before


def transformed(X: Any, before: list[Pipeline]) -> Any:
    """Return what the classifier that :func:`look_inside` found reads."""
    for steps in before:
        X = steps.transform(X)
    return X


def _refuse_hiclass(classifier: Any) -> None:
    """Refuse what has a predict_proba that is not the probability of the leaves."""
    if type(classifier).__module__.split(".")[0] == "hiclass":
        raise TypeError(
            f"{type(classifier).__name__} of hiclass gives no probabilities of leaves: below the "
            "first level its predict_proba follows the predicted path only, and its classes_ are "
            "lists of levels. Use HierCEClassifier(taxonomy, backbone=None), which has one softmax "
            "for each parent node, or a flat classifier of scikit-learn with taxonomy=."
        )


def find_taxonomy(fitted: Any, given: Taxonomy | None = None) -> Taxonomy:
    """Return the tree to predict in: the given one, that of a classifier, or a flat one.

    Parameters
    ----------
    fitted : classifier
        Fitted; a pipeline or a search is asked for what is inside.
    given : Taxonomy, default=None
        Goes before all else.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> find_taxonomy(GaussianNB().fit([[0], [1]], ["cat", "dog"])).leaves
    ('cat', 'dog')
    """
    inside, _ = look_inside(fitted)
    _refuse_hiclass(inside)
    if given is not None:
        return given
    if hasattr(inside, "taxonomy_"):
        return inside.taxonomy_
    return resolve_taxonomy(None, np.asarray(fitted.classes_))


def leaf_log_probability(
    fitted: Any, X: Any, taxonomy: Taxonomy, least: float = _LEAST
) -> npt.NDArray[np.float64]:
    """Return log P of each leaf in tree order, finite unless `least` is 0.

    Parameters
    ----------
    fitted : classifier
        With `predict_proba` and `classes_`, which name nodes of the taxonomy.
    X : array-like or images
        The samples.
    taxonomy : Taxonomy
        The tree. A leaf that the classifier does not know has the least probability; that of an
        ancestor among its classes goes to the leaves below in equal parts.
    least : float, default=1e-12
        Added to the probabilities of a classifier without a tree.
    """
    classes, (inside, before) = np.asarray(fitted.classes_), look_inside(fitted)
    if hasattr(inside, "taxonomy_") and np.array_equal(classes, taxonomy.sorted_leaf_labels):
        # Its own logarithms are right where probabilities are too small for a float.
        known = np.asarray(inside.predict_log_proba(transformed(X, before)), dtype=np.float64)
        if np.isnan(known).any():
            row = int(np.isnan(known).any(axis=1).argmax())
            raise ValueError(
                f"{type(fitted).__name__} gives NaN as log-probability, first in row {row}. Check "
                "those samples, and fit the estimator again if all are like this."
            )
        log_leaves = np.empty_like(known)
        log_leaves[:, taxonomy.leaf_order] = known
        return np.maximum(log_leaves, np.log(np.finfo(np.float64).tiny))
    proba = leaf_probabilities(fitted.predict_proba(X), taxonomy, classes.tolist())
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(proba + least))


def method_inside(estimator: Any, name: str) -> Callable[[Any], Any] | None:
    """Return a prediction method of an estimator, or None.

    Parameters
    ----------
    estimator : estimator
        Fitted or not; a pipeline or a search is asked for what is inside.
    name : str
        The method.
    """
    inside, before = look_inside(estimator)
    method: Callable[[Any], Any] | None = getattr(inside, name, None)
    if method is None or not before:
        return method
    return lambda X: method(transformed(X, before))


def opinion_method(estimator: Any) -> Callable[[Any], HyperOpinion] | None:
    """Return the method that gives an estimator's hyper-opinions, or None.

    Parameters
    ----------
    estimator : estimator
        As in :func:`method_inside`.
    """
    return method_inside(estimator, "predict_hyper_opinion")


def opinion_of(fitted: Any, X: Any, taxonomy: Taxonomy) -> HyperOpinion:
    """Return the hyper-opinion of an evidential classifier, which must be on the taxonomy.

    Parameters
    ----------
    fitted : classifier
        With `predict_hyper_opinion`, or a pipeline or search with such a classifier inside.
    X : array-like or images
        The samples.
    taxonomy : Taxonomy
        The tree.
    """
    method = opinion_method(fitted)
    if method is None:
        raise AttributeError(
            f"{type(fitted).__name__} has no predict_hyper_opinion. Wrap an evidential "
            "estimator, such as H2EDLClassifier."
        )
    opinion = method(X)
    if opinion.taxonomy != taxonomy:
        raise ValueError(
            f"The opinions of {type(fitted).__name__} are on another taxonomy "
            f"({opinion.taxonomy.n_leaves} leaves) than {taxonomy.n_leaves} leaves wanted here. "
            "Give the estimator itself the taxonomy, so that every fit uses the same."
        )
    return opinion


def fit_arguments(
    wrapper: TreeWrapper, sample_weight: Any, groups: Any, calibrates: bool = False
) -> dict[str, Any]:
    """Return what the fit of a wrapped estimator takes beside X and y, of what there is.

    With scikit-learn's metadata routing, it is what the estimator requests (`set_fit_request`);
    without, what its fit has as parameters.

    Parameters
    ----------
    wrapper : TreeWrapper
        The wrapper, with its estimator.
    sample_weight, groups : array-like of shape (n_samples,) or None
        None is not passed on.
    calibrates : bool, default=False
        Whether the wrapper uses the weights itself: it warns if the estimator takes none, as
        scikit-learn's CalibratedClassifierCV does. Otherwise that is an error.
    """
    estimator = wrapper.estimator
    _refuse_hiclass(look_inside(estimator)[0])
    if isinstance(estimator, FrozenEstimator):
        return {}
    if get_config()["enable_metadata_routing"]:
        given = {"sample_weight": sample_weight, "groups": groups}
        given = {name: value for name, value in given.items() if value is not None}
        return dict(process_routing(wrapper, "fit", **given).estimator.fit)
    if (
        calibrates
        and sample_weight is not None
        and not has_fit_parameter(estimator, "sample_weight")
    ):
        warnings.warn(
            f"sample_weight is used to calibrate and not to train, because "
            f"{type(estimator).__name__}.fit takes none. If a step of it does, enable "
            "scikit-learn's metadata routing and call set_fit_request(sample_weight=True) on that "
            "step.",
            UserWarning,
            stacklevel=4,
        )
        sample_weight = None
    return taken_by_fit(estimator, sample_weight=sample_weight, groups=groups)


def taken_by_fit(estimator: Any, **given: Any) -> dict[str, Any]:
    """Return those arguments that the fit of an estimator takes; weights it must take.

    Parameters
    ----------
    estimator : classifier
        The one to fit.
    **given : array-like of shape (n_samples,) or None
        `sample_weight` and `groups`; None is not passed on.
    """
    _refuse_hiclass(look_inside(estimator)[0])
    given = {name: value for name, value in given.items() if value is not None}
    if "sample_weight" in given and not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            f"sample_weight was given, but {type(estimator).__name__}.fit takes none. Leave it "
            "out, or wrap an estimator that does."
        )
    return {name: value for name, value in given.items() if has_fit_parameter(estimator, name)}


def fit_on(
    estimator: Any, X: Any, y: Any, arguments: Mapping[str, Any], positions: Any = None
) -> Any:
    """Fit a clone on some samples; None means all. What is frozen stays as it is.

    Parameters
    ----------
    estimator : classifier
        The one to clone.
    X, y
        As in a fit.
    arguments : mapping of str to array-like
        From :func:`fit_arguments`.
    positions : ndarray of int, default=None
        Of the samples to fit on.
    """
    if positions is not None:
        X, y = safe_indexing(X, positions), safe_indexing(y, positions)
        arguments = {name: safe_indexing(values, positions) for name, values in arguments.items()}
    return clone(estimator).fit(X, y, **arguments)


def split_unless_frozen(
    wrapper: Any, X: Any, labels: npt.NDArray[Any], groups: Any
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return positions to fit on and positions held out; none for a frozen estimator.

    Parameters
    ----------
    wrapper : TreeWrapper
        With `cv`.
    X, labels, groups
        As in :func:`~skh2edl.estimators.splits.held_out_splits`.
    """
    if isinstance(wrapper.estimator, FrozenEstimator):
        return []
    return held_out_splits(wrapper.cv, X, labels, groups)


def predict_held_out(
    wrapper: Any,
    predict: Callable[[Any, Any], Any],
    X: Any,
    y: Any,
    splits: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]],
    arguments: Mapping[str, Any],
    fitted: Sequence[Any] | None = None,
) -> list[tuple[npt.NDArray[np.int64], Any]]:
    """Return held-out positions, and predictions of an estimator that was not fitted on them.

    Parameters
    ----------
    wrapper : TreeWrapper
        With `estimator_`, and `n_jobs` unless its estimator is frozen.
    predict : callable
        From a fitted estimator and samples to a prediction of any kind.
    X, y
        As in a fit.
    splits : sequence of (positions to fit on, positions held out)
        From :func:`split_unless_frozen`.
    arguments : mapping of str to array-like
        From :func:`fit_arguments`.
    fitted : sequence of classifiers, default=None
        Those of the splits; None fits them.
    """
    if isinstance(wrapper.estimator, FrozenEstimator):
        return [(np.arange(len(y)), predict(wrapper.estimator_, X))]
    if fitted is None:
        fitted = Parallel(n_jobs=wrapper.n_jobs)(
            delayed(fit_on)(wrapper.estimator, X, y, arguments, train) for train, _ in splits
        )
    return [
        (held, predict(estimator, safe_indexing(X, held)))
        for estimator, (_, held) in zip(fitted, splits, strict=True)
    ]


def hand_on_features(fitted: Any, wrapper: Any) -> None:
    """Give a wrapper the number and the names of the features that its estimator reads."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(fitted, name):
            setattr(wrapper, name, getattr(fitted, name))


def has_opinions(estimator: Any) -> bool:
    """Return whether an estimator, fitted or not, is evidential on a tree."""
    return opinion_method(estimator) is not None


class TreeWrapper(MetaEstimatorMixin, TreePredictions, ClassifierMixin, BaseEstimator):
    """Base of the estimators around a classifier: they take the same X."""

    estimator: Any
    estimator_: Any
    taxonomy: Taxonomy | None
    # Attributes that a model file holds beside parameters and members -> a function of the
    # wrapper and the value that tells whether the value can be right. None: not set.
    _learned: ClassVar[Mapping[str, Callable[[Any, Any], bool]]] = {}

    def _inner(self) -> list[Any]:
        """Return the fitted estimators inside."""
        return [self.estimator_]

    def _set_inner(self, members: list[Any]) -> None:
        """Take fitted estimators as those inside; a further fit keeps them as they are."""
        (self.estimator_,) = members
        self.estimator = FrozenEstimator(self.estimator_)

    def _check_learned(self) -> None:
        """Raise ValueError where parameters, taxonomy and what was learnt do not fit."""
        for name, is_right in self._learned.items():
            value = getattr(self, name, None)
            if not is_right(self, value):
                raise ValueError(
                    f"{type(self).__name__} cannot have {name} {shown(value)} with its parameters. "
                    "Fit it again."
                )

    def _derive(self) -> None:
        """Set the attributes that follow from parameters, taxonomy and what was learnt."""

    def _export_parts(self) -> dict[str, Any]:
        """Return what an ONNX model does beside the network; see :mod:`.onnx`."""
        raise TypeError(
            f"{type(self).__name__} cannot be written as an ONNX model. Export its estimator_ and "
            "apply the rule to the probabilities, or use save."
        )

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the estimator unless it is frozen.

        Parameters
        ----------
        X : array-like or images
            Training samples.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Sample weights.
        groups : array-like of shape (n_samples,), default=None
            Passed to the estimator's own fit if that takes groups.

        Returns
        -------
        self
        """
        self._validate_params()
        X, y, sample_weight, groups = indexable(X, y, sample_weight, groups)
        arguments = fit_arguments(self, sample_weight, groups)
        self.estimator_ = fit_on(self.estimator, X, y, arguments)
        self._take_over(self.estimator_, self.taxonomy)
        self._derive()
        self._learn()
        return self

    def _learn(self) -> None:
        """Set what this wrapper knows beside its estimator."""

    def _take_over(self, fitted: Any, taxonomy: Taxonomy | None) -> None:
        """Set the attributes that a fitted estimator decides."""
        self.taxonomy_ = find_taxonomy(fitted, taxonomy)
        self.classes_ = self.taxonomy_.sorted_leaf_labels
        hand_on_features(fitted, self)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return how metadata reach the estimator, as scikit-learn's meta-estimators do.

        Returns
        -------
        routing : MetadataRouter
        """
        fit_to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return router.add(estimator=self.estimator, method_mapping=fit_to_fit)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags
