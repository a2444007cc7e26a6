"""Rules that hold for every metric: other trees, weights, columns, nothing to score, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from strategies import taxonomies

from skh2edl import HyperOpinion, Taxonomy, metrics

LABEL_METRICS = {
    name: getattr(metrics, name)
    for name in (
        "level_accuracy",
        "level_balanced_accuracy",
        "full_path_accuracy",
        "first_error_depth",
        "kept_ancestor",
        "mistake_severity",
        "hierarchical_distance",
        "hierarchical_precision",
        "hierarchical_recall",
        "hierarchical_fscore",
        "information_precision",
        "information_recall",
    )
}


def top_two_distance(*args, **more):
    return metrics.top_k_hierarchical_distance(*args, k=2, **more)


PROBABILITY_METRICS = {
    name: getattr(metrics, name)
    for name in (
        "level_nll",
        "level_brier",
        "level_ece",
        "level_adaptive_ece",
        "risk_coverage_area",
        "coverage_at_risk",
        "operating_area",
        "hierarchical_aurc",
        "oracle_descent",
        "hops",
    )
} | {"top_k_hierarchical_distance": top_two_distance}
# Read nothing but leaf sets, so nodes that decide nothing change nothing.
WITHOUT_DEPTHS = {
    name: metric
    for name, metric in {**LABEL_METRICS, **PROBABILITY_METRICS}.items()
    if name.startswith(("level_", "risk_", "operating_", "information_"))
    or name in ("full_path_accuracy", "coverage_at_risk", "hierarchical_aurc", "hops")
}


@pytest.fixture
def tree():
    return Taxonomy.from_nested(
        {"cat": ["lynx", "puma"], "dog": ["fox", "jackal", "wolf"], "bear": None}
    )


@pytest.fixture
def case(tree):
    rng = np.random.default_rng(0)
    labels = np.array(tree.labels(range(1, tree.n_nodes)))
    y_true, y_pred = labels[rng.integers(labels.size, size=(2, 60))]
    y_true[:20] = y_pred[:20]
    return y_true, y_pred, rng.dirichlet(np.ones(tree.n_leaves), 60)


# Another drawing of the same tree -----------------------------------------------------------------


@st.composite
def redrawn_trees(draw, passes_through):
    """A tree with unique names, and the same with children reordered or nodes put in between."""
    shape = draw(taxonomies(max_nodes=12))
    names = [f"n{node}" for node in range(shape.n_nodes)]
    names[0] = "root"
    parents = shape.parents.tolist()
    tree = Taxonomy(names, parents)
    if passes_through:
        edges = draw(st.sets(st.integers(1, shape.n_nodes - 1), min_size=1))
        for number, node in enumerate(sorted(edges)):
            names.append(f"between{number}")
            parents.append(parents[node])
            parents[node] = len(parents) - 1
    order = draw(st.permutations(range(len(names))))
    place = {node: position for position, node in enumerate(order)}
    moved = [-1 if parents[node] < 0 else place[parents[node]] for node in order]
    other = Taxonomy([names[node] for node in order], moved)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y_true, y_pred = (
        np.array([f"n{node}" for node in rng.integers(1, shape.n_nodes, 30)]) for _ in range(2)
    )
    y_true[0] = tree.leaves[0]
    y_pred[0] = tree.leaves[-1]
    return tree, other, y_true, y_pred, rng.dirichlet(np.ones(tree.n_leaves), 30)


def same(first, second):
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


@given(case=redrawn_trees(passes_through=False))
def test_the_order_of_children_changes_no_metric(case):
    tree, other, y_true, y_pred, proba = case
    np.testing.assert_array_equal(tree.sorted_leaf_labels, other.sorted_leaf_labels)
    for metric in LABEL_METRICS.values():
        same(metric(y_true, y_pred, tree), metric(y_true, y_pred, other))
    for metric in PROBABILITY_METRICS.values():
        same(metric(y_true, proba, tree), metric(y_true, proba, other))
    same(metrics.path_consistency(proba, tree), metrics.path_consistency(proba, other))


@given(case=redrawn_trees(passes_through=True))
def test_pass_through_nodes_change_no_metric_that_does_not_measure_depth(case):
    tree, other, y_true, y_pred, proba = case
    assert other.n_nodes > tree.n_nodes
    for name, metric in WITHOUT_DEPTHS.items():
        predictions = y_pred if name in LABEL_METRICS else proba
        same(metric(y_true, predictions, tree), metric(y_true, predictions, other))


def test_a_pass_through_node_is_the_same_prediction_as_its_child():
    tree = Taxonomy.from_paths([("Boeing", "717", "717"), ("Boeing", "737", "737-700"), ("Yak",)])
    predictions = [("Boeing", "717"), ("Boeing", "737")]
    assert metrics.level_accuracy(["717", "737-700"], predictions, tree) == 1
    assert metrics.hierarchical_distance(["717", "737-700"], predictions, tree) == 0


# Weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LABEL_METRICS, *PROBABILITY_METRICS])
def test_a_weight_counts_as_so_many_samples(name, tree, case):
    y_true, y_pred, proba = case
    metric = (LABEL_METRICS | PROBABILITY_METRICS)[name]
    predictions = y_pred if name in LABEL_METRICS else proba
    weight = np.random.default_rng(1).integers(0, 4, y_true.size)
    weighted = metric(y_true, predictions, tree, sample_weight=weight)
    repeated = np.repeat(y_true, weight), np.repeat(predictions, weight, axis=0)
    same(weighted, metric(*repeated, tree))
    assert not np.allclose(weighted, metric(y_true, predictions, tree))


def test_path_consistency_is_weighted(tree, case):
    _, _, proba = case
    weight = np.random.default_rng(1).integers(0, 4, len(proba))
    weighted = metrics.path_consistency(proba, tree, sample_weight=weight)
    same(weighted, metrics.path_consistency(np.repeat(proba, weight, axis=0), tree))
    assert 0 < weighted < 1


# Columns ------------------------------------------------------------------------------------------


def test_columns_are_found_by_name(tree, case):
    y_true, _, proba = case
    order = np.random.default_rng(2).permutation(tree.n_leaves)
    classes = tree.sorted_leaf_labels[order]
    for metric in PROBABILITY_METRICS.values():
        same(metric(y_true, proba, tree), metric(y_true, proba[:, order], tree, classes=classes))


def test_a_leaf_without_a_column_has_probability_zero(tree):
    y_proba = [[0.75, 0.25]]
    assert metrics.level_nll(["fox"], y_proba, tree, classes=["lynx", "fox"]) == np.log(4)
    assert metrics.level_brier(["wolf"], y_proba, tree, classes=["lynx", "fox"]) == 1.625
    assert metrics.level_accuracy(["puma"], y_proba, tree, 1, classes=["lynx", "fox"]) == 1


def test_the_probability_of_an_ancestor_is_spread_evenly_over_its_leaves(tree):
    y_proba = [[0.25, 0.75]]
    classes = ["lynx", "cat"]
    same(metrics.level_nll(["puma"], y_proba, tree, classes=classes), -np.log(0.375))
    same(metrics.level_nll(["lynx"], y_proba, tree, classes=classes), -np.log(0.625))
    assert metrics.level_nll(["puma"], y_proba, tree, 1, classes=classes) == 0


def test_two_spellings_of_a_leaf_add_up(tree):
    classes = ["lynx", "cat/lynx", "fox"]
    assert metrics.level_nll(["lynx"], [[0.25, 0.25, 0.5]], tree, classes=classes) == np.log(2)


def test_lists_of_lists_and_frames_are_probabilities(tree, case):
    pd = pytest.importorskip("pandas")
    y_true, _, proba = case
    expected = metrics.level_accuracy(y_true, proba, tree)
    assert metrics.level_accuracy(y_true, proba.tolist(), tree) == expected
    frame = pd.DataFrame(proba, columns=tree.sorted_leaf_labels)
    assert metrics.level_accuracy(pd.Series(y_true), frame, tree) == expected


# Nothing to score ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LABEL_METRICS, *PROBABILITY_METRICS])
def test_nothing_to_score_is_nan_with_a_warning(name, tree):
    metric = (LABEL_METRICS | PROBABILITY_METRICS)[name]
    predictions = ["fox"] if name in LABEL_METRICS else np.full((1, tree.n_leaves), 1 / 6)
    with pytest.warns(UndefinedMetricWarning, match="undefined and set to NaN") as caught:
        result = metric(["root"], predictions, tree)
    assert np.isnan(result).all()
    if metric is not top_two_distance:
        assert caught[0].filename == __file__


def test_curves_of_nothing_are_empty_with_a_warning(tree):
    nothing = ["root"], np.full((1, tree.n_leaves), 1 / 6), tree
    with pytest.warns(UndefinedMetricWarning, match="no sample whose label reaches the level"):
        assert metrics.risk_coverage_curve(*nothing).risk.size == 0
    for curve in (metrics.operating_curve, metrics.hierarchical_risk_coverage_curve):
        with pytest.warns(UndefinedMetricWarning, match="no labelled sample") as caught:
            assert curve(*nothing)[1].size == 0
        assert caught[0].filename == __file__
    with pytest.warns(UndefinedMetricWarning, match="no sample whose label reaches the level"):
        assert np.isnan(metrics.reliability_curve(*nothing).accuracy).all()
    with pytest.warns(UndefinedMetricWarning, match="no sample"):
        assert np.isnan(metrics.path_consistency(np.empty((0, tree.n_leaves)), tree))


def test_predictions_that_are_all_the_root_have_no_precision_but_recall_zero(tree):
    with pytest.warns(UndefinedMetricWarning, match="no prediction below the root"):
        assert np.isnan(metrics.hierarchical_precision(["lynx"], ["root"], tree))
    assert metrics.hierarchical_recall(["lynx"], ["root"], tree) == 0
    assert metrics.hierarchical_fscore(["lynx"], ["root"], tree) == 0


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y_proba", "more", "message"),
    [
        ([[0.5, 0.5]], {}, r"must have shape \(n_samples, 6\), one column for each leaf, got"),
        ([[3, -1, 0, 0, -1, 0]], {}, "finite and not negative. Turn logits"),
        ([[0.5, 0.2, 0.1, 0, 0, 0]], {}, "row 0 sums to 0.8"),
        ([[0.5, 0.5]], {"classes": ["lynx", "lynx"]}, "names 'lynx' more than once"),
        ([[0.5, 0.5]], {"classes": ["lynx", "lion"]}, "not in the taxonomy"),
        ([[1, 0, 0, 0, 0, 0]] * 2, {}, "y_true has 1 samples but the predictions have 2"),
        ([[1, 0, 0, 0, 0, 0]], {"sample_weight": [1, 2]}, r"sample_weight must have shape \(1,\)"),
        ([[1, 0, 0, 0, 0, 0]], {"sample_weight": [-1]}, "finite and not negative"),
        ([[1, 0, 0, 0, 0, 0]], {"level": "genus"}, "has no level 'genus'"),
        ([[1, 0, 0, 0, 0, 0]], {"n_bins": 0}, "n_bins must be an integer of at least 1, got 0"),
        ([[1, 0, 0, 0, 0, 0]], {"n_bins": 1.5}, "n_bins must be an integer of at least 1, got 1.5"),
        (["lynx"], {}, "reads predict_proba, not labels"),
        ([[1, 0], [1]], {}, "must be a table of numbers, one row for each sample"),
    ],
)
def test_bad_input_is_refused_with_the_rule(tree, y_proba, more, message):
    with pytest.raises(ValueError, match=message):
        metrics.level_ece(["fox"], y_proba, tree, **more)


def test_bad_options_are_refused_with_the_rule(tree):
    certain = [[1, 0, 0, 0, 0, 0]]
    for k in (7, 1.5):
        with pytest.raises(ValueError, match=f"between 1 and the 6 leaves, got {k}"):
            metrics.top_k_hierarchical_distance(["fox"], certain, tree, k=k)
        with pytest.raises(ValueError, match=f"between 1 and the 6 leaves, got {k}"):
            metrics.hops(["fox"], certain, tree, k=k)
    with pytest.raises(ValueError, match="'uniform' or 'quantile', got 'kmeans'"):
        metrics.reliability_curve(["fox"], certain, tree, strategy="kmeans")
    with pytest.raises(ValueError, match="confidence must hold a finite number for each of the 1"):
        metrics.risk_coverage_curve(["fox"], certain, tree, confidence=[np.nan])
    with pytest.raises(ValueError, match="uncertainty must hold one number for each of the 1"):
        metrics.error_auroc(["fox"], certain, [1, 2], tree)
    with pytest.raises(ValueError, match="output_dict and as_frame exclude each other"):
        metrics.hierarchical_report(["fox"], certain, tree, output_dict=True, as_frame=True)


# Opinions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2])
def test_opinion_metrics_count_pairs_of_wrong_and_right_predictions(tree, level):
    rng = np.random.default_rng(3)
    opinion = HyperOpinion.from_evidence(tree, rng.exponential(3, (80, tree.n_decisions)))
    y_true = rng.choice(tree.leaves, 80)
    nodes = tree.level(level)
    probability = np.stack([opinion.probability(node) for node in nodes], axis=1)
    predictions = [nodes[best] for best in probability.argmax(axis=1)]
    wrong = np.array(predictions) != [tree.ancestor(label, level) for label in y_true]
    # Belief in no node of the level, and the vacuity on the path to the prediction.
    stopped = 1 - sum(opinion.belief(node) for node in nodes)
    heads = {path: column for column, path in enumerate(tree.branching)}
    vacuity = []
    for row, prediction in enumerate(predictions):
        path = tree.path(prediction)
        taken = [heads[path[:end]] for end in range(len(path)) if path[:end] in heads]
        vacuity.append(np.mean([opinion.vacuity[row, head] for head in taken]))
    for metric, uncertainty in (
        (metrics.nonspecificity_auroc, stopped),
        (metrics.vacuity_auroc, np.array(vacuity)),
    ):
        pairs = uncertainty[wrong][:, None] - uncertainty[~wrong]
        expected = np.mean(np.where(pairs == 0, 0.5, pairs > 0))
        assert metric(y_true, opinion, level) == pytest.approx(expected, rel=1e-12)
        computed = metrics.error_auroc(y_true, predictions, uncertainty, tree, level)
        assert computed == pytest.approx(expected, rel=1e-12)


def test_opinions_that_are_all_right_have_no_auroc(tree):
    opinion = HyperOpinion.from_evidence(tree, [[9, 0, 0, 9, 0, 0, 0, 0]])
    for metric in (metrics.nonspecificity_auroc, metrics.vacuity_auroc):
        with pytest.warns(UndefinedMetricWarning, match="no wrong or no right prediction"):
            assert np.isnan(metric(["lynx"], opinion))


# Report -------------------------------------------------------------------------------------------


def test_the_report_holds_what_the_metrics_compute(tree, case):
    y_true, _, proba = case
    weight = np.random.default_rng(4).exponential(size=y_true.size)
    given = {"sample_weight": weight}
    report = metrics.hierarchical_report(y_true, proba, tree, output_dict=True, **given)
    assert list(report) == ["level_1", "leaf", "tree"]
    for name in ("accuracy", "balanced_accuracy", "nll", "brier", "ece", "adaptive_ece"):
        metric = getattr(metrics, f"level_{name}")
        for row, level in (("level_1", 1), ("leaf", 2)):
            same(report[row][name], metric(y_true, proba, tree, level, **given))
    of_the_tree = "first_error_depth mistake_severity hops hierarchical_fscore operating_area"
    for name in (*of_the_tree.split(), "full_path_accuracy", "hierarchical_aurc"):
        same(report["tree"][name], getattr(metrics, name)(y_true, proba, tree, **given))
    reaches = np.isin(y_true, tree.leaves)
    same(
        [report["leaf"]["support"], report["tree"]["support"]],
        [weight[reaches].sum(), weight.sum()],
    )


def test_the_report_as_frame_has_a_row_for_each_level(tree, case):
    pytest.importorskip("pandas")
    y_true, _, proba = case
    frame = metrics.hierarchical_report(y_true, proba, tree, as_frame=True)
    assert list(frame.index) == ["level_1", "leaf", "tree"]
    assert frame.loc["leaf", "nll"] == metrics.level_nll(y_true, proba, tree)
    assert np.isnan(frame.loc["tree", "nll"])


def test_the_report_as_text_shows_a_dash_for_what_is_undefined(tree):
    labels = tree.sorted_leaf_labels
    text = metrics.hierarchical_report(labels, np.eye(6), tree, digits=1)
    lines = text.splitlines()
    header = " ".join(lines[0].split())
    assert header.startswith("classes support accuracy balanced accuracy nll brier ece adaptive")
    assert " ".join(lines[2].split()) == "leaf 6 6 1.0 1.0 0.0 0.0 0.0 0.0 0.0 1.0 - 1.0"
    whole = [line.strip() for line in lines]
    assert "mistake severity  -" in whole
    assert "hierarchical fscore  1.0" in whole
