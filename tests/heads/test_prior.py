"""The prior of an opinion: base rates and weights."""

import numpy as np
import pytest

from skh2edl import FlatEDLClassifier, H2EDLClassifier, Prior, Taxonomy

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf", "dhole"]})


def test_the_default_is_the_standard_prior():
    assert Prior().rarity(np.array([0.0, 3.0, 90.0])).tolist() == [1, 1, 1]
    assert Prior().weights(np.array([2, 7])).tolist() == [2, 7]


def test_rarity_is_the_tempered_inverse_frequency():
    found = Prior(power=0.5, smoothing=4.0).rarity(np.array([0.0, 5.0, 12.0]))
    np.testing.assert_allclose(found, [1 / 2, 1 / 3, 1 / 4], rtol=1e-12)


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (Prior(scale=0.5), [1.0, 3.5]),
        (Prior(weight=2.0), [2, 2]),
        (Prior(weight=2.0, scale=3.0), [6, 6]),
    ],
)
def test_the_weight_is_one_number_or_the_number_of_children_times_a_scale(prior, expected):
    assert prior.weights(np.array([2, 7])).tolist() == expected


@pytest.mark.parametrize("kind", [H2EDLClassifier, FlatEDLClassifier])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power": 2.0}, "'power' parameter of Prior must be"),
        ({"smoothing": 0.0}, "'smoothing' parameter of Prior must be"),
        ({"weight": "parents"}, "'weight' parameter of Prior must be"),
        ({"scale": -1.0}, "'scale' parameter of Prior must be"),
    ],
)
def test_a_wrong_prior_is_refused_by_name(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(TREE, backbone=None, prior=Prior(**options)).fit(np.eye(5), TREE.leaves)


@pytest.mark.parametrize("kind", [H2EDLClassifier, FlatEDLClassifier])
@pytest.mark.parametrize(
    "prior",
    [Prior(weight=1e39), Prior(weight=1e-50), Prior(power=1.0, smoothing=1e-300)],
    ids=["large", "small", "rare"],
)
def test_a_prior_beyond_single_precision_is_refused_as_the_prior(kind, prior):
    with pytest.raises(ValueError, match=r"The prior gives a child .* 1e-30 to 1e\+30"):
        kind(TREE, backbone=None, prior=prior).fit(np.eye(4, 5), TREE.leaves[:4])


def test_a_flat_opinion_has_the_base_rates_and_the_weight_of_its_prior():
    X, y = np.eye(6, 5), [*TREE.leaves, "lynx"]
    clf = FlatEDLClassifier(TREE, backbone=None, prior=Prior(power=1.0, weight=3.0)).fit(X, y)
    expected = 1 / (np.array([2, 1, 1, 1, 1]) + 1)  # tree order: lynx is first and has two
    found = clf.network_.head.prior.numpy()
    np.testing.assert_allclose(found, 3 * expected / expected.sum(), rtol=1e-6)
