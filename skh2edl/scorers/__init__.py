"""The metrics as scikit-learn scorers, for cross-validation and model selection."""

from .level_scorers import (
    HierarchicalScorers,
    TreeScorer,
    hierarchical_scorers,
    make_level_scorer,
    make_tree_scorer,
)

__all__ = [
    "HierarchicalScorers",
    "TreeScorer",
    "hierarchical_scorers",
    "make_level_scorer",
    "make_tree_scorer",
]
