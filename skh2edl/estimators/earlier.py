"""Parameters that earlier releases kept elsewhere: files and pickles of models hold them."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from ..training.recipe import resolve_settings

# Parameter of a classifier in an earlier release -> the group it is in now, and its name there.
MOVED = {
    "base_rate_power": ("prior", "power"),
    "base_rate_smoothing": ("prior", "smoothing"),
    "prior_weight": ("prior", "weight"),
    "prior_scale": ("prior", "scale"),
    "n_workers": ("hardware", "n_workers"),
    "checkpoint_dir": ("hardware", "checkpoint_dir"),
    "memory": ("hardware", "memory"),
}


def regroup(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of an earlier release with each in the group it is in now.

    Parameters
    ----------
    parameters : dict
        By name, or the state of an estimator.

    Examples
    --------
    >>> regroup({"l2": 0.1, "prior_weight": 2.0, "n_workers": None})
    {'l2': 0.1, 'prior': Prior(weight=2.0), 'hardware': Hardware()}
    """
    today = {name: value for name, value in parameters.items() if name not in MOVED}
    for old, (group, name) in MOVED.items():
        if old in parameters:
            own = clone(resolve_settings(group, today.get(group)))
            today[group] = own.set_params(**{name: parameters[old]})
    return today
