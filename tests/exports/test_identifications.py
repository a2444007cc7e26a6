"""What is exported: nodes, thresholds by rank, fusion, candidates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from skh2edl import HedgedClassifier, HyperOpinion, Taxonomy, fuse_subjects
from skh2edl.exports import Identifications
from tests.exports.exports_cases import IDS, LABELS, TREE, identified, opinion
from tests.strategies import taxonomies


def test_thresholds_by_rank_stop_at_the_deepest_rank_that_reaches_its_own():
    found = identified()
    assert found.labels == LABELS
    assert found.levels == ["species", "genus", "family", "family", ""]
    own = opinion()
    for row, label in enumerate(LABELS):
        assert found.probability[row] == pytest.approx(own[row].probability(label)[0])


def test_a_family_with_one_species_stays_a_family():
    labels = ["Canidae", "Vulpes", "Vulpes vulpes", "blank", "root"]
    assert identified(labels=labels, thresholds=None).labels == labels


@given(taxonomies(), st.data())
def test_a_climbed_node_is_enough_and_what_lies_below_it_is_not(tree, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    proba = rng.dirichlet(np.full(tree.n_leaves, 0.3), size=4)
    needed = {d: data.draw(st.floats(0, 1)) for d in range(1, tree.n_levels + 1)}
    start = Identifications.from_proba(proba, tree, range(4))
    found = Identifications.from_proba(proba, tree, range(4), thresholds=needed)
    for row in range(4):
        # By hand, from the leaf upwards.
        node = int(start.nodes[row])
        while node and start.node_probability[row, node] < needed[int(tree.depths[node])]:
            node = int(tree.parents[node])
        assert found.nodes[row] == node


def test_a_level_without_a_threshold_takes_that_of_the_next_below():
    one = identified(thresholds={"species": 0.8})
    all_alike = identified(thresholds={"species": 0.8, "genus": 0.8, "family": 0.8})
    assert one.labels == all_alike.labels
    above = identified(thresholds={"family": 0.6})
    assert above.labels == identified(thresholds=dict.fromkeys(TREE.level_names, 0.6)).labels


def test_thresholds_only_climb_so_that_a_guarantee_holds():
    rng = np.random.default_rng(0)
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    y = rng.choice(tree.leaves, 1200)
    X = rng.normal(size=(1200, 2)) + tree.resolve(y)[:, None]
    base = GaussianNB().fit(X[:200], y[:200])
    hedged = HedgedClassifier(FrozenEstimator(base), 0.9, taxonomy=tree).fit(X[200:700], y[200:700])
    plain = Identifications.from_estimator(hedged, X[700:])
    strict = Identifications.from_estimator(hedged, X[700:], thresholds={2: 0.97})
    assert plain.labels == hedged.predict(X[700:]).tolist()
    truth = tree.resolve(y[700:])

    def right(found):
        return (tree.leaf_start[found.nodes] <= tree.leaf_start[truth]) & (
            tree.leaf_start[truth] < tree.leaf_stop[found.nodes]
        )

    assert (tree.depths[strict.nodes] <= tree.depths[plain.nodes]).all()
    assert (tree.depths[strict.nodes] < tree.depths[plain.nodes]).any()
    assert (right(strict) >= right(plain)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": {}}, "thresholds must name at least one level"),
        ({"thresholds": {0: 0.5}}, "not the root, got {0: 0.5}"),
        ({"thresholds": {"species": 1.5}}, r"between 0 and 1, got 1\.5 for level 'species'"),
        ({"thresholds": {"order": 0.5}}, "no level 'order'"),
        ({"labels": ["blank"]}, "one label for each of 5 images, got 1"),
        ({"labels": LABELS, "candidates": "Felidae"}, "cannot both be given"),
        ({"opinion": opinion()[:2]}, "opinion must hold 5 opinions"),
        ({"candidates": ["Lynx pardinus"]}, "candidates must name nodes"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        identified(**options)


@pytest.mark.parametrize(
    ("ids", "message"),
    [(["a", "a"], "'a' is there twice"), (["a"], "name each of 2 images, got 1")],
)
def test_ids_name_each_image_once(ids, message):
    with pytest.raises(ValueError, match=message):
        Identifications.from_proba([[0.5, 0.5]] * 2, Taxonomy.flat(["x", "y"]), ids)


def test_images_of_an_event_are_fused_as_opinions():
    groups = ["e1", "e1", "e2", "e2", "e3"]
    fused = identified().fuse(groups, dependence=0.5)
    expected = fuse_subjects(opinion(), groups, 0.5)
    assert fused.ids == ("e1", "e2", "e3")
    np.testing.assert_allclose(fused.leaf_probability, expected.leaf_probability, rtol=1e-12)
    # Two images at ρ = 0.5 count as 4/3 of their mean: 63 and 2 for the two lynxes together.
    lynx = expected.conditional_probability[0, TREE.n_decisions - 2]
    assert lynx == pytest.approx((63 / 2 * 4 / 3 + 1) / ((65 / 2) * 4 / 3 + 2))
    # Blank has (30 · 2/3 + 1) / (40 · 2/3 + 3) = 0.71, more than the 0.6 asked of its level.
    assert fused.labels == ["Lynx lynx", "blank", "root"]


def test_without_opinions_the_probabilities_of_an_event_are_averaged():
    found = identified(opinion=None)
    fused = found.fuse(["x", "y", "x", "y", "y"])
    np.testing.assert_allclose(fused.leaf_probability[0], found.leaf_probability[[0, 2]].mean(0))
    assert fused.vacuity is None
    assert fused.nonspecificity is None


def test_candidates_condition_single_images_and_events():
    park = ["Lynx rufus", "Canidae"]
    found = identified(candidates=park, thresholds=None)
    own = opinion()
    inside = own.probability("Lynx rufus") + own.probability("Canidae")
    column = list(TREE.leaves).index("Lynx rufus")
    np.testing.assert_allclose(
        found.leaf_probability[:, column], own.probability("Lynx rufus") / inside
    )
    fused = found.fuse(["x"] * 5)
    together = own.fuse(["x"] * 5)
    expected = together.probability("Lynx rufus") / (
        together.probability("Lynx rufus") + together.probability("Canidae")
    )
    np.testing.assert_allclose(fused.leaf_probability[:, column], expected)
    assert set(fused.labels) <= {"Lynx rufus", "Vulpes vulpes"}


def test_an_image_that_is_hardly_a_candidate_is_pointed_out():
    proba = [[0.9, 0.1, 0.0], [0.001, 0.999, 0.0]]
    with pytest.warns(UserWarning, match=r"1 of 2 sample\(s\) .* sample 1 with 0\.001") as caught:
        Identifications.from_proba(
            proba, Taxonomy.flat(["a", "b", "c"]), "xy", candidates=["a", "c"]
        )
    assert caught[0].filename == __file__


def test_vacuity_is_that_of_the_last_decision():
    found = identified()
    # W / S: 2 / 62 at Lynx, 2 / 42 at Felidae, 3 / 13 at the root, 3 / 33 and 3 / 3.
    np.testing.assert_allclose(found.vacuity, [2 / 62, 2 / 42, 3 / 13, 3 / 33, 1])
    np.testing.assert_allclose(found.nonspecificity, opinion().nonspecificity)


def test_files_name_themselves_and_other_samples_are_numbered():
    class Reads:
        classes_ = np.array(["cat", "dog"])

        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

        def predict(self, X):
            return np.full(len(X), "cat")

    assert Identifications.from_estimator(Reads(), ["1.jpg", "2.jpg"]).ids == ("1.jpg", "2.jpg")
    assert Identifications.from_estimator(Reads(), np.zeros((2, 3))).ids == ("0", "1")


def test_opinions_are_read_where_a_classifier_has_any():
    class Reads:
        taxonomy_ = TREE
        classes_ = TREE.sorted_leaf_labels

        def predict_hyper_opinion(self, X):
            return opinion()

        def predict_proba(self, X):
            return opinion().leaf_probability[:, TREE.leaf_order]

        def predict(self, X):
            return np.array(LABELS)

    found = Identifications.from_estimator(Reads(), IDS)
    assert isinstance(found.opinion, HyperOpinion)
    assert found.labels == LABELS
