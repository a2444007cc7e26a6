"""The command line itself: what it is called, how it helps, how it ends."""

import importlib.util
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cli_cases import invoke
from typer.testing import CliRunner

import skh2edl
from skh2edl.cli.app import app, plain_errors

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "demo": ("demo",),
    "fit": ("fit",),
    "calibrate": ("calibrate",),
    "predict": ("predict",),
    "evaluate": ("evaluate",),
    "taxonomy check": ("taxonomy", "check"),
    "taxonomy draw": ("taxonomy", "draw"),
    "taxonomy convert": ("taxonomy", "convert"),
    "export": ("export",),
}


@pytest.fixture
def run(monkeypatch):
    # Without a terminal the width is taken from here; wide enough that no sentence is cut.
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("SKH2EDL_TRACEBACK", raising=False)

    def invoke(*arguments, of=app):
        return CliRunner().invoke(of, list(map(str, arguments)))

    return invoke


def test_version_is_the_package_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.output == f"skh2edl {skh2edl.__version__}\n"


def test_help_names_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    for command in COMMANDS.values():
        assert re.search(rf"^\s+{command[0]}\b", result.output, flags=re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_of_its_own_command(run, name):
    result = run(*COMMANDS[name], "--help")
    assert result.exit_code == 0, result.output
    assert re.search(rf"For example:\s+skh2edl {name}\b", result.output)


def test_the_page_about_the_commands_is_what_they_say_themselves():
    path = ROOT / "docs" / "write_command_line.py"
    specification = importlib.util.spec_from_file_location("write_command_line", path)
    writer = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(writer)
    found = writer.PAGE.read_text(encoding="utf-8")
    assert found == writer.page(), "run python docs/write_command_line.py"
    for name in COMMANDS:
        assert f"\n## skh2edl {name}\n" in found


def test_no_arguments_show_the_help(run):
    # Click changed this exit code from 0 to 2; the help is what matters.
    assert "Usage: " in run().output


def test_an_unknown_command_is_a_usage_error(run):
    result = run("dmo")
    assert result.exit_code == 2
    assert "No such command 'dmo'" in result.output


def test_shells_can_be_taught_to_complete(run):
    assert "--install-completion" in run("--help").output


# How commands end ------------------------------------------------------------------------------


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


def test_an_error_of_the_system_names_the_file_and_no_number(run):
    error = PermissionError(13, "Permission denied", "model.safetensors")
    result = run(of=failing_app(error))
    assert result.stderr.startswith("Error: Permission denied: 'model.safetensors'.\n")


def test_an_interruption_is_exit_code_130_without_a_traceback(run):
    result = run(of=failing_app(KeyboardInterrupt("3 of 9 are done.")))
    assert result.exit_code == 130
    assert result.stderr == "Interrupted. 3 of 9 are done.\n"


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


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_a_real_interruption_ends_the_real_command_with_130():
    code = "from skh2edl.cli.app import app, plain_errors\n" + (
        "import time\n"
        "@app.command()\n"
        "@plain_errors\n"
        "def wait() -> None:\n"
        "    print('ready', flush=True)\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "app(['wait'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "Interrupted.\n"


# Releases of typer differ in the rest of the sentence; the examples of `_refusal` have it whole.
@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "a", "b", "--target-accuracy", "95"),
        ("serve", "a", "--port", "99999"),
        ("fit", "a", "--max-epochs", "ten"),
    ],
)
def test_a_refused_value_is_repeated_beside_its_flag(arguments):
    *_, flag, value = arguments
    result = invoke(*arguments)
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert f"Invalid value for '{flag}'" in message
    assert value in message.partition(flag)[2]
