"""``skh2edl demo``: the command; what it does and tells is in `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._run import consoles, plain_errors


def register(app: typer.Typer) -> None:
    """Add the command.

    Parameters
    ----------
    app : typer.Typer
        The application.
    """
    app.command()(plain_errors(demo))


def demo(
    folder: Annotated[
        Path, typer.Option(help="Where to write the model, the report and some pictures.")
    ] = Path("skh2edl-demo"),
    pictures: Annotated[
        int, typer.Option(help="Pictures to draw; fewer are quicker and worse.", min=1500)
    ] = 12_000,
    epochs: Annotated[int, typer.Option(help="Passes over the pictures.", min=1)] = 7,
) -> None:
    """Learn drawn letters, show three opinions, write a report.

    Needs no data and no network, and takes about two minutes on two cores.

    For example:

      skh2edl demo

      skh2edl demo --folder try --pictures 3000
    """
    from .demo import run  # here, so that --help and --version need not wait for numpy

    run(consoles()[0], folder, pictures, epochs)
