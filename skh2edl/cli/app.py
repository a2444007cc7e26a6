"""The command and its parts: each module adds its own, and loads what is heavy when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from . import benchmark, demo_command, evaluate, export, fit, predict, serve, taxonomy
from ._run import plain_errors

__all__ = ["app", "plain_errors"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Classify down a taxonomy, as far as the evidence carries.",
    epilog="Exit codes: 0 done, 1 something is wrong with data or model, 2 wrong usage, 130 "
    "interrupted. Start with: skh2edl demo",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"skh2edl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Classify down a taxonomy, as far as the evidence carries."""


# In the order in which a newcomer meets them.
demo_command.register(app)
fit.register(app)
predict.register(app)
evaluate.register(app)
serve.register(app)
taxonomy.register(app)
export.register(app)
benchmark.register(app)
