"""``skh2edl fit`` and ``skh2edl calibrate``: from labelled images to a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ._run import check_output, consoles, plain_errors, progress, usage_error
from .data import Columns, Data, read_labelled
from .options import (
    GroupOption,
    ImageColumnOption,
    LabelsOption,
    ModelArgument,
    QuietOption,
    SplitColumnOption,
    as_names,
)

# Beyond this the hashes would make up a good part of a small model's file.
_MAX_HASHES = 500_000


def register(app: typer.Typer) -> None:
    """Add the commands.

    Parameters
    ----------
    app : typer.Typer
        The application.
    """
    # Every parameter of the estimator is a flag, so unknown ones are looked up there.
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=settings)(plain_errors(fit))
    app.command()(plain_errors(calibrate))


def fit(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Argument(
            help="A folder whose folders are the classes (and whose outermost may be train, val "
            "and test), or a .csv table with one row for each image.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The model file to write."),
    ] = Path("model.safetensors"),
    method: Annotated[
        str | None,
        typer.Option(
            help="h2edl, flat-ce, hier-ce, flat-edl, i-edl, r-edl, henn, hxe or soft-labels.",
            show_default="h2edl",
        ),
    ] = None,
    taxonomy: Annotated[
        Path | None,
        typer.Option(
            help="The tree of classes: .json, .csv (a column for each rank), .nwk, .txt (a path "
            "in each line) or a folder.",
            show_default="from the data",
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(help="Names of the levels, such as family,genus,species.", show_default=False),
    ] = None,
    image_column: ImageColumnOption = None,
    labels: LabelsOption = None,
    split_column: SplitColumnOption = None,
    group_column: GroupOption = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="For tables without images: columns of numbers, such as 'petal*,sepal*'.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with parameters of the method; flags go before it.",
            show_default=False,
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Any model of timm.", show_default="resnet50")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="'pretrained' (downloaded), a local file of weights, or 'none'.",
            show_default="pretrained",
        ),
    ] = None,
    finetune: Annotated[
        str | None,
        typer.Option(
            help="'full' trains the backbone too, 'head' only what reads its features.",
            show_default="full with a GPU, head without",
        ),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the images in pixels.", show_default="the weights'")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the images.", show_default="100")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images at a time.", show_default="64")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of the head.", show_default="0.001")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read images.", show_default="chosen")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            help="A folder to go on from: the same command resumes an interrupted fit.",
            show_default=False,
        ),
    ] = None,
    test_share: Annotated[
        float,
        typer.Option(
            help="Share of the images that is kept for evaluate, where the data have no split.",
            min=0,
            max=0.9,
        ),
    ] = 0.2,
    hedge_share: Annotated[
        float,
        typer.Option(
            help="Share that is kept to set the hedge, where the data have no 'val' part.",
            min=0,
            max=0.9,
        ),
    ] = 0.1,
    skip_bad_images: Annotated[
        bool, typer.Option("--skip-bad-images", help="Leave images out that cannot be read.")
    ] = False,
    list_parameters: Annotated[
        bool,
        typer.Option("--list-parameters", help="Print every parameter of the method and exit."),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model on labelled images and write it to one file.

    Every parameter of the method is a flag too, such as --kl-weight 0.01; --list-parameters shows
    them. A label may stop half-way down the tree.

    Part of the images is kept aside: to set the hedge, which travels in the model file, and for
    skh2edl evaluate, which knows by their content which images the model has seen.

    For example:

      skh2edl fit photos/ --out birds.safetensors

      skh2edl fit birds.csv --labels order,family,species --epochs 30

      skh2edl fit birds.csv --taxonomy birds.nwk --config settings.toml

      skh2edl fit photos/ --checkpoint-dir run1 --finetune full --ema-decay 0.99

      skh2edl fit iris.csv --features 'sepal*,petal*' --labels species
    """
    from .parameters import (
        check_config,
        describe_parameters,
        estimator_class,
        make_estimator,
        parameters_of,
        parse_flags,
        read_config,
    )

    results, remarks = consoles(quiet)
    content = {} if config is None else read_config(config)
    chosen = method or str(content.pop("method", "h2edl"))
    content.pop("method", None)
    kind = estimator_class(chosen)
    if list_parameters:
        _print_parameters(results, kind.__name__, describe_parameters(kind))
        return
    if data is None:
        raise usage_error("Missing argument 'DATA': a folder of images or a .csv file.")
    check_output(out, (".safetensors",))
    if test_share + hedge_share >= 1:
        raise usage_error(
            f"--test-share {test_share:g} and --hedge-share {hedge_share:g} leave nothing to train "
            "on. Together they must be less than 1."
        )
    known = parameters_of(kind)
    if config is not None:
        check_config(content, known, config)
    named = {
        "backbone": backbone,
        "weights": weights,
        "finetune": finetune,
        "image_size": image_size,
        "max_epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "n_workers": workers,
    }
    values = content | {
        name: None if value == "none" else value
        for name, value in named.items()
        if value is not None
    }
    values |= parse_flags(context.args, known)
    values.setdefault("random_state", seed)
    _choose(values, features is not None, checkpoint_dir, skip_bad_images, known)
    estimator = make_estimator(kind, values, None)

    columns = Columns(
        image_column, as_names(labels), split_column, group_column, as_names(features)
    )
    tree = _read_tree(taxonomy, levels)
    check = "none" if skip_bad_images else "exists"
    names = () if tree is not None else as_names(levels)
    everything = read_labelled(data, columns, taxonomy=tree, check=check, level_names=names)
    train, held, n_test = _divide(everything, test_share, hedge_share)
    estimator.set_params(taxonomy=train.taxonomy, verbose=int(remarks.is_terminal and not quiet))
    remarks.print(_plan(estimator, everything, train, held, n_test))
    try:
        estimator.fit(train.X, train.labels, **_groups(train))
    except KeyboardInterrupt:
        again = "With --checkpoint-dir it could be taken up again."
        if checkpoint_dir is not None:
            again = f"The same command goes on from {checkpoint_dir}."
        raise KeyboardInterrupt(again) from None
    estimator.save(out)
    card = _card(estimator, train, held, n_test, remarks)
    from ..estimators.model_card import write_card

    write_card(out, card)
    results.print(f"[bold green]Wrote {out}[/bold green]", soft_wrap=True)
    _say_hedge(remarks, card)
    remarks.print(
        f"[bold]Next:[/bold] skh2edl evaluate {out} {data}\n"
        f"      skh2edl predict {out} NEW_IMAGES --out answers.csv",
        soft_wrap=True,
    )


