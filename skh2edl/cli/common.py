"""What all commands have in common: options, exit codes and output."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

P = ParamSpec("P")

# 0 is success, 2 a usage error (click's own), 130 what a shell expects after Ctrl-C.
PROBLEM = 1
INTERRUPTED = 130


def option(help: str, *flags: str, shown: str | None = None, **limits: Any) -> Any:
    """Return an option of a command.

    Parameters
    ----------
    help : str
        What it does.
    *flags : str
        Its flags; none makes one from the name of the parameter.
    shown : str, default=None
        Text that the help shows as its default; None shows the value.
    **limits
        Further arguments of :func:`typer.Option`, such as `min` and `max`.
    """
    return typer.Option(*flags, help=help, show_default=shown or True, **limits)


ModelArgument = Annotated[Path, typer.Argument(help="A model file that skh2edl fit wrote.")]
InputsArgument = Annotated[
    list[str],
    typer.Argument(help="Folders, .csv tables, patterns in quotes, or single images."),
]
TableOption = Annotated[
    Path, option("Table to write: .csv, .parquet, .json or .jsonl.", "--out", "-o")
]
AllVacuitiesOption = Annotated[bool, option("Add a column for each decision.", "--all-vacuities")]
ImageColumnOption = Annotated[
    str | None,
    option("Column with the image files, relative to the table.", shown="image, file, ..."),
]
LabelsOption = Annotated[
    str | None,
    option(
        "Columns of the label from the top level down, such as family,genus,species; or one "
        "column with names of the taxonomy.",
        shown="label, or the ranks of the taxonomy",
    ),
]
SplitColumnOption = Annotated[
    str | None, option("Column with train, val or test.", shown="split, if there is one")
]
WorkersOption = Annotated[
    int | None, option("Processes that read images.", "--workers", "--n-workers", shown="chosen")
]
QuietOption = Annotated[bool, option("Print results only, no remarks.", "--quiet", "-q")]


def as_names(text: str | None) -> tuple[str, ...]:
    """Split a list of names at its commas.

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


def plain_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Make a command end with one sentence and an exit code instead of a traceback.

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
            typer.secho(f"Error: {_in_words_of(command, error)}", err=True, fg="red")
            typer.echo("Set SKH2EDL_TRACEBACK=1 to see where it happened.", err=True)
            raise typer.Exit(PROBLEM) from None

    return run


def _in_words_of(command: Callable[..., None], error: Exception) -> str:
    if command.__name__ != "fit":
        return _message(error)
    from .parameters import in_flags

    return in_flags(_message(error))


def _message(error: Exception) -> str:
    # Python's own file errors begin with a number that helps nobody.
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {os.fsdecode(error.filename)!r}."
    return str(error) or type(error).__name__


def show_warning(message: Warning | str, *details: object, **more: object) -> None:
    """Print a warning without the line of code that it came from.

    Parameters
    ----------
    message : Warning or str
        What to print.
    *details, **more
        The other arguments of :func:`warnings.showwarning`, which are ignored.
    """
    typer.secho(f"Warning: {message}", err=True, fg="yellow")


class UsageError(typer.BadParameter):
    """A command that was typed wrongly: exit code 2, and this message."""

    def format_message(self) -> str:
        """Return the message without click's "Invalid value"."""
        return str(self.message)


def check_output(path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a file that cannot be written, before hours of work.

    Parameters
    ----------
    path : path
        The file to write.
    suffixes : tuple of str
        Allowed file endings.
    """
    if path.suffix.lower() not in suffixes:
        raise UsageError(
            f"{path} must end in {' or '.join(suffixes)}, which says what to write; it ends in "
            f"{path.suffix or 'nothing'!r}."
        )
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Give the name of a file to write.")
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UsageError(f"Nothing can be written in {parent}. Choose another place.")


def consoles(quiet: bool = False) -> tuple[Console, Console]:
    """Return the console for results and the one for remarks.

    Parameters
    ----------
    quiet : bool, default=False
        Whether to print no remarks.
    """
    return Console(highlight=False), Console(stderr=True, highlight=False, quiet=quiet)


def say_written(results: Console, path: Path, more: str = "") -> None:
    """Print which file was written.

    Parameters
    ----------
    results : Console
        Where to print.
    path : path
        The file.
    more : str, default=""
        Text after its name.
    """
    results.print(f"[bold green]Wrote {path}[/bold green]{more}", soft_wrap=True)


@contextmanager
def progress(remarks: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar in a terminal.

    Parameters
    ----------
    remarks : Console
        Where to show it.
    what : str
        The job.
    total : int
        Number of steps.

    Yields
    ------
    advance : callable
        Takes the number of steps done since the last call.
    """
    # A log file gets no bar, whose every state would be a line.
    hidden = remarks.quiet or not remarks.is_terminal
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=remarks,
        disable=hidden,
        transient=True,
    ) as bar:
        yield functools.partial(bar.advance, bar.add_task(what, total=total))
