import argparse
import copy
import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from PIL import Image
from torch import nn

from skh2edl.images import image_source, make_loader, make_transform
from skh2edl.training.backbones import (
    create_backbone,
    extract_features,
    load_weights,
    parameter_groups,
)
from skh2edl.training.weight_files import fitting_backbones

TINY = "test_resnet"
ASSETS = Path(os.environ.get("SKH2EDL_ASSETS", Path(__file__).parents[3] / "shared" / "assets"))


def make(**options):
    return create_backbone(TINY, **{"weights": None, "image_size": 32, **options})


def pictures(n=5, size=32):
    return np.random.default_rng(0).integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def loader_for(backbone, X, **options):
    return make_loader(image_source(X), make_transform(backbone.data_config), **options)


# -------------------------------------------------------------------------------- by name


@pytest.mark.parametrize(
    "name",
    ["test_resnet", "test_vit", "test_convnext", "test_efficientnet", "mobilenetv3_small_050"],
)
def test_the_number_of_features_is_what_comes_out(name):
    backbone = create_backbone(name, weights=None, image_size=64).eval()
    features = backbone(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert features.shape == (2, backbone.n_features)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("resnet5O", "'resnet5O' is not a model of timm.*resnet50"),
        ("zzzzqqqq", r"is not a model of timm\. .*lists all"),
        (None, "None is not a model of timm"),
        ("test_resnet.wrong", r"tag that timm does not know. Known: test_resnet\.r160_in1k"),
    ],
)
def test_an_unknown_name_is_answered_with_near_ones(name, match):
    with pytest.raises(ValueError, match=match):
        create_backbone(name, weights=None)


def test_the_configuration_is_that_of_timm():
    backbone = create_backbone("tf_efficientnet_lite0", weights=None)
    assert backbone.data_config["mean"] == backbone.data_config["std"] == (0.5, 0.5, 0.5)
    assert backbone.image_size == (224, 224)
    assert backbone.data_config["crop_pct"] == 0.875


def test_another_size_takes_the_whole_image_unless_told():
    assert make().data_config["crop_pct"] == 1.0
    assert make(crop_pct=0.9).data_config["crop_pct"] == 0.9
    # 160 is this model's own size, given or not.
    assert make(image_size=160).data_config == make(image_size=None).data_config


def test_a_vision_transformer_takes_the_size_it_is_given():
    backbone = create_backbone("test_vit", weights=None, image_size=(48, 32))
    assert backbone.image_size == (48, 32)
    assert backbone(torch.zeros(1, 3, 48, 32)).shape == (1, backbone.n_features)


@pytest.mark.parametrize("image_size", [0, -3, (1, 2, 3), 2.5, "64"])
def test_an_impossible_size_is_refused(image_size):
    with pytest.raises((ValueError, TypeError), match=r"image_size|not iterable"):
        make(image_size=image_size)


def test_a_size_the_model_cannot_take_is_explained():
    with pytest.raises(ValueError, match=r"cannot take images of 8 x 8 pixels .*image_size"):
        create_backbone("test_vit2", weights=None, image_size=8)


def test_pixels_are_normalised_as_the_configuration_says():
    backbone = make(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)).eval()
    images = torch.from_numpy(pictures()).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)))
    with torch.inference_mode():
        expected = backbone.model((images / 255 - mean) / std)
        assert torch.allclose(backbone(images), expected, atol=1e-5)
        # Normalised floats pass as they are.
        assert torch.equal(backbone((images / 255 - mean) / std), expected)


def test_same_seed_same_start_and_global_generators_untouched():
    random.seed(0)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = make(seed=1), make(seed=1), make(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    weight = [backbone.model.conv1[0].weight for backbone in (first, again, other)]
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])


def test_memory_format_changes_no_feature():
    images = torch.from_numpy(pictures()).permute(0, 3, 1, 2)
    with torch.inference_mode():
        last = make().eval()
        plain = copy.deepcopy(last.model).to(memory_format=torch.contiguous_format)
        assert last.model.conv1[0].weight.is_contiguous(memory_format=torch.channels_last)
        expected = plain((images.float() - last.mean) / last.std)
        assert torch.allclose(last(images), expected, atol=1e-5)


def test_normalisation_is_no_part_of_the_state():
    assert set(make().state_dict()) == {
        f"model.{key}" for key in timm.create_model(TINY, num_classes=0).state_dict()
    }


