"""H2EDLClassifier as a user meets it: labels at any depth, opinions, scikit-learn's tools."""

import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import FlatCEClassifier, H2EDLClassifier, Hardware, HierCEClassifier, Prior, Taxonomy
from skh2edl.estimators.h2edl import VARIANTS
from skh2edl.scorers import hierarchical_scorers, make_level_scorer

TREE = Taxonomy.from_paths(
    [
        ("cat", "wild", "lynx"),
        ("cat", "wild", "puma"),
        ("cat", "tame", "tabby"),
        ("dog", "fox"),
        ("dog", "wolf"),
        ("dog", "hound"),
        ("bear",),
    ],
    level_names=("family", "group", "kind"),
)


def blobs(n_each=30, spread=1.0, seed=0):
    """Gaussian clouds whose centres follow the tree: siblings lie close together."""
    rng = np.random.default_rng(seed)
    axes = {path: rng.normal(size=12) for leaf in TREE.leaves for path in prefixes(leaf)}
    X, y = [], []
    for leaf in TREE.leaves:
        path = TREE.path(leaf)
        centre = sum(3.0 / 2**d * axes[path[: d + 1]] for d in range(len(path)))
        X.append(centre + spread * rng.normal(size=(n_each, 12)))
        y += [leaf] * n_each
    return np.concatenate(X), np.array(y)


def prefixes(leaf):
    path = TREE.path(leaf)
    return [path[: depth + 1] for depth in range(len(path))]


@pytest.fixture(scope="module")
def data():
    return blobs()


@pytest.fixture(scope="module")
def fitted(data):
    return H2EDLClassifier(TREE, backbone=None).fit(*data)


def test_classes_are_all_leaves_sorted_as_numpy_sorts(fitted, data):
    np.testing.assert_array_equal(fitted.classes_, np.unique(TREE.leaves))
    assert fitted.score(*data) > 0.9


def test_levels_add_up_the_leaves_below(fitted, data):
    X, _ = data
    proba = fitted.predict_proba(X)
    for level in ("family", "group", "kind", 1, 3):
        labels = TREE.level(level)
        level_proba = fitted.predict_proba_level(X, level)
        for column, label in enumerate(labels):
            below = [leaf == label or label in TREE.path(leaf) for leaf in fitted.classes_.tolist()]
            np.testing.assert_allclose(level_proba[:, column], proba[:, below].sum(1), atol=1e-12)
        expected = np.array(labels)[level_proba.argmax(1)]
        np.testing.assert_array_equal(fitted.predict_level(X, level), expected)


def test_the_opinion_and_the_classifier_are_two_readings_of_one_evidence(fitted, data):
    X, _ = data
    opinion = fitted.predict_hyper_opinion(X)
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(opinion.leaf_probability[:, TREE.leaf_order], proba, rtol=1e-6)
    np.testing.assert_allclose(opinion.mass.sum(1), 1, atol=1e-12)
    lynx = fitted.classes_.tolist().index("lynx")
    assert (opinion.belief("lynx") <= proba[:, lynx] + 1e-12).all()
    assert (opinion.plausibility("lynx") >= proba[:, lynx] - 1e-12).all()


def test_far_from_the_data_of_a_leaf_the_belief_stops_higher_up(data):
    X, y = blobs(n_each=60)
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, y)
    between_lynx_and_puma = (X[y == "lynx"].mean(0) + X[y == "puma"].mean(0)) / 2
    opinion = clf.predict_hyper_opinion([between_lynx_and_puma, X[y == "lynx"].mean(0)])
    assert opinion.belief("cat")[0] > 0.8
    uncommitted = 1 - opinion.belief("lynx") - opinion.belief("puma")
    assert uncommitted[0] > uncommitted[1]


# Labels ----------------------------------------------------------------------------------------


def test_labels_may_name_any_node_in_any_form(data):
    X, y = data
    mixed = y.astype(object)
    mixed[y == "lynx"] = [("cat", "wild", "lynx"), "cat/wild/lynx", "lynx"] * 10
    mixed[::7] = ["root" if i % 2 else TREE.path(leaf)[0] for i, leaf in enumerate(y[::7])]
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, list(mixed))
    assert clf.score(X, y) > 0.9


def test_an_unlabelled_sample_changes_nothing(data):
    X, y = data
    labelled = np.arange(len(y)) % 2 == 0
    both = H2EDLClassifier(TREE, backbone=None).fit(X, np.where(labelled, y, "root"))
    alone = H2EDLClassifier(TREE, backbone=None).fit(X[labelled], y[labelled])
    np.testing.assert_allclose(both.predict_proba(X), alone.predict_proba(X), atol=1e-6)


