"""Write command_line.md from the commands themselves: ``python docs/write_command_line.py``."""

import inspect
import re
from pathlib import Path

import typer

from skh2edl.cli.app import app

PAGE = Path(__file__).parent / "command_line.md"
HEAD = """# Command line

The command comes with `pip install "skh2edl[cli]"`. Three lines take a folder of labelled
photographs to a model, a report and a table of predictions:

```bash
skh2edl fit photos/ --out birds.safetensors
skh2edl evaluate birds.safetensors photos/ --out report.html
skh2edl predict birds.safetensors new_photos/ --out predictions.csv
```

The folders of `photos/` are the taxonomy, however deep; a table with a column for each rank does
as well. The model file remembers which images it has seen and the thresholds of its hedge, so
`evaluate` can be given the same folder, and `predict` any target accuracy.

![A verdict, what to do next, how often each level is right](pictures/report.png)

*The report of `skh2edl demo`. Below follow the tree with every class, the mistakes as pictures, and
how far to believe the probabilities.*

`--help` explains the flags of a command. Exit codes are 0 for success, 1 when something is wrong
with the data or the model, 2 for wrong usage, and 130 after an interruption. Files appear whole or
not at all. `skh2edl --install-completion` teaches the shell to complete commands.
"""


def commands(group=None, prefix="skh2edl"):
    """Yield the full name and the object of every command, in the order of the help."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        full = f"{prefix} {name}"
        if hasattr(command, "commands"):
            yield from commands(command, full)
        else:
            yield full, command


def section(name, command):
    """Return the section on one command: what its help says, and the names of its flags."""
    text = inspect.cleandoc(command.help)
    said, _, examples = text.partition("For example:\n")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    flags = ", ".join(f"`{named(p)}`" for p in command.params if is_flag(p))
    code = "```bash\n" + "\n".join(lines) + "\n```"
    parts = [f"## {name}", quoted(said.strip()), code]
    return "\n\n".join([*parts, f"Flags: {flags}."] if flags else parts)


def is_flag(parameter):
    """Return whether it is an option of this command."""
    return parameter.param_type_name == "option" and parameter.name != "help"


def named(option):
    """Return the first long flag."""
    return next(flag for flag in option.opts if flag.startswith("--"))


def quoted(text):
    """Mark flags as code: in running text two hyphens become a dash."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text)


def page():
    """Return the whole page."""
    return "\n\n".join([HEAD.strip(), *(section(*each) for each in commands())]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
