"""``skh2edl calibrate``, and what `fit` shares with it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument

from . import common
from .common import option
from .data import Columns, Data, read_labelled, table_header

if TYPE_CHECKING:
    from ..estimators.cross_fitting import Features, Fold
    from ..estimators.model_card import ModelCard
    from ..report.hedging import HedgeFigures
    from ..report.predictions import Predictions
    from ..taxonomy.taxonomy import Taxonomy
    from ..taxonomy.tree import IntArray

# Beyond this the hashes would make up a good part of a small model's file.
_MAX_HASHES = 500_000


def calibrate(
    model: common.ModelArgument,
    data: Annotated[
        Path,
        Argument(
            help="Labelled images that the model was not trained on: a folder or a .csv table. "
            "Where they have a 'val' part, only that is used."
        ),
    ],
    image_column: common.ImageColumnOption = None,
    labels: common.LabelsOption = None,
    split_column: common.SplitColumnOption = None,
    group_column: Annotated[
        str | None,
        option("Column of subjects, each with one vote.", shown="that of the fit, else group"),
    ] = None,
    trust_unseen: Annotated[
        bool,
        common.option(
            "Take the images for unseen though the model file has no record of its training "
            "images.",
            "--trust-unseen",
        ),
    ] = False,
    keep_probabilities: Annotated[
        bool,
        common.option("Set the hedge alone; its guarantee is then exact.", "--keep-probabilities"),
    ] = False,
    quiet: common.QuietOption = False,
) -> None:
    """Calibrate the probabilities and the hedge of a model on labelled images.

    Both are kept in the model file. The probabilities are calibrated by one number, the scale of
    the evidence or a temperature; more evidence leaves less belief above the leaves. Images that
    the model was trained on are skipped. Where several images show one subject, name the column of
    the subjects: the guarantee then holds for an image of a new one.

    The guarantee of the hedge is exact, a theorem, with --keep-probabilities. It is approximate if
    the probabilities were calibrated on the same images, or if skh2edl fit set the hedge on models
    that each left out a part of them.

    For example:

      skh2edl calibrate birds.safetensors held_out/

      skh2edl calibrate birds.safetensors held_out.csv --labels species

      skh2edl calibrate skin.safetensors held_out.csv --group-column patient
    """
    from ..estimators.model_card import read_card, write_card
    from ..estimators.model_files import load_classifier, save_model

    results, remarks = common.consoles(quiet)
    estimator, card = load_classifier(model)
    group = group_column or group_of_fit(data, card)
    if group is None and "column group" in card.notes:
        remarks.print(
            f"The model was fitted with subjects, of column {card.notes['column group']!r}, which "
            f"{data} lacks. Every image counts as a subject of its own unless --group-column names "
            "another column."
        )
    columns = model_columns(estimator, card, image_column, labels, split_column, group)
    held = read_labelled(data, columns, taxonomy=estimator.taxonomy_, check="none")
    _check_record(model, card, trust_unseen)
    held = _unseen(held, card, remarks)
    if not held.is_labelled.any():
        raise ValueError(
            f"No sample of {held.name} has a label, so nothing can be calibrated. Give labelled "
            "ones."
        )
    if keep_probabilities:
        new = calibrated(estimator, held, card, remarks)
        _check_hedge(model, card, new)
        write_card(model, new)
    else:
        new = calibrated_both(estimator, held, card, remarks, keep_evidence=False)
        _check_hedge(model, card, new)
        save_model(estimator, model, card=new)
    card = read_card(model)
    say_hedge(remarks, card)
    common.say_written(results, model)


def group_of_fit(path: Path, card: ModelCard) -> str | None:
    """Return the column of subjects that the fit had, if the data have it too."""
    name = card.notes.get("column group")
    return name if name and not path.is_dir() and name in table_header(path) else None


def _check_record(model: Path, card: ModelCard, trust_unseen: bool) -> None:
    """Refuse to take images for unseen where nothing says which ones the model has seen."""
    if not card.trained_on.size and not trust_unseen:
        raise ValueError(
            f"{model} has no record of the images that it was trained on, so nothing can tell "
            "whether these are new to it, and a hedge set on training images guarantees nothing. "
            "If you know that all of them are new, give --trust-unseen."
        )


def _check_hedge(model: Path, card: ModelCard, new: ModelCard) -> None:
    """Refuse to replace a hedge by one that guarantees none of the usual target accuracies."""
    from ..report.hedging import TARGETS

    n, least = new.needed.size, min(TARGETS)
    if card.needed.size > n and n / (n + 1) < least:
        raise ValueError(
            f"{new.hedge_size} can guarantee {n / (n + 1):.1%} at most, and the hedge of {model}, "
            f"set on {card.hedge_size}, guarantees more. The file is left as it is. Give at least "
            f"{math.ceil(least / (1 - least) - 1e-9)} with labels."
        )


def _unseen(held: Data, card: ModelCard, remarks: Console) -> Data:
    """Return the samples, or the 'val' part, that the model was not trained on."""
    import numpy as np

    if held.split is not None and (held.split == "val").any():
        held = held.select(held.split == "val")
    seen = np.isin(content_hashes_of(held), card.trained_on)
    if held.groups is not None:
        seen = np.isin(held.groups, held.groups[seen])
    if seen.all():
        raise ValueError(
            f"The model was trained on all {len(held)} samples of {held.name}, so they say nothing "
            "about new ones. Give others."
        )
    if seen.any():
        what = "are of subjects that " if held.groups is not None else ""
        remarks.print(
            f"{seen.sum()} of {len(held)} samples {what}trained the model and are skipped."
        )
    return held.select(~seen)


def model_columns(
    estimator: Any,
    card: ModelCard,
    image: str | None,
    labels: str | None,
    split: str | None,
    group: str | None = None,
) -> Columns:
    """Return the columns to read for a model: the given ones, else those of its fit."""
    features = getattr(estimator, "feature_names_in_", ()) if estimator.backbone is None else ()
    # Names, not patterns: brackets in them mean themselves.
    escaped = tuple(str(name).replace("[", "[[]") for name in features)
    names = common.as_names(labels) or common.as_names(card.notes.get("columns labels"))
    return Columns(image, names, split, group, escaped)


def content_hashes_of(data: Data) -> Any:
    """Return the hash of each sample's content."""
    from ..images import image_source
    from ..report import content_hashes

    is_table = hasattr(data.X, "to_numpy")
    return content_hashes(data.X.to_numpy() if is_table else image_source(data.X))


