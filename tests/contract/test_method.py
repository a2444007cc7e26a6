"""What the method promises of a fitted model, with its default parameters."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import gammaln, psi
from sklearn.model_selection import GridSearchCV

from skh2edl import H2EDLClassifier, Prior, Recipe, Taxonomy
from skh2edl.estimators.h2edl import VARIANTS
from skh2edl.estimators.methods import MODEL_CLASSES

VARIANTS_OF_THE_737 = [f"737-{number}00" for number in range(2, 10)]
PLANES = Taxonomy.from_nested({"737": VARIANTS_OF_THE_737, "Cessna": ["172", "208"]})
FELINES = Taxonomy.from_nested({"cat": ["lynx", "ocelot", "puma"], "dog": ["fox", "wolf"]})
# Without clipping, and in one batch, AdamW does not feel how many samples share the mean loss.
BY_SOLVER = {
    "lbfgs": {"solver": "lbfgs", "tol": 1e-7},
    "adamw": {
        "solver": "adamw",
        "max_epochs": 200,
        "batch_size": 1000,
        "learning_rate": 0.01,
        "validation_fraction": None,
        "recipe": Recipe(clip_norm=None),
        "random_state": 0,
    },
}


def vacuity_of_the_best_opinion(p, kl_weight, leaf_weight):
    """Minimise the paper's objective of one node over the evidence, with scipy alone."""
    K = len(p)

    def objective(log_evidence):
        alpha = np.exp(log_evidence) + 1
        S = alpha.sum()
        q = alpha / S
        value = 0.0
        for c in range(K):
            y = np.arange(K) == c
            off = np.where(y, 1.0, alpha)
            T = off.sum()
            kl = gammaln(T) - gammaln(off).sum() - gammaln(K)
            kl += ((off - 1) * (psi(off) - psi(T))).sum()
            risk = ((y - q) ** 2).sum() + (q * (1 - q)).sum() / (S + 1)
            value += p[c] * (risk + kl_weight * kl - leaf_weight * np.log(q[c]))
        return value

    best = minimize(objective, np.zeros(K), method="BFGS", options={"gtol": 1e-9})
    return K / (np.exp(best.x).sum() + K)


def undecided_planes(n_each=60):
    """Three variants look alike; five others and the Cessnas are told apart."""
    labels = np.repeat([*VARIANTS_OF_THE_737, "172", "208"], n_each)
    looks = np.array([0, 0, 0, 1, 2, 3, 4, 5, 6, 7])[np.repeat(np.arange(10), n_each)]
    return 10 * np.eye(8)[looks], labels


# The default, and two steps from it towards the paper's weights, which leave more mass.
@pytest.mark.parametrize(
    ("parameters", "mass_above"),
    [
        ({}, 0.09),
        ({"kl_weight": 1.0}, 0.4),
        ({"kl_weight": 0.04, "kl_per_child": False, "leaf_weight": 0.1}, 0.4),
    ],
)
def test_belief_stops_at_the_737_where_three_of_its_variants_look_alike(parameters, mass_above):
    X, y = undecided_planes()
    clf = H2EDLClassifier(PLANES, backbone=None, l2=1e-6, tol=1e-6, **parameters).fit(X, y)
    opinion = clf.predict_hyper_opinion(X[:1])
    expected = vacuity_of_the_best_opinion(
        np.array([1, 1, 1, 1e-12, 1e-12, 1e-12, 1e-12, 1e-12]) / 3,
        clf.kl_weight / (8 if clf.kl_per_child else 1),
        clf.leaf_weight,
    )
    assert expected > mass_above
    mass = opinion.mass[0, opinion.focal_sets.index(("737",))]
    assert_allclose(mass, expected, atol=0.05)
    # Of the vacuity every variant has an eighth, also those that are ruled out.
    alike = [opinion.probability(name)[0] for name in VARIANTS_OF_THE_737[:3]]
    assert_allclose(alike, (1 - 5 / 8 * expected) / 3, atol=0.02)


