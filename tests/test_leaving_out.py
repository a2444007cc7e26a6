"""Read-outs of samples that were left out of a fit, compared with real fits without them."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.datasets import load_digits

from skh2edl import H2EDLClassifier, Taxonomy, leaving_out, metrics
from skh2edl import curvature as curvature_module
from skh2edl.curvature import Curvature
from skh2edl.heads import SoftmaxHead
from skh2edl.leaving_out import LeavingOut, times_present
from skh2edl.penalty_metric import WithinMetric
from skh2edl.relaxation import relax_rows

N_CLASSES = 3


def fit_by_scipy(X, y, share, penalty):
    """Return the rows and biases of a softmax regression whose rows have an L2 penalty."""

    def objective(flat):
        rows, bias = flat[:-N_CLASSES].reshape(N_CLASSES, -1), flat[-N_CLASSES:]
        scores = log_softmax(X @ rows.T + bias, axis=1)
        slopes = share[:, None] * (np.exp(scores) - np.eye(N_CLASSES)[y])
        value = -share @ scores[np.arange(len(y)), y] + penalty * np.square(rows).sum() / 2
        return value, np.concatenate([(slopes.T @ X + penalty * rows).ravel(), slopes.sum(0)])

    flat = minimize(
        objective,
        np.zeros(N_CLASSES * (X.shape[1] + 1)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 1000, "gtol": 1e-9, "ftol": 1e-15},
    ).x
    return flat[:-N_CLASSES].reshape(N_CLASSES, -1), flat[-N_CLASSES:]


# Few samples and a strong penalty, as for frozen features; more; and many with hardly any, of which
# two classes differ as those of ten do not: what one row loses the others take.
@pytest.mark.parametrize(
    ("n_samples", "n_features", "penalty", "left"),
    [(40, 60, 3.0, 0.15), (60, 20, 0.3, 0.15), (200, 4, 0.001, 0.4)],
)
def test_read_outs_are_those_of_a_fit_without_the_sample(n_samples, n_features, penalty, left):
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_CLASSES, n_samples)
    X = 0.5 * rng.normal(size=(N_CLASSES, n_features))[y] + rng.normal(size=(n_samples, n_features))
    share = np.full(n_samples, 1 / n_samples)
    rows, bias = fit_by_scipy(X, y, share, penalty)
    fitted = X @ rows.T + bias
    real = np.empty_like(fitted)
    for i in range(n_samples):
        others = np.arange(n_samples) != i
        without = fit_by_scipy(X[others], y[others], share[others], penalty)
        real[i] = X[i] @ without[0].T + without[1]

    inputs = torch.from_numpy(X)
    curvature = Curvature(
        torch.zeros(N_CLASSES, dtype=float),
        torch.full((N_CLASSES,), penalty, dtype=float),
        inputs,
        torch.ones(n_samples),
    )
    slopes = softmax(fitted, axis=1) - np.eye(N_CLASSES)[y]
    changes = LeavingOut(inputs, y, share, curvature).changes(torch.from_numpy(slopes)).numpy()

    # Of the error that a fit makes of its own samples, most is gone.
    error_of_fit = np.sqrt(np.mean(np.square(fitted - real)))
    error = np.sqrt(np.mean(np.square(fitted + changes - real)))
    assert error < left * error_of_fit


# Of what a metric that has seen the sample leaves wrong, so much is left, with many samples a class
# and with few.
@pytest.mark.parametrize(("n_samples", "n_features", "left"), [(90, 60, 0.45), (18, 60, 0.8)])
def test_read_outs_are_those_of_a_fit_whose_metric_lacks_the_sample(n_samples, n_features, left):
    rng = np.random.default_rng(0)
    tree = Taxonomy.flat(list("abc"))
    y = np.arange(n_samples) % N_CLASSES
    X = 0.3 * rng.normal(size=(N_CLASSES, n_features))[y] + rng.normal(size=(n_samples, n_features))
    share, penalty = np.full(n_samples, 1 / n_samples), 2.0

    def metric_of(samples):
        weights = np.ones(len(samples))
        return WithinMetric(
            tree, torch.from_numpy(X[samples]), tree.leaf_nodes[y[samples]], weights
        )

    whole = metric_of(np.arange(n_samples))
    inputs = whole.inputs
    rows, bias = fit_by_scipy(inputs.numpy(), y, share, penalty)
    fitted = inputs.numpy() @ rows.T + bias
    real = np.empty_like(fitted)
    for i in range(n_samples):
        others = np.flatnonzero(np.arange(n_samples) != i)
        metric = metric_of(others)
        own_rows, own_bias = fit_by_scipy(metric.inputs.numpy(), y[others], share[others], penalty)
        real[i] = metric.features(torch.from_numpy(X[i : i + 1])).numpy()[0] @ own_rows.T + own_bias

    curvature = Curvature(
        torch.zeros(N_CLASSES, dtype=float),
        torch.full((N_CLASSES,), penalty, dtype=float),
        inputs,
        torch.ones(n_samples),
    )
    leaving_out = LeavingOut(inputs, y, share, curvature, parts=whole.parts)
    slopes = torch.from_numpy(softmax(fitted, axis=1) - np.eye(N_CLASSES)[y])
    errors = [
        np.sqrt(np.mean(np.square(fitted + leaving_out.changes(slopes, some).numpy() - real)))
        for some in (None, torch.from_numpy(rows))
    ]
    assert errors[1] < left * errors[0]


@pytest.mark.parametrize("block", [2048, 7])
def test_leverages_are_those_of_the_inverse(block, monkeypatch):
    monkeypatch.setattr(curvature_module, "_BLOCK", block)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6)) * [3, 1, 1, 0.5, 2, 1]
    penalties, bends = np.array([0.1, 2.0]), rng.uniform(0, 0.005, size=(50, 2))
    times = rng.integers(1, 3, 50)
    expected = np.empty((50, 2))
    for row, penalty in enumerate(penalties):
        hessian = penalty * np.eye(6) + X.T @ (bends[:, row, None] * X)
        for i, x in enumerate(X):
            without = hessian - times[i] * bends[i, row] * np.outer(x, x)
            expected[i, row] = x @ np.linalg.solve(without, x)
    inputs = torch.from_numpy(X)
    curvature = Curvature(torch.zeros(2), torch.from_numpy(penalties), inputs, torch.ones(50))
    found = curvature.leverages(inputs, torch.from_numpy(bends), torch.from_numpy(times))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_copies_are_counted_in_blocks_of_their_class(monkeypatch):
    rng = np.random.default_rng(0)
    scenes = rng.normal(size=(20, 50))  # as different as chance has it
    X = np.concatenate([scenes, scenes[:2] + 0.1 * rng.normal(size=(2, 50)), scenes[:3]])
    y = np.array([0] * 23 + [0, 1])
    expected = np.ones(25)
    expected[[0, 20, 22]] = 3
    expected[[1, 21, 23]] = 3
    expected[24] = 0  # the only one of its class, though it looks like one of the other
    X, share = torch.from_numpy(X), np.full(25, 1 / 25)
    np.testing.assert_allclose(times_present(X, y, share)[0], expected)
    # The last two or three of the class are compared among themselves alone.
    monkeypatch.setattr(leaving_out, "_BLOCK", 22)
    expected[[0, 20, 1, 21]], expected[[22, 23]] = 2, 1
    np.testing.assert_allclose(times_present(X, y, share)[0], expected)


def test_read_outs_are_those_of_a_fit_without_the_group():
    rng = np.random.default_rng(0)
    n_samples, n_features, penalty = 48, 60, 3.0
    y, groups = np.arange(n_samples) % N_CLASSES, np.arange(n_samples) // 4
    X = 0.5 * rng.normal(size=(N_CLASSES, n_features))[y] + rng.normal(size=(n_samples, n_features))
    share = np.full(n_samples, 1 / n_samples)
    rows, bias = fit_by_scipy(X, y, share, penalty)
    fitted = X @ rows.T + bias
    real = np.empty_like(fitted)
    for group in range(12):
        own, others = groups == group, groups != group
        without = fit_by_scipy(X[others], y[others], share[others], penalty)
        real[own] = X[own] @ without[0].T + without[1]
    inputs, penalties = torch.from_numpy(X), torch.full((N_CLASSES,), penalty, dtype=float)
    curvature = Curvature(torch.zeros(N_CLASSES), penalties, inputs, torch.ones(n_samples))
    slopes = torch.from_numpy(softmax(fitted, axis=1) - np.eye(N_CLASSES)[y])
    changes = LeavingOut(inputs, y, share, curvature, groups).changes(slopes).numpy()
    error_of_fit = np.sqrt(np.mean(np.square(fitted - real)))
    assert np.sqrt(np.mean(np.square(fitted + changes - real))) < 0.25 * error_of_fit


def test_groups_that_say_nothing_cost_nothing():
    # Ten random groups are no reason to trust features less.
    X, y = load_digits(return_X_y=True)
    groups = np.random.default_rng(0).integers(0, 10, 600)
    clf = H2EDLClassifier(backbone=None)
    proba = [clf.fit(X[:600], y[:600], groups=g).predict_proba(X[600:]) for g in (None, groups)]
    nll, other = (metrics.level_nll(y[600:], each, clf.taxonomy_) for each in proba)
    assert other == pytest.approx(nll, rel=0.1)


def test_groups_reach_the_fit():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 40)
    X = 0.3 * rng.normal(size=(4, 30))[y] + rng.normal(size=(160, 30))
    clf = H2EDLClassifier(backbone=None)
    proba = [clf.fit(X, y, groups=each).predict_proba(X) for each in (None, np.arange(160))]
    np.testing.assert_array_equal(*proba)  # no two are alike
    # Photographs of one patient are alike, too little to be taken for copies.
    patients = np.arange(160) // 8
    X = X + rng.normal(size=(20, 30))[patients]
    sure = [clf.fit(X, y, groups=g).predict_proba(X).max(1).mean() for g in (patients, None)]
    assert sure[0] < sure[1] - 0.02
    with pytest.raises(ValueError, match="groups must hold one id for each of the 160"):
        clf.fit(X, y, groups=patients[:-1])


def test_samples_that_nobody_named_further_are_no_copies_of_each_other():
    rng = np.random.default_rng(0)
    # Three scenes of ten, each a class perhaps; and twenty samples of a class, all different.
    scenes = np.repeat(rng.normal(size=(3, 50)), 10, axis=0) + 0.1 * rng.normal(size=(30, 50))
    X = torch.from_numpy(np.concatenate([scenes, rng.normal(size=(20, 50))]))
    X[1] = X[0]
    share, coarse = np.full(50, 1 / 50), np.repeat([-1, 4], [30, 20])
    assert times_present(X, coarse, share)[0].tolist() == [2, 2] + [1] * 48
    # Even one of its kind may be left out: others below say something of it.
    coarse[:29] = 4
    assert times_present(X, coarse, share)[0][29] == 1


@pytest.mark.parametrize(("with_copies", "times"), [(0.3, 1.0), (0.0, 1.125)])
def test_rows_become_hardly_longer_than_the_samples_themselves_ask(with_copies, times):
    rng = np.random.default_rng(0)
    tree, y = Taxonomy.flat(list("abc")), np.arange(60) % 3
    X = torch.from_numpy(0.4 * rng.normal(size=(3, 8))[y] + rng.normal(size=(60, 8)))
    share = torch.full((60,), 1 / 60, dtype=float)
    rows = torch.from_numpy(0.1 * rng.normal(size=(3, 8)))

    def length(leaving_out):
        head = SoftmaxHead(tree, 8).double()
        with torch.no_grad():
            head.linear.weight.copy_(rows + torch.stack([X[y == k].mean(0) for k in range(3)]))
        targets = head.prepare(tree.leaf_nodes[y])
        return relax_rows(head, X, targets, share, 0.2, leaving_out=leaving_out)

    class Surer:
        share_with_copies = with_copies

        def changes(self, slopes, rows):
            return -3 * slopes  # as if samples were known better when they are left out

    class LessSure:
        share_with_copies = with_copies

        def changes(self, slopes, rows):
            return 4 * slopes

    within = length(None)
    assert length(Surer()) == pytest.approx(times * within, rel=0.03)
    assert length(LessSure()) < 0.9 * within


def test_copies_are_told_from_others_also_in_a_class_far_from_the_rest():
    # Around the origin all would be alike, and the one copy that there is among them.
    X = 10 + torch.randn(30, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X[1] = X[0] + 0.1 * X[2] - 1
    share = np.full(30, 1 / 30)
    assert times_present(X, np.zeros(30, dtype=int), share)[0].tolist() == [2, 2] + [1] * 28


def test_a_fit_tells_labels_that_others_refine_from_classes(monkeypatch):
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    seen = []

    class Spy(LeavingOut):
        def __init__(self, inputs, classes, *others):
            seen.append(classes)
            super().__init__(inputs, classes, *others)

    monkeypatch.setattr("skh2edl.solvers.LeavingOut", Spy)
    X = np.random.default_rng(0).normal(size=(40, 6))
    y = np.resize(["lynx", "puma", "cat", "dog"], 40)
    H2EDLClassifier(tree, backbone=None).fit(X, y)
    # Nobody names a fox or a wolf, so the dogs are a class.
    assert (seen[0] == -1).tolist() == (y == "cat").tolist()
    assert len(np.unique(seen[0])) == 4


def test_in_few_directions_many_are_alike_and_no_copies():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), np.zeros(300, dtype=int)
    share = np.full(300, 1 / 300)
    assert times_present(torch.from_numpy(X), y, share)[0].max() <= 2
    # The same sample twice is.
    X[1] = X[0]
    assert times_present(torch.from_numpy(X), y, share)[0][:2] == pytest.approx(2)


def test_a_weight_is_so_many_copies():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(6, 30)))
    y, weights = np.array([0, 0, 0, 1, 1, 1]), np.array([2.0, 1, 1, 3, 1, 1])
    slopes = torch.from_numpy(rng.normal(size=(6, 2)))
    repeated = np.repeat(np.arange(6), weights.astype(int))
    tree, read_out = Taxonomy.flat(["a", "b"]), torch.from_numpy(rng.normal(size=(2, 30)))

    def changes(rows, weights):
        metric = WithinMetric(tree, X[torch.from_numpy(rows)], tree.leaf_nodes[y[rows]], weights)
        penalties = torch.full((2,), 0.5, dtype=float)
        curvature = Curvature(torch.zeros(2), penalties, metric.inputs, torch.from_numpy(weights))
        found = LeavingOut(metric.inputs, y[rows], weights, curvature, parts=metric.parts)
        # The same sample again is no other picture of the scene.
        assert found.share_with_copies == 0
        return found.changes(slopes[torch.from_numpy(rows)], read_out)

    by_weight, by_copies = changes(np.arange(6), weights), changes(repeated, np.ones(9))
    torch.testing.assert_close(by_copies, by_weight[repeated])


def test_a_sample_that_is_all_of_its_class_stays():
    X = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 1.0]])
    curvature = Curvature(torch.zeros(1), torch.ones(1), X, torch.ones(5))
    found = LeavingOut(X, np.array([0, 0, 1, 2, 2]), np.ones(5), curvature)
    # Copies of each other; alone; two that differ.
    assert (found.changes(torch.ones(5, 1)).squeeze(1) > 0).tolist() == [False] * 3 + [True] * 2


def test_groups_may_be_a_column_and_follow_their_samples():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = 0.4 * rng.normal(size=(3, 20))[y] + rng.normal(size=(90, 20))
    groups, weights = np.arange(90) // 6, np.r_[np.zeros(31), np.ones(59)]
    X += rng.normal(size=(15, 20))[groups]
    clf = H2EDLClassifier(backbone=None, feature_scaling=None)
    some = clf.fit(X, y, weights, groups=groups[:, None]).predict_proba(X)
    expected = clf.fit(X[31:], y[31:], groups=groups[31:]).predict_proba(X)
    np.testing.assert_allclose(some, expected, atol=1e-6)
    assert np.abs(clf.fit(X[31:], y[31:]).predict_proba(X) - expected).max() > 0.01


def test_in_one_direction_only_neighbours_that_are_nearly_the_same_are_copies():
    X = torch.randn(300, 1, generator=torch.Generator().manual_seed(0))
    times, _ = times_present(X, np.zeros(300, dtype=int), np.full(300, 1 / 300))
    # All on one side have a cosine of one, which would make hundreds of copies.
    assert times.max() <= 4


@pytest.mark.parametrize("l2", [1e-2, 1e-3])
def test_with_hardly_any_penalty_nothing_is_left_out(l2):
    # The fit stops before rows are the sums that leaving out takes them for.
    rng = np.random.default_rng(0)
    means, y = rng.normal(size=(4, 500)), np.repeat(range(4), 5)
    X = (means[y] + rng.normal(size=(20, 500))).astype(np.float32)
    clf = H2EDLClassifier(backbone=None, l2=l2).fit(X, y)
    assert clf.predict_proba(means).max(1).min() > 0.9
    with pytest.warns(UserWarning, match="groups are not used in this fit"):
        clf.fit(X, y, groups=np.arange(20))


def test_a_loss_that_weighs_more_is_left_out_alike():
    rng = np.random.default_rng(0)
    X, y = torch.from_numpy(rng.normal(size=(40, 30))), np.arange(40) % 2
    slopes = torch.from_numpy(rng.uniform(0, 1, size=(40, 3)))
    slopes[0] = 1.0

    def changes(weight):
        penalties = torch.full((3,), 0.5 * weight, dtype=float)
        curvature = Curvature(torch.zeros(3), penalties, X, torch.ones(40))
        return LeavingOut(X, y, np.ones(40), curvature).changes(weight * slopes)

    torch.testing.assert_close(changes(30.0), changes(1.0))


def test_a_class_that_is_all_of_one_group_stays():
    rng = np.random.default_rng(0)
    X, y, groups = torch.from_numpy(rng.normal(size=(6, 9))), np.arange(6) // 3, np.arange(6) // 2
    groups[:3] = 5
    curvature = Curvature(torch.zeros(1), torch.ones(1, dtype=float), X, torch.ones(6))
    changes = LeavingOut(X, y, np.ones(6), curvature, groups).changes(torch.ones(6, 1, dtype=float))
    assert (changes.squeeze(1) != 0).tolist() == [False] * 3 + [True] * 3


def test_one_sample_a_class_is_enough_to_know_it_again():
    rng = np.random.default_rng(0)
    X = 4 * rng.normal(size=(6, 20))
    clf = H2EDLClassifier(backbone=None).fit(X, np.arange(6))
    assert clf.score(X + 0.5 * rng.normal(size=X.shape), np.arange(6)) == 1


def test_where_features_tell_hardly_anything_the_model_says_so():
    rng = np.random.default_rng(0)
    means = 0.2 * rng.normal(size=(100, 50))
    y, y_new = np.repeat(np.arange(100), 10), np.repeat(np.arange(100), 20)
    X, X_new = (means[each] + rng.normal(size=(len(each), 50)) for each in (y, y_new))
    clf = H2EDLClassifier(backbone=None).fit(X, y)
    assert metrics.level_nll(y_new, clf.predict_proba(X_new), clf.taxonomy_) < np.log(100) - 0.1


def test_near_copies_do_not_make_a_model_sure(monkeypatch):
    rng = np.random.default_rng(0)
    tree = Taxonomy.flat(list("abcdefgh"))
    # Thirty scenes a class, four photographs a scene: only new scenes tell how good it is.
    means = 0.25 * rng.normal(size=(8, 60))
    scenes = np.repeat(means, 30, axis=0) + rng.normal(size=(240, 60))
    X = np.repeat(scenes, 4, axis=0) + 0.1 * rng.normal(size=(960, 60))
    y = np.array(tree.leaves)[np.repeat(np.arange(8), 120)]
    y_new = np.array(tree.leaves)[np.repeat(np.arange(8), 100)]
    X_new = np.repeat(means, 100, axis=0) + rng.normal(size=(800, 60))
    clf = H2EDLClassifier(tree, backbone=None)

    def scores():
        proba = clf.fit(X, y).predict_proba(X_new)
        return metrics.level_nll(y_new, proba, tree), metrics.level_ece(y_new, proba, tree)

    nll, ece = scores()
    monkeypatch.setattr(leaving_out, "_ALIKE", 2.0)  # no two samples are
    other_nll, other_ece = scores()
    assert nll < other_nll - 0.05
    assert ece < other_ece / 2
