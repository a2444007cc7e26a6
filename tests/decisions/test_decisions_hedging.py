"""Hedged predictions keep their accuracy, and are what a loop over nodes would find."""

import pickle
import re
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from decisions_cases import TREE, Told, population
from scipy.stats import betabinom
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, classification_report, confusion_matrix
from sklearn.model_selection import (
    GridSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skh2edl import FlatCEClassifier, H2EDLClassifier, HedgedClassifier, Taxonomy
from skh2edl.decisions._ladders import (
    RULES,
    Ladder,
    covers,
    last_rung,
    make_ladder,
)
from skh2edl.decisions._needed import thresholds_needed
from skh2edl.decisions._quantile import conformal_quantile

FAMILY = {"lynx": "cat", "puma": "cat", "fox": "dog", "jackal": "dog", "wolf": "dog"}
ANIMALS = Taxonomy.from_paths(
    [(family, leaf) for leaf, family in FAMILY.items()], level_names=("family", "kind")
)
SHARPNESS = {"calibrated": 1.0, "over-confident": 4.0, "under-confident": 0.3}
TOLD = FrozenEstimator(Told(TREE).fit(None))


def animals(n_samples, seed=0, n_features=12):
    """Leaves overlap much, families little."""
    rng = np.random.default_rng(seed)
    y = rng.choice(list(FAMILY), size=n_samples)
    means = np.random.default_rng(9).normal(size=(len(FAMILY), n_features)) * 0.6
    means[2:, 0] += 3
    index = np.array([list(FAMILY).index(name) for name in y])
    return means[index] + rng.normal(size=(n_samples, n_features)), y


def hedged(stated, truth, **parameters):
    return HedgedClassifier(TOLD, **parameters).fit(stated, TREE.labels(truth))


@parametrize_with_checks([HedgedClassifier(LogisticRegression(), target_accuracy=0.1)])
def test_all_of_scikit_learns_checks(estimator, check):
    # So lax that the root, which is no class, is never predicted.
    check(estimator)


# The guarantee -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_calibration", [50, 500, 5000])
def test_over_a_thousand_splits_the_error_stays_at_its_target(n_calibration):
    target, n_splits, n_test = 0.9, 1000, 300
    cases = []
    for number, sharpness in enumerate(SHARPNESS.values()):
        stated, truth = population(n_calibration + n_test, sharpness, seed=number)
        for rule in RULES:
            ladder = make_ladder(rule, stated, TREE)
            cases.append((rule, ladder, truth, thresholds_needed(rule, stated, truth, TREE)))
    rng = np.random.default_rng(n_calibration)
    wrong = np.zeros((n_splits, len(cases)))
    ones = np.ones(n_calibration)
    for split in range(n_splits):
        order = rng.permutation(n_calibration + n_test)
        held, new = order[:n_calibration], order[n_calibration:]
        for number, (_, ladder, truth, needed) in enumerate(cases):
            threshold = conformal_quantile(needed[held], target, ones)
            nodes, scores = ladder.nodes[new], ladder.scores[new]
            predictions = nodes[np.arange(n_test), last_rung(Ladder(nodes, scores), threshold)]
            wrong[split, number] = 1 - covers(predictions, truth[new], TREE).mean()
    # Without ties the number of wrong predictions in a split is beta-binomial.
    rank = np.ceil((n_calibration + 1) * target - 1e-9)
    spread = betabinom(n_test, n_calibration + 1 - rank, rank).std() / n_test
    error = 4 * spread / np.sqrt(n_splits)
    means = wrong.mean(axis=0)
    assert means.max() <= 1 - target + error
    # And no more careful than that, where all candidates lie on one path.
    climbing = [mean for mean, (rule, *_) in zip(means, cases, strict=True) if rule == "climb"]
    assert min(climbing) >= 1 - target - 1 / (n_calibration + 1) - error


def test_a_threshold_set_by_hand_guarantees_nothing():
    stated, truth = population(20_000, SHARPNESS["over-confident"])
    ladder = make_ladder("climb", stated, TREE)
    for by_hand in (0.65, 0.8):
        predictions = ladder.nodes[np.arange(len(truth)), last_rung(ladder, by_hand)]
        assert 1 - covers(predictions, truth, TREE).mean() > 0.2
    predictions = hedged(stated[:5000], truth[:5000], target_accuracy=0.9).predict(stated[5000:])
    wrong = 1 - covers(TREE.resolve(predictions), truth[5000:], TREE).mean()
    assert wrong == pytest.approx(0.1, abs=4 * np.sqrt(0.1 * 0.9 * (1 / 5000 + 1 / 15_000)))


def test_every_level_keeps_its_own_target():
    targets = {"order": 0.97, "family": 0.9, "species": 0.8}
    stated, truth = population(1500, SHARPNESS["over-confident"], seed=5)
    rng, n_splits, n_held = np.random.default_rng(0), 80, 500
    reaches_and_errs, reaches = np.zeros((n_splits, 3)), np.zeros((n_splits, 3))
    for split in range(n_splits):
        order = rng.permutation(len(truth))
        held, new = order[:n_held], order[n_held:]
        clf = hedged(stated[held], truth[held], target_accuracy=targets)
        predictions = TREE.resolve(clf.predict(stated[new]))
        for column, level in enumerate(targets):
            own, true = TREE.project(predictions, level), TREE.project(truth[new], level)
            reaches_and_errs[split, column] = np.mean((own >= 0) & (own != true))
            reaches[split, column] = np.mean(own >= 0)
    for (level, target), mean in zip(targets.items(), reaches_and_errs.mean(axis=0), strict=True):
        spread = np.sqrt(target * (1 - target) * (1 / n_held + 1 / (len(truth) - n_held)))
        assert mean <= 1 - target + 4 * spread / np.sqrt(n_splits), level
    # Levels differ in how far they are reached; the deepest one is, too.
    assert (np.diff(reaches.mean(axis=0)) < -0.02).all()
    assert reaches.mean(axis=0)[2] > 0.1


@pytest.mark.parametrize("subtrees_of", ["prediction", "truth"])
def test_every_subtree_keeps_its_own_target(subtrees_of):
    stated, truth = population(3000, 1.0, seed=6)
    # One order is told badly: what holds for all together need not hold there.
    in_b = (truth >= 0) & (TREE.labels(TREE.project(truth, 1)) == np.array("b"))
    mixed = stated[np.random.default_rng(1).permutation(len(stated))]
    stated[in_b] = 0.5 * stated[in_b] + 0.5 * mixed[in_b]
    rng, n_splits, n_held, target = np.random.default_rng(0), 60, 600, 0.9
    options = {"subtrees": "order", "subtrees_of": subtrees_of, "target_accuracy": target}
    wrong, counted = np.zeros(3), np.zeros(3)
    plain_wrong = np.zeros(3)
    for _ in range(n_splits):
        order = rng.permutation(len(truth))
        held, new = order[:n_held], order[n_held:]
        clf = hedged(stated[held], truth[held], **options)
        right = covers(TREE.resolve(clf.predict(stated[new])), truth[new], TREE)
        plain = hedged(stated[held], truth[held], target_accuracy=target).predict(stated[new])
        plain_right = covers(TREE.resolve(plain), truth[new], TREE)
        likeliest = TREE.leaf_nodes[stated[new].argmax(axis=1)]
        of = TREE.project(likeliest if subtrees_of == "prediction" else truth[new], 1) - 1
        wrong += np.bincount(of, ~right, minlength=3)
        plain_wrong += np.bincount(of, ~plain_right, minlength=3)
        counted += np.bincount(of, minlength=3)
    # A part holds a sixth of the samples or more.
    spread = np.sqrt(target * (1 - target) * (1 / 100 + 1 / 400)) / np.sqrt(n_splits)
    assert (wrong / counted <= 1 - target + 4 * spread).all()
    assert (plain_wrong / counted).max() > 1 - target + 4 * spread


def test_labels_that_stop_early_make_predictions_careful_and_keep_their_accuracy():
    stated, truth = population(6000, seed=7)
    # Annotators stop early where it is hard, so early labels are no chance.
    hard = (stated.max(axis=1) < 0.9) & (np.arange(len(truth)) < 3000)
    labels = np.where(hard, TREE.project(truth, 1), truth)
    held, new = slice(0, 3000), slice(3000, None)
    error = {}
    for reading in ("wrong", "drop"):
        clf = HedgedClassifier(TOLD, 0.9, partial_labels=reading)
        if reading == "wrong":
            n_early = np.sum(TREE.n_children[labels[held]] > 0)
            message = (
                rf"{n_early} of 3000 held-out labels end above .* \d+ % of the held-out "
                r"predictions are the root; without these labels it would be \d+ %"
            )
            with pytest.warns(UserWarning, match=message) as said:
                clf.fit(stated[held], TREE.labels(labels[held]))
            at_root = np.mean(clf.predict(stated[held]) == "root")
            assert f"{100 * at_root:.0f} %" in str(said[0].message)
        else:
            clf.fit(stated[held], TREE.labels(labels[held]))
        predictions = TREE.resolve(clf.predict(stated[new]))
        error[reading] = 1 - covers(predictions, truth[new], TREE).mean()
    assert error["wrong"] <= 0.1
    assert error["drop"] > 0.1 + 4 * np.sqrt(0.1 * 0.9 * 2 / 3000)
    assert clf.n_calibration_ == 3000 - np.sum(hard & (TREE.n_children[labels] > 0))


def test_labels_above_the_subtrees_belong_to_none_of_them():
    stated, truth = population(400)
    options = {"subtrees": "family", "subtrees_of": "truth", "target_accuracy": 0.8}
    known = hedged(stated[:300], truth[:300], **options)
    labels = truth.copy()
    labels[300:] = TREE.node("a")
    np.testing.assert_array_equal(hedged(stated, labels, **options).threshold_, known.threshold_)


# What is predicted ---------------------------------------------------------------------------


def test_the_prediction_is_the_deepest_likely_enough_ancestor_of_the_likeliest_leaf():
    stated, truth = population(800, 2.0)
    clf = hedged(stated[400:], truth[400:], target_accuracy=0.9)
    stated = stated[:400]
    nodes = TREE.resolve(clf.predict(stated))
    for row, node in zip(stated, nodes.tolist(), strict=True):
        likely = int(TREE.leaf_nodes[row.argmax()])
        while row[TREE.leaf_start[likely] : TREE.leaf_stop[likely]].sum() < clf.threshold_:
            likely = int(TREE.parents[likely])
        assert node == likely


@pytest.mark.parametrize("rule", sorted(RULES))
def test_the_threshold_is_the_quantile_and_a_higher_target_never_says_more(rule):
    stated, truth = population(300, 2.0)
    depths = []
    for target in (0.5, 0.8, 0.9, 0.95, 0.99):
        clf = hedged(stated, truth, rule=rule, target_accuracy=target)
        needed = np.sort(thresholds_needed(rule, stated, truth, TREE))
        # Three hundred and one times the target, rounded up.
        rank = {0.5: 151, 0.8: 241, 0.9: 271, 0.95: 286, 0.99: 298}[target]
        assert clf.threshold_ == needed[rank - 1]
        depths.append(TREE.resolve(clf.predict(stated)))
    n_below = TREE.leaf_stop - TREE.leaf_start
    for bold, careful in pairwise(depths):
        assert (n_below[careful] >= n_below[bold]).all()
    assert n_below[depths[-1]].mean() > n_below[depths[0]].mean()


def test_a_target_for_one_level_counts_for_those_above_it():
    stated, truth = population(400, 2.0)
    one = hedged(stated, truth, target_accuracy={"family": 0.9})
    all_named = hedged(stated, truth, target_accuracy={1: 0.9, 2: 0.9, 3: 0.9})
    np.testing.assert_array_equal(one.threshold_, all_named.threshold_)
    assert one.threshold_.shape == (3,)


def test_a_leaf_that_ends_early_meets_the_targets_of_the_levels_below_it():
    # c stands for itself on all three levels. Told 0.6, it is right in six of ten.
    row = np.full(TREE.n_leaves, 0.05)
    row[-1] = 0.6
    stated = np.tile(row, (200, 1))
    truth = np.where(np.arange(200) % 10 < 6, TREE.node("c"), TREE.node("p"))
    clf = hedged(stated, truth, target_accuracy={"order": 0.5, "species": 0.9})
    assert set(clf.predict(stated).tolist()) == {"root"}
    clf = hedged(stated, truth, target_accuracy={"order": 0.5, "species": 0.55})
    assert set(clf.predict(stated).tolist()) == {"c"}


def test_a_frame_says_what_was_predicted_and_why():
    stated, truth = population(500, 1.0)
    clf = hedged(stated, truth, target_accuracy=0.9)
    frame = clf.predict_frame(stated)
    np.testing.assert_array_equal(frame["node"], clf.predict(stated))
    assert set(frame["level"]) == {"root", "order", "family", "species"}
    nodes = TREE.resolve(frame["node"])
    inside = (np.arange(9) >= TREE.leaf_start[nodes, None]) & (
        np.arange(9) < TREE.leaf_stop[nodes, None]
    )
    np.testing.assert_allclose(frame["probability"], (stated * inside).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(
        frame["information"], np.log(9 / inside.sum(axis=1)) / np.log(9), atol=1e-12
    )
    np.testing.assert_allclose(frame["leaf_probability"], stated.max(axis=1))
    assert (frame["reason"] == "a leaf").sum() == (inside.sum(axis=1) == 1).sum()
    climbed = frame[frame["reason"] != "a leaf"].iloc[0]
    assert climbed["reason"].endswith(f", less than {clf.threshold_:.3g}")
    assert "belief" not in frame


def test_a_frame_holds_belief_and_plausibility_where_there_are_opinions():
    X, y = animals(150)
    model = make_pipeline(StandardScaler(), H2EDLClassifier(ANIMALS, backbone=None)).fit(X, y)
    new, truth = animals(200, seed=1)
    clf = HedgedClassifier(FrozenEstimator(model)).fit(new, truth)
    frame = clf.predict_frame(new)
    assert (frame["belief"] <= frame["probability"] + 1e-6).all()
    assert (frame["probability"] <= frame["plausibility"] + 1e-6).all()
    cats = np.flatnonzero(frame["node"] == "cat")
    expected = clf.predict_hyper_opinion(new).belief("cat")[cats]
    np.testing.assert_allclose(frame["belief"][cats], expected)
    assert cats.size > 3


@pytest.mark.parametrize("kind", ["search", "search of a pipeline", "one step", "unfitted"])
def test_opinions_are_found_in_searches_and_pipelines(kind):
    X, y = animals(60)
    own = H2EDLClassifier(ANIMALS, backbone=None)
    model = {
        "search": GridSearchCV(own, {"l2": [0.01]}, cv=2),
        "search of a pipeline": GridSearchCV(
            make_pipeline(StandardScaler(), own), {"h2edlclassifier__l2": [0.01]}, cv=2
        ),
        "one step": make_pipeline(own),
        "unfitted": GridSearchCV(own, {"l2": [0.01]}, cv=2),
    }[kind]
    if kind != "unfitted":
        model = FrozenEstimator(model.fit(X, y))
    frame = HedgedClassifier(model, 0.8, cv=2).fit(X, y).predict_frame(X)
    assert (frame["belief"] <= frame["probability"] + 1e-6).all()
    assert frame["belief"].max() > 0.1
    assert not hasattr(HedgedClassifier(GridSearchCV(GaussianNB(), {})), "predict_hyper_opinion")


def test_opinions_on_another_tree_are_left_out_of_the_frame():
    X, y = animals(120)
    flat = FrozenEstimator(H2EDLClassifier(backbone=None).fit(X, y))
    clf = HedgedClassifier(flat, 0.9, taxonomy=ANIMALS).fit(*animals(200, seed=1))
    frame = clf.predict_frame(X)
    assert "belief" not in frame
    assert set(frame["node"]) & {"cat", "dog"}


def test_a_reason_does_not_call_a_number_less_than_itself():
    # Two kinds of samples: the surer leaf is never wrong, the other half the time.
    stated = np.full((200, 9), 0.25 / 8)
    stated[:, 0] = 0.75
    truth = np.where(np.arange(200) % 2, TREE.leaf_nodes[0], TREE.leaf_nodes[1])
    frame = hedged(stated, truth, target_accuracy=0.9).predict_frame(stated[:1])
    assert frame["node"][0] == "a1"
    assert frame["reason"][0] == "p has 0.75, and needs more than that"


def test_a_dart_is_explained_by_its_lambda():
    stated, truth = population(300, 2.0)
    frame = hedged(stated, truth, rule="darts").predict_frame(stated)
    reasons = frame["reason"][frame["node"] == "root"]
    told = reasons.str.fullmatch(r"\w+ has λ [\d.e+]+, less than λ [\d.e+]+")
    # The sample that sets the threshold is only just below it.
    just_below = reasons.str.fullmatch(r"\w+ has λ [\d.e+]+, and needs more than that")
    assert (told | just_below).all()
    assert just_below.sum() <= 1
    assert len(reasons) > 3


# Fits, splits, other estimators --------------------------------------------------------------


def test_one_split_is_exact_and_several_are_approximate():
    X, y = animals(300)
    split = ShuffleSplit(1, test_size=100, random_state=0)
    clf = HedgedClassifier(GaussianNB(), 0.9, cv=split, taxonomy=ANIMALS).fit(X, y)
    assert (clf.guarantee_, clf.n_calibration_) == ("exact", 100)
    rows, held = next(split.split(X))
    by_hand = FrozenEstimator(GaussianNB().fit(X[rows], y[rows]))
    by_hand = HedgedClassifier(by_hand, 0.9, taxonomy=ANIMALS).fit(X[held], y[held])
    assert clf.threshold_ == by_hand.threshold_
    np.testing.assert_array_equal(clf.predict(X), by_hand.predict(X))

    clf = HedgedClassifier(GaussianNB(), 0.9, taxonomy=ANIMALS).fit(X, y)
    assert (clf.guarantee_, clf.n_calibration_) == ("approximate", 300)
    proba = np.empty((300, 5))
    codes = np.unique(y, return_inverse=True)[1]
    for rows, held in StratifiedKFold(5).split(X, codes):
        proba[held] = GaussianNB().fit(X[rows], y[rows]).predict_proba(X[held])
    leaves = np.empty_like(proba)
    leaves[:, ANIMALS.leaf_order] = proba
    needed = thresholds_needed("climb", leaves, ANIMALS.resolve(y), ANIMALS)
    assert clf.threshold_ == pytest.approx(np.sort(needed)[270], abs=1e-9)  # 301 * 0.9 is 270.9
    everything = GaussianNB().fit(X, y)
    np.testing.assert_array_equal(clf.estimator_.predict(X), everything.predict(X))


def test_samples_held_out_twice_would_count_as_two():
    X, y = animals(60)
    with pytest.raises(ValueError, match=r"more than once \(120 predictions for 60 samples\)"):
        HedgedClassifier(GaussianNB(), cv=RepeatedKFold(n_splits=3, n_repeats=2)).fit(X, y)


def test_samples_that_a_split_fits_on_cannot_be_held_out_from_it():
    X, y = animals(60)
    overlapping = [(np.arange(40), np.arange(30, 60))]
    with pytest.raises(ValueError, match=r"holds out 10 sample\(s\) that the same split also fits"):
        HedgedClassifier(GaussianNB(), cv=overlapping).fit(X, y)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_forest_in_a_pipeline_is_cross_validated(rule):
    X, y = animals(300)
    forest = make_pipeline(
        StandardScaler(), RandomForestClassifier(20, max_depth=4, random_state=0)
    )
    clf = HedgedClassifier(forest, 0.9, rule, taxonomy=ANIMALS, cv=3)
    scores = cross_val_score(clf, X, y, cv=3)
    # The accuracy in a fold of 100 varies by 0.03, and by as much again with the threshold.
    assert scores.mean() > 0.9 - 4 * 0.042 / np.sqrt(3)
    predictions = set(clf.fit(X, y).predict(X).tolist())
    assert predictions & {"cat", "dog"}
    assert predictions & set(FAMILY)


def test_it_can_be_searched_over_and_pickled():
    X, y = animals(200)
    clf = HedgedClassifier(GaussianNB(), cv=2, taxonomy=ANIMALS)
    search = GridSearchCV(clf, {"target_accuracy": [0.6, 0.9]}, cv=2).fit(X, y)
    assert search.best_params_ == {"target_accuracy": 0.9}
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))


