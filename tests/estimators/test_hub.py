"""Models on Hugging Face's hub, against a stand-in for its server."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import (
    H2EDLClassifier,
    HedgedClassifier,
    Taxonomy,
    from_pretrained,
    push_to_hub,
)
from skh2edl.estimators.hub import write_repository

TREE = Taxonomy.from_nested(
    {"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]}, level_names=("family", "species")
)
RNG = np.random.default_rng(0)
Y = np.array(TREE.leaves)[np.arange(80) % 4]
X = RNG.normal(size=(80, 4)) + np.eye(4)[np.arange(80) % 4]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder that stands for the hub."""

    class Api:
        def __init__(self, token=None):
            assert token == "secret"

        def create_repo(self, repo_id, *, private, exist_ok):
            assert exist_ok
            (tmp_path / repo_id).mkdir(parents=True, exist_ok=True)
            return SimpleNamespace(repo_id=repo_id)

        def upload_folder(self, *, repo_id, folder_path, revision, commit_message):
            assert commit_message
            shutil.copytree(folder_path, tmp_path / repo_id, dirs_exist_ok=True)
            return f"https://hub/{repo_id}/commit/1"

    def download(repo_id, filename, **options):
        assert options["token"] == "secret"
        return str(tmp_path / repo_id / filename)

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return tmp_path


@pytest.fixture(scope="module")
def hedge():
    classifier = H2EDLClassifier(TREE, backbone=None).fit(X, Y)
    return HedgedClassifier(FrozenEstimator(classifier), 0.8).fit(X, Y)


def test_a_model_comes_back_from_the_hub(server, hedge):
    url = push_to_hub(hedge, "me/planes", X, Y, token="secret")
    assert url == "https://hub/me/planes/commit/1"
    files = {path.name for path in (server / "me" / "planes").iterdir()}
    assert files == {"README.md", "config.json", "model.safetensors", "taxonomy.json"}
    for loaded in (
        from_pretrained("me/planes", token="secret"),
        from_pretrained(server / "me/planes"),
    ):
        assert isinstance(loaded, HedgedClassifier)
        np.testing.assert_array_equal(loaded.predict_proba(X), hedge.predict_proba(X))
    tree = Taxonomy.from_json((server / "me/planes/taxonomy.json").read_text())
    assert tree == TREE
    config = json.loads((server / "me/planes/config.json").read_text())
    assert config["class"] == "HedgedClassifier"


def test_the_card_has_the_metrics_of_every_level(server, hedge):
    push_to_hub(hedge, "me/planes", X, Y, token="secret")
    card = ModelCard.load(server / "me/planes/README.md")
    assert card.data.library_name == "skh2edl"
    assert 'from_pretrained("me/planes")' in card.text
    assert card.data.pipeline_tag == "tabular-classification"
    lines = [line.split(" | ") for line in card.text.splitlines() if line.startswith("| ")]
    rows = {line[0].strip("| "): line for line in lines}
    for level, truth in (
        ("species", Y),
        ("family", [TREE.ancestor(label, "family") for label in Y]),
    ):
        accuracy = accuracy_score(truth, hedge.predict_level(X, level))
        assert float(rows[level][3]) == pytest.approx(accuracy, abs=5e-4)


def test_a_card_without_test_data_says_so(server, hedge):
    push_to_hub(hedge, "me/planes", token="secret")
    assert "has no metrics" in Path(server / "me/planes/README.md").read_text()


def test_a_model_without_a_file_leaves_the_hub_alone(server):
    with pytest.raises(TypeError, match=r"H2EDLClassifier is not fitted.*Call fit first"):
        push_to_hub(H2EDLClassifier(TREE, backbone=None), "me/planes", token="secret")
    assert not list(server.iterdir())


def test_a_pipeline_is_written_with_the_taxonomy_of_its_classifier(tmp_path):
    pipeline = make_pipeline(StandardScaler(), H2EDLClassifier(TREE, backbone=None)).fit(X, Y)
    write_repository(pipeline, tmp_path, X, Y)
    assert Taxonomy.from_json((tmp_path / "taxonomy.json").read_text()) == TREE
    np.testing.assert_allclose(
        from_pretrained(tmp_path).predict_proba(X), pipeline.predict_proba(X), rtol=1e-9
    )
