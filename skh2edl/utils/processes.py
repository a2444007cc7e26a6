"""New processes that import the script again, and whether the script bears it."""

from __future__ import annotations

import ast
import multiprocessing
import sys
import warnings
from functools import cache
from pathlib import Path

_WHY = (
    "New processes of this system ({method}) run the script {script!r} again, and it has no "
    "'if __name__ == \"__main__\":' around its work"
)


def unguarded_script(start_method: str | None = None) -> str | None:
    """Say why new processes cannot be started, or None if they can.

    Processes that are not forked import the main script. Without a guard it would do all its work
    again in each of them, so multiprocessing ends them at once.

    Parameters
    ----------
    start_method : {"fork", "spawn", "forkserver"}, default=None
        None asks multiprocessing for the method in use.

    Examples
    --------
    >>> from skh2edl.utils.processes import unguarded_script
    >>> unguarded_script("fork") is None
    True
    """
    method = multiprocessing.get_start_method() if start_method is None else start_method
    main = sys.modules.get("__main__")
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    # A notebook or a prompt has no file; what `python -m package` runs is not run again.
    is_package = spec is not None and spec.name.rpartition(".")[2] == "__main__"
    if method == "fork" or path is None or is_package or _has_guard(path):
        return None
    return _WHY.format(method=method, script=Path(path).name)


@cache
def _has_guard(path: str) -> bool:
    """Return whether a script asks at its top level under which name it runs."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True  # no source to judge, such as that of a frozen program
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    names = [node for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)]
    return any(node.id == "__name__" for node in names)


@cache
def warn_once(message: str) -> None:
    """Warn of something that does not change while the program runs.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     for _ in range(3):
    ...         warn_once("an example of a warning")
    >>> len(caught)
    1
    """
    warnings.warn(message, UserWarning, stacklevel=3)
