"""The functions from logits to evidence, and their inverses.

They are applied in :meth:`skh2edl.heads.base.EvidentialHead.to_evidence`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# exp(20) is 5e8, more evidence than any data gives; its square is finite in float32.
MAX_EXPONENT = 20.0


def _clamped_exp(logits: Tensor) -> Tensor:
    return logits.clamp(max=MAX_EXPONENT).exp()


def _inverse_softplus(evidence: Tensor) -> Tensor:
    # log(exp(e) - 1), in the form that does not overflow.
    return evidence + torch.log(-torch.expm1(-evidence))


EVIDENCE_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": F.softplus,
    "relu": F.relu,
    "exp": _clamped_exp,
}
# For the initial biases, which give a new head its initial evidence.
LOGIT_OF_EVIDENCE: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": _inverse_softplus,
    "relu": torch.clone,
    "exp": torch.log,
}
