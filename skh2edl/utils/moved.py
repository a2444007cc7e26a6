"""Old names of modules, which pickles of version 0.1.0 hold."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
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


class MovedModules(MetaPathFinder, Loader):
    """Find a module by its old name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an old name, None for all others."""
        return ModuleSpec(fullname, self) if fullname in _NEW_NAMES else None

    def exec_module(self, module: ModuleType) -> None:
        """Take every attribute from the module of the new name."""
        new = import_module(_NEW_NAMES[module.__name__])

        def look_up(name: str) -> Any:
            return getattr(new, name)

        module.__getattr__ = look_up  # type: ignore[method-assign]


def install() -> None:
    """Let old names be imported; what exists under a name goes first."""
    sys.meta_path.append(MovedModules())
