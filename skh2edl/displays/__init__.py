"""Pictures of hierarchical answers in scikit-learn's style; matplotlib is loaded when one is drawn.

Every display is made by ``from_estimator`` or ``from_predictions`` (a history, which is no
prediction, by ``from_history``), keeps the numbers it shows as attributes, and draws them with
``plot(ax=None)``, after which it has ``ax_`` and ``figure_``.
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
