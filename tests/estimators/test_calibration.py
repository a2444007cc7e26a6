"""Calibration: the number found is the best on held-out data, and found by other means too."""

import pickle

import numpy as np
import pytest
import sklearn
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import (
    CalibratedTreeClassifier,
    FlatCEClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    HyperOpinion,
    Taxonomy,
    TreeEnsembleClassifier,
)
from skh2edl.estimators.calibration import fit_evidence_scale, fit_temperature
from skh2edl.metrics import level_ece, level_nll

FAMILY = {"lynx": "cat", "puma": "cat", "fox": "dog", "jackal": "dog", "wolf": "dog"}
TREE = Taxonomy.from_paths(
    [(family, leaf) for leaf, family in FAMILY.items()], level_names=("family", "kind")
)


def animals(n_samples, seed=0, n_features=20):
    """Leaves overlap much, families little."""
    rng = np.random.default_rng(seed)
    y = rng.choice(list(FAMILY), size=n_samples)
    means = np.random.default_rng(9).normal(size=(len(FAMILY), n_features)) * 0.4
    means[2:, 0] += 3
    index = np.array([list(FAMILY).index(name) for name in y])
    return means[index] + rng.normal(size=(n_samples, n_features)), y


@pytest.fixture(scope="module")
def overconfident():
    """A classifier that learnt few samples by heart."""
    return FlatCEClassifier(TREE, backbone=None, l2=1e-6).fit(*animals(120))


@parametrize_with_checks([CalibratedTreeClassifier(LogisticRegression())])
def test_all_of_scikit_learns_checks(estimator, check):
    check(estimator)


def test_the_temperature_is_that_of_another_search(overconfident):
    X, y = animals(400, seed=1)
    clf = CalibratedTreeClassifier(FrozenEstimator(overconfident)).fit(X, y)
    logits = overconfident.predict_log_proba(X)

    def nll(temperature):
        return log_loss(y, softmax(logits / temperature, axis=1), labels=clf.classes_)

    best = minimize_scalar(nll, bounds=(0.1, 100), method="bounded", options={"xatol": 1e-7})
    assert clf.temperature_ > 1.5
    assert clf.temperature_ == pytest.approx(best.x, rel=1e-4)
    expected = softmax(logits / best.x, axis=1)
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-5)


def test_a_flat_classifier_gets_scikit_learns_temperature():
    calibration = pytest.importorskip("sklearn.calibration")
    X, y = animals(300)
    model = FrozenEstimator(GaussianNB().fit(*animals(60, seed=1)))
    try:
        theirs = calibration.CalibratedClassifierCV(model, method="temperature").fit(X, y)
    except ValueError as error:  # scikit-learn before 1.8
        pytest.skip(str(error)[:80])
    ours = CalibratedTreeClassifier(model).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)


def test_calibration_helps_on_other_data(overconfident):
    clf = CalibratedTreeClassifier(FrozenEstimator(overconfident)).fit(*animals(400, seed=1))
    X, y = animals(1500, seed=2)
    before, after = overconfident.predict_proba(X), clf.predict_proba(X)
    for level in ("kind", "family"):
        assert level_nll(y, after, TREE, level) < level_nll(y, before, TREE, level)
    assert level_ece(y, after, TREE) < level_ece(y, before, TREE) / 3
    # One number moves no leaf before another.
    np.testing.assert_array_equal(clf.predict(X), overconfident.predict(X))


def test_ancestors_as_truth_are_judged_by_the_sum_of_their_leaves(overconfident):
    X, y = animals(300, seed=3)
    labels = y.astype(object)
    labels[::2] = [FAMILY[name] for name in y[::2]]
    labels[:30] = "root"
    clf = CalibratedTreeClassifier(FrozenEstimator(overconfident)).fit(X, labels)
    logits = overconfident.predict_log_proba(X)
    members = {
        label: [label in (name, FAMILY[name]) for name in clf.classes_] for label in {*labels[30:]}
    }
    inside = np.array([members[label] for label in labels[30:]])

    def nll(log_temperature):
        proba = softmax(logits[30:] / np.exp(log_temperature), axis=1)
        return -np.log((proba * inside).sum(axis=1)).mean()

    best = minimize_scalar(nll, bounds=(-2, 4), method="bounded", options={"xatol": 1e-8})
    assert clf.temperature_ == pytest.approx(np.exp(best.x), rel=1e-4)


