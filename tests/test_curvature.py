from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from skh2edl import H2EDLClassifier, HierCEClassifier, Taxonomy
from skh2edl.curvature import Curvature, main_directions


def correlated(n_samples, n_features, seed=0, decay=0.8):
    """Draw features whose variances fall quickly, turned so that no axis is a direction."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(n_features, n_features)))
    X = rng.normal(size=(n_samples, n_features)) * decay ** np.arange(n_features)
    return torch.from_numpy(10 * X @ turn)


def test_main_directions_are_the_leading_singular_vectors():
    X = correlated(200, 92)
    directions, variances, rest = main_directions(X, torch.ones(200))
    _, singular, right = np.linalg.svd(X.numpy())
    expected = singular**2 / 200
    np.testing.assert_allclose(variances, expected[:64], rtol=1e-3)
    np.testing.assert_allclose(directions @ directions.T, np.eye(64), atol=1e-9)
    # Neighbours may mix, but the leading ones are found.
    np.testing.assert_allclose(np.abs(np.sum(right[:8] * directions[:8].numpy(), axis=1)), 1.0)
    assert rest == pytest.approx(expected[64:].sum() / 28, rel=0.1)


@pytest.mark.parametrize(("n_samples", "n_features"), [(50, 7), (3, 7), (1, 1), (5, 40)])
def test_few_features_are_described_whole(n_samples, n_features):
    X = correlated(n_samples, n_features)
    directions, variances, rest = main_directions(X, torch.ones(n_samples))
    covariance = directions.T * variances @ directions
    np.testing.assert_allclose(covariance, X.T @ X / n_samples, atol=1e-9)
    assert rest == pytest.approx(0.0, abs=1e-9)


def test_many_samples_are_thinned_out_evenly():
    # Classes in order: the first 8,192 alone would not show the second direction.
    X = torch.zeros(20_000, 3)
    X[:10_000, 0], X[10_000:, 1] = 1.0, 2.0
    _, variances, _ = main_directions(X, torch.ones(20_000))
    np.testing.assert_allclose(variances, [2.0, 0.5, 0.0], atol=1e-3)


def test_a_sample_counts_as_often_as_its_weight_says():
    X = correlated(30, 6)
    weights = torch.arange(1.0, 31.0)
    _, variances, _ = main_directions(X, weights)
    _, expected, _ = main_directions(X.repeat_interleave(weights.long(), 0), torch.ones(465))
    np.testing.assert_allclose(variances, expected)


def test_features_too_large_to_be_squared_are_refused():
    X = torch.full((4, 3), 1e20)
    with pytest.raises(FloatingPointError, match=r"squares become infinite\. Scale them first"):
        main_directions(X, torch.ones(4))


def test_generators_of_the_caller_do_not_move():
    before = torch.random.get_rng_state()
    first, second = (main_directions(correlated(40, 50), torch.ones(40)) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(*pair) for pair in zip(first[:2], second[:2], strict=True))


def with_spectrum(n_samples, variances, seed):
    """Draw features whose mean squares along some orthonormal directions are exactly these."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (n_samples, variances.size))
    return torch.from_numpy(
        np.sqrt(n_samples) * left[:, : variances.size] * np.sqrt(variances) @ right.T
    )


@given(
    seed=st.integers(0, 10_000),
    n_rows=st.integers(1, 5),
    n_features=st.integers(1, 80),
    left=st.floats(0.001, 1.0),
)
def test_solving_is_solving_with_the_matrix(seed, n_rows, n_features, left):
    rng = np.random.default_rng(seed)
    # Beyond the 64 main directions all others are alike, as the model has it.
    X = with_spectrum(90, np.where(np.arange(n_features) < 64, 3000.0, 0.1), seed)
    bends, penalties = rng.uniform(0.1, 0.25, n_rows), rng.uniform(0.5, 1.0, n_rows)
    curvature = Curvature(*map(torch.from_numpy, (bends, penalties)), X, torch.ones(90))
    rows, bias = rng.normal(size=(n_rows, n_features)), rng.normal(size=n_rows)
    solved, solved_bias = curvature.solve(torch.from_numpy(rows), torch.from_numpy(bias), left)
    covariance = (X.T @ X / 90).numpy()
    expected = [
        np.linalg.solve(left * bend * covariance + penalty * np.eye(n_features), row)
        for bend, penalty, row in zip(bends, penalties, rows, strict=True)
    ]
    np.testing.assert_allclose(solved, expected, rtol=1e-6, atol=1e-7)
    elsewhere = left * bends * curvature.rest + penalties
    np.testing.assert_allclose(solved_bias, bias / np.maximum(left * bends, elsewhere / 10))
    change = np.sqrt(np.mean(np.square(X.numpy() @ rows.T), axis=0) + bias**2).max()
    assert curvature.largest_change(*map(torch.from_numpy, (rows, bias))) == pytest.approx(change)


