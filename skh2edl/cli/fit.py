"""``skh2edl fit``: from labelled images to a model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from rich.console import Console
from rich.table import Table
from typer import Argument, Context

from . import common, parameters
from .calibrate import calibrated, hashes_to_keep, say_hedge
from .common import option
from .data import Columns, Data, read_labelled
from .taxonomy import read_tree

if TYPE_CHECKING:
    from ..estimators.model_card import ModelCard


def fit(
    context: Context,
    data: Annotated[
        Path | None, Argument(help="A folder with a folder for each class, or a .csv table.")
    ] = None,
    out: Annotated[Path, option("Model to write.", "--out", "-o")] = Path("model.safetensors"),
    method: Annotated[
        str | None, option(f"{', '.join(parameters.METHODS)}.", shown="h2edl")
    ] = None,
    taxonomy: Annotated[
        Path | None,
        option("The tree, in any form that skh2edl taxonomy reads.", shown="from the data"),
    ] = None,
    levels: Annotated[
        str | None, option("Names of the levels, such as family,genus,species.")
    ] = None,
    image_column: common.ImageColumnOption = None,
    labels: common.LabelsOption = None,
    split_column: common.SplitColumnOption = None,
    group_column: Annotated[
        str | None,
        option(
            "Column of subjects: each is in one part, and has one vote in the hedge.",
            shown="group, if there is one",
        ),
    ] = None,
    features: Annotated[
        str | None, option("Columns of numbers to read instead of images, such as 'petal*,sepal*'.")
    ] = None,
    config: Annotated[
        Path | None, option("A TOML file with parameters of the method; flags override it.")
    ] = None,
    backbone: Annotated[str | None, option("Any model of timm.", shown="resnet50")] = None,
    weights: Annotated[
        str | None,
        option("'pretrained' (downloaded), a local file, or 'none'.", shown="pretrained"),
    ] = None,
    finetune: Annotated[
        str | None, option("'full' network or 'head' only.", shown="full with a GPU, head without")
    ] = None,
    image_size: Annotated[
        int | None, option("Side of the images in pixels.", shown="the weights'")
    ] = None,
    epochs: Annotated[int | None, option("Passes over the images.", shown="100")] = None,
    batch_size: Annotated[int | None, option("Images at a time.", shown="64")] = None,
    learning_rate: Annotated[float | None, option("Of the head.", shown="0.001")] = None,
    workers: common.WorkersOption = None,
    seed: Annotated[int, option("The same seed gives the same model.")] = 0,
    checkpoint_dir: Annotated[
        Path | None, option("A folder of checkpoints: the same command resumes an interrupted fit.")
    ] = None,
    test_share: Annotated[
        float, option("Fraction kept for evaluate, where the data have no split.", min=0, max=0.9)
    ] = 0.2,
    hedge_share: Annotated[
        float,
        option(
            "Fraction kept to set the hedge, where the data have no 'val' part.", min=0, max=0.9
        ),
    ] = 0.1,
    skip_bad_images: Annotated[
        bool, option("Skip images that cannot be read.", "--skip-bad-images")
    ] = False,
    list_parameters: Annotated[
        bool, option("Print every parameter of the method and exit.", "--list-parameters")
    ] = False,
    quiet: common.QuietOption = False,
) -> None:
    """Train a model on labelled images and write it to one file.

    The folders of DATA name the classes, and the outermost may be train, val and test; a table has
    one row for each image. A label may stop half-way down the tree.

    Every parameter of the method is a flag too, such as --kl-weight 0.01; --list-parameters shows
    them.

    Part of the images is kept aside: to set the hedge, which travels in the model file, and for
    skh2edl evaluate, which knows by their content which images the model has seen.

    For example:

      skh2edl fit photos/ --out birds.safetensors

      skh2edl fit birds.csv --labels order,family,species --epochs 30

      skh2edl fit birds.csv --taxonomy birds.nwk --config settings.toml

      skh2edl fit photos/ --checkpoint-dir run1 --finetune full --ema-decay 0.99

      skh2edl fit iris.csv --features 'sepal*,petal*' --labels species
    """
    results, remarks = common.consoles(quiet)
    content = {} if config is None else parameters.read_config(config)
    named = str(content.pop("method", "h2edl"))
    kind = parameters.estimator_class(method or named)
    if list_parameters:
        _print_parameters(results, kind)
        return
    if data is None:
        raise common.UsageError("Missing argument 'DATA': a folder of images or a .csv file.")
    common.check_output(out, (".safetensors",))
    _check_shares(test_share, hedge_share)
    options = {
        "backbone": backbone,
        "weights": weights,
        "finetune": finetune,
        "image_size": image_size,
        "max_epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "n_workers": workers,
        "on_bad_image": "skip" if skip_bad_images else None,
    }
    values = parameters.gather(kind, config, content, options, context.args)
    values.setdefault("random_state", seed)
    _suit_data(values, features is not None, checkpoint_dir)
    estimator = parameters.make_estimator(kind, values)
    columns = Columns(
        image_column, common.as_names(labels), split_column, group_column, common.as_names(features)
    )
    everything = _read_data(data, columns, taxonomy, levels, skip_bad_images)
    parts = divide(everything, test_share, hedge_share)
    remarks.print(_plan(estimator, everything, parts))
    _train(estimator, parts.train, checkpoint_dir, remarks)
    card = _save(estimator, parts, out, remarks)
    common.say_written(results, out)
    say_hedge(remarks, card)
    _say_next(remarks, out, data)


def _print_parameters(results: Console, kind: Any) -> None:
    title = f"Parameters of {kind.__name__}"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for heading in ("flag", "default", "meaning"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "flag")
    for row in parameters.describe(kind):
        table.add_row(*row)
    results.print(table, markup=False)


def _check_shares(test_share: float, hedge_share: float) -> None:
    if test_share + hedge_share >= 1:
        raise common.UsageError(
            f"--test-share {test_share:g} and --hedge-share {hedge_share:g} leave nothing to train "
            "on. Together they must be less than 1."
        )


def _suit_data(values: dict[str, Any], is_features: bool, checkpoint_dir: Path | None) -> None:
    """Fill in what suits the data and the machine."""
    if is_features:
        values["backbone"] = None
    elif "finetune" not in values:
        import torch

        values["finetune"] = "full" if torch.cuda.is_available() else "head"
    if checkpoint_dir is not None:
        values["checkpoint_dir"] = str(checkpoint_dir)
        # A frozen backbone has no epochs to resume: what takes time are its features.
        if not is_features:
            values.setdefault("memory", str(checkpoint_dir / "features"))


def _read_data(
    path: Path, columns: Columns, taxonomy: Path | None, levels: str | None, skip_bad: bool
) -> Data:
    names = common.as_names(levels)
    tree = None if taxonomy is None else read_tree(taxonomy, names)
    return read_labelled(
        path,
        columns,
        taxonomy=tree,
        check="none" if skip_bad else "exists",
        level_names=names if tree is None else (),
    )


class Parts(NamedTuple):
    """Samples to train on, samples to set the hedge, and the number kept for a test."""

    train: Data
    held: Data
    n_test: int


def divide(data: Data, test_share: float, hedge_share: float) -> Parts:
    """Divide data by their own split, else by a hash of their names or subjects.

    Parameters
    ----------
    data : Data
        All samples.
    test_share, hedge_share : float
        Fractions for the test and for the hedge.
    """
    import numpy as np

    from ..utils.hashing import unit_hash

    split = data.split
    if split is None:
        place = unit_hash(data.ids if data.groups is None else data.groups, purpose="split")
        split = np.where(
            place < test_share, "test", np.where(place < test_share + hedge_share, "val", "train")
        )
    elif data.groups is not None:
        _check_subjects_apart(data)
    if not (split == "train").any():
        raise ValueError(
            f"{data.name} has {len(data)} samples and none of them is to train on. Give more, or "
            "lower --test-share and --hedge-share."
        )
    return Parts(
        data.select(split == "train"), data.select(split == "val"), int((split == "test").sum())
    )


def _check_subjects_apart(data: Data) -> None:
    """Raise if the data's own split has a subject in several parts."""
    import numpy as np

    pairs = np.unique(np.stack([data.groups.astype(str), data.split.astype(str)]), axis=1)[0]
    subjects, n_parts = np.unique(pairs, return_counts=True)
    shared = subjects[n_parts > 1]
    if shared.size:
        raise ValueError(
            f"The split of {data.name} has {shared.size} subject(s) of column "
            f"{data.columns.group!r} in several parts, first {shared[:5].tolist()}. The model "
            "would know those subjects, and neither its hedge nor its evaluation would hold for "
            "new ones. Give each subject one part, or drop the column of the split."
        )


