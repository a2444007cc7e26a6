"""Images that look the same are found, whatever the file is; others are not."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance

from skh2edl.datasets import make_insects
from skh2edl.images import image_source
from skh2edl.images.near_duplicates import SAME_LOOK, look_vectors, nearest_look


def looks(images):
    return look_vectors(image_source([np.asarray(image) for image in images]))


def saved_anew(image):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=60)
    return Image.open(io.BytesIO(buffer.getvalue()))


def shape_on_white(rng, side=160):
    image = Image.new("RGB", (side, side), "white")
    radius = int(rng.integers(side // 10, side // 3))
    x, y = rng.integers(radius, side - radius, 2).tolist()
    colour = tuple(rng.integers(0, 180, 3).tolist())
    if rng.random() < 0.5:
        ImageDraw.Draw(image).ellipse((x - radius, y - radius, x + radius, y + radius), colour)
    else:
        corners = [(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)]
        ImageDraw.Draw(image).polygon(corners, colour)
    return image


@pytest.fixture(scope="module")
def insects():
    insects = make_insects(200, image_size=96, blur=0.0, random_state=0)
    return [Image.fromarray(pixels) for pixels in insects.images]


@pytest.fixture(scope="module")
def shapes():
    rng = np.random.default_rng(0)
    return [shape_on_white(rng) for _ in range(100)]


@pytest.mark.parametrize("pictures", ["insects", "shapes"])
@pytest.mark.parametrize(
    "change",
    [
        saved_anew,
        lambda image: image.resize((150, 150)),
        lambda image: ImageEnhance.Brightness(image).enhance(0.7),
        lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    ],
)
def test_an_image_saved_anew_scaled_or_brightened_looks_the_same(pictures, change, request):
    pictures = request.getfixturevalue(pictures)
    nearest, cosine = nearest_look(looks(map(change, pictures)), looks(pictures))
    assert (nearest == np.arange(len(pictures))).all()
    assert (cosine >= SAME_LOOK).mean() > 0.9


@pytest.mark.parametrize("pictures", ["insects", "shapes"])
def test_pictures_that_were_drawn_separately_look_different(pictures, request):
    _, cosine = nearest_look(looks(request.getfixturevalue(pictures)))
    assert cosine.max() < SAME_LOOK


def test_one_shape_in_two_colours_or_sizes_looks_different():
    def disc(radius, colour):
        image = Image.new("RGB", (160, 160), "white")
        box = (80 - radius, 80 - radius, 80 + radius, 80 + radius)
        ImageDraw.Draw(image).ellipse(box, colour)
        return image

    discs = [disc(40, "darkred"), disc(40, "darkblue"), disc(45, "darkred"), disc(40, "darkgreen")]
    assert nearest_look(looks(discs))[1].max() < SAME_LOOK


def test_a_blank_image_looks_like_nothing_even_if_it_is_noisy_or_unevenly_lit(shapes):
    rng = np.random.default_rng(0)
    noise = rng.integers(245, 256, (160, 160, 3)).astype(np.uint8)
    light = np.repeat(np.linspace(230, 250, 160)[None, :, None], 160, axis=0).repeat(3, axis=2)
    blanks = [np.full((160, 160, 3), 255, np.uint8), noise, light.astype(np.uint8)]
    vectors = looks([*blanks, *blanks, shapes[0]])
    assert not vectors[:6].any()
    assert vectors[6].any()
    assert nearest_look(vectors)[1].max() < SAME_LOOK
    assert nearest_look(vectors[6:], vectors[:6])[1].max() < SAME_LOOK


def test_a_file_that_cannot_be_read_looks_like_nothing_and_is_counted(tmp_path):
    (tmp_path / "a.jpg").write_text("no image")
    done = []
    vectors = look_vectors(image_source([str(tmp_path / "a.jpg")] * 2), on_rows=done.append)
    assert not vectors.any()
    assert nearest_look(vectors)[1].max() < SAME_LOOK
    assert done == [1, 1]


def test_cosines_are_those_of_numpy_and_an_image_is_not_its_own_neighbour(monkeypatch):
    monkeypatch.setattr("skh2edl.images.near_duplicates._BLOCK", 9)  # several blocks
    vectors = np.random.default_rng(0).normal(size=(7, 1536)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    among = vectors.astype(float) @ vectors.T
    np.fill_diagonal(among, -1)
    nearest, cosine = nearest_look(vectors)
    assert nearest.tolist() == among.argmax(axis=1).tolist()
    np.testing.assert_allclose(cosine, among.max(axis=1), atol=1e-6)
    assert nearest_look(vectors[:1])[1].item() == -1
    assert nearest_look(vectors, vectors[:0])[1].max() == -1