def test_sample_weights_count_samples_again(overconfident):
    X, y = animals(200, seed=4)
    weight = np.random.default_rng(0).integers(0, 4, size=200)
    frozen = CalibratedTreeClassifier(FrozenEstimator(overconfident))
    weighted = clone(frozen).fit(X, y, sample_weight=weight)
    repeated = clone(frozen).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-6)
    assert weighted.temperature_ != pytest.approx(frozen.fit(X, y).temperature_, rel=1e-3)


def test_nothing_is_changed_where_nothing_can_be_gained():
    uniform = np.log(np.full((6, 5), 0.2))
    nodes = TREE.resolve(["lynx", "puma", "fox", "jackal", "wolf", "fox"])
    assert fit_temperature(uniform, nodes, np.ones(6), TREE) == 1.0
    vacuous = HyperOpinion.from_evidence(TREE, np.zeros((6, TREE.n_decisions)))
    assert fit_evidence_scale([(vacuous, nodes, np.ones(6))], per_depth=False) == 1.0


# Evidence ------------------------------------------------------------------------------------


def rows_of_opinions(share_of_family, share_of_leaf, n_samples=200):
    """Opinions that all say lynx with evidence 60 and 30, right in some share at each depth."""
    evidence = np.zeros((n_samples, TREE.n_decisions))
    cat, lynx = TREE.last_decision[TREE.resolve(["cat", "lynx"])]
    evidence[:, cat], evidence[:, lynx] = 60, 30
    right = round(share_of_family * n_samples)
    labels = np.array(["wolf"] * n_samples, dtype=object)
    labels[:right] = "puma"
    labels[: round(share_of_leaf * right)] = "lynx"
    return HyperOpinion.from_evidence(TREE, evidence), TREE.resolve(labels), np.ones(n_samples)


def test_the_evidence_factors_are_those_of_a_closed_form():
    # With two children (s e + 1) / (s e + 2) = q, hence s e = (2 q - 1) / (1 - q).
    part = rows_of_opinions(share_of_family=0.9, share_of_leaf=0.8)
    scale = fit_evidence_scale([part], per_depth=True)
    np.testing.assert_allclose(60 * scale[0], 0.8 / 0.1, rtol=1e-5)
    np.testing.assert_allclose(30 * scale[1], 0.6 / 0.2, rtol=1e-5)


def test_one_factor_for_all_depths_is_the_best_such():
    opinion, nodes, weight = rows_of_opinions(share_of_family=0.9, share_of_leaf=0.8)
    scale = fit_evidence_scale([(opinion, nodes, weight)], per_depth=False)

    def nll(s):
        scaled = HyperOpinion.from_evidence(TREE, s * opinion.evidence)
        return -np.log(scaled.node_probability[np.arange(len(nodes)), nodes]).mean()

    grid = np.geomspace(0.02, 1, 801)
    assert scale == pytest.approx(grid[np.argmin([nll(s) for s in grid])], rel=5e-3)


def test_parts_may_have_base_rates_of_their_own():
    opinion, nodes, weight = rows_of_opinions(share_of_family=0.9, share_of_leaf=0.8)
    skewed = np.array(opinion.base_rate)
    skewed[:2] = 0.8, 0.2
    other = HyperOpinion.from_evidence(TREE, opinion.evidence, skewed)
    half = [(opinion[:100], nodes[:100], weight[:100]), (other[100:], nodes[100:], weight[100:])]
    scale = fit_evidence_scale(half, per_depth=False)

    def nll(s):
        parts = [HyperOpinion.from_evidence(TREE, s * o.evidence, o.base_rate) for o, _, _ in half]
        proba = np.concatenate([part.node_probability for part in parts])
        return -np.log(proba[np.arange(len(nodes)), nodes]).mean()

    grid = np.geomspace(0.02, 1, 801)
    assert scale == pytest.approx(grid[np.argmin([nll(s) for s in grid])], rel=5e-3)


