"""Every way to build a tree, and what each refuses: bad, broken and hostile input."""

import json
import os
import tracemalloc

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import taxonomies

from skh2edl import Taxonomy

PATHS = [("cat", "lynx"), ("cat", "puma"), ("dog",)]
EDGES = [("pet", "cat"), ("pet", "dog"), ("cat", "lynx"), ("cat", "puma")]


def shape(tree):
    return [tree.path(leaf) for leaf in tree.leaves]


# Builders


@pytest.mark.parametrize(
    "build",
    [
        lambda: Taxonomy.from_paths(PATHS),
        lambda: Taxonomy.from_paths(iter([*PATHS, ("cat",), ("cat", "puma", None)])),
        lambda: Taxonomy.from_paths(np.array([("cat", "lynx"), ("cat", "puma"), ("dog", "")])),
        lambda: Taxonomy.from_paths(pd.DataFrame([*PATHS[:2], (*PATHS[2], None)])),
        lambda: Taxonomy.from_edges(EDGES),
        lambda: Taxonomy.from_edges(EDGES + EDGES[:1]),
        lambda: Taxonomy.from_edges(np.array(EDGES)),
        lambda: Taxonomy.from_edges(pd.DataFrame(EDGES)),
        lambda: Taxonomy.from_edges(list(edge) for edge in EDGES),
        lambda: Taxonomy.from_parents({child: parent for parent, child in EDGES}),
        lambda: Taxonomy.from_parents({"pet": None} | {c: p for p, c in EDGES}),
        lambda: Taxonomy.from_parents(pd.Series({c: p for p, c in EDGES})),
        lambda: Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": None}),
        lambda: Taxonomy.from_nested({"cat": {"puma", "lynx"}, "dog": {}}),
        lambda: Taxonomy.from_nested({"cat": {"lynx": [], "puma": ()}, "dog": []}),
        lambda: Taxonomy.from_newick("((lynx,puma)cat,dog)pet;"),
        lambda: Taxonomy.from_newick(" ( ('lynx':1.5,puma[a comment])cat:2e-3 , dog ) "),
        lambda: Taxonomy.from_networkx(nx.DiGraph(EDGES)),
        lambda: Taxonomy.from_networkx(nx.MultiDiGraph(EDGES + EDGES)),
        lambda: Taxonomy.from_table(
            pd.DataFrame({"top": ["cat", "cat", "dog"], "fine": ["lynx", "puma", None]})
        ),
        lambda: Taxonomy.from_json(Taxonomy.from_paths(PATHS).to_json()),
        lambda: Taxonomy(["cat", "lynx", "pet", "puma", "dog"], [2, 0, -1, 0, 2]),
    ],
)
def test_every_builder_makes_the_same_tree(build):
    assert shape(build()) == PATHS


def test_folders_are_nodes_and_hidden_ones_links_and_files_are_not(tmp_path):
    for name in ("pets/cat/puma", "pets/cat/lynx", "pets/dog", "pets/.cache/x", "elsewhere/wolf"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pets" / "dog" / "photo.jpg").touch()
    (tmp_path / "pets" / "dog" / "wild").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "pets" / "cat" / "round").symlink_to(tmp_path / "pets")
    tree = Taxonomy.from_folder(tmp_path / "pets", root_name=None)
    assert shape(tree) == PATHS
    assert tree.root_name == "pets"
    assert Taxonomy.from_folder(str(tmp_path / "pets")).root_name == "root"


@pytest.mark.parametrize("build", [Taxonomy.from_nested, Taxonomy.from_newick])
def test_the_root_is_named_by_the_caller(build):
    source = {"a": None, "b": None} if build == Taxonomy.from_nested else "(a,b);"
    assert build(source, root_name="life", level_names=["one"]).root_name == "life"


@given(taxonomies(widest=200, longest_chain=4))
def test_paths_make_the_tree_they_came_from(tree):
    paths = [tree.path(leaf) for leaf in tree.leaves]
    again = Taxonomy.from_paths(paths)
    assert again == tree
    assert [again.path(leaf) for leaf in again.leaves] == paths