@pytest.mark.parametrize("name", [TINY, "test_vit"])
def test_a_backbone_survives_pickling_and_copying(name):
    backbone = create_backbone(name, weights=None, image_size=32).freeze()
    images = torch.from_numpy(pictures()).permute(0, 3, 1, 2)
    for copied in (pickle.loads(pickle.dumps(backbone)), copy.deepcopy(backbone)):
        assert copied.frozen
        with torch.inference_mode():
            assert torch.equal(copied.eval()(images), backbone.eval()(images))


# ------------------------------------------------------------------------------- weight files


@pytest.fixture(scope="module")
def whole():
    """A model with its classifier, as released files have it."""
    torch.manual_seed(3)
    return timm.create_model(TINY, num_classes=1000).eval()


def write(path, content):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("a.safetensors", lambda state: state),
        ("a.pth", lambda state: state),
        ("a.pt", lambda state: {"state_dict": state, "epoch": 3, "arch": "resnet"}),
        ("a.bin", lambda state: {"model": {f"module.{k}": v for k, v in state.items()}}),
        ("a.ckpt", lambda state: {"state_dict": {f"model.{k}": v for k, v in state.items()}}),
        ("a.pth", lambda state: {f"module._orig_mod.{k}": v for k, v in state.items()}),
        ("a.pth", lambda state: {"model": {"state_dict": state}}),
        ("a.pth", lambda state: {k: v for k, v in state.items() if "num_batches" not in k}),
        ("a.pth", lambda state: {k: v for k, v in state.items() if not k.startswith("fc.")}),
    ],
)
def test_weight_files_of_every_wrapping_give_the_features_of_the_model(tmp_path, whole, name, wrap):
    path = write(tmp_path / name, wrap(whole.state_dict()))
    images = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        expected = whole.forward_head(whole.forward_features(images), pre_logits=True)
        for weights in (path, str(path)):
            assert torch.allclose(make(weights=weights).eval()(images), expected, atol=1e-5)


def test_half_precision_becomes_float32(tmp_path, whole):
    state = {k: v.half() if v.is_floating_point() else v for k, v in whole.state_dict().items()}
    backbone = make(weights=write(tmp_path / "a.safetensors", state))
    assert {p.dtype for p in backbone.parameters()} == {torch.float32}
    assert torch.equal(backbone.model.conv1[0].weight, state["conv1.0.weight"].float())


def test_position_embeddings_are_resized_by_timm(tmp_path):
    model = timm.create_model("test_vit", num_classes=10)
    path = write(tmp_path / "a.safetensors", model.state_dict())
    backbone = create_backbone("test_vit", weights=path, image_size=64)
    assert torch.equal(backbone.model.blocks[0].attn.qkv.weight, model.blocks[0].attn.qkv.weight)
    assert backbone.model.pos_embed.shape[1] < model.pos_embed.shape[1]


def test_a_file_that_does_not_fit_is_explained(tmp_path, whole):
    state = dict(whole.state_dict())
    state["conv1.0.weight"] = torch.zeros(5, 3, 3, 3)
    del state["bn1.bias"]
    state["extra.weight"] = torch.zeros(1)
    path = write(tmp_path / "a.safetensors", state)
    wanted = tuple(whole.state_dict()["conv1.0.weight"].shape)
    with pytest.raises(ValueError, match="does not fit the backbone in 3 place") as caught:
        make(weights=path)
    text = str(caught.value)
    assert f"conv1.0.weight is (5, 3, 3, 3) in the file and {wanted} in the model" in text
    assert "bn1.bias is missing in the file" in text
    assert "extra.weight is unknown to the model" in text
    assert "Choose the backbone these weights were made for" in text


def test_five_differences_are_shown_at_most(tmp_path):
    path = write(tmp_path / "a.safetensors", timm.create_model("test_vit").state_dict())
    with pytest.raises(ValueError, match="does not fit") as caught:
        make(weights=path)
    assert str(caught.value).count(";") == 4


class Surprise:
    def __reduce__(self):
        return (pytest.fail, ("code of the file was run",))


def self_containing():
    content = {}
    content["model"] = content
    return content


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.pth", {"state_dict": {}, "evil": Surprise()}, "nothing else is unpickled"),
        ("a.pth", {"args": argparse.Namespace(lr=1)}, "nothing else is unpickled"),
        ("a.pth", b"garbage", "cannot be read as plain tensors"),
        ("a.pth", b"", "cannot be read as plain tensors"),
        ("a.pth", {"epoch": 3}, "holds no named tensors"),
        ("a.pth", [torch.zeros(1)], "holds no named tensors"),
        ("a.pth", self_containing(), "holds no named tensors"),
        ("a.safetensors", b"garbage, long enough for a header", "not a valid safetensors file"),
        ("a.safetensors", b"\xff" * 7 + b"\x7f", "not a valid safetensors file"),
        ("a.npz", b"x", r"suffix '.npz'; use one of .safetensors, .pth"),
    ],
)
def test_files_that_are_no_weights_are_refused(tmp_path, name, content, match):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=match):
        make(weights=path)


