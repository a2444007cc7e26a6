"""Predict many images in parts: each part is one Parquet file, and an interrupted job resumes."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from torch import nn

from ..estimators.model_files import load_model, versions
from ..estimators.wrapping import (
    find_taxonomy,
    has_opinions,
    leaf_log_probability,
    opinion_of,
)
from ..images import BadImageError, image_source
from ..metrics.inputs import level_probabilities
from ..taxonomy.names import shown
from ..taxonomy.taxonomy import Taxonomy
from ..utils.files import printable, write_atomically
from ..utils.folders import walk_images
from ..utils.hashing import hash_values, hash_weights
from ..utils.optional import import_optional

# Of the folder; a release that changes its files counts it up.
_FORMAT = 1
_JOB = "job.json"
# Where and how fast an estimator computes does not change its predictions.
_NOT_IN_PREDICTIONS = {
    "hardware", "history_", "on_bad_image", "verbose",
}  # fmt: skip


@dataclass(frozen=True)
class BatchReport:
    """What :func:`predict_table` did.

    Parameters
    ----------
    out : Path
        Folder of the parts.
    n_images, n_parts : int
        Number of images and of parts.
    n_parts_before : int
        Number of parts that earlier calls had finished.
    n_unreadable : int
        Number of images without a prediction, in all parts.

    Examples
    --------
    >>> BatchReport(Path("parts"), 1500, 2, 1, 0).n_parts_before
    1
    """

    out: Path
    n_images: int
    n_parts: int
    n_parts_before: int
    n_unreadable: int


def predict_folder(
    model: Any,
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    **options: Any,
) -> BatchReport:
    """Predict every image below a folder.

    Hidden files and folders, links, and files that are not images are passed over.

    Parameters
    ----------
    model : classifier or path
        As in :func:`predict_table`.
    folder : path
        The outermost folder. The column `path` is relative to it, with "/" on every system.
    out : path
        As in :func:`predict_table`; not inside `folder`.
    **options
        As in :func:`predict_table`, except `root`.

    Returns
    -------
    report : BatchReport

    Examples
    --------
    >>> predict_folder(None, "no-such-folder", "parts")
    Traceback (most recent call last):
    NotADirectoryError: There is no folder 'no-such-folder' to read images from.
    """
    top = Path(folder)
    if not top.is_dir():
        raise NotADirectoryError(f"There is no folder {os.fspath(folder)!r} to read images from.")
    paths = [
        file.relative_to(top).as_posix()
        for _, files in walk_images(top, linked_files=False)
        for file in files
    ]
    if not paths:
        raise FileNotFoundError(f"There is no image below {os.fspath(folder)!r}.")
    return predict_table(model, paths, out, root=top, **options)


def predict_table(
    model: Any,
    paths: Any,
    out: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    column: str = "path",
    partition_size: int = 1024,
    hedged: Any = None,
    client: Any = None,
) -> BatchReport:
    """Predict many images and write one Parquet file for each partition.

    A part is written when it is complete. After an interruption, the same call computes only the
    missing parts. A call with another model, other paths or another partition size is refused.

    Parameters
    ----------
    model : classifier or path
        A fitted classifier that reads images, or the file of a saved one.
    paths : sequence of paths, DataFrame, or path of a table
        The images: their paths, or a column of paths in a DataFrame, a ``.csv`` or a ``.parquet``
        file or folder.
    out : path
        Folder of the parts, made if it does not exist; all workers must be able to write to it.
    root : path, default=None
        What relative paths are relative to. None is the current folder.
    column : str, default="path"
        Name of the column of paths in a table.
    partition_size : int, default=1024
        Number of images in a part.
    hedged : classifier, default=None
        A fitted :class:`HedgedClassifier`, or anything with `predict_frame` or `predict`, whose
        predictions are written too. One around `model` does not read the images again.
    client : distributed.Client, default=None
        The Dask client whose workers compute; the model is sent to each once. None computes in
        this process.

    Returns
    -------
    report : BatchReport

    Notes
    -----
    Columns: `path`; `error`, why an image could not be read, else null; `leaf` and
    `leaf_probability`; for each level `node_LEVEL` and the list `probability_LEVEL`; of evidential
    classifiers the lists `vacuity` and `depth_profile` and the number `nonspecificity`; `hedged`
    and, from `predict_frame`, `hedged_probability` and more. The file's metadata, under
    ``skh2edl``, is JSON that names the entries of the lists.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from skh2edl import H2EDLClassifier
    >>> from skh2edl.batch import predict_table
    >>> images = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    >>> clf = H2EDLClassifier(
    ...     backbone="test_resnet", weights=None, image_size=32, finetune="head", random_state=0
    ... ).fit(images, ["cat", "dog", "cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in "abc":
    ...         Image.fromarray(images[0]).save(f"{folder}/{name}.png")
    ...     report = predict_table(
    ...         clf, ["a.png", "b.png", "c.png"], f"{folder}/parts", root=folder, partition_size=2
    ...     )
    >>> report.n_parts, report.n_unreadable
    (2, 0)
    """
    import_optional("pyarrow", extra="parquet")
    if isinstance(partition_size, bool) or not isinstance(partition_size, (int, np.integer)):
        raise TypeError(f"partition_size must be an integer, got {shown(partition_size)}.")
    if partition_size < 1:
        raise ValueError(f"partition_size must be 1 or more, got {partition_size}.")
    listed = _read_paths(paths, column)
    if not listed:
        raise ValueError("paths holds no image. Give at least one.")
    if isinstance(model, (str, os.PathLike)):
        model = load_model(model)
    job = {
        "format": _FORMAT,
        "model": hash_values(_describe(model)),
        "hedged classifier": None if hedged is None else hash_values(_describe(hedged)),
        "paths": hash_values(listed),
        "partition size": int(partition_size),
        "n_images": len(listed),
    }
    folder = Path(out)
    _claim(folder, job)
    model, hedged = _raising([model, hedged], {})
    work = Work(
        model=model,
        hedged=hedged,
        taxonomy=find_taxonomy(model),
        root=os.fspath(Path.cwd() if root is None else Path(root).absolute()),
        out=os.fspath(folder.absolute()),
        job=hash_values(job),
    )
    parts = {
        number: listed[start : start + partition_size]
        for number, start in enumerate(range(0, len(listed), partition_size))
    }
    missing = {number: parts[number] for number in parts if not _is_done(work, number)}
    _run(work, missing, client)
    return BatchReport(
        out=folder,
        n_images=len(listed),
        n_parts=len(parts),
        n_parts_before=len(parts) - len(missing),
        n_unreadable=sum(int(read_note(work, number)["n_unreadable"]) for number in parts),
    )


def _read_paths(paths: Any, column: str) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        table = Path(paths)
        if table.suffix.lower() not in (".csv", ".parquet") and not table.is_dir():
            raise ValueError(
                f"paths={os.fspath(paths)!r} must be a .csv file, a .parquet file or a folder of "
                "them; for a folder of images use predict_folder."
            )
        kind = "csv" if table.suffix.lower() == ".csv" else "parquet"
        rows = import_optional("pyarrow.dataset", extra="parquet").dataset(table, format=kind)
        _check_column(column, rows.schema.names, os.fspath(table))
        listed = rows.to_table(columns=[column]).column(column).to_pylist()
    elif hasattr(paths, "columns"):
        _check_column(column, list(paths.columns), "paths")
        listed = paths[column].tolist()
    else:
        listed = list(paths)
    wrong = [item for item in listed if not isinstance(item, (str, os.PathLike))]
    if wrong:
        raise TypeError(
            f"paths holds {len(wrong)} value(s) that are no path, first {shown(wrong[0])}."
        )
    return [os.fspath(item) for item in listed]


def _check_column(column: str, known: list[str], name: str) -> None:
    if column not in known:
        raise ValueError(f"{name!r} has the columns {shown(known)}, not {column!r}.")


def _claim(folder: Path, job: dict[str, Any]) -> None:
    """Write the job into the folder, or check that the folder is of the same job."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _JOB
    if not path.exists():
        if left := sorted(folder.glob("part-*.parquet")):
            raise ValueError(
                f"{folder} holds {len(left)} part(s), first {left[0].name}, and no {_JOB} that "
                "says of what. Give another folder, or remove them."
            )
        text = json.dumps({**job, "versions": versions()}, indent=2).encode()
        write_atomically(path, lambda file: file.write(text))
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}). Give another folder.") from error
    if version != _FORMAT:
        raise ValueError(
            f"{path} has format {shown(version)}, and this release reads {_FORMAT}. Finish it with "
            f"{shown(found.get('versions'))}, or give another folder."
        )
    differing = [
        name
        for name in ("model", "hedged classifier", "paths", "partition size")
        if found.get(name) != job[name]
    ]
    if differing:
        raise ValueError(
            f"{folder} holds the predictions of another call: other {', '.join(differing)}. Repeat "
            "that call to finish it, or give another folder."
        )


