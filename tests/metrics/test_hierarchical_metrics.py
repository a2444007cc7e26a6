"""Metrics of the whole tree against loops, scikit-learn, hiclass and the figures of their authors.

And labels that say nothing: the root's, and those of pass-through nodes above all leaves.
"""

import math
import warnings

import numpy as np
import pytest
from hiclass.metrics import f1, precision, recall
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import auc
from strategies import taxonomies

from skh2edl import HyperOpinion, Taxonomy, metrics

PLANES = Taxonomy.from_paths(
    [
        ("Airbus", "A320", "A318"),
        ("Airbus", "A320", "A319"),
        ("Airbus", "A320", "A321"),
        ("Airbus", "A340", "A340-200"),
        ("Boeing", "717", "717"),
        ("Boeing", "737", "737-700"),
        ("Boeing", "737", "737-800"),
        ("Cessna", "172", "172"),
        ("Yak",),
    ]
)


def close(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


def paths_of(tree):
    paths = [()]
    for node in range(1, tree.n_nodes):
        paths.append((*paths[tree.parents[node]], tree.names[node]))
    return paths


def below(path, leaf_paths):
    return [leaf for leaf in leaf_paths if leaf[: len(path)] == path]


def shared(*paths):
    depth = 0
    while depth < min(map(len, paths)) and len({path[: depth + 1] for path in paths}) == 1:
        depth += 1
    return paths[0][:depth]


@st.composite
def cases(draw):
    """A tree, the paths of its leaves in the order of columns, and labelled predictions."""
    tree = draw(taxonomies())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    paths = paths_of(tree)
    leaf_paths = [paths[tree.leaf_nodes[position]] for position in tree.leaf_order]
    truth, predictions = (
        [paths[node] for node in rng.integers(tree.n_nodes, size=20)] for _ in range(2)
    )
    truth[0] = leaf_paths[0]
    proba = rng.dirichlet(np.full(tree.n_leaves, 0.5), 20)
    return tree, leaf_paths, truth, predictions, proba, rng.integers(1, 4, 20).astype(float)


def labelled(case):
    """Yield label, prediction, probabilities and weight of each labelled sample."""
    _, leaf_paths, truth, predictions, proba, weight = case
    for row in zip(truth, predictions, proba, weight, strict=True):
        if len(below(row[0], leaf_paths)) < len(leaf_paths):
            yield row


def mean(values, weights):
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


# Full-path accuracy -----------------------------------------------------------------------------


@given(case=cases())
def test_a_full_path_is_right_on_every_level_that_the_label_reaches(case):
    tree, leaf_paths, truth, predictions, proba, weight = case
    by_labels, by_proba, weights = [], [], []
    for label, prediction, row, w in labelled(case):
        right, agreed = True, True
        for depth in range(1, tree.n_levels + 1):
            true = {leaf[:depth] for leaf in below(label, leaf_paths)}
            if len(true) > 1:
                continue
            sums = {}
            for leaf, p in zip(leaf_paths, row, strict=True):
                sums[leaf[:depth]] = sums.get(leaf[:depth], 0) + p
            right &= {leaf[:depth] for leaf in below(prediction, leaf_paths)} == true
            agreed &= {max(sums, key=sums.get)} == true
        by_labels.append(right)
        by_proba.append(agreed)
        weights.append(w)
    given_ = {"sample_weight": weight}
    assert metrics.full_path_accuracy(truth, predictions, tree, **given_) == close(
        mean(by_labels, weights)
    )
    assert metrics.full_path_accuracy(truth, proba, tree, **given_) == close(
        mean(by_proba, weights)
    )


# HOPS -------------------------------------------------------------------------------------------

RANKINGS = {
    "perfect": "A319 A321 A318 A340-200 Yak 172 717 737-700 737-800",
    "stranger second": "A319 Yak A318 A321 717 A340-200 737-700 737-800 172",
    "Boeing first": "737-800 737-700 717 A340-200 A319 A318 A321 Yak 172",
    "sister first": "A318 A319 A321 Yak A340-200 717 172 737-700 737-800",
}
# Computed by the notebook of Sani & Anand for these rankings, with all places and the first 2,
# 3 and 5 of them.
PUBLISHED_HOPS = [
    ("A319", "perfect", [1.0, 1.0, 1.0, 1.0]),
    ("A319", "stranger second", [0.751152073733, 1 / 3, 0.272727272727, 0.69696969697]),
    ("A319", "Boeing first", [0.0, 0.0, 0.0, 0.0]),
    ("A319", "sister first", [0.654377880184, 0.0, 0.0, 0.545454545455]),
    ("737-800", "perfect", [0.0, 0.0, 0.0, 0.068493150685]),
    ("737-800", "stranger second", [0.0, 0.0, 0.0, 0.045662100457]),
    ("737-800", "Boeing first", [1.0, 1.0, 1.0, 1.0]),
]


@pytest.mark.parametrize(("label", "ranking", "scores"), PUBLISHED_HOPS)
def test_hops_is_what_its_authors_compute(label, ranking, scores):
    columns = [PLANES.sorted_leaf_labels.tolist().index(x) for x in RANKINGS[ranking].split()]
    proba = np.zeros((1, 9))
    proba[0, columns] = np.arange(9, 0, -1) / 45
    computed = [metrics.hops([label], proba, PLANES, k) for k in (None, 2, 3, 5)]
    np.testing.assert_allclose(computed, scores, rtol=1e-11)
    first = RANKINGS[ranking].split()[0]
    assert metrics.hops([label], proba, PLANES, 1) == float(first == label)


@given(case=cases(), k=st.sampled_from([None, 1, 2]))
def test_hops_agrees_with_a_loop_over_places(case, k):
    tree, leaf_paths, truth, _, proba, weight = case
    scores, weights = [], []
    for label, _, row, w in labelled(case):
        inside = below(label, leaf_paths)
        if len(inside) > 1:
            continue
        common = [shared(inside[0], leaf) for leaf in leaf_paths]
        kinds = sorted({len(path) for path in common}, reverse=True)
        preference = [kinds.index(len(path)) for path in common]
        expected, total, worst = sorted(preference), 0.0, 0.0
        order = sorted(range(len(row)), key=lambda i: -row[i])
        places = range(len(row))[:k]
        for place in places:
            kind = expected[place]
            same = [other for other in range(len(row)) if expected[other] == kind]
            end = 0.0 if kind == len(kinds) - 1 else 0.5 ** (kind + 1)
            part = same.index(place) / len(same)
            own = 1.0 if kind == 0 else 0.5**kind * (1 - part) + end * part
            total += own * abs(kind - preference[order[place]])
            worst += own * abs(kind - expected[places[-1 - place]])
        scores.append(float(total == 0) if k == 1 else max(0.0, 1 - total / worst))
        weights.append(w)
    assert metrics.hops(truth, proba, tree, k, sample_weight=weight) == close(mean(scores, weights))


def test_hops_does_not_fall_for_mistakes_among_sisters():
    """More mistakes, all of them small, improve the severity and not the score."""
    leaves = PLANES.sorted_leaf_labels
    y_true = np.array(["A318", "A319", "A321", "Yak"])
    certain = (leaves == np.array(["A318", "A319", "A321", "172"])[:, None]).astype(float)
    sisters = (leaves == np.array(["A319", "A321", "A318", "172"])[:, None]).astype(float)
    severity = [metrics.mistake_severity(y_true, p, PLANES) for p in (certain, sisters)]
    score = [metrics.hops(y_true, p, PLANES) for p in (certain, sisters)]
    assert severity[1] < severity[0]
    assert score[1] < score[0]


# Precision and recall ---------------------------------------------------------------------------


def test_macro_averages_agree_with_hiclass():
    rng = np.random.default_rng(0)
    paths = [path for path in paths_of(PLANES) if path]
    y_true, y_pred = ([paths[i] for i in rng.integers(len(paths), size=80)] for _ in range(2))
    y_pred[:40] = y_true[:40]

    def as_table(rows):
        return np.array(
            [["/".join(p[: i + 1]) if i < len(p) else "" for i in range(3)] for p in rows]
        )

    tables = as_table(y_true), as_table(y_pred)
    for ours, theirs in (
        (metrics.hierarchical_precision, precision),
        (metrics.hierarchical_recall, recall),
        (metrics.hierarchical_fscore, f1),
    ):
        macro = ours(y_true, y_pred, PLANES, average="macro")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)  # an F-score of 0 to hiclass
            expected = theirs(*tables, average="macro")
        assert macro == close(expected)
        assert macro != close(ours(y_true, y_pred, PLANES))
    with pytest.raises(ValueError, match="average must be 'micro' or 'macro', got 'weighted'"):
        metrics.hierarchical_recall(y_true, y_pred, PLANES, average="weighted")


