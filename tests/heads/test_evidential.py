"""The baselines' losses against plain Python, Monte Carlo, linear algebra, and each other."""

import math

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_heads import make_head
from strategies import taxonomies
from torch.distributions import Dirichlet, kl_divergence

from skh2edl import HyperOpinion, Taxonomy
from skh2edl.heads import fisher
from skh2edl.heads.daedl import DAEDLHead
from skh2edl.heads.evidence import EVIDENCE_FUNCTIONS
from skh2edl.heads.evidential import FlatEDLHead, HENNHead, IEDLHead, REDLHead
from skh2edl.heads.fedl import FEDLHead
from skh2edl.heads.h2edl import RISKS, H2EDLHead
from skh2edl.heads.softmax import HXEHead, SoftLabelHead, SoftmaxHead

# A pass-through root, so that groups are on the second level; a group with nodes inside, a group
# of a pass-through chain, and a group that is a leaf.
TREE = Taxonomy.from_nested(
    {
        "all": {
            "cat": {"wild": {"lynx": None, "other": None, "puma": None}, "tom": None},
            "dog": {"dog": {"pug": None, "other": None}},
            "fish": None,
        }
    }
)
GROUPS = [[0, 1, 2, 3], [4, 5], [6]]
N_FEATURES = 4
READINGS = ["marginal", "soft", "drop"]
EVIDENTIAL = [FlatEDLHead, IEDLHead, REDLHead]
WITH_READINGS = [*EVIDENTIAL, DAEDLHead, FEDLHead, HXEHead, SoftLabelHead]
ALL = [*WITH_READINGS, HENNHead]


def make(kind, tree=TREE, seed=0, dtype=torch.float64, **options):
    """A head with random weights, from the start with the full weight of each term."""
    if issubclass(kind, (*EVIDENTIAL, HENNHead)):
        options = {"kl_ramp": 0.0, "kl_per_child": False, **options}
    head = make_head(kind, tree, N_FEATURES, **options).to(dtype)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    return head


def make_features(n_samples, seed=1, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(n_samples, N_FEATURES))).to(dtype)


def losses_and_logits(head, tree=TREE, seed=1):
    """The loss with every node of the tree as label, and the logits behind them."""
    features = make_features(tree.n_nodes, seed)
    ours = head.loss(features, head.prepare(np.arange(tree.n_nodes)), 1.0)
    weight, bias = (value.detach().numpy() for value in (head.linear.weight, head.linear.bias))
    return ours.detach().numpy(), (features.numpy() @ weight.T + bias).tolist()


def check_every_label(head, expected, tree=TREE):
    """Compare with a function of (logits, leaves of the label, node); the root must cost 0."""
    ours, logits = losses_and_logits(head, tree)
    reading = getattr(head, "partial_labels", "marginal")
    for node, row in enumerate(logits):
        inside = reference.leaves_of(tree, node)
        if len(inside) == tree.n_leaves or (reading == "drop" and len(inside) > 1):
            assert ours[node] == 0
        else:
            value = expected(row, inside, node)
            assert ours[node] == pytest.approx(value, rel=1e-9, abs=1e-9), tree.names[node]


