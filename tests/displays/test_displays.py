"""Displays show the numbers of the metrics, lose no mass and draw without a warning."""

import doctest
import importlib
import inspect
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import H2EDLClassifier, HyperOpinion, Taxonomy, displays
from skh2edl.datasets import make_glyphs
from skh2edl.displays import (
    DepthProfileDisplay,
    LCAConfusionDisplay,
    OperatingCurveDisplay,
    OpinionTreeDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    TrainingHistoryDisplay,
)
from skh2edl.displays._folding import fold
from skh2edl.displays._style import COLOURS, shorten
from skh2edl.metrics import (
    first_error_depth,
    level_ece,
    mistake_severity,
    operating_area,
    operating_curve,
    reliability_curve,
    risk_coverage_area,
    risk_coverage_curve,
)
from tests.strategies import opinion_cases

mpl.use("Agg")


@pytest.fixture(autouse=True)
def drawn_and_closed():
    """Draw every figure of a test, so that warnings of drawing are errors too, and close it."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    yield
    for number in pyplot.get_fignums():
        pyplot.figure(number).canvas.draw()
    pyplot.close("all")


@pytest.fixture(scope="module")
def glyphs():
    return make_glyphs(600, image_size=16, random_state=0)


@pytest.fixture(scope="module")
def features(glyphs):
    return glyphs.images.reshape(len(glyphs), -1)[:, ::4] / 255


@pytest.fixture(scope="module")
def clf(glyphs, features):
    clf = H2EDLClassifier(
        glyphs.taxonomy, backbone=None, solver="adamw", max_epochs=3, random_state=0
    )
    return clf.fit(features, glyphs.labels)


@pytest.fixture
def tree():
    return Taxonomy.from_nested(
        {"cat": ["lynx", "puma"], "dog": ["fox", "wolf"], "owl": None},
    )


CURVES = [ReliabilityDisplay, RiskCoverageDisplay, OperatingCurveDisplay]


def lines_of(display):
    return getattr(display, "lines_", None) or [display.line_]


# From an estimator as from its predictions ---------------------------------------------------


@pytest.mark.parametrize("kind", CURVES)
def test_an_estimator_gives_the_lines_of_its_probabilities(kind, clf, glyphs, features):
    asked = kind.from_estimator(clf, features, glyphs.labels, name="model")
    proba = clf.predict_proba(features)
    given = kind.from_predictions(glyphs.labels, proba, glyphs.taxonomy, name="model")
    for one, two in zip(lines_of(asked), lines_of(given), strict=True):
        np.testing.assert_array_equal(one.get_xydata(), two.get_xydata())
        assert one.get_label() == two.get_label()


def test_an_estimator_gives_the_confusion_of_its_probabilities(clf, glyphs, features):
    asked = LCAConfusionDisplay.from_estimator(clf, features, glyphs.labels)
    proba = clf.predict_proba(features)
    given = LCAConfusionDisplay.from_predictions(glyphs.labels, proba, glyphs.taxonomy)
    np.testing.assert_array_equal(asked.counts, given.counts)
    assert asked.rows == given.rows == ("all", "Latin", "Greek", "Cyrillic", "Common")


def test_an_estimator_gives_the_profile_and_the_tree_of_its_opinions(clf, glyphs, features):
    opinion = clf.predict_hyper_opinion(features)
    asked = DepthProfileDisplay.from_estimator(clf, features, glyphs.labels)
    given = DepthProfileDisplay.from_predictions(opinion, glyphs.labels)
    for name, profile in asked.profiles.items():
        np.testing.assert_array_equal(profile, given.profiles[name])
    one = OpinionTreeDisplay.from_estimator(clf, features, 7)
    two = OpinionTreeDisplay.from_predictions(opinion, 7)
    assert [row.text for row in one.rows] == [row.text for row in two.rows]
    np.testing.assert_allclose(
        [row.mass for row in one.rows], [row.mass for row in two.rows], rtol=1e-6
    )


def test_the_history_of_an_estimator_is_what_it_recorded(clf):
    display = TrainingHistoryDisplay.from_estimator(clf)
    assert display.keys == ("loss", "val_score", "learning_rate")
    for key, line in zip(display.keys, display.lines_, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
        np.testing.assert_array_equal(line.get_ydata(), clf.history_[key])
    assert display.axes_[0].get_title() == f"kept: epoch {clf.best_epoch_}"


def test_any_classifier_and_a_taxonomy_will_do(glyphs, features):
    forest = RandomForestClassifier(5, max_depth=4, random_state=0)
    pipeline = make_pipeline(StandardScaler(), forest).fit(features, glyphs.labels)
    display = RiskCoverageDisplay.from_estimator(
        pipeline, features, glyphs.labels, taxonomy=glyphs.taxonomy
    )
    wrong = 1 - accuracy_score(glyphs.labels, pipeline.predict(features))
    assert display.line_.get_ydata()[-1] == pytest.approx(wrong)
    assert display.line_.get_label().startswith("Pipeline (")


def test_without_a_taxonomy_the_classes_make_a_flat_tree():
    forest = DummyClassifier(strategy="prior").fit([[0]] * 3, ["lynx", "puma", "puma"])
    display = ReliabilityDisplay.from_estimator(forest, [[0]] * 3, ["lynx", "puma", "puma"])
    assert display.ece == {"leaf": pytest.approx(0)}


def test_opinions_are_asked_of_the_last_step_of_a_pipeline(clf, features):
    class Same(StandardScaler):
        def transform(self, X):
            return X

    pipeline = make_pipeline(Same().fit(features), clf)
    display = DepthProfileDisplay.from_estimator(pipeline, features)
    (profile,) = display.profiles.values()
    np.testing.assert_allclose(
        profile[:-1], clf.predict_hyper_opinion(features).depth_profile.mean(0)
    )


# What is drawn is what the metrics say -----------------------------------------------------------


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_reliability_shows_every_level_as_the_metric_computes_it(clf, glyphs, features, strategy):
    proba, tree = clf.predict_proba(features), glyphs.taxonomy
    weight = np.random.default_rng(0).random(len(glyphs))
    display = ReliabilityDisplay.from_predictions(
        glyphs.labels, proba, tree, strategy=strategy, n_bins=8, sample_weight=weight
    )
    assert list(display.curves) == ["script", "kind", "character"]
    for level, points in zip(display.curves, display.points_, strict=True):
        curve = reliability_curve(
            glyphs.labels, proba, tree, level, strategy=strategy, n_bins=8, sample_weight=weight
        )
        filled = curve.fraction > 0
        expected = np.column_stack([curve.confidence[filled], curve.accuracy[filled]])
        np.testing.assert_array_equal(points.get_offsets(), expected)
    error = level_ece(glyphs.labels, proba, tree, "kind", n_bins=8, sample_weight=weight)
    if strategy == "uniform":
        assert display.ece["kind"] == error
        assert f"(ECE {error:.3f})" in display.lines_[1].get_label()


def test_bins_of_few_samples_are_points_without_a_line():
    tree = Taxonomy.flat(["cat", "dog"])
    proba = np.array([[0.95, 0.05]] * 99 + [[0.55, 0.45]])
    display = ReliabilityDisplay.from_predictions(["cat"] * 100, proba, tree, min_fraction=0.02)
    (line,), (points,) = display.lines_, display.points_
    assert np.isnan(line.get_ydata()).tolist() == [True, False]
    assert points.get_offsets()[:, 1].tolist() == [1, 1]


def test_risk_and_coverage_are_those_of_the_metric(clf, glyphs, features):
    proba, tree = clf.predict_proba(features), glyphs.taxonomy
    confidence = -clf.predict_hyper_opinion(features).nonspecificity
    options = {"level": "script", "confidence": confidence}
    display = RiskCoverageDisplay.from_predictions(
        glyphs.labels, proba, tree, **options, plot_chance_level=True
    )
    curve = risk_coverage_curve(glyphs.labels, proba, tree, **options)
    np.testing.assert_array_equal(display.line_.get_xdata(), curve.coverage)
    np.testing.assert_array_equal(display.line_.get_ydata(), curve.risk)
    area = risk_coverage_area(glyphs.labels, proba, tree, **options)
    assert display.line_.get_label() == f"area {area:.3f}"
    assert display.chance_level_.get_ydata()[0] == curve.risk[-1]
    assert "script" in display.ax_.get_ylabel()


def test_accuracy_and_information_are_those_of_the_metric(clf, glyphs, features):
    proba, tree = clf.predict_proba(features), glyphs.taxonomy
    display = OperatingCurveDisplay.from_predictions(glyphs.labels, proba, tree, name="model")
    curve = operating_curve(glyphs.labels, proba, tree)
    np.testing.assert_array_equal(display.line_.get_xdata(), curve.information)
    np.testing.assert_array_equal(display.line_.get_ydata(), curve.accuracy)
    area = operating_area(glyphs.labels, proba, tree)
    assert display.line_.get_label() == f"model (area {area:.3f})"


@pytest.mark.parametrize("kind", CURVES[1:])
def test_several_models_on_the_same_axes_differ_in_colour_and_dashes(kind, tree):
    rng = np.random.default_rng(0)
    ax = None
    for model in range(9):
        proba = rng.dirichlet(np.ones(5), size=20)
        display = kind.from_predictions(["lynx"] * 20, proba, tree, name=f"m{model}", ax=ax)
        ax = display.ax_
    lines = ax.get_lines()
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == 9
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text.split(" ")[0] for text in texts] == [f"m{model}" for model in range(9)]


def test_the_user_has_the_last_word_on_colours(tree):
    display = RiskCoverageDisplay.from_predictions(["lynx"], np.eye(5)[[1]], tree, c="red", ls=":")
    assert (display.line_.get_color(), display.line_.get_linestyle()) == ("red", ":")


def test_profiles_are_means_of_the_opinion_and_add_up_to_one(clf, glyphs, features):
    opinion = clf.predict_hyper_opinion(features)
    display = DepthProfileDisplay.from_predictions(opinion, glyphs.labels)
    right = clf.predict(features) == glyphs.labels
    names = [f"right prediction (n = {right.sum()})", f"wrong prediction (n = {(~right).sum()})"]
    assert list(display.profiles) == names
    for row, chosen in enumerate([right, ~right]):
        widths = [bars[row].get_width() for bars in display.bars_]
        np.testing.assert_allclose(widths[:-1], opinion.depth_profile[chosen].mean(axis=0))
        assert widths[-1] == pytest.approx(1 - opinion.nonspecificity[chosen].mean())
        assert sum(widths) == pytest.approx(1)
    assert display.stops == ("root", "script", "kind", "a leaf")


def test_profiles_of_groups_come_in_the_order_given_and_are_weighted(tree):
    evidence = np.zeros((3, tree.n_decisions))
    evidence[0, 2] = 9  # owl: b = 9 / 12
    evidence[2, 2] = 3  # owl: b = 3 / 6
    opinion = HyperOpinion.from_evidence(tree, evidence)
    groups = ["sharp", "blurred", "sharp"]
    display = DepthProfileDisplay.from_predictions(opinion, groups=groups, sample_weight=[3, 1, 1])
    assert list(display.profiles) == ["sharp (n = 2)", "blurred (n = 1)"]
    reaches = (3 * 9 / 12 + 3 / 6) / 4
    np.testing.assert_allclose(display.profiles["sharp (n = 2)"], [1 - reaches, 0, reaches])
    np.testing.assert_allclose(display.profiles["blurred (n = 1)"], [1, 0, 0])


# Confusion -------------------------------------------------------------------------------------


def test_confusion_by_hand(tree):
    y_true = ["lynx", "lynx", "puma", "fox", "dog", "owl", "root", "wolf"]
    y_pred = ["lynx", "puma", "wolf", "dog", "wolf", "owl", "owl", "root"]
    display = LCAConfusionDisplay.from_predictions(
        y_true, y_pred, tree, sample_weight=[1, 1, 1, 1, 1, 1, 1, 5]
    )
    assert display.columns == ("level 1 wrong", "leaf wrong", "stops early", "right")
    assert display.rows == ("all", "cat", "dog", "owl")
    assert display.counts.tolist() == [[1, 1, 6, 3], [1, 1, 0, 1], [0, 0, 6, 1], [0, 0, 0, 1]]
    shown = [[text.get_text() for text in row] for row in display.text_]
    assert shown[1:] == [["33", "33", "·", "33"], ["·", "·", "86", "14"], ["·", "·", "·", "100"]]
    np.testing.assert_allclose(display.im_.get_array()[1], [1 / 3, 1 / 3, 0, 1 / 3])


@pytest.mark.parametrize("level", ["script", "kind", "character"])
def test_confusion_says_what_the_severity_metrics_say(clf, glyphs, features, level):
    proba, tree = clf.predict_proba(features), glyphs.taxonomy
    display = LCAConfusionDisplay.from_predictions(glyphs.labels, proba, tree, level=level)
    mistakes = display.counts[0, :-1]
    depth = np.average([0, 1, 2], weights=mistakes)
    assert depth == pytest.approx(first_error_depth(glyphs.labels, proba, tree))
    height = np.average([3, 2, 1], weights=mistakes)
    assert height == pytest.approx(mistake_severity(glyphs.labels, proba, tree))
    assert len(display.rows) <= 30
    np.testing.assert_allclose(display.counts[1:].sum(axis=0), display.counts[0])
    assert display.counts[0].sum() == len(glyphs)


def test_confusion_of_many_classes_keeps_the_worst_and_adds_up_the_others():
    tree = Taxonomy.flat([f"c{number:02d}" for number in range(50)])
    y_true = np.repeat(tree.leaves, 2)
    y_pred = y_true.copy()
    y_pred[[20, 21, 60]] = "c00"
    display = LCAConfusionDisplay.from_predictions(y_true, y_pred, tree, level="leaf", max_rows=4)
    assert display.rows == ("all", "c10", "c30", "48 others")
    assert display.counts.tolist() == [[3, 97], [2, 0], [1, 1], [0, 96]]


def test_confusion_takes_labels_of_an_estimator_without_probabilities(tree):
    class LabelsOnly(DummyClassifier):
        predict_proba = property()

    clf = LabelsOnly(strategy="constant", constant="lynx").fit([[0]] * 2, ["lynx", "puma"])
    display = LCAConfusionDisplay.from_estimator(clf, [[0]] * 2, ["puma", "owl"], taxonomy=tree)
    assert display.counts[0].tolist() == [1, 1, 0]


# The opinion on the tree ---------------------------------------------------------------------


@given(opinion_cases(n_samples=1), st.sampled_from([0.0, 0.03, 0.3, 1.0]), st.integers(2, 40))
def test_folding_keeps_the_total_mass(case, min_probability, max_rows):
    tree, evidence, prior = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **prior)
    rows = fold(opinion, min_probability=min_probability, max_rows=max_rows)
    assert len(rows) <= max_rows
    assert sum(row.mass for row in rows) == pytest.approx(1)
    # Every leaf is in exactly one row that ends a branch.
    ends = set(range(len(rows))) - {row.parent for row in rows}
    leaves = [
        leaf
        for end in ends
        for node in rows[end].nodes
        for leaf in range(tree.leaf_start[node], tree.leaf_stop[node])
    ]
    assert sorted(leaves) == list(range(tree.n_leaves))


@given(opinion_cases(n_samples=1), st.integers(0, 10**6))
def test_rows_hold_the_numbers_of_the_opinion(case, place):
    tree, evidence, prior = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **prior)
    label = int(tree.last_of_chain[place % tree.n_nodes])
    rows = fold(opinion, label=label, max_rows=12)
    assert any(label in row.nodes and not row.is_folded for row in rows)
    branching = {node: place for place, node in enumerate(tree.branching_nodes.tolist())}
    for row in rows:
        labels = tree.labels(np.array(row.nodes))
        assert row.probability == pytest.approx(opinion.probability(labels)[0], abs=1e-9)
        if np.isfinite(row.belief):
            assert row.belief == pytest.approx(opinion.belief(labels)[0], abs=1e-9)
            assert row.plausibility == pytest.approx(opinion.plausibility(labels)[0], abs=1e-9)
        if not row.is_folded and row.nodes[0] in branching:
            assert row.vacuity == opinion.vacuity[0, branching[row.nodes[0]]]
        else:
            assert np.isnan(row.vacuity)


def test_nothing_is_folded_when_nothing_has_to_be(tree):
    opinion = HyperOpinion.from_evidence(tree, np.zeros(tree.n_decisions))
    rows = fold(opinion, min_probability=0)
    assert len(rows) == tree.n_nodes
    assert not any(row.is_folded for row in rows)


def test_siblings_that_are_not_told_apart_are_folded_together():
    tree = Taxonomy.flat([f"c{number:02d}" for number in range(40)])
    evidence = np.full(40, 1.0)
    evidence[:10] = 1.2  # just above the limit, and hardly likelier than the others
    evidence[5] = 30
    rows = fold(HyperOpinion.from_evidence(tree, evidence), min_probability=0.0195)
    assert [row.text for row in rows] == ["root", "c05", "39 other leaves"]


def test_the_tree_of_two_hundred_leaves_fits_on_a_page(clf, glyphs, features):
    for index in range(2):
        display = OpinionTreeDisplay.from_estimator(
            clf, features, index, image=glyphs.images[index], label=glyphs.labels[index]
        )
        assert len(display.rows) <= 30
        width, height = display.figure_.get_size_inches()
        assert width < 12
        assert height < 9
        assert display.image_ax_.images[0].get_array().shape == (16, 16, 3)
        masses = [bar.get_width() for bar in display.mass_bars_]
        assert sum(masses) == pytest.approx(1, abs=1e-6)
        vacuities = [bar.get_width() for bar in display.vacuity_bars_]
        np.testing.assert_array_equal(vacuities, np.nan_to_num([r.vacuity for r in display.rows]))
        bold = [text for text in display.tree_ax_.texts if text.get_fontweight() == "bold"]
        assert [text.get_text() for text in bold] == [glyphs.labels[index]]


def test_names_stay_inside_the_tree_and_clear_of_the_columns(glyphs, clf, features):
    pyplot = importlib.import_module("matplotlib.pyplot")
    small = pyplot.subplots(figsize=(7, 5), layout="constrained")[1]
    for ax in (None, small):
        display = OpinionTreeDisplay.from_estimator(
            clf, features, 3, image=glyphs.images[3], label=glyphs.labels[3], ax=ax
        )
        display.figure_.canvas.draw()
        limit = display.mass_ax_.get_window_extent().x0
        ends = [text.get_window_extent().x1 for text in display.tree_ax_.texts]
        assert max(ends) <= limit
        rows = [text.get_window_extent() for text in display.tree_ax_.texts]
        if ax is None:
            assert all(one.y0 >= two.y1 - 1 for one, two in pairwise(rows))


def test_an_image_in_x_is_drawn_and_features_are_not(tree):
    class Vacuous:
        def predict_hyper_opinion(self, X):
            return HyperOpinion.from_evidence(tree, np.zeros((len(X), tree.n_decisions)))

    images = np.zeros((3, 8, 6), dtype=np.uint8)
    images[1] = 200
    display = OpinionTreeDisplay.from_estimator(Vacuous(), images, 1)
    np.testing.assert_array_equal(display.image_ax_.images[0].get_array(), np.full((8, 6, 3), 200))
    assert OpinionTreeDisplay.from_estimator(Vacuous(), np.zeros((3, 4)), -1).image_ax_ is None


def test_a_chain_is_one_row_and_repeated_names_are_written_once():
    tree = Taxonomy.from_paths(
        [("Fokker", "70", "70"), ("Boeing", "737", "a"), ("Boeing", "737", "b")]
    )
    opinion = HyperOpinion.from_evidence(tree, np.zeros(tree.n_decisions))
    texts = [row.text for row in fold(opinion)]
    assert texts == ["root", "Fokker > 70", "Boeing > 737", "a", "b"]


def test_dollar_signs_are_dollar_signs():
    tree = Taxonomy.from_nested({"$a^": ["costs $5", "or $6_$"], "$b$": None})
    opinion = HyperOpinion.from_evidence(tree, np.zeros(tree.n_decisions))
    display = OpinionTreeDisplay.from_predictions(
        opinion, label="or $6_$", image=np.zeros((4, 4), np.uint8)
    )
    assert "$a^" in [text.get_text() for text in display.tree_ax_.texts]
    LCAConfusionDisplay.from_predictions(["$b$"], ["costs $5"], tree)
    DepthProfileDisplay.from_predictions(opinion, groups=["$x^"])
    RiskCoverageDisplay.from_predictions(["$b$"], [[1, 0, 0]], tree, name="$^$")
    # The fixture draws them: a formula with a mistake in it would raise there.


# Errors ----------------------------------------------------------------------------------------


def test_what_an_estimator_lacks_is_named(tree, features):
    forest = DummyClassifier().fit([[0]], ["lynx"])
    with pytest.raises(AttributeError, match="needs predict_hyper_opinion, which DummyClassifier"):
        DepthProfileDisplay.from_estimator(forest, [[0]])
    forest.predict_proba = None
    with pytest.raises(AttributeError, match="needs predict_proba, which DummyClassifier"):
        RiskCoverageDisplay.from_estimator(forest, [[0]], ["lynx"])
    with pytest.raises(AttributeError, match="DummyClassifier has no history_"):
        TrainingHistoryDisplay.from_estimator(forest)


@pytest.mark.parametrize("kind", [DepthProfileDisplay, OpinionTreeDisplay])
def test_what_is_no_opinion_is_told_from_one(kind):
    with pytest.raises(TypeError, match="opinion must be a HyperOpinion, got ndarray"):
        kind.from_predictions(np.full((2, 3), 1 / 3))


def test_arguments_that_make_no_picture_are_refused(tree):
    opinion = HyperOpinion.from_evidence(tree, np.zeros((2, tree.n_decisions)))
    with pytest.raises(ValueError, match=r"y_true or groups .* not both"):
        DepthProfileDisplay.from_predictions(opinion, ["lynx", "fox"], groups=[0, 1])
    with pytest.raises(ValueError, match=r"each of the 2 sample\(s\), got shape \(3,\)"):
        DepthProfileDisplay.from_predictions(opinion, groups=[0, 1, 2])
    with pytest.raises(ValueError, match="no sample to draw"):
        DepthProfileDisplay.from_predictions(opinion, ["cat", "root"])
    with pytest.raises(ValueError, match="max_rows must be at least 3"):
        LCAConfusionDisplay.from_predictions(["lynx"], ["lynx"], tree, max_rows=2)
    with pytest.raises(ValueError, match="max_rows must be at least 2"):
        OpinionTreeDisplay.from_predictions(opinion, max_rows=1)
    with pytest.raises(ValueError, match=r"one or more of \['loss'\], got \['los'\]"):
        TrainingHistoryDisplay.from_history({"epoch": [0], "loss": [1]}, keys=["los"])
    with pytest.raises(IndexError, match="one of the 2 samples, got 2"):
        OpinionTreeDisplay.from_estimator(None, [0, 1], 2)


@pytest.mark.parametrize("kind", CURVES)
def test_nothing_to_score_is_an_empty_picture_with_a_warning(kind, tree):
    with pytest.warns(UndefinedMetricWarning, match="There is no "):
        display = kind.from_predictions(["root"], np.eye(5)[[0]], tree)
    assert all(len(line.get_xdata()) == 0 for line in lines_of(display))


# The module ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", displays.__all__)
def test_every_display_has_an_example_and_the_methods_of_scikit_learn(name):
    kind = getattr(displays, name)
    assert doctest.DocTestParser().get_examples(inspect.getdoc(kind))
    makers = {"from_history"} if kind is TrainingHistoryDisplay else {"from_predictions"}
    for method in ("plot", "from_estimator", *makers):
        assert "ax" in inspect.signature(getattr(kind, method)).parameters


def test_single_epochs_and_single_panels_are_drawn():
    one = TrainingHistoryDisplay.from_history({"epoch": [0], "loss": [1.0], "val_score": [0.5]})
    assert [tick for tick in one.axes_[-1].get_xticks() if -0.05 < tick < 0.05] == [0]
    pyplot = importlib.import_module("matplotlib.pyplot")
    ax = pyplot.subplots()[1]
    two = TrainingHistoryDisplay.from_history({"iteration": [0, 1], "objective": [2, 1]}, ax=ax)
    assert two.axes_.tolist() == [ax]
    assert ax.get_xlabel() == "iteration"


def test_colours_differ_in_lightness_from_white():
    """A ratio of 2 : 1 to the background at least, by the formula of the WCAG."""
    for colour in COLOURS:
        channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) > 2


@given(st.text(min_size=1, max_size=60), st.integers(1, 60))
def test_shortened_names_are_short_and_keep_their_ends(text, length):
    cut = shorten(text, length)
    assert len(cut) <= max(length, 1)
    if len(text) > length > 2:
        assert (cut[0], cut[-1]) == (text[0], text[-1])
