"""What a reader meets first: steps in order, each fault once, and rules that are said."""

import re
from html import unescape

import numpy as np
import pytest

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.report import EvaluationReport
from skh2edl.report.figures import (
    ClassFigures,
    Confusion,
    classes_to_collect,
    uncertainty_figures,
    worst_rate,
)
from skh2edl.report.predictions import Predictions

TREE = Taxonomy.from_paths(
    [("cat", "lynx"), ("cat", "puma"), ("dog", "fox"), ("dog", "wolf"), ("moss",)],
    level_names=("kind", "species"),
)


def report_of(counts, *, tree=TREE, sure=0.7, **options):
    """A report on predictions given as {(label, predicted leaf): how many}."""
    truth = [label for (label, _), number in counts.items() for _ in range(number)]
    given = [leaf for (_, leaf), number in counts.items() for _ in range(number)]
    classes = list(tree.sorted_leaf_labels)
    proba = np.full((len(given), len(classes)), (1 - sure) / (len(classes) - 1))
    proba[np.arange(len(given)), [classes.index(leaf) for leaf in given]] = sure
    return EvaluationReport.from_predictions(truth, proba, tree, **options)


def words(page):
    """The text of a page, tags taken out."""
    page = re.sub(r"<style.*?</style>", "", page, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))


@pytest.fixture(scope="module")
def divided():
    """Ten mushrooms trained in one folder and evaluated in another; pumas taken for lynxes."""
    paths = [("red", "agaric"), ("fungi", "agaric"), ("cat", "lynx"), ("cat", "puma")]
    tree = Taxonomy.from_paths(paths)
    counts = {("fungi/agaric", "red/agaric"): 10, ("lynx", "lynx"): 9, ("lynx", "puma"): 1}
    counts |= {("puma", "lynx"): 5, ("puma", "puma"): 5}
    trained = ["red/agaric"] * 20 + ["lynx"] * 40 + ["puma"] * 7
    return report_of(counts, tree=tree, train_labels=trained)


@pytest.fixture(scope="module")
def divided_page(divided):
    return divided.to_html()


def test_a_fault_of_the_data_is_the_first_step_and_the_headline(divided):
    label = divided.questions[2]
    assert label.answer == "First bring “agaric” to one place of the tree"
    assert label.are_steps
    fault, look, collect = label.sentences
    assert fault == (
        "“agaric” is at red/agaric in training and at fungi/agaric in the evaluated data; 10 of 10 "
        "evaluated images wrong. Move the evaluated images to the place of the training images, "
        "and evaluate again; or, where the training images are at the wrong place, move those, and "
        "train again. (In a table, change the labels.)"
    )
    assert look.startswith("Look at the surest mistakes")
    assert collect.startswith("Collect training images of puma (5 of 10 wrong; 7 training images).")
    # Of 20 images that are not mushrooms 6 are wrong.
    assert "the average (30 %, not counting the 10 images of the fault of the data)" in collect
    assert "How many are needed cannot be said from here" in collect


def test_what_hangs_on_a_fault_of_the_data_is_said(divided):
    # 14 of 30 right, and 24 of 30 with the mushrooms where they are in training.
    level = divided.questions[0]
    assert level.sentences[-1] == (
        "Without the fault of the data (10 images, see what to label next) the accuracy would "
        "be 100 % (not 67 %) at level 1 and 80 % (not 47 %) at “leaf”. The verdict would be at "
        "level 1 “with care” and at “leaf” “with care”."
    )
    content = divided.to_dict()["mended"]
    assert [row["n_right"] for row in content["levels"]] == [30, 24]
    assert report_of({("lynx", "lynx"): 9, ("puma", "lynx"): 3}).to_dict()["mended"] is None


def test_a_missed_guarantee_names_the_fault_of_the_data_as_a_part_of_it():
    paths = [("red", "agaric"), ("fungi", "agaric"), ("moss",)]
    counts = {("fungi/agaric", "red/agaric"): 40, ("moss", "moss"): 40, ("moss", "red/agaric"): 20}
    options = {"tree": Taxonomy.from_paths(paths), "calibration": np.zeros(200)}
    said = report_of(counts, train_labels=["red/agaric", "moss"], **options).questions
    # Thresholds of 0 name a leaf always: 40 of 100 right, and 80 of 100 without the fault.
    assert "The fault of the data is a part of it" in said[0].sentences[-2]
    assert "80 % (not 40 %) with the 95 % hedge. " in said[0].sentences[-1]
    assert "80 % instead of 95 %" in said[2].sentences[-1]
    assert "even without the fault of the data" in said[2].sentences[-1]
    said = report_of(counts, train_labels=["red/agaric", "fungi/agaric", "moss"], **options)
    assert not [s for question in said.questions for s in question.sentences if "fault" in s]


