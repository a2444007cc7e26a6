"""The card of a model file: it comes back as it was, and the model beside it is not touched."""

import json
import struct

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.datasets import load_iris

from skh2edl import H2EDLClassifier, load_model
from skh2edl.estimators.model_card import HeldOut, ModelCard, read_card, write_card
from skh2edl.estimators.model_files import save_model
from skh2edl.utils.files import write_atomically


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    X, y = load_iris(return_X_y=True)
    path = tmp_path_factory.mktemp("model") / "iris.safetensors"
    H2EDLClassifier(backbone=None).fit(X, y).save(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, content):
    (tmp_path / "iris.safetensors").write_bytes(content)
    return tmp_path / "iris.safetensors"


def test_a_model_without_a_card_has_an_empty_one(path):
    card = read_card(path)
    assert (card.needed.size, card.trained_on.size, card.notes) == (0, 0, {})


def test_a_card_comes_back_as_it_was(path):
    needed = np.sort(np.random.default_rng(0).random(500))
    hashes = np.array([3, 2**64 - 1, 7], dtype=np.uint64)
    notes = {"data": "Vögel, \U0001f426", "n": "5"}
    write_card(path, ModelCard(needed, hashes, hashes[:1], notes))
    card = read_card(path)
    assert (card.needed == needed).all()  # to the last bit: a rounded threshold breaks promises
    assert set(card.trained_on.tolist()) == set(hashes.tolist())
    assert card.calibrated_on.tolist() == [3]
    assert card.notes == notes
    assert card.held_out is None


def test_the_record_of_held_out_images_comes_back_and_an_older_card_has_none(path):
    scores = np.sort(np.random.default_rng(1).random((50, 3)))[:, ::-1]
    held = HeldOut(scores, np.arange(50) % 4)
    write_card(path, ModelCard(np.array([0.1, 0.2]), held_out=held))
    found = read_card(path).held_out
    assert (found.scores == scores).all()
    assert (found.n_right == np.arange(50) % 4).all()
    assert found.right_at_levels().tolist() == [37, 24, 12]
    tamper(path, drop="held_out")
    assert read_card(path).held_out is None


def test_the_model_is_the_same_with_and_without_a_card(path):
    X, _ = load_iris(return_X_y=True)
    before = load_model(path).predict_proba(X)
    write_card(path, ModelCard(notes={"a": "b"}))
    write_card(path, ModelCard(notes={"c": "d"}))
    assert (load_model(path).predict_proba(X) == before).all()
    with safe_open(path, "np") as file:
        assert set(file.metadata()) == {"skh2edl", "skh2edl_card"}
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert length % 8 == 0


def tamper(path, drop=None, **changes):
    write_card(path, ModelCard(np.array([0.1, 0.2])))
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    card = json.loads(header["__metadata__"]["skh2edl_card"]) | changes
    card.pop(drop, None)
    header["__metadata__"]["skh2edl_card"] = json.dumps(card)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out": {"scores": [[0.5, 0.2]], "n_right": [3]}}, "held-out images is damaged"),
        ({"held_out": {"scores": [[0.5, 0.2]], "n_right": [1, 1]}}, "held-out images is damaged"),
        ({"held_out": {"scores": [[0.5, 0.2]], "n_right": [0.5]}}, "held-out images is damaged"),
        ({"held_out": {"scores": [0.5], "n_right": [0]}}, "held-out images is damaged"),
        ({"held_out": {"scores": [[0.5], [0.1, 0.2]], "n_right": [0, 0]}}, "damaged"),
        ({"held_out": {"scores": [[-0.5]], "n_right": [0]}}, "held-out images is damaged"),
        ({"held_out": 3}, "damaged"),
        ({"format": 9}, "it has format 9, and this reads 1"),
        ({"needed": [0.2, 0.1]}, "no sorted list of numbers"),
        ({"needed": ["x"]}, "damaged"),
        ({"needed": [10**400]}, "damaged"),
        ({"trained_on": "%%%"}, "damaged"),
        ({"trained_on": "AAAA"}, "damaged"),
        ({"notes": {"a": 1}}, "not texts"),
        ({"notes": 3}, "damaged"),
        ({"extra": 1}, "it holds"),
    ],
)
def test_a_damaged_card_is_refused_and_named(path, changes, message):
    tamper(path, **changes)
    with pytest.raises(ValueError, match=message):
        read_card(path)


def test_what_is_no_model_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no model file"):
        read_card(tmp_path / "none.safetensors")
    (tmp_path / "x.safetensors").write_bytes(b"no model")
    with pytest.raises(ValueError, match="is not a safetensors file or is damaged"):
        read_card(tmp_path / "x.safetensors")


def test_a_file_stays_as_it_was_if_writing_fails(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_card(path, ModelCard(notes={"a": "b"}))
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_a_model_is_saved_with_its_card_in_one_write(tmp_path, monkeypatch):
    X, y = np.arange(12.0)[:, None], ["a", "b"] * 6
    clf = H2EDLClassifier(backbone=None, max_iter=3, tol=1).fit(X, y)
    written = []

    def write(path, fill):
        written.append(path)
        write_atomically(path, fill)

    monkeypatch.setattr("skh2edl.estimators.model_files.write_atomically", write)
    card = ModelCard(trained_on=np.array([7], dtype=np.uint64), notes={"data": "rows"})
    save_model(clf, tmp_path / "m.safetensors", card=card)
    assert written == [tmp_path / "m.safetensors"]
    found = read_card(tmp_path / "m.safetensors")
    assert (found.trained_on.tolist(), found.notes) == ([7], {"data": "rows"})
    assert (load_model(tmp_path / "m.safetensors").predict(X) == clf.predict(X)).all()
