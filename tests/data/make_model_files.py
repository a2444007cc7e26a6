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

from skh2edl import Taxonomy
from skh2edl.estimators.methods import MODEL_CLASSES
from skh2edl.estimators.model_files import FORMAT_VERSION, versions

TREE = Taxonomy.from_nested(
    {"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf", "dhole"], "other": None},
    level_names=("family", "genus", "species"),
)


def main(folder=None):
    torch.set_num_threads(1)
    out = Path(folder or Path(__file__).parent / "models" / f"format_{FORMAT_VERSION}")
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).round(3).astype(np.float32)
    labels = [*np.resize(TREE.leaves, 36), "cat", "dog", "big", "cat"]
    note = out / "expected.json"
    expected = {"X": X[:5].astype(float).tolist(), "log_proba": {}, "versions": versions()}
    if note.exists():
        expected = json.loads(note.read_text())
    for name, kind in MODEL_CLASSES.items():
        path = out / f"{name}.safetensors"
        if not path.exists():  # a file that was written once stays as it is
            clf = kind(TREE, backbone=None, random_state=0).fit(X, labels)
            clf.save(path)
            expected["log_proba"][name] = clf.predict_log_proba(X[:5]).astype(float).tolist()
    note.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
