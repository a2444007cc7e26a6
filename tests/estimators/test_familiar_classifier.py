"""H2EDL with familiarity: what it does to opinions, and that files, ONNX and refits carry it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skh2edl import H2EDLClassifier, HyperOpinion, NoveltyDetector, Taxonomy, load_model
from skh2edl.datasets import make_glyphs

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma", "tom"], "dog": ["pug", "fox"], "fish": None})
MEANS = {
    "lynx": (9, 3, 0, 0),
    "puma": (9, -3, 0, 0),
    "tom": (9, 0, 3, 0),
    "pug": (-9, 3, 0, 0),
    "fox": (-9, -3, 0, 0),
    "fish": (0, 0, 0, 9),
}
# Between the cats and off to one side; far from everything; a lynx.
BETWEEN, FAR, LYNX = [9, 0, 0, 0], [0, 0, 0, -30], [9, 3, 0, 0]


def animals(n_samples=600, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = rng.choice(list(MEANS), n_samples)
    return (rng.normal(size=(n_samples, 4)) + [MEANS[name] for name in y]).astype(dtype), y


@pytest.fixture(scope="module")
def plain():
    return H2EDLClassifier(TREE, backbone=None).fit(*animals())


@pytest.fixture(scope="module")
def familiar():
    return H2EDLClassifier(TREE, backbone=None, familiarity="density").fit(*animals())


def test_belief_stops_at_the_node_below_which_nothing_fits(plain, familiar):
    opinion = familiar.predict_hyper_opinion([BETWEEN, FAR, LYNX])
    at = {path: opinion.mass[:, TREE.n_leaves + i] for i, path in enumerate(TREE.branching)}
    assert at["cat",][0] > 0.6
    assert at[()][1] > 0.99
    assert opinion.belief("lynx")[2] > 0.95
    # The network alone is sure that the far one is something.
    assert plain.predict_hyper_opinion([FAR]).nonspecificity[0] < 0.6


def test_probabilities_of_known_samples_hardly_move(plain, familiar):
    X, y = animals(2000, seed=1)
    assert abs(plain.score(X, y) - familiar.score(X, y)) <= 0.003
    column = np.searchsorted(familiar.classes_, y)
    losses = [-m.predict_log_proba(X)[np.arange(2000), column].mean() for m in (plain, familiar)]
    assert losses[1] - losses[0] < 0.01


def test_evidence_is_multiplied_by_the_familiarity_of_its_node(plain, familiar):
    X = np.concatenate([animals(50, seed=2)[0], [BETWEEN, FAR]])
    familiarity = familiar.predict_familiarity(X)
    assert familiarity.shape == (52, TREE.n_branching)
    expected = plain.predict_hyper_opinion(X).evidence * familiarity[:, TREE.decision_nodes]
    opinion = familiar.predict_hyper_opinion(X)
    np.testing.assert_allclose(opinion.evidence, expected, rtol=1e-9)
    # The two readings are of one opinion.
    same = HyperOpinion.from_evidence(TREE, expected)
    leaves = familiar.predict_proba(X)[:, np.argsort(TREE.leaf_order)]
    np.testing.assert_allclose(leaves, same.leaf_probability, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(opinion.mass.sum(axis=1), 1)


@pytest.mark.slow
def test_files_and_onnx_carry_it(familiar, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X = np.concatenate([animals(30, seed=3)[0], [BETWEEN, FAR]])
    familiar.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), familiar.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict_familiarity(X), familiar.predict_familiarity(X))
    familiar.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    outputs = session.run(None, {"features": X.astype(np.float32)})
    np.testing.assert_allclose(outputs[0], familiar.predict_proba(X), atol=1e-4)
    mass = familiar.predict_hyper_opinion(X).mass
    np.testing.assert_allclose(outputs[3], mass, atol=1e-4)


def test_a_model_without_it_has_no_tensor_of_it(plain, tmp_path):
    plain.save(tmp_path / "model.safetensors")
    assert not hasattr(load_model(tmp_path / "model.safetensors"), "predict_familiarity")
    assert not [name for name in plain.network_.state_dict() if "familiarity" in name]


def test_single_precision_says_the_same(familiar):
    single = clone(familiar).fit(*animals(dtype=np.float32))
    X = np.concatenate([animals(200, seed=4)[0], [BETWEEN, FAR]])
    ours = single.predict_familiarity(X.astype(np.float32))
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, familiar.predict_familiarity(X), atol=1e-4)


def test_it_is_estimated_anew_by_each_fit_and_refused_by_partial_fit(familiar):
    X, y = animals()
    warm = clone(familiar).set_params(warm_start=True).fit(X, y)
    before = warm.predict_familiarity([[109.0, 3, 0, 0]])
    assert (before == 0).all()
    warm.fit(X + np.array([100, 0, 0, 0]), y)
    assert warm.predict_familiarity([[109.0, 3, 0, 0]])[0, 0] > 0.9
    with pytest.raises(ValueError, match="partial_fit cannot be used with familiarity='density'"):
        warm.partial_fit(X, y)
    warm.set_params(familiarity="none")
    with pytest.raises(ValueError, match="familiarity changed since the last fit"):
        warm.fit(X, y)


def test_samples_without_weight_or_label_do_not_count():
    X, y = animals()
    extra = np.concatenate([X, X[:50] + 1000, X[:50] - 1000])
    labels = np.concatenate([y, y[:50], ["root"] * 50])
    weight = np.repeat([1.0, 0.0, 1.0], [600, 50, 50])
    clf = H2EDLClassifier(TREE, backbone=None, familiarity="density").fit(X, y)
    same = clone(clf).fit(extra, labels, sample_weight=weight)
    np.testing.assert_allclose(
        same.predict_familiarity(X[:20]), clf.predict_familiarity(X[:20]), atol=1e-6
    )


def test_a_large_tree_is_refused_in_one_sentence():
    tree = Taxonomy.flat([str(number) for number in range(20_000)])
    clf = H2EDLClassifier(tree, backbone=None, familiarity="density")
    with pytest.raises(ValueError, match="the taxonomy has 20000 leaves: it is for fewer than"):
        clf.fit(np.eye(2, 3), ["0", "1"])


def test_a_network_trained_on_images_has_it_too(tmp_path):
    data = make_glyphs(60)
    clf = H2EDLClassifier(
        data.taxonomy,
        backbone="test_resnet",
        weights=None,
        image_size=32,
        max_epochs=1,
        familiarity="density",
        random_state=0,
    ).fit(data.images, data.labels)
    familiarity = clf.predict_familiarity(data.images)
    assert ((familiarity >= 0) & (familiarity <= 1)).all()
    assert (familiarity[:, 0] > 0.5).mean() > 0.9
    clf.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_familiarity(data.images), familiarity)


# The detector --------------------------------------------------------------------------------


def test_a_detector_takes_familiarity_where_there_is_some(familiar, plain):
    X, y = animals(400, seed=5)
    new = np.random.default_rng(6).normal(size=(100, 4)) * 0.5 + BETWEEN
    known = animals(1000, seed=7)[0]
    found = {}
    pipeline = make_pipeline(StandardScaler(), clone(familiar)).fit(*animals())
    for name, model in {"plain": plain, "familiar": familiar, "pipeline": pipeline}.items():
        detector = NoveltyDetector(FrozenEstimator(model)).fit(X, y)
        assert detector.measure_ == ("nonspecificity" if name == "plain" else "familiarity")
        assert detector.predict_novelty(known).mean() < 0.08
        parts = [detector.predict_novelty_score(part) for part in (known, new)]
        found[name] = roc_auc_score(np.repeat([0, 1], [1000, 100]), np.concatenate(parts))
        if name != "plain":
            named = detector.predict_concept(new)[detector.predict_novelty(new)]
            assert (named == "cat").mean() > 0.9
    assert found["familiar"] > 0.9
    assert found["pipeline"] == pytest.approx(found["familiar"], abs=0.01)


def test_the_score_of_the_detector_counts_familiarity_sixteen_times(familiar, plain):
    X, y = animals(400, seed=5)
    detector = NoveltyDetector(FrozenEstimator(familiar)).fit(X, y)
    factor = familiar.predict_familiarity(X)[:, TREE.decision_nodes] ** 16
    evidence = plain.predict_hyper_opinion(X).evidence * factor
    expected = HyperOpinion.from_evidence(TREE, evidence).nonspecificity
    np.testing.assert_allclose(detector.predict_novelty_score(X), expected, rtol=1e-6)


def test_a_detector_with_familiarity_can_be_saved(familiar, tmp_path):
    X, y = animals(400, seed=5)
    detector = NoveltyDetector(FrozenEstimator(familiar)).fit(X, y)
    detector.save(tmp_path / "detector.safetensors")
    loaded = load_model(tmp_path / "detector.safetensors")
    assert loaded.measure_ == "familiarity"
    np.testing.assert_array_equal(
        loaded.predict_novelty_score(X), detector.predict_novelty_score(X)
    )


def test_a_detector_refuses_familiarity_that_the_model_lacks(plain):
    with pytest.raises(ValueError, match="needs an estimator with predict_familiarity, which"):
        NoveltyDetector(FrozenEstimator(plain), measure="familiarity").fit(*animals(100))


def test_a_model_fitted_without_it_says_that_it_must_be_fitted_again(plain):
    later = clone(plain).fit(*animals()).set_params(familiarity="density")
    with pytest.raises(ValueError, match=r"was set after the fit.*Call fit again"):
        later.predict_familiarity([LYNX])


def test_a_detector_refuses_a_search_whose_best_candidate_lacks_it(familiar):
    search = GridSearchCV(clone(familiar), {"familiarity": ["none"]}, cv=2)
    with pytest.raises(ValueError, match="for every candidate of a search"):
        NoveltyDetector(search, cv=2).fit(*animals(120))
