"""Draw invented insects: order by body, genus by kind of marks, species by count or colour."""

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from PIL import Image, ImageDraw

from ..taxonomy import Taxonomy
from ..utils.threads import one_thread_for_numpy
from ._drawing import blur_kernels, check_integers, check_range, deal, generator, random_split
from ._record import LabelledImages

# Order -> kind of marks -> species, by their marks on one wing: how many, or of which colour.
INSECTS: dict[str, dict[str, tuple[int, ...] | tuple[str, ...]]] = {
    "beetle": {
        "spotted": (2, 3, 4, 5),
        "banded": (2, 3, 4),
        "striped": (1, 2, 3),
        "ringed": ("red", "blue", "white"),
        "plain": (),
    },
    "butterfly": {
        "spotted": (2, 3, 4, 5),
        "banded": (2, 3, 4),
        "striped": (2, 3, 4),
        "ringed": ("red", "blue", "white", "yellow"),
        "plain": (),
    },
    "moth": {
        "spotted": (2, 3, 4),
        "banded": (2, 3, 4),
        "striped": (2, 3),
        "ringed": ("red", "blue", "white"),
        "plain": (),
    },
    "dragonfly": {"spotted": (1, 2, 3), "banded": (1, 2, 3), "plain": ()},
    "shield bug": {
        "spotted": (2, 3, 4),
        "striped": (1, 2, 3),
        "ringed": ("red", "blue", "white"),
        "plain": (),
    },
    "bee": {"spotted": (2, 3, 4), "banded": (2, 3, 4, 5), "plain": ()},
}
LEVELS = ("order", "genus", "species")
# Width of what tells the nodes of each level apart, relative to half the insect's length.
DETAIL = {"order": 0.54, "genus": 0.32, "species": 0.13}
# Blur over that width at which a tenth of the contrast is left: exp(-(pi x)^2 / 2) = 0.1.
_LOST_BLUR = np.sqrt(2 * np.log(10)) / np.pi
# Hidden fraction of the insect from which on a level cannot be seen.
_LOST_COVER = {"order": 0.75, "genus": 0.5, "species": 0.25}

# A species is named by its number of marks.
_WORDS = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_WORDS += ["eleven", "twelve"]
# Layers of a drawing; 0 is what is not the insect.
_WING, _MARK, _ACCENT, _BODY = range(1, 5)
_CHUNK = 512  # images composed together
_GRID = 6  # random colours along each side of a background

# Colours, as red, green and blue up to 255: of wings, of the background, of marks and glass.
_GROUNDS = [(232, 138, 44), (238, 202, 78), (205, 70, 52), (126, 184, 92), (116, 176, 224)]
_GROUNDS += [(240, 226, 192), (228, 150, 170), (206, 164, 112), (174, 154, 214)]
_BACKGROUNDS = [(72, 104, 52), (48, 84, 56), (134, 118, 90), (112, 114, 116), (104, 80, 58)]
_BACKGROUNDS += [(96, 118, 128), (112, 110, 56)]
_ACCENTS = {"red": (226, 40, 40), "blue": (40, 90, 230), "white": (250, 250, 250)}
_ACCENTS |= {"yellow": (250, 220, 40), "glassy": (214, 226, 232)}
# Places of spots as on a die, across and along the wing.
_DICE = {
    1: [(0.5, 0.5)],
    2: [(0.3, 0.25), (0.7, 0.75)],
    3: [(0.2, 0.2), (0.5, 0.5), (0.8, 0.8)],
    4: [(0.25, 0.22), (0.75, 0.22), (0.25, 0.78), (0.75, 0.78)],
    5: [(0.2, 0.2), (0.8, 0.2), (0.5, 0.5), (0.2, 0.8), (0.8, 0.8)],
}


