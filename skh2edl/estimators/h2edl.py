"""H2EDLClassifier: one Dirichlet opinion on every branching node of a taxonomy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..heads.base import LARGE_TREE, TreeHead
from ..heads.evidence import EVIDENCE_FUNCTIONS
from ..heads.h2edl import RISKS, H2EDLHead, supervised_nodes
from ..heads.prior import Prior
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..training.recipe import PRIORS, resolve_settings
from ..utils.sklearn_tools import Interval, StrOptions
from .base import TreeClassifier

__all__ = ["H2EDLClassifier"]

# Open in the paper, or other than there; docs/studies/defaults.py compares them.
EVIDENCE_SCALE = 300.0  # evidence grows exponentially up to about this, then linearly
INITIAL_VACUITY = 0.5  # also of an image that shows nothing; without evidence there is no gradient
KL_WEIGHT = 0.1  # over the number of children; a larger one costs likelihood and speed of learning
KL_RAMP = 0.5  # evidence accumulates in the first half of the training
LEAF_WEIGHT = 1.0  # the squared risk alone learns slowly where a node has many children

# The terms of the paper's four variants, for H2EDLClassifier(tree, **VARIANTS["plain"]); with the
# paper's constants too it is H2EDLClassifier(tree, **PAPER, **VARIANTS["plain"]).
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"leaf_weight": 0.0},
    "leaf-path": {"leaf_weight": 0.1},
    "consistency": {"leaf_weight": 0.0, "consistency_weight": 0.1},
    "base-rate": {"leaf_weight": 0.1, "prior": "inverse_frequency"},
}
# The paper's form where the default differs, for any variant; λ = 1 is Sensoy's.
PAPER: dict[str, Any] = {"evidence_scale": 1.0, "kl_weight": 1.0, "kl_per_child": False}


@dataclass(eq=False, repr=False, kw_only=True)
class H2EDLClassifier(TreeClassifier):
    """Classify images into a taxonomy and say how far down the evidence reaches (H2EDL).

    Every branching node of the taxonomy has one small Dirichlet opinion, over one shared feature.
    The product of their expected probabilities is a coherent classifier at every level; the
    product of their beliefs is a hyper-opinion: a mass on every node that says "the belief came
    this far and no further". A label may name any node; an ancestor supervises the decisions above
    it and leaves those below alone.

    Parameters
    ----------
    taxonomy : Taxonomy, default=None
        The tree; None makes a flat one of the labels in `y`.
    backbone : str, nn.Module or None, default="resnet50"
        Any model of timm, also by "hf-hub:" or "local-dir:" and its place; or a module, see
        :class:`ImageBackbone`. None: X is a 2-D array of features.
    weights : "pretrained", "packaged", path or None, default="pretrained"
        timm's own weights (downloaded); those of the extra "packaged", for the backbone
        "tf_efficientnet_lite0"; a local ``.safetensors`` or ``.pth`` file; or a random start.
    finetune : {"full", "head"}, default="full"
        Whether the backbone learns too. "head" keeps it frozen and computes features once.
    evidence : {"softplus", "relu", "exp"}, default="softplus"
        How evidence grows with the logit.
    evidence_scale : float or "learn", default=300.0
        Factor s of the evidence, ``e = s * softplus(logit)``: evidence grows exponentially up to
        about s and linearly beyond. "learn" starts at 1 and trains it.
    initial_vacuity : float, default=0.5
        Vacuity u of every opinion before training, which sets the initial biases. A feature that
        tells nothing keeps about this vacuity. The gradient of a new head is ``1 - u`` times that
        of a softmax, so a value near 1 trains slowly.
    prior : Prior or {"uniform", "inverse_frequency"}, default=None
        Base rates and weight of the prior; None means "uniform", which is ``Prior()``, and
        "inverse_frequency" is ``Prior(power=1)``: rarer children have a higher base rate.
    risk : {"squared", "log", "digamma", "none"}, default="squared"
        The evidential risk of each decision.
    kl_weight : float, default=0.1
        Full weight λ of the KL regulariser, which penalises evidence for wrong children.
    kl_per_child : bool, default=True
        Whether λ is divided by the node's number of children, with which the KL grows.
    kl_ramp : float, default=0.5
        Fraction of the training over which that weight rises from 0.
    leaf_weight : float, default=1.0
        Weight β of ``-log P(label)``.
    consistency_weight : float, default=0.0
        Weight γ of the penalty for vacuity that rises down the true path.
    depth_weights : sequence of float, default=None
        Weight of the decisions of each depth, from the root; None means 1.
    familiarity : {"none", "density"}, default="none"
        "density" multiplies the evidence of a node by how far the feature looks like the training
        samples below it, from 1 to 0, so that vacuity rises where nothing known fits. Estimated
        after training; `fit` only, and for trees of fewer than 20,000 leaves.
    image_size : int or (height, width), default=None
        None takes the size the weights were trained for.
    on_bad_image : {"error", "skip"}, default="error"
        Whether an image that cannot be read stops the job, or is left out and counted in a
        warning.
    solver : {"auto", "lbfgs", "adamw"}, default="auto"
        How a head on fixed features is fitted: "auto" and "lbfgs" with scipy's L-BFGS, "adamw" in
        epochs like a fine-tuned network.
    l2 : float, default=0.01
        Penalty of a fit on d fixed features: ``l2 d / 2`` times the squared weights, beside the
        sum of the losses: a prior under which a logit has the variance ``1 / l2``. Features are
        centred and divided by one number, the root of their mean variance.
    tol, max_iter : float and int, default=1e-4 and 1000
        Largest gradient component, and number of iterations, at which that fit stops.
    max_epochs, batch_size : int, default=100 and 64
        Passes over the data, and samples of a step over all processes.
    learning_rate : float, default=1e-3
        Of the optimiser; a cosine takes it to 0.
    recipe : Recipe or {"fine_grained", "paper"}, default=None
        Optimiser, weight decay, warm-up, learning rate of the backbone, augmentation, selection of
        the epoch and the like; None means "fine_grained", which is ``Recipe()``.
    validation_fraction : float, default=0.1
        Fraction of the samples held out to choose the epoch that is kept; None keeps the last.
    class_weight : dict or "balanced", default=None
        Weights of labels.
    warm_start : bool, default=False
        Whether `fit` resumes from the weights of the last fit, with the KL weight in full. Changed
        parameters are honoured; those that belong to what was learnt are refused.
    hardware : Hardware, default=None
        Devices, strategy, precision, processes that decode images, folders of checkpoints and of
        cached features; None means ``Hardware()``: one device, the best there is, and no folder.
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
    annealing_ : float
        Fraction of the annealing done: 1 after `fit`, less after some calls of `partial_fit`.
    unsupervised_nodes_ : list
        Branching nodes that no training label passed through; their vacuity is 1.
    best_epoch_, best_score_ : int and float
        The epoch kept, and its score, where samples were held out.
    n_features_in_, feature_names_in_
        Of a 2-D X.

    See Also
    --------
    HyperOpinion : What `predict_hyper_opinion` returns.
    FlatCEClassifier : One softmax over the leaves, the baseline to beat.

    Notes
    -----
    Vacuity is the fraction of belief that the network did not commit at a node, ``W / S`` of its
    evidence. It is not a probability of
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

    evidence: str = "softplus"
    evidence_scale: float | str = EVIDENCE_SCALE
    initial_vacuity: float = INITIAL_VACUITY
    prior: Prior | str | None = None
    risk: str = "squared"
    kl_weight: float = KL_WEIGHT
    kl_per_child: bool = True
    kl_ramp: float = KL_RAMP
    leaf_weight: float = LEAF_WEIGHT
    consistency_weight: float = 0.0
    depth_weights: Sequence[float] | None = None
    familiarity: str = "none"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TreeClassifier._parameter_constraints,
        "evidence": [StrOptions(set(EVIDENCE_FUNCTIONS))],
        "evidence_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})],
        "initial_vacuity": [Interval(Real, 0, 1, closed="neither")],
        "prior": [Prior, StrOptions(set(PRIORS)), None],
        "risk": [StrOptions(set(RISKS))],
        "kl_weight": [Interval(Real, 0, None, closed="left")],
        "kl_per_child": ["boolean"],
        "kl_ramp": [Interval(Real, 0, 1, closed="both")],
        "leaf_weight": [Interval(Real, 0, None, closed="left")],
        "consistency_weight": [Interval(Real, 0, None, closed="left")],
        "depth_weights": ["array-like", None],
        "familiarity": [StrOptions({"none", "density"})],
    }

    def _make_head(
        self, taxonomy: Taxonomy, n_features: int, label_weight: npt.NDArray[np.float64]
    ) -> H2EDLHead:
        if self.depth_weights is not None and len(self.depth_weights) != taxonomy.n_levels:
            raise ValueError(
                f"depth_weights must hold {taxonomy.n_levels} weights, one for each depth at which "
                f"the taxonomy decides (from 0, the root), got {len(self.depth_weights)}."
            )
        given: list[Any] = [] if self.depth_weights is None else list(self.depth_weights)
        are_numbers = all(isinstance(weight, Real) for weight in given)
        if not are_numbers or not all(0 <= weight < np.inf for weight in given):
            raise ValueError(f"depth_weights must be finite numbers of at least 0, got {given!r}.")
        if self.familiarity == "density" and taxonomy.n_leaves >= LARGE_TREE:
            raise ValueError(
                f"familiarity='density' compares a feature with every class, and the taxonomy has "
                f"{taxonomy.n_leaves} leaves: it is for fewer than {LARGE_TREE}. Set "
                "familiarity='none'."
            )
        prior: Prior = resolve_settings("prior", self.prior)
        rarity = prior.rarity(label_weight[taxonomy.decision_children])
        of_node = np.add.reduceat(rarity, taxonomy.decision_offsets[:-1])
        return H2EDLHead(
            taxonomy,
            n_features,
            rarity / of_node[taxonomy.decision_nodes],
            prior.weights(np.diff(taxonomy.decision_offsets)),
            supervised_nodes(taxonomy, label_weight),
            risk=self.risk,
            leaf_weight=self.leaf_weight,
            consistency_weight=self.consistency_weight,
            depth_weights=self.depth_weights,
            familiarity=self.familiarity,
            **evidence_options(self),
        )

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train one more epoch on some samples; not with ``familiarity="density"``.

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
        if self.familiarity == "density":
            raise ValueError(
                "partial_fit cannot be used with familiarity='density', which is estimated from "
                "all training samples. Call fit with warm_start=True, or set familiarity='none'."
            )
        return super().partial_fit(X, y, classes, sample_weight)

    def _after_training(self, X: Any, labels: npt.NDArray[Any], sample_weight: Any) -> None:
        familiarity = self._head().familiarity
        if familiarity is not None:
            features, nodes, _ = self._training_features(X, labels, sample_weight)
            familiarity.fit(features, nodes)

    def _head(self) -> H2EDLHead:
        head = self.network_.head
        assert isinstance(head, H2EDLHead)
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
        evidence, readable = self._head_output(X, "evidence")
        evidence[~readable] = 0
        return self._opinion(evidence)

    @available_if(lambda self: self.familiarity == "density")
    def predict_familiarity(self, X: Any) -> npt.NDArray[Any]:
        """Return how similar each sample is to training samples below each branching node.

        Parameters
        ----------
        X : images or array-like
            As in :meth:`fit`. An image that cannot be read, with ``on_bad_image="skip"``, gets 0.

        Returns
        -------
        familiarity : ndarray of shape (n_samples, n_branching)
            From 1 to 0, the factors of the evidence; columns in the order of
            ``taxonomy_.branching``.
        """
        check_is_fitted(self, "network_")
        if self._head().familiarity is None:
            raise ValueError(
                "familiarity='density' was set after the fit, so no density was estimated. "
                "Call fit again."
            )
        familiarity, readable = self._head_output(X, _familiarity)
        familiarity[~readable] = 0
        return familiarity


def _familiarity(head: TreeHead, features: torch.Tensor) -> torch.Tensor:
    assert isinstance(head, H2EDLHead)
    assert head.familiarity is not None
    familiarity: torch.Tensor = head.familiarity(features)
    return familiarity


def evidence_options(estimator: Any) -> dict[str, Any]:
    """Return what every evidential head takes, from the parameters of a classifier.

    Parameters
    ----------
    estimator : classifier
        H2EDL or an evidential baseline.
    """
    learn = estimator.evidence_scale == "learn"
    return {
        "evidence": estimator.evidence,
        "evidence_scale": 1.0 if learn else estimator.evidence_scale,
        "learn_evidence_scale": learn,
        "initial_vacuity": estimator.initial_vacuity,
        "kl_weight": estimator.kl_weight,
        "kl_per_child": estimator.kl_per_child,
        "kl_ramp": estimator.kl_ramp,
    }
