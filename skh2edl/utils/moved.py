"""Old names of modules, which pickles of version 0.1.0 hold."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

_PACKAGE = __name__.split(".", maxsplit=1)[0]
_NEW_NAMES = {
    f"{_PACKAGE}.{old}": f"{_PACKAGE}.{new}"
    for old, new in {
        "backbones": "training.backbones",
        "baselines": "estimators.baselines",
        "calibration": "estimators.calibration",
        "ensembles": "estimators.ensembles",
        "evidence_functions": "heads.evidence",
        "evidential_baselines": "estimators.evidential_baselines",
        "features": "estimators.features",
        "flat_heads": "heads.evidential",
        "h2edl": "estimators.h2edl",
        "henn": "estimators.evidential_baselines",
        "network": "training.network",
        "opinion": "opinions.hyper_opinion",
        "opinion_head": "heads.h2edl",
        "recipe": "training.recipe",
        "segments": "heads.tree_ops",
        "softmax_heads": "heads.softmax",
    }.items()
}


def install() -> None:
    """Let old names be imported; each takes its attributes from the module of the new name."""
    for old, new in _NEW_NAMES.items():
        module = sys.modules.setdefault(old, ModuleType(old))
        module.__getattr__ = partial(_look_up, new)  # type: ignore[method-assign]


def _look_up(module: str, name: str) -> Any:
    if name.startswith("__"):  # asked by tools that walk through all modules
        raise AttributeError(name)
    return getattr(import_module(module), name)
