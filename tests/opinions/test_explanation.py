"""Opinions in plain sentences."""

import numpy as np
import pytest
from hypothesis import given
from strategies import opinion_cases

from skh2edl import HyperOpinion, Taxonomy


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


def explained(tree, evidence, **prior):
    return HyperOpinion.from_evidence(tree, evidence, **prior).explain()


def test_explaining_no_evidence_names_no_favourite(tree):
    assert explained(tree, np.zeros(6)) == (
        "There is no evidence: all of the belief stays at root. Made to choose a leaf, it could "
        "only follow the base rates."
    )


def test_explaining_a_certain_leaf_is_one_sentence(tree):
    text = explained(tree, [1e9, 0, 1e9, 0, 0, 1e9])
    assert text == (
        "The evidence carries all the way to Boeing > 737 > 737-800 (belief over 0.99)."
    )


def test_explaining_a_leaf_says_where_the_other_belief_is(tree):
    # Boeing 0.8, 737 0.9, 737-800 0.9: belief 0.648.
    text = explained(tree, [16, 2, 18, 0, 0, 18])
    assert text == (
        "The evidence carries all the way to Boeing > 737 > 737-800 (belief 0.65). Of the other "
        "belief, 0.10 stops at root, 0.08 stops at Boeing and 0.10 speaks for Fokker > Fokker 70. "
        "Belief that stops is not committed further; it is not a probability of error."
    )


def test_explaining_a_leaf_names_its_strongest_rival(tree):
    # No belief stops: 737 0.6 (747 0.4), then 737-800 0.9 of that.
    text = explained(tree, [1e9, 0, 6e8, 4e8, 1e8, 9e8])
    assert text == (
        "The evidence carries all the way to Boeing > 737 > 737-800 (belief 0.54). Of the other "
        "belief, 0.46 speaks for something else, first of all 747 > 747-400 (0.40)."
    )


def test_explaining_an_inner_node_says_what_it_cannot_decide_between(tree):
    # Boeing 0.98, 737 0.98: reach 0.9604; u = 2/3 at 737, b = 1/3 for 737-700.
    text = explained(tree, [98, 0, 98, 0, 1, 0])
    assert text == (
        "The evidence carries to Boeing > 737 (belief 0.96). Between 737-700 and 737-800 it "
        "cannot decide, leaning to 737-700 (belief 0.32): 0.64 of the belief stops at 737. Made to "
        "choose a leaf, it would take 737-700 (probability 0.65, most of it from the base rates) "
        "before 737-800 (0.33). Belief that stops is not committed further; it is not a "
        "probability of error."
    )


def test_explaining_conflict_says_divided_not_undecided(tree):
    # Both children of the root have b = 0.49; 737 and 747 are then undecided.
    text = explained(tree, [49, 49, 0, 0, 0, 0])
    assert text == (
        "The evidence does not carry below root. It is divided between Boeing (belief 0.49) and "
        "Fokker > Fokker 70 (belief 0.49); 0.02 of the belief stops at root. Made to choose a "
        "leaf, it would take Fokker 70 (probability 0.50) before 747-400 (0.25). Belief that stops "
        "is not committed further; it is not a probability of error."
    )


def test_explaining_one_favoured_child_says_leans():
    # S = 12.5: b = 0.48, 0.16 and 0.12, u = 0.24.
    tree = Taxonomy.flat(["a", "b", "c"])
    text = explained(tree, [6.0, 2.0, 1.5])
    assert text.startswith(
        "The evidence does not carry below root. It leans to a (belief 0.48); 0.24 of the belief "
        "stops at root. Made to choose a leaf, it would take a (probability 0.56) before b (0.24)."
    )


def test_chains_are_one_step_and_repeated_names_are_written_once():
    tree = Taxonomy.from_paths(
        [("life", "Fokker", "Fokker 70", "Fokker 70"), ("life", "Boeing", "747")]
    )
    text = explained(tree, [8, 0])
    assert text == (
        "The evidence carries all the way to life > Fokker > Fokker 70 (belief 0.80). Of the "
        "other belief, 0.20 stops at life. Belief that stops is not committed further; it is "
        "not a probability of error."
    )
    assert explained(tree, [0, 0]).startswith("There is no evidence: all of the belief stays at l")


def test_a_tie_has_no_favourite():
    tree = Taxonomy.flat([f"class {number}" for number in range(100)])
    text = explained(tree, np.full(100, 0.5))
    assert "Between class 0, class 1, class 2 and 97 more it cannot decide: 0.67 of" in text
    assert (
        "no favourite: class 0, class 1, class 2 and 97 more are equally probable (0.01 each)"
        in text
    )


@given(opinion_cases(n_samples=3))
def test_an_explanation_is_short_and_names_a_node_that_has_the_belief_it_says(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    for row, one in enumerate(opinion):
        text = opinion.explain(row)
        assert text == one.explain()
        assert len(text) < 1000
        assert "nan" not in text
        believed = [node for node in tree.leaves + tree.branching if one.belief(node)[0] > 0.5]
        deepest = max(map(tree.path, believed), key=len)
        # Names repeated in a chain are written once, a long way in short, so compare its end.
        if one.evidence.any() and len(deepest) > 1 and deepest[-1] != deepest[-2]:
            assert deepest[-1] in text.split(" (belief")[0]


def test_a_rival_is_given_its_own_belief_not_that_of_all_others():
    # b 0.0134 and c 0.0032 make 0.0166, which would be written 0.02.
    text = explained(Taxonomy.flat(["a", "b", "c"]), [9.834e8, 1.34e7, 3.2e6])
    assert text.endswith("Of the other belief, 0.01 speaks for b.")


def test_a_lead_that_cannot_be_seen_is_called_hardly_one():
    text = explained(Taxonomy.flat(["a", "b", "c"]), [1.0, 1.002, 0.0])
    assert "it would take b (probability 0.40) hardly before a (nearly the same)." in text
