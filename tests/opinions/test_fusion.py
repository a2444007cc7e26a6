"""Several opinions on one subject become one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from strategies import opinion_cases

from skh2edl import HyperOpinion, Taxonomy

EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_nested(
        {"Boeing": {"737": ["737-700", "737-800"], "747": None}, "Fokker": None}
    )


@settings(max_examples=30)
@given(opinion_cases(n_samples=1), st.integers(1, 5))
def test_cumulative_fusion_of_equal_opinions_multiplies_the_evidence(case, times):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, np.repeat(evidence, times, axis=0), **arguments)
    expected = HyperOpinion.from_evidence(tree, times * evidence, **arguments)
    assert_allclose(opinion.fuse([7] * times).mass, expected.mass, **EXACT)


@settings(max_examples=30)
@given(opinion_cases(n_samples=1), st.integers(1, 5))
def test_averaging_fusion_of_equal_opinions_changes_nothing(case, times):
    tree, evidence, arguments = case
    one = HyperOpinion.from_evidence(tree, evidence, **arguments)
    fused = one[[0] * times].fuse(["x"] * times, how="averaging")
    assert_allclose(fused.mass, one.mass, **EXACT)


@settings(max_examples=30)
@given(
    opinion_cases(n_samples=6),
    st.permutations(range(6)),
    st.sampled_from(["cumulative", "averaging"]),
)
def test_fusion_does_not_depend_on_the_order_of_the_samples(case, order, how):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    groups = np.array(["b", "a", "b", "c", "a", "b"])
    fused = opinion.fuse(groups, how)
    assert fused.groups.tolist() == ["a", "b", "c"]
    assert_allclose(fused.mass, opinion[order].fuse(groups[order], how).mass, **EXACT)
    rows = {"a": [1, 4], "b": [0, 2, 5], "c": [3]}
    for row, members in enumerate(rows.values()):
        combine = np.sum if how == "cumulative" else np.mean
        assert_allclose(fused.evidence[row], combine(evidence[members], axis=0), rtol=1e-14)


def test_cumulative_fusion_is_the_rule_of_subjective_logic():
    # Jøsang, Subjective Logic (2016), cumulative fusion of two opinions with the same prior:
    # b = (b1 u2 + b2 u1) / (u1 + u2 - u1 u2), u = u1 u2 / (u1 + u2 - u1 u2).
    opinion = HyperOpinion.from_evidence(Taxonomy.flat(["a", "b", "c"]), [[4, 1, 0], [1, 0, 6]])
    (u1,), (u2,) = opinion.vacuity
    b1, b2 = opinion.mass[:, :3]
    fused = opinion.fuse([0, 0])
    total = u1 + u2 - u1 * u2
    assert_allclose(fused.mass[0, :3], (b1 * u2 + b2 * u1) / total)
    assert_allclose(fused.vacuity[0], u1 * u2 / total)


def test_averaging_fusion_is_the_rule_of_subjective_logic():
    # b = (b1 u2 + b2 u1) / (u1 + u2), u = 2 u1 u2 / (u1 + u2).
    opinion = HyperOpinion.from_evidence(Taxonomy.flat(["a", "b", "c"]), [[4, 1, 0], [1, 0, 6]])
    (u1,), (u2,) = opinion.vacuity
    b1, b2 = opinion.mass[:, :3]
    fused = opinion.fuse([0, 0], how="averaging")
    assert_allclose(fused.mass[0, :3], (b1 * u2 + b2 * u1) / (u1 + u2))
    assert_allclose(fused.vacuity[0], 2 * u1 * u2 / (u1 + u2))


def test_fusion_keeps_prior_dtype_and_ids(tree):
    evidence = np.full((3, 6), 3e38, dtype=np.float32)
    opinion = HyperOpinion.from_evidence(tree, evidence, prior_weight=2)
    fused = opinion.fuse([2, 1, 2], how="averaging")
    assert fused.evidence.dtype == np.float32
    assert fused.groups.tolist() == [1, 2]
    assert fused[1:].groups.tolist() == [2]
    assert_array_equal(fused.prior_weight, [2, 2, 2])
    # The sum does not fit float32, so it is kept in float64.
    assert_allclose(opinion.fuse([2, 1, 2]).evidence[1], 6e38, rtol=1e-6)


@pytest.mark.parametrize(
    ("groups", "how", "error", "message"),
    [
        ([1, 2, 3], "cumulative", ValueError, r"one id for each of the 2 sample\(s\)"),
        ([1, None], "cumulative", ValueError, "must not hold missing values"),
        ([1, np.nan], "cumulative", ValueError, "must not hold missing values"),
        (np.array([1, "a"], dtype=object), "averaging", TypeError, "Make them all strings"),
        ([1, 2], "mean", ValueError, "'cumulative' or 'averaging', got 'mean'"),
    ],
)
def test_bad_groups_are_refused(tree, groups, how, error, message):
    with pytest.raises(error, match=message):
        HyperOpinion.from_evidence(tree, np.ones((2, 6))).fuse(groups, how)