def test_weights_that_are_not_finite_are_refused(tmp_path, whole):
    state = dict(whole.state_dict())
    state["bn1.bias"] = torch.full_like(state["bn1.bias"], torch.nan)
    path = write(tmp_path / "a.safetensors", state)
    with pytest.raises(ValueError, match=r"NaN or infinity in 1 tensor\(s\), first \['bn1.bias'\]"):
        make(weights=path)


@pytest.mark.parametrize("weights", ["imagenet", "nowhere/a.pth"])
def test_weights_that_are_nothing_known_are_refused(weights):
    with pytest.raises(FileNotFoundError, match=f"'{weights}' is no file. Give one, 'pretrain"):
        make(weights=weights)


# ------------------------------------------------------------------------------- the download


class Hub:
    """The hub's client: alive unless there is an error to raise."""

    def __init__(self, error=None):
        self.error, self.timeouts = error, []

    def head(self, address, timeout):
        self.timeouts.append(timeout)
        if self.error is not None:
            raise self.error


def test_pretrained_weights_come_from_timm(monkeypatch, whole):
    asked = []

    def fake(model_id, *args, **kwargs):
        asked.append(model_id)
        return dict(whole.state_dict())

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fake)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: Hub())
    backbone = make(weights="pretrained")
    assert asked == ["timm/test_resnet.r160_in1k"]
    assert torch.equal(backbone.model.conv1[0].weight, whole.conv1[0].weight)


@pytest.mark.parametrize("error", [ConnectionError, RuntimeError, KeyError])
def test_without_a_connection_the_remedy_is_named(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error("Name or service not known")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fail)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: Hub())
    match = rf"'test_resnet' \({error.__name__}: .*not known.*weights='path/to/file.safetensors'"
    with pytest.raises(OSError, match=match):
        make(weights="pretrained")


def test_a_dead_network_is_noticed_in_one_short_try_before_timm_is_asked(monkeypatch):
    hub = Hub(ConnectionError("Network is unreachable"))
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: hub)
    monkeypatch.setattr(
        "timm.models._builder.load_state_dict_from_hf", lambda *_, **__: pytest.fail("a download")
    )
    match = r"ConnectionError: Network is unreachable.*weights='packaged'.*weights=None"
    with pytest.raises(OSError, match=match):
        make(weights="pretrained")
    with pytest.raises(OSError, match="name a folder, local-dir:path"):
        create_backbone("hf-hub:someone/something")
    assert len(hub.timeouts) == 2
    assert max(hub.timeouts) <= 5


def test_weights_in_the_cache_of_the_hub_need_no_connection(monkeypatch, whole):
    state = dict(whole.state_dict())
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: "model.safetensors")
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: pytest.fail("a connection"))
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", lambda *_, **__: state)
    assert torch.equal(make(weights="pretrained").model.conv1[0].weight, whole.conv1[0].weight)


def test_a_model_without_pretrained_weights_says_so():
    with pytest.raises(ValueError, match="offers no pretrained weights for backbone='resnet50t'"):
        create_backbone("resnet50t", weights="pretrained")


# ------------------------------------------------------------------------- freezing and groups


def test_a_frozen_backbone_keeps_weights_and_batch_statistics():
    network = nn.Sequential(make().freeze(), nn.Linear(96, 2))
    before = copy.deepcopy(network[0].state_dict())
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0, weight_decay=0.1)
    network.train()
    network(torch.from_numpy(pictures()).permute(0, 3, 1, 2)).sum().backward()
    optimiser.step()
    after = network[0].state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)
    assert network[1].weight.grad is not None
    network[0].freeze(False)
    assert network[0].model.training
    assert all(p.requires_grad for p in network[0].parameters())


def test_an_unfrozen_backbone_does_learn():
    backbone = make().train()
    before = backbone.model.bn1.running_mean.clone()
    backbone(torch.from_numpy(pictures()).permute(0, 3, 1, 2)).sum().backward()
    assert backbone.model.conv1[0].weight.grad is not None
    assert not torch.equal(backbone.model.bn1.running_mean, before)


