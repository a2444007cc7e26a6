"""Data sets of images with labels on a taxonomy."""

from ..utils import lazy

# Data set of `skh2edl benchmark` -> its function in this package.
DATASETS = {
    "grocery_store": "load_grocery_store",
    "fgvc_aircraft": "load_fgvc_aircraft",
    "derm12345": "load_derm12345",
    "cub_birds": "load_cub",
    "glyphs": "make_glyphs",
}

# Imported when first used, so that the command line can name the data sets without numpy.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__)
