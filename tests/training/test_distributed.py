"""Several processes: the same training as one, and no hang when one of them ends."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_faults import die_as_second, fail_as_second, stall_as_second
from distributed_job import (
    N_ROWS,
    TREE,
    data,
    fit_rows,
    fits,
    images_classifier,
    rows_classifier,
)

from skh2edl.training import loop as training
from skh2edl.training.distributed import LostProcessError, count_devices, spawn

JOB = Path(__file__).with_name("distributed_job.py")
pytestmark = [
    pytest.mark.skipif(
        not torch.distributed.is_available() or not hasattr(signal, "SIGKILL"),
        reason="needs processes that talk to each other and can be killed",
    ),
    # Every process imports all over again, which takes its time on a busy machine.
    pytest.mark.timeout(300),
]


def environment():
    """Leave out what another launcher may have set; let tests import each other and this copy."""
    kept = {key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "RANK")}
    folders = os.pathsep.join(map(str, (JOB.parent, JOB.parents[2])))
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": folders}


@pytest.fixture(scope="module")
def alone():
    return fits()


def assert_same_training(found, expected):
    assert found.keys() == expected.keys()
    for name, fit in expected.items():
        # Per step, and not only per epoch.
        assert len(found[name]["losses"]) == len(fit["losses"]) >= 10
        np.testing.assert_allclose(found[name]["losses"], fit["losses"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found[name]["val_score"], fit["val_score"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(found[name]["proba"], fit["proba"], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Run the script as a user would; it ends when one of its two processes is killed."""
    folder = tmp_path_factory.mktemp("script")
    fit_until_epoch(2, folder / "begun")
    done = subprocess.run(
        [sys.executable, str(JOB), str(folder)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return folder, done, found


def fit_until_epoch(number, folder):
    """Leave a checkpoint of some epochs of a fit in one process."""
    with pytest.MonkeyPatch.context() as patch:
        one_epoch = training._Run._one_epoch

        def one_epoch_or_stop(run, epoch):
            if epoch == number:
                raise KeyboardInterrupt
            return one_epoch(run, epoch)

        patch.setattr(training._Run, "_one_epoch", one_epoch_or_stop)
        with pytest.raises(KeyboardInterrupt):
            fit_rows(hardware__checkpoint_dir=folder)


def test_a_script_in_two_processes_trains_as_in_one(script, alone):
    for found in script[2]:
        assert_same_training({name: found[name] for name in alone}, alone)


def test_a_run_begun_in_one_process_goes_on_in_two(script):
    undisturbed = fit_rows()
    for rank, found in enumerate(script[2]):
        resumed = found["resumed"]
        assert resumed["n_iter"] == undisturbed["n_iter"] == 4
        # Two of its four epochs, of four batches each, were done before.
        np.testing.assert_allclose(resumed["losses"], undisturbed["losses"][8:], rtol=0, atol=1e-5)
        np.testing.assert_allclose(resumed["proba"], undisturbed["proba"], rtol=0, atol=1e-5)
        # Written once after each of the other two.
        assert resumed["n_saved"] == (2 if rank == 0 else 0)


def test_processes_that_drew_other_seeds_refuse_to_train_together(script):
    for found in script[2]:
        assert "processes of this fit have other random_state" in found["disagreement"]
        assert "give random_state an integer" in found["disagreement"]


def test_a_killed_process_ends_the_job_with_an_error_and_the_run_goes_on_in_one(script, tmp_path):
    folder, done, _ = script
    assert done.returncode != 0
    # Either the companion noticed, or Fabric's watch on its children was faster and killed it.
    assert "lost another process of this fit" in done.stderr or done.returncode == -signal.SIGKILL
    shutil.copytree(folder / "killed", tmp_path / "killed")
    resumed, undisturbed = fit_rows(hardware__checkpoint_dir=tmp_path / "killed"), fit_rows()
    assert len(resumed["losses"]) == 8  # the epochs 2 and 3
    np.testing.assert_allclose(resumed["proba"], undisturbed["proba"], rtol=0, atol=1e-5)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_two_agents(folder):
    """Run two agents of torchrun on one machine, which are to it what two machines are."""
    port = free_port()
    agents = [
        subprocess.Popen(
            [
                sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}",
                "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}",
                str(JOB), str(folder), "1",
            ],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(2)
    ]  # fmt: skip
    try:
        messages = [agent.communicate(timeout=90)[1] for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    return agents, messages


@pytest.mark.slow
def test_torchrun_on_two_machines_trains_as_one_process(tmp_path, alone):
    try:
        agents, messages = run_two_agents(tmp_path)
    except subprocess.TimeoutExpired:
        # Another program took the port between its choice and its use: the agents never met.
        agents, messages = run_two_agents(tmp_path)
    assert [agent.returncode for agent in agents] == [0, 0], messages
    for rank in range(2):
        assert_same_training(json.loads((tmp_path / f"{rank}.json").read_text()), alone)


@pytest.mark.slow
def test_spawned_processes_give_their_weights_to_the_notebook(alone, monkeypatch, tmp_path):
    X, y, weight = data(len(alone["images"]["proba"]), (64, 64, 3), np.uint8)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # as in a notebook
    classifier = images_classifier(
        hardware__devices=2, hardware__strategy="ddp_notebook", hardware__checkpoint_dir=tmp_path
    )
    classifier.fit(X[:-5], y[:-5], weight[:-5], X_val=X[-5:], y_val=y[-5:])
    expected = alone["images"]
    np.testing.assert_allclose(classifier.predict_proba(X), expected["proba"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        classifier.history_["val_score"], expected["val_score"], rtol=0, atol=1e-5
    )
    assert all("forward" not in vars(module) for module in classifier.network_.modules())
    # The finished run is known to one process as well.
    again = images_classifier(hardware__checkpoint_dir=tmp_path)
    again.fit(X[:-5], y[:-5], weight[:-5], X_val=X[-5:], y_val=y[-5:])
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (die_as_second, LostProcessError, "Process 1 of 2 ended with the signal SIGKILL"),
        (stall_as_second, LostProcessError, "Process 0 of 2 lost another process of this fit"),
        (fail_as_second, FloatingPointError, "the loss became NaN"),
    ],
)
def test_a_process_that_dies_stalls_or_fails_ends_the_fit(work, error, message):
    # The others sleep for ten minutes, and are not waited for.
    with pytest.raises(error, match=message):
        spawn(2, work)


# One process only -------------------------------------------------------------------------------


def test_what_cannot_be_told_to_a_new_process_is_named():
    classifier = rows_classifier(
        hardware__devices=2,
        hardware__strategy="ddp_spawn",
        recipe__selection=lambda estimator, X, y: 0.0,
        validation_fraction=0.2,
    )
    X, y, _ = data(N_ROWS, (4,), np.float32)
    with pytest.raises(ValueError, match="A scorer in selection= must be importable"):
        classifier.fit(X, y)


@pytest.mark.parametrize("strategy", ["fsdp", "ddp_fork", "dp"])
def test_other_strategies_are_refused(strategy):
    X, y, _ = data(N_ROWS, (4,), np.float32)
    with pytest.raises(ValueError, match=f"strategy='{strategy}' is not supported. Use 'auto'"):
        rows_classifier(hardware__strategy=strategy).fit(X, y)


@pytest.mark.parametrize(
    ("devices", "n_devices"), [(3, 3), ("2", 2), ([0, 1], 2), ("0,2,", 2), ("auto", 1), (-1, 1)]
)
def test_devices_of_the_processor_are_counted(devices, n_devices):
    assert count_devices("cpu", devices) == n_devices


def test_leaves_of_the_job_are_those_of_the_tree():
    assert set(data(N_ROWS, (4,), np.float32)[1]) <= {*TREE.leaves, "warm"}
