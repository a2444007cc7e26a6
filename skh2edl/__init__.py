"""Hierarchical evidential classification: how far down a taxonomy the evidence carries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .utils import moved

__version__ = "0.1.0"

# Public name -> the module that defines it. Nothing is imported until it is asked for, so that
# `import skh2edl` and the command line start without loading torch.
_EXPORTS = {
    "CalibratedTreeClassifier": "estimators.calibration",
    "CandidateClassifier": "estimators.candidates",
    "ConformalTreeClassifier": "decisions",
    "DAEDLClassifier": "estimators.dirichlet_baselines",
    "DecodingClassifier": "estimators.decoding",
    "EpochLogger": "estimators.live_logging",
    "FEDLClassifier": "estimators.dirichlet_baselines",
    "FlatCEClassifier": "estimators.baselines",
    "FlatEDLClassifier": "estimators.evidential_baselines",
    "H2EDLClassifier": "estimators.h2edl",
    "HENNClassifier": "estimators.evidential_baselines",
    "HXEClassifier": "estimators.baselines",
    "HedgedClassifier": "decisions",
    "HierCEClassifier": "estimators.baselines",
    "HyperOpinion": "opinions.hyper_opinion",
    "Hardware": "training.recipe",
    "IEDLClassifier": "estimators.evidential_baselines",
    "ImageBackbone": "training.adapters",
    "ImageFeatureExtractor": "estimators.features",
    "MinimumCostClassifier": "decisions",
    "NoveltyDetector": "decisions",
    "OpinionClassifier": "estimators.opinion_classifier",
    "Prior": "heads.prior",
    "REDLClassifier": "estimators.evidential_baselines",
    "ReEDLClassifier": "estimators.evidential_baselines",
    "Recipe": "training.recipe",
    "ScoreTable": "estimators.opinion_classifier",
    "SoftLabelClassifier": "estimators.baselines",
    "Taxonomy": "taxonomy.taxonomy",
    "TreeEnsembleClassifier": "estimators.ensembles",
    "TreeView": "estimators.views",
    "cross_val_predict": "estimators.cross_validation",
    "from_pretrained": "estimators.hub",
    "fuse_subjects": "decisions",
    "load_model": "estimators.model_files",
    "predict_subjects": "decisions",
    "push_to_hub": "estimators.hub",
    "subject_conflict": "decisions",
}

__all__ = ["__version__", *_EXPORTS]

if TYPE_CHECKING:  # the same for type checkers and editors, which do not run __getattr__
    from .decisions import ConformalTreeClassifier as ConformalTreeClassifier
    from .decisions import HedgedClassifier as HedgedClassifier
    from .decisions import MinimumCostClassifier as MinimumCostClassifier
    from .decisions import NoveltyDetector as NoveltyDetector
    from .decisions import fuse_subjects as fuse_subjects
    from .decisions import predict_subjects as predict_subjects
    from .decisions import subject_conflict as subject_conflict
    from .estimators.baselines import FlatCEClassifier as FlatCEClassifier
    from .estimators.baselines import HierCEClassifier as HierCEClassifier
    from .estimators.baselines import HXEClassifier as HXEClassifier
    from .estimators.baselines import SoftLabelClassifier as SoftLabelClassifier
    from .estimators.calibration import CalibratedTreeClassifier as CalibratedTreeClassifier
    from .estimators.candidates import CandidateClassifier as CandidateClassifier
    from .estimators.cross_validation import cross_val_predict as cross_val_predict
    from .estimators.decoding import DecodingClassifier as DecodingClassifier
    from .estimators.dirichlet_baselines import DAEDLClassifier as DAEDLClassifier
    from .estimators.dirichlet_baselines import FEDLClassifier as FEDLClassifier
    from .estimators.ensembles import TreeEnsembleClassifier as TreeEnsembleClassifier
    from .estimators.evidential_baselines import FlatEDLClassifier as FlatEDLClassifier
    from .estimators.evidential_baselines import HENNClassifier as HENNClassifier
    from .estimators.evidential_baselines import IEDLClassifier as IEDLClassifier
    from .estimators.evidential_baselines import REDLClassifier as REDLClassifier
    from .estimators.evidential_baselines import ReEDLClassifier as ReEDLClassifier
    from .estimators.features import ImageFeatureExtractor as ImageFeatureExtractor
    from .estimators.h2edl import H2EDLClassifier as H2EDLClassifier
    from .estimators.hub import from_pretrained as from_pretrained
    from .estimators.hub import push_to_hub as push_to_hub
    from .estimators.live_logging import EpochLogger as EpochLogger
    from .estimators.model_files import load_model as load_model
    from .estimators.opinion_classifier import OpinionClassifier as OpinionClassifier
    from .estimators.opinion_classifier import ScoreTable as ScoreTable
    from .estimators.views import TreeView as TreeView
    from .heads.prior import Prior as Prior
    from .opinions.hyper_opinion import HyperOpinion as HyperOpinion
    from .taxonomy.taxonomy import Taxonomy as Taxonomy
    from .training.adapters import ImageBackbone as ImageBackbone
    from .training.recipe import Hardware as Hardware
    from .training.recipe import Recipe as Recipe


moved.install()


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value  # the next access does not come through here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
