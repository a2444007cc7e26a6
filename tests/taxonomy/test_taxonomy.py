"""The tree itself: its arrays, levels, relations, pruning, drawing, and that it never changes."""

import copy
import json
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from strategies import taxonomies

from skh2edl import Taxonomy

PATHS = [
    ("Airbus", "A320", "A320"),
    ("Airbus", "A320", "A321"),
    ("Boeing", "737", "737-700"),
    ("Boeing", "737", "737-800"),
    ("Boeing", "747", "747-400"),
    ("Fokker", "Fokker 70"),
]
LEVELS = ("manufacturer", "family", "variant")


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_paths(PATHS, level_names=LEVELS)


def as_graph(tree):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(tree.n_nodes))
    graph.add_edges_from((int(parent), node) for node, parent in enumerate(tree.parents) if node)
    return graph


def leaf_set(graph, node):
    return {v for v in {node, *nx.descendants(graph, node)} if graph.out_degree(v) == 0}


# Arrays


def test_the_numbers_of_a_tree_counted_by_hand(tree):
    assert tree.n_nodes == 13  # root, 3 manufacturers, 4 families (one a leaf), 5 variants
    assert (tree.n_leaves, tree.n_levels, tree.n_branching, tree.n_decisions) == (6, 3, 4, 9)
    assert tree.branching == ((), ("Boeing",), ("Airbus", "A320"), ("Boeing", "737"))
    assert tree.decisions[5:7] == (
        (("Airbus", "A320"), ("Airbus", "A320", "A320")),
        (("Airbus", "A320"), ("Airbus", "A320", "A321")),
    )
    assert tree.root_name == "root"
    assert tree.level_names == LEVELS


@given(taxonomies(widest=200, longest_chain=4))
def test_the_arrays_agree_with_networkx(tree):
    graph = as_graph(tree)
    assert nx.is_arborescence(graph)
    assert tree.parents[0] == -1
    assert (tree.parents[1:] < np.arange(1, tree.n_nodes)).all()
    depths = nx.single_source_shortest_path_length(graph, 0)
    assert tree.depths.tolist() == [depths[node] for node in range(tree.n_nodes)]
    assert tree.n_children.tolist() == [graph.out_degree(node) for node in range(tree.n_nodes)]
    for node in range(tree.n_nodes):
        first, count = tree.first_child[node], tree.n_children[node]
        assert sorted(graph.successors(node)) == list(range(first, first + count))
        below = leaf_set(graph, node)
        assert set(tree.leaf_nodes[tree.leaf_start[node] : tree.leaf_stop[node]]) == below
        assert tree.heights[node] == max(depths[leaf] for leaf in below) - depths[node]
    in_tree_order = [node for node in nx.dfs_preorder_nodes(graph, 0) if not graph.out_degree(node)]
    assert tree.leaf_nodes.tolist() == in_tree_order


@given(taxonomies(widest=200, longest_chain=4))
def test_the_decisions_are_the_children_of_branching_nodes(tree):
    graph = as_graph(tree)
    branching = [node for node in range(tree.n_nodes) if graph.out_degree(node) > 1]
    assert tree.branching_nodes.tolist() == branching
    entries = [(b, child) for b, node in enumerate(branching) for child in graph.successors(node)]
    assert list(zip(tree.decision_nodes, tree.decision_children, strict=True)) == entries
    assert (
        tree.decision_offsets.tolist()
        == np.cumsum([0] + [graph.out_degree(node) for node in branching]).tolist()
    )
    entry_of = {child: entry for entry, (_, child) in enumerate(entries)}
    for node in range(tree.n_nodes):
        way = [entry_of[v] for v in nx.shortest_path(graph, 0, node) if v in entry_of]
        assert tree.last_decision[node] == (way[-1] if way else -1)
        if way and entries[way[-1]][1] == node:
            assert tree.parent_decision[way[-1]] == (way[-2] if len(way) > 1 else -1)


def test_siblings_keep_the_order_they_were_given_in():
    tree = Taxonomy.from_paths([("b", "z"), ("a", "y"), ("b", "x"), ("a", "w")])
    assert tree.leaves == ("z", "x", "y", "w")
    assert tree.level(1) == ["b", "a"]


