"""The loss in closed form against the sum of its terms, whose gradients torch finds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import taxonomies
from test_heads import TREE, every_node, extreme, make_features, opinion_head
from torch.distributions import Dirichlet, kl_divergence

from skh2edl.heads import EVIDENCE_FUNCTIONS
from skh2edl.layouts import Paths, Ways
from skh2edl.opinion_head import READ_OUTS

OPTIONS = {
    "plain": {},
    "leaf term": {"leaf_weight": 0.1},
    "weights": {"kl_per_child": True, "depth_weights": [1.0, 0.5, 2.0, 3.0]},
    "no divergence": {"kl_weight": 0.0},
}
UNSEEN = np.arange(TREE.n_branching) != 1


def loss_by_distributions(head, features, paths, kl_weight):
    """The objective an opinion at a time, with the divergence of torch.distributions."""
    alpha = head.evidence(features) + head.prior
    losses = [features.sum() * 0] * paths.n_samples
    for segment, (sample, node) in enumerate(
        zip(paths.sample.tolist(), paths.node.tolist(), strict=True)
    ):
        columns = paths.decision[paths.segment == segment]
        own, prior = alpha[sample, columns], head.prior[columns]
        true = paths.target[segment] - (paths.segment < segment).sum()
        risk = own.sum().log() - own[true].log()
        kept = torch.where(torch.arange(len(columns)) == true, prior, own)
        divergence = kl_divergence(Dirichlet(kept), Dirichlet(prior))
        if head.kl_per_child:
            divergence = divergence / len(columns)
        weight = head.depth_weights[node]
        cost = weight * (risk + kl_weight * divergence) + head.leaf_weight * risk
        losses[sample] = losses[sample] + cost
    return torch.stack(losses)


def loss_and_gradients(function, head, features):
    losses = function()
    gradients = torch.autograd.grad(
        (losses * torch.arange(1, len(losses) + 1)).sum(),
        [features, *head.linear.parameters(), head.log_scale],
    )
    return losses, *gradients


def assert_both_agree(head, nodes, features, epochs_done=np.inf):
    paths = head.prepare(nodes)
    kl_weight = head.kl_weight_after(epochs_done)
    ours = loss_and_gradients(lambda: head.loss(features, paths, epochs_done), head, features)
    expected = loss_and_gradients(
        lambda: loss_by_distributions(head, features, head.segments.paths(nodes), kl_weight),
        head,
        features,
    )
    for one, other in zip(ours, expected, strict=True):
        # The derivatives of torch.distributions go through a trigamma of nine digits.
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("read_out", READ_OUTS)
@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("supervised", [None, UNSEEN], ids=["all seen", "one unseen"])
@pytest.mark.parametrize(
    ("cost", "most_leaves"),
    [(0, 256), (10**9, 256), (0, 0), (10**9, 0)],
    ids=["weights first", "logits first", "weights first, large", "logits first, large"],
)
def test_value_and_gradient_are_those_of_torch_distributions(
    read_out, evidence, options, supervised, cost, most_leaves, monkeypatch
):
    monkeypatch.setattr("skh2edl.nested_loss._COST_OF_AN_ADDITION", cost)
    monkeypatch.setattr("skh2edl.segments._MAX_LEAVES_OF_MATRIX", most_leaves)
    head = opinion_head(
        supervised=supervised,
        read_out=read_out,
        evidence=evidence,
        risk="log",
        evidence_scale=3.0,
        learn_evidence_scale=True,
        **{"kl_weight": 0.7, **options},
    )[0]
    features = make_features(2 * TREE.n_nodes).requires_grad_()
    before = [parameter.clone() for parameter in head.parameters()]
    # Every node is a label: leaves, ancestors and the root.
    assert_both_agree(head, np.tile(every_node(), 2), features, epochs_done=5)
    assert all(map(torch.equal, before, head.parameters()))


@settings(max_examples=25)
@given(
    taxonomies(),
    st.integers(0, 1000),
    st.sampled_from(READ_OUTS),
    st.sampled_from([0.0, 1.0]),
)
def test_they_agree_on_random_trees(tree, seed, read_out, kl_weight):
    head = opinion_head(
        tree,
        seed,
        read_out=read_out,
        evidence="exp",
        risk="log",
        kl_weight=kl_weight,
        evidence_scale=0.4,
        learn_evidence_scale=True,
    )[0]
    features = make_features(tree.n_nodes, seed).requires_grad_()
    assert_both_agree(head, every_node(tree), features)


@pytest.mark.parametrize("read_out", READ_OUTS)
@pytest.mark.parametrize("risk", ["log", "squared"])
def test_a_second_derivative_is_refused_and_not_taken_for_zero(read_out, risk):
    head = opinion_head(read_out=read_out, risk=risk, kl_weight=0.0)[0]
    features = make_features(4).requires_grad_()
    loss = head.loss(features, head.prepare(TREE.resolve(["puma", "dog", "root", "fish"])), 0)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss.mean(), features, create_graph=True)


def test_siblings_are_listed_where_the_loss_looks_at_them_alone():
    nested = opinion_head(read_out="nested", risk="log", kl_weight=0.0)[0]
    ways = nested.prepare(TREE.resolve(["puma"]))
    assert type(ways) is Ways
    for options in ({"kl_weight": 0.1}, {"consistency_weight": 0.1}, {"read_out": "nodes"}):
        chosen = {"read_out": "nested", "risk": "log", "kl_weight": 0.0, **options}
        assert type(opinion_head(**chosen)[0].prepare(TREE.resolve(["puma"]))) is Paths
    nested.kl_weight = 1.0
    with pytest.raises(TypeError, match="Prepare them again"):
        nested.loss(make_features(1), ways, np.inf)


def test_a_scale_of_nothing_leaves_its_gradient_finite():
    head = opinion_head(
        read_out="nodes", risk="log", dtype=torch.float32, learn_evidence_scale=True
    )[0]
    with torch.no_grad():
        head.log_scale.fill_(-200.0)
    features = make_features(1, dtype=torch.float32)
    head.loss(features, head.prepare(TREE.resolve(["puma"])), 0).sum().backward()
    assert torch.isfinite(head.log_scale.grad)


@pytest.mark.parametrize("prior_weight", [1e-3, 1.0, 50.0, 1e4])
def test_they_agree_for_any_prior(prior_weight):
    head = opinion_head(read_out="nested", evidence="exp", risk="log", learn_evidence_scale=True)[0]
    head.prior_weight.fill_(prior_weight)
    head.load_state_dict(head.state_dict())
    assert_both_agree(head, every_node(), make_features(TREE.n_nodes).requires_grad_())


@pytest.mark.parametrize("read_out", READ_OUTS)
@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
def test_finite_differences_agree(read_out, evidence):
    head = opinion_head(
        read_out=read_out, evidence=evidence, risk="log", kl_annealing_epochs=0, leaf_weight=0.2
    )[0]
    paths = head.prepare(TREE.resolve(["puma", "dog", "root", "fish"]))
    features = make_features(4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head.loss(x, paths, 0), features)


@pytest.mark.parametrize("read_out", READ_OUTS)
@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
def test_float32_is_close_to_float64_at_the_ends(read_out, evidence):
    """Logits of -1e4 and 1e4, where evidence is 0 or 5e8 and more."""
    nodes = np.tile(every_node(), 8)
    results = []
    for dtype in (torch.float32, torch.float64):
        head = opinion_head(
            dtype=dtype, read_out=read_out, evidence=evidence, risk="log", kl_annealing_epochs=0
        )[0]
        with torch.no_grad():
            features = extreme(head, nodes.size).to(dtype)
        losses = head.loss(features, head.prepare(nodes), 0)
        results.append([losses, *torch.autograd.grad(losses.sum(), list(head.linear.parameters()))])
    for single, double in zip(*results, strict=True):
        assert torch.isfinite(single).all()
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)
