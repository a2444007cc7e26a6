"""Model files of every released format load, and say what they said when they were written."""

import json
from pathlib import Path

import joblib
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from skh2edl import H2EDLClassifier, Hardware, Prior, Taxonomy, load_model
from skh2edl.estimators.methods import MODEL_CLASSES
from skh2edl.estimators.model_files import FORMAT_OF_NETWORKS, FORMAT_VERSION, WRAPPERS

MODELS = Path(__file__).parents[1] / "data" / "models"
PICKLES = MODELS / "pickles"
FILES = sorted(MODELS.glob("format_*/*.safetensors"))
# Its siblings share weights, which no later release does.
NESTED = MODELS / "format_1" / "H2EDLClassifier.safetensors"


def test_every_format_and_every_class_has_a_file():
    folders = {path.parent.name for path in FILES}
    assert folders == {f"format_{number}" for number in range(1, FORMAT_VERSION + 1)}
    for number, classes in ((FORMAT_OF_NETWORKS, MODEL_CLASSES), (FORMAT_VERSION, WRAPPERS)):
        written = {path.stem for path in FILES if path.parent.name == f"format_{number}"}
        assert written == set(classes)


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path != NESTED],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_model_file_says_what_it_said_when_it_was_written(path):
    expected = json.loads((path.parent / "expected.json").read_text())
    X = np.array(expected["X"], dtype=np.float32)
    clf = load_model(path)
    assert type(clf).__name__ == path.stem
    assert clf.taxonomy_.level_names == ("family", "genus", "species")
    # The last bits belong to the processor.
    np.testing.assert_allclose(
        clf.predict_log_proba(X), expected["log_proba"][path.stem], rtol=1e-5, atol=1e-5
    )


def test_a_file_with_shared_weights_is_refused_with_the_reason():
    message = r"'nested'.*Fit the model again"
    with pytest.raises(ValueError, match=message):
        load_model(NESTED)


def test_a_newer_format_is_refused_with_its_version(tmp_path):
    with safe_open(FILES[0], framework="pt") as file:
        header = json.loads(file.metadata()["skh2edl"])
    header |= {"format_version": FORMAT_VERSION + 1, "versions": {"skh2edl": "99.1"}}
    newer = tmp_path / "newer.safetensors"
    save_file(load_file(FILES[0]), newer, metadata={"skh2edl": json.dumps(header)})
    message = f"has model format {FORMAT_VERSION + 1}, and this release reads .*'99.1'"
    with pytest.raises(ValueError, match=message):
        load_model(newer)


@pytest.mark.parametrize("path", sorted(PICKLES.glob("*.joblib")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
def test_a_pickle_with_the_old_names_of_modules_loads(path):
    expected = json.loads((PICKLES / "expected.json").read_text())
    model = joblib.load(path)
    log_proba = model.predict_log_proba(np.array(expected["X"], dtype=np.float32))
    np.testing.assert_allclose(log_proba, expected["log_proba"][path.stem], rtol=1e-4, atol=1e-5)


def test_parameters_of_earlier_releases_are_in_their_groups():
    """A base rate, a weight and workers as the releases before wrote them, in file and pickle."""
    clf = H2EDLClassifier(Taxonomy.flat(["a", "b"]), backbone=None)
    clf.fit([[0.0], [1.0], [2.0]], ["a", "a", "b"])
    state = clf.__getstate__()
    now = ("prior", "hardware")
    old = {"base_rate_power": 0.5, "prior_weight": 2.0, "n_workers": 3, "memory": "cache"}
    before = {name: value for name, value in state.items() if name not in now} | old
    before["_fitted_with"] = {"evidence": "softplus", "base_rate_power": 0.5, "prior_weight": 2.0}
    loaded = H2EDLClassifier.__new__(H2EDLClassifier)
    loaded.__setstate__(before)
    assert loaded.prior == Prior(power=0.5, weight=2.0)
    assert loaded.hardware == Hardware(n_workers=3, memory="cache")
    assert not old.keys() & vars(loaded).keys()
    loaded.partial_fit([[0.0]], ["a"])  # its prior is the one it was fitted with
    with pytest.raises(ValueError, match=r"prior changed since the last fit"):
        loaded.set_params(prior__weight=3.0).partial_fit([[0.0]], ["a"])
