"""Parameters of an estimator from flags and from a TOML file."""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import estimators
from .common import UsageError

# Set by the command itself.
_NOT_FOR_USERS = {"taxonomy", "warm_start", "verbose"}

METHODS = {name.lower().replace(" ", "-"): kind for name, kind in estimators.METHODS.items()}
# Parameters whose flag has another name.
_FLAGS = {"n_workers": "workers", "on_bad_image": "skip-bad-images"}


def estimator_class(method: str) -> Any:
    """Return the class of a method by its short or its full name.

    Parameters
    ----------
    method : str
        Such as "h2edl" or "H2EDLClassifier".
    """
    name = METHODS.get(method.lower(), method)
    if name not in METHODS.values():
        raise UsageError(f"--method must be one of {', '.join(METHODS)}, got {method!r}.")
    return getattr(import_module("skh2edl"), name)


def parameters_of(estimator: Any) -> dict[str, Any]:
    """Return the parameters that a user may set, with their defaults.

    Parameters
    ----------
    estimator : class
        The estimator.
    """
    own = inspect.signature(estimator).parameters
    found = {name: own[name].default for name in own if name not in _NOT_FOR_USERS}
    # The parameters of a recipe, hardware or prior are flags like the others.
    for group, (kind, names) in _groups(estimator).items():
        of_group = inspect.signature(kind).parameters
        del found[group]
        found |= {flag: of_group[name].default for flag, name in names.items()}
    return found


def _groups(estimator: Any) -> dict[str, tuple[Any, dict[str, str]]]:
    """Return, for each group of an estimator's parameters, its class and its names by flag."""
    from ..training.recipe import SETTINGS

    return {
        group: (
            kind,
            {
                f"prior_{name}" if group == "prior" else name: name
                for name in inspect.signature(kind).parameters
            },
        )
        for group, kind in SETTINGS.items()
        if group in inspect.signature(estimator).parameters
    }


def parse_value(text: str) -> Any:
    """Read a value as TOML does; anything but a number, a list or a truth value is a text.

    Parameters
    ----------
    text : str
        The text after a flag. "none" means None.

    Examples
    --------
    >>> [parse_value(text) for text in ("0.01", "none", "true", "[1, 2]", "resnet50", "1e-3")]
    [0.01, None, True, [1, 2], 'resnet50', 0.001]
    """
    if text.lower() == "none":
        return None
    if text in ("True", "False"):
        text = text.lower()
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    # Dates and tables are no values of any parameter.
    return value if isinstance(value, (bool, int, float, str, list)) else text


