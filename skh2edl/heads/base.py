"""Base classes of the heads: from a feature to a loss and to leaf log-probabilities.

Heads compute in float32 whatever the backbone's precision (in float64 if given that), because in
half precision the variance of an opinion vanishes. The defaults of a method's parameters are those
of its classifier: a head has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..taxonomy.taxonomy import Taxonomy
from . import losses
from .evidence import EVIDENCE_FUNCTIONS, LOGIT_OF_EVIDENCE
from .large.blocks import Block, logits_of_block
from .large.paths import logits_on_paths
from .tree_ops import Paths, TreeSegments, on_device, without_autocast

# Number of leaves from which a training step evaluates only the weights on the batch's paths and a
# prediction searches: a dense layer over all decisions would take most of the time and memory.
LARGE_TREE = 20_000
# Largest prior concentration, and the inverse of the least: sums of them are finite in float32.
_MAX_PRIOR = 1e30


@dataclass(frozen=True)
class LeafRanges:
    """Targets of a flat head: each label as the range of its leaves.

    Attributes
    ----------
    start, stop : Tensor of shape (n,)
        The leaves ``start:stop`` of each label.
    partial : Tensor of shape (n_partial,)
        Positions in the batch of the labels that have several leaves.
    decision : Tensor of shape (n_partial,)
        Last decision on the path to those labels, -1 for the root.
    """

    start: Tensor
    stop: Tensor
    partial: Tensor
    decision: Tensor

    @classmethod
    def of(cls, taxonomy: Taxonomy, nodes: npt.ArrayLike) -> LeafRanges:
        """Turn the nodes of labels into ranges of leaves."""
        nodes = np.asarray(nodes, dtype=np.int64)
        start, stop = taxonomy.leaf_start[nodes], taxonomy.leaf_stop[nodes]
        partial = np.flatnonzero(stop - start > 1)
        decision = taxonomy.last_decision[nodes[partial]]
        return cls(*map(torch.from_numpy, (start, stop, partial, decision)))

    def to(self, device: torch.device) -> LeafRanges:
        """Return the same on another device, copied without waiting."""
        return on_device(self, device)

    def inside(self, n_leaves: int) -> Tensor:
        """Mark the leaves of each label: (n, n_leaves)."""
        leaf = torch.arange(n_leaves, device=self.start.device)
        return (leaf >= self.start[:, None]) & (leaf < self.stop[:, None])


class Targets(Protocol):
    """Labels in the form a head's loss needs: `Paths`, `LeafRanges` or its own."""

    def to(self, device: torch.device) -> Targets:
        """Return the same on another device."""