# Flat-EDL ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("risk", RISKS)
def test_flat_edl_judges_the_cells_that_a_label_distinguishes(risk, reading):
    # The weight of the KL is divided by the number of leaves.
    options = {"leaf_weight": 0.3, "kl_weight": 0.7 * 7, "kl_per_child": True}
    head = make(FlatEDLHead, risk=risk, partial_labels=reading, **options)

    def expected(logits, inside, node):
        evidence, prior = list(map(reference.softplus, logits)), [1.0] * 7
        e, w, target = reference.flat_cells(evidence, prior, inside, reading)
        alpha = [one + other for one, other in zip(e, w, strict=True)]
        value = reference.soft_risk(risk, alpha, target)
        value += 0.3 * reference.soft_risk("log", alpha, target)
        return value + 0.7 * reference.outside_kl(evidence, prior, inside)

    check_every_label(head, expected)


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("evidence", EVIDENCE_FUNCTIONS)
def test_flat_edl_is_h2edl_on_a_flat_tree(risk, evidence):
    tree = Taxonomy.flat(list("abcde"))
    base_rate = np.array([0.25, 0.125, 0.125, 0.25, 0.25])
    options = {
        "risk": risk,
        "evidence": evidence,
        "leaf_weight": 0.1,
        "kl_weight": 0.5,
        "kl_per_child": True,
        "evidence_scale": 4.0,
    }
    flat = make(FlatEDLHead, tree, prior=2.0 * base_rate, **options)
    ours = make_head(
        H2EDLHead, tree, N_FEATURES, base_rate, np.array([2.0]), np.array([True]), **options
    ).double()
    ours.linear.load_state_dict(flat.linear.state_dict())
    features = make_features(6)
    nodes = np.arange(6)
    torch.testing.assert_close(
        flat.loss(features, flat.prepare(nodes), 1.0),
        ours.loss(features, ours.prepare(nodes), 1.0),
        rtol=1e-9,
        atol=1e-9,
    )
    torch.testing.assert_close(
        flat.leaf_log_probability(features), ours.leaf_log_probability(features)
    )


def test_a_marginal_label_sees_the_dirichlet_of_merged_cells():
    """The merged share of draws from the whole Dirichlet has the loss's expected squared error."""
    head = make(FlatEDLHead, kl_weight=0)
    node = TREE.node("wild")
    features = make_features(1)
    loss = head.loss(features, head.prepare([node]), 1.0).item()
    torch.manual_seed(0)
    draws = Dirichlet(head.evidence(features)[0].detach() + 1).sample((400_000,))
    values = (1 - draws[:, :3].sum(1)).square() + draws[:, 3:].square().sum(1)
    assert abs(loss - values.mean().item()) < 4 * values.std().item() / len(values) ** 0.5


# I-EDL ----------------------------------------------------------------------------------------


def fisher_matrix(alpha):
    """Information matrix of a Dirichlet, by its definition."""
    total = torch.polygamma(1, alpha.sum())
    return torch.diag(torch.polygamma(1, alpha)) - total


@pytest.mark.parametrize("alpha", [[1.0, 1.0], [1.2, 30.0, 4.0, 1.0], [16.0, 15.9, 200.0]])
def test_the_determinant_is_that_of_the_fisher_matrix(alpha):
    values = torch.tensor(alpha, dtype=torch.float64)
    padded = torch.cat([values, torch.ones(2, dtype=torch.float64)])[None]
    present = torch.arange(padded.shape[1])[None] < len(alpha)
    ours = fisher.log_det_fisher(padded, present).item()
    assert ours == pytest.approx(torch.logdet(fisher_matrix(values)).item(), rel=1e-9)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 5e8])
def test_the_determinant_keeps_its_digits_in_float32(size):
    alpha = torch.tensor([[1.0, size, 0.5 * size]], dtype=torch.float64)
    present = torch.ones(1, 3, dtype=torch.bool)
    exact = fisher.log_det_fisher(alpha, present).item()
    assert fisher.log_det_fisher(alpha.float(), present).item() == pytest.approx(exact, rel=1e-5)
    # For large S: psi1(x) -> 1/x, and the rest of the determinant tends to h(1) + 1/2.
    limit = math.log(math.pi**2 / 6) - math.log(size) - math.log(0.5 * size)
    limit += math.log(1 - 6 / math.pi**2 + 0.5) - math.log(1.5 * size)
    assert exact == pytest.approx(limit, rel=10 / size)


