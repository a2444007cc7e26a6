"""Pictures in the terminal: shades, colours, and how many fit beside each other."""

import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from skh2edl.cli.strip import Frame, draw_picture, terminal_strip, write_strip

PIXELS = np.full((32, 32, 3), 250, dtype=np.uint8)
PIXELS[:16, :16] = (10, 20, 30)
PROFILE = np.array([0.5, 0.5])
FRAMES = [Frame(PIXELS, f"step {i}", "moth", ("order", "U 0.5"), PROFILE) for i in range(6)]


def test_without_colours_a_picture_has_dark_characters_where_it_is_dark():
    lines = draw_picture(PIXELS, Console(file=io.StringIO())).plain.splitlines()
    assert len(lines) == 12
    assert {len(line) for line in lines} == {24}
    assert lines[0] == "█" * 12 + " " * 12
    assert set("".join(lines[6:])) == {" "}


def test_on_a_plain_terminal_a_picture_is_ascii():
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert draw_picture(PIXELS, console).plain.isascii()


def test_with_colours_each_character_shows_two_pixels():
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    picture = draw_picture(PIXELS, console)
    assert {len(line) for line in picture.plain.splitlines()} == {24}
    style = picture.spans[0].style
    assert tuple(style.color.triplet) == tuple(style.bgcolor.triplet) == (10, 20, 30)


@pytest.mark.parametrize(("width", "n_rows"), [(160, 1), (110, 2), (80, 2), (60, 3), (24, 6)])
def test_pictures_stand_in_as_few_full_rows_as_fit(width, n_rows):
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_strip(FRAMES, console))
    lines = console.file.getvalue().splitlines()
    assert sum("step" in line for line in lines) == n_rows
    assert max(map(len, lines)) <= width


def test_the_strip_is_written_as_a_picture_wider_than_high(tmp_path):
    write_strip(tmp_path / "strip.png", FRAMES, ["order", "genus"])
    with Image.open(tmp_path / "strip.png") as picture:
        assert picture.width > 2 * picture.height