def test_a_prediction_of_the_root_has_no_precision_of_its_own():
    given_ = ["A318", "A319"], ["root", "A318"], PLANES
    assert metrics.hierarchical_precision(*given_, average="macro") == close(2 / 3)
    assert metrics.hierarchical_recall(*given_, average="macro") == close(1 / 3)
    assert metrics.hierarchical_fscore(*given_, average="macro") == close(1 / 3)


@given(case=cases())
def test_information_precision_and_recall_agree_with_loops(case):
    tree, leaf_paths, truth, predictions, proba, weight = case

    def information(path):
        return math.log(len(leaf_paths) / len(below(path, leaf_paths)))

    precisions, recalls, weights = [], [], []
    for label, prediction, _, w in labelled(case):
        common = information(shared(label, prediction))
        claimed = information(prediction)
        not_judged = len(below(prediction, below(label, leaf_paths))) > 0 and claimed > common
        not_judged &= set(below(prediction, leaf_paths)) <= set(below(label, leaf_paths))
        precisions.append(1.0 if claimed == 0 or not_judged else common / claimed)
        recalls.append(common / information(label))
        weights.append(w)
    given_ = truth, predictions, tree
    assert metrics.information_precision(*given_, sample_weight=weight) == close(
        mean(precisions, weights)
    )
    assert metrics.information_recall(*given_, sample_weight=weight) == close(
        mean(recalls, weights)
    )
    # The operating curve ends where every prediction is the most specific one: the likeliest leaf.
    curve = metrics.operating_curve(truth, proba, tree, sample_weight=weight)
    end = metrics.information_recall(truth, proba, tree, sample_weight=weight)
    assert end == close(curve.information[-1])


