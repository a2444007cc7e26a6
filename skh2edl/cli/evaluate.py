"""``skh2edl evaluate``: from labelled images to a report."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from typer import Argument

from . import common
from .calibrate import content_hashes_of, model_columns
from .common import option
from .data import Data, read_labelled

if TYPE_CHECKING:
    from ..estimators.model_card import ModelCard


def evaluate(
    model: common.ModelArgument,
    data: Annotated[Path, Argument(help="Labelled images: a folder or a .csv table.")],
    out: Annotated[Path, option("Report to write, .html.", "--out", "-o")] = Path("report.html"),
    figures: Annotated[Path | None, option("Also write all figures as .json.", "--json")] = None,
    part: Annotated[
        str | None,
        option("test, val, train or all.", "--split", shown="test, if the data have parts"),
    ] = None,
    against: Annotated[
        Path | None, option("The training data, where the model file does not know them.")
    ] = None,
    trust: Annotated[
        float, option("Accuracy that you call trustworthy.", min=0.01, max=0.99)
    ] = 0.9,
    title: Annotated[
        str | None, option("Heading of the report.", shown="made of the names")
    ] = None,
    image_column: common.ImageColumnOption = None,
    labels: common.LabelsOption = None,
    split_column: common.SplitColumnOption = None,
    batch_size: Annotated[int, option("Images at a time.", min=1)] = 64,
    workers: common.WorkersOption = None,
    quiet: common.QuietOption = False,
) -> None:
    """Measure a model on labelled images and write a report.

    The report is one HTML file with everything inside. It says which level can be trusted, which
    classes are confused and what to label next, and shows the figures, pictures and opinions that
    this comes from, and what is wrong with the data.

    Where the data have no test part, the images that the model was trained on are skipped; the
    model file knows them by their content. The training data of --against are searched for
    duplicates and for classes without images.

    For example:

      skh2edl evaluate birds.safetensors photos/

      skh2edl evaluate birds.safetensors test.csv --against train.csv

      skh2edl evaluate birds.safetensors photos/ --trust 0.95 --out birds.html
    """
    from ..estimators.model_card import read_card
    from ..estimators.model_files import load_model
    from ..report import EvaluationReport

    results, remarks = common.consoles(quiet)
    common.check_output(out, (".html", ".htm"))
    if figures is not None:
        common.check_output(figures, (".json",))
    if part not in (None, "train", "val", "test", "all"):
        raise common.UsageError(f"--split must be test, val, train or all, got {part!r}.")
    estimator, card = load_model(model), read_card(model)
    columns = model_columns(estimator, card, image_column, labels, split_column)
    everything = read_labelled(data, columns, taxonomy=estimator.taxonomy_, check="none")
    chosen, note = _choose_part(everything, part, card, remarks)
    training = _training_part(everything, chosen)
    if against is not None:
        training = read_labelled(against, columns, taxonomy=estimator.taxonomy_, check="none")
    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip", batch_size=batch_size, n_workers=workers)
    with common.progress(remarks, "images", len(chosen)) as advance:
        report = EvaluationReport.from_estimator(
            estimator,
            chosen.X,
            chosen.labels,
            names=chosen.ids,
            on_rows=advance,
            trust=trust,
            title=title or f"{model.stem} on {everything.name}",
            facts=_facts(estimator, card, note),
            **_known_about_training(estimator, card, training),
        )
    report.write(out)
    if figures is not None:
        _write_figures(report, figures)
    _say_findings(results, report)
    common.say_written(results, out)


def _choose_part(
    data: Data, part: str | None, card: ModelCard, remarks: Console
) -> tuple[Data, str]:
    """Return what to evaluate, and how it was chosen."""
    if data.split is not None:
        wanted = part or ("test" if (data.split == "test").any() else "all")
        is_chosen = (data.split == wanted) | (wanted == "all")
        if not is_chosen.any():
            raise ValueError(f"{data.name} has no {wanted!r} part. Choose another --split.")
        return data.select(is_chosen), f"the {wanted!r} part of {data.name}"
    if part in ("train", "val", "test"):
        raise common.UsageError(
            f"--split {part} was asked for, but {data.name} has no parts. Drop it, or name the "
            "column of the parts with --split-column."
        )
    everything = data, f"all of {data.name}"
    return everything if part == "all" else _unseen(data, card, remarks) or everything


def _unseen(data: Data, card: ModelCard, remarks: Console) -> tuple[Data, str] | None:
    """Return the samples that are new to the model; None if all are."""
    import numpy as np

    known = np.concatenate([card.trained_on, card.calibrated_on])
    if not card.trained_on.size:
        remarks.print(
            "The model file has no record of the images that it was trained on: those among these "
            "samples are not skipped."
        )
    if not known.size:
        return None
    seen = np.isin(content_hashes_of(data), known)
    if seen.all():
        raise ValueError(
            f"The model has seen all {len(data)} samples of {data.name} in its fit, so they cannot "
            "say how good it is. Give others, or --split all to look at them all the same."
        )
    if not seen.any():
        return None
    remarks.print(
        f"{seen.sum()} of {len(data)} samples were used to fit the model and are skipped."
    )
    note = f"{(~seen).sum()} of {len(data)} samples of {data.name}, new to it"
    return data.select(~seen), note


def _training_part(everything: Data, chosen: Data) -> Data | None:
    if everything.split is None or not (everything.split == "train").any():
        return None
    train = everything.select(everything.split == "train")
    return None if set(train.ids) & set(chosen.ids) else train


def _known_about_training(estimator: Any, card: ModelCard, training: Data | None) -> dict[str, Any]:
    """Return what the report needs to know about the fit and the hedge."""
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
    notes = {name: text for name, text in card.notes.items() if not name.startswith("column")}
    return {
        "model": type(estimator).__name__ + backbone,
        "evaluated on": note,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **notes,
    }


def _say_findings(results: Console, report: Any) -> None:
    for question in report.questions:
        answer = f"[green]{escape(question.answer)}[/green]"
        results.print(f"[bold]{question.question}[/bold] {answer}")
        results.print("  " + escape(question.sentences[0]))


def _write_figures(report: Any, path: Path) -> None:
    from ..utils.files import write_atomically

    content = json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode()
    write_atomically(path, lambda file: file.write(content))