# Leaves as classes


@given(taxonomies(widest=200, longest_chain=4))
def test_sorted_leaf_labels_are_what_np_unique_makes_of_the_leaves(tree):
    classes = np.unique(np.array(tree.leaves))
    assert tree.sorted_leaf_labels.tolist() == classes.tolist()
    assert tree.sorted_leaf_labels.dtype == classes.dtype
    assert [tree.leaves[place] for place in tree.leaf_order] == classes.tolist()


@pytest.mark.parametrize(
    "names",
    [
        [2, 0, 1],
        [1.5, -1.0, 0.0],
        [True, False],
        ["b", "a"],
        np.array([3, 1]),
        np.array(["x", "é"]),
    ],
    ids=str,
)
def test_a_flat_tree_has_the_classes_that_scikit_learn_would_find(names):
    tree = Taxonomy.flat(names)
    classes = np.unique(names)
    np.testing.assert_array_equal(tree.sorted_leaf_labels, classes)
    assert tree.sorted_leaf_labels.dtype.kind == classes.dtype.kind
    assert tree.resolve(np.asarray(names)).tolist() == [*range(1, len(names) + 1)]


def test_large_integers_beside_fractions_are_not_rounded():
    tree = Taxonomy.flat([2**60 + 1, 0.5])
    assert tree.sorted_leaf_labels.tolist() == [0.5, 2**60 + 1]


def test_a_flat_tree_may_have_a_class_named_root():
    tree = Taxonomy.flat(["root", "stem", "leaf"])
    assert tree.leaves == ("root", "stem", "leaf")
    assert tree.node("root") == 1


# Levels


def test_a_leaf_that_ends_above_a_level_stands_for_itself(tree):
    assert tree.level("manufacturer") == ["Airbus", "Boeing", "Fokker"]
    assert tree.level("family") == ["Airbus/A320", "737", "747", "Fokker 70"]
    assert tree.level("variant") == tree.level("leaf") == tree.level(3) == list(tree.leaves)
    assert tree.level(0) == ["root"]


def test_ancestors_by_name_and_number(tree):
    assert tree.ancestor("737-700", "family") == tree.ancestor("737-700", 2) == "737"
    assert tree.ancestor("A321", "manufacturer") == "Airbus"
    assert tree.ancestor("Fokker 70", "variant") == "Fokker 70"
    assert tree.ancestor("737-700", 0) == "root"
    assert tree.ancestor("Fokker", "variant") == "Fokker 70"  # only one way down
    with pytest.raises(ValueError, match="'Boeing' ends above level 'variant'"):
        tree.ancestor("Boeing", "variant")


@given(taxonomies(longest_chain=4), st.data())
def test_projection_climbs_to_the_level_or_stays_at_the_leaf(tree, data):
    graph = as_graph(tree)
    depth = data.draw(st.integers(0, tree.n_levels))
    members = set(tree.level_nodes(depth).tolist())
    assert members == {
        node
        for node in graph
        if tree.depths[node] == depth or (tree.depths[node] < depth and not graph.out_degree(node))
    }
    found = tree.project(np.arange(tree.n_nodes), depth)
    for node in graph:
        # The node of the level that covers all its leaves; there is none for an unfinished label.
        covering = [v for v in members if leaf_set(graph, node) <= leaf_set(graph, v)]
        assert found[node] == (covering[0] if covering else -1)


@pytest.mark.parametrize("level", ["famly", 4, -1, True, 1.0, None])
def test_a_level_that_does_not_exist_is_refused_with_those_that_do(tree, level):
    expected = rf"no level {level!r}. Use a number from 0 to 3, 'leaf' or one of \['manufacturer'"
    with pytest.raises(ValueError, match=expected):
        tree.level(level)


def test_a_tree_without_level_names_says_so():
    with pytest.raises(ValueError, match=r"no level 'family'.*its levels have no names"):
        Taxonomy.flat(["a", "b"]).level_index("family")


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (("a", "b"), ValueError, r"must hold 3 different names.*got 2: \('a', 'b'\)"),
        (("a", "b", "b"), ValueError, "must hold 3 different names"),
        ("abc", ValueError, r"got 1: \('abc',\)"),
        ((1, 2, 3), TypeError, r"level_names must be strings, got \(1, 2, 3\)"),
    ],
)
def test_level_names_that_do_not_fit_are_refused(names, error, message):
    with pytest.raises(error, match=message):
        Taxonomy.from_paths(PATHS, level_names=names)


