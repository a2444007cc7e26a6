"""The depth profile points to the level where doubt was put into the images."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.kernel_approximation import Nystroem

from skh2edl import H2EDLClassifier
from skh2edl.datasets import make_glyphs

AMOUNTS = np.linspace(0, 1, 6)
DOUBTS = {
    "look-alikes": lambda amount: {"lookalike_fraction": amount},
    "overprinted siblings": lambda amount: {"ghost": amount},
    "blur": lambda amount: {"blur": 0.2 + 2 * amount},
}


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
    """Mean U_d for each kind of doubt, amount and depth, of a model that saw clear images only."""
    train = draw(4000, 1, blur=(0.0, 0.5))
    kernel = Nystroem(gamma=0.03, n_components=400, random_state=0).fit(pixels(train))

    def features(data):
        return kernel.transform(pixels(data)).astype(np.float32)

    # A row for each decision, and evidence whose amount is learnt: where it adds up from the
    # leaves, look-alikes divide belief between leaves and leave nothing uncommitted at the root.
    learnt = {"read_out": "nodes", "kl_weight": 0.01, "shared_evidence": "belief", "l2": 0.001}
    models = {
        form: H2EDLClassifier(train.taxonomy, backbone=None, tol=1e-3, **parameters).fit(
            features(train), train.labels
        )
        for form, parameters in {"learnt": learnt, "default": {}}.items()
    }

    def profile(form, options):
        # No look-alikes unless they are the doubt that is put in.
        data = draw(400, 8, **{"lookalike_fraction": 0.0, **options})
        return models[form].predict_hyper_opinion(features(data)).depth_profile.mean(axis=0)

    def growing(form, options):
        return np.array([profile(form, options(amount) if amount else {}) for amount in AMOUNTS])

    found = {name: growing("learnt", options) for name, options in DOUBTS.items()}
    return found | {"default, look-alikes": growing("default", DOUBTS["look-alikes"])}


def rank_correlation(profile, depth):
    return spearmanr(AMOUNTS, profile[:, depth]).statistic


@pytest.mark.parametrize("doubt", ["look-alikes", "default, look-alikes"])
def test_lookalikes_raise_the_doubt_at_the_root(profiles, doubt):
    assert rank_correlation(profiles[doubt], 0) > 0.8
    assert (profiles[doubt][-1] - profiles[doubt][0]).argmax() == 0


@pytest.mark.parametrize("doubt", ["overprinted siblings", "blur"])
def test_blurred_and_overprinted_siblings_raise_the_deepest_doubt(profiles, doubt):
    assert rank_correlation(profiles[doubt], -1) > 0.8


@pytest.mark.parametrize("doubt", sorted(DOUBTS))
def test_what_grows_most_is_the_level_where_the_doubt_was_put(profiles, doubt):
    growth = profiles[doubt][-1] - profiles[doubt][0]
    assert growth.argmax() == (0 if doubt == "look-alikes" else 2)
