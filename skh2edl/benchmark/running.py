"""Run experiments and write their records: resumable, in parallel, one failure stops no other."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from ..utils.files import write_atomically
from .corruptions import uncertainty_under_corruption
from .records import Experiment, PeakMemory, record_path, versions, write_record

# Test images that are blurred and hidden, evenly spaced: each needs thirteen predictions.
_MAX_CORRUPTED = 200
# Candidates are chosen twice: without calibration, and after it.
SCORES = ("nll", "nll_calibrated")
# Inputs and labels by the name of the split.
Parts = Mapping[str, tuple[Any, Any]]


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

    A record is written whole or not at all and never replaced, so calling again resumes an
    interrupted run; training in epochs resumes after its last epoch. An experiment that fails
    leaves its traceback in the folder ``errors`` and does not stop the others; the next call
    tries it again.

    Parameters
    ----------
    experiments : iterable of Experiment
        The experiments, all on one data set.
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
        Experiments at the same time, as in joblib. Inside ``joblib.parallel_config("dask")``
        they run on the cluster.
    verbose : int, default=1
        Whether to show a progress bar.

    Returns
    -------
    paths : list of Path
        The record of each experiment.

    Raises
    ------
    ExperimentError
        If any failed, after all others are done.

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
    """Compute the features of all images with a frozen network.

    Parameters
    ----------
    data : LabelledImages
        The images.
    backbone, weights : str and path
        As in :class:`~skh2edl.ImageFeatureExtractor`.
    cache : path, default=None
        Folder where the features are stored for the next call; None stores nothing.
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
    path = Path(cache or "") / f"{data.name}-{backbone}-{Path(str(weights)).stem}.npy"
    if cache is not None and path.exists():
        features = np.load(path)
        if len(features) != len(data):
            raise ValueError(
                f"{path} holds features of {len(features)} images and the data have {len(data)}. "
                "Remove the file, or name another cache."
            )
        return features
    extractor = ImageFeatureExtractor(backbone, weights=weights, verbose=verbose)
    features = extractor.fit_transform(data.source)
    if cache is not None:
        write_atomically(path, lambda file: np.save(file, features))
    return features


def _check(
    experiments: list[Experiment], data: LabelledImages, features: Mapping[str, Any]
) -> None:
    if others := sorted({each.dataset for each in experiments} - {data.name}):
        raise ValueError(
            f"the experiments are about {others} and the data are {data.name!r}. Run the "
            "experiments of each data set apart."
        )
    named = {each.features for each in experiments if each.features}
    if missing := sorted(named - set(features)):
        raise ValueError(
            f"features must hold those of {missing}, and holds {sorted(features)}. Compute them "
            "with frozen_features_of."
        )
    if wrong := {name: len(rows) for name, rows in features.items() if len(rows) != len(data)}:
        raise ValueError(
            f"features must have one row for each of the {len(data)} images, got {wrong}."
        )
    if empty := [part for part, n in data.counts.items() if n == 0]:
        raise ValueError(
            f"the data have no images in {empty}, and an experiment needs train, val and test. "
            "Use LabelledImages.resplit."
        )


def _is_done(experiment: Experiment, data: LabelledImages, records: str | os.PathLike[str]) -> bool:
    path = record_path(records, experiment)
    if not path.exists():
        return False
    record = json.loads(path.read_text(encoding="utf-8"))
    tree = data.taxonomy
    nodes = [tree.nodes_at_depth(depth).size for depth in range(1, tree.n_levels + 1)]
    recorded = [figures["classes"] for row, figures in record["test"].items() if row != "tree"]
    if record["data"] != _content_hash(data) or recorded != nodes:
        raise ValueError(
            f"{path} was made with other images, labels, splits or levels of {data.name!r} than "
            "these. A record is never overwritten: name another folder for the records."
        )
    return True


def _content_hash(data: LabelledImages) -> str:
    """Hash the ids, labels and splits of the images."""
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
    """Run one experiment; return its name, and the error if it failed."""
    path, trouble = record_path(records, experiment), records / "errors" / f"{experiment.name}.txt"
    if path.exists():  # another run has written it since this one began
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
        with contextlib.suppress(OSError):  # not empty: other experiments use it
            folder.rmdir()
    return experiment.name, None


