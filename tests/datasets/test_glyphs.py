"""make_glyphs: what it draws, where the uncertainty lies, and that a seed fixes all of it."""

import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from skh2edl.datasets import make_glyphs
from skh2edl.datasets.glyphs import ALPHABETS, LOOKALIKES

CLEAN = {"blur": 0.0, "noise": 0.0, "occlusion": 0.0}


@pytest.fixture(scope="module")
def glyphs():
    return make_glyphs(1200, random_state=0)


def nearest_mean_accuracy(dataset, key):
    """Score a classifier that knows the mean picture of every character, on the test split."""
    train, test = dataset.subset("train", "val"), dataset.subset("test")
    classes = np.unique(train.labels)
    means = np.stack([train.images[train.labels == c].mean(axis=0).ravel() for c in classes])
    pixels = test.images.reshape(len(test), -1).astype(float)
    distance = (means**2).sum(axis=1) - 2 * pixels @ means.T
    predicted = classes[distance.argmin(axis=1)]
    tree = dataset.taxonomy
    pairs = zip(predicted, test.labels, strict=True)
    return np.mean([key(tree.path(p)) == key(tree.path(y)) for p, y in pairs])


def test_images_are_grey_squares_of_the_asked_size(glyphs):
    assert glyphs.images.shape == (1200, 32, 32)
    assert glyphs.images.dtype == np.uint8
    assert make_glyphs(5, image_size=20, random_state=0).images.shape == (5, 20, 20)


def test_every_image_shows_dark_ink_on_light_paper():
    images = make_glyphs(400, **CLEAN, random_state=1).images.astype(int)
    spread = images.max(axis=(1, 2)) - images.min(axis=(1, 2))
    assert spread.min() > 60
    assert (np.median(images, axis=(1, 2)) > 180).all()


def test_the_taxonomy_is_script_kind_character_with_unicode_names(glyphs):
    tree = glyphs.taxonomy
    assert tree.level_names == ("script", "kind", "character")
    # 26 + 26 Latin, 24 + 25 Greek (with the final sigma), 32 + 32 Cyrillic, 10 digits, 22 signs.
    assert tree.n_leaves == 52 + 49 + 64 + 32
    assert tree.path("CYRILLIC SMALL LETTER YA")[:2] == ("Cyrillic", "lowercase")
    assert tree.path("DIGIT SEVEN")[:2] == ("Common", "digit")
    assert tree.path("AMPERSAND")[:2] == ("Common", "sign")


def test_a_label_is_the_name_of_the_character_drawn(glyphs):
    expected = [unicodedata.name(c) for c in glyphs.info["character"]]
    assert glyphs.labels.tolist() == expected


def test_the_unicode_name_says_the_script_and_case_it_is_filed_under():
    words = {"uppercase": "CAPITAL", "lowercase": "SMALL", "letter": "LETTER", "digit": "DIGIT"}
    for script, kinds in ALPHABETS.items():
        for kind, characters in kinds.items():
            names = [unicodedata.name(c) for c in characters]
            assert len(set(names)) == len(characters)
            if script != "Common":
                assert all(name.startswith(script.upper()) for name in names)
            if kind != "sign":
                assert all(words[kind] in name for name in names)


def test_characters_come_in_equal_numbers():
    counts = np.unique(make_glyphs(3 * 197 + 1, random_state=0).labels, return_counts=True)[1]
    assert len(counts) == 197
    assert set(counts.tolist()) == {3, 4}


def test_a_shape_is_shared_by_different_scripts_only():
    script_of = {c: s for s, kinds in ALPHABETS.items() for cs in kinds.values() for c in cs}
    for shape in LOOKALIKES:
        assert len({script_of[c] for c in shape}) == len(shape) >= 2


