"""Predictions in the forms that other programs read, and their labels back."""

from ..utils import lazy

# Format of `write_export` and `skh2edl publish` -> its function in this package, and its ending.
FORMATS = {
    "ranks": ("rank_table", ".csv"),
    "darwin-core": ("darwin_core_occurrences", ".csv"),
    "camtrap-dp": ("camtrap_observations", ".csv"),
    "label-studio": ("label_studio_tasks", ".json"),
    "fiftyone": ("fiftyone_dataset", ".json"),
    "coco": ("coco_predictions", ".json"),
}

# Imported when first used, so that the command line can name the formats without numpy.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__)