def run_experiment(
    experiment: Experiment,
    data: LabelledImages,
    features: npt.NDArray[Any] | None = None,
    machine: Mapping[str, Any] | None = None,
    checkpoints: Path | None = None,
) -> dict[str, Any]:
    """Fit and calibrate candidates, choose on the validation images, score once on the test images.

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
        Folder for checkpoints of training in epochs; None writes none.

    Returns
    -------
    record : dict
    """
    started, memory = time.perf_counter(), PeakMemory()
    parts = _split(experiment, data, features)

    def fit(values: Mapping[str, Any], number: int) -> Candidate:
        clf = _classifier(experiment, data.taxonomy, values, machine or {})
        if experiment.epochs is not None and checkpoints is not None:
            clf.set_params(hardware__checkpoint_dir=checkpoints / str(number))
        return fit_candidate(clf, parts, values)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        candidates = fit_grid([dict(values) for values in experiment.grid], fit)
        # Penalty and calibration are chosen together, for every method alike.
        plain, calibrated = (best(candidates, score) for score in SCORES)
        reports, predict_seconds = _reports(plain.fitted, calibrated.calibrated, parts)
        # The records name this block "doubt".
        reports["doubt"] = _uncertainty(plain.fitted, *parts["test"])
        if features is None:
            reports["corruption"] = _corruption(plain.fitted, parts["test"][0])
    return {
        "experiment": experiment.to_dict(),
        "data": _content_hash(data),
        "chosen": plain.summary["parameters"],
        "chosen_calibrated": calibrated.summary["parameters"],
        "calibration": calibrated.summary["calibration"],
        "candidates": [candidate.summary for candidate in candidates],
        **reports,
        "history": dict(plain.fitted.history_),
        "best_epoch": getattr(plain.fitted, "best_epoch_", None),
        "n_images": {part: len(y) for part, (_, y) in parts.items()},
        "warnings": sorted({f"{w.category.__name__}: {w.message}" for w in caught}),
        "seconds": {
            "fit": round(plain.summary["seconds"], 3),
            "predict": round(predict_seconds, 3),
            "all": round(time.perf_counter() - started, 3),
        },
        "peak_memory_mib": memory.mebibytes(),
        "versions": versions(),
    }


# Steps of one experiment -------------------------------------------------------------------------


def _split(experiment: Experiment, data: LabelledImages, features: Any) -> Parts:
    """Return inputs and labels of the splits, those of the training images as they are used."""
    X: Any = data.source if features is None else features
    places = {part: np.flatnonzero(data.split == part) for part in ("train", "val", "test")}
    if experiment.train_share < 1:
        nodes = data.taxonomy.resolve(data.labels[places["train"]])
        kept, _ = split_validation(nodes, None, 1 - experiment.train_share, experiment.seed)
        places["train"] = np.sort(places["train"][kept])
    parts = {part: (X[place], data.labels[place]) for part, place in places.items()}
    X_train, y_train = parts["train"]
    coarse = coarsen_labels(
        y_train.tolist(),
        data.ids[places["train"]].tolist(),
        experiment.coarse_fraction,
        experiment.coarse_level,
        data.taxonomy,
    )
    return parts | {"train": (X_train, coarse)}


def _classifier(
    experiment: Experiment, taxonomy: Any, values: Mapping[str, Any], machine: Mapping[str, Any]
) -> Any:
    name = experiment.classifier
    if name not in MODEL_CLASSES:
        raise ValueError(f"classifier must be one of {sorted(MODEL_CLASSES)}, got {name!r}.")
    parameters = {**dict(experiment.parameters), **values, "random_state": experiment.seed}
    if experiment.features is not None:
        parameters["backbone"] = None
        machine = {key: value for key, value in machine.items() if key != "weights"}
    elif experiment.weights in (None, "pretrained"):
        parameters["weights"] = experiment.weights
    elif Path(machine.get("weights", "")).stem != experiment.weights:
        raise ValueError(
            f"the experiment starts from the weights {experiment.weights!r}: say where they are, "
            f"machine={{'weights': '.../{experiment.weights}.safetensors'}}."
        )
    if experiment.epochs is not None:
        parameters |= {"max_epochs": experiment.epochs, "solver": "adamw"}
    return MODEL_CLASSES[name](taxonomy).set_params(**{**parameters, **machine})


def _reports(plain: Any, calibrated: Any, parts: Parts) -> tuple[dict[str, Any], float]:
    """Score the chosen models on the test images; return the blocks of the record.

    The second value is how many seconds the plain model takes.
    """
    started = time.perf_counter()
    reports: dict[str, Any] = {"test": _report(plain, *parts["test"])}
    seconds = time.perf_counter() - started
    reports["test_calibrated"] = _report(calibrated, *parts["test"])
    if calibrated.method_ == "evidence":
        tempered = CalibratedTreeClassifier(FrozenEstimator(plain), method="temperature")
        tempered.fit(*parts["val"])
        reports["temperature"] = tempered.temperature_
        reports["test_temperature"] = _report(tempered, *parts["test"])
    return reports, seconds