def test_classes_may_be_ancestors():
    X, y = animals(200)
    labels = np.where(np.isin(y, ["fox", "jackal", "wolf"]), "dog", y)
    clf = HedgedClassifier(GaussianNB(), 0.9, taxonomy=ANIMALS, cv=3).fit(X, labels)
    assert "dog" in clf.predict(X)


@pytest.mark.parametrize("first", [0, -1])
def test_integer_labels_give_integers_that_scikit_learns_metrics_read(first):
    X, names = animals(200)
    y = np.unique(names, return_inverse=True)[1] + first
    for estimator in (GaussianNB(), FlatCEClassifier(backbone=None)):
        clf = HedgedClassifier(estimator, 0.9, cv=3).fit(X, y)
        predictions = clf.predict(X)
        assert predictions.dtype == y.dtype
        root = -1 if first == 0 else -2
        assert set(predictions.tolist()) == {root, *y.tolist()}
        assert accuracy_score(y, predictions) == np.mean(y == predictions)
        matrix = confusion_matrix(y, predictions)
        assert matrix[:, 0].sum() == np.sum(predictions == root)  # the root comes first
        report = classification_report(y, predictions, output_dict=True, zero_division=0)
        assert report[str(first)]["support"] == np.sum(y == first)
        right = (predictions == root) | (predictions == y)
        assert clf.score(X, y) == pytest.approx(right.mean())


