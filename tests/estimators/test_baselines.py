"""Baselines: each is its head, reads partial labels, and can be saved, cloned and resumed."""

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from plain_heads import make_head
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from skh2edl import (
    DAEDLClassifier,
    FEDLClassifier,
    FlatCEClassifier,
    FlatEDLClassifier,
    H2EDLClassifier,
    Hardware,
    HENNClassifier,
    HierCEClassifier,
    HXEClassifier,
    IEDLClassifier,
    Prior,
    Recipe,
    REDLClassifier,
    ReEDLClassifier,
    SoftLabelClassifier,
    Taxonomy,
    load_model,
)
from skh2edl.datasets import make_glyphs
from skh2edl.estimators.evidential_baselines import EvidentialBaseline
from skh2edl.estimators.methods import MODEL_CLASSES
from skh2edl.heads.daedl import DAEDLHead
from skh2edl.heads.evidential import FlatEDLHead, HENNHead, IEDLHead, REDLHead
from skh2edl.heads.fedl import FEDLHead
from skh2edl.heads.softmax import HXEHead, SoftLabelHead, SoftmaxHead, SoftmaxTreeHead
from skh2edl.training.checkpoints import CheckpointFile

TREE = Taxonomy.from_nested(
    {"cat": ["lynx", "puma"], "dog": ["wolf", "fox"], "newt": None}, level_names=("family", "kind")
)

# Classifier -> its head, and parameters that are not the defaults.
EVIDENCE = {
    "evidence": "exp",
    "evidence_scale": 2.0,
    "kl_weight": 0.02,
    "kl_per_child": False,
    "kl_ramp": 0.3,
    "initial_vacuity": 0.8,
}
METHODS = {
    FlatCEClassifier: (SoftmaxHead, {"partial_labels": "soft"}),
    HierCEClassifier: (SoftmaxTreeHead, {}),
    HXEClassifier: (HXEHead, {"depth_decay": 0.5, "partial_labels": "soft"}),
    SoftLabelClassifier: (SoftLabelHead, {"sharpness": 4.0, "partial_labels": "soft"}),
    FlatEDLClassifier: (
        FlatEDLHead,
        {
            **EVIDENCE,
            "risk": "log",
            "leaf_weight": 0.5,
            "prior": Prior(weight=3.0),
            "partial_labels": "soft",
        },
    ),
    IEDLClassifier: (IEDLHead, {**EVIDENCE, "fisher_weight": 0.1, "partial_labels": "soft"}),
    REDLClassifier: (
        REDLHead,
        {**EVIDENCE, "relaxation": 0.7, "leaf_prior": 0.3, "partial_labels": "soft"},
    ),
    ReEDLClassifier: (
        REDLHead,
        {**EVIDENCE, "leaf_prior": 0.3, "partial_labels": "soft"},
    ),
    HENNClassifier: (HENNHead, EVIDENCE),
    DAEDLClassifier: (
        DAEDLHead,
        {"kl_weight": 0.02, "shrinkage": 0.3, "partial_labels": "soft"},
    ),
    FEDLClassifier: (FEDLHead, {"partial_labels": "soft"}),
}
EVIDENTIAL = [method for method in METHODS if issubclass(method, EvidentialBaseline)]
WITH_PARTIAL_LABELS = [
    method for method in METHODS if "partial_labels" in method._parameter_constraints
]


@pytest.fixture(scope="module")
def data():
    """Each leaf has a corner of its own; every fourth label stops at the family."""
    rng = np.random.default_rng(0)
    leaves = np.repeat(["lynx", "puma", "wolf", "fox", "newt"], 24)
    X = rng.normal(size=(120, 6)) + 3 * np.repeat(np.eye(5, 6), 24, axis=0)
    labels = leaves.astype(object)
    labels[::4] = [TREE.ancestor(name, "family") for name in leaves[::4]]
    labels[::16] = "root"
    return X, labels, leaves


def by_epochs(method, **parameters):
    options = {"backbone": None, "solver": "adamw", "max_epochs": 3, "batch_size": 32}
    options |= {"random_state": 5, "hardware": Hardware(accelerator="cpu")}
    return method(TREE, **(options | parameters))


@pytest.mark.parametrize("method", [FlatCEClassifier, HierCEClassifier])
def test_smoothed_labels_are_a_parameter_and_make_probabilities_less_sure(method):
    X, y = load_iris(return_X_y=True)
    sure = method(backbone=None).fit(X, y).predict_proba(X).max(axis=1)
    smoothed = clone(method(backbone=None, label_smoothing=0.3)).fit(X, y)
    assert smoothed.get_params()["label_smoothing"] == 0.3
    highest = smoothed.predict_proba(X).max(axis=1)
    assert highest.mean() < sure.mean()
    # The target of a label is 0.7 + 0.3 / 3.
    assert highest.max() < 0.9


