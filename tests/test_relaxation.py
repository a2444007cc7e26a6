"""The length of rows, found once more with less of the penalty."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.datasets import load_iris

from skh2edl import FlatCEClassifier, H2EDLClassifier, HierCEClassifier, Taxonomy
from skh2edl.heads import SoftmaxHead
from skh2edl.opinion_head import OpinionTreeHead
from skh2edl.relaxation import relax_rows

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"], "bear": None})


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 80)
    X = rng.normal(size=(5, 7))[y] + 1.5 * rng.normal(size=(80, 7))
    return X, y


def cross_entropy_by_hand(X, y, weights, rows, length, bias):
    scores = log_softmax(length * X @ rows.T + bias, axis=1)
    return -np.average(scores[np.arange(len(y)), y], weights=weights)


@pytest.mark.parametrize("n_samples", [np.inf, 3.0])  # with biases that are free, and that cost
@pytest.mark.parametrize("n_features", [7, 3])  # more than rows, and fewer
def test_length_and_biases_are_those_of_scipy(samples, n_features, n_samples):
    X, y = samples[0][:, :n_features], samples[1]
    weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    rows = 0.3 * np.random.default_rng(2).normal(size=(5, n_features)) + np.stack(
        [X[y == k].mean(0) for k in range(5)]
    )
    squares = 0.05 * np.square(rows).sum()

    def objective(at):
        loss = cross_entropy_by_hand(X, y, weights, rows, at[0], at[1:])
        # What all biases have in common is free.
        price = np.square(at[1:] - at[1:].mean()).sum() / (4 * n_samples)
        return loss + squares * at[0] ** 2 / 2 + price / 2

    expected = minimize(objective, np.r_[1.0, np.zeros(5)], options={"gtol": 1e-9}).x

    tree = Taxonomy.flat(list("abcde"))
    head = SoftmaxHead(tree, n_features).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(rows))
    share = torch.from_numpy(weights / weights.sum())
    targets = head.prepare(tree.leaf_nodes[y])
    length = relax_rows(head, torch.from_numpy(X), targets, share, squares, n_samples)
    assert length == pytest.approx(expected[0], rel=1e-3)
    np.testing.assert_allclose(head.linear.weight.detach(), length * rows, rtol=1e-12)
    bias = head.linear.bias.detach().numpy()
    # A softmax does not tell what all biases have in common.
    np.testing.assert_allclose(bias - bias.mean(), expected[1:] - expected[1:].mean(), atol=1e-2)


@pytest.mark.parametrize("read_out", ["nested", "nodes"])
def test_an_opinion_is_no_worse_with_less_penalty_and_turns_nowhere(samples, read_out):
    X, y = samples
    labels = np.array(TREE.leaves)[y]
    clf = H2EDLClassifier(
        TREE, backbone=None, read_out=read_out, l2=0.3, l2_shape="uniform", l2_metric="identity"
    )
    short = clf.set_params(l2_relaxation=1.0).fit(X, labels)
    before = short.network_.head
    long = H2EDLClassifier(**{**clf.get_params(), "l2_relaxation": 0.1}).fit(X, labels)
    after = long.network_.head
    rows = before.linear.weight.detach().flatten(), after.linear.weight.detach().flatten()
    length = float(rows[1].norm() / rows[0].norm())
    assert length > 1.05
    torch.testing.assert_close(rows[1], length * rows[0], rtol=1e-4, atol=1e-6)

    def objective(head):
        with torch.no_grad():
            features = short.network_.standardized(torch.from_numpy(X))
            loss = head.loss(features, head.prepare(TREE.resolve(labels)), np.inf).mean()
            return float(loss + 0.1 * 0.3 * head.linear.weight.square().sum() / 2)

    assert objective(after) < objective(before)


def test_the_whole_penalty_is_the_fit_as_it_was():
    X, y = load_iris(return_X_y=True)
    plain = HierCEClassifier(backbone=None, l2=0.1).fit(X, y)
    whole = HierCEClassifier(backbone=None, l2=0.1, l2_relaxation=1.0).fit(X, y)
    np.testing.assert_array_equal(whole.predict_proba(X), plain.predict_proba(X))
    relaxed = HierCEClassifier(backbone=None, l2=0.1, l2_relaxation=0.01).fit(X, y)
    assert relaxed.predict_proba(X).max(1).mean() > plain.predict_proba(X).max(1).mean() + 0.05


def test_where_samples_are_many_rows_are_as_long_as_they_were():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    X = rng.normal(size=(20_000, 3)) + y[:, None]
    one, other = (
        FlatCEClassifier(backbone=None, l2=1e-5, l2_relaxation=part, tol=1e-6).fit(X, y)
        for part in (1.0, 0.04)
    )
    ratio = other.network_.head.linear.weight / one.network_.head.linear.weight
    np.testing.assert_allclose(ratio.detach(), 1.0, atol=0.01)


def test_after_an_interruption_the_head_is_what_it_was(samples, monkeypatch):
    X, y = samples
    head = OpinionTreeHead(TREE, 7, np.array([1 / 3] * 3 + [1 / 2] * 4), np.ones(3), np.ones(3))
    torch.nn.init.normal_(head.linear.weight, generator=torch.Generator().manual_seed(0))
    linear, state = head.linear, {name: each.clone() for name, each in head.state_dict().items()}

    def interrupt(objective, start, **options):
        objective(start + 1)
        raise KeyboardInterrupt

    monkeypatch.setattr("skh2edl.relaxation.minimize", interrupt)
    targets = head.prepare(TREE.leaf_nodes[y])
    with pytest.raises(KeyboardInterrupt):
        relax_rows(
            head, torch.from_numpy(X).float(), targets, torch.full((80,), 1 / 80, dtype=float), 0.1
        )
    assert head.linear is linear
    for name, value in head.state_dict().items():
        torch.testing.assert_close(value, state[name], rtol=0, atol=0)


def test_a_fit_that_goes_on_ends_where_it_ended(samples):
    X, y = samples
    labels = np.array(TREE.leaves)[y]
    clf = H2EDLClassifier(TREE, backbone=None, warm_start=True, tol=1e-4)
    first = clf.fit(X, labels).predict_proba(X)
    assert clf.n_iter_ > 20
    for _ in range(3):
        np.testing.assert_allclose(clf.fit(X, labels).predict_proba(X), first, atol=1e-3)
        # Shortened first, so that there is nothing left to do but the length.
        assert clf.n_iter_ == 1


@pytest.mark.parametrize("labels", [["lynx", "fox"], ["cat", "dog"]])
def test_a_fit_that_goes_on_may_lack_classes(samples, labels):
    X = samples[0]
    y = np.array(labels)[np.arange(80) % 2]
    # With the default tolerance both fits stop somewhere near.
    clf = H2EDLClassifier(TREE, backbone=None, warm_start=True, tol=1e-4)
    first = clf.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(clf.fit(X, y).predict_proba(X), first, atol=0.02)


def test_a_second_fit_that_fails_leaves_the_first(samples, monkeypatch):
    X, y = samples
    clf = H2EDLClassifier(TREE, backbone=None, warm_start=True)
    labels = np.array(TREE.leaves)[y]
    first = clf.fit(X, labels).predict_proba(X)

    def end_with_no_number(descent, max_iter, verbose):
        with torch.no_grad():
            descent.parameters[0].fill_(np.nan)
        descent.values.append(np.nan)

    monkeypatch.setattr("skh2edl.quasi_newton.QuasiNewton.run", end_with_no_number)
    with pytest.raises(FloatingPointError, match="raise l2"):
        clf.fit(X, labels)
    np.testing.assert_allclose(clf.predict_proba(X), first, atol=1e-5)


def test_no_generator_of_the_caller_moves(samples):
    X, y = samples
    torch.manual_seed(0)
    before = torch.get_rng_state()
    H2EDLClassifier(backbone=None).fit(X, y)
    torch.testing.assert_close(torch.get_rng_state(), before)


def weights_of(X, y, **options):
    clf = H2EDLClassifier(TREE, backbone=None, **options).fit(X, np.array(TREE.leaves)[y])
    return clf.network_.head.linear.weight.detach().numpy()


def test_the_default_is_a_twenty_fourth_of_a_penalty_by_separation(samples):
    default, named, whole = (
        weights_of(*samples, l2_relaxation=each) for each in (None, 1 / 24, 1.0)
    )
    np.testing.assert_array_equal(default, named)
    assert np.linalg.norm(default) > 1.1 * np.linalg.norm(whole)
    # A uniform one is not that strong.
    uniform, whole = (
        weights_of(*samples, l2_shape="uniform", l2_relaxation=each) for each in (None, 1.0)
    )
    np.testing.assert_array_equal(uniform, whole)


@pytest.mark.parametrize("evidence", ["exp", "softplus"])
def test_rows_without_a_penalty_stay_as_they_are(samples, evidence):
    none, whole = (
        weights_of(*samples, evidence=evidence, l2=0.0, l2_relaxation=each) for each in (0.1, 1.0)
    )
    np.testing.assert_array_equal(none, whole)


def test_rows_grow_no_longer_than_a_thousand_times():
    # Without a penalty, classes that can be told apart want rows without end.
    tree = Taxonomy.flat(["a", "b"])
    head = SoftmaxHead(tree, 1)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[-0.005], [0.005]]))
    X, targets = torch.tensor([[-1.0], [1.0]]), head.prepare(tree.leaf_nodes)
    length = relax_rows(head, X, targets, torch.full((2,), 0.5, dtype=float), 0.0)
    assert length == pytest.approx(1000)


def test_a_loss_that_is_no_number_leaves_the_head_as_it_was(samples):
    X, y = samples
    tree = Taxonomy.flat(list("abcde"))
    head = SoftmaxHead(tree, 7)
    torch.nn.init.normal_(head.linear.weight, generator=torch.Generator().manual_seed(0))
    before = head.linear.weight.detach().clone()
    X[0] = np.nan
    share = torch.full((80,), 1 / 80, dtype=float)
    targets = head.prepare(tree.leaf_nodes[y])
    assert relax_rows(head, torch.from_numpy(X).float(), targets, share, 0.1) == 1
    torch.testing.assert_close(head.linear.weight.detach(), before, rtol=0, atol=0)


@pytest.mark.parametrize("read_out", ["nested", "nodes"])
def test_the_amount_of_evidence_is_sought_although_the_loss_says_little_of_it(
    samples, read_out, monkeypatch
):
    X, y = samples
    head = OpinionTreeHead(
        TREE, 7, np.array([1 / 3] * 3 + [1 / 2] * 4), np.array([3.0, 2.0, 2.0]), np.ones(3),
        read_out=read_out, evidence="exp", risk="log", kl_weight=1e-4, initial_bias=7.0,
    ).double()  # fmt: skip
    # Rows that tell nothing: the least evidence would be best, and from none no slope leads back.
    torch.nn.init.normal_(head.linear.weight, generator=torch.Generator().manual_seed(0))
    inputs, targets = torch.from_numpy(X), head.prepare(TREE.leaf_nodes[y])
    start = {name: value.clone() for name, value in head.state_dict().items()}

    def relax():
        head.load_state_dict(start)
        length = relax_rows(head, inputs, targets, torch.full((80,), 1 / 80, dtype=float), 0.05)
        value = head.loss(inputs, targets, np.inf).mean().item() + 0.05 * length**2 / 2
        return value, head.linear.bias.max().item()

    value, highest = relax()
    assert -2 < highest < 2
    monkeypatch.setattr(type(head), "common_bias", lambda self: torch.zeros(7))
    assert value < relax()[0] - 3e-4


@pytest.mark.parametrize("part", [0, 1.5, "half"])
def test_another_part_is_refused(samples, part):
    X, y = samples
    with pytest.raises(ValueError, match="l2_relaxation"):
        H2EDLClassifier(backbone=None, l2_relaxation=part).fit(X, y)