def test_integer_leaves_beside_names_are_strings_in_every_batch():
    X, names = animals(200)
    kinds, y = np.unique(names, return_inverse=True)
    tree = Taxonomy.from_paths([(FAMILY[kind], code) for code, kind in enumerate(kinds)])
    clf = HedgedClassifier(GaussianNB(), 0.9, cv=3, taxonomy=tree).fit(X, y)
    predictions = clf.predict(X)
    assert predictions.dtype.kind == "U"
    assert {"cat", "dog"} & set(predictions.tolist())
    sure = np.char.isdigit(predictions)
    np.testing.assert_array_equal(clf.predict(X[sure]), predictions[sure])
    assert accuracy_score(y.astype(str), predictions) == np.mean(y.astype(str) == predictions)
    right = covers(tree.resolve(predictions), tree.resolve(y), tree)
    assert clf.score(X, y) == pytest.approx(right.mean())


def test_the_score_is_the_fraction_of_right_predictions():
    stated, truth = population(500)
    clf = hedged(stated[:300], truth[:300], target_accuracy=0.9)
    labels = np.array(TREE.labels(truth[300:]), dtype=object)
    predictions = TREE.resolve(clf.predict(stated[300:]))
    right = [
        predicted == true or predicted in ancestors_of(true)
        for predicted, true in zip(predictions.tolist(), truth[300:].tolist(), strict=True)
    ]
    assert clf.score(stated[300:], labels) == pytest.approx(np.mean(right))
    weight = np.arange(200.0)
    expected = np.average(right, weights=weight)
    assert clf.score(stated[300:], labels, weight) == pytest.approx(expected)
    # A label above the prediction cannot judge it; the root judges nothing.
    leaves = np.flatnonzero(TREE.n_children[predictions] == 0)
    labels[leaves] = "root"
    rest = np.delete(np.array(right), leaves)
    assert clf.score(stated[300:], labels) == pytest.approx(rest.mean())


