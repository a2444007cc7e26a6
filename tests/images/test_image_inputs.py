"""Lazy inputs: data sets of torch, tensors, columns of tables, bytes, Hugging Face."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from sklearn.model_selection import train_test_split
from torch.utils.data import Dataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

from skh2edl.images import as_images, holds_images, image_source, make_loader, make_transform
from skh2edl.images.sources import ItemSource, PathSource

ARRAY = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), dtype=np.uint8)


def all_pixels(source):
    return np.stack([np.asarray(source.read(i)) for i in range(len(source))])


def as_bytes(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()


class Pictures(Dataset):
    """A data set as users write one; it counts what is read."""

    def __init__(self, make=Image.fromarray):
        self.make = make
        self.n_read = 0

    def __len__(self):
        return len(ARRAY)

    def __getitem__(self, index):
        self.n_read += 1
        return self.make(ARRAY[index]), index % 2


class LazyColumn(Sequence):
    """Stands for a column of Hugging Face's data sets: a sequence that decodes on demand."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class PolarsLike:
    """Stands for a Series of polars, of which `image_source` uses `shape` and `to_list`."""

    def __init__(self, values):
        self.values = values
        self.shape = (len(values),)

    def to_list(self):
        return self.values


@pytest.fixture
def folder(tmp_path):
    for index, image in enumerate(ARRAY):
        (tmp_path / "ab"[index % 2]).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "ab"[index % 2] / f"{index}.png")
    return tmp_path


def test_every_lazy_kind_gives_the_same_pixels(folder):
    contents = [as_bytes(image) for image in ARRAY]
    paths = [str(folder / "ab"[i % 2] / f"{i}.png") for i in range(6)]
    stored = [{"bytes": content, "path": None} for content in contents]
    kinds = {
        "data set": Pictures(),
        "of arrays": Pictures(np.asarray),
        "subset": Subset(Pictures(), range(6)),
        "bytes": contents,
        "pandas bytes": pd.Series(contents),
        "pyarrow paths": pa.array(paths),
        "pyarrow chunks": pa.chunked_array([paths[:2], paths[2:]]),
        "pyarrow bytes": pa.array(contents),
        "pyarrow images": pa.array(stored),
        "polars": PolarsLike(paths),
        "hugging face": LazyColumn([Image.fromarray(image) for image in ARRAY]),
        "hugging face, not decoded": LazyColumn(stored),
        "hugging face, files": LazyColumn([{"bytes": None, "path": path} for path in paths]),
    }
    for name, kind in kinds.items():
        assert np.array_equal(all_pixels(image_source(kind)), ARRAY), name


def test_polars_itself(folder):
    polars = pytest.importorskip("polars")
    contents = [as_bytes(image) for image in ARRAY]
    for values in (contents, [{"bytes": content, "path": None} for content in contents]):
        assert np.array_equal(all_pixels(image_source(polars.Series(values))), ARRAY)


def test_a_folder_of_torchvision_is_read_as_files(folder):
    dataset = ImageFolder(folder)
    source = image_source(dataset)
    assert isinstance(source, PathSource)
    order = [int(path.rsplit("/", 1)[-1][:-4]) for path, _ in dataset.samples]
    assert np.array_equal(all_pixels(source), ARRAY[order])
    part = image_source(Subset(dataset, [4, 1]))
    assert np.array_equal(all_pixels(part), ARRAY[order][[4, 1]])
    assert part.describe(0).endswith("(X[4])")


def test_a_transform_of_a_folder_is_applied(folder):
    flipped = ImageFolder(folder, transform=lambda image: image.transpose(0))
    source = image_source(flipped)
    assert isinstance(source, ItemSource)
    plain = all_pixels(image_source(ImageFolder(folder)))
    assert np.array_equal(all_pixels(source), plain[:, :, ::-1])


@pytest.mark.parametrize(
    "dataset",
    [Pictures(lambda image: ToTensor()(image)), TensorDataset(torch.zeros(2, 3, 8, 8))],
    ids=["transform", "tensors"],
)
def test_a_data_set_of_tensors_is_told_to_leave_its_transform_out(dataset):
    with pytest.raises(TypeError, match=r"first item of .* is a tensor.*leave out the transform"):
        image_source(dataset)


def test_splitting_a_wrapped_data_set_reads_nothing():
    dataset = Pictures()
    source = image_source(dataset)
    dataset.n_read = 0
    train, test, y_train, y_test = train_test_split(source, np.arange(6), random_state=0)
    assert dataset.n_read == 0
    assert np.array_equal(all_pixels(train), ARRAY[y_train])
    assert np.array_equal(all_pixels(test), ARRAY[y_test])


def test_a_data_set_is_read_by_worker_processes_as_in_this_one():
    transform = make_transform({"input_size": (3, 16, 16), "crop_pct": 1.0}, "timm")
    source = image_source(Pictures())
    here, there = (
        torch.cat([batch.images for batch in make_loader(source, transform, n_workers=n)])
        for n in (0, 1)
    )
    assert torch.equal(here, there)


def test_identities_of_lazy_images_follow_their_pixels():
    source = image_source(Pictures())
    assert source.content_hash() == image_source(Pictures()).content_hash()
    assert source.content_hash() != source[::-1].content_hash()
    same = image_source([Image.fromarray(image) for image in ARRAY])
    assert source.identity(2) == same.identity(2) != same.identity(3)


def test_an_item_that_is_no_image_is_a_bad_image():
    source = image_source(LazyColumn([Image.fromarray(ARRAY[0]), None, b""]))
    with pytest.raises(ValueError, match=r"X\[1\] cannot be used as an image: it is missing"):
        source.read(1)
    with pytest.raises(ValueError, match=r"X\[2\] cannot be used .* its content is empty"):
        source.read(2)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_tensor_with_a_layout_is_an_array_without_a_copy(layout):
    tensor = torch.from_numpy(ARRAY)
    given = tensor.permute(0, 3, 1, 2) if layout == "NCHW" else tensor
    images = as_images(given, layout)
    assert np.array_equal(images, ARRAY)
    assert np.shares_memory(images, ARRAY)
    assert np.array_equal(all_pixels(image_source(images)), ARRAY)


def test_a_wrong_layout_is_refused():
    with pytest.raises(TypeError, match=r"layout='NCHW' .* Choose the other layout"):
        as_images(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), "NCHW")
    with pytest.raises(TypeError, match="scale and cast it"):
        as_images(torch.zeros(2, 3, 8, 8), "NCHW")
    with pytest.raises(ValueError, match="layout must be 'NCHW' or 'NHWC', got 'CHW'"):
        as_images(torch.zeros(2, 3, 8, 8), "CHW")


def test_images_are_told_from_features():
    for X in (["a.png"], pd.Series(["a.png"]), [b"x"], [Image.new("L", (2, 2))], ARRAY, [ARRAY[0]]):
        assert holds_images(X)
    for X in ([[1.0, 2.0]], np.zeros((2, 2)), pd.DataFrame({"a": ["1"]}), [], np.zeros(3)):
        assert not holds_images(X)
