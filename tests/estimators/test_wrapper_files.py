"""Model files of wrappers and pipelines: the same bits come back, and crafted files do not."""

import json
import tracemalloc
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_model_files import (
    load_or_refuse,
    mutations,
    read,
    remove_key,
    set_key,
    with_parameter,
    write,
)

from skh2edl import (
    CalibratedTreeClassifier,
    CandidateClassifier,
    ConformalTreeClassifier,
    FlatCEClassifier,
    H2EDLClassifier,
    HedgedClassifier,
    ImageFeatureExtractor,
    MinimumCostClassifier,
    NoveltyDetector,
    Taxonomy,
    TreeEnsembleClassifier,
    TreeView,
    load_model,
)
from skh2edl.estimators.model_files import save_model

TREE = Taxonomy.from_nested(
    {"cat": {"big": ["lynx", "puma"]}, "dog": ["fox", "wolf", "other"], "other": None},
    level_names=("family", "genus", "species"),
)
RNG = np.random.default_rng(0)
N_SAMPLES = 240
CODES = np.arange(N_SAMPLES) % TREE.n_leaves
LABELS = np.array(TREE.leaves, dtype=object)[CODES]
X = RNG.normal(size=(N_SAMPLES, 6)) + 2 * np.eye(6)[CODES]
NEW = RNG.normal(size=(30, 6))
# Named by their paths, because "other" is the name of two leaves.
Y = np.empty(N_SAMPLES, dtype=object)
Y[:] = [TREE.path(leaf) for leaf in LABELS]


@cache
def base(kind, dtype="float64", flat=False):
    """A fitted classifier, frozen: wrappers calibrate it in no time."""
    taxonomy = None if flat else TREE
    labels = np.array(["lynx", "puma", "fox", "wolf"])[CODES % 4] if flat else list(Y)
    return FrozenEstimator(kind(taxonomy, backbone=None).fit(X.astype(dtype), labels))


def save_and_load(model, folder):
    path = folder / "wrapper.safetensors"
    save_model(model, path)
    return load_model(path)


def everything(model, samples):
    """Return all that a model says of samples, by the name of the method."""
    names = ["predict", "predict_log_proba", "predict_level", "predict_leaf_set", "predict_set"]
    names += ["predict_cost", "predict_novelty_score", "predict_novelty", "predict_concept"]
    names += ["candidate_probability", "predict_hyper_opinion"]
    said = {}
    for name in names:
        if hasattr(model, name):
            more = [1] if name == "predict_level" else []
            said[name] = getattr(model, name)(samples, *more)
    return said


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert_array_equal(found[name], value, err_msg=name)
            assert found[name].dtype == value.dtype
        else:
            assert found[name] == value, name


