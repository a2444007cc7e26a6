"""H2EDLClassifier: one Dirichlet opinion on every branching node of a taxonomy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import joblib
import numpy as np
import numpy.typing as npt

from ._base import TreeClassifier
from ._validation import Interval, StrOptions
from .heads import EVIDENCE_FUNCTIONS, RISKS, OpinionTreeHead
from .opinion import HyperOpinion
from .taxonomy import Taxonomy

# Each method parameter that is None takes its value from the preset.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "evidence": "softplus_squared",
        "evidence_scale": 1.0,
        "prior": "uniform",
        "prior_weight": "children",
        "risk": "squared",
        "kl_weight": 0.01,
        "leaf_weight": 1.0,
        "consistency_weight": 0.0,
        "initial_bias": 0.0,
    },
    "paper": {
        "evidence": "softplus",
        "evidence_scale": 1.0,
        "prior": "uniform",
        "prior_weight": "children",
        "risk": "squared",
        "kl_weight": 1.0,
        "leaf_weight": 0.0,
        "consistency_weight": 0.0,
        "initial_bias": -2.0,
    },
}


class H2EDLClassifier(TreeClassifier):
    """PLACEHOLDER."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        "preset": [StrOptions(set(PRESETS))],
        "evidence": [StrOptions(set(EVIDENCE_FUNCTIONS)), None],
        "evidence_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"}), None],
        "prior": [StrOptions({"uniform", "inverse_frequency"}), None],
        "prior_weight": [Interval(Real, 0, None, closed="neither"), StrOptions({"children"}), None],
        "base_rate_power": [Interval(Real, 0, 1, closed="both")],
        "base_rate_smoothing": [Interval(Real, 0, None, closed="neither")],
        "risk": [StrOptions(set(RISKS)), None],
        "kl_weight": [Interval(Real, 0, None, closed="left"), None],
        "kl_annealing_epochs": [Interval(Real, 0, None, closed="left")],
        "kl_per_child": ["boolean"],
        "leaf_weight": [Interval(Real, 0, None, closed="left"), None],
        "consistency_weight": [Interval(Real, 0, None, closed="left"), None],
        "depth_weights": ["array-like", None],
        "initial_bias": [Real, None],
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        preset: str = "default",
        evidence: str | None = None,
        evidence_scale: float | str | None = None,
        prior: str | None = None,
        prior_weight: float | str | None = None,
        base_rate_power: float = 1.0,
        base_rate_smoothing: float = 1.0,
        risk: str | None = None,
        kl_weight: float | None = None,
        kl_annealing_epochs: float = 10,
        kl_per_child: bool = False,
        leaf_weight: float | None = None,
        consistency_weight: float | None = None,
        depth_weights: Sequence[float] | None = None,
        initial_bias: float | None = None,
        image_size: int | tuple[int, int] | None = None,
        augmentation: str | Mapping[str, Any] | None = "timm",
        on_bad_image: str = "error",
        standardize: bool = True,
        solver: str = "auto",
        l2: float = 0.01,
        tol: float = 1e-4,
        max_iter: int = 1000,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.05,
        warmup_epochs: float = 0.0,
        layer_decay: float | None = None,
        backbone_lr_scale: float = 0.1,
        clip_norm: float | None = 1.0,
        ema_decay: float | None = None,
        validation_fraction: float | None = 0.1,
        selection: str | Callable[..., float] = "balanced_accuracy",
        patience: int | None = None,
        class_weight: Any = None,
        warm_start: bool = False,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        memory: str | joblib.Memory | None = None,
        n_workers: int | None = None,
        accelerator: str = "auto",
        devices: Any = 1,
        strategy: str = "auto",
        precision: str = "auto",
        compile: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.taxonomy = taxonomy
        self.backbone = backbone
        self.weights = weights
        self.finetune = finetune
        self.preset = preset
        self.evidence = evidence
        self.evidence_scale = evidence_scale
        self.prior = prior
        self.prior_weight = prior_weight
        self.base_rate_power = base_rate_power
        self.base_rate_smoothing = base_rate_smoothing
        self.risk = risk
        self.kl_weight = kl_weight
        self.kl_annealing_epochs = kl_annealing_epochs
        self.kl_per_child = kl_per_child
        self.leaf_weight = leaf_weight
        self.consistency_weight = consistency_weight
        self.depth_weights = depth_weights
        self.initial_bias = initial_bias
        self.image_size = image_size
        self.augmentation = augmentation
        self.on_bad_image = on_bad_image
        self.standardize = standardize
        self.solver = solver
        self.l2 = l2
        self.tol = tol
        self.max_iter = max_iter
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_epochs = warmup_epochs
        self.layer_decay = layer_decay
        self.backbone_lr_scale = backbone_lr_scale
        self.clip_norm = clip_norm
        self.ema_decay = ema_decay
        self.validation_fraction = validation_fraction
        self.selection = selection
        self.patience = patience
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.checkpoint_dir = checkpoint_dir
        self.memory = memory
        self.n_workers = n_workers
        self.accelerator = accelerator
        self.devices = devices
        self.strategy = strategy
        self.precision = precision
        self.compile = compile
        self.random_state = random_state
        self.verbose = verbose

    def _chosen(self, name: str) -> Any:
        """Return a method parameter, or the preset's value where it is None."""
        value = getattr(self, name)
        return PRESETS[self.preset][name] if value is None else value

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> OpinionTreeHead:
        fan_out = np.diff(taxonomy.decision_offsets)
        chosen_weight = self._chosen("prior_weight")
        scale = self._chosen("evidence_scale")
        if self.depth_weights is not None and len(self.depth_weights) != taxonomy.n_levels:
            raise ValueError(
                f"depth_weights must hold {taxonomy.n_levels} weights, one for each depth at which "
                f"the taxonomy decides (from 0, the root), got {len(self.depth_weights)}."
            )
        # A label at the node itself decides nothing there; one below it does.
        passing = np.add.reduceat(
            label_weight[taxonomy.decision_children], taxonomy.decision_offsets[:-1]
        )
        return OpinionTreeHead(
            taxonomy,
            n_features,
            self._base_rate(taxonomy, label_weight),
            fan_out * 1.0 if chosen_weight == "children" else np.full(len(fan_out), chosen_weight),
            passing > 0,
            evidence=self._chosen("evidence"),
            evidence_scale=1.0 if scale == "learn" else scale,
            learn_evidence_scale=scale == "learn",
            risk=self._chosen("risk"),
            kl_weight=self._chosen("kl_weight"),
            kl_annealing_epochs=self.kl_annealing_epochs,
            kl_per_child=self.kl_per_child,
            leaf_weight=self._chosen("leaf_weight"),
            consistency_weight=self._chosen("consistency_weight"),
            depth_weights=self.depth_weights,
            initial_bias=self._chosen("initial_bias"),
        )

    def _base_rate(
        self, taxonomy: Taxonomy, label_weight: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        power = 0.0 if self._chosen("prior") == "uniform" else self.base_rate_power
        rarity = (label_weight[taxonomy.decision_children] + self.base_rate_smoothing) ** -power
        total = np.add.reduceat(rarity, taxonomy.decision_offsets[:-1])
        return rarity / total[taxonomy.decision_nodes]

    def _head(self) -> OpinionTreeHead:
        head = self.network_.head
        assert isinstance(head, OpinionTreeHead)
        return head

    def _unknown_leaf_probability(self) -> npt.NDArray[np.float64]:
        empty = np.zeros((1, self.taxonomy_.n_decisions))
        opinion = self._opinion(empty)
        return opinion.leaf_probability[0]

    def _opinion(self, evidence: npt.NDArray[Any]) -> HyperOpinion:
        head = self._head()
        return HyperOpinion.from_evidence(
            self.taxonomy_,
            evidence,
            base_rate=head.base_rate.double().numpy(),
            prior_weight=head.prior_weight.double().numpy(),
        )

    @property
    def unsupervised_nodes_(self) -> list[Any]:
        """Labels of the branching nodes that no training label passed through."""
        missing = ~self._head().supervised.numpy()
        return self.taxonomy_.labels(self.taxonomy_.branching_nodes[missing])

    def predict_hyper_opinion(self, X: Any) -> HyperOpinion:
        """Return how far down the tree the evidence reaches, for each sample.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`. An image that cannot be read, with ``on_bad_image="skip"``, gets
            the vacuous opinion.

        Returns
        -------
        opinion : HyperOpinion
        """
        evidence, readable = self._read(X, "evidence")
        evidence[~readable] = 0
        return self._opinion(evidence)