def _plan(estimator: Any, everything: Data, parts: Parts) -> str:
    tree, (train, held, n_test) = everything.taxonomy, parts
    levels = "" if tree.level_names is None else f" ({' > '.join(tree.level_names)})"
    kept = "by a hash of their names" if everything.groups is None else "by a hash of subjects"
    if everything.split is not None:
        kept = "as the data say"
    if estimator.backbone is None:
        network = f"{train.X.shape[1]} columns of numbers"
    elif estimator.finetune == "full":
        network = f"{estimator.backbone}, trained too"
    else:
        network = f"{estimator.backbone}, frozen, its features read once"
    return (
        f"{len(everything)} samples, {tree.n_leaves} leaves on {tree.n_levels} level(s){levels}.\n"
        f"{len(train)} to train on, {len(held)} to set the hedge, {n_test} for evaluate ({kept}).\n"
        f"{type(estimator).__name__} on {network}."
    )


def _train(estimator: Any, train: Data, checkpoint_dir: Path | None, remarks: Console) -> None:
    is_shown = remarks.is_terminal and not remarks.quiet
    estimator.set_params(taxonomy=train.taxonomy, verbose=int(is_shown))
    try:
        estimator.fit(train.X, train.labels, groups=train.groups)
    except KeyboardInterrupt:
        again = "With --checkpoint-dir it could be resumed."
        if checkpoint_dir is not None:
            again = f"The same command resumes from {checkpoint_dir}."
        raise KeyboardInterrupt(again) from None


def _save(estimator: Any, parts: Parts, out: Path, remarks: Console) -> ModelCard:
    """Write the model with its card, and return the card."""
    from ..estimators.model_card import ModelCard, write_card
    from ..estimators.model_files import save_model

    train, held, n_test = parts
    columns = train.columns
    notes = {
        "data": train.name,
        "training samples": str(len(train)),
        "kept for the hedge": str(len(held)),
        "kept for evaluation": str(n_test),
        "column image": columns.image or "",
        "column split": columns.split or "",
        "column group": columns.group or "",
        "columns labels": ",".join(columns.labels),
    }
    card = ModelCard(
        trained_on=hashes_to_keep(train),
        notes={name: value for name, value in notes.items() if value},
    )
    # With its record from the first moment: a kill before the hedge costs the hedge alone.
    save_model(estimator, out, card=card)
    if len(held):
        card = calibrated(estimator, held, card, remarks)
        write_card(out, card)
    return card


def _say_next(remarks: Console, model: Path, data: Path) -> None:
    remarks.print(
        f"[bold]Next:[/bold] skh2edl evaluate {model} {data}\n"
        f"      skh2edl predict {model} NEW_IMAGES --out predictions.csv",
        soft_wrap=True,
    )
