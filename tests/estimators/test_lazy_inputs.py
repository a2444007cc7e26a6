"""Data sets of torch, tensors and columns of tables, given to a classifier and to a search."""

import io

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from torch.utils.data import Dataset, Subset
from torchvision.datasets import ImageFolder

from skh2edl import FlatCEClassifier
from skh2edl.images import as_images, image_source

PIXELS = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
PIXELS[::2, :, :, 0] //= 4  # every second one has little red
LABELS = np.array(["cyan", "red"] * 8)


class Photographs(Dataset):
    """Counts what is read, to show that nothing else is."""

    def __init__(self):
        self.n_read = 0

    def __len__(self):
        return len(PIXELS)

    def __getitem__(self, index):
        self.n_read += 1
        return Image.fromarray(PIXELS[index]), LABELS[index]


def classifier():
    return FlatCEClassifier(
        backbone="test_resnet", weights=None, image_size=32, finetune="head", random_state=0
    )


@pytest.fixture(scope="module")
def expected():
    return classifier().fit(PIXELS, LABELS).predict_proba(PIXELS)


def as_png(image):
    content = io.BytesIO()
    Image.fromarray(image).save(content, format="PNG")
    return content.getvalue()


def test_every_lazy_kind_is_classified_as_the_array_is(expected):
    kinds = {
        "data set": Photographs(),
        "tensor": as_images(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), "NCHW"),
        "bytes": [as_png(image) for image in PIXELS],
        "column": pa.array([as_png(image) for image in PIXELS]),
    }
    for name, X in kinds.items():
        found = classifier().fit(X, LABELS).predict_proba(X)
        assert found == pytest.approx(expected, abs=1e-6), name


def test_a_folder_and_a_part_of_it(tmp_path, expected):
    for index, (image, label) in enumerate(zip(PIXELS, LABELS, strict=True)):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / label / f"{index:02}.png")
    folder = ImageFolder(tmp_path)
    y = np.array(folder.classes)[folder.targets]
    order = [int(path[-6:-4]) for path, _ in folder.samples]
    clf = classifier().fit(folder, y)
    assert clf.predict_proba(folder) == pytest.approx(expected[order], abs=1e-4)
    part = Subset(folder, [3, 9])
    assert clf.predict_proba(part) == pytest.approx(expected[order][[3, 9]], abs=1e-4)


def test_a_search_over_a_wrapped_data_set_scores_as_over_the_array():
    dataset = Photographs()
    X = image_source(dataset)
    splits = list(StratifiedKFold(2).split(PIXELS, LABELS))
    found = cross_val_score(classifier(), X, LABELS, cv=splits)
    assert found.tolist() == cross_val_score(classifier(), PIXELS, LABELS, cv=splits).tolist()
    dataset.n_read = 0
    search = GridSearchCV(classifier(), {"l2": [0.01]}, cv=splits).fit(X, LABELS)
    assert search.best_estimator_.predict(X).shape == (16,)
    # Two fits on 8 with scores on 8, the refit on 16, and the prediction.
    assert dataset.n_read == 2 * (8 + 8) + 16 + 16
