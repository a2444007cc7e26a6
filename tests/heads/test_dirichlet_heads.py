"""DAEDL and F-EDL against plain Python, scikit-learn, draws, and the figures of their authors."""

import numpy as np
import pytest
import reference
import torch
from plain_heads import make_head
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from skh2edl import Taxonomy
from skh2edl.heads.daedl import DAEDLHead
from skh2edl.heads.evidential import REDLHead
from skh2edl.heads.fedl import FEDLHead

TREE = Taxonomy.from_nested(
    {"all": {"cat": {"wild": ["lynx", "puma"], "tom": None}, "dog": ["pug", "fox"], "fish": None}}
)
READINGS = ["marginal", "soft", "drop"]
# Of three classes and three samples: logits, labels, and what the authors' code makes of them.
LOGITS = [[0.5, -1.0, 2.0], [3.0, 0.2, -0.7], [-2.0, -1.5, 0.1]]
LABELS = ["c", "b", "a"]
FLAT = Taxonomy.flat(list("abc"))


def fixed(kind, logits, **options):
    """A head whose logits are given: the features choose the row."""
    head = make_head(kind, FLAT, len(logits), **options).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor(logits, dtype=torch.float64).T)
    return head, torch.eye(len(logits), dtype=torch.float64)


def random_head(kind, tree=TREE, n_features=4, **options):
    head = make_head(kind, tree, n_features, **options).double()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in head.linear.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape)))
    features = torch.from_numpy(rng.normal(size=(tree.n_nodes, n_features)))
    return head, features, head.logits(features).tolist()


def losses_of_every_label(head, features, tree=TREE):
    return head.loss(features, head.prepare(np.arange(tree.n_nodes)), 1.0).tolist()


def teaches(inside, reading, tree=TREE):
    return len(inside) < tree.n_leaves and (reading != "drop" or len(inside) == 1)


def test_re_edl_has_the_loss_of_its_authors_code():
    head, features = fixed(REDLHead, LOGITS, leaf_prior=0.8, kl_weight=0.0, initial_vacuity=0.5)
    torch.nn.init.zeros_(head.linear.bias)
    loss = head.loss(features, head.prepare(FLAT.resolve(LABELS)), 1.0)
    expected = [0.3763692644448473, 0.944785983154056, 0.8183426549646635]
    # A prior is held in single precision.
    np.testing.assert_allclose(loss.tolist(), expected, rtol=1e-7)


# DAEDL ------------------------------------------------------------------------------------------


def test_daedl_has_the_loss_of_its_authors_code():
    head, features = fixed(DAEDLHead, LOGITS, kl_weight=0.05)
    loss = head.loss(features, head.prepare(FLAT.resolve(LABELS)), 1.0)
    expected = [0.1673712896707122, 1.964833050032812, 1.6873468111183387]
    # They add 1e-6 twice to what the divergence is taken of.
    np.testing.assert_allclose(loss.tolist(), expected, rtol=2e-6)


def test_daedl_tempers_its_logits_as_its_authors_code():
    head, features = fixed(DAEDLHead, LOGITS)
    # One Gaussian whose log-densities are -3, -9 and -5.5, with a range of -8 to -2 in training.
    precision = torch.tensor([6.0, 18.0, 11.0], dtype=torch.float64)
    with torch.no_grad():
        head.has_density[0] = 1
        head.whitening.copy_(torch.diag(precision.sqrt()))
        head.density_range.copy_(torch.tensor([-8.0, -2.0]) + precision.log().sum() / 2)
    expected = [
        [0.20934307548219694, 0.059977795315114275, 0.7306791292026887],
        [1 / 3, 1 / 3, 1 / 3],
        [0.21595944924155291, 0.26598076347414423, 0.5180597872843028],
    ]
    probability = head.leaf_log_probability(features).exp().detach()
    np.testing.assert_allclose(probability, expected, atol=1e-5)  # a density is never quite 0
    assert probability[1].argmax() == 0


