"""What is called exact is kept: for subjects photographed often, and in batches of any size."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from decisions_cases import TREE, Told, population
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    ShuffleSplit,
    StratifiedShuffleSplit,
)
from sklearn.neighbors import KNeighborsClassifier

from skh2edl import (
    CalibratedTreeClassifier,
    ConformalTreeClassifier,
    FlatCEClassifier,
    Hardware,
    HedgedClassifier,
    NoveltyDetector,
    Taxonomy,
)
from skh2edl.decisions._ladders import covers
from skh2edl.decisions._quantile import conformal_quantile, whole_votes
from skh2edl.estimators.splits import held_out_splits

PETS = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "wolf"]})
TOLD = FrozenEstimator(Told(TREE).fit(None))
WRAPPERS = (HedgedClassifier, ConformalTreeClassifier, NoveltyDetector, CalibratedTreeClassifier)


def patients(n_patients, n_photographs, seed):
    """Photographs of one patient are alike, and say little about its class."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, size=n_patients)
    centre = 0.7 * np.eye(4)[kind] @ rng.normal(size=(4, 6)) + rng.normal(size=(n_patients, 6))
    group = np.repeat(np.arange(n_patients), n_photographs)
    X = centre[group] + 0.1 * rng.normal(size=(group.size, 6))
    return X, np.array(PETS.leaves)[kind[group]], group


def subjects(n_subjects, n_photographs, seed):
    """Probabilities of photographs whose error is shared by all of one subject."""
    stated, truth = population(n_subjects, 1.0, seed=seed)
    rng = np.random.default_rng(seed + 1)
    noise = np.exp(0.5 * rng.normal(size=(n_subjects, n_photographs, TREE.n_leaves)))
    stated = (stated[:, None] * noise).reshape(-1, TREE.n_leaves)
    group = np.repeat(np.arange(n_subjects), n_photographs)
    return stated / stated.sum(axis=1, keepdims=True), truth[group], group


# Splits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_split_with_a_patient_on_both_sides_is_refused(wrapper):
    X, y, group = patients(40, 8, seed=0)
    clf = wrapper(KNeighborsClassifier(), cv=ShuffleSplit(1, random_state=0), taxonomy=PETS)
    message = r"cv puts \d+ group\(s\) on both sides .* such as GroupShuffleSplit"
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y, groups=group)
    with pytest.raises(ValueError, match="on both sides"):
        clf.set_params(cv=[(np.arange(0, 160), np.arange(156, 320))]).fit(X, y, groups=group)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("cv", [None, 3, GroupKFold(4), GroupShuffleSplit(1, random_state=0)])
def test_fits_see_no_patient_that_is_held_out(wrapper, cv):
    X, y, group = patients(20, 5, seed=0)
    seen = []

    class Recorder(KNeighborsClassifier):
        def fit(self, X, y):
            seen.append(set(X[:, 0].tolist()))
            return super().fit(X, y)

        def predict_proba(self, X):
            if len(X) < 100:
                assert any(not seen_by & set(X[:, 0].tolist()) for seen_by in seen)
            return super().predict_proba(X)

    patient_as_feature = np.column_stack([group, X])
    wrapper(Recorder(3), cv=cv, taxonomy=PETS).set_params(
        **{
            name: value
            for name, value in (("target_accuracy", 0.5), ("alpha", 0.5), ("false_alarm_rate", 0.5))
            if name in wrapper(Recorder()).get_params()
        }
    ).fit(patient_as_feature, y, groups=group)
    for fitted_on in seen:
        # Whole patients, all of them or all but a part.
        assert {p for p in range(20) if p in fitted_on} == fitted_on
    assert min(map(len, seen)) < 20


