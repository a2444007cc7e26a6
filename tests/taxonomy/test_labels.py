"""What a label means: bare names, joined paths, path tuples, and what is refused."""

import csv
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy


@pytest.fixture(scope="module")
def clinic():
    """Two families with an "other" each, and one whose only member has its name."""
    return Taxonomy.from_paths(
        [
            ("benign", "nevus"),
            ("benign", "other"),
            ("malignant", "melanoma"),
            ("malignant", "other"),
            ("scar", "scar"),
        ]
    )


class Reference:
    """The rules of names, written out over all paths and leaf sets."""

    def __init__(self, names, parents, separator="/"):
        self.separator = separator
        self.names = list(names)
        self.paths = []
        for node, parent in enumerate(parents):
            self.paths.append(() if parent < 0 else (*self.paths[parent], names[node]))
        inner = set(map(int, parents))
        self.leaf_sets = [
            frozenset(
                path
                for leaf, path in enumerate(self.paths)
                if leaf not in inner and path[: len(own)] == own
            )
            for own in self.paths
        ]

    def candidates(self, label):
        if isinstance(label, tuple):
            return [self.paths.index(label)] if label in self.paths else []
        found = {node for node, name in enumerate(self.names) if name == label}
        if isinstance(label, str) and self.separator in label:
            joined = [self.separator.join(map(str, path)) for path in self.paths]
            found |= {node for node, text in enumerate(joined) if node and text == label}
            if label.startswith(self.separator):
                rest = label[len(self.separator) :]
                found |= {node for node, text in enumerate(joined) if text == rest}
        return sorted(found)

    def resolve(self, label):
        """The node, "unknown" or "ambiguous"."""
        found = self.candidates(label)
        if not found:
            return "unknown"
        # Nodes with the same leaves form one chain, of which the deepest is meant.
        return found[-1] if len({self.leaf_sets[node] for node in found}) == 1 else "ambiguous"


def resolved(tree, label):
    try:
        return tree.node(label)
    except ValueError as error:
        return "ambiguous" if "is ambiguous" in str(error) else "unknown"


# Names


def test_a_name_under_many_parents_needs_its_path(clinic):
    assert clinic.leaves == ("nevus", "benign/other", "melanoma", "malignant/other", "scar")
    assert clinic.resolve(["benign/other", ("malignant", "other")]).tolist() == [5, 7]
    with pytest.raises(
        ValueError,
        match=r"The label 'other' is ambiguous: it names 2 nodes, first \[\('benign', 'other'\), "
        r"\('malignant', 'other'\)\]. Give the path instead",
    ):
        clinic.resolve(["nevus", "other"])


def test_a_name_repeated_in_one_chain_means_the_deepest(clinic):
    assert clinic.path("scar") == ("scar", "scar")
    assert clinic.node("scar") == clinic.node(("scar", "scar")) != clinic.node(("scar",))


def test_names_like_those_of_real_aircraft():
    tree = Taxonomy.from_paths(
        [
            ("Boeing", "F/A-18", "F/A-18"),
            ("Lockheed", "C-130", "C-130"),
            ("Antonov", "Ан-124", "Ан-124 «Руслан»"),
            ("Antonov", "Ан-124", "Ан-225"),
        ]
    )
    assert tree.leaves == ("F/A-18", "C-130", "Ан-124 «Руслан»", "Ан-225")
    assert (
        tree.path("F/A-18") == tree.path("Boeing/F/A-18/F/A-18") == ("Boeing", "F/A-18", "F/A-18")
    )
    assert tree.node("Boeing/F/A-18") == tree.node(("Boeing", "F/A-18"))


def test_a_leading_separator_makes_a_path_of_one_name():
    tree = Taxonomy.from_paths([("other",), ("cat", "other"), ("cat", "lynx")])
    assert tree.leaves == ("/other", "cat/other", "lynx")
    assert tree.path("/other") == ("other",)
    assert tree.node("/cat/other") == tree.node("cat/other")
    assert tree.node("/") == tree.node(()) == tree.node("root") == 0