@pytest.mark.parametrize("penalty", [1e-2, 1e-6, 1e-10, 0.0])
@pytest.mark.parametrize(("n_features", "decay"), [(12, 0.5), (40, 0.9)])
def test_single_precision_is_enough(penalty, n_features, decay):
    X = correlated(200, n_features, decay=decay)
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(2, n_features)))
    solved = [
        Curvature(
            torch.tensor([0.2, 0.1], dtype=dtype),
            torch.full((2,), penalty, dtype=dtype),
            X.to(dtype),
            torch.ones(200),
        ).solve(rows.to(dtype), torch.zeros(2, dtype=dtype), 0.1)[0]
        for dtype in (torch.float32, torch.float64)
    ]
    np.testing.assert_allclose(solved[0], solved[1], rtol=0.01, atol=0.01 * float(solved[1].max()))
    # Each step goes down.
    assert (solved[0] * rows).sum(1).min() > 0


@pytest.mark.parametrize(
    ("bends", "penalties"), [([0.0, 0.0], [0.0, 0.0]), ([0.2, 0.0], [0.0, 0.0])]
)
def test_rows_that_do_not_bend_stay_finite(bends, penalties):
    tensors = torch.tensor(bends), torch.tensor(penalties), torch.zeros(3, 4), torch.ones(3)
    rows, bias = Curvature(*tensors).solve(torch.ones(2, 4), torch.ones(2), 0.1)
    assert rows.isfinite().all()
    assert bias.isfinite().all()


def test_rows_may_differ_a_thousandfold_and_no_more():
    bends, X = torch.tensor([0.2, 1e-9]), with_spectrum(90, np.ones(80), 0).float()
    curvature = Curvature(bends, torch.zeros(2), X, torch.ones(90))
    rows, _ = curvature.solve(torch.ones(2, 80), torch.ones(2), 1.0)
    assert float(rows[1].norm() / rows[0].norm()) == pytest.approx(1000, rel=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"l2": 1e-8},
        {"l2": 0},
        {"l2": 0, "tol": 0, "kl_weight": 0, "warm_start": True, "max_iter": 100},
        {"evidence_scale": "learn"},
    ],
)
@pytest.mark.parametrize("weight", [1.0, 1e5])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_hardly_any_penalty_ends_no_fit_early(options, weight):
    X, y = load_iris(return_X_y=True)
    X, weights = StandardScaler().fit_transform(X).astype(np.float32), np.full(len(y), weight)
    clf = H2EDLClassifier(backbone=None, **options).fit(X, y, sample_weight=weights)
    assert clf.score(X, y) > 0.95
    assert clf.fit(10 * X, y, sample_weight=weights).score(10 * X, y) > 0.95


def test_a_fit_may_begin_where_nothing_is_left_to_lose():
    rng = np.random.default_rng(0)
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf", "jackal"]})
    y, means = np.repeat(tree.leaves, 18), np.repeat(3 * rng.normal(size=(5, 12)), 18, axis=0)
    X = (means + rng.normal(size=(90, 12))).astype(np.float32)
    options = {"l2_shape": "separation", "l2": 0, "tol": 0, "warm_start": True}
    clf = HierCEClassifier(tree, backbone=None, **options).fit(X, y)
    assert clf.fit(2 * X, y).score(X, y) == 1
    assert clf.history_["objective"][0] == 0


def test_a_fit_that_is_cut_short_says_so_and_who_asked_for_it():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations") as seen:
        clf = H2EDLClassifier(backbone=None, max_iter=1, tol=1e-12).fit(X, y)
    assert clf.n_iter_ == 1
    # What called the solver, and not what keeps its threads.
    assert [Path(each.filename).name for each in seen] == ["_base.py"]


def test_a_learnt_scale_is_learnt_with_the_rows():
    X, y = load_iris(return_X_y=True)
    fixed, learnt = (
        H2EDLClassifier(backbone=None, l2=0.1, tol=1e-6, evidence_scale=scale).fit(X, y)
        for scale in (1.0, "learn")
    )
    assert float(learnt.network_.head.log_scale.detach().abs()) > 0.01
    assert learnt.history_["objective"][-1] < fixed.history_["objective"][-1]


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
    clf = H2EDLClassifier(
        tree, backbone=None, l2=1e-4, l2_metric="identity", initial_bias=0.0, tol=1e-5
    )
    aware = clone(clf).fit(X, y)
    monkeypatch.setattr("skh2edl.solvers.Curvature", lambda *arguments: None)
    unaware = clone(clf).fit(X, y)
    assert aware.n_iter_ < 0.6 * unaware.n_iter_
    objectives = [clf.history_["objective"][-1] for clf in (aware, unaware)]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)
