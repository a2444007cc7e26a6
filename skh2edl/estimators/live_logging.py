"""Callbacks of scikit-learn: a fit tells them of its epochs, and one of them logs these."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..taxonomy.taxonomy import Taxonomy
from ..training.network import Network


@contextmanager
def telling_callbacks(estimator: Any, X: Any, y: Any) -> Iterator[Any]:
    """Tell callbacks that a fit begins and that it ended well; yield their context.

    Parameters
    ----------
    estimator : classifier
        In its `fit`.
    X, y
        What it fits.

    Yields
    ------
    context : CallbackContext or None
        None before scikit-learn 1.9.
    """
    if not hasattr(estimator, "_init_callback_context"):
        yield None
        return
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
    yield context
    context.call_on_fit_task_end(estimator=estimator, X=X, y=y)


def make_reporter(
    estimator: Any, taxonomy: Taxonomy, context: Any, task: str
) -> Callable[[Network, dict[str, float]], bool] | None:
    """Return what tells callbacks of an epoch or iteration, or None if there are no callbacks.

    Parameters
    ----------
    estimator : classifier
        In its `fit`.
    taxonomy : Taxonomy
        The tree of this fit.
    context : CallbackContext or None
        Of :func:`telling_callbacks`.
    task : {"epoch", "iteration"}
        What is reported.
    """
    if context is None or not getattr(estimator, "_skl_callbacks", None):
        return None

    def report(network: Network, record: dict[str, float]) -> bool:
        step = context.subcontext(task_name=task)
        step.call_on_fit_task_begin(estimator=estimator)
        state = {
            "network_": network,
            "taxonomy_": taxonomy,
            "classes_": taxonomy.sorted_leaf_labels,
        }
        return bool(
            step.call_on_fit_task_end(
                estimator=estimator,
                metadata=dict(record),
                reconstruction_attributes=lambda: copy.deepcopy(state),
            )
        )

    return report


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
