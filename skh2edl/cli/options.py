"""Options that several commands share, so that they are called the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    Path, typer.Argument(help="A model file that skh2edl fit or save wrote.", show_default=False)
]
ImageColumnOption = Annotated[
    str | None,
    typer.Option(
        help="Column with the image files, relative to the table.", show_default="image, file, ..."
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        help="Columns of the label from the top level down, such as family,genus,species; or one "
        "column with names of the taxonomy.",
        show_default="label, or the ranks of the taxonomy",
    ),
]
SplitColumnOption = Annotated[
    str | None,
    typer.Option(help="Column with train, val or test.", show_default="split, if there is one"),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        help="Column that is equal for images of one subject, which are never divided.",
        show_default="group, if there is one",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no remarks.")]


def as_names(text: str | None) -> tuple[str, ...]:
    """Divide a list of names at its commas.

    Parameters
    ----------
    text : str or None
        The list.

    Examples
    --------
    >>> as_names("family, genus,")
    ('family', 'genus')
    """
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
