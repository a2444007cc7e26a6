"""``skh2edl fit``: from labelled images to a model file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from rich.console import Console
from rich.table import Table
from typer import Argument, Context

from . import common, parameters
from .calibrate import (
    calibrated,
    calibrated_both,
    content_hashes_of,
    hashes_to_keep,
    held_out_predictions,
    rescale,
    say_hedge,
    with_hedge,
)
from .common import option
from .data import Columns, Data, read_labelled
from .taxonomy import read_tree

# Held out to calibrate a network that is trained whole, for which several fits are too dear.
_HELD_OUT = 0.1
# Below this the accuracy of a class is uncertain by more than 30 points.
_FEW_IMAGES = 10
# Images up to which all pairs are compared: 15 s if they are small, on one core.
_MAX_COMPARED = 20_000
# Bytes of their files: 20 s to decode as JPEG or PNG, 75 s as progressive JPEG.
_MAX_COMPARED_BYTES = 2_000_000_000

DataArgument = Annotated[
    Path | None, Argument(help="A folder with a folder for each class, or a .csv table.")
]
OutOption = Annotated[Path, option("Model to write.", "--out", "-o")]
MethodOption = Annotated[str | None, option(f"{', '.join(parameters.METHODS)}.", shown="h2edl")]
TaxonomyOption = Annotated[
    Path | None,
    option("The tree, in any form that skh2edl taxonomy reads.", shown="from the data"),
]
LevelsOption = Annotated[str | None, option("Names of the levels, such as family,genus,species.")]
GroupColumnOption = Annotated[
    str | None,
    option(
        "Column of subjects: each is in one part, and has one vote in the hedge.",
        shown="group, if there is one",
    ),
]
FeaturesOption = Annotated[
    str | None, option("Columns of numbers to read instead of images, such as 'petal*,sepal*'.")
]
ConfigOption = Annotated[
    Path | None, option("A TOML file with parameters of the method; flags override it.")
]
BackboneOption = Annotated[
    str | None,
    option(
        "Any model of timm.",
        shown="that of the --weights; resnet50 with a CUDA GPU, tf_efficientnet_lite0 without",
    ),
]
WeightsOption = Annotated[
    str | None,
    option(
        "'packaged' (of the extra packaged, no download), 'pretrained' (downloaded), a local "
        "file, or 'none'.",
        shown="pretrained with a CUDA GPU or a --backbone, else packaged",
    ),
]
FinetuneOption = Annotated[
    str | None,
    option("The 'full' network or the 'head' only.", shown="full with a CUDA GPU, head without"),
]
ImageSizeOption = Annotated[
    int | None, option("Side of the images in pixels.", shown="the weights'")
]
MaxEpochsOption = Annotated[
    int | None,
    option(
        "Passes over the images; --epochs is an alias.",
        "--max-epochs",
        "--epochs",
        shown="100",
    ),
]
BatchSizeOption = Annotated[int | None, option("Images at a time.", shown="64")]
LearningRateOption = Annotated[float | None, option("Of the head.", shown="0.001")]
RandomStateOption = Annotated[
    int, option("The same seed gives the same model.", "--random-state", "--seed")
]
CheckpointDirOption = Annotated[
    Path | None, option("A folder of checkpoints: the same command resumes an interrupted fit.")
]
TestFractionOption = Annotated[
    float,
    option("Fraction kept for evaluate, where the data have no split.", min=0, max=0.9),
]
CvOption = Annotated[
    int, option("Parts that are held out in turn, to calibrate a frozen network.", min=2)
]
SkipBadImagesOption = Annotated[
    bool, option("Skip images that cannot be read.", "--skip-bad-images")
]
ListParametersOption = Annotated[
    bool, option("Print every parameter of the method and exit.", "--list-parameters")
]


def fit(
    context: Context,
    data: DataArgument = None,
    out: OutOption = Path("model.safetensors"),
    method: MethodOption = None,
    taxonomy: TaxonomyOption = None,
    levels: LevelsOption = None,
    image_column: common.ImageColumnOption = None,
    labels: common.LabelsOption = None,
    split_column: common.SplitColumnOption = None,
    group_column: GroupColumnOption = None,
    features: FeaturesOption = None,
    config: ConfigOption = None,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    finetune: FinetuneOption = None,
    image_size: ImageSizeOption = None,
    max_epochs: MaxEpochsOption = None,
    batch_size: BatchSizeOption = None,
    learning_rate: LearningRateOption = None,
    workers: common.WorkersOption = None,
    random_state: RandomStateOption = 0,
    checkpoint_dir: CheckpointDirOption = None,
    test_fraction: TestFractionOption = 0.0,
    cv: CvOption = 5,
    skip_bad_images: SkipBadImagesOption = False,
    list_parameters: ListParametersOption = False,
    quiet: common.QuietOption = False,
) -> None:
    """Train a model on labelled images and write it to one file.

    The folders of DATA name the classes, and the outermost may be train, val and test; a table has
    one row for each image. A label may stop half-way down the tree.

    Every parameter of the method is a flag too, such as --kl-weight 0.01; --list-parameters shows
    them.

    All images are trained on, unless the data have a test part or --test-fraction keeps one. With a
    frozen network the hedge, and the temperature of a softmax, are set on parts that are held out
    in turn, and then the model is fitted on all. A network that is trained whole is calibrated on
    the 'val' part, or on a tenth of the images. Evidence stays as trained.

    For example:

      skh2edl fit photos/ --out birds.safetensors

      skh2edl fit birds.csv --labels order,family,species --max-epochs 30

      skh2edl fit birds.csv --taxonomy birds.nwk --config settings.toml

      skh2edl fit photos/ --checkpoint-dir run1 --finetune full --ema-decay 0.99

      skh2edl fit iris.csv --features 'sepal*,petal*' --labels species
    """
    results, remarks = common.consoles(quiet)
    content = {} if config is None else parameters.read_config(config)
    named = str(content.pop("method", "h2edl"))
    if data is not None and not list_parameters:
        remarks.print(f"Fitting on {data}.")  # before what takes seconds to import
    if not remarks.is_terminal:
        # A log gets a line every half minute, of what takes longer than that.
        os.environ |= {"TQDM_DELAY": "30", "TQDM_MININTERVAL": "30"}
    kind = parameters.estimator_class(method or named)
    if list_parameters:
        _print_parameters(results, kind)
        return
    if data is None:
        raise common.UsageError("Missing argument 'DATA': a folder of images or a .csv file.")
    common.check_output(out, (".safetensors",))
    options = {
        "backbone": backbone,
        "weights": weights,
        "finetune": finetune,
        "image_size": image_size,
        "max_epochs": max_epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "n_workers": workers,
        "on_bad_image": "skip" if skip_bad_images else None,
    }
    values = parameters.gather(kind, config, content, options, context.args)
    values.setdefault("random_state", random_state)
    _suit_data(values, features is not None, checkpoint_dir, remarks)
    estimator = parameters.make_estimator(kind, values)
    columns = Columns(
        image_column, common.as_names(labels), split_column, group_column, common.as_names(features)
    )
    everything = _read_data(data, columns, taxonomy, levels, skip_bad_images)
    parts = divide(everything, test_fraction, random_state)
    remarks.print(_plan(everything, parts))
    hashes = hashes_to_keep(parts.train)
    _warn(parts, hashes, remarks)
    estimator.set_params(taxonomy=everything.taxonomy, verbose=int(not quiet))
    with _saying_how_to_resume(checkpoint_dir):
        card = _fit(estimator, parts, cv, _first_card(parts, hashes), out, remarks)
    common.say_written(results, out)
    say_hedge(remarks, card)
    _say_next(remarks, out, data)


@contextmanager
def _saying_how_to_resume(checkpoint_dir: Path | None) -> Iterator[None]:
    """Add to an interruption what the next command can do."""
    try:
        yield
    except KeyboardInterrupt:
        again = "With --checkpoint-dir it could be resumed."
        if checkpoint_dir is not None:
            again = f"The same command resumes from {checkpoint_dir}."
        raise KeyboardInterrupt(again) from None


def _print_parameters(results: Console, kind: Any) -> None:
    title = f"Parameters of {kind.__name__}"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for heading in ("flag", "default", "meaning"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "flag")
    for row in parameters.describe(kind):
        table.add_row(*row)
    results.print(table, markup=False)


def _suit_data(
    values: dict[str, Any], is_features: bool, checkpoint_dir: Path | None, remarks: Console
) -> None:
    """Fill in what suits the data and the machine, and say it."""
    if checkpoint_dir is not None:
        values["checkpoint_dir"] = str(checkpoint_dir)
    if is_features:
        values["backbone"] = None
        return
    # A frozen backbone has no epochs to resume: what takes time are its features.
    if checkpoint_dir is not None:
        values.setdefault("memory", str(checkpoint_dir / "features"))
    import torch

    from ..training.weight_files import packaged_file

    has_gpu = torch.cuda.is_available()
    weights = values.get("weights", "pretrained")
    if "backbone" not in values and weights not in ("pretrained", "packaged", None):
        remarks.print(f"Looking for the model of timm that {weights} fits.")
        values["backbone"] = _backbone_of(weights)
    elif weights == "packaged" or (not has_gpu and not values.keys() & {"backbone", "weights"}):
        values |= {"backbone": "tf_efficientnet_lite0", "weights": "packaged"} | values
        packaged_file()  # or say now that it is missing
    values.setdefault("finetune", "full" if has_gpu else "head")
    found = "GPU" if has_gpu else "Apple GPU" if torch.backends.mps.is_available() else "No GPU"
    name, weights = values.get("backbone", "resnet50"), values.get("weights", "pretrained")
    trained = {"full": "trained whole", "head": "frozen, only a head is fitted"}
    remarks.print(
        f"{found}: {name}, weights {weights or 'none'}, "
        f"{trained.get(values['finetune'], values['finetune'])} "
        f"(--backbone, --weights and --finetune choose others).",
        soft_wrap=True,
    )


def _backbone_of(weights: str) -> str:
    """Return the model of timm whose weights a file holds."""
    from ..training.weight_files import fitting_backbones

    names = fitting_backbones(weights)
    if len(names) == 1:
        return names[0]
    found = f"fits {', '.join(names)}, which differ in more than weights" if names else "fits none"
    raise common.UsageError(
        f"--weights {weights} {found} of timm's models. Name the one it was made for with "
        "--backbone."
    )


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
    """Samples to train on, samples of a 'val' part, and samples kept for a test."""

    train: Data
    held: Data
    test: Data


def divide(data: Data, test_fraction: float, seed: int) -> Parts:
    """Divide data by their own split, else hold out a test in which labels have their proportions.

    Parameters
    ----------
    data : Data
        All samples.
    test_fraction : float
        Fraction for the test; subjects stay together.
    seed : int
        Chooses the samples.
    """
    import numpy as np

    from ..training.selection import split_validation

    if data.split is None:
        split = np.full(len(data), "train")
        if test_fraction:
            nodes = data.taxonomy.resolve(data.labels)
            split[split_validation(nodes, data.groups, test_fraction, seed)[1]] = "test"
    else:
        split = data.split
        if data.groups is not None:
            _check_subjects_apart(data)
    if not (split == "train").any():
        raise ValueError(
            f"{data.name} has {len(data)} samples and none of them is to train on. Give some the "
            "split 'train'."
        )
    return Parts(*(data.select(split == part) for part in ("train", "val", "test")))


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


def _plan(everything: Data, parts: Parts) -> str:
    tree, (train, held, test) = everything.taxonomy, parts
    levels = " (--levels order,family,species would name them)"
    if tree.level_names is not None:
        levels = f" ({' > '.join(tree.level_names)})"
    elif tree.n_levels == 1:
        levels = ""
    kept = "" if everything.split is None else ", as the data say"
    others = {"to set the hedge": len(held), "kept for evaluate": len(test)}
    said = "".join(f", {n} {what}" for what, n in others.items() if n)
    return (
        f"{len(everything)} samples, {tree.n_leaves} classes on {tree.n_levels} level(s){levels}: "
        f"{len(train)} to train on{said}{kept}."
    )


def _warn(parts: Parts, hashes: Any, remarks: Console) -> None:
    """Warn of classes with few training images or none, and of images in two parts."""
    import numpy as np

    train, tree = parts.train, parts.train.taxonomy
    counts = np.bincount(tree.resolve(train.labels), minlength=tree.n_nodes)
    below = tree.sum_below(counts)[tree.leaf_nodes]
    for few, what in (
        (below == 0, "no training image, so the model can only guess there"),
        ((below > 0) & (below < _FEW_IMAGES), f"fewer than {_FEW_IMAGES} training images"),
    ):
        if few.any():
            first = ", ".join(map(str, tree.labels(tree.leaf_nodes[few][:5])))
            more = f" and {few.sum() - 5} more" if few.sum() > 5 else ""
            have = "has" if few.sum() == 1 else "have"
            common.show_warning(
                f"{few.sum()} of {tree.n_leaves} classes {have} {what}: {first}{more}."
            )
    held = {"val": parts.held, "test": parts.test}
    contents = {
        name: content_hashes_of(part) for name, part in held.items() if len(part) and hashes.size
    }
    for name, content in contents.items():
        again = np.isin(content, hashes)
        if again.any():
            first = held[name].ids[np.flatnonzero(again)[0]]
            common.show_warning(
                f"{again.sum()} of {len(content)} samples of the {name} part are also trained on, "
                f"first {first}. Figures measured on them are too good."
            )
    if np.unique(hashes).size < hashes.size:
        common.show_warning(
            f"{hashes.size - np.unique(hashes).size} of {len(train)} training samples repeat "
            "another one: what is measured on held-out samples is too good. Remove the repeats."
        )
    if hashes.size and _few_enough_to_compare(parts):
        _warn_of_near_duplicates(parts, contents | {"train": hashes}, remarks)


def _few_enough_to_compare(parts: Parts) -> bool:
    """Tell whether the samples are images that all can be compared in little time."""
    is_table = hasattr(parts.train.X, "to_numpy")
    if is_table or sum(map(len, parts)) > _MAX_COMPARED:
        return False
    files = [str(file) for part in parts for file in part.X]
    n_bytes = sum(os.path.getsize(file) for file in files if os.path.exists(file))
    return n_bytes <= _MAX_COMPARED_BYTES


def _warn_of_near_duplicates(parts: Parts, contents: dict[str, Any], remarks: Console) -> None:
    """Warn of images that look like a training image of another file, subject and part."""
    import numpy as np

    from ..images import image_source
    from ..images.near_duplicates import SAME_LOOK, look_vectors, nearest_look

    train = parts.train
    named = {"val": parts.held, "test": parts.test, "train": train}
    with common.progress(remarks, "comparing images", sum(map(len, parts))) as advance:
        looks = {
            name: look_vectors(image_source(named[name].X), on_rows=advance) for name in contents
        }
    for name in looks:
        part, is_train = named[name], name == "train"
        nearest, cosine = nearest_look(looks[name], None if is_train else looks["train"])
        # Equal files have a warning of their own.
        again = (cosine >= SAME_LOOK) & (contents[name] != contents["train"][nearest])
        if is_train and train.groups is not None:
            groups = np.asarray(train.groups)
            again &= groups != groups[nearest]
        if not again.any():
            continue
        first = np.flatnonzero(again)[0]
        pair = f"such as {part.ids[first]} and {train.ids[nearest[first]]}"
        what = "training images look the same as another one"
        if not is_train:
            what = f"images of the {name} part look the same as one that is trained on"
        common.show_warning(
            f"{again.sum()} of {len(part)} {what}, {pair}. What is measured on such pairs is too "
            f"good: {_way_out(train, name)}."
        )


def _way_out(train: Data, name: str) -> str:
    """Say what to do about near-duplicates of a training image in a part."""
    if train.split is not None and name != "train":
        return "remove one of the two, or move it to the part of the other"
    if train.split is not None or train.columns.image is None:
        return "remove one of the two"  # a folder names no subjects, and a split stays as it is
    if train.columns.group is None:
        return (
            "remove one of the two, or name the column of subjects with --group-column, which "
            "keeps them together"
        )
    return f"remove one of the two, or give both the same subject in {train.columns.group!r}"


def _first_card(parts: Parts, hashes: Any) -> Any:
    """Return what the model file says of the data, before anything is calibrated."""
    from ..estimators.model_card import ModelCard

    columns = parts.train.columns
    notes = {
        "data": parts.train.name,
        "training samples": str(len(parts.train)),
        "kept for evaluation": str(len(parts.test)),
        "column image": columns.image or "",
        "column split": columns.split or "",
        "column group": columns.group or "",
        "columns labels": ",".join(columns.labels),
    }
    return ModelCard(
        trained_on=hashes, notes={name: value for name, value in notes.items() if value}
    )


def _fit(estimator: Any, parts: Parts, cv: int, card: Any, out: Path, remarks: Console) -> Any:
    """Fit, calibrate and write the model; return its card."""
    from ..estimators import cross_fitting
    from ..estimators.model_files import save_model

    if estimator.backbone is None or estimator.finetune == "head":
        backbone = cross_fitting.frozen_backbone(estimator)
        if cross_fitting.solves_heads(estimator, backbone, parts.train.X):
            remarks.print(f"Reading {len(parts.train)} samples.")
            features = cross_fitting.read_features(estimator, backbone, parts.train.X)
            estimator, card = _cross_fit(estimator, features, parts, cv, card, remarks)
            save_model(estimator, out, card=card)
            return card
    train, held, _ = parts
    if not len(held):
        train, held = _hold_out(train, estimator.random_state)
        card = replace(
            card,
            trained_on=hashes_to_keep(train),
            notes=card.notes | {"training samples": str(len(train))},
        )
        remarks.print(
            f"{len(held)} of the samples are held out to calibrate: training this network several "
            "times, to use them all, is too dear."
        )
    estimator.fit(train.X, train.labels, groups=train.groups)
    # With its record from the first moment: a kill before the calibration costs that alone.
    save_model(estimator, out, card=card)
    if held.is_labelled.any():
        card = calibrated_both(estimator, held, card, remarks)
        save_model(estimator, out, card=card)
    return card


def _hold_out(train: Data, seed: int) -> tuple[Data, Data]:
    from ..training.selection import split_validation

    nodes = train.taxonomy.resolve(train.labels)
    rest, held = split_validation(nodes, train.groups, _HELD_OUT, seed)
    return train.select(rest), train.select(held)


def _cross_fit(
    estimator: Any, features: Any, parts: Parts, cv: int, card: Any, remarks: Console
) -> tuple[Any, Any]:
    """Fit a head on all samples, and calibrate it on what heads predict for those they left out."""
    from ..estimators import cross_fitting

    train = parts.train
    model = cross_fitting.fit_head(estimator, features, train.labels, train.groups)
    remarks.print(f"Holding out parts of the samples in turn, {cv} fits, to calibrate.")
    folds = cross_fitting.fit_folds(estimator, features, train.labels, train.groups, cv)
    if folds:
        notes = rescale(folds, features, train, remarks, model)
        card = replace(card, notes=card.notes | notes | {"cross-fitted parts": str(len(folds))})
    if len(parts.held):
        return model, calibrated(model, parts.held, card, remarks)
    if folds:
        predictions, positions = held_out_predictions(folds, features)
        card = with_hedge(card, predictions, train.select(positions), remarks, "approximate")
    return model, card


def _say_next(remarks: Console, model: Path, data: Path) -> None:
    remarks.print(
        f"[bold]Next:[/bold] skh2edl evaluate {model} {data}\n"
        f"      skh2edl predict {model} NEW_IMAGES --out predictions.csv",
        soft_wrap=True,
    )
