"""The only door to scikit-learn's private tools, and to optional imports."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import validate_data

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks
    _Method = TypeVar("_Method", bound=Callable[..., Any])

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands where scikit-learn's own would."""

    def with_callbacks(method: _Method) -> _Method:
        """Return the method as it is."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "HasMethods",
    "Interval",
    "StrOptions",
    "check_sample_weight",
    "import_optional",
    "validate_data",
    "with_callbacks",
]


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
    >>> from skh2edl._validation import import_optional
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
