"""A report on a classifier: what to trust, what is confused, what to do next."""

from .evaluation import EvaluationReport, write_report
from .hedging import needed_thresholds
from .images import content_hashes

__all__ = ["EvaluationReport", "content_hashes", "needed_thresholds", "write_report"]
