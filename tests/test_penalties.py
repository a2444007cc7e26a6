import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from strategies import taxonomies

from skh2edl import H2EDLClassifier, HierCEClassifier, Taxonomy
from skh2edl.penalties import default_l2, row_penalties, variances

TREE = Taxonomy.from_nested(
    {"cat": {"wild": ["lynx", "puma"], "tame": ["tabby"]}, "dog": ["fox", "wolf"], "bear": None}
)


def variances_by_hand(tree, X, nodes):
    """Do what `variances` does, node by node; without its bounds."""
    children = {node: np.flatnonzero(tree.parents == node) for node in range(len(tree.parents))}

    def last(node):
        # A node with one child means the same as that child.
        while len(children[node]) == 1:
            (node,) = children[node]
        return node

    labels = np.array([last(node) for node in nodes])
    residuals, spread, freedom = [], {}, {}

    def mean_of(node, depth):
        node = last(node)
        means = [mean_of(child, depth + 1) for child in children[node]]
        means = np.array([mean for mean in means if mean is not None])
        if means.size:
            spread[depth] = spread.get(depth, 0) + np.square(means - means.mean(0)).sum()
            freedom[depth] = freedom.get(depth, 0) + len(means) - 1
            return means.mean(0)
        own = X[labels == node]
        if not own.size:
            return None
        residuals.append(own - own.mean(0))
        return own.mean(0)

    mean_of(0, 0)
    return np.square(np.concatenate(residuals)).mean(), spread, freedom


@given(data=st.data())
def test_variances_are_those_of_the_tree_walked_by_hand(data):
    tree = data.draw(taxonomies())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # Labels anywhere but at the root; large differences, so that no bound is reached.
    some = np.flatnonzero(tree.last_decision >= 0)
    nodes = rng.choice(some, 40)
    X = 3 * rng.normal(size=(len(tree.parents), 4))[nodes] + rng.normal(size=(40, 4))
    within, between = variances(tree, X, nodes, np.ones(40))
    expected, spread, freedom = variances_by_hand(tree, X, nodes)
    whole = 4 * expected + sum(spread.values()) / max(sum(freedom.values()), 1)
    assert within == pytest.approx(max(expected, 0.1 * whole / 4), rel=1e-9)
    for depth, known in freedom.items():
        if known > 0:
            bounded = max(spread[depth] / known, 0.001 * whole) / 4
            assert between[depth] == pytest.approx(bounded, rel=1e-9)


@given(data=st.data())
def test_weights_count_like_repeated_samples_and_scale_like_squares(data):
    tree = data.draw(taxonomies())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    nodes = rng.integers(0, len(tree.parents), 30)
    X, weights = rng.normal(size=(30, 3)) + nodes[:, None], rng.integers(0, 4, 30)
    weights[0] += 1
    shares = row_penalties(tree, X, nodes, weights.astype(float))
    again = row_penalties(
        tree, np.repeat(X, weights, axis=0), np.repeat(nodes, weights), np.ones(weights.sum())
    )
    np.testing.assert_allclose(shares, again, rtol=1e-9)
    np.testing.assert_allclose(
        row_penalties(tree, 7 * X + 100, nodes, weights / 10), 49 * shares, rtol=1e-6
    )
    assert (shares > 0).all()
    assert np.isfinite(shares).all()


def drawn(between, within, n_leaves=12, n_samples=400, n_features=6):
    """Samples of three groups of classes, with the variances that they are drawn from."""
    rng = np.random.default_rng(0)
    names = {f"{g}": [f"{g}.{leaf}" for leaf in range(n_leaves)] for g in range(3)}
    tree = Taxonomy.from_nested(names)
    means = []
    for _ in names:
        group = np.sqrt(between[0]) * rng.normal(size=n_features)
        means += [
            group + np.sqrt(between[1]) * rng.normal(size=n_features) for _ in range(n_leaves)
        ]
    leaf = np.repeat(np.arange(3 * n_leaves), n_samples)
    X = np.array(means)[leaf] + np.sqrt(within) * rng.normal(size=(leaf.size, n_features))
    return tree, X, tree.leaf_nodes[leaf]


def test_variances_are_those_that_samples_were_drawn_with():
    tree, X, nodes = drawn(between=(20.0, 0.5), within=2.0, n_leaves=60, n_features=80)
    within, between = variances(tree, X, nodes, np.ones(len(X)))
    assert within == pytest.approx(2.0, rel=0.02)
    # Of three groups with 80 features: 160 degrees of freedom.
    assert between[0] == pytest.approx(20.0, rel=0.3)
    assert between[1] == pytest.approx(0.5, rel=0.05)


def test_rows_are_shrunk_where_siblings_do_not_differ():
    informative, empty = (
        row_penalties(tree, X, nodes, np.ones(len(X)))
        for tree, X, nodes in (drawn((1.0, 1.0), 1.0), drawn((0.0, 1.0), 1.0))
    )
    # The groups of the second differ only by the classes that happen to be in them, a twelfth.
    assert 5 < (empty[0] / empty[-1]) / (informative[0] / informative[-1]) < 30


