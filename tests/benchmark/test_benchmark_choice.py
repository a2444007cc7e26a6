"""Which candidates are fitted, and which one is chosen."""

import numpy as np
import pytest

from skh2edl.benchmark.choice import Candidate, best, fit_grid

DECADES = [{"l2": value} for value in (1e-1, 1e-2, 1e-3)]


def grid_search(grid, plain, calibrated):
    """Fit candidates whose scores are functions of the penalty."""
    fitted = []

    def fit(values, number):
        assert number == len(fitted)
        fitted.append(values)
        l2 = values.get("l2", np.nan)
        summary = {"parameters": values, "nll": plain(l2), "nll_calibrated": calibrated(l2)}
        return Candidate("fitted", "calibrated", summary)

    return fit_grid(grid, fit), fitted


def valley(at):
    return lambda l2: abs(np.log10(l2) - np.log10(at))


def values(candidates):
    return [candidate.summary["parameters"]["l2"] for candidate in candidates]


def test_a_grid_that_holds_both_choices_is_fitted_as_it_is():
    candidates, fitted = grid_search(DECADES, valley(1e-2), valley(1e-2))
    assert fitted == DECADES
    assert values([best(candidates, "nll")]) == [1e-2]


@pytest.mark.parametrize(
    ("plain", "calibrated", "expected"),
    [
        (1e-4, 1e-2, [1e-1, 1e-2, 1e-3, 1e-4, 1e-5]),
        (1e-2, 1.0, [10.0, 1.0, 1e-1, 1e-2, 1e-3]),
        (1e-4, 1.0, [10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]),
        # If the best is at an end, one more candidate confirms it.
        (1e-3, 1e-2, [1e-1, 1e-2, 1e-3, 1e-4]),
        # At most three more.
        (1e-9, 1e-2, [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]),
    ],
)
def test_a_grid_is_extended_beyond_an_end_that_is_chosen(plain, calibrated, expected):
    candidates, _ = grid_search(DECADES, valley(plain), valley(calibrated))
    assert values(candidates) == expected
    for score, at in (("nll", plain), ("nll_calibrated", calibrated)):
        nearest = min(expected, key=valley(at))
        chosen = best(candidates, score)
        assert chosen.summary["parameters"] == {"l2": nearest}
        assert chosen.fitted == "fitted"
    # Only the chosen models are kept: they may be whole networks.
    assert sum(candidate.fitted is not None for candidate in candidates) <= 2


@pytest.mark.parametrize(
    "grid",
    [
        [],
        [{"l2": 0.1}, {"l2": 0.01}],
        [{"l2": 0.1}, {"l2": 0.01}, {"l2": 0.002}],
        [{"l2": 0.1}, {"l2": 0.01}, {}],
        [{"l2": 0.1}, {"l2": 0.1}, {"l2": 0.1}],
        [{"l2": 0.1, "tol": 1.0}, {"l2": 0.01, "tol": 1.0}, {"l2": 0.001, "tol": 1.0}],
    ],
)
def test_a_grid_that_is_not_geometric_is_not_extended(grid):
    _, fitted = grid_search(grid, lambda l2: 0.0, lambda l2: 0.0)
    assert fitted == (grid or [{}])
