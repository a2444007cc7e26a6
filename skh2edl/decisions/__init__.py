"""Decisions under uncertainty: wrappers around any probabilistic classifier on a taxonomy."""

from .annotation import AnnotationPlan, rank_for_annotation
from .conformal import ConformalTreeClassifier
from .costs import MinimumCostClassifier
from .hedging import HedgedClassifier
from .novelty import NoveltyDetector
from .subjects import fuse_subjects

__all__ = [
    "AnnotationPlan",
    "ConformalTreeClassifier",
    "HedgedClassifier",
    "MinimumCostClassifier",
    "NoveltyDetector",
    "fuse_subjects",
    "rank_for_annotation",
]