CLASSIFIERS = st.builds(
    base, st.sampled_from([H2EDLClassifier, FlatCEClassifier]), st.sampled_from(["f4", "f8"])
)
SUBTREES = st.sampled_from([None, "family", 1, ["cat"], [("cat", "big"), "dog"]])
CALIBRATED = st.builds(
    CalibratedTreeClassifier, CLASSIFIERS, method=st.sampled_from(["auto", "temperature"])
) | st.builds(CalibratedTreeClassifier, st.just(base(H2EDLClassifier)), per_depth=st.booleans())
INSIDE = CLASSIFIERS | CALIBRATED.map(lambda model: FrozenEstimator(model.fit(X, list(Y))))
TARGETS = st.floats(0.3, 0.9)
WRAPPERS = (
    CALIBRATED
    | st.builds(
        HedgedClassifier,
        INSIDE,
        TARGETS | st.fixed_dictionaries({"family": TARGETS, 3: TARGETS}),
        subtrees=SUBTREES,
        subtrees_of=st.sampled_from(["prediction", "truth"]),
        small_subtrees=st.just("pool"),
    )
    | st.builds(HedgedClassifier, INSIDE, TARGETS, rule=st.sampled_from(["darts", "information"]))
    | st.builds(
        ConformalTreeClassifier,
        INSIDE,
        st.floats(0.1, 0.7),
        nonconformity=st.sampled_from(["probability", "cumulative"]),
        conditional_on=SUBTREES,
        small_classes=st.sampled_from(["pool", "include"]),
    )
    | st.builds(
        MinimumCostClassifier,
        INSIDE,
        st.sampled_from(["lca_height", "distance"])
        | st.floats(0, 9).map(lambda cost: {("cat", "dog"): cost, ("dog", ("cat", "big")): 2}),
        outputs=st.sampled_from(["leaves", "nodes"]),
    )
    | st.builds(
        NoveltyDetector,
        INSIDE,
        st.floats(0.05, 0.5),
        measure=st.sampled_from(["auto", "probability", "entropy"]),
    )
    | st.builds(
        CandidateClassifier,
        INSIDE,
        st.sampled_from([None, "cat", ["wolf", ("cat", "big")]]),
        warn_below=st.just(0),
    )
)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(wrapper=WRAPPERS)
def test_a_loaded_wrapper_says_the_same_bits(tmp_path, wrapper):
    wrapper.fit(X, list(Y))
    loaded = save_and_load(wrapper, tmp_path)
    assert type(loaded) is type(wrapper)
    assert_same(everything(loaded, NEW), everything(wrapper, NEW))
    left_out = {"estimator", "taxonomy", "cv", "n_jobs"}
    expected = {k: v for k, v in wrapper.get_params(deep=False).items() if k not in left_out}
    assert loaded.get_params(deep=False).items() >= expected.items()
    learned = {k: v for k, v in vars(wrapper).items() if k.endswith("_") and k != "estimator_"}
    for name, value in learned.items():
        assert np.array_equal(getattr(loaded, name), value), name
    # A second trip changes nothing.
    assert_same(everything(save_and_load(loaded, tmp_path), NEW), everything(wrapper, NEW))


@pytest.mark.parametrize("how", ["probabilities", "opinions", "moments"])
def test_a_loaded_ensemble_says_the_same_bits(tmp_path, how):
    member = H2EDLClassifier(TREE, backbone=None)
    ensemble = TreeEnsembleClassifier(member, 3, how=how, bootstrap=True, random_state=0)
    loaded = save_and_load(ensemble.fit(X, list(Y)), tmp_path)
    assert len(loaded.estimators_) == 3
    assert_same(everything(loaded, NEW), everything(ensemble, NEW))


def test_a_wrapper_with_a_tree_of_its_own_keeps_it(tmp_path):
    tree = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
    labels = np.array(["lynx", "puma", "fox", "wolf"])[CODES % 4]
    wrapper = HedgedClassifier(base(FlatCEClassifier, flat=True), 0.8, taxonomy=tree)
    loaded = save_and_load(wrapper.fit(X, labels), tmp_path)
    assert loaded.taxonomy_ == tree != loaded.estimator_.taxonomy_
    assert_same(everything(loaded, NEW), everything(wrapper, NEW))


def test_a_loaded_hedge_is_calibrated_again_without_training(tmp_path):
    loaded = save_and_load(HedgedClassifier(base(H2EDLClassifier), 0.6).fit(X, list(Y)), tmp_path)
    before, threshold = loaded.predict_proba(NEW), loaded.threshold_
    loaded.set_params(target_accuracy=0.9).fit(X, list(Y))
    assert loaded.threshold_ > threshold
    assert_array_equal(loaded.predict_proba(NEW), before)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda steps: HedgedClassifier(make_pipeline(*steps, H2EDLClassifier(TREE, backbone=None))),
        lambda steps: make_pipeline(*steps, HedgedClassifier(base(H2EDLClassifier))),
        lambda steps: make_pipeline(
            *steps,
            HedgedClassifier(make_pipeline(StandardScaler(), CalibratedTreeClassifier(
                FlatCEClassifier(TREE, backbone=None)))),
        ),
    ],
    ids=["inside", "outside", "both"],
)  # fmt: skip
def test_the_steps_of_a_pipeline_become_a_part_of_the_file(tmp_path, wrap):
    model = wrap([StandardScaler()]).fit(3 + 5 * X, list(Y))
    loaded = save_and_load(model, tmp_path)
    assert type(loaded) is HedgedClassifier
    # Two divisions became one, so the last digits differ; hedges have a margin of 1e-5 for that.
    samples = 3 + 5 * NEW
    np.testing.assert_allclose(
        loaded.predict_log_proba(samples), model.predict_log_proba(samples), rtol=1e-9, atol=1e-9
    )
    assert_array_equal(loaded.predict(samples), model.predict(samples))


