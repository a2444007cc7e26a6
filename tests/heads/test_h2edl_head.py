"""Vacuity is W / S of the evidence of a node's own outputs, and of nothing else."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_heads import make_head as make_plain_head
from strategies import taxonomies

from skh2edl import H2EDLClassifier, HyperOpinion, Prior, Taxonomy
from skh2edl.heads.evidence import EVIDENCE_FUNCTIONS
from skh2edl.heads.h2edl import RISKS, H2EDLHead

PLANES = Taxonomy.from_nested({"Boeing": {"737": ["737-700", "737-800"]}, "Cessna": ["172"]})


def make_head(tree, seed, supervised=True, **options):
    """A head with random weights and priors, in double precision, and its priors."""
    rng = np.random.default_rng(seed)
    base_rate = rng.uniform(0.1, 1, tree.n_decisions)
    base_rate /= np.add.reduceat(base_rate, tree.decision_offsets[:-1])[tree.decision_nodes]
    prior_weight = rng.uniform(0.5, 6, tree.n_branching)
    head = make_plain_head(
        H2EDLHead,
        tree,
        2,
        base_rate,
        prior_weight,
        np.full(tree.n_branching, supervised),
        **options,
    ).double()
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(scale=3, size=parameter.shape)))
        # The head keeps float32; the test knows all digits.
        head.base_rate.copy_(torch.from_numpy(base_rate))
        head.prior_weight.copy_(torch.from_numpy(prior_weight))
    head.load_state_dict(head.state_dict())
    return head, base_rate, prior_weight


def opinion_of(head, base_rate, prior_weight, features):
    with torch.no_grad():
        evidence = head.evidence(features).numpy()
    return HyperOpinion.from_evidence(head.segments.taxonomy, evidence, base_rate, prior_weight)


@settings(max_examples=60)
@given(taxonomies(), st.integers(0, 2**32 - 1), st.sampled_from(sorted(EVIDENCE_FUNCTIONS)))
def test_vacuity_is_the_prior_weight_over_the_strength(tree, seed, evidence):
    head, base_rate, prior_weight = make_head(tree, seed, evidence=evidence, evidence_scale=3.0)
    features = torch.from_numpy(np.random.default_rng(seed).normal(size=(3, 2)))
    opinion = opinion_of(head, base_rate, prior_weight, features)
    weight, bias = (value.detach().numpy() for value in head.linear.parameters())
    for row, logits in enumerate(features.numpy() @ weight.T + bias):
        for position in range(tree.n_branching):
            own = logits[tree.decision_nodes == position]
            total = sum(3.0 * reference.EVIDENCE[evidence](logit) for logit in own)
            expected = prior_weight[position] / (prior_weight[position] + total)
            # The scale is kept as its float32 logarithm.
            assert opinion.vacuity[row, position] == pytest.approx(expected, rel=1e-6)


def test_a_node_without_training_labels_stays_vacuous():
    head, *prior = make_head(PLANES, 0, supervised=False)
    opinion = opinion_of(head, *prior, torch.ones(3, 2, dtype=torch.float64))
    assert (opinion.vacuity == 1).all()


def test_equal_probabilities_of_different_evidence_have_different_vacuity():
    fan_out = np.diff(PLANES.decision_offsets)
    base_rate = (1 / fan_out)[PLANES.decision_nodes]
    head = make_plain_head(
        H2EDLHead, PLANES, 1, base_rate, fan_out * 1.0, fan_out > 0, evidence_scale=2.0
    )
    torch.nn.init.ones_(head.linear.weight)
    torch.nn.init.zeros_(head.linear.bias)
    features = torch.tensor([[-3.0], [4.0]])  # the logits of all children
    opinion = opinion_of(head, base_rate, fan_out * 1.0, features)
    np.testing.assert_allclose(opinion.leaf_probability[0], opinion.leaf_probability[1], rtol=1e-6)
    # Two children with evidence 2 softplus(x) each, and W = 2.
    for row, x in enumerate((-3.0, 4.0)):
        expected = 1 / (1 + 2 * np.log1p(np.exp(x)))
        np.testing.assert_allclose(opinion.vacuity[row], expected, rtol=1e-5)


@pytest.mark.parametrize("risk", RISKS)
@settings(max_examples=25)
@given(tree=taxonomies(), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_a_label_sends_exactly_no_gradient_to_outputs_off_its_path(risk, tree, seed, data):
    node = data.draw(st.integers(0, tree.n_nodes - 1))
    head, *_ = make_head(tree, seed, risk=risk, leaf_weight=1.0, consistency_weight=1.0)
    head.loss(torch.ones(1, 2, dtype=torch.float64), head.prepare([node]), 1.0).sum().backward()
    on_path = {c for _, columns, _ in reference.decisions_to(tree, node) for c in columns}
    # All decisions below an ancestor label are among these.
    off_path = [column for column in range(tree.n_decisions) if column not in on_path]
    assert not head.linear.weight.grad[off_path].any()
    assert not head.linear.bias.grad[off_path].any()
    assert all(head.linear.bias.grad[column] != 0 for column in on_path)


def two_alike(seed=0):
    """Features that tell planes of two makers apart, and nothing of the two 737s."""
    y = np.repeat(["737-700", "737-800", "172"], 40)
    X = np.random.default_rng(seed).normal(size=(120, 4))
    X[:, 0] += 6 * (y == "172")
    return X, y


def evidence_by_hand(clf, X, scale):
    """s * softplus of the linear layer over the centred and scaled features, in numpy."""
    network = clf.network_
    weight, bias, mean, divisor = (
        item.detach().numpy().astype(float)
        for item in (*network.head.linear.parameters(), network.feature_mean, network.feature_scale)
    )
    return scale * np.logaddexp(0, (X - mean) / divisor @ weight.T + bias)


@pytest.mark.parametrize("options", [{}, {"evidence_scale": 1.0, "prior": Prior(weight=2.0)}])
def test_vacuity_of_a_fitted_model_is_that_of_its_linear_layer(options):
    X, y = two_alike()
    clf = H2EDLClassifier(PLANES, backbone=None, **options).fit(X, y)
    evidence = evidence_by_hand(clf, X, options.get("evidence_scale", 300.0))
    opinion = clf.predict_hyper_opinion(X)
    np.testing.assert_allclose(opinion.evidence, evidence, rtol=1e-6)
    # Both nodes have two children, so W is 2 in either case.
    total = np.add.reduceat(evidence, PLANES.decision_offsets[:-1], axis=1)
    np.testing.assert_allclose(opinion.vacuity, 2 / (2 + total), rtol=1e-6)


def test_belief_stops_above_siblings_that_were_never_told_apart():
    X, y = two_alike()
    labels = np.where(y == "172", y, "737")
    clf = H2EDLClassifier(PLANES, backbone=None, prior=Prior(power=1.0)).fit(X, labels)
    assert clf.unsupervised_nodes_ == ["737"]
    opinion = clf.predict_hyper_opinion(X)
    assert (opinion.vacuity[:, 1] == 1).all()
    stops = opinion.mass[:, opinion.focal_sets.index(PLANES.path("737"))]
    np.testing.assert_array_equal(stops, opinion.belief("Boeing"))
    # No label counts for either child, so p = a = 1 / 2.
    _, *kinds = clf.predict_proba(X).T
    np.testing.assert_allclose(kinds[0], kinds[1], rtol=1e-12)
    # Nothing below the label was moved.
    below = PLANES.decision_nodes == 1
    assert not clf.network_.head.linear.weight[below].any()
