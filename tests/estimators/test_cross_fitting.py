"""Heads that are fitted on all samples and calibrated on those that folds left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import (
    CalibratedTreeClassifier,
    FlatCEClassifier,
    FlatEDLClassifier,
    H2EDLClassifier,
    Hardware,
    Taxonomy,
)
from skh2edl.estimators.cross_fitting import (
    Features,
    _divide,
    calibrate_together,
    fit_folds,
    fit_head,
    frozen_backbone,
    on_features,
    read_features,
)

TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["pug", "wolf"]})


def samples(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.array(TREE.leaves)[np.arange(n) % 4]
    X = rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[np.arange(n) % 4]
    return Features(None, X, np.ones(n, dtype=bool)), y


def test_the_scale_of_opinions_is_that_of_the_calibrated_classifier():
    features, y = samples()
    clf = H2EDLClassifier(TREE, backbone=None)
    folds = fit_folds(clf, features, y)
    model = fit_head(clf, features, y)
    factor = calibrate_together(folds, features, y, model)
    expected = CalibratedTreeClassifier(clf, cv=5).fit(features.X, y)
    assert factor == pytest.approx(expected.evidence_scale_, rel=1e-3)
    proba = model.predict_proba(features.X)
    assert proba == pytest.approx(expected.predict_proba(features.X), abs=1e-4)


def test_the_scale_of_a_softmax_is_one_over_the_temperature():
    features, y = samples()
    clf = FlatCEClassifier(TREE, backbone=None)
    folds = fit_folds(clf, features, y)
    factor = calibrate_together(folds, features, y)
    expected = CalibratedTreeClassifier(clf, cv=5).fit(features.X, y)
    assert 1 / factor == pytest.approx(expected.temperature_, rel=1e-3)


def test_labels_above_the_leaves_and_the_root_take_part_as_in_the_calibrated_classifier():
    features, y = samples()
    y = y.astype(object)
    y[:20], y[20:25] = np.array(["cat", "cat", "dog", "dog"] * 5), "root"
    clf = H2EDLClassifier(TREE, backbone=None)
    folds = fit_folds(clf, features, y)
    factor = calibrate_together(folds, features, y)
    expected = CalibratedTreeClassifier(clf, cv=5).fit(features.X, y)
    assert factor == pytest.approx(expected.evidence_scale_, rel=1e-3)


def test_a_flat_evidential_head_is_less_sure_after_a_smaller_scale():
    features, y = samples()
    clf = FlatEDLClassifier(TREE, backbone=None).fit(features.X, y)
    before = clf.predict_proba(features.X).max(axis=1)
    clf.network_.head.rescale(0.5)
    assert (clf.predict_proba(features.X).max(axis=1) < before).all()


def test_a_head_on_features_read_before_is_the_head_of_a_fit_on_the_images():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(24, 32, 32, 3), dtype=np.uint8)
    y = np.array(TREE.leaves)[np.arange(24) % 4]
    network = {"backbone": "test_resnet", "weights": None, "image_size": 32, "finetune": "head"}
    clf = H2EDLClassifier(TREE, **network, random_state=0, hardware=Hardware(n_workers=0))
    features = read_features(clf, frozen_backbone(clf), images)
    fitted, expected = fit_head(clf, features, y), clf.fit(images, y)
    state, other = fitted.network_.state_dict(), expected.network_.state_dict()
    assert state.keys() == other.keys()
    assert all((state[name] == other[name]).all() for name in state)
    assert vars(fitted).keys() == vars(expected).keys()
    bare, standardized, usable = on_features(fitted, images)
    assert usable.all()
    proba = bare.predict_proba(standardized)
    assert proba == pytest.approx(expected.predict_proba(images), abs=1e-6)


@given(st.lists(st.integers(1, 12), min_size=2, max_size=6), st.integers(2, 5))
def test_every_sample_is_held_out_once_and_a_label_with_two_is_in_every_fit(counts, n_splits):
    nodes = np.repeat(np.arange(len(counts)), counts)
    splits = _divide(nodes, None, n_splits)
    if max(counts) == 1:
        assert splits == []
        return
    held = np.concatenate([held for _, held in splits])
    assert np.array_equal(np.sort(held), np.arange(len(nodes)))
    for rows, part in splits:
        assert not np.intersect1d(rows, part).size
        assert {node for node, n in enumerate(counts) if n > 1} <= set(nodes[rows].tolist())


def test_groups_are_held_out_whole_and_unusable_samples_not_at_all():
    features, y = samples()
    usable = np.arange(60) != 7
    groups = np.arange(60) // 6
    folds = fit_folds(
        H2EDLClassifier(TREE, backbone=None), features._replace(usable=usable), y, groups
    )
    held = np.concatenate([fold.held for fold in folds])
    assert np.array_equal(np.sort(held), np.flatnonzero(usable))
    parts = [set(groups[fold.held]) for fold in folds]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 10
