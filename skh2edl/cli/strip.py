"""A strip of pictures in the terminal, and the same one in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

_WIDTH = 24  # characters of a picture: three fit beside each other in a narrow terminal
# From dark to light, for terminals without colours.
_SHADES, _ASCII_SHADES = "█▓▒░ ", "@%+. "


class Frame(NamedTuple):
    """One picture of a strip, and what is said about it.

    Attributes
    ----------
    pixels : ndarray of uint8 of shape (size, size, 3)
        The picture.
    heading, title : str
        Above the picture, and the prediction.
    lines : tuple of str
        Below the prediction.
    profile : ndarray of shape (n_levels + 1,)
        Belief in one node of each level that is in none of the next, from the top.
    """

    pixels: Pixels
    heading: str
    title: str
    lines: tuple[str, ...]
    profile: npt.NDArray[np.float64]


def terminal_strip(frames: Sequence[Frame], console: Console) -> Table:
    """Lay pictures out side by side, in as few rows as fit.

    Parameters
    ----------
    frames : sequence of Frame
        The pictures.
    console : Console
        Where they will be printed.
    """
    fitting = max(1, (console.width + 2) // (_WIDTH + 2))
    # Full rows only: six pictures go in rows of six, three, two or one.
    n_columns = next(n for n in range(fitting, 0, -1) if len(frames) % n == 0)
    strip = Table.grid(padding=(0, 2, 0, 0))
    cells = []
    for frame in frames:
        cell = Table.grid()
        cell.add_column(width=_WIDTH)
        cell.add_row(Text(frame.heading, "dim"))
        cell.add_row(draw_picture(frame.pixels, console))
        cell.add_row(Text(frame.title, "bold green"))
        for line in (*frame.lines, ""):
            cell.add_row(Text(line))
        cells.append(cell)
    for start in range(0, len(cells), n_columns):
        strip.add_row(*cells[start : start + n_columns])
    return strip


def draw_picture(pixels: Pixels, console: Console) -> Text:
    """Draw a picture with characters, in colours where the console has them.

    Parameters
    ----------
    pixels : ndarray of uint8 of shape (size, size, 3)
        The picture.
    console : Console
        Where it will be printed.

    Returns
    -------
    rich.text.Text
        12 lines of 24 characters.
    """
    import numpy as np

    if console.color_system is None:
        shades = np.array(list(_ASCII_SHADES if console.options.ascii_only else _SHADES))
        grey = _shrink(pixels, _WIDTH // 2).mean(axis=2)
        # From the darkest to the lightest pixel of this picture.
        light = (grey - grey.min()) / max(float(np.ptp(grey)), 1.0)
        places = (light * (len(shades) - 1)).round().astype(int)
        return Text("\n".join("".join(row) for row in shades[places]))
    # A character is twice as high as wide, and its upper half takes a colour of its own.
    rows = _shrink(pixels, _WIDTH).tolist()
    text = Text()
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        text.append("\n" if text else "")
        for above, below in zip(upper, lower, strict=True):
            text.append("▀", Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below)))
    return text


def _shrink(pixels: Pixels, height: int) -> Pixels:
    import numpy as np
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((_WIDTH, height), Image.Resampling.BOX))


def write_strip(path: Path, frames: Sequence[Frame], levels: Sequence[str]) -> None:
    """Draw the pictures into a file, each with a bar of how far down its belief agrees.

    Parameters
    ----------
    path : path
        The file.
    frames : sequence of Frame
        The pictures.
    levels : sequence of str
        Names of the levels of their profiles, from the top.
    """
    import numpy as np

    from ..displays._style import pyplot

    plt = pyplot()
    figure, axes = plt.subplots(
        3,
        len(frames),
        figsize=(2.1 * len(frames), 4.2),
        height_ratios=[12, 1, 5],
        squeeze=False,
        layout="constrained",
    )
    # From dark (nothing is known) to light (a leaf), as in DepthProfileDisplay.
    shades = plt.get_cmap("cividis")(np.linspace(0, 1, len(levels)))
    for (picture, bar, below), frame in zip(axes.T, frames, strict=True):
        picture.imshow(frame.pixels)
        picture.set_title(frame.heading, fontsize=9)
        bar.set_title(frame.title, fontsize=10, weight="bold")
        starts = np.cumsum(frame.profile) - frame.profile
        for level, shade, start, part in zip(levels, shades, starts, frame.profile, strict=True):
            bar.barh(0, part, left=start, color=shade, label=level)
        bar.set(xlim=(0, 1))
        below.text(0.5, 1, "\n".join(frame.lines), ha="center", va="top", fontsize=9)
        for ax in (picture, bar, below):
            ax.axis("off")
    figure.legend(
        *axes[1, 0].get_legend_handles_labels(),
        title="belief agrees on",
        loc="outside lower center",
        ncols=len(levels),
        frameon=False,
    )
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
