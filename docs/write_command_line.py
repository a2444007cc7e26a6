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
as well. `fit` trains on all images that are not in a `test` part. With a frozen network, parts of
them are held out in turn: their predictions calibrate the probabilities and the hedge, and then
the model is fitted on all. The model file remembers by short hashes of their content which images
it has seen, so `evaluate` can be given the same folder: it leaves out what trained the model, and
where that is everything, it judges each image by a fit that held it out. The thresholds that
held-out images needed travel in the model file too; from them follows the hedge at any target
accuracy.

Flags are the parameters of the Python classes, with dashes; short ones are aliases (`--epochs` of
`--max-epochs`, `--workers` of `n_workers`, `--seed` of `--random-state`).

Exit codes are 0 for success, 1 when something is wrong with the data or the model, 2 for wrong
usage, and 130 after an interruption. Files appear whole or not at all. The same command resumes an
interrupted `predict`, and with `--checkpoint-dir` an interrupted `fit`.
`skh2edl --install-completion` teaches the shell to complete commands.

This page is made from the commands by `docs/write_command_line.py`.
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
    """Return the section on one command."""
    text = inspect.cleandoc(command.help)
    said, _, examples = text.partition("For example:\n")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    parts = [f"## {name}", quoted(said.strip()), "```bash\n" + "\n".join(lines) + "\n```"]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    items = [f"- `{p.name.upper()}`: {quoted(p.help)}" for p in arguments]
    items += [f"- `{', '.join(flags(p))}`: {quoted(p.help)}{default(p)}" for p in options]
    return "\n\n".join([*parts, "\n".join(items)])


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
    return "\n\n".join([HEAD.strip(), *(section(*each) for each in commands())]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