@given(taxonomies(widest=20, longest_chain=4))
def test_edges_parents_nested_newick_and_networkx_make_the_same_tree(tree):
    names = [f"n{node}" for node in range(tree.n_nodes)]  # one name a node
    tree = Taxonomy(names, tree.parents)
    edges = [(names[parent], names[node]) for node, parent in enumerate(tree.parents) if node]
    nested, newick = [None] * tree.n_nodes, [""] * tree.n_nodes
    for node in reversed(range(tree.n_nodes)):
        first, count = tree.first_child[node], tree.n_children[node]
        below = range(first, first + count)
        nested[node] = {names[child]: nested[child] for child in below}
        newick[node] = (f"({','.join(newick[c] for c in below)})" if count else "") + names[node]
    assert Taxonomy.from_edges(edges) == tree
    assert Taxonomy.from_parents({child: parent for parent, child in edges}) == tree
    assert Taxonomy.from_networkx(nx.DiGraph(edges)) == tree
    assert Taxonomy.from_nested(nested[0], root_name="n0") == tree
    assert Taxonomy.from_newick(newick[0] + ";") == tree


# Tables


def write(folder, text, encoding="utf-8"):
    path = folder / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_a_csv_file_names_the_levels_and_a_blank_is_a_missing_rank(tmp_path):
    text = (
        "\ufeffid, family ,genus,species\r\n"
        '1,cats,Lynx,"lynx, red"\r\n'
        "2, cats ,,puma\r\n\r\n"
        "3,dogs,,\r\n"
        "4,,,\r\n"
    )
    tree = Taxonomy.from_table(write(tmp_path, text), ["family", "genus", "species"])
    # The puma stands in for its genus, so that it keeps the level of its column.
    assert shape(tree) == [("cats", "Lynx", "lynx, red"), ("cats", "puma", "puma"), ("dogs",)]
    assert tree.level_names == ("family", "genus", "species")
    assert tree.level("species") == ["lynx, red", "puma", "dogs"]
    assert tree.level("genus") == ["Lynx", "puma", "dogs"]


def test_levels_that_no_row_reaches_are_left_out():
    table = pd.DataFrame({"a": ["x", "y"], "b": [None, np.nan], "c": [pd.NA, ""]})
    assert Taxonomy.from_table(table).level_names == ("a",)
    assert Taxonomy.from_table(table, "a").level_names == ("a",)


def test_a_table_may_hold_numbers():
    table = pd.DataFrame({"top": ["A", "A", "B"], "fine": [1, 2, 3]})
    assert Taxonomy.from_table(table).leaves == (1, 2, 3)


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", None, r"has the columns \[\], not any rank column"),
        ("a,b\n", ["a", "genus"], r"has the columns \['a', 'b'\], not \['genus'\]"),
        ("a,b\nx,y\nz\n", None, r"line 3, has 1 cells, but the columns \['a', 'b'\] need 2"),
        ("a,b\nx,y,\nx,y, z\n", ["a"], r"line 3, has 3 cells, and the header has 2"),
        ("a,a\nx,y\n", None, "has the column 'a' more than once"),
        ("a,b\n", None, "The taxonomy is empty: nothing hangs from its root 'root'"),
        ("a\nx\x00y\nz\n", None, r"'x\\x00y' holds a control character"),
        ("a\n" + "x" * 200_000, None, "cannot be read as CSV.*field larger than field limit"),
    ],
)
def test_a_bad_csv_file_is_refused_with_its_place(tmp_path, text, columns, message):
    with pytest.raises(ValueError, match=message):
        Taxonomy.from_table(write(tmp_path, text), columns)


def test_a_csv_file_in_another_encoding_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot be read as CSV in UTF-8.*Save it again"):
        Taxonomy.from_table(write(tmp_path, "a\nété\n", "latin-1"))


def test_a_frame_with_a_repeated_column_and_other_things_are_refused():
    table = pd.DataFrame([["x", "y"]], columns=["a", "a"])
    with pytest.raises(ValueError, match="The table has the column 'a' more than once"):
        Taxonomy.from_table(table)
    with pytest.raises(TypeError, match="path of a CSV file or a pandas DataFrame, got list"):
        Taxonomy.from_table([["a"]])


