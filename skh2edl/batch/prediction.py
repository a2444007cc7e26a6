"""Answers for more images than one machine would like to read: Parquet parts, each done once."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Sequence
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
from ..estimators.wrapping import find_taxonomy, has_opinions, leaf_log_probability, read_opinion
from ..images import BadImageError, image_source
from ..taxonomy.names import shown
from ..taxonomy.taxonomy import Taxonomy
from ..utils.files import write_atomically
from ..utils.hashing import hash_values, hash_weights
from ..utils.optional import import_optional

__all__ = ["BatchReport", "predict_folder", "predict_table"]

_FORMAT = 1
_JOB = "job.json"
# Where and how fast an estimator computes; a restart may be elsewhere.
_NOT_IN_ANSWERS = {
    "checkpoint_dir",
    "hardware",
    "history_",
    "memory",
    "n_workers",
    "on_bad_image",
    "verbose",
}


@dataclass(frozen=True)
class BatchReport:
    """What :func:`predict_table` did.

    Parameters
    ----------
    out : Path
        Folder of the parts.
    n_images, n_parts : int
        How many there are.
    n_parts_before : int
        Parts that an earlier call had finished.
    n_unreadable : int
        Images without an answer, in all parts.

    Examples
    --------
    >>> BatchReport(Path("answers"), 1500, 2, 1, 0).n_parts_before
    1
    """

    out: Path
    n_images: int
    n_parts: int
    n_parts_before: int
    n_unreadable: int


@dataclass(frozen=True)
class _Work:
    """What every partition needs; sent to each worker once."""

    model: Any
    hedged: Any
    taxonomy: Taxonomy
    root: str
    out: str
    job: str


def predict_folder(
    model: Any,
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    **options: Any,
) -> BatchReport:
    """Write what a classifier says of every image below a folder.

    Hidden files and folders, links, and files that are no images are passed over.

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
    >>> predict_folder(None, "no-such-folder", "answers")
    Traceback (most recent call last):
    NotADirectoryError: There is no folder 'no-such-folder' to read images from.
    """
    top = Path(folder)
    if not top.is_dir():
        raise NotADirectoryError(f"There is no folder {os.fspath(folder)!r} to read images from.")
    paths = list(_images_below(top))
    if not paths:
        raise FileNotFoundError(f"There is no image below {os.fspath(folder)!r}.")
    return predict_table(model, paths, out, root=top, **options)


def _images_below(top: Path) -> Iterator[str]:
    from PIL import Image

    Image.init()  # fills the table of extensions
    waiting = [top]
    while waiting:
        inner = []
        with os.scandir(waiting.pop()) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            # A link may lead out of the folder or around in a circle.
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            path = Path(entry.path)
            if entry.is_dir():
                inner.append(path)
            elif path.suffix.lower() in Image.EXTENSION:
                yield path.relative_to(top).as_posix()
        waiting += reversed(inner)


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
    """Write what a classifier says of many images, as one Parquet file for each partition.

    A part appears when it is complete. The same call after a fault computes only the parts that
    are missing; one with another model, other paths or another partition size is refused.

    Parameters
    ----------
    model : classifier or path
        Fitted, or the file of one that was saved. It reads images.
    paths : sequence of paths, DataFrame, or path of a table
        The images: their paths, or a column of paths in a DataFrame, a ``.csv`` or a ``.parquet``
        file or folder.
    out : path
        Folder of the parts, made if it does not exist; all workers must reach it.
    root : path, default=None
        What relative paths are relative to. None is the current folder.
    column : str, default="path"
        Name of the column of paths in a table.
    partition_size : int, default=1024
        Images of a part.
    hedged : classifier, default=None
        A fitted :class:`HedgedClassifier`, or anything with `predict_frame` or `predict`, whose
        answers are written too. One around `model` costs no second look at the images.
    client : distributed.Client, default=None
        Whose workers compute; the model travels to each of them once. None computes here.

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
    ...         clf, ["a.png", "b.png", "c.png"], f"{folder}/answers", root=folder, partition_size=2
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
        "model": _hash_model(model),
        "hedged classifier": None if hedged is None else _hash_model(hedged),
        "paths": hash_values(listed),
        "partition size": int(partition_size),
        "n_images": len(listed),
        "versions": versions(),
    }
    folder = Path(out)
    _claim(folder, job)
    work = _Work(
        model=_strict(model),
        hedged=hedged,
        taxonomy=find_taxonomy(model),
        root=os.fspath(Path.cwd() if root is None else Path(root).absolute()),
        out=os.fspath(folder.absolute()),
        job=_job_key(job),
    )
    parts = {
        number: listed[start : start + partition_size]
        for number, start in enumerate(range(0, len(listed), partition_size))
    }
    missing = [number for number in parts if not _is_done(work, number)]
    _run(work, {number: parts[number] for number in missing}, client)
    return BatchReport(
        out=folder,
        n_images=len(listed),
        n_parts=len(parts),
        n_parts_before=len(parts) - len(missing),
        n_unreadable=sum(_count_errors(work, number) for number in parts),
    )


