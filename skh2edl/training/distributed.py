"""Several processes of one fit: who starts them, what they must agree on, what they gather."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..utils.processes import unguarded_script
from .devices import find_device

# How long a process waits for one that hangs; one that dies is noticed at once. It must be longer
# than what another may do meanwhile, such as reading the data in its own run of a script.
TIMEOUT = timedelta(minutes=30)

# Strategies that start new processes which know nothing but the function they run.
SPAWNED = ("ddp_spawn", "ddp_notebook")

_UNKNOWN = (
    "A new process cannot be told what to do ({}). A scorer in selection= must be importable from "
    "a module, not defined in a notebook or as a lambda."
)


class LostProcessError(RuntimeError):
    """Another process of the same fit has ended or hangs."""


def make_fabric(
    accelerator: str, devices: int | str | list[int], strategy: str, precision: str
) -> Any:
    """Return a Lightning Fabric whose processes all run.

    Parameters
    ----------
    accelerator, devices, strategy, precision : str or int
        As in Lightning Fabric; the strategy is "auto" or a form of "ddp". From a script, "ddp"
        runs the script once more for each further device; under ``torchrun`` it joins the
        processes that are there.

    Returns
    -------
    fabric : lightning_fabric.Fabric
        Launched.
    """
    with _without_torchmetrics():
        from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.strategies.single_device import SingleDeviceStrategy

    if strategy not in ("auto", "ddp", "ddp_find_unused_parameters_true"):
        raise ValueError(
            f"strategy={strategy!r} is not supported. Use 'auto', 'ddp' (a script, or torchrun), "
            "'ddp_spawn' or 'ddp_notebook'."
        )
    if accelerator in ("cuda", "gpu", "mps") and find_device(accelerator).type == "cpu":
        raise ValueError(
            f"accelerator={accelerator!r} is not on this machine, or torch does not see it. Train "
            "with Hardware(accelerator='auto'), which takes the best there is."
        )
    finds_unused = strategy != "ddp"
    ddp = DDPStrategy(timeout=TIMEOUT, find_unused_parameters=finds_unused)
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        strategy="auto" if strategy == "auto" else ddp,
        num_nodes=_n_machines() if strategy != "auto" else 1,
        precision=precision,  # type: ignore[arg-type]
    )
    if not isinstance(fabric.strategy, (DDPStrategy, SingleDeviceStrategy)):
        raise ValueError(
            f"strategy='auto' is {type(fabric.strategy).__name__} with accelerator={accelerator!r} "
            f"and devices={devices!r}, which is not supported. Use devices=1 or strategy='ddp'."
        )
    if fabric.strategy.launcher is not None:
        fabric.launch()
        n_running = torch.distributed.get_world_size()
        if n_running != fabric.world_size:
            raise ValueError(
                f"devices={devices!r} asks for {fabric.world_size} processes, and an earlier fit "
                f"has started {n_running}. Keep to that number in one run of a script."
            )
    return fabric


@contextmanager
def _without_torchmetrics() -> Iterator[None]:
    """Let Fabric read the version of torchmetrics without the package, which loads transformers."""
    name = "torchmetrics"
    if name in sys.modules or "lightning_fabric" in sys.modules or find_spec(name) is None:
        yield
        return
    stand_in: Any = ModuleType(name)
    stand_in.__version__ = version(name)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


def _n_machines() -> int:
    """Read from what torchrun says how many machines take part; 1 without it."""
    everywhere = int(os.environ.get("WORLD_SIZE", 1))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", everywhere))
    return max(1, everywhere // max(1, here))


def spawn(
    n_processes: int, function: Callable[..., dict[str, Any]], *arguments: Any
) -> dict[str, Any]:
    """Run a function in new processes and return what the first one returned.

    Fabric would start them too, but from a notebook only as forks, which cannot use a GPU that the
    notebook has used already.

    Parameters
    ----------
    n_processes : int
        How many to start; this process waits for them.
    function : callable
        Importable; it is called with `arguments` in each process, where "ddp" joins the others.
    *arguments
        Copied to each process.

    Returns
    -------
    result : dict
        Tensors and plain values.
    """
    from torch import multiprocessing
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

    if reason := unguarded_script("spawn"):
        raise RuntimeError(f"{reason}. Add it, or train with strategy='ddp'.")
    with tempfile.TemporaryDirectory(prefix="skh2edl-") as name:
        folder = Path(name)
        try:
            # Written once for all of them, and tensors by value: shared ones would be overwritten.
            (folder / "work").write_bytes(pickle.dumps((function, arguments)))
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise ValueError(_UNKNOWN.format(error)) from error
        try:
            multiprocessing.spawn(  # type: ignore[attr-defined]
                _run, args=(name, n_processes, _free_port()), nprocs=n_processes
            )
        except ProcessRaisedException as error:
            raise _first_error(folder) or error from error
        except ProcessExitedException as error:
            signal, code = error.signal_name, error.exit_code
            ending = f"the signal {signal}" if signal else f"exit code {code}"
            raise LostProcessError(
                f"Process {error.error_index} of {n_processes} ended with {ending}, and so did the "
                "fit. Look for a lack of memory first. A checkpoint of the epoch before, if there "
                "is one, is intact: the same call resumes from it."
            ) from error
        result: dict[str, Any] = torch.load(folder / "result", weights_only=True)
        return result


def _run(rank: int, folder: str, n_processes: int, port: int) -> None:
    """Run in a spawned process."""
    # As if another launcher had started it: Fabric then starts none.
    for left_over in ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        os.environ.pop(left_over, None)
    os.environ |= {
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(n_processes),
        "WORLD_SIZE": str(n_processes),
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        try:
            function, arguments = pickle.loads((Path(folder) / "work").read_bytes())
        except AttributeError as error:  # defined in a notebook
            raise ValueError(_UNKNOWN.format(error)) from error
        result = function(*arguments)
        if rank == 0:
            torch.save(result, Path(folder) / "result")
    except Exception as error:
        with suppress(Exception):  # not every exception can be pickled and read again
            content = pickle.dumps(error)
            pickle.loads(content)
            (Path(folder) / f"error-{rank}").write_bytes(content)
        raise
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _first_error(folder: Path) -> Exception | None:
    """Return the first error: the others only report a lost process."""
    errors = [pickle.loads(path.read_bytes()) for path in sorted(folder.glob("error-*"))]
    errors.sort(key=lambda error: isinstance(error, LostProcessError))
    return errors[0] if errors else None


def count_devices(accelerator: str, devices: int | str | list[int]) -> int:
    """Return how many processes `devices` asks for on one machine.

    Examples
    --------
    >>> count_devices("cpu", 2), count_devices("cpu", "auto"), count_devices("gpu", [0, 3])
    (2, 1, 2)
    """
    if isinstance(devices, list):
        return len(devices)
    if str(devices).isdecimal():
        return int(devices)
    if isinstance(devices, str) and "," in devices:
        return len([part for part in devices.split(",") if part.strip()])
    on_gpu = accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    return torch.cuda.device_count() if on_gpu else 1


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def naming_lost_processes(fabric: Any) -> Iterator[None]:
    """Raise LostProcessError where another process no longer responds."""
    try:
        yield
    except RuntimeError as error:
        # Gloo and NCCL raise nothing more special than this.
        text = str(error)
        lost = ("onnection", "imed out", "imeout", "NCCL", "gloo", "Gloo", "peer", "store")
        is_named = isinstance(error, LostProcessError) or not any(word in text for word in lost)
        if fabric.world_size == 1 or is_named:
            raise
        raise LostProcessError(
            f"Process {fabric.global_rank} of {fabric.world_size} lost another process of this fit "
            f"({text.splitlines()[0][:200]}). That one's own message tells why. A checkpoint of "
            "the epoch before, if there is one, is intact: the same call resumes from it."
        ) from error


def check_agreement(fabric: Any, parts: dict[str, str]) -> None:
    """Raise if the processes differ in data, labels or seed.

    Parameters
    ----------
    fabric : lightning_fabric.Fabric
        Launched.
    parts : dict of str to str
        Hexadecimal hashes, by the name a user knows the thing by.
    """
    numbers = [int(value[:15], 16) for value in parts.values()]
    everywhere = _gather(fabric, torch.tensor(numbers, device=fabric.device))
    differ = (everywhere != everywhere[0]).any(dim=0).tolist()
    differing = [name for name, differs in zip(parts, differ, strict=True) if differs]
    if differing:
        raise ValueError(
            f"The {fabric.world_size} processes of this fit have other {', '.join(differing)}. "
            "Each runs the same script, so whatever it draws must come from a fixed seed: give "
            "random_state an integer, and check how X and y are made."
        )


def _gather(fabric: Any, values: torch.Tensor) -> torch.Tensor:
    everywhere = [torch.empty_like(values) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(everywhere, values)
    return torch.stack(everywhere)


def gather_rows(fabric: Any, part: npt.NDArray[Any], n_rows: int) -> npt.NDArray[Any]:
    """Gather an array of which each process holds every n-th row.

    Parameters
    ----------
    fabric : lightning_fabric.Fabric
        Launched.
    part : ndarray of shape (n_rows_here, n_columns)
        The rows ``rank::n_processes``; there may be none.
    n_rows : int
        Rows of all processes together.

    Returns
    -------
    rows : ndarray of shape (n_rows, n_columns)
        The same in every process.
    """
    n_processes = fabric.world_size
    if n_processes == 1:
        return part
    # All must send arrays of one shape: the last row may be padding.
    padded = np.zeros((-(-n_rows // n_processes), part.shape[1]), dtype=part.dtype)
    padded[: len(part)] = part
    gathered = _gather(fabric, torch.from_numpy(padded).to(fabric.device)).cpu().numpy()
    # Row i is in process i % n at place i // n.
    interleaved = gathered.transpose(1, 0, 2).reshape(-1, part.shape[1])
    rows: npt.NDArray[Any] = np.ascontiguousarray(interleaved[:n_rows])
    return rows