def test_a_name_that_spells_the_path_of_another_node():
    tree = Taxonomy.from_paths([("a", "b"), ("a", "c"), ("z", "a/b"), ("z", "b")])
    assert tree.leaves == ("/a/b", "c", "z/a/b", "z/b")
    assert [tree.path(leaf) for leaf in tree.leaves] == [
        ("a", "b"),
        ("a", "c"),
        ("z", "a/b"),
        ("z", "b"),
    ]
    with pytest.raises(
        ValueError, match=r"'a/b' is ambiguous: it names 2 nodes, first .*\('z', 'a/b'\)"
    ):
        tree.node("a/b")


def test_two_nodes_with_one_joined_path_ask_for_another_separator():
    paths = [("a", "b"), ("a", "c"), ("a/b",), ("c", "b")]
    with pytest.raises(ValueError, match=r"'/a/b' is the joined path.*Build.*another separator"):
        Taxonomy.from_paths(paths)
    tree = Taxonomy.from_paths(paths, separator=" > ")
    assert tree.leaves == ("a > b", "a > c", "a/b", "c > b")


def test_a_separator_that_overlaps_itself_is_still_told_apart():
    tree = Taxonomy.from_paths([("x-", "b"), ("x", "c"), ("y", "b"), ("y", "c")], separator="--")
    assert [tree.path(leaf) for leaf in tree.leaves] == [
        ("x-", "b"),
        ("x", "c"),
        ("y", "b"),
        ("y", "c"),
    ]
    assert tree.path("x---b") == ("x-", "b")


@pytest.mark.parametrize("separator", ["", None, 3])
def test_a_separator_must_be_text(separator):
    with pytest.raises(
        ValueError, match=f"separator must be a non-empty string, got {separator!r}"
    ):
        Taxonomy.flat(["a", "b"], separator=separator)


# Numbers as names


def test_numbers_are_names():
    tree = Taxonomy.from_paths([("A", 1), ("A", 2), ("B", 3)])
    assert tree.leaves == (1, 2, 3)
    assert tree.resolve([1, np.int64(2), 3.0, "A", ("B", 3), "B/3"]).tolist() == [3, 4, 5, 1, 5, 5]


def test_a_number_is_known_by_its_spelling_because_numpy_writes_it_so():
    tree = Taxonomy.from_paths([("A", 1), ("A", 2), ("B", 3), ("B", 4)])
    mixed = np.array([1, "A", 3])
    assert mixed.dtype.kind == "U"
    assert tree.resolve(mixed).tolist() == tree.resolve([1, "A", 3]).tolist()
    assert tree.labels_from_paths(np.array([["A", 2], ["B", 3]])).tolist() == [2, 3]


def test_if_one_number_needs_its_path_all_leaves_go_by_path():
    tree = Taxonomy.from_paths([("A", 1), ("A", 2), ("B", 1)])
    assert tree.leaves == ("A/1", "A/2", "B/1")
    assert tree.sorted_leaf_labels.tolist() == ["A/1", "A/2", "B/1"]
    assert tree.resolve(tree.sorted_leaf_labels).tolist() == tree.leaf_nodes.tolist()
    assert tree.node(2) == tree.node("A/2")


def test_leaves_of_strings_and_numbers_cannot_be_sorted():
    with pytest.raises(TypeError, match="mix strings and numbers, such as 'a' and 1, which cannot"):
        Taxonomy.flat(["a", 1])


# Kinds of input


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        tuple,
        iter,
        np.array,
        lambda labels: np.array(labels, dtype=object),
        lambda labels: [np.str_(label) for label in labels],
        pd.Series,
        pd.Categorical,
        lambda labels: pd.Series(labels, dtype="category", index=[5, 5, 1]),
        lambda labels: pd.Series(labels, dtype="string"),
        pd.Index,
    ],
)
def test_labels_come_in_any_sequence(clinic, wrap):
    nodes = clinic.resolve(wrap(["melanoma", "benign", "malignant/other"]))
    assert nodes.dtype == np.int64
    assert nodes.tolist() == [6, 1, 7]


def test_labels_of_paths_come_in_lists_and_object_arrays(clinic):
    paths = pd.Series([("benign", "other"), ("scar",), ()])
    assert clinic.resolve(paths).tolist() == [5, 3, 0]
    assert clinic.resolve(paths.to_numpy()).tolist() == [5, 3, 0]
    assert clinic.resolve([]).shape == (0,)


