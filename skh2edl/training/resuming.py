"""Resume an earlier fit: what may have changed since, and what is copied."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from .network import Network
from .recipe import SETTINGS, resolve_settings

# They belong to what was learnt: a fit that resumes keeps them.
_FIXED_ON_RESUME = (
    "backbone",
    "weights",
    "image_size",
    "evidence",
    "prior",
    "leaf_prior",
    "relaxation",
    "group_level",
    "familiarity",
)


def fixed_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters that belong to what was learnt: `set_params` may change them later.

    Parameters
    ----------
    estimator : classifier
        Fitted.
    """
    return {
        # `set_params` changes the prior in place.
        name: copy.copy(getattr(estimator, name)) if name == "prior" else getattr(estimator, name)
        for name in _FIXED_ON_RESUME
        if hasattr(estimator, name)
    }


def check_unchanged(estimator: Any) -> None:
    """Refuse parameters that changed since the fit that this one resumes.

    Parameters
    ----------
    estimator : classifier
        Fitted before.
    """
    before = {
        name: (_resolved(name, value), _resolved(name, getattr(estimator, name)))
        for name, value in getattr(estimator, "_fitted_with", {}).items()
    }
    changed = {name: old for name, (old, new) in before.items() if old != new}
    if changed:
        raise ValueError(
            f"{', '.join(changed)} changed since the last fit, and training cannot resume with "
            f"other values: they were {list(changed.values())}. Set them back, or "
            "set warm_start=False and call fit."
        )


def _resolved(name: str, value: Any) -> Any:
    return resolve_settings(name, value) if name in SETTINGS else value


def resume_head(network: Network, previous: Network, label_weight: npt.NDArray[np.float64]) -> None:
    """Copy what an earlier fit learnt; losses and schedules are those of today's parameters.

    Parameters
    ----------
    network : Network
        New, with a head of today's parameters.
    previous : Network
        That of the earlier fit.
    label_weight : ndarray of shape (n_nodes,)
        Total weight of the new labels at or below each node.
    """
    network.to(previous.head.linear.weight.dtype)
    network.standardize(previous.feature_mean, previous.feature_scale)
    # A factor of the evidence that is not learnt is a parameter of the classifier.
    given = {name for name, item in network.head.named_parameters() if not item.requires_grad}
    state = previous.head.state_dict()
    network.head.load_state_dict(
        {name: value for name, value in state.items() if name not in given}, strict=False
    )
    network.head.mark_supervised(label_weight)