def make_insects(
    n_samples: int = 2000,
    *,
    image_size: int = 48,
    imbalance: float = 1.0,
    blur: float | tuple[float, float] = (0.0, 3.0),
    occlusion: float | tuple[float, float] = (0.0, 0.15),
    noise: float | tuple[float, float] = (0.0, 0.03),
    random_state: int | np.random.Generator | np.random.RandomState | None = None,
) -> LabelledImages:
    """Draw invented insects whose species, genus and order vanish one after the other in a blur.

    The taxonomy is order > genus > species: "beetle", "spotted beetle", "four-spotted beetle". The
    outline of the body gives the order, kind and place of the marks the genus, their number or
    colour the species. There are 66 leaves; plain insects have no marks to count, so their genus
    is a leaf. Each image has its own pose, scale, colours, light and background, a blade of grass
    in front, and blur.

    The same `random_state` draws the same insects, whatever the other distortions are: calls with
    rising `blur` show them going out of focus.

    Parameters
    ----------
    n_samples : int, default=2000
        Number of images.
    image_size : int, default=48
        Height and width in pixels, at least 16.
    imbalance : float, default=1.0
        How much more frequent the most frequent leaf is than the rarest, with a geometric series
        between them; 1 draws all leaves equally often.
    blur : float or pair of float, default=(0.0, 3.0)
        Standard deviation of the Gaussian blur in pixels. For a pair, here and below, every image
        draws its own value from this range; of blur, small values more often than large ones.
    occlusion : float or pair of float, default=(0.0, 0.15)
        Width of the blade of grass, as a fraction of the image's.
    noise : float or pair of float, default=(0.0, 0.03)
        Standard deviation of the noise on each pixel, where black is 0 and white is 1.
    random_state : int, Generator, RandomState or None, default=None
        Determines the images, the labels and the split. None takes a fresh seed. Global
        generators are not used.

    Returns
    -------
    LabelledImages
        `images` of uint8 and shape (n_samples, image_size, image_size, 3); 70 % are in "train",
        10 % in "val" and 20 % in "test". `info` has, per image, "blur", "occlusion" and "noise",
        "covered" (fraction of the insect behind the grass) and "visible": the depth to which the
        label can be seen, 3 for the species, 2 for the genus, 1 for the order, 0 for nothing.

    Notes
    -----
    A level is visible while the blur leaves a tenth of the contrast of what tells its nodes apart,
    which is 0.13 (species), 0.32 (genus) and 0.54 (order) of half the insect's length wide, and
    while no more than a quarter, a half or three quarters of the insect are covered.

    Examples
    --------
    >>> from skh2edl.datasets import make_insects
    >>> insects = make_insects(300, random_state=0)
    >>> insects
    LabelledImages('insects': 300 images (210 train, 30 val, 60 test), 66 leaves)
    >>> insects.taxonomy.path("four-spotted beetle")
    ('beetle', 'spotted beetle', 'four-spotted beetle')
    >>> [int(make_insects(300, blur=b, random_state=0).info["visible"].max()) for b in (0, 4, 9)]
    [3, 2, 0]
    """
    check_integers(n_samples=(n_samples, 1), image_size=(image_size, 16))
    ranges = {
        "blur": check_range("blur", blur),
        "occlusion": check_range("occlusion", occlusion, 1.0),
        "noise": check_range("noise", noise),
    }
    if not 1 <= imbalance < np.inf:
        raise ValueError(f"imbalance must be a finite number of at least 1, got {imbalance!r}.")
    rng = generator(random_state)
    paths = _paths()
    kind = _draw_kinds(n_samples, len(paths), imbalance, rng)
    amounts = {key: rng.random(n_samples) for key in ranges}
    amounts["blur"] **= 2
    for key, (low, high) in ranges.items():
        amounts[key] = low + (high - low) * amounts[key]
    drawn = list(paths.values())
    scenes = _draw_scenes(kind, drawn, rng)
    split = random_split(n_samples, rng)

    images = np.empty((n_samples, image_size, image_size, 3), dtype=np.uint8)
    covered = np.empty(n_samples)
    with one_thread_for_numpy():  # several round in another way
        for start in range(0, n_samples, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            drawing = {key: values[chunk] for key, values in {**scenes, **amounts}.items()}
            insects = [drawn[i] for i in kind[chunk]]
            images[chunk], covered[chunk] = _compose(insects, drawing, image_size, rng)

    names = np.array([path[-1] for path in paths])
    depth = np.array([len(path) for path in paths])
    return LabelledImages(
        name="insects",
        images=images,
        labels=names[kind],
        taxonomy=Taxonomy.from_paths(list(paths), level_names=LEVELS),
        split=split,
        ids=np.array([f"insect-{i:06d}" for i in range(n_samples)]),
        licence="drawn by skh2edl",
        info={
            **amounts,
            "covered": covered,
            "visible": np.minimum(
                depth[kind],
                _visible(amounts["blur"], scenes["scale"] * image_size / 2, covered),
            ),
        },
    )


def _paths():
    """Return path -> (order, kind of marks, count or colour) of all leaves."""
    paths: dict[tuple[str, ...], tuple[str, str, int | str | None]] = {}
    for order, genera in INSECTS.items():
        for marks, species in genera.items():
            genus = f"{marks} {order}"
            if not species:
                paths[order, genus] = (order, marks, None)
            for which in species:
                # A band crosses both wings; spots and stripes are counted on all of them.
                wings = 1 if marks == "banded" else 4 if order == "dragonfly" else 2
                word = which if isinstance(which, str) else _WORDS[wings * which]
                paths[order, genus, f"{word}-{genus}"] = (order, marks, which)
    return paths


def _draw_kinds(n, n_kinds, imbalance, rng):
    """Return (n,) indices of leaves, the first of a random order the most frequent."""
    if imbalance == 1:
        return deal(np.arange(n_kinds), n, rng)
    weight = imbalance ** -np.linspace(0, 1, n_kinds)
    return rng.permutation(n_kinds)[rng.choice(n_kinds, size=n, p=weight / weight.sum())]


def _draw_scenes(kind, drawn, rng):
    """Return the pose, colours, light, background and blade of grass of each image."""
    n = len(kind)
    accents = np.array([_ACCENTS.get(which, _ACCENTS["glassy"]) for _, _, which in drawn])
    ground = np.array(_GROUNDS)[rng.integers(len(_GROUNDS), size=n)] + rng.normal(0, 12, (n, 3))
    mark = np.array((46, 34, 30)) + rng.uniform(-18, 18, (n, 1))
    accent = accents[kind] + rng.normal(0, 8, (n, 3))
    body = np.array((58, 48, 44)) + rng.uniform(-22, 22, (n, 1))
    back = np.array(_BACKGROUNDS)[rng.integers(len(_BACKGROUNDS), size=n)]
    return {
        "angle": rng.uniform(-0.6, 0.6, n),
        "scale": rng.uniform(0.84, 1.0, n),
        "slim": rng.uniform(0.85, 1.05, n),
        "shift": rng.uniform(-0.06, 0.06, (n, 2)),
        "colours": np.stack([ground, mark, accent, body], axis=1).clip(0, 255) / 255,
        "ground": (back[:, None, None] + rng.normal(0, 16, (n, _GRID, _GRID, 1))) / 255
        + rng.normal(0, 0.02, (n, _GRID, _GRID, 3)),
        "light": rng.uniform(0.8, 1.12, n),
        "sun": rng.normal(0, 0.12, (n, 2)),
        "blade": np.stack([rng.uniform(0, np.pi, n), rng.uniform(-0.6, 0.6, n)], axis=1),
        "grass": np.array((96, 150, 60)) / 255 + rng.uniform(-0.1, 0.1, (n, 1)),
    }


def _visible(blur, half_length, covered):
    """Return to which depth the labels can be seen; a level needs those above it."""
    seen = [
        (blur < _LOST_BLUR * DETAIL[level] * half_length) & (covered < _LOST_COVER[level])
        for level in LEVELS
    ]
    return np.logical_and.accumulate(seen).sum(axis=0)


@lru_cache(maxsize=256)  # more than the leaves, of which every image is one
def _draw_upright(order, marks, which, size):
    """Return the coverage of each layer by an insect, as an image of four bands."""
    pen, pattern = _Pen(2 * size), _Pen(2 * size)
    for box in _OUTLINES[order](pen):
        _PATTERNS[marks](pattern, box, which)
    layer, over = pen.array(), pattern.array()
    half = np.where((layer == _WING) & (over > 0), over, layer)
    layer = np.concatenate([half[:, ::-1], half], axis=1)
    bands = [Image.fromarray(np.uint8(255) * (layer == i)) for i in (1, 2, 3, 4)]
    # CMYK has four bands that interpolate alone; RGBA multiplies the first three.
    return Image.merge("CMYK", [band.reduce(2) for band in bands])


class _Pen:
    """Draw in coordinates from (0, -1) to (1, 1), with y pointing to the tail."""

    def __init__(self, size):
        self._half, self._image = size / 2, Image.new("L", (size // 2, size))
        self._draw = ImageDraw.Draw(self._image)

    def array(self):
        return np.asarray(self._image)

    def polygon(self, layer, points, rounds=3):
        """Fill a polygon, its corners cut `rounds` times."""
        points = np.asarray(points, dtype=float)
        for _ in range(rounds):
            after = np.roll(points, -1, axis=0)
            cut = [0.75 * points + 0.25 * after, 0.25 * points + 0.75 * after]
            points = np.stack(cut, axis=1).reshape(-1, 2)
        self._draw.polygon([*map(tuple, self._pixels(points))], fill=layer)

    def ellipse(self, layer, x, y, across, along, turn=0.0):
        t = np.linspace(0, 2 * np.pi, 48, endpoint=False)
        u, v = across * np.cos(t), along * np.sin(t)
        turned = [x + u * np.cos(turn) - v * np.sin(turn), y + u * np.sin(turn) + v * np.cos(turn)]
        self.polygon(layer, np.stack(turned, axis=1), rounds=0)

    def line(self, *points, width=0.05):
        width = max(1, round(width * self._half))
        self._draw.line(
            [*map(tuple, self._pixels(np.array(points)))], fill=_BODY, width=width, joint="curve"
        )

    def _pixels(self, points):
        return (points * self._half + (0, self._half)).tolist()


# Each outline draws half an insect and returns the boxes (x0, y0, x1, y1, lengthwise) of its wings.


def _legs(pen, x, ys, reach=0.3):
    for y, slant in zip(ys, (-0.18, 0.0, 0.2), strict=True):
        pen.line((x * 0.5, y), (x + 0.6 * reach, y + slant), (x + reach, y + 2 * slant))


def _beetle(pen):
    _legs(pen, 0.52, (-0.35, 0.05, 0.45))
    pen.line((0.05, -0.75), (0.2, -0.95), (0.36, -0.96), width=0.04)
    pen.ellipse(_BODY, 0, -0.7, 0.22, 0.17)
    pen.ellipse(_BODY, 0, -0.48, 0.42, 0.2)
    pen.ellipse(_WING, 0, 0.2, 0.6, 0.7)
    pen.line((0, -0.5), (0, 0.9), width=0.03)
    return [(0.07, -0.4, 0.53, 0.8, True)]


def _butterfly(pen):
    hind = [(0.03, -0.05), (0.6, 0.0), (0.92, 0.3), (0.75, 0.92), (0.32, 0.8), (0.03, 0.4)]
    fore = [(0.03, -0.3), (0.4, -0.78), (1.1, -1.05), (1.02, -0.3), (0.62, 0.14), (0.03, 0.1)]
    pen.polygon(_WING, hind)
    pen.polygon(_WING, fore)
    pen.line((0.02, -0.42), (0.14, -0.75), (0.24, -0.86), width=0.04)
    pen.ellipse(_BODY, 0, 0.0, 0.08, 0.5)
    return [(0.12, -0.72, 0.88, 0.72, True)]


def _moth(pen):
    pen.line((0.05, -0.72), (0.22, -0.84), (0.44, -0.84), width=0.07)
    pen.polygon(
        _WING, [(-0.3, -0.72), (0.3, -0.72), (0.78, 0.3), (1.05, 0.86), (0.2, 0.8), (0, 0.7)]
    )
    pen.ellipse(_BODY, 0, -0.66, 0.15, 0.18)
    pen.line((0, -0.5), (0, 0.6), width=0.03)
    return [(0.05, -0.4, 0.72, 0.78, True)]


def _dragonfly(pen):
    pen.ellipse(_WING, 0.52, -0.42, 0.46, 0.15, -0.14)
    pen.ellipse(_WING, 0.52, -0.04, 0.45, 0.17, 0.16)
    pen.ellipse(_BODY, 0, 0.4, 0.07, 0.58)
    pen.ellipse(_BODY, 0, -0.28, 0.14, 0.28)
    pen.ellipse(_BODY, 0, -0.64, 0.17, 0.12)
    return [(0.14, -0.62, 0.95, -0.24, False), (0.14, -0.2, 0.95, 0.16, False)]


def _shield_bug(pen):
    _legs(pen, 0.5, (-0.3, 0.1, 0.4), 0.36)
    pen.line((0.08, -0.8), (0.3, -0.98), width=0.04)
    pen.polygon(_BODY, [(-0.2, -0.62), (-0.14, -0.92), (0.14, -0.92), (0.2, -0.62)])
    corners = [(-0.3, -0.72), (0.3, -0.72), (0.86, -0.42), (0.6, 0.2), (0.26, 0.95), (-0.26, 0.95)]
    pen.polygon(_WING, corners, rounds=2)
    return [(0.05, -0.55, 0.58, 0.72, True)]


def _bee(pen):
    pen.ellipse(_ACCENT, 0.56, -0.26, 0.46, 0.15, 0.3)
    pen.ellipse(_ACCENT, 0.46, 0.0, 0.34, 0.11, 0.6)
    pen.line((0.05, -0.8), (0.2, -0.96), (0.3, -0.9), width=0.04)
    pen.ellipse(_WING, 0, 0.34, 0.42, 0.56)
    pen.ellipse(_BODY, 0, -0.36, 0.3, 0.27)
    pen.ellipse(_BODY, 0, -0.7, 0.22, 0.15)
    return [(0.03, -0.12, 0.36, 0.84, True)]


_OUTLINES = {
    "beetle": _beetle,
    "butterfly": _butterfly,
    "moth": _moth,
    "dragonfly": _dragonfly,
    "shield bug": _shield_bug,
    "bee": _bee,
}


# Marks of one genus cover the same area, whatever their number: only their detail tells it.


def _place(box, across, along):
    """Return the point at fractions of a wing, across it and from its front or base to its tip."""
    x0, y0, x1, y1, lengthwise = box
    u, v = (across, along) if lengthwise else (along, across)
    return x0 + u * (x1 - x0), y0 + v * (y1 - y0)


def _spotted(pen, box, count):
    x0, y0, x1, y1, lengthwise = box
    radius = np.sqrt(0.13 * (x1 - x0) * (y1 - y0) / np.pi / count)
    dice = _DICE[count] if lengthwise else [(0.5, (i + 0.5) / count) for i in range(count)]
    for across, along in dice:
        pen.ellipse(_MARK, *_place(box, across, 0.85 * along), radius, radius)


def _bars(pen, box, count, *, first=0.0, across=False):
    """Draw bars across a wing, from a fraction `first` of it on, or along it."""
    for i in range(count):
        low, high = (first + (1 - first) * (i + at) / count for at in (0.33, 0.67))
        corners = [(-1, low), (2, low), (2, high), (-1, high)]
        pen.polygon(_MARK, [_place(box, *c[:: 1 if across else -1]) for c in corners], rounds=0)


def _ringed(pen, box, colour):
    x0, y0, x1, y1, _ = box
    radius = 0.45 * min(x1 - x0, y1 - y0, 0.6)
    centre = _place(box, 0.5, 0.5)
    pen.ellipse(_MARK, *centre, radius, radius)
    pen.ellipse(_ACCENT, *centre, 0.09, 0.09)


_PATTERNS: dict[str, Callable[..., None]] = {
    "spotted": _spotted,
    "banded": partial(_bars, first=0.15, across=True),
    "striped": _bars,
    "ringed": _ringed,
    "plain": lambda *_: None,
}


def _compose(insects, scene, size, rng):
    """Return (n, size, size, 3) images, and the fraction of each insect behind the grass."""
    n = len(insects)
    layers = np.empty((n, size, size, 4), dtype=np.float32)
    # Drawn at twice the size, so that turning keeps the edges sharp.
    for i, (insect, turn) in enumerate(zip(insects, _affine(scene, 2 * size, size), strict=True)):
        layers[i] = _draw_upright(*insect, 2 * size).transform(
            (size, size), Image.Transform.AFFINE, turn, Image.Resampling.BILINEAR
        )
    layers /= 255
    insect = layers.sum(axis=3)

    axis = (np.arange(size, dtype=np.float32) + 0.5) / size * 2 - 1
    grid = np.linspace(-1, 1, _GRID)
    smooth = np.exp(-0.5 * ((axis[:, None] - grid) * _GRID / 2) ** 2).astype(np.float32)
    smooth /= smooth.sum(axis=1, keepdims=True)
    picture = np.einsum(
        "ia,jb,nabc->nijc", smooth, smooth, scene["ground"].astype(np.float32), optimize=True
    )
    step = max(1, round(0.04 * size))
    shadow = np.pad(insect, ((0, 0), (step, 0), (step, 0)))[:, :size, :size]
    picture *= (1 - 0.35 * shadow)[..., None]
    picture *= (1 - insect)[..., None]
    picture += (layers.reshape(n, -1, 4) @ scene["colours"].astype(np.float32)).reshape(
        picture.shape
    )

    turn, offset = scene["blade"].T.astype(np.float32)[..., None, None]
    across = np.abs(np.cos(turn) * axis + np.sin(turn) * axis[:, None] - offset)
    # Soft over one pixel, like the edges of the insect.
    edge = scene["occlusion"][:, None, None] - across
    grass = np.clip(edge * size / 2 + 0.5, 0, 1).astype(np.float32)
    grass *= (scene["occlusion"] > 0)[:, None, None]
    covered = (insect * grass).sum(axis=(1, 2)) / insect.sum(axis=(1, 2))
    picture += grass[..., None] * (scene["grass"].astype(np.float32)[:, None, None] - picture)

    sun = np.einsum("nk,kij->nij", scene["sun"], np.stack(np.meshgrid(axis, axis)))
    picture *= (scene["light"][:, None, None] * (1 + sun)).astype(np.float32)[..., None]
    kernel = blur_kernels(scene["blur"], size)
    picture = (kernel @ picture.reshape(n, size, -1)).reshape(picture.shape)
    picture = kernel[:, None] @ picture
    picture += scene["noise"].astype(np.float32)[:, None, None, None] * rng.standard_normal(
        picture.shape, dtype=np.float32
    )
    return np.rint(255 * picture.clip(0, 1)).astype(np.uint8), covered


def _affine(scene, master_size, size):
    """Return affine maps from image to master pixels."""
    cos, sin = np.cos(scene["angle"]), np.sin(scene["angle"])
    zoom = master_size / size / scene["scale"]
    a, b = zoom / scene["slim"] * cos, zoom / scene["slim"] * sin
    d, e = -zoom * sin, zoom * cos
    x, y = size * (0.5 + scene["shift"].T)
    return np.stack(
        [a, b, master_size / 2 - a * x - b * y, d, e, master_size / 2 - d * x - e * y], axis=1
    ).tolist()
