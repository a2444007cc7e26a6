"""Experiments and their results on disk: one JSON file each, never overwritten."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .. import __version__
from ..utils.files import write_atomically

Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Experiment:
    """One method on one data set with one seed.

    Experiments with equal fields have the same `key` on every machine, and so the same file.
    Folders, devices and numbers of processes are not fields, because they belong to one machine:
    give them to :func:`run_experiments`.

    Parameters
    ----------
    dataset : str
        Name of the data, as in `LabelledImages.name`.
    method : str
        Name of the row in the tables.
    classifier : str
        Name of a class of this package.
    parameters : mapping or pairs, default=()
        Parameters of the classifier that differ from its defaults.
    grid : sequence of mappings or of pairs, default=()
        Candidates for further parameters. Each is fitted. The best is chosen on the validation
        images, once by the NLL and once by the NLL after calibration.
    features : str, default=None
        Network whose frozen features are classified. None trains the `backbone` among the
        `parameters` on the images.
    weights : str, default="pretrained"
        Initial weights of the network: "pretrained" (timm's own), None (random), or the name of a
        file without its folder and suffix; give its path to :func:`run_experiments`.
    seed : int, default=0
        Seed of the network's weights, of the order of batches and of the training images used.
    train_share : float, default=1.0
        Fraction of the training images that is used. A fit on fixed features draws no random
        numbers, so seeds differ only in which images these are.
    epochs : int, default=None
        Epochs of training. None fits a head on fixed features until it converges.
    budget : float, default=1
        `epochs` over the protocol's usual number of epochs.
    coarse_fraction : float, default=0.0
        Fraction of the training labels that is replaced by ancestors.
    coarse_level : int, default=1
        Level of these ancestors.

    Examples
    --------
    >>> from skh2edl.benchmark import Experiment
    >>> experiment = Experiment("glyphs", "Flat-CE", "FlatCEClassifier", {"max_iter": 50}, seed=1)
    >>> experiment.parameters
    (('max_iter', 50),)
    >>> experiment.name
    'glyphs-flat-ce-seed1-1cb84cc002'
    >>> experiment == Experiment.from_dict(experiment.to_dict())
    True
    """

    dataset: str
    method: str
    classifier: str
    parameters: Mapping[str, Any] | Pairs = ()
    grid: Sequence[Mapping[str, Any] | Pairs] = ()
    features: str | None = None
    weights: str | None = "pretrained"
    seed: int = 0
    train_share: float = 1.0
    epochs: int | None = None
    budget: float = 1
    coarse_fraction: float = 0.0
    coarse_level: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", _pairs(self.parameters))
        object.__setattr__(self, "grid", tuple(_pairs(each) for each in self.grid))
        if not 0 < self.train_share <= 1:
            raise ValueError(f"train_share must be above 0 and at most 1, got {self.train_share}.")
        if not 0 <= self.coarse_fraction <= 1:
            raise ValueError(
                f"coarse_fraction must be between 0 and 1, got {self.coarse_fraction}."
            )

    @property
    def key(self) -> str:
        """Hash of all fields."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()

    @property
    def name(self) -> str:
        """Readable and unique name of the file, without its suffix."""
        words = [self.dataset, self.features, self.method]
        if self.coarse_fraction:
            words.append(f"coarse{self.coarse_fraction:g}")
        if self.epochs is not None:
            words.append(f"{self.epochs}epochs")
        text = "-".join(word for word in words if word) + f"-seed{self.seed}-{self.key}"
        return re.sub(r"[^a-z0-9._]+", "-", text.lower())

    @property
    def network(self) -> str:
        """Name of the network that reads the images."""
        return self.features or dict(self.parameters).get("backbone") or "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        values = asdict(self)
        values["parameters"] = dict(self.parameters)
        values["grid"] = [dict(candidate) for candidate in self.grid]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Experiment:
        """Return the experiment of :meth:`to_dict`."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"an experiment has no field {unknown[:5]}. It was recorded by another version of "
                "skh2edl: read it with that, or run it again."
            )
        return cls(**values)


def _pairs(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Pairs:
    """Return parameters sorted by name, with values that can be hashed and written to JSON."""
    pairs = []
    for name, value in sorted(dict(values).items()):
        frozen = tuple(value) if isinstance(value, list | tuple) else value
        inside = frozen if isinstance(frozen, tuple) else (frozen,)
        if not all(isinstance(each, str | int | float | None) for each in inside):
            raise TypeError(
                f"{name}={value!r} cannot be recorded: a parameter of an experiment is a number, a "
                "string, a truth value, None, or a list of these."
            )
        pairs.append((name, frozen))
    return tuple(pairs)


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
