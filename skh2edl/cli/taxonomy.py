"""``skh2edl taxonomy``: check, draw and convert trees of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ._run import PROBLEM, check_output, consoles, plain_errors
from .options import as_names
from .trees import WRITABLE, read_tree, tree_text

TreeArgument = Annotated[
    Path,
    typer.Argument(
        help="A folder of folders, .json, .csv (a column for each rank), .nwk (Newick), .txt (a "
        "path in each line), or a model file.",
        show_default=False,
    ),
]
LevelsOption = Annotated[
    str | None,
    typer.Option(
        help="Names of the levels, such as family,genus; for a table its rank columns.",
        show_default="what the file says",
    ),
]

commands = typer.Typer(
    no_args_is_help=True, help="Check, draw and convert trees of classes.", rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add the commands.

    Parameters
    ----------
    app : typer.Typer
        The application.
    """
    app.add_typer(commands, name="taxonomy")


@commands.command()
@plain_errors
def check(
    tree: TreeArgument,
    levels: LevelsOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Labelled images, a folder or a .csv table, to look for labels that the tree does "
            "not name and classes without images.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Columns of the label in the table.", show_default=False),
    ] = None,
) -> None:
    """Say what a taxonomy looks like and what may be wrong with it.

    Ends with exit code 1 if the tree cannot be used, or the data do not fit it; remarks do not
    change the exit code.

    For example:

      skh2edl taxonomy check birds.nwk

      skh2edl taxonomy check ranks.csv --levels order,species --data birds.csv
    """
    results, _ = consoles()
    found = read_tree(tree, list(as_names(levels)) or None)
    results.print(_facts(found), markup=False)
    remarks = _remarks(found)
    if data is not None:
        remarks += _data_remarks(found, data, labels)
    for remark in remarks:
        results.print(f"- {remark}", markup=False)
    if not remarks:
        results.print("Nothing unusual was found.")


@commands.command()
@plain_errors
def draw(
    tree: TreeArgument,
    levels: LevelsOption = None,
    under: Annotated[
        str | None, typer.Option(help="Draw only what is below this class.", show_default=False)
    ] = None,
    lines: Annotated[int, typer.Option(help="Lines to draw at most.", min=5)] = 60,
) -> None:
    """Draw a taxonomy as text; what does not fit is folded.

    For example:

      skh2edl taxonomy draw birds.nwk

      skh2edl taxonomy draw birds.safetensors --under Passeriformes
    """
    found = read_tree(tree, list(as_names(levels)) or None)
    if under is not None:
        found = found.restrict([under])
    typer.echo(found.draw(max_lines=lines))


@commands.command()
@plain_errors
def convert(
    tree: TreeArgument,
    out: Annotated[Path, typer.Argument(help="The file to write: .json, .csv, .nwk or .txt.")],
    levels: LevelsOption = None,
) -> None:
    """Write a taxonomy in another form.

    JSON keeps everything; a table keeps no name of the root, Newick no names of the levels, and a
    text file neither.

    For example:

      skh2edl taxonomy convert birds.nwk birds.json --levels order,species

      skh2edl taxonomy convert photos/ ranks.csv
    """
    from ..utils.files import write_atomically

    results, _ = consoles()
    check_output(out, WRITABLE)
    found = read_tree(tree, list(as_names(levels)) or None)
    content = tree_text(found, out.suffix.lower()).encode()
    write_atomically(out, lambda file: file.write(content))
    results.print(f"[bold green]Wrote {out}[/bold green]", soft_wrap=True)


def _facts(tree: Any) -> str:
    names = tree.level_names or [f"level {depth}" for depth in range(1, tree.n_levels + 1)]
    levels = [
        f"  {name}: {tree.nodes_at_depth(depth).size} classes"
        for depth, name in enumerate(names, start=1)
    ]
    return "\n".join(
        [
            f"{tree.n_leaves} leaves, {tree.n_nodes} nodes, {tree.n_branching} decisions, "
            f"{tree.n_levels} level(s); the root is called {tree.root_name!r}.",
            *levels,
        ]
    )


def _remarks(tree: Any) -> list[str]:
    import numpy as np

    remarks = []
    single = np.flatnonzero(tree.n_children == 1)
    if single.size:
        remarks.append(
            f"{single.size} node(s) have a single child, so nothing is decided there, first "
            f"{_some(tree, single)}. That is allowed."
        )
    shallow = tree.leaf_nodes[tree.depths[tree.leaf_nodes] < tree.n_levels]
    if shallow.size:
        remarks.append(
            f"{shallow.size} leaf or leaves end above the deepest level, first "
            f"{_some(tree, shallow)}. They stand for themselves below."
        )
    seen: dict[str, str] = {}
    alike = []
    for name in dict.fromkeys(map(str, tree.names.tolist())):
        key = "".join(name.casefold().replace("_", " ").replace("-", " ").split())
        if key in seen:
            alike.append(f"{seen[key]!r} and {name!r}")
        seen.setdefault(key, name)
    if alike:
        remarks.append(
            f"{len(alike)} pair(s) of names differ in capitals, blanks or dashes only, first "
            f"{', '.join(alike[:3])}. They are different classes; is one a slip?"
        )
    names, counts = np.unique(np.array(tree.names, dtype=str), return_counts=True)
    repeated = names[counts > 1].tolist()
    if repeated:
        remarks.append(
            f"{len(repeated)} name(s) stand for more than one node, first {repeated[:3]}. Where "
            "that is not clear from the place, labels must be paths such as A/B."
        )
    widest = int(tree.branching_nodes[np.argmax(tree.n_children[tree.branching_nodes])])
    most = int(tree.n_children[widest])
    if most > 50:
        remarks.append(
            f"{tree.label(widest)} has {most} children: a level in between would make doubt there "
            "easier to express."
        )
    return remarks


def _some(tree: Any, nodes: Any) -> str:
    return ", ".join(map(str, tree.labels(nodes[:3])))


def _data_remarks(tree: Any, data: Path, labels: str | None) -> list[str]:
    from ..metrics.inputs import label_nodes
    from ..report.problems import find_problems
    from .data import Columns, read_labelled

    columns = Columns(labels=as_names(labels))
    try:
        found = read_labelled(data, columns, taxonomy=tree, check="none", labels_only=True)
    except (KeyError, ValueError) as error:
        typer.secho(f"Error: The data do not fit the tree. {error}", err=True, fg="red")
        raise typer.Exit(PROBLEM) from None
    truth = label_nodes(found.labels, tree)
    kinds = {"unlabelled", "half_way", "leaves_without_samples", "leaves_with_few_samples"}
    return [
        f"{problem.title.replace('evaluated ', '')}, first {', '.join(problem.names[:3])}."
        for problem in find_problems(tree, truth, found.ids)
        if problem.kind in kinds
    ]
