"""The report: its numbers against hand counts, its sentences, and a page that is safe and whole."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from skh2edl import H2EDLClassifier, HedgedClassifier, HyperOpinion, Taxonomy
from skh2edl.report import EvaluationReport, content_hashes, needed_thresholds, write_report
from skh2edl.report.figures import wilson_interval
from skh2edl.report.predictions import Predictions, read_predictions
from skh2edl.report.questions import trusted_level
from skh2edl.report.wording import percent

TREE = Taxonomy.from_paths(
    [("cat", "lynx"), ("cat", "puma"), ("dog", "fox"), ("dog", "wolf")],
    level_names=("kind", "species"),
)
LEAVES = ["fox", "lynx", "puma", "wolf"]  # the columns of probabilities, sorted


def proba_of(predicted, sure=0.7):
    """Probabilities whose best leaf is the one named, the rest spread equally."""
    rows = np.full((len(predicted), 4), (1 - sure) / 3)
    rows[np.arange(len(predicted)), [LEAVES.index(name) for name in predicted]] = sure
    return rows


@pytest.fixture(scope="module")
def counted():
    """Twelve predictions: two lynxes taken for pumas, one for a fox, one puma for a lynx."""
    truth = ["lynx"] * 5 + ["puma"] * 3 + ["fox"] * 2 + ["cat", "root"]
    predicted = ["lynx", "lynx", "puma", "puma", "fox", "puma", "puma", "lynx", "fox", "fox"]
    predicted += ["wolf", "wolf"]
    return EvaluationReport.from_predictions(truth, proba_of(predicted), TREE)


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


def test_decisions_count_first_errors_where_they_are_made(counted):
    by_node = {TREE.label(row.node): row for row in counted.decisions}
    # At cat: lynx for puma twice, puma for lynx once. At the root: a lynx and a cat for a dog.
    assert by_node["cat"].n_first_errors == 3
    assert by_node["root"].n_first_errors == 2
    assert by_node["dog"].n_first_errors == 0
    assert by_node["cat"].n_passing == 8
    assert by_node["root"].n_passing == 11
    assert np.isnan(by_node["cat"].stopping)


def test_classes_are_counted_and_the_worst_comes_first(counted):
    rows = [(TREE.label(row.node), row.n_samples, row.n_right) for row in counted.classes]
    assert rows == [("lynx", 5, 2), ("puma", 3, 2), ("fox", 2, 2)]
    assert TREE.labels(counted.classes[0].taken_for) == ["puma", "fox"]
    assert counted.classes[0].n_training is None


def test_images_to_look_at_are_the_extremes_and_differ(counted):
    truth, predicted = ["lynx"] * 6 + ["fox"] * 2, ["puma"] * 3 + ["lynx"] * 3 + ["wolf", "fox"]
    proba = proba_of(predicted, sure=0.5)
    for row, sure in enumerate([0.9, 0.95, 0.8, 0.99, 0.98, 0.4, 0.7, 0.6]):
        proba[row] = proba_of(predicted[row : row + 1], sure)
    chosen = EvaluationReport.from_predictions(truth, proba, TREE).chosen
    # Of the three lynxes taken for pumas the surest only.
    assert chosen.surest_mistakes.tolist() == [1, 6]
    assert chosen.surest.tolist()[:2] == [3, 0]
    assert chosen.least_sure.tolist()[0] == 5
    assert len(set(np.concatenate(chosen).tolist())) == sum(map(len, chosen))


def test_the_sentences_say_the_counts(counted):
    level, classes, label = counted.questions
    assert level.answer == "None without a second look"
    assert (
        "60 % of the predictions are right (6 of 10; 95 % interval 31 to 83 %" in level.sentences[1]
    )
    assert any("too modest" in s or "over-confident" in s for s in level.sentences)
    assert classes.answer == "Most mistakes between lynx and puma"
    assert classes.sentences[0] == (
        "2 of 5 (40 %) lynx images were taken for puma, and 1 of 3 (33 %) the other way round."
    )
    assert "3 of the 5 mistakes take the wrong branch at cat" in classes.sentences[-2]
    assert "Of the 5 mistakes in all, 60 % are still right at “kind”." in classes.sentences
    # Of 10 images labelled with a leaf 4 are wrong; of the lynxes more, of the pumas fewer.
    assert label.answer == "First check the surest mistakes, then collect more lynx"
    look, finish, collect = label.sentences
    assert look.startswith("Look at the surest mistakes")
    assert finish.startswith("1 label stops half-way down the tree.")
    assert collect.startswith("Collect training images of lynx (3 of 5 wrong). How many are ")
    assert "the average (40 %)" in collect


def test_a_level_is_trusted_by_the_lower_end_and_only_below_trusted_ones():
    truth = ["lynx", "puma", "fox", "wolf"] * 50
    predicted = ["lynx", "puma", "fox", "wolf"] * 49 + ["puma", "lynx", "fox", "wolf"]
    report = EvaluationReport.from_predictions(truth, proba_of(predicted), TREE)
    # 198 of 200: the lower end is 96.4 %.
    assert trusted_level(report.levels, 0.96).name == "species"
    assert trusted_level(report.levels, 0.965).name == "kind"
    assert trusted_level(report.levels, 0.99) is None
    assert report.questions[0].answer == "All levels, down to “species”"


def test_few_images_are_not_called_trustworthy():
    report = EvaluationReport.from_predictions(["lynx"] * 5, proba_of(["lynx"] * 5), TREE)
    assert report.questions[0].answer == "Perhaps “kind”: too few images to be sure"
    assert report.questions[1].answer == "None"


def test_no_mistakes_leave_the_advice_to_the_belief():
    opinion = HyperOpinion.from_evidence(TREE, np.tile([[90.0, 1, 3, 0, 0, 0]], (4, 1)))
    proba = opinion.leaf_probability[:, TREE.leaf_order]
    report = EvaluationReport.from_predictions(["lynx"] * 4, proba, TREE, opinion=opinion)
    assert report.questions[2].answer == "More images under cat"
    stopping = {TREE.label(row.node): row.stopping for row in report.decisions}
    # Belief 90 / 93 arrives at cat, of which 2 / 5 stops.
    assert stopping["cat"] == pytest.approx(90 / 93 * 2 / 5)


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
    report = EvaluationReport.from_predictions(["lynx"] * 8, proba_of(["lynx"] * 8), TREE)
    assert all(np.isinf(hedge.threshold) for hedge in report.hedges)
    assert all(hedge.stops[0] == (8, 8) and hedge.given == (0, 0) for hedge in report.hedges)
    assert "too few images" in report.to_html()


# Problems --------------------------------------------------------------------------------------


def test_problems_in_the_data_are_found_and_named():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, size=(6, 8, 8), dtype=np.uint8)
    images[3] = images[0]  # the same label
    images[4] = images[1]  # another label
    train = np.concatenate([images[2:3], 255 - images[2:3]])
    report = EvaluationReport.from_predictions(
        ["lynx", "puma", "fox", "lynx", "fox", "cat"],
        proba_of(["lynx", "puma", "fox", "lynx", "fox", "puma"]),
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
    assert "Read the figures with care" in report.to_html()


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


def test_a_guarantee_that_is_not_kept_is_said():
    # Calibrated on images that were all right, measured on images of which a third is wrong.
    truth, predicted = ["lynx", "puma", "fox"] * 40, ["lynx", "puma", "lynx"] * 40
    options = {"calibration": np.zeros(200)}
    report = EvaluationReport.from_predictions(truth, proba_of(predicted), TREE, **options)
    assert (
        "That is less than the guaranteed 95 %. The images that set the threshold may be"
        in report.questions[0].sentences[-1]
    )
    step = report.questions[2].sentences[-1]
    assert step.startswith("Set aside more images to calibrate the hedge with")
    # Silence is right on none here: 80 of 120 at every target.
    assert "67 % instead of 90 %, 67 % instead of 95 % and 67 % instead of 99 % right)" in step
    # Halves of the evaluated images leave nothing to set aside.
    own = EvaluationReport.from_predictions(truth, proba_of(predicted), TREE)
    assert not [each for each in own.questions[2].sentences if each.startswith("Set aside")]


def test_surest_mistakes_are_those_with_the_highest_probability_of_the_wrong_leaf():
    # The first leaves less belief open, the second gives its wrong leaf more probability.
    evidence = np.zeros((2, TREE.n_decisions))
    counts = {"cat": (60, 60), "puma": (800, 0), "lynx": (0, 12), "dog": (40, 0), "fox": (800, 0)}
    for column, (_, child) in enumerate(TREE.decisions):
        evidence[:, column] = counts.get(child[-1], (0, 0))
    opinion = HyperOpinion.from_evidence(TREE, evidence)
    proba = opinion.leaf_probability[:, TREE.leaf_order]
    report = EvaluationReport.from_predictions(["lynx", "puma"], proba, TREE, opinion=opinion)
    assert opinion.nonspecificity[0] < opinion.nonspecificity[1]
    sure = report.predictions.path_probability[:, -1]
    assert sure[0] < sure[1]
    assert report.chosen.surest_mistakes.tolist() == [1, 0]


def test_the_surest_mistakes_agree_with_the_confusions_and_the_next_are_named():
    names = [f"class {index:02}" for index in range(16)]
    tree = Taxonomy.flat(names)
    proba = np.full((30, 16), 0.0)
    truth, sure = [], np.linspace(0.6, 0.89, 30)
    for row in range(30):
        truth.append(names[row % 15])
        proba[row] = (1 - sure[row]) / 15
        proba[row, row % 15 + 1] = sure[row]
    report = EvaluationReport.from_predictions(truth, proba, tree)
    # Of each pair the second image is the surer one.
    assert report.chosen.surest_mistakes.tolist() == [29, 28, 27]
    assert report.chosen.next_mistakes.tolist() == list(range(26, 14, -1))
    firsts = {int(pair.rows[0]) for pair in report.confusions}
    assert firsts <= {*report.chosen.surest_mistakes.tolist(), *report.chosen.next_mistakes}
    rows = Page(report.to_html()).texts
    assert "The next mistakes, the surest first (P: probability of the best leaf)." in rows
    assert all(f"sample {row}" in rows for row in range(15, 27))


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
    predictions = Predictions.from_proba(proba_of(["lynx", "fox", "fox"]), TREE)
    readable = np.array([True, True, False])
    broken = Predictions(TREE, predictions.leaf_probability, None, readable)
    report = EvaluationReport(broken, TREE.resolve(["lynx", "fox", "lynx"]), names=["a", "b", "c"])
    assert report.n_samples == 2
    assert report.n_mistakes == 0
    assert report.problems[0].names == ("c",)
    assert not set(np.concatenate(report.chosen)) & {2}
    with pytest.raises(ValueError, match="None of the images could be read"):
        EvaluationReport(
            Predictions(TREE, predictions.leaf_probability, None, np.zeros(3, bool)),
            np.array([3, 4, 5]),
        )


# The page --------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a page is made of, and checks that what opens is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "img", "br", "i") or tag == "i":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if "style" not in self.open:
            self.texts.append(text)

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


HOSTILE = '<script>alert(1)</script>"\' onload="x'


@pytest.fixture(scope="module")
def hostile_page():
    tree = Taxonomy.from_nested(
        {HOSTILE: [f"a{HOSTILE}", f"b{HOSTILE}"], "</style>": None},
        level_names=(HOSTILE, f"leaf{HOSTILE}"),
    )
    rng = np.random.default_rng(0)
    opinion = HyperOpinion.from_evidence(tree, rng.gamma(0.5, 8.0, size=(40, tree.n_decisions)))
    y = [tree.leaves[index % 3] for index in range(40)]
    images = rng.integers(0, 255, size=(40, 9, 9), dtype=np.uint8)
    report = EvaluationReport.from_predictions(
        y,
        opinion.leaf_probability[:, tree.leaf_order],
        tree,
        opinion=opinion,
        images=images,
        names=[f"{index}{HOSTILE}" for index in range(40)],
        title=HOSTILE,
        facts={HOSTILE: HOSTILE},
        calibration=np.zeros(60),
        calibration_note=HOSTILE,
    )
    return report.to_html()


def test_names_from_data_are_text_and_never_markup(hostile_page):
    page = Page(hostile_page)
    assert not page.of("script")
    assert not [
        value for _, attributes in page.tags for value in attributes if value.startswith("on")
    ]
    assert sum(HOSTILE in text for text in page.texts) > 20
    assert len(page.of("style")) == 1


def test_the_page_needs_nothing_from_outside(hostile_page):
    page = Page(hostile_page)
    for _, attributes in page.tags:
        for key in ("src", "href", "data", "action", "srcset"):
            assert attributes.get(key, "#").startswith(("#", "data:image/"))
    assert "url(" not in hostile_page
    assert "@import" not in hostile_page
    (policy,) = [each for each in page.of("meta") if "http-equiv" in each]
    assert policy["content"] == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_pictures_have_words_and_tables_have_captions(hostile_page):
    page = Page(hostile_page)
    assert len(page.of("img")) > 5
    assert all(len(image["alt"]) > 10 for image in page.of("img"))
    assert len(page.of("caption")) == len(page.of("table")) > 3
    assert page.of("html")[0]["lang"] == "en"
    links = {each["href"][1:] for each in page.of("a")}
    assert links <= {each.get("id") for _, each in page.tags}


def test_the_same_figures_give_the_same_bytes(fitted):
    clf, X, y = fitted
    first, second = (EvaluationReport.from_estimator(clf, X[:60], y[:60]) for _ in range(2))
    assert first.to_html() == second.to_html()


def test_figures_can_be_written_as_json_without_nan(counted):
    content = json.loads(json.dumps(counted.to_dict(), allow_nan=False))
    assert content["levels"][1]["n_right"] == 6
    first = content["confusions"][0]
    assert (first["truth"], first["predicted"], first["n_predicted"]) == ("lynx", "puma", 3)
    assert first["rows"] == ["sample 2", "sample 3"]
    assert np.sum(content["hedges"][0]["stops"], axis=0)[0] == 10
    assert content["decisions"][0]["stopping"] is None


def test_any_classifier_can_be_reported_on(tmp_path, fitted):
    _, X, y = fitted
    bayes = GaussianNB().fit(X[:150], y[:150])
    report = write_report(tmp_path / "r.html", bayes, X[150:], y[150:], taxonomy=TREE)
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert report.levels[1].n_right == int((bayes.predict(X[150:]) == y[150:]).sum())
    # No opinions: no masses, no depth profile, but the likeliest leaves.
    assert not [text for text in page.texts if "vacuity" in text.lower()]
    assert "The likeliest leaves." in page.texts


def test_a_report_appears_whole_or_not_at_all(tmp_path, counted, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("before")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        counted.write(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["r.html"]


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
        EvaluationReport.from_predictions(
            ["lynx", "fox"], proba_of(["lynx", "fox"]), TREE, **options
        )


def test_percents_never_round_something_to_nothing_or_to_all():
    assert [percent(value) for value in (0, 0.004, 0.996, 1)] == [
        "0 %",
        "under 1 %",
        "over 99 %",
        "100 %",
    ]
