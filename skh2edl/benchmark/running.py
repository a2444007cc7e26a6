"""From experiments to records: resumable, in parallel, and no failure hides the others."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import traceback
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from tqdm.auto import tqdm

from .. import metrics
from ..datasets import LabelledImages, coarsen_labels
from ..estimators.calibration import CalibratedTreeClassifier
from ..estimators.features import ImageFeatureExtractor
from ..estimators.methods import MODEL_CLASSES
from ..training.selection import split_validation
from .choice import SCORES, Candidate, best, fit_candidate, fit_grid
from .corruptions import uncertainty_under_corruption
from .experiment import Experiment
from .records import PeakMemory, error_path, record_path, versions, write_record

# Test images, evenly chosen, that are blurred and hidden: each takes twelve predictions.
_MAX_CORRUPTED = 200


class ExperimentError(RuntimeError):
    """Some experiments failed; the others are recorded.

    Examples
    --------
    >>> raise ExperimentError("1 of 3 experiments failed")
    Traceback (most recent call last):
    skh2edl.benchmark.running.ExperimentError: 1 of 3 experiments failed
    """


def run_experiments(
    experiments: Iterable[Experiment],
    data: LabelledImages,
    records: str | os.PathLike[str],
    *,
    features: Mapping[str, npt.NDArray[Any]] | None = None,
    machine: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
    verbose: int = 1,
) -> list[Path]:
    """Run the experiments that have no record yet.

    A record appears whole or not at all and is never replaced, so a run that was interrupted
    goes on when it is started again; training in epochs even goes on from its last epoch. An
    experiment that fails leaves its traceback in the folder ``errors`` and does not stop the
    others; it is tried again by the next call.

    Parameters
    ----------
    experiments : iterable of Experiment
        What to run, all on one data set.
    data : LabelledImages
        The data set.
    records : path
        Folder of the records.
    features : mapping of str to ndarray of shape (n_images, n_features), default=None
        Features by the name of their network, in the order of the images; see
        :func:`frozen_features_of`.
    machine : mapping, default=None
        Parameters of the classifiers that belong to this machine and not to the experiment, such
        as ``{"weights": "resnet50.safetensors", "hardware__accelerator": "gpu"}``.
    n_jobs : int, default=None
        Experiments at the same time, as in joblib; inside ``joblib.parallel_config("dask")``
        they go to the cluster.
    verbose : int, default=1
        Whether to show a progress bar.

    Returns
    -------
    paths : list of Path
        The record of each experiment.

    Raises
    ------
    ExperimentError
        At the end, if any failed.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from skh2edl.benchmark import Experiment, read_records, run_experiments
    >>> from skh2edl.datasets import make_glyphs
    >>> data = make_glyphs(600, scripts=("Latin", "Greek"), image_size=8, random_state=0)
    >>> pixels = data.images.reshape(600, -1).astype(np.float32)
    >>> experiment = Experiment(
    ...     "glyphs", "Flat-CE", "FlatCEClassifier", {"max_iter": 20, "tol": 0.1}, features="pixels"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = run_experiments([experiment], data, folder, features={"pixels": pixels}, verbose=0)
    ...     (record,) = read_records(folder)
    >>> sorted(record["test"])
    ['character', 'kind', 'script', 'tree']
    """
    experiments = list(dict.fromkeys(experiments))
    _check(experiments, data, features or {})
    pending = [each for each in experiments if not _is_done(each, data, records)]
    jobs = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
        delayed(_attempt)(
            experiment,
            data,
            None if experiment.features is None else (features or {})[experiment.features],
            Path(records),
            dict(machine or {}),
        )
        for experiment in pending
    )
    failures = []
    with tqdm(total=len(pending), disable=verbose <= 0, unit="experiment") as bar:
        for name, failure in jobs:
            bar.update()
            bar.set_postfix_str(name if failure is None else f"{name}: {failure}")
            if failure is not None:
                failures.append(f"{name}: {failure}")
    if failures:
        raise ExperimentError(
            f"{len(failures)} of {len(pending)} experiments failed, first {failures[:5]}. The "
            f"tracebacks are in {Path(records) / 'errors'}; call again to try these once more."
        )
    return [record_path(records, each) for each in experiments]


def frozen_features_of(
    data: LabelledImages,
    backbone: str,
    *,
    weights: str | os.PathLike[str] | None = "pretrained",
    cache: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> npt.NDArray[np.float32]:
    """Compute the features of all images once.

    Parameters
    ----------
    data : LabelledImages
        The images.
    backbone, weights : str and path
        As in :class:`~skh2edl.ImageFeatureExtractor`.
    cache : path, default=None
        Folder that keeps the features for the next call; None keeps nothing.
    verbose : int, default=1
        Whether to show progress.

    Returns
    -------
    features : ndarray of float32 of shape (n_images, n_features)

    Examples
    --------
    >>> from skh2edl.benchmark import frozen_features_of
    >>> from skh2edl.datasets import make_glyphs
    >>> frozen_features_of(make_glyphs(5), "test_resnet", weights=None, verbose=0).shape
    (5, 96)
    """
    path = None
    if cache is not None:
        path = Path(cache) / f"{data.name}-{backbone}-{Path(str(weights)).stem}.npy"
        if path.exists():
            features = np.load(path)
            if len(features) != len(data):
                raise ValueError(
                    f"{path} holds features of {len(features)} images and the data have "
                    f"{len(data)}. Remove the file, or name another cache."
                )
            return features
    extractor = ImageFeatureExtractor(backbone, weights=weights, verbose=verbose)
    features = extractor.fit_transform(data.source)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{os.getpid()}-{path.name}")
        np.save(partial, features)
        partial.replace(path)
    return features


def _check(
    experiments: list[Experiment], data: LabelledImages, features: Mapping[str, Any]
) -> None:
    others = sorted({each.dataset for each in experiments} - {data.name})
    if others:
        raise ValueError(
            f"the experiments are about {others} and the data are {data.name!r}. Run the "
            "experiments of each data set apart."
        )
    missing = sorted({each.features for each in experiments if each.features} - set(features))
    if missing:
        raise ValueError(
            f"features must hold those of {missing}, and holds {sorted(features)}. Compute them "
            "with frozen_features_of."
        )
    wrong = {name: len(rows) for name, rows in features.items() if len(rows) != len(data)}
    if wrong:
        raise ValueError(
            f"features must have one row for each of the {len(data)} images, got {wrong}."
        )
    empty = [part for part, n in data.counts.items() if n == 0]
    if empty:
        raise ValueError(
            f"the data have no images in {empty}, and an experiment needs train, val and test. "
            "Use LabelledImages.resplit."
        )


def _is_done(experiment: Experiment, data: LabelledImages, records: str | os.PathLike[str]) -> bool:
    path = record_path(records, experiment)
    if not path.exists():
        return False
    if json.loads(path.read_text(encoding="utf-8"))["data"] != _content_hash(data):
        raise ValueError(
            f"{path} was made with other images, labels or splits of {data.name!r} than these. A "
            "record is never overwritten: name another folder for the records."
        )
    return True


def _content_hash(data: LabelledImages) -> str:
    """Hash what the images are called, their labels and their splits."""
    digest = hashlib.blake2b(digest_size=8)
    for values in (data.ids, data.labels, data.split):
        digest.update("\0".join(values.tolist()).encode())
    return digest.hexdigest()


def _attempt(
    experiment: Experiment,
    data: LabelledImages,
    features: npt.NDArray[Any] | None,
    records: Path,
    machine: dict[str, Any],
) -> tuple[str, str | None]:
    """Run one experiment, and return its name and what went wrong."""
    path, trouble = record_path(records, experiment), error_path(records, experiment)
    if path.exists():  # by another run, since this one began
        return experiment.name, None
    checkpoints = records / "checkpoints" / experiment.name
    try:
        write_record(path, run_experiment(experiment, data, features, machine, checkpoints))
    except Exception as error:
        trouble.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(experiment.to_dict()) + "\n\n" + traceback.format_exc()
        trouble.write_text(text, encoding="utf-8")
        return experiment.name, f"{type(error).__name__}: {error}"
    trouble.unlink(missing_ok=True)
    shutil.rmtree(checkpoints, ignore_errors=True)
    for folder in (checkpoints.parent, trouble.parent):
        with contextlib.suppress(OSError):  # others may still be inside
            folder.rmdir()
    return experiment.name, None


def run_experiment(
    experiment: Experiment,
    data: LabelledImages,
    features: npt.NDArray[Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    checkpoints: Path | None = None,
) -> dict[str, Any]:
    """Fit, choose on the validation images, calibrate on them, and score once on test.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    data : LabelledImages
        The images.
    features : ndarray of shape (n_images, n_features), default=None
        Frozen features, if the experiment names some.
    machine : mapping, default=None
        As in :func:`run_experiments`.
    checkpoints : Path, default=None
        Where training in epochs keeps its state; None keeps none.

    Returns
    -------
    record : dict
    """
    started, memory = time.perf_counter(), PeakMemory()
    X: Any = data.source if features is None else features
    rows = {part: np.flatnonzero(data.split == part) for part in ("train", "val", "test")}
    rows["train"] = training_rows(experiment, data, rows["train"])
    y = coarsen_labels(
        data.labels[rows["train"]].tolist(),
        data.ids[rows["train"]].tolist(),
        experiment.coarse_fraction,
        experiment.coarse_level,
        data.taxonomy,
    )
    y_val, y_test = data.labels[rows["val"]], data.labels[rows["test"]]
    parts = {part: X[index] for part, index in rows.items()}

    def fit(values: Mapping[str, Any], number: int) -> Candidate:
        clf = _classifier(experiment, data.taxonomy, dict(values), machine or {})
        if experiment.epochs is not None and checkpoints is not None:
            clf.set_params(checkpoint_dir=checkpoints / str(number))
        return fit_candidate(clf, parts, y, y_val, values)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        candidates = fit_grid([dict(values) for values in experiment.grid], fit)
        # Penalty and calibration are chosen together, for every method alike.
        plain, calibrated = (best(candidates, score) for score in SCORES)
        before = time.perf_counter()
        report = _report(plain.fitted, parts["test"], y_test, data.taxonomy)
        predict_seconds = time.perf_counter() - before
        record: dict[str, Any] = {
            "experiment": experiment.to_dict(),
            "data": _content_hash(data),
            "chosen": dict(plain.summary["parameters"]),
            "chosen_calibrated": dict(calibrated.summary["parameters"]),
            "calibration": calibrated.summary["calibration"],
            "candidates": [candidate.summary for candidate in candidates],
            "test": report,
            "test_calibrated": _report(calibrated.calibrated, parts["test"], y_test, data.taxonomy),
        }
        if calibrated.calibrated.method_ == "evidence":
            tempered = CalibratedTreeClassifier(
                FrozenEstimator(plain.fitted), method="temperature"
            ).fit(parts["val"], y_val)
            record["temperature"] = tempered.temperature_
            record["test_temperature"] = _report(tempered, parts["test"], y_test, data.taxonomy)
        record["doubt"] = _doubt(plain.fitted, parts["test"], y_test, data.taxonomy)
        if features is None:
            record["corruption"] = _corruption(plain.fitted, parts["test"])
    record |= {
        "history": _history(plain.fitted),
        "best_epoch": getattr(plain.fitted, "best_epoch_", None),
        "n_images": {part: len(index) for part, index in rows.items()},
        "warnings": sorted({f"{w.category.__name__}: {w.message}" for w in caught}),
        "seconds": {
            "fit": round(plain.summary["seconds"], 3),
            "predict": round(predict_seconds, 3),
            "all": round(time.perf_counter() - started, 3),
        },
        "peak_memory_mib": memory.mebibytes(),
        "versions": versions(),
    }
    return record


def training_rows(
    experiment: Experiment, data: LabelledImages, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the training images of an experiment: all of them, or the share of its seed."""
    if experiment.train_share == 1:
        return rows
    nodes = data.taxonomy.resolve(data.labels[rows])
    kept, _ = split_validation(nodes, None, 1 - experiment.train_share, experiment.seed)
    return np.sort(rows[kept])


def _classifier(
    experiment: Experiment, taxonomy: Any, values: dict[str, Any], machine: Mapping[str, Any]
) -> Any:
    if experiment.classifier not in MODEL_CLASSES:
        raise ValueError(
            f"classifier must be one of {sorted(MODEL_CLASSES)}, got {experiment.classifier!r}."
        )
    parameters = {**dict(experiment.parameters), **values, "random_state": experiment.seed}
    if experiment.features is not None:
        parameters["backbone"] = None
        machine = {name: value for name, value in machine.items() if name != "weights"}
    elif experiment.weights in (None, "pretrained"):
        parameters["weights"] = experiment.weights
    elif Path(machine.get("weights", "")).stem != experiment.weights:
        raise ValueError(
            f"the experiment starts from the weights {experiment.weights!r}: say where they are, "
            f"machine={{'weights': '.../{experiment.weights}.safetensors'}}."
        )
    if experiment.epochs is not None:
        parameters |= {"max_epochs": experiment.epochs, "solver": "adamw"}
    classifier = MODEL_CLASSES[experiment.classifier](taxonomy)
    return classifier.set_params(**{**parameters, **machine})


def _report(clf: Any, X: Any, y: Any, tree: Any) -> dict[str, dict[str, float]]:
    report = metrics.hierarchical_report(y, clf.predict_proba(X), tree, output_dict=True)
    return {
        row: {name: float(value) for name, value in figures.items()}
        for row, figures in report.items()
    }


def _doubt(clf: Any, X: Any, y: Any, tree: Any) -> dict[str, Any]:
    """Return how much doubt the model states, and how well that tells errors from right answers."""
    proba = clf.predict_proba(X)
    doubts = {"confidence": 1 - proba.max(axis=1)}
    figures: dict[str, Any] = {}
    if hasattr(clf, "predict_hyper_opinion"):
        opinion = clf.predict_hyper_opinion(X)
        doubts["nonspecificity"] = opinion.nonspecificity
        figures["depth_profile"] = [float(share) for share in opinion.depth_profile.mean(axis=0)]
    elif hasattr(clf, "predict_opinion"):
        doubts["vacuity"] = clf.predict_opinion(X)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # a NaN says as much
        for name, values in doubts.items():
            figures[name] = float(values.mean())
            figures[f"{name}_error_auroc"] = metrics.error_auroc(y, proba, values, tree)
    return figures


def _corruption(clf: Any, source: Any) -> dict[str, Any]:
    """Return how uncertain the model is of images that show less and less."""
    step = -(-len(source) // _MAX_CORRUPTED)
    pictures = [np.asarray(source.read(position)) for position in range(0, len(source), step)]
    if hasattr(clf, "predict_hyper_opinion"):
        return uncertainty_under_corruption(
            lambda some: clf.predict_hyper_opinion(some).nonspecificity, pictures
        )
    return uncertainty_under_corruption(lambda some: 1 - clf.predict_proba(some).max(1), pictures)


def _history(clf: Any) -> dict[str, list[Any]]:
    """Return the history of the fit to six digits, without the clock."""
    return {
        name: [float(f"{value:.6g}") if isinstance(value, float) else value for value in values]
        for name, values in clf.history_.items()
    }
