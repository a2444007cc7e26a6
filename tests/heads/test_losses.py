"""The pure losses against torch.distributions, Monte Carlo and textbook formulas."""

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Dirichlet, kl_divergence

from skh2edl.heads import losses

ALPHA = torch.tensor([2.5, 0.7, 6.0, 1.2], dtype=torch.float64)
TARGET = 2
concentrations = st.floats(1e-3, 1e6)


def one_segment(values):
    return values.sum(0, keepdim=True)


def risks(alpha, target):
    """The three risks of one opinion, by name."""
    strength, at = one_segment(alpha), torch.tensor([target])
    return {
        "squared": losses.squared_risk(alpha / strength, strength, at, one_segment),
        "log": losses.log_risk(alpha, strength, at),
        "digamma": losses.digamma_risk(alpha, strength, at),
    }


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("squared", lambda p, y: (y - p).square().sum(-1)),
        ("digamma", lambda p, y: -p[:, TARGET].log()),
    ],
)
def test_a_risk_is_the_expected_score_under_the_dirichlet(name, score):
    torch.manual_seed(0)
    draws = Dirichlet(ALPHA).sample((400_000,))
    values = score(draws, torch.eye(4, dtype=torch.float64)[TARGET])
    error = values.std() / len(values) ** 0.5
    assert abs(risks(ALPHA, TARGET)[name].item() - values.mean().item()) < 4 * error


def test_the_log_risk_is_minus_the_log_of_the_expected_probability():
    torch.manual_seed(0)
    draws = Dirichlet(ALPHA).sample((400_000,))[:, TARGET]
    error = draws.std() / len(draws) ** 0.5 / draws.mean()
    assert abs(risks(ALPHA, TARGET)["log"].item() + draws.mean().log().item()) < 4 * error


@given(st.lists(concentrations, min_size=2, max_size=8), st.data())
def test_risks_equal_their_closed_forms(alpha, data):
    target = data.draw(st.integers(0, len(alpha) - 1))
    ours = risks(torch.tensor(alpha, dtype=torch.float64), target)
    for name, value in ours.items():
        assert value.item() == pytest.approx(
            reference.RISKS[name](alpha, target), rel=1e-9, abs=1e-9
        )


@given(st.lists(st.tuples(concentrations, concentrations), min_size=2, max_size=8))
def test_the_divergence_is_that_of_torch_distributions(pairs):
    alpha, prior = torch.tensor(pairs, dtype=torch.float64).T
    ours = losses.dirichlet_kl(alpha, prior, one_segment).item()
    theirs = kl_divergence(Dirichlet(alpha), Dirichlet(prior)).item()
    # Theirs loses what its largest terms cancel.
    lost = 1e-15 * torch.lgamma(torch.cat([alpha, prior]).sum()).item()
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9 + 100 * lost)


def test_only_evidence_for_wrong_children_is_penalised():
    prior = torch.tensor([0.4, 1.0, 0.6, 1.5], dtype=torch.float64)
    is_target = torch.arange(4) == TARGET
    alpha = ALPHA + prior
    kept = torch.where(is_target, prior, alpha)
    ours = losses.off_target_kl(alpha, prior, is_target, one_segment)
    assert ours.item() == pytest.approx(
        kl_divergence(Dirichlet(kept), Dirichlet(prior)).item(), abs=1e-12
    )
    only_right = prior + ALPHA * is_target
    none = losses.off_target_kl(only_right, prior, is_target, one_segment)
    assert none.item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 5e8])
def test_the_divergence_keeps_its_digits_in_float32(size):
    alpha = torch.tensor([1.0, 3.0, size, 0.7 * size], dtype=torch.float64)
    prior = torch.ones(4, dtype=torch.float64)
    exact = losses.dirichlet_kl(alpha, prior, one_segment)
    ours = losses.dirichlet_kl(alpha.float(), prior.float(), one_segment)
    assert ours.dtype == torch.float32
    assert ours.item() == pytest.approx(exact.item(), rel=2e-6)
    textbook = kl_divergence(Dirichlet(alpha), Dirichlet(prior)).item()
    assert exact.item() == pytest.approx(textbook, rel=1e-6)


@pytest.mark.parametrize("name", ["squared", "log", "digamma"])
def test_risks_have_right_gradients(name):
    alpha = ALPHA.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: risks(a, TARGET)[name], alpha)


def test_the_divergence_has_right_gradients():
    alpha = torch.tensor([0.05, 0.7, 15.0, 40.0], dtype=torch.float64, requires_grad=True)
    prior = torch.tensor([0.4, 1.0, 0.6, 20.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda a, b: losses.dirichlet_kl(a, b, one_segment), (alpha, prior)
    )


def test_the_consistency_penalty_counts_rises_between_nodes_of_one_path_only():
    probability = torch.tensor([0.5, 0.8, 0.9, 0.25, 0.5])
    vacuity = torch.tensor([0.2, 0.6, 0.1, 0.9, 1.0])
    has_previous = torch.tensor([False, True, True, False, True])
    ours = losses.consistency_penalty(probability, vacuity, has_previous)
    # 0.5 (0.6 - 0.2); a fall; another sample begins; 0.25 (1.0 - 0.9)
    torch.testing.assert_close(ours, torch.tensor([0, 0.2, 0, 0, 0.025]))


def test_the_consistency_penalty_pulls_at_vacuity_and_not_at_probability():
    probability = torch.tensor([0.5, 0.8], dtype=torch.float64, requires_grad=True)
    vacuity = torch.tensor([0.2, 0.6], dtype=torch.float64, requires_grad=True)
    has_previous = torch.tensor([False, True])
    losses.consistency_penalty(probability, vacuity, has_previous).sum().backward()
    assert probability.grad is None
    torch.testing.assert_close(vacuity.grad, torch.tensor([-0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize(
    ("progress", "ramp", "expected"),
    [(0, 0.5, 0), (0.125, 0.5, 0.5), (0.5, 0.5, 2), (1, 0.5, 2), (0, 0, 2)],
)
def test_annealing_rises_in_a_line_and_stays(progress, ramp, expected):
    assert losses.annealed(2.0, progress, ramp) == expected
