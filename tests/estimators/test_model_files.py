"""Hostile model files: refused with our errors, in bounded memory, and nothing is executed."""

import copy
import json
import pickle
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from skh2edl import H2EDLClassifier, Taxonomy, load_model
from skh2edl.estimators.methods import MODEL_CLASSES

TREE = Taxonomy.from_nested(
    {"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf", "other"], "other": None}
)
N_FEATURES = 4
IMAGES = np.random.default_rng(0).integers(0, 256, (10, 24, 24, 3), dtype=np.uint8)
LABELS = np.array(TREE.leaves)[np.arange(60) % TREE.n_leaves]


def rows(n_samples=60):
    return np.random.default_rng(n_samples).normal(size=(n_samples, N_FEATURES)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The file of a small evidential model on features."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    H2EDLClassifier(TREE, backbone=None).fit(rows(), LABELS).save(path)
    return path


@pytest.fixture(scope="module")
def image_model(tmp_path_factory):
    """The file of a small model on images."""
    path = tmp_path_factory.mktemp("image_model") / "model.safetensors"
    H2EDLClassifier(
        TREE, backbone="test_resnet", weights=None, image_size=32, finetune="head", random_state=0
    ).fit(IMAGES, LABELS[:10]).save(path)
    return path


def read(path):
    """Return the header and the tensors of a model file."""
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["skh2edl"]), load_file(path)


def write(folder, header, tensors):
    path = folder / "changed.safetensors"
    text = header if isinstance(header, str) else json.dumps(header)
    save_file(tensors, path, metadata={"skh2edl": text})
    return path


def write_raw(folder, header, shapes):
    """Write a file that declares shapes of no bytes."""
    declared = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
        for name, shape in shapes.items()
    }
    text = json.dumps({"__metadata__": {"skh2edl": json.dumps(header)}, **declared}).encode()
    path = folder / "declared.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


def with_parameter(header, name, value):
    header["parameters"]["dict"] = [
        pair for pair in header["parameters"]["dict"] if pair[0] != name
    ] + [[name, value]]


@pytest.mark.parametrize(
    "content", [b"", b"no", b"x" * 1000, pickle.dumps({"a": 1}), b"\xff" * 8 + b"{}", b"\0" * 64]
)
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a safetensors file or is damaged"):
        load_model(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no model file '.*nothing'"):
        load_model(tmp_path / "nothing")


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path, model, fraction):
    content = model.read_bytes()
    path = tmp_path / "model.safetensors"
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(ValueError, match="not a safetensors file or is damaged"):
        load_model(path)


def test_weights_of_something_else_are_refused(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="without a model of this package"):
        load_model(tmp_path / "weights.safetensors")


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '"a"', "{}", "[" * 100_000])
def test_a_damaged_header_is_refused(tmp_path, model, text):
    with pytest.raises(ValueError, match=r"The header of .* is damaged"):
        load_model(write(tmp_path, text, read(model)[1]))


@pytest.mark.parametrize("version", [4, 0, "1", True, None])
def test_another_format_is_refused_by_its_version(tmp_path, model, version):
    header, tensors = read(model)
    header["format_version"] = version
    header["versions"] = {"skh2edl": "9.9.9"}
    message = f"has model format {version!r}, and this release reads up to 3. .*9.9.9"
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


def set_key(*keys, to):
    def change(header):
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = to

    return change


