"""The types of the API; their names and texts are part of its OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Fraction = Annotated[float, Field(ge=0, le=1)]


class Problem(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="A sentence for people: the rule, the value and the remedy.")


class Node(BaseModel):
    """One class of the tree, and the numbers of a prediction for it.

    An only child is the same class as its parent, so such a chain is one node: its last.
    """

    node: int = Field(description="Number of the node, for /api/children.")
    name: str = Field(description="Name to show; a chain of only children is joined by ' > '.")
    label: str = Field(description="Label that names the node in the whole tree.")
    level: str = Field(description="Its level; 'leaf' for a leaf, 'nothing' for the whole tree.")
    title: str = Field(description="The name of its level for people.")
    depth: int = Field(description="0 for the whole tree, the number of levels for a leaf.")
    n_leaves: int = Field(description="Number of leaves at or below it.")
    n_children: int = Field(description="0 for a leaf.")
    probability: Fraction
    belief: Fraction | None = Field(
        default=None, description="Committed to it; null without opinions."
    )
    plausibility: Fraction | None = Field(default=None, description="Not committed against it.")
    mass: Fraction | None = Field(default=None, description="Belief that came no further.")
    vacuity: Fraction | None = Field(
        default=None, description="Belief that its own decision left open; null for a leaf."
    )


class Children(BaseModel):
    """Some of the children of a node, the likeliest first."""

    node: int
    offset: int = Field(description="How many likelier ones were skipped.")
    total: int = Field(description="Number of all children.")
    children: list[Node]
    rest_probability: Fraction = Field(description="Of all children after these, together.")


class LevelPrediction(BaseModel):
    """The likeliest class of one level."""

    level: str
    label: str
    probability: Fraction
    belief: Fraction | None = None
    plausibility: Fraction | None = None


class Stop(BaseModel):
    """Belief that stops at one depth of the tree."""

    level: str
    mass: Fraction


class Side(BaseModel):
    """A class that some of the fused photographs show while others show another."""

    name: str
    title: str = Field(description="The name of its level for people.")
    belief: Fraction = Field(
        description="Largest of these photographs; without opinions, the largest probability."
    )
    images: list[str]


class PredictionView(BaseModel):
    """The prediction for one image, or for several that were fused.

    Where an image could not be used, `error` says why and everything else is empty.
    """

    name: str = Field(description="Name of the file, or of the files joined by ' + '.")
    error: str | None = None
    id: str | None = Field(
        default=None, description="Under which it is kept for a while, in memory."
    )
    n_images: int = Field(default=1, description="Number of photographs behind it.")
    path: list[Node] = Field(default=[], description="From the whole tree to the likeliest leaf.")
    hedged: Node | None = Field(
        default=None,
        description="The deepest node of the path that is probable enough, if asked for.",
    )
    levels: list[LevelPrediction] = []
    stops: list[Stop] = Field(
        default=[], description="Where belief stops; the rest reaches leaves."
    )
    nonspecificity: Fraction | None = Field(default=None, description="Belief above the leaves.")
    explanation: str = ""
    conflict: list[Side] = Field(
        default=[],
        description="Classes between which fused photographs disagree: each has more than half of "
        "the belief of some photograph. Perhaps they do not show one subject.",
    )
    tree: list[Children] = Field(default=[], description="The branches that matter, opened.")


class Predictions(BaseModel):
    """One prediction for each image, in the order of the files."""

    threshold: float | None = Field(description="Least probability of hedged predictions.")
    predictions: list[PredictionView]


class FoundNode(Node):
    """A class that was looked for."""

    place: str = Field(description="The names above it.")


class Found(BaseModel):
    """Classes whose name holds a text, the likeliest first."""

    total: int
    nodes: list[FoundNode]


class FuseRequest(BaseModel):
    """Predictions on photographs of one subject."""

    predictions: list[str] = Field(min_length=2, max_length=1000, description="Their ids.")
    how: Literal["cumulative", "averaging"] | None = Field(
        default=None,
        description="'cumulative' adds evidence up, for photographs that are independent; "
        "'averaging' takes the mean, for those that repeat each other. null: cumulative for "
        "opinions; a model without them can only average probabilities.",
    )


# For each depth from 0, where nothing is said: held-out images that stop there, and right ones.
Stops = list[tuple[int, int]]


class Guarantee(BaseModel):
    """The threshold that guarantees an accuracy."""

    target_accuracy: Fraction
    threshold: float
    stops: Stops = Field(description="Where held-out images stop; empty if not on record.")


class Hedge(BaseModel):
    """Accuracies that held-out images can guarantee."""

    n_images: int = Field(description="Held-out images, or subjects, that set the thresholds.")
    unit: str = Field(description="'photograph' or 'subject'.")
    is_exact: bool = Field(description="Whether the guarantee is a theorem.")
    most: Fraction = Field(description="More than this cannot be guaranteed with so few.")
    guarantees: list[Guarantee]


class HeldOutFacts(BaseModel):
    """How predictions on held-out images went."""

    n_images: int
    n_right: list[int | None] = Field(
        description="Right ones if every image gets a class of the level, for the levels from the "
        "coarsest to the finest; null where it is not on record."
    )
    stops: list[Stops] = Field(description="At least probability 0, 0.01, ..., 0.99.")


class TreeFacts(BaseModel):
    """Size and levels of the tree."""

    n_leaves: int
    n_nodes: int
    levels: list[str]


class UploadLimits(BaseModel):
    """Limits of one request."""

    max_bytes: int
    max_files: int
    max_pixels: int
    formats: list[str]


class ModelFacts(BaseModel):
    """The model, its tree, its hedge and the limits."""

    name: str
    method: str
    is_evidential: bool = Field(description="Whether there are beliefs and plausibilities.")
    version: str
    tree: TreeFacts
    hedge: Hedge | None
    held_out: HeldOutFacts | None
    limits: UploadLimits
    notes: dict[str, str]
