"""Evidence that all children of a node share counts as doubt, and moves no probability."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import H2EDLClassifier, HyperOpinion, Taxonomy
from skh2edl.opinion_head import READ_OUTS, OpinionTreeHead

PLANES = Taxonomy.from_nested({"Boeing": {"737": ["737-700", "737-800"]}, "Cessna": ["172"]})


def make_opinions(tree, seed, dtype=torch.float64, supervised=True, **options):
    """Opinions of one head on three samples, with shared evidence as belief and as doubt."""
    rng = np.random.default_rng(seed)
    base_rate = rng.uniform(0.1, 1, tree.n_decisions)
    base_rate /= np.add.reduceat(base_rate, tree.decision_offsets[:-1])[tree.decision_nodes]
    prior_weight = rng.uniform(0.5, 6, tree.n_branching)
    head = OpinionTreeHead(
        tree, 2, base_rate, prior_weight, np.full(tree.n_branching, supervised), **options
    ).to(dtype)
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(scale=3, size=parameter.shape)))
        head.base_rate.copy_(torch.from_numpy(base_rate))
        head.prior_weight.copy_(torch.from_numpy(prior_weight))
        features = torch.from_numpy(rng.normal(size=(3, 2))).to(dtype)
        found = []
        for head.shared_evidence in ("belief", "doubt"):
            evidence = head.evidence(features).numpy()
            found.append(HyperOpinion.from_evidence(tree, evidence, base_rate, prior_weight))
    return *found, base_rate


def conditional(opinion, base_rate):
    """p of every decision, from belief and vacuity."""
    tree = opinion.taxonomy
    strength = opinion.prior_weight / opinion.vacuity
    belief = opinion.evidence / strength[:, tree.decision_nodes]
    return belief + base_rate * opinion.vacuity[:, tree.decision_nodes]


@settings(max_examples=60)
@given(
    taxonomies(),
    st.integers(0, 2**32 - 1),
    st.sampled_from(READ_OUTS),
    st.sampled_from(["exp", "softplus"]),
)
def test_the_vacuity_is_the_largest_that_goes_with_the_probabilities(
    tree, seed, read_out, evidence
):
    belief, doubt, base_rate = make_opinions(tree, seed, read_out=read_out, evidence=evidence)
    p = conditional(belief, base_rate)
    np.testing.assert_allclose(conditional(doubt, base_rate), p, rtol=1e-9)
    np.testing.assert_allclose(doubt.leaf_probability, belief.leaf_probability, rtol=1e-9)
    # Jøsang (2016): the vacuity of an opinion is at most the least p / a.
    most = np.minimum.reduceat(p / base_rate, tree.decision_offsets[:-1], axis=1)
    np.testing.assert_allclose(doubt.vacuity, most, rtol=1e-9)
    assert (doubt.vacuity >= belief.vacuity * (1 - 1e-12)).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_in_single_precision_no_evidence_is_negative_and_probabilities_stay(scale):
    belief, doubt, _ = make_opinions(PLANES, 0, torch.float32, evidence_scale=scale)
    assert (doubt.evidence >= 0).all()
    np.testing.assert_allclose(doubt.leaf_probability, belief.leaf_probability, rtol=1e-5)


def test_a_node_without_training_labels_stays_vacuous():
    _, doubt, _ = make_opinions(PLANES, 0, supervised=False)
    assert (doubt.vacuity == 1).all()


def two_alike(seed=0):
    """Features that tell planes of two makers apart, and nothing of the two 737s."""
    y = np.repeat(["737-700", "737-800", "172"], 40)
    X = np.random.default_rng(seed).normal(size=(120, 4))
    X[:, 0] += 6 * (y == "172")
    return X, y


def test_belief_stops_above_siblings_that_nothing_tells_apart():
    X, y = two_alike()
    opinion = H2EDLClassifier(PLANES, backbone=None).fit(X, y).predict_hyper_opinion(X[:80])
    stops = opinion.mass[:, opinion.focal_sets.index(PLANES.path("737"))]
    assert stops.mean() > 0.8
    assert opinion.belief("Boeing").mean() > 0.95


def test_probabilities_and_weights_do_not_depend_on_what_shared_evidence_is():
    X, y = two_alike()
    belief, doubt = (
        H2EDLClassifier(PLANES, backbone=None, shared_evidence=kind).fit(X, y)
        for kind in ("belief", "doubt")
    )
    np.testing.assert_array_equal(belief.predict_proba(X), doubt.predict_proba(X))
    ours, theirs = (clf.predict_hyper_opinion(X).nonspecificity for clf in (doubt, belief))
    assert ours.mean() > 0.5 > 0.1 > theirs.mean()


def test_the_papers_form_reports_evidence_as_it_is_counted():
    X, y = two_alike()
    clf = H2EDLClassifier(PLANES, backbone=None, preset="paper").fit(X, y)
    with torch.no_grad():
        logits = clf.network_.head.read_out(clf.network_.features(torch.from_numpy(X).float()))
    evidence = np.log1p(np.exp(logits.numpy().astype(float)))
    np.testing.assert_allclose(clf.predict_hyper_opinion(X).evidence, evidence, rtol=1e-4)
