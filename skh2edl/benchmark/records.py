"""Results on disk: one JSON file each, written whole and never overwritten."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..utils.files import write_atomically
from .experiment import Experiment


def record_path(records: str | os.PathLike[str], experiment: Experiment) -> Path:
    """Return the path of an experiment's record, which need not exist yet."""
    return Path(records) / f"{experiment.name}.json"


def write_record(path: Path, record: dict[str, Any]) -> bool:
    """Write a record, unless the file exists.

    Parameters
    ----------
    path : Path
        The file.
    record : dict
        What JSON can hold; NaN and infinities become null.

    Returns
    -------
    written : bool
        False if the file exists; it is left as it is.
    """
    partial = path.with_name(f".{os.getpid()}-{path.stem}.part")
    write_atomically(partial, lambda file: file.write(_to_json(record).encode()))
    try:
        # A link fails if the file exists; renaming would replace it.
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        if path.exists():
            return False
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True


def read_records(records: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read all records of a folder.

    Parameters
    ----------
    records : path
        The folder, as given to :func:`run_experiments`.

    Returns
    -------
    records : list of dict
        In the order of the file names. ``record["experiment"]`` holds the fields of the
        :class:`Experiment`, ``record["test"]`` and ``record["test_calibrated"]`` the reports of
        :func:`~skh2edl.metrics.hierarchical_report`.

    Examples
    --------
    >>> import tempfile
    >>> from skh2edl.benchmark import read_records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_records(folder)
    []
    """
    folder = Path(records)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"records must be a folder, and there is none at {folder}. Run the experiments first."
        )
    read = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            Experiment.from_dict(record["experiment"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is not the record of an experiment ({error}). Move it elsewhere."
            ) from error
        read.append(record)
    return read


def remaining(
    experiments: Sequence[Experiment], records: str | os.PathLike[str]
) -> tuple[list[Experiment], float | None]:
    """Return the experiments without a record, and the seconds they take one after the other.

    Parameters
    ----------
    experiments : sequence of Experiment
        The experiments.
    records : path
        Folder of the records, which need not exist.

    Returns
    -------
    pending : list of Experiment
        Those without a record.
    seconds : float or None
        Estimated from the records of the same data and network: from the time for each epoch, or
        for each candidate of a grid, of the same method if there are some; None without any.

    Examples
    --------
    >>> from skh2edl.benchmark import preset_experiments, remaining
    >>> pending, seconds = remaining(preset_experiments("glyphs", "quick"), "no/such/folder")
    >>> len(pending), seconds
    (3, None)
    """
    pending = [each for each in experiments if not record_path(records, each).exists()]
    rates: dict[tuple[str, ...], list[float]] = {}
    for record in read_records(records) if Path(records).is_dir() else []:
        run = Experiment.from_dict(record["experiment"])
        for key in ((run.dataset, run.network), (run.dataset, run.network, run.method)):
            rates.setdefault(key, []).append(record["seconds"]["all"] / _size(run))
    seconds = 0.0
    for run in pending:
        of_all = rates.get((run.dataset, run.network))
        if of_all is None:
            return pending, None
        own = rates.get((run.dataset, run.network, run.method), of_all)
        seconds += statistics.median(own) * _size(run)
    return pending, seconds


def _size(run: Experiment) -> int:
    return run.epochs or max(1, len(run.grid))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the results depend on."""
    packages = ("numpy", "scipy", "scikit-learn", "torch", "timm")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"skh2edl": __version__, "python": platform.python_version(), **found}


class PeakMemory:
    """Measure the largest resident memory of this process from now on."""

    def __init__(self) -> None:
        self._reset = False
        with contextlib.suppress(OSError):
            # Resets the peak on Linux; elsewhere the peak since the start is reported.
            Path("/proc/self/clear_refs").write_text("5")
            self._reset = True

    def mebibytes(self) -> float | None:
        """Return the peak, or None if the system does not report it."""
        if self._reset:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return round(int(line.split()[1]) / 1024, 1)
        try:
            import resource
        except ImportError:
            return None
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def _to_json(record: dict[str, Any]) -> str:
    """Return JSON with one line for each field, so that records can be compared by line."""
    fields = (
        f"{json.dumps(key)}: {json.dumps(_finite(value), allow_nan=False)}"
        for key, value in record.items()
    )
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _finite(value: Any) -> Any:
    """Return the value with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
