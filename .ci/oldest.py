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
    bounds: dict[str, str] = {}
    for requirement in requirements:
        found = re.fullmatch(r"([\w.-]+)(\[\w+\])?>=([\w.]+)", requirement)
        if found:
            name, extra, version = found.groups()
            # An extra may ask for a newer release than the package itself.
            bounds[name] = max(bounds.get(name, version), version, key=_as_numbers)
            if extra == "[distributed]":
                bounds["distributed"] = version
    for name, version in sorted(bounds.items()):
        print(f"{name}=={version}")


def _as_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    main()
