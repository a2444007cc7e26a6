"""Scorers inside scikit-learn's own tools, with classifiers that know nothing of a taxonomy."""

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC

from skh2edl import HyperOpinion, Taxonomy, metrics
from skh2edl.scorers import (
    HierarchicalScorers,
    TreeScorer,
    hierarchical_scorers,
    make_level_scorer,
    make_tree_scorer,
)

FAMILY = {"lynx": "cat", "puma": "cat", "fox": "dog", "jackal": "dog", "wolf": "dog"}


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_paths(
        [(family, leaf) for leaf, family in FAMILY.items()], level_names=("family", "kind")
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.array(list(FAMILY) * 16)
    centres = {leaf: rng.normal(size=4) for leaf in FAMILY}
    return np.array([centres[leaf] for leaf in y]) + rng.normal(size=(y.size, 4)), y


def forest():
    return RandomForestClassifier(n_estimators=10, max_depth=3, random_state=0)


def test_a_leaf_scorer_agrees_with_scikit_learns_own(tree, data):
    X, y = data
    ours = cross_val_score(
        forest(), X, y, scoring=make_level_scorer("balanced_accuracy", level="kind", taxonomy=tree)
    )
    np.testing.assert_allclose(ours, cross_val_score(forest(), X, y, scoring="balanced_accuracy"))
    ours = cross_val_score(GaussianNB(), X, y, scoring=make_level_scorer("nll", "kind", tree))
    np.testing.assert_allclose(ours, cross_val_score(GaussianNB(), X, y, scoring="neg_log_loss"))


def test_a_coarse_scorer_adds_up_leaf_probabilities(tree, data):
    X, y = data
    folds = StratifiedKFold(4)
    proba = cross_val_predict(GaussianNB(), X, y, cv=folds, method="predict_proba")
    of_cats = proba[:, np.isin(sorted(FAMILY), ["lynx", "puma"])].sum(axis=1)
    truth = np.array([FAMILY[leaf] for leaf in y])
    predicted = np.where(of_cats > 0.5, "cat", "dog")
    accuracies, losses = [], []
    for _, test in folds.split(X, y):
        accuracies.append(balanced_accuracy_score(truth[test], predicted[test]))
        losses.append(-log_loss(truth[test] == "cat", of_cats[test]))
    scoring = {
        "accuracy": make_level_scorer("balanced_accuracy", "family", tree),
        "loss": make_level_scorer("neg_nll", 1, tree),
    }
    scores = cross_validate(GaussianNB(), X, y, cv=folds, scoring=scoring)
    np.testing.assert_allclose(scores["test_accuracy"], accuracies)
    np.testing.assert_allclose(scores["test_loss"], losses)


def test_folds_may_lack_leaves_and_labels_may_be_ancestors(tree, data):
    X, y = data
    y = y.astype(object)
    # Sorted by leaf, so that each fold of KFold lacks leaves in training and in test.
    order = np.argsort(y.astype(str), kind="stable")
    X, y = X[order], y[order]
    y[::7] = [FAMILY[leaf] for leaf in y[::7]]
    y[3] = "root"
    folds = KFold(5)
    trained_on = [set(y[train]) for train, _ in folds.split(X)]
    assert any(not set(FAMILY) <= seen for seen in trained_on)
    assert all({"cat", "dog"} <= seen for seen in trained_on)
    with warnings.catch_warnings():
        # Small folds may hold no mistake at all, which is no failure.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        scores = cross_validate(
            forest(), X, y, cv=folds, scoring=hierarchical_scorers(tree), error_score="raise"
        )
    for name in ("neg_nll_family", "neg_nll_kind", "balanced_accuracy_kind", "operating_area"):
        assert np.isfinite(scores[f"test_{name}"]).all(), name
    # An unseen leaf gets its part of the ancestors' probability, often 0: far worse than chance.
    assert scores["test_neg_nll_kind"].min() < -10 * np.log(5)


def test_a_class_that_is_an_ancestor_is_spread_over_its_leaves(tree):
    class Constant(BaseEstimator, ClassifierMixin):
        classes_ = np.array(["cat", "fox"])

        def predict_proba(self, X):
            return np.tile([0.6, 0.4], (len(X), 1))

    score = make_level_scorer("nll", "kind", tree)(Constant(), [[0]], ["lynx"])
    assert score == pytest.approx(np.log(0.3))
    assert make_level_scorer("accuracy", "family", tree)(Constant(), [[0]], ["puma"]) == 1
    # Of the leaves, fox is the likeliest.
    assert make_level_scorer("accuracy", "kind", tree)(Constant(), [[0]], ["fox"]) == 1


