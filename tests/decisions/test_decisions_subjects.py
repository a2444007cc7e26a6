"""Several photographs of one subject: near-duplicates, conflict and abstention."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import HyperOpinion, Taxonomy, fuse_subjects, predict_subjects, subject_conflict

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
#        cat dog lynx puma fox wolf
LYNX = [40, 0, 30, 0, 0, 0]
PUMA = [40, 0, 0, 30, 0, 0]
FOX = [0, 40, 0, 0, 30, 0]
NOTHING = [0, 0, 0, 0, 0, 0]


def opinion(*rows):
    return HyperOpinion.from_evidence(TREE, np.array(rows, dtype=float))


def test_a_burst_counts_once():
    rng = np.random.default_rng(0)
    burst = np.tile(rng.normal(size=8), (10, 1)) + 0.01 * rng.normal(size=(10, 8))
    features = np.vstack([burst, [-burst.mean(axis=0)]])
    photographs = opinion(*[PUMA] * 10, LYNX)
    fused = fuse_subjects(photographs, [0] * 11, features=features)
    np.testing.assert_allclose(fused.evidence, opinion(np.add(PUMA, LYNX)).evidence, rtol=1e-12)
    # Without features the ten outvote the one.
    plain = fuse_subjects(photographs, [0] * 11)
    assert plain.probability("puma") > 0.85 > 0.55 > fused.probability("puma")
    other = fuse_subjects(photographs, [*range(10), 0], features=features)
    np.testing.assert_allclose(other.evidence[1:], photographs.evidence[1:10])


def test_the_rest_of_the_photographs_keep_their_dependence():
    features = np.array([[1.0, 0], [1, 1e-3], [0, 1]])
    photographs = opinion(LYNX, LYNX, PUMA)
    fused = fuse_subjects(photographs, ["a"] * 3, 0.5, features=features)
    # 1 / (n + (k - n) / 2) with n = 2 and 1 of k = 3.
    expected = 2 / 2.5 * np.array(LYNX) + 1 / 2 * np.array(PUMA)
    np.testing.assert_allclose(fused.evidence[0], expected)


@pytest.mark.parametrize("dependence", [0, 0.3, 1])
def test_the_threshold_decides_what_is_a_near_duplicate(dependence):
    features = np.array([[1.0, 0], [np.cos(0.5), np.sin(0.5)]])
    photographs = opinion(LYNX, LYNX)
    apart, alike = (
        fuse_subjects(
            photographs, [1, 1], dependence, features=features, near_duplicate=np.cos(angle)
        )
        for angle in (0.4, 0.6)
    )
    np.testing.assert_allclose(alike.evidence[0], LYNX)
    np.testing.assert_allclose(apart.evidence[0], np.array(LYNX) * 2 / (1 + dependence))


def test_conflict_is_the_degree_of_conflict_of_subjective_logic():
    # At the root both believe with 40 / 42 in opposite children: p = 41 / 42 and 1 / 42.
    conflict = subject_conflict(opinion(LYNX, FOX), ["a", "a"])
    np.testing.assert_allclose(conflict, [[40 / 42 * (40 / 42) ** 2, 0, 0]])
    # At the cat, which both reach, with 30 / 32; p = 31 / 32 and 1 / 32.
    reach = (40 / 42) ** 2
    conflict = subject_conflict(opinion(LYNX, PUMA), ["a", "a"])
    np.testing.assert_allclose(conflict, [[0, reach * 30 / 32 * (30 / 32) ** 2, 0]])


def test_one_photograph_and_no_evidence_are_no_conflict():
    conflict = subject_conflict(opinion(LYNX, LYNX, PUMA, NOTHING), ["a", "a", "b", "a"])
    np.testing.assert_allclose(conflict, 0, atol=1e-12)


def test_conflict_of_several_is_the_mean_over_pairs_and_a_burst_is_one():
    pair = subject_conflict(opinion(LYNX, FOX), [0, 0])
    three = subject_conflict(opinion(LYNX, LYNX, FOX), [0] * 3)
    np.testing.assert_allclose(three, pair * 2 / 3)
    features = np.array([[1.0, 0], [1, 0], [0, 1]])
    burst = subject_conflict(opinion(LYNX, LYNX, FOX), [0] * 3, features=features)
    # Pairs weigh 1/4, 1/2 and 1/2.
    np.testing.assert_allclose(burst, pair * 4 / 5)


@given(rows=st.lists(st.lists(st.floats(0, 1e6), min_size=6, max_size=6), min_size=2, max_size=5))
def test_conflict_lies_between_0_and_1_whatever_the_order(rows):
    photographs = opinion(*rows)
    conflict = subject_conflict(photographs, [0] * len(rows))
    assert (conflict >= 0).all()
    assert (conflict <= 1).all()
    turned = subject_conflict(photographs[::-1], [0] * len(rows))
    np.testing.assert_allclose(turned, conflict, atol=1e-9)


def test_a_prediction_stops_where_photographs_conflict_and_where_they_are_unclear():
    photographs = opinion(LYNX, LYNX, LYNX, PUMA, LYNX, FOX, NOTHING)
    subjects = ["agree", "agree", "kind", "kind", "family", "family", "nothing"]
    found = predict_subjects(photographs, subjects)
    assert dict(zip(found.groups.tolist(), found.labels.tolist(), strict=True)) == {
        "agree": "lynx",
        "kind": "cat",
        "family": "root",
        "nothing": "root",
    }
    rows = found.groups.tolist()
    assert found.conflict[rows.index("agree")] < 1e-9
    assert found.conflict[rows.index("family")] > 0.8
    expected = fuse_subjects(photographs, subjects)
    assert found.opinion == expected
    at = rows.index("kind")
    assert found.probability[at] == pytest.approx(expected.probability("cat")[at])
    # Bounds that every node passes lead to a leaf.
    leaves = predict_subjects(photographs, subjects, min_probability=0, max_conflict=1).labels
    assert set(leaves) <= set(TREE.leaves)


def test_a_chain_above_the_first_decision_is_no_prediction():
    tree = Taxonomy.from_nested({"animal": {"cat": ["lynx", "puma"], "dog": None}})
    photographs = HyperOpinion.from_evidence(tree, [[0, 0, 0, 0], [50, 0, 0, 0]])
    assert predict_subjects(photographs, [0, 1]).labels.tolist() == ["root", "cat"]


@pytest.mark.parametrize("features", [np.ones(3), np.ones((2, 4))])
def test_features_of_other_photographs_are_refused(features):
    with pytest.raises(ValueError, match="one row for each of the 3 photographs"):
        subject_conflict(opinion(LYNX, LYNX, FOX), [0, 0, 0], features=features)


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan, "0.5", None, True])
@pytest.mark.parametrize("name", ["min_probability", "max_conflict", "near_duplicate"])
def test_bounds_are_numbers_from_0_to_1(name, value):
    functions = [predict_subjects]
    if name == "near_duplicate":
        functions += [fuse_subjects, subject_conflict]
    for function in functions:
        with pytest.raises(ValueError, match=f"{name} must be a number from 0 to 1, got"):
            function(opinion(LYNX, FOX), [0, 0], **{name: value})


@pytest.mark.parametrize("features", [None, np.empty((0, 4))])
def test_no_photographs_have_no_subjects(features):
    nothing = opinion(LYNX)[:0]
    assert len(fuse_subjects(nothing, [], features=features)) == 0
    assert subject_conflict(nothing, [], features=features).shape == (0, 3)
    found = predict_subjects(nothing, [], features=features)
    assert [len(part) for part in found] == [0] * 5


def test_exact_duplicates_are_near_duplicates_at_1():
    features = np.repeat(np.random.default_rng(0).normal(size=(20, 7)), 2, axis=0)
    photographs = opinion(*[LYNX] * 40)
    groups = np.arange(40) // 2
    for own in (features, features.astype(np.float32)):
        fused = fuse_subjects(photographs, groups, features=own, near_duplicate=1.0)
        np.testing.assert_allclose(fused.evidence, [LYNX] * 20)
