"""``skh2edl predict``: from images to a table of predictions."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from . import common
from .calibrate import hedge_threshold
from .common import option
from .data import Data, read_unlabelled
from .tables import FORMATS, Row, Spool

if TYPE_CHECKING:
    from ..estimators.model_card import ModelCard
    from ..report.predictions import Predictions
    from ..taxonomy.taxonomy import Taxonomy

_TARGET_ACCURACY = 0.95
_NAMED = {"prediction", "prediction_level"}
_RESERVED = {"image", "row", "prediction", "nonspecificity", "error"}


def predict(
    model: common.ModelArgument,
    inputs: common.InputsArgument,
    out: common.TableOption = Path("predictions.csv"),
    target_accuracy: Annotated[
        float | None,
        option(
            "Accuracy that the hedged predictions reach on average.",
            min=0.5,
            max=0.999,
            shown="0.95, if the model can guarantee that",
        ),
    ] = None,
    image_column: common.ImageColumnOption = None,
    all_vacuities: common.AllVacuitiesOption = False,
    batch_size: Annotated[int, option("Images that are read and saved at once.", min=1)] = 64,
    workers: common.WorkersOption = None,
    strict: Annotated[bool, option("Stop at an unreadable image.", "--strict")] = False,
    quiet: common.QuietOption = False,
) -> None:
    """Classify images and write a table with one row for each.

    All images in a folder are read, however deep.

    The first columns hold the image and the hedged prediction: a coarser class where the model is
    unsure of the fine one, or "cannot tell". Its level, probability, belief, plausibility and path
    follow, and then the best class of each level, whether sure or not; how much belief stops
    where; and the vacuities on the path to the finest class. Belief, plausibility and vacuity are
    those of evidential models. An image that cannot be read has its reason in the column error,
    and no prediction.

    The same command resumes an interrupted run; the table appears when it is complete.

    For example:

      skh2edl predict birds.safetensors new_photos/ --out predictions.csv

      skh2edl predict birds.safetensors "camera*/*.jpg" --out predictions.parquet

      skh2edl predict birds.safetensors photo.jpg --target-accuracy 0.99 -o prediction.json
    """
    from ..estimators.model_files import load_classifier

    results, remarks = common.consoles(quiet)
    common.check_output(out, FORMATS)
    estimator, card = load_classifier(model)
    data = read_unlabelled(inputs, image_column=image_column, features=features_of(estimator))
    if estimator.backbone is not None:
        estimator.set_params(
            on_bad_image="skip", hardware__n_workers=workers, batch_size=batch_size
        )
    threshold = _threshold(card, target_accuracy, remarks)
    classified = _Classified(estimator, data, threshold, all_vacuities)
    spool = Spool(out, classified.table.columns, _identity(model, data, threshold))
    if spool.n_done:
        remarks.print(f"Resuming after {spool.n_done} of {len(data)} that were done before.")
    n_bad, reached = _fill(spool, classified, batch_size, strict, remarks)
    common.say_written(results, out, f" ({len(data)} rows)")
    if threshold is not None:
        _say_levels(remarks, reached, card, target_accuracy)
    if n_bad:
        remarks.print(f"[yellow]{n_bad} could not be read; see the column error.[/yellow]")


def _fill(
    spool: Spool, classified: _Classified, batch_size: int, strict: bool, remarks: Console
) -> tuple[int, Counter[str]]:
    """Classify what is not in the spool yet and write the table.

    Return the number of unreadable images, and of hedged predictions at each level.
    """
    n_bad, n_samples = 0, len(classified.data)
    reached: Counter[str] = Counter()
    try:
        with closing(spool), common.progress(remarks, "images", n_samples) as advance:
            advance(spool.n_done)
            for start in range(spool.n_done, n_samples, batch_size):
                rows = list(classified.rows(slice(start, start + batch_size)))
                bad = [row for row in rows if row["error"]]
                if bad and strict:
                    raise ValueError(f"{bad[0]['error']} (--strict)")
                n_bad += len(bad)
                spool.add(rows)
                advance(len(rows))
            reached.update(filter(None, spool.values("prediction_level")))
            spool.finish(n_samples)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{spool.n_done} of {n_samples} are done; the same command resumes from there."
        ) from None
    return n_bad, reached


def _threshold(card: ModelCard, target_accuracy: float | None, remarks: Console) -> float | None:
    """Return the least probability of a hedged prediction; None for no hedged predictions."""
    if target_accuracy is not None:
        return hedge_threshold(card, target_accuracy)
    try:
        return hedge_threshold(card, _TARGET_ACCURACY)
    except ValueError:
        remarks.print(
            f"The model has no hedge for {_TARGET_ACCURACY:.0%}, so every prediction is of the "
            "finest level, however unsure; skh2edl calibrate sets a hedge."
        )
    return None


def _say_levels(
    remarks: Console, levels: Counter[str], card: ModelCard, target_accuracy: float | None
) -> None:
    """Say how often the hedge predicted at each level, and what held-out images say of it."""
    wanted, n_samples = target_accuracy or _TARGET_ACCURACY, levels.total()
    if not n_samples:
        return
    said = ", ".join(f"{level} for {n / n_samples:.0%}" for level, n in levels.most_common())
    remarks.print(f"Hedged at {wanted:.0%}: {said} of {n_samples}.")
    if known := card.notes.get(f"hedge at {wanted:.0%}"):
        remarks.print(f"On held-out images: {known}.")


def features_of(estimator: Any) -> list[str] | None:
    """Return the columns that a model of features reads; None for a model of images."""
    if estimator.backbone is not None:
        return None
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise ValueError(
            "The model reads features, and was trained on an array without names of columns, so "
            "a table cannot be matched. Fit it again with skh2edl fit --features."
        )
    return [str(name) for name in names]


def _identity(model: Path, data: Data, threshold: float | None) -> str:
    """Tell runs apart: another model, other files or another threshold start afresh."""
    facts = model.stat()
    digest = hashlib.blake2b("\0".join(data.ids).encode("utf-8", "surrogateescape"))
    return f"{facts.st_size} {facts.st_mtime_ns} {threshold} {digest.hexdigest()}"


class PredictionTable:
    """Columns of a table of predictions, and their values.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    first : str
        Name of the column of the samples.
    is_evidential : bool
        Whether there are opinions.
    all_vacuities : bool
        Whether there is a column for each decision.
    """

    def __init__(
        self, tree: Taxonomy, first: str, is_evidential: bool, all_vacuities: bool
    ) -> None:
        from ..report.wording import level_words

        self.tree, self.first, self.is_evidential = tree, first, is_evidential
        self.titles = [level_words(tree, depth) for depth in range(1, tree.n_levels + 1)]
        # Names of the tree's own stay as they are.
        spelled = tree.level_names or [title.replace(" ", "_") for title in self.titles]
        self.levels = [f"level_{name}" if name in _RESERVED else name for name in spelled]
        # Where belief can stop: at the root, or at a level above the deepest.
        self.stops = [str(tree.root_name), *self.levels[:-1]]
        self.vacuities = (
            [f"vacuity_of_{tree.label(node)}" for node in tree.branching_nodes.tolist()]
            if all_vacuities and is_evidential
            else []
        )
        self.columns = self._columns()

    def _columns(self) -> list[str]:
        endings = ["_probability"]
        if self.is_evidential:
            endings += ["_belief", "_plausibility"]
        columns = [self.first, "prediction", "prediction_level"]
        columns += [f"prediction{end}" for end in [*endings, "_path"]]
        columns += [f"{name}{end}" for name in self.levels for end in ["", *endings]]
        if self.is_evidential:
            columns += ["nonspecificity", *(f"belief_stops_at_{stop}" for stop in self.stops)]
            columns += [f"vacuity_at_{stop}" for stop in self.stops]
        return [*columns, *self.vacuities, "error"]

    def values(self, predictions: Predictions, predicted: Any) -> dict[str, list[Any]]:
        """Return the values of every column, for a batch of samples.

        Parameters
        ----------
        predictions : Predictions
            Probabilities and opinions of the samples.
        predicted : ndarray of int of shape (n_samples,)
            The node that is the prediction of each; the root is one that says nothing.
        """
        tree, opinion = self.tree, predictions.opinion
        nodes_of = {
            name: predictions.best_of_level(depth)[0]
            for depth, name in enumerate(self.levels[:-1], start=1)
        }
        # The best class of the deepest level is the best leaf.
        nodes_of[self.levels[-1]] = predictions.best_leaves
        columns = self._predicted(predictions, predicted)
        for name, nodes in nodes_of.items():
            columns[name] = tree.labels(nodes)
            columns |= self._numbers(name, nodes, predictions)
        vacuity = predictions.vacuity_on_path()
        if opinion is not None and vacuity is not None:
            columns["nonspecificity"] = _rounded(opinion.nonspecificity)
            for depth, stop in enumerate(self.stops):
                columns[f"belief_stops_at_{stop}"] = _rounded(opinion.depth_profile[:, depth])
                columns[f"vacuity_at_{stop}"] = _rounded(vacuity[:, depth])
            for place, name in enumerate(self.vacuities):
                columns[name] = _rounded(opinion.vacuity[:, place])
        return columns

    def _predicted(self, predictions: Predictions, nodes: Any) -> dict[str, list[Any]]:
        """Return the columns of the prediction."""
        from ..report.hedging import stop_places
        from ..report.wording import CANNOT_TELL

        tree = self.tree
        places = stop_places(nodes, tree).tolist()
        paths = [tree._index.path(node) for node in nodes.tolist()]
        columns: dict[str, list[Any]] = {
            "prediction": tree.labels(nodes),
            "prediction_level": [self.titles[place - 1] for place in places],
            **self._numbers("prediction", nodes, predictions),
            "prediction_path": [tree.separator.join(map(str, path)) for path in paths],
        }
        silent = dict.fromkeys(columns) | dict.fromkeys(columns.keys() & _NAMED, CANNOT_TELL)
        for row, place in enumerate(places):
            if not place:  # all classes together: a probability of 1 that says nothing
                for name, values in columns.items():
                    values[row] = silent[name]
        return columns

    def _numbers(self, name: str, nodes: Any, predictions: Predictions) -> dict[str, list[Any]]:
        """Return the columns of the probability of nodes, and of the bounds that opinions give."""
        columns = {f"{name}_probability": predictions.probability_of(nodes[:, None])[:, 0]}
        bounds = predictions.bounds_of(nodes)
        if bounds is not None:
            columns |= {f"{name}_belief": bounds[0], f"{name}_plausibility": bounds[1]}
        return {column: _rounded(values) for column, values in columns.items()}


class _Classified:
    """Predictions as rows of the table: hedged, or without a hedge of the finest class."""

    def __init__(
        self, estimator: Any, data: Data, threshold: float | None, all_vacuities: bool
    ) -> None:
        self.estimator, self.data, self.threshold = estimator, data, threshold
        self.table = PredictionTable(
            estimator.taxonomy_,
            "image" if estimator.backbone is not None else "row",
            hasattr(estimator, "predict_hyper_opinion"),
            all_vacuities,
        )

    def rows(self, which: slice) -> Iterator[Row]:
        """Classify some of the samples.

        Parameters
        ----------
        which : slice
            The samples.
        """
        from ..report.hedging import hedged_nodes
        from ..report.predictions import read_predictions

        part, table = self.data.select(which), self.table
        predictions = read_predictions(self.estimator, part.X)
        nodes = predictions.best_leaves
        if self.threshold is not None:
            nodes = hedged_nodes(predictions.leaf_probability, table.tree, self.threshold)
        columns = table.values(predictions, nodes)
        for index, name in enumerate(part.ids):
            if predictions.readable[index]:
                row = {column: values[index] for column, values in columns.items()}
                yield {table.first: name, **row, "error": None}
            else:
                yield {table.first: name, "error": _reason(name)}


def _reason(file: str) -> str:
    """Say why an image could not be read."""
    from ..images import image_source
    from ..images.sources import BadImageError

    try:
        image_source([file]).read(0)
    except BadImageError as error:
        return str(error).split(". Repair or drop it")[0].replace(" (X[0])", "")
    return "it could not be read"


def _rounded(values: Any) -> list[float | None]:
    # Six decimals are more than float32 knows; NaN is no value of JSON.
    return [None if math.isnan(v) else round(v, 6) for v in map(float, values)]
