"""Predictions for many images, written as Parquet parts; an interrupted job resumes."""

from .job import BatchReport, predict_folder, predict_table

__all__ = ["BatchReport", "predict_folder", "predict_table"]