def test_a_hedge_around_an_extractor_reads_images(tmp_path):
    images = RNG.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    extractor = ImageFeatureExtractor("test_resnet", weights=None, image_size=32)
    classifier = make_pipeline(extractor, H2EDLClassifier(TREE, backbone=None))
    model = HedgedClassifier(classifier, 0.5, cv=2).fit(images, list(Y[:60]))
    model.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.estimator_.backbone == "test_resnet"
    assert_array_equal(loaded.predict(images), model.predict(images))
    assert loaded.predict_proba(images) == pytest.approx(model.predict_proba(images), abs=1e-6)


# What has no file --------------------------------------------------------------------------------


def test_a_wrapper_around_a_foreign_classifier_is_refused_with_the_way_out(tmp_path):
    foreign = GaussianNB().fit(X, CODES)
    wrapper = HedgedClassifier(FrozenEstimator(foreign), 0.5).fit(X, CODES)
    message = r"GaussianNB is not a classifier of this package with a network.*Use joblib\.dump\."
    for model in (wrapper, TreeView(FrozenEstimator(foreign))):
        with pytest.raises(TypeError, match=message):
            model.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        (
            MinimumCostClassifier(base(H2EDLClassifier), lambda a, b: float(a != b)),
            "parameter cost of MinimumCostClassifier is a function.*the array cost_matrix_",
        ),
        (
            NoveltyDetector(base(H2EDLClassifier), measure=lambda model, X: np.zeros(len(X))),
            r"parameter measure of NoveltyDetector is a function.*joblib\.dump",
        ),
    ],
)
def test_a_function_has_no_file(tmp_path, wrapper, message):
    with pytest.raises(TypeError, match=message):
        wrapper.fit(X, list(Y)).save(tmp_path / "model.safetensors")


def test_the_cost_matrix_stands_for_a_function(tmp_path):
    costs = MinimumCostClassifier(base(H2EDLClassifier), lambda a, b: float(len(a) != len(b)))
    costs.fit(X, list(Y))
    expected = everything(costs, NEW)
    loaded = save_and_load(costs.set_params(cost=costs.cost_matrix_), tmp_path)
    assert_same(everything(loaded, NEW), expected)


def test_a_class_of_ones_own_is_refused(tmp_path):
    class Mine(HedgedClassifier):
        pass

    with pytest.raises(TypeError, match="Mine is not a wrapper of this package"):
        Mine(base(H2EDLClassifier), 0.5).fit(X, list(Y)).save(tmp_path / "model.safetensors")