@pytest.mark.parametrize("reading", READINGS)
def test_iedl_weighs_errors_by_fisher_information(reading):
    head = make(IEDLHead, partial_labels=reading, kl_weight=0.7, fisher_weight=0.04)

    def expected(logits, inside, node):
        evidence, prior = list(map(reference.softplus, logits)), [1.0] * 7
        e, w, target = reference.flat_cells(evidence, prior, inside, reading)
        alpha = [one + other for one, other in zip(e, w, strict=True)]
        total, value = sum(alpha), 0.7 * reference.outside_kl(evidence, prior, inside)
        for one, y in zip(alpha, target, strict=True):
            p = one / total
            value += ((y - p) ** 2 + p * (1 - p) / (total + 1)) * reference.trigamma(one)
        matrix = fisher_matrix(torch.tensor(alpha, dtype=torch.float64))
        return value - 0.04 * torch.logdet(matrix).item()

    check_every_label(head, expected)


@pytest.mark.parametrize(("n_leaves", "weight"), [(2, 0.05), (40, 0.05), (100, 0.02), (400, 0.005)])
def test_the_weight_of_the_determinant_shrinks_with_the_number_of_leaves(n_leaves, weight):
    tree = Taxonomy.flat(range(n_leaves))
    assert make_head(IEDLHead, tree, 1).fisher_weight == pytest.approx(weight)


# R-EDL ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(("relaxation", "leaf_prior"), [(1.0, 0.1), (0.6, 0.3)])
def test_redl_judges_relaxed_probabilities_without_variance(reading, relaxation, leaf_prior):
    options = {"relaxation": relaxation, "leaf_prior": leaf_prior, "kl_weight": 0.7}
    head = make(REDLHead, partial_labels=reading, **options)
    head.prior.fill_(leaf_prior)  # all digits

    def expected(logits, inside, node):
        evidence, prior = list(map(reference.softplus, logits)), [leaf_prior] * 7
        e, w, target = reference.flat_cells(evidence, prior, inside, reading)
        value = 0.7 * reference.outside_kl(evidence, prior, inside)
        for k, y in enumerate(target):
            rest = sum(one for j, one in enumerate(e) if j != k)
            value += (y - (e[k] + w[k]) / (e[k] + relaxation * rest + leaf_prior * 7)) ** 2
        return value

    check_every_label(head, expected)


def test_relaxed_probabilities_are_divided_by_their_sum():
    head = make(REDLHead, relaxation=0.5, leaf_prior=0.25)
    features = make_features(2)
    evidence = head.evidence(features).detach()
    others = evidence.sum(1, keepdim=True) - evidence
    p = (evidence + 0.25) / (evidence + 0.5 * others + 0.25 * 7)
    ours = head.leaf_log_probability(features).exp()
    torch.testing.assert_close(ours, p / p.sum(1, keepdim=True))
    exact = make(REDLHead, leaf_prior=0.25).leaf_log_probability(features).exp()
    alpha = evidence + 0.25
    torch.testing.assert_close(exact, alpha / alpha.sum(1, keepdim=True))


# HENN ----------------------------------------------------------------------------------------


def henn_masked(alpha, extra, inside):
    """The parameters of the penalty: what the label itself says is taken away."""
    named = [j for j, group in enumerate(GROUPS) if set(group) <= set(inside)]
    if named and len(inside) > 1:
        return alpha, [0.0 if j in named else one for j, one in enumerate(extra)]
    return [1.0 if k in inside else one for k, one in enumerate(alpha)], extra


def test_henn_has_the_published_loss_for_leaves_and_groups_and_the_expected_one_for_others():
    # The weight of the KL is divided by the number of leaves.
    head = make(HENNHead, kl_weight=0.7 * 7, kl_per_child=True)

    def expected(logits, inside, node):
        alpha, extra = reference.henn_parts(logits, GROUPS)
        j = next(j for j, group in enumerate(GROUPS) if inside[0] in group)
        within = sum(alpha[k] for k in GROUPS[j])
        beta = within + extra[j]
        total = sum(alpha) + sum(extra)
        digamma = reference.digamma
        value = digamma(total) - digamma(beta)
        if inside != GROUPS[j]:
            value += digamma(within) - digamma(sum(alpha[k] for k in inside))
        return value + 0.7 * reference.henn_kl(*henn_masked(alpha, extra, inside), GROUPS)

    check_every_label(head, expected)