def parse_flags(arguments: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """Read ``--kl-weight 0.01`` and ``--kl-weight=0.01`` for every parameter.

    Parameters
    ----------
    arguments : list of str
        Flags and values.
    known : dict
        Parameters.

    Returns
    -------
    values : dict

    Examples
    --------
    >>> parse_flags(["--kl-weight", "0.01", "--risk=log"], {"kl_weight": None, "risk": None})
    {'kl_weight': 0.01, 'risk': 'log'}
    """
    values: dict[str, Any] = {}
    waiting = list(arguments)
    while waiting:
        flag = waiting.pop(0)
        if not re.match(r"--[A-Za-z]", flag):
            raise UsageError(f"Unexpected argument {flag!r}. Only one data set can be given.")
        name, equals, text = flag[2:].partition("=")
        name = name.replace("-", "_")
        if name not in known:
            raise UsageError(f"No such option: --{name.replace('_', '-')}{_nearest(name, known)}")
        if not equals:
            if not waiting:
                raise UsageError(f"{flag} needs a value.")
            text = waiting.pop(0)
        values[name] = parse_value(text)
    return values


def _nearest(name: str, known: dict[str, Any]) -> str:
    flags = {*known, "out", "labels", "epochs", "workers", "seed", "config", "method", "levels"}
    flags |= {"cv", "test_fraction"}
    near = difflib.get_close_matches(name, flags, n=2, cutoff=0.6)
    hint = " or ".join(f"--{each.replace('_', '-')}" for each in near)
    return f". Did you mean {hint}?" if hint else ". See skh2edl fit --list-parameters."


def read_config(path: Path) -> dict[str, Any]:
    """Read a TOML file of parameters.

    Parameters
    ----------
    path : path
        The file: ``name = value`` lines, "none" for None, and ``method`` if wanted.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r} for --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}.") from None
    return {
        name.replace("-", "_"): None if value == "none" else value
        for name, value in content.items()
    }


def gather(
    kind: Any,
    config: Path | None,
    content: dict[str, Any],
    options: dict[str, Any],
    arguments: list[str],
) -> dict[str, Any]:
    """Join the parameters of a file and of flags; flags win.

    Parameters
    ----------
    kind : class
        The estimator.
    config : path or None
        The file, for messages.
    content : dict
        Parameters set in the file.
    options : dict
        Parameters with an option of their own; None where it was not given.
    arguments : list of str
        The other flags of the command line.
    """
    known = parameters_of(kind)
    for name in content:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"{config} sets {name!r}, which is no parameter of the method.{hint}")
    given = {name: value for name, value in options.items() if value is not None}
    none = dict.fromkeys(name for name, value in given.items() if value == "none")
    return content | given | none | parse_flags(arguments, known)


def make_estimator(kind: Any, values: dict[str, Any]) -> Any:
    """Make the estimator, or name the flag whose value is wrong before any work is done.

    Parameters
    ----------
    kind : class
        The estimator.
    values : dict
        Parameters.
    """
    own = dict(values)
    for group, (of_group, names) in _groups(kind).items():
        given = {name: own.pop(flag) for flag, name in names.items() if flag in own}
        if given:
            own[group] = of_group(**given)
    estimator = kind(**own)
    try:
        estimator._validate_params()
    except ValueError as error:
        raise UsageError(_as_flag(str(error), values)) from None
    return estimator


def _as_flag(message: str, values: dict[str, Any]) -> str:
    """Begin scikit-learn's sentence about a parameter with the flag that set it."""
    found = re.match(r"The '(\w+)' parameter of (\w+) (must be .*)", message, flags=re.DOTALL)
    if found is None:
        return message
    name = f"prior_{found[1]}" if found[2] == "Prior" else found[1]
    return f"{_flag(name)} {_plain(found[3])}" if name in values else message


def _plain(rule: str) -> str:
    """Return scikit-learn's rule for a value in words that need no Python.

    Examples
    --------
    >>> _plain("must be a float in the range (0.0, 1.0]. Got -1.0 instead.")
    'must be a number above 0 and at most 1. Got -1.0 instead.'
    >>> _plain("must be a str among {'full', 'head'}. Got 'heads' instead.")
    "must be one of full, head. Got 'heads' instead."
    """

    def interval(match: re.Match[str]) -> str:
        kind, closed, low, high, end = match.groups()
        low = (
            "" if low == "-inf" else f"{'of at least' if closed == '[' else 'above'} {float(low):g}"
        )
        high = "" if high == "inf" else f"{'at most' if end == ']' else 'below'} {float(high):g}"
        noun = "whole number" if kind == "an int" else "number"
        return f"a {noun} {' and '.join(filter(None, [low, high]))}".rstrip()

    number = r"([-\w.]+)"
    rule = re.sub(
        rf"(an int|a float) in the range ([\[(]){number}, {number}([\])])", interval, rule
    )
    # A set has no order that lasts.
    return re.sub(
        r"a str among \{([^}]*)\}",
        lambda found: "one of " + ", ".join(sorted(re.findall("'([^']*)'", found[1]))),
        rule,
    )


def _flag(name: str) -> str:
    return "--" + _FLAGS.get(name, name).replace("_", "-")


def in_flags(message: str) -> str:
    """Return an error message with flags in place of the parameters of Python.

    Parameters
    ----------
    message : str
        Such as "pass weights=None, or another image_size".

    Examples
    --------
    >>> in_flags("backbone='resnet51' is unknown. Pass weights=None, or another image_size.")
    '--backbone resnet51 is unknown. Pass --weights none, or another --image-size.'
    """
    message = re.sub(r"\blevel_names\b", "--levels", message)
    known = {"weights", "backbone", "finetune", *_names()}

    def value(match: re.Match[str]) -> str:
        text = match[2].strip("'\"")
        return f"{_flag(match[1])} {text.lower() if text == 'None' else text}"

    names = "|".join(sorted(known, key=len, reverse=True))
    message = re.sub(rf"\b({names})=('[^']*'|\"[^\"]*\"|[\w.]+\b)", value, message)
    longer = "|".join(name for name in known if "_" in name)
    return re.sub(rf"(?<![-\w'\"])({longer})(?![\w'\"=])", lambda m: _flag(m[1]), message)


def _names() -> set[str]:
    from ..estimators.h2edl import H2EDLClassifier

    return set(parameters_of(H2EDLClassifier))


def describe(kind: Any) -> list[tuple[str, str, str]]:
    """Return flag, default and meaning of every parameter.

    Parameters
    ----------
    kind : class
        The estimator.
    """
    from ..estimators.h2edl import H2EDLClassifier

    meanings: dict[str, str] = {}
    for documented, names in (*_groups(kind).values(), (H2EDLClassifier, {}), (kind, {})):
        found = _meanings(inspect.getdoc(documented) or "")
        found |= {flag: found[name] for flag, name in names.items()}
        # "As in :class:`H2EDLClassifier`" tells a user of the command nothing.
        meanings |= {name: text for name, text in found.items() if ":class:" not in text}
    return [
        (
            f"--{name.replace('_', '-')}",
            "none" if default is None else str(default),
            meanings.get(name, "").replace("``", ""),
        )
        for name, default in parameters_of(kind).items()
    ]


def _meanings(doc: str) -> dict[str, str]:
    """Read the section "Parameters" of a numpydoc text."""
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n\w+\n-+\n|\Z)", doc, flags=re.DOTALL)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (section[1] if section else "").splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.split(" : ")[0].split(",")]
            found |= dict.fromkeys(names, "")
        else:
            for name in names:
                found[name] = f"{found[name]} {line.strip()}".strip()
    return found
