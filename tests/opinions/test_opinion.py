"""The hyper-opinion against facts, numbers worked out by hand and a brute-force reference."""

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import dirichlet
from strategies import opinion_cases

from skh2edl import HyperOpinion, Taxonomy

EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_paths(
        [
            ("Boeing", "737", "737-700"),
            ("Boeing", "737", "737-800"),
            ("Boeing", "747", "747-400"),
            ("Fokker", "Fokker 70", "Fokker 70"),
        ],
        level_names=("manufacturer", "family", "variant"),
    )


@pytest.fixture(scope="module")
def opinion(tree):
    """The opinion worked out by hand below."""
    return HyperOpinion.from_evidence(tree, [[6, 2, 3, 1, 0, 2]])


@st.composite
def leaf_subsets(draw, tree):
    fraction = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [leaf for leaf in tree.leaves if rng.random() < fraction]


# The reference: sets of leaf paths and plain loops ------------------------------------------------


def all_paths(tree):
    """Paths of all nodes from the tree's JSON, which holds names and parents only."""
    stored = json.loads(tree.to_json())
    paths = {}
    for node, (name, parent) in enumerate(zip(stored["names"], stored["parents"], strict=True)):
        paths[node] = () if parent < 0 else (*paths[parent], name)
    return list(paths.values())


class Reference:
    """One sample's masses and probabilities, focal sets as frozensets of leaf paths."""

    def __init__(self, tree, evidence, base_rate=None, prior_weight=None):
        self.paths = all_paths(tree)
        self.children = {path: [] for path in self.paths}
        for path in self.paths:
            if path:
                self.children[path[:-1]].append(path)
        branching = [path for path in self.paths if len(self.children[path]) > 1]
        decisions = [(path, child) for path in branching for child in self.children[path]]
        self.evidence = dict(zip(decisions, evidence, strict=True))
        self.weight = {path: len(self.children[path]) for path in branching}
        if prior_weight is not None:
            weights = np.broadcast_to(prior_weight, len(branching)).tolist()
            self.weight = dict(zip(branching, weights, strict=True))
        if base_rate is None:
            self.rate = {(path, child): 1 / len(self.children[path]) for path, child in decisions}
        else:
            self.rate = dict(zip(decisions, base_rate, strict=True))
        self.mass, self.probability, self.conditional = {}, {}, {}
        self.walk((), 1.0, 1.0)

    def leaf_set(self, path):
        return frozenset(
            leaf for leaf in self.paths if not self.children[leaf] and leaf[: len(path)] == path
        )

    def walk(self, path, reach, probability):
        self.probability[path] = probability
        children = self.children[path]
        if not children:
            self.mass[frozenset([path])] = reach
        elif len(children) == 1:
            self.walk(children[0], reach, probability)
        else:
            weight = self.weight[path]
            strength = math.fsum(self.evidence[path, child] for child in children) + weight
            self.mass[self.leaf_set(path)] = reach * weight / strength
            for child in children:
                e, a = self.evidence[path, child], self.rate[path, child]
                self.conditional[path, child] = (e + a * weight) / strength
                self.walk(
                    child,
                    reach * e / strength,
                    probability * self.conditional[path, child],
                )

    def belief(self, members):
        return math.fsum(mass for focal, mass in self.mass.items() if focal <= members)

    def plausibility(self, members):
        return math.fsum(mass for focal, mass in self.mass.items() if focal & members)


