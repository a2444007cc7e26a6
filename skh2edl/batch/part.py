"""The predictions of one part, and its Parquet file."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.frozen import FrozenEstimator

from ..estimators.wrapping import has_opinions, leaf_log_probability, read_opinion
from ..images import BadImageError, image_source
from ..metrics.inputs import level_probabilities
from ..taxonomy.taxonomy import Taxonomy
from ..utils.files import printable, write_atomically
from ..utils.optional import import_optional


@dataclass(frozen=True)
class Work:
    """What every part needs; sent to each worker once.

    Parameters
    ----------
    model, hedged : classifier
        The classifier, and a hedged one or None.
    taxonomy : Taxonomy
        The tree of the classifier.
    root, out : str
        Folder of the images, and folder of the parts.
    job : str
        Hash of the job, written into each part.
    """

    model: Any
    hedged: Any
    taxonomy: Taxonomy
    root: str
    out: str
    job: str


def part_path(work: Work, number: int) -> Path:
    """Return the path of a part."""
    return Path(work.out) / f"part-{number:05d}.parquet"


def read_note(work: Work, number: int) -> dict[str, Any]:
    """Return the metadata of a part that has been written."""
    parquet = import_optional("pyarrow.parquet", extra="parquet")
    arrow = import_optional("pyarrow", extra="parquet")
    path = part_path(work, number)
    try:
        note: dict[str, Any] = json.loads(parquet.read_metadata(path).metadata[b"skh2edl"])
    except (arrow.ArrowInvalid, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}). Remove the file.") from error
    return note


def write_part(work: Work, number: int, paths: Sequence[str]) -> None:
    """Predict the images of a part and write its file.

    Parameters
    ----------
    work : Work
        The classifier and the folders.
    number : int
        Number of the part.
    paths : sequence of str
        Its images, relative to the root.
    """
    arrow = import_optional("pyarrow", extra="parquet")
    parquet = import_optional("pyarrow.parquet", extra="parquet")
    files = [os.path.join(work.root, path) for path in paths]
    errors: list[str | None] = [None] * len(files)
    try:
        predictions, entries = _predict(work, files)
    except BadImageError:
        source = image_source(files)
        errors = [_reading_error(source, position) for position in range(len(files))]
        good = [file for file, error in zip(files, errors, strict=True) if error is None]
        predictions, entries = _predict(work, good)
    columns = {
        "path": arrow.array([printable(path) for path in paths], arrow.string()),
        "error": arrow.array([error and printable(error) for error in errors], arrow.string()),
    }
    for name, values in predictions.items():
        rows = iter(values)
        filled = [next(rows) if error is None else None for error in errors]
        columns[name] = arrow.array(filled, _arrow_type(arrow, values))
    n_unreadable = sum(error is not None for error in errors)
    note = {"job": work.job, "n_unreadable": n_unreadable, "entries": entries}
    table = arrow.table(columns).replace_schema_metadata({"skh2edl": json.dumps(note)})
    write_atomically(part_path(work, number), lambda file: parquet.write_table(table, file))


def _reading_error(source: Any, position: int) -> str | None:
    try:
        source.read(position)
    except BadImageError as error:
        return str(error)
    return None


def _arrow_type(arrow: Any, values: npt.NDArray[Any]) -> Any:
    if values.dtype == object:
        return arrow.string()
    kind = arrow.from_numpy_dtype(values.dtype)
    return arrow.list_(kind) if values.ndim == 2 else kind


class _Known:
    """A classifier whose predictions for the images of one part are already computed.

    It takes the place of the model inside the hedged classifier, so that images are read once.
    """

    def __init__(self, model: Any, taxonomy: Taxonomy, X: Any) -> None:
        self.taxonomy_ = taxonomy
        self.classes_ = taxonomy.sorted_leaf_labels
        self.opinion: Any = None
        if has_opinions(model):
            self.opinion = read_opinion(model, X, taxonomy)
            self.predict_hyper_opinion = lambda X: self.opinion
            self.log_leaves = np.asarray(self.opinion.log_leaf_probability)
        else:
            self.log_leaves = leaf_log_probability(model, X, taxonomy)

    def predict_log_proba(self, X: Any) -> npt.NDArray[Any]:
        return self.log_leaves[:, self.taxonomy_.leaf_order]

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        return np.exp(self.predict_log_proba(X))


def _predict(work: Work, files: list[Any]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the columns, and the names of the entries of list columns."""
    tree = work.taxonomy
    if not files:  # the same columns, without rows
        columns, entries = _predict(work, [np.zeros((32, 32, 3), dtype=np.uint8)])
        return {name: values[:0] for name, values in columns.items()}, entries
    known = _Known(work.model, tree, files)
    leaves = np.exp(known.log_leaves.astype(np.float64))
    best = leaves.argmax(axis=1)
    columns = {
        "leaf": _texts(tree.leaves)[best],
        "leaf_probability": leaves[np.arange(len(best)), best].astype(np.float32),
    }
    entries = {}
    for depth in range(1, tree.n_levels + 1):
        title = tree.level_names[depth - 1] if tree.level_names else str(depth)
        proba = level_probabilities(leaves, tree, depth).astype(np.float32)
        labels = _texts(tree.labels(tree.nodes_at_depth(depth)))
        columns[f"node_{title}"] = labels[proba.argmax(axis=1)]
        columns[f"probability_{title}"] = proba
        entries[f"probability_{title}"] = labels.tolist()
    if known.opinion is not None:
        for name in ("vacuity", "depth_profile", "nonspecificity"):
            columns[name] = np.asarray(getattr(known.opinion, name), dtype=np.float32)
        entries["vacuity"] = [tree.separator.join(map(str, path)) for path in tree.branching]
        entries["depth_profile"] = list(range(columns["depth_profile"].shape[1]))
    if work.hedged is not None:
        columns |= _hedge(work, known, files)
    return columns, entries


def _hedge(work: Work, known: _Known, files: list[str]) -> dict[str, npt.NDArray[Any]]:
    hedged = work.hedged
    inside = getattr(hedged, "estimator_", None)
    inside = inside.estimator if isinstance(inside, FrozenEstimator) else inside
    network = getattr(work.model, "network_", work.model)
    if getattr(inside, "network_", inside) is network:
        hedged = copy.copy(hedged)
        hedged.estimator_ = known
    if not hasattr(hedged, "predict_frame"):
        return {"hedged": _texts(hedged.predict(files))}
    frame = hedged.predict_frame(files)
    columns = {}
    for name in frame.columns:
        values = frame[name].to_numpy()
        title = "hedged" if name == "node" else f"hedged_{name}"
        columns[title] = values if values.dtype.kind in "fiub" else _texts(values)
    return columns


def _texts(labels: Any) -> npt.NDArray[np.object_]:
    return np.array([str(label) for label in labels], dtype=object)