def test_images_of_untrained_classes_do_not_count_where_the_fault_is_mended():
    counts = {("lynx", "lynx"): 50, ("puma", "lynx"): 50}
    report = report_of(counts, train_labels=["lynx", "fox", "wolf", "moss"])
    assert [(row.n_samples, row.n_right) for row in report.mended.levels] == [(50, 50), (50, 50)]
    assert (
        report.questions[0]
        .sentences[-1]
        .endswith(
            "the accuracy would be 100 % (not 50 %) at “species”. The verdict would be at "
            "“species” “trust”."
        )
    )


@pytest.mark.parametrize(
    ("counts", "sure", "said"),
    [
        # Mean probability and accuracy 0.7, in one bin.
        ({("lynx", "lynx"): 70, ("lynx", "puma"): 30}, 0.7, "can be taken at face value"),
        ({("lynx", "lynx"): 50, ("lynx", "puma"): 50}, 0.7, "are over-confident (ECE 0.200; up to"),
        ({("lynx", "lynx"): 90, ("lynx", "puma"): 10}, 0.7, "are too modest (ECE 0.200; up to"),
    ],
)
def test_the_sentence_on_probabilities_follows_the_calibration_error(counts, sure, said):
    sentences = report_of(counts, sure=sure).questions[0].sentences
    assert [sentence for sentence in sentences if said in sentence]


def test_a_mean_that_fits_does_not_excuse_probabilities_that_are_off():
    # Half say 0.9 and are right in 0.8, half say 0.5 and are right in 0.6: ECE 0.1.
    proba = np.full((200, 5), 0.025)
    columns = [list(TREE.sorted_leaf_labels).index(name) for name in ("lynx", "puma")]
    proba[:100, columns[0]] = 0.9
    proba[100:] = 0.125
    proba[100:, columns[0]] = 0.5
    truth = np.array(["lynx"] * 200, dtype=object)
    truth[:20], truth[100:140] = "puma", "puma"
    report = EvaluationReport.from_predictions(list(truth), proba, TREE)
    assert report.levels[1].ece == pytest.approx(0.1)
    (said,) = [s for s in report.questions[0].sentences if s.startswith("The probabilities")]
    assert "say 70 %, and 70 % are right, but some are too high and others too low" in said
    assert "face value" not in said


def test_the_few_classes_of_the_trusted_level_are_named():
    counts = {("lynx", "lynx"): 60, ("lynx", "puma"): 20, ("fox", "fox"): 60, ("wolf", "fox"): 20}
    assert report_of(counts).questions[0].answer == "Down to “kind” (cat, dog, moss), not below"


def test_each_fault_is_named_once_with_one_remedy(divided, divided_page):
    # The same mushroom has no training image, and its other place no evaluated one.
    assert [problem.kind for problem in divided.problems] == ["divided_classes"]
    assert sum("agaric" in sentence for sentence in divided.questions[2].sentences) == 1
    _, classes, _ = divided.questions
    assert classes.answer == "Most mistakes between puma and lynx"
    assert not [sentence for sentence in classes.sentences if "agaric" in sentence]
    assert any("10 mistakes between two places of one name" in s for s in classes.sentences)
    # The first ten rows are the mushrooms.
    assert divided.chosen.surest_mistakes.min() >= 10
    assert "some may be wrong until step 1 of what to label next is done" in words(divided_page)


def test_the_steps_are_numbered_on_the_page(divided, divided_page):
    (steps,) = re.findall(r"<ol>(.*?)</ol>", divided_page, flags=re.S)
    assert [unescape(step) for step in re.findall("<li>(.*?)</li>", steps)] == list(
        divided.questions[2].sentences
    )


def test_a_class_that_only_attracts_mistakes_is_not_collected():
    # Ten others are predicted as "lynx", and one lynx of thirty is wrong.
    counts = {("lynx", "lynx"): 29, ("lynx", "puma"): 1, ("puma", "lynx"): 6, ("puma", "puma"): 6}
    report = report_of(counts | {("fox", "lynx"): 4, ("fox", "fox"): 4})
    assert TREE.labels([row.node for row in classes_to_collect(report.classes)]) == ["puma", "fox"]
    label = report.questions[2]
    assert label.answer == "First check the surest mistakes, then collect more puma and fox"
    assert "lynx" not in label.sentences[-1]


