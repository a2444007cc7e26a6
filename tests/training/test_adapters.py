"""Any backbone: modules of torch, open_clip and transformers, and timm's names with a place."""

import pickle
from collections import OrderedDict
from importlib.metadata import version
from types import SimpleNamespace

import joblib
import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import timm
import torch
from sklearn.base import clone
from torch import nn

from skh2edl import (
    FlatCEClassifier,
    H2EDLClassifier,
    Hardware,
    ImageBackbone,
    ImageFeatureExtractor,
    Recipe,
    Taxonomy,
    load_model,
)
from skh2edl.training.backbones import create_backbone

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.array(TREE.leaves)[np.arange(12) % 3]
PIXELS = np.ascontiguousarray(IMAGES.transpose(0, 3, 1, 2))

needs_arguments = pytest.mark.skipif(
    version("timm") in {f"1.0.{patch}" for patch in range(21, 31)},
    reason="timm before 1.0.31 does not keep the arguments of a model of a folder or hub",
)


def tower(n_features=8):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, n_features, 4, stride=4), nn.BatchNorm2d(n_features), nn.ReLU()
    )


class Tokens(nn.Module):
    """A small transformer's interface: images to tokens."""

    def __init__(self):
        super().__init__()
        self.patches = tower()

    def forward(self, images):
        return self.patches(images).flatten(2).transpose(1, 2)


class LikeTransformers(nn.Module):
    """Stands for a vision model of transformers: a configuration, and an output with fields."""

    def __init__(self, pooled=True):
        super().__init__()
        self.config = SimpleNamespace(image_size=32)
        self.tokens, self.pooled = Tokens(), pooled

    def forward(self, pixel_values):
        hidden = self.tokens(pixel_values)
        pooled = hidden.mean(1) if self.pooled else None
        return SimpleNamespace(last_hidden_state=hidden, pooler_output=pooled)


