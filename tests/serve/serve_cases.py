"""A small model of coloured pictures and a server of it, for the tests of the page and its API."""

import io
import json
import socket
import threading
import urllib.request
from types import SimpleNamespace

import numpy as np
from PIL import Image

from skh2edl import FlatCEClassifier, H2EDLClassifier, Hardware, HyperOpinion, Taxonomy
from skh2edl.decisions._record import record_held_out
from skh2edl.estimators.model_card import ModelCard, write_card
from skh2edl.report.predictions import Predictions
from skh2edl.serve import Limits
from skh2edl.serve.routes import build
from skh2edl.serve.server import Server
from skh2edl.serve.service import Service

# A name that would be a picture, and a script, if anybody took it for markup.
HOSTILE = "<img src=x onerror=document.title='owned'>"
TREE = Taxonomy.from_nested(
    {"warm": {"reds": ["red", "pink"], "yellow": None}, "cold": {"green": None, HOSTILE: None}}
)
COLOURS = {
    "red": (220, 40, 40),
    "pink": (220, 90, 140),
    "yellow": (220, 210, 60),
    "green": (40, 200, 60),
    HOSTILE: (40, 60, 200),
}
# With 99 images the threshold for a target of k percent is the k-th smallest: k / 100.
NEEDED = np.arange(1, 100) / 100


def pixels(label, seed=0, noise=25):
    """Draw a class, or a mixture of classes given as a tuple."""
    rng = np.random.default_rng(seed)
    names = label if isinstance(label, tuple) else (label,)
    colour = np.mean([COLOURS[name] for name in names], axis=0)
    return np.clip(rng.normal(colour, noise, size=(40, 40, 3)), 0, 255).astype(np.uint8)


def picture(label, seed=0, noise=25, kind="PNG"):
    """Return the content of an image file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels(label, seed, noise)).save(buffer, kind)
    return buffer.getvalue()


def held_out():
    """Draw pictures that are hard to tell apart, and their labels."""
    X = np.stack([pixels(label, seed, noise=120) for label in COLOURS for seed in range(50, 58)])
    return X, np.repeat(list(COLOURS), 8)


def write_model(path, make=H2EDLClassifier, needed=NEEDED):
    """Fit a small model and write it with a hedge, and with a record of held-out pictures."""
    X = np.stack([pixels(label, seed) for label in COLOURS for seed in range(6)])
    clf = make(
        TREE,
        backbone="test_resnet",
        weights=None,
        finetune="head",
        image_size=32,
        random_state=0,
        hardware=Hardware(n_workers=0),
    )
    clf.fit(X, np.repeat(list(COLOURS), 6)).save(path)
    held, labels = held_out()
    leaves = clf.predict_proba(held)[:, np.argsort(TREE.leaf_order)]
    record = record_held_out(leaves, TREE.resolve(labels), TREE) if needed.size else None
    write_card(path, ModelCard(needed=needed, notes={"data": "colours"}, held_out=record))
    return path


def write_baseline(path):
    return write_model(path, FlatCEClassifier, np.empty(0))


def large_tree():
    """10,000 leaves: 20 families of 50 genera of 10 species."""
    return Taxonomy.from_nested(
        {
            f"family {f}": {
                f"genus {f}.{g}": [f"species {f}.{g}.{s}" for s in range(10)] for g in range(50)
            }
            for f in range(20)
        }
    )


def large_app(monkeypatch):
    """Return an application whose model predicts 10,000 species by chance."""
    tree = large_tree()
    rng = np.random.default_rng(0)

    def read(estimator, source):
        evidence = rng.gamma(0.05, 20, size=(len(source), tree.n_decisions))
        opinion = HyperOpinion.from_evidence(tree, evidence)
        return Predictions(
            tree, opinion.leaf_probability, opinion, np.ones(len(source), dtype=bool)
        )

    monkeypatch.setattr("skh2edl.serve.service.read_predictions", read)
    backbone = SimpleNamespace(data_config={"input_size": (3, 32, 32), "crop_pct": 1.0})
    model = SimpleNamespace(
        taxonomy_=tree, predict_hyper_opinion=None, network_=SimpleNamespace(backbone=backbone)
    )
    return build(Service(model, ModelCard(), "species", Limits()), ["localhost"])


def send(url, content, **query):
    """Send one image to a running server, as a script would, and return its prediction."""
    text = "&".join(f"{name}={value}" for name, value in query.items())
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    request = urllib.request.Request(
        f"{url}api/predict?{text}",
        data=head + content + b"\r\n--x--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["predictions"][0]


class Running:
    """A server on a free port, in a thread of its own."""

    def __init__(self, app):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.server = Server(app)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.listener]}, daemon=True
        )

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.01)
            assert self.thread.is_alive(), "the server did not start"
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/"

    def __exit__(self, *exception):
        self.server.should_exit = True
        self.thread.join(60)
        self.listener.close()
