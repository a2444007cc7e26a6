"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach_stub(
    package: str, **more: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package that a stub describes.

    The stub ``__init__.pyi`` is the one list of the package's names: type checkers and editors
    read it, and so does this function. Lines with a star are for type checkers alone.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    **more : str
        Further names, each with its module as the package would import it.
    """
    namespace = vars(sys.modules[package])
    # Not read_text: the package may be in an archive.
    stub = namespace["__loader__"].get_data(str(Path(namespace["__file__"]).with_suffix(".pyi")))
    modules = more | {
        alias.name: f".{line.module}"
        for line in ast.parse(stub).body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
        if alias.name != "*"
    }

    def get(name: str) -> Any:
        if f".{name}" in modules.values():  # one of the modules itself
            return import_module(f".{name}", package)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name], package), name)
        namespace[name] = value  # the next access does not come through here
        return value

    def names() -> list[str]:
        return sorted({*namespace, *modules})

    return get, names, [*modules]
