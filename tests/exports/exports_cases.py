"""A tree, probabilities and opinions that the tests of exports share."""

import numpy as np

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.exports import Identifications

TREE = Taxonomy.from_paths(
    [
        ("Felidae", "Lynx", "Lynx lynx"),
        ("Felidae", "Lynx", "Lynx rufus"),
        ("Felidae", "Puma", "Puma concolor"),
        ("Canidae", "Vulpes", "Vulpes vulpes"),
        ("blank",),
    ],
    level_names=("family", "genus", "species"),
)
# The decisions: Felidae, Canidae, blank; Lynx, Puma; Lynx lynx, Lynx rufus.
EVIDENCE = np.array(
    [
        [50.0, 0, 0, 40, 0, 60, 0],  # a lynx, surely
        [50.0, 0, 0, 40, 0, 3, 2],  # some lynx
        [9.0, 1, 0, 2, 2, 0, 0],  # some cat
        [0.0, 0, 30, 0, 0, 0, 0],  # nothing there
        [0.0, 0, 0, 0, 0, 0, 0],  # no idea
    ]
)
IDS = ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
THRESHOLDS = {"species": 0.8, "genus": 0.7, "family": 0.6}


def opinion():
    return HyperOpinion.from_evidence(TREE, EVIDENCE)


def identified(**options):
    """Five images: a species, a genus, a family, a blank and the root."""
    own = opinion()
    arguments = {"thresholds": THRESHOLDS, "opinion": own, **options}
    return Identifications.from_proba(
        own.leaf_probability[:, TREE.leaf_order], TREE, IDS, **arguments
    )


LABELS = ["Lynx lynx", "Lynx", "Felidae", "blank", "root"]


def media():
    return [
        {
            "mediaID": f"m{number}",
            "deploymentID": "d1" if number < 4 else "d2",
            "timestamp": f"2024-05-01T12:0{minute}:00+02:00",
            "filePath": name,
        }
        for number, (name, minute) in enumerate(zip(IDS, [0, 1, 5, 6, 6], strict=True))
    ]