# Newick


def test_clades_without_a_name_are_called_after_their_ends():
    tree = Taxonomy.from_newick("(((a,b),c),(d),'it''s',under_score);")
    assert tree.path("b") == ("a..c", "a..b", "b")
    assert tree.path("d") == ("d", "d")
    assert tree.leaves[-2:] == ("it's", "under score")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("((a,b);", "an end inside a bracket at character 7"),
        ("(a,b));", r"a '\)' without its '\(' at character 5"),
        ("(a,b)(c,d);", r"a misplaced \( at character 5"),
        ("(a b,c);", "a misplaced name at character 2"),
        ("(a:1:2,c);", "a misplaced : at character 4"),
        ("(a:,c);", "a misplaced , at character 3"),
        ("a,b;", "a ',' outside all brackets at character 1"),
        ("(a,b);(c,d);", "a second tree at character 6"),
        ("(a,'b);", "an open quote or a stray bracket at character 3"),
        ("(a,b]);", "an open quote or a stray bracket at character 4"),
        ("(a,);", "a leaf with an empty name"),
        ("(a,'');", "the empty name ''"),
        ("(a,_);", "the empty name ' '"),
        ("", "a leaf with an empty name"),
        ("(a);", "has one leaf, 'a'"),
        ("(a,a);", "'root' has two children named 'a'"),
    ],
)
def test_bad_newick_is_refused_with_its_place(text, problem):
    with pytest.raises(ValueError, match=problem):
        Taxonomy.from_newick(text)


def test_newick_must_be_text():
    with pytest.raises(TypeError, match="Newick text must be a string, got bytes"):
        Taxonomy.from_newick(b"(a,b);")


# JSON