def test_henn_reads_a_label_above_its_groups_as_their_union():
    groups = TREE.resolve(["wild", "tom", "dog", "fish"])
    head = make(HENNHead, group_nodes=groups, kl_weight=0)
    features = make_features(1)
    leaves, extra = (value.detach() for value in head.evidence(features))
    beta_cat = (leaves[0, :4] + 1).sum() + extra[0, 0]
    total = leaves.sum() + 7 + extra.sum()
    ours = head.loss(features, head.prepare(TREE.resolve(["cat"])), 1.0)
    assert ours.item() == pytest.approx((total.digamma() - beta_cat.digamma()).item(), abs=1e-9)
    # Its penalty takes away c of the one group inside that has a c.
    with_kl = make(HENNHead, group_nodes=groups, kl_weight=1.0)
    added = with_kl.loss(features, head.prepare(TREE.resolve(["cat"])), 1.0) - ours
    alpha = (leaves[0] + 1).tolist()
    kept = [0.0, 0.0, extra[0, 2].item(), 0.0]
    expected = reference.henn_kl(alpha, kept, [[0, 1, 2], [3], [4, 5], [6]])
    assert added.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("label", ["puma", "wild", "cat", "dog", "fish"])
def test_henn_costs_are_expectations_under_the_density_of_the_grouped_dirichlet(label):
    """The density is that of Dir(alpha) times each group's share to the power c."""
    head = make(HENNHead, kl_weight=0)
    features = make_features(1, seed=3)
    node = TREE.node(label)
    loss = head.loss(features, head.prepare([node]), 1.0).item()
    leaves, extra = (value.detach() for value in head.evidence(features))
    torch.manual_seed(0)
    draws = Dirichlet(leaves[0] + 1).sample((400_000,))
    shares = torch.stack([draws[:, group].sum(1) for group in GROUPS], dim=1)
    weight = (extra * shares.log()).sum(1).exp()
    cost = -draws[:, reference.leaves_of(TREE, node)].sum(1).log()
    mean = (weight * cost).sum() / weight.sum()
    error = (weight * (cost - mean)).square().sum().sqrt() / weight.sum()
    assert abs(loss - mean.item()) < 4 * error.item()


@pytest.mark.parametrize("label", ["puma", "cat", "fish"])
def test_henn_costs_are_expectations_under_draws_from_groups_and_within(label):
    """Gamma variables give the shares of groups, and of leaves within each."""
    head = make(HENNHead, kl_weight=0)
    features = make_features(1, seed=4)
    node = TREE.node(label)
    loss = head.loss(features, head.prepare([node]), 1.0).item()
    leaves, extra = (value.detach().numpy()[0] for value in head.evidence(features))
    rng = np.random.default_rng(0)
    alpha = leaves + 1
    within = rng.gamma(alpha, size=(400_000, 7))
    beta = [alpha[group].sum() + extra[j] for j, group in enumerate(GROUPS)]
    share = rng.gamma(beta, size=(400_000, 3))
    share /= share.sum(1, keepdims=True)
    for j, group in enumerate(GROUPS):
        within[:, group] *= share[:, [j]] / within[:, group].sum(1, keepdims=True)
    cost = -np.log(within[:, reference.leaves_of(TREE, node)].sum(1))
    assert abs(loss - cost.mean()) < 4 * cost.std() / len(cost) ** 0.5