@pytest.mark.parametrize(
    "values",
    [[3, 1, 2], [0.5, 1.5], [True, False], ["b", "a"]],
    ids=["int", "float", "bool", "str"],
)
@pytest.mark.parametrize("dtype", [None, object])
def test_numpy_scalars_are_the_names_they_stand_for(values, dtype):
    tree = Taxonomy.flat(values)
    expected = [*range(1, len(values) + 1)]
    assert tree.resolve(np.array(values, dtype=dtype)).tolist() == expected
    assert tree.resolve(list(np.array(values))).tolist() == expected


# Refusals


@pytest.mark.parametrize("missing", [None, float("nan"), "", "  ", pd.NA, pd.NaT, np.nan])
@pytest.mark.parametrize("wrap", [list, lambda labels: np.array(labels, dtype=object)])
def test_a_missing_label_is_not_taken_for_the_root(clinic, missing, wrap):
    with pytest.raises(ValueError, match=r"A label is missing \(.*Use the root's label 'root'"):
        clinic.resolve(wrap(["nevus", missing]))


@pytest.mark.parametrize(
    ("label", "near"),
    [
        ("melanom", "'melanoma'"),
        ("Nevus", "'nevus'"),
        ("benign/othr", "'malignant/other'"),
        (("malignant", "melanomma"), "'melanoma'"),
        ("malign", "'malignant'"),
    ],
)
def test_an_unknown_label_is_answered_with_the_nearest_spelling(clinic, label, near):
    with pytest.raises(ValueError, match=r"1 label\(s\) are not in the taxonomy, first ") as caught:
        clinic.resolve(["nevus", label, label])
    assert f"{label!r} is close to" in str(caught.value)
    assert near in str(caught.value)


def test_five_unknown_labels_at_most_are_named(clinic):
    with pytest.raises(
        ValueError, match=r"^9 label\(s\).*first \['u0', 'u1', 'u2', 'u3', 'u4'\]\. "
    ):
        clinic.resolve([f"u{number}" for number in range(9)])


def test_an_unknown_label_in_a_large_tree_is_refused_at_once():
    tree = Taxonomy.flat([f"species {number}" for number in range(50_000)])
    with pytest.raises(ValueError, match="'speciez 77' is close to 'species 77'"):
        tree.resolve(["speciez 77"])


def test_an_unknown_path_that_ends_in_the_roots_name_is_not_the_root():
    # The root may share its name with another node, or be a number that is known by its spelling.
    named = Taxonomy.from_nested({"root": ["a", "b"], "c": None})
    numbered = Taxonomy.from_edges([(0, 1), (0, 2)])
    for tree, label in [
        (named, ("nope", "root")),
        (named, "nope/root"),
        (numbered, ("nope", "0")),
        (numbered, "nope/0"),
    ]:
        with pytest.raises(ValueError, match="not in the taxonomy"):
            tree.resolve([label])


@pytest.mark.parametrize(
    "label", ["//nevus", "benign//nevus", "benign/", "nevus/benign", "x" * 10**6]
)
def test_what_only_looks_like_a_path_is_unknown(clinic, label):
    with pytest.raises(ValueError, match="not in the taxonomy") as caught:
        clinic.node(label)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ("nevus", TypeError, "got the single label 'nevus'. Put it in a list"),
        (7, TypeError, "got the single label 7"),
        ([["benign", "nevus"]], TypeError, r"tuple of names, got \['benign', 'nevus'\]"),
        ([("benign", ["nevus"])], TypeError, r"got \('benign', \['nevus'\]\)"),
        ([{}], TypeError, r"got \{\}"),
        (np.array([["benign", "nevus"]]), ValueError, r"one-dimensional, got shape \(1, 2\)"),
        (np.array("nevus"), ValueError, r"one-dimensional, got shape \(\)"),
    ],
)
def test_what_is_no_sequence_of_labels_is_refused(clinic, labels, error, message):
    with pytest.raises(error, match=message):
        clinic.resolve(labels)


# Against the rules written out


@st.composite
def awkward_trees(draw):
    """Names and parents of trees whose names collide with each other and with joined paths."""
    kind = draw(st.sampled_from(["text", "numbers"]))
    words = ["a", "b", "c", "a/b", "b/c", "/a", "a/", "root", "a/b/c", "é x"]
    pool = st.sampled_from(words if kind == "text" else [0, 1, 2, 3, 10, -1])
    names, parents, children = ["root"], [-1], defaultdict(set)
    for _ in range(draw(st.integers(2, 12))):
        parent = draw(st.integers(0, len(names) - 1))
        name = draw(pool)
        if name not in children[parent]:
            children[parent].add(name)
            names.append(name)
            parents.append(parent)
    return names, parents


