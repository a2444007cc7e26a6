"""Datasets of images whose labels lie on a taxonomy."""

from skh2edl.datasets._record import LabelledImages
from skh2edl.datasets.coarsen import coarsen_labels
from skh2edl.datasets.derm12345 import load_derm12345
from skh2edl.datasets.fgvc_aircraft import load_fgvc_aircraft
from skh2edl.datasets.folder import load_image_folder
from skh2edl.datasets.glyphs import make_glyphs
from skh2edl.datasets.grocery_store import load_grocery_store
from skh2edl.datasets.table import load_table

__all__ = [
    "LabelledImages",
    "coarsen_labels",
    "load_derm12345",
    "load_fgvc_aircraft",
    "load_grocery_store",
    "load_image_folder",
    "load_table",
    "make_glyphs",
]