def test_henn_with_groups_of_one_leaf_is_evidential_learning_with_the_digamma_risk():
    tree = Taxonomy.flat(list("abcde"))
    henn = make(HENNHead, tree)
    edl = make(FlatEDLHead, tree, risk="digamma")
    with torch.no_grad():
        edl.linear.weight.copy_(henn.linear.weight[:5])
        edl.linear.bias.copy_(henn.linear.bias[:5])
    features, nodes = make_features(6), np.arange(6)
    torch.testing.assert_close(
        henn.loss(features, henn.prepare(nodes), 1.0),
        edl.loss(features, edl.prepare(nodes), 1.0),
        rtol=1e-9,
        atol=1e-9,
    )
    torch.testing.assert_close(
        henn.leaf_log_probability(features), edl.leaf_log_probability(features)
    )


def test_henn_probabilities_and_beliefs():
    head = make(HENNHead)
    _, logits = losses_and_logits(head)
    features = make_features(TREE.n_nodes)
    ours = head.leaf_log_probability(features).exp().detach().numpy()
    masses = head.masses(features).detach().numpy()
    belief, groups, vacuity = masses[:, :7], masses[:, 7:-1], masses[:, -1]
    np.testing.assert_allclose(belief.sum(1) + groups.sum(1) + vacuity, 1, rtol=1e-12)
    for row, (alpha, extra) in enumerate(reference.henn_parts(one, GROUPS) for one in logits):
        expected = reference.henn_probability(alpha, extra, GROUPS)
        np.testing.assert_allclose(ours[row], expected, rtol=1e-9)
        assert vacuity[row] == pytest.approx(7 / (sum(alpha) + sum(extra)))
        assert groups[row] == pytest.approx(np.array(extra) / (sum(alpha) + sum(extra)))


def test_henn_takes_the_first_level_that_decides_and_refuses_other_covers():
    assert make_head(HENNHead, TREE, 1).group.tolist() == [0, 0, 0, 0, 1, 1, 2]
    for labels in (["cat", "dog"], ["cat", "wild", "dog", "fish"], ["dog", "cat", "fish"]):
        with pytest.raises(ValueError, match=r"every leaf once, in tree order.*one level"):
            make_head(HENNHead, TREE, 1, group_nodes=TREE.resolve(labels))


# Softmax over leaves, tree in the loss -----------------------------------------------------------


@pytest.mark.parametrize("reading", READINGS)
def test_hxe_discounts_decisions_by_depth(reading):
    head = make(HXEHead, depth_decay=0.4, partial_labels=reading)
    head.decision_weight.copy_((-0.4 * head.segments.node_depth[head.segments.node].double()).exp())

    def expected(logits, inside, node):
        probability = reference.softmax(logits)
        if reading == "marginal":
            return reference.hxe_loss(TREE, probability, node, 0.4)
        costs = [reference.hxe_loss(TREE, probability, TREE.leaf_nodes[k], 0.4) for k in inside]
        return sum(costs) / len(costs)

    check_every_label(head, expected)


