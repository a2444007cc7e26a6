"""H2EDLClassifier: one Dirichlet opinion on every branching node of a taxonomy."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import joblib
import numpy as np
import numpy.typing as npt

from ._base import DEFAULT_TOLERANCE, TreeClassifier
from ._validation import Interval, StrOptions
from .heads import EVIDENCE_FUNCTIONS
from .opinion import HyperOpinion
from .opinion_head import READ_OUTS, RISKS, SHARED_EVIDENCE, OpinionTreeHead, nodes_passed
from .penalties import L2_SHAPES
from .taxonomy import Taxonomy

# Beyond this the preset's nested read-out, which reads every leaf of every sample, gives way.
MAX_NESTED_LEAVES = 20_000

# Each method parameter that is None takes its value from the preset.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "read_out": "nested",
        "evidence": "exp",
        "evidence_scale": 1.0,
        "shared_evidence": "doubt",
        "prior": "uniform",
        "prior_weight": "children",
        "risk": "log",
        "kl_weight": 0.0,
        "leaf_weight": 0.0,
        "consistency_weight": 0.0,
        # An opinion that starts with much evidence is a softmax at first; one that starts with none
        # has gradients as small as its evidence, and learns late.
        "initial_bias": 7.0,
        "l2_shape": "separation",
        "l2_metric": "within",
        "l2_relaxation": 1 / 24,
        "tol": 8e-4,
    },
    "paper": {
        "read_out": "nodes",
        "evidence": "softplus",
        "evidence_scale": 1.0,
        "shared_evidence": "belief",
        "prior": "uniform",
        "prior_weight": "children",
        "risk": "squared",
        "kl_weight": 1.0,
        "leaf_weight": 0.0,
        "consistency_weight": 0.0,
        "initial_bias": -2.0,
        "l2_shape": "uniform",
        "l2_metric": "identity",
        "l2_relaxation": 1.0,
        "tol": DEFAULT_TOLERANCE,
    },
}


class H2EDLClassifier(TreeClassifier):
    """Classify images into a taxonomy and say how far down the evidence reaches (H2EDL).

    One small Dirichlet opinion stands on every branching node of the taxonomy, over one shared
    feature. The product of their expected probabilities is a coherent classifier at every level;
    the product of their beliefs is a hyper-opinion: a mass on every node that says "the belief
    came this far and no further". A label may name any node; an ancestor teaches the decisions
    above it and leaves those below alone.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels in `y`.
    backbone : str, default="resnet50"
        Any model of timm. None: X is a 2-D array of features.
    weights : "pretrained", path or None, default="pretrained"
        timm's own weights (downloaded), a local ``.safetensors`` or ``.pth`` file, or a random
        start.
    finetune : {"full", "head"}, default="full"
        Whether the backbone learns too. "head" keeps it frozen and computes features once.
    preset : {"default", "paper"}, default="default"
        Where the method parameters below that are None take their values: our defaults, or the
        form of the paper (softplus evidence, full weight on the divergence, no leaf term).
    read_out : {"nodes", "nested"}, default=None
        Where a decision's evidence comes from. "nodes": a row of its own for every decision.
        "nested": evidence is counted once, at the leaves, and adds up on the way to the root; the
        logit of a leaf is the sum of the rows on its way, so that siblings share what they have in
        common. None in a tree of more than 20,000 leaves means "nodes": there a step reads and
        moves only the rows on the ways to its labels, and :meth:`predict` searches.
    evidence : {"softplus", "softplus_squared", "exp"}, default=None
        How evidence grows with the read-out.
    evidence_scale : float or "learn", default=None
        Factor of the evidence.
    shared_evidence : {"doubt", "belief"}, default=None
        What evidence counts as that all children of a node have alike, in proportion to their base
        rates. It speaks for none of them, and probabilities do not depend on it. "doubt": it adds
        to the vacuity, which is then the largest that goes with the probabilities, so that belief
        stops above siblings that nothing tells apart. "belief": each child has its part. None
        means "doubt", but for the paper's form.
    prior : {"uniform", "inverse_frequency"}, default=None
        Base rates: equal for all children of a node, or larger for rarer ones.
    prior_weight : float or "children", default=None
        Weight W of the prior: a number for every node, or each node's number of children.
    base_rate_power, base_rate_smoothing : float, default=1.0 and 1.0
        The inverse-frequency base rate is proportional to ``(count + smoothing) ** -power``.
    risk : {"squared", "log", "digamma", "none"}, default=None
        The evidential risk of each decision.
    kl_weight : float, default=None
        Weight of the divergence that takes evidence for wrong children away. None means 0 in the
        default preset and 1 in the paper's form.
    kl_annealing_epochs : float, default=10
        Epochs over which that weight rises from 0; a quasi-Newton fit uses the full weight.
    kl_per_child : bool, default=False
        Whether that weight is divided by the node's number of children.
    leaf_weight : float, default=None
        Weight of ``-log P(label)``, a proper score of the whole path.
    consistency_weight : float, default=None
        Weight of the penalty for doubt that rises down the true path.
    depth_weights : sequence of float, default=None
        Weight of the decisions of each depth, from the root; None means 1.
    initial_bias : float, default=None
        Bias of the read-out at the start. None means 7 in the default preset, and 0 there with
        evidence other than "exp": from 7 that starts as a softmax, and learns as fast.
    image_size : int or (height, width), default=None
        None takes the size the weights were trained for.
    augmentation : str, mapping or None, default="timm"
        Of training images: "none", "timm" (random crop and flip), "randaugment", any
        ``auto_augment`` string of timm, or options of ``timm.data.create_transform``.
    on_bad_image : {"error", "skip"}, default="error"
        Whether an image that cannot be read stops the job, or is left out and counted in a
        warning.
    feature_scaling : {"global", "feature"} or None, default="global"
        What is done to the features of a frozen backbone, or a 2-D X, first: centred and divided
        by one number, which keeps what the sizes of a network's features mean; centred and divided
        each by its standard deviation, for features of different units; or nothing.
    solver : {"auto", "lbfgs", "adamw"}, default="auto"
        How a head on fixed features is fitted: "auto" and "lbfgs" with a full-batch quasi-Newton
        method, "adamw" in epochs like a fine-tuned network.
    l2 : float, default=None
        L2 penalty of the quasi-Newton fit: ``l2 / 2`` times the squares of the weights, each row
        with its share, beside the mean loss. None means 216 over the number of samples with shares
        by separation, and 0.003 with equal ones; with more than 1,280 features in proportion to
        their number, and the first with fewer in proportion to its root. A weight of a sample
        beyond one counts like more samples.
    l2_shape : {"separation", "uniform"}, default=None
        The share of each row of the read-out. "uniform": 1. "separation": the less siblings of its
        depth differ in the training samples, compared with samples of one class, the larger; more
        at the end of a way than at its beginning, and with few siblings than with many. None means
        "separation" in the default preset.
    l2_metric : {"within", "identity"}, default=None
        What the square of a row of the read-out is. "identity": that of its weights. "within": for
        two fifths, what the row makes of the differences between training samples of one class, so
        that it costs more to read features in which a class is many things. It takes a matrix of
        features by features, and with more than 8,192 of them is the identity. None means
        "within", but for the paper's form.
    l2_relaxation : float, default=None
        Part of the penalty that is left when, the directions of the rows being found, the one
        length of all of them and the biases are fitted once more: a strong penalty finds better
        directions and makes rows too short. That fit sees of each sample what the rows would say
        had it been left out, together with its group, or with those of its class that look like
        copies of it, such as photographs of one scene, and a tenth of that part is enough; the
        whole part says, with all samples, how long rows may become. 1: no second fit. None means
        1 / 24 in the default preset, also of an `l2` that is given, and 1 with a uniform shape, in
        the paper's form and in the rivals. Where many features hardly tell few samples apart, 1 has
        the better likelihood.
    tol, max_iter : float and int, default=None and 1000
        Largest gradient component, and number of iterations, at which that fit stops. None means
        8e-4 in the default preset, which takes fewer iterations at no cost, and 1e-4 in the
        paper's form and in the rivals.
    max_epochs, batch_size : int, default=100 and 64
        Passes over the data, and samples of a step over all processes.
    learning_rate, weight_decay : float, default=1e-3 and 0.05
        Of AdamW for the head; a cosine takes the rate to 0.
    warmup_epochs : float, default=0.0
        Epochs over which the rate rises first.
    layer_decay : float, default=None
        Factor of the learning rate from each layer to the one below it.
    backbone_lr_scale : float, default=0.1
        Learning rate of the backbone over that of the head.
    clip_norm : float, default=1.0
        Largest norm of the gradient; None does not clip.
    ema_decay : float, default=None
        Decay of the running mean of the weights, which is then the model; None keeps none.
    validation_fraction : float, default=0.1
        Share of the samples held out to choose the epoch that is kept; None keeps the last.
    selection : str or callable, default="balanced_accuracy"
        Score of that choice, on leaves: "accuracy", "balanced_accuracy", "neg_log_loss",
        "neg_brier_score", "neg_ece", another name of scikit-learn's scorers, or a scorer.
    patience : int, default=None
        Epochs without a better score after which training stops.
    class_weight : dict or "balanced", default=None
        Weights of labels.
    warm_start : bool, default=False
        Whether `fit` goes on from the weights of the last fit.
    checkpoint_dir : path, default=None
        Folder of a checkpoint after each epoch: the same call resumes from it.
    memory : str or joblib.Memory, default=None
        Where the features of a frozen backbone are kept, image by image.
    n_workers : int, default=None
        Processes that decode images; None chooses.
    accelerator, devices, strategy : default="auto", 1 and "auto"
        Where to train, as in Lightning Fabric: `devices` processes that a script (strategy
        "ddp"), a notebook ("ddp_notebook") or ``torchrun`` ("ddp") starts. Their number does not
        change what is learnt.
    precision : {"auto", "32-true", "bf16-mixed", "16-mixed"}, default="auto"
        Arithmetic of the backbone; "auto" is bfloat16 on a GPU that computes in it.
    compile : bool, default=False
        Whether to compile the network.
    random_state : int, RandomState or None, default=None
        Source of all randomness; an int makes fits repeat bit for bit.
    verbose : int, default=0
        1 shows progress over epochs, 2 also over batches.

    Attributes
    ----------
    classes_ : ndarray of shape (n_leaves,)
        Labels of all leaves, sorted.
    taxonomy_ : Taxonomy
        The tree.
    network_ : Network
        Backbone and head.
    history_ : dict of lists
        One entry for each epoch or iteration; ``pandas.DataFrame(history_)`` is a table.
    n_iter_ : int
        Epochs or iterations done.
    best_epoch_, best_score_ : int and float
        The epoch kept, and its score, where samples were held out.
    n_features_in_, feature_names_in_
        Of a 2-D X.

    See Also
    --------
    HyperOpinion : What `predict_hyper_opinion` returns.
    FlatCEClassifier : One softmax over the leaves, the rival to beat.

    Notes
    -----
    Vacuity is the share of belief the network did not commit at a node. It is not a probability of
    error, and bel <= P <= pl is no confidence interval.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import H2EDLClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 3)) + 3 * np.repeat(np.eye(3), 30, axis=0)
    >>> y = np.repeat(["lynx", "puma", "dog"], 30)
    >>> y[:10] = "cat"  # never told apart further
    >>> clf = H2EDLClassifier(tree, backbone=None).fit(X, y)
    >>> clf.classes_
    array(['dog', 'lynx', 'puma'], dtype='<U4')
    >>> clf.predict_level([[9, 9, 0]], 1)
    array(['cat'], dtype='<U3')
    >>> opinion = clf.predict_hyper_opinion([[0, 0, 9]])
    >>> bool(opinion.belief("dog")[0] > 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        "preset": [StrOptions(set(PRESETS))],
        "read_out": [StrOptions(set(READ_OUTS)), None],
        "evidence": [StrOptions(set(EVIDENCE_FUNCTIONS)), None],
        "evidence_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"}), None],
        "shared_evidence": [StrOptions(set(SHARED_EVIDENCE)), None],
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
        "l2_shape": [StrOptions(set(L2_SHAPES)), None],
    }

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        backbone: str | None = "resnet50",
        weights: str | os.PathLike[str] | None = "pretrained",
        finetune: str = "full",
        preset: str = "default",
        read_out: str | None = None,
        evidence: str | None = None,
        evidence_scale: float | str | None = None,
        shared_evidence: str | None = None,
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
        feature_scaling: str | None = "global",
        solver: str = "auto",
        l2: float | None = None,
        l2_shape: str | None = None,
        l2_metric: str | None = None,
        l2_relaxation: float | None = None,
        tol: float | None = None,
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
        self.read_out = read_out
        self.evidence = evidence
        self.evidence_scale = evidence_scale
        self.shared_evidence = shared_evidence
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
        self.feature_scaling = feature_scaling
        self.solver = solver
        self.l2 = l2
        self.l2_shape = l2_shape
        self.l2_metric = l2_metric
        self.l2_relaxation = l2_relaxation
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

    def _parameters_in_use(self) -> dict[str, Any]:
        # The preset's values instead of its name: a later release may choose others.
        chosen = {name: self._chosen(name) for name in PRESETS[self.preset]}
        chosen["read_out"] = self._choose_read_out(self.taxonomy_)
        chosen["initial_bias"] = self._choose_bias()
        return super()._parameters_in_use() | chosen | {"preset": None}

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
        return OpinionTreeHead(
            taxonomy,
            n_features,
            self._base_rate(taxonomy, label_weight),
            fan_out * 1.0 if chosen_weight == "children" else np.full(len(fan_out), chosen_weight),
            nodes_passed(taxonomy, label_weight),
            read_out=self._choose_read_out(taxonomy),
            evidence=self._chosen("evidence"),
            evidence_scale=1.0 if scale == "learn" else scale,
            learn_evidence_scale=scale == "learn",
            shared_evidence=self._chosen("shared_evidence"),
            risk=self._chosen("risk"),
            kl_weight=self._chosen("kl_weight"),
            kl_annealing_epochs=self.kl_annealing_epochs,
            kl_per_child=self.kl_per_child,
            leaf_weight=self._chosen("leaf_weight"),
            consistency_weight=self._chosen("consistency_weight"),
            depth_weights=self.depth_weights,
            initial_bias=self._choose_bias(),
        )

    def _tolerance(self) -> float:
        tolerance: float = self._chosen("tol")
        return tolerance

    def _penalty(self) -> dict[str, Any]:
        chosen = {name: self._chosen(name) for name in super()._penalty()}
        if self.l2_relaxation is None and chosen["l2_shape"] == "uniform":
            # Its own strength leaves rows about as long as they should be.
            chosen["l2_relaxation"] = 1.0
        return chosen

    def _choose_bias(self) -> float:
        bias: float = self._chosen("initial_bias")
        if self.initial_bias is None and self.preset == "default":
            # Only exponential evidence is a softmax where there is much of it.
            bias = bias if self._chosen("evidence") == "exp" else 0.0
        return bias

    def _choose_read_out(self, taxonomy: Taxonomy) -> str:
        if self.read_out is None and taxonomy.n_leaves > MAX_NESTED_LEAVES:
            return "nodes"
        read_out: str = self._chosen("read_out")
        return read_out

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

    def predict_hyper_opinion(self, X: Any, *, shared_evidence: str | None = None) -> HyperOpinion:
        """Return how far down the tree the evidence reaches, for each sample.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`. An image that cannot be read, with ``on_bad_image="skip"``, gets
            the vacuous opinion.
        shared_evidence : {"doubt", "belief"}, default=None
            What evidence counts as that siblings share; None means as the classifier was fitted.
            As "belief" the vacuity shows how much evidence was counted, which is less for what the
            network has not seen: :class:`NoveltyDetector` reads it so.

        Returns
        -------
        opinion : HyperOpinion
        """
        if shared_evidence is not None and shared_evidence not in SHARED_EVIDENCE:
            raise ValueError(
                f"shared_evidence must be one of {SHARED_EVIDENCE} or None, got "
                f"{shared_evidence!r}."
            )
        outputs = {None: "evidence", "belief": "counted_evidence", "doubt": "unshared_evidence"}
        evidence, readable = self._read(X, outputs[shared_evidence])
        evidence[~readable] = 0
        return self._opinion(evidence)
