"""Heads compute in full precision whatever surrounds them; fits run in mixed precision."""

import numpy as np
import pytest
import torch

import skh2edl
from skh2edl import H2EDLClassifier, Hardware, ImageFeatureExtractor, Taxonomy
from skh2edl.estimators.h2edl import VARIANTS
from skh2edl.training.devices import full_precision

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma", "lion"], "dog": ["wolf", "fox"], "fish": None})
LABELS = np.array([*TREE.leaves, "cat", "dog", "root"] * 8)
FORMS = [
    (H2EDLClassifier, {}),
    *((H2EDLClassifier, VARIANTS[name]) for name in ("plain", "consistency")),
    *(
        (getattr(skh2edl, f"{name}Classifier"), {})
        for name in (
            "FlatCE",
            "HierCE",
            "FlatEDL",
            "HENN",
            "IEDL",
            "REDL",
            "ReEDL",
            "HXE",
            "SoftLabel",
        )
    ),
]


def rows(dtype=np.float32):
    return np.random.default_rng(0).normal(size=(len(LABELS), 40)).astype(dtype)


def identify(value):
    return value.__name__ if isinstance(value, type) else ",".join(map(str, value.values()))


@pytest.mark.parametrize(("method", "options"), FORMS, ids=identify)
@pytest.mark.parametrize("large_from", [0, 20_000], ids=["on the paths", "dense"])
def test_a_loss_is_the_same_inside_autocast(method, options, large_from, monkeypatch):
    monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", large_from)
    clf = method(TREE, backbone=None, solver="lbfgs", **options)
    head = clf.fit(rows(), LABELS).network_.head
    targets = head.prepare(TREE.resolve(LABELS))
    features = torch.from_numpy(rows()).requires_grad_()
    plain = head.loss(features, targets, 0.5)
    plain.sum().backward()
    gradient, features.grad = features.grad, None
    with torch.autocast("cpu", torch.bfloat16):
        mixed = head.loss(features, targets, 0.5)
    mixed.sum().backward()
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, plain, rtol=0, atol=0)
    torch.testing.assert_close(features.grad, gradient, rtol=0, atol=0)


@pytest.mark.parametrize(("method", "options"), FORMS, ids=identify)
def test_a_fit_runs_in_mixed_precision(method, options):
    def fitted(precision):
        clf = method(
            TREE,
            backbone=None,
            solver="adamw",
            hardware=Hardware(precision=precision),
            max_epochs=2,
            validation_fraction=None,
            random_state=0,
            **options,
        )
        return clf.fit(rows(), LABELS).history_["loss"]

    # The head is all there is here; bfloat16, which it does not compute in, has three digits.
    np.testing.assert_allclose(fitted("bf16-mixed"), fitted("32-true"), rtol=1e-5)


def test_a_fit_may_be_in_mixed_precision_and_predictions_are_in_single():
    images = np.random.default_rng(0).integers(0, 256, (len(LABELS), 32, 32, 3), dtype=np.uint8)
    clf = H2EDLClassifier(
        TREE,
        backbone="test_resnet",
        weights=None,
        image_size=32,
        finetune="head",
        hardware=Hardware(precision="bf16-mixed", n_workers=0),
        random_state=0,
    ).fit(images, LABELS)
    found = clf.predict_proba(images)
    # The same head on features of another fit, in single precision throughout.
    extractor = ImageFeatureExtractor(
        "test_resnet", weights=None, image_size=32, n_workers=0, precision="32-true"
    )
    extractor.fit(images)
    extractor.backbone_ = clf.network_.backbone
    rows = torch.from_numpy(extractor.transform(images))
    network = clf.network_
    with torch.inference_mode():
        leaves = network.head.leaf_log_probability(network.standardized(rows)).exp().numpy()
    np.testing.assert_allclose(found, leaves[:, TREE.leaf_order], atol=1e-7)


def test_tf32_is_off_while_any_thread_predicts_on_a_gpu_and_then_as_before():
    cudnn, gpu = torch.backends.cudnn, torch.device("cuda")
    before = cudnn.allow_tf32
    try:
        for was_on in (True, False):
            cudnn.allow_tf32 = was_on
            with full_precision(torch.device("cpu")):
                assert cudnn.allow_tf32 == was_on
            first, second = full_precision(gpu), full_precision(gpu)
            first.__enter__()
            second.__enter__()
            first.__exit__(None, None, None)  # threads leave in the order they came
            assert not cudnn.allow_tf32
            second.__exit__(None, None, None)
            assert cudnn.allow_tf32 == was_on
    finally:
        cudnn.allow_tf32 = before


def test_a_network_is_fine_tuned_in_mixed_precision():
    # Of images half as large, torch's own convolutions on a processor give gradients that are NaN.
    images = np.random.default_rng(0).integers(0, 256, (len(LABELS), 32, 32, 3), dtype=np.uint8)
    clf = H2EDLClassifier(
        TREE,
        backbone="test_resnet",
        weights=None,
        image_size=32,
        hardware=Hardware(precision="bf16-mixed"),
        max_epochs=1,
        validation_fraction=None,
        random_state=0,
    )
    assert np.isfinite(clf.fit(images, LABELS).history_["loss"]).all()
