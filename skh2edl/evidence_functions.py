"""How evidence grows with the read-out, and how steeply."""

from __future__ import annotations

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


def _softplus_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    return F.softplus(logits), logits.sigmoid()


def _softplus_squared_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    root = F.softplus(logits)
    return root.square(), logits.sigmoid().mul_(root).mul_(2)


def _exp_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    # The slope goes on where evidence ends: a fit comes back from there, too.
    slope = logits.clamp(max=_MAX_EXPONENT).exp_()
    return slope.addcmul(slope, (logits - _MAX_EXPONENT).clamp_(0.0, _MAX_EXCESS)), slope


EVIDENCE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": _softplus,
    "softplus_squared": _softplus_squared,
    "exp": _exp,
}
# The same with their derivatives.
EVIDENCE_AND_SLOPES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "softplus": _softplus_and_slope,
    "softplus_squared": _softplus_squared_and_slope,
    "exp": _exp_and_slope,
}


def overwrite_with_evidence(logits: Tensor, name: str) -> Tensor:
    """Return what the function of that name returns, faster, from logits that nobody needs again.

    It waits for the device, so it is not for a training step.
    """
    if name == "exp" and bool(logits.amax() <= _MAX_EXPONENT):
        return logits.exp_()
    return EVIDENCE_FUNCTIONS[name](logits)