def remove_key(key):
    return lambda header: header.pop(key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("class", to="Popen"), "names the class 'Popen', and this release knows H2EDL"),
        (set_key("class", to=["H2EDLClassifier"]), "names the class"),
        (set_key("class", to="HierCEClassifier"), "unexpected keyword"),
        (remove_key("class"), "KeyError 'class'"),
        (remove_key("parameters"), "KeyError 'parameters'"),
        (remove_key("taxonomy"), "KeyError 'taxonomy'"),
        (remove_key("fitted"), "KeyError 'fitted'"),
        (remove_key("backbone"), "KeyError 'backbone'"),
        (set_key("parameters", to=[]), "is not that of a model"),
        (set_key("parameters", to={"dict": [["kl_weight", -1]]}), "'kl_weight' parameter of"),
        (set_key("parameters", to={"dict": [["no_such", 1]]}), "no_such"),
        (set_key("parameters", to={"dict": [[["a"], 1]]}), "unhashable"),
        (lambda header: with_parameter(header, "memory", "cache"), "it sets memory"),
        (lambda header: with_parameter(header, "checkpoint_dir", "."), "it sets checkpoint_dir"),
        (lambda header: with_parameter(header, "depth_weights", ["a"]), "depth_weights|'a'"),
        (lambda header: with_parameter(header, "backbone", "resnet50"), "describes the backbone"),
        (set_key("taxonomy", to="{}"), "JSON of a taxonomy"),
        (set_key("taxonomy", to={}), "not valid JSON"),
        (set_key("fitted", "n_features_in_", to=5), "n_features_in_ is 5"),
        (set_key("fitted", "n_iter_", to="many"), "n_iter_ is 'many'"),
        (set_key("fitted", "history_", to={"loss": [[]]}), "history_ is"),
        (set_key("fitted", "__class__", to=1), "fitted values are"),
        (set_key("fitted", to=[]), r"fitted values are \[\]"),
        (set_key("fitted", to={}), "does not say n_features_in_"),
        (set_key("feature_names", to=["a"]), "feature names are .* not 4 strings"),
        (set_key("feature_names", to=[1, 2, 3, 4]), "feature names are .* not 4 strings"),
        (set_key("backbone", to="test_resnet"), "is not that of a model"),
    ],
)
def test_a_header_with_something_wrong_is_refused(tmp_path, model, change, message):
    header, tensors = read(model)
    change(header)
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


@pytest.mark.parametrize("depth", [100, 300, 450, 480, 10_000])
def test_deep_nesting_is_refused(tmp_path, model, depth):
    header, tensors = read(model)
    with_parameter(header, "max_iter", "deep")
    nested = '{"tuple": [' * depth + "1" + "]}" * depth
    path = write(tmp_path, json.dumps(header).replace('"deep"', nested), tensors)
    with pytest.raises(ValueError, match=r"recursion depth|'max_iter' parameter of") as caught:
        load_model(path)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("backbone", to=None), "describes the backbone None, and sets 'test_resnet'"),
        (set_key("backbone", "name", to="resnet18"), "describes the backbone 'resnet18'"),
        (set_key("backbone", "name", to=["test_resnet"]), "describes the backbone"),
        (set_key("backbone", "data_config", "dict", to=[]), "KeyError 'input_size'"),
    ],
)
def test_a_wrong_description_of_the_backbone_is_refused(tmp_path, image_model, change, message):
    header, tensors = read(image_model)
    change(header)
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


@pytest.mark.parametrize("name", ["hf-hub:someone/model", "local-dir:model", "../model", "a/b"])
def test_a_file_cannot_fetch_a_backbone_from_elsewhere(tmp_path, image_model, name):
    header, tensors = read(image_model)
    with_parameter(header, "backbone", name)
    header["backbone"]["name"] = name
    with pytest.raises(ValueError, match=f"names the backbone '{name}', which is none of timm's"):
        load_model(write(tmp_path, header, tensors))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("input_size", {"tuple": [3, 100_000, 100_000]}),
        ("input_size", {"tuple": [3, 0, 32]}),
        ("input_size", {"tuple": [1, 32, 32]}),
        ("mean", {"tuple": [0.5, 0.5]}),
        ("mean", {"tuple": [0.5, 0.5, "a"]}),
        ("std", {"tuple": [0.5, 0.0, 0.5]}),
        ("std", {"tuple": [0.5, float("nan"), 0.5]}),
        ("crop_pct", 1e-9),
        ("input_size", {"tuple": [3, 4096, 4097]}),
    ],
)
def test_images_cannot_be_prepared_in_an_absurd_way(tmp_path, image_model, key, value):
    header, tensors = read(image_model)
    config = header["backbone"]["data_config"]["dict"]
    header["backbone"]["data_config"]["dict"] = [
        [name, value if name == key else known] for name, known in config
    ]
    with pytest.raises(ValueError, match="images are prepared in an impossible way"):
        load_model(write(tmp_path, header, tensors))