class LikeOpenClip(nn.Module):
    """Stands for a model of open_clip: a tower with its normalisation, and `encode_image`."""

    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(tower(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.visual.image_size = (32, 32)
        self.visual.image_mean, self.visual.image_std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
        self.text = nn.Linear(2, 2)

    def encode_image(self, image, normalize=False):
        features = self.visual(image)
        return nn.functional.normalize(features, dim=-1) if normalize else features

    def forward(self, image=None, text=None):
        raise AssertionError("features come from encode_image")


def real_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
    )
    return ImageBackbone.from_transformers(transformers.ViTModel(config))


def real_open_clip():
    open_clip = pytest.importorskip("open_clip")
    vision = {"image_size": 32, "patch_size": 16, "width": 32, "layers": 1, "head_width": 16}
    text = {"context_length": 8, "vocab_size": 16, "width": 16, "heads": 2, "layers": 1}
    torch.manual_seed(0)
    return ImageBackbone.from_open_clip(open_clip.CLIP(16, vision, text))


BACKBONES = {
    "module": lambda: ImageBackbone(tower(), image_size=32),
    "tokens": lambda: ImageBackbone(Tokens(), pool="mean", image_size=32),
    "like transformers": lambda: ImageBackbone.from_transformers(LikeTransformers()),
    "like open_clip": lambda: ImageBackbone.from_open_clip(LikeOpenClip()),
    "transformers": real_transformers,
    "open_clip": real_open_clip,
}


def classifier(backbone, **parameters):
    parameters = {"max_epochs": 2, "validation_fraction": None, **parameters}
    return H2EDLClassifier(
        TREE,
        backbone=backbone,
        random_state=0,
        hardware=Hardware(accelerator="cpu"),
        recipe=Recipe(augmentation="none", layer_decay=0.9, backbone_lr_scale=1.0),
        **parameters,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("finetune", ["full", "head"])
def test_a_module_is_fitted_saved_loaded_exported_and_dumped(name, finetune, tmp_path):
    module = BACKBONES[name]()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    clf = clone(classifier(module, finetune=finetune)).fit(IMAGES, LABELS)
    assert clf.predict_hyper_opinion(IMAGES).taxonomy == TREE
    learnt = clf.network_.backbone.model.state_dict()
    changed = [key for key in before if not torch.equal(before[key], learnt[key])]
    assert bool(changed) == (finetune == "full")
    # The user's own module is as it was.
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())

    path = tmp_path / "model.safetensors"
    clf.save(path)
    with pytest.raises(ValueError, match=r"holds the weights and not the code.*backbone=module"):
        load_model(path)
    with pytest.raises(ValueError, match=r"and the one given is 'Linear.*differ|cannot take im"):
        load_model(path, backbone=nn.Linear(3, 3))
    loaded = load_model(path, backbone=module)
    assert np.array_equal(loaded.predict_proba(IMAGES), clf.predict_proba(IMAGES))
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    again = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(again.predict_proba(IMAGES), clf.predict_proba(IMAGES))

    if finetune == "head":
        return  # the graph is the same
    clf.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    if clf.network_.backbone.image_size == (32, 32):
        proba = session.run(["class_probability"], {"images": PIXELS})[0]
        assert proba == pytest.approx(clf.predict_proba(IMAGES), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_a_name_of_timm_is_fitted_saved_loaded_and_exported(name, tmp_path):
    clf = classifier(name, weights=None, image_size=32).fit(IMAGES, LABELS)
    clf.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict_proba(IMAGES), clf.predict_proba(IMAGES))
    clf.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    proba = session.run(["class_probability"], {"images": PIXELS})[0]
    assert proba == pytest.approx(clf.predict_proba(IMAGES), abs=1e-4)


# Features ----------------------------------------------------------------------------------------


def normalised(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
    mean, std = (torch.tensor(value).view(1, 3, 1, 1) for value in (mean, std))
    return (torch.from_numpy(PIXELS).float() / 255 - mean) / std


def features_of(module):
    extractor = ImageFeatureExtractor(module, accelerator="cpu")
    return extractor.fit_transform(IMAGES)


def test_features_are_those_of_the_module_itself():
    maps = tower().eval()(normalised()).detach()
    expected = {
        "maps": maps.mean((2, 3)),
        "mean": maps.flatten(2).mean(2),
        "first": maps.flatten(2)[:, :, 0],
        "clip": tower().eval()(normalised((0.5,) * 3, (0.25,) * 3)).detach().mean((2, 3)),
    }
    found = {
        "maps": features_of(ImageBackbone(tower(), image_size=32)),
        "mean": features_of(ImageBackbone(Tokens(), pool="mean", image_size=32)),
        "first": features_of(ImageBackbone(Tokens(), pool="first", image_size=32)),
        "clip": features_of(ImageBackbone.from_open_clip(LikeOpenClip())),
    }
    for name, values in expected.items():
        assert found[name] == pytest.approx(values.numpy(), abs=1e-5), name
    pooled = features_of(ImageBackbone.from_transformers(LikeTransformers()))
    assert pooled == pytest.approx(expected["mean"].numpy(), abs=1e-5)
    # Without a pooled output the first token, which is the class token there.
    first = features_of(ImageBackbone.from_transformers(LikeTransformers(pooled=False)))
    assert first == pytest.approx(expected["first"].numpy(), abs=1e-5)


class Several(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.tower, self.kind = tower(), kind

    def forward(self, images):
        maps = self.tower(images)
        return self.kind(OrderedDict(maps=maps, other="text").items())


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        (OrderedDict, "maps"),
        (lambda items: SimpleNamespace(**dict(items)), "maps"),
        (lambda items: tuple(value for _, value in items), 0),
    ],
    ids=["dict", "attributes", "tuple"],
)
def test_an_output_is_chosen_by_name_or_position(kind, output):
    expected = tower().eval()(normalised()).detach().mean((2, 3)).numpy()
    found = features_of(ImageBackbone(Several(kind), output=output, image_size=32))
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Tokens(), r"tokens of shape \(1, 3136, 8\); wrap it.*pool='mean'"),
        (Several(OrderedDict), r"returns \['maps', 'other'\].*output=None is no tensor; name"),
        (ImageBackbone(Several(OrderedDict), output="other"), "output='other' is no tensor"),
        (ImageBackbone(Several(OrderedDict), output="none"), "output='none' is no tensor"),
        (LikeTransformers(), "returns SimpleNamespace, in which output=None"),
        (nn.Linear(5, 2), "'Linear' cannot take images of 224 x 224 pixels"),
    ],
)
def test_a_module_whose_features_are_unclear_is_told_how_to_say(module, message):
    with pytest.raises(ValueError, match=message):
        create_backbone(module)