def ancestors_of(node):
    found = []
    while node > 0:
        node = int(TREE.parents[node])
        found.append(node)
    return found


def test_the_probabilities_are_those_of_the_estimator():
    X, y = animals(120)
    model = FlatCEClassifier(ANIMALS, backbone=None).fit(X, y)
    clf = HedgedClassifier(FrozenEstimator(model), 0.8).fit(X, y)
    np.testing.assert_allclose(clf.predict_proba(X), model.predict_proba(X), rtol=1e-6)
    np.testing.assert_array_equal(clf.predict_level(X, "family"), model.predict_level(X, "family"))


def test_weights_say_what_the_held_out_samples_stand_for():
    # New samples are four times as often of order b, of which the classifier knows least.
    stated, truth = population(8000, seed=8)
    in_b = TREE.project(truth, 1) == TREE.node("b")
    shuffled = stated[np.random.default_rng(0).permutation(8000)]
    stated[in_b] = 0.1 * stated[in_b] + 0.9 * shuffled[in_b]
    held, rest = np.arange(4000), np.arange(4000, 8000)
    new = np.concatenate([rest, rest[in_b[rest]], rest[in_b[rest]], rest[in_b[rest]]])
    labels = TREE.labels(truth[held])
    weight = np.where(in_b[held], 4.0, 1.0)
    error = {}
    for name, given in (("plain", None), ("weighted", weight)):
        clf = HedgedClassifier(TOLD, 0.9).fit(stated[held], labels, sample_weight=given)
        predictions = TREE.resolve(clf.predict(stated[new]))
        error[name] = 1 - covers(predictions, truth[new], TREE).mean()
    spread = np.sqrt(0.1 * 0.9 * 2 / 4000)
    assert error["plain"] > 0.1 + 4 * spread
    assert error["weighted"] == pytest.approx(0.1, abs=4 * spread)
    nothing = np.where(np.arange(4000) < 2000, 0.0, 1.0)
    halved = HedgedClassifier(TOLD, 0.9).fit(stated[held], labels, sample_weight=nothing)
    half = hedged(stated[2000:4000], truth[2000:4000], target_accuracy=0.9)
    assert halved.threshold_ == half.threshold_


