"""How every command talks and how it ends: what is printed where, and the exit codes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

P = ParamSpec("P")

# 0 is success, 2 a usage error (click's own), 130 what a shell expects after Ctrl-C.
PROBLEM = 1
INTERRUPTED = 130


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command end with one sentence and an exit code where it would end with a traceback.

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
        except KeyboardInterrupt as stop:
            typer.secho(f"Interrupted. {stop}".rstrip(), err=True, fg="yellow")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if os.environ.get("SKH2EDL_TRACEBACK"):
                raise
            text = _message(error)
            typer.secho(f"Error: {text}", err=True, fg="red")
            typer.echo("Set SKH2EDL_TRACEBACK=1 to see where it happened.", err=True)
            raise typer.Exit(PROBLEM) from None

    return run


def show_warning(message: Warning | str, *details: object, **more: object) -> None:
    """Print a warning without the line of code that it came from.

    Parameters
    ----------
    message : Warning or str
        What to print.
    *details, **more
        What :func:`warnings.showwarning` is told, too.
    """
    typer.secho(f"Warning: {message}", err=True, fg="yellow")


def _message(error: Exception) -> str:
    # Python's own file errors begin with a number that helps nobody.
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {os.fsdecode(error.filename)!r}."
    return str(error) or type(error).__name__


class WrongUsage(typer.BadParameter):
    """An error of a command's user, which ends with exit code 2 and its own words."""

    def format_message(self) -> str:
        """Return the message without click's "Invalid value"."""
        return str(self.message)


def usage_error(message: str) -> WrongUsage:
    """Return the error for a wrong command.

    Parameters
    ----------
    message : str
        Rule, value and way out.
    """
    return WrongUsage(message)


def check_output(path: Path, suffixes: tuple[str, ...] = ()) -> Path:
    """Return where to write, or say at once, before hours of work, that it cannot be.

    Parameters
    ----------
    path : path
        The file to write.
    suffixes : tuple of str, default=()
        Endings to choose from; none allows all.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise usage_error(
            f"{path} must end in {' or '.join(suffixes)}, which says what to write; it ends in "
            f"{path.suffix or 'nothing'!r}."
        )
    if path.is_dir():
        raise usage_error(f"{path} is a folder. Give the name of a file to write.")
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise usage_error(f"Nothing can be written in {parent}. Choose another place.")
    return path


def consoles(quiet: bool = False) -> tuple[Console, Console]:
    """Return where results and where remarks are printed.

    Parameters
    ----------
    quiet : bool, default=False
        Whether remarks are left out.
    """
    return Console(highlight=False), Console(stderr=True, highlight=False, quiet=quiet)


@contextmanager
def progress(remarks: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how far a job is, where somebody can see it.

    Parameters
    ----------
    remarks : Console
        Where.
    what : str
        The job.
    total : int
        Number of steps.

    Yields
    ------
    advance : callable
        Takes the number of steps done since the last call.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # A log file gets no bar, whose every state would be a line.
    hidden = remarks.quiet or not remarks.is_terminal
    with Progress(*columns, console=remarks, disable=hidden, transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(steps: int) -> None:
            bar.advance(task, steps)

        yield advance
