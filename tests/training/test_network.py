"""The network is a plain module: its forward pass, what other tools do with it, its device."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from skh2edl import FlatCEClassifier, H2EDLClassifier, Hardware, ImageFeatureExtractor, Taxonomy
from skh2edl.training.devices import ACCELERATORS, find_device

# Tree order (lynx, puma, ant, bee) differs from the sorted order of the classes.
TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "insect": ["ant", "bee"]})
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
LABELS = np.array(TREE.leaves)[np.arange(16) % 4]
PIXELS = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)


@pytest.fixture(scope="module")
def trained():
    clf = H2EDLClassifier(
        TREE,
        backbone="test_resnet",
        weights=None,
        image_size=32,
        max_epochs=2,
        validation_fraction=None,
        random_state=0,
        hardware=Hardware(accelerator="cpu"),
    )
    return clf.fit(IMAGES, LABELS)


def normalised(network):
    return (PIXELS.float() - network.backbone.mean) / network.backbone.std


def test_a_forward_pass_gives_the_log_probabilities_of_the_classes(trained):
    with torch.no_grad():
        log_proba = trained.network_(PIXELS)
        of_floats = trained.network_(normalised(trained.network_))
    assert log_proba.numpy() == pytest.approx(trained.predict_log_proba(IMAGES), abs=1e-5)
    assert of_floats.numpy() == pytest.approx(log_proba.numpy(), abs=1e-5)
    assert torch.logsumexp(log_proba, 1).numpy() == pytest.approx(np.zeros(16), abs=1e-5)
    best = trained.classes_[log_proba.argmax(1).numpy()]
    assert best.tolist() == trained.predict(IMAGES).tolist()


def test_a_forward_pass_on_features_too():
    X = RNG.normal(size=(40, 3))
    clf = FlatCEClassifier(TREE, backbone=None).fit(X, np.array(TREE.leaves)[np.arange(40) % 4])
    with torch.no_grad():
        log_proba = clf.network_(torch.from_numpy(X))
    assert log_proba.numpy() == pytest.approx(clf.predict_log_proba(X))


def test_torch_exports_the_network(trained):
    program = torch.export.export(
        trained.network_, (PIXELS[:2],), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    with torch.no_grad():
        exported = program.module()(PIXELS)
    assert exported.numpy() == pytest.approx(trained.predict_log_proba(IMAGES), abs=1e-5)


def test_integrated_gradients_add_up_to_the_change_of_the_prediction(trained):
    """The axiom that defines the method, as Captum computes it: a midpoint rule on the path."""
    network, images = trained.network_.double(), None
    try:
        images = normalised(network).double()[:2]
        n_steps = 400
        total = torch.zeros_like(images)
        for step in range(n_steps):
            point = (images * (step + 0.5) / n_steps).requires_grad_()
            total += torch.autograd.grad(network(point)[:, 1].sum(), point)[0]
        attribution = (images * total / n_steps).sum((1, 2, 3))
        with torch.no_grad():
            change = network(images)[:, 1] - network(torch.zeros_like(images))[:, 1]
    finally:
        network.float()
    assert attribution.numpy() == pytest.approx(change.numpy(), rel=0.02)


def test_grad_cam_reads_a_layer_by_hooks(trained):
    """The weights of its maps are the gradient of the head by the pooled feature."""
    network, kept = trained.network_, {}
    layer = network.backbone.model.layer4
    handle = layer.register_forward_hook(lambda _, __, output: kept.update(maps=output))
    try:
        score = network(normalised(network)[:3].requires_grad_())[:, 2]
    finally:
        handle.remove()
    gradient = torch.autograd.grad(score.sum(), kept["maps"])[0]
    weights = gradient.mean((2, 3), keepdim=True)
    assert torch.relu((weights * kept["maps"]).sum(1)).shape == (3, *kept["maps"].shape[2:])
    # Pooling is a mean over places: every place has the same gradient, d score / d feature / n.
    features = kept["maps"].mean((2, 3)).detach().requires_grad_()
    head = network.head.leaf_log_probability(network.standardized(features))[:, network.leaf_order]
    expected = torch.autograd.grad(head[:, 2].sum(), features)[0]
    n_places = kept["maps"][0, 0].numel()
    assert (weights[:, :, 0, 0] * n_places).numpy() == pytest.approx(expected.numpy(), rel=1e-4)


def test_the_decision_function_ranks_as_the_probabilities(trained):
    scores = trained.decision_function(IMAGES)
    assert scores == pytest.approx(trained.predict_log_proba(IMAGES), abs=1e-6)


def test_the_decision_function_of_two_leaves_is_the_log_odds():
    X = RNG.normal(size=(40, 3))
    y = np.where(X[:, 0] > 0, "pos", "neg")
    clf = H2EDLClassifier(backbone=None).fit(X, y)
    odds = clf.decision_function(X)
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(clf.predict_proba(X)[:, 1])
    assert (np.where(odds > 0, "pos", "neg") == clf.predict(X)).all()


# Devices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("mps", [False, True])
def test_the_device_of_a_name(cuda, mps, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    best = "cuda" if cuda else "mps" if mps else "cpu"
    expected = {"auto": best, "gpu": best, "cpu": "cpu"}
    expected |= {"cuda": "cuda" if cuda else "cpu", "mps": "mps" if mps else "cpu"}
    assert {name: find_device(name).type for name in ACCELERATORS} == expected
    # Apple's devices do not compute in double precision.
    assert find_device("mps", torch.float64).type == "cpu"


def test_a_network_predicts_on_mps_where_there_is_one(trained, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    on_auto = H2EDLClassifier(backbone=None).fit(RNG.normal(size=(20, 2)), [0, 1] * 10)
    assert on_auto._device().type == "mps"
    # Fitted on double precision, so it predicts on the processor although MPS is there.
    assert on_auto.predict(RNG.normal(size=(4, 2))).shape == (4,)
    assert trained._device().type == "cpu"  # as its accelerator says


def test_single_precision_models_read_double_precision_features_as_single():
    X = RNG.normal(size=(40, 3))
    clf = H2EDLClassifier(backbone=None).fit(X.astype(np.float32), [0, 1] * 20)
    expected = clf.predict_proba(X.astype(np.float32))
    assert np.array_equal(clf.predict_proba(X), expected)


@pytest.mark.parametrize(
    "estimator",
    [
        H2EDLClassifier(backbone=None, hardware=Hardware(accelerator="gpuu")),
        ImageFeatureExtractor("test_resnet", weights=None, accelerator="gpuu"),
    ],
    ids=["classifier", "extractor"],
)
def test_a_misspelt_device_is_named_with_the_known_ones(estimator):
    X = IMAGES if isinstance(estimator, ImageFeatureExtractor) else [[0.0], [1.0]]
    with pytest.raises(ValueError, match=r"'accelerator'.*'mps'.*Got 'gpuu' instead"):
        estimator.fit(X, [0, 1] * (len(X) // 2))


# What is loaded ----------------------------------------------------------------------------------

_FIT = """
import sys
import numpy as np
import skh2edl
for name in skh2edl.__all__:
    getattr(skh2edl, name)
clf = skh2edl.H2EDLClassifier(backbone="test_resnet", weights=None, image_size=32, max_epochs=1,
                              validation_fraction=None)
X = np.zeros((4, 32, 32, 3), dtype=np.uint8)
clf.fit(X, ["a", "b"] * 2).predict(X)
print(sorted({"transformers", "torchmetrics", "open_clip"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_fit_does_not_load_transformers(tmp_path):
    """With stand-ins for the packages, which Lightning's and torchmetrics' imports would find."""
    for name in ("transformers", "open_clip"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("AutoModel = AutoTokenizer = None\n")
        (tmp_path / f"{name}-4.50.0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.50.0\n"
        (tmp_path / f"{name}-4.50.0.dist-info" / "METADATA").write_text(metadata)
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", path + _FIT], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == "[]"