def test_a_depth_without_held_out_decisions_has_the_factor_of_all():
    opinion, nodes, weight = rows_of_opinions(share_of_family=0.9, share_of_leaf=0.8)
    nodes = TREE.climb_to_depth(nodes, 1)
    scale = fit_evidence_scale([(opinion, nodes, weight)], per_depth=True)
    np.testing.assert_allclose(60 * scale, 0.8 / 0.1, rtol=1e-5)


# The risk of EDL as it was published.
TOO_CAUTIOUS = {
    "evidence_scale": 1.0,
    "kl_weight": 1.0,
    "kl_per_child": False,
    "leaf_weight": 0.0,
    "l2": 0.1,
}


@pytest.fixture(scope="module")
def underconfident():
    """Too little evidence: the KL regulariser takes it away."""
    return H2EDLClassifier(TREE, backbone=None, **TOO_CAUTIOUS).fit(*animals(300))


def test_evidence_of_an_evidential_classifier_is_scaled(underconfident):
    frozen = FrozenEstimator(underconfident)
    clf = CalibratedTreeClassifier(frozen).fit(*animals(400, seed=1))
    assert clf.method_ == "evidence"
    assert clf.evidence_scale_ > 2
    assert not hasattr(clf, "temperature_")
    X, y = animals(1500, seed=2)
    assert level_ece(y, clf.predict_proba(X), TREE) < level_ece(
        y, underconfident.predict_proba(X), TREE
    )
    opinion = clf.predict_hyper_opinion(X)
    before = underconfident.predict_hyper_opinion(X)
    np.testing.assert_allclose(opinion.evidence, clf.evidence_scale_ * before.evidence)
    by_hand = (clf.evidence_scale_ * before.evidence[:, 0] + 1) / (
        clf.evidence_scale_ * before.evidence[:, :2].sum(axis=1) + 2
    )
    families = clf.predict_proba_level(X, "family")
    assert TREE.level("family") == ["cat", "dog"]
    np.testing.assert_allclose(families[:, 0], by_hand, rtol=1e-6)
    np.testing.assert_array_equal(
        clf.predict_level(X, "family"), np.array(["cat", "dog"])[families.argmax(axis=1)]
    )
    np.testing.assert_allclose(
        clf.predict_proba(X), opinion.leaf_probability[:, TREE.leaf_order], rtol=1e-6
    )


def test_factors_by_depth_fit_at_least_as_well_as_one(underconfident):
    X, y = animals(400, seed=1)
    frozen = FrozenEstimator(underconfident)
    one = CalibratedTreeClassifier(frozen).fit(X, y)
    several = CalibratedTreeClassifier(frozen, per_depth=True).fit(X, y)
    assert several.evidence_scale_.shape == (2,)
    assert level_nll(y, several.predict_proba(X), TREE) <= level_nll(y, one.predict_proba(X), TREE)
    before = underconfident.predict_hyper_opinion(X).evidence
    ratio = several.predict_hyper_opinion(X).evidence / before
    np.testing.assert_allclose(ratio[:, :2], several.evidence_scale_[0])
    np.testing.assert_allclose(ratio[:, 2:], several.evidence_scale_[1])


def test_an_evidential_classifier_may_be_tempered_instead(underconfident):
    frozen = FrozenEstimator(underconfident)
    clf = CalibratedTreeClassifier(frozen, method="temperature").fit(*animals(400, seed=1))
    assert clf.temperature_ < 1
    assert not hasattr(clf, "predict_hyper_opinion")


# Cross-validation, other estimators ---------------------------------------------------------