def test_a_large_image_cannot_be_made_larger_by_its_crop(tmp_path, image_model):
    header, tensors = read(image_model)
    config = dict(header["backbone"]["data_config"]["dict"])
    config |= {"input_size": {"tuple": [3, 480, 480]}, "crop_pct": 0.1}
    header["backbone"]["data_config"]["dict"] = [*map(list, config.items())]
    with pytest.raises(ValueError, match="images are prepared in an impossible way"):
        load_model(write(tmp_path, header, tensors))


def test_a_file_does_not_choose_workers_or_bars(tmp_path, model):
    header, tensors = read(model)
    names = [name for name, _ in header["parameters"]["dict"]]
    assert not {"verbose", "hardware"} & set(names)
    with_parameter(header, "n_workers", 150)
    with_parameter(header, "verbose", 2)
    loaded = load_model(write(tmp_path, header, tensors))
    assert (loaded.hardware, loaded.verbose) == (None, 0)
    with_parameter(header, "hardware", {"dict": [["devices", 64]]})
    with pytest.raises(ValueError, match="it sets hardware, which no saved model does"):
        load_model(write(tmp_path, header, tensors))


def drop(tensors):
    del tensors["head.linear.bias"]


def add(tensors):
    tensors["head.other"] = torch.zeros(2)


def add_outside(tensors):
    tensors["other"] = torch.zeros(2)


def reshape(tensors):
    tensors["head.linear.bias"] = tensors["head.linear.bias"][:-1].clone()


def widen(tensors):
    tensors["feature_mean"] = torch.zeros(N_FEATURES + 1)


def halve(tensors):
    tensors["head.linear.bias"] = tensors["head.linear.bias"].half()


def as_integers(tensors):
    tensors["head.linear.weight"] = torch.zeros(
        tensors["head.linear.weight"].shape, dtype=torch.int64
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, r"missing \['head.linear.bias'\]"),
        (add, r"unexpected \['head.other'\]"),
        (add_outside, r"unexpected \['other'\]"),
        (reshape, r"of another kind \['head.linear.bias \(torch.float32, \(7,\)\) instead"),
        (widen, r"of another kind \['feature_mean"),
        (halve, r"of another kind \['head.linear.bias"),
        (as_integers, "holds no matrix head.linear.weight"),
        # Early releases of safetensors cannot read a file without tensors.
        (lambda tensors: tensors.clear(), "holds no matrix head.linear.weight|is damaged"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, model, change, message):
    header, tensors = read(model)
    change(tensors)
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("head.linear.weight", np.nan, "NaN or infinity in head.linear.weight"),
        ("head.linear.bias", np.inf, "NaN or infinity in head.linear.bias"),
        ("feature_mean", -np.inf, "NaN or infinity in feature_mean"),
        ("feature_scale", 0.0, "zero or less in feature_scale"),
        ("head.prior_weight", -1.0, "zero or less in head.prior_weight"),
        ("head.base_rate", 0.0, "zero or less in head.base_rate"),
        ("head.base_rate", 0.6, "cannot predict: base_rate must sum to one"),
        ("head.log_scale", 1e3, "predict NaN or infinity"),
    ],
)
def test_weights_that_cannot_predict_are_refused(tmp_path, model, name, value, message):
    header, tensors = read(model)
    tensors[name].view(-1)[0] = value
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


def test_the_priors_of_another_tree_are_refused(tmp_path, model):
    header, tensors = read(model)
    # As many leaves, decisions and branching nodes, but others have the three children.
    other = Taxonomy.from_nested(
        {"cat": {"big": ["lynx", "puma", "tiger"]}, "dog": ["fox", "wolf"], "other": None}
    )
    assert (other.n_leaves, other.n_decisions) == (TREE.n_leaves, TREE.n_decisions)
    header["taxonomy"] = other.to_json()
    with pytest.raises(ValueError, match="cannot predict: base_rate must sum to one"):
        load_model(write(tmp_path, header, tensors))


def test_declared_shapes_take_no_memory(tmp_path, model):
    header, tensors = read(model)
    shapes = {name: [0, *value.shape] for name, value in tensors.items()}
    for shape in ([0, 10**12], [10**12, 0], [10**6, 10**6]):
        path = write_raw(tmp_path, header, shapes | {"head.linear.weight": shape})
        with pytest.raises(ValueError, match=r"holds no matrix|is damaged"):
            load_model(path)


