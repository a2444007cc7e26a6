"""``skh2edl demo``: learn drawn insects, then watch one go out of focus."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..utils.memory import keep_freed_memory
from .calibrate import calibrated, hashes_to_keep
from .common import consoles, option
from .data import Data
from .story import (
    BLUR,
    IMAGE_SIZE,
    Step,
    choose,
    draw_insects,
    follow,
    frames_of,
)
from .strip import Frame, terminal_strip, write_strip

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import numpy as np
    import numpy.typing as npt

    from ..datasets import LabelledImages
    from ..report.figures import LevelFigures

BACKBONE = "test_resnet"  # timm's smallest, which learns in half a minute
N_FOLLOWED = 200  # insects at each step of blur
N_FILES = 40


def demo(
    folder: Annotated[
        Path, option("Where to write the model, the report and some pictures.")
    ] = Path("skh2edl-demo"),
    pictures: Annotated[
        int, option("Pictures to draw; fewer are quicker and worse.", min=1500)
    ] = 16_000,
    epochs: Annotated[int, option("Passes over the pictures.", min=1)] = 9,
) -> None:
    """Learn drawn insects, watch one go out of focus, write a report.

    Needs no data and no network, and takes about a minute on two free cores.

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
    from ..report.figures import level_figures
    from ..report.predictions import Predictions
    from ..report.wording import percent

    started = time.perf_counter()
    _say(console, f"1. Drawing {n_pictures:,} pictures of insects")
    insects = draw_insects(n_pictures, (0.0, BLUR), seed=0)
    tree = insects.taxonomy
    levels = list(tree.level_names or ())
    n_orders, n_genera, n_species = (len(tree.level(level)) for level in levels)
    console.print(
        f"Invented ones, and so is their taxonomy: {n_orders} “orders” such as bee and moth, "
        f"{n_genera} “genera”, {n_species} “species”. The body shows the order, the kind of marks "
        "the genus, their number or colour the species: in a blur the species vanishes first."
    )
    seen, held, test = (insects.subset(part) for part in ("train", "val", "test"))

    _say(console, f"2. Training H2EDL and Flat-CE on {len(seen):,} of them, about a minute")
    model, flat = _train_both(seen, epochs, int(console.is_terminal))
    needed = save(model, folder / "insects.safetensors", seen, held)

    _say(console, "3. One insect goes out of focus")
    steps = follow(model, flat, needed, N_FOLLOWED)
    chosen = choose(steps)
    frames = frames_of(steps, chosen)
    console.print(
        f"Its species: {steps[0].insects.labels[chosen]}. Below each picture: the name that H2EDL "
        f"gives it, as fine as {percent(steps[0].hedge.target)} of right names allow; the belief "
        "in that; U, the belief that reaches no species; and the species that Flat-CE guesses, "
        "with its probability.\n"
    )
    console.print(terminal_strip(frames, console))
    write_strip(folder / "blur.png", frames, ["nothing", *(f"the {level}" for level in levels)])
    console.print(
        f"It is one of {N_FOLLOWED} new insects, chosen because it passes through the levels. All "
        f"{N_FOLLOWED}: how many are named to which level and how many of the names are right; "
        "mean U; and of Flat-CE's guesses the mean probability and how many are right.\n"
    )
    console.print(_step_table(steps, levels))

    _say(console, f"4. Measuring on {len(test):,} test pictures, and writing the report")
    report = _report(model, test, needed, folder)
    for question in report.questions:
        console.print(f"[bold]{question.question}[/bold] {escape(question.answer)}.")
    console.print(
        "\nHow often the best name of each level is right; how often the hedged prediction stops "
        f"there, and how often it is then right ({percent(steps[0].hedge.target)} are guaranteed "
        "on average, “cannot tell” included).\n"
    )
    truth = tree.resolve(test.labels)
    beside = level_figures(Predictions.from_proba(flat.predict_proba(test.images), tree), truth)
    console.print(measures_table(report, beside))
    _write_pictures(folder / "pictures", test, frames)
    _end(console, folder, time.perf_counter() - started)


