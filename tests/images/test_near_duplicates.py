"""Images that look the same are found, whatever the file is; others are not."""

import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from skh2edl.datasets import make_insects
from skh2edl.images import image_source
from skh2edl.images.near_duplicates import MOST_BITS, look_hashes, nearest_look


def looks(images):
    return look_hashes(image_source([np.asarray(image) for image in images]))


def saved_anew(image):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=60)
    return Image.open(io.BytesIO(buffer.getvalue()))


@pytest.fixture(scope="module")
def pictures():
    insects = make_insects(200, image_size=96, blur=0.0, random_state=0)
    return [Image.fromarray(pixels) for pixels in insects.images]


@pytest.mark.parametrize(
    "change",
    [
        saved_anew,
        lambda image: image.resize((150, 150)),
        lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    ],
)
def test_an_image_saved_anew_scaled_or_darkened_looks_the_same(pictures, change):
    nearest, n_bits = nearest_look(looks(map(change, pictures)), looks(pictures))
    assert (nearest == np.arange(200)).all()
    assert (n_bits <= MOST_BITS).mean() > 0.95


def test_200_insects_all_look_different_though_of_66_species(pictures):
    _, n_bits = nearest_look(looks(pictures))
    assert n_bits.min() > MOST_BITS


def test_bits_are_counted_and_an_image_is_not_its_own_neighbour():
    hashes = np.array([[0b1011, 0], [0b1000, 1], [0b1011, 1]], dtype=np.uint64)
    nearest, n_bits = nearest_look(hashes)
    assert nearest.tolist() == [2, 2, 0]
    assert n_bits.tolist() == [1, 2, 1]
    assert nearest_look(hashes[:1])[1].item() > 512
    assert nearest_look(hashes, hashes[:0])[1].min() > 512


def test_a_file_that_cannot_be_read_has_an_empty_hash(tmp_path):
    (tmp_path / "a.jpg").write_text("no image")
    assert not look_hashes(image_source([str(tmp_path / "a.jpg")])).any()
