"""``skh2edl export``: a model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._run import check_output, consoles, plain_errors
from .options import ModelArgument


def register(app: typer.Typer) -> None:
    """Add the command.

    Parameters
    ----------
    app : typer.Typer
        The application.
    """
    app.command()(plain_errors(export))


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Argument(help="The .onnx file to write.", show_default=False)],
) -> None:
    """Write a model as ONNX, for programs that have no torch.

    The ONNX model takes resized uint8 images (or features) and gives the probabilities of leaves
    and of all nodes, and for evidential models vacuities and masses; its metadata hold the
    taxonomy and the names of the columns.

    For example:

      skh2edl export birds.safetensors birds.onnx
    """
    import warnings

    from ..estimators.model_files import load_model

    results, _ = consoles()
    check_output(out, (".onnx",))
    estimator = load_model(model)
    with warnings.catch_warnings():
        # torch warns about its own plans, which are not for users of this command.
        warnings.simplefilter("ignore")
        estimator.export_onnx(out)
    results.print(f"[bold green]Wrote {out}[/bold green]", soft_wrap=True)
