"""What all classifiers of the package share: fit, and predictions of the network."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..heads.base import TreeHead
from ..images import holds_images, image_source, make_transform
from ..taxonomy.taxonomy import Taxonomy
from ..training.backbones import Backbone, create_backbone
from ..training.checkpoints import PARAMETERS_THAT_MAY_DIFFER, CheckpointFile
from ..training.devices import find_device, on_device
from ..training.feature_cache import frozen_features
from ..training.loop import Plan, ValidationSet, identity_of_run, train
from ..training.network import Network
from ..training.recipe import (
    RECIPES,
    SETTINGS,
    Hardware,
    Recipe,
    resolve_precision,
    resolve_settings,
)
from ..training.resuming import check_unchanged, fixed_parameters, resume_head
from ..training.samples import (
    FeatureSamples,
    ImageSamples,
    Output,
    Samples,
    TrainingSet,
    warn_of_outliers,
)
from ..training.selection import split_validation
from ..training.solver import minimize_head, scale_features
from ..utils.hashing import hash_values
from ..utils.sklearn_tools import (
    CallbackSupportMixin,
    Interval,
    StrOptions,
    validate_data,
    with_callbacks,
)
from ..utils.validation import check_groups
from .decoding import refuse_encoded
from .earlier import MOVED, regroup
from .leaf_search import LeafSearch
from .live_logging import make_reporter, telling_callbacks
from .plain_values import encode
from .predictions import TreePredictions
from .targets import check_labels, check_something_to_learn, check_weight, resolve_taxonomy

# L-BFGS keeps 25 steps and 25 gradients: in single precision 2 GB of them.
_MAX_WEIGHTS_OF_LBFGS = 10_000_000
# Penalty of a head on fixed features; chosen by docs/studies/defaults.py.
DEFAULT_L2 = 1e-2


@dataclass(eq=False, repr=False, kw_only=True)
class TreeClassifier(
    CallbackSupportMixin, LeafSearch, TreePredictions, ClassifierMixin, BaseEstimator
):
    """Base of the classifiers: everything but the head."""

    taxonomy: Taxonomy | None = field(default=None, kw_only=False)
    backbone: str | torch.nn.Module | None = "resnet50"
    weights: str | os.PathLike[str] | None = "pretrained"
    finetune: str = "full"
    image_size: int | tuple[int, int] | None = None
    on_bad_image: str = "error"
    solver: str = "auto"
    l2: float = DEFAULT_L2
    tol: float = 1e-4
    max_iter: int = 1000
    max_epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 1e-3
    recipe: Recipe | str | None = None
    validation_fraction: float | None = 0.1
    class_weight: Any = None
    warm_start: bool = False
    hardware: Hardware | None = None
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "taxonomy": [Taxonomy, None],
        "backbone": [str, torch.nn.Module, None],
        "weights": [str, os.PathLike, None],
        "finetune": [StrOptions({"full", "head"})],
        "image_size": [Interval(Integral, 1, None, closed="left"), tuple, None],
        "on_bad_image": [StrOptions({"error", "skip"})],
        "solver": [StrOptions({"auto", "lbfgs", "adamw"})],
        "l2": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "recipe": [Recipe, StrOptions(set(RECIPES)), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "warm_start": ["boolean"],
        "hardware": [Hardware, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of a recipe, hardware or prior that is None or a name so far.

        Parameters
        ----------
        **params
            Such as ``learning_rate=0.01`` or ``recipe__weight_decay=0.1``.

        Returns
        -------
        self
        """
        for name in params.keys() & MOVED.keys():
            group, own = MOVED[name]
            raise ValueError(f"{name} is a parameter of {group}: set {group}__{own} instead.")
        for name in SETTINGS:
            if any(key.startswith(f"{name}__") for key in params) and hasattr(self, name):
                params[name] = resolve_settings(name, params.get(name, getattr(self, name)))
        return super().set_params(**params)

    def _validate_params(self) -> None:
        super()._validate_params()
        for group in self._settings().values():
            group._validate_params()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a pickle's state, also one of a release with other names of parameters."""
        state = regroup(state)
        if "_fitted_with" in state:
            state["_fitted_with"] = regroup(state["_fitted_with"])
        super().__setstate__(state)

    def _settings(self) -> dict[str, Any]:
        """Return the recipe, the hardware and the prior, if the method has one, by parameter."""
        return {n: resolve_settings(n, getattr(self, n)) for n in SETTINGS if hasattr(self, n)}

    def _recipe(self) -> Recipe:
        recipe: Recipe = resolve_settings("recipe", self.recipe)
        return recipe

    def _hardware(self) -> Hardware:
        hardware: Hardware = resolve_settings("hardware", self.hardware)
        return hardware

    # What a method decides ---------------------------------------------------------------------

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> TreeHead:
        """Make the method's head.

        Parameters
        ----------
        taxonomy : Taxonomy
            The tree.
        n_features : int
            Length of the feature.
        label_weight : ndarray of shape (n_nodes,)
            Total weight of the training labels at or below each node.
        """
        raise NotImplementedError

    def _learns_from(
        self, taxonomy: Taxonomy, nodes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which labels the method learns from: those that some decision leads to."""
        learns = taxonomy.last_decision[nodes] >= 0
        if getattr(self, "partial_labels", None) == "drop":
            learns &= taxonomy.leaf_stop[nodes] - taxonomy.leaf_start[nodes] == 1
        return learns

    def _after_training(self, X: Any, labels: npt.NDArray[Any], sample_weight: Any) -> None:
        """Estimate what a method adds to the trained network; most add nothing.

        Parameters
        ----------
        X, labels, sample_weight
            All samples of the fit, those held out too.
        """

    # Fit -----------------------------------------------------------------------------------------

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : images or array-like of shape (n_samples, n_features)
            With a backbone: file paths, a uint8 array (n, H, W, 3) or (n, H, W), a list of PIL
            images or such arrays, or what else :func:`skh2edl.images.image_source` reads.
            Without: features.
        y : array-like of shape (n_samples,)
            Labels: leaves or ancestors; the root's label means "unlabelled".
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; None means 1.
        groups : array-like of shape (n_samples,), default=None
            Such as patients: none is on both sides of the split into training and validation.
        X_val, y_val : default=None
            Validation data that choose the epoch to keep, instead of a `validation_fraction` of the
            training data. A head that is solved for on fixed features needs none.

        Returns
        -------
        self
        """
        self._validate_params()
        previous = getattr(self, "network_", None) if self.warm_start else None
        with telling_callbacks(self, X, y) as context:
            self._fit(X, y, sample_weight, groups, (X_val, y_val), previous, context)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train one more epoch on some samples.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array-like, default=None
            All classes, needed in the first call if there is no taxonomy.

        Returns
        -------
        self
        """
        self._validate_params()
        previous = getattr(self, "network_", None)
        if previous is None and self.taxonomy is None and classes is not None:
            self.taxonomy_ = Taxonomy.flat(np.unique(classes))
        elif previous is None and self.taxonomy is None:
            raise ValueError(
                "classes must be passed on the first call to partial_fit when taxonomy=None, "
                "because later samples may hold other classes."
            )
        self._fit(X, y, sample_weight, None, (None, None), previous, None, one_epoch=True)
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        groups: Any,
        validation: tuple[Any, Any],
        previous: Network | None,
        context: Any,
        one_epoch: bool = False,
    ) -> None:
        """Do the steps of `fit` and `partial_fit`: read, hold out, make the network, train it."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        known = getattr(self, "taxonomy_", None) if previous is not None or one_epoch else None
        if self.backbone is not None:
            # Before anything is downloaded or computed for images or labels that cannot be used.
            X = image_source(X)
            self._read_labels(y, len(X), known)
        backbone = self._make_backbone(seed) if previous is None else self._resumed(previous)
        samples, usable = self._read_X(X, backbone, reset=previous is None)
        labels, taxonomy = self._read_labels(y, len(samples), known)
        groups = None if groups is None else check_groups(column_or_1d(groups), len(samples))[1]
        data = self._training_set(samples, usable, taxonomy, labels, sample_weight)
        by_epochs = one_epoch or self._trains_by_epochs(taxonomy, samples)
        held_out = None
        if by_epochs and not one_epoch:
            data, held_out = self._hold_out(
                data, usable, labels, groups, validation, backbone, taxonomy, seed
            )
        network = self._make_network(backbone, taxonomy, data, previous)
        # How far the KL weight has risen: a fit that resumes a whole one has it in full.
        before = 0.0 if previous is None else getattr(self, "annealing_", 1.0)
        after = min(1.0, before + 1 / self.max_epochs) if one_epoch else 1.0
        if by_epochs:
            plan = self._plan(seed, one_epoch, before, after)
            self._train(network, taxonomy, data, held_out, plan, context)
        else:
            self._minimize(network, taxonomy, data, before < 1, context)
        # Only now: a fit that fails leaves the model of the fit before as it was.
        self.taxonomy_ = taxonomy
        self.classes_ = taxonomy.sorted_leaf_labels
        self.annealing_ = after
        self.network_ = network.eval()
        self._fitted_with = fixed_parameters(self)
        self._after_training(X, labels, sample_weight)

    def _minimize(
        self, network: Network, taxonomy: Taxonomy, data: TrainingSet, ramp: bool, context: Any
    ) -> None:
        """Fit the head to fixed features with L-BFGS."""
        assert isinstance(data.samples, FeatureSamples)
        values = minimize_head(
            network,
            data.samples.features,
            data.nodes,
            data.weight,
            l2=self.l2,
            max_iter=self.max_iter,
            tol=self.tol,
            ramp=ramp,
            verbose=self.verbose,
            on_iteration=make_reporter(self, taxonomy, context, "iteration"),
        )
        self.n_iter_ = len(values)
        self.history_ = {"iteration": list(range(len(values))), "objective": values}

    def _train(
        self,
        network: Network,
        taxonomy: Taxonomy,
        data: TrainingSet,
        held_out: ValidationSet | None,
        plan: Plan,
        context: Any,
    ) -> None:
        """Train the network epoch by epoch."""
        checkpoint = None
        folder = self._hardware().checkpoint_dir
        if folder is not None:
            identity = {
                "parameters": hash_values(encode(self._parameters_of_a_run())),
                "taxonomy": hash_values(taxonomy.to_json()),
                **identity_of_run(network, data, held_out),
            }
            checkpoint = CheckpointFile(folder, identity)
        progress = train(
            network,
            data,
            plan,
            held_out=held_out,
            checkpoint=checkpoint,
            on_epoch=make_reporter(self, taxonomy, context, "epoch"),
        )
        self.n_iter_ = len(progress.history)
        self.history_ = {
            key: [record[key] for record in progress.history] for key in progress.history[0]
        }
        if held_out is not None:
            self.best_epoch_, self.best_score_ = progress.best_epoch, progress.best_score
            if np.isnan(progress.best_score):
                warnings.warn(
                    "The selection score of the validation samples is NaN, so the last epoch is "
                    "kept: the usual scores need labels that name leaves. Give such samples as "
                    "X_val and y_val, choose another selection in the recipe, or set "
                    "validation_fraction=None.",
                    UserWarning,
                    stacklevel=4,
                )

    # Steps of a fit --------------------------------------------------------------------------

    def _read_labels(
        self, y: Any, n_samples: int, known: Taxonomy | None
    ) -> tuple[npt.NDArray[Any], Taxonomy]:
        """Return the labels and the tree that they name nodes of."""
        labels = check_labels(y, n_samples)
        taxonomy = resolve_taxonomy(self.taxonomy, labels, known)
        if self.taxonomy is not None:
            refuse_encoded(labels, taxonomy)
        taxonomy.resolve(labels)  # or say which are unknown
        return labels, taxonomy

    def _make_backbone(self, seed: int) -> Backbone | None:
        if self.backbone is None:
            return None
        backbone = create_backbone(
            self.backbone, self.weights, image_size=self.image_size, seed=seed
        )
        return backbone.freeze(self.finetune == "head")

    def _resumed(self, previous: Network) -> Backbone | None:
        """Return the backbone of an earlier fit, or refuse parameters that do not fit it."""
        check_unchanged(self)
        # A copy: a fit that fails leaves the model of the fit before as it was.
        backbone = copy.deepcopy(previous.backbone)
        return None if backbone is None else backbone.freeze(self.finetune == "head")

    def _training_set(
        self,
        samples: Samples,
        usable: npt.NDArray[np.bool_],
        taxonomy: Taxonomy,
        labels: npt.NDArray[Any],
        sample_weight: Any,
    ) -> TrainingSet:
        """Return the samples with their labels' nodes, and weights: 0 where nothing is learnt."""
        nodes = taxonomy.resolve(labels)
        weight = check_weight(sample_weight, self.class_weight, labels)
        # A label without supervision, such as the root's, must not dilute the others.
        weight = np.where(usable & self._learns_from(taxonomy, nodes), weight, 0.0)
        check_something_to_learn(weight)
        return TrainingSet(samples, nodes, weight)

    def _trains_by_epochs(self, taxonomy: Taxonomy, samples: Samples) -> bool:
        """Return whether the network is trained in epochs; else L-BFGS fits the head."""
        if not isinstance(samples, FeatureSamples) or self.solver == "adamw":
            return True
        n_weights = taxonomy.n_decisions * samples.features.shape[1]
        return self.solver == "auto" and n_weights > _MAX_WEIGHTS_OF_LBFGS

    def _make_network(
        self,
        backbone: Backbone | None,
        taxonomy: Taxonomy,
        data: TrainingSet,
        previous: Network | None,
    ) -> Network:
        """Return the network to train: new, or with what an earlier fit learnt."""
        n_features = self.n_features_in_ if backbone is None else backbone.n_features
        counts = np.bincount(data.nodes, data.weight, minlength=taxonomy.n_nodes)
        label_weight = taxonomy.sum_below(counts)
        network = Network(backbone, self._make_head(taxonomy, n_features, label_weight))
        features = data.samples.features if isinstance(data.samples, FeatureSamples) else None
        if features is not None and features.dtype == np.float64:
            network.double()
        if previous is not None:
            resume_head(network, previous, label_weight)
        elif features is not None:
            scale_features(network, features, data.weight)
        return network

    def _read_X(
        self, X: Any, backbone: Backbone | None, reset: bool, precision: str | None = None
    ) -> tuple[Samples, npt.NDArray[np.bool_]]:
        """Return the samples, as features where the backbone is frozen, and which are usable.

        Features are computed in the precision of the hardware unless another is given.
        """
        if backbone is None:
            if holds_images(X):
                raise TypeError(
                    "X holds images or their paths, and with backbone=None it must be a 2-D array "
                    "of features. Name a backbone, such as 'resnet50', or compute features with "
                    "ImageFeatureExtractor."
                )
            dtypes = [np.float64, np.float32]
            features = validate_data(self, X, dtype=dtypes, reset=reset, ensure_min_samples=1)
            if reset:
                warn_of_outliers(features)
            return FeatureSamples(np.ascontiguousarray(features)), np.ones(len(features), bool)
        hardware = self._hardware()
        images = ImageSamples(
            image_source(X),
            make_transform(backbone.data_config),
            make_transform(backbone.data_config, self._recipe().augmentation),
            batch_size=self.batch_size,
            n_workers=hardware.n_workers,
            on_bad_image=self.on_bad_image,
            verbose=self.verbose,
        )
        if len(images) == 0:
            raise ValueError("Found array with 0 sample(s): X holds no image. Give at least one.")
        if self.finetune == "full":
            return images, np.ones(len(images), bool)
        features = frozen_features(
            backbone,
            images,
            memory=hardware.memory,
            device=self._device(),
            precision=precision or resolve_precision(hardware.precision),
            verbose=self.verbose,
        )
        bad = np.asarray(np.isnan(features).any(axis=1))
        return FeatureSamples(np.where(bad[:, None], np.float32(0), features)), ~bad

    def _hold_out(
        self,
        data: TrainingSet,
        usable: npt.NDArray[np.bool_],
        labels: npt.NDArray[Any],
        groups: Any,
        validation: tuple[Any, Any],
        backbone: Backbone | None,
        taxonomy: Taxonomy,
        seed: int,
    ) -> tuple[TrainingSet, ValidationSet | None]:
        """Return what to train on, and the samples and labels that select the epoch."""
        X_val, y_val = validation
        if (X_val is None) != (y_val is None):
            raise ValueError("Give both X_val and y_val, or neither.")
        if X_val is not None:
            read, usable = self._read_X(X_val, backbone, reset=False)
            y_val, kept = check_labels(y_val, len(read)), np.flatnonzero(usable)
            selection = self._recipe().selection
            return data, ValidationSet(read.subset(kept), y_val[kept], selection, taxonomy)
        if self.validation_fraction is None:
            return data, None
        train, held = split_validation(data.nodes, groups, self.validation_fraction, seed)
        selection, kept = self._recipe().selection, held[usable[held]]
        held_out = ValidationSet(data.samples.subset(kept), labels[kept], selection, taxonomy)
        return data.subset(train), held_out

    def _plan(self, seed: int, one_epoch: bool, before: float, after: float) -> Plan:
        recipe = self._recipe()
        return Plan(
            recipe=clone(recipe).set_params(warmup_epochs=0.0) if one_epoch else recipe,
            hardware=self._hardware(),
            max_epochs=1 if one_epoch else self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
            first_progress=before,
            last_progress=after,
            verbose=self.verbose,
        )

    def _parameters_of_a_run(self) -> dict[str, Any]:
        """Return the parameters that must be the same when a run resumes."""
        parameters = self.get_params(deep=False)
        for name, group in self._settings().items():
            parameters |= {f"{name}__{key}": value for key, value in group.get_params().items()}
        return {k: v for k, v in parameters.items() if k not in PARAMETERS_THAT_MAY_DIFFER}

    # Predict -------------------------------------------------------------------------------------

    def _device(self, dtype: torch.dtype = torch.float32) -> torch.device:
        return find_device(self._hardware().accelerator, dtype)

    def _head_output(
        self, X: Any, output: Output
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return an output of the head for every sample, and which samples were readable."""
        check_is_fitted(self, "network_")
        device = self._device(self.network_.feature_mean.dtype)
        network = on_device(self.network_, device)
        # With less, the batch would move predictions further than the margin of thresholds.
        samples, usable = self._read_X(X, network.backbone, reset=False, precision="32-true")
        values = samples.compute(network, output, device)
        return values, usable & ~np.isnan(values).any(axis=1)

    def _training_features(
        self, X: Any, labels: npt.NDArray[Any], sample_weight: Any
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return features, nodes and weights of the samples whose weight is positive."""
        features, readable = self._head_output(X, lambda head, features: features)
        weight = check_weight(sample_weight, self.class_weight, labels)
        used = readable & (weight > 0)
        return features[used], self.taxonomy_.resolve(labels)[used], weight[used]

    def _unknown_leaf_probability(self) -> npt.NDArray[np.float64]:
        """Return the leaf probabilities of an image that could not be read, in tree order."""
        return np.full(self.taxonomy_.n_leaves, 1 / self.taxonomy_.n_leaves)

    def _log_leaves(self, X: Any) -> npt.NDArray[Any]:
        """Return log P of each leaf in tree order."""
        log_leaves, readable = self._head_output(X, "leaf_log_probability")
        log_leaves[~readable] = np.log(self._unknown_leaf_probability())
        return log_leaves

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """Return the log-probability of each leaf, or the log-odds if there are two leaves.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`predict_log_proba`.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_leaves), or (n_samples,) for two leaves
            Columns in the order of `classes_`; above 0 means ``classes_[1]`` of two.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if log_proba.shape[1] == 2 else log_proba

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        takes_features = self.backbone is None
        tags.input_tags.two_d_array = takes_features
        tags.input_tags.three_d_array = not takes_features
        tags.input_tags.string = not takes_features
        return tags
