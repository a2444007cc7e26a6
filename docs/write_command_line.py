"""Write command_line.md from the commands themselves: ``python docs/write_command_line.py``."""

import inspect
import re
from collections import Counter
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

Every command has `--help`. Exit codes are 0 for success, 1 when something is wrong with the data or
the model, 2 for wrong usage, and 130 after an interruption. Files appear whole or not at all.
`skh2edl --install-completion` teaches the shell to complete commands.

This page is made from the commands by `docs/write_command_line.py`.

## What several commands take
"""

# Of these --help alone says what each flag means: they are for those who compare methods.
BRIEF = {"skh2edl benchmark"}


def commands(group=None, prefix="skh2edl"):
    """Yield the full name and the object of every command, in the order of the help."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        full = f"{prefix} {name}"
        if hasattr(command, "commands"):
            yield from commands(command, full)
        else:
            yield full, command


def section(name, command, shared):
    """Return the section on one command; what several commands take is only named."""
    text = inspect.cleandoc(command.help)
    said, _, examples = text.partition("For example:\n")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    parts = [f"## {name}", quoted(said.strip()), "```bash\n" + "\n".join(lines) + "\n```"]
    described = {item(p): p for p in parameters(command)}
    if name in BRIEF:
        shared = described
    own = [text for text in described if text not in shared]
    also = [f"`{named(p)}`" for text, p in described.items() if text in shared]
    if also:
        own.append(f"- {'Also' if own else 'Flags that `--help` explains'}: {', '.join(also)}.")
    return "\n\n".join([*parts, "\n".join(own)])


def parameters(command):
    """Return the arguments of a command, then its options."""
    wanted = [p for p in command.params if p.name != "help"]
    return sorted(wanted, key=lambda p: p.param_type_name != "argument")


def named(parameter):
    """Return the name of an argument, or the flags of an option."""
    if parameter.param_type_name == "argument":
        return parameter.name.upper()
    return ", ".join(flags(parameter))


def item(parameter):
    """Return the line on an argument or option."""
    is_option = parameter.param_type_name == "option"
    return (
        f"- `{named(parameter)}`: {quoted(parameter.help)}{default(parameter) if is_option else ''}"
    )


def quoted(text):
    """Mark flags as code: in running text two hyphens become a dash."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text)


def flags(option):
    """Return the short flag before the long one."""
    return sorted(option.opts, key=len)


def default(option):
    """Return what is meant when the option is left out."""
    if isinstance(option.show_default, str):
        return f" Default: {option.show_default}."
    if option.is_flag or option.default is None or not option.show_default:
        return ""
    return f" Default: `{option.default}`."


def page():
    """Return the whole page."""
    found = list(commands())
    counts = Counter(item(p) for _, command in found for p in parameters(command))
    shared = [text for text, n in counts.items() if n > 1]
    sections = (section(*each, shared) for each in found)
    return "\n\n".join([HEAD.strip(), "\n".join(shared), *sections]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
