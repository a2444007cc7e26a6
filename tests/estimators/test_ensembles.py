"""Ensembles: members that differ by seed, the mean of what they say, opinions fused."""

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import (
    FlatCEClassifier,
    H2EDLClassifier,
    HyperOpinion,
    Taxonomy,
    TreeEnsembleClassifier,
)
from skh2edl.estimators.ensembles import match_moments

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.repeat(TREE.leaves, 30)
    return rng.normal(size=(120, 6)) + 1.5 * np.repeat(np.eye(4, 6), 30, axis=0), y


def by_epochs(method=H2EDLClassifier, **parameters):
    options = {"backbone": None, "solver": "adamw", "max_epochs": 2, "validation_fraction": None}
    return method(TREE, **(options | parameters))


@parametrize_with_checks([TreeEnsembleClassifier(LogisticRegression(), 2)])
def test_all_of_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fused(data):
    clf = TreeEnsembleClassifier(by_epochs(), 3, how="opinions", random_state=0)
    return clf.fit(*data)


def test_members_differ_by_seed_and_by_nothing_else(fused, data):
    seeds = [member.random_state for member in fused.estimators_]
    assert len(set(seeds)) == 3
    assert fused.estimator.random_state is None
    alone = clone(fused.estimators_[1]).fit(*data)
    np.testing.assert_array_equal(
        alone.predict_log_proba(data[0]), fused.estimators_[1].predict_log_proba(data[0])
    )
    first, second = (member.predict_proba(data[0]) for member in fused.estimators_[:2])
    assert np.abs(first - second).max() > 1e-6


def test_the_same_random_state_gives_the_same_members(fused, data):
    again = clone(fused).fit(*data)
    np.testing.assert_array_equal(again.predict_proba(data[0]), fused.predict_proba(data[0]))
    other = clone(fused).set_params(random_state=1).fit(*data)
    assert np.abs(other.predict_proba(data[0]) - fused.predict_proba(data[0])).max() > 1e-9


def test_every_random_state_inside_is_set(data):
    model = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_features=1))
    clf = TreeEnsembleClassifier(model, 3, taxonomy=TREE, random_state=0).fit(*data)
    seeds = [member[-1].random_state for member in clf.estimators_]
    assert len(set(seeds)) == 3
    assert all(isinstance(seed, int) for seed in seeds)


def test_probabilities_are_the_mean_of_the_members(data):
    X, y = data
    model = by_epochs(FlatCEClassifier, learning_rate=0.1)
    clf = TreeEnsembleClassifier(model, 3, random_state=0).fit(X, y)
    mean = np.mean([member.predict_proba(X) for member in clf.estimators_], axis=0)
    np.testing.assert_allclose(clf.predict_proba(X), mean, rtol=1e-5)
    np.testing.assert_array_equal(clf.predict(X), clf.classes_[mean.argmax(axis=1)])
    families = clf.predict_proba_level(X, 1)
    dogs = mean[:, [clf.classes_.tolist().index(name) for name in ("fox", "wolf")]].sum(axis=1)
    np.testing.assert_allclose(families[:, 1], dogs, rtol=1e-5)
    assert not hasattr(clf, "predict_hyper_opinion")


def test_opinions_are_fused_by_averaging(fused, data):
    X, _ = data
    opinions = [member.predict_hyper_opinion(X) for member in fused.estimators_]
    together = HyperOpinion.from_evidence(TREE, np.concatenate([o.evidence for o in opinions]))
    expected = together.fuse(np.tile(np.arange(len(X)), 3), how="averaging")
    opinion = fused.predict_hyper_opinion(X)
    np.testing.assert_allclose(opinion.evidence, expected.evidence, rtol=1e-6)
    np.testing.assert_allclose(
        fused.predict_proba(X), expected.leaf_probability[:, TREE.leaf_order], rtol=1e-5
    )
    assert opinion.groups is None


def test_moments_find_the_dirichlet_that_members_are_drawn_from():
    alpha = np.array([4.0, 9.0, 1.5, 6.0])
    rng = np.random.default_rng(0)
    drawn = rng.dirichlet(alpha, (20_000, 2))
    opinion = match_moments(drawn, Taxonomy.flat(list("abcd")), prior_weight=4.0)
    np.testing.assert_allclose(opinion.evidence + 1, [alpha, alpha], rtol=0.03)
    np.testing.assert_allclose(opinion.vacuity, 4 / alpha.sum(), rtol=0.03)
    # Fewer draws scatter more, but not to one side of the variance.
    few = [rng.dirichlet(alpha, (3, 1)) for _ in range(4000)]
    spread = [np.var(members, axis=0, ddof=1).sum() for members in few]
    opinions = match_moments(np.concatenate(few, axis=1), Taxonomy.flat(list("abcd")), 0.01)
    strength = opinions.evidence.sum(axis=1) + 0.01
    mean = np.concatenate(few, axis=1).mean(axis=0)
    expected = (mean * (1 - mean)).sum(axis=1) / spread - 1
    np.testing.assert_allclose(strength, np.maximum(expected, 0.01), rtol=0.01)


def test_moments_multiply_to_the_mean_of_the_leaves_where_evidence_is_plenty():
    rng = np.random.default_rng(1)
    members = rng.dirichlet([2.0, 3.0, 4.0, 5.0], (5, 30))
    members = 0.99 * members.mean(axis=0) + 0.01 * members  # they agree, so the prior is little
    opinion = match_moments(members, TREE)
    np.testing.assert_allclose(opinion.leaf_probability, members.mean(axis=0), atol=1e-3)
    assert opinion.vacuity.max() < 0.01