# Mistakes ------------------------------------------------------------------------------------


def test_too_few_samples_for_a_guarantee_are_refused_with_the_number_needed():
    stated, truth = population(18)
    message = r"guarantee of 0.95 needs at least 19 calibration .* got 18: .*at most 0.947"
    with pytest.raises(ValueError, match=message):
        hedged(stated, truth)
    assert hedged(stated, truth, target_accuracy=18 / 19).n_calibration_ == 18
    stated, truth = population(100)
    with pytest.raises(ValueError, match=r"each part needs at least 19 .*: 'a1' \d+"):
        hedged(stated, truth, subtrees="family", target_accuracy=0.95)
    pooled = hedged(stated, truth, subtrees="family", small_subtrees="pool")
    assert pooled.threshold_.shape == (len(pooled.subtrees_),)
    assert sorted(chain.from_iterable(pooled.subtrees_)) == sorted(TREE.level("family"))
    # Those that are pooled have fewer samples than is to be expected of new ones.
    assert pooled.guarantee_ == "approximate"
    assert hedged(*population(400), subtrees="order", small_subtrees="pool").guarantee_ == "exact"


def test_what_cannot_be_guaranteed_is_refused():
    stated, truth = population(200)
    with pytest.raises(ValueError, match="for each level needs rule='climb', got rule='darts'"):
        hedged(stated, truth, target_accuracy={"order": 0.9}, rule="darts")
    with pytest.raises(ValueError, match=r"name at least one level and not the root.*got \{0: 0.9"):
        hedged(stated, truth, target_accuracy={0: 0.9})
    with pytest.raises(ValueError, match="between 0 and 1, got 95 for level 'order'"):
        hedged(stated, truth, target_accuracy={"order": 95})
    with pytest.raises(ValueError, match="'genus'"):
        hedged(stated, truth, target_accuracy={"genus": 0.9})
    with pytest.raises(ValueError, match=r"'target_accuracy' parameter of .* Got 1 instead"):
        hedged(stated, truth, target_accuracy=1)
    with pytest.raises(ValueError, match=r"'rule' parameter of .* Got 'jump' instead"):
        hedged(stated, truth, rule="jump")
    with pytest.raises(ValueError, match="nothing to learn from: all labels are the root"):
        HedgedClassifier(TOLD).fit(stated, ["root"] * 200)
    with pytest.raises(ValueError, match="No held-out sample is left to learn a threshold from"):
        HedgedClassifier(TOLD, partial_labels="drop").fit(stated, ["a"] * 200)
    with pytest.raises(ValueError, match="label\\(s\\) are not in the taxonomy, first \\['newt'"):
        HedgedClassifier(TOLD).fit(stated, ["newt"] * 200)
    stated[7] = np.nan
    with pytest.raises(ValueError, match="gives NaN as log-probability, first in row 7"):
        hedged(stated, truth)


