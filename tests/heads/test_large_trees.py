"""Fits and predictions of a tree that is too large for a dense layer in every step."""

import numpy as np
import pytest
import torch

from skh2edl import H2EDLClassifier, Hardware, HierCEClassifier, Taxonomy, load_model
from skh2edl.training.checkpoints import CheckpointFile
from skh2edl.training.sparse_adamw import SparseAdamW, clip_gradients

N_TOP = 30
TREE = Taxonomy.from_nested({f"g{a}": [f"g{a}s{b}" for b in range(6)] for a in range(N_TOP)})


@pytest.fixture
def as_if_large(monkeypatch):
    monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", 1)
    monkeypatch.setattr("skh2edl.estimators.base._MAX_WEIGHTS_OF_LBFGS", 1)


def clouds(n_classes=12, n_each=12):
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 3, (n_classes, 8))
    y = np.repeat(TREE.leaves[:n_classes], n_each)
    return centres.repeat(n_each, axis=0) + rng.normal(size=(y.size, 8)), y


@pytest.mark.parametrize("make", [H2EDLClassifier, HierCEClassifier])
def test_a_large_tree_is_learnt_on_the_paths_and_searched(as_if_large, make, tmp_path):
    X, y = clouds()
    clf = make(
        TREE,
        backbone=None,
        max_epochs=30,
        learning_rate=0.05,
        validation_fraction=None,
        random_state=0,
    ).fit(X, y)
    assert clf.network_.head.sparse_gradient
    # Never passed by a sample, never moved: the weights of the groups from "g2" on.
    untouched = TREE.last_decision[TREE.resolve([f"g9s{b}" for b in range(6)])]
    assert not clf.network_.head.linear.weight[untouched].any()
    proba = clf.predict_proba(X)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[proba.argmax(1)])
    # One of twelve classes is right by chance; three times that is beyond any luck with 144.
    assert clf.score(X, y) > 3 / 12
    labels, best = clf.predict_top_k(X, 3)
    np.testing.assert_allclose(best, -np.sort(-proba, axis=1)[:, :3], rtol=1e-4)
    np.testing.assert_array_equal(labels[:, 0], clf.predict(X))
    clf.save(tmp_path / "large.safetensors")
    again = load_model(tmp_path / "large.safetensors")
    np.testing.assert_array_equal(again.predict_top_k(X, 3)[0], labels)


def test_top_k_of_a_small_tree_are_the_columns_of_the_largest_probabilities():
    X, y = clouds()
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, y)
    proba = clf.predict_proba(X)
    labels, best = clf.predict_top_k(X, 2)
    np.testing.assert_array_equal(labels[:, 0], clf.predict(X))
    np.testing.assert_array_equal(best, -np.sort(-proba, axis=1)[:, :2])


@pytest.mark.parametrize("k", [0, 181, 1.5])
def test_an_impossible_k_is_refused(k):
    X, y = clouds()
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, y)
    with pytest.raises(ValueError, match="k must be a whole number from 1 to 180"):
        clf.predict_top_k(X, k)


def test_an_interrupted_fit_of_a_large_tree_resumes_with_the_same_bits(
    as_if_large, monkeypatch, tmp_path
):
    X, y = clouds()
    options = {"backbone": None, "validation_fraction": None, "random_state": 0, "max_epochs": 4}
    whole = H2EDLClassifier(TREE, **options).fit(X, y)
    written = []

    def save_and_stop(self, state):
        save(self, state)
        written.append(state)
        if len(written) == 2:
            raise KeyboardInterrupt

    save = CheckpointFile.save
    monkeypatch.setattr(CheckpointFile, "save", save_and_stop)
    clf = H2EDLClassifier(TREE, hardware=Hardware(checkpoint_dir=tmp_path), **options)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X, y)
    clf.fit(X, y)
    assert len(written) == 4
    assert torch.equal(clf.network_.head.linear.weight, whole.network_.head.linear.weight)


def test_a_checkpoint_of_rows_is_not_taken_for_one_of_whole_steps(
    as_if_large, monkeypatch, tmp_path
):
    X, y = clouds()
    options = {"backbone": None, "validation_fraction": None, "random_state": 0, "max_epochs": 1}
    clf = H2EDLClassifier(TREE, hardware=Hardware(checkpoint_dir=tmp_path), **options).fit(X, y)
    # As several processes do, which exchange whole gradients.
    monkeypatch.setattr("skh2edl.training.loop._has_sparse_gradient", lambda *args: False)
    with pytest.raises(
        ValueError, match="belongs to the other kind: resume it with as many devices"
    ):
        clf.fit(X, y)


def by_rows(values):
    index = torch.arange(len(values))[None]
    return torch.sparse_coo_tensor(index, values.clone(), values.shape, check_invariants=True)


def test_where_every_row_has_a_gradient_the_steps_are_those_of_adamw():
    rng = np.random.default_rng(0)
    start = torch.from_numpy(rng.normal(size=(5, 3)))
    dense, rows = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    bias = torch.nn.Parameter(torch.zeros(1))
    adamw = torch.optim.AdamW([dense], lr=0.1, weight_decay=0.2)
    ours = SparseAdamW(torch.optim.AdamW([bias]), rows, lr=0.1, weight_decay=0.2)
    for _ in range(5):
        gradient = torch.from_numpy(rng.normal(size=(5, 3)))
        dense.grad = gradient.clone()
        rows.grad = by_rows(gradient)
        adamw.step()
        ours.step()
    torch.testing.assert_close(rows, dense, rtol=1e-6, atol=1e-6)


def test_gradients_of_rows_are_clipped_as_torch_clips_dense_ones():
    rng = np.random.default_rng(0)
    whole, part = (torch.from_numpy(rng.normal(size=(4, 3))) for _ in range(2))
    expected = [torch.nn.Parameter(torch.zeros(4, 3)) for _ in range(2)]
    ours = [torch.nn.Parameter(torch.zeros(4, 3, dtype=torch.float64)) for _ in range(2)]
    for parameters in (expected, ours):
        for parameter in parameters:
            parameter.data = parameter.data.double()
    expected[0].grad, expected[1].grad = whole.clone(), part.clone()
    ours[0].grad = whole.clone()
    ours[1].grad = by_rows(part)
    torch.nn.utils.clip_grad_norm_(expected, 0.5)
    clip_gradients(ours, 0.5)
    torch.testing.assert_close(ours[0].grad, expected[0].grad)
    torch.testing.assert_close(ours[1].grad.to_dense(), expected[1].grad)


@pytest.mark.parametrize("n_features", [8, 256])
def test_a_wide_tree_whose_weights_are_mostly_needed_is_fitted_on_its_paths(
    n_features, monkeypatch
):
    monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", 1)
    tree = Taxonomy.from_nested({f"{a}": [f"{a}-{b}" for b in range(71)] for a in range(71)})
    rng = np.random.default_rng(0)
    y = np.array(tree.leaves)[rng.integers(0, tree.n_leaves, 128)]
    clf = H2EDLClassifier(
        tree,
        backbone=None,
        solver="adamw",
        kl_ramp=0.0,  # both epochs have one objective
        max_epochs=2,
        validation_fraction=None,
        random_state=0,
    )
    X = rng.normal(size=(128, n_features)).astype(np.float32)
    first, last = clf.fit(X, y).history_["loss"]
    assert last < first
