"""``skh2edl demo``: learn drawn insects, then watch one go out of focus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..report.wording import percent
from .calibrate import calibrated, hashes_to_keep
from .common import consoles, option
from .data import Data
from .strip import Frame, terminal_strip, write_strip

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..datasets import LabelledImages
    from ..opinions.hyper_opinion import HyperOpinion
    from ..report.figures import HedgeFigures
    from ..report.predictions import Predictions

BACKBONE = "test_resnet"  # timm's smallest, which learns in half a minute
IMAGE_SIZE = 32
BLUR = 6.5  # pixels, the most in training: the order of an insect of 32 can just be seen
STEPS = (0, 1, 2, 3, 4, 5)  # pixels, inside that range: beyond it a network is overconfident
GRASS = (0.0, 0.1)  # a blade that hides a mark now and then, never the insect
N_FOLLOWED = 200  # insects at each step of blur
N_FILES = 40
TARGET_ACCURACY = 0.95


class Step(NamedTuple):
    """The same insects at one step of blur: H2EDL's opinions, its hedge, and Flat-CE."""

    blur: int
    insects: LabelledImages
    opinion: HyperOpinion
    hedge: HedgeFigures
    flat: Predictions


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
    started = time.perf_counter()
    _say(console, f"1. Drawing {n_pictures:,} pictures of insects")
    insects = draw_insects(n_pictures, (0.0, BLUR), seed=0)
    tree = insects.taxonomy
    levels = list(tree.level_names or ())
    n_orders, n_genera, n_species = (len(tree.level(level)) for level in levels)
    console.print(
        f"Invented ones: {n_orders} orders, {n_genera} genera, {n_species} species. The body shows the order, the kind of marks the "
        "genus, their number or colour the species: in a blur the species vanishes first."
    )
    seen, held, test = (insects.subset(part) for part in ("train", "val", "test"))

    _say(console, f"2. Training on {len(seen):,} of them, a minute or two")
    model, flat = (
        train(f"{method}Classifier", seen, epochs, verbose=int(console.is_terminal))
        for method in ("H2EDL", "FlatCE")
    )
    needed = save(model, folder / "insects.safetensors", seen, held)

    _say(console, "3. One insect goes out of focus")
    steps = follow(model, flat, needed, N_FOLLOWED)
    chosen = choose(steps)
    frames = frames_of(steps, chosen)
    console.print(
        f"A {steps[0].insects.labels[chosen]}. Below each picture: the name that H2EDL gives it "
        f"when {TARGET_ACCURACY:.0%} of the names have to be right, its belief in that, and U, the "
        "belief that reaches no species; then the species that Flat-CE names, and how probable.\n"
    )
    console.print(terminal_strip(frames, console))
    write_strip(folder / "blur.png", frames, ["cannot tell", *levels])
    console.print(
        f"It is one of {N_FOLLOWED} new insects, the first to be right at every step and to pass "
        "through the most levels. All of them, at which level they are named, how many of the "
        "names are right, mean U, and the mean probability and accuracy of Flat-CE:"
    )
    console.print(_step_table(steps, levels))

    _say(console, f"4. Measuring on {len(test):,} test pictures, and writing the report")
    report = _report(model, test, needed, folder)
    for question in report.questions:
        console.print(f"[bold]{question.question}[/bold] {escape(question.answer)}.")
    console.print()
    console.print(_level_table(report, flat, test))
    console.print()
    console.print(_hedge_table(report))
    _write_pictures(folder / "pictures", test, frames)
    _end(console, folder, time.perf_counter() - started)


def _say(console: Console, text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}[/bold]", align="left")


def draw_insects(n: int, blur: float | tuple[float, float], seed: int) -> LabelledImages:
    """Draw the insects of the demo.

    Parameters
    ----------
    n : int
        How many.
    blur : float or pair of float
        In pixels.
    seed : int
        The same one draws the same insects at any blur.
    """
    from ..datasets import make_insects

    return make_insects(n, image_size=IMAGE_SIZE, blur=blur, occlusion=GRASS, random_state=seed)


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
    import skh2edl

    classifier = getattr(skh2edl, method)(
        insects.taxonomy,
        backbone=BACKBONE,
        weights=None,
        image_size=IMAGE_SIZE,
        max_epochs=epochs,
        learning_rate=5e-3,  # higher than for pretrained weights
        recipe=skh2edl.Recipe(augmentation="none", warmup_epochs=min(1.0, epochs / 4)),
        validation_fraction=None,
        n_workers=0,
        random_state=0,
        verbose=verbose,
    )
    return classifier.fit(insects.images, insects.labels).set_params(verbose=0)


def save(
    model: Any, path: Path, train: LabelledImages, held: LabelledImages
) -> npt.NDArray[np.float64]:
    """Write the model, with the hedge that held-out pictures set, and return its thresholds."""
    from ..estimators.model_card import ModelCard
    from ..estimators.model_files import save_model

    seen, kept = (
        Data("insects", part.images, part.ids.tolist(), part.labels) for part in (train, held)
    )
    notes = {"data": "insects, drawn by skh2edl demo", "training samples": str(len(seen))}
    card = ModelCard(trained_on=hashes_to_keep(seen), notes=notes)
    card = calibrated(model, kept, card, consoles(quiet=True)[1])
    save_model(model, path, card=card)
    return card.needed


