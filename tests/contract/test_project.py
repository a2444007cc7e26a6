"""What the project says about itself is true: set-up commands, extras, versions, licence."""

import ast
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

import skh2edl

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

DEMO_COMMAND = 'pip install -e ".[demo]" && skh2edl demo'
TEST_COMMAND = 'pip install -e ".[test]" && pytest'


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def requirement_names(requirements: list[str]) -> set[str]:
    """Distributions that requirements name, following the extras of this project."""
    names: set[str] = set()
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement).group()
        if name == "skh2edl":
            for extra in re.search(r"\[(.*?)\]", requirement).group(1).split(","):
                names |= requirement_names(EXTRAS[extra])
        else:
            names.add(canonical(name))
            if "[distributed]" in requirement:
                names.add("distributed")
    return names


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def third_party_imports(folder: Path) -> set[str]:
    """Distributions that the code in a folder imports anywhere."""
    modules = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(node.module.split(".")[0])
    local = {path.stem for path in folder.rglob("*.py")} | {"skh2edl", "tests"}
    owners = importlib.metadata.packages_distributions()
    return {
        canonical(owners.get(module, [module])[0])
        for module in modules - set(sys.stdlib_module_names) - local
    }


def test_the_readme_has_exactly_two_commands():
    assert [block.strip() for block in blocks("bash")] == [DEMO_COMMAND, TEST_COMMAND]


def test_ci_runs_exactly_the_readme_test_command():
    commands = re.findall(r"bash -c '(.*)'", CI)
    assert commands == [TEST_COMMAND]


def test_ci_lints_and_checks_types_before_the_tests():
    steps = re.findall(r'^step "[^"]*" (.*)$', CI, flags=re.MULTILINE)
    assert steps[1:] == [
        'pip install --quiet -e ".[test]"',
        "ruff check",
        "ruff format --check",
        "mypy",
        'pip install --quiet -e ".[docs,test]"',
        'sphinx-build -W -q -b html docs "$environment/docs"',
        f"bash -c '{TEST_COMMAND}'",
    ]


def test_ci_stops_at_the_first_failure_and_removes_its_environment():
    assert "set -euo pipefail" in CI
    assert re.search(r'environment="\$\(mktemp -d\)"\ntrap \'rm -rf "\$environment"\' EXIT', CI)


@pytest.mark.skipif(sys.platform == "win32", reason="a bash script")
def test_ci_is_an_executable_script_that_bash_can_parse():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


def run_block(number: int) -> dict[str, object]:
    namespace: dict[str, object] = {}
    exec(compile(blocks("python")[number], "README.md", "exec"), namespace)
    return namespace


def test_the_classifier_of_the_readme_learns_and_its_hedge_says_a_737():
    clf, hedge, X, y = map(run_block(0).get, ("clf", "hedge", "X", "y"))
    # The features tell a Cessna from a Boeing and nothing else.
    makers = np.where(y == "172", "Cessna", "Boeing")
    assert np.mean(clf.predict_level(X, 1) == makers) > 0.95
    assert hedge.predict(X[:2]).tolist() == ["737", "737"]
    assert (
        clf.predict_hyper_opinion(X).explain(0).startswith("The evidence carries to Boeing > 737")
    )


def test_the_opinion_of_the_readme_is_the_one_worked_out_by_hand():
    opinion = run_block(1)["opinion"]
    # At the root b = 40/42 and p = 41/42; below, the two variants share it equally.
    assert opinion.belief("737")[0] == pytest.approx(40 / 42)
    assert opinion.leaf_probability[0] == pytest.approx([41 / 84, 41 / 84, 1 / 42])


def test_the_readme_shows_about_ten_lines_of_code():
    lengths = [sum(bool(line.strip()) for line in block.splitlines()) for block in blocks("python")]
    assert len(lengths) == 2
    assert max(lengths) <= 10


def test_the_changelog_has_a_section_for_this_version():
    text = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(skh2edl.__version__)}\b", text, flags=re.MULTILINE)


def test_the_installed_version_is_the_one_in_the_source():
    assert importlib.metadata.version("skh2edl") == skh2edl.__version__


def test_every_public_name_is_in_the_api_reference():
    text = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   (\w+)$", text, flags=re.MULTILINE))
    assert listed == {*skh2edl.__all__} - {"__version__"}


@pytest.mark.parametrize(
    "module", ["benchmark", "datasets", "displays", "exports", "metrics", "report"]
)
def test_what_a_module_offers_is_in_the_api_reference(module):
    text = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(rf"^   {module}\.(\w+)$", text, flags=re.MULTILINE))
    assert listed == set(importlib.import_module(f"skh2edl.{module}").__all__)


def test_the_test_extra_installs_what_ci_calls():
    assert {"pytest", "pytest-timeout", "ruff", "mypy"} <= requirement_names(EXTRAS["test"])


def test_the_demo_extra_installs_the_command_line():
    assert {"rich", "typer"} <= requirement_names(EXTRAS["demo"])


def test_everything_the_package_imports_is_declared():
    declared = requirement_names(PROJECT["dependencies"] + EXTRAS["test"])
    assert third_party_imports(ROOT / "skh2edl") <= declared


@pytest.mark.slow
def test_everything_the_tests_import_is_in_the_test_extra():
    declared = requirement_names(PROJECT["dependencies"] + EXTRAS["test"])
    assert third_party_imports(ROOT / "tests") <= declared


def test_every_requirement_has_a_lower_bound():
    every = [*PROJECT["dependencies"], *(item for extra in EXTRAS.values() for item in extra)]
    assert not [item for item in every if ">=" not in item and not item.startswith("skh2edl[")]


def test_pre_commit_runs_the_tools_of_the_environment():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["entry"].split(" --")[0] for hook in hooks] == [
        "ruff check",
        "ruff format",
        "mypy",
    ]


def test_the_licence_is_bsd_3_clause():
    assert PROJECT["license"] == "BSD-3-Clause"
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("BSD 3-Clause License")
