# The public names of this package, each with the module that defines it.
from ._record import LabelledImages as LabelledImages
from ._record import coarsen_labels as coarsen_labels
from .cub_birds import load_cub as load_cub
from .derm12345 import load_derm12345 as load_derm12345
from .fgvc_aircraft import load_fgvc_aircraft as load_fgvc_aircraft
from .folder import load_image_folder as load_image_folder
from .glyphs import make_glyphs as make_glyphs
from .grocery_store import load_grocery_store as load_grocery_store
from .insects import make_insects as make_insects
from .table import load_table as load_table

DATASETS: dict[str, str]