def test_default_parts_hold_whole_groups_with_labels_in_proportion():
    labels = np.repeat([("a", "b"), ("c", "d")], [60, 20], axis=0)
    labels = np.array([tuple(row) for row in labels] + [None], dtype=object)[:-1]
    group = np.repeat(np.arange(20), 4)
    splits = held_out_splits(None, np.zeros(80), labels, group)
    assert len(splits) == 5
    for _, held in splits:
        assert held.size == 16
        assert sum(label == ("c", "d") for label in labels[held]) == 4
    with pytest.raises(ValueError, match=r"3 group\(s\) cannot be divided into 4 parts"):
        held_out_splits(4, np.zeros(6), labels[:6], [0, 0, 1, 1, 2, 2])
    with pytest.raises(ValueError, match=r"1 group\(s\) cannot be divided into 2 parts"):
        held_out_splits(None, np.zeros(6), labels[:6], np.zeros(6))
    with pytest.raises(ValueError, match="groups must not hold missing values"):
        held_out_splits(None, np.zeros(3), labels[:3], [0.0, 1.0, np.nan])


# The quantile of groups ----------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.sampled_from([0.3, 0.5, 0.8, 0.9]),
    st.integers(0, 10**6),
)
def test_the_bound_of_groups_is_that_of_the_mean_distribution(sizes, coverage, seed):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    values = rng.integers(0, 5, size=group.size).astype(float)
    bound = conformal_quantile(values, coverage, np.ones(group.size), group)
    # Lee, Barber and Willett: the quantile of the groups' mean distribution, a new one at infinity.
    below = [
        sum(np.mean(values[group == g] <= v) for g in range(len(sizes))) / (len(sizes) + 1)
        for v in range(5)
    ]
    enough = [v for v in range(5) if below[v] >= coverage - 1e-9]
    assert bound == (enough[0] if enough else np.inf)
    votes = whole_votes(values, group)
    assert votes.size == len(sizes)
    assert conformal_quantile(votes, coverage, np.ones(votes.size)) >= bound
    alone = conformal_quantile(values, coverage, np.ones(values.size), np.arange(values.size))
    assert alone == conformal_quantile(values, coverage, np.ones(values.size))


def test_groups_are_counted_where_there_must_be_enough():
    stated, truth, group = subjects(10, 20, seed=0)
    labels = TREE.labels(truth)
    message = (
        r"guarantee of 0.99 needs at least 99 calibration group\(s\), got 10 \(200 samples\).*"
        r"Give more groups, or lower target_accuracy \(these can guarantee at most 0.909\)"
    )
    with pytest.raises(ValueError, match=message):
        HedgedClassifier(TOLD, 0.99).fit(stated, labels, groups=group)
    with pytest.raises(ValueError, match=r"at least 99 .*group\(s\), got 10 .*raise alpha"):
        ConformalTreeClassifier(TOLD, 0.01).fit(stated, labels, groups=group)
    with pytest.raises(ValueError, match=r"99 .*group\(s\), got 10 .*raise false_alarm_rate"):
        NoveltyDetector(TOLD, 0.01).fit(stated, labels, groups=group)
    with pytest.raises(ValueError, match=r"each part needs at least 9 calibration group\(s\)"):
        HedgedClassifier(TOLD, 0.9, subtrees="order").fit(stated, labels, groups=group)
    clf = HedgedClassifier(TOLD, 0.9).fit(stated, labels, groups=group)
    assert (clf.n_calibration_, clf.n_calibration_groups_, clf.guarantee_) == (200, 10, "exact")


# Kept ----------------------------------------------------------------------------------------


def is_kept(rates, target):
    """Tell whether a mean rate is below its target by no more than three standard errors."""
    return np.mean(rates) >= target - 3 * np.std(rates, ddof=1) / np.sqrt(len(rates))