@pytest.mark.parametrize("reading", READINGS)
def test_daedl_judges_the_cells_that_a_label_distinguishes(reading):
    head, features, logits = random_head(DAEDLHead, kl_weight=0.3, partial_labels=reading)
    ours = losses_of_every_label(head, features)
    for node, row in enumerate(logits):
        inside = reference.leaves_of(TREE, node)
        if not teaches(inside, reading):
            assert ours[node] == 0
            continue
        beyond, ones = [np.exp(x) + 1e-6 - 1 for x in row], [1.0] * len(row)
        evidence, prior, target = reference.flat_cells(beyond, ones, inside, reading)
        alpha = [one + other for one, other in zip(evidence, prior, strict=True)]
        expected = reference.soft_risk("squared", alpha, target)
        expected += 0.3 * reference.outside_kl(beyond, ones, inside)
        assert ours[node] == pytest.approx(expected, rel=1e-9)


def samples(n_samples=60, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    leaf = np.arange(n_samples) % 3
    x = rng.normal(size=(n_samples, n_features)) @ rng.normal(size=(n_features, n_features))
    return x + 2 * rng.normal(size=(3, n_features))[leaf], leaf


def with_density(x, leaf, weight=None, **options):
    head = make_head(DAEDLHead, FLAT, x.shape[1], **options).double()
    weight = np.ones(len(x)) if weight is None else weight
    head.fit_density(*(torch.from_numpy(np.asarray(value)) for value in (x, leaf, weight)))
    return head


def log_densities(new, means, covariance):
    logs = [multivariate_normal(mean, covariance).logpdf(new) for mean in means]
    return logsumexp(np.array(logs).reshape(len(means), -1), axis=0)


def test_the_density_is_that_of_discriminant_analysis():
    x, leaf = samples()
    head = with_density(x, leaf, shrinkage=0.2)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2, store_covariance=True)
    lda.fit(x, leaf)
    # Each training sample without itself: its leaf's mean, and the scatter around it.
    left_out = []
    for i, own in enumerate(leaf):
        means = lda.means_.copy()
        others = np.flatnonzero(leaf == own)
        means[own] = x[others[others != i]].mean(axis=0)
        rest = x - lda.means_[leaf]
        without = x[others[others != i]] - means[own]
        scatter = rest[leaf != own].T @ rest[leaf != own] + without.T @ without
        variance = np.trace(rest.T @ rest) / len(x) / 3
        covariance = 0.8 * scatter / len(x) + 0.2 * variance * np.eye(3)
        left_out.append(log_densities(x[i], means, covariance)[0])
    low, high = min(left_out), max(left_out)
    new = np.random.default_rng(1).normal(size=(40, 3)) * 3
    logs = log_densities(new, lda.means_, lda.covariance_)
    expected = np.clip((logs - low) / (high - low), 1e-5, 1)
    assert (expected == 1e-5).any()
    assert ((expected > 0.1) & (expected < 0.9)).any()
    np.testing.assert_allclose(head.density(torch.from_numpy(new)).numpy(), expected, rtol=1e-9)


def test_a_weight_counts_as_so_many_samples_of_the_density():
    x, leaf = samples()
    weight = np.random.default_rng(2).integers(1, 4, len(x))
    new = torch.from_numpy(samples(seed=3)[0])
    weighted = with_density(x, leaf, weight).density(new)
    repeated = with_density(np.repeat(x, weight, axis=0), np.repeat(leaf, weight)).density(new)
    torch.testing.assert_close(weighted, repeated, rtol=1e-9, atol=1e-12)


def test_the_density_of_new_samples_is_that_of_training_samples_where_there_are_few():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 100))
    leaf = np.arange(60) % 3
    x, new = (centres[leaf] + rng.normal(size=(60, 100)) for _ in range(2))
    head = with_density(x, leaf)
    density = head.density(torch.from_numpy(new)).numpy()
    assert 0.25 < np.median(density) < 0.75
    assert (head.density(torch.from_numpy(3 * new)).numpy() == 1e-5).all()


def test_a_leaf_without_samples_has_no_density_and_none_at_all_changes_nothing():
    x, leaf = samples()
    head = with_density(x[leaf < 2], leaf[leaf < 2])
    assert head.has_density.tolist() == [1, 1, 0]
    assert torch.isfinite(head.density(torch.from_numpy(x))).all()
    nothing = with_density(x[:0], leaf[:0])
    assert (nothing.density(torch.from_numpy(x)) == 1).all()
    one = with_density(x[:1], leaf[:1])
    assert torch.isfinite(one.density(torch.from_numpy(x))).all()


def test_a_covariance_that_cannot_be_inverted_is_refused():
    with pytest.raises(ValueError, match=r"5 samples are too few for shrinkage=0\.0\. Raise shr"):
        with_density(*samples(5, n_features=8), shrinkage=0.0)


