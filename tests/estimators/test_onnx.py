"""ONNX models say in onnxruntime what the classifier says in torch, to 1e-5."""

import json
import sys

import numpy as np
import onnxruntime
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from skh2edl import (
    CalibratedTreeClassifier,
    ConformalTreeClassifier,
    DAEDLClassifier,
    FEDLClassifier,
    FlatEDLClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    HENNClassifier,
    HierCEClassifier,
    Taxonomy,
)
from skh2edl.estimators import onnx as export
from skh2edl.heads.softmax import SoftmaxTreeHead

# Chains at the top, inside and down to a leaf; leaves at two depths; a name that repeats.
TREE = Taxonomy.from_nested(
    {
        "life": {
            "cat": {"big": ["lynx", "puma", "other"]},
            "dog": ["fox", "other"],
            "fern": {"plain": {"bracken": None}},
        }
    }
)
N_FEATURES = 6
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def features(n_samples, dtype=np.float32):
    return np.random.default_rng(n_samples).normal(size=(n_samples, N_FEATURES)).astype(dtype)


def fitted(kind, dtype=np.float32, **parameters):
    rng = np.random.default_rng(0)
    labels = np.array([*TREE.leaves, "cat"])[rng.integers(0, TREE.n_leaves + 1, 60)]
    return kind(TREE, backbone=None, **parameters).fit(features(60, dtype), labels)


def session_of(classifier, folder):
    path = folder / "model.onnx"
    classifier.export_onnx(path)
    return onnxruntime.InferenceSession(path)


def run(session, inputs):
    (slot,) = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {slot.name: inputs}), strict=True))


