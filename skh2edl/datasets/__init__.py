"""Datasets of images whose labels lie on a taxonomy."""

from skh2edl.datasets._record import ImageDataset
from skh2edl.datasets.glyphs import make_glyphs

__all__ = ["ImageDataset", "make_glyphs"]