# Selective prediction ---------------------------------------------------------------------------


@given(case=cases())
def test_hierarchical_risk_and_coverage_agree_with_climbing_at_each_threshold(case):
    tree, leaf_paths, truth, _, proba, weight = case
    curve = metrics.hierarchical_risk_coverage_curve(truth, proba, tree, sample_weight=weight)
    assert curve.threshold[0] == math.inf
    assert (np.diff(curve.threshold) < 0).all()
    for coverage, risk, threshold in zip(*curve, strict=True):
        covered, wrong, weights = [], [], []
        for label, _, row, w in labelled(case):
            node = leaf_paths[int(np.argmax(row))]
            while node and (
                sum(row[leaf_paths.index(leaf)] for leaf in below(node, leaf_paths))
                < threshold * (1 - 1e-12)
            ):
                node = node[:-1]
            inside = below(node, leaf_paths)
            covered.append(1 - math.log(len(inside)) / math.log(len(leaf_paths)))
            wrong.append(not set(inside) & set(below(label, leaf_paths)))
            weights.append(w)
        assert coverage == close(mean(covered, weights))
        assert risk == close(mean(wrong, weights))
    area = metrics.hierarchical_aurc(truth, proba, tree, sample_weight=weight)
    assert area == close(auc(curve.coverage, curve.risk))


def test_the_hierarchical_area_is_what_its_authors_compute():
    """The climbing rule, coverage and trapezoids of Goren et al., on three levels of 3, 9, 36."""
    tree = Taxonomy.from_paths(
        [(f"f{i}", f"g{i}{j}", f"s{i}{j}{k}") for i in range(3) for j in range(3) for k in range(4)]
    )
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.full(36, 0.2), 300)
    y_true = rng.choice(tree.sorted_leaf_labels, 300)
    area = metrics.hierarchical_aurc(y_true, proba, tree)
    assert area == pytest.approx(0.6165546274019272, rel=1e-12)


def test_on_a_flat_tree_climbing_is_abstaining():
    rng = np.random.default_rng(0)
    tree = Taxonomy.flat(list("abcd"))
    proba = rng.dirichlet(np.ones(4), 50)
    y_true = rng.choice(list("abcd"), 50)
    selective = metrics.risk_coverage_curve(y_true, proba, tree)
    climbing = metrics.hierarchical_risk_coverage_curve(y_true, proba, tree)
    np.testing.assert_allclose(climbing.coverage[1:], selective.coverage)
    np.testing.assert_allclose(climbing.risk[1:], selective.risk * selective.coverage)


