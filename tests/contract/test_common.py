"""The scikit-learn contract: every classifier passes all of scikit-learn's own checks."""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import skh2edl
from skh2edl.estimators.base import TreeClassifier

CLASSIFIERS = [
    member
    for name in skh2edl.__all__
    if isinstance(member := getattr(skh2edl, name), type) and issubclass(member, TreeClassifier)
]


@parametrize_with_checks([classifier(backbone=None) for classifier in CLASSIFIERS])
def test_all_of_scikit_learns_checks(estimator, check):
    # Nothing is expected to fail; a check that must be excepted would be listed with its reason.
    check(estimator)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_shared_parameters_have_one_default(classifier):
    own, main = classifier().get_params(), skh2edl.H2EDLClassifier().get_params()
    shared = TreeClassifier._parameter_constraints.keys()
    assert shared <= own.keys()
    assert {name: own[name] for name in shared} == {name: main[name] for name in shared}


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_clone_holds_the_same_taxonomy(classifier):
    tree = skh2edl.Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None})
    copy = clone(classifier(tree, max_epochs=7))
    assert copy.taxonomy is tree
    assert copy.max_epochs == 7
    assert "Taxonomy(3 leaves" in repr(copy)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_parameter_out_of_range_is_named(classifier):
    with pytest.raises(ValueError, match=r"'batch_size' parameter of .* must be an int"):
        classifier(backbone=None, batch_size=0).fit([[0.0], [1.0]], [0, 1])
