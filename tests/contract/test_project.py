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


@pytest.fixture
def run_ci(tmp_path):
    """Run the script with tools that note their calls, one of which may fail."""
    log, temporary, tools = tmp_path / "log", tmp_path / "temporary", tmp_path / "tools"
    temporary.mkdir()
    tools.mkdir()
    note = '#!/bin/sh\ncall="$(basename "$0") $*"\necho "$call" >>"$LOG"\n[ "$call" != "$FAILS" ]\n'
    make = """#!/bin/sh
        mkdir "$3/bin"
        for tool in pip ruff mypy sphinx-build pytest; do cp "$NOTE" "$3/bin/$tool"; done
    """
    for name, text in {"note": note, "chromedriver": note, "python": make}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)

    def run(fails=""):
        log.write_text("")
        environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHON": str(tools / "python"),
            "TMPDIR": str(temporary),
            "NOTE": str(tools / "note"),
            "LOG": str(log),
            "FAILS": fails,
        }
        done = subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True)
        assert not [*temporary.iterdir()], "the environment is left behind"
        return done.returncode, log.read_text().splitlines()

    return run


@pytest.mark.skipif(sys.platform == "win32", reason="a bash script")
def test_ci_lints_checks_types_and_builds_the_docs_before_the_tests(run_ci):
    status, calls = run_ci()
    checks = [call.strip() for call in calls if not call.startswith("pip")]
    assert status == 0
    assert checks[-1] == "pytest"
    assert {"ruff check", "ruff format --check", "mypy"} < {*checks}
    assert [call for call in checks if call.startswith("sphinx-build -W")]


@pytest.mark.skipif(sys.platform == "win32", reason="a bash script")
@pytest.mark.parametrize("step", ["ruff check", "mypy ", "pytest "])
def test_ci_stops_at_the_first_failure(run_ci, step):
    status, calls = run_ci(fails=step)
    assert status == 1
    assert calls[-1] == step


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
