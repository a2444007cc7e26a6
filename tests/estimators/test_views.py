"""What a classifier can do beside predict, through pipelines and searches."""

import joblib
import numpy as np
import onnxruntime
import pytest
from hiclass import LocalClassifierPerNode, LocalClassifierPerParentNode
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import (
    CalibratedTreeClassifier,
    ConformalTreeClassifier,
    FlatCEClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    ImageFeatureExtractor,
    Taxonomy,
    TreeEnsembleClassifier,
    TreeView,
    load_model,
)

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "insect": ["ant", "bee"], "dog": None})
RNG = np.random.default_rng(0)
LABELS = np.array(TREE.leaves)[np.arange(100) % 5]
X = 3 + 5 * (RNG.normal(size=(100, 5)) + 2 * np.eye(5)[np.arange(100) % 5])
IMAGES = RNG.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
SCALED = StandardScaler().fit_transform(X)


def ours():
    return H2EDLClassifier(TREE, backbone=None)


def pipeline():
    return make_pipeline(StandardScaler(), ours())


SHAPES = {
    "pipeline": pipeline,
    "search": lambda: GridSearchCV(pipeline(), {"h2edlclassifier__l2": [0.01]}, cv=2),
    "pipeline of a search": lambda: make_pipeline(
        StandardScaler(), GridSearchCV(ours(), {"l2": [0.01]}, cv=2)
    ),
    "pipelines inside": lambda: Pipeline([("a", "passthrough"), ("b", pipeline())]),
    "frozen": lambda: FrozenEstimator(pipeline().fit(X, LABELS)),
}


@pytest.fixture(scope="module", params=SHAPES)
def fitted(request):
    return SHAPES[request.param]().fit(X, LABELS)


@pytest.fixture(scope="module")
def plain():
    return ours().fit(SCALED, LABELS)


def test_levels_and_opinions_are_those_of_the_classifier(fitted, plain):
    view = TreeView(fitted)
    assert view.predict_level(X, 1).tolist() == plain.predict_level(SCALED, 1).tolist()
    assert view.predict_proba_level(X, 1) == pytest.approx(plain.predict_proba_level(SCALED, 1))
    assert view.predict(X).tolist() == plain.predict(SCALED).tolist()
    assert view.predict_log_proba(X) == pytest.approx(plain.predict_log_proba(SCALED))
    expected = plain.predict_hyper_opinion(SCALED)
    assert view.predict_hyper_opinion(X).mass == pytest.approx(expected.mass)


@pytest.mark.slow
def test_files_hold_the_steps_before_the_classifier(fitted, plain, tmp_path):
    view = TreeView(fitted)
    view.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    # The loaded model reads X as it is: the scaler is a part of the network.
    assert loaded.predict_proba(X) == pytest.approx(plain.predict_proba(SCALED))
    view.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    proba = session.run(["class_probability"], {"features": X.astype(np.float32)})[0]
    assert proba == pytest.approx(plain.predict_proba(SCALED), abs=1e-4)


@pytest.mark.slow
def test_an_extractor_becomes_the_backbone_of_the_file(tmp_path):
    labels = LABELS[:20]
    extractor = ImageFeatureExtractor("test_resnet", weights=None, image_size=32, random_state=3)
    fitted = make_pipeline(extractor, StandardScaler(with_mean=False), ours()).fit(IMAGES, labels)
    TreeView(fitted).save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.backbone == "test_resnet"
    assert loaded.predict_proba(IMAGES) == pytest.approx(fitted.predict_proba(IMAGES), abs=1e-4)
    TreeView(fitted).export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    pixels = IMAGES.transpose(0, 3, 1, 2).copy()
    proba = session.run(["class_probability"], {"images": pixels})[0]
    assert proba == pytest.approx(fitted.predict_proba(IMAGES), abs=1e-4)
    # The pipeline itself is as it was.
    assert fitted[-1].backbone is None
    assert fitted[-1].n_features_in_ == 96


def test_steps_that_no_file_can_hold_are_named(tmp_path):
    fitted = make_pipeline(StandardScaler(), PCA(3), ours()).fit(X, LABELS)
    with pytest.raises(TypeError, match=r"step 'pca' \(PCA\) cannot become .* joblib\.dump"):
        TreeView(fitted).save(tmp_path / "model.safetensors")
    # The remedy.
    joblib.dump(fitted, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    other = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS)
    with pytest.raises(TypeError, match="LogisticRegression is not a classifier of this package"):
        TreeView(other).save(tmp_path / "model.safetensors")


def test_a_view_of_a_flat_classifier_has_levels_and_no_opinions():
    flat = make_pipeline(StandardScaler(), FlatCEClassifier(TREE, backbone=None))
    view = TreeView(flat.fit(X, LABELS))
    assert not hasattr(view, "predict_hyper_opinion")
    assert set(view.predict_level(X, 1)) <= {"cat", "insect", "dog"}


@pytest.mark.parametrize("shape", ["pipeline", "search"])
def test_wrappers_treat_a_pipeline_as_its_classifier(shape):
    inner = SHAPES[shape]()
    calibrated = CalibratedTreeClassifier(inner, cv=3).fit(X, LABELS)
    assert calibrated.method_ == "evidence"
    assert calibrated.predict_hyper_opinion(X).taxonomy == TREE
    ensemble = TreeEnsembleClassifier(inner, 2, how="opinions", bootstrap=True, random_state=0).fit(
        X, LABELS
    )
    members = [
        TreeView(member).predict_hyper_opinion(X).evidence for member in ensemble.estimators_
    ]
    found = ensemble.predict_hyper_opinion(X).evidence
    assert found == pytest.approx(np.mean(members, axis=0))
    for wrapper in (HedgedClassifier, ConformalTreeClassifier):
        wrapped = wrapper(FrozenEstimator(SHAPES[shape]().fit(X, LABELS))).fit(X, LABELS)
        assert wrapped.taxonomy_ == TREE
        assert wrapped.predict_hyper_opinion(X).mass.shape == (100, 8)


# hiclass -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LocalClassifierPerParentNode, LocalClassifierPerNode])
@pytest.mark.parametrize(
    "wrapper", [CalibratedTreeClassifier, HedgedClassifier, TreeEnsembleClassifier]
)
def test_hiclass_is_refused_before_it_is_fitted(kind, wrapper):
    with pytest.raises(TypeError, match=r"of hiclass gives no probabilities .* Use HierCEClass"):
        wrapper(kind(LogisticRegression()), taxonomy=TREE).fit(X, LABELS)
    inside = make_pipeline(StandardScaler(), kind(LogisticRegression()))
    with pytest.raises(TypeError, match="of hiclass gives no probabilities"):
        wrapper(inside, taxonomy=TREE).fit(X, LABELS)


def test_a_fitted_model_of_hiclass_is_refused_too():
    paths = np.stack([np.char.add("group of ", LABELS), LABELS], axis=1)
    fitted = LocalClassifierPerParentNode(LogisticRegression()).fit(X, paths)
    with pytest.raises(TypeError, match="of hiclass gives no probabilities"):
        HedgedClassifier(FrozenEstimator(fitted), taxonomy=TREE).fit(X, LABELS)