def test_lookalikes_are_more_alike_than_any_other_pair():
    data = make_glyphs(4000, lookalike_fraction=1.0, **CLEAN, random_state=0)
    characters = np.unique(data.info["character"])
    drawn = data.info["character"] == characters[:, None]
    alike = np.corrcoef([data.images[rows].mean(axis=0).ravel() for rows in drawn])
    for shape in LOOKALIKES:
        # Zero is narrower than O: a look-alike to the eye, not to the pixel.
        inside = np.isin(characters, list(shape.replace("0", "")))
        outside = ~np.isin(characters, list(shape))
        assert alike[np.ix_(inside, inside)].min() > 0.95 > alike[np.ix_(inside, outside)].max()


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_lookalike_fraction_is_met(fraction):
    alike = make_glyphs(200, lookalike_fraction=fraction, random_state=0).info["lookalikes"] > 0
    assert alike.mean() == pytest.approx(fraction)


def test_lookalikes_count_only_the_scripts_that_are_drawn():
    two = make_glyphs(600, scripts=("Latin", "Greek"), random_state=0)
    four = make_glyphs(600, random_state=0)
    assert two.info["lookalikes"][two.info["character"] == "O"][0] == 1
    assert four.info["lookalikes"][four.info["character"] == "O"][0] == 3
    assert four.info["lookalikes"][four.info["character"] == "Я"][0] == 0


def test_lookalikes_put_the_uncertainty_at_the_root():
    # One shape in m scripts leaves a script's name to chance: right once in m, whatever the means.
    alike = make_glyphs(3000, lookalike_fraction=1.0, **CLEAN, random_state=0)
    chance = 1 / (1 + alike.subset("test").info["lookalikes"])
    error = np.sqrt((chance * (1 - chance)).sum()) / len(chance)
    most = chance.mean() + 3 * error
    unlike = make_glyphs(3000, lookalike_fraction=0.0, **CLEAN, random_state=0)
    script_accuracy = [
        nearest_mean_accuracy(data, key=lambda path: path[0]) for data in (alike, unlike)
    ]
    assert script_accuracy[0] < most < script_accuracy[1]


def test_blur_costs_accuracy_at_the_leaves():
    def leaf_accuracy(blur):
        data = make_glyphs(
            4000, blur=blur, noise=0.05, occlusion=0, lookalike_fraction=0, random_state=0
        )
        return nearest_mean_accuracy(data, key=lambda path: path)

    assert leaf_accuracy(6.0) < leaf_accuracy(0.0) - 0.2


@pytest.mark.parametrize("key", ["blur", "noise", "occlusion", "ghost"])
def test_a_range_gives_every_image_its_own_amount(key):
    values = make_glyphs(500, **{key: (0.2, 0.6)}, random_state=0).info[key]
    assert 0.2 <= values.min() < 0.25
    assert 0.55 < values.max() <= 0.6
    fixed = make_glyphs(5, **{key: 0.5}, random_state=0).info[key]
    assert (fixed == 0.5).all()


def test_more_blur_leaves_less_detail():
    def detail(blur):
        images = make_glyphs(300, **{**CLEAN, "blur": blur}, random_state=3).images.astype(float)
        return np.abs(np.diff(images, axis=2)).mean()

    details = [detail(blur) for blur in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert all(more > less for more, less in pairwise(details))


def test_noise_has_the_standard_deviation_asked_for():
    quiet = make_glyphs(200, **CLEAN, random_state=0).images.astype(float)
    loud = make_glyphs(200, **{**CLEAN, "noise": 0.05}, random_state=0).images.astype(float)
    middle = (quiet > 70) & (quiet < 185)  # far from black and white, where noise is cut off
    assert np.std((loud - quiet)[middle]) == pytest.approx(0.05 * 255, rel=0.05)


def test_occlusion_covers_the_fraction_asked_for():
    bare = make_glyphs(400, **CLEAN, random_state=0).images.astype(int)
    covered = make_glyphs(400, **{**CLEAN, "occlusion": 0.25}, random_state=0).images.astype(int)
    # A patch as grey as the paper hides some of its own pixels, so a few images count short.
    assert np.median((bare != covered).mean(axis=(1, 2))) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("level", "same"),
    [("script", (False, False)), ("kind", (True, False)), ("character", (True, True))],
)
def test_a_ghost_leaves_the_path_at_its_level(level, same):
    data = make_glyphs(300, ghost=(0.1, 1.0), ghost_level=level, random_state=0)
    tree = data.taxonomy
    for label, ghost in zip(data.labels, data.info["ghost_character"], strict=True):
        first, second = tree.path(label), tree.path(unicodedata.name(ghost))
        assert (first[0] == second[0], first[:2] == second[:2]) == same
        assert first != second