def test_few_training_images_and_a_large_fraction_wrong_come_first():
    def named(*rows):
        figures = [ClassFigures(node, n, n - wrong, (), known) for node, n, wrong, known in rows]
        return [row.node for row in classes_to_collect(figures)]

    # The lower ends of 10 of 20 and of 16 of 20 are 0.299 and 0.584 (R: binom.confint, wilson).
    assert named((1, 20, 10, 100), (2, 20, 10, 10), (3, 80, 0, 5)) == [2, 1]
    assert named((1, 20, 10, 20), (2, 20, 16, 20), (3, 80, 0, 5)) == [2, 1]
    assert named((1, 20, 10, 50), (2, 20, 16, 99), (3, 80, 0, 5)) == [1, 2]
    assert named((1, 20, 10, 50), (2, 20, 16, 97), (3, 80, 0, 5)) == [2, 1]
    # One of one wrong says less than 16 of 20; unknown numbers of training images do not count.
    assert named((1, 1, 1, None), (2, 20, 16, None), (3, 80, 0, None)) == [2, 1]
    # An explained class does not raise the average for the others either.
    figures = [ClassFigures(1, 90, 0, (), 9), ClassFigures(2, 10, 6, (), 9)]
    assert [row.node for row in classes_to_collect(figures, explained=[1])] == [2]


def test_pairs_are_ordered_by_mistakes_and_the_worst_rate_is_named():
    counts = {("lynx", "puma"): 8, ("lynx", "lynx"): 72, ("puma", "puma"): 40}
    counts |= {("fox", "wolf"): 6, ("wolf", "wolf"): 10}
    report = report_of(counts)
    classes = report.questions[1]
    assert classes.answer == "Most mistakes between lynx and puma"
    assert classes.sentences[:2] == (
        "8 of 80 (10 %) lynx images were taken for puma.",
        "6 of 6 (100 %) fox images were taken for wolf.",
    )
    assert classes.sentences[2] == (
        "(Ordered by the number of mistakes in both directions; fox and wolf have the highest "
        "rate.)"
    )


def test_the_pair_with_the_worst_rate_is_shown_however_rare():
    def pair(truth, n_mistaken, n_truth, n_back=0, n_predicted=0):
        counts = n_mistaken, n_truth, n_back, n_predicted
        return Confusion(truth, 9, *counts, 0, np.arange(n_mistaken))

    often, rare, single = pair(1, 30, 300), pair(2, 8, 9), pair(3, 1, 1)
    assert worst_rate([often, rare, single]) is rare
    assert worst_rate([often, single]) is single
    assert worst_rate([often, pair(4, 9, 90, 8, 9)]).truth == 4
    assert worst_rate([]) is None
    names = [f"class {index:02}" for index in range(24)]
    counts = {(name, name): 40 for name in names[:22]}
    counts |= {(names[index], names[index + 1]): 9 for index in range(0, 20, 2)}
    counts |= {(names[22], names[23]): 8}
    report = report_of(counts, tree=Taxonomy.flat(names))
    assert [pair.n_mistaken for pair in report.confusions] == [9] * 8 + [8]
    assert any(
        "The highest rate: 8 of 8 (100 %) class 22 images" in sentence
        for sentence in report.questions[1].sentences
    )


def test_the_page_says_its_rules(divided_page):
    counts = {("lynx", "lynx"): 60, ("puma", "lynx"): 20, ("fox", "fox"): 30, ("moss", "moss"): 10}
    said = words(report_of(counts, trust=0.8).to_html())
    assert "trust if the lower end of the interval is at least 80 %" in said
    assert "with care if at least 65 % are right" in said
    assert "“with care”: at least 65 % right" in said
    # Moss has no species, and both levels are counted with it: 3 kinds, 5 species.
    assert "1 leaf ends above the deepest level and counts as its own class" in said
    assert "would give 1.10 at kind and 1.61 at species" in said
    assert "The top of the tree cat (2 leaves) : lynx, puma dog (2 leaves) : fox, wolf moss" in said
    assert "ends above the deepest level" not in words(divided_page)
    assert "Pairs with the most mistakes, counted in both directions together" in said


def test_first_errors_that_are_not_shown_are_counted():
    names = [(f"kind {index:02}", f"{index:02} {side}") for index in range(10) for side in "ab"]
    counts = {(f"{index:02} a", f"{index:02} b"): 20 - index for index in range(10)}
    said = words(report_of(counts, tree=Taxonomy.from_paths(names)).to_html())
    # 20 + 19 + ... + 11 = 155 mistakes, of which the last two kinds have 12 and 11.
    assert "23 of all 155 mistakes begin at other decisions" in said


def test_the_hedge_says_beside_its_figure_that_silence_counts_as_right():
    # Taken for another kind, only silence is right; for another cat, "cat" is.
    silent, coarse = (
        report_of({("lynx", "lynx"): 100, (label, "lynx"): 100}).questions[0].sentences[-1]
        for label in ("fox", "puma")
    )
    assert "it predicts something for 0 of 200 (0 %) of the images. With “cannot tell”" in silent
    assert "for 200 of 200 (100 %) of the images and is then right for 200 of 200 (100 %)" in coarse