def _describe(value: Any) -> Any:
    """Return what determines the predictions of an estimator, the same in every process."""
    if isinstance(value, nn.Module):
        return [type(value).__name__, hash_weights(value), getattr(value, "choices", dict)()]
    if isinstance(value, Taxonomy):
        return value.to_json()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [_describe(item) for item in value]
    if isinstance(value, dict):
        return [[_describe(key), _describe(item)] for key, item in value.items()]
    if value is None or isinstance(value, (str, bool, int, float, np.number, np.bool_)):
        return repr(value)
    if hasattr(value, "best_estimator_"):
        return _describe(value.best_estimator_)
    is_sklearns = type(value).__module__.startswith("sklearn.")
    if is_sklearns and not isinstance(value, (FrozenEstimator, Pipeline)):
        return joblib.hash(value)
    if isinstance(value, BaseEstimator):
        learnt = {
            name: _describe(item)
            for name, item in sorted(vars(value).items())
            if name not in _NOT_IN_PREDICTIONS
        }
        return [type(value).__name__, learnt]
    return type(value).__name__


def _raising(value: Any, done: dict[int, Any]) -> Any:
    """Return copies of estimators that raise on an unreadable image, so its reason is written."""
    if type(value) in (list, tuple):
        return type(value)(_raising(item, done) for item in value)
    if isinstance(value, BaseEstimator) and id(value) not in done:
        done[id(value)] = own = copy.copy(value)
        for name, item in vars(value).items():
            vars(own)[name] = "error" if name == "on_bad_image" else _raising(item, done)
    return done.get(id(value), value)


def _is_done(work: Work, number: int) -> bool:
    path = part_path(work, number)
    if not path.exists():
        return False
    if read_note(work, number).get("job") != work.job:
        raise ValueError(
            f"{path} is not a part of this job. Give another folder, or remove the file."
        )
    return True


def _run(work: Work, parts: dict[int, list[str]], client: Any) -> None:
    if client is None or not parts:
        for number, paths in parts.items():
            write_part(work, number, paths)
        return
    shared = client.scatter(work, broadcast=True, hash=False)
    futures = {
        number: client.submit(write_part, shared, number, paths, pure=False)
        for number, paths in parts.items()
    }
    # Wait for all, so that the next call repeats only the failed ones.
    errors = {number: future.exception() for number, future in futures.items()}
    failed = {number: error for number, error in errors.items() if error is not None}
    if failed:
        first = min(failed)
        raise RuntimeError(
            f"{len(failed)} of {len(parts)} partitions failed, first number {first}: "
            f"{type(failed[first]).__name__}: {failed[first]}. The others are written; the same "
            "call repeats the failed ones."
        ) from failed[first]


# One part -----------------------------------------------------------------------------------


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
            self.opinion = opinion_of(model, X, taxonomy)
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
