"""Predictions in the forms that other programs read, and their labels back."""

from .annotations import (
    coco_categories,
    coco_predictions,
    fiftyone_dataset,
    fiftyone_labels,
    label_studio_config,
    label_studio_tasks,
    read_label_studio,
)
from .biodiversity import camtrap_observations, darwin_core_occurrences, rank_table
from .identifications import Identifications
from .mlflow_models import log_to_mlflow
from .writing import write_export

__all__ = [
    "Identifications",
    "camtrap_observations",
    "coco_categories",
    "coco_predictions",
    "darwin_core_occurrences",
    "fiftyone_dataset",
    "fiftyone_labels",
    "label_studio_config",
    "label_studio_tasks",
    "log_to_mlflow",
    "rank_table",
    "read_label_studio",
    "write_export",
]