def hashes_to_keep(data: Data) -> Any:
    """Return the hashes that go into a model file; none for very large data."""
    import numpy as np

    return content_hashes_of(data) if len(data) <= _MAX_HASHES else np.empty(0, dtype=np.uint64)


def held_out_predictions(folds: list[Fold], features: Features) -> tuple[Predictions, IntArray]:
    """Return what each fold predicts for the samples that it was not fitted on, and their order."""
    import numpy as np

    from ..opinions.hyper_opinion import HyperOpinion
    from ..report.predictions import Predictions, read_predictions
    from ..utils.sklearn_tools import safe_indexing

    parts = [read_predictions(fold.model, safe_indexing(features.X, fold.held)) for fold in folds]
    positions = np.concatenate([fold.held for fold in folds])
    order, first = np.argsort(positions), parts[0]
    opinion = None
    if first.opinion is not None:
        evidence = np.concatenate([part.opinion.evidence for part in parts if part.opinion])
        opinion = HyperOpinion.from_evidence(
            first.taxonomy, evidence[order], first.opinion.base_rate, first.opinion.prior_weight
        )
    leaves = np.concatenate([part.leaf_probability for part in parts])[order]
    is_read = np.ones(len(positions), dtype=bool)
    return Predictions(first.taxonomy, leaves, opinion, is_read), positions[order]