def test_what_is_the_same_for_all_depths_grows_fivefold_and_falls_with_the_number_of_siblings():
    tree = Taxonomy.from_nested({"x": ["a", "b"], "y": ["c", "d"]})
    nodes = tree.resolve(np.repeat(["a", "b", "c", "d"], 2))
    # x and y at ±1 of the first feature, siblings at ±1 / sqrt 2 of the second: 2 for both depths.
    X = np.array([[1, 1], [1, 1], [1, -1], [1, -1], [-1, 1], [-1, 1], [-1, -1], [-1, -1.0]])
    X += np.tile([[0, 0.5], [0, -0.5]], (4, 1))
    within = 0.25 / 2
    expected = within**2 / (2 / 2) / np.sqrt(2) * np.array([5**-0.5] * 2 + [5**0.5] * 4)
    # Under the bound of a tenth: 0.1 (0.25 + 2) < 0.25.
    np.testing.assert_allclose(row_penalties(tree, X, nodes, np.ones(8)), expected)
    # The same variances with more siblings.
    for n_classes, root in ((4, 2.0), (30, 30**0.5), (100, 30**0.5)):
        flat = Taxonomy.flat([f"{n:03}" for n in range(n_classes)])
        nodes = np.repeat(flat.leaf_nodes, 2)
        X = np.repeat(np.arange(n_classes), 2)[:, None] + np.tile([[0.5], [-0.5]], (n_classes, 1))
        between = np.var(np.arange(n_classes), ddof=1)
        within = max(0.25, 0.1 * (0.25 + between))
        shares = row_penalties(flat, X, nodes, np.ones(len(X)))
        np.testing.assert_allclose(shares, within**2 / between / root)


def test_each_row_has_the_width_of_its_own_node_and_the_depth_of_its_own_way():
    # Two, three and two decisions deep; the root decides between two, x between three, y two.
    tree = Taxonomy.from_nested({"x": ["a", "b", "c"], "y": {"d": None, "e": ["f", "g"]}})
    nodes = np.repeat(tree.resolve(["a", "b", "c", "d", "f", "g"]), 20)
    X = np.random.default_rng(0).normal(size=(len(nodes), 4)) + 2 * nodes[:, None]
    within, between = variances(tree, X, nodes, np.ones(len(nodes)))
    by_hand = {"x": (0, 2), "y": (0, 2), "a": (1, 3), "b": (1, 3), "c": (1, 3), "d": (1, 2)}
    by_hand |= {"e": (1, 2), "f": (2, 2), "g": (2, 2)}
    shares = row_penalties(tree, X, nodes, np.ones(len(nodes)))
    for name, share in zip(tree.labels(tree.decision_children), shares, strict=True):
        depth, width = by_hand[name]
        expected = within**2 / between[depth] * 5 ** (depth / 2 - 0.5) / width**0.5
        assert share == pytest.approx(expected)


def test_siblings_that_do_not_differ_at_all_have_a_bound():
    tree = Taxonomy.from_nested({"x": ["a", "b"], "y": ["c", "d"]})
    nodes = tree.resolve(np.repeat(["a", "b", "c", "d"], 2))
    X = np.array([[1, 1], [1, -1], [1, 1], [1, -1], [-1, 1], [-1, -1], [-1, 1], [-1, -1.0]])
    within, between = variances(tree, X, nodes, np.ones(8))
    # The whole is 1 within classes, and a third of 2 between siblings, of three pairs.
    assert within == pytest.approx(1 / 2)
    np.testing.assert_allclose(between, [2 / 2, 0.001 * (1 + 2 / 3) / 2])


def test_a_depth_without_two_siblings_that_have_samples_takes_the_mean_of_the_others():
    nodes = TREE.resolve(np.repeat(["lynx", "fox", "bear"], 10))
    X = np.random.default_rng(0).normal(size=(30, 3)) + 3 * np.repeat(np.arange(3), 10)[:, None]
    _, between = variances(TREE, X, nodes, np.ones(30))
    assert between[1] == between[2] == pytest.approx(between[0])


def test_unequal_weights_count_in_the_penalty_of_a_fit():
    tree, X, nodes = drawn((1.0, 0.5), 1.0, n_leaves=3, n_samples=10)
    weights = np.tile([0.2, 3.0], len(X) // 2)
    y = tree.labels(nodes)
    clf = H2EDLClassifier(tree, backbone=None, l2_metric="identity", l2_relaxation=1.0)
    clf.fit(X, y, sample_weight=weights)
    features = clf.network_.standardized(torch.from_numpy(X))
    shares = row_penalties(tree, features.numpy(), nodes, weights)
    l2 = default_l2(X.shape[1], weights.sum(), "separation")
    head = clf.network_.head
    with torch.no_grad():
        losses = head.loss(features, head.prepare(nodes), np.inf).numpy()
    squares = head.linear.weight.detach().square().sum(1).numpy()
    expected = np.average(losses, weights=weights) + l2 / 2 * shares @ squares
    assert clf.history_["objective"][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "n_samples"),
    [
        ([2.0, 3.0, 1.0, 1.0], 7.0),  # like repeated samples
        ([0.01] * 4, 4.0),
        ([1.0, 1.0, 1e-9, 1e-9], 2.0),  # continuous where a weight vanishes
    ],
)
def test_what_weights_make_of_the_number_of_samples(weights, n_samples, monkeypatch):
    seen = []

    def record(n_features, n_samples, shape):
        seen.append(n_samples)
        return default_l2(n_features, n_samples, shape)

    monkeypatch.setattr("skh2edl.solvers.default_l2", record)
    X, y = np.repeat(np.eye(4), 10, axis=0), np.repeat(["a", "b", "c", "d"], 10)
    H2EDLClassifier(backbone=None).fit(X, y, sample_weight=np.repeat(weights, 10))
    assert seen == [pytest.approx(10 * n_samples)]


