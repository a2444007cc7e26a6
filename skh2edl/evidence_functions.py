"""How evidence grows with the read-out, and how steeply."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

# exp(20) is 5e8: more evidence than any data gives. Beyond it evidence goes on along its tangent,
# so that a step that went too far finds its way back, and ends where its square is still finite.
_MAX_EXPONENT = 20.0
_MAX_EXCESS = 1e6


def _softplus(logits: Tensor) -> Tensor:
    return F.softplus(logits)


def _softplus_squared(logits: Tensor) -> Tensor:
    return F.softplus(logits).square()


def _exp(logits: Tensor) -> Tensor:
    evidence = logits.clamp(max=_MAX_EXPONENT).exp()
    return evidence.addcmul(evidence, (logits - _MAX_EXPONENT).clamp(0.0, _MAX_EXCESS))


def _slope_of_softplus(logits: Tensor, evidence: Tensor) -> Tensor:
    return logits.sigmoid()


def _slope_of_softplus_squared(logits: Tensor, evidence: Tensor) -> Tensor:
    return 2 * F.softplus(logits) * logits.sigmoid()


def _slope_of_exp(logits: Tensor, evidence: Tensor) -> Tensor:
    # Also where evidence ends: a fit comes back from there, too.
    return evidence.clamp(max=math.exp(_MAX_EXPONENT))


EVIDENCE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": _softplus,
    "softplus_squared": _softplus_squared,
    "exp": _exp,
}
# Their derivatives, from the logits and the evidence.
EVIDENCE_SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softplus": _slope_of_softplus,
    "softplus_squared": _slope_of_softplus_squared,
    "exp": _slope_of_exp,
}


def overwrite_with_evidence(logits: Tensor, name: str) -> Tensor:
    """Return what the function of that name returns, faster, from logits that nobody needs again.

    It waits for the device, so it is not for a training step.
    """
    if name == "exp" and bool(logits.amax() <= _MAX_EXPONENT):
        return logits.exp_()
    return EVIDENCE_FUNCTIONS[name](logits)