def test_coarse_labels_keep_the_level_they_name(data):
    X, y = data
    X_test, y_test = blobs(seed=0)
    coarse = np.where(np.arange(len(y)) % 4 == 0, y, [TREE.path(leaf)[0] for leaf in y])
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, coarse)
    families = np.array([TREE.path(leaf)[0] for leaf in y_test])
    assert (clf.predict_level(X_test, "family") == families).mean() > 0.95


def test_a_head_that_was_never_supervised_reports_nothing(data):
    X, y = data
    dogs = np.char.startswith(np.array(["/".join(TREE.path(leaf)) for leaf in y]), "dog")
    labels = np.where(dogs, "dog", y)
    clf = H2EDLClassifier(TREE, backbone=None).fit(X, labels)
    assert clf.unsupervised_nodes_ == ["dog"]
    opinion = clf.predict_hyper_opinion(X)
    position = TREE.branching.index(("dog",))
    np.testing.assert_array_equal(opinion.vacuity[:, position], 1)
    # p = a, which is a third for each kind of dog.
    dog_columns = [clf.classes_.tolist().index(name) for name in ("fox", "hound", "wolf")]
    kinds = clf.predict_proba(X)[:, dog_columns]
    np.testing.assert_allclose(kinds / kinds.sum(1, keepdims=True), 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("solver", ["lbfgs", "adamw"])
def test_ancestor_labels_leave_all_outputs_below_them_as_they_started(data, solver):
    X, y = data
    coarse = np.array([TREE.path(leaf)[0] for leaf in y])
    clf = H2EDLClassifier(
        TREE, backbone=None, solver=solver, max_epochs=3, validation_fraction=None, random_state=0
    ).fit(X, coarse)
    weight, bias = (item.detach().numpy() for item in clf.network_.head.linear.parameters())
    below = TREE.decision_nodes > 0
    assert (weight[below] == 0).all()
    assert (weight[~below] != 0).any(axis=1).all()
    # A vacuity of 1/2 takes as much evidence as prior: 300 softplus(b) = 1.
    np.testing.assert_allclose(300 * np.log1p(np.exp(bias[below].astype(float))), 1, rtol=1e-5)


def test_further_training_wakes_a_head_that_was_never_supervised(data):
    X, y = data
    coarse = np.array([TREE.path(leaf)[0] for leaf in y])
    clf = H2EDLClassifier(TREE, backbone=None, warm_start=True).fit(X, coarse)
    assert clf.unsupervised_nodes_ == ["cat", "dog", "wild"]
    clf.fit(X, y)
    assert clf.unsupervised_nodes_ == []
    assert clf.score(X, y) > 0.9


def test_score_leaves_out_labels_that_end_above_the_leaves(fitted, data):
    X, y = data
    mixed = y.copy()
    mixed[:40] = "cat"
    assert fitted.score(X, mixed) == fitted.score(X[40:], y[40:])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["lynx", "pumma"], "'pumma' is close to 'puma'"),
        (["root", "root"], "all labels are the root"),
        ([["cat", "lynx"], ["dog", "fox"]], r"are not in the taxonomy, first \[\('cat', 'lynx'\)"),
        (["lynx"], "inconsistent numbers of samples"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        H2EDLClassifier(TREE, backbone=None).fit(np.eye(2), labels)


# Method ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *VARIANTS.values(),
        {"risk": "log", "evidence": "exp", "kl_weight": 0.001},
        {"risk": "digamma", "evidence": "softplus", "evidence_scale": "learn"},
        {"evidence": "relu", "tol": 1e-2},  # its kinks keep the gradient from going lower
        {"prior": Prior(power=0.5, weight=2.0)},
        {"consistency_weight": 0.1, "kl_per_child": False, "depth_weights": [1.0, 0.5, 0.25]},
    ],
)
def test_every_form_of_the_method_learns(data, options):
    clf = H2EDLClassifier(TREE, backbone=None, **options).fit(*data)
    assert clf.score(*data) > 0.85


def test_base_rates_follow_the_formula(data):
    X, y = data
    keep = (y != "fox") | (np.arange(len(y)) % 3 == 0)
    clf = H2EDLClassifier(TREE, backbone=None, prior=Prior(power=0.5))
    clf.fit(X[keep], y[keep])
    start, stop = TREE.decision_offsets[TREE.branching.index(("dog",)) :][:2]
    expected = (np.array([10, 30, 30]) + 1.0) ** -0.5
    rates = clf.network_.head.base_rate[start:stop].numpy()
    np.testing.assert_allclose(rates, expected / expected.sum(), rtol=1e-6)


