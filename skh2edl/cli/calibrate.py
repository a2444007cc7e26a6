"""``skh2edl calibrate``, and how `fit` sets the same hedge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument

from . import common
from .common import option
from .data import Columns, Data, read_labelled, table_header

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
    quiet: common.QuietOption = False,
) -> None:
    """Set the hedge of a model from labelled images.

    It is kept in the model file. With it, skh2edl predict gives a hedged prediction for any target
    accuracy. Images that the model was trained on are skipped, and with subjects all images of
    theirs. Several images of a subject are not several samples: name the column of the subjects,
    and the guarantee holds for an image of a new one.

    For example:

      skh2edl calibrate birds.safetensors held_out/

      skh2edl calibrate birds.safetensors held_out.csv --labels species

      skh2edl calibrate skin.safetensors held_out.csv --group-column patient
    """
    from ..estimators.model_card import read_card, write_card
    from ..estimators.model_files import load_model

    results, remarks = common.consoles(quiet)
    estimator, card = load_model(model), read_card(model)
    group = group_column or _group_of_fit(data, card, remarks)
    columns = model_columns(estimator, card, image_column, labels, split_column, group)
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


def _group_of_fit(path: Path, card: ModelCard, remarks: Console) -> str | None:
    """Return the column of subjects that the fit had, if the data have it too."""
    name = card.notes.get("column group")
    if name is None or (not path.is_dir() and name in table_header(path)):
        return name
    remarks.print(
        f"The model was fitted with subjects, of column {name!r}, which {path} lacks. Every image "
        "counts as a subject of its own unless --group-column names another column."
    )
    return None


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
    """Return the columns to read for a model: the given ones, else those of its fit.

    Parameters
    ----------
    estimator : classifier
        The model.
    card : ModelCard
        Its card.
    image, labels, split, group : str or None
        The options of the command.
    """
    features = getattr(estimator, "feature_names_in_", ()) if estimator.backbone is None else ()
    # Names, not patterns: brackets in them mean themselves.
    escaped = tuple(str(name).replace("[", "[[]") for name in features)
    names = common.as_names(labels) or common.as_names(card.notes.get("columns labels"))
    return Columns(image, names, split, group, escaped)


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
    import numpy as np

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
    group = None if held.groups is None else np.unique(held.groups, return_inverse=True)[1]
    needed = needed_thresholds(
        predictions.leaf_probability[readable],
        truth,
        tree,
        None if group is None else group[readable],
    )
    n_partial = int((tree.n_children[truth[truth > 0]] > 0).sum())
    if n_partial:
        remarks.print(
            f"{n_partial} of {readable.sum()} labels end above the leaves. A prediction below such "
            "a label counts as wrong, which makes the hedge more careful."
        )
    n_counted = f"{needed.size} images"
    if group is not None:
        n_counted = f"{needed.size} subjects ({readable.sum()} images)"
    notes = card.notes | {"hedge set on": f"{n_counted} of {held.name}"}
    return replace(card, needed=needed, calibrated_on=hashes_to_keep(held), notes=notes)


def hedge_size(card: ModelCard) -> str:
    """Return how many images, or subjects, set the hedge, such as "40 subjects".

    Parameters
    ----------
    card : ModelCard
        The card of the model.
    """
    n_votes = card.needed.size
    by_subject = card.notes.get("hedge set on", "").startswith(f"{n_votes} subjects ")
    return f"{n_votes} {'subjects' if by_subject else 'images'}"


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

    n, size = card.needed.size, hedge_size(card)
    if not n:
        remarks.print(
            "No labelled image was kept aside, so there is no hedge; skh2edl calibrate sets one."
        )
        return
    thresholds = {target: threshold_for(card.needed, target) for target in TARGETS}
    possible = [f"{t:.0%}: {least:.2f}" for t, least in thresholds.items() if least < float("inf")]
    if possible:
        said = ", ".join(possible)
        remarks.print(f"Hedge, set on {size} (target accuracy: threshold): {said}.")
    if len(possible) < len(TARGETS):
        remarks.print(
            f"{size} are too few to guarantee more than {n / (n + 1):.1%}: skh2edl calibrate "
            "with more raises that."
        )
