"""Experiments, one JSON record each on disk, and tables made from the records."""

from .protocols import finetuned_protocol, frozen_protocol, load_dataset, preset_experiments
from .records import Experiment, read_records, remaining
from .running import ExperimentError, frozen_features_of, run_experiments
from .table import Table
from .tables import make_tables, write_tables

__all__ = [
    "Experiment",
    "ExperimentError",
    "Table",
    "finetuned_protocol",
    "frozen_features_of",
    "frozen_protocol",
    "load_dataset",
    "make_tables",
    "preset_experiments",
    "read_records",
    "remaining",
    "run_experiments",
    "write_tables",
]
