"""Import packages that only some users have."""

from importlib import import_module
from types import ModuleType


def import_optional(module: str, extra: str) -> ModuleType:
    """Import a package that only some users have, or say how to get it.

    Parameters
    ----------
    module : str
        Name as in an import statement.
    extra : str
        The extra of this package that installs it.

    Returns
    -------
    module

    Examples
    --------
    >>> from skh2edl.utils.optional import import_optional
    >>> import_optional("json", extra="demo").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        # A package that is there but lacks a part of its own has another cure than ours.
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise ImportError(
            f"This needs the package {module.split('.')[0]!r}, which is not installed. "
            f"Install it with: pip install 'skh2edl[{extra}]'"
        ) from error