@pytest.fixture(scope="module")
def opinions(tmp_path_factory):
    """An evidential classifier in float64, and its session."""
    classifier = fitted(H2EDLClassifier, np.float64)
    return classifier, session_of(classifier, tmp_path_factory.mktemp("opinions"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """An evidential classifier of images that never saw two of the leaves, and its session."""
    images = np.random.default_rng(0).integers(0, 256, (8, 40, 40, 3), dtype=np.uint8)
    classifier = H2EDLClassifier(
        TREE, backbone="test_resnet", weights=None, image_size=32, finetune="head", random_state=0
    ).fit(images, ["lynx", "puma", "fern", "puma"] * 2)
    return classifier, session_of(classifier, tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize("n_samples", [1, 5])
def test_probabilities_and_masses_are_those_of_the_opinion(opinions, n_samples):
    classifier, session = opinions
    X = features(n_samples)
    outputs = run(session, X)
    opinion = classifier.predict_hyper_opinion(X.astype(np.float64))
    np.testing.assert_allclose(
        outputs["class_probability"], classifier.predict_proba(X.astype(np.float64)), **TOLERANCE
    )
    np.testing.assert_allclose(outputs["node_probability"], opinion.node_probability, **TOLERANCE)
    np.testing.assert_allclose(outputs["vacuity"], opinion.vacuity, **TOLERANCE)
    np.testing.assert_allclose(outputs["mass"], opinion.mass, **TOLERANCE)
    assert {value.dtype for value in outputs.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("n_samples", [1, 5])
def test_an_image_model_takes_pixels_as_the_loader_gives_them(pictures, n_samples):
    classifier, session = pictures
    # Of the backbone's size already, so that the classifier neither resizes nor crops.
    images = np.random.default_rng(1).integers(0, 256, (n_samples, 32, 32, 3), dtype=np.uint8)
    outputs = run(session, np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    opinion = classifier.predict_hyper_opinion(images)
    expected = classifier.predict_proba(images)
    np.testing.assert_allclose(outputs["class_probability"], expected, **TOLERANCE)
    np.testing.assert_allclose(outputs["node_probability"], opinion.node_probability, **TOLERANCE)
    np.testing.assert_allclose(outputs["vacuity"], opinion.vacuity, **TOLERANCE)
    np.testing.assert_allclose(outputs["mass"], opinion.mass, **TOLERANCE)


def test_a_node_that_no_label_passed_through_is_vacuous_in_the_file_too(pictures):
    classifier, session = pictures
    outputs = run(session, np.zeros((1, 3, 32, 32), dtype=np.uint8))
    assert classifier.unsupervised_nodes_ == ["dog"]
    dog = TREE.branching.index(("life", "dog"))
    assert outputs["vacuity"][0, dog] == 1
    of_dogs = [TREE.leaves.index("fox"), TREE.leaves.index("life/dog/other")]
    assert (outputs["mass"][0, of_dogs] == 0).all()
    assert outputs["node_probability"][0, TREE.node("dog")] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HierCEClassifier, DAEDLClassifier, FEDLClassifier])
def test_other_methods_have_probabilities_of_every_node_and_no_opinion(tmp_path, kind):
    classifier = fitted(kind)
    X = features(5)
    outputs = run(session_of(classifier, tmp_path), X)
    assert list(outputs) == ["class_probability", "node_probability"]
    proba = classifier.predict_proba(X)
    np.testing.assert_allclose(outputs["class_probability"], proba, **TOLERANCE)
    in_tree_order = proba[:, np.argsort(TREE.leaf_order)]
    sums = [
        in_tree_order[:, start:stop].sum(axis=1)
        for start, stop in zip(TREE.leaf_start, TREE.leaf_stop, strict=True)
    ]
    np.testing.assert_allclose(outputs["node_probability"], np.transpose(sums), **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FlatEDLClassifier, HENNClassifier])
def test_one_opinion_on_all_leaves_has_the_root_as_its_last_mass(tmp_path, kind):
    classifier = fitted(kind)
    session = session_of(classifier, tmp_path)
    X = features(5)
    outputs = run(session, X)
    proba = classifier.predict_proba(X)
    np.testing.assert_allclose(outputs["class_probability"], proba, **TOLERANCE)
    belief, vacuity = classifier.predict_opinion(X)
    np.testing.assert_allclose(outputs["vacuity"], vacuity[:, None], **TOLERANCE)
    np.testing.assert_allclose(outputs["mass"][:, TREE.leaf_order], belief, **TOLERANCE)
    np.testing.assert_allclose(outputs["mass"].sum(axis=1), 1, **TOLERANCE)
    focal_sets = json.loads(session.get_modelmeta().custom_metadata_map["focal_sets"])
    assert focal_sets[-1] == []
    assert len(focal_sets) == outputs["mass"].shape[1]
    if kind is HENNClassifier:
        groups = outputs["mass"][:, TREE.n_leaves : -1]
        np.testing.assert_allclose(groups, classifier.predict_group_belief(X), **TOLERANCE)
        assert focal_sets[-3] == ["life", "dog"]


def test_metadata_name_the_columns(opinions):
    classifier, session = opinions
    raw = session.get_modelmeta().custom_metadata_map
    metadata = {key: json.loads(value) for key, value in raw.items() if not key.startswith("pkg.")}
    assert metadata["classes"] == classifier.classes_.tolist()
    assert Taxonomy.from_json(json.dumps(metadata["taxonomy"])) == TREE
    assert metadata["nodes"] == TREE.labels(np.arange(TREE.n_nodes))
    opinion = classifier.predict_hyper_opinion(features(1, np.float64))
    assert [
        tuple(item) if isinstance(item, list) else item for item in metadata["focal_sets"]
    ] == list(opinion.focal_sets)
    assert metadata["normalisation"] is None
    assert metadata["versions"].keys() == {"skh2edl", "torch", "timm", "scikit-learn"}


def test_metadata_say_how_images_are_prepared(pictures):
    classifier, session = pictures
    metadata = session.get_modelmeta().custom_metadata_map
    normalisation = json.loads(metadata["normalisation"])
    assert normalisation["input_size"] == [3, 32, 32]
    assert normalisation["mean"] == list(classifier.network_.backbone.data_config["mean"])
    (slot,) = session.get_inputs()
    assert (slot.name, slot.type, slot.shape[1:]) == ("images", "tensor(uint8)", [3, 32, 32])


def test_exporting_leaves_the_classifier_in_its_precision(opinions):
    classifier, _ = opinions
    assert classifier.predict_proba(features(3, np.float64)).dtype == np.float64


def test_a_classifier_that_is_not_fitted_cannot_be_exported(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        H2EDLClassifier(TREE, backbone=None).export_onnx(tmp_path / "model.onnx")


class FixedHead(SoftmaxTreeHead):
    def leaf_log_probability(self, features):
        # len() is a number to the exporter, which then takes every batch to be as long.
        return super().leaf_log_probability(features) + features.new_zeros(len(features), 1)


def test_a_network_that_fixes_the_number_of_samples_is_refused(tmp_path):
    classifier = fitted(HierCEClassifier)
    head = FixedHead(TREE, N_FEATURES, label_smoothing=0.0)
    head.load_state_dict(classifier.network_.head.state_dict())
    classifier.network_.head = head
    with pytest.raises(ValueError, match="fixes the number of samples at 2"):
        classifier.export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_model_beyond_the_limit_of_the_format_is_refused(tmp_path, monkeypatch, opinions):
    monkeypatch.setattr(export, "_MAX_BYTES", 100)
    with pytest.raises(ValueError, match=r"take \d+ bytes, and an ONNX file holds less than 2 GiB"):
        opinions[0].export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_package_the_error_names_the_extra(tmp_path, monkeypatch, opinions):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"pip install 'skh2edl\[onnx\]'"):
        opinions[0].export_onnx(tmp_path / "model.onnx")


# Wrappers ----------------------------------------------------------------------------------------


def calibrated(kind=H2EDLClassifier, **parameters):
    """Return a calibrated classifier, and labels that depend on the features."""
    X, noise = features(200, np.float64), features(201, np.float64)[1:]
    labels = np.array([*TREE.leaves], dtype=object)[(2 * X + noise).argmax(axis=1)]
    inner = kind(TREE, backbone=None).fit(X, labels)
    return CalibratedTreeClassifier(FrozenEstimator(inner), **parameters).fit(X, labels), labels


@pytest.mark.slow
@pytest.mark.parametrize("per_depth", [False, True])
def test_calibrated_evidence_is_a_part_of_the_model(tmp_path, per_depth):
    model, _ = calibrated(per_depth=per_depth)
    X = features(5)
    outputs = run(session_of(model, tmp_path), X)
    opinion = model.predict_hyper_opinion(X.astype(np.float64))
    probability = model.predict_proba(X.astype(np.float64))
    np.testing.assert_allclose(outputs["class_probability"], probability, **TOLERANCE)
    np.testing.assert_allclose(outputs["vacuity"], opinion.vacuity, **TOLERANCE)
    np.testing.assert_allclose(outputs["mass"], opinion.mass, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [H2EDLClassifier, HierCEClassifier])
def test_a_temperature_is_a_part_of_the_model_and_leaves_no_opinion(tmp_path, kind):
    model, _ = calibrated(kind=kind, method="temperature")
    X = features(5)
    outputs = run(session_of(model, tmp_path), X)
    probability = model.predict_proba(X.astype(np.float64))
    np.testing.assert_allclose(outputs["class_probability"], probability, **TOLERANCE)
    assert outputs.keys() == {"class_probability", "node_probability"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"target_accuracy": 0.9},
        {"target_accuracy": {1: 0.95, 2: 0.9, 4: 0.6}},
        {"target_accuracy": 0.8, "subtrees": ["cat", "dog"], "small_subtrees": "pool"},
    ],
)
def test_a_hedge_predicts_the_same_nodes(tmp_path, options):
    inner, labels = calibrated()
    X = features(200, np.float64)
    hedge = HedgedClassifier(FrozenEstimator(inner), **options).fit(X, labels)
    session = session_of(hedge, tmp_path)
    outputs = run(session, X.astype(np.float32))
    names = json.loads(session.get_modelmeta().custom_metadata_map["nodes"])
    expected = TREE.resolve(list(hedge.predict_frame(X)["node"]))
    assert outputs["prediction"].tolist() == expected.tolist()
    assert names[expected[0]] == TREE.labels(expected)[0]
    assert np.unique(expected).size > 2


def test_what_onnx_cannot_say_is_refused_with_the_way_out(tmp_path):
    inner, labels = calibrated()
    X, frozen = features(200, np.float64), FrozenEstimator(inner)
    darts = HedgedClassifier(frozen, 0.5, rule="darts").fit(X, labels)
    with pytest.raises(TypeError, match=r"rule='darts' cannot be written .* Use rule='climb'"):
        darts.export_onnx(tmp_path / "model.onnx")
    sets = ConformalTreeClassifier(frozen, 0.5).fit(X, labels)
    with pytest.raises(TypeError, match=r"ConformalTreeClassifier cannot be .* or use save"):
        sets.export_onnx(tmp_path / "model.onnx")
    flat = HierCEClassifier(backbone=None).fit(X[:, :3], TREE.resolve(labels))
    tree = Taxonomy.from_nested({"all": np.unique(TREE.resolve(labels)).tolist()})
    other = CalibratedTreeClassifier(FrozenEstimator(flat), taxonomy=tree)
    with pytest.raises(TypeError, match=r"another taxonomy than its estimator.*Give the estim"):
        other.fit(X[:, :3], TREE.resolve(labels)).export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
