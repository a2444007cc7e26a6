"""make_insects: what it draws, what a blur hides first, and that a seed fixes all of it."""

from itertools import pairwise

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from skh2edl.datasets import make_insects
from skh2edl.datasets.insects import DETAIL, LEVELS

CLEAN = {"blur": 0.0, "noise": 0.0, "occlusion": 0.0}


@pytest.fixture(scope="module")
def insects():
    return make_insects(660, random_state=0)


def test_the_taxonomy_is_ragged_with_sixty_leaves_or_more(insects):
    tree = insects.taxonomy
    assert tree.level_names == LEVELS == ("order", "genus", "species")
    assert tree.n_leaves >= 60
    assert {len(tree.path(leaf)) for leaf in tree.leaves} == {2, 3}
    assert tree.path("red-ringed moth") == ("moth", "ringed moth", "red-ringed moth")


def test_images_are_coloured_squares_of_the_asked_size(insects):
    assert insects.images.shape == (660, 48, 48, 3)
    assert insects.images.dtype == np.uint8
    assert make_insects(5, image_size=20, random_state=0).images.shape == (5, 20, 20, 3)


def test_leaves_come_in_equal_numbers_unless_a_long_tail_is_asked_for(insects):
    assert set(np.unique(insects.labels, return_counts=True)[1].tolist()) == {10}
    counts = np.unique(
        make_insects(20_000, image_size=16, imbalance=50, random_state=0).labels,
        return_counts=True,
    )[1]
    # Of a geometric series from 1 to 1/50 over 66 leaves, the first is this large.
    first = 1 / np.sum(50 ** -np.linspace(0, 1, 66))
    assert counts.max() / 20_000 == pytest.approx(first, rel=0.1)
    assert counts.max() > 25 * counts.min()


def test_a_seed_draws_the_same_insects_at_any_blur(insects):
    again = make_insects(660, random_state=0)
    blurred = make_insects(660, random_state=0, blur=5.0)
    assert (again.images == insects.images).all()
    assert (blurred.labels == insects.labels).all()
    assert (blurred.split == insects.split).all()
    assert (blurred.info["covered"] == insects.info["covered"]).all()
    assert (make_insects(660, random_state=1).labels != insects.labels).any()


def test_the_number_of_threads_does_not_change_a_pixel():
    drawn = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            drawn.append(make_insects(60, image_size=64, random_state=4).images)
    assert (drawn[0] == drawn[1]).all()


@pytest.mark.slow
def test_a_blur_hides_the_species_first_then_the_genus_then_the_order():
    # The mean image of a leaf averages pose and colours out; its differences are what tells apart.
    def contrasts(blur):
        data = make_insects(6600, **{**CLEAN, "blur": blur}, image_size=32, random_state=0)
        paths = [data.taxonomy.path(leaf) for leaf in data.taxonomy.leaves]
        grey = data.images.mean(axis=3)
        mean = {p: grey[data.labels == p[-1]].mean(axis=0) for p in paths}
        shared = lambda p, q: sum(a == b for a, b in zip(p, q, strict=False))  # noqa: E731
        found = [[], [], []]
        for i, p in enumerate(paths):
            for q in paths[:i]:
                found[shared(p, q)].append(np.sqrt(np.mean((mean[p] - mean[q]) ** 2)))
        return np.array([np.mean(each) for each in found])

    kept = contrasts(2.0) / contrasts(0.0)
    assert kept[0] > kept[1] > kept[2]


def test_the_visible_depth_falls_with_blur_and_follows_its_rule():
    steps = [make_insects(300, blur=b, occlusion=0, random_state=0) for b in range(0, 12, 2)]
    means = [step.info["visible"].mean() for step in steps]
    assert all(more >= less for more, less in pairwise(means))
    assert means[-1] == 0
    sharp = steps[0]
    depth = [len(sharp.taxonomy.path(label)) for label in sharp.labels]
    assert sharp.info["visible"].tolist() == depth
    # exp(-(pi s / w)^2 / 2) of a contrast w wide is left after a blur of s; insects fill at most
    # the image, so a genus whose contrast is below a tenth there is seen in none.
    left = np.exp(-0.5 * (np.pi * 6 / (DETAIL["genus"] * 24)) ** 2)
    assert left < 0.1
    assert steps[3].info["visible"].max() == 1


def test_an_insect_behind_the_grass_is_not_visible():
    data = make_insects(300, blur=0, occlusion=1.0, random_state=0)
    hidden = data.info["covered"] >= 0.75
    assert hidden.any()
    assert (data.info["visible"][hidden] == 0).all()
    assert (make_insects(50, occlusion=0, random_state=0).info["covered"] == 0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_samples": 0}, "n_samples must be an integer of at least 1, got 0"),
        ({"image_size": 8}, "image_size must be an integer of at least 16, got 8"),
        ({"imbalance": 0.5}, "imbalance must be a finite number of at least 1, got 0.5"),
        ({"occlusion": 2}, "occlusion must be .* at most 1.0, got 2"),
        ({"blur": -1}, "blur must be .* got -1"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_insects(**{"n_samples": 10, "random_state": 0, **wrong})