@pytest.mark.parametrize("refit", ["balanced_accuracy_family", "neg_nll_kind"])
def test_grid_search_refits_by_name(tree, data, refit):
    X, y = data
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression__C": [1e-4, 1.0]},
        scoring=hierarchical_scorers(tree),
        refit=refit,
        cv=3,
    )
    search = clone(search).fit(X, y)
    assert search.best_params_ == {"logisticregression__C": 1.0}
    name, level = refit.rsplit("_", 1)
    expected = make_level_scorer(name, level, tree)(search.best_estimator_, X, y)
    assert search.score(X, y) == expected
    assert np.isfinite(search.cv_results_["mean_test_path_consistency"]).all()


def test_the_dict_and_the_call_on_all_give_the_same_scores(tree, data):
    X, y = data
    scorers = hierarchical_scorers(tree)
    together = cross_validate(forest(), X, y, cv=3, scoring=scorers)
    one_by_one = cross_validate(forest(), X, y, cv=3, scoring=dict(scorers))
    assert len(scorers) == 8 * 2 + 2 + 14
    for name in scorers:
        np.testing.assert_array_equal(together[f"test_{name}"], one_by_one[f"test_{name}"])


def test_all_scorers_together_predict_once(tree, data):
    X, y = data
    calls = []

    class Counting(GaussianNB):
        def predict(self, X):
            calls.append("predict")
            return super().predict(X)

        def predict_proba(self, X):
            calls.append("predict_proba")
            return super().predict_proba(X)

    scores = hierarchical_scorers(tree)(Counting().fit(X, y), X, y)
    assert sorted(calls) == ["predict", "predict_proba"]
    assert all(isinstance(score, float) for score in scores.values())


def test_greater_is_better_for_every_scorer(tree, data):
    X, y = data
    rng = np.random.default_rng(1)
    good = LogisticRegression().fit(X, y)
    bad = LogisticRegression().fit(X, rng.permutation(y))
    scorers = hierarchical_scorers(tree)
    better, worse = scorers(good, X, y), scorers(bad, X, y)
    assert better["accuracy_kind"] > worse["accuracy_kind"] + 0.2
    losses = {name for name in scorers if name.startswith("neg_")}
    assert all(better[name] <= 0 and worse[name] <= 0 for name in losses)
    # Agreement of levels, calibration and the kind of mistakes need not follow accuracy; the
    # five likeliest of five leaves are always the same.
    apart = {"path", "ece", "first_error", "kept", "severity", "top_k"}
    ranked = [name for name in scorers if not any(part in name for part in apart)]
    assert len(ranked) > 12
    assert all(better[name] > worse[name] for name in ranked)


def test_a_classifier_without_probabilities_is_scored_by_its_labels(tree, data):
    X, y = data
    svm = LinearSVC().fit(X, y)
    score = make_level_scorer("accuracy", "family", tree)(svm, X, y)
    predicted = [FAMILY[leaf] for leaf in svm.predict(X)]
    assert score == np.mean([p == FAMILY[leaf] for p, leaf in zip(predicted, y, strict=True)])
    with pytest.raises(AttributeError, match="level_nll needs predict_proba, which LinearSVC"):
        make_level_scorer("neg_nll", "family", tree)(svm, X, y)


def test_the_labels_of_a_hedging_classifier_are_scored_on_request(tree):
    class Hedging(BaseEstimator, ClassifierMixin):
        classes_ = np.array(sorted(FAMILY))

        def predict(self, X):
            return np.full(len(X), "dog")

        def predict_proba(self, X):
            return np.tile([0.6, 0.1, 0.1, 0.1, 0.1], (len(X), 1))

    for level, by_labels in (("family", 1), ("kind", 0)):
        scorer = make_level_scorer("accuracy", level, tree, response_method="predict")
        assert scorer(Hedging(), [[0]], ["fox"]) == by_labels
        assert make_level_scorer("accuracy", level, tree)(Hedging(), [[0]], ["fox"]) == 1


class OpinionClassifier(ClassifierMixin, BaseEstimator):
    """Takes the evidence for its opinions as X."""

    def __init__(self, tree):
        self.tree = tree

    def fit(self, X, y):
        self.classes_ = self.tree.sorted_leaf_labels
        return self

    def predict_hyper_opinion(self, X):
        return HyperOpinion.from_evidence(self.tree, X)

    def predict_proba(self, X):
        return self.predict_hyper_opinion(X).leaf_probability[:, self.tree.leaf_order]

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_opinion_scorers_read_the_opinion(tree):
    rng = np.random.default_rng(2)
    X = rng.exponential(4, (100, tree.n_decisions))
    y = rng.choice(sorted(FAMILY), 100)
    classifier = OpinionClassifier(tree).fit(X, y)
    scorers = hierarchical_scorers(tree, opinions=True)
    scores = scorers(classifier, X, y)
    opinion = classifier.predict_hyper_opinion(X)
    for level in ("family", "kind"):
        for name in ("vacuity_auroc", "nonspecificity_auroc"):
            assert scores[f"{name}_{level}"] == getattr(metrics, name)(y, opinion, level)
    assert set(scorers) - set(hierarchical_scorers(tree)) == {
        f"{name}_{level}"
        for name in ("vacuity_auroc", "nonspecificity_auroc")
        for level in ("family", "kind")
    }
    with pytest.raises(AttributeError, match="needs predict_hyper_opinion, which GaussianNB"):
        scorers["vacuity_auroc_kind"](GaussianNB().fit(X, y), X, y)