def test_rows_that_differ_much_take_no_more_iterations_for_it(monkeypatch):
    tree, X, nodes = drawn((0.0, 1.0), 1.0, n_leaves=30, n_samples=10, n_features=60)
    y = tree.labels(nodes)
    aware = H2EDLClassifier(tree, backbone=None, l2=0.1, tol=1e-5).fit(X, y)
    monkeypatch.setattr("skh2edl.solvers.Curvature", lambda *arguments: None)
    unaware = H2EDLClassifier(tree, backbone=None, l2=0.1, tol=1e-5).fit(X, y)
    assert aware.n_iter_ < 0.8 * unaware.n_iter_
    objectives = [clf.history_["objective"][-1] for clf in (aware, unaware)]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)


@pytest.mark.parametrize("method", [H2EDLClassifier, HierCEClassifier])
def test_one_class_without_a_penalty_is_fitted(method):
    X = np.random.default_rng(0).normal(size=(40, 3))
    clf = method(TREE, backbone=None, l2=0, l2_shape="separation").fit(X, ["lynx"] * 40)
    assert (clf.predict(X) == "lynx").all()


@pytest.mark.parametrize(
    ("X", "labels"),
    [
        (np.ones((4, 3)), ["lynx", "puma", "fox", "wolf"]),  # nothing differs
        (np.eye(4), ["lynx", "puma", "fox", "wolf"]),  # a sample a class
        (np.eye(4), ["cat", "cat", "dog", "bear"]),  # nothing below the first decision
        (np.eye(4), ["cat", "cat", "cat", "cat"]),  # one side of it
        (np.eye(4), ["lynx", "puma", "lynx", "puma"]),
        (np.eye(4), [TREE.labels([0])[0]] * 4),  # the root, which says nothing
    ],
)
def test_shares_are_finite_where_samples_tell_little(X, labels):
    shares = row_penalties(TREE, X, TREE.resolve(labels), np.ones(4))
    assert np.isfinite(shares).all()
    assert (shares > 0).all()


def test_a_label_that_others_refine_says_nothing_of_the_spread():
    rng = np.random.default_rng(0)
    labels = np.repeat(["lynx", "puma", "tabby", "fox", "wolf", "bear"], 5)
    X = rng.normal(size=(30, 3))
    alone = row_penalties(TREE, X - X.mean(0), TREE.resolve(labels), np.ones(30))
    more = np.concatenate([X, rng.normal(size=(10, 3))])
    nodes = TREE.resolve([*labels, *["cat", "dog"] * 5])
    with_partial = row_penalties(TREE, more, nodes, np.ones(40))
    np.testing.assert_allclose(with_partial, alone, rtol=1e-9)


def test_the_default_falls_with_samples_and_grows_with_features():
    assert default_l2(1280, 500, "separation") == pytest.approx(216 / 500)
    assert default_l2(20, 500, "separation") == pytest.approx(216 / 500 / 8)
    assert default_l2(2560, 500, "separation") == pytest.approx(432 / 500)
    assert default_l2(1280, 500) == default_l2(1280, 5) == 0.003


@pytest.mark.parametrize("factor", [1.0, 0.01, 1e-300, 3.0])
def test_small_weights_are_not_taken_for_few_samples(factor):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), np.repeat(["a", "b", "c"], 20)
    clf = H2EDLClassifier(backbone=None, l2_relaxation=1.0)
    weighted = clone(clf).fit(X, y, sample_weight=np.full(60, factor))
    l2 = 216 * (5 / 1280) ** 0.5 / (60 * max(factor, 1.0))
    named = clone(clf).set_params(l2=l2).fit(X, y)
    np.testing.assert_allclose(weighted.predict_proba(X), named.predict_proba(X), rtol=1e-4)


def test_a_constant_feature_is_none():
    tree, X, nodes = drawn((1.0, 0.5), 1.0, n_leaves=3, n_samples=20)
    constant = np.hstack([X, np.full((len(X), 2), 7.0)])
    expected = row_penalties(tree, X, nodes, np.ones(len(X)))
    single = row_penalties(tree, X.astype(np.float32), nodes, np.ones(len(X)))
    np.testing.assert_allclose(single, expected, rtol=1e-4)
    np.testing.assert_allclose(row_penalties(tree, constant, nodes, np.ones(len(X))), expected)
