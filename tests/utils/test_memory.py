"""Freed memory: kept by commands on Linux with glibc, and nowhere else."""

import warnings
from types import SimpleNamespace

import pytest

from skh2edl import cli
from skh2edl.utils import memory


@pytest.fixture
def asked(monkeypatch):
    """The calls of a C library that has mallopt."""
    calls = []
    library = SimpleNamespace(mallopt=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: library)
    return calls


def test_both_thresholds_of_glibc_are_set(asked, monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "linux")
    memory.keep_freed_memory()
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
    assert dict(asked) == {-3: 2**30, -1: 2**30}


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_are_left_alone(asked, monkeypatch, platform):
    monkeypatch.setattr(memory.sys, "platform", platform)
    memory.keep_freed_memory()
    assert not asked


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    assert memory.keep_freed_memory() is None


@pytest.mark.parametrize(("command", "keeps"), [("predict", 1), ("fit", 1), ("serve", 0)])
def test_commands_keep_it_but_for_the_server(monkeypatch, command, keeps):
    calls = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: calls.append(1))
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # the command sets its own
    monkeypatch.setattr("sys.argv", ["skh2edl", command, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert len(calls) == keeps
