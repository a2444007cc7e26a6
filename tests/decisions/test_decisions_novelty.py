"""Novelty and fused subjects."""

import numpy as np
import pytest
from decisions_cases import TREE, Told, population
from scipy.stats import betabinom, entropy
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import (
    FlatCEClassifier,
    H2EDLClassifier,
    NoveltyDetector,
    Taxonomy,
    fuse_subjects,
)
from skh2edl.decisions._quantile import conformal_quantile

ANIMALS = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
MEANS = {"lynx": (-4, 3, 0), "puma": (-4, -3, 0), "fox": (4, 3, 0), "wolf": (4, -3, 0)}


def animals(n_samples, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(list(MEANS), n_samples)
    return rng.normal(size=(n_samples, 3)) + [MEANS[name] for name in y], y


@pytest.fixture(scope="module")
def evidential():
    return H2EDLClassifier(ANIMALS, backbone=None).fit(*animals(300))


@pytest.mark.slow
@parametrize_with_checks([NoveltyDetector(LogisticRegression(), false_alarm_rate=0.5)])
def test_all_of_scikit_learns_checks(estimator, check):
    check(estimator)


# Novelty -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_calibration", [50, 2000])
def test_known_samples_are_called_novel_at_the_false_alarm_rate(n_calibration):
    rate, n_splits, n_test = 0.1, 1000, 400
    stated, truth = population(n_calibration + n_test)
    detector = NoveltyDetector(FrozenEstimator(Told(TREE).fit(None)), rate)
    labels = np.array(TREE.labels(truth))
    detector.fit(stated[:n_calibration], labels[:n_calibration])
    scores = detector.predict_novelty_score(stated)
    np.testing.assert_allclose(scores, 1 - stated.max(axis=1))
    expected = conformal_quantile(scores[:n_calibration], 1 - rate, np.ones(n_calibration))
    # With the margin for batches of other sizes.
    assert detector.threshold_ == pytest.approx(expected + 1e-5, abs=1e-12)
    rng, alarms = np.random.default_rng(0), []
    for _ in range(n_splits):
        order = rng.permutation(len(scores))
        held, new = order[:n_calibration], order[n_calibration:]
        threshold = conformal_quantile(scores[held], 1 - rate, np.ones(n_calibration))
        alarms.append(np.mean(scores[new] > threshold))
    rank = np.ceil((n_calibration + 1) * (1 - rate) - 1e-9)
    spread = betabinom(n_test, n_calibration + 1 - rank, rank).std() / n_test
    error = 4 * spread / np.sqrt(n_splits)
    assert rate - 1 / (n_calibration + 1) - error <= np.mean(alarms) <= rate + error


def test_something_between_two_cats_is_told_from_both_and_called_no_dog(evidential):
    rng = np.random.default_rng(5)
    new = rng.normal(size=(200, 3)) * 0.5 + [-4, 0, 0]
    X, y = animals(300, seed=1)
    pipeline = make_pipeline(StandardScaler(), clone(evidential)).fit(*animals(300))
    for model in (evidential, pipeline):
        detector = NoveltyDetector(FrozenEstimator(model)).fit(X, y)
        assert detector.measure_ == "nonspecificity"
        scores = np.concatenate([detector.predict_novelty_score(part) for part in (X, new)])
        assert roc_auc_score(np.arange(500) >= 300, scores) > 0.8
        assert detector.predict_novelty(new).mean() > 0.15
        concepts = detector.predict_concept(new)
        novel = detector.predict_novelty(new)
        assert set(concepts[novel]) <= {"cat", "root"}
        known = concepts[~novel]
        np.testing.assert_array_equal(known, detector.predict(new)[~novel])


def test_the_largest_mass_that_stops_is_a_score(evidential):
    X, y = animals(60, seed=1)
    detector = NoveltyDetector(FrozenEstimator(evidential), measure="mass").fit(X, y)
    mass = evidential.predict_hyper_opinion(X).mass[:, 4:]
    np.testing.assert_allclose(detector.predict_novelty_score(X), mass.max(axis=1))


def test_the_concept_is_named_whatever_the_number_of_its_children():
    sizes = {"cat": 2, "dog": 2, "bird": 5, "fish": 3}
    names = {kind: [f"{kind}{i}" for i in range(n)] for kind, n in sizes.items()}
    rng = np.random.default_rng(0)
    kinds = dict(zip(sizes, 6 * rng.normal(size=(4, 12)), strict=True))
    means = {leaf: kinds[kind] + 2 * rng.normal(size=12) for kind in names for leaf in names[kind]}
    y = np.repeat(list(means), 40)
    X = rng.normal(size=(len(y), 12)) + [means[name] for name in y]
    clf = H2EDLClassifier(Taxonomy.from_nested(names), backbone=None).fit(X, y)
    detector = NoveltyDetector(FrozenEstimator(clf)).fit(X, y)
    for kind, leaves in names.items():
        # Between all that is known of its kind.
        strange = 0.3 * rng.normal(size=(50, 12)) + np.mean(
            [means[leaf] for leaf in leaves], axis=0
        )
        best = detector.predict_node_scores(strange).argmax(axis=1)
        named = [detector.taxonomy_.branching[place] for place in best]
        assert np.mean([path == (kind,) for path in named]) > 0.9


def test_the_scores_of_nodes_are_the_uncertainty_between_children():
    stated, truth = population(60)
    detector = NoveltyDetector(FrozenEstimator(Told(TREE).fit(None)), measure="entropy")
    detector.fit(stated, TREE.labels(truth))
    np.testing.assert_allclose(detector.predict_novelty_score(stated), entropy(stated, axis=1))
    under_b = stated[:, 4:8].reshape(-1, 2, 2).sum(axis=2)
    scores = detector.predict_node_scores(stated)
    expected = under_b.sum(axis=1) * entropy(under_b, axis=1)
    np.testing.assert_allclose(scores[:, TREE.branching.index(("b",))], expected)
    # The chain rule of entropy.
    np.testing.assert_allclose(scores.sum(axis=1), entropy(stated, axis=1))


@pytest.mark.parametrize("in_pipeline", [False, True])
def test_the_score_is_the_nonspecificity_of_the_opinion(evidential, in_pipeline):
    model = make_pipeline(FunctionTransformer(), evidential) if in_pipeline else evidential
    detector = NoveltyDetector(FrozenEstimator(model)).fit(*animals(100, 1))
    X = animals(50, 2)[0]
    opinion = evidential.predict_hyper_opinion(X)
    np.testing.assert_array_equal(detector.predict_novelty_score(X), opinion.nonspecificity)


def test_probabilities_alone_name_the_uncertain_concept():
    row = np.zeros(TREE.n_leaves)
    row[:3] = 0.36, 0.34, 0.3  # p, q, r: all under a1
    _, truth = population(100)
    detector = NoveltyDetector(FrozenEstimator(Told(TREE).fit(None)), 0.3)
    detector.fit(np.eye(9)[TREE.leaf_start[truth]] * 0.82 + 0.02, TREE.labels(truth))
    assert detector.predict_novelty([row]).tolist() == [True]
    assert detector.predict_concept([row]).tolist() == ["a1"]


def test_a_measure_may_be_a_function_of_the_fitted_estimator():
    X, y = animals(200)
    flat = FlatCEClassifier(ANIMALS, backbone=None)

    def margin(fitted, samples):
        top = np.sort(fitted.predict_proba(samples), axis=1)
        return top[:, -2] - top[:, -1]

    detector = NoveltyDetector(flat, measure=margin, cv=2).fit(X, y)
    expected = margin(flat.fit(X, y), X)
    np.testing.assert_allclose(detector.predict_novelty_score(X), expected, atol=1e-6)
    assert detector.predict_novelty(X).mean() < 0.15
    with pytest.raises(ValueError, match=r"one finite number for each sample, got shape \(\d+, 4"):
        NoveltyDetector(flat, measure=lambda f, s: f.predict_proba(s), cv=2).fit(X, y)


def test_a_detector_is_a_classifier_that_can_be_cross_validated():
    X, y = animals(150)
    forest = RandomForestClassifier(10, random_state=0)
    detector = NoveltyDetector(forest, taxonomy=ANIMALS, cv=3)
    assert cross_val_score(detector, X, y, cv=3).mean() > 0.9
    assert set(detector.fit(X, y).predict(X)) == set(MEANS)


def test_what_cannot_be_measured_is_refused():
    X, y = animals(18)
    with pytest.raises(ValueError, match=r"measure='mass' needs .* LogisticRegression has not"):
        NoveltyDetector(LogisticRegression(), measure="mass").fit(X, y)
    with pytest.raises(ValueError, match=r"needs at least 19 .* got 18: .*raise false_alarm_rate"):
        NoveltyDetector(LogisticRegression(), cv=2).fit(X, y)
    X, y = animals(60)
    flat = H2EDLClassifier(backbone=None)
    with pytest.raises(ValueError, match=r"opinions of H2EDLClassifier are on another taxonomy"):
        NoveltyDetector(flat, taxonomy=ANIMALS, cv=2).fit(X, y)


# Subjects ------------------------------------------------------------------------------------


def test_dependence_runs_from_adding_up_to_averaging(evidential):
    opinion = evidential.predict_hyper_opinion(animals(30, seed=2)[0])
    groups = np.arange(30) % 7
    added, averaged = (opinion.fuse(groups, how) for how in ("cumulative", "averaging"))
    np.testing.assert_allclose(fuse_subjects(opinion, groups).evidence, added.evidence, rtol=1e-5)
    one = fuse_subjects(opinion, groups, dependence=1)
    np.testing.assert_allclose(one.evidence, averaged.evidence, rtol=1e-6)
    np.testing.assert_array_equal(one.groups, np.arange(7))
    # Five photographs at a correlation of one quarter are worth 5 / (1 + 4 / 4).
    between = fuse_subjects(opinion, groups, dependence=0.25)
    np.testing.assert_allclose(between.evidence[0], 2.5 * averaged.evidence[0], rtol=1e-5)
    assert between.evidence.dtype == opinion.evidence.dtype
    assert (between.nonspecificity <= averaged.nonspecificity + 1e-6).all()
    assert (between.nonspecificity >= added.nonspecificity - 1e-6).all()


def test_fusing_photographs_improves_predictions(evidential):
    rng = np.random.default_rng(3)
    subjects = np.repeat(np.arange(100), 5)
    y = rng.choice(list(MEANS), 100)
    X = rng.normal(size=(500, 3)) * 4 + np.repeat([MEANS[name] for name in y], 5, axis=0)
    opinion = evidential.predict_hyper_opinion(X)
    alone = opinion.leaf_probability.argmax(axis=1)
    fused = fuse_subjects(opinion, subjects).leaf_probability.argmax(axis=1)
    leaves = np.array(ANIMALS.leaves)
    assert np.mean(leaves[fused] == y) > np.mean(leaves[alone] == np.repeat(y, 5)) + 0.05


def test_subjects_that_do_not_fit_are_refused(evidential):
    opinion = evidential.predict_hyper_opinion(animals(4)[0])
    with pytest.raises(TypeError, match="must be a HyperOpinion, got ndarray"):
        fuse_subjects(np.ones((2, 2)), [0, 0])
    with pytest.raises(ValueError, match=r"between 0 .* and 1 .*, got 2"):
        fuse_subjects(opinion, [0, 0, 1, 1], dependence=2)
    with pytest.raises(ValueError, match=r"one id for each of the 4 sample\(s\), got shape \(2,\)"):
        fuse_subjects(opinion, [0, 1])