@pytest.mark.slow
def test_ten_patients_of_twenty_photographs_keep_nine_tenths():
    right = {"hedged": [], "conformal": [], "novelty": [], "photographs": []}
    for seed in range(300):
        stated, truth, group = subjects(60, 20, seed=2000 + seed)
        labels, new = TREE.labels(truth[:200]), slice(200, None)
        held = {"X": stated[:200], "y": labels}
        for name, groups in (("hedged", group[:200]), ("photographs", None)):
            clf = HedgedClassifier(TOLD, 0.9).fit(**held, groups=groups)
            assert clf.guarantee_ == "exact"
            nodes = TREE.resolve(clf.predict(stated[new]))
            right[name].append(covers(nodes, truth[new], TREE).mean())
        clf = ConformalTreeClassifier(TOLD, 0.1).fit(**held, groups=group[:200])
        column = np.argsort(TREE.leaf_order)[TREE.leaf_start[truth[new]]]
        right["conformal"].append(
            clf.predict_leaf_set(stated[new])[np.arange(column.size), column].mean()
        )
        detector = NoveltyDetector(TOLD, 0.1).fit(**held, groups=group[:200])
        right["novelty"].append(1 - detector.predict_novelty(stated[new]).mean())
    for name in ("hedged", "conformal", "novelty"):
        assert is_kept(right[name], 0.9), name
    # Counted as independent, the photographs of a patient keep less.
    assert not is_kept(right["photographs"], 0.9)


def test_forty_patients_of_eight_photographs_keep_nine_tenths_by_default():
    right = {"groups": [], "none": []}
    for seed in range(25):
        X, y, group = patients(240, 8, seed)
        held = np.random.default_rng(seed).permutation(40 * 8)
        for name, groups in (("groups", group[held]), ("none", None)):
            clf = HedgedClassifier(KNeighborsClassifier(30), 0.9, taxonomy=PETS)
            clf.fit(X[held], y[held], groups=groups)
            assert clf.guarantee_ == "approximate"
            right[name].append(clf.score(X[group >= 40], y[group >= 40]))
    assert is_kept(right["groups"], 0.9)
    assert not is_kept(right["none"], 0.85)


def test_every_class_of_subjects_has_its_coverage():
    missed, counted = np.zeros(3), np.zeros(3)
    for seed in range(60):
        stated, truth, group = subjects(200, 5, seed=2000 + seed)
        held, new = group < 120, group >= 120
        clf = ConformalTreeClassifier(TOLD, 0.1, conditional_on="order")
        clf.fit(stated[held], TREE.labels(truth[held]), groups=group[held])
        assert clf.guarantee_ == "exact"
        column = np.argsort(TREE.leaf_order)[TREE.leaf_start[truth[new]]]
        inside = clf.predict_leaf_set(stated[new])[np.arange(column.size), column]
        order = TREE.project(truth[new], 1) - 1
        missed += np.bincount(order, ~inside, minlength=3)
        counted += np.bincount(order, minlength=3)
    # Five photographs of a subject are at least one: a bound from subjects, not photographs.
    for wrong, n in zip(missed / 5, counted / 5, strict=True):
        assert binomtest(round(wrong), round(n), 0.1, "greater").pvalue > 1e-3


def half_in_one_part(n_subjects, seed):
    """Ten photographs of each subject: of easy ones the first is of a cat, of hard ones all."""
    rng = np.random.default_rng(seed)
    is_hard = np.repeat(rng.random(n_subjects) < 0.5, 10)
    is_cat = is_hard | (np.arange(10 * n_subjects) % 10 == 0)
    likelier = rng.uniform(0.5, 0.95, size=10 * n_subjects)
    stated = np.full((10 * n_subjects, 4), 1e-4)
    rows, first = np.arange(10 * n_subjects), np.where(is_cat, 0, 2)
    stated[rows, first], stated[rows, first + 1] = likelier, 1 - likelier
    wrong = is_hard & (rng.random(10 * n_subjects) < 0.3)
    stated /= stated.sum(axis=1, keepdims=True)
    return stated, PETS.leaf_nodes[first + wrong], np.repeat(np.arange(n_subjects), 10)


