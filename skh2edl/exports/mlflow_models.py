"""Models in MLflow: a pyfunc around the model file, which MLflow loads without pickle."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .. import __version__
from ..estimators.model_files import load_model, save_model
from ..utils.optional import import_optional
from .biodiversity import rank_table
from .identifications import Identifications


def log_to_mlflow(model: Any, name: str = "model", **options: Any) -> Any:
    """Log a fitted model to MLflow, from where its registry and its servers take it.

    ``mlflow.pyfunc.load_model`` gives it back, and its ``predict`` returns a DataFrame as
    :func:`rank_table` makes it: a column for each level, the ``score`` and the ``rank`` at which
    each sample is identified. It takes an array or DataFrame of features, or images: a list, or a
    DataFrame with one column of paths or of the contents of files (`bytes`).

    Parameters
    ----------
    model : classifier or wrapper of this package, Pipeline or search
        Fitted, as ``save`` takes it.
    name : str, default="model"
        Name of the model in the run.
    **options
        For ``mlflow.pyfunc.log_model``, such as ``registered_model_name`` or ``input_example``.

    Returns
    -------
    info : mlflow.models.model.ModelInfo
        Its ``model_uri`` is what ``mlflow.pyfunc.load_model`` takes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import FlatCEClassifier
    >>> from skh2edl.exports import log_to_mlflow
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> info = log_to_mlflow(FlatCEClassifier(backbone=None).fit(X, y))  # doctest: +SKIP
    >>> mlflow.pyfunc.load_model(info.model_uri).predict(X)  # doctest: +SKIP
    """
    pyfunc = import_optional("mlflow", extra="mlflow").pyfunc
    options.setdefault("pip_requirements", [f"skh2edl[mlflow]=={__version__}"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        save_model(model, file)
        return pyfunc.log_model(name=name, loader_module=__name__, data_path=str(file), **options)


class _Pyfunc:
    """What MLflow calls: `predict` of a DataFrame."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, data: Any, params: Any = None) -> Any:
        pandas = import_optional("pandas", extra="mlflow")
        if isinstance(data, pandas.DataFrame) and data.shape[1] == 1:
            column = data.iloc[:, 0]
            data = data if pandas.api.types.is_numeric_dtype(column) else column.tolist()
        found = Identifications.from_estimator(self.model, data, range(len(data)))
        return pandas.DataFrame(rank_table(found)).drop(columns="file_name")


def _load_pyfunc(path: str) -> _Pyfunc:
    """Read the model file; MLflow knows this function by its name."""
    return _Pyfunc(load_model(path))
