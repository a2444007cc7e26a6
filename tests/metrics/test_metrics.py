"""Metrics against other packages, plain loops over paths, and figures worked out by hand."""

import math
import warnings

import numpy as np
import pytest
import torch
from hiclass.metrics import f1, precision, recall
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binned_statistic
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, log_loss
from strategies import taxonomies
from torchmetrics.functional.classification import binary_calibration_error

from skh2edl import Taxonomy, metrics

PATHS = [
    ("Airbus", "A320", "A318"),
    ("Airbus", "A320", "A319"),
    ("Airbus", "A340", "A340-200"),
    ("Airbus", "A340", "A340-300"),
    ("Airbus", "A340", "A340-500"),
    ("Boeing", "717", "717"),
    ("Boeing", "737", "737-700"),
    ("Boeing", "737", "737-800"),
    ("Fokker", "Fokker 70", "Fokker 70"),
    ("Cessna", "172"),
    ("Yak",),
]
LEVELS = ("manufacturer", "family", "variant")
N_SAMPLES = 400


def close(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_paths(PATHS, level_names=LEVELS)


class Case:
    """Random probabilities, true paths of which some end early, weights."""

    def __init__(self, tree, seed, ancestor_fraction=0.3):
        rng = np.random.default_rng(seed)
        self.tree = tree
        self.leaf_paths = [tree.path(label) for label in tree.sorted_leaf_labels]
        self.proba = rng.dirichlet(np.full(len(self.leaf_paths), 0.3), N_SAMPLES)
        truth = [self.leaf_paths[i] for i in rng.integers(len(self.leaf_paths), size=N_SAMPLES)]
        cut = rng.random(N_SAMPLES) < ancestor_fraction
        self.y_true = [
            path[: rng.integers(len(path) + 1)] if short else path
            for path, short in zip(truth, cut, strict=True)
        ]
        every = sorted({path[:end] for path in self.leaf_paths for end in range(1, len(path) + 1)})
        self.y_pred = [
            every[rng.integers(len(every))] if rng.random() < 0.6 else path for path in truth
        ]
        self.weight = rng.exponential(size=N_SAMPLES)

    def on_level(self, depth):
        """Truth, probabilities and weight on a level by loops, of the samples that reach it."""
        nodes = sorted({path[:depth] for path in self.leaf_paths})
        sums = [
            [
                sum(p for p, leaf in zip(row, self.leaf_paths, strict=True) if leaf[:depth] == node)
                for node in nodes
            ]
            for row in self.proba
        ]
        kept, truth = [], []
        for number, path in enumerate(self.y_true):
            above = {leaf[:depth] for leaf in below(path, self.leaf_paths)}
            if len(above) == 1:
                kept.append(number)
                truth.append(nodes.index(above.pop()))
        return np.array(truth), np.array(sums)[kept], self.weight[kept], np.array(kept)


def below(path, leaf_paths):
    return [leaf for leaf in leaf_paths if leaf[: len(path)] == path]


@pytest.fixture(scope="module")
def case(tree):
    return Case(tree, seed=0)


# Levels: scikit-learn as the reference ----------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("depth", "name"), list(enumerate(LEVELS, start=1)))
def test_levels_agree_with_scikit_learn(case, depth, name, weighted):
    truth, sums, weight, _ = case.on_level(depth)
    weight = weight if weighted else None
    given = case.y_true, case.proba, case.tree, name
    more = {"sample_weight": case.weight} if weighted else {}
    best = sums.argmax(axis=1)
    columns = range(sums.shape[1])
    assert metrics.level_accuracy(*given, **more) == close(
        accuracy_score(truth, best, sample_weight=weight)
    )
    assert metrics.level_balanced_accuracy(*given, **more) == close(
        balanced_accuracy_score(truth, best, sample_weight=weight)
    )
    assert metrics.level_nll(*given, **more) == close(
        log_loss(truth, sums, sample_weight=weight, labels=columns)
    )
    assert metrics.level_brier(*given, **more) == close(
        brier_score_loss(
            truth, sums, sample_weight=weight, labels=list(columns), scale_by_half=False
        )
    )


def test_labels_are_judged_on_a_level_by_the_node_above_them(case):
    _, _, _, kept = case.on_level(2)
    right = []
    for number in kept:
        above = {leaf[:2] for leaf in below(case.y_pred[number], case.leaf_paths)}
        true = {leaf[:2] for leaf in below(case.y_true[number], case.leaf_paths)}
        right.append(above == true)
    assert metrics.level_accuracy(case.y_true, case.y_pred, case.tree, "family") == close(
        np.mean(right)
    )


def test_balanced_accuracy_leaves_out_classes_that_are_not_there(tree):
    y_true, y_pred = ["A318", "A318", "Yak"], ["A318", "172", "Yak"]
    assert metrics.level_balanced_accuracy(y_true, y_pred, tree) == (0.5 + 1) / 2


def test_an_impossible_truth_costs_a_finite_nll(tree):
    certain = (tree.sorted_leaf_labels == "Yak").astype(float)[None]
    assert metrics.level_nll(["172"], certain, tree) == -math.log(np.finfo(float).tiny)
    assert metrics.level_nll(["Yak"], certain, tree) == 0


def test_equally_likely_leaves_are_predicted_as_classifiers_do(tree):
    uniform = np.full((tree.n_leaves, tree.n_leaves), 1 / tree.n_leaves)
    y_true = tree.sorted_leaf_labels
    assert metrics.level_accuracy(y_true, uniform, tree) == 1 / tree.n_leaves
    assert metrics.oracle_descent(y_true, uniform, tree)[0] == 1 / tree.n_leaves
    # The first of classes_, which is not the first of the tree.
    assert (tree.sorted_leaf_labels[0], tree.leaves[0]) == ("172", "A318")
    assert metrics.level_accuracy(["172"], uniform[:1], tree) == 1
    assert metrics.oracle_descent(["172"], uniform[:1], tree)[0] == 1


# Calibration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bins", [1, 10, 15])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_ece_agrees_with_torchmetrics(case, depth, n_bins):
    truth, sums, _, _ = case.on_level(depth)
    # The binary form keeps float64, the multiclass form would round to float32.
    expected = binary_calibration_error(
        torch.tensor(sums.max(axis=1)), torch.tensor(sums.argmax(axis=1) == truth), n_bins=n_bins
    )
    computed = metrics.level_ece(case.y_true, case.proba, case.tree, depth, n_bins=n_bins)
    assert computed == close(expected.item())


def test_weighted_ece_agrees_with_binned_sums_of_scipy(case):
    truth, sums, weight, _ = case.on_level(2)
    confidence, right = sums.max(axis=1), sums.argmax(axis=1) == truth
    gap = binned_statistic(confidence, weight * (right - confidence), "sum", 15, (0, 1)).statistic
    computed = metrics.level_ece(
        case.y_true, case.proba, case.tree, "family", sample_weight=case.weight
    )
    assert computed == close(np.abs(gap).sum() / weight.sum())


def test_a_confidence_on_an_edge_belongs_to_the_bin_above_and_one_to_the_last():
    tree = Taxonomy.flat(["cat", "dog"])
    y_proba = [[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]]
    curve = metrics.reliability_curve(["cat", "dog", "cat"], y_proba, tree, n_bins=4)
    np.testing.assert_array_equal(curve.edges, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.fraction, [0, 0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(curve.confidence, [np.nan, np.nan, 0.5, 0.875])
    np.testing.assert_allclose(curve.accuracy, [np.nan, np.nan, 0, 1])


def test_adaptive_ece_cuts_the_sorted_samples_into_equal_parts(tree):
    case = Case(tree, seed=1, ancestor_fraction=0)
    truth, sums, _, _ = case.on_level(3)
    confidence, right = sums.max(axis=1), sums.argmax(axis=1) == truth
    parts = np.array_split(np.argsort(confidence), 16)
    assert {len(part) for part in parts} == {25}
    expected = np.mean([abs(right[part].mean() - confidence[part].mean()) for part in parts])
    computed = metrics.level_adaptive_ece(case.y_true, case.proba, tree, n_bins=16)
    assert computed == close(expected)
    curve = metrics.reliability_curve(case.y_true, case.proba, tree, n_bins=16, strategy="quantile")
    np.testing.assert_allclose(curve.edges[1:-1], [confidence[part].min() for part in parts[1:]])


def test_adaptive_ece_keeps_equal_confidences_together():
    tree = Taxonomy.flat(["cat", "dog"])
    # 1, 0 and 1 of the same confidence: any cut between them would give more than |2/3 - 0.6|.
    y_proba = [[0.6, 0.4]] * 3
    computed = metrics.level_adaptive_ece(["cat", "dog", "cat"], y_proba, tree, n_bins=3)
    assert computed == close(2 / 3 - 0.6)


def test_a_sample_on_the_border_of_equal_parts_goes_where_the_middle_of_its_weight_is():
    tree = Taxonomy.flat(["cat", "dog"])
    y_proba = [[0.6, 0.4], [0.7, 0.3], [0.8, 0.2]]
    # Of three samples in two bins the second lies half in each, with a little more in the first.
    given = ["cat", "dog", "cat"], y_proba, tree
    more = {"n_bins": 2, "strategy": "quantile", "sample_weight": [1.0, 1.0, 1.1]}
    np.testing.assert_allclose(metrics.reliability_curve(*given, **more).confidence, [0.65, 0.8])
    more["sample_weight"] = [1.1, 1.0, 1.0]
    np.testing.assert_allclose(metrics.reliability_curve(*given, **more).confidence, [0.6, 0.75])


# Severity: by hand, by loops, and hiclass -------------------------------------------------------


def test_first_error_depth_and_kept_ancestor_of_a_worked_example(tree):
    y_true = ["A318", "A318", "A318", "737-700", "717", "Yak", "A320", "172"]
    y_pred = [
        "A318",  # right
        "A319",  # wrong at the family's decision: depth 2, keeps Airbus and A320
        "A340-200",  # wrong at the manufacturer's decision: depth 1, keeps Airbus
        "717",  # depth 1, keeps Boeing
        "Yak",  # wrong at the root: depth 0, keeps nothing
        "Boeing",  # depth 0: a hedged prediction may be wrong, too
        "A319",  # below the label: not known to be wrong
        "Cessna",  # the same leaves as the label: right
    ]
    assert metrics.first_error_depth(y_true, y_pred, tree) == (2 + 1 + 1 + 0 + 0) / 5
    assert metrics.kept_ancestor(y_true, y_pred, tree, "manufacturer") == 3 / 5
    assert metrics.kept_ancestor(y_true, y_pred, tree, "family") == 1 / 5
    # Heights of the common ancestors: A320 1, Airbus 2, Boeing 2, root 3, root 3.
    assert metrics.mistake_severity(y_true, y_pred, tree) == (1 + 2 + 2 + 3 + 3) / 5
    assert metrics.hierarchical_distance(y_true, y_pred, tree) == (1 + 2 + 2 + 3 + 3) / 8


def test_a_hedged_prediction_costs_its_height_and_is_no_mistake(tree):
    assert metrics.hierarchical_distance(["A318", "A318"], ["A320", "Airbus"], tree) == 1.5
    with pytest.warns(UndefinedMetricWarning, match="no prediction that contradicts its label"):
        assert np.isnan(metrics.mistake_severity(["A318"], ["A320"], tree))


class PathReference:
    """Severity of pairs of paths, from sets of leaves and common beginnings."""

    def __init__(self, leaf_paths):
        self.leaf_paths = leaf_paths

    def common_ancestor(self, leaves):
        """Return the height and the depth of the lowest common ancestor."""
        common = 0
        while len({leaf[: common + 1] for leaf in leaves}) == 1 and common < min(map(len, leaves)):
            common += 1
        shared = leaves[0][:common]
        return max(len(leaf) for leaf in below(shared, self.leaf_paths)) - common, common

    def judge(self, truth, prediction, level):
        true, given = below(truth, self.leaf_paths), below(prediction, self.leaf_paths)
        height, depth = self.common_ancestor([*true, *given])
        above_true, above_given = ({leaf[:level] for leaf in x} for x in (true, given))
        return {
            "labelled": len(true) < len(self.leaf_paths),
            "mistake": not set(true) & set(given),
            "distance": 0 if set(given) <= set(true) else height,
            "height": height,
            "depth": depth,
            "reaches": len(above_true) == 1,
            "kept": above_true == above_given,
        }


@st.composite
def labelled_trees(draw):
    tree = draw(taxonomies())
    nodes = st.lists(st.integers(0, tree.n_nodes - 1), min_size=20, max_size=20)
    paths = [()]
    for node in range(1, tree.n_nodes):
        paths.append((*paths[tree.parents[node]], tree.names[node]))
    truth, predictions = ([paths[node] for node in draw(nodes)] for _ in range(2))
    leaf_paths = [paths[tree.leaf_nodes[position]] for position in tree.leaf_order]
    seed = draw(st.integers(0, 2**32 - 1))
    proba = np.random.default_rng(seed).dirichlet(np.ones(tree.n_leaves), 20)
    weight = np.array(draw(st.lists(st.integers(0, 3), min_size=20, max_size=20)), dtype=float)
    return tree, leaf_paths, truth, predictions, proba, weight


def weighted_mean(values, weight):
    total = sum(weight)
    if not total:
        return math.nan
    return sum(v * w for v, w in zip(values, weight, strict=True)) / total


def agrees(computed, expected):
    return computed == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


@given(case=labelled_trees())
def test_severity_agrees_with_loops_over_paths(case):
    tree, leaf_paths, truth, predictions, _, weight = case
    level = max(1, tree.n_levels - 1)
    reference = PathReference(leaf_paths)
    judged = [reference.judge(*pair, level) for pair in zip(truth, predictions, strict=True)]
    labelled = [w * j["labelled"] for w, j in zip(weight, judged, strict=True)]
    mistaken = [w * j["mistake"] for w, j in zip(labelled, judged, strict=True)]
    reaching = [w * j["reaches"] for w, j in zip(mistaken, judged, strict=True)]
    expected = {
        "hierarchical_distance": weighted_mean([j["distance"] for j in judged], labelled),
        "mistake_severity": weighted_mean([j["height"] for j in judged], mistaken),
        "first_error_depth": weighted_mean([j["depth"] for j in judged], mistaken),
        "kept_ancestor": weighted_mean([j["kept"] for j in judged], reaching),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for name, value in expected.items():
            more = {"level": level} if name == "kept_ancestor" else {}
            computed = getattr(metrics, name)(
                truth, predictions, tree, sample_weight=weight, **more
            )
            assert agrees(computed, value), name


def test_hierarchical_precision_recall_and_fscore_agree_with_hiclass(case):
    def as_table(paths):
        # hiclass compares names, so each is written as a path; blank below the last.
        return np.array(
            [["/".join(p[: i + 1]) if i < len(p) else "" for i in range(3)] for p in paths]
        )

    labelled = [number for number, path in enumerate(case.y_true) if path]
    y_true = [case.y_true[number] for number in labelled]
    y_pred = [case.y_pred[number] for number in labelled]
    given = as_table(y_true), as_table(y_pred)
    assert metrics.hierarchical_precision(y_true, y_pred, case.tree) == close(precision(*given))
    assert metrics.hierarchical_recall(y_true, y_pred, case.tree) == close(recall(*given))
    assert metrics.hierarchical_fscore(y_true, y_pred, case.tree) == close(f1(*given))
    # Samples labelled with the root are unlabelled and change nothing.
    assert metrics.hierarchical_fscore(case.y_true, case.y_pred, case.tree) == close(f1(*given))


@pytest.mark.parametrize("k", [1, 3, 11])
def test_top_k_distance_is_the_mean_over_the_k_likeliest_leaves(case, k):
    reference = PathReference(case.leaf_paths)
    expected = []
    for path, row in zip(case.y_true, case.proba, strict=True):
        if path:
            best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
            costs = [reference.judge(path, case.leaf_paths[i], 1)["distance"] for i in best]
            expected.append(sum(costs) / k)
    computed = metrics.top_k_hierarchical_distance(case.y_true, case.proba, case.tree, k)
    assert computed == close(np.mean(expected))
    if k == 1:
        assert computed == close(metrics.hierarchical_distance(case.y_true, case.proba, case.tree))


# Descent ----------------------------------------------------------------------------------------


@given(case=labelled_trees())
def test_oracle_descent_agrees_with_loops_over_paths(case):
    tree, leaf_paths, truth, _, proba, weight = case
    right = np.zeros(tree.n_levels + 1)
    total = 0
    for path, row, w in zip(truth, proba, weight, strict=True):
        inside = below(path, leaf_paths)
        if len(inside) != 1:
            continue
        total += w
        for depth in range(tree.n_levels + 1):
            survivors = below(inside[0][:depth], leaf_paths)
            best = max(survivors, key=lambda leaf: row[leaf_paths.index(leaf)])
            right[depth] += w * (best == inside[0])
    if not total:
        with pytest.warns(UndefinedMetricWarning, match="labelled with a leaf"):
            assert np.isnan(metrics.oracle_descent(truth, proba, tree, sample_weight=weight)).all()
        return
    computed = metrics.oracle_descent(truth, proba, tree, sample_weight=weight)
    np.testing.assert_allclose(computed, right / total, rtol=1e-12)
    one = metrics.oracle_descent(truth, proba, tree, level=1, sample_weight=weight)
    assert one == computed[1]


@given(case=labelled_trees())
def test_path_consistency_agrees_with_loops_over_paths(case):
    tree, leaf_paths, _, _, proba, _ = case
    consistent = 0
    for row in proba:
        best = leaf_paths[int(np.argmax(row))]
        agreed = True
        for depth in range(1, tree.n_levels + 1):
            sums = {}
            for leaf, p in zip(leaf_paths, row, strict=True):
                sums[leaf[:depth]] = sums.get(leaf[:depth], 0) + p
            agreed &= max(sums, key=sums.get) == best[:depth]
        consistent += agreed
    assert metrics.path_consistency(proba, tree) == close(consistent / len(proba))


# Curves -----------------------------------------------------------------------------------------


def test_risk_coverage_agrees_with_a_loop_over_sorted_samples(case):
    truth, sums, _, _ = case.on_level(2)
    order = np.argsort(-sums.max(axis=1))
    wrong = (sums.argmax(axis=1) != truth)[order]
    risks = [wrong[:n].mean() for n in range(1, wrong.size + 1)]
    curve = metrics.risk_coverage_curve(case.y_true, case.proba, case.tree, "family")
    np.testing.assert_allclose(curve.risk, risks, rtol=1e-12)
    np.testing.assert_allclose(curve.coverage, np.arange(1, wrong.size + 1) / wrong.size)
    np.testing.assert_allclose(curve.threshold, sums.max(axis=1)[order])
    area = metrics.risk_coverage_area(case.y_true, case.proba, case.tree, "family")
    assert area == close(np.mean(risks))


def test_a_given_confidence_ranks_the_samples(tree):
    y_proba = np.eye(tree.n_leaves)
    y_true = ["Yak", *tree.sorted_leaf_labels[1:]]
    assert tree.sorted_leaf_labels[0] != "Yak"
    vacuity = np.zeros(tree.n_leaves)
    vacuity[0] = 1
    curve = metrics.risk_coverage_curve(y_true, y_proba, tree, confidence=-vacuity)
    np.testing.assert_allclose(curve.coverage, [10 / 11, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 11])
    # Ten elevenths of the coverage without risk, then one eleventh at a risk of one in eleven.
    area = metrics.risk_coverage_area(y_true, y_proba, tree, confidence=-vacuity)
    assert area == close(1 / 11 * 1 / 11)


def hedged_prediction(row, leaf_paths, nodes, threshold):
    """Most informative node above the threshold, the likeliest of equals, else the root."""
    best, key = (), (-len(leaf_paths), 0.0)
    for node in nodes:
        inside = below(node, leaf_paths)
        p = sum(row[leaf_paths.index(leaf)] for leaf in inside)
        if p > threshold and (-len(inside), p) > key:
            best, key = node, (-len(inside), p)
    return best


@given(case=labelled_trees())
def test_the_operating_curve_agrees_with_a_search_at_each_threshold(case):
    tree, leaf_paths, truth, _, proba, weight = case
    reference = PathReference(leaf_paths)
    counted = [
        (path, row, w)
        for path, row, w in zip(truth, proba, weight, strict=True)
        if w and len(below(path, leaf_paths)) < len(leaf_paths)
    ]
    if not counted:
        with pytest.warns(UndefinedMetricWarning, match="no labelled sample"):
            assert np.isnan(metrics.operating_area(truth, proba, tree, sample_weight=weight))
        return
    curve = metrics.operating_curve(truth, proba, tree, sample_weight=weight)
    nodes = {leaf[:end] for leaf in leaf_paths for end in range(1, len(leaf) + 1)}
    log_leaves = math.log(len(leaf_paths))
    for position in range(0, curve.threshold.size, max(1, curve.threshold.size // 8)):
        threshold = curve.threshold[position] * (1 - 1e-9)
        accuracy, information = [], []
        for path, row, _ in counted:
            prediction = hedged_prediction(row, leaf_paths, nodes, threshold)
            true, given_ = below(path, leaf_paths), below(prediction, leaf_paths)
            depth = reference.common_ancestor([*true, *given_])[1]
            shared = below(true[0][:depth], leaf_paths)
            accuracy.append(bool(set(true) & set(given_)))
            gained = log_leaves - math.log(len(shared))
            information.append(gained / (log_leaves - math.log(len(true))))
        weights = [w for *_, w in counted]
        assert curve.accuracy[position] == close(weighted_mean(accuracy, weights))
        assert curve.information[position] == close(weighted_mean(information, weights))


def test_always_right_on_the_leaves_has_operating_area_one(tree):
    labels = tree.sorted_leaf_labels
    assert metrics.operating_area(labels, np.eye(labels.size), tree) == close(1)
    curve = metrics.operating_curve(labels, np.eye(labels.size), tree)
    np.testing.assert_allclose(curve.information, [0, 1])