def record(**changes):
    return json.dumps(json.loads(Taxonomy.flat(["a", "b"]).to_json()) | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "The taxonomy is not valid JSON"),
        ("[" * 100_000, "The taxonomy is not valid JSON"),
        ('{"cat": ["lynx"]}', r"starts with .* Use Taxonomy.from_nested for nested objects"),
        (record(version=2), "format version 2, and this release reads version 1"),
        (record(names="abc"), '"names" .a list.'),
        (record(parents=[-1, 0, 0.0]), '"parents" .a list of integers.'),
        (record(parents=[-1, 0]), "one position for each of the 3 names"),
        (record(parents=[-1, 0, 7]), "between -1 and 2, got -1 to 7"),
        (record(parents=[-1, 0, 2**63]), "parents must|between -1 and 2"),
        (record(level_names="ab"), '"level_names" .a list of strings or null.'),
        (record(separator=""), "separator must be a non-empty string"),
        (record(names=["root", None, "b"]), "the empty name None"),
    ],
)
def test_bad_json_is_refused(text, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Taxonomy.from_json(text)


# The same faults in every form


@pytest.mark.parametrize(
    "build",
    [
        lambda: Taxonomy.from_edges([("r", "a"), ("x", "y"), ("y", "z"), ("z", "x")]),
        lambda: Taxonomy.from_parents({"a": "r", "y": "x", "z": "y", "x": "z"}),
        lambda: Taxonomy.from_networkx(
            nx.DiGraph([("r", "a"), ("x", "y"), ("y", "z"), ("z", "x")])
        ),
        lambda: Taxonomy(["r", "a", "x", "y", "z"], [-1, 0, 4, 2, 3]),
        lambda: Taxonomy.from_edges([("x", "y"), ("y", "z"), ("z", "x")]),
    ],
)
def test_a_cycle_is_refused_with_its_nodes(build):
    with pytest.raises(ValueError, match=r"a cycle of 3 node.s.: 'x' -> 'z' -> 'y' -> 'x'"):
        build()


def test_long_cycles_and_loops_are_refused_in_few_words():
    with pytest.raises(ValueError, match=r"cycle of 1 node.s.: 'a' -> 'a'"):
        Taxonomy.from_parents({"a": "a"})
    edges = [(number, (number + 1) % 10**5) for number in range(10**5)]
    with pytest.raises(
        ValueError, match=r"cycle of 100000 node.*remove one of these edges"
    ) as caught:
        Taxonomy.from_edges(edges)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "build",
    [
        lambda: Taxonomy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x")]),
        lambda: Taxonomy.from_networkx(
            nx.DiGraph([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x")])
        ),
    ],
)
def test_two_parents_are_refused_by_name(build):
    with pytest.raises(
        ValueError, match=r"1 node\(s\) have more than one parent, first 'x' \(under 'a' and 'b'\)"
    ):
        build()


def lonely_graph():
    graph = nx.DiGraph([("r", "a"), ("r", "b")])
    graph.add_node("s")
    return graph


FORESTS = [
    lambda **options: Taxonomy.from_edges([("r", "a"), ("s", "b")], **options),
    lambda **options: Taxonomy.from_parents({"a": "r", "b": "s"}, **options),
    lambda **options: Taxonomy.from_parents({"a": "r", "r": None, "s": np.nan}, **options),
    lambda **options: Taxonomy.from_networkx(lonely_graph(), **options),
]


@pytest.mark.parametrize("build", FORESTS)
def test_a_forest_gets_a_root_and_a_warning_that_names_its_trees(build):
    with pytest.warns(UserWarning, match=r"have 2 roots, first \['r', 's'\].*root_name='root'"):
        tree = build()
    assert tree.level(1) == ["r", "s"]
    assert tree.root_name == "root"


@pytest.mark.parametrize("build", FORESTS)
def test_a_forest_whose_root_is_named_needs_no_warning(build):
    assert build(root_name="life").root_name == "life"


def test_the_root_of_a_forest_is_not_called_like_one_of_its_nodes():
    with pytest.warns(UserWarning, match=r"A root named '\(root\)' is put above"):
        tree = Taxonomy.from_edges([("root", "a"), ("s", "b")])
    assert tree.path("a") == ("root", "a")


def test_a_single_tree_keeps_its_own_root_whatever_a_forest_would_get():
    assert Taxonomy.from_edges([("r", "a"), ("r", "b")], root_name="life").root_name == "r"


def test_two_roots_in_an_array_of_parents_are_refused_by_name():
    with pytest.raises(ValueError, match=r"has 2 roots, first \['r', 's'\].*one common root"):
        Taxonomy(["r", "s", "a"], [-1, -1, 0])


@pytest.mark.parametrize("empty", ["", "  ", None, float("nan"), pd.NA])
def test_an_empty_name_is_refused_in_every_form(empty):
    for build in (
        lambda: Taxonomy.from_edges([("r", "a"), ("r", empty)]),
        lambda: Taxonomy.from_parents({"a": "r", empty: "r"}),
        lambda: Taxonomy.from_nested({"a": None, empty: None}),
        lambda: Taxonomy.from_nested(["a", empty]),
        lambda: Taxonomy.flat(["a", empty]),
        lambda: Taxonomy.from_nested(["a", "b"], root_name=" " if empty is None else empty),
        lambda: Taxonomy(["r", "a", empty], [-1, 0, 0]),
    ):
        with pytest.raises(ValueError, match=r"has the empty name .*Give every node a name"):
            build()
    with pytest.raises(ValueError, match=r"Row 1 has no name. Remove the empty row"):
        Taxonomy.from_paths([("a",), (empty, empty), ("b",)])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("a\nb", ValueError, r"'a\\nb' holds a control character"),
        ("\x1b[31mred", ValueError, "holds a control character"),
        ("x\u2028y", ValueError, "holds a control character"),
        ("x\u2029", ValueError, "holds a control character"),
        ("\udc80x", ValueError, "holds a control character or a lone surrogate"),
        ("x" * 1001, ValueError, "has 1001 characters, and at most 1000 are allowed"),
        (float("inf"), TypeError, "a string or a finite number, got inf of type float"),
        (b"cat", TypeError, "got b'cat' of type bytes. Convert it to a string"),
        (("a", "b"), TypeError, r"got \('a', 'b'\) of type tuple"),
        (["a"], TypeError, r"got \['a'\] of type list"),
        ({"a": 1}, TypeError, r"got \{'a': 1\} of type dict"),
    ],
)
def test_what_cannot_be_a_name_is_refused(name, error, message):
    for build in (
        lambda: Taxonomy.flat(["a", name]),
        lambda: Taxonomy.from_paths([("a",), (name,)]),
        lambda: Taxonomy.from_edges([("r", "a"), ("r", name)]),
        lambda: Taxonomy.from_nested(["a", name]),
    ):
        with pytest.raises(error, match=message):
            build()