def test_the_prior_weight_is_w_scale_times_the_number_of_children(data):
    clf = H2EDLClassifier(TREE, backbone=None, prior=Prior(scale=0.5), max_iter=1000).fit(*data)
    opinion = clf.predict_hyper_opinion(data[0][:5])
    children = np.diff(TREE.decision_offsets)
    total = np.add.reduceat(opinion.evidence, TREE.decision_offsets[:-1], axis=1)
    np.testing.assert_allclose(
        opinion.vacuity, 0.5 * children / (total + 0.5 * children), rtol=1e-6
    )


def test_depth_weights_of_a_wrong_length_are_refused(data):
    with pytest.raises(ValueError, match="depth_weights must hold 3 weights"):
        H2EDLClassifier(TREE, backbone=None, depth_weights=[1.0]).fit(*data)
    with pytest.raises(ValueError, match="depth_weights must be finite numbers of at least 0"):
        H2EDLClassifier(TREE, backbone=None, depth_weights=[1.0, -1.0, 1.0]).fit(*data)


def test_the_head_only_solver_reaches_the_optimum_of_its_objective():
    # Flat-CE with this penalty is scikit-learn's multinomial logistic regression.
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    ours = FlatCEClassifier(backbone=None, l2=0.01, tol=1e-8).fit(X, y)
    theirs = LogisticRegression(C=1 / (0.01 * 4), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


def test_flat_and_hierarchical_softmax_are_one_on_a_flat_tree(data):
    X, y = data
    flat = FlatCEClassifier(backbone=None, tol=1e-9).fit(X, y)
    tree = HierCEClassifier(backbone=None, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(flat.predict_proba(X), tree.predict_proba(X), atol=1e-6)


def test_epochs_of_adamw_fit_features_too(data):
    clf = H2EDLClassifier(
        TREE, backbone=None, solver="adamw", max_epochs=15, learning_rate=0.1, random_state=0,
        hardware=Hardware(accelerator="cpu"),
    )  # fmt: skip
    assert clf.fit(*data).score(*data) > 0.85
    assert clf.n_iter_ == 15


def test_groups_stay_on_one_side_of_the_validation_split(data, monkeypatch):
    from skh2edl.estimators import base as _base

    X, y = data
    groups = np.arange(len(y)) // 5
    seen = {}
    original = _base.split_validation

    def spy(targets, groups, fraction, seed):
        rows, held = original(targets, groups, fraction, seed)
        seen["shared"] = set(groups[rows]) & set(groups[held])
        return rows, held

    monkeypatch.setattr(_base, "split_validation", spy)
    clf = H2EDLClassifier(TREE, backbone=None, solver="adamw", max_epochs=1)
    clf.fit(X, y, groups=groups)
    assert seen["shared"] == set()


# scikit-learn's tools --------------------------------------------------------------------------


def test_cross_validation_with_hierarchical_scorers():
    X, y = blobs(spread=4.0)  # some errors in every fold: without any, severity is undefined
    y = y.astype(object)
    y[::6] = [TREE.path(leaf)[0] for leaf in y[::6]]
    clf = H2EDLClassifier(TREE, backbone=None)
    groups = np.arange(len(y)) // 3
    result = cross_validate(
        clf, X, y, scoring=hierarchical_scorers(TREE), cv=GroupKFold(3), groups=groups
    )
    assert all(np.isfinite(scores).all() for scores in result.values())
    family = make_level_scorer("balanced_accuracy", level="family", taxonomy=TREE)
    assert cross_val_score(clf, X, y, scoring=family, cv=3).min() > 0.6


def test_a_grid_search_over_the_method(data):
    X, y = data
    grid = {
        "h2edlclassifier__kl_weight": [0.0, 0.1],
        "h2edlclassifier__leaf_weight": [0.1, 1.0],
        "h2edlclassifier__prior__power": [0.0, 1.0],
    }
    pipeline = make_pipeline(StandardScaler(), H2EDLClassifier(TREE, backbone=None))
    pipeline.set_params(h2edlclassifier__tol=1e-2)
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(X, y)
    assert len(search.cv_results_["params"]) == 8
    assert np.isfinite(search.best_score_)


def test_a_search_through_dask_equals_one_without(data):
    distributed = pytest.importorskip("distributed")
    X, y = data
    clf = H2EDLClassifier(TREE, backbone=None, max_iter=30, tol=1e-2)
    search = GridSearchCV(clf, {"l2": [0.001, 0.1]}, cv=2, scoring="accuracy")
    alone = clone(search).fit(X, y).cv_results_["mean_test_score"]
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_backend("dask"),
    ):
        together = clone(search).fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(alone, together)


def test_pickle_and_joblib_keep_the_bits(fitted, data, tmp_path):
    X, _ = data
    proba = fitted.predict_proba(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), proba)
    joblib.dump(fitted, tmp_path / "model.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").predict_proba(X), proba)


