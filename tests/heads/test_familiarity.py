"""Familiarity against scipy's distances and scikit-learn's covariance."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.covariance import LedoitWolf

from skh2edl import Taxonomy
from skh2edl.heads.familiarity import Familiarity
from skh2edl.heads.tree_ops import TreeSegments

TREE = Taxonomy.from_nested(
    {"all": {"cat": {"wild": ["lynx", "puma"], "tom": None}, "dog": ["pug", "fox"], "fish": None}}
)
NAMES = ["lynx", "puma", "tom", "pug", "fox", "fish"]


def samples(n_samples=120, n_features=4, seed=0, names=NAMES):
    rng = np.random.default_rng(seed)
    means = dict(zip(names, 3 * rng.normal(size=(len(names), n_features)), strict=True))
    y = [names[i % len(names)] for i in range(n_samples)]
    x = rng.normal(size=(n_samples, n_features)) @ rng.normal(size=(n_features, n_features))
    return x + [means[name] for name in y], y


def fitted(x, y, tree=TREE):
    familiarity = Familiarity(TreeSegments(tree), x.shape[1]).double()
    familiarity.fit(x, tree.resolve(y))
    return familiarity


def below(node, y, tree=TREE):
    """Names of the labels whose path passes through a node to one of its children."""
    node = tree.path(node) if node else ()
    return sorted(
        {name for name in y if tree.path(name)[: len(node)] == node} - {"".join(node[-1:])}
    )


def two_numbers(x, means, covariance, names):
    """The distance to the nearest mean, and its ratio to the centre's, as scipy has them."""
    points = np.array([means[name] for name in names])
    inverse = np.linalg.inv(covariance)
    distance = cdist(x, points, "mahalanobis", VI=inverse).min(axis=1) ** 2
    centre = cdist(x, points.mean(axis=0)[None], "mahalanobis", VI=inverse)[:, 0] ** 2
    return np.array([distance, distance / centre])


def reference(new, x, y, node, tree=TREE):
    """The familiarity of new samples at a node, with every training sample really left out."""
    y = np.array(y)
    classes = sorted(set(y))
    means = {name: x[y == name].mean(axis=0) for name in classes}
    rest = x - [means[name] for name in y]
    estimate = LedoitWolf(assume_centered=True).fit(rest)
    small = 1e-6 * np.trace(estimate.covariance_) / len(rest.T) * np.eye(len(rest.T))
    names = below(node, classes, tree)
    centre = np.mean([means[name] for name in names], axis=0)
    left_out = []
    for i in np.flatnonzero(np.isin(y, names)):
        others = y == y[i]
        if others.sum() < 2:
            continue
        others[i] = False
        without = {**means, y[i]: x[others].mean(axis=0)}
        n = others.sum() + 1
        removed = n / (n - 1) * np.outer(rest[i], rest[i]) / len(x)
        covariance = estimate.covariance_ + small - (1 - estimate.shrinkage_) * removed
        inverse = np.linalg.inv(covariance)
        points = np.array([without[name] for name in names])
        distance = cdist(x[i : i + 1], points, "mahalanobis", VI=inverse).min() ** 2
        own = x[i] - centre
        left_out.append([distance, distance / (own @ inverse @ own)])
    middle = np.median(left_out, axis=0)
    spread = np.quantile(left_out, 0.99, axis=0, method="higher") - middle
    numbers = two_numbers(new, means, estimate.covariance_ + small, names)
    t = ((numbers - middle[:, None]) / spread[:, None]).max(axis=0).clip(min=0)
    return np.exp(-(t**2) / 4)


@pytest.mark.parametrize("n_ancestors", [0, 30])
def test_familiarity_is_that_of_means_and_a_covariance_without_the_sample(n_ancestors):
    x, y = samples()
    y[:n_ancestors] = [
        "cat" if name in ("lynx", "puma", "tom") else name for name in y[:n_ancestors]
    ]
    new = np.random.default_rng(1).normal(size=(40, 4)) * 4
    ours = fitted(x, y)(torch.from_numpy(new)).numpy()
    for place, path in enumerate(TREE.branching):
        expected = reference(new, x, y, path[-1])
        assert expected.min() < 0.1
        np.testing.assert_allclose(ours[:, place], expected, rtol=1e-6, atol=1e-12)


def test_known_samples_are_familiar_and_the_far_ones_are_not():
    x, y = samples(6000)
    familiarity = fitted(x, y)
    new, labels = samples(6000)
    root = familiarity(torch.from_numpy(new + 1e-9)).numpy()[:, 0]
    # A hundredth of them is beyond the limit of each of the two numbers.
    assert 0.005 < (root < np.exp(-0.25)).mean() < 0.025
    assert (familiarity(torch.from_numpy(new + 1000)) == 0).all()
    assert labels == y


def test_a_new_kind_of_cat_is_unfamiliar_among_the_cats_alone():
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma", "tom"], "dog": ["pug", "fox", "wolf"]})
    rng = np.random.default_rng(0)
    kinds = {name: 8 * axis for name, axis in zip(tree.leaves, np.eye(8), strict=False)}
    cats, dogs = 12 * np.eye(8)[6], 12 * np.eye(8)[7]
    side = {name: cats if tree.path(name)[0] == "cat" else dogs for name in tree.leaves}
    y = np.repeat(list(tree.leaves), 200)
    # Cats differ among themselves more than a cat differs from its mean.
    x = rng.normal(size=(1200, 8)) + [kinds[name] + side[name] for name in y]
    new = rng.normal(size=(100, 8)) + cats + np.mean([kinds[n] for n in tree.leaves[:3]], axis=0)
    familiarity = fitted(x, y, tree)(torch.from_numpy(new)).numpy()
    at = dict(zip(tree.branching, familiarity.T, strict=True))
    assert np.median(at["cat",]) < 0.01
    assert np.median(familiarity[:, 0]) < 1


def test_before_any_fit_everything_is_familiar():
    familiarity = Familiarity(TreeSegments(TREE), 3)
    assert (familiarity(torch.full((2, 3), 1e6)) == 1).all()


def test_classes_of_one_sample_and_constant_features_leave_finite_numbers():
    x, y = samples(13)
    x[:, 2] = 5
    y[12] = "fox"
    for rows in (range(13), range(6)):
        kept = [y[row] for row in rows]
        familiarity = fitted(x[list(rows)], kept)
        for name, value in familiarity.named_parameters():
            assert torch.isfinite(value).all(), name
            assert torch.isfinite(value.float()).all(), name
        values = familiarity(torch.from_numpy(x))
        assert ((values >= 0) & (values <= 1)).all()
    # Six labels of one sample each leave nothing to compare with: nothing is strange.
    assert (familiarity(torch.from_numpy(x + 100)) == 1).all()


def test_features_beyond_all_numbers_are_unfamiliar_and_missing_ones_stay_missing():
    x, y = samples()
    familiarity = fitted(x, y).float()
    far = torch.tensor([[1e30, 0, 0, 0], [torch.nan, 0, 0, 0]])
    values = familiarity(far)
    assert (values[0] == 0).all()
    assert torch.isnan(values[1]).all()