def _say(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/bold]", align="left")


def _train_both(insects: LabelledImages, epochs: int, verbose: int) -> tuple[Any, Any]:
    """Train H2EDL here and Flat-CE beside it, in a process of its own."""
    spawned = get_context("spawn")  # a fork of a process with threads may hang
    ours, theirs = spawned.Pipe()
    beside = spawned.Process(target=_fit_and_send, args=(theirs,), daemon=True)
    before = signal(SIGINT, SIG_IGN)  # inherited: an interrupt ends it by way of this process
    try:
        beside.start()
    finally:
        signal(SIGINT, before)
    theirs.close()  # so that the end of that process is the end of the pipe
    flat = _untrained("FlatCEClassifier", insects, epochs)
    try:
        # Not as arguments: `start` would wait forever for a process that died before it read them.
        ours.send_bytes(pickle.dumps((flat, insects.images, insects.labels)))
        model = train("H2EDLClassifier", insects, epochs, verbose)
        return model, pickle.loads(ours.recv_bytes())
    except (EOFError, ConnectionError):
        raise RuntimeError(
            "The process that trains Flat-CE ended early, perhaps for lack of memory. Try fewer "
            "--pictures."
        ) from None
    finally:
        beside.terminate()


def train(method: str, insects: LabelledImages, epochs: int, verbose: int = 0) -> Any:
    """Train a small network from scratch, with the default parameters of a method.

    Parameters
    ----------
    method : {"H2EDLClassifier", "FlatCEClassifier"}
        Name of the classifier.
    insects : LabelledImages
        What to learn.
    epochs : int
        Passes over it.
    verbose : int, default=0
        Whether to show progress.
    """
    classifier = _untrained(method, insects, epochs).set_params(verbose=verbose)
    return _fit(classifier, insects.images, insects.labels).set_params(verbose=0)


def _untrained(method: str, insects: LabelledImages, epochs: int) -> Any:
    import skh2edl

    return getattr(skh2edl, method)(
        insects.taxonomy,
        backbone=BACKBONE,
        weights=None,
        image_size=IMAGE_SIZE,
        max_epochs=epochs,
        learning_rate=5e-3,  # higher than for pretrained weights
        recipe=skh2edl.Recipe(augmentation="none", warmup_epochs=min(1.0, epochs / 4)),
        validation_fraction=None,
        hardware=skh2edl.Hardware(n_workers=0),
        random_state=0,
    )


@_one_thread()
def _fit(classifier: Any, images: npt.NDArray[np.uint8], labels: Any) -> Any:
    return classifier.fit(images, labels)


def _fit_and_send(pipe: Connection) -> None:
    keep_freed_memory()
    classifier, images, labels = pickle.loads(pipe.recv_bytes())
    # As bytes: torch would share the weights by way of this process, which ends.
    pipe.send_bytes(pickle.dumps(_fit(classifier, images, labels)))


def save(
    model: Any, path: Path, train: LabelledImages, held: LabelledImages
) -> npt.NDArray[np.float64]:
    """Write the model, with the hedge that held-out pictures set, and return its thresholds."""
    from ..estimators.model_card import ModelCard
    from ..estimators.model_files import save_model

    seen, kept = (
        Data("insects", part.images, part.ids.tolist(), part.labels, part.taxonomy)
        for part in (train, held)
    )
    notes = {"data": "insects, drawn by skh2edl demo", "training samples": str(len(seen))}
    card = ModelCard(trained_on=hashes_to_keep(seen), notes=notes)
    card = calibrated(model, kept, card, consoles(quiet=True)[1])
    save_model(model, path, card=card)
    return card.needed


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading is headings[0] else "right")
    return table