# Relations


@given(taxonomies(widest=20, longest_chain=6))
def test_common_ancestors_and_distances_agree_with_networkx(tree):
    graph = as_graph(tree)
    nodes = np.arange(tree.n_nodes)
    found = tree.lowest_common_ancestor(nodes[:, None], nodes)
    distance = tree.distance(nodes[:, None], nodes)
    for (one, two), expected in nx.tree_all_pairs_lowest_common_ancestor(graph):
        assert found[one, two] == found[two, one] == expected
    edges = dict(nx.all_pairs_shortest_path_length(graph.to_undirected()))
    assert distance.tolist() == [[edges[one][two] for two in nodes] for one in nodes]


def test_relations_take_labels(tree):
    assert tree.label(tree.lowest_common_ancestor("737-700", "737-800")) == "737"
    assert tree.distance(["737-700", "A321"], ["747-400", ("Airbus", "A320", "A320")]).tolist() == [
        4,
        2,
    ]
    assert tree.distance(np.array(["A321"]), tree.resolve(["Fokker"])).tolist() == [4]
    assert tree.distance([], []).tolist() == []


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        ([13], ValueError, "between 0 and 12, got 13 to 13"),
        ([-1, 3], ValueError, "between 0 and 12, got -1 to 3"),
        ([0.5], TypeError, "Nodes must be integers, got an array of float64"),
    ],
)
def test_numbers_that_are_no_nodes_are_refused(tree, nodes, error, message):
    for use in (tree.labels, lambda nodes: tree.distance(nodes, 0), lambda n: tree.project(n, 1)):
        with pytest.raises(error, match=message):
            use(nodes)


@given(taxonomies(widest=20))
def test_sums_below_agree_with_adding_up_descendants(tree):
    values = np.arange(tree.n_nodes) ** 2
    graph = as_graph(tree)
    expected = [values[[node, *nx.descendants(graph, node)]].sum() for node in graph]
    assert tree.sum_below(values).tolist() == expected
    assert values.tolist() == (np.arange(tree.n_nodes) ** 2).tolist()


# Pruning


def test_restrict_keeps_clades_and_the_way_to_them(tree):
    small = tree.restrict(["737", ("Airbus", "A320", "A321")])
    assert [small.path(leaf) for leaf in small.leaves] == [PATHS[1], PATHS[2], PATHS[3]]
    assert small.level_names == LEVELS
    assert tree.restrict(["Fokker", "A321"]).level_names == LEVELS
    assert tree.restrict(["root"]) == tree


def test_restrict_drops_the_names_of_levels_that_are_gone(tree):
    top = Taxonomy.from_paths([("a",), ("b",), ("c", "d"), ("c", "e")], level_names=("one", "two"))
    assert top.restrict(["a", "b"]).level_names == ("one",)


@given(taxonomies(longest_chain=4), st.data())
def test_a_restricted_tree_has_the_leaves_of_its_clades(tree, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), min_size=1))
    paths = [tree._index.path(node) for node in nodes]
    expected = [
        path
        for path in (tree._index.path(leaf) for leaf in tree.leaf_nodes)
        if any(path[: len(clade)] == clade for clade in paths)
    ]
    if len(expected) < 2:
        with pytest.raises(ValueError, match="has one leaf"):
            tree.restrict(paths)
    else:
        small = tree.restrict(paths)
        assert [small._index.path(leaf) for leaf in small.leaf_nodes] == expected


def test_restricting_to_nothing_or_to_one_leaf_is_refused(tree):
    with pytest.raises(ValueError, match="The taxonomy is empty"):
        tree.restrict([])
    with pytest.raises(ValueError, match="has one leaf, 'A321'"):
        tree.restrict(["A321"])


# Drawing


def test_drawing_shows_the_number_of_leaves(tree):
    assert str(tree).splitlines()[:4] == [
        "root (6)",
        "├── Airbus (2)",
        "│   └── A320 (2)",
        "│       ├── A320",
    ]
    assert len(str(tree).splitlines()) == tree.n_nodes


