"""Every head's loss against plain Python, its gradients, and the leaf probabilities it gives."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_heads import make_head
from strategies import taxonomies
from torch import nn

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.heads.evidence import EVIDENCE_FUNCTIONS, LOGIT_OF_EVIDENCE
from skh2edl.heads.h2edl import RISKS, H2EDLHead
from skh2edl.heads.softmax import SoftmaxHead, SoftmaxTreeHead

TREE = Taxonomy.from_nested(
    {
        "all": {
            "cat": {"wild": {"lynx": None, "other": None, "puma": None}, "tom": None},
            "dog": {"dog": {"pug": None, "other": None}},
            "fish": None,
        }
    }
)
N_FEATURES = 4


def opinion_head(tree=TREE, seed=0, dtype=torch.float64, supervised=None, **options):
    """A head with random weights, base rates and prior weights, and those two as arrays."""
    rng = np.random.default_rng(seed)
    base_rate = rng.uniform(0.2, 1, tree.n_decisions)
    base_rate /= np.add.reduceat(base_rate, tree.decision_offsets[:-1])[tree.decision_nodes]
    prior_weight = rng.uniform(0.5, 6, tree.n_branching)
    if supervised is None:
        supervised = np.ones(tree.n_branching, dtype=bool)
    head = make_head(H2EDLHead, tree, N_FEATURES, base_rate, prior_weight, supervised, **options)
    randomise(head, rng, dtype)
    # The head keeps float32; the reference knows all digits.
    head.base_rate.copy_(torch.from_numpy(base_rate))
    head.prior_weight.copy_(torch.from_numpy(prior_weight))
    head.load_state_dict(head.state_dict())
    return head, base_rate, prior_weight


def randomise(head, rng, dtype=torch.float64):
    head.to(dtype)
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    return head


def make_features(n_samples, seed=1, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n_samples, N_FEATURES))).to(dtype)


def logits_of(head, features):
    """The linear layer in numpy."""
    weight, bias = (value.detach().numpy() for value in (head.linear.weight, head.linear.bias))
    return features.numpy() @ weight.T + bias


def every_node(tree=TREE):
    return np.arange(tree.n_nodes)


def heads_of_every_kind(tree=TREE, dtype=torch.float64, seed=0):
    rng = np.random.default_rng(seed)
    opinion = opinion_head(tree, seed, dtype, leaf_weight=0.1, kl_ramp=0.0)[0]
    flat = [
        randomise(
            make_head(SoftmaxHead, tree, N_FEATURES, partial_labels=partial_labels), rng, dtype
        )
        for partial_labels in ("marginal", "soft", "drop")
    ]
    return [opinion, randomise(make_head(SoftmaxTreeHead, tree, N_FEATURES), rng, dtype), *flat]


@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"leaf_weight": 0.1, "consistency_weight": 0.7, "depth_weights": [1.0, 0.5, 2.0, 3.0]},
        {"kl_per_child": False, "evidence_scale": 3.0},
    ],
    ids=["plain", "all terms", "scaled"],
)
def test_the_objective_equals_a_loop_over_the_decisions(evidence, risk, options):
    head, *prior = opinion_head(evidence=evidence, risk=risk, kl_weight=0.8, kl_ramp=0.5, **options)
    nodes = np.tile(every_node(), 2)
    features = make_features(nodes.size)
    ours = head.loss(features, head.prepare(nodes), progress=0.25)
    expected = [
        reference.opinion_tree_loss(
            TREE, row, node, *prior, evidence=evidence, risk=risk, kl_weight=0.4, **options
        )
        for row, node in zip(logits_of(head, features), nodes.tolist(), strict=True)
    ]
    if options.get("evidence_scale"):
        # The scale is kept as its float32 logarithm.
        np.testing.assert_allclose(ours.detach(), expected, rtol=1e-6)
    else:
        np.testing.assert_allclose(ours.detach(), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=30)
@given(taxonomies(), st.integers(0, 2**32 - 1))
def test_the_objective_equals_the_loop_on_random_trees(tree, seed):
    options = {"leaf_weight": 0.3, "consistency_weight": 0.5}
    head, *prior = opinion_head(tree, seed, kl_ramp=0.0, **options)
    features = make_features(tree.n_nodes, seed)
    ours = head.loss(features, head.prepare(every_node(tree)), 0)
    expected = [
        reference.opinion_tree_loss(tree, row, node, *prior, kl_weight=1.0, **options)
        for node, row in enumerate(logits_of(head, features))
    ]
    np.testing.assert_allclose(ours.detach(), expected, rtol=1e-9, atol=1e-9)


def test_cross_entropy_along_the_path_equals_a_loop():
    head = randomise(make_head(SoftmaxTreeHead, TREE, N_FEATURES), np.random.default_rng(0))
    features = make_features(TREE.n_nodes)
    expected = [
        reference.softmax_tree_loss(TREE, row, node)
        for node, row in enumerate(logits_of(head, features))
    ]
    ours = head.loss(features, head.prepare(every_node()), 0)
    np.testing.assert_allclose(ours.detach(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("partial_labels", ["marginal", "soft", "drop"])
def test_flat_cross_entropy_reads_an_ancestor_as_asked(partial_labels):
    head = randomise(
        make_head(SoftmaxHead, TREE, N_FEATURES, partial_labels=partial_labels),
        np.random.default_rng(0),
    )
    features = make_features(TREE.n_nodes)
    ours = head.loss(features, head.prepare(every_node()), 0)
    for node, row in enumerate(logits_of(head, features)):
        probability = np.exp(row) / np.exp(row).sum()
        above = reference.path_to(TREE, node)
        inside = [
            leaf
            for leaf, path in enumerate(map(TREE.path, TREE.leaves))
            if path[: len(above)] == above
        ]
        if len(inside) == TREE.n_leaves:
            expected = 0.0
        elif len(inside) == 1 or partial_labels == "marginal":
            expected = -np.log(probability[inside].sum())
        else:
            expected = 0.0 if partial_labels == "drop" else -np.log(probability[inside]).mean()
        assert ours[node].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_smoothed_labels_of_leaves_cost_what_torch_says():
    options = {"label_smoothing": 0.3}
    head = randomise(make_head(SoftmaxHead, TREE, N_FEATURES, **options), np.random.default_rng(0))
    features = make_features(TREE.n_leaves)
    logits = torch.from_numpy(logits_of(head, features))
    expected = nn.functional.cross_entropy(
        logits, torch.arange(TREE.n_leaves), reduction="none", **options
    )
    ours = head.loss(features, head.prepare(TREE.leaf_nodes), 0)
    np.testing.assert_allclose(ours.detach(), expected, rtol=1e-9)


def test_a_smoothed_ancestor_costs_its_own_part_and_the_uniform_one():
    smoothing, node = 0.3, TREE.resolve(["cat"])
    features = make_features(1)
    costs = [
        randomise(
            make_head(SoftmaxHead, TREE, N_FEATURES, label_smoothing=value),
            np.random.default_rng(0),
        )
        for value in (0.0, smoothing)
    ]
    plain, smoothed = (head.loss(features, head.prepare(node), 0).item() for head in costs)
    uniform = -costs[0].leaf_log_probability(features).mean().item()
    assert smoothed == pytest.approx((1 - smoothing) * plain + smoothing * uniform, rel=1e-9)
    # The root is no label: it costs nothing, smoothed or not.
    assert costs[1].loss(features, costs[1].prepare([0]), 0).item() == 0


def test_smoothed_labels_along_the_path_cost_what_torch_says_of_each_node():
    smoothing = 0.3
    head = randomise(
        make_head(SoftmaxTreeHead, TREE, N_FEATURES, label_smoothing=smoothing),
        np.random.default_rng(0),
    )
    features = make_features(TREE.n_nodes)
    ours = head.loss(features, head.prepare(every_node()), 0)
    for node, row in enumerate(logits_of(head, features)):
        expected = 0.0
        decision = TREE.last_decision[node]
        while decision >= 0:
            parent = TREE.decision_nodes[decision]
            first, stop = TREE.decision_offsets[parent : parent + 2]
            expected += nn.functional.cross_entropy(
                torch.from_numpy(row[first:stop]),
                torch.tensor(decision - first),
                label_smoothing=smoothing,
            ).item()
            decision = TREE.parent_decision[decision]
        assert ours[node].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_all_gradients_are_right():
    for head in heads_of_every_kind():
        targets = head.prepare(every_node())
        features = make_features(TREE.n_nodes).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, h=head, t=targets: h.loss(x, t, 0.6), features)


@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
@pytest.mark.parametrize("risk", RISKS)
def test_gradients_of_each_evidence_function_and_risk_are_right(evidence, risk):
    head = opinion_head(evidence=evidence, risk=risk, kl_ramp=0.0)[0]
    targets = head.prepare(TREE.resolve(["puma", "dog", "root"]))
    features = make_features(3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head.loss(x, targets, 0), features)


def test_evidence_functions_are_softplus_relu_and_an_exponential_up_to_20():
    logits = torch.tensor([-30.0, -5.0, 0.0, 3.0, 19.5, 20.5, 1e4], dtype=torch.float64)
    for name, function in EVIDENCE_FUNCTIONS.items():
        expected = [reference.EVIDENCE[name](logit) for logit in logits.tolist()]
        # torch takes softplus for a straight line beyond 20.
        np.testing.assert_allclose(function(logits), expected, rtol=1e-8)
        largest = function(torch.tensor([1e9, 3e38]))
        assert largest.isfinite().all()


def test_the_consistency_term_moves_vacuity_with_the_probability_held():
    head = opinion_head(kl_weight=0, risk="none", consistency_weight=1.0)[0]
    node = TREE.node("puma")
    features = make_features(1)
    head.loss(features, head.prepare([node]), 0).sum().backward()

    def held(bias):
        """The same term with today's p, as a function of the bias."""
        alpha = nn.functional.softplus(features @ head.linear.weight.T + bias) + head.prior
        total, previous = 0.0, None
        for position, columns, target in reference.decisions_to(TREE, node):
            u = head.prior_weight[position] / alpha[0, columns].sum()
            p = (alpha[0, columns[target]] / alpha[0, columns].sum()).item()
            if previous is not None:
                total = total + previous[1] * (u - previous[0]).clamp(min=0)
            previous = u, p
        return total

    expected = torch.autograd.functional.jacobian(held, head.linear.bias.detach())
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(head.linear.bias.grad, expected)


