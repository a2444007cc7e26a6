"""Decisions under uncertainty: wrappers around any probabilistic classifier on a taxonomy."""

from .conformal import ConformalTreeClassifier
from .costs import MinimumCostClassifier
from .hedging import HedgedClassifier
from .novelty import NoveltyDetector
from .subjects import SubjectPredictions, fuse_subjects, predict_subjects, subject_conflict

__all__ = [
    "ConformalTreeClassifier",
    "HedgedClassifier",
    "MinimumCostClassifier",
    "NoveltyDetector",
    "SubjectPredictions",
    "fuse_subjects",
    "predict_subjects",
    "subject_conflict",
]
