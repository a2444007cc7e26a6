import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import H2EDLClassifier, Taxonomy
from skh2edl.curvature import Curvature, main_directions


def correlated(n_samples, n_features, seed=0, decay=0.8):
    """Draw features whose variances fall quickly, turned so that no axis is a direction."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    X = rng.normal(size=(n_samples, n_features)) * decay ** np.arange(n_features)
    return torch.from_numpy(10 * X @ turn)


def test_main_directions_are_the_leading_singular_vectors():
    X = correlated(200, 60)
    directions, variances, rest = main_directions(X)
    _, singular, right = np.linalg.svd(X.numpy())
    expected = singular**2 / 200
    np.testing.assert_allclose(variances, expected[:32], rtol=1e-3)
    np.testing.assert_allclose(directions @ directions.T, np.eye(32), atol=1e-9)
    # Neighbours may mix, but the leading ones are found.
    np.testing.assert_allclose(np.abs(np.sum(right[:8] * directions[:8].numpy(), axis=1)), 1.0)
    assert rest == pytest.approx(expected[32:].sum() / 28, rel=0.1)


@pytest.mark.parametrize(("n_samples", "n_features"), [(50, 7), (3, 7), (1, 1), (5, 40)])
def test_few_features_are_described_whole(n_samples, n_features):
    X = correlated(n_samples, n_features)
    directions, variances, rest = main_directions(X)
    covariance = directions.T * variances @ directions
    np.testing.assert_allclose(covariance, X.T @ X / n_samples, atol=1e-9)
    assert rest == pytest.approx(0.0, abs=1e-9)


def test_many_samples_are_thinned_out_evenly():
    # Classes in order: the first 8,192 alone would not show the second direction.
    X = torch.zeros(20_000, 3)
    X[:10_000, 0], X[10_000:, 1] = 1.0, 2.0
    _, variances, _ = main_directions(X)
    np.testing.assert_allclose(variances, [2.0, 0.5, 0.0], atol=1e-3)


def test_generators_of_the_caller_do_not_move():
    before = torch.random.get_rng_state()
    first, second = (main_directions(correlated(40, 50)) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(*pair) for pair in zip(first[:2], second[:2], strict=True))


@given(
    seed=st.integers(0, 10_000),
    n_rows=st.integers(1, 5),
    n_features=st.integers(1, 20),
    left=st.floats(0.001, 1.0),
)
def test_solving_is_solving_with_the_matrix(seed, n_rows, n_features, left):
    rng = np.random.default_rng(seed)
    X = correlated(30, n_features, seed)
    bends, penalties = rng.uniform(0.1, 0.25, n_rows), rng.uniform(0.5, 1.0, n_rows)
    curvature = Curvature(torch.from_numpy(bends), torch.from_numpy(penalties), X)
    rows, bias = rng.normal(size=(n_rows, n_features)), rng.normal(size=n_rows)
    solved, solved_bias = curvature.solve(torch.from_numpy(rows), torch.from_numpy(bias), left)
    covariance = (X.T @ X / 30).numpy()
    expected = [
        np.linalg.solve(left * bend * covariance + penalty * np.eye(n_features), row)
        for bend, penalty, row in zip(bends, penalties, rows, strict=True)
    ]
    np.testing.assert_allclose(solved, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(solved_bias, bias / np.maximum(left * bends, penalties / 10))
    change = np.sqrt(np.mean(np.square(X.numpy() @ rows.T), axis=0) + bias**2).max()
    assert curvature.largest_change(*map(torch.from_numpy, (rows, bias))) == pytest.approx(change)


def test_rows_that_do_not_bend_stay_finite():
    for bends, penalties in (([0.0, 0.0], [0.0, 0.0]), ([0.2, 0.0], [0.0, 0.0])):
        curvature = Curvature(torch.tensor(bends), torch.tensor(penalties), torch.zeros(3, 4))
        rows, bias = curvature.solve(torch.zeros(2, 4), torch.zeros(2), 0.1)
        assert not rows.any()
        assert not bias.any()
        assert curvature.largest_change(rows, bias) == 0


@pytest.mark.parametrize("seed", range(5))
def test_labels_refined_later_are_learnt_from_where_a_fit_stands(seed):
    rng = np.random.default_rng(seed)
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma", "tabby"], "dog": ["fox", "wolf"]})
    y = np.repeat(tree.leaves, 30)
    X = 3 * rng.normal(size=(5, 12))[np.repeat(range(5), 30)] + rng.normal(size=(150, 12))
    coarse = [tree.path(leaf)[0] for leaf in y]
    clf = H2EDLClassifier(tree, backbone=None, warm_start=True).fit(X, coarse).fit(X, y)
    assert clf.score(X, y) > 0.95


def test_features_that_vary_along_few_directions_take_fewer_iterations(monkeypatch):
    rng = np.random.default_rng(2)
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf", "jackal"]})
    X = correlated(400, 40, seed=2, decay=0.7).numpy()
    # Noise of the labels keeps the classes mixed, as in hard data.
    scores = X @ rng.normal(size=(40, 5)) + 30 * rng.normal(size=(400, 5))
    y = np.array(tree.leaves)[scores.argmax(1)]
    aware = H2EDLClassifier(tree, backbone=None, l2=1e-4, tol=1e-5).fit(X, y)
    monkeypatch.setattr("skh2edl.solvers.Curvature", lambda *arguments: None)
    unaware = H2EDLClassifier(tree, backbone=None, l2=1e-4, tol=1e-5).fit(X, y)
    assert aware.n_iter_ < 0.6 * unaware.n_iter_
    objectives = [clf.history_["objective"][-1] for clf in (aware, unaware)]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)
