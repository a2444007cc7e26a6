"""Plots of hierarchical predictions in scikit-learn's style; matplotlib is imported when needed.

Make a display with ``from_estimator`` or ``from_predictions`` (a training history with
``from_history``). It keeps the numbers it shows as attributes and draws them with
``plot(ax=None)``, which sets ``ax_`` and ``figure_``.
"""

from .depth_profile import DepthProfileDisplay
from .history import TrainingHistoryDisplay
from .lca_confusion import LCAConfusionDisplay
from .opinion_tree import OpinionTreeDisplay
from .reliability import ReliabilityDisplay
from .tradeoffs import OperatingCurveDisplay, RiskCoverageDisplay

__all__ = [
    "DepthProfileDisplay",
    "LCAConfusionDisplay",
    "OperatingCurveDisplay",
    "OpinionTreeDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "TrainingHistoryDisplay",
]
