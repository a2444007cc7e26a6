"""AdamW for a network whose head is too large to be updated whole in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, SparseAdam


class SparseAdamW(Optimizer):
    """One optimiser for dense gradients and one for a weight matrix with a sparse gradient.

    Weights without a gradient keep their moments and do not decay until a sample passes them
    again.

    Parameters
    ----------
    dense : Optimizer
        For all parameters but `weight`.
    weight : Parameter
        Its first axis is that of the sparse gradient.
    lr, weight_decay : float
        For `weight`.

    Examples
    --------
    >>> import torch
    >>> table = torch.nn.Embedding(1000, 2, sparse=True)
    >>> bias = torch.nn.Parameter(torch.zeros(1))
    >>> optimizer = SparseAdamW(torch.optim.AdamW([bias]), table.weight, lr=0.1, weight_decay=0)
    >>> before = table.weight.detach().clone()
    >>> table(torch.tensor([3])).sum().backward()
    >>> optimizer.step()
    >>> (table.weight != before).any(1).nonzero().tolist()
    [[3]]
    """

    def __init__(
        self, dense: Optimizer, weight: nn.Parameter, *, lr: float, weight_decay: float
    ) -> None:
        self.dense = dense
        self.sparse = SparseAdam([{"params": [weight], "lr": lr, "weight_decay": weight_decay}])
        super().__init__([*dense.param_groups, *self.sparse.param_groups], {})
        # The very same groups, so that a schedule that changes them here changes them there.
        self.param_groups = [*dense.param_groups, *self.sparse.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Move all parameters that have a gradient."""
        loss = None if closure is None else closure()
        for group in self.sparse.param_groups:
            for weight in group["params"]:
                if weight.grad is not None and not weight.grad.is_sparse:
                    # Where most weights are used anyway, one dense product is cheaper.
                    weight.grad = weight.grad.to_sparse(1)
                if weight.grad is not None and group["weight_decay"]:
                    weight.grad = weight.grad.coalesce()
                    moved = weight.grad.indices()[0]
                    kept = 1 - group["lr"] * group["weight_decay"]
                    weight.index_copy_(0, moved, weight.index_select(0, moved) * kept)
        self.dense.step()
        self.sparse.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both."""
        # "rows" is the name in checkpoints.
        return {"dense": self.dense.state_dict(), "rows": self.sparse.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put the state of both back."""
        self.dense.load_state_dict(state_dict["dense"])
        self.sparse.load_state_dict(state_dict["rows"])
        self.param_groups = [*self.dense.param_groups, *self.sparse.param_groups]


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> None:
    """Clip the joint norm of dense and sparse gradients.

    Parameters
    ----------
    parameters : iterable of Tensor
        The parameters.
    max_norm : float
        The norm at most.
    """
    values = []
    for parameter in parameters:
        if parameter.grad is not None:
            if parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
    if values:
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(v) for v in values]))
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for value in values:
            value.mul_(scale.to(value.device))
