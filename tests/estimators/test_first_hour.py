"""Input that new users give, and the remedy that the message names."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from skh2edl import H2EDLClassifier, Hardware, ImageFeatureExtractor
from skh2edl.training.devices import find_device

FEATURES = np.random.default_rng(0).normal(size=(6, 4))
LABELS = ["cat", "dog"] * 3
TINY = {"backbone": "test_resnet", "weights": None, "image_size": 32}


def columns(tmp_path, chosen):
    paths = []
    for index in range(6):
        paths.append(str(tmp_path / f"{index}.png"))
        Image.new("RGB", (32, 32), (40 * index, 0, 0)).save(paths[-1])
    table = pd.DataFrame({"path": paths, "weight": FEATURES[:, 0]})
    extractor = ImageFeatureExtractor(**TINY)
    steps = ColumnTransformer([("image", extractor, chosen), ("rest", "passthrough", ["weight"])])
    return make_pipeline(steps, H2EDLClassifier(backbone=None)), table


@pytest.mark.parametrize("X", [FEATURES, pd.DataFrame(FEATURES)], ids=["array", "frame"])
def test_features_with_a_backbone_point_to_backbone_none(X):
    with pytest.raises(TypeError, match=r"\(n, H, W, 3\).* set backbone=None"):
        H2EDLClassifier(**TINY).fit(X, LABELS)


@pytest.mark.parametrize(
    "X",
    [
        [f"{index}.jpg" for index in range(6)],
        pd.Series([f"{index}.jpg" for index in range(6)]),
        np.zeros((6, 8, 8, 3), dtype=np.uint8),
        [Image.new("RGB", (8, 8))] * 6,
    ],
    ids=["paths", "series", "pixels", "pictures"],
)
def test_images_without_a_backbone_point_to_one(X):
    message = r"backbone=None it must be a 2-D array of features. Name a backbone, such as 'resnet"
    with pytest.raises(TypeError, match=message):
        H2EDLClassifier(backbone=None).fit(X, LABELS)


def test_a_missing_path_is_named_by_its_row():
    paths = pd.Series(["a.jpg", "b.jpg", np.nan, "d.jpg", "e.jpg", "f.jpg"])
    with pytest.raises(TypeError, match=r"X\[2\] is missing \(nan\); drop the samples"):
        H2EDLClassifier(**TINY).fit(paths, LABELS)


def test_a_column_in_brackets_is_told_to_stand_without(tmp_path):
    wrong, table = columns(tmp_path, ["path"])
    with pytest.raises(TypeError, match=r"ColumnTransformer name it without brackets"):
        wrong.fit(table, LABELS)
    right, table = columns(tmp_path, "path")
    assert right.fit(table, LABELS).predict(table).shape == (6,)
    # 96 features of the images, and the weight.
    assert right[-1].n_features_in_ == 97


def test_a_single_photograph_is_told_to_go_into_a_list():
    with pytest.raises(TypeError, match=r"single image: put it in a list, \[X\]"):
        H2EDLClassifier(**TINY).fit(np.zeros((40, 60, 3), dtype=np.uint8), ["cat"] * 40)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpuu", r"'accelerator' parameter of Hardware must be .*'gpu'.* Got 'gpuu'"),
        ("gpu", r"accelerator='gpu' is not on this machine.*Hardware\(accelerator='auto'\)"),
    ],
)
@pytest.mark.skipif(find_device("gpu").type != "cpu", reason="there is such a device here")
def test_a_device_that_is_not_there_is_named(name, message):
    images = np.zeros((6, 8, 8, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match=message):
        H2EDLClassifier(**TINY, hardware=Hardware(accelerator=name)).fit(images, LABELS)
