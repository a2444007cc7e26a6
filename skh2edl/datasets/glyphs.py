"""Generate images of letters, digits and signs of several scripts."""

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ..taxonomy import Taxonomy
from ..utils.optional import import_optional
from ._drawing import blur_kernels, check_integers, check_range, deal, generator, random_split
from ._record import LabelledImages


def _span(first: str, last: str, without: str = "") -> str:
    letters = map(chr, range(ord(first), ord(last) + 1))
    return "".join(letter for letter in letters if letter not in without)


# Script -> kind -> characters. "Common" is Unicode's own name for what all scripts share.
ALPHABETS = {
    "Latin": {"uppercase": _span("A", "Z"), "lowercase": _span("a", "z")},
    # U+03A2 is unassigned.
    "Greek": {"uppercase": _span("Α", "Ω", without="\u03a2"), "lowercase": _span("α", "ω")},
    "Cyrillic": {"uppercase": _span("А", "Я"), "lowercase": _span("а", "я")},
    "Common": {"digit": _span("0", "9"), "sign": "!?&@#%$€£§+=<>*/()[]{}"},
    "Armenian": {"uppercase": _span("Ա", "Ֆ"), "lowercase": _span("ա", "ֆ")},
    "Georgian": {"letter": _span("ა", "ჰ")},
}

# Characters of different scripts with the same, or nearly the same, shape.
LOOKALIKES = (
    *("AΑА", "BΒВ", "EΕЕ", "HΗН", "KΚК", "MΜМ", "OΟО0", "PΡР", "TΤТ", "XΧХ"),
    *("CС", "IΙ", "NΝ", "YΥ", "ZΖ", "ΓГ", "ΠП", "ΦФ"),
    *("aа", "cс", "eе", "oοо", "pр", "xх", "yу", "3З"),
)

_ALL_SCRIPTS = frozenset(ALPHABETS)
_STIX_SCRIPTS = frozenset({"Latin", "Greek", "Cyrillic", "Common"})
# Font file inside matplotlib -> scripts it draws.
FONTS = {
    **{
        f"DejaVu{family}{style}": _ALL_SCRIPTS
        for family, styles in {
            "Sans": ("", "-Bold", "-Oblique", "-BoldOblique"),
            "SansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
            "Serif": ("", "-Bold", "-Italic", "-BoldItalic"),
        }.items()
        for style in styles
    },
    **{f"STIXGeneral{style}": _STIX_SCRIPTS for style in ("", "Bol", "Italic", "BolIta")},
}

_LEVELS = ("script", "kind", "character")
_MASTER = 4  # characters are drawn this many times as large as the images
_CHUNK = 512  # images distorted together