def test_a_ghost_adds_ink_in_proportion():
    def image(ghost):
        return make_glyphs(300, **CLEAN, ghost=ghost, random_state=0).images.astype(float)

    alone = image(1e-9)
    paper = alone == alone.max(axis=(1, 2), keepdims=True)  # where the first character has no ink
    quarter, half, full = ((alone - image(ghost))[paper] for ghost in (0.25, 0.5, 1.0))
    assert full.max() > 150
    # Rounded to whole levels, each of the two images is off by a half and the difference by one.
    assert np.abs(2 * half - full).max() <= 3
    assert np.abs(4 * quarter - full).max() <= 5
    assert make_glyphs(3, random_state=0).info["ghost_character"].tolist() == ["", "", ""]


def test_views_of_a_subject_have_the_same_character_font_and_split_but_not_pixels():
    data = make_glyphs(61, n_views=3, random_state=0)
    assert len(np.unique(data.groups)) == 21
    for key in (data.labels, data.info["font"], data.split):
        pairs = set(zip(data.groups.tolist(), key.tolist(), strict=True))
        assert len(pairs) == 21
    assert (data.images[0] != data.images[1]).any()


def test_one_seed_gives_the_same_bits_and_another_does_not(glyphs):
    again = make_glyphs(1200, random_state=0)
    other = make_glyphs(1200, random_state=1)
    for key in ("images", "labels", "split", "ids", "groups"):
        assert (getattr(glyphs, key) == getattr(again, key)).all()
    assert (glyphs.images != other.images).mean() > 0.5
    assert (glyphs.labels != other.labels).any()


def test_global_generators_are_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    make_glyphs(20, random_state=None)
    make_glyphs(20, random_state=np.random.RandomState(0))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_generators_are_accepted_and_advance():
    rng, legacy = np.random.default_rng(0), np.random.RandomState(0)
    for source in (rng, legacy):
        assert (
            make_glyphs(20, random_state=source).images
            != make_glyphs(20, random_state=source).images
        ).any()


def test_other_scripts_are_drawn_with_fonts_that_have_them():
    data = make_glyphs(400, scripts=("Latin", "Armenian", "Georgian"), random_state=0)
    assert data.taxonomy.n_leaves == 52 + 2 * 38 + 33
    assert all(font.startswith("DejaVu") for font in data.info["font"])
    assert any(font.startswith("STIX") for font in make_glyphs(100, random_state=0).info["font"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_samples": 0}, "n_samples must be an integer of at least 1, got 0"),
        ({"image_size": 4}, "image_size must be an integer of at least 8, got 4"),
        ({"n_views": 1.5}, "n_views must be an integer of at least 1, got 1.5"),
        ({"scripts": ("Latin", "Runic")}, "scripts must be two or more of .*Runic"),
        ({"scripts": "Latin"}, "scripts must be two or more of"),
        ({"blur": -1}, r"blur must be a number or a \(low, high\) pair of at least 0, got -1"),
        ({"noise": (0.3, 0.1)}, r"noise must be .* got \(0.3, 0.1\)"),
        ({"occlusion": 1.5}, "occlusion must be .* at most 1.0, got 1.5"),
        ({"blur": (1, 2, 3)}, r"blur must be .* got \(1, 2, 3\)"),
        ({"lookalike_fraction": 2}, "lookalike_fraction must be None or between 0 and 1, got 2"),
        (
            {"lookalike_fraction": 0.5, "scripts": ("Armenian", "Georgian")},
            "share none. Add a script",
        ),
        ({"ghost_level": "family"}, "ghost_level must be one of .* got 'family'"),
        (
            {"ghost": 0.5, "ghost_level": "kind", "scripts": ("Latin", "Georgian")},
            "needs a second kind in every script, and Georgian has one",
        ),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_glyphs(**{"n_samples": 100, "random_state": 0, **wrong})


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"skh2edl\[plots\]"):
        make_glyphs(3, random_state=0)
