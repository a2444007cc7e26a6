"""``skh2edl serve``: what it needs, where it listens, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from serve_cases import write_model
from typer.testing import CliRunner

from skh2edl.cli.app import app as command

HALF_AN_UPLOAD = (
    b"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("serve") / "colours.safetensors")


def test_without_the_extra_the_command_says_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = CliRunner().invoke(command, ["serve", str(model)])
    assert result.exit_code == 1
    assert "pip install 'skh2edl[serve]'" in result.stderr


def test_a_port_that_is_taken_and_a_wrong_address_are_errors_at_once(model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(command, ["serve", str(model), "--port", port])
    assert result.exit_code == 1
    assert f"Nothing can listen at 127.0.0.1 port {port}" in result.stderr
    result = CliRunner().invoke(command, ["serve", str(model), "--host", "no such host"])
    assert result.exit_code == 2
    assert "is no address of this machine" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT for other processes")
def test_the_command_serves_until_it_is_interrupted(model):
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    arguments = ["serve", str(model), "--port", "0", "--max-files", "3"]
    code = "from skh2edl.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            line = process.stdout.readline()
            url = re.search(r"at (http://127\.0\.0\.1:\d+/)", line).group(1)
            with urllib.request.urlopen(f"{url}api/model", timeout=60) as response:
                assert b'"max_files":3' in response.read()
            port = int(url.rstrip("/").rpartition(":")[2])
            with (
                socket.create_connection(("127.0.0.1", port)),
                socket.create_connection(("127.0.0.1", port)) as slow,
            ):
                slow.sendall(HALF_AN_UPLOAD)
                # By the time of this response the server has read what came before.
                urllib.request.urlopen(f"{url}api/model", timeout=60).close()
                process.send_signal(signal.SIGINT)
                _, remarks = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert remarks == "Ctrl-C ends it.\n"
