"""``skh2edl taxonomy``: check, draw and convert trees of classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from ..utils.files import is_formula
from . import common
from .common import as_names, option, plain_errors
from .data import Columns, read_labelled

if TYPE_CHECKING:
    from ..taxonomy.taxonomy import Taxonomy

NEWICK = (".nwk", ".newick", ".tre", ".tree")
READABLE = (".json", ".csv", ".tsv", ".obo", *NEWICK, ".txt", ".safetensors")
WRITABLE = (".json", ".csv", ".nwk", ".newick", ".txt")

TreeArgument = Annotated[
    Path,
    Argument(
        help="A folder of folders, a folder or archive of the NCBI taxdump, .json (nested, COCO or "
        "OBO graphs), .csv (a column for each rank), .tsv (Darwin Core), .obo, .nwk (Newick), .txt "
        "(a path in each line), or a model file."
    ),
]
LevelsOption = Annotated[
    str | None,
    option(
        "Names of the levels, such as family,genus; for a table its rank columns.",
        shown="what the file says",
    ),
]

commands = typer.Typer(
    no_args_is_help=True, help="Check, draw and convert trees of classes.", rich_markup_mode=None
)


@commands.command()
@plain_errors
def check(
    tree: TreeArgument,
    levels: LevelsOption = None,
    data: Annotated[
        Path | None, option("Labelled images to compare with: a folder or a .csv table.")
    ] = None,
    labels: Annotated[str | None, option("Columns of the label in the table.")] = None,
) -> None:
    """Say what a taxonomy looks like and what may be wrong with it.

    With --data it also looks for labels that the tree does not name and for classes without
    images. Ends with exit code 1 if the tree cannot be used, or the data do not fit it; remarks do
    not change the exit code.

    For example:

      skh2edl taxonomy check birds.nwk

      skh2edl taxonomy check ranks.csv --levels order,species --data birds.csv
    """
    results, _ = common.consoles()
    found = read_tree(tree, as_names(levels))
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
    under: Annotated[str | None, option("Draw only what is below this class.")] = None,
    lines: Annotated[int, option("Lines to draw at most.", min=5)] = 60,
) -> None:
    """Draw a taxonomy as text; what does not fit is folded.

    For example:

      skh2edl taxonomy draw birds.nwk

      skh2edl taxonomy draw birds.safetensors --under Passeriformes
    """
    found = read_tree(tree, as_names(levels))
    if under is not None:
        found = found.restrict([under])
    typer.echo(found.draw(max_lines=lines))


@commands.command()
@plain_errors
def convert(
    tree: TreeArgument,
    out: Annotated[Path, Argument(help="The file to write: .json, .csv, .nwk or .txt.")],
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

    common.check_output(out, WRITABLE)
    found = read_tree(tree, as_names(levels))
    content = tree_text(found, out.suffix.lower()).encode()
    write_atomically(out, lambda file: file.write(content))
    common.say_written(common.consoles()[0], out)


def _facts(tree: Any) -> str:
    names = tree.level_names or [f"level {depth}" for depth in range(1, tree.n_levels + 1)]
    levels = [
        f"  {name}: {tree.nodes_at_depth(depth).size} classes"
        for depth, name in enumerate(names, start=1)
    ]
    sizes = (
        f"{tree.n_leaves} leaves, {tree.n_nodes} nodes, {tree.n_branching} decisions, "
        f"{tree.n_levels} level(s); the root is called {tree.root_name!r}."
    )
    return "\n".join([sizes, *levels])


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
            f"{tree.label(widest)} has {most} children: with a level in between, predictions "
            "could stop there."
        )
    return remarks


def _some(tree: Any, nodes: Any) -> str:
    return ", ".join(map(str, tree.labels(nodes[:3])))


def _data_remarks(tree: Any, data: Path, labels: str | None) -> list[str]:
    from ..metrics.inputs import label_nodes
    from ..report.problems import find_problems

    columns = Columns(labels=as_names(labels))
    try:
        found = read_labelled(data, columns, taxonomy=tree, check="none", labels_only=True)
    except (KeyError, ValueError) as error:
        typer.secho(f"Error: The data do not fit the tree. {error}", err=True, fg="red")
        raise typer.Exit(common.PROBLEM) from None
    truth = label_nodes(found.labels, tree)
    kinds = {"unlabelled", "half_way", "leaves_without_samples", "leaves_with_few_samples"}
    return [
        f"{problem.title.replace('evaluated ', '')}, first {', '.join(problem.names[:3])}."
        for problem in find_problems(tree, truth, found.ids)
        if problem.kind in kinds
    ]


def read_tree(path: Path, levels: Sequence[str] = ()) -> Taxonomy:
    """Read a taxonomy from a file or a folder.

    Parameters
    ----------
    path : path
        A folder of folders; the NCBI taxdump as a folder or ``.tar.gz``; ``.json`` (what convert
        writes, nested objects, child to parent, categories of COCO, or OBO graphs); ``.csv`` with
        one column for each rank; ``.tsv`` of Darwin Core, ``.gz`` or not; ``.obo``; ``.nwk`` and
        other endings of Newick; ``.txt`` with one path like ``Boeing/737/737-700`` in a line; or
        a model file.
    levels : sequence of str, default=()
        For a table the rank columns, for all others the names of the levels; none takes all
        columns, and what the file says.

    Returns
    -------
    taxonomy : Taxonomy
    """
    from ..taxonomy.taxonomy import Taxonomy

    names = list(levels) or None
    if (path / "nodes.dmp").is_file() or path.name.lower().endswith(".tar.gz"):
        return Taxonomy.from_ncbi(path, names)
    if path.is_dir():
        return Taxonomy.from_folder(path, level_names=names)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no taxonomy at {str(path)!r}. Give a file or a folder that exists."
        )
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix == ".csv":
        return Taxonomy.from_table(path, names)
    if suffix == ".tsv":
        return Taxonomy.from_darwin_core(path, names)
    if suffix == ".obo":
        return Taxonomy.from_obo(path, level_names=names)
    if suffix == ".safetensors":
        from ..estimators.model_files import load_model

        return load_model(path).taxonomy_
    if suffix not in READABLE or path.suffix.lower() == ".gz":
        raise common.UsageError(
            f"{path} must be a folder or end in {', '.join(READABLE)}, which says how to read it; "
            f"it ends in {suffix or 'nothing'!r}."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8 ({error}). Save it as UTF-8.") from None
    if suffix in NEWICK:
        return Taxonomy.from_newick(text, level_names=names)
    if suffix == ".txt":
        lines = [line.strip() for line in text.splitlines()]
        return Taxonomy.from_paths([line.split("/") for line in lines if line], level_names=names)
    return _from_json(text, path, names)


def _from_json(text: str, path: Path, levels: list[str] | None) -> Taxonomy:
    from ..taxonomy.taxonomy import Taxonomy

    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None
    if isinstance(record, dict) and "format" in record and "parents" in record:
        return Taxonomy.from_json(text)
    if isinstance(record, dict) and isinstance(record.get("categories"), list):
        return Taxonomy.from_coco(record)
    if isinstance(record, dict) and isinstance(record.get("graphs"), list):
        return Taxonomy.from_obo(record, level_names=levels)
    if not isinstance(record, dict):
        raise ValueError(
            f"{path} must hold a JSON object: what `skh2edl taxonomy convert` writes, nested "
            f'objects, {{"child": "parent"}}, categories or OBO graphs. It holds a '
            f"{type(record).__name__}."
        )
    if record and all(isinstance(parent, str) for parent in record.values()):
        return Taxonomy.from_parents(record, level_names=levels)
    return Taxonomy.from_nested(record, level_names=levels)


def tree_text(tree: Taxonomy, suffix: str) -> str:
    """Write a taxonomy in the form that belongs to an ending.

    Parameters
    ----------
    tree : Taxonomy
        The tree.
    suffix : str
        One of ``.json``, ``.csv``, ``.nwk``, ``.newick`` and ``.txt``.

    Returns
    -------
    text : str

    Examples
    --------
    >>> from skh2edl import Taxonomy
    >>> tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog's": None})
    >>> print(tree_text(tree, ".nwk"), end="")
    ((lynx,puma)cat,'dog''s')root;
    """
    if suffix == ".json":
        return tree.to_json() + "\n"
    if suffix in (".nwk", ".newick"):
        return tree.to_newick() + "\n"
    if suffix == ".csv":
        leaves = (tree.path(leaf) for leaf in tree.leaves)
        cells = (cell for line in (tree.level_names or (), *leaves) for cell in line)
        formula = next((cell for cell in cells if is_formula(cell)), None)
        if formula is not None:
            # Another name would no longer be that of the labels.
            raise ValueError(
                f"A spreadsheet would take the name {formula!r} in a .csv file for a formula. "
                "Convert to .json or .nwk."
            )
        return str(tree.to_csv())
    paths = [tree.path(leaf) for leaf in tree.leaves]
    slashed = next((name for path in paths for name in path if "/" in str(name)), None)
    if slashed is not None:
        raise ValueError(
            f"The name {slashed!r} holds a slash, which divides names in a .txt file. Convert to "
            ".json or .csv."
        )
    return "".join("/".join(map(str, path)) + "\n" for path in paths)
