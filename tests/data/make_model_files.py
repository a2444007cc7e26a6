"""Write small models of the present format and what they say.

    python tests/data/make_model_files.py

Run it for each release that changes the format or adds a class. Existing files stay: a release
reads what every release before it wrote.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

import skh2edl
from skh2edl import FlatCEClassifier, H2EDLClassifier, Taxonomy
from skh2edl.estimators.methods import MODEL_CLASSES
from skh2edl.estimators.model_files import FORMAT_OF_NETWORKS, FORMAT_VERSION, WRAPPERS, versions

TREE = Taxonomy.from_nested(
    {"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf", "dhole"], "other": None},
    level_names=("family", "genus", "species"),
)


def main(folder=Path(__file__).parent / "models"):
    torch.set_num_threads(1)
    networks = {
        name: kind(TREE, backbone=None, random_state=0) for name, kind in MODEL_CLASSES.items()
    }
    write(networks, Path(folder) / f"format_{FORMAT_OF_NETWORKS}")
    inside = H2EDLClassifier(TREE, backbone=None, random_state=0)
    more = {"HedgedClassifier": {"target_accuracy": 0.8}, "TreeEnsembleClassifier": {"n_jobs": 1}}
    others = {"OpinionClassifier": FlatCEClassifier(TREE, backbone=None, random_state=0)}
    wrappers = {
        name: getattr(skh2edl, name)(others.get(name, inside), **more.get(name, {}))
        for name in WRAPPERS
    }
    write(wrappers, Path(folder) / f"format_{FORMAT_VERSION}")


def write(models, out):
    """Fit and save models that have no file yet, and note what they say."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).round(3).astype(np.float32)
    labels = [*np.resize(TREE.leaves, 36), "cat", "dog", "big", "cat"]
    note = out / "expected.json"
    expected = {"X": X[:5].astype(float).tolist(), "log_proba": {}, "versions": versions()}
    if note.exists():
        expected = json.loads(note.read_text())
    for name, model in models.items():
        path = out / f"{name}.safetensors"
        if not path.exists():  # a file that was written once stays as it is
            clf = model.fit(X, labels)
            clf.save(path)
            expected["log_proba"][name] = clf.predict_log_proba(X[:5]).astype(float).tolist()
    note.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