def _report(clf: Any, X: Any, y: Any) -> Any:
    return metrics.hierarchical_report(y, clf.predict_proba(X), clf.taxonomy_, output_dict=True)


def _uncertainty(clf: Any, X: Any, y: Any) -> dict[str, Any]:
    """Return how uncertain the model is, and how well that tells wrong from right predictions."""
    proba = clf.predict_proba(X)
    measures = {"confidence": 1 - proba.max(axis=1)}
    figures: dict[str, Any] = {}
    if hasattr(clf, "predict_hyper_opinion"):
        opinion = clf.predict_hyper_opinion(X)
        measures["nonspecificity"] = opinion.nonspecificity
        figures["depth_profile"] = opinion.depth_profile.mean(axis=0).tolist()
    elif hasattr(clf, "predict_opinion"):
        measures["vacuity"] = clf.predict_opinion(X)[1]
    elif hasattr(clf, "predict_variance"):
        measures["variance"] = clf.predict_variance(X).sum(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # the record holds the NaN
        for name, values in measures.items():
            figures[name] = float(values.mean())
            auroc = metrics.error_auroc(y, proba, values, clf.taxonomy_)
            figures[f"{name}_error_auroc"] = auroc
    return figures


def _corruption(clf: Any, source: Any) -> dict[str, Any]:
    """Return how uncertain the model is about more and more corrupted images."""
    step = -(-len(source) // _MAX_CORRUPTED)
    pictures = [np.asarray(source.read(position)) for position in range(0, len(source), step)]

    def uncertainty(images: Any) -> Any:
        if hasattr(clf, "predict_hyper_opinion"):
            return clf.predict_hyper_opinion(images).nonspecificity
        return 1 - clf.predict_proba(images).max(axis=1)

    return uncertainty_under_corruption(uncertainty, pictures)


# Candidates of one experiment ---------------------------------------------------------------------


class Candidate(NamedTuple):
    """A fitted model, the calibrated model, and their scores on the validation images."""

    fitted: Any
    calibrated: Any
    summary: dict[str, Any]


def best(candidates: Sequence[Candidate], score: str) -> Candidate:
    """Return the candidate with the lowest score."""
    return min(candidates, key=lambda candidate: candidate.summary[score])


def fit_grid(
    grid: Sequence[Mapping[str, Any]], fit: Callable[[Mapping[str, Any], int], Candidate]
) -> list[Candidate]:
    """Fit every candidate, and drop the models that no score chooses.

    Parameters
    ----------
    grid : sequence of mappings
        Parameters of the candidates; an empty grid means one candidate without any.
    fit : callable
        Called with the parameters and the number of the candidate.

    Returns
    -------
    candidates : list of Candidate
        In the order of the grid.
    """
    candidates: list[Candidate] = []
    for number, values in enumerate(grid or [{}]):
        candidates.append(fit(values, number))
        kept = [id(best(candidates, score)) for score in SCORES]
        candidates = [
            each if id(each) in kept else each._replace(fitted=None, calibrated=None)
            for each in candidates
        ]
    return candidates


def fit_candidate(
    clf: Any, parts: Mapping[str, tuple[Any, Any]], values: Mapping[str, Any]
) -> Candidate:
    """Fit and calibrate a classifier, and score both on the validation images.

    Parameters
    ----------
    clf : TreeClassifier
        The classifier.
    parts : mapping
        Inputs and labels by the name of their split, "train" and "val".
    values : mapping
        Parameters that distinguish the candidate, for the record.
    """
    X_val, y_val = parts["val"]
    started = time.perf_counter()
    clf.fit(*parts["train"], X_val=X_val, y_val=y_val)
    seconds = time.perf_counter() - started
    calibrated = CalibratedTreeClassifier(FrozenEstimator(clf)).fit(X_val, y_val)
    tree, proba = clf.taxonomy_, clf.predict_proba(X_val)
    factor = "evidence_scale" if calibrated.method_ == "evidence" else "temperature"
    summary = {
        "parameters": dict(values),
        "accuracy": metrics.level_accuracy(y_val, proba, tree),
        "balanced_accuracy": metrics.level_balanced_accuracy(y_val, proba, tree),
        "ece": metrics.level_ece(y_val, proba, tree),
        "nll": metrics.level_nll(y_val, proba, tree),
        "nll_calibrated": metrics.level_nll(y_val, calibrated.predict_proba(X_val), tree),
        "calibration": {
            "method": calibrated.method_,
            factor: float(getattr(calibrated, f"{factor}_")),
        },
        "n_iter": int(clf.n_iter_),
        "seconds": round(seconds, 3),
    }
    return Candidate(clf, calibrated, summary)
