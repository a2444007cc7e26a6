"""Draw the pictures of concepts.md and of the README: ``python docs/draw_concepts.py``.

The evidence is written by hand, so that every number in the pictures can be checked by head.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.displays import DepthProfileDisplay, OpinionTreeDisplay

PICTURES = Path(__file__).parent / "pictures"
TREE = Taxonomy.from_nested(
    {"Boeing": {"737": ["737-700", "737-800"], "747": None}, "Cessna": ["172", "208"]},
    level_names=("manufacturer", "family", "variant"),
)
# Evidence for nodes; every decision that is not named gets none.
SAMPLES = {
    "all is seen": {"Boeing": 38, "737": 38, "737-800": 38},
    "a 737, which one is hidden": {"Boeing": 38, "737": 38},
    "two variants at once": {"Boeing": 38, "737": 38, "737-700": 19, "737-800": 19},
    "nothing is seen": {},
}


def make_opinion():
    """Return the opinions on the samples."""
    evidence = np.zeros((len(SAMPLES), TREE.n_decisions))
    for row, found in enumerate(SAMPLES.values()):
        for name, amount in found.items():
            evidence[row, TREE.last_decision[TREE.node(name)]] = amount
    return HyperOpinion.from_evidence(TREE, evidence)


def save(name, display):
    """Write a picture, without the version of matplotlib in the file."""
    path = PICTURES / f"{name}.png"
    display.figure_.savefig(path, dpi=110, metadata={"Software": None})


def main():
    """Draw the pictures."""
    mpl.use("Agg")
    opinion = make_opinion()
    options = {"min_probability": 0, "label": "737-800"}
    save("concept_hidden", OpinionTreeDisplay.from_predictions(opinion, 1, **options))
    save("concept_divided", OpinionTreeDisplay.from_predictions(opinion, 2, **options))
    profile = DepthProfileDisplay.from_predictions(opinion, groups=list(SAMPLES))
    save("concept_profile", profile)


if __name__ == "__main__":
    main()
