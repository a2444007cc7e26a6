"""Which candidates are fitted, and which one is chosen."""

import pytest

from skh2edl.benchmark.running import Candidate, best, fit_grid


@pytest.mark.parametrize(
    ("scores", "chosen", "calibrated"),
    [
        ({0.1: (3, 3), 0.01: (1, 1), 0.001: (2, 2)}, 0.01, 0.01),
        ({0.1: (3, 1), 0.01: (2, 2), 0.001: (1, 3)}, 0.001, 0.1),
    ],
)
def test_each_score_chooses_a_candidate_and_only_these_keep_their_models(
    scores, chosen, calibrated
):
    fitted = []

    def fit(values, number):
        assert number == len(fitted)
        fitted.append(values)
        nll, after = scores[values["l2"]]
        summary = {"parameters": values, "nll": nll, "nll_calibrated": after}
        return Candidate("fitted", "calibrated", summary)

    grid = [{"l2": value} for value in scores]
    candidates = fit_grid(grid, fit)
    assert fitted == [candidate.summary["parameters"] for candidate in candidates] == grid
    assert best(candidates, "nll").summary["parameters"] == {"l2": chosen}
    assert best(candidates, "nll_calibrated").summary["parameters"] == {"l2": calibrated}
    # The others may be whole networks.
    kept = {c.summary["parameters"]["l2"] for c in candidates if c.fitted is not None}
    assert kept == {chosen, calibrated}


def test_without_a_grid_one_candidate_is_fitted_as_it_is():
    candidate = Candidate("fitted", "calibrated", {"nll": 1, "nll_calibrated": 1})
    assert fit_grid([], lambda values, number: candidate) == [candidate]
