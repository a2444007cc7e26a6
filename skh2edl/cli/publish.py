"""``skh2edl publish``: predictions in the form of another program."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import __version__
from ..exports import FORMATS
from . import common
from .common import UsageError, as_names, option
from .data import Data

if TYPE_CHECKING:
    from rich.console import Console

    from ..report.predictions import Predictions
    from ..taxonomy.taxonomy import Taxonomy

FormOption = Annotated[str, option(f"One of {', '.join(FORMATS)}.", "--as")]
OutOption = Annotated[Path, option("File to write: .csv or .json.", "--out", "-o")]
TargetAccuracyOption = Annotated[
    float | None,
    option(
        "Accuracy that the predictions reach on average; coarser classes where needed.",
        min=0.5,
        max=0.999,
        shown="none: the best leaf",
    ),
]
ThresholdOption = Annotated[
    list[str] | None,
    option("Probability that a class of a level needs, such as species=0.8.", "--threshold"),
]
CandidatesOption = Annotated[
    str | None,
    option(
        "Classes that can occur, such as the species of a park: names with commas between "
        "them, or a .txt file with one in a line.",
        shown="all",
    ),
]
MediaOption = Annotated[
    Path | None, option("The media.csv of a Camtrap DP, for camtrap-dp.", "--media")
]
EventsOption = Annotated[bool, option("Camtrap DP: one observation for each event.", "--events")]
KindOption = Annotated[
    list[str] | None,
    option("Camtrap DP: type of a class, such as empty=blank or person=human.", "--type"),
]


def publish(
    model: common.ModelArgument,
    inputs: common.InputsArgument,
    form: FormOption,
    out: OutOption,
    target_accuracy: TargetAccuracyOption = None,
    threshold: ThresholdOption = None,
    candidates: CandidatesOption = None,
    media: MediaOption = None,
    events: EventsOption = False,
    kind: KindOption = None,
    image_column: common.ImageColumnOption = None,
    workers: common.WorkersOption = None,
    quiet: common.QuietOption = False,
) -> None:
    """Classify images and write the predictions for another program.

    The forms are: ranks (a column for each rank, and the score), darwin-core (occurrences),
    camtrap-dp (observations of images or of events), label-studio (tasks with predictions),
    fiftyone (labels.json) and coco.

    An image is identified as its best leaf. With --target-accuracy or --threshold it may be an
    ancestor: the first guarantees an accuracy, and the second asks each level for a probability, as
    deployed systems do. With both the guarantee still holds, because an ancestor of a right class
    is right. With --candidates the probabilities are those among the candidates; a guarantee for
    all classes does not hold there. Images that cannot be read are left out.

    For example:

      skh2edl publish birds.safetensors photos/ --as darwin-core --out occurrences.csv

      skh2edl publish cats.safetensors shots/ --as camtrap-dp --media media.csv --events -o obs.csv

      skh2edl publish birds.safetensors photos/ --as ranks --threshold species=0.8 -o ranks.csv
    """
    from ..estimators.model_files import load_classifier
    from ..exports import Identifications, write_export
    from .calibrate import hedge_threshold
    from .data import read_unlabelled
    from .predict import features_of

    results, remarks = common.consoles(quiet)
    _check_flags(form, out, media, target_accuracy, candidates)
    estimator, card = load_classifier(model)
    tree = estimator.taxonomy_
    limit = None if target_accuracy is None else hedge_threshold(card, target_accuracy)
    data = read_unlabelled(inputs, image_column=image_column, features=features_of(estimator))
    found, ids = _read_readable(estimator, data, workers, remarks)
    identified = Identifications.from_proba(
        found.proba,
        tree,
        ids,
        labels=None if limit is None else _hedged(found, limit),
        thresholds=_thresholds(threshold, tree),
        candidates=_candidates(candidates),
        opinion=found.opinion,
    )
    options = _options(form, f"{model.stem} (skh2edl {__version__})", media, events, kind)
    write_export(identified, out, form, **options)
    common.say_written(results, out, f" ({len(ids)} images)")
    if len(ids) < len(data):
        n_bad = len(data) - len(ids)
        remarks.print(f"[yellow]{n_bad} could not be read and are left out.[/yellow]")


def _check_flags(
    form: str,
    out: Path,
    media: Path | None,
    target_accuracy: float | None,
    candidates: str | None,
) -> None:
    """Refuse flags that do not go together, before any work."""
    if form not in FORMATS:
        raise UsageError(f"--as must be one of {', '.join(FORMATS)}, not {form!r}.")
    common.check_output(out, (FORMATS[form][1],))
    if (form == "camtrap-dp") != (media is not None):
        raise UsageError("--as camtrap-dp needs --media, and only that takes it.")
    if target_accuracy is not None and candidates is not None:
        raise UsageError(
            "--target-accuracy cannot be kept among --candidates: it was set for all classes. Use "
            "one of the two, or --threshold."
        )


def _read_readable(
    estimator: Any, data: Data, workers: int | None, remarks: Console
) -> tuple[Predictions, list[str]]:
    """Return the predictions for the images that can be read, and their names."""
    from ..report.predictions import read_predictions

    if estimator.backbone is not None:
        estimator.set_params(on_bad_image="skip", hardware__n_workers=workers)
    with common.progress(remarks, "images", len(data)) as advance:
        found = read_predictions(estimator, data.X, on_rows=advance)
    readable = found.readable.nonzero()[0]
    return found[readable], [data.ids[index] for index in readable]


def _hedged(found: Any, limit: float) -> Any:
    from ..report.hedging import hedged_nodes

    tree = found.taxonomy
    return tree.labels(hedged_nodes(found.leaf_probability, tree, limit))


def _pairs(given: Sequence[str] | None, flag: str) -> dict[str, str]:
    """Split NAME=VALUE at the last sign.

    Parameters
    ----------
    given : sequence of str or None
        What was typed.
    flag : str
        The option, for the error.

    Examples
    --------
    >>> _pairs(["species=0.8", "a=b=blank"], "--threshold")
    {'species': '0.8', 'a=b': 'blank'}
    """
    pairs = {}
    for text in given or ():
        name, sign, value = text.rpartition("=")
        if not (name and sign and value):
            raise UsageError(f"{flag} must look like NAME=VALUE, got {text!r}.")
        pairs[name.strip()] = value.strip()
    return pairs


def _thresholds(given: Sequence[str] | None, tree: Taxonomy) -> dict[str | int, float] | None:
    pairs = _pairs(given, "--threshold")
    thresholds: dict[str | int, float] = {}
    for level, text in pairs.items():
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"--threshold {level}={text} must end in a number.") from None
        thresholds[int(level) if level.isdigit() and not tree.level_names else level] = value
    return thresholds or None


def _candidates(text: str | None) -> list[str] | None:
    if text is None:
        return None
    if text.lower().endswith(".txt"):
        lines = Path(text).expanduser().read_text(encoding="utf-8-sig").splitlines()
        return [line.strip() for line in lines if line.strip()]
    return list(as_names(text))


def _options(
    form: str, name: str, media: Path | None, events: bool, kind: Sequence[str] | None
) -> dict[str, Any]:
    """Return the further arguments of a form."""
    now = datetime.now(UTC).replace(microsecond=0)
    if form == "darwin-core":
        return {"identified_by": name, "date_identified": now.date().isoformat()}
    if form == "label-studio":
        return {"model_version": name}
    if form != "camtrap-dp" or media is None:
        return {}
    with media.expanduser().open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    return {
        "media": rows,
        "classified_by": name,
        "timestamp": now.isoformat().replace("+00:00", "Z"),
        "level": "event" if events else "media",
        "observation_types": _pairs(kind, "--type"),
    }
