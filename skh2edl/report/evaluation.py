"""EvaluationReport: everything a report says, and the door to its page."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..decisions.annotation import AnnotationPlan, rank_for_annotation
from ..metrics import kept_ancestor
from ..metrics.inputs import check_length, label_nodes
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.files import write_atomically
from . import advice, reading
from .answers import Answers, read_answers
from .choice import choose_images
from .findings import (
    LevelFigures,
    class_figures,
    decision_figures,
    level_figures,
    mistaken,
    unlabelled,
    worst_confusions,
    worst_rate,
)
from .hedging import TARGETS, HedgeFigures, hedge_figures
from .mended import mended_figures
from .pictures import picture_source
from .problems import content_hashes, divided_names, find_problems

_PLANNED = 6
_SHOWN_PAIRS = 8


class EvaluationReport:
    """What labelled samples say about a classifier, as figures, as sentences and as a page.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`; :meth:`write` puts it into
    one HTML file that needs no other file and no network.

    Parameters
    ----------
    answers : Answers
        What the classifier said of the samples.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    names : sequence of str, default=None
        What the samples are called; None numbers them.
    images : images, default=None
        Pictures of the samples, of any kind that a classifier accepts; None shows none.
    train_images, train_labels : default=None
        What the classifier was trained on, to look for copies and for classes that were never
        taught. They are only hashed and counted.
    train_hashes : ndarray of uint64, default=None
        Instead of `train_images`, their :func:`~skh2edl.report.content_hashes`.
    calibration : ndarray of float, default=None
        What images held out for the purpose need for a right hedged answer
        (:func:`~skh2edl.report.needed_thresholds`). None calibrates on halves of these.
    trust : float, default=0.9
        Share of right answers from which on a level is called trustworthy.
    title : str, default="Evaluation"
        Heading of the page.
    facts : mapping of str to str, default=None
        What else the page should say about model and data.
    untaught : sequence of labels, default=()
        Branching nodes that no training label passed through.
    calibration_note : str, default=""
        Where `calibration` comes from.

    Attributes
    ----------
    levels : list of LevelFigures
        From the top.
    confusions : list of Confusion
        The most frequent first; last the one with the highest rate, if it is not among them.
    classes : list of ClassFigures
        Leaves, those with the most mistakes first.
    decisions : list of DecisionFigures
        Branching nodes, those with the most first errors first.
    hedges : list of HedgeFigures
        At 90, 95 and 99 %.
    problems : list of DataProblem
        Serious ones first.
    mended : Mended or None
        Levels and hedges without the faults of the data that explain mistakes.
    plan : AnnotationPlan or None
        Images with the most doubt, at different places, for evidential classifiers.
    questions : list of Question
        Which level can be trusted, which classes are confused, what to label next.

    Examples
    --------
    >>> import numpy as np
    >>> from skh2edl import H2EDLClassifier, Taxonomy
    >>> from skh2edl.report import EvaluationReport
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(240, 3)) + 3 * np.tile(np.eye(3), (80, 1))
    >>> y = np.tile(["lynx", "puma", "dog"], 80)
    >>> clf = H2EDLClassifier(tree, backbone=None).fit(X[:120], y[:120])
    >>> report = EvaluationReport.from_estimator(clf, X[120:], y[120:])
    >>> report.questions[0].answer
    'All levels, down to “leaf”'
    >>> report.levels[0].n_samples
    120
    >>> report.write("report.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        answers: Answers,
        truth: IntArray,
        *,
        names: Sequence[str] | None = None,
        images: Any = None,
        train_images: Any = None,
        train_labels: Any = None,
        train_hashes: npt.NDArray[np.uint64] | None = None,
        calibration: npt.NDArray[np.float64] | None = None,
        trust: float = 0.9,
        title: str = "Evaluation",
        facts: Mapping[str, str] | None = None,
        untaught: Sequence[Any] = (),
        calibration_note: str = "",
    ) -> None:
        if not 0 < trust < 1:
            raise ValueError(f"trust must be a share between 0 and 1, got {trust!r}.")
        tree = answers.taxonomy
        self.taxonomy = tree
        self.title, self.trust, self.facts = title, trust, dict(facts or {})
        self.images = picture_source(images)
        if self.images is not None and len(self.images) != len(truth):
            raise ValueError(
                f"images must hold one picture for each of the {len(truth)} samples, got "
                f"{len(self.images)}. Leave them out to show none."
            )
        self.names = [f"sample {row}" for row in range(len(truth))] if names is None else names
        if len(self.names) != len(truth):
            raise ValueError(
                f"names must hold one name for each of the {len(truth)} samples, got "
                f"{len(self.names)}."
            )
        train_truth = None if train_labels is None else label_nodes(train_labels, tree)
        hashes = None if self.images is None else content_hashes(self.images)
        train_source = picture_source(train_images)
        if train_source is not None:
            train_hashes = content_hashes(train_source)
        self.problems = find_problems(
            tree,
            truth,
            list(map(str, self.names)),
            readable=answers.readable,
            hashes=hashes,
            train_hashes=train_hashes,
            train_truth=train_truth,
            untaught=untaught,
        )
        self.answers, self.truth = answers, truth
        seen = answers.readable
        measured = Answers(
            tree,
            answers.leaf_probability[seen],
            None if answers.opinion is None else answers.opinion[np.flatnonzero(seen)],
            seen[seen],
        )
        counted = truth[seen]
        self.n_samples = int(seen.sum())
        if not self.n_samples:
            raise ValueError(
                "None of the images could be read, so there is nothing to measure. Check the paths."
            )
        self.n_labelled = int((~unlabelled(counted, tree)).sum())
        wrong = mistaken(measured, counted)
        self.n_mistakes = int(wrong.sum())
        self.levels = level_figures(measured, counted)
        self.kept = self._kept_ancestors(measured, counted, wrong)
        pairs = worst_confusions(answers, np.where(seen, truth, 0), None)
        self.confusions = pairs[:_SHOWN_PAIRS]
        by_rate = worst_rate([p for p in pairs if not reading.is_one_name(tree, p, self.problems)])
        if by_rate is not None and all(pair is not by_rate for pair in self.confusions):
            self.confusions.append(by_rate)
        self.classes = class_figures(measured, counted, train_truth)
        self.decisions = decision_figures(measured, counted)
        self.plan = self._plan()
        self.is_cross_calibrated = calibration is None
        self.calibration_note = calibration_note
        self.hedges = hedge_figures(answers, truth, needed=calibration, targets=TARGETS)
        self.mended = mended_figures(
            measured,
            counted,
            divided_names(tree, counted, train_truth),
            self.problems,
            calibration,
        )
        explained = advice.explained_classes(self.problems)
        self.chosen = choose_images(answers, truth, explained=explained)
        self.questions = [
            reading.which_level(tree, self.levels, self.hedges, trust, self.mended),
            reading.which_classes(
                tree,
                self.levels,
                pairs,
                self.decisions,
                self.kept,
                self.n_mistakes,
                self.n_labelled,
                self.problems,
            ),
            advice.what_to_label(
                tree,
                self.decisions,
                self.classes,
                self.problems,
                self.n_mistakes,
                self._promises_of_images_aside(),
            ),
        ]

    def _promises_of_images_aside(self) -> Sequence[HedgeFigures]:
        """Return the promises that more images kept aside could mend, faults not counted."""
        if self.is_cross_calibrated:
            return ()
        return self.hedges if self.mended is None else self.mended.hedges

    def _plan(self) -> AnnotationPlan | None:
        """Choose images with doubt at different places; rows are those of all samples."""
        if self.answers.opinion is None:
            return None
        rows = np.flatnonzero(self.answers.readable)
        plan = rank_for_annotation(self.answers.opinion[rows], min(_PLANNED, rows.size))
        return plan._replace(rows=rows[plan.rows])

    def _kept_ancestors(
        self, answers: Answers, truth: IntArray, wrong: npt.NDArray[np.bool_]
    ) -> list[float]:
        tree = self.taxonomy
        if not wrong.any():
            return [np.nan] * tree.n_levels
        labels, given = tree.labels(truth[wrong]), tree.labels(answers.best_leaves[wrong])
        with warnings.catch_warnings():
            # A level that no mistaken label reaches is not mentioned.
            warnings.simplefilter("ignore")
            return [
                kept_ancestor(labels, given, tree, depth) for depth in range(1, tree.n_levels + 1)
            ]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        taxonomy: Taxonomy | None = None,
        images: Any = None,
        on_rows: Callable[[int], None] | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Ask a fitted classifier about labelled samples.

        Parameters
        ----------
        estimator : classifier
            Fitted, with `predict_proba`, also one of scikit-learn's own or a Pipeline.
        X : images or array-like
            Samples that it was not trained on.
        y : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors.
        taxonomy : Taxonomy, default=None
            The tree; None takes the classifier's.
        images : images, default=None
            Pictures to show; None takes `X` where it holds images.
        on_rows : callable, default=None
            Told the number of samples after each block that was read.
        **options
            As in the class.

        Returns
        -------
        report : EvaluationReport
        """
        answers = read_answers(estimator, X, taxonomy=taxonomy, on_rows=on_rows)
        truth = label_nodes(y, answers.taxonomy)
        check_length(truth, answers.leaf_probability)
        options.setdefault("untaught", getattr(estimator, "unsupervised_nodes_", ()))
        is_features = images is None and getattr(estimator, "backbone", "") is None
        shown = None if is_features else X if images is None else images
        return cls(answers, truth, images=shown, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_proba: Any,
        taxonomy: Taxonomy,
        *,
        opinion: HyperOpinion | None = None,
        classes: Any = None,
        **options: Any,
    ) -> EvaluationReport:
        """Take probabilities that were computed elsewhere.

        Parameters
        ----------
        y_true : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors.
        y_proba : array-like of shape (n_samples, n_leaves)
            Probabilities of the leaves.
        taxonomy : Taxonomy
            The tree.
        opinion : HyperOpinion, default=None
            Opinions on the same samples.
        classes : sequence of labels, default=None
            Columns of `y_proba`; None means ``taxonomy.sorted_leaf_labels``.
        **options
            As in the class.

        Returns
        -------
        report : EvaluationReport
        """
        answers = Answers.from_proba(y_proba, taxonomy, opinion=opinion, classes=classes)
        truth = label_nodes(y_true, taxonomy)
        check_length(truth, answers.leaf_probability)
        return cls(answers, truth, **options)

    def to_html(self) -> str:
        """Return the page."""
        from .page import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures and the sentences as plain values, NaN as None.

        Returns
        -------
        figures : dict
            What ``json.dumps`` can write.
        """
        tree = self.taxonomy

        def label(node: int) -> Any:
            return tree.label(node)

        figures = {
            "title": self.title,
            "facts": self.facts,
            "n_samples": self.n_samples,
            "n_labelled": self.n_labelled,
            "n_mistakes": self.n_mistakes,
            "questions": [question._asdict() for question in self.questions],
            "levels": [_with_accuracy(level) for level in self.levels],
            "kept_ancestor": self.kept,
            "confusions": [
                pair._asdict()
                | {name: label(getattr(pair, name)) for name in ("truth", "answer", "meeting")}
                | {"rows": [str(self.names[row]) for row in pair.rows.tolist()]}
                for pair in self.confusions
            ],
            "classes": [
                row._asdict()
                | {"node": label(row.node), "taken_for": [label(each) for each in row.taken_for]}
                for row in self.classes
            ],
            "decisions": [
                row._asdict()
                | {"node": label(row.node), "children": [label(child) for child in row.children]}
                for row in self.decisions
                if row.n_passing
            ],
            "hedges": [_without_nodes(hedge) for hedge in self.hedges],
            "mended": None
            if self.mended is None
            else {
                "n_samples": self.mended.n_samples,
                "levels": [_with_accuracy(level) for level in self.mended.levels],
                "hedges": [_without_nodes(hedge) for hedge in self.mended.hedges],
            },
            "problems": [
                problem._asdict() | {"nodes": [label(node) for node in problem.nodes]}
                for problem in self.problems
            ],
        }
        plain: dict[str, Any] = _plain(figures)
        return plain

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to one file, whole or not at all.

        Parameters
        ----------
        path : path
            The file; ``.html`` is its customary ending.
        """
        content = self.to_html().encode("utf-8")
        write_atomically(Path(path), lambda file: file.write(content))

    def __repr__(self) -> str:
        return f"EvaluationReport({self.title!r}: {self.n_samples} samples, {self.taxonomy!r})"


def _with_accuracy(figures: LevelFigures | HedgeFigures) -> dict[str, Any]:
    return figures._asdict() | {"accuracy": figures.accuracy}


def _without_nodes(hedge: HedgeFigures) -> dict[str, Any]:
    return {key: value for key, value in _with_accuracy(hedge).items() if key != "nodes"}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def write_report(
    path: str | os.PathLike[str], estimator: Any, X: Any, y: Any, **options: Any
) -> EvaluationReport:
    """Evaluate a fitted classifier and write the page, in one call.

    Parameters
    ----------
    path : path
        The file to write.
    estimator, X, y, **options
        As in :meth:`EvaluationReport.from_estimator`.

    Returns
    -------
    report : EvaluationReport
        What was written.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from skh2edl import H2EDLClassifier
    >>> from skh2edl.report import write_report
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = H2EDLClassifier(backbone=None).fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = write_report(f"{folder}/iris.html", clf, X[1::2], y[1::2])
    >>> report.n_samples
    75
    """
    report = EvaluationReport.from_estimator(estimator, X, y, **options)
    report.write(path)
    return report