def test_a_clear_plane_has_hardly_any_mass_above_its_variant():
    X, y = undecided_planes()
    clf = H2EDLClassifier(PLANES, backbone=None).fit(X, y)
    clear = clf.predict_hyper_opinion(X[y == "737-900"][:1]).nonspecificity[0]
    assert clear < 0.02
    assert clear < clf.predict_hyper_opinion(X[:1]).nonspecificity[0] / 5


@pytest.mark.parametrize("solver", BY_SOLVER)
def test_ancestor_labels_leave_the_probabilities_below_them_unchanged(solver):
    rng = np.random.default_rng(0)
    y = np.repeat(["lynx", "ocelot", "puma", "fox", "wolf"], 30)
    X = rng.normal(size=(150, 4)) + np.repeat(rng.normal(size=(5, 4)), 30, axis=0)
    new = rng.normal(size=(20, 4))

    def below_cat(features, labels):
        clf = H2EDLClassifier(FELINES, backbone=None, **BY_SOLVER[solver]).fit(features, labels)
        proba = clf.predict_proba(new)[:, np.isin(clf.classes_, ["lynx", "ocelot", "puma"])]
        return proba / proba.sum(axis=1, keepdims=True)

    before = below_cat(X, y)
    assert np.ptp(before, axis=0).min() > 0.1  # it has learnt something
    # The same pictures once more, known only as cats: what is above changes, what is below not.
    after = below_cat(np.concatenate([X, X]), [*y, *["cat"] * len(X)])
    assert_allclose(after, before, atol=2e-3)


def test_equal_probabilities_with_different_evidence_have_different_vacuity():
    rng = np.random.default_rng(0)
    y = rng.choice(["lynx", "puma"], 400)
    seen = rng.random(400) < 0.5
    # One kind of picture says a cat of either species; the other says nothing at all.
    labels = np.where(seen, y, rng.choice(FELINES.leaves, 400))
    X = np.stack([seen, ~seen], axis=1) * 5.0
    clf = H2EDLClassifier(FELINES, backbone=None, l2=1e-6).fit(X, labels)
    opinion = clf.predict_hyper_opinion([[5.0, 0.0], [0.0, 5.0]])
    # Lynx or puma, as likely as not, given a cat that is one of the two: told in both pictures.
    lynx = opinion.probability("lynx") / opinion.probability(["lynx", "puma"])
    assert_allclose(lynx, 0.5, atol=0.1)
    assert opinion.nonspecificity[1] > opinion.nonspecificity[0] + 0.1


def test_parameters_of_recipe_hardware_and_prior_are_reachable_from_a_search():
    X, y = undecided_planes(n_each=6)
    clf = H2EDLClassifier(PLANES, backbone=None, solver="adamw", max_epochs=1, random_state=0)
    grid = {
        "recipe__weight_decay": [0.0, 0.5],
        "hardware__precision": ["32-true"],
        "prior__power": [0.5],
        "l2": [0.01],
    }
    search = GridSearchCV(clf, grid, cv=2).fit(X, y)
    assert search.best_estimator_.recipe.weight_decay in (0.0, 0.5)
    assert search.best_estimator_.hardware.precision == "32-true"
    assert search.best_estimator_.prior.power == 0.5
    assert clf.recipe is clf.hardware is clf.prior is None


def test_a_changed_variant_leaves_the_variant_as_it_is():
    changed = H2EDLClassifier(**VARIANTS["base-rate"]).set_params(prior__scale=2.0)
    assert changed.prior.get_params() | {"scale": 1.0} == Prior(power=1.0).get_params()
    assert H2EDLClassifier(**VARIANTS["base-rate"]).set_params(prior__power=1.0).prior.scale == 1.0


@pytest.mark.parametrize("kind", MODEL_CLASSES.values())
def test_every_classifier_writes_its_signature_out(kind):
    parameters = inspect.signature(kind).parameters.values()
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters)
    assert len(parameters) <= 32
    assert set(kind().get_params(deep=False)) == {each.name for each in parameters}
    assert "signature" not in vars(kind.__init__)


def test_a_parameter_that_is_in_a_group_is_refused_with_its_place():
    with pytest.raises(ValueError, match="n_workers is a parameter of hardware"):
        H2EDLClassifier().set_params(n_workers=2)
