"""The ``skh2edl`` application; each command loads what is heavy when it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from .benchmark import benchmark
from .calibrate import calibrate
from .common import plain_errors
from .demo import demo
from .evaluate import evaluate
from .export import export
from .fit import fit
from .opinions import opinions
from .predict import predict
from .publish import publish
from .serve import serve
from .taxonomy import commands as taxonomy

__all__ = ["app", "plain_errors"]


class PlainGroup(TyperGroup):
    """Commands whose refusals repeat the value that was given."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            errors: list[Any] = getattr(error.__cause__, "errors", list)()
            if errors:
                error.message = _refusal(errors[0])
            raise


def _refusal(error: dict[str, Any]) -> str:
    """Return what is wrong with the value of a flag.

    Examples
    --------
    >>> message = "Input should be less than or equal to 0.999"
    >>> _refusal({"msg": message, "input": "95", "ctx": {"le": 0.999}})
    "it should be less than or equal to 0.999, got '95'. For 95 % write 0.95."
    """
    said = error["msg"].removeprefix("Input should be").removeprefix("Value should be").strip()
    message = f"it should be {said}, got {error['input']!r}."
    try:
        value = float(error["input"])
    except (TypeError, ValueError):
        return message
    if error.get("ctx", {}).get("le", 2) < 1 and 50 <= value < 100:
        message += f" For {value:g} % write {value / 100:g}."
    return message


app = typer.Typer(
    cls=PlainGroup,
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
app.command()(plain_errors(demo))
# Every parameter of the method is a flag, so that unknown flags are looked up there.
_ANY_FLAG = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(context_settings=_ANY_FLAG)(plain_errors(fit))
app.command()(plain_errors(calibrate))
app.command()(plain_errors(predict))
app.command()(plain_errors(publish))
app.command()(plain_errors(opinions))
app.command()(plain_errors(evaluate))
app.command()(plain_errors(serve))
app.add_typer(taxonomy, name="taxonomy")
app.command()(plain_errors(export))
app.command()(plain_errors(benchmark))