@pytest.mark.parametrize("name", [TINY, "test_vit", "test_convnext", "test_efficientnet"])
@pytest.mark.parametrize("layer_decay", [None, 0.5])
def test_groups_are_those_of_timm_for_a_model_with_classifier(name, layer_decay):
    backbone = create_backbone(name, weights=None, image_size=64)
    head = nn.Linear(backbone.n_features, 7)
    groups = parameter_groups(backbone, head, weight_decay=0.1, layer_decay=layer_decay)
    names = {id(p): key for key, p in backbone.model.named_parameters()}
    names |= {id(head.weight): "head of ours.weight", id(head.bias): "head of ours.bias"}
    ours = {
        names[id(p)]: (group["lr_scale"], group["weight_decay"])
        for group in groups
        for p in group["params"]
    }

    model = timm.create_model(name, num_classes=7)
    options = {"opt": "sgd", "lr": 1.0, "weight_decay": 0.1, "layer_decay": layer_decay}
    optimiser = timm.optim.create_optimizer_v2(model, **options)
    classifier = model.default_cfg["classifier"]
    names = {
        id(p): key.replace(f"{classifier}.", "head of ours.")
        if key in (f"{classifier}.weight", f"{classifier}.bias")
        else key
        for key, p in model.named_parameters()
    }
    theirs = {
        names[id(p)]: (group.get("lr_scale", 1.0), group["weight_decay"])
        for group in optimiser.param_groups
        for p in group["params"]
    }
    assert ours == theirs


def test_the_backbone_learns_at_its_own_rate():
    backbone = make()
    head = nn.Linear(96, 3)
    plain = parameter_groups(backbone, head, layer_decay=0.5)
    slow = parameter_groups(backbone, head, layer_decay=0.5, backbone_lr_scale=0.1)
    own = {id(p) for p in head.parameters()}
    for before, after in zip(plain, slow, strict=True):
        factor = 1.0 if id(before["params"][0]) in own else 0.1
        assert after["lr_scale"] == pytest.approx(before["lr_scale"] * factor)


def test_a_frozen_backbone_is_in_no_group():
    backbone, head = make().freeze(), nn.Linear(96, 3)
    members = [p for group in parameter_groups(backbone, head) for p in group["params"]]
    assert {id(p) for p in members} == {id(p) for p in head.parameters()}


# ------------------------------------------------------------------------------------ features