def test_a_learnt_scale_gets_a_gradient_and_a_fixed_one_none():
    for learnt in (True, False):
        head = opinion_head(learn_evidence_scale=learnt)[0]
        loss = head.loss(make_features(1), head.prepare([TREE.node("puma")]), 0)
        loss.sum().backward()
        assert (head.log_scale.grad is not None) is learnt


def test_an_ancestor_label_sends_no_gradient_below_it():
    above = TREE.resolve(["cat"])
    allowed = {
        column
        for _, columns, _ in reference.decisions_to(TREE, above[0].item())
        for column in columns
    }
    opinion = opinion_head(leaf_weight=1.0, consistency_weight=1.0)[0]
    for head in (opinion, heads_of_every_kind()[1]):
        head.loss(make_features(1), head.prepare(above), 1.0).sum().backward()
        for row in range(TREE.n_decisions):
            moved = head.linear.weight.grad[row].abs().max() + head.linear.bias.grad[row].abs()
            assert (moved > 0) == (row in allowed)


@pytest.mark.parametrize("label", ["cat", "root"])
def test_dropped_labels_send_no_gradient(label):
    head = heads_of_every_kind()[-1]
    loss = head.loss(make_features(2), head.prepare(TREE.resolve([label] * 2)), 0)
    loss.sum().backward()
    assert loss.tolist() == [0, 0]
    assert head.linear.weight.grad.abs().max() == 0


