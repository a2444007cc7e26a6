"""Simulate the guarantees of hedged and conformal predictions and of novelty detection.

Run by hand, twenty minutes on one core: ``python tests/performance/simulate_guarantees.py``.
It writes the record ``docs/studies/guarantees.json`` and makes two tables from it:
``guarantees_table.md`` (the lowest rate of each setting) and ``guarantees_full_table.md``.
``--tables`` makes the tables from the record alone.

Each repetition draws held-out photographs and new ones, sets the thresholds on the first and
measures the rate on the second: right predictions, sets that hold the truth, known samples that
raise no alarm. A frozen classifier states the probabilities that the simulation gives it, so no
network takes part. Photographs are served in the batches of the held-out ones, and one by one:
then the logits of their probabilities differ by 1e-6.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from skh2edl import ConformalTreeClassifier, HedgedClassifier, NoveltyDetector, Taxonomy

STUDIES = Path(__file__).resolve().parents[2] / "docs" / "studies"
RECORD = STUDIES / "guarantees.json"
TARGETS = (0.8, 0.9, 0.95, 0.99)
SIZES = (30, 100, 300, 1000, 2000)
METHODS = ("hedged", "conformal", "novelty")
SERVED = ("in batches", "one by one")
N_NEW = 200
_NOISE_OF_BATCH = 1e-6
_OVER_CONFIDENCE = 1.5

TREE = Taxonomy.from_nested(
    {
        "a": {"a1": ["p", "q", "r"], "a2": ["s"]},
        "b": {"b1": ["t", "u"], "b2": ["v", "w"]},
        "c": None,
    }
)


class Stated(ClassifierMixin, BaseEstimator):
    """Its samples are the probabilities of the leaves in tree order."""

    def fit(self, X, y=None):
        """Take over the tree."""
        self.taxonomy_ = TREE
        self.classes_ = TREE.sorted_leaf_labels
        return self

    def predict_log_proba(self, X):
        """Return the logarithm of what it is given."""
        return np.log(X)[:, TREE.leaf_order]

    def predict_proba(self, X):
        """Return what it is given."""
        return np.asarray(X)[:, TREE.leaf_order]


STATED = FrozenEstimator(Stated().fit(None))


class Setting(NamedTuple):
    """How photographs come about.

    Parameters
    ----------
    group_size : int, default=1
        Photographs of each subject, which share their error; 0 draws 1 to 20, more of subjects
        that are hard.
    partial : str or None, default=None
        Most of the hard photographs have an ancestor as label, read as `partial_labels` says.
    imbalance : float, default=0
        Leaves have prior probabilities by rank to this power.
    repeated : float, default=0
        Fraction of the traffic that is one picture.
    """

    group_size: int = 1
    partial: str | None = None
    imbalance: float = 0.0
    repeated: float = 0.0


SETTINGS = {
    "independent": Setting(),
    "class imbalance": Setting(imbalance=1.5),
    "ancestor labels": Setting(partial="wrong"),
    "ancestor labels, dropped": Setting(partial="drop"),
    "one picture is 30 % of the traffic": Setting(repeated=0.3),
    "groups of 5": Setting(group_size=5),
    "groups of 10": Setting(group_size=10),
    "groups of 20": Setting(group_size=20),
    "groups of 1 to 20, hard ones larger": Setting(group_size=0),
}


class Photographs(NamedTuple):
    """Stated probabilities, true nodes and subjects."""

    stated: np.ndarray
    truth: np.ndarray
    group: np.ndarray


def draw_subjects(rng, n_subjects, imbalance):
    """Return true probabilities of the leaves, and true nodes drawn from them."""
    conditional = np.ones((n_subjects, TREE.n_nodes))
    for node in TREE.branching_nodes.tolist():
        first, n_children = TREE.first_child[node], TREE.n_children[node]
        draw = rng.dirichlet([0.25 if node == 0 else 0.7] * n_children, size=n_subjects)
        conditional[:, first : first + n_children] = draw
    for node in range(1, TREE.n_nodes):
        conditional[:, node] *= conditional[:, TREE.parents[node]]
    true = conditional[:, TREE.leaf_nodes] + 1e-9
    true *= np.arange(1, TREE.n_leaves + 1.0) ** -imbalance
    true /= true.sum(axis=1, keepdims=True)
    drawn = (rng.random((n_subjects, 1)) > np.cumsum(true, axis=1)).sum(axis=1)
    return true, TREE.leaf_nodes[np.minimum(drawn, TREE.n_leaves - 1)]


def photograph(rng, true, truth, sizes):
    """Return photographs of subjects: the classifier is too sure, and each view differs."""
    group = np.repeat(np.arange(len(truth)), sizes)
    logits = _OVER_CONFIDENCE * np.log(true)[group]
    logits += 0.5 * rng.normal(size=logits.shape)
    stated = np.exp(logits - logits.max(axis=1, keepdims=True))
    return Photographs(stated / stated.sum(axis=1, keepdims=True), truth[group], group)


def draw_held_and_new(rng, setting, n_samples):
    """Return held-out photographs, and one photograph of each new subject."""
    size = setting.group_size or 5
    n_held = max(1, -(-n_samples // size))
    true, truth = draw_subjects(rng, n_held + N_NEW, setting.imbalance)
    sizes = np.full(len(truth), size)
    if setting.group_size == 0:
        surprise = 1 - true[np.arange(len(truth)), TREE.leaf_start[truth]]
        sizes = 1 + rng.binomial(19, surprise**2)
    photographs = photograph(rng, true, truth, sizes)
    held = photographs.group < n_held
    # A photograph of each new subject, all equally likely.
    last = np.cumsum(sizes)[n_held:] - 1
    of_new = last - rng.integers(0, sizes[n_held:])
    parts = [
        Photographs(*(v[held] for v in photographs)),
        Photographs(*(v[of_new] for v in photographs)),
    ]
    if setting.repeated:
        picture = photograph(rng, *draw_subjects(rng, 1, setting.imbalance), [1])
        for part in parts:
            again = rng.random(len(part.truth)) < setting.repeated
            part.stated[again], part.truth[again] = picture.stated[0], picture.truth[0]
    return parts


def serve_alone(rng, stated):
    """Return the probabilities as another size of the batch gives them."""
    moved = stated * np.exp(_NOISE_OF_BATCH * rng.normal(size=stated.shape))
    return moved / moved.sum(axis=1, keepdims=True)


def given_labels(rng, held, setting):
    """Return the labels of annotators, who stop early at four of five hard photographs."""
    nodes = held.truth
    if setting.partial:
        is_hard = held.stated.max(axis=1) < 0.9
        stops = is_hard & (rng.random(len(nodes)) < 0.8)
        nodes = np.where(stops, TREE.project(nodes, 1), nodes)
    return np.array(TREE.labels(nodes))


def make_estimator(method, target, partial):
    """Return an estimator that guarantees the target."""
    if method == "hedged":
        return HedgedClassifier(STATED, target, partial_labels=partial or "wrong")
    if method == "conformal":
        return ConformalTreeClassifier(STATED, 1 - target, partial_labels=partial or "wrong")
    return NoveltyDetector(STATED, 1 - target)


def kept(method, fitted, stated, truth):
    """Tell for which photographs the guarantee is kept."""
    if method == "hedged":
        nodes, (start, stop) = (
            TREE.resolve(fitted.predict(stated)),
            (TREE.leaf_start, TREE.leaf_stop),
        )
        return (start[nodes] <= start[truth]) & (stop[nodes] >= stop[truth])
    if method == "conformal":
        column = np.argsort(TREE.leaf_order)[TREE.leaf_start[truth]]
        return fitted.predict_leaf_set(stated)[np.arange(len(truth)), column]
    return ~fitted.predict_novelty(stated)


def simulate(setting, n_samples, n_repetitions, seed=0, targets=TARGETS, methods=METHODS):
    """Return a record of each method, target and way of serving.

    Parameters
    ----------
    setting : Setting
        How photographs come about.
    n_samples : int
        Number of held-out photographs; the last group is whole.
    n_repetitions : int
        Number of times that everything is drawn.
    seed : int, default=0
        Of the draws.
    targets : sequence of float
        What is guaranteed.
    methods : sequence of str
        Which estimators.

    Returns
    -------
    cells : list of dict
        With the mean rate, its standard error and `guarantee_`; or the refusal.
    """
    rates, called, refused = {}, {}, {}
    for repetition in range(n_repetitions):
        rng = np.random.default_rng([seed, n_samples, repetition])
        held, new = draw_held_and_new(rng, setting, n_samples)
        labels = given_labels(rng, held, setting)
        alone = serve_alone(rng, new.stated)
        groups = held.group if setting.group_size != 1 else None
        for method in methods:
            for target in targets:
                if (method, target) in refused:
                    continue
                fitted = make_estimator(method, target, setting.partial)
                try:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", ".* held-out labels end above")
                        fitted.fit(held.stated, labels, groups=groups)
                except ValueError as error:
                    if "needs at least" not in str(error):
                        raise
                    refused[method, target] = str(error)
                    continue
                called.setdefault((method, target), set()).add(fitted.guarantee_)
                for served, stated in zip(SERVED, (new.stated, alone), strict=True):
                    rate = kept(method, fitted, stated, new.truth).mean()
                    rates.setdefault((method, target, served), []).append(rate)
    cells = [
        {"method": method, "target": target, "n": n_samples, "refused": message}
        for (method, target), message in refused.items()
    ]
    for (method, target, served), values in rates.items():
        if (method, target) in refused:
            continue
        cells.append(
            {
                "method": method,
                "target": target,
                "n": n_samples,
                "served": served,
                "called": "exact" if called[method, target] == {"exact"} else "approximate",
                "rate": float(np.mean(values)),
                "error": float(np.std(values, ddof=1) / np.sqrt(len(values))),
                "n_repetitions": len(values),
            }
        )
    return cells


def standard_errors_below(cell):
    """Return by how many standard errors the rate is below its target."""
    return (cell["target"] - cell["rate"]) / max(cell["error"], 1e-12)


def summary_table(cells):
    """Return the lowest rate over all n and ways of serving, as Markdown."""
    lines = [
        "| | photographs | called | " + " | ".join(f"{t:g}" for t in TARGETS) + " |",
        "|---|---|---|" + "---|" * len(TARGETS),
    ]
    for method in METHODS:
        for setting in SETTINGS:
            own = [
                c for c in cells if (c["method"], c["setting"]) == (method, setting) and "rate" in c
            ]
            if not own:
                continue
            called = "exact" if all(c["called"] == "exact" for c in own) else "approximate"
            shown = []
            for target in TARGETS:
                of_target = [c for c in own if c["target"] == target]
                if not of_target:
                    shown.append("refused")
                    continue
                low = max(of_target, key=standard_errors_below)
                shown.append(f"{low['rate']:.4f} ± {low['error']:.4f} (n = {low['n']})")
            lines.append(f"| {method} | {setting} | {called} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def full_table(cells):
    """Return all rates, served in batches and one by one, as Markdown."""
    lines = [
        "| | photographs | n | called | " + " | ".join(f"{t:g}" for t in TARGETS) + " |",
        "|---|---|---|---|" + "---|" * len(TARGETS),
    ]
    known = {(c["method"], c["setting"], c["n"], c["target"], c.get("served")): c for c in cells}
    for method in METHODS:
        for setting in SETTINGS:
            for n in SIZES:
                shown, called = [], set()
                for target in TARGETS:
                    pair = [known.get((method, setting, n, target, served)) for served in SERVED]
                    if None in pair:
                        shown.append("refused")
                        continue
                    called |= {cell["called"] for cell in pair}
                    both = " / ".join(f"{cell['rate']:.4f}" for cell in pair)
                    shown.append(f"{both} ± {max(cell['error'] for cell in pair):.4f}")
                word = " or ".join(sorted(called)) or "–"
                lines.append(f"| {method} | {setting} | {n} | {word} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def write_record(cells):
    """Write the record, one cell a line."""
    lines = ",\n".join(json.dumps(cell) for cell in cells)
    RECORD.write_text(f'{{"cells": [\n{lines}\n]}}\n', encoding="utf-8")


def write_tables(cells):
    """Write both tables beside the record."""
    (STUDIES / "guarantees_table.md").write_text(summary_table(cells), encoding="utf-8")
    (STUDIES / "guarantees_full_table.md").write_text(full_table(cells), encoding="utf-8")


def main():
    """Simulate all settings, write the record, and make the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="make the tables from the record")
    parser.add_argument("--repetitions", type=int, default=1000)
    arguments = parser.parse_args()
    if not arguments.tables:
        cells, start = [], time.perf_counter()
        for number, (name, setting) in enumerate(SETTINGS.items()):
            for n_samples in SIZES:
                found = simulate(setting, n_samples, arguments.repetitions, seed=number)
                cells += [{"setting": name, **cell} for cell in found]
                print(f"{time.perf_counter() - start:6.0f} s  {name}, n = {n_samples}", flush=True)
        write_record(cells)
    cells = json.loads(RECORD.read_text(encoding="utf-8"))["cells"]
    write_tables(cells)
    for cell in cells:
        if "rate" in cell and standard_errors_below(cell) > 3:
            print("below its target:", cell)


if __name__ == "__main__":
    main()