def test_the_variance_of_daedl_is_that_of_its_dirichlet():
    head, features, _ = random_head(DAEDLHead)
    alpha = head.logits(features).exp()
    variance = torch.distributions.Dirichlet(alpha).variance
    torch.testing.assert_close(head.variance(features), variance, rtol=1e-9, atol=1e-12)


# F-EDL ------------------------------------------------------------------------------------------

ALLOCATION = [[0.1, 0.4, -0.3], [1.0, -1.0, 0.0], [0.0, 2.0, -2.0]]
EXTRA = [[0.3], [-1.2], [2.5]]


def test_f_edl_has_the_moments_and_the_loss_of_its_authors_code():
    rows = [a + p + t for a, p, t in zip(LOGITS, ALLOCATION, EXTRA, strict=True)]
    head, features = fixed(FEDLHead, rows)
    mean = [
        [0.18826523738103154, 0.07307307708353396, 0.7386616855354345],
        [0.9181519912670401, 0.05642439361841379, 0.025423615114546133],
        [0.1083149325227734, 0.6081707590416818, 0.2835143084355448],
    ]
    variance = [
        [0.014971361827925887, 0.007577148644081861, 0.018234967708856676],
        [0.0032882078449171237, 0.002319264586812391, 0.001099323127001951],
        [0.052937508247529144, 0.08492399967002325, 0.045381718572772775],
    ]
    loss = [1.064623558568463, 3.071173071339877, 2.959355809988418]
    probability = head.leaf_log_probability(features).exp().detach()
    np.testing.assert_allclose(probability, mean, rtol=1e-9)
    np.testing.assert_allclose(head.variance(features).detach(), variance, rtol=1e-9)
    ours = head.loss(features, head.prepare(FLAT.resolve(LABELS)), 1.0)
    np.testing.assert_allclose(ours.tolist(), loss, rtol=1e-9)


@pytest.mark.parametrize("label", ["lynx", "cat", "fish"])
def test_the_loss_of_f_edl_is_an_expectation_over_draws(label):
    """Draw the leaf that has more, then the Dirichlet; leaves of the label are one class."""
    head, features, _ = random_head(FEDLHead)
    alpha, allocation, extra = (value[:1].detach() for value in head.parameters_of(features))
    torch.manual_seed(0)
    drawn = torch.multinomial(allocation[0], 200_000, replacement=True)
    more = torch.nn.functional.one_hot(drawn, TREE.n_leaves) * extra[0]
    probability = torch.distributions.Dirichlet(alpha[0] + more).sample()
    inside = reference.leaves_of(TREE, TREE.node(label))
    outside = [k for k in range(TREE.n_leaves) if k not in inside]
    errors = (1 - probability[:, inside].sum(1)) ** 2 + probability[:, outside].square().sum(1)
    own = (1 - allocation[0, inside].sum()) ** 2 + allocation[0, outside].square().sum()
    loss = head.loss(features[:1], head.prepare([TREE.node(label)]), 1.0).item()
    standard_error = errors.std().item() / 200_000**0.5
    assert abs(loss - (errors.mean() + own).item()) < 5 * standard_error


@pytest.mark.parametrize("reading", READINGS)
def test_f_edl_judges_the_cells_that_a_label_distinguishes(reading):
    head, features, logits = random_head(FEDLHead, partial_labels=reading)
    ours = losses_of_every_label(head, features)
    n_leaves = TREE.n_leaves
    for node, row in enumerate(logits):
        inside = reference.leaves_of(TREE, node)
        if not teaches(inside, reading):
            assert ours[node] == 0
            continue
        tau = reference.softplus(row[-1])
        alpha, p, target = reference.flat_cells(
            np.exp(row[:n_leaves]).tolist(), reference.softmax(row[n_leaves:-1]), inside, reading
        )
        total, expected = sum(alpha) + tau, 0.0
        for a, q, y in zip(alpha, p, target, strict=True):
            mean = (a + tau * q) / total
            # E x² over the mixture, less the square of the mean.
            square = (1 - q) * a * (a + 1) + q * (a + tau) * (a + tau + 1)
            variance = square / (total * (total + 1)) - mean**2
            expected += (y - mean) ** 2 + variance + (y - q) ** 2
        assert ours[node] == pytest.approx(expected, rel=1e-9)