def test_a_batch_of_unlabelled_samples_costs_nothing_and_moves_nothing():
    for head in heads_of_every_kind():
        features = make_features(3).requires_grad_()
        loss = head.loss(features, head.prepare([0, 0, 0]), 1.0)
        loss.sum().backward()
        assert loss.tolist() == [0, 0, 0]
        assert features.grad.abs().max() == 0
        for parameter in head.linear.parameters():
            assert parameter.grad.abs().max() == 0


def test_an_empty_batch_has_an_empty_loss():
    for head in heads_of_every_kind():
        assert head.loss(make_features(0), head.prepare([]), 1.0).shape == (0,)
        assert head.leaf_log_probability(make_features(0)).shape == (0, TREE.n_leaves)


def test_samples_do_not_touch_each_other():
    for head in heads_of_every_kind():
        features = make_features(TREE.n_nodes)
        together = head.loss(features, head.prepare(every_node()), 1.0)
        alone = [head.loss(features[[node]], head.prepare([node]), 1.0) for node in every_node()]
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=1e-12)
        reverse = head.loss(features.flip(0), head.prepare(every_node()[::-1]), 1.0)
        torch.testing.assert_close(together, reverse.flip(0), rtol=1e-12, atol=1e-12)


def extreme(head, n_samples, seed=0):
    """Give logits of -1e4, 0 or 1e4 through the bias of one sample's features."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        values = rng.choice([-1e4, 0.0, 1e4], size=(head.linear.out_features, N_FEATURES))
        head.linear.weight.copy_(torch.from_numpy(values))
        head.linear.bias.zero_()
    return torch.eye(N_FEATURES)[rng.integers(N_FEATURES, size=n_samples)].requires_grad_()


def assert_finite_at_extremes(head):
    nodes = np.tile(every_node(), 8)
    features = extreme(head, nodes.size)
    loss = head.loss(features, head.prepare(nodes), 1.0)
    loss.sum().backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss).all()
    assert torch.isfinite(features.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.linear.parameters())
    log_probability = head.leaf_log_probability(features)
    assert torch.isfinite(log_probability).all()
    torch.testing.assert_close(
        log_probability.exp().sum(1), torch.ones(nodes.size), rtol=1e-5, atol=1e-5
    )
    return loss


@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
@pytest.mark.parametrize("risk", RISKS)
def test_opinions_stay_finite_for_huge_logits(evidence, risk):
    head = opinion_head(
        dtype=torch.float32,
        evidence=evidence,
        risk=risk,
        leaf_weight=0.1,
        consistency_weight=0.1,
        learn_evidence_scale=True,
    )[0]
    loss = assert_finite_at_extremes(head)
    assert torch.isfinite(head.log_scale.grad)
    # Every term is a risk, a divergence or a penalty: below zero is lost digits.
    assert loss.min() > -1e-4


def test_softmaxes_stay_finite_for_huge_logits():
    for head in heads_of_every_kind(dtype=torch.float32)[1:]:
        assert_finite_at_extremes(head)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_are_computed_in_float32(dtype):
    for head in heads_of_every_kind(dtype=torch.float32):
        targets = head.prepare(every_node())
        features = make_features(TREE.n_nodes, dtype=dtype)
        expected = head.loss(features.float(), targets, 1.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = head.loss(features, targets, 1.0)
            log_probability = head.leaf_log_probability(features)
        assert ours.dtype == log_probability.dtype == torch.float32
        assert torch.equal(ours, expected)


def test_a_node_that_was_never_supervised_reports_no_evidence():
    unseen = TREE.branching.index(TREE.path("wild"))
    supervised = np.arange(TREE.n_branching) != unseen
    head, base_rate, prior_weight = opinion_head(supervised=supervised)
    features = make_features(5)
    with torch.no_grad():
        opinion = HyperOpinion.from_evidence(
            TREE, head.evidence(features).numpy(), base_rate, prior_weight
        )
        conditional = head.log_conditional(features).exp().numpy()
    columns = TREE.decision_nodes == unseen
    assert (opinion.evidence[:, columns] == 0).all()
    assert (opinion.evidence[:, ~columns] > 0).all()
    assert (opinion.vacuity[:, unseen] == 1).all()
    np.testing.assert_allclose(conditional[:, columns], np.tile(base_rate[columns], (5, 1)))
    # A held-out label below the node is judged by what is reported there.
    loss = H2EDLHead.loss(head, features, head.prepare([TREE.node("puma")] * 5), 0)
    silent = logits_of(head, features)
    silent[:, columns] = -np.inf
    expected = [
        reference.opinion_tree_loss(TREE, row, TREE.node("puma"), base_rate, prior_weight)
        for row in np.maximum(silent, -700)
    ]
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-9)


@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
@pytest.mark.parametrize("vacuity", [0.01, 0.5, 0.9])
def test_a_new_opinion_has_the_vacuity_asked_for_and_the_base_rates(evidence, vacuity):
    _, base_rate, prior_weight = opinion_head()
    options = {"evidence": evidence, "evidence_scale": 7.0, "initial_vacuity": vacuity}
    supervised = np.ones(TREE.n_branching, dtype=bool)
    fresh = make_head(H2EDLHead, TREE, N_FEATURES, base_rate, prior_weight, supervised, **options)
    features = make_features(2, dtype=torch.float32)
    with torch.no_grad():
        found = fresh.evidence(features).numpy()
        conditional = fresh.log_conditional(features).exp().numpy()
    opinion = HyperOpinion.from_evidence(TREE, found, base_rate, prior_weight)
    np.testing.assert_allclose(opinion.vacuity, vacuity, rtol=1e-5)
    np.testing.assert_allclose(conditional, np.tile(base_rate, (2, 1)), rtol=1e-5)


@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
def test_the_logit_of_an_evidence_gives_that_evidence(evidence):
    wanted = torch.logspace(-6, 6, 25, dtype=torch.float64)
    found = EVIDENCE_FUNCTIONS[evidence](LOGIT_OF_EVIDENCE[evidence](wanted))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=0)


def test_a_new_softmax_is_uniform():
    features = make_features(2, dtype=torch.float32)
    flat = make_head(SoftmaxHead, TREE, N_FEATURES).leaf_log_probability(features)
    np.testing.assert_allclose(flat.detach(), -np.log(TREE.n_leaves), rtol=1e-6)


@given(taxonomies(), st.integers(0, 2**32 - 1))
def test_leaf_probabilities_are_those_of_the_hyper_opinion(tree, seed):
    head, base_rate, prior_weight = opinion_head(tree, seed)
    features = make_features(3, seed)
    with torch.no_grad():
        ours = head.leaf_log_probability(features).exp().numpy()
        evidence = head.evidence(features).numpy()
    np.testing.assert_allclose(ours.sum(1), 1, rtol=1e-12)
    opinion = HyperOpinion.from_evidence(tree, evidence, base_rate, prior_weight)
    np.testing.assert_allclose(ours, opinion.leaf_probability, rtol=1e-9)


@settings(max_examples=30)
@given(taxonomies(), st.integers(0, 2**32 - 1))
def test_softmax_leaf_probabilities_are_products_that_sum_to_one(tree, seed):
    for head in heads_of_every_kind(tree, seed=seed)[1:]:
        with torch.no_grad():
            ours = head.leaf_log_probability(make_features(2, seed)).exp()
        np.testing.assert_allclose(ours.sum(1), 1, rtol=1e-12)
        # The probability of a leaf is what its label costs.
        for leaf, node in enumerate(tree.leaf_nodes.tolist()):
            cost = head.loss(make_features(2, seed), head.prepare([node, node]), 0)
            np.testing.assert_allclose((-cost).exp().detach(), ours[:, leaf], rtol=1e-9)


@pytest.mark.parametrize("risk", ["squared", "log", "digamma"])
def test_on_a_flat_tree_the_objective_is_plain_evidential_learning(risk):
    tree = Taxonomy.flat(["a", "b", "c", "d"])
    n_children = np.array([4.0])
    head = make_head(
        H2EDLHead, tree, N_FEATURES, np.full(4, 0.25), n_children, np.array([True]), risk=risk
    )
    randomise(head, np.random.default_rng(3))
    features = make_features(4)
    ours = head.loss(features, head.prepare(tree.leaf_nodes), progress=1.0).detach()
    for target, row in enumerate(logits_of(head, features)):
        alpha = [reference.softplus(logit) + 1 for logit in row]
        expected = reference.RISKS[risk](alpha, target)
        expected += reference.off_target_kl(alpha, [1.0] * 4, target) / 4
        assert ours[target].item() == pytest.approx(expected, abs=1e-9)


def test_weights_are_stored_and_restored_by_name():
    head = opinion_head(dtype=torch.float32, learn_evidence_scale=True)[0]
    other = opinion_head(seed=5, dtype=torch.float32, learn_evidence_scale=True)[0]
    other.load_state_dict(head.state_dict())
    features = make_features(2, dtype=torch.float32)
    assert torch.equal(head.leaf_log_probability(features), other.leaf_log_probability(features))


def test_what_is_kept_of_each_decision_follows_what_it_comes_from():
    unseen = np.arange(TREE.n_branching) != 1
    head, other = (opinion_head(seed=seed, supervised=unseen)[0] for seed in (0, 5))
    head.load_state_dict(other.state_dict())
    node = head.segments.node
    torch.testing.assert_close(head.prior, other.prior_weight[node] * other.base_rate)
    assert head.is_supervised.tolist() == (node != 1).tolist()
    head.mark_supervised(np.ones(TREE.n_nodes))
    assert head.is_supervised.tolist() == [1.0] * TREE.n_decisions
    single, exact = head.float().prior, head.double().prior
    torch.testing.assert_close(exact, head.prior_weight[node] * head.base_rate, rtol=0, atol=0)
    assert not torch.equal(single.double(), exact)


def test_a_graph_outlives_a_head_that_moves():
    head = opinion_head()[0]
    features = make_features(2).requires_grad_()
    log_p = head.leaf_log_probability(features)
    head.float()
    log_p.sum().backward()
    assert torch.isfinite(features.grad).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "make", [opinion_head, lambda: (make_head(SoftmaxTreeHead, TREE, N_FEATURES),)]
)
def test_a_large_tree_has_the_dense_loss_and_gradients(monkeypatch, make, sparse):
    head, features = make()[0], make_features(TREE.n_nodes)
    randomise(head, np.random.default_rng(3))
    paths = head.prepare(every_node())

    def loss_and_gradients():
        losses = head.loss(features, paths, 1.0)
        return [losses, *torch.autograd.grad(losses.sum(), list(head.linear.parameters()))]

    assert not head.is_large
    dense = loss_and_gradients()
    monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", TREE.n_leaves)
    assert head.is_large
    head.sparse_gradient = sparse
    on_paths = loss_and_gradients()
    assert on_paths[1].is_sparse == sparse
    for ours, expected in zip(on_paths, dense, strict=True):
        ours = ours.to_dense() if ours.is_sparse else ours
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_a_flat_head_is_dense_however_large_the_tree(monkeypatch):
    monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", 1)
    assert not make_head(SoftmaxHead, TREE, N_FEATURES).is_large


def test_only_the_weights_on_the_paths_to_the_labels_are_touched_in_a_large_tree(monkeypatch):
    monkeypatch.setattr("skh2edl.heads.base.LARGE_TREE", 1)
    head = opinion_head()[0]
    head.sparse_gradient = True
    head.loss(make_features(1), head.prepare(TREE.resolve(["pug"])), 1.0).sum().backward()
    touched = head.linear.weight.grad.coalesce().indices().flatten().tolist()
    # "all" chooses between cat, dog and fish; "dog" between pug and other.
    ends = ["all/cat", "all/dog/dog", "fish", "pug", "all/dog/dog/other"]
    assert touched == sorted(TREE.last_decision[TREE.resolve(ends)])
