"""Tools that encode y: refused by name, decoded, or replaced by one that keeps labels."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, ShuffleSplit, StratifiedKFold
from sklearn.model_selection import cross_val_predict as sklearn_cross_val_predict
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, StandardScaler

from skh2edl import (
    DecodingClassifier,
    FlatCEClassifier,
    H2EDLClassifier,
    HierCEClassifier,
    Taxonomy,
    cross_val_predict,
)

TREE = Taxonomy.from_nested(
    {"cat": ["lynx", "puma"], "insect": ["ant", "bee", "wasp"], "dog": None}
)
NUMBERS = Taxonomy.from_nested({"cat": [0, 1], "insect": [2, 3], "dog": [4, 5]})
RNG = np.random.default_rng(0)
PRESENT = np.array(["lynx", "puma", "ant", "dog"])  # no bee, no wasp
LABELS = PRESENT[np.arange(80) % 4]
X = RNG.normal(size=(80, 4)) + 2 * np.eye(4)[np.arange(80) % 4]
MIXED = np.where(np.arange(80) % 8 == 0, "cat", LABELS)  # every second lynx is a cat


def ours(tree=TREE):
    return H2EDLClassifier(tree, backbone=None)


TOOLS = {
    "BaggingClassifier": lambda clf: BaggingClassifier(clf, 2, random_state=0),
    "VotingClassifier": lambda clf: VotingClassifier([("a", clf)], voting="soft"),
    "StackingClassifier": lambda clf: StackingClassifier([("a", clf)], cv=2),
    "OneVsRestClassifier": OneVsRestClassifier,
    "OneVsRestClassifier or a tool": OneVsOneClassifier,
    "OneVsRestClassifier or": lambda clf: OutputCodeClassifier(clf, random_state=0),
    "CalibratedClassifierCV": lambda clf: CalibratedClassifierCV(clf, ensemble=False, cv=2),
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_that_encodes_is_named(name):
    with pytest.raises(ValueError, match=rf"{name}.* encodes y: it holds the integers \[.*lynx"):
        TOOLS[name](ours()).fit(X, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BaggingClassifier", "VotingClassifier", "OneVsRestClassifier"])
def test_a_tool_that_encodes_is_named_from_another_process(name):
    with pytest.raises(ValueError, match=rf"{name}.* encodes y: it holds the integers \[.*lynx"):
        TOOLS[name](ours()).set_params(n_jobs=2).fit(X, LABELS)


@pytest.mark.parametrize("name", TOOLS)
def test_encoded_integers_are_refused_where_leaves_are_integers(name):
    """The codes 0 to 3 of the leaves 0, 1, 3 and 5 are leaves too, and other ones."""
    labels = np.array([0, 1, 3, 5])[np.arange(80) % 4]
    with pytest.raises(ValueError, match=rf"{name}.* encodes y|holds the integers"):
        TOOLS[name](ours(NUMBERS)).fit(X, labels)


def test_temperature_encodes_strings():
    with pytest.raises(ValueError, match=r"CalibratedClassifierCV encodes y.*CalibratedTreeClass"):
        CalibratedClassifierCV(ours(), method="temperature", cv=2).fit(X, LABELS)


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba", "decision_function"])
def test_scikit_learns_cross_val_predict_points_to_ours(method):
    message = r"cross_val_predict encodes y.*Use skh2edl\.cross_val_predict"
    with pytest.raises(ValueError, match=message):
        sklearn_cross_val_predict(ours(), X, LABELS, method=method, cv=2)
    # Without columns nothing is encoded.
    assert set(sklearn_cross_val_predict(ours(), X, LABELS, cv=2)) <= set(TREE.leaves)


def test_groups_stay_in_one_part_of_a_cross_validation():
    groups = np.arange(len(LABELS)) // 4
    seen = []

    class Spy(GaussianNB):
        def fit(self, X, y, sample_weight=None, groups=None):
            seen.append(set(groups))
            return super().fit(X, y, sample_weight)

    cross_val_predict(Spy(), X, LABELS, groups=groups, cv=2)
    assert len(seen) == 2
    assert not seen[0] & seen[1]


def test_labels_that_a_user_encoded_are_refused():
    with pytest.raises(ValueError, match=r"y was encoded: .*\[0, 1, 2, 3\].*Give the labels"):
        ours().fit(X, LabelEncoder().fit_transform(LABELS))


def test_codes_of_all_the_leaves_0_1_are_these_leaves():
    y = np.arange(80) % 6
    clf = ours(NUMBERS)
    # Encoding 0 to 5 changes nothing.
    proba = sklearn_cross_val_predict(clf, X, y, method="predict_proba", cv=4)
    assert np.array_equal(proba, cross_val_predict(clf, X, y, method="predict_proba", cv=4))


def test_integer_leaves_are_fitted_as_they_are():
    y = np.array([0, 1, 3])[np.arange(80) % 3]
    assert ours(NUMBERS).fit(X, y).n_iter_ > 0
    search = GridSearchCV(ours(NUMBERS), {"l2": [0.1]}, cv=2).fit(X, y)
    assert search.best_estimator_.classes_.tolist() == [0, 1, 2, 3, 4, 5]


# cross_val_predict -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba"])
def test_held_out_predictions_are_those_of_the_loop_by_hand(method):
    """With ancestors in y, and with leaves that y lacks."""
    expected = [None] * 80
    for rows, held in StratifiedKFold(4).split(X, MIXED):
        fitted = ours().fit(X[rows], MIXED[rows])
        for row, value in zip(held, getattr(fitted, method)(X[held]), strict=True):
            expected[row] = value
    found = cross_val_predict(ours(), X, MIXED, cv=4, method=method)
    assert np.array_equal(found, np.array(expected))
    if method == "predict_proba":
        assert found.shape == (80, 6)
        assert found.sum(axis=1) == pytest.approx(np.ones(80))


@pytest.mark.slow
def test_held_out_predictions_with_weights_and_groups_in_two_processes():
    weight, groups = RNG.uniform(0.5, 2, 80), np.arange(80) // 8
    expected = np.empty((80, 6))
    for rows, held in GroupKFold(3).split(X, MIXED, groups):
        fitted = ours().fit(X[rows], MIXED[rows], weight[rows])
        expected[held] = fitted.predict_proba(X[held])
    arguments = {"sample_weight": weight, "groups": groups, "cv": GroupKFold(3)}
    for n_jobs in (None, 2):
        found = cross_val_predict(
            ours(), X, MIXED, **arguments, method="predict_proba", n_jobs=n_jobs
        )
        assert found == pytest.approx(expected, abs=1e-9)


def test_held_out_predictions_equal_scikit_learns_where_nothing_is_lost_by_encoding():
    for clf in (LogisticRegression(), FlatCEClassifier(backbone=None)):
        expected = sklearn_cross_val_predict(clf, X, LABELS, method="predict_proba", cv=3)
        found = cross_val_predict(clf, X, LABELS, method="predict_proba", cv=3)
        assert found == pytest.approx(expected, abs=1e-6)


def test_splits_and_methods_that_cannot_be_right_are_refused():
    with pytest.raises(ValueError, match=r"holds out \d+ of 80 samples .* Use a partition"):
        cross_val_predict(ours(), X, LABELS, cv=ShuffleSplit(3, random_state=0))
    with pytest.raises(ValueError, match=r"method must be one of .*, got 'predict_level'"):
        cross_val_predict(ours(), X, LABELS, method="predict_level")
    order = np.argsort(LABELS)
    halves = [(order[40:], order[:40]), (order[:40], order[40:])]
    with pytest.raises(ValueError, match=r"of split 1 knows the classes .* Give the classifier a"):
        cross_val_predict(LogisticRegression(), X, LABELS, cv=halves, method="predict_proba")


# DecodingClassifier ------------------------------------------------------------------------------


def columns_of(proba, labels):
    """The probabilities of some leaves, given that one of them is right."""
    some = proba[:, [TREE.sorted_leaf_labels.tolist().index(label) for label in labels]]
    return some / some.sum(axis=1, keepdims=True)


def test_a_bagged_classifier_is_the_mean_of_its_members():
    names = np.unique(LABELS)
    bag = BaggingClassifier(DecodingClassifier(ours(), names), 3, random_state=0).fit(X, LABELS)
    by_hand = []
    for rows in bag.estimators_samples_:
        weight = np.bincount(rows, minlength=80).astype(float)
        by_hand.append(columns_of(ours().fit(X, LABELS, weight).predict_proba(X), names))
    assert bag.predict_proba(X) == pytest.approx(np.mean(by_hand, axis=0), abs=1e-4)
    assert set(bag.predict(X)) <= set(PRESENT)


def test_a_soft_vote_is_the_mean_of_both():
    names = np.unique(LABELS)
    forest = RandomForestClassifier(20, random_state=0)
    vote = VotingClassifier(
        [("a", DecodingClassifier(ours(), names)), ("b", forest)], voting="soft"
    )
    own = columns_of(ours().fit(X, LABELS).predict_proba(X), names)
    other = RandomForestClassifier(20, random_state=0).fit(X, LABELS).predict_proba(X)
    assert vote.fit(X, LABELS).predict_proba(X) == pytest.approx((own + other) / 2, abs=1e-6)


def test_hard_votes_stacks_and_pipelines_decode_too():
    inner = make_pipeline(StandardScaler(), HierCEClassifier(TREE, backbone=None))
    decoding = DecodingClassifier(inner, np.unique(LABELS))
    for tool in (
        VotingClassifier([("a", decoding)]),
        StackingClassifier([("a", decoding), ("b", LogisticRegression())], cv=3),
        CalibratedClassifierCV(decoding, method="temperature", cv=3),
        CalibratedClassifierCV(decoding, cv=3),
    ):
        assert tool.fit(X, LABELS).score(X, LABELS) > 0.7
        assert tool.classes_.tolist() == sorted(PRESENT)


def test_integer_leaves_are_decoded():
    """The codes of 0, 1, 3 and 5 are 0 to 3; taken for leaves they would be others."""
    y = np.array([0, 1, 3, 5])[np.arange(80) % 4]
    vote = VotingClassifier([("a", DecodingClassifier(ours(NUMBERS), np.unique(y)))]).fit(X, y)
    expected = ours(NUMBERS).fit(X, y).predict(X)
    same = np.isin(expected, y)
    assert same.mean() > 0.9
    assert np.array_equal(vote.predict(X)[same], expected[same])


def test_an_ancestor_among_leaves_teaches_and_is_never_predicted():
    names = np.unique(MIXED)
    decoding = DecodingClassifier(ours(), names).fit(X, np.searchsorted(names, MIXED))
    proba = decoding.predict_proba(X)
    leaves = names != "cat"
    assert (proba[:, ~leaves] == 0).all()
    expected = columns_of(ours().fit(X, MIXED).predict_proba(X), names[leaves])
    assert proba[:, leaves] == pytest.approx(expected, abs=1e-6)


def test_an_ancestor_with_nothing_below_it_has_the_probability_of_its_leaves():
    y = np.where(np.isin(LABELS, ["lynx", "puma"]), "cat", LABELS)
    names = np.unique(y)
    decoding = DecodingClassifier(ours(), names).fit(X, y)
    proba = ours().fit(X, y).predict_proba(X)
    column = {name: proba[:, i] for i, name in enumerate(TREE.sorted_leaf_labels)}
    some = np.stack([column["ant"], column["lynx"] + column["puma"], column["dog"]], axis=1)
    assert names.tolist() == ["ant", "cat", "dog"]
    expected = some / some.sum(axis=1, keepdims=True)
    assert decoding.predict_proba(X) == pytest.approx(expected, abs=1e-6)
    assert decoding.classes_.tolist() == names.tolist()


def test_codes_that_the_labels_do_not_have_are_refused():
    with pytest.raises(ValueError, match=r"y holds \[4, 7\], and the codes of the 3 labels are 0"):
        DecodingClassifier(ours(), ["ant", "dog", "lynx"]).fit(X[:4], [0, 1, 4, 7])
