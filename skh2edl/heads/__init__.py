"""Heads and losses: each method is a small module from a feature to a loss.

`h2edl` is the method of the paper, `losses` its objective, `evidence` its functions from logits to
evidence. `softmax` and `evidential` hold the baselines; docs/contributing.md says how to add one.
"""

# Where pickles of version 0.1.0 find them.
from .softmax import SoftmaxHead, SoftmaxTreeHead

__all__ = ["SoftmaxHead", "SoftmaxTreeHead"]
