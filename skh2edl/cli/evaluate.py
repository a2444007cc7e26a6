"""``skh2edl evaluate``: from labelled images to a report."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from typer import Argument

from . import common
from .calibrate import (
    content_hashes_of,
    group_of_fit,
    hedge_table,
    hedge_text,
    held_out_predictions,
    model_columns,
)
from .common import option
from .data import Data, read_labelled

if TYPE_CHECKING:
    from ..estimators.model_card import ModelCard
    from ..report import EvaluationReport
    from ..report.predictions import Predictions

# From this number of images on, an accuracy is known to 10 points.
_FEW_TO_JUDGE = 100


class Chosen(NamedTuple):
    """Samples to evaluate on, how they were chosen, and what is known of them.

    Parameters
    ----------
    data : Data
        The samples.
    note : str
        How they were chosen.
    is_new : bool, default=True
        Whether neither the model nor its hedge comes from them.
    predictions : Predictions, default=None
        Those of the fits that held the samples out; None asks the model.
    """

    data: Data
    note: str
    is_new: bool = True
    predictions: Predictions | None = None


DataArgument = Annotated[Path, Argument(help="Labelled images: a folder or a .csv table.")]
OutOption = Annotated[Path, option("Report to write, .html.", "--out", "-o")]
FiguresOption = Annotated[Path | None, option("Also write all figures as .json.", "--json")]
PartOption = Annotated[
    str | None,
    option("test, val, train or all.", "--split", shown="test, if the data have parts"),
]
AgainstOption = Annotated[
    Path | None, option("The training data, where the model file does not know them.")
]
TrustOption = Annotated[float, option("Accuracy that you call trustworthy.", min=0.01, max=0.99)]
TitleOption = Annotated[str | None, option("Heading of the report.", shown="made of the names")]
BatchSizeOption = Annotated[int, option("Images at a time.", min=1)]


def evaluate(
    model: common.ModelArgument,
    data: DataArgument,
    out: OutOption = Path("report.html"),
    figures: FiguresOption = None,
    part: PartOption = None,
    against: AgainstOption = None,
    trust: TrustOption = 0.9,
    title: TitleOption = None,
    image_column: common.ImageColumnOption = None,
    labels: common.LabelsOption = None,
    split_column: common.SplitColumnOption = None,
    batch_size: BatchSizeOption = 64,
    workers: common.WorkersOption = None,
    quiet: common.QuietOption = False,
) -> None:
    """Measure a model on labelled images and write a report.

    The report is one HTML file with everything inside. It says which level can be trusted, which
    classes are confused, what to do next and what is wrong with the data.

    DATA may be what the model was fitted on. Its test part is used, else the images that the model
    has not seen. If it has seen all of them, each is judged by one of several fits that held it
    out. The training data of --against are searched for duplicates and for classes without images.

    For example:

      skh2edl evaluate birds.safetensors photos/

      skh2edl evaluate birds.safetensors test.csv --against train.csv

      skh2edl evaluate birds.safetensors photos/ --trust 0.95 --out birds.html
    """
    from ..estimators.model_files import load_classifier

    results, remarks = common.consoles(quiet)
    common.check_output(out, (".html", ".htm"))
    if figures is not None:
        common.check_output(figures, (".json",))
    if part not in (None, "train", "val", "test", "all"):
        raise common.UsageError(f"--split must be test, val, train or all, got {part!r}.")
    estimator, card = load_classifier(model)
    group = group_of_fit(data, card)
    columns = model_columns(estimator, card, image_column, labels, split_column, group)
    everything = read_labelled(data, columns, taxonomy=estimator.taxonomy_, check="none")
    if estimator.backbone is not None:
        shows = int(remarks.is_terminal and not quiet)
        estimator.set_params(
            on_bad_image="skip",
            batch_size=batch_size,
            hardware__n_workers=workers,
            verbose=shows,
        )
    choice = _choose_part(everything, part, card, estimator, remarks)
    training = _training_part(everything, choice.data)
    if against is not None:
        training = read_labelled(against, columns, taxonomy=estimator.taxonomy_, check="none")
    report = _make_report(
        estimator,
        choice,
        remarks,
        trust=trust,
        title=title or f"{model.stem} on {everything.name}",
        facts=_facts(estimator, card, choice.note),
        **_known_about_training(estimator, card, training, choice.is_new),
    )
    report.write(out)
    if figures is not None:
        _write_figures(report, figures)
    _say_findings(results, report)
    _warn_of_few(report)
    common.say_written(results, out)


def _make_report(
    estimator: Any, choice: Chosen, remarks: Console, **options: Any
) -> EvaluationReport:
    """Make the report on the chosen samples."""
    from ..metrics.inputs import label_nodes
    from ..report import EvaluationReport

    chosen = choice.data
    estimator.set_params(verbose=0)
    if choice.predictions is None:
        with common.progress(remarks, "images", len(chosen)) as advance:
            return EvaluationReport.from_estimator(
                estimator, chosen.X, chosen.labels, names=chosen.ids, on_rows=advance, **options
            )
    truth = label_nodes(chosen.labels, estimator.taxonomy_)
    images = None if estimator.backbone is None else chosen.X
    return EvaluationReport(choice.predictions, truth, names=chosen.ids, images=images, **options)


def _choose_part(
    data: Data, part: str | None, card: ModelCard, estimator: Any, remarks: Console
) -> Chosen:
    """Choose the test part, else what the model has not seen, else what was held out in its fit."""
    if data.split is not None and (part is not None or (data.split == "test").any()):
        wanted = part or "test"
        is_chosen = (data.split == wanted) | (wanted == "all")
        if not is_chosen.any():
            raise ValueError(f"{data.name} has no {wanted!r} part. Choose another --split.")
        return Chosen(data.select(is_chosen), f"the {wanted!r} part of {data.name}")
    if part in ("train", "val", "test"):
        raise common.UsageError(
            f"--split {part} was asked for, but {data.name} has no parts. Drop it, or name the "
            "column of the parts with --split-column."
        )
    if part == "all":
        return Chosen(data, f"all of {data.name}")
    return _held_out(data, card, estimator, remarks)


def _held_out(data: Data, card: ModelCard, estimator: Any, remarks: Console) -> Chosen:
    """Choose the samples that are new to the model, else those that were held out in its fit."""
    import numpy as np

    if not card.trained_on.size:
        remarks.print(
            "The model file has no record of the images that it was trained on: those among these "
            "samples are not skipped."
        )
    hashes = content_hashes_of(data)
    trained, held = np.isin(hashes, card.trained_on), np.isin(hashes, card.calibrated_on)
    new = ~trained & ~held
    if new.all():
        return Chosen(data, f"all of {data.name}")
    if new.any():
        remarks.print(
            f"{(~new).sum()} of {len(data)} samples were used to fit the model and are skipped."
        )
        note = f"{new.sum()} of {len(data)} samples of {data.name}, new to it"
        return Chosen(data.select(new), note)
    if held.any():
        note = f"{held.sum()} samples of {data.name} that calibrated the model and did not train it"
        remarks.print(f"Evaluating on {note}.")
        return Chosen(data.select(held), note, is_new=False)
    if "cross-fitted parts" not in card.notes:
        raise ValueError(
            f"The model has seen all {len(data)} samples of {data.name} in its fit, so they cannot "
            "say how good it is. Give others, or --split all to look at them all the same."
        )
    return _cross_fitted(data, card, estimator, remarks)


def _cross_fitted(data: Data, card: ModelCard, estimator: Any, remarks: Console) -> Chosen:
    """Predict every training sample with a head that was fitted without it, as the fit did."""
    from ..estimators import cross_fitting
    from ..heads.base import EvidentialHead

    n_parts = int(card.notes["cross-fitted parts"])
    remarks.print(
        f"The model was trained on all {len(data)} samples. Each is judged by one of {n_parts} "
        "fits that held it out."
    )
    if len(data) < card.trained_on.size:
        common.show_warning(
            f"These are {len(data)} of {card.trained_on.size} training samples, so those fits "
            "learn from fewer than the model did."
        )
    estimator.set_params(taxonomy=estimator.taxonomy_)
    backbone = cross_fitting.frozen_backbone(estimator)
    features = cross_fitting.read_features(estimator, backbone, data.X)
    folds = cross_fitting.fit_folds(estimator, features, data.labels, data.groups, n_parts)
    head = estimator.network_.head
    if isinstance(head, EvidentialHead):
        # As the model's: fit leaves the evidence as trained, calibrate scales it.
        for fold in folds:
            own = fold.model.network_.head
            own.rescale(math.exp(head.log_scale - own.log_scale))
    else:
        cross_fitting.calibrate_together(folds, features, data.labels)
    predictions, positions = held_out_predictions(folds, features)
    note = (
        f"{len(positions)} training samples of {data.name}, each held out of one of {n_parts} fits"
    )
    return Chosen(data.select(positions), note, is_new=False, predictions=predictions)


def _training_part(everything: Data, chosen: Data) -> Data | None:
    if everything.split is None or not (everything.split == "train").any():
        return None
    train = everything.select(everything.split == "train")
    return None if set(train.ids) & set(chosen.ids) else train


def _known_about_training(
    estimator: Any, card: ModelCard, training: Data | None, is_new: bool
) -> dict[str, Any]:
    """Return what the report needs to know about the fit and the hedge."""
    from ..report.hedging import TARGETS, threshold_for
    from ..report.wording import listed

    if not is_new:
        # The same samples set the hedge, so it is measured on halves of them.
        least = [threshold_for(card.needed, target) for target in TARGETS]
        said = listed([f"{each:.2f}" for each in least if math.isfinite(each)] or [""])
        note = f"Those of the model file are set on all: {said}." if said else ""
        return {"calibration_note": note}
    known: dict[str, Any] = {
        "calibration": card.needed if card.needed.size else None,
        "calibration_note": card.notes.get("hedge set on", ""),
        "train_hashes": card.trained_on if card.trained_on.size else None,
    }
    if training is not None:
        known["train_labels"] = training.labels
        # Where the card holds no hashes, duplicates are looked for in the images themselves.
        if estimator.backbone is not None and not card.trained_on.size:
            known["train_images"] = training.X
    return known


def _facts(estimator: Any, card: ModelCard, note: str) -> dict[str, str]:
    backbone = "" if estimator.backbone is None else f" on {estimator.backbone}"
    # The columns are the command's own; of the hedge the report has a table.
    own = ("column", "hedge at")
    notes = {name: text for name, text in card.notes.items() if not name.startswith(own)}
    return {
        "model": type(estimator).__name__ + backbone,
        "evaluated on": note,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **notes,
    }


def _say_findings(results: Console, report: Any) -> None:
    from ..report.hedging import CROSS_CALIBRATED

    for question in report.questions:
        answer = f"[green]{escape(question.answer)}[/green]"
        results.print(f"[bold]{question.question}[/bold] {answer}")
        results.print("  " + escape(question.sentences[0]))
    results.print("[bold]How far does the hedge go?[/bold]")
    thresholds = {figures.target: figures.threshold for figures in report.hedges}
    said = {each.target: hedge_text(report.taxonomy, each) for each in report.hedges}
    results.print(hedge_table(thresholds, said))
    if report.is_cross_calibrated:
        results.print(f"  {CROSS_CALIBRATED} {report.calibration_note}")


def _warn_of_few(report: Any) -> None:
    """Warn where the figures rest on few images."""
    if 0 < report.n_labelled < _FEW_TO_JUDGE:
        # Twice the standard error of a fraction near one half, the widest.
        margin = 1 / math.sqrt(report.n_labelled)
        common.show_warning(
            f"All figures rest on {report.n_labelled} images: an accuracy measured on so few is "
            f"uncertain by up to {100 * margin:.0f} points."
        )


def _write_figures(report: Any, path: Path) -> None:
    from ..utils.files import write_atomically

    content = json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode()
    write_atomically(path, lambda file: file.write(content))