def test_drawing_counts_labels_at_or_below_each_node(tree):
    lines = tree.draw(["737-700", "737", "Boeing", "root"]).splitlines()
    counts = {line.split("── ")[-1].rsplit(" (", 1)[0]: line.rsplit("(", 1)[1] for line in lines}
    assert counts["root"] == "4)"
    assert counts["Boeing"] == "3)"
    assert counts["737"] == "2)"
    assert counts["747-400"] == "0)"


@given(taxonomies(widest=200, longest_chain=4), st.integers(4, 60))
def test_a_drawing_never_exceeds_its_lines(tree, max_lines):
    lines = tree.draw(max_lines=max_lines).splitlines()
    assert len(lines) <= max_lines
    assert len(tree.draw(max_lines=tree.n_nodes + 1).splitlines()) == tree.n_nodes


def test_what_does_not_fit_is_folded_and_said(tree):
    assert tree.draw(max_lines=9).splitlines()[1:3] == ["├── Airbus (2)", "│   └── A320 (2) ..."]
    wide = Taxonomy.flat(range(1000)).draw(max_lines=10).splitlines()
    assert len(wide) == 10
    assert wide[-1] == "└── ... 992 more"


def test_repr_is_short_and_says_the_shape(tree):
    assert repr(tree) == (
        "Taxonomy(6 leaves, 4 branching nodes, levels manufacturer > family > variant)"
    )
    assert repr(Taxonomy.flat(range(1000))) == "Taxonomy(1000 leaves, 1 branching nodes)"


# A value that never changes


@pytest.mark.parametrize("name", ["names", "parents", "level_names", "separator", "leaves", "new"])
def test_nothing_can_be_set_or_deleted(tree, name):
    _ = tree.leaves
    with pytest.raises(AttributeError, match=f"cannot be changed, so '{name}' cannot be set"):
        setattr(tree, name, None)
    with pytest.raises(AttributeError, match=f"cannot be changed, so '{name}' cannot be deleted"):
        delattr(tree, name)


def test_every_array_is_closed_to_writing(tree):
    _ = tree.sorted_leaf_labels, tree.last_of_chain
    arrays = [value for value in vars(tree).values() if isinstance(value, np.ndarray)]
    assert len(arrays) >= 18
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]


def test_the_given_arrays_are_copied():
    names, parents = np.array(["r", "a", "b"], object), np.array([-1, 0, 0])
    tree = Taxonomy(names, parents)
    names[1], parents[:] = "x", 5
    assert tree.leaves == ("a", "b")
    assert tree.parents.tolist() == [-1, 0, 0]


@given(taxonomies(widest=20, longest_chain=4))
def test_equal_trees_are_equal_and_hash_alike(tree):
    twin = Taxonomy(tree.names, tree.parents)
    assert twin == tree
    assert hash(twin) == hash(tree)
    for other in (
        Taxonomy(tree.names, tree.parents, separator="|"),
        Taxonomy(tree.names, tree.parents, level_names=map(str, range(tree.n_levels))),
        Taxonomy(["other", *tree.names[1:]], tree.parents),
    ):
        assert other != tree
    assert tree != "tree"


def test_classes_of_different_types_make_different_trees():
    trees = [Taxonomy.flat(names) for names in ([0, 1], [0.0, 1.0], [False, True], ["0", "1"])]
    assert len(set(trees)) == 4


@given(taxonomies(widest=20, longest_chain=4), st.sampled_from([2, 3, 4, 5]))
def test_pickling_brings_back_an_equal_tree(tree, protocol):
    again = pickle.loads(pickle.dumps(tree, protocol))
    assert again == tree
    assert again.leaves == tree.leaves


def test_copies_are_the_tree_itself(tree):
    assert copy.copy(tree) is tree
    assert copy.deepcopy([tree])[0] is tree


class Holder(BaseEstimator):
    def __init__(self, taxonomy=None):
        self.taxonomy = taxonomy


