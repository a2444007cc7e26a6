"""Print the lower bounds of pyproject.toml as pip constraints: python .ci/oldest.py > file."""

import re
import tomllib
from pathlib import Path

# What users install. The tools that check the code are as new as they come.
NOT_FOR_USERS = {"dev", "docs", "test"}


def main() -> None:
    """Print a line for every package that users install."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    requirements = list(project["dependencies"])
    for extra, more in project["optional-dependencies"].items():
        requirements += [] if extra in NOT_FOR_USERS else more
    for requirement in sorted(set(requirements)):
        found = re.fullmatch(r"([\w.-]+)(\[\w+\])?>=([\w.]+)", requirement)
        if found:
            name, extra, version = found.groups()
            print(f"{name}=={version}")
            if extra == "[distributed]":
                print(f"distributed=={version}")


if __name__ == "__main__":
    main()
