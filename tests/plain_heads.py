"""Heads for tests: what a test does not name has the plainest value."""

import numpy as np

from skh2edl.heads.base import EvidentialHead, FlatTargets
from skh2edl.heads.daedl import DAEDLHead
from skh2edl.heads.evidential import FlatEDLHead, HENNHead, IEDLHead, REDLHead, group_nodes_at
from skh2edl.heads.h2edl import H2EDLHead
from skh2edl.heads.softmax import HXEHead, SoftLabelHead, SoftmaxHead, SoftmaxTreeHead

EVIDENTIAL = {
    "evidence": "softplus",
    "evidence_scale": 1.0,
    "learn_evidence_scale": False,
    "initial_vacuity": 0.5,
    "kl_weight": 1.0,
    "kl_per_child": True,
    "kl_ramp": 0.5,
}
# What only some heads take.
OWN = {
    H2EDLHead: {
        "risk": "squared",
        "leaf_weight": 0.0,
        "consistency_weight": 0.0,
        "depth_weights": None,
        "familiarity": "none",
    },
    FlatEDLHead: {"risk": "squared", "leaf_weight": 0.0},
    IEDLHead: {"fisher_weight": None},
    REDLHead: {"relaxation": 1.0, "leaf_prior": 0.1},
    SoftmaxHead: {"label_smoothing": 0.0},
    SoftmaxTreeHead: {"label_smoothing": 0.0},
    HXEHead: {"depth_decay": 0.1},
    SoftLabelHead: {"sharpness": 10.0},
    DAEDLHead: {"kl_weight": 0.05, "shrinkage": 0.1},
}


def make_head(kind, tree, n_features, *args, **options):
    """Make a head; groups are those of the first level with two, a prior is 1 for every leaf."""
    plain = dict(EVIDENTIAL) if issubclass(kind, EvidentialHead) else {}
    if kind is HENNHead:
        plain["group_nodes"] = group_nodes_at(tree, None)
    elif issubclass(kind, FlatTargets):
        plain["partial_labels"] = "marginal"
    if kind is FlatEDLHead:
        plain["prior"] = np.ones(tree.n_leaves)
    return kind(tree, n_features, *args, **{**plain, **OWN.get(kind, {}), **options})