def test_cross_validated_predictions_choose_and_everything_is_used():
    X, y = animals(150)
    model = FlatCEClassifier(TREE, backbone=None, l2=1e-4)
    clf = CalibratedTreeClassifier(model, cv=3).fit(X, y)
    log_proba = np.empty((len(y), 5))
    for train, held in StratifiedKFold(3).split(X, TREE.resolve(y)):
        log_proba[held] = clone(model).fit(X[train], y[train]).predict_log_proba(X[held])
    best = minimize_scalar(
        lambda t: log_loss(y, softmax(log_proba / t, axis=1), labels=TREE.sorted_leaf_labels),
        bounds=(0.1, 100),
        method="bounded",
        options={"xatol": 1e-7},
    )
    assert clf.temperature_ == pytest.approx(best.x, rel=1e-4)
    everything = clone(model).fit(X, y)
    np.testing.assert_array_equal(
        clf.estimator_.predict_log_proba(X), everything.predict_log_proba(X)
    )


def test_evidence_is_cross_validated_too():
    X, y = animals(150)
    clf = CalibratedTreeClassifier(H2EDLClassifier(TREE, backbone=None, **TOO_CAUTIOUS), cv=2)
    scores = cross_val_score(clf, X, y, cv=2, scoring="accuracy")
    assert scores.mean() > 0.4
    assert clf.fit(X, y).evidence_scale_ > 1


def test_groups_stay_together_in_the_splits():
    X, y = animals(60)
    groups = np.arange(60) // 10
    seen = []

    class Recorder(GroupKFold):
        def split(self, X, y=None, groups=None):
            for train, test in super().split(X, y, groups):
                seen.append((set(groups[train]), set(groups[test])))
                yield train, test

    CalibratedTreeClassifier(GaussianNB(), cv=Recorder(3)).fit(X, y, groups=groups)
    assert len(seen) == 3
    assert all(not train & test for train, test in seen)


def test_a_forest_and_a_taxonomy_answer_at_every_level():
    X, y = animals(300)
    forest = RandomForestClassifier(20, random_state=0, max_depth=4)
    clf = CalibratedTreeClassifier(forest, taxonomy=TREE, cv=3).fit(X, y)
    new, truth = animals(500, seed=5)
    proba = clf.predict_proba_level(new, "family")
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (clf.predict_level(new, "family") == [FAMILY[name] for name in truth]).mean() > 0.8
    assert clf.temperature_ < 1  # shallow trees hedge
    plain = clone(forest).fit(X, y).predict_proba(new)
    assert level_nll(truth, clf.predict_proba(new), TREE) < level_nll(truth, plain, TREE)


def test_classes_of_a_plain_classifier_may_be_few_or_ancestors():
    X, y = animals(300)
    labels = np.where(np.isin(y, ["fox", "jackal", "wolf"]), "dog", y)
    clf = CalibratedTreeClassifier(GaussianNB(), taxonomy=TREE, cv=3).fit(X, labels)
    assert clf.classes_.tolist() == ["fox", "jackal", "lynx", "puma", "wolf"]
    proba = clf.predict_proba(X)
    np.testing.assert_allclose(proba[:, 0], proba[:, 4])
    with pytest.raises(ValueError, match="label\\(s\\) are not in the taxonomy, first \\['newt'"):
        CalibratedTreeClassifier(GaussianNB(), taxonomy=TREE).fit(X[:20], ["newt", "lynx"] * 10)


def test_a_pipeline_is_asked_for_the_tree_inside():
    X, y = animals(120)
    model = make_pipeline(StandardScaler(), FlatCEClassifier(TREE, backbone=None))
    clf = CalibratedTreeClassifier(model, cv=2).fit(X, y)
    assert clf.taxonomy_ is TREE
    assert clf.n_features_in_ == 20