def test_predictions_do_not_depend_on_the_batch(fitted, data):
    X, _ = data
    whole = fitted.predict_proba(X)
    single = np.concatenate([fitted.predict_proba(row[None]) for row in X[:20]])
    np.testing.assert_allclose(single, whole[:20], atol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(X[::-1]), whole[::-1], atol=1e-12)


def test_callbacks_see_every_epoch_and_may_stop(data):
    callback = pytest.importorskip("sklearn.callback")

    class StopAfterTwo:
        """Count epochs and stop after the second."""

        def __init__(self):
            self.accuracies = []

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            if context.task_name == "epoch":
                self.accuracies.append(fitted_estimator.score(*data))
            return len(self.accuracies) == 2

    watcher = StopAfterTwo()
    assert isinstance(watcher, callback.FitCallback)
    clf = H2EDLClassifier(
        TREE, backbone=None, solver="adamw", max_epochs=9, learning_rate=0.05
    ).set_callbacks(watcher)
    clf.fit(*data)
    assert clf.n_iter_ == 2
    assert len(watcher.accuracies) == 2


@pytest.mark.parametrize("options", [{}, {"initial_vacuity": 0.9}])
def test_a_network_that_learns_in_epochs_starts_at_the_initial_vacuity(data, options):
    X, y = data
    clf = H2EDLClassifier(
        TREE,
        backbone=None,
        solver="adamw",
        learning_rate=1e-9,
        max_epochs=1,
        validation_fraction=None,
        random_state=0,
        **options,
    ).fit(X, y)
    opinion = clf.predict_hyper_opinion(X[:1])
    expected = options.get("initial_vacuity", 0.5)
    np.testing.assert_allclose(opinion.vacuity, expected, rtol=1e-4)


@pytest.mark.parametrize("method", [H2EDLClassifier, HierCEClassifier])
def test_a_fit_minimises_the_losses_plus_the_squared_weights(method, data):
    X, y = data
    clf = method(TREE, backbone=None, l2=0.02).fit(X, y)
    head = clf.network_.head
    features = clf.network_.standardized(torch.from_numpy(X))
    with torch.no_grad():
        loss = head.loss(features, head.prepare(TREE.resolve(y)), 1.0).numpy().sum()
    squares = head.linear.weight.detach().square().sum().item()
    total = loss + 0.02 * X.shape[1] / 2 * squares
    assert clf.history_["objective"][-1] == pytest.approx(total / len(X), rel=1e-9)


def test_nodes_that_decide_nothing_do_not_change_the_penalty(data):
    X = data[0][:90]
    y = np.repeat(["a", "b", "c"], 30)
    below = {"A": {"A1": ["a"]}, "B": {"B1": ["b"]}, "C": {"C1": ["c"]}}
    trees = (
        Taxonomy.flat(["a", "b", "c"]),
        Taxonomy.from_nested({"only": ["a", "b", "c"]}),
        Taxonomy.from_nested(below),
    )
    first, *others = (H2EDLClassifier(tree, backbone=None).fit(X, y) for tree in trees)
    for other in others:
        np.testing.assert_allclose(other.predict_proba(X), first.predict_proba(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [100, 300])
def test_many_classes_that_are_alike_rare_are_learnt(n_classes):
    # Gradients of the first step are below any usual tolerance here.
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), 8)
    X = (rng.normal(size=(n_classes, 64))[y] + 0.5 * rng.normal(size=(y.size, 64))).astype("f4")
    clf = H2EDLClassifier(backbone=None).fit(X, y)
    assert clf.score(X, y) > 0.95
    again = clf.set_params(warm_start=True).fit(X, y)
    assert again.n_iter_ <= 2


@pytest.mark.parametrize("seed", range(6))
def test_classes_that_lie_far_apart_are_told_apart(seed):
    # Hardly any penalty is left here, and a long step takes evidence beyond all bounds.
    rng = np.random.default_rng(seed)
    y = np.repeat(TREE.leaves, 30)
    means = {leaf: 10.0 ** rng.uniform(0, 1.5) * rng.normal(size=12) for leaf in TREE.leaves}
    X = np.array([means[leaf] for leaf in y]) + rng.normal(size=(y.size, 12))
    for kl_weight in (0.001, 0.01):
        clf = H2EDLClassifier(TREE, backbone=None, kl_weight=kl_weight).fit(X, y)
        assert clf.score(X, y) > 0.95
