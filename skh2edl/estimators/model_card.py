"""What travels with a model file beside the model: what it saw, and how far it may be trusted.

A card is one more entry in the metadata of the ``.safetensors`` file, so that a model is one file
and stays one. It holds the thresholds that held-out images needed, from which a hedge at any
target accuracy follows, how often predictions on them were right at each level, and short hashes
of the images that the model was trained on, so that an evaluation can leave them out. No name or
path of an image is kept.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import struct
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from ..taxonomy.names import shown
from ..utils.files import write_atomically

Hashes = npt.NDArray[np.uint64]

_KEY = "skh2edl_card"
_FORMAT = 1  # of the record; a release reads its own
_MAX_HEADER = 100_000_000  # bytes; what safetensors itself reads


def _no_hashes() -> Hashes:
    return np.empty(0, dtype=np.uint64)


class HeldOut(NamedTuple):
    """How predictions on held-out images went, level by level.

    Attributes
    ----------
    scores : ndarray of float of shape (n_images, n_levels)
        Probability of the predicted class of each level, from the coarsest to the finest.
    n_right : ndarray of int of shape (n_images,)
        Number of levels, from the coarsest on, at which the predicted class is right.

    Examples
    --------
    >>> held = HeldOut(np.array([[0.9, 0.6], [0.8, 0.3]]), np.array([2, 1]))
    >>> held.right_at_levels().tolist(), held.stops(0.5).tolist()
    ([2, 1], [[0, 0], [1, 1], [1, 1]])
    """

    scores: npt.NDArray[np.float64]
    n_right: npt.NDArray[np.int64]

    def right_at_levels(self) -> npt.NDArray[np.int64]:
        """Return how many images have the right class at each level."""
        levels = np.arange(1, self.scores.shape[1] + 1)
        return (self.n_right[:, None] >= levels).sum(axis=0)

    def stops(self, threshold: float) -> npt.NDArray[np.int64]:
        """Return where hedged predictions stop, shape (n_levels + 1, 2).

        Parameters
        ----------
        threshold : float
            Least probability of a prediction.

        Returns
        -------
        stops : ndarray of int
            Number of images that stop at each level, and how many of these are right. The first
            row counts images about which nothing is said, which is never wrong.
        """
        depth = (self.scores >= threshold).sum(axis=1)
        n_rows = self.scores.shape[1] + 1
        n_right = np.bincount(depth[depth <= self.n_right], minlength=n_rows)
        return np.stack([np.bincount(depth, minlength=n_rows), n_right], axis=1)


@dataclass(frozen=True, eq=False)
class ModelCard:
    """Notes of the command line about a model.

    Parameters
    ----------
    needed : ndarray of float of shape (n_calibration,), default=empty
        Thresholds that held-out images needed for a right hedged prediction, sorted.
    trained_on, calibrated_on : ndarray of uint64, default=empty
        Hashes of the contents of the images of the fit, and of those that were held out.
    notes : dict of str to str, default={}
        What a person may want to know: name of the data, numbers of images, columns.
    held_out : HeldOut, default=None
        How predictions on the held-out images went; None if that was not recorded.

    Examples
    --------
    >>> card = ModelCard(needed=np.array([0.0, 0.4]), notes={"data": "birds"})
    >>> card.notes["data"], card.trained_on.size
    ('birds', 0)
    """

    needed: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    trained_on: Hashes = field(default_factory=_no_hashes)
    calibrated_on: Hashes = field(default_factory=_no_hashes)
    notes: dict[str, str] = field(default_factory=dict)
    held_out: HeldOut | None = None

    @property
    def counts_subjects(self) -> bool:
        """Whether the hedge was set on subjects, with one vote each, and not on images."""
        return self.notes.get("hedge set on", "").startswith(f"{self.needed.size} subjects ")

    @property
    def hedge_size(self) -> str:
        """How many images, or subjects, set the hedge, such as "40 subjects"."""
        return f"{self.needed.size} {'subjects' if self.counts_subjects else 'images'}"


def read_card(path: str | os.PathLike[str]) -> ModelCard:
    """Return the card of a model file; an empty one where it has none.

    Parameters
    ----------
    path : path
        The model file.
    """
    place = repr(os.fspath(path))
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no model file {place}.")
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            text = (file.metadata() or {}).get(_KEY)
    except SafetensorError as error:
        raise ValueError(
            f"{place} is not a safetensors file or is damaged ({error}). Copy or save it again."
        ) from error
    if text is None:
        return ModelCard()
    try:
        return _decode(json.loads(text))
    except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as why:
        raise ValueError(
            f"The card in {place} is damaged ({why}). Write it again with skh2edl calibrate."
        ) from why


def write_card(path: str | os.PathLike[str], card: ModelCard) -> None:
    """Put a card into a model file, in place of the one it has; the model stays as it is.

    Parameters
    ----------
    path : path
        The model file, replaced only when the new one is complete.
    card : ModelCard
        What to write.
    """
    with Path(path).open("rb") as source:
        write_atomically(Path(path), lambda file: copy_with_card(source, file, card))


def copy_with_card(source: BinaryIO, file: BinaryIO, card: ModelCard) -> None:
    """Copy a model file and put a card into the copy.

    Parameters
    ----------
    source, file : binary file
        The model file, and the one to write.
    card : ModelCard
        What to write.
    """
    (length,) = struct.unpack("<Q", source.read(8))
    header = json.loads(source.read(length))
    header.setdefault("__metadata__", {})[_KEY] = json.dumps(_encode(card))
    text = json.dumps(header, separators=(",", ":")).encode()
    # Tensors begin at a multiple of 8, as the library writes them.
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER:
        raise ValueError(
            f"The card would take {len(text)} bytes, and the header of a model file holds "
            f"{_MAX_HEADER}. Keep fewer hashes."
        )
    file.write(struct.pack("<Q", len(text)))
    file.write(text)
    shutil.copyfileobj(source, file, 1 << 20)


def _encode(card: ModelCard) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "needed": card.needed.tolist(),
        "trained_on": _pack(card.trained_on),
        "calibrated_on": _pack(card.calibrated_on),
        "notes": card.notes,
        "held_out": None
        if card.held_out is None
        else {"scores": card.held_out.scores.tolist(), "n_right": card.held_out.n_right.tolist()},
    }


def _decode(record: Any) -> ModelCard:
    if record["format"] != _FORMAT:
        raise ValueError(f"it has format {shown(record['format'])}, and this reads {_FORMAT}")
    needed = np.asarray(record["needed"], dtype=np.float64)
    if needed.ndim != 1 or not np.isfinite(needed).all() or (np.diff(needed) < 0).any():
        raise ValueError("its thresholds are no sorted list of numbers")
    notes = record["notes"]
    if not all(isinstance(item, str) for pair in notes.items() for item in pair):
        raise ValueError(f"its notes are {shown(notes)}, not texts")
    wanted = {each.name for each in fields(ModelCard)} | {"format"}
    if record.keys() | {"held_out"} != wanted:
        raise ValueError(f"it holds {shown(sorted(record))}, not {sorted(wanted)}")
    return ModelCard(
        needed,
        _unpack(record["trained_on"]),
        _unpack(record["calibrated_on"]),
        dict(notes),
        _decode_held_out(record.get("held_out")),
    )


def _decode_held_out(record: Any) -> HeldOut | None:
    if record is None:
        return None
    scores = np.asarray(record["scores"], dtype=np.float64)
    n_right = np.asarray(record["n_right"])
    if (
        scores.ndim != 2
        or not (scores >= 0).all()
        or n_right.shape != scores.shape[:1]
        or n_right.dtype.kind != "i"
        or not ((n_right >= 0) & (n_right <= scores.shape[1])).all()
    ):
        raise ValueError("its record of held-out images is damaged")
    return HeldOut(scores, n_right)


def _pack(hashes: Hashes) -> str:
    return base64.b64encode(np.unique(hashes).astype("<u8").tobytes()).decode("ascii")


def _unpack(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u8").astype(np.uint64)