def test_a_taxonomy_larger_than_the_linear_layer_is_not_built(tmp_path, model):
    header, tensors = read(model)
    n_leaves = 300_000
    tree = {**json.loads(header["taxonomy"]), "level_names": None}
    tree |= {"names": list(range(n_leaves + 1)), "parents": [-1] + [0] * n_leaves}
    header["taxonomy"] = json.dumps(tree)
    path = write(tmp_path, header, tensors)
    tracemalloc.start()
    with pytest.raises(ValueError, match="taxonomy has 300000 leaves, its linear layer 8 outputs"):
        load_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The text and the numbers in it; a tree of this size takes ten times as much.
    assert peak < 20 * path.stat().st_size


def test_the_name_of_a_huge_backbone_takes_no_memory(tmp_path, image_model):
    resource = pytest.importorskip("resource")
    header, tensors = read(image_model)
    name = "vit_huge_patch14_224"  # 2.5 GB
    with_parameter(header, "backbone", name)
    header["backbone"]["name"] = name
    config = header["backbone"]["data_config"]["dict"]
    for pair in config:
        if pair[0] == "input_size":
            pair[1] = {"tuple": [3, 224, 224]}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"missing .*backbone\.model\.blocks"):
        load_model(write(tmp_path, header, tensors))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 500_000  # kB, or bytes on macOS, where this is stricter


# Fuzz --------------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5)
    | st.sampled_from([10**400, -(10**12), float("nan"), float("inf"), 1e308, -0.0])
    | st.sampled_from(["", "tuple", "dict", "head", "resnet50", "\x00", "\ud800", "A" * 2000])
    | st.sampled_from(sorted(MODEL_CLASSES)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tuple", "dict", "name", "loss"]), inner, max_size=2)
        | inner.map(lambda value: {"tuple": [value]})
        | inner.map(lambda value: {"dict": [["kl_weight", value]]})
    ),
    max_leaves=5,
)


def places(value, path=()):
    """Yield the path to every place inside nested JSON."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, (dict, list)):
            yield from places(child, (*path, key))


@st.composite
def mutations(draw, header):
    """A header with up to three places changed, taken out, doubled or swapped."""
    changed = copy.deepcopy(header)
    if changed["taxonomy"] is not None:
        changed["taxonomy"] = json.loads(changed["taxonomy"])
    for _ in range(draw(st.integers(1, 3))):
        *path, key = draw(st.sampled_from(list(places(changed))))
        holder = changed
        for step in path:
            holder = holder[step]
        what = draw(st.sampled_from(["replace", "replace", "remove", "copy"]))
        if what == "remove":
            del holder[key]
        elif what == "replace":
            holder[key] = draw(JSON_VALUES)
        else:
            *from_path, from_key = draw(st.sampled_from(list(places(changed))))
            source = changed
            for step in from_path:
                source = source[step]
            holder[key] = copy.deepcopy(source[from_key])
        if not changed:
            break
    if isinstance(changed.get("taxonomy"), dict):
        changed["taxonomy"] = json.dumps(changed["taxonomy"])
    return changed


def load_or_refuse(path, X):
    """Load a file; only our kind of error may come, and what loads must predict."""
    try:
        loaded = load_model(path)
    except ValueError as error:
        return str(error)
    assert np.isfinite(loaded.predict_log_proba(X)).all()
    return None


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_change_of_the_header_gets_past_the_checks(tmp_path, model, data):
    header, tensors = read(model)
    path = write(tmp_path, data.draw(mutations(header)), tensors)
    load_or_refuse(path, rows(2))


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_change_of_an_image_models_header_gets_past_the_checks(tmp_path, image_model, data):
    header, tensors = read(image_model)
    path = write(tmp_path, data.draw(mutations(header)), tensors)
    load_or_refuse(path, IMAGES[:1])


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_change_of_bytes_gets_past_the_checks(tmp_path, model, data):
    content = bytearray(model.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        stop = start + data.draw(st.integers(0, 8))
        content[start:stop] = data.draw(st.binary(max_size=8))
    path = tmp_path / "changed.safetensors"
    path.write_bytes(content)
    load_or_refuse(path, rows(2))
