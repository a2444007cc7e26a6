"""The hyper-opinion: how far down a taxonomy the evidence reaches."""

from .hyper_opinion import HyperOpinion

__all__ = ["HyperOpinion"]
