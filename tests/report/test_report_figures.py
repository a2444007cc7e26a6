"""The numbers of a report, against hand counts, scikit-learn's metrics and closed forms."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cases import proba_of
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score
from strategies import taxonomies

from skh2edl import H2EDLClassifier, HedgedClassifier, HyperOpinion, Taxonomy
from skh2edl.report import EvaluationReport, content_hashes, needed_thresholds
from skh2edl.report.figures import confusion_pairs, find_mistakes, node_figures, wilson_interval
from skh2edl.report.predictions import Predictions, read_predictions

TREE = Taxonomy.from_paths(
    [("cat", "lynx"), ("cat", "puma"), ("dog", "fox"), ("dog", "wolf")],
    level_names=("kind", "species"),
)


def proba(predicted, sure=0.7):
    return proba_of(predicted, tree=TREE, sure=sure)


@pytest.fixture(scope="module")
def counted():
    """Twelve predictions: two lynxes taken for pumas, one for a fox, one puma for a lynx."""
    truth = ["lynx"] * 5 + ["puma"] * 3 + ["fox"] * 2 + ["cat", "root"]
    predicted = ["lynx", "lynx", "puma", "puma", "fox", "puma", "puma", "lynx", "fox", "fox"]
    predicted += ["wolf", "wolf"]
    return EvaluationReport.from_predictions(truth, proba(predicted), TREE)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    y = np.tile(list(TREE.leaves), 150)
    X = rng.normal(size=(600, 4)) + 2 * np.tile(np.eye(4), (150, 1))
    return H2EDLClassifier(TREE, backbone=None).fit(X[:300], y[:300]), X[300:], y[300:]


def test_wilson_interval_is_the_published_one():
    # Brown, Cai and DasGupta 2001: the score interval; numbers of R's binom.confint.
    assert wilson_interval(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611252), abs=1e-6)
    assert wilson_interval(20, 20)[1] == 1
    assert np.isnan(wilson_interval(0, 0)).all()


def test_levels_count_what_their_labels_reach(counted):
    kind, species = counted.levels
    # On kind: 11 labels, of which one lynx (fox) and the cat (wolf) are wrong.
    assert (kind.n_samples, kind.n_right) == (11, 9)
    assert (species.n_samples, species.n_right) == (10, 6)
    assert species.balanced_accuracy == pytest.approx((2 / 5 + 2 / 3 + 2 / 2) / 3)
    assert species.confidence == pytest.approx(0.7)
    assert kind.confidence == pytest.approx(0.8)
    assert counted.n_labelled == 11
    assert counted.n_mistakes == 5


def test_confusions_are_pairs_with_both_directions(counted):
    named = [
        (TREE.label(pair.truth), TREE.label(pair.predicted), *pair[2:6])
        for pair in counted.confusions
    ]
    assert named[0] == ("lynx", "puma", 2, 5, 1, 3)
    # An ancestor label is compared at its own depth.
    assert sorted(named[1:]) == [("cat", "dog", 1, 1, 0, 0), ("lynx", "fox", 1, 5, 0, 2)]
    assert TREE.label(counted.confusions[0].meeting) == "cat"
    assert counted.confusions[0].rows.tolist() == [2, 3]


def test_nodes_are_measured_on_their_own_images(counted):
    nodes = {TREE.label(node): row for node, row in counted.nodes.items()}
    # Of 5 lynxes, 3 pumas and a cat, one lynx is taken for a fox and the cat for a wolf.
    assert (nodes["cat"].n_samples, nodes["cat"].n_right) == (9, 7)
    assert (nodes["lynx"].n_samples, nodes["lynx"].n_right) == (5, 2)
    assert [TREE.label(node) for node in nodes["cat"].taken_for] == ["dog"]
    assert nodes["cat"].n_taken == (2,)
    assert TREE.labels(nodes["lynx"].taken_for) == ["puma", "fox"]
    assert nodes["lynx"].n_taken == (2, 1)
    # At cat: lynx for puma twice, puma for lynx once. At the root: a lynx and a cat for a dog.
    first_errors = {label: (row.n_passing, row.n_first_errors) for label, row in nodes.items()}
    assert first_errors["cat"] == (8, 3)
    assert first_errors["dog"] == (2, 0)
    assert first_errors["root"] == (11, 2)
    assert "wolf" not in nodes
    assert [TREE.label(row.node) for row in counted.decisions] == ["cat", "root", "dog"]
    assert TREE.labels([row.node for row in counted.classes]) == ["lynx", "puma", "fox"]
    assert np.isnan(nodes["cat"].vacuity)


def test_a_node_is_right_as_often_as_scikit_learns_recall(fitted):
    clf, X, y = fitted
    report = EvaluationReport.from_estimator(clf, X, y)
    given = clf.predict(X)
    species, kinds = list(TREE.leaves), ["cat", "dog"]
    for names, truth, predicted in [
        (species, y, given),
        (kinds, *([TREE.ancestor(label, "kind") for label in each] for each in (y, given))),
    ]:
        recall = recall_score(truth, predicted, labels=names, average=None)
        found = [report.nodes[TREE.node(name)].accuracy for name in names]
        assert found == pytest.approx(recall.tolist())
    assert report.levels[1].balanced_accuracy == pytest.approx(balanced_accuracy_score(y, given))


def test_vacuity_of_a_node_is_the_mean_over_its_own_images():
    # At cat, two children and evidence 3 and 0: vacuity 2 / 5; without evidence it is 1.
    evidence = np.array([[90.0, 1, 3, 0, 0, 0], [90, 1, 0, 0, 0, 0], [1, 90, 0, 0, 7, 1]])
    opinion = HyperOpinion.from_evidence(TREE, evidence)
    proba = opinion.leaf_probability[:, TREE.leaf_order]
    report = EvaluationReport.from_predictions(
        ["lynx", "lynx", "fox"], proba, TREE, opinion=opinion
    )
    cat, dog = (report.nodes[TREE.node(name)] for name in ("cat", "dog"))
    assert cat.vacuity == pytest.approx((2 / 5 + 1) / 2)
    # Belief 90 / 93 arrives at the right kind.
    assert cat.stopping == pytest.approx(90 / 93 * (2 / 5 + 1) / 2)
    assert dog.vacuity == pytest.approx(2 / 10)
    assert np.isnan(report.nodes[TREE.node("lynx")].vacuity)


@given(taxonomies(), st.integers(0, 2**32 - 1))
def test_every_mistake_is_first_made_at_one_node_and_counted_in_one_pair(tree, seed):
    rng = np.random.default_rng(seed)
    truth = tree.last_of_chain[rng.integers(tree.n_nodes, size=30)]
    predictions = Predictions.from_proba(rng.dirichlet(np.ones(tree.n_leaves), 30), tree)
    nodes = node_figures(predictions, truth)
    mistakes = find_mistakes(predictions, truth)
    assert sum(row.n_first_errors for row in nodes.values()) == len(mistakes)
    pairs = confusion_pairs(predictions, truth)
    assert sum(pair.n_mistaken + pair.n_back for pair in pairs) == len(mistakes)
    assert [each.probability for each in mistakes] == sorted(
        (each.probability for each in mistakes), reverse=True
    )
    for row in nodes.values():
        children = tree.last_of_chain[tree.parents == row.node].tolist()
        below = sum(nodes[child].n_samples for child in children if child in nodes)
        assert row.n_passing == below
        assert row.n_samples == row.n_right + sum(row.n_taken)


def test_mistakes_name_the_first_level_that_is_wrong(counted):
    found = {each.row: (TREE.label(each.predicted), each.depth) for each in counted.mistakes}
    assert found == {
        2: ("puma", 2),
        3: ("puma", 2),
        4: ("fox", 1),
        7: ("lynx", 2),
        10: ("wolf", 1),
    }


def test_surest_mistakes_have_the_highest_probability_of_the_wrong_leaf():
    rows = np.concatenate([proba(["puma"], sure) for sure in (0.6, 0.9, 0.7)])
    report = EvaluationReport.from_predictions(["lynx"] * 3, rows, TREE)
    assert [each.row for each in report.mistakes] == [1, 2, 0]
    assert report.confusions[0].rows.tolist() == [1, 2, 0]


def test_uncertainty_is_compared_over_pairs_of_a_mistake_and_a_right_prediction():
    on_path = [child[-1] in ("cat", "lynx") for _, child in TREE.decisions]
    opinion = HyperOpinion.from_evidence(TREE, np.outer([50, 40, 30, 20, 10], on_path) + 0.1)
    rows = opinion.leaf_probability[:, TREE.leaf_order]
    y = ["lynx", "lynx", "puma", "lynx", "puma"]
    report = EvaluationReport.from_predictions(y, rows, TREE, opinion=opinion)
    expected = roc_auc_score([label == "puma" for label in y], opinion.nonspecificity)
    assert report.uncertainty.separation == pytest.approx(expected)
    assert (report.uncertainty.n_wrong, report.uncertainty.n_right) == (2, 3)
    assert report.uncertainty.of_wrong == pytest.approx(opinion.nonspecificity[[2, 4]].mean())
    agreed = EvaluationReport.from_predictions(["lynx"] * 5, rows, TREE, opinion=opinion)
    assert agreed.uncertainty is None


def test_bounds_of_predictions_are_those_of_the_opinion():
    rng = np.random.default_rng(1)
    chain = Taxonomy.from_paths([("a", "b", "c"), ("a", "b", "d"), ("e", "f"), ("g",)])
    opinion = HyperOpinion.from_evidence(chain, rng.gamma(1.0, 5.0, size=(6, chain.n_decisions)))
    predictions = Predictions.from_proba(
        opinion.leaf_probability[:, chain.leaf_order], chain, opinion=opinion
    )
    for node in range(chain.n_nodes):
        belief, plausibility = predictions.bounds_of(np.full(6, node))
        label = chain.label(node)
        assert belief == pytest.approx(opinion.belief(label))
        assert plausibility == pytest.approx(opinion.plausibility(label))
        probability = predictions.probability_of(np.full((6, 1), node))[:, 0]
        assert probability == pytest.approx(opinion.probability(label))


# The hedge -------------------------------------------------------------------------------------


def test_the_hedge_with_its_own_calibration_is_the_hedged_classifier(fitted):
    clf, X, y = fitted
    held = y[:150].copy()
    held[:4] = "cat", "cat", "dog", "root"  # labels that stop early, or say nothing
    hedged = HedgedClassifier(FrozenEstimator(clf), target_accuracy=0.95).fit(X[:150], held)
    predictions = read_predictions(clf, X[:150])
    needed = needed_thresholds(predictions.leaf_probability, TREE.resolve(held), TREE)
    assert needed.size == 149
    report = EvaluationReport.from_estimator(clf, X[150:], y[150:], calibration=needed)
    figures = {hedge.target: hedge for hedge in report.hedges}
    assert TREE.labels(figures[0.95].nodes) == hedged.predict(X[150:]).tolist()
    assert not report.is_cross_calibrated


def test_halves_calibrate_each_other_so_that_no_prediction_sets_its_own_threshold(fitted):
    clf, X, y = fitted
    report = EvaluationReport.from_estimator(clf, X, y)
    assert report.is_cross_calibrated
    assert [hedge.target for hedge in report.hedges] == [0.9, 0.95, 0.99]
    for hedge in report.hedges:
        assert np.sum(hedge.stops, axis=0).tolist() == [hedge.n_samples, hedge.n_right]
        assert hedge.stops[0][0] == hedge.stops[0][1]  # the root is always right
        # The guarantee, and some room for 300 samples.
        assert hedge.accuracy >= hedge.target - 3 * np.sqrt(hedge.target * (1 - hedge.target) / 300)
    leaves = [hedge.stops[-1][0] for hedge in report.hedges]
    assert leaves == sorted(leaves, reverse=True)
    # A label changed to a wrong one moves the threshold of the other half only.
    changed = y.copy()
    row = int(np.flatnonzero(clf.predict(X) == y)[0])
    changed[row] = "wolf" if y[row] != "wolf" else "lynx"
    again = EvaluationReport.from_estimator(clf, X, changed)
    assert report.hedges[0].nodes[row] == again.hedges[0].nodes[row]


def test_too_few_images_guarantee_nothing():
    report = EvaluationReport.from_predictions(["lynx"] * 8, proba(["lynx"] * 8), TREE)
    assert all(np.isinf(hedge.threshold) for hedge in report.hedges)
    assert all(hedge.stops[0] == (8, 8) and hedge.given == (0, 0) for hedge in report.hedges)
    assert "too few images" in report.to_html()


def test_the_hedge_counts_the_right_predictions_of_each_level():
    truth = ["lynx"] * 60 + ["puma"] * 20 + ["fox"] * 10
    rows, needed = proba(["lynx"] * 90), np.full(200, 0.5)
    # A threshold of 0.5 keeps every leaf: 60 right, 20 of the other species, 10 of another kind.
    hedge = EvaluationReport.from_predictions(truth, rows, TREE, calibration=needed).hedges[0]
    assert hedge.stops == ((0, 0), (0, 0), (90, 60))
    assert hedge.given == (90, 60)
    # One of 0.75 is above P(lynx) = 0.7 and below P(cat) = 0.8: "cat" is right for 80 of 90.
    report = EvaluationReport.from_predictions(truth, rows, TREE, calibration=1.5 * needed)
    assert report.hedges[0].stops == ((0, 0), (90, 80), (0, 0))


# Problems --------------------------------------------------------------------------------------


def test_problems_in_the_data_are_found_and_named():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, size=(6, 8, 8), dtype=np.uint8)
    images[3] = images[0]  # the same label
    images[4] = images[1]  # another label
    train = np.concatenate([images[2:3], 255 - images[2:3]])
    report = EvaluationReport.from_predictions(
        ["lynx", "puma", "fox", "lynx", "fox", "cat"],
        proba(["lynx", "puma", "fox", "lynx", "fox", "puma"]),
        TREE,
        images=images,
        names=list("abcdef"),
        train_images=train,
        train_labels=["fox", "lynx"],
    )
    found = {problem.kind: problem.names for problem in report.problems}
    assert found["seen_in_training"] == ("c",)
    assert found["copies"] == ("a", "d")
    assert found["contradicting_copies"] == ("b", "e")
    assert found["half_way"] == ("f: cat",)
    assert found["leaves_without_samples"] == ("wolf",)
    assert found["leaves_without_training"] == ("puma", "wolf")
    assert [row.n_training for row in report.classes] == [1, 0, 1]
    assert [problem.is_serious for problem in report.problems] == sorted(
        (problem.is_serious for problem in report.problems), reverse=True
    )


def test_one_class_in_two_folders_is_found():
    tree = Taxonomy.from_paths([("red", "fly agaric"), ("mushroom", "fly agaric"), ("moss",)])
    proba = np.full((2, 3), 1 / 3)
    options = {"train_labels": ["red/fly agaric", "moss"]}
    y = ["mushroom/fly agaric", "moss"]
    report = EvaluationReport.from_predictions(y, proba, tree, **options)
    (found,) = [each for each in report.problems if each.kind == "divided_classes"]
    # The side of each path is said, however the tree orders them.
    assert found.names == (
        "“fly agaric” is at red/fly agaric in training and at mushroom/fly agaric in the "
        "evaluated data",
    )
    assert found.remedy.startswith("Move the evaluated images to the place of the training images")
    swapped = EvaluationReport.from_predictions(
        ["red/fly agaric", "moss"], proba, tree, train_labels=["mushroom/fly agaric", "moss"]
    )
    (found,) = [each for each in swapped.problems if each.kind == "divided_classes"]
    assert "at mushroom/fly agaric in training and at red/fly agaric in the" in found.names[0]
    both = EvaluationReport.from_predictions(
        y, proba, tree, train_labels=[*options["train_labels"], "mushroom/fly agaric"]
    )
    assert not [each for each in both.problems if each.kind == "divided_classes"]


def test_contents_are_compared_not_names(tmp_path):
    for name, content in {"a": b"1", "b": b"1", "c": b"2"}.items():
        (tmp_path / name).write_bytes(content)
    from skh2edl.images import image_source

    first, second, third, missing = content_hashes(
        image_source([str(tmp_path / name) for name in "abcd"])
    )
    assert first == second
    assert len({first, third, missing}) == 3


def test_images_that_cannot_be_read_count_in_no_figure():
    predictions = Predictions.from_proba(proba(["lynx", "fox", "fox"]), TREE)
    readable = np.array([True, True, False])
    broken = Predictions(TREE, predictions.leaf_probability, None, readable)
    report = EvaluationReport(broken, TREE.resolve(["lynx", "fox", "lynx"]), names=["a", "b", "c"])
    assert report.n_samples == 2
    assert report.n_mistakes == 0
    assert report.problems[0].names == ("c",)
    assert not [each for each in report.mistakes if each.row == 2]
    with pytest.raises(ValueError, match="None of the images could be read"):
        EvaluationReport(
            Predictions(TREE, predictions.leaf_probability, None, np.zeros(3, bool)),
            np.array([3, 4, 5]),
        )


def test_figures_can_be_written_as_json_without_nan(counted):
    content = json.loads(json.dumps(counted.to_dict(), allow_nan=False))
    assert content["levels"][1]["n_right"] == 6
    first = content["confusions"][0]
    assert (first["truth"], first["predicted"], first["n_predicted"]) == ("lynx", "puma", 3)
    assert first["rows"] == ["sample 2", "sample 3"]
    assert np.sum(content["hedges"][0]["stops"], axis=0)[0] == 10
    assert content["decisions"][0]["stopping"] is None
    assert content["classes"][0]["taken_for"] == ["puma", "fox"]
    assert content["classes"][0]["accuracy"] == pytest.approx(2 / 5)
    assert content["mistakes"][0]["row"].startswith("sample ")
    assert content["verdict"] == counted.verdict


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trust": 1.5}, "trust must be a fraction between 0 and 1, got 1.5"),
        ({"names": ["a"]}, "one name for each of the 2 samples, got 1"),
        ({"images": np.zeros((3, 8, 8), np.uint8)}, "one picture for each of the 2 samples, got 3"),
        ({"opinion": HyperOpinion.from_evidence(TREE, np.ones(6))}, "must hold 2 opinions"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EvaluationReport.from_predictions(["lynx", "fox"], proba(["lynx", "fox"]), TREE, **options)