def test_the_examples_of_the_page_on_decisions_do_what_it_says():
    page = Path(__file__).resolve().parents[2] / "docs" / "decisions.md"
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, "decisions.md", "exec"), names)
    # Five hundred samples held out, five hundred to judge.
    spread = np.sqrt(0.95 * 0.05 * 2 / 500)
    assert names["fraction_right"] == pytest.approx(0.95, abs=4 * spread)
    assert {"cat", "dog", "puma"} <= set(names["predictions"])
    truth = names["y"][1000:]
    held = [
        any(node in (label, FAMILY[label], "root") for node in one)
        for one, label in zip(names["sets"], truth, strict=True)
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=4 * spread)
    is_cat = np.isin(truth, ["lynx", "puma"])
    plain = names["forest"].predict(names["X"][1000:])[is_cat]
    careful = names["careful"][is_cat]
    assert np.isin(careful, ["fox", "wolf"]).mean() < np.isin(plain, ["fox", "wolf"]).mean()
    assert names["strange"].tolist() == [True, False]


def test_a_clone_is_as_the_first():
    clf = HedgedClassifier(GaussianNB(), {"family": 0.9}, subtrees=["cat"], taxonomy=ANIMALS)
    copy = clone(clf)
    assert copy.get_params()["target_accuracy"] == {"family": 0.9}
    assert copy.subtrees == ["cat"]
