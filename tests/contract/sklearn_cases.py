"""Tools of scikit-learn with a classifier of this package: one case for each row of the page.

`docs/write_scikit_learn.py` makes scikit_learn.md of the rows; test_sklearn_tools.py runs them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from PIL import Image
from sklearn import calibration, ensemble, feature_selection, inspection, model_selection
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay, RocCurveDisplay, get_scorer
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

import skh2edl
from skh2edl import (
    DecodingClassifier,
    HierCEClassifier,
    ImageFeatureExtractor,
    Taxonomy,
)
from skh2edl.scorers import hierarchical_scorers, make_level_scorer

TREE = Taxonomy.from_nested(
    {"cat": ["lynx", "puma"], "insect": ["ant", "bee"], "dog": ["pug", "wolf"]}
)
N = 90
LEAVES = np.array(["lynx", "puma", "ant", "bee", "pug"])  # the tree's wolf is never seen
RNG = np.random.default_rng(0)
LEAF = LEAVES[np.arange(N) % 5]
X = RNG.normal(size=(N, 5)) + 2 * np.eye(5)[np.arange(N) % 5]
LABELS = np.where(np.arange(N) % 9 == 0, "cat", LEAF)
LABELS = np.where(np.isin(LEAF, ["lynx", "puma"]), LABELS, LEAF)  # some cats have no species
TWO = np.where(LEAF == "lynx", "lynx", "puma")
GROUPS = np.arange(N) // 6


def ours(**parameters) -> HierCEClassifier:
    return HierCEClassifier(TREE, backbone=None, **parameters)


def flat() -> HierCEClassifier:
    return HierCEClassifier(backbone=None)


def decoding(y=LABELS) -> DecodingClassifier:
    return DecodingClassifier(ours(), labels=np.unique(y))


@dataclass(frozen=True)
class Row:
    """One tool.

    Parameters
    ----------
    tool : str
        As a user writes it.
    run : callable
        Asserts that it works, or uses it so that it is refused.
    says : str
        What to know; for a tool that is refused, the remedy.
    refused : str
        A part of the message; empty for a tool that works.
    """

    tool: str
    run: Callable[[], None]
    says: str
    refused: str = ""


def scores_by_hand(splits) -> list[float]:
    """Fraction of right leaves among the held-out samples that are labelled with a leaf."""
    scores = []
    for rows, held in splits:
        held = held[np.isin(LABELS[held], LEAVES)]
        predicted = ours().fit(X[rows], LABELS[rows]).predict(X[held])
        scores.append(float((predicted == LABELS[held]).mean()))
    return scores


def splits_with(splitter, groups=None) -> Callable[[], None]:
    def run() -> None:
        splits = list(splitter.split(X, LABELS, groups))
        found = model_selection.cross_val_score(ours(), X, LABELS, cv=splitter, groups=groups)
        assert np.allclose(found, scores_by_hand(splits))

    return run


def fits(tool, y=LABELS, least: float = 0.7) -> Callable[[], None]:
    """Fit a tool and compare its predictions with the labels that are leaves."""

    def run() -> None:
        fitted = clone(tool).fit(X, y)
        judged = np.isin(y, LEAVES)
        assert (fitted.predict(X[judged]) == y[judged]).mean() > least

    return run


def only_fits(tool, y=LABELS) -> Callable[[], None]:
    return lambda: clone(tool).fit(X, y)


def searches(search) -> Callable[[], None]:
    def run() -> None:
        best = clone(search).fit(X, LABELS)
        assert best.best_params_["l2"] < 100.0
        assert best.best_estimator_.taxonomy_ == TREE

    return run


# Cross-validation --------------------------------------------------------------------------------


def cross_validate() -> None:
    splits = list(model_selection.StratifiedKFold(3).split(X, LABELS))
    found = model_selection.cross_validate(
        ours(), X, LABELS, cv=splits, scoring=hierarchical_scorers(TREE)
    )
    assert np.allclose(found["test_accuracy_leaf"], scores_by_hand(splits))


def held_out_labels() -> None:
    found = model_selection.cross_val_predict(ours(), X, LABELS, cv=3)
    for rows, held in model_selection.StratifiedKFold(3).split(X, LABELS):
        assert np.array_equal(found[held], ours().fit(X[rows], LABELS[rows]).predict(X[held]))


def held_out_columns_encoded() -> None:
    model_selection.cross_val_predict(ours(), X, LABELS, cv=3, method="predict_proba")


def held_out_columns() -> None:
    found = skh2edl.cross_val_predict(ours(), X, LABELS, cv=3, method="predict_proba")
    assert found.shape == (N, 6)
    for rows, held in model_selection.StratifiedKFold(3).split(X, LABELS):
        expected = ours().fit(X[rows], LABELS[rows]).predict_proba(X[held])
        assert np.array_equal(found[held], expected)


def learning_curve() -> None:
    sizes, _, test = model_selection.learning_curve(
        ours(), X, LABELS, train_sizes=[20, 60], cv=3, shuffle=True, random_state=0
    )
    assert sizes.tolist() == [20, 60]
    assert test[1].mean() > test[0].mean() - 0.1


def validation_curve() -> None:
    train, _ = model_selection.validation_curve(
        ours(), X, LABELS, param_name="l2", param_range=[1e-3, 1e3], cv=3
    )
    assert train[0].mean() > train[1].mean()


def permutation_test() -> None:
    _, of_noise, p_value = model_selection.permutation_test_score(
        ours(), X, LABELS, cv=3, n_permutations=9, random_state=0
    )
    # No permutation scores as well, so p is 1 / (9 + 1).
    assert np.isclose(p_value, 0.1)
    assert len(of_noise) == 9


def neg_log_loss() -> None:
    get_scorer("neg_log_loss")(ours().fit(X, LEAF), X, LEAF)


def own_log_loss() -> None:
    fitted = ours().fit(X, LEAF)
    column = np.searchsorted(fitted.classes_, LEAF)
    expected = np.log(fitted.predict_proba(X)[np.arange(N), column]).mean()
    assert np.isclose(make_level_scorer("neg_nll", "leaf", TREE)(fitted, X, LEAF), expected)


# Meta-estimators ---------------------------------------------------------------------------------


def pipeline() -> None:
    fitted = make_pipeline(StandardScaler(), ours()).fit(X, LABELS)
    by_hand = ours().fit(StandardScaler().fit_transform(X), LABELS)
    expected = by_hand.predict_proba(StandardScaler().fit_transform(X))
    assert np.allclose(fitted.predict_proba(X), expected)


def column_transformer() -> None:
    images = [Image.new("RGB", (32, 32), (int(20 * i), 0, 0)) for i in range(10)]
    table = pd.DataFrame({"image": images, "weight": np.arange(10.0)})
    extractor = ImageFeatureExtractor("test_resnet", weights=None, image_size=32)
    columns = ColumnTransformer(
        [("image", extractor, "image"), ("rest", "passthrough", ["weight"])]
    )
    fitted = make_pipeline(columns, flat()).fit(table, ["a", "b"] * 5)
    assert fitted[-1].n_features_in_ == 97


def feature_union() -> None:
    union = FeatureUnion(
        [("plain", FunctionTransformer()), ("squared", FunctionTransformer(np.square))]
    )
    fitted = make_pipeline(union, ours()).fit(X, LABELS)
    expected = ours().fit(np.hstack([X, X**2]), LABELS).predict_proba(np.hstack([X, X**2]))
    assert np.allclose(fitted.predict_proba(X), expected)


def frozen() -> None:
    fitted = ours().fit(X, LABELS)
    same = FrozenEstimator(fitted).fit(X[:5], LABELS[:5])
    assert np.array_equal(same.predict_proba(X), fitted.predict_proba(X))


def bagging() -> None:
    bag = ensemble.BaggingClassifier(decoding(LEAF), 3, random_state=0).fit(X, LEAF)
    by_hand = np.mean([member.predict_proba(X) for member in bag.estimators_], axis=0)
    assert np.allclose(bag.predict_proba(X), by_hand)
    assert (bag.predict(X) == LEAF).mean() > 0.7


def several_outputs() -> None:
    both = np.stack([LEAF, np.where(X[:, 0] > 0, "left", "right")], axis=1)
    fitted = MultiOutputClassifier(flat()).fit(X, both)
    for column, member in enumerate(fitted.estimators_):
        assert np.array_equal(member.predict(X), flat().fit(X, both[:, column]).predict(X))


def chain() -> None:
    both = np.stack([X[:, 0] > 1, X[:, 1] > 1], axis=1).astype(int)
    assert (ClassifierChain(flat(), random_state=0).fit(X, both).predict(X) == both).mean() > 0.9


def self_training() -> None:
    partly = LEAF.astype(object)
    partly[::3] = -1
    fitted = SelfTrainingClassifier(ours(), threshold=0.9).fit(X, partly)
    assert (fitted.predict(X[::3]) == LEAF[::3]).mean() > 0.7


def threshold() -> None:
    tuned = model_selection.TunedThresholdClassifierCV(flat(), cv=3)
    y = (LEAF == "lynx").astype(int)
    fitted = tuned.fit(X, y)
    expected = flat().fit(X, y).predict_proba(X)[:, 1] >= fitted.best_threshold_
    assert np.array_equal(fitted.predict(X), expected.astype(int))


# Features and inspection -------------------------------------------------------------------------


def sequential() -> None:
    noisy = np.hstack([X, RNG.normal(size=(N, 2))])
    selector = feature_selection.SequentialFeatureSelector(ours(), n_features_to_select=2, cv=2)
    assert selector.fit(noisy, LABELS).get_support().sum() == 2


def importance() -> None:
    noisy = np.hstack([X, RNG.normal(size=(N, 1))])
    fitted = ours().fit(noisy, LABELS)
    found = inspection.permutation_importance(fitted, noisy, LABELS, n_repeats=3, random_state=0)
    assert found.importances_mean[:5].min() > found.importances_mean[5]


def dependence() -> None:
    fitted = ours().fit(X, LABELS)
    found = inspection.partial_dependence(fitted, X, [0], response_method="predict_proba")
    assert found["average"].shape[0] == 6
    # The probabilities of all leaves sum to 1 wherever they are averaged.
    assert np.allclose(found["average"].sum(axis=0), 1)


def confusion() -> None:
    import matplotlib.pyplot as plt

    display = ConfusionMatrixDisplay.from_estimator(ours().fit(X, LEAF), X, LEAF)
    plt.close(display.figure_)
    assert display.confusion_matrix.sum() == N


def roc() -> None:
    import matplotlib.pyplot as plt
    from sklearn.metrics import roc_auc_score

    fitted = flat().fit(X, TWO)
    display = RocCurveDisplay.from_estimator(fitted, X, TWO)
    plt.close(display.figure_)
    assert np.isclose(display.roc_auc, roc_auc_score(TWO, fitted.predict_proba(X)[:, 1]))


def pickled() -> None:
    fitted = ours().fit(X, LABELS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def split_of_images() -> None:
    from skh2edl.images import image_source

    pixels = RNG.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    part, _, rows, _ = model_selection.train_test_split(
        image_source(pixels), np.arange(12), stratify=["a", "b"] * 6, random_state=0
    )
    assert np.array_equal(np.asarray(part.read(0)), pixels[rows[0]])


_ENCODES = "encodes y: it holds the integers"
_DECODE = "wrap it in `DecodingClassifier`"
_SEARCHED = {"l2": [1e-2, 1e2]}
MS = model_selection

GROUPS_OF_ROWS: dict[str, list[Row]] = {
    "Cross-validation": [
        Row("cross_val_score", splits_with(MS.StratifiedKFold(3)), "leaf accuracy of `score`"),
        Row("cross_validate", cross_validate, "with `scoring=hierarchical_scorers(tree)`"),
        Row(
            'cross_val_predict(method="predict")', held_out_labels, "labels are passed as they are"
        ),
        Row(
            'cross_val_predict(method="predict_proba")',
            held_out_columns_encoded,
            "use `skh2edl.cross_val_predict`",
            "cross_val_predict " + _ENCODES,
        ),
        Row(
            'skh2edl.cross_val_predict(method="predict_proba")',
            held_out_columns,
            "ancestors in y, and a column for every leaf",
        ),
        Row("learning_curve", learning_curve, ""),
        Row("validation_curve", validation_curve, ""),
        Row("permutation_test_score", permutation_test, ""),
        Row(
            'scoring="neg_log_loss"',
            neg_log_loss,
            'use `make_level_scorer("neg_nll", "leaf", tree)` where y lacks a leaf',
            "different number of classes",
        ),
        Row('make_level_scorer("neg_nll", "leaf", tree)', own_log_loss, ""),
    ],
    "Splitters": [
        Row("train_test_split", split_of_images, "wrap images, `image_source(X)`: none is read"),
        Row("KFold", splits_with(MS.KFold(3, shuffle=True, random_state=0)), ""),
        Row("StratifiedKFold", splits_with(MS.StratifiedKFold(4)), "ancestors are strata too"),
        Row("GroupKFold", splits_with(MS.GroupKFold(3), GROUPS), ""),
        Row("StratifiedGroupKFold", splits_with(MS.StratifiedGroupKFold(3), GROUPS), ""),
        Row("LeaveOneGroupOut", splits_with(MS.LeaveOneGroupOut(), GROUPS // 5), ""),
        Row(
            "RepeatedStratifiedKFold",
            splits_with(MS.RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0)),
            "",
        ),
        Row("ShuffleSplit", splits_with(MS.ShuffleSplit(2, random_state=0)), ""),
        Row(
            "StratifiedShuffleSplit", splits_with(MS.StratifiedShuffleSplit(2, random_state=0)), ""
        ),
        Row("TimeSeriesSplit", splits_with(MS.TimeSeriesSplit(3)), ""),
        Row("PredefinedSplit", splits_with(MS.PredefinedSplit(np.arange(N) % 3)), ""),
    ],
    "Searches": [
        Row(
            "GridSearchCV",
            searches(MS.GridSearchCV(ours(), _SEARCHED, cv=3)),
            "`TreeView(search)` has levels, opinions and files",
        ),
        Row(
            "RandomizedSearchCV",
            searches(MS.RandomizedSearchCV(ours(), _SEARCHED, n_iter=2, cv=3, random_state=0)),
            "",
        ),
        Row(
            "HalvingGridSearchCV",
            searches(
                MS.HalvingGridSearchCV(
                    ours(), _SEARCHED, cv=3, min_resources=45, factor=2, random_state=0
                )
            ),
            "",
        ),
    ],
    "Meta-estimators": [
        Row("Pipeline", pipeline, "`TreeView(pipeline)` has levels, opinions and files"),
        Row("ColumnTransformer", column_transformer, "name an image column without brackets"),
        Row("FeatureUnion", feature_union, ""),
        Row("FrozenEstimator", frozen, "the wrappers then calibrate on the data of `fit`"),
        Row(
            "BaggingClassifier",
            only_fits(ensemble.BaggingClassifier(ours(), 2, random_state=0)),
            f"use `TreeEnsembleClassifier(bootstrap=True)`, or {_DECODE}",
            "BaggingClassifier " + _ENCODES,
        ),
        Row("BaggingClassifier of DecodingClassifier", bagging, ""),
        Row(
            "VotingClassifier",
            only_fits(ensemble.VotingClassifier([("a", ours())])),
            _DECODE,
            "VotingClassifier or StackingClassifier " + _ENCODES,
        ),
        Row(
            "VotingClassifier of DecodingClassifier",
            fits(
                ensemble.VotingClassifier(
                    [("a", decoding(LEAF)), ("b", LogisticRegression())], voting="soft"
                ),
                LEAF,
            ),
            "",
        ),
        Row(
            "StackingClassifier",
            only_fits(ensemble.StackingClassifier([("a", ours())], cv=3)),
            _DECODE,
            "VotingClassifier or StackingClassifier " + _ENCODES,
        ),
        Row(
            "StackingClassifier of DecodingClassifier",
            fits(
                ensemble.StackingClassifier(
                    [("a", decoding(LEAF)), ("b", LogisticRegression())], cv=3
                ),
                LEAF,
            ),
            "",
        ),
        Row(
            "AdaBoostClassifier",
            fits(ensemble.AdaBoostClassifier(ours(), n_estimators=2, random_state=0), LEAF),
            "on leaves: an ancestor counts as a wrong prediction",
        ),
        Row(
            "OneVsRestClassifier",
            only_fits(OneVsRestClassifier(ours())),
            "fit the classifier itself, or set `taxonomy=None`",
            "OneVsRestClassifier or a tool like it " + _ENCODES,
        ),
        Row("OneVsRestClassifier, taxonomy=None", fits(OneVsRestClassifier(flat()), LEAF), ""),
        Row(
            "OneVsOneClassifier",
            only_fits(OneVsOneClassifier(ours())),
            "fit the classifier itself, or set `taxonomy=None`",
            "OneVsRestClassifier or a tool like it " + _ENCODES,
        ),
        Row(
            "OutputCodeClassifier",
            only_fits(OutputCodeClassifier(ours(), random_state=0)),
            "fit the classifier itself, or set `taxonomy=None`",
            "OneVsRestClassifier or a tool like it " + _ENCODES,
        ),
        Row(
            "CalibratedClassifierCV",
            only_fits(calibration.CalibratedClassifierCV(ours(), ensemble=False, cv=3)),
            "use `CalibratedTreeClassifier`",
            "CalibratedClassifierCV " + _ENCODES,
        ),
        Row(
            'CalibratedClassifierCV(method="temperature")',
            only_fits(calibration.CalibratedClassifierCV(ours(), method="temperature", cv=3)),
            "use `CalibratedTreeClassifier`",
            "CalibratedClassifierCV " + _ENCODES,
        ),
        Row(
            "CalibratedClassifierCV of DecodingClassifier",
            fits(
                calibration.CalibratedClassifierCV(decoding(LEAF), method="temperature", cv=3), LEAF
            ),
            "",
        ),
        Row("MultiOutputClassifier", several_outputs, "`taxonomy=None`: one flat tree a column"),
        Row("ClassifierChain", chain, "`taxonomy=None`"),
        Row(
            "SelfTrainingClassifier",
            self_training,
            "string labels in an array of objects; or label with the root, which teaches nothing",
        ),
        Row("TunedThresholdClassifierCV", threshold, "two classes"),
    ],
    "Features, inspection and files": [
        Row(
            "SelectKBest",
            fits(make_pipeline(feature_selection.SelectKBest(k=4), ours()), least=0.6),
            "before the classifier; an ancestor is a class of its own there",
        ),
        Row("SequentialFeatureSelector", sequential, ""),
        Row(
            "RFE",
            only_fits(feature_selection.RFE(ours())),
            "use `SequentialFeatureSelector`, or give `importance_getter`",
            "should have `coef_` or `feature_importances_` attribute",
        ),
        Row("permutation_importance", importance, ""),
        Row("partial_dependence", dependence, 'with `response_method="predict_proba"`'),
        Row("ConfusionMatrixDisplay", confusion, "on leaves; `LCAConfusionDisplay` knows the tree"),
        Row("RocCurveDisplay", roc, "two classes"),
        Row("pickle, joblib", pickled, "`save` writes files that run no code when loaded"),
    ],
}
ROWS = [row for rows in GROUPS_OF_ROWS.values() for row in rows]
