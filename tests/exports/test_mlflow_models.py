"""A model in MLflow's form predicts what the model does, and holds no pickle."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.frozen import FrozenEstimator

from skh2edl import FlatCEClassifier, H2EDLClassifier, HedgedClassifier, Taxonomy
from skh2edl.exports import log_to_mlflow

pytestmark = pytest.mark.filterwarnings("default")  # importing mlflow warns

TREE = Taxonomy.from_nested(
    {"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]}, level_names=("family", "species")
)
RNG = np.random.default_rng(0)
Y = np.array(TREE.leaves)[np.arange(80) % 4]
X = RNG.normal(size=(80, 4)) + np.eye(4)[np.arange(80) % 4]


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    return mlflow


def test_a_hedge_comes_back_from_mlflow_without_pickle(mlflow, tmp_path):
    classifier = H2EDLClassifier(TREE, backbone=None).fit(X, Y)
    hedge = HedgedClassifier(FrozenEstimator(classifier), 0.8).fit(X, Y)
    info = log_to_mlflow(hedge, "cats")
    found = mlflow.pyfunc.load_model(info.model_uri).predict(pd.DataFrame(X))
    assert list(found.columns) == ["family", "species", "score", "rank"]
    labels = [row.species or row.family or "root" for row in found.itertuples()]
    assert labels == hedge.predict(X).tolist()
    assert {"species", "family"} <= set(found["rank"])
    files = [path.name for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert "model.safetensors" in files
    assert not [name for name in files if name.endswith((".pkl", ".pickle"))]


def test_images_are_a_column_of_the_contents_of_files(mlflow):
    images = RNG.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    classifier = FlatCEClassifier(
        TREE, backbone="test_resnet", weights=None, image_size=32, finetune="head"
    ).fit(images, Y[:8])
    contents = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        contents.append(file.getvalue())
    loaded = mlflow.pyfunc.load_model(log_to_mlflow(classifier).model_uri)
    found = loaded.predict(pd.DataFrame({"image": contents}))
    assert found["species"].tolist() == classifier.predict(images).tolist()
    expected = classifier.predict_proba(images).max(axis=1)
    np.testing.assert_allclose(found["score"], expected, atol=1e-6)
