"""What a reader meets first: a verdict with its numbers, steps in order, each fault once."""

import numpy as np
import pytest
from report_cases import TREE, proba_of, report_of, words

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.report import EvaluationReport
from skh2edl.report.wording import percent

COUNTS = {("lynx", "lynx"): 60, ("lynx", "puma"): 20, ("fox", "fox"): 60, ("wolf", "fox"): 20}


def test_the_verdict_says_what_to_trust_how_often_it_is_right_and_what_not():
    # All 160 kinds are right, and 120 of the species.
    report = report_of(COUNTS)
    assert report.verdict == (
        "If it must name every image: trust “kind” (100 % right, 160 of 160); use with care "
        "“species” (75 % right, 120 of 160)."
    )
    assert report.questions[0].answer == "Only “kind”, if it must name every image"
    assert report.questions[0].sentences[0] == report.verdict
    worse = report_of(COUNTS | {("puma", "lynx"): 40})
    assert "; do not rely on “species” (60 % right, 120 of 200)." in worse.verdict


def test_a_level_is_trusted_by_the_lower_end_of_its_interval():
    # 198 of 200: the lower end is 96.4 % (R: binom.confint, wilson).
    counts = {("lynx", "lynx"): 99, ("puma", "puma"): 99, ("fox", "wolf"): 1, ("wolf", "fox"): 1}
    for trust, answer in [
        (0.96, "All levels, down to “species”"),
        (0.965, "Only “kind”, if it must name every image"),
    ]:
        assert report_of(counts, trust=trust).questions[0].answer == answer
    assert report_of(counts, trust=0.99).questions[0].answer == "None, if it must name every image"


def test_few_images_are_not_called_trustworthy():
    report = report_of({("lynx", "lynx"): 5})
    assert report.questions[0].answer == "None, if it must name every image"
    assert "(100 % right, 5 of 5; too few images to be sure of 90 %)" in report.verdict
    assert report.questions[1].answer == "None"


def test_labels_that_say_nothing_measure_nothing():
    report = report_of({("root", "lynx"): 3})
    assert report.verdict == "Nothing is measured: no evaluated image has a label."
    assert report.questions[0].answer == "Not measured"
    assert "Nothing is measured" in words(report.to_html())


def test_the_hedge_says_how_often_it_predicts_and_is_right_at_each_level():
    # A threshold of 0.75 is above P(species) = 0.7 and below P(cat) = 0.775.
    counts = {("lynx", "lynx"): 60, ("puma", "lynx"): 20, ("fox", "lynx"): 10, ("moss", "moss"): 10}
    said = report_of(counts, calibration=np.full(200, 0.75)).questions[0].sentences[1]
    # The mosses have no coarser class than themselves but the root: P = 0.7.
    assert "of 100 images it says “kind” for 90 (89 % right) and “cannot tell” for 10" in said
    assert "When it predicts, 80 of 90 (89 %) are right; with “cannot tell” counted as" in said
    assert said.split("as right, ")[1].startswith("90 % of 100.")
    fine = report_of(counts, calibration=np.full(200, 0.5)).questions[0].sentences[1]
    assert "it says “species” for 100 (70 % right) and “cannot tell” for 0" in fine


def test_a_level_to_be_trusted_only_where_the_hedge_names_it_is_said():
    # The species of 150 of 200 images is right. The hedge names 100, all right: the lower end of
    # the interval is 96.3 % (R: binom.confint, wilson).
    sure, unsure = proba_of(["lynx"] * 100, sure=0.9), proba_of(["wolf"] * 100, sure=0.5)
    truth = ["lynx"] * 100 + ["wolf"] * 50 + ["fox"] * 50

    def sentence(trust):
        report = EvaluationReport.from_predictions(
            truth, np.vstack([sure, unsure]), TREE, calibration=np.full(200, 0.75), trust=trust
        )
        assert "(75 % right, 150 of 200)" in report.verdict
        return report.questions[0].sentences[1]

    said = "Trust its “species”: the hedge names it only where the model is sure."
    assert said in sentence(0.96)
    assert said not in sentence(0.97)


def test_a_guarantee_that_is_not_kept_is_said():
    # Calibrated on images that were all right, measured on images of which a third is wrong.
    counts = {("lynx", "lynx"): 40, ("puma", "puma"): 40, ("fox", "lynx"): 40}
    report = report_of(counts, calibration=np.zeros(200))
    assert "67 % of 120. That is less than the guaranteed 95 %" in report.questions[0].sentences[1]
    step = report.questions[2].sentences[-1]
    assert step.startswith("Set the hedge on more images")
    assert "67 % instead of 90 %, 67 % instead of 95 % and 67 % instead of 99 % right)" in step
    # Halves of the evaluated images leave nothing to set aside.
    assert not [each for each in report_of(counts).questions[2].sentences if "Set the" in each]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        # Mean probability 0.7, in one bin.
        ({("lynx", "lynx"): 70, ("lynx", "puma"): 30}, "can be taken at face value"),
        ({("lynx", "lynx"): 50, ("lynx", "puma"): 50}, "are over-confident"),
        ({("lynx", "lynx"): 90, ("lynx", "puma"): 10}, "are too modest"),
    ],
)
def test_the_sentence_on_probabilities_follows_the_calibration_error(counts, said):
    sentence = report_of(counts).questions[0].sentences[-1]
    assert f"“species” {said}: on average they say 70 %" in sentence
    assert f"of 100 are right (ECE {abs(0.7 - counts['lynx', 'lynx'] / 100):.3f})" in sentence


