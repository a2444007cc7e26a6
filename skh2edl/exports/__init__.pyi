# The public names of this package, each with the module that defines it.
from .annotations import coco_categories as coco_categories
from .annotations import coco_predictions as coco_predictions
from .annotations import fiftyone_dataset as fiftyone_dataset
from .annotations import fiftyone_labels as fiftyone_labels
from .annotations import label_studio_config as label_studio_config
from .annotations import label_studio_tasks as label_studio_tasks
from .annotations import read_label_studio as read_label_studio
from .biodiversity import camtrap_observations as camtrap_observations
from .biodiversity import darwin_core_occurrences as darwin_core_occurrences
from .biodiversity import rank_table as rank_table
from .identifications import Identifications as Identifications
from .mlflow_models import log_to_mlflow as log_to_mlflow
from .writing import write_export as write_export

FORMATS: dict[str, tuple[str, str]]
