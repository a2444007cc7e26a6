"""Values as JSON holds them: what a model file can say of parameters, and how it comes back."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..heads.prior import Prior
from ..training.recipe import Recipe


def plain(value: Any) -> Any:
    """Give arrays and paths the form that JSON holds."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (Recipe, Prior)):
        values = {name: plain(item) for name, item in value.get_params().items()}
        return {type(value).__name__: {name: v for name, v in values.items() if is_plain(v)}}
    return value.tolist() if isinstance(value, np.ndarray) else value


def is_plain(value: Any) -> bool:
    """Return whether JSON can hold a value; a scorer, for example, is left to its default."""
    if isinstance(value, (list, tuple)):
        return all(is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, (str, bool, int, float, np.number, np.bool_))


def encode(value: Any) -> Any:
    """Mark what JSON would not give back as it was: tuples, and keys that are no strings."""
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    return value


def decode(value: Any) -> Any:
    """Undo :func:`encode`."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"tuple"}:
            return tuple(decode(item) for item in value["tuple"])
        return {decode(key): decode(item) for key, item in value["dict"]}
    return value


def plain_number(value: Any) -> Any:
    """Return the number of Python's that is one of numpy's, for `json.dumps`."""
    if isinstance(value, (np.number, np.bool_)):
        return value.item()
    raise TypeError(f"{value!r} cannot be written to a model file.")