def _print_parameters(results: Console, name: str, rows: list[tuple[str, str, str]]) -> None:
    table = Table(title=f"Parameters of {name}", box=None, pad_edge=False, title_justify="left")
    for heading in ("flag", "default", "meaning"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "flag")
    for row in rows:
        table.add_row(*row)
    results.print(table, markup=False)


def _choose(
    values: dict[str, Any],
    is_features: bool,
    checkpoint_dir: Path | None,
    skip_bad_images: bool,
    known: dict[str, Any],
) -> None:
    """Fill in what suits the data and the machine."""
    if is_features:
        values["backbone"] = None
    elif "finetune" not in values:
        import torch

        values["finetune"] = "full" if torch.cuda.is_available() else "head"
    if skip_bad_images:
        values["on_bad_image"] = "skip"
    if checkpoint_dir is not None:
        values["checkpoint_dir"] = str(checkpoint_dir)
        # A frozen backbone has no epochs to resume: what takes time are its features.
        if "memory" in known and not is_features:
            values.setdefault("memory", str(checkpoint_dir / "features"))


def _read_tree(taxonomy: Path | None, levels: str | None) -> Any:
    from .trees import read_tree

    if taxonomy is None:
        return None
    return read_tree(taxonomy, list(as_names(levels)) or None)


def _divide(data: Data, test_share: float, hedge_share: float) -> tuple[Data, Data | None, int]:
    """Return what to train on, what to set the hedge with, and how many are left for a test."""
    import numpy as np

    split = data.split
    if split is None:
        from ..utils.hashing import unit_hash

        place = unit_hash(data.ids if data.groups is None else data.groups, purpose="split")
        split = np.where(
            place < test_share, "test", np.where(place < test_share + hedge_share, "val", "train")
        )
    train, held = data.select(split == "train"), data.select(split == "val")
    if not len(train):
        raise ValueError(
            f"{data.name} has {len(data)} samples and none of them is to train on. Give more, or "
            "lower --test-share and --hedge-share."
        )
    return train, held if len(held) else None, int((split == "test").sum())


def _plan(estimator: Any, everything: Data, train: Data, held: Data | None, n_test: int) -> str:
    tree = train.taxonomy
    levels = "" if tree.level_names is None else f" ({' > '.join(tree.level_names)})"
    kept = "as the data say" if everything.split is not None else "by a hash of their names"
    lines = [
        f"{len(everything)} samples, {tree.n_leaves} leaves on {tree.n_levels} level(s){levels}.",
        f"{len(train)} to train on, {0 if held is None else len(held)} to set the hedge, {n_test} "
        f"for evaluate ({kept}).",
    ]
    if estimator.backbone is not None:
        how = "trained too" if estimator.finetune == "full" else "frozen, its features read once"
        lines.append(f"{type(estimator).__name__} on {estimator.backbone}, {how}.")
    else:
        lines.append(f"{type(estimator).__name__} on {train.X.shape[1]} columns of numbers.")
    return "\n".join(lines)


def _groups(train: Data) -> dict[str, Any]:
    return {} if train.groups is None else {"groups": train.groups}


def _hashes(data: Data | None) -> Any:
    import numpy as np

    from ..images import image_source
    from ..report import content_hashes

    if data is None or len(data) > _MAX_HASHES:
        return np.empty(0, dtype=np.uint64)
    is_table = hasattr(data.X, "to_numpy")
    return content_hashes(data.X.to_numpy() if is_table else image_source(data.X))