def test_members_that_disagree_leave_vacuity_at_the_node_where_they_do():
    # Of the same family, of which they do not agree which kind; and of another family each.
    within = np.array([[[0.88, 0.02, 0.05, 0.05]], [[0.02, 0.88, 0.05, 0.05]]])
    above = np.array([[[0.48, 0.48, 0.02, 0.02]], [[0.02, 0.02, 0.48, 0.48]]])
    alike = np.array([[[0.7, 0.1, 0.1, 0.1]], [[0.69, 0.11, 0.1, 0.1]]])
    for members, vacuous in ((within, [False, True]), (above, [True, False])):
        opinion = match_moments(members, TREE)
        assert (opinion.vacuity[0, :2] > 0.9).tolist() == vacuous
        assert opinion.leaf_probability.sum() == pytest.approx(1)
    assert match_moments(alike, TREE).vacuity[0, :2].max() < 0.01
    certain = np.array([[[1.0, 0.0, 0.0, 0.0]]] * 2)
    assert match_moments(certain, TREE).leaf_probability[0, 0] > 0.999


def test_any_members_make_an_opinion_by_their_moments(data):
    X, y = data
    model = DecisionTreeClassifier(max_depth=3, max_features=1)
    clf = TreeEnsembleClassifier(
        model, 10, how="moments", bootstrap=True, taxonomy=TREE, random_state=0
    ).fit(X, y)
    opinion = clf.predict_hyper_opinion(X)
    members = np.stack([member.predict_proba(X) for member in clf.estimators_])
    expected = match_moments(members[..., np.argsort(TREE.leaf_order)], TREE)
    np.testing.assert_allclose(opinion.evidence, expected.evidence, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        clf.predict_proba(X), opinion.leaf_probability[:, TREE.leaf_order], rtol=1e-9
    )
    assert clf.score(X, y) > 0.5
    loose = clone(clf).set_params(prior_weight=0.1).fit(X, y).predict_hyper_opinion(X)
    assert (loose.vacuity < opinion.vacuity)[opinion.vacuity < 1].all()
    with pytest.raises(ValueError, match="how='moments' needs two members or more"):
        TreeEnsembleClassifier(GaussianNB(), 1, how="moments").fit(X, y)


def test_bootstrap_makes_members_of_a_deterministic_estimator_differ(data):
    X, y = data
    model = H2EDLClassifier(TREE, backbone=None, prior="inverse_frequency")
    same = TreeEnsembleClassifier(model, 2, how="opinions", random_state=0).fit(X, y)
    first, second = (member.predict_proba(X) for member in same.estimators_)
    np.testing.assert_array_equal(first, second)
    clf = clone(same).set_params(bootstrap=True).fit(X, y)
    first, second = (member.predict_hyper_opinion(X) for member in clf.estimators_)
    assert np.abs(first.evidence - second.evidence).max() > 0.1
    # Their counts differ, hence their base rates; the fused opinion takes the mean.
    opinion = clf.predict_hyper_opinion(X)
    np.testing.assert_allclose(opinion.base_rate, (first.base_rate + second.base_rate) / 2)
    assert not np.allclose(first.base_rate, second.base_rate)


def test_a_member_that_missed_a_class_can_still_be_averaged():
    X = np.arange(12.0)[:, None]
    y = ["fox"] + ["lynx"] * 6 + ["wolf"] * 5
    clf = TreeEnsembleClassifier(
        GaussianNB(var_smoothing=1), 8, bootstrap=True, taxonomy=TREE, random_state=0
    ).fit(X, y)
    assert len({member.classes_.size for member in clf.estimators_}) > 1
    proba = clf.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    fox = clf.classes_.tolist().index("fox")
    share = np.mean([
        member.predict_proba(X)[:, 0] if "fox" in member.classes_ else np.zeros(12)
        for member in clf.estimators_
    ], axis=0)  # fmt: skip
    np.testing.assert_allclose(proba[:, fox], share, atol=1e-9)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_members_are_the_same_when_trained_at_the_same_time(data, backend):
    X, y = data
    model = DecisionTreeClassifier(max_features=1)
    clf = TreeEnsembleClassifier(model, 4, bootstrap=True, random_state=0)
    alone = clf.fit(X, y).predict_proba(X)
    with parallel_config(backend=backend):
        together = clone(clf).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(together.predict_proba(X), alone)


def test_networks_train_in_threads_too(fused, data):
    with parallel_config(backend="threading"):
        together = clone(fused).set_params(n_jobs=2).fit(*data)
    np.testing.assert_array_equal(together.predict_proba(data[0]), fused.predict_proba(data[0]))


def test_an_ensemble_helps_noisy_members(data):
    X, y = data
    tree = DecisionTreeClassifier(max_features=1, random_state=0)
    many = TreeEnsembleClassifier(tree, 30, bootstrap=True, taxonomy=TREE, random_state=0)
    alone = cross_val_score(tree, X, y, cv=4).mean()
    assert cross_val_score(many, X, y, cv=4).mean() > alone + 0.05


def test_opinions_need_an_evidential_estimator(data):
    with pytest.raises(ValueError, match="how='opinions' needs an estimator with predict_hyper"):
        TreeEnsembleClassifier(GaussianNB(), how="opinions").fit(*data)