def test_wrong_arguments_of_the_wrapper_are_named():
    with pytest.raises(ValueError, match="pool must be None, 'mean' or 'first', got 'max'"):
        ImageBackbone(tower(), pool="max")
    with pytest.raises(ValueError, match="Sequential has no method 'encode_image'"):
        ImageBackbone(tower(), method="encode_image")


def test_a_processor_of_transformers_says_size_and_normalisation():
    processor = SimpleNamespace(
        size={"shortest_edge": 256},
        crop_size={"height": 48, "width": 48},
        image_mean=[0.1, 0.2, 0.3],
        image_std=[0.4, 0.5, 0.6],
    )
    config = ImageBackbone.from_transformers(LikeTransformers(), processor).data_config
    assert config["input_size"] == (3, 48, 48)
    assert config["mean"] == (0.1, 0.2, 0.3)
    assert config["std"] == (0.4, 0.5, 0.6)


def test_size_and_weights_of_the_classifier_go_before_those_of_the_module(tmp_path):
    other = tower()
    with torch.no_grad():
        other[0].weight.mul_(2)
    safetensors.torch.save_file(other.state_dict(), tmp_path / "other.safetensors")
    backbone = create_backbone(tower(), tmp_path / "other.safetensors", image_size=64)
    assert backbone.image_size == (64, 64)
    assert torch.equal(backbone.model.model[0].weight, other[0].weight)


def test_features_in_a_cache_are_told_apart_by_how_they_are_read(tmp_path):
    memory = joblib.Memory(tmp_path, verbose=0)
    found = [
        ImageFeatureExtractor(
            ImageBackbone(Tokens(), pool=pool, image_size=32), memory=memory, accelerator="cpu"
        ).fit_transform(IMAGES)
        for pool in ("mean", "first")
    ]
    assert not np.allclose(*found)


# Names with a place ------------------------------------------------------------------------------


def write_folder(folder, **arguments):
    """Write a model as timm does: a configuration and weights."""
    torch.manual_seed(1)
    model = timm.create_model("test_resnet", num_classes=3, **arguments)
    timm.models.save_for_hf(model, folder, model_config={}, safe_serialization=True)
    return model


@pytest.fixture(params=["local-dir", "hf-hub"])
def place(request, tmp_path, monkeypatch):
    model = write_folder(tmp_path / "model")
    if request.param == "local-dir":
        return f"local-dir:{tmp_path / 'model'}", model

    def download(repo_id=None, filename=None, **_):
        assert repo_id == "someone/model"
        return str(tmp_path / "model" / filename)

    monkeypatch.setattr("timm.models._hub.hf_hub_download", download)
    monkeypatch.setattr("skh2edl.training.backbones.check_connection", lambda name: None)
    return "hf-hub:someone/model", model


@needs_arguments
def test_a_model_of_a_folder_or_the_hub_is_fitted_saved_and_loaded(place, tmp_path):
    name, model = place
    backbone = create_backbone(name, image_size=32)
    expected = model.state_dict()
    assert all(torch.equal(expected[k], v) for k, v in backbone.model.state_dict().items())
    clf = FlatCEClassifier(TREE, backbone=name, finetune="head", image_size=32)
    clf.fit(IMAGES, LABELS).save(tmp_path / "model.safetensors")
    # The file has the weights and names timm's own architecture: it needs no hub and no folder.
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.backbone == "test_resnet"
    assert np.array_equal(loaded.predict_proba(IMAGES), clf.predict_proba(IMAGES))
    assert clf.backbone == name


@needs_arguments
def test_a_model_that_its_architecture_does_not_describe_is_not_saved(tmp_path):
    write_folder(tmp_path / "model", output_stride=16)
    clf = FlatCEClassifier(
        TREE, backbone=f"local-dir:{tmp_path / 'model'}", finetune="head", image_size=32
    )
    with pytest.raises(TypeError, match=r"has arguments .* cannot rebuild it. Use joblib\.dump"):
        clf.fit(IMAGES, LABELS).save(tmp_path / "model.safetensors")


def test_a_place_without_a_model_is_named(tmp_path):
    with pytest.raises(OSError, match=r"timm could not load 'local-dir:.*name a folder"):
        create_backbone(f"local-dir:{tmp_path / 'none'}")


def test_a_backbone_without_weights_gives_features():
    plain = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = np.full((2, 16, 16, 3), 255, np.uint8)
    features = ImageFeatureExtractor(plain, image_size=16).fit_transform(images)
    assert features.shape == (2, 3)
    assert np.ptp(features, axis=0).max() == 0