@pytest.mark.parametrize(
    "make",
    [
        lambda told: HedgedClassifier(told, 0.9, subtrees=1),
        lambda told: HedgedClassifier(told, 0.9, subtrees=1, subtrees_of="truth"),
        lambda told: ConformalTreeClassifier(told, 0.1, conditional_on=1),
    ],
)
def test_a_part_keeps_its_coverage_though_subjects_have_photographs_in_several(make):
    told, kept = FrozenEstimator(Told(PETS).fit(None)), []
    for seed in range(60):
        stated, truth, group = half_in_one_part(60, seed)
        clf = make(told).fit(stated, PETS.labels(truth), groups=group)
        assert clf.guarantee_ == "exact"
        stated, truth, _ = half_in_one_part(300, 10_000 + seed)
        # One photograph of each new subject, and of these the cats.
        one = np.arange(300) * 10 + np.random.default_rng(seed).integers(0, 10, size=300)
        one = one[stated[one, :2].sum(axis=1) > 0.5]
        kept.append(covers(PETS.resolve(clf.predict(stated[one])), truth[one], PETS).mean())
    assert is_kept(kept, 0.9)


@pytest.mark.parametrize("wrapper", ["hedged", "conformal", "novelty"])
def test_a_picture_that_is_a_third_of_the_traffic_is_served_alone_as_in_a_batch(wrapper):
    for seed in range(40):
        stated, truth = population(400, 1.0, seed=seed)
        rng = np.random.default_rng(seed)
        often = rng.random(400) < 0.3
        stated[often], truth[often] = stated[0], truth[0]
        alone = stated * np.exp(1e-6 * rng.normal(size=stated.shape))
        alone /= alone.sum(axis=1, keepdims=True)
        labels = TREE.labels(truth)
        rows, column = np.arange(400), np.argsort(TREE.leaf_order)[TREE.leaf_start[truth]]
        if wrapper == "hedged":
            clf = HedgedClassifier(TOLD, 0.9).fit(stated, labels)
            kept = covers(TREE.resolve(clf.predict(alone)), truth, TREE)
        elif wrapper == "conformal":
            clf = ConformalTreeClassifier(TOLD, 0.1).fit(stated, labels)
            kept = clf.predict_leaf_set(alone)[rows, column]
            nodes = covers(TREE.resolve(clf.predict(alone)), truth, TREE)
            assert nodes.mean() >= 0.9
        else:
            kept = ~NoveltyDetector(TOLD, 0.1).fit(stated, labels).predict_novelty(alone)
        # On the very pictures that set the threshold, 361 of 400 at least.
        assert kept.sum() >= 361


def test_pictures_are_served_alone_by_a_network_as_in_a_batch():
    rng = np.random.default_rng(0)
    tree = Taxonomy.from_nested({"warm": ["red", "pink"], "green": None})
    colour = {"red": (200, 60, 60), "pink": (200, 90, 110), "green": (60, 190, 80)}
    y = rng.choice(list(colour), 60)
    images = np.array([np.clip(rng.normal(colour[k], 60, (32, 32, 3)), 0, 255) for k in y])
    images = images.astype(np.uint8)
    # One picture again and again, on which the network is wrong.
    images[30:40], y[30:40] = images[np.flatnonzero(y == "red")[0]], "green"
    clf = FlatCEClassifier(
        tree,
        backbone="test_resnet",
        weights=None,
        finetune="head",
        image_size=32,
        hardware=Hardware(n_workers=0),
        random_state=0,
    ).fit(images[:30], y[:30])
    hedged = HedgedClassifier(FrozenEstimator(clf), 0.8).fit(images[30:], y[30:])
    alone = [hedged.predict(images[row : row + 1])[0] for row in range(30, 60)]
    right = covers(tree.resolve(alone), tree.resolve(y[30:]), tree)
    assert right[:10].all()  # a third of all, so the guarantee of 0.8 needs them
    assert right.sum() >= 25  # 31 times 0.8, rounded up


