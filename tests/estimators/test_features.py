"""Features of a frozen backbone: a Pipeline step, and never computed twice for one image."""

import gc
import io
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
import timm
import torch
from numpy.testing import assert_array_equal
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from skh2edl import H2EDLClassifier, Hardware, ImageFeatureExtractor, Taxonomy
from skh2edl.training.backbones import Backbone, create_backbone
from skh2edl.training.devices import on_device

TREE = Taxonomy.from_nested({"dark": ["black", "brown"], "bright": ["white", "yellow"]})
TINY = {"backbone": "test_resnet", "image_size": 32}
N_FEATURES = 96


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of weights, so that every estimator has the same backbone."""
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    model = create_backbone("test_resnet", None, image_size=32, seed=3).model
    state = model.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, path)
    return str(path)


@pytest.fixture(scope="module")
def data():
    """Sixteen noisy pictures of four brightnesses, and their labels."""
    rng = np.random.default_rng(0)
    levels = np.repeat([20, 90, 230, 160], 4)
    images = rng.normal(levels[:, None, None, None], 15, (16, 32, 32, 3))
    labels = np.repeat(["black", "brown", "white", "yellow"], 4)
    return images.clip(0, 255).astype(np.uint8), labels


@pytest.fixture
def files(tmp_path, data):
    """The same pictures as files."""
    paths = []
    for number, image in enumerate(data[0]):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(image).save(paths[-1])
    return paths


@pytest.fixture
def computed(monkeypatch):
    """Lengths of the batches that went through any backbone."""
    lengths = []
    forward = Backbone.forward

    def count(self, images):
        lengths.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Backbone, "forward", count)
    return lengths


def extractor(weights, **parameters):
    return ImageFeatureExtractor(weights=weights, **TINY, **parameters)


# The Pipeline step -------------------------------------------------------------------------------


def test_features_are_what_timms_own_model_gives(weights, data):
    images, _ = data
    model = timm.create_model("test_resnet", pretrained=False, num_classes=0).eval()
    model.load_state_dict(load_file(weights))
    config = timm.data.resolve_model_data_config(model)
    pixels = images.astype(np.float32) / 255
    normalised = (pixels - np.float32(config["mean"])) / np.float32(config["std"])
    with torch.inference_mode():
        expected = model(torch.from_numpy(normalised).permute(0, 3, 1, 2)).numpy()
    features = extractor(weights).fit_transform(images)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-4)


def test_a_pipeline_predicts_the_same_bits_as_a_classifier_with_a_frozen_backbone(weights, data):
    images, labels = data
    pipeline = make_pipeline(extractor(weights), H2EDLClassifier(TREE, backbone=None))
    whole = H2EDLClassifier(TREE, weights=weights, finetune="head", **TINY)
    pipeline.fit(images, labels)
    whole.fit(images, labels)
    assert_array_equal(pipeline.predict_log_proba(images), whole.predict_log_proba(images))
    assert pipeline.score(images, labels) == 1


def test_a_pipeline_can_be_cross_validated(weights, data):
    images, labels = data
    pipeline = make_pipeline(extractor(weights), H2EDLClassifier(TREE, backbone=None))
    scores = cross_val_score(pipeline, images, labels, cv=2, error_score="raise")
    assert scores.shape == (2,)
    assert scores.mean() > 0.5


def test_columns_have_names(weights, data):
    fitted = extractor(weights).fit(data[0])
    names = fitted.get_feature_names_out()
    assert fitted.n_features_out_ == len(names) == N_FEATURES
    assert names[0] == "imagefeatureextractor0"
    assert len(set(names)) == N_FEATURES


def test_features_can_come_as_a_table_with_the_rows_of_the_input(weights, files):
    pandas = pytest.importorskip("pandas")
    X = pandas.Series(files, index=[f"picture {number}" for number in range(16)])
    step = extractor(weights)
    array = step.fit_transform(X)
    table = step.set_output(transform="pandas").transform(X)
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == list(step.get_feature_names_out())
    assert list(table.index) == list(X.index)
    assert_array_equal(table.to_numpy(), array)


def test_a_clone_has_the_parameters_and_no_network(weights, data):
    step = extractor(weights, batch_size=3).fit(data[0])
    copied = clone(step)
    assert copied.get_params() == step.get_params()
    assert not hasattr(copied, "backbone_")
    assert_array_equal(copied.fit_transform(data[0]), step.transform(data[0]))


def test_the_number_of_images_computed_at_once_changes_nothing_to_speak_of(weights, data):
    whole = extractor(weights).fit_transform(data[0])
    parts = extractor(weights, batch_size=3).fit_transform(data[0])
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)


def test_a_random_start_depends_on_the_seed_alone(data):
    images = data[0][:2]
    make = lambda seed: ImageFeatureExtractor(weights=None, random_state=seed, **TINY)  # noqa: E731
    first = make(1).fit_transform(images)
    torch.manual_seed(5)
    assert_array_equal(make(1).fit_transform(images), first)
    assert (make(2).fit_transform(images) != first).any()


def test_before_fit_there_is_nothing_to_transform_with(weights, data):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        extractor(weights).transform(data[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"backbone": "resnet5"}, "backbone='resnet5' is not a model of timm"),
        ({"batch_size": 0}, "'batch_size' parameter of ImageFeatureExtractor"),
        ({"on_bad_image": "ignore"}, "'on_bad_image' parameter of ImageFeatureExtractor"),
        ({"precision": "8"}, "'precision' parameter of ImageFeatureExtractor"),
    ],
)
def test_wrong_parameters_are_refused_by_fit(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        ImageFeatureExtractor(**{**TINY, "weights": None, **parameters}).fit(data[0])


def test_features_are_no_images(weights):
    with pytest.raises(TypeError, match="paths"):
        extractor(weights).fit(np.zeros((3, 4)))


# The cache ---------------------------------------------------------------------------------------


def test_a_search_over_the_head_runs_the_backbone_once_for_each_image(
    tmp_path, weights, data, computed
):
    images, labels = data
    classifier = H2EDLClassifier(
        TREE,
        weights=weights,
        finetune="head",
        hardware=Hardware(memory=str(tmp_path / "cache")),
        **TINY,
    )
    grid = {"kl_weight": [0.0, 0.1], "leaf_weight": [0.1, 1.0], "prior__weight": ["children", 2.0]}
    search = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(images, labels)
    assert search.score(images, labels) == 1
    assert sum(computed) == len(images)


def test_without_a_cache_each_fit_and_each_score_runs_the_backbone(weights, data, computed):
    images, labels = data
    classifier = H2EDLClassifier(TREE, weights=weights, finetune="head", **TINY)
    GridSearchCV(classifier, {"kl_weight": [0.0, 0.1]}, cv=2, refit=False).fit(images, labels)
    # Two candidates, two folds; each fits on one half and scores the other.
    assert sum(computed) == 2 * 2 * len(images)


def test_extractor_and_classifier_share_a_cache(tmp_path, weights, data, computed):
    images, labels = data
    memory = joblib.Memory(tmp_path / "cache", verbose=0)
    extractor(weights, memory=memory).fit_transform(images)
    classifier = H2EDLClassifier(TREE, weights=weights, finetune="head", **TINY)
    classifier.set_params(hardware__memory=memory).fit(images, labels).predict(images[::-1])
    assert sum(computed) == len(images)


def test_features_from_the_cache_are_the_same_bits(tmp_path, weights, data):
    images, _ = data
    plain = extractor(weights).fit_transform(images)
    cached = extractor(weights, memory=str(tmp_path / "cache"))
    assert_array_equal(cached.fit_transform(images), plain)
    assert_array_equal(cached.transform(images), plain)
    assert_array_equal(cached.transform(images[::-2]), plain[::-2])


def test_an_image_that_is_there_twice_is_computed_once(tmp_path, weights, data, computed):
    images = data[0][[0, 1, 0, 2, 1, 0]]
    features = extractor(weights, memory=str(tmp_path / "cache")).fit_transform(images)
    assert sum(computed) == 3
    plain = extractor(weights).fit_transform(data[0][:3])
    np.testing.assert_allclose(features, plain[[0, 1, 0, 2, 1, 0]], rtol=1e-5)


@pytest.mark.parametrize("other", [{"image_size": 24}, {"weights": None}])
def test_another_backbone_does_not_find_these_features(tmp_path, weights, data, computed, other):
    parameters = {**TINY, "weights": weights, "memory": str(tmp_path / "cache")}
    first = ImageFeatureExtractor(**parameters).fit_transform(data[0])
    second = ImageFeatureExtractor(**{**parameters, **other}).fit_transform(data[0])
    assert sum(computed) == 2 * len(first)
    assert (first != second).any(axis=1).all()


def test_a_file_that_changes_is_computed_again(tmp_path, weights, data, files, computed):
    step = extractor(weights, memory=str(tmp_path / "cache"))
    before = step.fit_transform(files)
    Image.fromarray(data[0][15]).resize((40, 40)).save(files[0])
    after = step.transform(files)
    assert sum(computed) == len(files) + 1
    assert (after[0] != before[0]).any()
    assert_array_equal(after[1:], before[1:])


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_bad_image_has_no_features_and_is_tried_again(
    tmp_path, weights, files, data, computed, is_cached
):
    good = extractor(weights).fit_transform(files)
    with open(files[3], "wb") as file:
        file.write(b"no picture")
    memory = str(tmp_path / "cache") if is_cached else None
    step = extractor(weights, memory=memory, on_bad_image="skip").fit(files)
    with pytest.warns(UserWarning, match=r"1 of 16 images .*3\.png"):
        features = step.transform(files)
    assert np.isnan(features[3]).all()
    np.testing.assert_allclose(
        np.delete(features, 3, axis=0), np.delete(good, 3, axis=0), rtol=1e-4, atol=1e-5
    )
    del computed[:]
    Image.fromarray(data[0][3]).save(files[3])
    np.testing.assert_allclose(step.transform(files), good, rtol=1e-4, atol=1e-5)
    assert sum(computed) == (1 if is_cached else len(files))


def test_a_bad_image_stops_the_job_unless_told_otherwise(weights, files):
    with open(files[3], "wb") as file:
        file.write(b"no picture")
    with pytest.raises(ValueError, match=r"3\.png"):
        extractor(weights).fit_transform(files)


def test_all_images_bad_is_all_nan(tmp_path, weights):
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    step = extractor(weights, memory=str(tmp_path / "cache"), on_bad_image="skip").fit(paths)
    with pytest.warns(UserWarning, match="2 of 2 images"):
        assert np.isnan(step.transform(paths)).all()


class Payload:
    """A pickle that leaves a mark when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def as_array(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(3),
        b"",
        as_array(np.zeros(3, dtype=np.float32)),
        as_array(np.zeros(96)),
        as_array(np.full(96, np.nan, dtype=np.float32)),
        as_array(np.zeros(96, dtype=np.float32))[:-5],
    ],
    ids=["pickle", "empty", "short", "double", "NaN", "cut"],
)
def test_a_damaged_file_of_the_cache_is_computed_again(tmp_path, weights, data, computed, content):
    images, _ = data
    step = extractor(weights, memory=str(tmp_path / "cache"))
    before = step.fit_transform(images)
    (path, *_) = sorted((tmp_path / "cache").rglob("*.npy"))
    path.write_bytes(content)
    for _ in range(2):
        after = step.transform(images)
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
        assert (after != before).any(axis=1).sum() <= 1
        assert sum(computed) == len(images) + 1


