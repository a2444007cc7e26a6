"""Check that what stands for a hyper-opinion is one."""

from __future__ import annotations

from typing import Any

from ..estimators.wrapping import opinion_method as opinion_method
from ..estimators.wrapping import read_opinion
from ..opinions.hyper_opinion import HyperOpinion

opinion_of = read_opinion


def check_opinion(opinion: Any) -> HyperOpinion:
    """Return the hyper-opinion, or raise a TypeError that says where to get one."""
    if not isinstance(opinion, HyperOpinion):
        raise TypeError(
            f"opinion must be a HyperOpinion, got {type(opinion).__name__}. Pass what "
            "predict_hyper_opinion returns."
        )
    return opinion
