"""An experiment: a frozen record whose key names its result on disk."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

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
