"""What ``skh2edl demo`` shows: three hand-written opinions on a small tree of aircraft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from ..opinion import HyperOpinion
from ..taxonomy import Taxonomy

PATHS = (
    ("Airbus", "A340", "A340-300"),
    ("Airbus", "A340", "A340-600"),
    ("Airbus", "A380", "A380"),
    ("Boeing", "737", "737-700"),
    ("Boeing", "737", "737-800"),
    ("Boeing", "737", "737-900"),
    ("Boeing", "747", "747-400"),
    ("Cessna", "Cessna 172", "Cessna 172"),
    ("Cessna", "Cessna 208", "Cessna 208"),
)


class Case(NamedTuple):
    """One picture of the story: what is seen, and the evidence for each child that gets any."""

    title: str
    seen: str
    evidence: Mapping[str, float]


CASES = (
    Case(
        "A clear 737-800",
        "Side view in sunlight: the nose, both engines and every window can be counted.",
        {"Boeing": 60, "Airbus": 1, "737": 60, "737-700": 1, "737-800": 80, "737-900": 2},
    ),
    Case(
        "A 737, unsure which",
        "Nose and engines are plain; the rear, which tells the lengths apart, is behind a hangar.",
        {"Boeing": 60, "Airbus": 1, "737": 60, "737-700": 0.4, "737-800": 0.8, "737-900": 0.4},
    ),
    Case(
        "No idea",
        "A grey dot in fog.",
        {"Boeing": 0.2, "Airbus": 0.2, "Cessna": 0.1},
    ),
)


class Row(NamedTuple):
    """One line of the drawn tree."""

    guide: str
    name: str
    node: int


class Marks(NamedTuple):
    """Characters that draw the tree and the bars."""

    fork: str
    last: str
    line: str
    bar: str


UNICODE = Marks("├── ", "└── ", "│   ", "■")
ASCII = Marks("|-- ", "`-- ", "|   ", "#")


def evidence_vector(taxonomy: Taxonomy, evidence: Mapping[str, float]) -> npt.NDArray[np.float64]:
    """Arrange evidence named by child in the order of the taxonomy's decisions.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    evidence : mapping of label to float
        Evidence for some children of branching nodes; the others get none.

    Returns
    -------
    ndarray of shape (1, n_decisions)
        What :meth:`HyperOpinion.from_evidence` takes.
    """
    vector = np.zeros((1, taxonomy.n_decisions))
    # A pass-through node and the leaf below it share their decision, which last_decision finds.
    vector[0, taxonomy.last_decision[taxonomy.resolve(list(evidence))]] = list(evidence.values())
    return vector


def tree_rows(taxonomy: Taxonomy, marks: Marks = UNICODE) -> Iterator[Row]:
    """Walk the tree depth first and yield one row per decision made, chains folded into one row.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    marks : Marks
        Characters to draw with.

    Yields
    ------
    Row
        Its node is the end of the folded chain: the leaf or branching node that holds mass.
    """

    def walk(node: int, guide: str, below: str) -> Iterator[Row]:
        names = [str(taxonomy.names[node])]
        while taxonomy.n_children[node] == 1:
            node = int(taxonomy.first_child[node])
            if names[-1] != taxonomy.names[node]:
                names.append(str(taxonomy.names[node]))
        yield Row(guide, " / ".join(names), node)
        first, count = int(taxonomy.first_child[node]), int(taxonomy.n_children[node])
        for child in range(first, first + count):
            last = child == first + count - 1
            yield from walk(
                child,
                below + (marks.last if last else marks.fork),
                below + ("    " if last else marks.line),
            )

    yield from walk(0, "", "")


def opinion_table(opinion: HyperOpinion, marks: Marks = UNICODE) -> Table:
    """Draw the first sample's opinion on the tree.

    Parameters
    ----------
    opinion : HyperOpinion
        Opinion of at least one sample.
    marks : Marks
        Characters to draw with.

    Returns
    -------
    rich.table.Table
        One row per leaf and branching node: mass, belief, probability, plausibility, vacuity.
    """
    taxonomy = opinion.taxonomy
    focal = [*taxonomy.leaf_nodes.tolist(), *taxonomy.branching_nodes.tolist()]
    mass = dict(zip(focal, opinion.mass[0].tolist(), strict=True))
    vacuity = dict(zip(taxonomy.branching_nodes.tolist(), opinion.vacuity[0].tolist(), strict=True))
    most = max(mass, key=lambda node: mass[node])

    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("mass", "belief", "prob.", "plaus.", "vacuity"):
        table.add_column(heading, justify="left" if heading == "mass" else "right", no_wrap=True)
    for guide, name, node in tree_rows(taxonomy, marks):
        label: Any = taxonomy.label(node)
        shares = [
            f"{share(label)[0]:.2f}"
            for share in (opinion.belief, opinion.probability, opinion.plausibility)
        ]
        table.add_row(
            f"[dim]{guide}[/dim]{escape(name)}",
            f"{mass[node]:.2f} {marks.bar * round(10 * mass[node])}",
            *shares,
            f"{vacuity[node]:.2f}" if node in vacuity else "",
            style="bold green" if node == most else "dim" if float(shares[0]) < 0.005 else None,
        )
    return table


def flat_reading(opinion: HyperOpinion) -> tuple[str, float]:
    """Return the first sample's best leaf and its probability: all that a flat softmax reports.

    A flat softmax whose logits are the log leaf probabilities gives exactly these numbers.

    Parameters
    ----------
    opinion : HyperOpinion
        Opinion of at least one sample.

    Returns
    -------
    leaf : str
        Label of the most probable leaf.
    probability : float
        Its probability.
    """
    probability = opinion.leaf_probability[0]
    best = int(probability.argmax())
    return str(opinion.taxonomy.leaves[best]), float(probability[best])


def show(console: Console) -> None:
    """Print the whole story.

    Parameters
    ----------
    console : rich.console.Console
        Where to print.
    """
    marks = ASCII if console.options.ascii_only else UNICODE
    taxonomy = Taxonomy.from_paths(
        PATHS, level_names=("manufacturer", "family", "variant"), root_name="aircraft"
    )
    console.print(
        f"\n[bold]How far down the tree does the evidence carry?[/bold] {taxonomy.n_leaves} "
        f"variants of aircraft, {taxonomy.n_branching} decisions. At each decision, evidence "
        "becomes belief in the children; what is not committed is the vacuity. [bold]Mass[/bold] "
        "is belief in exactly that node and nothing finer. For every node, belief <= probability "
        "<= plausibility."
    )
    for number, case in enumerate(CASES, 1):
        opinion = HyperOpinion.from_evidence(taxonomy, evidence_vector(taxonomy, case.evidence))
        leaf, probability = flat_reading(opinion)
        console.rule(f"[bold]{number}. {case.title}[/bold]", align="left")
        console.print(f"{case.seen}\n", style="italic")
        console.print(opinion_table(opinion, marks))
        console.print()
        sides = Table.grid(expand=True, padding=(0, 1))
        sides.add_column(ratio=3)
        sides.add_column(ratio=2)
        sides.add_row(
            Panel(escape(str(opinion.explain(0))), title="The opinion says", border_style="green"),
            Panel(
                f"[bold]{escape(leaf)}, {probability:.0%}[/bold]\none number for its best guess",
                title="A flat softmax says",
                border_style="red",
            ),
        )
        console.print(sides)
    console.print(
        "\nThe evidence here is written by hand, to show the mathematics; a network trained with "
        "[bold]H2EDLClassifier[/bold] gives it from a picture. Summed over a family, a flat "
        "softmax's probabilities are the column prob., and often serve well; what it cannot say is "
        "how much of them is belief and how much only the base rate. Vacuity is the share of "
        "belief not committed at a node: not a probability of error.\n"
        "[bold]Next:[/bold] skh2edl --help"
    )
