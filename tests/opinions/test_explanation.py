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


def test_no_evidence_is_said_as_that(tree):
    assert explained(tree, np.zeros(6)) == "Cannot tell: there is no evidence."


def test_a_certain_class_is_one_sentence(tree):
    text = explained(tree, [1e9, 0, 1e9, 0, 0, 1e9])
    assert text == "The evidence carries to Boeing > 737 > 737-800 (belief over 0.99)."


def test_a_class_with_less_belief_is_leant_to_and_the_other_belief_named(tree):
    # Boeing 0.8, 737 0.9, 737-800 0.9: belief 0.648.
    text = explained(tree, [16, 2, 18, 0, 0, 18])
    assert text == (
        "The evidence leans to Boeing > 737 > 737-800 (belief 0.65). Of the other belief, 0.10 "
        "stops at the whole tree, 0.08 stops at Boeing and 0.10 is for Fokker > Fokker 70."
    )


def test_a_class_with_a_rival_among_its_siblings_is_not_carried_to(tree):
    # At 737 the children have b = 0.51 and 0.46.
    text = explained(tree, [1e9, 0, 1e9, 0, 51e7, 46e7])
    assert text.startswith(
        "The evidence carries to Boeing > 737 (belief over 0.99); below, it is 737-700 (belief "
        "0.53) or 737-800 (belief 0.47), and "
    )
    assert "Made to name one variant, it would take 737-700 (probability 0.53)" in text


def test_an_undecided_node_names_what_it_may_be(tree):
    # Boeing 0.98, 737 0.98: reach 0.9604; u = 2/3 at 737, b = 1/3 for 737-700.
    text = explained(tree, [98, 0, 98, 0, 1, 0])
    assert text == (
        "The evidence carries to Boeing > 737 (belief 0.96); below, it may be 737-700 or 737-800, "
        "leaning to 737-700 (belief 0.32). 0.64 of the belief goes no further. Made to name one "
        "variant, it would take 737-700 (probability 0.65, most of it from the base rates) before "
        "737-800 (0.33)."
    )


def test_conflict_at_the_top_cannot_tell(tree):
    # Both children of the root have b = 0.49; 737 and 747 are then undecided.
    assert explained(tree, [49, 49, 0, 0, 0, 0]) == (
        "Cannot tell: it is Boeing (belief 0.49) or Fokker > Fokker 70 (belief 0.49), and 0.02 of "
        "the belief goes no further. Made to name one variant, it would take Fokker 70 "
        "(probability 0.50) before 747-400 (0.25)."
    )


def test_one_favoured_child_is_leant_to():
    # S = 12.5: b = 0.48, 0.16 and 0.12, u = 0.24.
    assert explained(Taxonomy.flat(["a", "b", "c"]), [6.0, 2.0, 1.5]) == (
        "Cannot tell: it leans to a (belief 0.48), and 0.24 of the belief goes no further. Made to "
        "name one class, it would take a (probability 0.56) before b (0.24)."
    )


def test_chains_are_one_step_and_repeated_names_are_written_once():
    tree = Taxonomy.from_paths(
        [("life", "Fokker", "Fokker 70", "Fokker 70"), ("life", "Boeing", "747")]
    )
    assert explained(tree, [8, 0]) == (
        "The evidence leans to life > Fokker > Fokker 70 (belief 0.80). Of the other belief, 0.20 "
        "stops at life."
    )


def test_a_tie_has_no_favourite():
    tree = Taxonomy.flat([f"class {number}" for number in range(100)])
    text = explained(tree, np.full(100, 0.5))
    assert "Cannot tell: it may be class 0, class 1, class 2 or 97 more. 0.67 of" in text
    assert (
        "no favourite: class 0, class 1, class 2 and 97 more are equally probable (0.01 each)"
        in text
    )


@given(opinion_cases(n_samples=3))
def test_what_the_evidence_carries_to_has_the_belief_and_no_rival(case):
    tree, evidence, arguments = case
    opinion = HyperOpinion.from_evidence(tree, evidence, **arguments)
    for row, one in enumerate(opinion):
        text = opinion.explain(row)
        assert text == one.explain()
        assert len(text) < 1000
        assert "nan" not in text
        beliefs = [float(one.belief(child)[0]) for _, child in tree.decisions]
        of_node = {}
        for (node, child), belief in zip(tree.decisions, beliefs, strict=True):
            of_node.setdefault(node, []).append((belief, child))
        # Walk down by the rule, from the numbers alone.
        reached, node = None, tree.branching[0]
        while node in of_node:
            (best, child), *others = sorted(of_node[node], reverse=True)
            if best <= 0.5 or any(other >= best / 2 for other, _ in others):
                break
            reached, node = (
                child,
                tuple(tree.path(tree.label(tree.last_of_chain[tree.node(child)]))),
            )
        head = text.split(" (belief")[0]
        assert text.startswith("Cannot tell") == (reached is None)
        # Names repeated in a chain are written once, a long path in short, so compare its end.
        if reached is not None and (len(node) < 2 or node[-1] != node[-2]):
            assert head.endswith(str(node[-1]))


def test_a_rival_is_given_its_own_belief_not_that_of_all_others():
    # b 0.0134 and c 0.0032 make 0.0166, which would be written 0.02.
    text = explained(Taxonomy.flat(["a", "b", "c"]), [9.834e8, 1.34e7, 3.2e6])
    assert text.endswith("Of the other belief, 0.01 is for b.")


def test_a_lead_that_cannot_be_seen_is_called_hardly_one():
    text = explained(Taxonomy.flat(["a", "b", "c"]), [1.0, 1.002, 0.0])
    assert "it would take b (probability 0.40) hardly before a (nearly the same)." in text
