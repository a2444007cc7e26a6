"""The taxonomy: a rooted tree of named concepts, held as flat arrays."""

from .taxonomy import Taxonomy

__all__ = ["Taxonomy"]
