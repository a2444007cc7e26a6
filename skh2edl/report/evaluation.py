"""EvaluationReport: figures, sentences and a page about a classifier on labelled samples."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..images import ImageSource
from ..metrics.inputs import check_length, is_labelled, label_nodes
from ..opinions.hyper_opinion import HyperOpinion
from ..taxonomy.taxonomy import Taxonomy
from ..taxonomy.tree import IntArray
from ..utils.files import write_atomically
from . import figures, questions
from .hedging import HedgeFigures, hedge_figures
from .images import content_hashes, picture_source
from .predictions import Predictions, read_predictions
from .problems import find_problems

# Pairs of confused classes that are kept.
_MAX_PAIRS = 8
# Fields of the records that hold nodes; the JSON has their labels.
_NODE_FIELDS = {"truth", "predicted", "meeting", "node", "nodes", "taken_for"}


class EvaluationReport:
    """What labelled samples say about a classifier, as figures, as sentences and as a page.

    Make one with :meth:`from_estimator` or :meth:`from_predictions`; :meth:`write` puts it into
    one HTML file that needs no other file and no network.

    Parameters
    ----------
    predictions : Predictions
        What the classifier predicted for the samples.
    truth : ndarray of int of shape (n_samples,)
        Nodes of the true labels.
    names : sequence of str, default=None
        Names of the samples; None numbers them.
    images : images, default=None
        Pictures of the samples, of any kind that a classifier accepts; None shows none.
    train_images, train_labels : default=None
        What the classifier was trained on, to find images in both sets and classes without
        training images. They are only hashed and counted.
    train_hashes : ndarray of uint64, default=None
        Instead of `train_images`, their :func:`~skh2edl.report.content_hashes`.
    calibration : ndarray of float, default=None
        Thresholds that held-out images need for a right hedged prediction
        (:func:`~skh2edl.report.needed_thresholds`). None calibrates on halves of the samples.
    trust : float, default=0.9
        Accuracy from which on a level is called trustworthy.
    title : str, default="Evaluation"
        Heading of the page.
    facts : mapping of str to str, default=None
        Further facts about model and data for the foot of the page; a "note" stands at its top.
    untaught : sequence of labels, default=()
        Branching nodes that no training label passed through.
    calibration_note : str, default=""
        Where `calibration` comes from.

    Attributes
    ----------
    verdict : str
        One line: which levels to trust, how often they are right, which not to trust.
    questions : list of Question
        Which level can be trusted, which classes are confused, what to do next, when not to use it.
    levels : list of LevelFigures
        From the top.
    nodes : dict of int to NodeFigures
        Every node with images, measured on its own images.
    classes : list of NodeFigures
        Leaves, those with the most mistakes first.
    decisions : list of NodeFigures
        Branching nodes, those with the most first errors first.
    hedges : list of HedgeFigures
        At 90, 95 and 99 %.
    mistakes : list of Mistake
        The surest first.
    confusions : list of Confusion
        The eight most frequent pairs.
    uncertainty : UncertaintyFigures or None
        Whether uncertainty tells wrong predictions from right ones.
    problems : list of DataProblem
        Serious ones first.

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
    >>> print(report.verdict.split(" (")[0])
    If it must name every image: trust level 1
    >>> report.questions[0].answer
    'All levels, down to the finest level'
    >>> report.write("report.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        predictions: Predictions,
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
            raise ValueError(f"trust must be a fraction between 0 and 1, got {trust!r}.")
        self.predictions, self.taxonomy = predictions, predictions.taxonomy
        self.truth = truth = self.taxonomy.last_of_chain[truth]
        self.title, self.trust, self.facts = title, trust, dict(facts or {})
        self.is_cross_calibrated, self.calibration_note = calibration is None, calibration_note
        self.names = self._check_names(names)
        self.images = self._check_images(images)

        train_truth = None if train_labels is None else label_nodes(train_labels, self.taxonomy)
        if (train_source := picture_source(train_images)) is not None:
            train_hashes = content_hashes(train_source)
        self.problems = find_problems(
            self.taxonomy,
            truth,
            self.names,
            readable=predictions.readable,
            hashes=None if self.images is None else content_hashes(self.images),
            train_hashes=train_hashes,
            train_truth=train_truth,
            untaught=untaught,
        )

        read, labels = self._readable()
        self.n_samples = len(read)
        self.n_labelled = int(is_labelled(labels, self.taxonomy).sum())
        self.levels = figures.level_figures(read, labels)
        self.kept = figures.kept_ancestors(read, labels)
        self.nodes = figures.node_figures(read, labels, train_truth)
        self.hedges = hedge_figures(predictions, truth, calibration)
        self.mistakes = figures.find_mistakes(predictions, truth)
        self.n_mistakes = len(self.mistakes)
        self.confusions = figures.confusion_pairs(predictions, truth)[:_MAX_PAIRS]
        self.uncertainty = figures.uncertainty_figures(predictions, truth)
        self.verdict = questions.verdict(self)
        self.questions = [
            questions.which_level(self),
            questions.which_classes(self),
            questions.what_next(self),
            questions.when_not(self),
        ]

    @property
    def classes(self) -> list[figures.NodeFigures]:
        """Leaves with images, those with the most mistakes first."""
        leaves = [row for row in self.nodes.values() if not self.taxonomy.n_children[row.node]]
        return sorted(leaves, key=lambda row: (-row.n_wrong, row.accuracy, row.node))

    @property
    def decisions(self) -> list[figures.NodeFigures]:
        """Branching nodes with images below them, those with the most first errors first."""
        rows = [row for row in self.nodes.values() if row.n_passing]
        return sorted(rows, key=lambda row: (-row.n_first_errors, row.node))

    def _check_names(self, names: Sequence[str] | None) -> list[str]:
        if names is None:
            return [f"sample {row}" for row in range(len(self.truth))]
        if len(names) != len(self.truth):
            raise ValueError(
                f"names must hold one name for each of the {len(self.truth)} samples, got "
                f"{len(names)}."
            )
        return list(map(str, names))

    def _check_images(self, images: Any) -> ImageSource | None:
        source = picture_source(images)
        if source is not None and len(source) != len(self.truth):
            raise ValueError(
                f"images must hold one picture for each of the {len(self.truth)} samples, got "
                f"{len(source)}. Leave them out to show none."
            )
        return source

    def _readable(self) -> tuple[Predictions, IntArray]:
        """Return predictions and labels of the images that could be read."""
        rows = np.flatnonzero(self.predictions.readable)
        if not rows.size:
            raise ValueError(
                "None of the images could be read, so there is nothing to measure. Check the paths."
            )
        return self.predictions[rows], self.truth[rows]

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
        """Evaluate a fitted classifier on labelled samples.

        Parameters
        ----------
        estimator : classifier
            Fitted, with `predict_proba`, also one of scikit-learn's own or a Pipeline.
        X : images or array-like
            Samples that the classifier was not trained on.
        y : sequence of labels of shape (n_samples,)
            True labels, leaves or ancestors.
        taxonomy : Taxonomy, default=None
            The tree; None takes the classifier's.
        images : images, default=None
            Pictures to show; None takes `X` where it holds images.
        on_rows : callable, default=None
            Called with the number of samples after each block.
        **options
            As in the class.

        Returns
        -------
        report : EvaluationReport
        """
        predictions = read_predictions(estimator, X, taxonomy=taxonomy, on_rows=on_rows)
        truth = label_nodes(y, predictions.taxonomy)
        check_length(truth, predictions.leaf_probability)
        options.setdefault("untaught", getattr(estimator, "unsupervised_nodes_", ()))
        is_features = images is None and getattr(estimator, "backbone", "") is None
        shown = None if is_features else X if images is None else images
        return cls(predictions, truth, images=shown, **options)

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
        """Evaluate probabilities that were computed elsewhere.

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
        predictions = Predictions.from_proba(y_proba, taxonomy, opinion=opinion, classes=classes)
        truth = label_nodes(y_true, taxonomy)
        check_length(truth, predictions.leaf_probability)
        return cls(predictions, truth, **options)

    def to_html(self) -> str:
        """Return the page."""
        # Templates and displays are loaded only for a page.
        from .rendering import render

        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures and the sentences as plain values, NaN as None.

        Returns
        -------
        figures : dict
            What ``json.dumps`` can write.
        """
        names = np.array(self.names, dtype=object)
        content = {
            "title": self.title,
            "facts": self.facts,
            "n_samples": self.n_samples,
            "n_labelled": self.n_labelled,
            "n_mistakes": self.n_mistakes,
            "verdict": self.verdict,
            "questions": self.questions,
            "levels": self.levels,
            "kept_ancestor": self.kept,
            "confusions": [pair._replace(rows=names[pair.rows]) for pair in self.confusions],
            "mistakes": [each._replace(row=names[each.row]) for each in self.mistakes],
            "classes": self.classes,
            "decisions": self.decisions,
            "hedges": self.hedges,
            "uncertainty": self.uncertainty,
            "problems": self.problems,
        }
        plain: dict[str, Any] = _plain(content, self.taxonomy)
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


def _plain(value: Any, tree: Taxonomy) -> Any:
    """Return plain values: records as dicts, their nodes as labels, NaN as None."""
    if hasattr(value, "_asdict"):
        fields = value._asdict()
        if isinstance(value, HedgeFigures):
            del fields["nodes"]
        if hasattr(value, "accuracy"):
            fields["accuracy"] = value.accuracy
        for key in _NODE_FIELDS & fields.keys():
            nodes = fields[key]
            is_one = isinstance(nodes, int)
            fields[key] = tree.label(nodes) if is_one else [tree.label(node) for node in nodes]
        value = fields
    if isinstance(value, dict):
        return {str(key): _plain(item, tree) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item, tree) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


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