def test_parameters_that_no_longer_fit_are_refused_before_writing(tmp_path):
    hedge = HedgedClassifier(base(H2EDLClassifier), 0.5).fit(X, list(Y))
    hedge.set_params(target_accuracy={"family": 0.9})
    with pytest.raises(ValueError, match=r"cannot have _thresholds .* Fit it again"):
        hedge.save(tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


# Crafted files -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hedge(tmp_path_factory):
    """The file of a hedge around a calibrated classifier: members at two depths."""
    path = tmp_path_factory.mktemp("hedge") / "hedge.safetensors"
    calibrated = CalibratedTreeClassifier(base(H2EDLClassifier), per_depth=True).fit(X, list(Y))
    HedgedClassifier(FrozenEstimator(calibrated), 0.6).fit(X, list(Y)).save(path)
    return path


def in_member(change):
    return lambda header: change(header["members"][0])


def in_network(change):
    return in_member(in_member(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_key("class", to="Popen"), "names the wrapper 'Popen', and this release knows Calib"),
        (set_key("class", to="H2EDLClassifier"), "names the wrapper 'H2EDLClassifier'"),
        (set_key("class", to="os.system"), "names the wrapper"),
        (set_key("class", to=["HedgedClassifier"]), "names the wrapper"),
        (set_key("class", to="NoveltyDetector"), "unexpected keyword"),
        (in_member(set_key("class", to="TreeView")), "names the wrapper 'TreeView'"),
        (in_network(set_key("class", to="Popen")), "names the class 'Popen'"),
        (remove_key("class"), "KeyError 'class'"),
        (remove_key("parameters"), "KeyError 'parameters'"),
        (remove_key("learned"), "KeyError 'learned'"),
        (remove_key("taxonomy"), "KeyError 'taxonomy'"),
        (remove_key("members"), "holds no matrix head.linear.weight"),
        (set_key("members", to=[]), "tensors of no member"),
        (set_key("members", to={}), "its members are {}"),
        (set_key("members", to=[7]), "tensors of no member|is not that of a model|holds no matrix"),
        (lambda header: header["members"].append({}), "holds no matrix"),
        (lambda header: with_parameter(header, "n_jobs", 64), "it sets n_jobs"),
        (lambda header: with_parameter(header, "estimator", "x"), "it sets estimator"),
        (lambda header: with_parameter(header, "cv", 5), "it sets cv"),
        (lambda header: with_parameter(header, "target_accuracy", 2), "'target_accuracy' param"),
        (lambda header: with_parameter(header, "rule", "eval"), "'rule' parameter of"),
        (lambda header: with_parameter(header, "no_such", 1), "no_such"),
        (in_network(lambda header: with_parameter(header, "memory", "x")), "it sets memory"),
        (set_key("taxonomy", to="{}"), "JSON of a taxonomy"),
        (set_key("taxonomy", to=Taxonomy.flat(["a", "b"]).to_json()), "is not that of a model"),
        (set_key("learned", to={}), "was learnt, not"),
        (set_key("learned", to=[]), "is not that of a model"),
        (set_key("learned", "guarantee_", to="certain"), "cannot have guarantee_ 'certain'"),
        (set_key("learned", "n_calibration_", to=-1), "cannot have n_calibration_ -1"),
        (set_key("learned", "n_calibration_", to=True), "cannot have n_calibration_ True"),
        (set_key("learned", "subtrees_", to="root"), "cannot have subtrees_ 'root'"),
        (set_key("learned", "subtrees_", to=[]), "cannot have _part_of_leaf"),
        (set_key("learned", "__class__", to=1), "was learnt, not"),
        (set_key("learned", "estimator_", to=None), "was learnt, not"),
        (in_member(set_key("learned", "temperature_", to=2.0)), "cannot have temperature_ 2.0"),
        (in_member(lambda header: with_parameter(header, "per_depth", False)), "evidence_scale_"),
        (in_member(lambda header: with_parameter(header, "method", "temperature")), "per_depth"),
    ],
)  # fmt: skip
def test_a_header_with_something_wrong_is_refused(tmp_path, hedge, change, message):
    header, tensors = read(hedge)
    change(header)
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