@pytest.mark.parametrize("reading", READINGS)
@settings(max_examples=20)
@given(tree=taxonomies(), seed=st.integers(0, 2**32 - 1))
def test_hxe_without_discount_is_cross_entropy(reading, tree, seed):
    ours = make(HXEHead, tree, seed, depth_decay=0.0, partial_labels=reading)
    theirs = make(SoftmaxHead, tree, seed, partial_labels=reading)
    np.testing.assert_allclose(
        losses_and_logits(ours, tree, seed)[0],
        losses_and_logits(theirs, tree, seed)[0],
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("reading", READINGS)
def test_soft_labels_follow_kinship(reading):
    head = make(SoftLabelHead, sharpness=3.0, partial_labels=reading)

    def expected(logits, inside, node):
        probability = reference.softmax(logits)
        q = reference.kinship(TREE, node, 3.0)
        if reading == "marginal":
            probability, q = (reference.merged(values, inside) for values in (probability, q))
        return -sum(one * math.log(p) for one, p in zip(q, probability, strict=True))

    check_every_label(head, expected)


def test_a_soft_label_written_out():
    # H = 3, the height of "all": lynx itself 0, under wild 1, under cat 2, anything else 3.
    head = make_head(SoftLabelHead, TREE, 1, sharpness=3.0).double()
    q = head.prepare([TREE.node("lynx")]).distribution[0].numpy()
    expected = np.exp([0, -1, -1, -2, -3, -3, -3])
    np.testing.assert_allclose(q, expected / expected.sum(), rtol=1e-12)


@given(tree=taxonomies(), length=st.integers(1, 3))
def test_pass_through_nodes_above_all_leaves_do_not_change_soft_labels(tree, length):
    names = ["root", *(f"top {number}" for number in range(length)), *tree.names[1:]]
    chained = Taxonomy(names, [-1, *range(length), *(tree.parents[1:] + length)])
    for node in range(1, tree.n_nodes):
        below = make_head(SoftLabelHead, chained, 1).prepare([node + length]).distribution
        torch.testing.assert_close(
            below, make_head(SoftLabelHead, tree, 1).prepare([node]).distribution
        )


@pytest.mark.parametrize("reading", READINGS)
@settings(max_examples=20)
@given(tree=taxonomies(), seed=st.integers(0, 2**32 - 1))
def test_sharp_soft_labels_are_cross_entropy(reading, tree, seed):
    ours = make(SoftLabelHead, tree, seed, sharpness=1e4, partial_labels=reading)
    theirs = make(SoftmaxHead, tree, seed, partial_labels=reading)
    np.testing.assert_allclose(
        losses_and_logits(ours, tree, seed)[0],
        losses_and_logits(theirs, tree, seed)[0],
        rtol=1e-9,
        atol=1e-9,
    )


# What all of them keep ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVIDENTIAL)
def test_flat_opinions_are_those_of_the_hyper_opinion_on_a_flat_tree(kind):
    tree = Taxonomy.flat(list("abcde"))
    head = make(kind, tree)
    features = make_features(3)
    masses = head.masses(features).detach().numpy()
    weight = head.prior.sum().item()
    opinion = HyperOpinion.from_evidence(
        tree, head.evidence(features).detach().numpy(), prior_weight=weight
    )
    np.testing.assert_allclose(masses, opinion.mass, rtol=1e-9)
    ours = head.leaf_log_probability(features).exp().detach()
    np.testing.assert_allclose(ours, opinion.leaf_probability, rtol=1e-9)


@pytest.mark.parametrize("kind", ALL)
def test_probabilities_of_the_leaves_sum_to_one(kind):
    total = make(kind).leaf_log_probability(make_features(5)).exp().sum(1)
    np.testing.assert_allclose(total.detach(), 1, rtol=1e-12)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("kind", WITH_READINGS)
def test_gradients_are_right(kind, reading):
    check_gradients(make(kind, partial_labels=reading))


def test_gradients_of_henn_are_right():
    check_gradients(make(HENNHead))


def check_gradients(head):
    targets = head.prepare(np.arange(TREE.n_nodes))
    features = make_features(TREE.n_nodes).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head.loss(x, targets, 1.0), features)


@pytest.mark.parametrize("kind", ALL)
def test_unlabelled_samples_cost_nothing_and_move_nothing(kind):
    for reading in READINGS if kind is not HENNHead else [None]:
        head = make(kind, **({} if reading is None else {"partial_labels": reading}))
        loss = head.loss(make_features(3), head.prepare([0, 0, 0]), 1.0)
        loss.sum().backward()
        assert loss.tolist() == [0, 0, 0]
        assert head.linear.weight.grad.abs().max() == 0
        assert head.loss(make_features(0), head.prepare([]), 1.0).shape == (0,)