def rescale(
    folds: list[Fold],
    features: Features,
    data: Data,
    remarks: Console,
    *models: Any,
    keep_evidence: bool = True,
) -> dict[str, str]:
    """Rescale the heads of folds and models, say what it changed, and return that as notes.

    A larger scale of the evidence takes the belief away that stops above the leaves, so evidence is
    scaled only on request.
    """
    from ..estimators.cross_fitting import calibrate_together
    from ..heads.base import EvidentialHead
    from ..metrics import level_ece
    from ..report.questions import level_name

    def error() -> float:
        found, positions = held_out_predictions(folds, features)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # where no label is a leaf
            return level_ece(data.labels[positions], found.proba, found.taxonomy, "leaf")

    before, tree = error(), folds[0].model.taxonomy_
    at = f" at {level_name(tree.level_names[-1] if tree.level_names else 'leaf')}"
    is_evidential = isinstance(folds[0].model.network_.head, EvidentialHead)
    if is_evidential and keep_evidence:
        said = f"ECE {before:.3f}{at}, evidence as trained"
        remarks.print(
            f"Held-out predictions: {said}. skh2edl calibrate can scale it on new images; then "
            "less belief stops above the leaves."
        )
        return {"calibration": said}
    factor = calibrate_together(folds, features, data.labels, *models)
    what = f"evidence x {factor:.2g}" if is_evidential else f"temperature {1 / factor:.2g}"
    said = f"ECE {before:.3f} before, {error():.3f} after{at} ({what})"
    remarks.print(f"Probabilities calibrated on held-out predictions: {said}.")
    return {"calibration": said}


def calibrated_both(
    estimator: Any, held: Data, card: ModelCard, remarks: Console, keep_evidence: bool = True
) -> ModelCard:
    """Calibrate probabilities and hedge on the same held-out samples; return the card."""
    from ..estimators.cross_fitting import Features, Fold, on_features

    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip")
    remarks.print(f"Calibrating on {len(held)} held-out images.")
    estimator.set_params(verbose=int(remarks.is_terminal and not remarks.quiet))
    bare, features, usable = on_features(estimator, held.X)
    if not (usable & held.is_labelled).any():
        raise ValueError(
            f"None of the labelled images of {held.name} can be read, so nothing is calibrated. "
            "Give labelled images that open in a viewer."
        )
    parts = Features(None, features, usable)
    folds = [Fold(bare, usable.nonzero()[0])]
    notes = rescale(folds, parts, held, remarks, keep_evidence=keep_evidence)
    predictions, positions = held_out_predictions(folds, parts)
    card = replace(card, notes=card.notes | notes, calibrated_on=hashes_to_keep(held))
    return with_hedge(card, predictions, held.select(positions), remarks, "approximate")


def calibrated(estimator: Any, held: Data, card: ModelCard, remarks: Console) -> ModelCard:
    """Return the card with the hedge that held-out samples set.

    Parameters
    ----------
    estimator : classifier
        The model.
    held : Data
        Labelled samples that it was not trained on.
    card : ModelCard
        The card so far.
    remarks : Console
        Where progress is shown.
    """
    import numpy as np

    from ..report.predictions import read_predictions

    estimator.set_params(verbose=0)
    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip")
    with common.progress(remarks, "setting the hedge", len(held)) as advance:
        predictions = read_predictions(estimator, held.X, on_rows=advance)
    readable = predictions.readable.nonzero()[0]
    # They may have trained the model, or calibrated its probabilities before.
    hashes, used = hashes_to_keep(held), np.union1d(card.trained_on, card.calibrated_on)
    is_new = hashes.size and not np.isin(hashes, used).any()
    guarantee = "exact" if is_new else "approximate"
    card = with_hedge(card, predictions[readable], held.select(readable), remarks, guarantee)
    return replace(card, calibrated_on=np.union1d(card.calibrated_on, hashes))


