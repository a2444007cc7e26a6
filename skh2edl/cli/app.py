"""The commands: what they are called, what they accept, and how they fail."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer
from rich.console import Console

from .. import __version__

P = ParamSpec("P")

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Classify down a taxonomy, as far as the evidence carries.",
)


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command end with one sentence and exit code 1 where it would end with a traceback.

    Parameters
    ----------
    command : callable
        The function behind a command.

    Returns
    -------
    callable
        The same command. With ``SKH2EDL_TRACEBACK=1`` in the environment it raises as before.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
            raise  # how typer ends a command, and what `| head` does to one
        except Exception as error:
            if os.environ.get("SKH2EDL_TRACEBACK"):
                raise
            text = str(error) or type(error).__name__
            typer.secho(f"Error: {text}", err=True, fg="red")
            typer.echo("Set SKH2EDL_TRACEBACK=1 to see where it happened.", err=True)
            raise typer.Exit(1) from None

    return run


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


@app.command()
@plain_errors
def demo() -> None:
    """Show three opinions on a small tree of aircraft, each beside a flat softmax's one number.

    Example: skh2edl demo
    """
    from .demo import show  # here, so that --help and --version need not wait for numpy

    show(Console())