def test_scikit_learn_clones_and_prints_an_estimator_that_holds_a_tree(tree):
    holder = Holder(tree)
    assert clone(holder).taxonomy is tree
    assert repr(holder) == f"Holder(taxonomy={tree!r})"
    assert "6 leaves" in holder._repr_html_()
    assert pickle.loads(pickle.dumps(holder)).taxonomy == tree


@given(taxonomies(widest=20, longest_chain=4))
def test_json_brings_back_an_equal_tree(tree):
    text = tree.to_json()
    assert Taxonomy.from_json(text) == tree
    assert json.loads(text)["parents"] == tree.parents.tolist()


@pytest.mark.parametrize("names", [[1, 2], [0.1, 2.5], [True, False], ["é", "日本 / 1"]], ids=str)
def test_json_keeps_the_types_of_names(names):
    tree = Taxonomy.flat(names, separator="|", level_names=["class"])
    again = Taxonomy.from_json(tree.to_json())
    assert again == tree
    assert [type(name) for name in again.leaves] == [type(name) for name in names]


# Rows of level names as labels


def test_rows_become_labels_that_stop_where_the_row_does(tree):
    rows = [[*PATHS[0]], ["Boeing", "737", ""], ["Boeing", None, None], [" ", "", np.nan]]
    assert tree.labels_from_paths(rows).tolist() == ["Airbus/A320/A320", "737", "Boeing", "root"]
    frame = pd.DataFrame(rows, columns=LEVELS)
    assert tree.labels_from_paths(frame).tolist() == tree.labels_from_paths(rows).tolist()
    assert tree.labels_from_paths(frame.astype("string"))[3] == "root"
    assert tree.labels_from_paths(np.array(PATHS[:5])).tolist() == list(tree.leaves[:5])


def test_rows_of_numbers_keep_them_numbers():
    tree = Taxonomy.from_paths([(1, 11), (1, 12), (2, 21)])
    labels = tree.labels_from_paths(np.array([[1, 12], [2, 21]]))
    assert labels.dtype.kind == "i"
    assert tree.labels_from_paths([[1, 12], [None, None]]).tolist() == [12, -1]
    named = Taxonomy.from_paths([(1, 11), (1, 12), (2, 21)], root_name="root")
    assert named.labels_from_paths([[1, 12], [None, None]]).tolist() == [12, "root"]
    assert named.labels_from_paths([[1, 12], ["", ""]]).dtype == object


@pytest.mark.parametrize(
    "build",
    [
        lambda: Taxonomy.from_nested({1: [-3, 12], 2: [21]}),
        lambda: Taxonomy.from_paths(np.array([[1, -3], [1, 12], [2, 21]])),
        lambda: Taxonomy.from_table(pd.DataFrame({"a": [1, 1, 2], "b": [-3, 12, 21]})),
        lambda: Taxonomy.flat([-3, 12, 21]),
    ],
)
def test_the_root_of_integers_is_the_integer_below_them(build):
    assert build().root_name == -4


def test_the_root_of_anything_else_is_called_root_unless_a_node_is():
    assert Taxonomy.from_nested({"plant": [1, 2]}).root_name == "root"
    assert Taxonomy.flat([True, False]).root_name == "root"
    assert Taxonomy.from_paths([("plant", "root"), ("plant", "leaf")]).root_name == "(root)"


@given(taxonomies(longest_chain=4))
def test_the_row_of_every_node_leads_back_to_its_leaves(tree):
    rows = [(*tree._index.path(node), "") for node in range(tree.n_nodes)]
    nodes = tree.resolve(tree.labels_from_paths(rows))
    assert (tree.leaf_start[nodes] == tree.leaf_start).all()
    assert (tree.leaf_stop[nodes] == tree.leaf_stop).all()


def test_rows_that_are_none_are_refused(tree):
    with pytest.raises(TypeError, match="Row 0 is 'Boeing', but each row must be a sequence"):
        tree.labels_from_paths(["Boeing"])
    with pytest.raises(TypeError, match="Row 1 is 7, but each row"):
        tree.labels_from_paths([["Boeing"], 7])
    with pytest.raises(ValueError, match=r"first \[\('Boeing', '777'\)\].*close to '7[34]7'"):
        tree.labels_from_paths([["Boeing", "777", None]])
    assert tree.labels_from_paths([]).shape == (0,)