def with_hedge(
    card: ModelCard, predictions: Predictions, held: Data, remarks: Console, guarantee: str
) -> ModelCard:
    """Return the card with the hedge that predictions for held-out samples set."""
    import numpy as np

    from ..decisions._record import record_held_out
    from ..metrics.inputs import label_nodes
    from ..report.hedging import hedge_figures, needed_thresholds

    tree = predictions.taxonomy
    truth = label_nodes(held.labels, tree)
    group = None if held.groups is None else np.unique(held.groups, return_inverse=True)[1]
    needed = needed_thresholds(predictions.leaf_probability, truth, tree, group)
    n_partial = int((tree.n_children[truth[truth > 0]] > 0).sum())
    if n_partial:
        remarks.print(
            f"{n_partial} of {len(truth)} labels end above the leaves. A prediction below such "
            "a label counts as wrong, which makes the hedge more careful."
        )
    n_counted = f"{needed.size} images"
    if group is not None:
        n_counted = f"{needed.size} subjects ({len(truth)} images)"
    if not held.is_labelled.all():
        guarantee = "approximate"  # new images may be like those without a label
    notes = {name: text for name, text in card.notes.items() if not name.startswith("hedge")}
    notes |= {"hedge set on": f"{n_counted} of {held.name}", "hedge guarantee": guarantee}
    for figures in hedge_figures(predictions, truth):
        if figures.n_samples and np.isfinite(figures.threshold):
            notes[f"hedge at {figures.target:.0%}"] = hedge_text(tree, figures)
    held_out = record_held_out(predictions.leaf_probability, truth, tree)
    return replace(card, needed=needed, notes=notes, held_out=held_out)


def hedge_text(tree: Taxonomy, figures: HedgeFigures) -> str:
    """Say how often a hedge predicts at each level, and how often it is then right."""
    from ..report.wording import CANNOT_TELL, level_words, percent

    n, (n_given, n_right) = figures.n_samples, figures.given
    said = []
    for depth in range(tree.n_levels, 0, -1):
        n_here, right_here = figures.stops[depth]
        if n_here:
            name = level_words(tree, depth)
            said.append(f"{name} for {percent(n_here / n)} ({percent(right_here / n_here)} right)")
    said.append(f"{CANNOT_TELL} for {percent(figures.stops[0][0] / n)}")
    given = f"; {percent(n_right / n_given)} right where it predicts" if n_given else ""
    return f"{', '.join(said)}{given} ({n} images)"


def hedge_table(thresholds: Mapping[float, float], said: Mapping[float, str]) -> Table:
    """Lay out what a hedge does at each target accuracy that it can guarantee."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("to be right", "probability", "it names"):
        table.add_column(heading)
    for target, least in thresholds.items():
        if math.isfinite(least):
            table.add_row(f"{target:.0%}", f"{least:.2f} or more", Text(said[target]))
    return table


def hedge_threshold(card: ModelCard, target_accuracy: float) -> float:
    """Return the probability that a hedged prediction needs, or raise if none guarantees it."""
    from ..report.hedging import threshold_for

    n = card.needed.size
    if not n:
        raise ValueError(
            "The model has no hedge, so no accuracy can be guaranteed. Set it with skh2edl "
            "calibrate, or drop --target-accuracy."
        )
    threshold = threshold_for(card.needed, target_accuracy)
    if threshold == float("inf"):
        raise ValueError(
            f"The hedge was set on {card.hedge_size}, with which at most {100 * n / (n + 1):.1f} "
            f"% can be guaranteed, not {100 * target_accuracy:g} %. Lower --target-accuracy, or "
            "give more to skh2edl calibrate."
        )
    return threshold


def say_hedge(remarks: Console, card: ModelCard) -> None:
    """Print what the hedge predicts at the usual target accuracies."""
    from ..report.hedging import TARGETS, threshold_for

    n, size = card.needed.size, card.hedge_size
    if not n:
        remarks.print("No labelled image was held out, so there is no hedge; calibrate sets one.")
        return
    guarantee = card.notes.get("hedge guarantee", "approximate")
    why = "" if guarantee == "exact" else ": not a theorem, see skh2edl calibrate --help"
    remarks.print(f"Hedge, set on {size}; its guarantee is {guarantee}{why}.")
    thresholds = {target: threshold_for(card.needed, target) for target in TARGETS}
    notes = {target: card.notes.get(f"hedge at {target:.0%}", "") for target in TARGETS}
    if n / (n + 1) >= min(TARGETS):
        remarks.print(hedge_table(thresholds, notes))
    if n / (n + 1) < max(TARGETS):
        remarks.print(
            f"{size} are too few to guarantee more than {n / (n + 1):.1%}: skh2edl calibrate "
            "with more raises that."
        )