class TreeHead(nn.Module):
    """Base of all heads: a linear layer over the feature, a loss, leaf log-probabilities.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    n_outputs : int
        Outputs of the linear layer.

    Attributes
    ----------
    is_separable : bool
        Whether each node can be evaluated without the others, as `search_leaves` does.
    sparse_gradient : bool
        Whether :meth:`path_logits` gives the weight a sparse gradient, which needs an optimiser
        for sparse gradients.
    """

    is_separable = False

    def __init__(self, taxonomy: Taxonomy, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.sparse_gradient = False
        self.segments = TreeSegments(taxonomy)
        # torch draws initial weights, which are overwritten; the caller's generator is restored.
        with torch.random.fork_rng(devices=[]):
            self.linear = nn.Linear(n_features, n_outputs)
        # A head that starts at zero prefers no class and needs no random numbers.
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    @property
    def is_large(self) -> bool:
        """Whether only the weights on the batch's paths are evaluated."""
        return self.is_separable and self.segments.taxonomy.n_leaves >= LARGE_TREE

    def logits(self, features: Tensor) -> Tensor:
        """Return all outputs of the linear layer, in the precision of the head: (n, n_outputs)."""
        with without_autocast(features):
            return self.linear(features.to(self.linear.weight.dtype))

    def path_logits(self, features: Tensor, paths: Paths) -> Tensor:
        """Return the logits of the decisions on the paths to the labels: (n_entries,).

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            Output of the backbone.
        paths : Paths
            The paths.
        """
        if not self.is_large:
            return paths.gather(self.logits(features))
        weight, bias = self.linear.weight, self.linear.bias
        with without_autocast(features):
            own = features.to(weight.dtype)
            return logits_on_paths(own, weight, bias, paths, self.sparse_gradient)

    def block_logits(self, features: Tensor, block: Block, wanted: Tensor | None = None) -> Tensor:
        """Return the logits of some decisions for all samples: (n_block, n).

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            Output of the backbone.
        block : Block
            The decisions.
        wanted : Tensor of bool of shape (n_nodes, n), default=None
            The nodes that matter for each sample, if these are few; the logits of the others are
            arbitrary but finite. None means all.
        """
        weight, bias = self.linear.weight, self.linear.bias
        with without_autocast(features):
            return logits_of_block(features.to(weight.dtype), weight, bias, block, wanted)

    def prepare(self, nodes: npt.ArrayLike) -> Targets:
        """Turn the nodes of labels into what :meth:`loss` takes, on the CPU.

        Parameters
        ----------
        nodes : array-like of int of shape (n,)
            Target nodes: leaves, ancestors, or the root, which contributes nothing.
        """
        return self.segments.paths(nodes)

    def loss(self, features: Tensor, targets: Any, progress: float) -> Tensor:
        """Return the loss of each sample.

        Parameters
        ----------
        features : Tensor of shape (n, n_features)
            Output of the backbone.
        targets : Targets
            What :meth:`prepare` made of the labels' nodes.
        progress : float
            Fraction of the training that is done, for annealed weights.
        """
        raise NotImplementedError

    def leaf_log_probability(self, features: Tensor) -> Tensor:
        """Return log P of each leaf in tree order: (n, n_leaves)."""
        raise NotImplementedError

    def rescale(self, factor: float) -> None:
        """Multiply the logits by a factor, the inverse of a temperature.

        Parameters
        ----------
        factor : float
            Above 0; below 1 makes the head less confident.
        """
        with torch.no_grad():
            self.linear.weight.mul_(factor)
            self.linear.bias.mul_(factor)

    def mark_supervised(self, label_weight: np.ndarray) -> None:
        """Record the labels of further training; heads without a supervision mask ignore them.

        Parameters
        ----------
        label_weight : ndarray of shape (n_nodes,)
            Total weight of the labels at or below each node.
        """


class FlatTargets:
    """Mixin of the heads to which a label is a range of leaves."""

    segments: TreeSegments

    def prepare(self, nodes: npt.ArrayLike) -> LeafRanges:
        """Turn the nodes of labels into ranges of leaves."""
        return LeafRanges.of(self.segments.taxonomy, nodes)


class EvidentialHead(TreeHead):
    """Base of the evidential heads: logits become evidence, and a KL weight is annealed.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    n_features : int
        Length of the feature.
    prior : ndarray of shape (n_outputs,)
        Prior concentration W a of each output.
    evidence : {"softplus", "relu", "exp"}
        How evidence grows with the logit.
    evidence_scale : float
        Factor s of the evidence.
    learn_evidence_scale : bool
        Whether that factor is trained.
    initial_vacuity : float
        Vacuity of every opinion before training; it sets the initial bias.
    kl_weight : float
        Full weight of the KL regulariser.
    kl_per_child : bool
        Whether that weight is divided by the number of children of the node.
    kl_ramp : float
        Fraction of the training over which that weight rises from 0.
    """

    def __init__(
        self,
        taxonomy: Taxonomy,
        n_features: int,
        prior: npt.ArrayLike,
        *,
        evidence: str,
        evidence_scale: float,
        learn_evidence_scale: bool,
        initial_vacuity: float,
        kl_weight: float,
        kl_per_child: bool,
        kl_ramp: float,
    ) -> None:
        prior = np.asarray(prior)
        wrong = prior[~((prior == 0) | (prior >= 1 / _MAX_PRIOR) & (prior <= _MAX_PRIOR))]
        if wrong.size:
            raise ValueError(
                f"The prior gives a child the concentration {wrong[0]:.3g}, and a head, which "
                f"computes in single precision, takes {1 / _MAX_PRIOR:g} to {_MAX_PRIOR:g}. Choose "
                "a weight, a smoothing or a leaf_prior nearer to 1."
            )
        initial = torch.tensor(prior) * (1 / initial_vacuity - 1)
        super().__init__(taxonomy, n_features, initial.numel())
        with torch.no_grad():
            self.linear.bias.copy_(LOGIT_OF_EVIDENCE[evidence](initial / evidence_scale))
        self.log_scale = nn.Parameter(
            torch.tensor(math.log(evidence_scale)), requires_grad=learn_evidence_scale
        )
        self.evidence_function = EVIDENCE_FUNCTIONS[evidence]
        self.kl_weight = kl_weight
        self.kl_per_child = kl_per_child
        self.kl_ramp = kl_ramp

    def to_evidence(self, logits: Tensor) -> Tensor:
        """Turn logits into evidence, ``s * f(logits)``; f is softplus unless `evidence` says so."""
        return self.evidence_function(logits) * self.log_scale.exp()

    def rescale(self, factor: float) -> None:
        """Multiply the evidence by a factor."""
        with torch.no_grad():
            self.log_scale.add_(math.log(factor))

    def kl_weight_at(self, progress: float) -> float:
        """Return the weight of the KL regulariser at some fraction of the training."""
        return losses.annealed(self.kl_weight, progress, self.kl_ramp)
