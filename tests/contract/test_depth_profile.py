"""The depth profile points to the level at which the images are ambiguous."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.kernel_approximation import Nystroem

from skh2edl import H2EDLClassifier
from skh2edl.datasets import make_glyphs

AMOUNTS = np.linspace(0, 1, 6)
AMBIGUITIES = {
    "look-alikes": lambda amount: {"lookalike_fraction": amount},
    "overprinted siblings": lambda amount: {"ghost": amount},
    "blur": lambda amount: {"blur": 0.2 + 2 * amount},
}
# Look-alikes stand in the other script: they differ at the root. Siblings differ at the last node.
DEPTH = {"look-alikes": 0, "overprinted siblings": 2, "blur": 2}


def draw(n_samples, random_state, **options):
    """Return clear characters of two scripts that share many shapes, unless told otherwise."""
    clear = {"blur": 0.2, "noise": 0.05, "occlusion": 0.0}
    return make_glyphs(
        n_samples, scripts=("Latin", "Greek"), image_size=16, random_state=random_state,
        **{**clear, **options},
    )  # fmt: skip


def pixels(data):
    return data.images.reshape(len(data), -1).astype(np.float32) / 255


@pytest.fixture(scope="module")
def profiles():
    """Mean U_d for each ambiguity, amount and depth, of a default model of clear images."""
    train = draw(4000, 1, blur=(0.0, 0.5))
    kernel = Nystroem(gamma=0.03, n_components=400, random_state=0).fit(pixels(train))

    def features(data):
        return kernel.transform(pixels(data)).astype(np.float32)

    clf = H2EDLClassifier(train.taxonomy, backbone=None).fit(features(train), train.labels)

    def profile(options):
        # No look-alikes unless they are the ambiguity.
        data = draw(400, 8, **{"lookalike_fraction": 0.0, **options})
        return clf.predict_hyper_opinion(features(data)).depth_profile.mean(axis=0)

    return {
        name: np.array([profile(options(amount) if amount else {}) for amount in AMOUNTS])
        for name, options in AMBIGUITIES.items()
    }


@pytest.mark.parametrize("ambiguity", sorted(AMBIGUITIES))
def test_uncertainty_grows_at_the_level_of_the_ambiguity(profiles, ambiguity):
    at_its_level = profiles[ambiguity][:, DEPTH[ambiguity]]
    assert spearmanr(AMOUNTS, at_its_level).statistic > 0.8


@pytest.mark.parametrize("ambiguity", sorted(AMBIGUITIES))
def test_what_grows_most_is_the_level_of_the_ambiguity(profiles, ambiguity):
    growth = profiles[ambiguity][-1] - profiles[ambiguity][0]
    assert growth.argmax() == DEPTH[ambiguity]
