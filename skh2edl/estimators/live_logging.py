"""Send the loss and scores of every epoch to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EpochLogger:
    """Callback of scikit-learn that logs what a fit reports of each epoch or iteration.

    A network that is trained in epochs reports what ends up in `history_`: the loss, the
    validation score and the time. L-BFGS on fixed features reports its objective.

    Parameters
    ----------
    to : SummaryWriter, module, run or callable
        A ``SummaryWriter`` of TensorBoard, the module ``mlflow`` (it logs to the active run), the
        module ``wandb`` or one of its runs, or a function of a dict of numbers and the step.

    Notes
    -----
    Callbacks need scikit-learn 1.9 or newer. They run in the first process of a distributed fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import EpochLogger, FlatCEClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> steps = []
    >>> logger = EpochLogger(lambda values, step: steps.append((step, sorted(values))))
    >>> clf = FlatCEClassifier(backbone=None)
    >>> if hasattr(clf, "set_callbacks"):  # scikit-learn 1.9
    ...     _ = clf.set_callbacks(logger)
    >>> _ = clf.fit(X, y)
    >>> steps[:1] in ([], [(0, ["objective"])])
    True
    """

    def __init__(self, to: Any) -> None:
        self.to = to
        self._log = _log_function(to)

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing: the run or the writer is the user's."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing: the run or the writer is the user's."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing before an epoch."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, metadata: dict[str, Any] | None = None
    ) -> None:
        """Log the record of an epoch or iteration."""
        if context.task_name in ("epoch", "iteration") and metadata is not None:
            values = dict(metadata)
            step = int(values.pop(context.task_name))
            self._log(values, step)


def _log_function(to: Any) -> Callable[[dict[str, float], int], Any]:
    """Return the function of values and step that a logging package offers."""
    if hasattr(to, "add_scalar"):  # TensorBoard

        def add(values: dict[str, float], step: int) -> None:
            for name, value in values.items():
                to.add_scalar(name, value, step)

        return add
    for name in ("log_metrics", "log"):  # MLflow, Weights & Biases
        if hasattr(to, name):
            return lambda values, step: getattr(to, name)(values, step=step)
    if callable(to):
        return to  # type: ignore[no-any-return]
    raise TypeError(
        f"to must be a SummaryWriter of TensorBoard, the module mlflow, wandb or its run, or a "
        f"function of values and step, got {type(to).__name__}."
    )
