"""Heads for tests: what a test does not name has the plainest value."""

import numpy as np

from skh2edl.heads.daedl import DAEDLHead
from skh2edl.heads.evidential import FlatEDLHead, HENNHead, IEDLHead, REDLHead, group_nodes_at
from skh2edl.heads.fedl import FEDLHead
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
FLAT = {"partial_labels": "marginal"}
OPTIONS = {
    H2EDLHead: {
        **EVIDENTIAL,
        "risk": "squared",
        "leaf_weight": 0.0,
        "consistency_weight": 0.0,
        "depth_weights": None,
        "familiarity": "none",
    },
    FlatEDLHead: {**EVIDENTIAL, **FLAT, "risk": "squared", "leaf_weight": 0.0},
    IEDLHead: {**EVIDENTIAL, **FLAT, "fisher_weight": None},
    REDLHead: {**EVIDENTIAL, **FLAT, "relaxation": 1.0, "leaf_prior": 0.1},
    HENNHead: EVIDENTIAL,
    SoftmaxHead: FLAT,
    SoftmaxTreeHead: {},
    HXEHead: {**FLAT, "depth_decay": 0.1},
    SoftLabelHead: {**FLAT, "sharpness": 10.0},
    DAEDLHead: {**FLAT, "kl_weight": 0.05, "shrinkage": 0.1},
    FEDLHead: FLAT,
}


def make_head(kind, tree, n_features, *args, **options):
    """Make a head; groups are those of the first level with two, a prior is 1 for every leaf."""
    if kind is HENNHead:
        options.setdefault("group_nodes", group_nodes_at(tree, None))
    if kind is FlatEDLHead:
        options.setdefault("prior", np.ones(tree.n_leaves))
    return kind(tree, n_features, *args, **{**OPTIONS[kind], **options})
