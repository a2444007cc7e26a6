"""Files that several processes want, and text that other programs read."""

import csv
import io
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl.utils.files import csv_line, is_formula, lock, printable
from skh2edl.utils.hashing import unit_hash

HOLD = """
import sys
from skh2edl.utils.files import lock
file = open(sys.argv[1], "r+b")
print(lock(file), flush=True)
sys.stdin.read()
"""


def test_a_lock_of_a_process_that_dies_is_free_again(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == "True\n"
        with path.open("r+b") as file:
            assert not lock(file)
            holder.kill()
            holder.wait()
            assert lock(file)
            assert path.read_bytes() == b"content"


cells = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.integers(), st.none())


@given(st.lists(cells, min_size=2, max_size=6))
def test_a_line_is_read_back_and_holds_no_formula(values):
    (read,) = csv.reader(io.StringIO(csv_line(values), newline=""))
    for cell, value in zip(read, values, strict=True):
        text = "" if value is None else str(value)
        assert cell in (text, f"'{text}")
        if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
            float(cell)


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_what_a_spreadsheet_would_compute_is_text(text):
    assert is_formula(text)
    (read,) = csv.reader(io.StringIO(csv_line([text]), newline=""))
    assert read == [f"'{text}"]


@pytest.mark.parametrize("value", ["-0.5", "+1e-3", "-2", -2, 0.5, None, "robin", "a=b", "'=1"])
def test_numbers_and_ordinary_names_stay_as_they_are(value):
    assert not is_formula(value)


def test_a_name_that_is_not_utf_8_is_shown_and_hashed():
    name = b"caf\xe9.png".decode("utf-8", "surrogateescape")
    assert printable(name) == r"caf\udce9.png"
    assert printable("café") == "café"
    assert 0 <= unit_hash([name], purpose="split")[0] < 1