def test_every_baseline_has_an_entry_here():
    assert {H2EDLClassifier, *METHODS} == set(MODEL_CLASSES.values())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_the_classifier_is_its_head_with_the_same_options(method, data):
    X, labels, _ = data
    kind, options = METHODS[method]
    clf = method(TREE, backbone=None, l2=0.003, **options).fit(X, labels)
    given = dict(options)
    if prior := given.pop("prior", None):
        given["prior"] = np.full(5, prior.weight / 5)
    head = make_head(kind, TREE, 6, **given).double()
    assert type(clf.network_.head) is kind
    head.load_state_dict(clf.network_.head.state_dict())
    features = clf.network_.standardized(torch.from_numpy(X))
    weight = labels != "root"
    assert 0.9 < weight.mean() < 1
    expected = head.leaf_log_probability(features).detach().numpy()[:, TREE.leaf_order]
    np.testing.assert_allclose(clf.predict_log_proba(X), expected, rtol=1e-9)
    # The loss that was minimised is the head's with these options, plus the penalty.
    with torch.no_grad():
        loss = head.loss(features, head.prepare(TREE.resolve(labels)), 1.0).numpy()
        penalty = 0.003 * 6 / 2 * float(head.linear.weight.square().sum())  # of six features
    total = loss[weight].sum() + penalty
    assert clf.history_["objective"][-1] == pytest.approx(total / weight.sum(), rel=1e-9)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_a_model_can_be_saved_loaded_and_cloned(method, data, tmp_path):
    X, labels, leaves = data
    clf = method(TREE, backbone=None, l2=1e-3, **METHODS[method][1]).fit(X, labels)
    assert clf.score(X, leaves) > 0.8
    clf.save(tmp_path / "model.safetensors")
    same = load_model(tmp_path / "model.safetensors")
    assert type(same) is method
    assert {name: same.get_params()[name] for name in METHODS[method][1]} == METHODS[method][1]
    np.testing.assert_array_equal(same.predict_log_proba(X), clf.predict_log_proba(X))
    again = clone(same).fit(X, labels)
    np.testing.assert_array_equal(again.predict_log_proba(X), clf.predict_log_proba(X))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_a_fit_by_epochs_resumes_with_the_same_bits(method, data, tmp_path, monkeypatch):
    X, labels, _ = data
    whole = by_epochs(method).fit(X, labels)
    save, saved = CheckpointFile.save, []

    def save_and_stop(self, state):
        save(self, state)
        saved.append(state)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            by_epochs(method, hardware=Hardware(checkpoint_dir=tmp_path)).fit(X, labels)
    resumed = by_epochs(method, hardware=Hardware(checkpoint_dir=tmp_path)).fit(X, labels)
    assert resumed.n_iter_ == whole.n_iter_ == 3
    np.testing.assert_array_equal(resumed.predict_log_proba(X), whole.predict_log_proba(X))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_images_are_read_as_by_every_classifier(method):
    images = np.random.default_rng(0).integers(0, 255, size=(10, 16, 16), dtype=np.uint8)
    options = {"backbone": "test_resnet", "weights": None, "image_size": 16, "max_epochs": 1}
    clf = method(TREE, random_state=0, validation_fraction=None, **options)
    labels = ["lynx", "puma", "wolf", "fox", "newt"] * 2
    proba = clf.fit(images, labels).predict_proba_level(images, "family")
    assert proba.shape == (10, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)


# Partial labels -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", WITH_PARTIAL_LABELS, ids=lambda method: method.__name__)
def test_a_dropped_label_teaches_as_if_it_were_not_there(method, data):
    X, labels, _ = data
    options = {"backbone": None, "tol": 1e-6}
    dropped = method(TREE, partial_labels="drop", **options).fit(X, labels)
    is_leaf = np.isin(labels.astype(str), TREE.leaves)
    without = method(TREE, **options).fit(X[is_leaf], labels[is_leaf])
    np.testing.assert_allclose(dropped.predict_proba(X), without.predict_proba(X), atol=1e-6)
    with pytest.raises(ValueError, match="There is nothing to learn from"):
        method(TREE, partial_labels="drop", **options).fit(X, np.full(120, "cat"))


