"""Labels in the forms people have them: rows of ranks, paths, texts that look like paths."""

import numpy as np
import pandas as pd
import pytest

from skh2edl import H2EDLClassifier, HedgedClassifier, HierCEClassifier, Taxonomy
from skh2edl.estimators.targets import check_labels, resolve_taxonomy

TREE = Taxonomy.from_paths(
    [("cat", "lynx"), ("cat", "puma"), ("dog", "fox")], level_names=("family", "kind")
)
ROWS = [["cat", "lynx"], ["cat", "puma"], ["dog", "fox"], ["cat", ""], ["dog", None], [None, None]]
LABELS = ["lynx", "puma", "fox", "cat", "fox", "root"]


def samples(rows, n=60):
    rng = np.random.default_rng(0)
    which = np.arange(n) % len(rows)
    return rng.normal(size=(n, 3)) + which[:, None] % 3, [rows[i] for i in which]


FORMS = {
    "array": lambda rows: np.array(rows, dtype=object),
    "lists": lambda rows: rows,
    "frame": lambda rows: pd.DataFrame(rows, columns=["family", "kind"]),
    "tuples": lambda rows: [tuple(row) for row in rows],
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_ranks_teach_what_their_labels_teach(form):
    X, rows = samples(ROWS)
    _, labels = samples(LABELS)
    by_rows = H2EDLClassifier(TREE, backbone=None).fit(X, FORMS[form](rows))
    by_labels = H2EDLClassifier(TREE, backbone=None).fit(X, labels)
    np.testing.assert_array_equal(by_rows.predict_proba(X), by_labels.predict_proba(X))
    assert by_rows.score(X, FORMS[form](rows)) == by_labels.score(X, labels)


def test_rows_of_ranks_may_name_ranks_below_a_gap():
    tree = Taxonomy.from_paths([("f", "g", "a"), ("f", "g", "b"), ("f", "h", "c")])
    labels = check_labels([["f", None, "b"], ["f", "", "c"], ["f", None, None]], 3)
    assert tree.labels(tree.resolve(labels)) == ["b", "c", "f"]


def test_numbers_may_be_ranks():
    tree = Taxonomy.from_paths([(1, 10), (1, 11), (2, 20)])
    labels = check_labels(np.array([[1, 11], [2, 20]]), 2)
    assert tree.labels(tree.resolve(labels)) == [11, 20]


def test_a_wrapper_takes_rows_of_ranks_too():
    X, rows = samples(ROWS[:3], 300)
    table = np.array(rows, dtype=object)
    hedged = HedgedClassifier(HierCEClassifier(TREE, backbone=None), 0.9, cv=3).fit(X, table)
    assert hedged.score(X, table) > 0.8


@pytest.mark.parametrize("form", FORMS)
def test_paths_without_a_taxonomy_are_refused_with_the_way_to_one(form):
    X, rows = samples(ROWS[:3])
    with pytest.raises(ValueError, match=r"y holds 60 path\(s\), such as .*Taxonomy\.from_paths"):
        H2EDLClassifier(backbone=None).fit(X, FORMS[form](rows))


def test_one_column_stays_one_column():
    with pytest.warns(UserWarning, match="A column-vector y was passed"):
        labels = check_labels(np.array([["a"], ["b"]]), 2)
    assert labels.tolist() == ["a", "b"]


def test_a_table_of_numbers_with_fractions_is_no_table_of_labels():
    with pytest.raises(ValueError, match="y should be a 1d array"):
        check_labels(np.eye(3), 3)


def test_ranks_that_the_tree_does_not_name_are_refused():
    X, rows = samples([["cat", "lynx"], ["cat", "fox"]])
    with pytest.raises(ValueError, match=r"1 label\(s\) are not in the taxonomy, first"):
        H2EDLClassifier(TREE, backbone=None).fit(X, rows)


@pytest.mark.parametrize("mark", ["/", "|", ";", ">", "::"])
def test_labels_that_look_like_paths_are_pointed_out(mark):
    labels = np.array([mark.join(row) for row in ROWS[:3]])
    with pytest.warns(UserWarning, match="All 3 labels look like paths") as caught:
        flat = resolve_taxonomy(None, labels)
    assert flat.n_levels == 1
    advice = str(caught[0].message).split("taxonomy=")[1].rstrip(".")
    tree = eval(advice, {"Taxonomy": Taxonomy, "y": labels.tolist()})
    assert tree.labels(tree.resolve(labels)) == ["lynx", "puma", "fox"]


@pytest.mark.parametrize("labels", [["km/h", "m/s"], ["a/b", "a/c", "d"], ["a", "b"], ["/a", "/b"]])
def test_other_labels_are_not(labels):
    assert resolve_taxonomy(None, np.array(labels)).n_leaves == len(labels)