@pytest.mark.skipif(os.name != "posix", reason="other systems refuse such folder names themselves")
def test_a_folder_with_a_control_character_is_refused(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "ba\x07d").mkdir()
    with pytest.raises(ValueError, match=r"'ba\\x07d' holds a control character"):
        Taxonomy.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Taxonomy.from_paths([]), "is empty: nothing hangs from its root 'root'"),
        (lambda: Taxonomy.from_nested({}), "is empty: nothing hangs from its root 'root'"),
        (lambda: Taxonomy.flat([]), "is empty: nothing hangs from its root 'root'"),
        (lambda: Taxonomy.from_edges([]), "The taxonomy is empty"),
        (lambda: Taxonomy.from_parents({}), "The taxonomy is empty"),
        (lambda: Taxonomy.from_networkx(nx.DiGraph()), "The taxonomy is empty"),
        (lambda: Taxonomy([], []), "The taxonomy is empty"),
        (lambda: Taxonomy.from_paths([("a", "b", "c")]), "has one leaf, 'c'"),
        (lambda: Taxonomy.from_edges([("r", "a")]), "has one leaf, 'a'"),
        (lambda: Taxonomy.flat(["only"]), "has one leaf, 'only', but a classifier needs at least"),
        (lambda: Taxonomy.from_parents({"r": None}), "nothing hangs from its root 'r'"),
        (lambda: Taxonomy.flat(["a", "b", "a"]), "'root' has two children named 'a'"),
        (lambda: Taxonomy.from_nested({"c": ["x", "y", "x"]}), "'c' has two children named 'x'"),
        (lambda: Taxonomy.from_nested({"c": {1: ["x"], "1": ["y"]}}), "has two children named '1'"),
    ],
)
def test_empty_trees_one_leaf_and_repeated_siblings_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_repeated_sibling_among_very_many_is_found():
    with pytest.raises(ValueError, match="two children named 99999"):
        Taxonomy.flat([*range(100_000), 99_999])


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Taxonomy.from_paths(["cat"]), TypeError, "Row 0 is 'cat', but each row must be"),
        (lambda: Taxonomy.from_paths([3]), TypeError, "Row 0 is 3, but each row must be"),
        (lambda: Taxonomy.from_paths("cat"), TypeError, "Give a sequence of rows, got 'cat'"),
        (lambda: Taxonomy.from_edges(["ab"]), ValueError, "Edge 0 is 'ab', but each edge must"),
        (
            lambda: Taxonomy.from_edges([("a", "b", "c")]),
            ValueError,
            r"Edge 0 is \('a', 'b', 'c'\)",
        ),
        (lambda: Taxonomy.from_edges([("a", "b"), 5]), ValueError, "Edge 1 is 5, but each edge"),
        (lambda: Taxonomy.from_edges(5), TypeError, "Give a sequence of rows, got 5"),
        (lambda: Taxonomy.from_parents([("a", "b")]), TypeError, "use Taxonomy.from_edges"),
        (lambda: Taxonomy.flat("abc"), TypeError, "got the string 'abc'"),
        (
            lambda: Taxonomy.from_networkx(nx.Graph([(1, 2)])),
            TypeError,
            r"networkx.DiGraph.*got Graph",
        ),
        (lambda: Taxonomy.from_networkx([1]), TypeError, r"networkx.DiGraph.*got list"),
        (lambda: Taxonomy.from_folder("no/such/folder"), NotADirectoryError, "is not a folder"),
        (lambda: Taxonomy(["a", "b"], [-1.0, 0.0]), TypeError, "integers, got an array of float64"),
    ],
)
def test_input_of_the_wrong_kind_is_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


# Hostile depth


def deep_nested(depth):
    nested = {"a": None, "b": None}
    for number in range(depth):
        nested = {f"n{number}": nested}
    return nested


