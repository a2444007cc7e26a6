"""How evidence grows with the read-out, and how steeply."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

# exp(20) is 5e8: more evidence than any data gives, and its square is finite in float32.
_MAX_EXPONENT = 20.0


def _softplus(logits: Tensor) -> Tensor:
    return F.softplus(logits)


def _softplus_squared(logits: Tensor) -> Tensor:
    return F.softplus(logits).square()


def _clamped_exp(logits: Tensor) -> Tensor:
    return logits.clamp(max=_MAX_EXPONENT).exp()


def _slope_of_softplus(logits: Tensor, evidence: Tensor) -> Tensor:
    return logits.sigmoid()


def _slope_of_softplus_squared(logits: Tensor, evidence: Tensor) -> Tensor:
    return 2 * F.softplus(logits) * logits.sigmoid()


def _slope_of_clamped_exp(logits: Tensor, evidence: Tensor) -> Tensor:
    return evidence.masked_fill(logits > _MAX_EXPONENT, 0.0)


EVIDENCE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": _softplus,
    "softplus_squared": _softplus_squared,
    "exp": _clamped_exp,
}
# Their derivatives, from the logits and the evidence.
EVIDENCE_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softplus": _slope_of_softplus,
    "softplus_squared": _slope_of_softplus_squared,
    "exp": _slope_of_clamped_exp,
}
