"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def names_in_stub(package: str) -> dict[str, str]:
    """Return the names that a package's ``__init__.pyi`` imports, each with its module.

    The stub is the one list of those names: type checkers and editors read it too. Lines with a
    star are for them alone.

    Parameters
    ----------
    package : str
        Name of a package that is being imported.
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    return {
        alias.name: f"{package}.{line.module}"
        for line in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
        if alias.name != "*"
    }


def importers(
    package: str, modules: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its names one by one.

    Parameters
    ----------
    package : str
        Its name.
    modules : dict
        Name -> the module that defines it.
    """
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        namespace[name] = value  # the next access does not come through here
        return value

    def names() -> list[str]:
        return sorted({*namespace, *modules})

    return get, names
