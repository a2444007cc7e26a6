"""The command line: what it prints, how it ends, and what the demo claims."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import skh2edl
from skh2edl import HyperOpinion, Taxonomy
from skh2edl.cli import demo
from skh2edl.cli.app import app, plain_errors


@pytest.fixture
def run(monkeypatch):
    # Without a terminal rich takes the width from here; wide enough that no sentence is cut.
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("SKH2EDL_TRACEBACK", raising=False)

    def invoke(*arguments, of=app):
        return CliRunner().invoke(of, list(arguments))

    return invoke


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_paths(demo.PATHS, root_name="aircraft")


def opinion_of(tree, number):
    return HyperOpinion.from_evidence(tree, demo.evidence_vector(tree, demo.CASES[number].evidence))


def test_version_is_the_package_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"skh2edl {skh2edl.__version__}\n"


def test_help_names_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    for command in ("demo",):
        assert re.search(rf"\b{command}\b", result.output)


def test_no_arguments_show_the_help(run):
    # Click changed this exit code from 0 to 2; the help is what matters.
    assert "Usage: " in run().output


def test_an_unknown_command_is_a_usage_error(run):
    result = run("dmo")
    assert result.exit_code == 2
    assert "No such command 'dmo'" in result.output


def test_the_demo_tells_three_cases_with_their_opinion_and_the_flat_number(run):
    result = run("demo")
    assert result.exit_code == 0, result.output
    for case in demo.CASES:
        assert case.title in result.output
        assert case.seen in result.output
    assert result.output.count("The opinion says") == 3
    assert result.output.count("A flat softmax says") == 3
    assert "written by hand" in result.output


def test_the_demo_prints_the_hand_computed_numbers_of_the_clear_case(run):
    output = run("demo").output
    first = output[output.index("1. A clear") : output.index("2. A 737")]
    (row,) = [line for line in first.splitlines() if "── 737-800" in line]
    numbers = [float(number) for number in re.findall(r"\d\.\d\d", row)]
    # Decisions on the way: 60 of 61 + 3 evidence, 60 of 60 + 2, 80 of 83 + 3; priors 1 per child.
    belief = 60 / 64 * 60 / 62 * 80 / 86
    probability = 61 / 64 * 61 / 62 * 81 / 86
    doubt = 3 / 64 + 60 / 64 * 2 / 62 + 60 / 64 * 60 / 62 * 3 / 86
    assert numbers == pytest.approx([belief, belief, probability, belief + doubt], abs=0.005)
    assert f"737-800, {probability:.0%}" in first


def test_the_demo_keeps_to_eighty_columns(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(len(line.rstrip()) for line in run("demo").output.splitlines()) <= 80


def test_the_demo_draws_with_ascii_where_the_terminal_knows_no_more(tree):
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace"))
    demo.show(console)
    console.file.seek(0)
    text = console.file.read()
    assert "|-- " in text
    assert "#####" in text


@pytest.mark.parametrize(("number", "holder"), [(0, ("737-800",)), (1, ("Boeing", "737")), (2, ())])
def test_each_case_of_the_demo_ends_where_its_title_says(tree, number, holder):
    opinion = opinion_of(tree, number)
    most = int(opinion.mass[0].argmax())
    node = np.concatenate([tree.leaf_nodes, tree.branching_nodes])[most]
    assert tree.path(tree.label(node))[-len(holder) or None :] == holder
    assert opinion.mass[0, most] > 0.5


def test_the_flat_reading_cannot_tell_no_idea_from_a_sure_family(tree):
    """The demo's point: both numbers are low, the beliefs in "737" are far apart."""
    unsure, lost = opinion_of(tree, 1), opinion_of(tree, 2)
    assert max(demo.flat_reading(unsure)[1], demo.flat_reading(lost)[1]) < 0.5
    assert unsure.belief("737")[0] - lost.belief("737")[0] > 0.8


def test_evidence_is_placed_at_the_decision_for_the_named_child(tree):
    vector = demo.evidence_vector(tree, {"747-400": 5, "Cessna": 2, "A380": 3})
    placed = {
        tree.decisions[entry][1]: vector[0, entry] for entry in np.flatnonzero(vector[0]).tolist()
    }
    assert placed == {("Boeing", "747"): 5, ("Cessna",): 2, ("Airbus", "A380"): 3}


def test_the_drawn_tree_folds_chains_and_keeps_every_focal_set(tree):
    rows = list(demo.tree_rows(tree))
    assert sorted(row.node for row in rows) == sorted([*tree.leaf_nodes, *tree.branching_nodes])
    assert [row.guide + row.name for row in rows[:6]] == [
        "aircraft",
        "├── Airbus",
        "│   ├── A340",
        "│   │   ├── A340-300",
        "│   │   └── A340-600",
        "│   └── A380",
    ]
    assert "747 / 747-400" in [row.name for row in rows]


def failing_app(error):
    application = typer.Typer(pretty_exceptions_enable=False)

    @application.command()
    @plain_errors
    def fail() -> None:
        raise error

    return application


def test_an_error_is_one_sentence_and_exit_code_1(run):
    result = run(of=failing_app(ValueError("y has 3 labels too many.")))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "Error: y has 3 labels too many."
    assert "Traceback" not in result.output


def test_an_error_without_words_is_named_by_its_type(run):
    assert run(of=failing_app(MemoryError())).stderr.startswith("Error: MemoryError\n")


def test_the_traceback_can_be_asked_for(run, monkeypatch):
    monkeypatch.setenv("SKH2EDL_TRACEBACK", "1")
    result = run(of=failing_app(ValueError("too many")))
    assert isinstance(result.exception, ValueError)


def test_a_chosen_exit_code_passes_through(run):
    result = run(of=failing_app(typer.Exit(3)))
    assert result.exit_code == 3
    assert result.stderr == ""


HIDE_AND_RUN = """
import sys
sys.modules[{module!r}] = None
sys.argv = ["skh2edl", "demo"]
from skh2edl.cli import main
main()
"""


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_the_command_says_what_to_install(module):
    done = subprocess.run(
        [sys.executable, "-c", HIDE_AND_RUN.format(module=module)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"needs the package {module!r}" in done.stderr
    assert "pip install 'skh2edl[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_installed_command_runs_and_survives_an_ascii_terminal():
    done = subprocess.run(
        [sys.executable, "-c", "from skh2edl.cli import main; main()", "demo"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": "", "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    assert b"A clear 737-800" in done.stdout