@pytest.mark.parametrize("kind", ALL)
def test_samples_do_not_touch_each_other(kind):
    head = make(kind)
    nodes = np.arange(TREE.n_nodes)
    features = make_features(nodes.size)
    together = head.loss(features, head.prepare(nodes), 1.0)
    alone = [head.loss(features[[node]], head.prepare([node]), 1.0) for node in nodes]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [*EVIDENTIAL, DAEDLHead, FEDLHead])
def test_a_dropped_label_sends_no_gradient(kind):
    head = make(kind, partial_labels="drop")
    head.loss(make_features(1), head.prepare(TREE.resolve(["cat"])), 1.0).sum().backward()
    assert head.linear.weight.grad.abs().max() == 0


def extreme_cases():
    for kind in EVIDENTIAL:
        for evidence in EVIDENCE_FUNCTIONS:
            for reading in ("marginal", "soft"):
                yield kind, {"evidence": evidence, "partial_labels": reading}
    for evidence in EVIDENCE_FUNCTIONS:
        yield HENNHead, {"evidence": evidence}
        for risk in ("log", "digamma"):
            yield FlatEDLHead, {"evidence": evidence, "risk": risk}
    for kind in (DAEDLHead, FEDLHead, HXEHead, SoftLabelHead):
        for reading in READINGS:
            yield kind, {"partial_labels": reading}


@pytest.mark.parametrize(("kind", "options"), list(extreme_cases()))
def test_losses_and_gradients_are_finite_for_huge_logits(kind, options):
    head = make(kind, dtype=torch.float32, **options)
    rng = np.random.default_rng(0)
    nodes = np.tile(np.arange(TREE.n_nodes), 8)
    with torch.no_grad():
        values = rng.choice([-1e4, 0.0, 1e4], size=head.linear.weight.shape)
        head.linear.weight.copy_(torch.from_numpy(values))
        head.linear.bias.zero_()
    features = torch.eye(N_FEATURES)[rng.integers(N_FEATURES, size=nodes.size)].requires_grad_()
    loss = head.loss(features, head.prepare(nodes), 1.0)
    loss.sum().backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss).all()
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(head.linear.weight.grad).all()
    log_probability = head.leaf_log_probability(features)
    assert torch.isfinite(log_probability).all()
    with torch.no_grad():
        exact = head.double().loss(features.double(), head.prepare(nodes), 1.0)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ALL)
def test_half_precision_features_are_computed_in_float32(kind):
    head = make(kind, dtype=torch.float32)
    targets = head.prepare(np.arange(TREE.n_nodes))
    features = make_features(TREE.n_nodes, dtype=torch.float16)
    expected = head.loss(features.float(), targets, 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = head.loss(features, targets, 1.0)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("kind", ALL)
def test_targets_move_as_a_whole(kind):
    moved = make(kind).prepare([3, 0, 5]).to(torch.device("meta"))
    tensors, places = list(vars(moved).values()), set()
    while tensors:
        value = tensors.pop()
        if isinstance(value, torch.Tensor):
            places.add(value.device.type)
        else:
            tensors += vars(value).values()
    assert places == {"meta"}


def test_the_reference_divergence_of_henn_is_that_of_its_two_stages():
    """The entropy formula and torch.distributions agree, so neither copies our code's form."""
    alpha, extra = [1.5, 2.0, 4.0, 1.0, 3.0, 1.2, 2.2], [0.7, 3.0, 0.0]
    beta = [sum(alpha[k] for k in group) + extra[j] for j, group in enumerate(GROUPS)]
    stages = kl_divergence(Dirichlet(torch.tensor(beta)), Dirichlet(torch.tensor([4.0, 2.0, 1.0])))
    for group in GROUPS[:2]:
        ones = torch.ones(len(group))
        stages += kl_divergence(Dirichlet(torch.tensor([alpha[k] for k in group])), Dirichlet(ones))
    assert reference.henn_kl(alpha, extra, GROUPS) == pytest.approx(stages.item(), rel=1e-5)
