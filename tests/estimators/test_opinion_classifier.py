"""Opinions for a classifier that has none: what they are made of, and what is learnt."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import digamma, gammaln, logsumexp, softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import (
    CalibratedTreeClassifier,
    FlatCEClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    HierCEClassifier,
    OpinionClassifier,
    ScoreTable,
    Taxonomy,
    load_model,
)
from skh2edl.estimators.opinion_classifier import fit_vacuity

FAMILY = {"lynx": "cat", "puma": "cat", "fox": "dog", "jackal": "dog", "wolf": "dog"}
TREE = Taxonomy.from_paths(
    [(family, leaf) for leaf, family in FAMILY.items()], level_names=("family", "kind")
)
LEAVES = sorted(FAMILY)
TREE_OF = {"cat": ["lynx", "puma"], "dog": ["fox", "jackal", "wolf"]}


def animals(n_samples, seed=0):
    """Leaves overlap much, families little."""
    rng = np.random.default_rng(seed)
    y = rng.choice(list(FAMILY), size=n_samples)
    means = np.random.default_rng(9).normal(size=(len(FAMILY), 6)) * 0.7
    means[2:, 0] += 3
    index = np.array([list(FAMILY).index(name) for name in y])
    return means[index] + rng.normal(size=(n_samples, 6)), y


@pytest.fixture(scope="module")
def logistic():
    return LogisticRegression().fit(*animals(300))


@pytest.fixture(scope="module")
def opinions(logistic):
    return OpinionClassifier(FrozenEstimator(logistic), TREE).fit(*animals(300, seed=1))


@pytest.mark.slow
@parametrize_with_checks([OpinionClassifier(LogisticRegression())])
def test_all_of_scikit_learns_checks(estimator, check):
    check(estimator)


def test_the_conditional_probabilities_are_calibrated_ones_mixed_with_the_base_rate(
    logistic, opinions
):
    X, _ = animals(50, seed=2)
    opinion = opinions.predict_hyper_opinion(X)
    columns = [LEAVES.index(leaf) for leaf in TREE.leaves]
    leaves = softmax(logistic.decision_function(X) / opinions.temperature_, axis=1)[:, columns]
    cat, dog = leaves[:, :2], leaves[:, 2:]
    families = np.stack([cat.sum(1), dog.sum(1)], axis=1)
    q = np.hstack([families, cat / families[:, :1], dog / families[:, 1:]])
    u = opinion.vacuity[:, [0, 0, 1, 1, 2, 2, 2]]
    expected = (1 - u) * q + u * np.array([1, 1, 1, 1, 2 / 3, 2 / 3, 2 / 3]) / 2
    # To 1e-12 / P(cat), which is added to each probability of a leaf before its logarithm.
    np.testing.assert_allclose(opinion.conditional_probability, expected, atol=1e-6)
    np.testing.assert_allclose(opinion.local_belief, (1 - u) * q, atol=1e-6)
    proba = opinions.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(proba[:, columns], opinion.leaf_probability, rtol=1e-6)


def test_the_temperature_is_that_of_temperature_scaling(logistic, opinions):
    scaled = CalibratedTreeClassifier(FrozenEstimator(logistic), taxonomy=TREE)
    scaled.fit(*animals(300, seed=1))
    assert opinions.temperature_ == pytest.approx(scaled.temperature_, rel=1e-6)


def test_samples_of_one_probability_may_have_different_vacuity():
    table = ScoreTable(TREE.leaves, kind="logits")
    rng = np.random.default_rng(0)
    y = rng.choice(TREE.leaves, 400)
    strong = rng.random(400) < 0.5
    X = rng.normal(size=(400, 5))
    # Strong logits name the leaf, weak ones another, with the same confidence.
    true = np.array([TREE.leaves.index(leaf) for leaf in y])
    X[np.arange(400), np.where(strong, true, rng.integers(0, 5, 400))] += 3
    X += np.where(strong, 4, -4)[:, None]
    clf = OpinionClassifier(FrozenEstimator(table.fit(X)), TREE).fit(X, y)
    assert clf.has_logits_
    assert clf.coefficients_[1] > 0.05
    opinion = clf.predict_hyper_opinion([[4.0] * 5, [-4.0] * 5])
    # Equal logits: the base rate is 1/2 or 1/3 at each node, whatever the vacuity.
    np.testing.assert_allclose(opinion.leaf_probability[0, 2:].sum(), 0.6, atol=0.05)
    assert (opinion.vacuity[1] > 1.5 * opinion.vacuity[0]).all()


@pytest.mark.parametrize("kl_weight", [0.003, 0.1])
def test_the_vacuity_that_is_learnt_minimises_the_objective_of_h2edl(kl_weight):
    tree = Taxonomy.flat(["a", "b", "c"])
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(200, 3)) * 2
    target = np.array([rng.choice(3, p=row) for row in softmax(logits / 2, axis=1)])
    q, y = softmax(logits, axis=1), np.eye(3)[target]

    def objective(c0):
        evidence = 3 * np.exp(c0) / (1 - q.max(axis=1, keepdims=True)) * q
        alpha = evidence + 1
        strength = alpha.sum(axis=1, keepdims=True)
        p = alpha / strength
        risk = ((y - p) ** 2).sum(1) + (p * (1 - p) / (strength + 1)).sum(1)
        masked = y + (1 - y) * alpha
        total = masked.sum(axis=1)
        kl = gammaln(total) - gammaln(masked).sum(1) - gammaln(3)
        kl += ((masked - 1) * (digamma(masked) - digamma(total)[:, None])).sum(1)
        return (risk + kl_weight / 3 * kl - np.log((y * p).sum(1))).mean()

    options = {"kl_weight": kl_weight, "leaf_weight": 1.0, "has_logits": False}
    c0, c2 = fit_vacuity(logits, target + 1, np.ones(200), tree, **options)
    best = minimize_scalar(objective, bounds=(-10, 15), method="bounded", options={"xatol": 1e-8})
    assert c0 == pytest.approx(best.x, abs=1e-3)
    assert c2 == 0


def test_vacuity_rises_as_the_likeliest_child_gets_less_likely(opinions):
    table = ScoreTable(LEAVES, kind="probabilities")
    X, y = animals(300, seed=1)
    proba = opinions.estimator_.predict_proba(X)
    clf = OpinionClassifier(FrozenEstimator(table.fit(proba)), TREE).fit(proba, y)
    assert not clf.has_logits_
    lynx, rest = np.linspace(0.5, 0.99, 9), np.full(9, 1e-3)
    columns = {"lynx": lynx, "puma": 1 - lynx, "fox": rest, "jackal": rest, "wolf": rest}
    rows = np.stack([columns[leaf] for leaf in LEAVES], axis=1)
    vacuity = clf.predict_hyper_opinion(rows)["cat"].vacuity
    assert (np.diff(vacuity) < 0).all()
    # Odds of vacuity in proportion to the probability that the likeliest is wrong.
    odds = vacuity / (1 - vacuity)
    q = 1 / (1 + ((1 - lynx) / lynx) ** (1 / clf.temperature_))
    np.testing.assert_allclose(odds / odds[0], (1 - q) / (1 - q[0]), rtol=1e-4)


def test_a_classifier_with_opinions_is_refused(opinions):
    X, y = animals(40)
    for inside in (H2EDLClassifier(TREE, backbone=None), FrozenEstimator(opinions)):
        with pytest.raises(TypeError, match=r"has opinions of its own.*CalibratedTreeClassifier"):
            OpinionClassifier(inside, TREE).fit(X, y)


@pytest.mark.parametrize(
    ("classifier", "has_logits"),
    [
        (LogisticRegression(), True),
        (make_pipeline(StandardScaler(), LogisticRegression()), True),
        (LinearDiscriminantAnalysis(), True),
        (FlatCEClassifier(TREE, backbone=None), True),
        (HierCEClassifier(TREE, backbone=None), False),
        (GaussianNB(), False),
        (make_pipeline(StandardScaler(), SVC(probability=False)), None),
        (CalibratedTreeClassifier(GaussianNB(), taxonomy=TREE), False),
    ],
)
def test_logits_are_known_by_their_softmax(classifier, has_logits):
    X, y = animals(150)
    clf = OpinionClassifier(classifier, TREE, cv=2)
    if has_logits is None:
        with pytest.raises(ValueError, match="must be an object implementing 'fit' and 'predict_p"):
            clf.fit(X, y)
        return
    clf.fit(X, y)
    assert clf.has_logits_ is has_logits
    assert clf.score(*animals(150, seed=3)) > 0.5
    assert set(clf.predict_level(X, "family")) <= {"cat", "dog"}


def test_the_strength_of_a_node_is_that_of_its_logits(logistic):
    # Raising all logits alike leaves the probabilities as they are, and c2 times the rise as odds.
    X, y = animals(300, seed=1)
    logits = logistic.decision_function(X)
    clf = OpinionClassifier(FrozenEstimator(ScoreTable(LEAVES, "logits").fit(logits)), TREE)
    clf.fit(logits, y)
    clf.coefficients_ = np.array([1.0, 0.3])
    low, high = (clf.predict_hyper_opinion(logits + rise).vacuity for rise in (0, 2))
    change = np.log(high / (1 - high)) - np.log(low / (1 - low))
    np.testing.assert_allclose(change, -0.3 * 2 / clf.temperature_, rtol=1e-6)


def test_flat_ce_is_read_by_its_own_logits():
    X, y = animals(200)
    flat = FlatCEClassifier(TREE, backbone=None).fit(X, y)
    clf = OpinionClassifier(FrozenEstimator(flat), TREE).fit(*animals(200, seed=1))
    logits = clf._logits_of(flat, X)
    strength = logsumexp(logits, axis=1)
    assert strength.std() > 0.01  # log-probabilities would have none
    np.testing.assert_allclose(logits - strength[:, None], flat._log_leaves(X), atol=1e-5)


@pytest.mark.parametrize("leaves", [["lynx", "puma"], LEAVES])
def test_flat_ce_of_another_tree_has_no_logits(leaves):
    # One that has a level more; with two leaves the decision_function is 1-D.
    X, y = animals(200)
    known = np.isin(y, leaves)
    flat = FlatCEClassifier(Taxonomy.flat(leaves), backbone=None).fit(X[known], y[known])
    tree = Taxonomy.from_nested({"animal": leaves, "plant": None} if len(leaves) == 2 else TREE_OF)
    clf = OpinionClassifier(FrozenEstimator(flat), tree).fit(X[known], y[known])
    assert not clf.has_logits_
    assert clf.coefficients_[1] == 0
    assert clf.score(X[known], y[known]) > 0.5


def test_log_probabilities_are_no_logits(logistic):
    X, y = animals(200)
    scores = logistic.predict_log_proba(X)
    frozen = FrozenEstimator(ScoreTable(LEAVES, "logits").fit(scores))
    assert not OpinionClassifier(frozen, TREE).fit(scores, y).has_logits_
    frozen = FrozenEstimator(ScoreTable(LEAVES, "logits").fit(scores + 1))
    assert OpinionClassifier(frozen, TREE).fit(scores + 1, y).has_logits_


def test_a_constant_strength_has_no_coefficient():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(100, 2))
    logits += 30 - logsumexp(logits, axis=1, keepdims=True)
    labels = rng.integers(1, 3, size=100), np.ones(100), Taxonomy.flat(["a", "b"])
    options = {"kl_weight": 0.003, "leaf_weight": 1.0}
    found = fit_vacuity(logits, *labels, has_logits=True, **options)
    assert found[1] == 0
    np.testing.assert_allclose(found, fit_vacuity(logits, *labels, has_logits=False, **options))


def test_newtons_steps_stay_within_the_bounds(monkeypatch):
    # The stronger the logits the more labels are wrong, so that c2 wants to be below 0.
    rng = np.random.default_rng(0)
    logits, strong = rng.normal(size=(300, 2)), np.arange(300) < 150
    target = logits.argmax(axis=1) ^ (rng.random(300) < np.where(strong, 0.4, 0.3))
    logits[strong] += 0.5
    labels = target + 1, np.ones(300), Taxonomy.flat(["a", "b"])
    options = {"kl_weight": 0.003, "leaf_weight": 1.0, "has_logits": True}
    best = fit_vacuity(logits, *labels, **options)
    assert best[1] == 0
    monkeypatch.setattr(
        "skh2edl.estimators.opinion_classifier.minimize",
        lambda *_, **__: SimpleNamespace(x=best + np.array([0, 1e-5])),
    )
    found = fit_vacuity(logits, *labels, **options)
    assert found[1] == 0
    assert found[0] == pytest.approx(best[0], abs=0.01)


def test_labels_may_be_ancestors_and_unlabelled_samples_count_for_nothing(logistic):
    X, y = animals(300, seed=1)
    labels = y.astype(object)
    labels[::3] = [FAMILY[leaf] for leaf in y[::3]]
    labels[1::7] = "root"
    clf = OpinionClassifier(FrozenEstimator(logistic), TREE).fit(X, labels)
    kept = labels != "root"
    same = OpinionClassifier(FrozenEstimator(logistic), TREE).fit(X[kept], labels[kept])
    np.testing.assert_allclose(clf.coefficients_, same.coefficients_, rtol=1e-5)
    with pytest.raises(ValueError, match="label"):
        clf.fit(X, ["root"] * 300)


def test_held_out_predictions_come_from_folds_that_keep_groups_together():
    X, y = animals(200)
    clf = OpinionClassifier(HierCEClassifier(TREE, backbone=None), cv=3)
    clf.fit(X, y, groups=np.arange(200) // 4)
    assert clf.taxonomy_ == TREE
    assert clf.coefficients_.shape == (2,)


def test_a_saved_model_predicts_the_same_bits(tmp_path):
    X, y = animals(200)
    flat = FlatCEClassifier(TREE, backbone=None).fit(X, y)
    clf = OpinionClassifier(FrozenEstimator(flat), TREE).fit(*animals(200, seed=1))
    clf.save(tmp_path / "opinions.safetensors")
    loaded = load_model(tmp_path / "opinions.safetensors")
    assert loaded.predict_hyper_opinion(X) == clf.predict_hyper_opinion(X)
    hedged = HedgedClassifier(FrozenEstimator(loaded), 0.8).fit(*animals(200, seed=2))
    hedged.save(tmp_path / "hedged.safetensors")
    same = load_model(tmp_path / "hedged.safetensors")
    np.testing.assert_array_equal(same.predict(X), hedged.predict(X))


def test_a_classifier_of_scikit_learn_is_not_saved(opinions, tmp_path):
    with pytest.raises(TypeError, match="LogisticRegression"):
        opinions.save(tmp_path / "opinions.safetensors")


# Tables of scores --------------------------------------------------------------------------------


def test_columns_of_a_table_may_have_any_order():
    table = ScoreTable(["puma", "lynx", "fox"]).fit([[1, 0, 0]])
    assert table.classes_.tolist() == ["fox", "lynx", "puma"]
    np.testing.assert_allclose(table.predict_proba([[0.4, 0.2, 0.2]]), [[0.25, 0.25, 0.5]])
    assert table.predict([[0.4, 0.2, 0.2]]).tolist() == ["puma"]
    assert not hasattr(table, "decision_function")


@pytest.mark.parametrize(
    ("classes", "X", "message"),
    [
        (["a", "a"], [[1, 0]], r"names 1 class\(es\) more than once"),
        (["a", "b"], [[1, 0, 0]], r"X has 3 column\(s\) of scores for 2 classes"),
        (
            ["a", "b"],
            [[1, 0], [-1, 2]],
            r"Row 1 of X .*: its least number is -1",
        ),
        (["a", "b"], [[1, 0], [0, 0]], r"Row 1 of X holds no probabilities"),
        (["a", "b"], [[1, np.nan]], "contains NaN"),
    ],
)
def test_tables_that_are_no_scores_are_refused(classes, X, message):
    with pytest.raises(ValueError, match=message):
        ScoreTable(classes).fit(X)


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
def test_named_columns_are_found_by_their_names(kind):
    frame = pd.DataFrame([[0.4, 0.2, 0.1]], columns=["puma", "lynx", "fox"])
    table = ScoreTable(["puma", "lynx", "fox"], kind).fit(frame)
    turned = frame[["lynx", "fox", "puma"]]
    np.testing.assert_array_equal(table.predict_proba(turned), table.predict_proba(frame))
    np.testing.assert_array_equal(table.predict_proba(frame.to_numpy()), table.predict_proba(frame))
    assert table.predict(turned).tolist() == ["puma"]
    numbers = ScoreTable([3, 20]).fit(pd.DataFrame([[0.2, 0.8]], columns=["20", "3"]))
    assert numbers.predict(pd.DataFrame([[0.2, 0.8]], columns=["20", "3"])).tolist() == [3]
    assert numbers.predict(pd.DataFrame([[0.2, 0.8]])).tolist() == [20]  # without names
    for other in (frame.rename(columns={"fox": "wolf"}), frame[["puma", "lynx", "lynx"]]):
        with pytest.raises(ValueError, match=r"named like `classes`, each once.*missing.*'fox'"):
            table.predict_proba(other)


@pytest.mark.parametrize(
    "classes",
    [
        [("cat", "lynx"), ("cat", "puma")],
        ["lynx", None],
        ["lynx", 1],
        np.array(["lynx", 1], dtype=object),
        np.array([["lynx"], ["puma"]]),
    ],
)
def test_classes_are_all_strings_or_all_numbers(classes):
    with pytest.raises(ValueError, match=r"all strings or all numbers, got .*Give a single name"):
        ScoreTable(classes).fit([[0.5, 0.5]])