def test_opinions_are_found_inside_pipelines_searches_and_frozen_estimators(tree):
    X = np.random.default_rng(2).exponential(4, (100, tree.n_decisions))
    y = np.random.default_rng(3).choice(sorted(FAMILY), 100)
    scorer = make_level_scorer("nonspecificity_auroc", "kind", tree)
    plain = OpinionClassifier(tree)
    doubled = make_pipeline(FunctionTransformer(lambda X: 2 * X), plain).fit(X, y)
    search = GridSearchCV(doubled, {"opinionclassifier__tree": [tree]}, cv=2).fit(X, y)
    expected = metrics.nonspecificity_auroc(y, HyperOpinion.from_evidence(tree, 2 * X), "kind")
    for wrapped in (doubled, FrozenEstimator(doubled), search, FrozenEstimator(search)):
        assert scorer(wrapped, X, y) == expected
    alone = make_pipeline(plain).fit(X, y)
    assert scorer(alone, X, y) == scorer(plain.fit(X, y), X, y) != expected


def test_opinions_on_another_tree_are_not_scored_in_its_name(tree):
    X, y = np.ones((2, tree.n_decisions)), ["lynx", "fox"]
    scorer = make_level_scorer("vacuity_auroc", "leaf", Taxonomy.flat(sorted(FAMILY)))
    with pytest.raises(ValueError, match="differs from the scorer's Taxonomy"):
        scorer(OpinionClassifier(tree).fit(X, y), X, y)


def test_scorers_can_be_cloned_and_pickled(tree, data):
    X, y = data
    fitted = forest().fit(X, y)
    scorer = make_level_scorer("ece", "family", tree, n_bins=5)
    expected = -metrics.level_ece(
        y, fitted.predict_proba(X), tree, "family", n_bins=5, classes=fitted.classes_
    )
    for copy in (scorer, clone(scorer), pickle.loads(pickle.dumps(scorer))):
        assert isinstance(copy, TreeScorer)
        assert copy(fitted, X, y) == expected
    together = hierarchical_scorers(tree)
    for copy in (clone(together, safe=False), pickle.loads(pickle.dumps(together))):
        assert isinstance(copy, HierarchicalScorers)
        assert copy(fitted, X, y) == together(fitted, X, y)


def test_sample_weight_reaches_the_metric(tree, data):
    X, y = data
    fitted = GaussianNB().fit(X, y)
    weight = np.random.default_rng(3).exponential(size=y.size)
    expected = metrics.hierarchical_fscore(y, fitted.predict(X), tree, sample_weight=weight)
    scorer = make_tree_scorer("hierarchical_fscore", tree)
    assert scorer(fitted, X, y, sample_weight=weight) == expected
    assert scorer(fitted, X, y) != expected


@pytest.mark.parametrize("all_together", [False, True])
def test_sample_weight_is_routed_where_it_is_requested(tree, data, all_together):
    X, y = data
    weight = np.random.default_rng(4).exponential(size=y.size)
    with sklearn.config_context(enable_metadata_routing=True):
        if all_together:
            scoring = hierarchical_scorers(tree)
            name = "test_accuracy_kind"
        else:
            scoring = make_level_scorer("accuracy", "kind", tree)
            name = "test_score"
        scoring = clone(scoring.set_score_request(sample_weight=True), safe=False)
        classifier = GaussianNB().set_fit_request(sample_weight=False)
        folds = StratifiedKFold(3)
        scores = cross_validate(
            classifier, X, y, cv=folds, scoring=scoring, params={"sample_weight": weight}
        )
    for (train, test), score in zip(folds.split(X, y), scores[name], strict=True):
        right = GaussianNB().fit(X[train], y[train]).predict(X[test]) == y[test]
        assert score == pytest.approx(np.average(right, weights=weight[test]))


def test_levels_without_names_are_numbered_and_the_deepest_is_leaf():
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    names = {name for name in hierarchical_scorers(tree) if name.startswith("accuracy")}
    assert names == {"accuracy_level_1", "accuracy_leaf"}


def test_what_does_not_exist_is_refused_when_the_scorer_is_made(tree):
    with pytest.raises(ValueError, match=r"no such metric as 'f1'\. Choose one of"):
        make_level_scorer("f1", "kind", tree)
    with pytest.raises(ValueError, match=r"no such metric as 'accuracy'\. Choose one of"):
        make_tree_scorer("accuracy", tree)
    with pytest.raises(ValueError, match="no level 'genus'"):
        make_level_scorer("accuracy", "genus", tree)
    with pytest.raises(ValueError, match=r"response_method must be .* got 'decision_function'"):
        make_level_scorer("accuracy", "kind", tree, response_method="decision_function")