def _read_paths(paths: Any, column: str) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        table = Path(paths)
        if table.suffix.lower() == ".csv":
            csv = import_optional("pyarrow.csv", extra="parquet")
            paths = csv.read_csv(table)
        elif table.suffix.lower() == ".parquet" or table.is_dir():
            parquet = import_optional("pyarrow.parquet", extra="parquet")
            paths = parquet.read_table(table, columns=[column])
        else:
            raise ValueError(
                f"paths={os.fspath(paths)!r} must be a .csv file, a .parquet file or a folder of "
                "them; for a folder of images use predict_folder."
            )
        if column not in paths.column_names:
            raise ValueError(
                f"{os.fspath(table)!r} has the columns {shown(paths.column_names)}, not {column!r}."
            )
        listed = paths.column(column).to_pylist()
    elif hasattr(paths, "columns"):
        if column not in paths.columns:
            raise ValueError(f"paths has the columns {shown(list(paths.columns))}, not {column!r}.")
        listed = paths[column].tolist()
    else:
        listed = list(paths)
    wrong = [item for item in listed if not isinstance(item, (str, os.PathLike))]
    if wrong:
        raise TypeError(
            f"paths holds {len(wrong)} value(s) that are no path, first {shown(wrong[0])}."
        )
    return [os.fspath(item) for item in listed]


# The job: what belongs together ------------------------------------------------------------------