def follow(model: Any, flat: Any, needed: npt.NDArray[np.float64], n: int) -> list[Step]:
    """Predict new insects at each step of blur.

    Parameters
    ----------
    model, flat : classifier
        H2EDL and Flat-CE.
    needed : ndarray
        Thresholds that held-out pictures need.
    n : int
        How many insects.
    """
    from ..report.figures import hedge_figures
    from ..report.predictions import Predictions

    tree, steps = model.taxonomy_, []
    for blur in STEPS:
        insects = draw_insects(n, blur, seed=1)
        opinion = model.predict_hyper_opinion(insects.images)
        predictions = Predictions.from_proba(opinion.class_probability, tree, opinion=opinion)
        hedges = hedge_figures(predictions, tree.resolve(insects.labels), needed)
        guesses = Predictions.from_proba(flat.predict_proba(insects.images), tree)
        steps.append(Step(blur, insects, opinion, _usual(hedges), guesses))
    return steps


def _usual(hedges: Sequence[HedgeFigures]) -> HedgeFigures:
    return next(hedge for hedge in hedges if hedge.target == TARGET_ACCURACY)


def choose(steps: Sequence[Step]) -> int:
    """Return the first insect that is predicted right at all steps and at the most levels.

    Parameters
    ----------
    steps : sequence of Step
        From sharp to blurred.
    """
    import numpy as np

    tree = steps[0].insects.taxonomy
    truth = tree.leaf_start[tree.resolve(steps[0].insects.labels)]
    nodes = np.stack([step.hedge.nodes for step in steps])
    right = (tree.leaf_start[nodes] <= truth) & (truth < tree.leaf_stop[nodes])
    climbs = np.diff(tree.depths[nodes], axis=0)
    shows = right.all(axis=0) & (climbs <= 0).all(axis=0)
    return int(np.argmax(np.where(shows, (climbs < 0).sum(axis=0), -1)))


def frames_of(steps: Sequence[Step], row: int) -> list[Frame]:
    """Return what the strip shows of one insect.

    Parameters
    ----------
    steps : sequence of Step
        From sharp to blurred.
    row : int
        Which insect.
    """
    import numpy as np

    tree, frames = steps[0].insects.taxonomy, []
    for step in steps:
        opinion, node = step.opinion[row], int(step.hedge.nodes[row])
        depth, guess = int(tree.depths[node]), str(tree.label(int(step.flat.best_leaves[row])))
        belief = f"{tree.level_names[depth - 1]}, belief {opinion.nodes([node]).belief[0, 0]:.2f}"
        stops = opinion.depth_profile[0]
        lines = (
            belief if depth else "not even the order",
            f"U {opinion.nonspecificity[0]:.2f}",
            f"Flat-CE {step.flat.path_probability[row, -1]:.2f} for",
            guess,
            "(right)" if guess == step.insects.labels[row] else "(wrong)",
        )
        frames.append(
            Frame(
                step.insects.images[row],
                f"blur {step.blur} px" if step.blur else "sharp",
                str(tree.label(node)) if depth else "cannot tell",
                lines,
                np.append(stops, 1 - stops.sum()),
            )
        )
    return frames


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading is headings[0] else "right")
    return table


def _step_table(steps: Sequence[Step], levels: Sequence[str]) -> Table:
    """Return at which levels the insects are named, and how often rightly."""
    import numpy as np

    table = _table("blur", *levels[::-1], "cannot tell", "right", "U", "Flat-CE", "right")
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
        calibration_note=f"{needed.size} pictures kept aside",
        title="Demo: insects",
        facts={
            "model": f"H2EDLClassifier on {BACKBONE}",
            "data": "drawn by skh2edl demo",
            "note": "the training options were picked while looking at these pictures",
        },
    )


def _level_table(report: Any, flat: Any, test: LabelledImages) -> Table:
    """Return the accuracy of both classifiers at each level."""
    from ..metrics import level_accuracy

    proba = flat.predict_proba(test.images)
    table = _table("right, when made to name the", *(level.name for level in report.levels))
    table.add_row("H2EDL", *(percent(level.accuracy) for level in report.levels))
    of_flat = [level_accuracy(test.labels, proba, test.taxonomy, lv.depth) for lv in report.levels]
    table.add_row("Flat-CE", *map(percent, of_flat))
    return table


def _hedge_table(report: Any) -> Table:
    """Return how often the hedge predicts at each level, and how often it is then right."""
    hedge = _usual(report.hedges)
    names = ["cannot tell", *(level.name for level in report.levels)]
    table = _table(f"hedged at {TARGET_ACCURACY:.0%}, it names the", "of all", "then right")
    for name, (n, n_right) in list(zip(names, hedge.stops, strict=True))[:0:-1]:
        table.add_row(name, percent(n / hedge.n_samples), percent(n_right / n) if n else "-")
    n_given, n_right = hedge.given
    right = percent(n_right / n_given) if n_given else "-"
    table.add_row("any of them", percent(n_given / hedge.n_samples), right, style="bold")
    table.add_row("cannot tell", percent(hedge.stops[0][0] / hedge.n_samples), "")
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
