"""``skh2edl evaluate``: from labelled images to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ._run import check_output, consoles, plain_errors, progress, usage_error
from .data import Data, read_labelled
from .options import ImageColumnOption, LabelsOption, ModelArgument, QuietOption, SplitColumnOption


def register(app: typer.Typer) -> None:
    """Add the command.

    Parameters
    ----------
    app : typer.Typer
        The application.
    """
    app.command()(plain_errors(evaluate))


def evaluate(
    model: ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(help="Labelled images: a folder or a .csv table.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The report to write, one .html file.")
    ] = Path("report.html"),
    figures: Annotated[
        Path | None,
        typer.Option("--json", help="Also write all figures as .json.", show_default=False),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--split",
            help="Which part to evaluate: test, val, train or all.",
            show_default="test, if the data have parts",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="The training data, to look for copies and classes without images, where the "
            "model file does not know them.",
            show_default=False,
        ),
    ] = None,
    trust: Annotated[
        float,
        typer.Option(help="Share of right answers that you call trustworthy.", min=0.01, max=0.99),
    ] = 0.9,
    title: Annotated[
        str | None, typer.Option(help="Heading of the report.", show_default="made of the names")
    ] = None,
    image_column: ImageColumnOption = None,
    labels: LabelsOption = None,
    split_column: SplitColumnOption = None,
    batch_size: Annotated[int, typer.Option(help="Images at a time.", min=1)] = 64,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read images.", show_default="chosen")
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Measure a model on labelled images and write a report.

    The report is one HTML file with everything inside. It says which level can be trusted, which
    classes are confused and what to label next, and shows the figures, pictures and opinions that
    this comes from, and what is wrong with the data.

    Where the data have no test part, the images that the model was trained on are left out; the
    model file knows them by their content.

    For example:

      skh2edl evaluate birds.safetensors photos/

      skh2edl evaluate birds.safetensors test.csv --against train.csv

      skh2edl evaluate birds.safetensors photos/ --trust 0.95 --out birds.html
    """
    import json

    from ..estimators.model_card import read_card
    from ..estimators.model_files import load_model
    from ..report import EvaluationReport
    from ..utils.files import write_atomically
    from .fit import model_columns

    results, remarks = consoles(quiet)
    check_output(out, (".html", ".htm"))
    if figures is not None:
        check_output(figures, (".json",))
    if part not in (None, "train", "val", "test", "all"):
        raise usage_error(f"--split must be test, val, train or all, got {part!r}.")
    estimator = load_model(model)
    card = read_card(model)
    columns = model_columns(estimator, card, image_column, labels, split_column)
    everything = read_labelled(data, columns, taxonomy=estimator.taxonomy_, check="none")
    chosen, note = _choose_part(everything, part, card, remarks)
    training = _training(everything, chosen, against, columns, estimator)
    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip", batch_size=batch_size, n_workers=workers)
    with progress(remarks, "images", len(chosen)) as advance:
        report = EvaluationReport.from_estimator(
            estimator,
            chosen.X,
            chosen.labels,
            names=chosen.ids,
            on_rows=advance,
            calibration=card.needed if card.needed.size else None,
            calibration_note=card.notes.get("hedge set on", ""),
            train_hashes=card.trained_on if card.trained_on.size else None,
            train_images=_hashable(training, estimator, card),
            train_labels=None if training is None else training.labels,
            trust=trust,
            title=title or f"{model.stem} on {everything.name}",
            facts=_facts(estimator, card, everything, note),
        )
    report.write(out)
    if figures is not None:
        content = json.dumps(report.to_dict(), ensure_ascii=False, indent=1).encode()
        write_atomically(figures, lambda file: file.write(content))
    for question in report.questions:
        results.print(f"[bold]{question.question}[/bold] [green]{_plain(question.answer)}[/green]")
        results.print("  " + _plain(question.sentences[0]))
    results.print(f"[bold green]Wrote {out}[/bold green]", soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _choose_part(data: Data, part: str | None, card: Any, remarks: Console) -> tuple[Data, str]:
    """Return what to evaluate, and how it was chosen."""
    import numpy as np

    from .fit import _hashes

    if data.split is not None or part in ("train", "val", "test"):
        if data.split is None:
            raise usage_error(
                f"--split {part} was asked for, but {data.name} has no parts. Leave it out, or "
                "name the column of the parts with --split-column."
            )
        wanted = part or ("test" if (data.split == "test").any() else "all")
        rows = np.ones(len(data), dtype=bool) if wanted == "all" else data.split == wanted
        if not rows.any():
            raise ValueError(f"{data.name} has no {wanted!r} part. Choose another --split.")
        return data.select(rows), f"the {wanted!r} part of {data.name}"
    known = np.concatenate([card.trained_on, card.calibrated_on])
    if part == "all" or not known.size:
        return data, f"all of {data.name}"
    seen = np.isin(_hashes(data), known)
    if seen.all():
        raise ValueError(
            f"The model has seen all {len(data)} samples of {data.name} in its fit, so they cannot "
            "say how good it is. Give others, or --split all to look at them all the same."
        )
    if seen.any():
        remarks.print(
            f"{seen.sum()} of {len(data)} samples were used to fit the model and are left out."
        )
        return data.select(
            ~seen
        ), f"{(~seen).sum()} of {len(data)} samples of {data.name}, new to it"
    return data, f"all of {data.name}"


def _training(
    everything: Data, chosen: Data, against: Path | None, columns: Any, estimator: Any
) -> Data | None:
    if against is not None:
        return read_labelled(against, columns, taxonomy=estimator.taxonomy_, check="none")
    if everything.split is None or not (everything.split == "train").any():
        return None
    train = everything.select(everything.split == "train")
    return None if set(train.ids) & set(chosen.ids) else train


def _hashable(training: Data | None, estimator: Any, card: Any) -> Any:
    """Return the training images to look for copies in, if the model file does not know them."""
    if training is None or estimator.backbone is None or card.trained_on.size:
        return None
    return training.X


def _facts(estimator: Any, card: Any, data: Data, note: str) -> dict[str, str]:
    from datetime import UTC, datetime

    facts = {
        "model": type(estimator).__name__
        + ("" if estimator.backbone is None else f" on {estimator.backbone}"),
        "evaluated on": note,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return facts | {
        name: value for name, value in card.notes.items() if not name.startswith("column")
    }