def test_features_do_not_depend_on_batches_or_mode():
    backbone = make().train()
    X = pictures(7)
    features = extract_features(backbone, loader_for(backbone, X))
    assert features.dtype == np.float32
    assert backbone.training
    with torch.inference_mode():
        expected = backbone.eval()(torch.from_numpy(X).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(features, expected, atol=1e-6)
    pieces = extract_features(backbone, loader_for(backbone, X, batch_size=2, shuffle=True))
    np.testing.assert_allclose(pieces, expected, atol=1e-6)


def test_a_skipped_image_has_a_row_of_nan(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i in (0, 1, 3):
        Image.fromarray(pictures()[i]).save(paths[i])
    backbone = make()
    loader = loader_for(backbone, paths, on_bad_image="skip", batch_size=2)
    with pytest.warns(UserWarning, match=r"1 of 4 images .* first '.*2.png' \(X\[2\]\)"):
        features = extract_features(backbone, loader)
    assert np.isnan(features).all(axis=1).tolist() == [False, False, True, False]
    assert not np.isnan(features[[0, 1, 3]]).any()


def test_features_that_are_not_finite_name_the_image():
    backbone = make()
    with torch.no_grad():
        backbone.model.layer4[0].conv1.weight.fill_(torch.inf)
    with pytest.raises(ValueError, match=r"NaN or infinity for 5 image.*first X\[0\], X\[1\]"):
        extract_features(backbone, loader_for(backbone, pictures()))


def test_lower_precision_is_near():
    backbone = make()
    full = extract_features(backbone, loader_for(backbone, pictures()))
    half = extract_features(backbone, loader_for(backbone, pictures()), precision="bf16-mixed")
    assert half.dtype == np.float32
    assert 0 < np.abs(full - half).max() < 0.05 * np.abs(full).max()
    with pytest.raises(ValueError, match=r"precision must be one of .* got '8'"):
        extract_features(backbone, loader_for(backbone, pictures()), precision="8")


def test_progress_is_quiet_unless_asked_for(capfd):
    backbone = make()
    extract_features(backbone, loader_for(backbone, pictures()))
    assert capfd.readouterr().err == ""
    extract_features(backbone, loader_for(backbone, pictures()), verbose=1)
    assert "5/5" in capfd.readouterr().err


# ---------------------------------------------------------------------------------- real weights


# Fruit that the shop photographs share with the 1,000 classes of ImageNet, and its number there.
IMAGENET_CLASSES = {
    "Granny-Smith": 948,
    "Orange": 950,
    "Lemon": 951,
    "Pineapple": 953,
    "Banana": 954,
    "Pomegranate": 957,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "classifier"),
    [
        ("resnet50", "resnet50_imagenet_fp16.safetensors", "fc"),
        ("tf_efficientnet_lite0", "tf_efficientnet_lite0.safetensors", "classifier"),
    ],
)
def test_released_weights_recognise_the_fruit_of_imagenet(assets, name, file, classifier):
    lines = (assets / "grocery_store/train.txt").read_text().splitlines()
    names = [line.split(",")[0].strip() for line in lines if line.strip()]
    paths, numbers = [], []
    for fruit, number in IMAGENET_CLASSES.items():
        found = sorted(path for path in names if f"/{fruit}/" in path)[::5][:2]
        paths += [assets / "grocery_store" / path for path in found]
        numbers += [number] * len(found)
    assert len(paths) == 12
    backbone = create_backbone(name, weights=assets / "weights" / file)
    features = extract_features(backbone, loader_for(backbone, paths, n_workers=0))
    # The classifier that our backbone leaves out must read its features.
    state = safetensors.torch.load_file(assets / "weights" / file)
    weight, bias = (state[f"{classifier}.{part}"].float().numpy() for part in ("weight", "bias"))
    guess = (features @ weight.T + bias).argmax(axis=1)
    assert (guess == numbers).mean() > 0.5


def test_scaled_decoding_keeps_real_features(assets, tmp_path):
    names = sorted((assets / "grocery_store/val").rglob("*.jpg"))[::60]
    paths = [tmp_path / f"{i}.jpg" for i in range(len(names))]
    for name, path in zip(names, paths, strict=True):
        with Image.open(name) as image:
            image.resize((1000, 1000), Image.Resampling.BICUBIC).save(path, quality=92)
    weights = assets / "weights/tf_efficientnet_lite0.safetensors"
    backbone = create_backbone("tf_efficientnet_lite0", weights=weights, image_size=128)
    scaled = extract_features(backbone, loader_for(backbone, paths))
    whole = [np.asarray(Image.open(path)) for path in paths]
    full = extract_features(backbone, loader_for(backbone, whole))
    cosine = (scaled * full).sum(1) / np.linalg.norm(scaled, axis=1) / np.linalg.norm(full, axis=1)
    assert cosine.min() > 0.99


def test_loading_is_strict(tmp_path):
    model = timm.create_model(TINY, num_classes=0)
    path = write(tmp_path / "a.safetensors", {"conv1.0.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"conv1\.0\.weight is"):
        load_weights(model, path)


# ------------------------------------------------------------- which backbone a file belongs to


def test_a_file_named_after_its_model_is_recognised(tmp_path, whole):
    path = write(tmp_path / "best_test_resnet_3.safetensors", dict(whole.state_dict()))
    assert fitting_backbones(path) == ["test_resnet"]
    with pytest.raises(ValueError, match=r"By its name .* it is backbone='test_resnet'"):
        create_backbone("test_vit", weights=path)


def test_a_name_that_the_tensors_contradict_is_not_believed(tmp_path, whole, monkeypatch):
    monkeypatch.setattr("timm.list_modules", lambda: ["resnet"])
    monkeypatch.setattr("timm.list_models", lambda *_, **__: ["resnet18", "test_resnet"])
    path = write(tmp_path / "resnet18.safetensors", dict(whole.state_dict()))
    assert fitting_backbones(path) == ["test_resnet"]


def test_a_file_that_no_model_fits_is_of_none(tmp_path, monkeypatch):
    monkeypatch.setattr("timm.list_modules", lambda: ["resnet"])
    monkeypatch.setattr("timm.list_models", lambda *_, **__: ["resnet18", "test_resnet"])
    path = write(tmp_path / "a.safetensors", {"mine.weight": torch.zeros(2)})
    assert fitting_backbones(path) == []


@pytest.mark.slow
@pytest.mark.assets
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("resnet50_imagenet_fp16", ["resnet50", "resnetaa50", "resnetblur50"]),
        ("tf_efficientnet_lite0", ["efficientnet_lite0", "tf_efficientnet_lite0"]),
    ],
)
def test_without_its_name_a_file_is_of_all_models_with_its_tensors(tmp_path, file, names):
    source = ASSETS / "weights" / f"{file}.safetensors"
    if not source.is_file():
        pytest.skip("needs SKH2EDL_ASSETS")
    assert fitting_backbones(source) == [file.removesuffix("_imagenet_fp16")]
    (tmp_path / "weights.safetensors").symlink_to(source)
    assert fitting_backbones(tmp_path / "weights.safetensors") == names
