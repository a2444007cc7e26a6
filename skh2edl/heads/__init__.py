"""Heads and losses: each method is a small module from a feature to a loss."""

from .softmax import SoftmaxHead, SoftmaxTreeHead

__all__ = ["SoftmaxHead", "SoftmaxTreeHead"]
