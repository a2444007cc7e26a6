"""Candidates of one experiment: fit a grid of them, and choose on the validation images."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sklearn.frozen import FrozenEstimator

from .. import metrics
from ..estimators.calibration import CalibratedTreeClassifier

# Candidates are chosen twice: without calibration, and after it.
SCORES = ("nll", "nll_calibrated")

# How often a grid is extended beyond each of its ends.
_MAX_STEPS_BEYOND = 3


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
    """Fit every candidate, and extend the grid where the best one is at its end.

    Only a grid of one positive parameter is extended, and only if its values form a geometric
    sequence. So no method is limited by a grid that suits another one.

    Parameters
    ----------
    grid : sequence of mappings
        Parameters of the candidates; an empty grid means one candidate without any.
    fit : callable
        Called with the parameters and the number of the candidate.

    Returns
    -------
    candidates : list of Candidate
        In the order of the grid; those that extend it stand at its ends.
    """
    candidates: list[Candidate] = []
    for number, values in enumerate(grid or [{}]):
        candidates.append(fit(values, number))
        _drop_models(candidates)
    name, factor = _step_of(grid)
    if factor is None:
        return candidates
    n_fitted = len(candidates)
    for end, step in ((0, 1 / factor), (-1, factor)):
        for _ in range(_MAX_STEPS_BEYOND):
            outermost = candidates[end]
            if all(best(candidates, score) is not outermost for score in SCORES):
                break
            # Twelve digits: 0.1 and not what rounding makes of 0.01 times ten.
            value = float(f"{outermost.summary['parameters'][name] * step:.12g}")
            candidates.insert(0 if end == 0 else n_fitted, fit({name: value}, n_fitted))
            n_fitted += 1
            _drop_models(candidates)
    return candidates


def _drop_models(candidates: list[Candidate]) -> None:
    """Drop the models that no score chooses: they may be whole networks."""
    kept = [best(candidates, score) for score in SCORES]
    for place, candidate in enumerate(candidates):
        if all(candidate is not each for each in kept):
            candidates[place] = candidate._replace(fitted=None, calibrated=None)


def _step_of(grid: Sequence[Mapping[str, Any]]) -> tuple[str, float | None]:
    """Return the one parameter of a grid and the factor between its values; None if not one."""
    names = {tuple(values) for values in grid}
    if len(grid) < 3 or len(names) != 1 or len(grid[0]) != 1:
        return "", None
    (name,) = grid[0]
    values = [each[name] for each in grid]
    if not all(isinstance(value, float) and value > 0 for value in values):
        return name, None
    factors = {round(later / earlier, 9) for earlier, later in pairwise(values)}
    return name, factors.pop() if len(factors) == 1 and factors != {1.0} else None


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
