"""Data sets of images with labels on a taxonomy."""

from ._record import LabelledImages, coarsen_labels
from .cub_birds import load_cub
from .derm12345 import load_derm12345
from .fgvc_aircraft import load_fgvc_aircraft
from .folder import load_image_folder
from .glyphs import make_glyphs
from .grocery_store import load_grocery_store
from .insects import make_insects
from .table import load_table

__all__ = [
    "LabelledImages",
    "coarsen_labels",
    "load_cub",
    "load_derm12345",
    "load_fgvc_aircraft",
    "load_grocery_store",
    "load_image_folder",
    "load_table",
    "make_glyphs",
    "make_insects",
]