@pytest.mark.parametrize("method", WITH_PARTIAL_LABELS, ids=lambda method: method.__name__)
def test_three_readings_of_a_partial_label_are_three_models(method, data):
    X, labels, leaves = data
    models = {
        reading: method(TREE, backbone=None, l2=1e-3, partial_labels=reading).fit(X, labels)
        for reading in ("marginal", "soft", "drop")
    }
    proba = {reading: model.predict_proba(X) for reading, model in models.items()}
    assert np.abs(proba["marginal"] - proba["soft"]).max() > 0.01
    assert np.abs(proba["marginal"] - proba["drop"]).max() > 0.01
    assert all(model.score(X, leaves) > 0.8 for model in models.values())
    with pytest.raises(ValueError, match=r"'partial_labels' parameter of .* must be a str among"):
        method(TREE, backbone=None, partial_labels="guess").fit(X, labels)


def test_only_flat_models_need_to_be_told_how_to_read_partial_labels():
    assert set(METHODS) - set(WITH_PARTIAL_LABELS) == {HierCEClassifier, HENNClassifier}


# Opinions ------------------------------------------------------------------------------------


def test_flat_edl_is_h2edl_on_a_flat_tree(data):
    X, _, leaves = data
    options = {"backbone": None, "prior": "inverse_frequency", "leaf_weight": 0.1, "tol": 1e-8}
    rows = slice(10, None)
    flat = FlatEDLClassifier(**options).fit(X[rows], leaves[rows])
    tree = H2EDLClassifier(**options).fit(X[rows], leaves[rows])
    np.testing.assert_allclose(flat.predict_proba(X), tree.predict_proba(X), atol=1e-5)
    belief, vacuity = flat.predict_opinion(X)
    opinion = tree.predict_hyper_opinion(X)
    np.testing.assert_allclose(vacuity, opinion.vacuity[:, 0], atol=1e-5)
    for column, leaf in enumerate(flat.classes_):
        np.testing.assert_allclose(belief[:, column], opinion.belief(leaf), atol=1e-5)
    assert len(set(np.round(flat.network_.head.prior.tolist(), 6))) == 2


def test_flat_edl_has_the_published_evidence(data):
    """Sensoy et al. 2018: the positive part of the logits, over the prior of 1 on each leaf."""
    X, labels, leaves = data
    clf = FlatEDLClassifier(TREE, backbone=None, evidence="relu", evidence_scale=1.0, l2=1e-4)
    clf.fit(X, labels)
    features = clf.network_.standardized(torch.from_numpy(X))
    logits = clf.network_.head.linear(features).detach().numpy()[:, TREE.leaf_order]
    evidence = np.maximum(logits, 0)
    belief, vacuity = clf.predict_opinion(X)
    np.testing.assert_allclose(vacuity, 5 / (evidence.sum(axis=1) + 5), rtol=1e-9)
    np.testing.assert_allclose(belief, evidence * vacuity[:, None] / 5, rtol=1e-9)
    assert (logits < 0).any()
    assert clf.score(X, leaves) > 0.8


@pytest.mark.parametrize("method", EVIDENTIAL, ids=lambda method: method.__name__)
def test_belief_bounds_probability_and_sums_to_one_with_vacuity(method, data):
    X, labels, _ = data
    clf = method(TREE, backbone=None).fit(X, labels)
    belief, vacuity = clf.predict_opinion(X)
    in_groups = clf.predict_group_belief(X) if method is HENNClassifier else np.zeros((len(X), 1))
    np.testing.assert_allclose(belief.sum(axis=1) + in_groups.sum(axis=1) + vacuity, 1)
    assert ((vacuity > 0) & (vacuity < 1)).all()
    proba = clf.predict_proba(X)
    assert (belief <= proba).all()
    # Columns are in the order of classes_: what is added to belief is prior alone.
    if method is not HENNClassifier:
        np.testing.assert_allclose(proba - belief, np.tile(vacuity[:, None] / 5, 5), atol=1e-9)


@pytest.mark.parametrize("method", EVIDENTIAL, ids=lambda method: method.__name__)
def test_evidential_baselines_may_tune_what_h2edl_may(method, data):
    X, labels, _ = data
    defaults, of_h2edl = method().get_params(), H2EDLClassifier().get_params()
    names = (
        "evidence",
        "evidence_scale",
        "initial_vacuity",
        "kl_weight",
        "kl_per_child",
        "kl_ramp",
    )
    for name in names:
        if (method, name) != (ReEDLClassifier, "kl_weight"):  # Re-EDL has no KL regulariser
            assert defaults[name] == of_h2edl[name]
    clf = method(TREE, backbone=None, evidence_scale="learn", kl_weight=0.01).fit(X, labels)
    assert clf.network_.head.log_scale.item() != 0
    with pytest.raises(ValueError, match=r"'evidence' parameter of .* must be a str among"):
        method(TREE, backbone=None, evidence=None).fit(X, labels)


