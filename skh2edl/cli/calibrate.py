"""``skh2edl calibrate``, and how `fit` sets the same hedge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument

from . import common
from .data import Columns, Data, read_labelled

if TYPE_CHECKING:
    from ..estimators.model_card import ModelCard

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
    trust_unseen: Annotated[
        bool,
        common.option(
            "Take the images for unseen though the model file has no record of its training "
            "images.",
            "--trust-unseen",
        ),
    ] = False,
    quiet: common.QuietOption = False,
) -> None:
    """Set the hedge of a model from labelled images.

    It is kept in the model file. With it, skh2edl predict gives a hedged prediction for any target
    accuracy. Images that the model was trained on are skipped.

    For example:

      skh2edl calibrate birds.safetensors held_out/

      skh2edl calibrate birds.safetensors held_out.csv --labels species
    """
    from ..estimators.model_card import read_card, write_card
    from ..estimators.model_files import load_model

    results, remarks = common.consoles(quiet)
    estimator, card = load_model(model), read_card(model)
    columns = model_columns(estimator, card, image_column, labels, split_column)
    held = read_labelled(data, columns, taxonomy=estimator.taxonomy_, check="none")
    _check_record(model, card, trust_unseen)
    held = _unseen(held, card, remarks)
    card = calibrated(estimator, held, card, remarks)
    if not card.needed.size:
        raise ValueError(
            f"No sample of {held.name} has a label, so no threshold can be set. Give labelled ones."
        )
    write_card(model, card)
    say_hedge(remarks, card)
    common.say_written(results, model)


def _check_record(model: Path, card: ModelCard, trust_unseen: bool) -> None:
    """Refuse to take images for unseen where nothing says which ones the model has seen."""
    if not card.trained_on.size and not trust_unseen:
        raise ValueError(
            f"{model} has no record of the images that it was trained on, so nothing can tell "
            "whether these are new to it, and a hedge set on training images guarantees nothing. "
            "If you know that all of them are new, give --trust-unseen."
        )


def _unseen(held: Data, card: ModelCard, remarks: Console) -> Data:
    """Return the samples, or the 'val' part, that the model was not trained on."""
    import numpy as np

    if held.split is not None and (held.split == "val").any():
        held = held.select(held.split == "val")
    seen = np.isin(content_hashes_of(held), card.trained_on)
    if seen.all():
        raise ValueError(
            f"The model was trained on all {len(held)} samples of {held.name}, so they say nothing "
            "about new ones. Give others."
        )
    if seen.any():
        remarks.print(f"{seen.sum()} of {len(held)} samples trained the model and are skipped.")
    return held.select(~seen)


def model_columns(
    estimator: Any, card: ModelCard, image: str | None, labels: str | None, split: str | None
) -> Columns:
    """Return the columns to read for a model: the given ones, else those of its fit.

    Parameters
    ----------
    estimator : classifier
        The model.
    card : ModelCard
        Its card.
    image, labels, split : str or None
        The options of the command.
    """
    features = getattr(estimator, "feature_names_in_", ()) if estimator.backbone is None else ()
    # Names, not patterns: brackets in them mean themselves.
    escaped = tuple(str(name).replace("[", "[[]") for name in features)
    names = common.as_names(labels) or common.as_names(card.notes.get("columns labels"))
    return Columns(image, names, split, None, escaped)


def content_hashes_of(data: Data) -> Any:
    """Return the hash of each sample's content.

    Parameters
    ----------
    data : Data
        The samples.
    """
    from ..images import image_source
    from ..report import content_hashes

    is_table = hasattr(data.X, "to_numpy")
    return content_hashes(data.X.to_numpy() if is_table else image_source(data.X))


def hashes_to_keep(data: Data) -> Any:
    """Return the hashes that go into a model file; none for very large data.

    Parameters
    ----------
    data : Data
        The samples.
    """
    import numpy as np

    return content_hashes_of(data) if len(data) <= _MAX_HASHES else np.empty(0, dtype=np.uint64)


def calibrated(estimator: Any, held: Data, card: ModelCard, remarks: Console) -> ModelCard:
    """Return the card with the thresholds that held-out samples need.

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
    from ..metrics.inputs import label_nodes
    from ..report import needed_thresholds
    from ..report.predictions import read_predictions

    tree = estimator.taxonomy_
    estimator.set_params(verbose=0)
    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip")
    with common.progress(remarks, "setting the hedge", len(held)) as advance:
        predictions = read_predictions(estimator, held.X, on_rows=advance)
    readable = predictions.readable
    truth = label_nodes(held.labels, tree)[readable]
    needed = needed_thresholds(predictions.leaf_probability[readable], truth, tree)
    notes = card.notes | {"hedge set on": f"{needed.size} images of {held.name}"}
    return replace(card, needed=needed, calibrated_on=hashes_to_keep(held), notes=notes)


def say_hedge(remarks: Console, card: ModelCard) -> None:
    """Print the thresholds of the usual target accuracies.

    Parameters
    ----------
    remarks : Console
        Where to print.
    card : ModelCard
        The card of the model.
    """
    from ..report.hedging import TARGETS, threshold_for

    n = card.needed.size
    if not n:
        remarks.print(
            "No labelled image was kept aside, so there is no hedge; skh2edl calibrate sets one."
        )
        return
    thresholds = {target: threshold_for(card.needed, target) for target in TARGETS}
    possible = [f"{t:.0%}: {least:.2f}" for t, least in thresholds.items() if least < float("inf")]
    if possible:
        said = ", ".join(possible)
        remarks.print(f"Hedge, set on {n} images (target accuracy: threshold): {said}.")
    if len(possible) < len(TARGETS):
        remarks.print(
            f"{n} images are too few to guarantee more than {n / (n + 1):.1%}: skh2edl calibrate "
            "with more raises that."
        )