def _step_table(steps: Sequence[Step], levels: Sequence[str]) -> Table:
    """Return at which levels the insects are named, and how often rightly."""
    import numpy as np

    from ..report.wording import percent

    table = _table("blur", *levels[::-1], "cannot tell", "right", "U", "Flat-CE P", "right")
    for step in steps:
        n_given, n_right = step.hedge.given
        truth = step.insects.taxonomy.resolve(step.insects.labels)
        table.add_row(
            f"{step.blur} px",
            *(f"{n}" for n, _ in step.hedge.stops[::-1]),
            percent(n_right / n_given) if n_given else "-",
            f"{np.mean(step.opinion.nonspecificity):.2f}",
            f"{np.mean(step.flat.path_probability[:, -1]):.2f}",
            percent(np.mean(step.flat.best_leaves == truth)),
        )
    return table


def _report(model: Any, test: LabelledImages, needed: npt.NDArray[np.float64], folder: Path) -> Any:
    from ..report import write_report

    return write_report(
        folder / "report.html",
        model,
        test.images,
        test.labels,
        names=test.ids.tolist(),
        calibration=needed,
        calibration_note=f"{needed.size:,} pictures kept aside",
        title="Demo: insects",
        facts={
            "note": "the insects are invented, and their orders are shapes of a body; the training "
            "options were picked while looking at these pictures"
        },
    )


def measures_table(report: Any, flat: Sequence[LevelFigures]) -> Table:
    """Return how often both classifiers are right at each level, and what the hedge does there.

    Parameters
    ----------
    report : EvaluationReport
        Of H2EDL.
    flat : sequence of LevelFigures
        Of Flat-CE.
    """
    from ..report.questions import usual_hedge
    from ..report.wording import percent

    hedge = usual_hedge(report.hedges)
    table = _table("", "H2EDL right", "Flat-CE right", "hedge names it", "and is then right")

    def add(name: str, first: str, second: str, n: int, n_right: int) -> None:
        right = percent(n_right / n) if n else "-"
        table.add_row(name, first, second, percent(n / hedge.n_samples), right)

    for level, beside, stops in zip(report.levels, flat, hedge.stops[1:], strict=True):
        add(level.name, percent(level.accuracy), percent(beside.accuracy), *stops)
    add("any level", "", "", *hedge.given)
    table.add_row("cannot tell", "", "", percent(hedge.stops[0][0] / hedge.n_samples), "")
    return table


def _write_pictures(folder: Path, test: LabelledImages, frames: Sequence[Frame]) -> None:
    from PIL import Image

    folder.mkdir(exist_ok=True)
    for name, pixels in zip(test.ids[:N_FILES], test.images[:N_FILES], strict=True):
        Image.fromarray(pixels).save(folder / f"{name}.png")
    for frame in frames:
        Image.fromarray(frame.pixels).save(folder / f"{frame.heading.replace(' ', '-')}.png")


def _end(console: Console, folder: Path, seconds: float) -> None:
    _say(console, "What to type next")
    model, pictures = folder / "insects.safetensors", folder / "pictures"
    console.print(
        f"Done in {seconds:.0f} seconds. Flat-CE is a softmax over all species, trained in the "
        "same way. Its probabilities can be summed over a genus and hedged too; what it cannot "
        "say is how much of a probability is belief. U is no probability of error; the guarantee "
        "of the hedge comes from pictures kept aside, and holds on average for pictures like "
        "those, not at each blur. The training options were picked while looking at the test "
        "pictures: take the figures as a show, not as a measurement."
    )
    console.print(
        f"The strip is also in {folder / 'blur.png'}; its pictures and {N_FILES} of the test "
        f"pictures are in {pictures}, to drop on the page that skh2edl serve opens.",
        soft_wrap=True,
    )
    for line in (
        f"open {folder / 'report.html'}",
        f"skh2edl serve {model}",
        f"skh2edl predict {model} {pictures} --out predictions.csv",
        f"skh2edl taxonomy draw {model}",
        "skh2edl fit YOUR_FOLDER --out yours.safetensors",
    ):
        console.print(f"  {line}", soft_wrap=True, markup=False)