def make_glyphs(
    n_samples: int = 2000,
    *,
    scripts: Sequence[str] = ("Latin", "Greek", "Cyrillic", "Common"),
    image_size: int = 32,
    lookalike_fraction: float | None = None,
    blur: float | tuple[float, float] = (0.0, 1.0),
    noise: float | tuple[float, float] = (0.0, 0.1),
    occlusion: float | tuple[float, float] = (0.0, 0.1),
    ghost: float | tuple[float, float] = 0.0,
    ghost_level: str = "character",
    n_views: int = 1,
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
) -> LabelledImages:
    """Draw characters of several scripts, with uncertainty at a chosen level of the tree.

    The taxonomy is script > kind > character: "Latin", "uppercase", "LATIN CAPITAL LETTER A".
    All characters are equally frequent. Each image has a random font (upright or slanted, light or
    bold), is slightly rotated, sheared, scaled and shifted, then blurred, partly covered and made
    noisy.

    Latin O, Greek Ο, Cyrillic О and zero look the same, so `lookalike_fraction` sets how many
    images are ambiguous at the root. `ghost` prints a second, fainter character over the first,
    and `ghost_level` is the first level on which the two differ: for two siblings, only the leaf
    is uncertain. `blur` hides the differences between siblings, but also those between scripts.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of images.
    scripts : sequence of str, default=("Latin", "Greek", "Cyrillic", "Common")
        Which of "Latin", "Greek", "Cyrillic", "Common" (digits and signs), "Armenian" and
        "Georgian" to draw, at least two.
    image_size : int, default=32
        Height and width in pixels, at least 8.
    lookalike_fraction : float, default=None
        Fraction of images whose character has the same shape in another of the `scripts`.
        None draws every character equally often.
    blur : float or pair of float, default=(0.0, 1.0)
        Standard deviation of the Gaussian blur in pixels. For a pair, here and below, every
        image draws its own value from this range.
    noise : float or pair of float, default=(0.0, 0.1)
        Standard deviation of the noise on each pixel, where black is 0 and white is 1.
    occlusion : float or pair of float, default=(0.0, 0.1)
        Fraction of the image under a grey rectangle.
    ghost : float or pair of float, default=0.0
        Ink of the second character relative to the first. At 1 both are equally strong.
    ghost_level : {"script", "kind", "character"}, default="character"
        "script" takes the second character from another script, "kind" from another kind of the
        same script, "character" from the siblings of the first.
    n_views : int, default=1
        Images of each subject, which is one character in one font, each with its own
        distortions. The subject is the group of the image; all its images are in one split.
    random_state : int, Generator, RandomState or None, default=None
        Determines the images, the labels and the split. None takes a fresh seed. Global
        generators are not used.

    Returns
    -------
    LabelledImages
        `images` of uint8 and shape (n_samples, image_size, image_size), dark on light; 70 % of
        the subjects are in "train", 10 % in "val" and 20 % in "test". `info` has, per image,
        "character", "font", "lookalikes" (how many other scripts draw this shape), "blur",
        "noise", "occlusion", "ghost" and "ghost_character" ("" where there is none).

    Examples
    --------
    >>> from skh2edl.datasets import make_glyphs
    >>> glyphs = make_glyphs(300, random_state=0)
    >>> glyphs
    LabelledImages('glyphs': 300 images (210 train, 30 val, 60 test), 197 leaves)
    >>> glyphs.taxonomy.path("GREEK SMALL LETTER OMEGA")
    ('Greek', 'lowercase', 'GREEK SMALL LETTER OMEGA')
    >>> hard = make_glyphs(300, lookalike_fraction=1.0, blur=0.0, random_state=0)
    >>> int(hard.info["lookalikes"].min())
    1
    """
    check_integers(n_samples=(n_samples, 1), image_size=(image_size, 8), n_views=(n_views, 1))
    ranges = {
        "blur": check_range("blur", blur),
        "noise": check_range("noise", noise),
        "occlusion": check_range("occlusion", occlusion, 1.0),
        "ghost": check_range("ghost", ghost, 1.0),
    }
    if ghost_level not in _LEVELS:
        raise ValueError(f"ghost_level must be one of {_LEVELS}, got {ghost_level!r}.")
    rng = generator(random_state)
    inventory = _Inventory(scripts)

    n_subjects = -(-n_samples // n_views)
    subject = np.arange(n_samples) // n_views
    subject_character = inventory.draw(n_subjects, lookalike_fraction, rng)
    subject_font = rng.integers(len(inventory.fonts), size=n_subjects)
    character, font = subject_character[subject], subject_font[subject]
    amounts = {key: rng.uniform(*limits, size=n_samples) for key, limits in ranges.items()}
    ghosted = amounts["ghost"] > 0
    second = inventory.draw_partners(character, ghost_level, rng) if ghosted.any() else character

    masters = _masters(inventory, image_size)
    images = np.empty((n_samples, image_size, image_size), dtype=np.uint8)
    for start in range(0, n_samples, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        images[chunk] = _distort(
            masters,
            (font[chunk], character[chunk], second[chunk]),
            {key: values[chunk] for key, values in amounts.items()},
            image_size,
            rng,
        )

    return LabelledImages(
        name="glyphs",
        images=images,
        labels=inventory.names[character],
        taxonomy=inventory.taxonomy,
        split=random_split(n_subjects, rng)[subject],
        ids=np.array([f"glyph-{i:06d}" for i in range(n_samples)]),
        groups=np.array([f"subject-{i:06d}" for i in subject]),
        licence="drawn with the DejaVu (Bitstream Vera licence) and STIX (SIL OFL) fonts",
        info={
            "character": inventory.characters[character],
            "font": inventory.fonts[font],
            "lookalikes": inventory.n_lookalikes[character],
            **amounts,
            "ghost_character": np.where(ghosted, inventory.characters[second], ""),
        },
    )


class _Inventory:
    """The characters of some scripts as parallel arrays, in the order of the taxonomy."""

    def __init__(self, scripts):
        unknown = [script for script in scripts if script not in ALPHABETS]
        if unknown or isinstance(scripts, str) or len(set(scripts)) < 2:
            raise ValueError(f"scripts must be two or more of {tuple(ALPHABETS)}, got {scripts!r}.")
        rows = [
            (script, kind, character)
            for script in dict.fromkeys(scripts)
            for kind, characters in ALPHABETS[script].items()
            for character in characters
        ]
        self.scripts, self.kinds, self.characters = (
            np.array(column) for column in zip(*rows, strict=True)
        )
        self.names = np.array([unicodedata.name(character) for character in self.characters])
        self.taxonomy = Taxonomy.from_paths(
            [(script, kind, unicodedata.name(character)) for script, kind, character in rows],
            level_names=_LEVELS,
        )
        # A font that lacks one of the scripts would reveal that it is not this one.
        self.fonts = np.array([name for name, has in FONTS.items() if has >= set(scripts)])
        present = set(self.characters.tolist())
        shared = {
            character: len(present.intersection(shape)) - 1
            for shape in LOOKALIKES
            for character in shape
        }
        self.n_lookalikes = np.array([shared.get(character, 0) for character in self.characters])

    def draw(self, n_subjects, lookalike_fraction, rng):
        """Return (n_subjects,) indices of characters, all equally often."""
        if lookalike_fraction is None:
            return deal(np.arange(len(self.characters)), n_subjects, rng)
        if not 0 <= lookalike_fraction <= 1:
            raise ValueError(
                f"lookalike_fraction must be None or between 0 and 1, got {lookalike_fraction!r}."
            )
        pools = [np.flatnonzero(self.n_lookalikes > 0), np.flatnonzero(self.n_lookalikes == 0)]
        n_alike = round(lookalike_fraction * n_subjects)
        if n_alike and not len(pools[0]):
            raise ValueError(
                f"lookalike_fraction={lookalike_fraction} needs shapes that two scripts share, "
                f"and {tuple(dict.fromkeys(self.scripts.tolist()))} share none. Add a script, "
                "or leave lookalike_fraction at None."
            )
        drawn = [deal(pools[0], n_alike, rng), deal(pools[1], n_subjects - n_alike, rng)]
        return rng.permutation(np.concatenate(drawn))

    def draw_partners(self, character, level, rng):
        """Return for each character another one, whose path differs from the given level on."""
        same_script = self.scripts[:, None] == self.scripts
        same_kind = same_script & (self.kinds[:, None] == self.kinds)
        allowed = {
            "script": ~same_script,
            "kind": same_script & ~same_kind,
            "character": same_kind & ~np.eye(len(self.names), dtype=bool),
        }[level]
        alone = ~allowed.any(axis=1)
        if alone[character].any():
            raise ValueError(
                f"ghost_level={level!r} needs a second kind in every script, and "
                f"{self.scripts[character[alone[character]][0]]} has one. Choose another level."
            )
        # The largest of uniform numbers is equally often that of each allowed partner.
        partners = np.empty_like(character)
        for start in range(0, len(character), _CHUNK):
            rows = allowed[character[start : start + _CHUNK]]
            partners[start : start + _CHUNK] = (rng.random(rows.shape) * rows).argmax(axis=1)
        return partners


def _masters(inventory, image_size):
    """Return a function that draws a character large, white on black, each when first used."""
    fonts = _load_fonts(inventory.fonts, round(0.74 * _MASTER * image_size))
    characters = inventory.characters.tolist()
    width = _MASTER * image_size

    @cache
    def draw(font, character):
        image = Image.new("L", (width, width))
        # One baseline and size for all, because o and O differ only in size.
        place = (0.5 * width, 0.76 * width)
        ImageDraw.Draw(image).text(
            place, characters[character], fill=255, font=fonts[font], anchor="ms"
        )
        # Twice the size of the images, which avoids jagged edges.
        return image.reduce(_MASTER // 2)

    return draw


def _load_fonts(names, size):
    folder = Path(import_optional("matplotlib", extra="plots").get_data_path(), "fonts", "ttf")
    try:
        return [ImageFont.truetype(str(folder / f"{name}.ttf"), size) for name in names]
    except OSError as error:
        raise FileNotFoundError(
            f"make_glyphs draws with the fonts inside matplotlib and cannot read one in {folder} "
            f"({error}). Install matplotlib from a wheel, or reinstall it."
        ) from None


def _distort(masters, chosen, amounts, size, rng):
    """Return (n, size, size) images of the chosen (font, character, second character)."""
    n = len(chosen[0])
    ink = np.zeros((n, size, size), dtype=np.float32)
    turns = _affine(n, 2 * size, size, rng)
    for i, (font, first, second) in enumerate(
        zip(*(each.tolist() for each in chosen), strict=True)
    ):
        ink[i] = _sample(masters(font, first), turns[i], size)
        if amounts["ghost"][i] > 0:
            faint = amounts["ghost"][i] * _sample(masters(font, second), turns[i], size)
            np.maximum(ink[i], faint, out=ink[i])
    ink /= 255

    kernel = blur_kernels(amounts["blur"], size)
    ink = kernel @ ink @ kernel.transpose(0, 2, 1)

    paper = rng.uniform(0.8, 1.0, size=(n, 1, 1))
    strength = rng.uniform(0.65, 0.8, size=(n, 1, 1))
    grey = paper - strength * ink
    grey = np.where(_patches(amounts["occlusion"], size, rng), rng.uniform(size=(n, 1, 1)), grey)
    grey += amounts["noise"][:, None, None] * rng.standard_normal(grey.shape)
    return np.rint(255 * grey.clip(0, 1)).astype(np.uint8)


def _sample(master, turn, size):
    # Positional: mypy knows no keyword form of the affine data.
    picture = master.transform(
        (size, size), Image.Transform.AFFINE, turn, Image.Resampling.BILINEAR
    )
    return np.asarray(picture, dtype=np.float32)


def _affine(n, master_size, size, rng):
    """Return (n, 6) affine maps from image to master pixels, with small random distortions."""
    angle = rng.uniform(-0.14, 0.14, size=n)
    shear = rng.uniform(-0.15, 0.15, size=n)
    scale = master_size / size / rng.uniform(0.92, 1.08, size=n)
    shift = rng.uniform(-0.06, 0.06, size=(n, 2)) * master_size
    a, b = scale * np.cos(angle), scale * (np.sin(angle) + shear * np.cos(angle))
    d, e = -scale * np.sin(angle), scale * (np.cos(angle) - shear * np.sin(angle))
    middle, centre = size / 2, master_size / 2
    c = centre + shift[:, 0] - (a + b) * middle
    f = centre + shift[:, 1] - (d + e) * middle
    return np.stack([a, b, c, d, e, f], axis=1).tolist()


def _patches(area, size, rng):
    """Return (n, size, size) masks of one rectangle each, with the given areas."""
    n = len(area)
    aspect = np.exp(rng.uniform(-0.7, 0.7, size=n))
    # Limit the sides to the image and keep the area.
    height = np.clip(np.sqrt(area * aspect), area, 1.0)
    width = np.divide(area, height, out=np.zeros(n), where=height > 0)
    top, left = rng.uniform(size=n) * (1 - height), rng.uniform(size=n) * (1 - width)
    centre = (np.arange(size) + 0.5) / size
    rows = (centre >= top[:, None]) & (centre < (top + height)[:, None])
    columns = (centre >= left[:, None]) & (centre < (left + width)[:, None])
    return rows[:, :, None] & columns[:, None, :]