class Lookup(ClassifierMixin, BaseEstimator):
    """Reads strings."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        assert isinstance(X, list)
        return np.array([[0.9, 0.1] if text.startswith("c") else [0.1, 0.9] for text in X])


def test_samples_may_be_whatever_the_estimator_reads():
    X = ["c1", "c2", "d1", "d2"] * 5
    y = ["cat", "cat", "dog", "dog"] * 4 + ["dog", "cat", "dog", "cat"]
    clf = CalibratedTreeClassifier(Lookup(), cv=2).fit(X, y)
    # Right in 18 of 20: nine to one, as it says.
    assert clf.temperature_ == pytest.approx(1, rel=1e-6)


def test_a_calibrated_classifier_can_be_pickled(underconfident):
    X, y = animals(100, seed=1)
    clf = CalibratedTreeClassifier(FrozenEstimator(underconfident), per_depth=True).fit(X, y)
    copy = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(copy.predict_proba(X), clf.predict_proba(X))


def test_what_cannot_be_calibrated_is_refused(overconfident):
    X, y = animals(30)
    frozen = FrozenEstimator(overconfident)
    with pytest.raises(ValueError, match="needs an estimator with predict_hyper_opinion, which"):
        CalibratedTreeClassifier(frozen, method="evidence").fit(X, y)
    with pytest.raises(ValueError, match="per_depth=True scales evidence, but method is"):
        CalibratedTreeClassifier(frozen, per_depth=True).fit(X, y)
    with pytest.raises(ValueError, match="nothing to learn from: all labels are the root"):
        CalibratedTreeClassifier(frozen).fit(X, ["root"] * 30)


def test_weights_that_a_pipeline_does_not_take_calibrate_only():
    X, y = animals(200)
    weight = np.where(np.arange(200) % 2, 1.0, 3.0)
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    clf = CalibratedTreeClassifier(pipeline, taxonomy=TREE, cv=3)
    with pytest.warns(UserWarning, match=r"to calibrate and not to train, because Pipeline.fit"):
        clf.fit(X, y, sample_weight=weight)
    plain = clone(pipeline).fit(X, y)
    np.testing.assert_array_equal(clf.estimator_.predict_proba(X), plain.predict_proba(X))
    assert clf.temperature_ != clone(clf).fit(X, y).temperature_


@pytest.mark.slow
def test_metadata_go_where_they_are_requested():
    X, y = animals(200)
    weight = np.where(y == y[0], 5.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        for wanted in (True, False):
            last = GaussianNB().set_fit_request(sample_weight=wanted)
            scaler = StandardScaler().set_fit_request(sample_weight=wanted)
            pipeline = make_pipeline(scaler, last)
            expected = clone(pipeline).fit(X, y, **({"sample_weight": weight} if wanted else {}))
            for wrapper in (
                CalibratedTreeClassifier(pipeline, taxonomy=TREE, cv=3),
                HedgedClassifier(pipeline, 0.8, taxonomy=TREE, cv=3, n_jobs=2),
                TreeEnsembleClassifier(pipeline, 2, taxonomy=TREE),
            ):
                wrapper.fit(X, y, sample_weight=weight)
                inner = getattr(wrapper, "estimator_", None) or wrapper.estimators_[0]
                np.testing.assert_array_equal(inner.predict_proba(X), expected.predict_proba(X))
        unset = CalibratedTreeClassifier(GaussianNB(), taxonomy=TREE, cv=3)
        with pytest.raises(UnsetMetadataPassedError, match=r"sample_weight.* GaussianNB.fit"):
            unset.fit(X, y, sample_weight=weight)
        # A search passes on what the wrapper requests.
        search = GridSearchCV(
            CalibratedTreeClassifier(
                GaussianNB().set_fit_request(sample_weight=True), taxonomy=TREE, cv=2
            )
            .set_fit_request(sample_weight=True, groups=False)
            .set_score_request(sample_weight=False),
            {"method": ["temperature"]},
            cv=2,
        )
        search.fit(X, y, sample_weight=weight)
        weighted = GaussianNB().fit(X, y, weight)
    inner = search.best_estimator_.estimator_
    np.testing.assert_array_equal(inner.class_prior_, weighted.class_prior_)


def test_opinions_on_another_tree_are_refused():
    X, y = animals(100)
    flat = H2EDLClassifier(backbone=None)
    with pytest.raises(ValueError, match=r"are on another taxonomy .5 leaves. than"):
        CalibratedTreeClassifier(flat, taxonomy=TREE, cv=2).fit(X, y)
    tempered = CalibratedTreeClassifier(flat, taxonomy=TREE, method="temperature", cv=2).fit(X, y)
    assert set(tempered.predict_level(X, "family")) == {"cat", "dog"}