def test_nothing_in_the_cache_is_executed(tmp_path, weights, data):
    images, _ = data
    step = extractor(weights, memory=str(tmp_path / "cache"))
    before = step.fit_transform(images)
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(kept) == len(images)
    mark = tmp_path / "executed"
    for number, path in enumerate(kept):
        payload = Payload(mark)
        path.write_bytes(
            pickle.dumps(payload) if number % 2 else as_array(np.array([payload], dtype=object))
        )
    assert_array_equal(step.transform(images), before)
    assert not mark.exists()


# Devices -----------------------------------------------------------------------------------------


def devices(value, seen):
    """Yield every torch.device that an object holds or whose tensors are on."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.device):
        yield value
    elif isinstance(value, torch.Tensor):
        yield value.device
    elif isinstance(value, dict):
        for item in value.values():
            yield from devices(item, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from devices(item, seen)
    elif hasattr(value, "__dict__"):
        yield from devices(vars(value), seen)


def test_an_estimator_holds_no_device_between_calls(weights, data):
    images, labels = data
    whole = H2EDLClassifier(TREE, weights=weights, finetune="head", **TINY).fit(images, labels)
    step = extractor(weights).fit(images)
    step.transform(images)
    whole.predict(images)
    for estimator in (step, whole, pickle.loads(pickle.dumps(whole))):
        assert {device.type for device in devices(estimator, set())} == {"cpu"}


@pytest.fixture
def elsewhere(monkeypatch):
    """A device of its own that computes like the CPU: torch tells cpu:0 from cpu."""
    device, moved = torch.device("cpu", 0), []
    move = torch.nn.Module.to

    def watched(module, *arguments, **more):
        if device in arguments:
            moved.append(module)
        return move(module, *arguments, **more)

    monkeypatch.setattr(torch.nn.Module, "to", watched)
    monkeypatch.setattr(H2EDLClassifier, "_device", lambda self, dtype=None: device)
    return moved


@pytest.mark.parametrize("finetune", ["head", "full"])
def test_threads_predict_on_a_device_with_one_copy_that_stays_there(
    weights, data, elsewhere, finetune
):
    images, labels = data
    options = {"finetune": finetune, "max_epochs": 1, "batch_size": 8, "random_state": 0}
    clf = H2EDLClassifier(TREE, weights=weights, **options, **TINY).fit(images, labels)
    expected = clf.predict_proba(images)
    n_moves = len(elsewhere)
    start = threading.Barrier(4)

    def predict(_):
        start.wait()
        return [clf.predict_proba(images) for _ in range(5)]

    with ThreadPoolExecutor(4) as pool:
        for answers in pool.map(predict, range(4)):
            for answer in answers:
                assert_array_equal(answer, expected)
    assert len(elsewhere) == n_moves
    # The estimator's own network is not moved, and what is kept on the device is not part of it.
    assert not any(module is clf.network_ for module in elsewhere)
    for estimator in (clf, pickle.loads(pickle.dumps(clf))):
        assert {device.type for device in devices(estimator, set())} == {"cpu"}
        assert not [module for module in estimator.network_.modules() if module in elsewhere]


def test_a_copy_on_a_device_follows_its_network(weights, data, elsewhere):
    images, labels = data
    clf = H2EDLClassifier(TREE, weights=weights, finetune="head", **TINY).fit(images, labels)
    before = clf.predict_log_proba(images)
    with torch.no_grad():
        clf.network_.head.linear.weight.mul_(0.5)
    changed = clf.predict_log_proba(images)
    assert (changed != before).all(axis=1).all()
    assert_array_equal(pickle.loads(pickle.dumps(clf)).predict_log_proba(images), changed)


def test_copies_on_a_device_go_with_their_networks():
    device = torch.device("cpu", 0)
    layers = [torch.nn.Linear(2, 1) for _ in range(3)]
    kept = [weakref.ref(on_device(layer, device)) for layer in layers]
    assert all(copy() is on_device(layer, device) for copy, layer in zip(kept, layers, strict=True))
    del layers[0]
    gc.collect()
    assert kept[0]() is None
    many = [torch.nn.Linear(2, 1) for _ in range(10)]
    assert len({id(on_device(layer, device)) for layer in many}) >= 4
    gc.collect()
    assert kept[1]() is kept[2]() is None
