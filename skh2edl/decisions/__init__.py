"""Decisions under doubt: meta-estimators around any probabilistic classifier into a taxonomy."""

from .hedging import HedgedClassifier

__all__ = ["HedgedClassifier"]