# Called --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* held-out labels end above")
def test_exact_is_said_only_where_a_theorem_holds():
    stated, truth = population(400)
    labels = np.array(TREE.labels(truth))

    def called(labels=labels, weight=None, **parameters):
        return HedgedClassifier(TOLD, 0.8, **parameters).fit(stated, labels, weight).guarantee_

    assert called() == "exact"
    partial = np.where(np.arange(400) % 4, labels, "a")
    assert called(partial) == "exact"
    assert called(partial, partial_labels="drop") == "approximate"
    assert called(partial_labels="drop") == "exact"  # nothing was dropped
    unlabelled = np.where(np.arange(400) % 4, labels, "root")
    assert called(unlabelled) == "approximate"
    assert called(unlabelled, np.arange(400) % 4 > 0) == "exact"  # left out by the user
    assert called(weight=np.linspace(1, 2, 400)) == "approximate"
    assert called(weight=np.full(400, 3.0)) == "exact"
    above = np.where(np.arange(400) % 4, labels, "a")
    parts = {"subtrees": "family", "subtrees_of": "truth"}
    assert called(above, **parts) == "approximate"
    assert called(**parts) == "exact"
    conditional = ConformalTreeClassifier(TOLD, 0.2, conditional_on="family")
    assert conditional.fit(stated, above).guarantee_ == "approximate"
    assert conditional.fit(stated, labels).guarantee_ == "exact"


@pytest.mark.parametrize(
    ("cv", "called"),
    [
        (ShuffleSplit(1, random_state=0), "exact"),
        (StratifiedShuffleSplit(1, random_state=0), "approximate"),
        (3, "approximate"),
    ],
)
def test_one_split_drawn_at_random_is_exact(cv, called):
    X, y, _ = patients(300, 1, seed=0)
    clf = HedgedClassifier(KNeighborsClassifier(), 0.8, cv=cv, taxonomy=PETS).fit(X, y)
    assert clf.guarantee_ == called


# Simulated -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulation():
    path = Path(__file__).resolve().parents[1] / "performance" / "simulate_guarantees.py"
    spec = importlib.util.spec_from_file_location("simulate_guarantees", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_samples"),
    [
        ("independent", 30),
        ("class imbalance", 100),
        ("ancestor labels", 100),
        ("one picture is 30 % of the traffic", 100),
        ("groups of 5", 100),
        ("groups of 20", 300),
        ("groups of 1 to 20, hard ones larger", 100),
    ],
)
def test_what_is_called_exact_is_kept_in_simulation(simulation, name, n_samples):
    simulation.N_NEW = 1  # one new photograph a repetition: all are independent
    cells = simulation.simulate(
        simulation.SETTINGS[name], n_samples, 200, seed=17, targets=(0.8, 0.9)
    )
    assert {cell["method"] for cell in cells} == {"hedged", "conformal", "novelty"}
    for cell in cells:
        assert cell["called"] == "exact"
        n_kept = round(cell["rate"] * cell["n_repetitions"])
        assert binomtest(n_kept, 200, cell["target"], "less").pvalue > 1e-3, cell


def test_the_tables_are_made_from_the_record(simulation):
    cells = json.loads(simulation.RECORD.read_text("utf-8"))["cells"]
    for name, table in (("", simulation.summary_table), ("full_", simulation.full_table)):
        path = simulation.STUDIES / f"guarantees_{name}table.md"
        assert path.read_text("utf-8") == table(cells)
    measured = [cell for cell in cells if "rate" in cell]
    assert {cell["setting"] for cell in measured} == set(simulation.SETTINGS)
    assert {cell["n_repetitions"] for cell in measured} == {1000}
    below = [c for c in measured if simulation.standard_errors_below(c) > 3]
    assert all(cell["called"] == "approximate" for cell in below)
    # Dropping labels that stop early is what the simulation sees to fail.
    assert {cell["setting"] for cell in below} == {"ancestor labels, dropped"}