THRESHOLDS, PARTS, SCALE = (
    "learned._thresholds",
    "learned._part_of_leaf",
    "0.learned.evidence_scale_",
)
WEIGHT = "0.0.head.linear.weight"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (THRESHOLDS, torch.full((1, 1), torch.nan, dtype=torch.float64), "cannot have _thresholds"),
        (THRESHOLDS, torch.zeros((2, 1), dtype=torch.float64), "cannot have _thresholds"),
        (THRESHOLDS, torch.zeros((1, 1)), "cannot have _thresholds"),
        (THRESHOLDS, None, "was learnt, not"),
        (PARTS, torch.full((6,), 9), "cannot have _part_of_leaf"),
        (PARTS, torch.full((6,), -1), "cannot have _part_of_leaf"),
        (PARTS, torch.zeros(5, dtype=torch.int64), "cannot have _part_of_leaf"),
        (SCALE, torch.zeros(3, dtype=torch.float64), "is not that of a model"),
        (SCALE, torch.full((3,), 1e300, dtype=torch.float64), "cannot have evidence_scale_"),
        (SCALE, torch.full((3,), torch.nan, dtype=torch.float64), "cannot have evidence_scale_"),
        (SCALE, torch.ones(2, dtype=torch.float64), "cannot have evidence_scale_"),
        (WEIGHT, torch.full((8, 6), torch.nan, dtype=torch.float64), "NaN or infinity in head"),
        (WEIGHT, torch.zeros((8, 7), dtype=torch.float64), "n_features_in_ is 6"),
        (WEIGHT, None, "holds no matrix"),
        ("other", torch.zeros(2), r"tensors of no member, \['other'\]"),
        ("1.head.linear.weight", torch.zeros(2), r"tensors of no member, \['1'\]"),
        ("00.head.linear.weight", torch.zeros(2), r"tensors of no member, \['00'\]"),
        ("0.0.other", torch.zeros(2), r"unexpected \['other'\]"),
        ("learned.estimator_", torch.zeros(2), "was learnt, not"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(tmp_path, hedge, name, value, message):
    header, tensors = read(hedge)
    if value is None:
        del tensors[name]
    else:
        tensors[name] = value
    with pytest.raises(ValueError, match=message):
        load_model(write(tmp_path, header, tensors))


@pytest.mark.parametrize("depth", [5, 100, 400, 10_000])
def test_members_of_members_without_end_are_refused(tmp_path, hedge, depth):
    header, tensors = read(hedge)
    text = json.dumps(header | {"members": "deep"})
    nested = '[{"members": ' * depth + "[]" + "}]" * depth
    path = write(tmp_path, text.replace('"deep"', nested), tensors)
    with pytest.raises(ValueError, match=r"recursion depth|not that of a model|damaged") as caught:
        load_model(path)
    assert len(str(caught.value)) < 2000


def test_a_huge_taxonomy_of_its_own_is_not_built(tmp_path, hedge):
    header, tensors = read(hedge)
    n_leaves = 300_000
    tree = {**json.loads(TREE.to_json()), "level_names": None}
    tree |= {"names": list(range(n_leaves + 1)), "parents": [-1] + [0] * n_leaves}
    header["taxonomy"] = json.dumps(tree)
    path = write(tmp_path, header, tensors)
    tracemalloc.start()
    with pytest.raises(ValueError, match="taxonomy has 300000 leaves, and that of a wrapper may"):
        load_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The text and the numbers in it; a tree of this size takes ten times as much.
    assert peak < 20 * path.stat().st_size


def test_a_cost_matrix_is_no_larger_than_the_file(tmp_path):
    costs = MinimumCostClassifier(base(H2EDLClassifier), outputs="nodes").fit(X, list(Y))
    costs.save(tmp_path / "costs.safetensors")
    header, tensors = read(tmp_path / "costs.safetensors")
    tensors["learned.cost_matrix_"] = tensors["learned.cost_matrix_"][:-1].clone()
    with pytest.raises(ValueError, match="cannot have cost_matrix_"):
        load_model(write(tmp_path, header, tensors))
    tensors["learned.cost_matrix_"] = torch.full((TREE.n_nodes, 6), torch.inf, dtype=torch.float64)
    with pytest.raises(ValueError, match="cannot have cost_matrix_"):
        load_model(write(tmp_path, header, tensors))


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_change_of_the_header_gets_past_the_checks(tmp_path, hedge, data):
    header, tensors = read(hedge)
    path = write(tmp_path, data.draw(mutations(header)), tensors)
    load_or_refuse(path, NEW[:2])
