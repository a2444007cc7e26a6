"""``skh2edl demo``: draw letters, learn them, and explain three predictions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .calibrate import calibrated, hashes_to_keep
from .common import consoles, option
from .data import Data

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..opinions.hyper_opinion import HyperOpinion

    Pixels = npt.NDArray[np.uint8]

BACKBONE = "test_resnet"
IMAGE_SIZE = 32
BLUR = 2.5  # pixels, of an image of 32
N_FILES = 40
TARGET_ACCURACY = 0.95

_COLUMNS, _LINES = 26, 13  # of a drawn picture
_MAX_NODES = 18
_NAME = 26  # characters of a name, so that all columns fit beside the picture


class Marks(NamedTuple):
    """Characters that draw pictures, trees and bars; `shades` from paper to ink."""

    shades: str
    step: str
    bar: str


UNICODE = Marks(" ░▒▓█", "└ ", "■")
ASCII = Marks(" .+%@", "- ", "#")


class Story(NamedTuple):
    """One picture of the demo and what is said about it."""

    title: str
    seen: str
    label: str
    pixels: Pixels


def demo(
    folder: Annotated[
        Path, option("Where to write the model, the report and some pictures.")
    ] = Path("skh2edl-demo"),
    pictures: Annotated[
        int, option("Pictures to draw; fewer are quicker and worse.", min=1500)
    ] = 12_000,
    epochs: Annotated[int, option("Passes over the pictures.", min=1)] = 7,
) -> None:
    """Learn drawn letters, show three opinions, write a report.

    Needs no data and no network, and takes about two minutes on two cores.

    For example:

      skh2edl demo

      skh2edl demo --folder try --pictures 3000
    """
    run(consoles()[0], folder, pictures, epochs)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: on a network this small, two would wait more than work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def run(console: Console, folder: Path, n_pictures: int, epochs: int) -> None:
    """Run the demo and print what happens.

    Parameters
    ----------
    console : rich.console.Console
        Where to print.
    folder : path
        Where to write the model, the pictures and the report.
    n_pictures : int
        Pictures to draw.
    epochs : int
        Passes over them.
    """
    from ..datasets import make_glyphs

    started = time.perf_counter()
    _say(console, 1, f"Drawing {n_pictures:,} pictures of characters")
    glyphs = make_glyphs(n_pictures, blur=(0.0, 1.2), image_size=IMAGE_SIZE, random_state=0)
    tree = glyphs.taxonomy
    console.print(
        f"{tree.n_leaves} characters on three levels: "
        f"{len(tree.level('script'))} scripts, {len(tree.level('kind'))} kinds, the characters. "
        "Some scripts share shapes, so some pictures cannot be told apart by anybody."
    )
    train, held, test = (glyphs.subset(part) for part in ("train", "val", "test"))

    _say(console, 2, f"Training on {len(train):,} of them, about a minute or two")
    model = _train(train, epochs, console)
    baseline = _fit_baseline(model, train)
    needed = _save(model, folder / "glyphs.safetensors", train, held)

    _say(console, 3, "Three pictures that it has not seen")
    console.print(
        "At each decision on the path down, evidence becomes belief; what is not committed stops. "
        "[bold]Mass[/bold] is belief in exactly that class and nothing finer; * is the truth."
    )
    for story in choose_stories(test.images, test.labels, test.info):
        _tell(console, story, model, baseline, needed)

    _say(console, 4, f"Measuring on {len(test):,} pictures, and writing the report")
    report = _report(model, test, needed, folder)
    for question in report.questions:
        console.print(f"[bold]{question.question}[/bold] {escape(question.answer)}.")
    _write_pictures(test, folder / "pictures")
    _end(console, folder, time.perf_counter() - started)


def _say(console: Console, number: int, text: str) -> None:
    console.rule(f"[bold]{number}. {text}[/bold]", align="left")


def _train(train: Any, epochs: int, console: Console) -> Any:
    from ..estimators.h2edl import H2EDLClassifier
    from ..training.recipe import Recipe

    model = H2EDLClassifier(
        train.taxonomy,
        backbone=BACKBONE,
        weights=None,
        image_size=IMAGE_SIZE,
        max_epochs=epochs,
        batch_size=128,
        learning_rate=8e-3,
        recipe=Recipe(
            augmentation="none", backbone_lr_scale=1.0, warmup_epochs=min(1.0, epochs / 4)
        ),
        validation_fraction=None,
        n_workers=0,
        random_state=0,
        verbose=int(console.is_terminal),
    )
    return model.fit(train.images, train.labels).set_params(verbose=0)


def _fit_baseline(model: Any, train: Any) -> Any:
    """Fit a flat softmax to the features of the trained network."""
    from ..estimators.baselines import FlatCEClassifier

    baseline = FlatCEClassifier(train.taxonomy, backbone=None, random_state=0)
    return baseline.fit(_features(model, train.images), train.labels)


def _features(model: Any, images: Pixels) -> npt.NDArray[np.float32]:
    import torch

    from ..training.feature_cache import frozen_features

    samples, _ = model._read_X(images, model.network_.backbone, reset=False)
    return frozen_features(
        model.network_.backbone,
        samples,
        memory=None,
        device=torch.device("cpu"),
        precision="32-true",
        verbose=0,
    )


def _save(model: Any, path: Path, train: Any, held: Any) -> npt.NDArray[np.float64]:
    """Write the model, with the hedge that held-out pictures set, and return its thresholds."""
    from ..estimators.model_card import ModelCard
    from ..estimators.model_files import save_model

    seen, kept = (
        Data("glyphs", part.images, part.ids.tolist(), part.labels) for part in (train, held)
    )
    notes = {"data": "glyphs, drawn by skh2edl demo", "training samples": str(len(seen))}
    card = ModelCard(trained_on=hashes_to_keep(seen), notes=notes)
    card = calibrated(model, kept, card, consoles(quiet=True)[1])
    save_model(model, path, card=card)
    return card.needed


def choose_stories(images: Pixels, labels: Any, info: Any) -> list[Story]:
    """Take the clearest test picture of two letters, and blur one of them.

    The letters are fixed; the pictures are the least distorted ones, whatever the model predicts.

    Parameters
    ----------
    images : ndarray of uint8 of shape (n, 32, 32)
        Test pictures.
    labels : ndarray of str of shape (n,)
        Their labels.
    info : mapping of str to ndarray
        How each was distorted.
    """
    import numpy as np
    from PIL import Image, ImageFilter

    distortion = info["blur"] + 10 * info["noise"] + 10 * info["occlusion"]

    def clearest(label: str) -> Pixels:
        found = np.flatnonzero(labels == label)
        return np.asarray(images[found[distortion[found].argmin()]])

    zhe, o = "CYRILLIC CAPITAL LETTER ZHE", "LATIN CAPITAL LETTER O"
    clear, round_one = clearest(zhe), clearest(o)
    blurred = Image.fromarray(clear).filter(ImageFilter.GaussianBlur(BLUR))
    return [
        Story("A clear letter", "Zhe, which no other alphabet has.", zhe, clear),
        Story("The same letter, blurred", "The same picture out of focus.", zhe, np.array(blurred)),
        Story(
            "An O",
            "Drawn as a Latin O. Greek and Cyrillic have the same, and the zero is close: nobody "
            "could say which from the picture alone.",
            o,
            round_one,
        ),
    ]


def draw_picture(pixels: Pixels, marks: Marks = UNICODE) -> str:
    """Draw a grey picture with characters, dark where there is ink.

    Parameters
    ----------
    pixels : ndarray of uint8 of shape (height, width)
        The picture.
    marks : Marks
        Characters to draw with.

    Returns
    -------
    text : str
        Lines of 26 characters.
    """
    import numpy as np
    from PIL import Image

    small = Image.fromarray(pixels).resize((_COLUMNS, _LINES), Image.Resampling.BOX)
    grey = np.asarray(small, dtype=np.float64)
    low, high = grey.min(), grey.max()
    ink = (high - grey) / max(high - low, 1.0)
    place = np.minimum((ink * len(marks.shades)).astype(int), len(marks.shades) - 1)
    return "\n".join("".join(marks.shades[level] for level in row) for row in place.tolist())


def opinion_table(opinion: HyperOpinion, label: str | None, marks: Marks = UNICODE) -> Table:
    """Draw the first sample's opinion on the tree, unlikely branches folded.

    Parameters
    ----------
    opinion : HyperOpinion
        Opinion of at least one sample.
    label : str or None
        The true label, marked with a star.
    marks : Marks
        Characters to draw with.

    Returns
    -------
    rich.table.Table
        One row per node: mass, and belief, probability and plausibility.
    """
    import numpy as np

    from ..displays._folding import fold

    tree = opinion.taxonomy
    node = None if label is None else tree.node(label)
    rows = fold(opinion[0], label=node, min_probability=0.02, max_rows=_MAX_NODES)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=_NAME)
    for heading in ("mass", "bel", "P", "pl"):
        table.add_column(heading, justify="left" if heading == "mass" else "right", no_wrap=True)
    most = max(row.mass for row in rows)
    for row in rows:
        name = row.text.replace("CAPITAL LETTER ", "").replace("SMALL LETTER ", "small ")
        star = " *" if node in row.nodes and not row.is_folded else ""
        indent = "" if not row.depth else "  " * (row.depth - 1) + marks.step
        table.add_row(
            f"[dim]{indent}[/dim]{escape(name)}{star}",
            f"{row.mass:.2f} {marks.bar * round(5 * row.mass)}",
            *(
                "" if np.isnan(value) else f"{value:.2f}"
                for value in (row.belief, row.probability, row.plausibility)
            ),
            style="bold green" if row.mass == most else "dim" if row.is_folded else None,
        )
    return table


def _tell(
    console: Console, story: Story, model: Any, baseline: Any, needed: npt.NDArray[np.float64]
) -> None:
    """Show a picture, the opinion on it, and what the hedge and the baseline predict."""
    from ..report.hedging import hedged_nodes, threshold_for

    marks = ASCII if console.options.ascii_only else UNICODE
    opinion = model.predict_hyper_opinion(story.pixels[None])
    threshold = threshold_for(needed, TARGET_ACCURACY)
    leaves = opinion.leaf_probability.astype(float)
    node = int(hedged_nodes(leaves, model.taxonomy_, threshold)[0])
    hedged = "nothing" if node == 0 else model.taxonomy_.label(node)
    flat = baseline.predict_proba(_features(model, story.pixels[None]))[0]
    best = int(flat.argmax())
    console.print(f"\n[bold]{story.title}.[/bold] [italic]{story.seen}[/italic]")
    sides = Table.grid(padding=(0, 2))
    sides.add_column(no_wrap=True)
    sides.add_column(ratio=1)
    # Not markup: a picture may hold any character.
    picture = Text(draw_picture(story.pixels, marks))
    sides.add_row(picture, opinion_table(opinion, story.label, marks))
    console.print(sides)
    explained = Group(
        escape(opinion.explain(0)),
        f"[bold]Hedged at {TARGET_ACCURACY * 100:g} %: {escape(str(hedged))}[/bold]",
    )
    guess = (
        f"[bold]{escape(str(baseline.classes_[best]))}, {flat[best]:.0%}[/bold]\n"
        "one number for its best guess"
    )
    predictions = Table.grid(expand=True, padding=(0, 1))
    predictions.add_column(ratio=5)
    predictions.add_column(ratio=3)
    predictions.add_row(
        Panel(explained, title="The opinion says", border_style="green"),
        Panel(guess, title="Flat-CE says", border_style="red"),
    )
    console.print(predictions)


def _report(model: Any, test: Any, needed: npt.NDArray[np.float64], folder: Path) -> Any:
    from ..report import write_report

    return write_report(
        folder / "report.html",
        model,
        test.images,
        test.labels,
        names=test.ids.tolist(),
        calibration=needed,
        calibration_note=f"{needed.size} pictures kept aside",
        title="Demo: characters of four scripts",
        facts={
            "model": f"H2EDLClassifier on {BACKBONE}",
            "data": "drawn by skh2edl demo",
            "note": "the settings were picked while looking at these pictures",
        },
    )


def _write_pictures(test: Any, folder: Path) -> None:
    from PIL import Image

    folder.mkdir(exist_ok=True)
    for name, pixels in zip(test.ids[:N_FILES], test.images[:N_FILES], strict=True):
        Image.fromarray(pixels).save(folder / f"{name}.png")


def _end(console: Console, folder: Path, seconds: float) -> None:
    console.rule("[bold]What to type next[/bold]", align="left")
    model, pictures = folder / "glyphs.safetensors", folder / "pictures"
    console.print(
        f"Done in {seconds:.0f} seconds. Flat-CE is a softmax over all leaves, fitted to the same "
        "features; summed over a script or a kind its probabilities often serve well, and the "
        "report of skh2edl evaluate is the same for both. What it cannot say is how much of a "
        "probability is belief. Vacuity and stopped belief are no probability of error; the "
        "hedge's guarantee comes from pictures kept aside. The demo's settings were picked while "
        "looking at these same test pictures: take its figures as a show, not as a measurement."
    )
    console.print(f"{N_FILES} of the test pictures are in {pictures}.", soft_wrap=True)
    for line in (
        f"open {folder / 'report.html'}",
        f"skh2edl predict {model} {pictures} --out predictions.csv",
        f"skh2edl serve {model}",
        f"skh2edl taxonomy draw {model}",
        "skh2edl fit YOUR_FOLDER --out yours.safetensors",
    ):
        console.print(f"  {line}", soft_wrap=True, markup=False)
