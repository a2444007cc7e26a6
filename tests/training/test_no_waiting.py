"""A training step gives the device work and never waits for a result."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from skh2edl import H2EDLClassifier, Taxonomy
from skh2edl.estimators.methods import MODEL_CLASSES
from skh2edl.training.network import Network

TREE = Taxonomy.from_nested(
    {"cat": {"wild": ["lynx", "puma", "lion"], "tom": None}, "dog": ["pug", "husky"]}
)
# What makes a processor wait for a device: a number, a truth value, a length that depends on data.
WAITING = {
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "equal",
    "item",
    "masked_select",
    "repeat_interleave",
}


class Waits(TorchDispatchMode):
    """Notes the operations that would wait for another device."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        by_mask = "index" in name and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for index in (args[1] if isinstance(args[1], (list, tuple)) else ())
        )
        if name in WAITING or name.startswith(("unique", "_unique")) or by_mask:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


def test_the_counter_sees_what_waits():
    values = torch.arange(3.0)
    for look in (
        lambda: values.sum().item(),
        lambda: bool(values[0] > 0),
        lambda: values[values > 1],
        lambda: values.unique(),
        lambda: values.unique_consecutive(),
        lambda: torch.repeat_interleave(torch.tensor([1, 2])),
    ):
        with Waits() as waits:
            look()
        assert waits.seen


@pytest.mark.parametrize(
    ("method", "layer"),
    [
        *((method, "dense") for method in MODEL_CLASSES),
        *(
            (method, layer)
            for method in ("H2EDLClassifier", "HierCEClassifier")
            for layer in ("on the paths", "on the paths, sparse gradient")
        ),
    ],
)
def test_no_head_waits_in_a_step(method, layer, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 4)).astype(np.float32)
    y = np.array(TREE.labels(1 + np.arange(24) % (TREE.n_nodes - 1)))
    clf = MODEL_CLASSES[method](TREE, backbone=None, max_iter=3, tol=10.0).fit(X, y)
    network: Network = clf.network_.train()
    if layer != "dense":
        monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", 0)
        # As on another device, where weights are copied.
        monkeypatch.setattr("skh2edl.heads.large.paths._in_place", lambda _: False)
    network.head.sparse_gradient = "sparse" in layer
    prepared = network.head.prepare(TREE.resolve(y)).to(torch.device("cpu"))
    weight = torch.ones(24)
    with Waits() as waits:
        losses = network.loss(torch.from_numpy(X), prepared, 0.5)
        loss = (weight * losses).sum() / weight.sum().clamp(min=1e-12)
        loss.backward()
        if not network.head.sparse_gradient:
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0, error_if_nonfinite=False)
    assert network.head.linear.weight.grad.is_sparse == network.head.sparse_gradient
    assert waits.seen == []


def test_an_epoch_reads_its_losses_back_once_however_many_batches_it_has(monkeypatch):
    """Beside the losses, only the optimiser's own step counters, which live on the processor."""
    read_back = []
    original = torch.Tensor.cpu
    monkeypatch.setattr(
        torch.Tensor, "cpu", lambda self, *args: read_back.append(1) or original(self, *args)
    )
    counts = []
    for batch_size in (24, 4):
        read_back.clear()
        rng = np.random.default_rng(0)
        X = rng.normal(size=(24, 4)).astype(np.float32)
        y = np.array(TREE.leaves)[np.arange(24) % TREE.n_leaves]
        H2EDLClassifier(
            TREE,
            backbone=None,
            solver="adamw",
            max_epochs=2,
            batch_size=batch_size,
            validation_fraction=None,
            random_state=0,
        ).fit(X, y)
        counts.append(len(read_back))
    assert counts[0] == counts[1]