def test_a_mean_that_fits_does_not_excuse_probabilities_that_are_off():
    # Half say 0.9 and are right in 0.8, half say 0.5 and are right in 0.6: ECE 0.1.
    proba = np.full((200, 5), 0.025)
    lynx = list(TREE.sorted_leaf_labels).index("lynx")
    proba[:100, lynx], proba[100:], proba[100:, lynx] = 0.9, 0.125, 0.5
    truth = np.array(["lynx"] * 200, dtype=object)
    truth[:20], truth[100:140] = "puma", "puma"
    report = EvaluationReport.from_predictions(list(truth), proba, TREE)
    assert report.levels[1].ece == pytest.approx(0.1)
    assert "are partly too high and partly too low" in report.questions[0].sentences[-1]


def test_confusions_are_told_with_their_counts():
    counts = {("lynx", "lynx"): 2, ("lynx", "puma"): 2, ("lynx", "fox"): 1, ("puma", "puma"): 2}
    report = report_of(counts | {("puma", "lynx"): 1, ("fox", "fox"): 2})
    classes = report.questions[1]
    assert classes.answer == "Most often lynx and puma"
    assert classes.sentences[0] == (
        "2 of 5 (40 %) lynx images were taken for puma, and 1 of 3 (33 %) the other way round."
    )
    assert classes.sentences[-1] == (
        "4 mistakes on 10 labelled images: 75 % are still right at “kind”."
    )


def test_the_steps_are_to_check_to_finish_and_to_collect():
    counts = COUNTS | {("cat", "puma"): 1}
    step = report_of(counts, train_labels=["lynx"] * 7 + ["puma", "fox", "wolf", "moss"])
    look, finish, collect = step.questions[2].sentences
    assert look.startswith("Look at the surest mistakes")
    assert finish.startswith("1 label stops half-way down the tree.")
    assert "lynx (20 of 80 wrong; 7 training images)" in collect
    assert "wolf (20 of 20 wrong; 1 training image)" in collect
    right = report_of({("lynx", "lynx"): 9}).questions[2]
    assert right.sentences == ("No prediction is wrong here: evaluate on more, or harder, images.",)


def test_what_the_figures_do_not_cover_is_said():
    said = report_of(COUNTS, train_labels=["lynx", "puma", "fox", "wolf"]).questions[3].sentences
    assert said[0].startswith("For images unlike these 160:")
    assert "none of its 5 classes" in said[1]
    assert said[2] == "For moss: it has seen no training image of them."
    assert said[3] == "For puma and moss: none was evaluated, so nothing is known about them."
    wrong = report_of(COUNTS | {("fox", "lynx"): 3}).questions[3].sentences[-1]
    assert wrong == "Where one mistake is too many: even at “kind” 3 of 163 were wrong."


def test_a_class_that_a_trusted_level_is_surely_not_right_for_is_named():
    # 303 of 315 kinds are right. Upper ends by the score interval: 3 of 15 45 %, 13 of 15 96 %.
    counts = {("lynx", "lynx"): 300, ("fox", "lynx"): 12, ("fox", "fox"): 3}
    report = report_of(counts)
    assert report.verdict.startswith("If it must name every image: trust “kind” (96 % right")
    said = [each for each in report.questions[3].sentences if each.startswith("Where the image")]
    assert said == [
        "Where the image may show dog (3 of 15): so many of these are right at “kind”, though 96 % "
        "of all images are."
    ]
    few = {("lynx", "lynx"): 300, ("fox", "lynx"): 2, ("fox", "fox"): 13}
    assert not [s for s in report_of(few).questions[3].sentences if s.startswith("Where the im")]


@pytest.fixture(scope="module")
def divided():
    """Ten mushrooms trained in one folder and evaluated in another; pumas taken for lynxes."""
    paths = [("red", "agaric"), ("fungi", "agaric"), ("cat", "lynx"), ("cat", "puma")]
    counts = {("fungi/agaric", "red/agaric"): 10, ("lynx", "lynx"): 9, ("lynx", "puma"): 1}
    counts |= {("puma", "lynx"): 5, ("puma", "puma"): 5}
    trained = ["red/agaric"] * 20 + ["lynx"] * 40 + ["puma"] * 7
    return report_of(counts, tree=Taxonomy.from_paths(paths), train_labels=trained)


def test_a_fault_of_the_data_is_the_first_step_and_the_headline(divided):
    steps = divided.questions[2]
    assert steps.answer == "First bring “agaric” to one place of the tree"
    assert steps.are_steps
    fault, look, collect = steps.sentences
    assert fault.startswith(
        "“agaric” is at red/agaric in training and at fungi/agaric in the evaluated data; 10 of 10 "
        "evaluated images wrong. Move the evaluated images to the place of the training images"
    )
    assert look.startswith("Look at the surest mistakes")
    assert collect.startswith("Collect training images of the classes with most mistakes: puma")
    assert "agaric" not in collect
    # The same mushroom has no training image, and its other place no evaluated one.
    assert [problem.kind for problem in divided.problems] == ["divided_classes"]
    assert "These figures may be wrong until step 1 below is done" in words(divided.to_html())


def test_an_opinion_without_evidence_is_cannot_tell_and_no_root():
    opinion = HyperOpinion.from_evidence(TREE, np.zeros((30, TREE.n_decisions)))
    proba = opinion.leaf_probability[:, TREE.leaf_order]
    report = EvaluationReport.from_predictions(["lynx"] * 30, proba, TREE, opinion=opinion)
    said = words(report.to_html())
    assert "cannot tell" in said
    assert "root" not in said
    assert "leaf" not in said
    assert "leaves" not in said


def test_percents_never_round_something_to_nothing_or_to_all():
    assert [percent(value) for value in (0, 0.004, 0.996, 1)] == [
        "0 %",
        "under 1 %",
        "over 99 %",
        "100 %",
    ]