@given(st.data(), opinion_cases(n_samples=1))
def test_everything_agrees_with_enumerated_focal_sets(data, case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    reference = Reference(tree, evidence[0].tolist(), **arguments)

    columns = [
        frozenset([tree.path(focal)]) if column < tree.n_leaves else reference.leaf_set(focal)
        for column, focal in enumerate(opinion.focal_sets)
    ]
    assert len(set(columns)) == len(columns) == len(reference.mass)
    assert_allclose(opinion.mass[0], [reference.mass[focal] for focal in columns], **EXACT)
    assert_allclose(
        opinion.conditional_probability[0],
        [reference.conditional[decision] for decision in tree.decisions],
        **EXACT,
    )
    leaves = [tree.path(leaf) for leaf in tree.leaves]
    expected = [reference.probability[path] for path in leaves]
    assert_allclose(opinion.leaf_probability[0], expected, **EXACT)
    assert_allclose(np.exp(opinion.log_leaf_probability[0]), expected, **EXACT)
    assert_allclose(
        opinion.node_probability[0], [reference.probability[path] for path in reference.paths]
    )

    chosen = data.draw(leaf_subsets(tree))
    members = frozenset(tree.path(leaf) for leaf in chosen)
    assert_allclose(opinion.belief(chosen), reference.belief(members), **EXACT)
    assert_allclose(opinion.plausibility(set(chosen)), reference.plausibility(members), **EXACT)
    total = math.fsum(reference.probability[path] for path in members)
    assert_allclose(opinion.probability(np.array(chosen)), total, **EXACT)

    node = data.draw(st.sampled_from(reference.paths))
    below = reference.leaf_set(node)
    assert_allclose(opinion.belief(node), reference.belief(below), **EXACT)
    assert_allclose(opinion.plausibility(node), reference.plausibility(below), **EXACT)
    assert_allclose(opinion.probability(node), reference.probability[node], **EXACT)


@given(opinion_cases(n_samples=1))
def test_the_numbers_of_nodes_agree_with_enumerated_focal_sets(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    reference = Reference(tree, evidence[0].tolist(), **arguments)
    found = opinion.nodes()
    for node, path in enumerate(reference.paths):
        below = reference.leaf_set(path)
        assert_allclose(found.mass[0, node], reference.mass[below], **EXACT)
        assert_allclose(found.belief[0, node], reference.belief(below), **EXACT)
        assert_allclose(found.probability[0, node], reference.probability[path], **EXACT)
        assert_allclose(found.plausibility[0, node], reference.plausibility(below), **EXACT)
        assert np.isnan(found.vacuity[0, node]) == (len(below) == 1)
        assert_array_equal(opinion[path], [values[:, node] for values in found])


# Facts --------------------------------------------------------------------------------------------


@given(opinion_cases())
def test_leaf_probabilities_sum_to_one_and_never_grow_downwards(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    assert_allclose(opinion.leaf_probability.sum(axis=1), 1, **EXACT)
    nodes = opinion.node_probability
    assert (nodes[:, 1:] <= nodes[:, tree.parents[1:]]).all()
    for node in range(tree.n_nodes):
        below = opinion.leaf_probability[:, tree.leaf_start[node] : tree.leaf_stop[node]]
        assert_allclose(nodes[:, node], below.sum(axis=1), **EXACT)


@given(opinion_cases())
def test_masses_are_not_negative_and_sum_to_one(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    assert opinion.mass.shape == (3, tree.n_leaves + tree.n_branching)
    assert opinion.mass.min() >= 0
    assert_allclose(opinion.mass.sum(axis=1), 1, **EXACT)
    assert_allclose(opinion.mass[:, tree.n_leaves :], opinion.reach * opinion.vacuity, rtol=1e-15)


@given(st.data(), opinion_cases())
def test_probability_lies_between_belief_and_plausibility(data, case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    members = data.draw(leaf_subsets(tree))
    belief, plausibility = opinion.belief(members), opinion.plausibility(members)
    probability = opinion.probability(members)
    assert (belief <= probability + 1e-12).all()
    assert (probability <= plausibility + 1e-12).all()
    others = [leaf for leaf in tree.leaves if leaf not in set(members)]
    assert_allclose(plausibility, 1 - opinion.belief(others), **EXACT)


@given(st.data(), opinion_cases())
def test_bounds_of_one_leaf_are_its_mass_and_what_stops_above_it(data, case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    position = data.draw(st.integers(0, tree.n_leaves - 1))
    leaf = tree.leaves[position]
    path = tree.path(leaf)
    above = [
        tree.n_leaves + column
        for column, branching in enumerate(tree.branching)
        if path[: len(branching)] == branching
    ]
    assert_array_equal(opinion.belief(leaf), opinion.mass[:, position])
    assert_allclose(
        opinion.plausibility(leaf),
        opinion.mass[:, position] + opinion.mass[:, above].sum(axis=1),
        **EXACT,
    )


@given(opinion_cases())
def test_what_reaches_no_leaf_stops_at_some_depth(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    assert opinion.depth_profile.shape == (3, tree.n_levels)
    unspecific = 1 - sum(opinion.belief(leaf) for leaf in tree.leaves)
    assert_allclose(opinion.nonspecificity, unspecific, **EXACT)
    assert_allclose(opinion.depth_profile.sum(axis=1), opinion.nonspecificity, **EXACT)
    expected = np.zeros((3, tree.n_levels))
    for column, path in enumerate(tree.branching):
        expected[:, len(path)] += opinion.mass[:, tree.n_leaves + column]
    assert_allclose(opinion.depth_profile, expected, **EXACT)


@settings(max_examples=30)
@given(opinion_cases())
def test_conditional_probabilities_are_the_means_of_dirichlet_distributions(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    for node, (low, high) in enumerate(
        zip(tree.decision_offsets[:-1], tree.decision_offsets[1:], strict=True)
    ):
        rate = opinion.base_rate[low:high]
        alpha = evidence[0, low:high] + opinion.prior_weight[node] * rate
        assert_allclose(
            opinion.conditional_probability[0, low:high], dirichlet.mean(alpha), rtol=1e-12
        )


# Numbers ------------------------------------------------------------------------------------------


def test_numbers_worked_out_by_hand(tree, opinion):
    # root: S = 10, Boeing: S = 6, 737: S = 4; 747 and Fokker have one way down and no decision.
    assert opinion.focal_sets == (
        *("737-700", "737-800", "747-400", "Fokker 70"),
        *((), ("Boeing",), ("Boeing", "737")),
    )
    assert_allclose(opinion.vacuity, [[1 / 5, 1 / 3, 1 / 2]])
    assert_allclose(opinion.reach, [[1, 3 / 5, 3 / 10]])
    assert_allclose(opinion.mass, [[0, 0.15, 0.1, 0.2, 0.2, 0.2, 0.15]])
    assert_allclose(opinion.conditional_probability, [[0.7, 0.3, 2 / 3, 1 / 3, 0.25, 0.75]])
    assert_allclose(opinion.leaf_probability, [[7 / 60, 7 / 20, 7 / 30, 3 / 10]])
    assert_allclose(opinion.depth_profile, [[0.2, 0.2, 0.15]])
    assert_allclose(opinion.nonspecificity, [0.55])
    for members, belief, probability, plausibility in [
        ("Boeing", 0.6, 0.7, 0.8),
        (("Boeing", "737"), 0.3, 7 / 15, 0.7),
        ("747", 0.1, 7 / 30, 0.5),
        (["737-700", "747-400"], 0.1, 7 / 20, 0.65),
        ({"737", "Fokker"}, 0.5, 23 / 30, 0.9),
        ((), 1, 1, 1),
        ([], 0, 0, 0),
    ]:
        assert_allclose(opinion.belief(members), [belief])
        assert_allclose(opinion.probability(members), [probability])
        assert_allclose(opinion.plausibility(members), [plausibility])


def test_a_prior_of_ones_own_worked_out_by_hand():
    # W = 2, a = (0.9, 0.1), e = (1, 5): S = 8.
    opinion = HyperOpinion.from_evidence(
        Taxonomy.flat(["cat", "dog"]), [1, 5], base_rate=[0.9, 0.1], prior_weight=2
    )
    assert_allclose(opinion.vacuity, [[0.25]])
    assert_allclose(opinion.mass, [[0.125, 0.625, 0.25]])
    assert_allclose(opinion.leaf_probability, [[0.35, 0.65]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_evidence_is_too_small_or_too_large(tree, dtype):
    evidence = np.array([[e] * tree.n_decisions for e in (0, 1e-30, 1e6, 1e30)], dtype=dtype)
    opinion = HyperOpinion.from_evidence(tree, evidence)
    given_evidence = evidence[:, 0].astype(float)
    root = 2 / (2 * given_evidence + 2)
    assert_allclose(opinion.vacuity[:, 0], root, rtol=np.finfo(dtype).eps)
    belief = given_evidence / (2 * given_evidence + 2)
    assert_allclose(opinion.mass[:, 3], belief, rtol=np.finfo(dtype).eps)
    assert_allclose(opinion.leaf_probability, [[0.125, 0.125, 0.25, 0.5]] * 4, rtol=1e-7)


def random_trees(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n_nodes = int(rng.integers(3, 60))
        reach_back = rng.choice([1, 2, 10, n_nodes])
        parents = [int(rng.integers(max(0, node - reach_back), node)) for node in range(1, n_nodes)]
        parents += [int(rng.integers(0, n_nodes))] * int(rng.choice([1, 2, 200], p=[0.6, 0.3, 0.1]))
        parents.append(0)
        yield Taxonomy([str(node) for node in range(len(parents) + 1)], [-1, *parents]), rng


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_evidence_gives_no_nan_and_no_mass_is_lost(dtype):
    for tree, rng in random_trees(300, seed=int(np.finfo(dtype).bits)):
        n_decisions = tree.n_decisions
        one_hot = np.zeros(n_decisions)
        one_hot[rng.integers(n_decisions)] = 1e6
        mixed = rng.choice([0, 1e-30, 1, 1e6, 1e30], n_decisions)
        rows = [np.full(n_decisions, e) for e in (0, 1e-30, 1e30)]
        opinion = HyperOpinion.from_evidence(tree, np.array([*rows, one_hot, mixed], dtype=dtype))
        for values in (
            opinion.mass,
            opinion.vacuity,
            opinion.reach,
            opinion.leaf_probability,
            opinion.node_probability,
            opinion.conditional_probability,
        ):
            assert values.dtype == dtype
            assert (values >= 0).all()  # false for NaN
            assert (values <= 1).all()
        assert np.isfinite(opinion.log_leaf_probability).all()
        assert_allclose(opinion.mass.sum(axis=1, dtype=float), 1, rtol=0, atol=1e-6)
        assert_allclose(opinion.leaf_probability.sum(axis=1, dtype=float), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_thousand_levels_lose_no_mass_and_their_logarithm_stays_exact(dtype):
    n_levels = 1000
    # Each level offers a leaf and the way on: the caterpillar tree.
    parents = [-1]
    node = 0
    for _ in range(n_levels):
        parents += [node, node]
        node = len(parents) - 1
    tree = Taxonomy(range(len(parents)), parents)
    assert tree.n_levels == n_levels
    opinion = HyperOpinion.from_evidence(tree, np.full((2, tree.n_decisions), 1.0, dtype=dtype))
    # p = 1/2 everywhere, b = 1/4, u = 1/2.
    depths = tree.depths[tree.leaf_nodes]
    assert_allclose(opinion.log_leaf_probability[0], -depths * math.log(2), rtol=1e-6)
    assert_allclose(opinion.leaf_probability[0, 0], 0.5)
    assert_allclose(opinion.depth_profile[0, :10], 0.5 * 0.25 ** np.arange(10), rtol=1e-6)
    assert_allclose(opinion.mass.sum(axis=1, dtype=float), 1, rtol=0, atol=1e-6)


def test_a_base_rate_of_zero_excludes_a_child_that_has_no_evidence():
    opinion = HyperOpinion.from_evidence(
        Taxonomy.flat(["a", "b", "c"]), [0, 3, 0], base_rate=[0, 0.5, 0.5]
    )
    assert_allclose(opinion.leaf_probability, [[0, 0.75, 0.25]])
    assert_array_equal(opinion.log_leaf_probability[0, 0], -np.inf)


def test_results_keep_the_dtype_and_are_closed_to_writing(tree):
    opinion = HyperOpinion.from_evidence(tree, np.ones((2, 6), dtype=np.float32))
    for name in ("evidence", "mass", "reach", "vacuity", "leaf_probability", "node_probability"):
        values = getattr(opinion, name)
        assert values.dtype == np.float32
        with pytest.raises(ValueError, match="read-only"):
            values[0, 0] = 1
    assert opinion.belief("Boeing").dtype == opinion.depth_profile.dtype == np.float64
    assert HyperOpinion.from_evidence(tree, np.ones(6, dtype=int)).mass.dtype == np.float64


def test_derived_arrays_are_made_once_and_only_when_asked_for(tree):
    opinion = HyperOpinion.from_evidence(tree, np.ones((2, 6)))
    assert "mass" not in vars(opinion)
    assert opinion.mass is opinion.mass
    assert "leaf_probability" not in vars(opinion)


def test_the_evidence_is_copied_unless_asked_not_to(tree):
    evidence = np.ones((2, 6))
    kept, shared = (HyperOpinion.from_evidence(tree, evidence, copy=copy) for copy in (True, False))
    assert not np.shares_memory(kept.evidence, evidence)
    assert np.shares_memory(shared.evidence, evidence)
    assert evidence.flags.writeable


# Several samples ----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(opinion_cases(n_samples=8))
def test_a_row_does_not_depend_on_the_rest_of_the_batch(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    order = [5, 0, 7]
    for part in (
        HyperOpinion.from_evidence(tree, evidence[order], **arguments),
        opinion[order],
        opinion[np.array(order)],
    ):
        for name in ("mass", "reach", "vacuity", "leaf_probability", "depth_profile"):
            assert_allclose(getattr(part, name), getattr(opinion, name)[order], rtol=1e-14)


def test_large_batches_are_computed_in_blocks_with_the_same_result(tree):
    evidence = np.random.default_rng(0).exponential(size=(20_000, 6))
    opinion = HyperOpinion.from_evidence(tree, evidence)
    for row in (0, 5460, 5461, 5462, 19_999):
        assert_allclose(opinion.mass[row], opinion[row].mass[0], rtol=1e-14)
        assert_allclose(opinion.leaf_probability[row], opinion[row].leaf_probability[0], rtol=1e-14)


def test_indexing_is_that_of_an_array(tree):
    evidence = np.arange(30.0).reshape(5, 6)
    opinion = HyperOpinion.from_evidence(tree, evidence)
    assert len(opinion) == 5
    for index in (slice(1, 4), slice(None, None, -2), [0, 0, 3], evidence[:, 0] > 10, slice(0)):
        assert_array_equal(opinion[index].evidence, evidence[index])
    for row in (0, -1, np.int64(2)):
        assert_array_equal(opinion[row].evidence, evidence[row][None])
    assert [float(one.evidence[0, 0]) for one in opinion] == [0, 6, 12, 18, 24]
    with pytest.raises(IndexError, match="out of bounds"):
        opinion[5]
    with pytest.raises(IndexError, match="one axis"):
        opinion[[[0, 1]]]
    with pytest.raises(ValueError, match=r"not in the taxonomy, first \[\(0, 1\)\]"):
        opinion[0, 1]


def test_an_opinion_on_no_sample_has_arrays_without_rows(tree):
    opinion = HyperOpinion.from_evidence(tree, np.empty((0, 6)))
    assert opinion.mass.shape == (0, 7)
    assert opinion.belief("Boeing").shape == (0,)
    assert len(opinion.fuse([])) == 0
    assert len(opinion.to_frame()) == 0
    assert repr(opinion) == "HyperOpinion(0 samples, 4 leaves, 3 branching nodes)"


# Values -------------------------------------------------------------------------------------------


def test_opinions_are_equal_when_all_that_they_are_made_from_is(tree):
    evidence = np.ones((2, 6))
    opinion = HyperOpinion.from_evidence(tree, evidence)
    assert opinion == HyperOpinion.from_evidence(tree, evidence)
    assert opinion != HyperOpinion.from_evidence(tree, 2 * evidence)
    assert opinion != HyperOpinion.from_evidence(tree, evidence, prior_weight=2.5)
    assert opinion != HyperOpinion.from_evidence(tree, evidence, base_rate=[0.4, 0.6] * 3)
    assert opinion != opinion[:1]
    assert opinion != opinion.fuse([0, 1])
    assert opinion.fuse([0, 1]) != opinion.fuse([0, 2])
    assert opinion.fuse([0, 1]) == opinion.fuse([0, 1])
    assert opinion != "opinion"


def test_a_pickled_opinion_is_the_same_without_what_was_derived(opinion):
    assert opinion.mass is not None
    restored = pickle.loads(pickle.dumps(opinion.fuse(["a"])))
    assert restored == opinion.fuse(["a"])
    assert "mass" not in vars(pickle.loads(pickle.dumps(opinion)))
    assert not restored.evidence.flags.writeable


def test_repr_says_how_much_there_is(opinion):
    assert repr(opinion) == (
        "HyperOpinion(1 sample, 4 leaves, 3 branching nodes, mean nonspecificity 0.55)"
    )
    assert repr(opinion[[0, 0, 0]].fuse([1, 2, 2])).startswith("HyperOpinion(2 groups, ")


@pytest.mark.parametrize(
    ("evidence", "error", "message"),
    [
        (np.ones((2, 5)), ValueError, r"shape \(n_samples, 6\).* got shape \(2, 5\)"),
        (np.ones((1, 2, 6)), ValueError, r"got shape \(1, 2, 6\)"),
        ([[1, 1, 1, -1, 1, 1]], ValueError, r"got -1.0 in row 0 .*\('Boeing', '747'\)"),
        ([[1, 1, np.nan, 1, 1, 1]], ValueError, r"got nan in row 0"),
        ([[1, 1, np.inf, 1, 1, 1]], ValueError, r"got inf in row 0 .*1 such value"),
        (np.full((1, 6), np.inf, dtype=np.float32), ValueError, r"got inf .*6 such value"),
        ([["a"] * 6], TypeError, "must hold real numbers"),
    ],
)
def test_bad_evidence_is_refused(tree, evidence, error, message):
    with pytest.raises(error, match=message):
        HyperOpinion.from_evidence(tree, evidence)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"base_rate": [0.5] * 5}, r"base_rate must have shape \(6,\)"),
        ({"base_rate": [0.5, 0.5, 0.5, 0.6, 0.5, 0.5]}, r"got 1.1 at \('Boeing',\)"),
        ({"base_rate": [1.5, -0.5, 0.5, 0.5, 0.5, 0.5]}, "not negative"),
        ({"base_rate": [np.nan] * 6}, "must be finite"),
        ({"prior_weight": 0}, "greater than zero"),
        ({"prior_weight": [1, 2, np.nan]}, "greater than zero"),
        ({"prior_weight": [1, 2]}, r"number or have shape \(3,\)"),
    ],
)
def test_a_bad_prior_is_refused(tree, prior, message):
    with pytest.raises(ValueError, match=message):
        HyperOpinion.from_evidence(tree, np.ones(6), **prior)


def test_only_a_taxonomy_will_do():
    with pytest.raises(TypeError, match="must be a Taxonomy, got dict"):
        HyperOpinion.from_evidence({}, [1])


def test_an_unknown_member_of_a_set_is_named(opinion):
    with pytest.raises(ValueError, match="'737-70' is close to '737-700'"):
        opinion.belief(["737-70"])


# For people ---------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(opinion_cases(n_samples=2))
def test_the_frame_agrees_with_belief_probability_and_plausibility(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    frame = opinion.to_frame()
    n_sets = tree.n_leaves + tree.n_branching
    assert frame["sample"].tolist() == [0] * n_sets + [1] * n_sets
    for position in {0, n_sets // 2, tree.n_leaves, n_sets - 1}:
        focal, row = opinion.focal_sets[position], frame.iloc[n_sets + position]
        assert tree.path(row["focal_set"]) == tree.path(focal)
        assert row["mass"] == opinion.mass[1, position]
        for name in ("belief", "probability", "plausibility"):
            assert_allclose(row[name], getattr(opinion, name)(focal)[1], **EXACT)


def test_the_frame_of_fused_opinions_names_the_groups(opinion):
    frame = opinion[[0, 0]].fuse(["b", "a"]).to_frame()
    assert frame["group"].unique().tolist() == ["a", "b"]
    assert frame["n_leaves"].tolist()[:7] == [1, 1, 1, 1, 4, 3, 2]


def test_one_node_is_read_by_its_label_or_its_path(opinion):
    # By hand: the vacuity of Boeing is 1/3, and 747 is a chain down to one leaf.
    mass, belief, probability, plausibility, vacuity = opinion["Boeing"]
    assert_allclose([mass, belief, probability, plausibility], [[0.2], [0.6], [0.7], [0.8]])
    assert_allclose(vacuity, [1 / 3])
    assert_array_equal(opinion["Boeing", "737"], opinion["737"])
    assert_allclose(opinion["747"].mass, [0.1])
    assert np.isnan(opinion["747"].vacuity)
    with pytest.raises(ValueError, match="'Boing' is close to 'Boeing'"):
        opinion["Boing"]


def test_beliefs_of_a_node_and_its_vacuity_sum_to_one(tree, opinion):
    assert_allclose(opinion.local_belief, [[0.6, 0.2, 0.5, 1 / 6, 0, 0.5]])
    total = np.add.reduceat(opinion.local_belief, tree.decision_offsets[:-1], axis=1)
    assert_allclose(total + opinion.vacuity, 1)


def test_class_probabilities_are_in_the_order_of_the_classes():
    tree = Taxonomy.flat(["dog", "cat"])
    opinion = HyperOpinion.from_evidence(tree, [3, 1])
    assert_allclose(opinion.leaf_probability, [[4 / 6, 2 / 6]])
    assert_allclose(opinion.class_probability, [[2 / 6, 4 / 6]])


def test_the_frame_of_nodes_has_a_row_for_every_sample_and_node(tree, opinion):
    frame = opinion[[0, 0]].to_frame(by="node")
    assert frame["node"].tolist() == tree.labels(np.arange(tree.n_nodes)) * 2
    boeing = frame[(frame["sample"] == 1) & (frame["node"] == "Boeing")].iloc[0]
    numbers = boeing[["mass", "belief", "probability", "plausibility", "vacuity"]]
    assert_allclose(numbers.to_numpy(float), [0.2, 0.6, 0.7, 0.8, 1 / 3])
    with pytest.raises(ValueError, match="by must be 'focal_set' or 'node', got 'leaf'"):
        opinion.to_frame(by="leaf")


def test_the_html_of_an_opinion_is_short_and_escaped():
    opinion = HyperOpinion.from_evidence(Taxonomy.flat(["<b>", "cat"]), [[3, 1]] * 12)
    html = opinion._repr_html_()
    assert html.count("<tr>") == 11
    assert "and 2 more" in html
    assert "<td>&lt;b&gt;</td><td>0.50</td><td>0.67</td><td>0.83</td><td>0.33</td>" in html
    assert "<b>" not in html


def test_the_html_of_a_taxonomy_is_escaped():
    html = Taxonomy.flat(["<b>", "cat"])._repr_html_()
    assert "├── &lt;b&gt;" in html
    assert "<b>" not in html
