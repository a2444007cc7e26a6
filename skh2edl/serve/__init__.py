"""A page to try a model on, and the same as a JSON API: what `skh2edl serve` runs."""

from .app import create_app
from .limits import Limits

__all__ = ["Limits", "create_app"]