def test_an_unreadable_image_gets_a_vacuous_opinion(tmp_path):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    good = tmp_path / "good.png"
    Image.fromarray(np.zeros((16, 16), dtype=np.uint8)).save(good)
    options = {"backbone": "test_resnet", "weights": None, "image_size": 16, "finetune": "head"}
    clf = FlatEDLClassifier(TREE, on_bad_image="skip", prior="inverse_frequency", **options)
    clf.fit([str(good)] * 6, ["lynx", "lynx", "puma", "wolf", "fox", "newt"])
    with pytest.warns(UserWarning, match="could not be read"):
        belief, vacuity = clf.predict_opinion([str(good), str(bad)])
    assert belief[0].sum() > 0
    assert belief[1].tolist() == [0] * 5
    assert vacuity[1] == 1
    with pytest.warns(UserWarning, match="could not be read"):
        proba = clf.predict_proba([str(bad)])[0]
    # One more of (count + 1) ** -1 for those seen once.
    expected = {name: 1 / (3 if name == "lynx" else 2) for name in TREE.leaves}
    total = sum(expected.values())
    np.testing.assert_allclose(proba, [expected[name] / total for name in clf.classes_], rtol=1e-5)


def test_daedl_knows_how_far_a_sample_is_from_the_training_samples(data):
    X, labels, leaves = data
    clf = DAEDLClassifier(TREE, backbone=None).fit(X, labels)
    head, features = clf.network_.head, clf.network_.standardized(torch.from_numpy(X))
    is_leaf = np.isin(labels.astype(str), TREE.leaves)
    again = make_head(DAEDLHead, TREE, 6).double()
    position = [TREE.leaves.index(label) for label in labels[is_leaf]]
    again.fit_density(features[is_leaf], torch.tensor(position), torch.ones(is_leaf.sum()))
    torch.testing.assert_close(head.density(features), again.density(features))
    far, near = clf.predict_proba(X * 20), clf.predict_proba(X)
    np.testing.assert_allclose(far, 0.2, atol=0.01)
    assert near.max(axis=1).mean() > 0.5
    # The logits decide which leaf is best, also where all are about equally likely.
    logits = head.logits(clf.network_.standardized(torch.from_numpy(X * 20)))
    best = np.array(TREE.leaves)[logits.argmax(1).numpy()]
    np.testing.assert_array_equal(clf.predict(X * 20), best)
    coarse = [TREE.ancestor(name, "family") for name in leaves[leaves != "newt"]]
    without = DAEDLClassifier(TREE, backbone=None).fit(X[leaves != "newt"], coarse)
    assert (without.network_.head.density(features) == 1).all()


def test_daedl_counts_a_weight_as_so_many_samples(data):
    X, labels, _ = data
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    options = {"backbone": None, "tol": 1e-7}
    weighted = DAEDLClassifier(TREE, **options).fit(X, labels, sample_weight=weight)
    repeated = DAEDLClassifier(TREE, **options)
    repeated.fit(np.repeat(X, weight, axis=0), np.repeat(labels, weight))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("method", [DAEDLClassifier, FEDLClassifier])
def test_variances_are_in_the_order_of_the_classes_and_those_of_nothing_known_are_uniform(
    method, data, tmp_path
):
    X, labels, _ = data
    clf = method(TREE, backbone=None).fit(X, labels)
    variance, proba = clf.predict_variance(X), clf.predict_proba(X)
    assert ((variance > 0) & (variance < proba * (1 - proba))).all()
    features = clf.network_.standardized(torch.from_numpy(X))
    of_leaf = dict(zip(TREE.leaves, clf.network_.head.variance(features).T.tolist(), strict=True))
    for column, leaf in enumerate(clf.classes_):
        np.testing.assert_allclose(variance[:, column], of_leaf[leaf])
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    good = tmp_path / "good.png"
    Image.fromarray(np.zeros((16, 16), dtype=np.uint8)).save(good)
    options = {"backbone": "test_resnet", "weights": None, "image_size": 16, "finetune": "head"}
    clf = method(TREE, on_bad_image="skip", max_iter=3, tol=1, **options)
    clf.fit([str(good)] * 5, TREE.leaves)
    with pytest.warns(UserWarning, match="could not be read"):
        variance = clf.predict_variance([str(bad)])[0]
    np.testing.assert_allclose(variance, torch.distributions.Dirichlet(torch.ones(5)).variance)