def test_coverage_at_risk_is_the_longest_start_of_the_ranking_that_is_good_enough():
    rng = np.random.default_rng(1)
    leaves = PLANES.sorted_leaf_labels
    y_true, proba = rng.choice(leaves, 200), rng.dirichlet(np.ones(9), 200)
    rows = rng.random(200) < 0.7
    proba[rows] = 0.5 * (leaves == y_true[rows, None]) + 0.5 * proba[rows]
    order = np.argsort(-proba.max(axis=1))
    wrong = (leaves[proba.argmax(axis=1)] != y_true)[order]
    for limit in (0.0, 0.01, 0.1, 0.3, 1.0):
        best = max([n for n in range(1, 201) if wrong[:n].mean() <= limit], default=0)
        computed = metrics.coverage_at_risk(y_true, proba, PLANES, max_risk=limit)
        assert computed == best / 200
    assert 0 < metrics.coverage_at_risk(y_true, proba, PLANES) < 1
    first_wrong = {"confidence": (leaves[proba.argmax(axis=1)] != y_true).astype(float)}
    assert metrics.coverage_at_risk(y_true, proba, PLANES, **first_wrong) == 0
    with pytest.raises(ValueError, match=r"max_risk must lie between 0 and 1, got 1\.5"):
        metrics.coverage_at_risk(y_true, proba, PLANES, max_risk=1.5)


# Labels that say nothing ------------------------------------------------------------------------

OF_LABELS = [
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
]
OF_PROBABILITIES = [
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
]


@st.composite
def chained_trees(draw):
    """A tree below a chain of pass-through nodes, with labels on every kind of node."""
    shape = draw(taxonomies(max_nodes=12))
    length = draw(st.integers(1, 3))
    chain = [f"top{number}" for number in range(1, length + 1)]
    names = ["root", *chain, *(f"n{node}" for node in range(1, shape.n_nodes))]
    parents = [-1, *range(length), *(shape.parents[1:] + length)]
    tree = Taxonomy(names, parents)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y_true, y_pred = (np.array(names[1:])[rng.integers(len(names) - 1, size=30)] for _ in range(2))
    y_true[:2] = chain[0], tree.leaves[0]
    return tree, y_true, y_pred, rng.dirichlet(np.ones(tree.n_leaves), 30)


@pytest.mark.slow
@given(case=chained_trees())
def test_a_label_above_all_leaves_counts_as_the_root(case):
    tree, y_true, y_pred, proba = case
    nodes = tree.resolve(y_true)
    says_nothing = tree.leaf_stop[nodes] - tree.leaf_start[nodes] == tree.n_leaves
    assert says_nothing.any()
    as_root = np.where(says_nothing, "root", y_true)
    kept = ~says_nothing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        for name in (*OF_LABELS, *OF_PROBABILITIES):
            metric = getattr(metrics, name)
            predictions = y_pred if name in OF_LABELS else proba
            levels = range(1, tree.n_levels + 1) if name.startswith(("level", "kept")) else [None]
            for level in levels:
                more = {} if level is None else {"level": level}
                own = metric(y_true, predictions, tree, **more)
                np.testing.assert_equal(metric(as_root, predictions, tree, **more), own)
                without = metric(y_true[kept], predictions[kept], tree, **more)
                np.testing.assert_allclose(own, without, rtol=1e-12, atol=1e-12)
        opinion = HyperOpinion.from_evidence(tree, np.ones((30, tree.n_decisions)))
        own, root = (metrics.vacuity_auroc(labels, opinion, 1) for labels in (y_true, as_root))
        np.testing.assert_equal(own, root)
        reports = [
            metrics.hierarchical_report(labels, proba, tree, output_dict=True)
            for labels in (y_true, as_root)
        ]
    np.testing.assert_equal(reports[0], reports[1])


def test_a_chain_above_all_leaves_is_no_right_prediction():
    bare = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    chained = Taxonomy.from_nested({"animal": {"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]}})
    y_true, y_pred = ["lynx", "fox"], ["fox", "cat"]
    for name in ("hierarchical_precision", "hierarchical_recall", "hierarchical_fscore"):
        metric = getattr(metrics, name)
        assert metric(y_true, y_pred, bare) == metric(y_true, y_pred, chained) == 0