@given(awkward_trees())
@example((["root", "a", "/a", "a"], [-1, 0, 0, 2]))
def test_every_label_is_resolved_or_refused_by_the_rules_of_names(case):
    refusal = ""
    try:
        tree = Taxonomy(*case)
    except (ValueError, TypeError) as error:
        refusal = str(error)
    if refusal:
        assert any(rule in refusal for rule in ("one leaf", "empty", "joined path", "mix strings"))
        return
    reference = Reference(tree.names.tolist(), tree.parents.tolist())
    labels = {*tree.names.tolist(), *reference.paths, "/", "zebra", ("zebra",)}
    labels |= {"/".join(map(str, path)) for path in reference.paths[1:] if len(path) > 1}
    labels |= {"/" + "/".join(map(str, path)) for path in reference.paths}
    for label in labels:
        assert resolved(tree, label) == reference.resolve(label), label
    known = [label for label in labels if reference.resolve(label) not in ("unknown", "ambiguous")]
    assert tree.resolve(known).tolist() == [reference.resolve(label) for label in known]
    for node, label in enumerate(tree.labels(range(tree.n_nodes))):
        assert reference.leaf_sets[reference.resolve(label)] == reference.leaf_sets[node]
    assert len(set(tree.leaves)) == tree.n_leaves
    assert tree.resolve(tree.leaves).tolist() == tree.leaf_nodes.tolist()


@given(taxonomies(widest=200, longest_chain=4), st.sampled_from(["/", " ", "--", "child"]))
def test_the_label_of_every_node_leads_back_to_its_leaves(tree, separator):
    tree = Taxonomy(tree.names, tree.parents, separator=separator)
    labels = tree.labels(np.arange(tree.n_nodes))
    nodes = tree.resolve(labels)
    assert (tree.leaf_start[nodes] == tree.leaf_start).all()
    assert (tree.leaf_stop[nodes] == tree.leaf_stop).all()
    assert tree.resolve(tree.leaves).tolist() == tree.leaf_nodes.tolist()
    assert labels == [tree.label(node) for node in range(tree.n_nodes)]


# Real taxonomies


REAL = {
    "fgvc_aircraft": (("manufacturer", "family", "variant"), [1, 30, 70, 100], 33),
    "grocery": (("top", "coarse", "fine"), [1, 3, 43, 81], 16),
    "derm12345": (
        ("super_class", "main_class_1", "main_class_2", "label"),
        [1, 2, 7, 11, 40],
        15,
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_real_taxonomies_resolve_every_bare_name_by_the_rules(assets, name):
    columns, sizes, n_branching = REAL[name]
    source = assets / "taxonomies" / f"{name}_taxonomy.csv"
    tree = Taxonomy.from_table(source, columns)
    with source.open(newline="", encoding="utf-8") as file:
        rows = [tuple(row[column] for column in columns) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows)) == tree.n_leaves == sizes[-1]
    assert tree.level_names == columns
    for depth, size in enumerate(sizes):
        assert tree.level_nodes(depth).size == len({row[:depth] for row in rows})
        assert size == tree.level_nodes(depth).size
    children = defaultdict(set)
    for row in rows:
        for depth in range(len(row)):
            children[row[:depth]].add(row[depth])
    branching = [path for path, names in children.items() if len(names) > 1]
    assert set(tree.branching) == set(branching)
    assert n_branching == tree.n_branching

    # The rows below each prefix, by the name the prefix ends with.
    bearers = defaultdict(dict)
    for row in rows:
        for depth in range(1, len(row) + 1):
            bearers[row[depth - 1]].setdefault(row[:depth], set()).add(row)
    refused = 0
    for bare, below in bearers.items():
        if len(set(map(frozenset, below.values()))) == 1:
            assert tree.path(bare) == max(below, key=len)
        else:
            refused += 1
            with pytest.raises(ValueError, match="is ambiguous"):
                tree.node(bare)
    assert (refused > 0) == (name != "grocery")
    assert {tree.path(leaf) for leaf in tree.leaves} == set(rows)
