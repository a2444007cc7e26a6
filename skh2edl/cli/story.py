"""The story of the demo: the same insects at every step of blur, and the one to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .strip import Frame

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..datasets import LabelledImages
    from ..opinions.hyper_opinion import HyperOpinion
    from ..report.hedging import HedgeFigures
    from ..report.predictions import Predictions

IMAGE_SIZE = 32
BLUR = 6.5  # pixels, the most in training: the order of an insect of 32 can just be seen
STEPS = (0, 1, 2, 3, 4, 5)  # pixels, inside that range: beyond it a network is overconfident
GRASS = (0.0, 0.1)  # a blade that hides a mark now and then, never the insect


class Step(NamedTuple):
    """The same insects at one step of blur: H2EDL's opinions, its hedge, and Flat-CE."""

    blur: int
    insects: LabelledImages
    opinion: HyperOpinion
    predictions: Predictions
    hedge: HedgeFigures
    flat: Predictions


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
    from ..report.hedging import hedge_figures
    from ..report.predictions import Predictions
    from ..report.questions import usual_hedge

    tree, steps = model.taxonomy_, []
    for blur in STEPS:
        insects = draw_insects(n, blur, seed=1)
        opinion = model.predict_hyper_opinion(insects.images)
        predictions = Predictions.from_proba(opinion.class_probability, tree, opinion=opinion)
        hedges = hedge_figures(predictions, tree.resolve(insects.labels), needed)
        guesses = Predictions.from_proba(flat.predict_proba(insects.images), tree)
        steps.append(Step(blur, insects, opinion, predictions, usual_hedge(hedges), guesses))
    return steps


def choose(steps: Sequence[Step]) -> int:
    """Return the insect to show: named rightly at each step, ever less finely.

    Of those that pass through the most levels it is the one with the most contrast.

    Parameters
    ----------
    steps : sequence of Step
        From sharp to blurred.
    """
    import numpy as np

    from ..decisions._ladders import covers

    sharp = steps[0].insects
    tree, truth = sharp.taxonomy, sharp.taxonomy.resolve(sharp.labels)
    nodes = np.stack([step.hedge.nodes for step in steps])
    depth, right = tree.depths[nodes], covers(nodes.T, truth, tree).T
    climbs = np.diff(depth, axis=0)
    shows = (right & (depth > 0)).all(axis=0) & (climbs <= 0).all(axis=0)
    n_levels = np.where(shows, (climbs < 0).sum(axis=0), -1)
    contrast = sharp.images.std(axis=(1, 2, 3))
    return int(np.argmax(np.where(n_levels == n_levels.max(), contrast, 0)))


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

    from ..metrics.report import level_title

    tree, frames = steps[0].insects.taxonomy, []
    for step in steps:
        opinion, node = step.opinion[row], int(step.hedge.nodes[row])
        depth, guess = int(tree.depths[node]), str(tree.label(int(step.flat.best_leaves[row])))
        belief, *on_path = opinion.nodes([node, *step.predictions.path[row]]).belief[0]
        lines = (
            f"{level_title(tree, depth)}, belief {belief:.2f}" if depth else "at no level",
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
                np.append(-np.diff(on_path), on_path[-1]),
            )
        )
    return frames
