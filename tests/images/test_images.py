import io
import os
import pickle
import struct
import threading
import warnings
import zlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image, ImageOps

from skh2edl.images import BadImageError, image_source, make_loader, make_transform
from skh2edl.images.decoding import quiet

CONFIG = {
    "input_size": (3, 32, 32),
    "interpolation": "bicubic",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "crop_pct": 0.875,
    "crop_mode": "center",
}


def photo(width=60, height=40, seed=0):
    """A smooth picture, so that JPEG and rescaling change it little."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def files(tmp_path):
    paths = []
    for i in range(10):
        paths.append(tmp_path / f"{i}.jpg")
        photo(60 + i, 40, seed=i).save(paths[-1], quality=95)
    return paths


def batches(loader):
    return [(batch.images.clone(), batch.positions.tolist()) for batch in loader]


def pixels(source, position=0, **kwargs):
    return np.asarray(source.read(position, **kwargs))


# ------------------------------------------------------------------------------------ kinds of X


def test_all_kinds_of_paths_are_the_same_files(files):
    names = [str(path) for path in files]
    kinds = [files, names, tuple(names), np.array(names), np.array(files, dtype=object)]
    kinds += [pd.Series(names), pd.Series(names, dtype="category"), pd.Series(files)]
    prints = {image_source(kind).content_hash() for kind in kinds}
    assert len(prints) == 1
    assert np.array_equal(
        pixels(image_source(kinds[5]), 3), np.asarray(Image.open(files[3]).convert("RGB"))
    )


def test_a_path_that_is_not_text_survives(tmp_path):
    name = os.fsdecode(os.fsencode(str(tmp_path)) + b"/caf\xe9 \xf0\x9f\x8d\x8e.png")
    photo().save(name)
    assert pixels(image_source([name])).shape == (40, 60, 3)


def test_arrays_lists_and_pictures_give_the_same_pixels():
    array = np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3), dtype=np.uint8)
    pictures = [Image.fromarray(image) for image in array]
    for kind in (array, list(array), pictures, [pictures[0], array[1], *array[2:]]):
        source = image_source(kind)
        assert [np.array_equal(pixels(source, i), array[i]) for i in range(5)] == [True] * 5


def test_grey_arrays_repeat_their_channel():
    array = np.random.default_rng(0).integers(0, 256, (2, 32, 32), dtype=np.uint8)
    assert np.array_equal(pixels(image_source(array), 1), np.stack([array[1]] * 3, axis=-1))
    transform = make_transform({**CONFIG, "crop_pct": 1.0})
    (batch,) = make_loader(image_source(array), transform)
    assert np.array_equal(batch.images.numpy(), np.stack([array] * 3, axis=1))


@pytest.mark.parametrize(
    ("X", "found"),
    [
        (np.zeros((2, 4, 4, 3)), "array of float64: scale and cast"),
        (np.zeros((2, 4, 4, 5), dtype=np.uint8), r"shape \(2, 4, 4, 5\)"),
        (np.zeros((2, 0, 4), dtype=np.uint8), r"shape \(2, 0, 4\)"),
        (np.zeros((2, 3, 8, 8), dtype=np.uint8), r"colours first: give .*as_images\(X, 'NCHW'\)"),
        (np.zeros((2, 4), dtype=np.uint8), r"shape \(2, 4\).*goes into a list"),
        (np.zeros((9, 5)), r"array of float64 of shape \(9, 5\).*set backbone=None"),
        (np.array([["a.png"]]), r"shape \(1, 1\); give one column, X\[:, 0\].*brackets"),
        (pd.DataFrame({"path": ["a.png"]}), r"DataFrame.*X\['path'\].*without brackets"),
        (pd.DataFrame({"width": [0.1]}), "DataFrame.*set backbone=None"),
        (pa.table({"path": ["a.png"]}), r"Table .*X\['path'\]"),
        ("a.png", "Got str"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), "Got Tensor: say where .*as_images"),
        (None, "Got NoneType"),
        ({"a.png": 1}, "Got dict"),
        (["a.png", None], r"X\[1\] is missing \(None\); drop"),
        ([None, "a.png"], r"X\[0\] is missing"),
        (["a.png", float("nan")], r"X\[1\] is missing \(nan\); drop"),
        (pd.Series(["a.png", pd.NA], dtype="string"), r"X\[1\] is missing \(<NA>\)"),
        (["a.png", b"\xff\xd8"], r"mixed: X\[0\] is a path"),
        ([{"image": 1}], r"X\[0\] is a dict with the keys \['image'\]; give one column"),
        ([(photo(), 1)], r"X\[0\] is a tuple.*image_source\(dataset\)"),
        ([torch.zeros(3, 4, 4)], r"X\[0\] is a tensor.*leave out the transform"),
        ([np.zeros((4, 4, 3))], r"X\[0\] is an array of float64 of shape \(4, 4, 3\)"),
        ([np.zeros((4, 4, 2), dtype=np.uint8)], r"X\[0\] is an array of uint8 of shape"),
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(X, found):
    with pytest.raises(TypeError, match=rf"file paths .* uint8 array .* PIL images .*{found}"):
        image_source(X)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_single_photograph_is_not_taken_for_many_grey_ones(channels):
    photograph = np.random.default_rng(0).integers(0, 256, (40, 60, channels), dtype=np.uint8)
    with pytest.raises(TypeError, match=r"single image: put it in a list, \[X\]"):
        image_source(photograph)
    assert pixels(image_source([photograph])).shape == (40, 60, 3)
    # The other remedy: forty grey images of this width.
    assert len(image_source(photograph[..., None])) == 40


def test_arrays_with_one_and_four_channels_are_grey_and_transparent():
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (2, 32, 32, 1), dtype=np.uint8)
    rgba = rng.integers(0, 256, (2, 32, 32, 4), dtype=np.uint8)
    # Transparency is laid on white: alpha c + (1 - alpha) 255.
    alpha = rgba[..., 3:] / 255
    expected = {
        "grey": np.repeat(grey, 3, axis=3),
        "rgba": alpha * rgba[..., :3] + (1 - alpha) * 255,
    }
    transform = make_transform({**CONFIG, "crop_pct": 1.0})
    for name, array in (("grey", grey), ("rgba", rgba)):
        for X in (array, list(array)):
            source = image_source(X)
            assert np.abs(pixels(source, 1) - expected[name][1]).max() <= 1
            (batch,) = make_loader(source, transform)
            assert np.abs(batch.images.permute(0, 2, 3, 1).numpy() - expected[name]).max() <= 1


def test_no_images_are_a_source_too():
    for empty in ([], np.array([], dtype=object), np.zeros((0, 4, 4), dtype=np.uint8)):
        assert len(image_source(empty)) == 0


def test_a_subset_shares_data_and_keeps_the_index_of_the_whole(files):
    array = np.zeros((6, 8, 8), dtype=np.uint8)
    source = image_source(array)
    subset = source[np.array([5, 2, 2])][1:]
    assert len(subset) == 2
    assert subset.describe(0) == "X[2]"
    assert subset._data is array
    mask = np.arange(10) == 7
    assert image_source(files)[mask].describe(0) == f"{str(files[7])!r} (X[7])"


# ----------------------------------------------------------------------------------- fingerprint


def test_the_fingerprint_of_files_sees_every_change(files):
    before = image_source(files).content_hash()
    assert image_source(files).content_hash() == before
    assert image_source(files[::-1]).content_hash() != before
    facts = files[4].stat()
    os.utime(files[4], ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    touched = image_source(files).content_hash()
    assert touched != before
    files[4].unlink()
    assert image_source(files).content_hash() not in (before, touched)


def test_the_fingerprint_of_pixels_depends_on_the_rows_alone():
    array = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    source = image_source(array)
    assert source[[1, 3]].content_hash() == image_source(array[[1, 3]].copy()).content_hash()
    assert source[[1, 3]].content_hash() != source[[3, 1]].content_hash()
    reshaped = image_source(array.reshape(6, 4, 16, 3))
    assert reshaped.content_hash() != source.content_hash()
    pictures = [Image.fromarray(image) for image in array]
    before = image_source(pictures).content_hash()
    pictures[0].putpixel((0, 0), (1, 2, 3))
    assert image_source(pictures).content_hash() != before


def test_sources_survive_pickling(files):
    for X in (files, np.ones((3, 8, 8), dtype=np.uint8), [photo()] * 3):
        source = image_source(X)[[2, 0]]
        copy = pickle.loads(pickle.dumps(source))
        assert copy.content_hash() == source.content_hash()
        assert np.array_equal(pixels(copy), pixels(source))


# --------------------------------------------------------------------------------------- decoding


def saved(tmp_path, image, name, **options):
    image.save(tmp_path / name, **options)
    return image_source([tmp_path / name])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(60, 40), (600, 400)])
def test_exif_orientation_is_honoured_with_and_without_scaled_decoding(tmp_path, orientation, size):
    exif = Image.Exif()
    exif[0x0112] = orientation
    source = saved(tmp_path, photo(*size), "a.jpg", exif=exif, quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        expected = ImageOps.exif_transpose(image)
    assert np.array_equal(pixels(source), np.asarray(expected))
    small = source.read(0, min_side=50)
    assert (small.width > small.height) == (expected.width > expected.height)
    shrunk = np.asarray(expected.resize(small.size, Image.Resampling.BOX), dtype=int)
    assert np.abs(np.asarray(small) - shrunk).mean() < 2


def test_orientation_of_pictures_in_memory_is_honoured(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    saved(tmp_path, photo(60, 40), "a.jpg", exif=exif)
    with Image.open(tmp_path / "a.jpg") as picture:
        assert image_source([picture]).read(0).size == (40, 60)


@pytest.mark.parametrize("min_side", [1, 39, 50, 99, 100, 101, 199, 200, 201, 400, 5000])
def test_scaled_decoding_never_falls_below_the_wanted_side(tmp_path, min_side):
    source = saved(tmp_path, photo(613, 401), "a.jpg")
    image = source.read(0, min_side=min_side)
    assert min(image.size) >= min(min_side, 401)
    # Scaling by 8, 4 or 2 is used whenever both sides allow it.
    factor = max(f for f in (8, 4, 2, 1) if f <= max(1, 401 // min_side))
    assert image.size == (-(-613 // factor), -(-401 // factor))


def test_only_jpeg_is_scaled_while_decoding(tmp_path):
    assert saved(tmp_path, photo(600, 400), "a.png").read(0, min_side=32).size == (600, 400)


def test_pictures_in_memory_are_not_changed(tmp_path):
    saved(tmp_path, photo(600, 400), "a.jpg")
    with Image.open(tmp_path / "a.jpg") as picture:
        image_source([picture]).read(0, min_side=32)
        assert picture.size == (600, 400)


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tiff", "a.bmp", "a.gif", "a.ppm", "a.jp2"])
def test_formats(tmp_path, name):
    image = Image.new("RGB", (8, 6), (0, 128, 255))
    options = {"lossless": True} if name == "a.webp" else {}
    image = saved(tmp_path, image, name, **options).read(0)
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image, dtype=int) - (0, 128, 255)).max() <= 2


def one_pixel(image):
    return tuple(pixels(image_source([image]))[0, 0].tolist())


def test_transparency_is_laid_on_white():
    # alpha a over white: c * a / 255 + 255 - a
    assert one_pixel(Image.new("RGBA", (2, 2), (255, 0, 0, 255))) == (255, 0, 0)
    assert one_pixel(Image.new("RGBA", (2, 2), (10, 20, 30, 0))) == (255, 255, 255)
    assert one_pixel(Image.new("RGBA", (2, 2), (0, 100, 200, 51))) == (204, 224, 244)
    assert one_pixel(Image.new("LA", (2, 2), (0, 51))) == (204, 204, 204)
    premultiplied = Image.new("RGBA", (2, 2), (0, 100, 200, 51)).convert("RGBa")
    assert one_pixel(premultiplied) == (204, 224, 244)


def test_palettes_with_and_without_transparency(tmp_path):
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    assert tuple(pixels(saved(tmp_path, image, "a.png"))[0, 0]) == (200, 100, 50)
    source = saved(tmp_path, image, "b.png", transparency=1)
    assert tuple(pixels(source)[0, 0]) == (255, 255, 255)
    source = saved(tmp_path, image, "c.png", transparency=bytes([255, 51]))
    assert tuple(pixels(source)[0, 0]) == (244, 224, 214)


def test_a_transparent_colour_of_a_plain_picture(tmp_path):
    image = Image.new("RGB", (4, 4), (1, 2, 3))
    source = saved(tmp_path, image, "a.png", transparency=(1, 2, 3))
    assert tuple(pixels(source)[0, 0]) == (255, 255, 255)


def test_cmyk(tmp_path):
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert one_pixel(image) == (255, 0, 0)
    rgb = pixels(saved(tmp_path, image, "a.jpg", quality=100))[0, 0].astype(int)
    assert np.abs(rgb - (255, 0, 0)).max() <= 3


def test_black_and_white():
    assert one_pixel(Image.new("1", (2, 2), 1)) == (255, 255, 255)


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
def test_sixteen_bits_are_scaled_to_eight(tmp_path, name):
    values = np.array([[0, 128, 257, 32767, 32896, 65535]], dtype=np.uint16)
    source = saved(tmp_path, Image.fromarray(values), name)
    assert pixels(source)[0, :, 0].tolist() == [0, 0, 1, 127, 128, 255]


def test_wide_integers_count_as_sixteen_bits():
    image = Image.fromarray(np.array([[0, 257, 65535]], dtype=np.int32))
    assert image.mode == "I"
    assert pixels(image_source([image]))[0, :, 0].tolist() == [0, 1, 255]
    for value in (-1, 65536):
        bad = Image.fromarray(np.array([[value]], dtype=np.int32))
        with pytest.raises(BadImageError, match=f"span {value} to {value}, outside 16 bits"):
            image_source([bad]).read(0)


def test_floats_count_as_zero_to_one_or_to_255():
    for values, expected in (([0, 0.5, 1], [0, 128, 255]), ([0, 0.6, 255], [0, 1, 255])):
        image = Image.fromarray(np.array([values], dtype=np.float32))
        assert pixels(image_source([image]))[0, :, 0].tolist() == expected
    for value in (np.nan, -1, 256):
        bad = Image.fromarray(np.array([[value]], dtype=np.float32))
        with pytest.raises(BadImageError, match="outside 0 to 255"):
            image_source([bad]).read(0)


# ----------------------------------------------------------------------------------- bad images


def png_header(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))


def bad_file(tmp_path, kind):
    path = tmp_path / f"{kind}.jpg"
    buffer = io.BytesIO()
    photo(200, 100).save(buffer, "JPEG")
    content = {
        "empty": b"",
        "text": b"this is no picture",
        "truncated": buffer.getvalue()[:2000],
        "header": buffer.getvalue()[:20],
        "bomb": png_header(60_000, 60_000),
        "large": png_header(12_000, 12_000),
        "broken": png_header(20, 20),
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
    }
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind in content:
        path.write_bytes(content[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "there is no such file"),
        ("empty", "the file is empty"),
        ("text", "in none of the formats JPEG"),
        ("header", "in none of the formats JPEG|truncated"),
        ("truncated", "truncated"),
        ("broken", "truncated|broken"),
        ("bomb", r"decompression bomb.*MAX_IMAGE_PIXELS"),
        ("large", "declares 12000 x 12000 pixels, more than max_pixels=100000000"),
        ("postscript", "in none of the formats"),
        ("directory", "not a regular file"),
        ("pipe", "not a regular file"),
    ],
)
def test_a_bad_file_is_named_with_index_reason_and_way_out(tmp_path, files, kind, reason):
    path = bad_file(tmp_path, kind)
    source = image_source([*files[:2], path], max_pixels=100_000_000)
    with pytest.raises(
        BadImageError, match=rf"{kind}.jpg' \(X\[2\]\) .*({reason}).*skip"
    ) as caught:
        source.read(2)
    # The same from a loader, with and without workers.
    for n_workers in (0, 2):
        loader = make_loader(source, make_transform(CONFIG), n_workers=n_workers)
        with pytest.raises(BadImageError) as again:
            list(loader)
        assert str(again.value) == str(caught.value)


def test_a_null_byte_in_a_path_is_a_bad_image():
    source = image_source(["a\0b.jpg"])
    with pytest.raises(BadImageError, match=r"X\[0\].*null byte"):
        source.read(0)
    assert source.content_hash()


def test_a_large_but_allowed_image_gives_no_warning(tmp_path):
    # Pillow warns from half of its limit on; here the size is our own rule.
    path = bad_file(tmp_path, "large")
    with pytest.raises(BadImageError, match=r"truncated|broken"):
        image_source([path]).read(0)


def test_damaged_metadata_leaves_the_pixels_usable(tmp_path):
    photo().save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff\0\x01\x01\x12")
    assert image_source([tmp_path / "a.jpg"]).read(0).size == (60, 40)


def test_a_strip_that_resizing_would_blow_up_is_bad():
    strip = np.zeros((1, 1_000_000, 3), dtype=np.uint8)
    loader = make_loader(image_source([strip]), make_transform(CONFIG))
    with pytest.raises(BadImageError, match="1000000 x 1 pixels is too narrow"):
        list(loader)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_skipped_images_are_counted_and_named_once(tmp_path, files, n_workers):
    bad = [bad_file(tmp_path, kind) for kind in ("missing", "empty", "text", "truncated")]
    paths = [*bad, *files[:3], *bad[:3], files[3]]
    loader = make_loader(
        image_source(paths),
        make_transform(CONFIG),
        batch_size=4,
        on_bad_image="skip",
        n_workers=n_workers,
    )
    with pytest.warns(UserWarning, match="7 of 11 images could not be read") as caught:
        got = batches(loader)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text.count("(X[") == 5
    assert "(X[7])" in text
    assert "(X[8])" not in text
    # A batch without any good image is left out, the others hold the good ones.
    assert [positions for _, positions in got] == [[4, 5, 6], [10]]
    assert sorted(loader.bad) == [0, 1, 2, 3, 7, 8, 9]
    batches(loader)  # a second pass has nothing new to say: a warning would be an error


def test_a_file_replaced_between_epochs_is_noticed(files):
    loader = make_loader(image_source(files), make_transform(CONFIG))
    assert len(batches(loader)) == 1
    files[3].write_bytes(files[3].read_bytes()[:300])
    with pytest.raises(BadImageError, match=r"3\.jpg' \(X\[3\]\)"):
        batches(loader)


def test_the_policy_for_bad_images_is_checked():
    source = image_source([photo()])
    with pytest.raises(ValueError, match="'error' or 'skip', got 'ignore'"):
        make_loader(source, make_transform(CONFIG), on_bad_image="ignore")


def test_threads_that_decode_leave_the_warning_filters_as_they_were():
    before = list(warnings.filters)
    first_in, second_in, first_out = (threading.Event() for _ in range(3))

    def first():
        with quiet:
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with quiet:
            second_in.set()
            first_out.wait(10)

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before


# --------------------------------------------------------------------------- own augmentations


@pytest.mark.parametrize("as_array", [False, True])
def test_a_function_augments_and_the_crop_for_evaluation_follows(as_array):
    def flip(image):
        return np.asarray(ImageOps.mirror(image)) if as_array else ImageOps.mirror(image)

    transform = make_transform(CONFIG, flip)
    expected = make_transform(CONFIG)(ImageOps.mirror(photo()))
    assert np.array_equal(transform(photo()), expected)
    assert not np.array_equal(transform(photo()), make_transform(CONFIG)(photo()))
    assert transform.random


def test_a_function_that_returns_no_image_is_told_so():
    with pytest.raises(TypeError, match=r"must return a PIL image .* got Tensor\. Leave normali"):
        make_transform(CONFIG, lambda image: torch.zeros(3, 32, 32))(photo())


@pytest.mark.parametrize("mixing", ["mixup", "cutmix", {"mixup_alpha": 0.2}])
def test_mixed_images_are_refused_with_the_reason(mixing):
    with pytest.raises(ValueError, match=r"a mixed image has two labels and so two paths"):
        make_transform(CONFIG, mixing)
