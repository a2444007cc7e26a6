"""A page to try a model on, and the same as a JSON API: what `skh2edl serve` runs."""

from .app import Limits, create_app

__all__ = ["Limits", "create_app"]
