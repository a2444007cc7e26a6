"""Hierarchical evidential classification: how far down a taxonomy the evidence carries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> the module that defines it. Nothing is imported until it is asked for, so that
# `import skh2edl` and the command line start without loading torch.
_EXPORTS = {
    "CalibratedTreeClassifier": "calibration",
    "ConformalTreeClassifier": "decisions",
    "FlatCEClassifier": "baselines",
    "FlatEDLClassifier": "evidential_baselines",
    "H2EDLClassifier": "h2edl",
    "HENNClassifier": "henn",
    "HXEClassifier": "baselines",
    "HedgedClassifier": "decisions",
    "HierCEClassifier": "baselines",
    "HyperOpinion": "opinion",
    "Hardware": "recipe",
    "IEDLClassifier": "evidential_baselines",
    "ImageFeatureExtractor": "features",
    "MinimumCostClassifier": "decisions",
    "NoveltyDetector": "decisions",
    "REDLClassifier": "evidential_baselines",
    "Recipe": "recipe",
    "SoftLabelClassifier": "baselines",
    "Taxonomy": "taxonomy",
    "TreeEnsembleClassifier": "ensembles",
    "fuse_subjects": "decisions",
    "load_model": "persistence",
    "rank_for_annotation": "decisions",
}

__all__ = ["__version__", *_EXPORTS]

if TYPE_CHECKING:  # the same for type checkers and editors, which do not run __getattr__
    from .baselines import FlatCEClassifier as FlatCEClassifier
    from .baselines import HierCEClassifier as HierCEClassifier
    from .baselines import HXEClassifier as HXEClassifier
    from .baselines import SoftLabelClassifier as SoftLabelClassifier
    from .calibration import CalibratedTreeClassifier as CalibratedTreeClassifier
    from .decisions import ConformalTreeClassifier as ConformalTreeClassifier
    from .decisions import HedgedClassifier as HedgedClassifier
    from .decisions import MinimumCostClassifier as MinimumCostClassifier
    from .decisions import NoveltyDetector as NoveltyDetector
    from .decisions import fuse_subjects as fuse_subjects
    from .decisions import rank_for_annotation as rank_for_annotation
    from .ensembles import TreeEnsembleClassifier as TreeEnsembleClassifier
    from .evidential_baselines import FlatEDLClassifier as FlatEDLClassifier
    from .evidential_baselines import IEDLClassifier as IEDLClassifier
    from .evidential_baselines import REDLClassifier as REDLClassifier
    from .features import ImageFeatureExtractor as ImageFeatureExtractor
    from .h2edl import H2EDLClassifier as H2EDLClassifier
    from .henn import HENNClassifier as HENNClassifier
    from .opinion import HyperOpinion as HyperOpinion
    from .persistence import load_model as load_model
    from .recipe import Hardware as Hardware
    from .recipe import Recipe as Recipe
    from .taxonomy import Taxonomy as Taxonomy


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value  # the next access does not come through here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