def test_the_hedge_counts_the_right_predictions_of_each_level():
    # A threshold of 0.5 keeps every leaf: 60 right, 20 of the other species, 10 of another kind.
    counts = {("lynx", "lynx"): 60, ("puma", "lynx"): 20, ("fox", "lynx"): 10}
    hedge = report_of(counts, calibration=np.full(200, 0.5)).hedges[0]
    assert hedge.stops == ((0, 0), (0, 0), (90, 60))
    assert hedge.given == (90, 60)
    # One of 0.75 is above P(lynx) = 0.7 and below P(cat) = 0.775: "cat" is right for 80 of 90.
    hedge = report_of(counts, calibration=np.full(200, 0.75)).hedges[0]
    assert hedge.stops == ((0, 0), (90, 80), (0, 0))
    assert "80 of 90 (89 %)" in words(report_of(counts, calibration=np.full(200, 0.75)).to_html())


def evidence_of(strengths):
    """Opinions for lynx of which the one with more evidence leaves less open."""
    on_path = [child[-1] in ("cat", "lynx") for _, child in TREE.decisions]
    return HyperOpinion.from_evidence(TREE, np.outer(strengths, on_path) + 0.1)


def test_whether_uncertainty_finds_mistakes_is_counted_in_pairs_and_said():
    opinion = evidence_of([50.0, 40.0, 30.0, 20.0, 10.0])
    proba = opinion.leaf_probability[:, TREE.leaf_order]
    y = ["lynx", "lynx", "puma", "lynx", "puma"]
    predictions = Predictions.from_proba(proba, TREE, opinion=opinion)
    # Of 2 x 3 pairs, the last mistake is vaguer than all three, the other than two of them.
    figures = uncertainty_figures(predictions, TREE.resolve(y))
    assert figures.separation == pytest.approx(5 / 6)
    assert figures.of_wrong == pytest.approx(opinion.nonspecificity[[2, 4]].mean())
    assert figures.of_right == pytest.approx(opinion.nonspecificity[[0, 1, 3]].mean())
    assert uncertainty_figures(predictions, TREE.resolve(["lynx"] * 5)) is None
    images = np.random.default_rng(0).integers(0, 255, size=(5, 8, 8), dtype=np.uint8)
    options = {"opinion": opinion, "images": images}
    said = words(EvaluationReport.from_predictions(y, proba, TREE, **options).to_html())
    assert "the wrong one leaves more open in 83 % of the cases: enough to sort predictions" in said


@pytest.fixture(scope="module")
def group_page():
    """Mosses taken for cats, nine of ten for pumas; pictures in eight grey levels."""
    counts = {("moss", "puma"): 9, ("moss", "lynx"): 1, ("lynx", "lynx"): 5, ("puma", "puma"): 5}
    images = np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8)
    return report_of(counts, images=images).to_html()


def test_a_group_in_a_confusion_is_pictured_by_the_leaf_that_was_predicted(group_page):
    said = words(group_page)
    assert "cat is a group; the leaf predicted most is puma, 9 of 10 (90 %)." in said
    assert "is moss, was taken for puma (probability 0.70)" in said
    assert "really is puma" in said
    assert "really is lynx" not in said


def test_what_decides_stands_first_in_its_table(group_page):
    heads = [
        [
            unescape(re.sub("<[^>]+>", "", cell))
            for cell in re.findall("<th scope=.col.*?</th>", row)
        ]
        for row in re.findall("<thead>(.*?)</thead>", group_page)
    ]
    assert heads[0][:4] == ["level", "verdict", "", "right"]
    assert heads[1][:3] == ["guaranteed", "right", "right when it predicts"]
    # What a narrow screen cannot show says so.
    assert group_page.count("Wide table: scroll it sideways.") == sum(
        sum(map(bool, head)) >= 6 for head in heads
    )


def test_words_of_the_tables_lead_to_their_explanation(group_page):
    links = set(re.findall('class="word" href="#(.*?)"', group_page))
    assert {"word-ece", "word-95-interval", "word-threshold"} <= links
    assert links <= set(re.findall('<dt id="(.*?)">', group_page))


def test_the_best_leaf_is_named_even_where_its_row_is_folded():
    # Thirty kinds alike: none is shown for itself.
    tree = Taxonomy.from_nested({"cat": [f"cat {index}" for index in range(30)], "dog": None})
    named = [child[-1] for _, child in tree.decisions]
    evidence = np.array([[{"cat": 200.0, "cat 7": 0.03}.get(name, 0.02) for name in named]])
    opinion = HyperOpinion.from_evidence(tree, evidence)
    proba = opinion.leaf_probability[:, tree.leaf_order]
    page = words(EvaluationReport.from_predictions(["dog"], proba, tree, opinion=opinion).to_html())
    assert "30 leaves not shown, among them the best, cat 7 (probability 0.03)" in page
    assert "A row with one number holds all classes below the one above it" in page