def test_henn_groups_are_a_level(data):
    X, labels, _ = data
    by_default = HENNClassifier(TREE, backbone=None).fit(X, labels)
    assert by_default.groups_ == ["cat", "dog", "newt"]
    by_name = HENNClassifier(TREE, backbone=None, group_level="family").fit(X, labels)
    np.testing.assert_array_equal(by_name.predict_proba(X), by_default.predict_proba(X))
    in_groups = by_default.predict_group_belief(X)
    assert in_groups.shape == (120, 3)
    assert (in_groups[:, 2] == 0).all()  # a group of one leaf adds nothing to its leaf
    assert (in_groups[:, :2] > 0).all()
    leaves = HENNClassifier(TREE, backbone=None, group_level=2).fit(X, labels)
    assert leaves.groups_ == list(TREE.leaves)
    assert (leaves.predict_group_belief(X) == 0).all()
    with pytest.raises(ValueError, match="'group_level' parameter of HENNClassifier must be"):
        HENNClassifier(TREE, backbone=None, group_level=0).fit(X, labels)
    with pytest.raises(ValueError, match="order"):
        HENNClassifier(TREE, backbone=None, group_level="order").fit(X, labels)


def test_henn_starts_its_groups_below_pass_through_nodes(data):
    X, _, leaves = data
    deep = Taxonomy.from_nested({"animal": {"cat": ["lynx", "puma"], "dog": ["wolf", "fox"]}})
    rows = leaves != "newt"
    clf = HENNClassifier(deep, backbone=None).fit(X[rows], leaves[rows])
    assert clf.groups_ == ["cat", "dog"]


@pytest.mark.slow
def test_the_published_determinant_collapses_iedl_at_a_hundred_leaves_and_ours_does_not():
    # Not so on fixed features: it is the backbone that gives in, and ceases to tell images apart.
    glyphs = make_glyphs(
        1010, scripts=("Latin", "Greek"), image_size=16, noise=0, occlusion=0, random_state=0
    )
    labels = np.asarray(glyphs.labels)
    kept = labels != "GREEK SMALL LETTER FINAL SIGMA"
    images, labels = glyphs.images[kept], labels[kept]
    assert len(set(labels)) == 100
    assert len(labels) == 1000

    def fit(fisher_weight):
        clf = IEDLClassifier(
            backbone="test_resnet", weights=None, image_size=16, learning_rate=5e-3, batch_size=25,
            recipe=Recipe(augmentation="none", backbone_lr_scale=1.0, weight_decay=0.0),
            max_epochs=4, validation_fraction=None, fisher_weight=fisher_weight, random_state=0,
            evidence_scale=1.0, initial_vacuity=0.887, kl_weight=0.4, kl_ramp=1.0,
            kl_per_child=False,
        )  # fmt: skip
        return clf.fit(images, labels)

    published, ours = fit(0.05), fit(None)
    assert ours.network_.head.fisher_weight == 0.02
    right, right_published = (clf.score(images, labels) for clf in (ours, published))
    # Far above chance, one in a hundred, and above the other by five standard errors.
    assert binomtest(round(right * 1000), 1000, 0.01, alternative="greater").pvalue < 1e-9
    errors = [rate * (1 - rate) / 1000 for rate in (right, right_published)]
    assert right - right_published > 5 * np.sqrt(sum(errors))
    assert published.predict_opinion(images)[1].mean() > 0.999
    assert ours.predict_opinion(images)[1].mean() < 0.99


def test_re_edl_minimises_the_squared_error_of_its_projected_probability():
    """Chen et al. 2024: (e + 0.8) / sum(e + 0.8), without variance term and KL regulariser."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 4, size=40)
    clf = ReEDLClassifier(backbone=None, l2=0.0, max_iter=5, tol=1e-9, evidence_scale=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        clf.fit(X, y)
    head = clf.network_.head
    weight, bias = (item.detach().numpy() for item in (head.linear.weight, head.linear.bias))
    features = (X - X.mean(0)) / np.sqrt(X.var(0).mean())
    alpha = np.logaddexp(0, features @ weight.T + bias) + 0.8
    projected = alpha / alpha.sum(1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X), projected, rtol=1e-6)
    error = np.square(np.eye(4)[y] - projected).sum(1).mean()
    assert clf.history_["objective"][-1] == pytest.approx(error, rel=1e-6)