def _card(estimator: Any, train: Data, held: Data | None, n_test: int, remarks: Console) -> Any:
    from ..estimators.model_card import ModelCard

    notes = {
        "data": train.name,
        "training samples": str(len(train)),
        "kept for the hedge": str(0 if held is None else len(held)),
        "kept for evaluation": str(n_test),
    }
    columns = train.columns
    notes |= {
        f"column {name}": value
        for name, value in [("image", columns.image), ("split", columns.split)]
        if value
    }
    if columns.labels:
        notes["columns labels"] = ",".join(columns.labels)
    card = ModelCard(trained_on=_hashes(train), notes=notes)
    return card if held is None else _calibrated(estimator, held, card, remarks)


def _calibrated(estimator: Any, held: Data, card: Any, remarks: Console) -> Any:
    """Return the card with the thresholds that held-out samples needed."""
    from dataclasses import replace

    from ..metrics.inputs import label_nodes
    from ..report import needed_thresholds
    from ..report.predictions import read_predictions

    tree = estimator.taxonomy_
    estimator.set_params(verbose=0)
    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip")
    with progress(remarks, "setting the hedge", len(held)) as advance:
        answers = read_predictions(estimator, held.X, on_rows=advance)
    truth = label_nodes(held.labels, tree)[answers.readable]
    needed = needed_thresholds(answers.leaf_probability[answers.readable], truth, tree)
    notes = card.notes | {"hedge set on": f"{needed.size} images of {held.name}"}
    return replace(card, needed=needed, calibrated_on=_hashes(held), notes=notes)


def _say_hedge(remarks: Console, card: Any) -> None:
    from ..report.hedging import TARGETS, threshold_for

    n = card.needed.size
    if not n:
        remarks.print(
            "No labelled image was kept aside, so there is no hedge; skh2edl calibrate sets one."
        )
        return
    kept = [target for target in TARGETS if threshold_for(card.needed, target) < float("inf")]
    if kept:
        said = ", ".join(f"{t:.0%}: {threshold_for(card.needed, t):.2f}" for t in kept)
        remarks.print(f"Hedge, set on {n} images (promised accuracy: threshold): {said}.")
    if len(kept) < len(TARGETS):
        remarks.print(
            f"{n} images are too few to promise more than {n / (n + 1):.1%}: skh2edl calibrate "
            "with more raises that."
        )


def calibrate(
    model: ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(
            help="Labelled images that the model was not trained on: a folder or a .csv table. "
            "Where they have a 'val' part, only that is used."
        ),
    ],
    image_column: ImageColumnOption = None,
    labels: LabelsOption = None,
    split_column: SplitColumnOption = None,
    quiet: QuietOption = False,
) -> None:
    """Set the hedge of a model from labelled images.

    It is kept in the model file. With it, skh2edl predict gives a hedged answer for any promised
    accuracy. Images that the model was trained on are left out.

    For example:

      skh2edl calibrate birds.safetensors held_out/

      skh2edl calibrate birds.safetensors held_out.csv --labels species
    """
    import numpy as np

    from ..estimators.model_card import read_card, write_card
    from ..estimators.model_files import load_model

    results, remarks = consoles(quiet)
    estimator = load_model(model)
    card = read_card(model)
    columns = model_columns(estimator, card, image_column, labels, split_column)
    held = read_labelled(data, columns, taxonomy=estimator.taxonomy_, check="none")
    if held.split is not None and (held.split == "val").any():
        held = held.select(held.split == "val")
    seen = np.isin(_hashes(held), card.trained_on)
    if seen.all():
        raise ValueError(
            f"The model was trained on all {len(held)} samples of {held.name}, so they say nothing "
            "about new ones. Give others."
        )
    if seen.any():
        remarks.print(f"{seen.sum()} of {len(held)} samples trained the model and are left out.")
    card = _calibrated(estimator, held.select(~seen), card, remarks)
    if not card.needed.size:
        raise ValueError(
            f"No sample of {held.name} has a label, so no threshold can be set. Give labelled ones."
        )
    write_card(model, card)
    _say_hedge(remarks, card)
    results.print(f"[bold green]Wrote {model}[/bold green]", soft_wrap=True)


def model_columns(
    estimator: Any, card: Any, image: str | None, labels: str | None, split: str | None
) -> Columns:
    """Return the columns to read for a model: as asked for, else as at its fit.

    Parameters
    ----------
    estimator : classifier
        The model.
    card : ModelCard
        What is known about its fit.
    image, labels, split : str or None
        What was asked for.
    """
    features = getattr(estimator, "feature_names_in_", ()) if estimator.backbone is None else ()
    # Names, not patterns: brackets in them mean themselves.
    escaped = tuple(name.replace("[", "[[]") for name in map(str, features))
    return Columns(
        image, as_names(labels) or as_names(card.notes.get("columns labels")), split, None, escaped
    )
