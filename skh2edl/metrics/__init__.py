"""Metrics of hierarchical predictions, from labels, probabilities or opinions and a taxonomy."""

from .calibration import ReliabilityCurve, level_adaptive_ece, level_ece, reliability_curve
from .curves import (
    OperatingCurve,
    RiskCoverageCurve,
    coverage_at_risk,
    hierarchical_aurc,
    hierarchical_risk_coverage_curve,
    operating_area,
    operating_curve,
    risk_coverage_area,
    risk_coverage_curve,
)
from .descent import oracle_descent, path_consistency
from .levels import (
    full_path_accuracy,
    level_accuracy,
    level_balanced_accuracy,
    level_brier,
    level_nll,
)
from .opinions import error_auroc, nonspecificity_auroc, vacuity_auroc
from .paths import (
    hierarchical_fscore,
    hierarchical_precision,
    hierarchical_recall,
    information_precision,
    information_recall,
)
from .report import hierarchical_report
from .severity import (
    first_error_depth,
    hierarchical_distance,
    hops,
    kept_ancestor,
    mistake_severity,
    top_k_hierarchical_distance,
)

__all__ = [
    "OperatingCurve",
    "ReliabilityCurve",
    "RiskCoverageCurve",
    "coverage_at_risk",
    "error_auroc",
    "first_error_depth",
    "full_path_accuracy",
    "hierarchical_aurc",
    "hierarchical_distance",
    "hierarchical_fscore",
    "hierarchical_precision",
    "hierarchical_recall",
    "hierarchical_report",
    "hierarchical_risk_coverage_curve",
    "hops",
    "information_precision",
    "information_recall",
    "kept_ancestor",
    "level_accuracy",
    "level_adaptive_ece",
    "level_balanced_accuracy",
    "level_brier",
    "level_ece",
    "level_nll",
    "mistake_severity",
    "nonspecificity_auroc",
    "operating_area",
    "operating_curve",
    "oracle_descent",
    "path_consistency",
    "reliability_curve",
    "risk_coverage_area",
    "risk_coverage_curve",
    "top_k_hierarchical_distance",
    "vacuity_auroc",
]