def self_holding():
    nested = {"a": None}
    nested["b"] = nested["c"] = nested
    return nested


DEPTH = 100_000
CHAIN = [f"n{number}" for number in range(DEPTH)]
DEEP = {
    "from_paths": lambda: [CHAIN, ["b"]],
    "from_edges": lambda: list(zip(CHAIN, [*CHAIN[1:], "x"], strict=True)),
    "from_parents": lambda: dict(zip(CHAIN[1:], CHAIN, strict=False)),
    "from_nested": lambda: deep_nested(DEPTH),
    "from_nested, in itself": self_holding,
    "from_newick": lambda: "(" * DEPTH + "a,b" + ")" * DEPTH,
    "from_networkx": lambda: nx.path_graph(DEPTH, nx.DiGraph),
    "from_json": lambda: record(names=[*CHAIN, "x"], parents=[-1, *range(DEPTH - 1), 0]),
    "from_table": lambda: pd.DataFrame([CHAIN[:2000]], columns=CHAIN[:2000]),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", DEEP)
def test_a_hostile_depth_is_refused_in_little_memory(form):
    build, source = getattr(Taxonomy, form.split(",")[0]), DEEP[form]()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="deeper than 1000 levels, which no classification"):
            build(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * 2**20


def test_folders_of_a_hostile_depth_are_refused(tmp_path):
    folders = [tmp_path / "d"]
    for _ in range(1001):
        folders.append(folders[-1] / "d")
    for folder in folders:
        folder.mkdir()
    try:
        with pytest.raises(ValueError, match="deeper than 1000 levels"):
            Taxonomy.from_folder(tmp_path)
    finally:
        # Removing a whole tree recurses, so the test takes down what it put up.
        for folder in reversed(folders):
            folder.rmdir()


def test_a_thousand_levels_are_still_a_tree():
    tree = Taxonomy.from_paths([[f"n{number}" for number in range(1000)], ["b"]])
    assert tree.n_levels == 1000
    assert len(tree.path("n999")) == 1000
    assert tree.distance("n999", "b") == 1001
    assert Taxonomy.from_json(tree.to_json()) == tree
    assert str(tree).count("\n") == 199


# Any text either builds a tree or is refused


def builds_or_refuses(build, *arguments, **options):
    try:
        tree = build(*arguments, **options)
    except (ValueError, TypeError):
        return
    assert tree.n_leaves >= 2
    assert tree.resolve(tree.leaves).tolist() == tree.leaf_nodes.tolist()
    assert Taxonomy.from_json(tree.to_json()) == tree


NEWICK_PIECES = st.sampled_from(
    [*"(),:;'[]_ab /\n", "a.b", "1e5", "''", "[x]", "\x00", "\ud800", "é"]
)


def test_text_too_long_for_the_name_of_a_file_is_read_as_text():
    name = "0." + "\u0131" * 300
    assert Taxonomy.from_newick(f"(a,{name});").leaves == ("a", name)


@given(st.lists(NEWICK_PIECES, max_size=40).map("".join) | st.text())
def test_any_newick_text_builds_a_tree_or_is_refused(text):
    builds_or_refuses(Taxonomy.from_newick, text)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
JSON_CHANGES = st.dictionaries(
    st.sampled_from(["format", "version", "separator", "level_names", "names", "parents"]),
    JSON_VALUES
    | st.lists(st.integers(-2, 4), max_size=5)
    | st.lists(st.text(max_size=2), max_size=5),
    max_size=3,
)


@given(
    st.text() | JSON_VALUES.map(json.dumps) | JSON_CHANGES.map(lambda changes: record(**changes))
)
def test_any_json_text_builds_a_tree_or_is_refused(text):
    builds_or_refuses(Taxonomy.from_json, text)


@given(
    st.text(alphabet=st.sampled_from('ab,"\n\r\t ;\x00é/\ufeff')).map(str.encode) | st.binary(),
    st.none() | st.lists(st.sampled_from(["a", "b", ""]), max_size=3),
)
def test_any_csv_file_builds_a_tree_or_is_refused(tmp_path_factory, content, columns):
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(content)
    builds_or_refuses(Taxonomy.from_table, path, columns)
