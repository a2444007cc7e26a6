"""Loss and scores reach scikit-learn's callbacks, and from there the packages people log with."""

import numpy as np
import pytest

from skh2edl import EpochLogger, H2EDLClassifier, Taxonomy

pytest.importorskip("sklearn.callback")

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
RNG = np.random.default_rng(0)
Y = np.array(TREE.leaves)[np.arange(60) % 3]
X = RNG.normal(size=(60, 3)) + 2 * np.eye(3)[np.arange(60) % 3]


def by_epochs():
    return H2EDLClassifier(TREE, backbone=None, solver="adamw", max_epochs=3, random_state=0)


def by_iterations(**parameters):
    return H2EDLClassifier(TREE, backbone=None, **parameters)


def logged_by(classifier):
    """Fit and return the steps and the values that a function was given."""
    steps = []
    logger = EpochLogger(lambda values, step: steps.append((step, values)))
    classifier.set_callbacks(logger).fit(X, Y)
    return steps


def test_a_logger_gets_the_history_of_the_epochs():
    classifier = by_epochs()
    steps = logged_by(classifier)
    assert [step for step, _ in steps] == classifier.history_["epoch"]
    for name in classifier.history_.keys() - {"epoch"}:
        assert [values[name] for _, values in steps] == classifier.history_[name]
    assert "loss" in steps[0][1]
    assert len(steps[0][1]) >= 2  # the score of the validation samples too


def test_a_logger_gets_the_objective_of_every_iteration():
    classifier = by_iterations()
    steps = logged_by(classifier)
    assert [step for step, _ in steps] == classifier.history_["iteration"]
    assert [values["objective"] for _, values in steps] == classifier.history_["objective"]


def test_listening_changes_no_bits():
    silent, heard = by_iterations().fit(X, Y), by_iterations()
    logged_by(heard)
    np.testing.assert_array_equal(heard.predict_log_proba(X), silent.predict_log_proba(X))


@pytest.mark.filterwarnings("error")
def test_a_callback_sees_the_iterate_and_may_stop_the_solver():
    seen = []

    class StopAfterFour(EpochLogger):
        def on_fit_task_end(self, estimator, context, *, metadata=None, fitted_estimator=None):
            if context.task_name == "iteration":
                seen.append(fitted_estimator.predict_log_proba(X))
            return len(seen) == 4

    classifier = by_iterations().set_callbacks(StopAfterFour(print)).fit(X, Y)
    assert classifier.n_iter_ == 4
    np.testing.assert_array_equal(classifier.predict_log_proba(X), seen[-1])
    assert not np.array_equal(seen[0], seen[-1])


def test_what_logs_nothing_is_refused():
    with pytest.raises(TypeError, match=r"to must be a SummaryWriter of TensorBoard.*got int"):
        EpochLogger(3)


def test_tensorboard_reads_the_losses_back(tmp_path):
    backend = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(backend)
    from torch.utils.tensorboard import SummaryWriter

    classifier = by_epochs()
    with SummaryWriter(tmp_path) as writer:
        classifier.set_callbacks(EpochLogger(writer)).fit(X, Y)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [event.step for event in events] == classifier.history_["epoch"]
    found = [event.value for event in events]
    assert found == pytest.approx(classifier.history_["loss"], rel=1e-6)


@pytest.mark.filterwarnings("default")  # importing mlflow warns
def test_mlflow_reads_the_losses_back(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    classifier = by_epochs()
    with mlflow.start_run() as run:
        classifier.set_callbacks(EpochLogger(mlflow)).fit(X, Y)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    assert [metric.step for metric in history] == classifier.history_["epoch"]
    assert [metric.value for metric in history] == classifier.history_["loss"]


def test_a_run_of_wandb_is_called_as_its_documentation_says():
    calls = []

    class Run:
        """Stands for ``wandb.init()``: its `log` takes a dict and a step."""

        def log(self, data, step=None, commit=None):
            calls.append((step, data))

    classifier = by_epochs().set_callbacks(EpochLogger(Run())).fit(X, Y)
    assert [step for step, _ in calls] == classifier.history_["epoch"]
    assert [data["loss"] for _, data in calls] == classifier.history_["loss"]