def _claim(folder: Path, job: dict[str, Any]) -> None:
    """Say in the folder what it is for, or check that it is for the same."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _JOB
    if not path.exists():
        if left := sorted(folder.glob("part-*.parquet")):
            raise ValueError(
                f"{folder} holds {len(left)} part(s), first {left[0].name}, and no {_JOB} that "
                "says of what. Give another folder, or remove them."
            )
        text = json.dumps(job, indent=2).encode()
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
            f"{folder} holds the answers of another call: other {', '.join(differing)}. Repeat "
            "that call to finish it, or give another folder."
        )


def _job_key(job: dict[str, Any]) -> str:
    return hash_values({key: value for key, value in job.items() if key != "versions"})


def _hash_model(model: Any) -> str:
    return hash_values(_describe(model))


def _describe(value: Any) -> Any:
    """Give what a fitted estimator answers with as plain values, the same in every process."""
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
            if name not in _NOT_IN_ANSWERS
        }
        return [type(value).__name__, learnt]
    return type(value).__name__


def _strict(model: Any) -> Any:
    """Let an unreadable image be an error, which is then noted with its reason."""
    if getattr(model, "on_bad_image", "error") == "error":
        return model
    strict = copy.copy(model)
    strict.on_bad_image = "error"
    return strict


# One partition -----------------------------------------------------------------------------------


def _part_path(work: _Work, number: int) -> Path:
    return Path(work.out) / f"part-{number:05d}.parquet"


def _is_done(work: _Work, number: int) -> bool:
    path = _part_path(work, number)
    if not path.exists():
        return False
    note = _read_note(path)
    if note.get("job") != work.job:
        raise ValueError(
            f"{path} is not a part of this job. Give another folder, or remove the file."
        )
    return True


def _read_note(path: Path) -> dict[str, Any]:
    parquet = import_optional("pyarrow.parquet", extra="parquet")
    arrow = import_optional("pyarrow", extra="parquet")
    try:
        note: dict[str, Any] = json.loads(parquet.read_metadata(path).metadata[b"skh2edl"])
    except (arrow.ArrowInvalid, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}). Remove the file.") from error
    return note


def _count_errors(work: _Work, number: int) -> int:
    return int(_read_note(_part_path(work, number))["n_unreadable"])


def _run(work: _Work, parts: dict[int, list[str]], client: Any) -> None:
    if client is None:
        for number, paths in parts.items():
            _write_part(work, number, paths)
        return
    if not parts:
        return
    shared = client.scatter(work, broadcast=True, hash=False)
    futures = {
        number: client.submit(_write_part, shared, number, paths, pure=False)
        for number, paths in parts.items()
    }
    failed = {}
    # All of them, so that a next call has only those to repeat that cannot be done.
    for number, future in futures.items():
        if (error := future.exception()) is not None:
            failed[number] = error
    if failed:
        first = min(failed)
        raise RuntimeError(
            f"{len(failed)} of {len(parts)} partitions failed, first number {first}: "
            f"{type(failed[first]).__name__}: {failed[first]}. The others are written; the same "
            "call repeats the failed ones."
        ) from failed[first]


def _write_part(work: _Work, number: int, paths: Sequence[str]) -> None:
    arrow = import_optional("pyarrow", extra="parquet")
    parquet = import_optional("pyarrow.parquet", extra="parquet")
    files = [os.path.join(work.root, path) for path in paths]
    errors: list[str | None] = [None] * len(files)
    try:
        answers, names = _answer(work, files)
    except BadImageError:
        source = image_source(files)
        errors = [_reading_error(source, position) for position in range(len(files))]
        good = [file for file, error in zip(files, errors, strict=True) if error is None]
        answers, names = _answer(work, good)
    rows = np.cumsum([error is None for error in errors]) - 1
    columns = {
        "path": arrow.array([_printable(path) for path in paths], arrow.string()),
        "error": arrow.array([error and _printable(error) for error in errors], arrow.string()),
    }
    for name, values in answers.items():
        columns[name] = arrow.array(
            [
                None if error is not None else values[row]
                for row, error in zip(rows.tolist(), errors, strict=True)
            ],
            _arrow_type(arrow, values),
        )
    note = {
        "job": work.job,
        "n_unreadable": sum(error is not None for error in errors),
        "entries": names,
    }
    table = arrow.table(columns).replace_schema_metadata({"skh2edl": json.dumps(note)})
    path = _part_path(work, number)
    write_atomically(path, lambda file: parquet.write_table(table, file))


def _reading_error(source: Any, position: int) -> str | None:
    try:
        source.read(position)
    except BadImageError as error:
        return str(error)
    return None


def _arrow_type(arrow: Any, values: npt.NDArray[Any]) -> Any:
    if values.dtype == object or values.dtype.kind == "U":
        return arrow.string()
    kind = arrow.from_numpy_dtype(values.dtype)
    return arrow.list_(kind) if values.ndim == 2 else kind


class _OnePass(BaseEstimator):
    """Stands for a classifier whose answers for one X are known, in another classifier.

    Parameters
    ----------
    model : classifier
        Whose answers they are.
    taxonomy : Taxonomy
        Its tree.
    X : list of paths
        Looked at once.
    """

    def __init__(self, model: Any, taxonomy: Taxonomy, X: Any) -> None:
        self.model, self.taxonomy, self.X = model, taxonomy, X
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
        """Return the known logarithms."""
        return self.log_leaves[:, self.taxonomy.leaf_order]

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """Return the known probabilities."""
        return np.exp(self.predict_log_proba(X))


def _answer(work: _Work, files: list[Any]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the columns, and the names of what is in their lists."""
    tree = work.taxonomy
    if not files:  # the same columns, without rows
        columns, names = _answer(work, [np.zeros((32, 32, 3), dtype=np.uint8)])
        return {name: values[:0] for name, values in columns.items()}, names
    known = _OnePass(work.model, tree, files)
    leaves = np.exp(known.log_leaves.astype(np.float64))
    best = leaves.argmax(axis=1)
    columns = {
        "leaf": _texts(np.asarray(tree.leaves, dtype=object)[best]),
        "leaf_probability": leaves[np.arange(len(best)), best].astype(np.float32),
    }
    names = {}
    for depth in range(1, tree.n_levels + 1):
        title = tree.level_names[depth - 1] if tree.level_names else str(depth)
        nodes = tree.level_nodes(depth)
        proba = np.add.reduceat(leaves, tree.leaf_start[nodes], axis=1).astype(np.float32)
        labels = _texts(tree.labels(nodes))
        columns[f"node_{title}"] = labels[proba.argmax(axis=1)]
        columns[f"probability_{title}"] = proba
        names[f"probability_{title}"] = labels.tolist()
    if known.opinion is not None:
        columns["vacuity"] = np.asarray(known.opinion.vacuity, dtype=np.float32)
        columns["depth_profile"] = np.asarray(known.opinion.depth_profile, dtype=np.float32)
        columns["nonspecificity"] = np.asarray(known.opinion.nonspecificity, dtype=np.float32)
        names["vacuity"] = [tree.separator.join(map(str, path)) for path in tree.branching]
        names["depth_profile"] = list(range(columns["depth_profile"].shape[1]))
    if work.hedged is not None:
        columns |= _hedge(work, known, files)
    return columns, names


def _hedge(work: _Work, known: _OnePass, files: list[str]) -> dict[str, npt.NDArray[Any]]:
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


def _printable(text: str) -> str:
    """Write a file name that is no text in a form that is."""
    return text.encode("utf-8", "backslashreplace").decode()


def _texts(labels: Any) -> npt.NDArray[np.object_]:
    texts = np.empty(len(labels), dtype=object)
    texts[:] = [str(label) for label in labels]
    return texts
