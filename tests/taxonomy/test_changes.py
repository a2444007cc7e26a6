"""Trees made of trees, gaps in ranks, and files written and read again."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import Taxonomy
from tests.strategies import taxonomies

CATS = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox"], "bear": None})


# Trees made of trees -----------------------------------------------------------------------------


@given(taxonomies(), st.data())
def test_the_lowest_common_ancestor_is_the_end_of_the_common_prefix(tree, data):
    nodes = data.draw(st.lists(st.integers(0, tree.n_nodes - 1), min_size=1, max_size=5))
    paths = [tree._index.path(node) for node in nodes]
    n_common = 0
    while all(len(path) > n_common and path[n_common] == paths[0][n_common] for path in paths):
        n_common += 1
    expected = tree.node(paths[0][:n_common])
    assert tree.last_of_chain[tree.node(tree.lca(paths))] == tree.last_of_chain[expected]


def test_no_label_has_no_common_ancestor():
    with pytest.raises(ValueError, match="lowest common ancestor of no label"):
        CATS.lca([])


@given(taxonomies(longest_chain=3), st.data())
def test_collapsing_cuts_every_path_at_the_level(tree, data):
    depth = data.draw(st.integers(1, tree.n_levels))
    expected = {tree._index.path(leaf)[:depth] for leaf in tree.leaf_nodes.tolist()}
    if len(expected) < 2:
        with pytest.raises(ValueError, match="one leaf"):
            tree.collapse(depth)
        return
    cut = tree.collapse(depth)
    assert {cut._index.path(leaf) for leaf in cut.leaf_nodes.tolist()} == expected


def test_collapsing_keeps_the_names_of_the_levels_that_stay():
    tree = Taxonomy.from_paths([("a", "b", "c"), ("d", "e", "f")], level_names=("x", "y", "z"))
    assert tree.collapse("y").level_names == ("x", "y")
    assert tree.collapse("z") == tree


def test_renaming_by_label_and_by_function():
    assert CATS.rename({"cat/puma": "cougar", "root": "animal"}).draw().split("\n")[:4] == [
        "animal (4)", "├── cat (2)", "│   ├── lynx", "│   └── cougar",
    ]  # fmt: skip
    assert CATS.rename(str.upper).leaves == ("LYNX", "PUMA", "FOX", "BEAR")
    assert CATS.leaves == ("lynx", "puma", "fox", "bear")


def test_renaming_what_is_not_there_or_into_a_sibling_is_refused():
    with pytest.raises(ValueError, match=r"1 label\(s\) are not in the taxonomy, first \['wolf'\]"):
        CATS.rename({"wolf": "Wolf"})
    with pytest.raises(ValueError, match="'cat' has two children named 'puma'"):
        CATS.rename({"lynx": "puma"})


@given(taxonomies(), st.data())
def test_pruning_keeps_exactly_the_paths_to_the_samples(tree, data):
    nodes = data.draw(st.lists(st.integers(1, tree.n_nodes - 1), min_size=1, max_size=5))
    paths = {tree._index.path(node) for node in nodes}
    expected = {path[:end] for path in paths for end in range(1, len(path) + 1)}
    ends = [path for path in expected if not any(p[:-1] == path for p in expected)]
    if len(ends) < 2:
        with pytest.raises(ValueError, match="one leaf"):
            tree.prune_empty(list(paths))
        return
    pruned = tree.prune_empty(list(paths))
    assert {pruned._index.path(node) for node in range(1, pruned.n_nodes)} == expected


def test_pruning_without_samples_drops_what_ends_above_the_deepest_level():
    assert CATS.prune_empty().leaves == ("lynx", "puma", "fox")


# Gaps --------------------------------------------------------------------------------------------

GAPS = pd.DataFrame(
    {
        "family": ["Felidae", "Felidae", "Felidae", "Canidae"],
        "genus": ["Lynx", None, "Puma", None],
        "species": ["Lynx lynx", "Lynx lynx", "Puma concolor", "Vulpes vulpes"],
    }
)


@pytest.mark.parametrize("build", [Taxonomy.from_table, lambda t, **o: Taxonomy.from_paths(t, **o)])
def test_a_species_that_a_gap_splits_in_two_is_named(build):
    with pytest.warns(UserWarning, match=r"1 name\(s\) stand in two places") as caught:
        tree = build(GAPS)
    text = str(caught[0].message)
    assert "Felidae > (blank) > Lynx lynx beside Felidae > Lynx > Lynx lynx" in text
    assert "bridge_gaps=True" in text
    assert tree.n_leaves == 4
    assert caught[0].filename == __file__


def test_a_bridged_species_is_one_and_others_stand_for_themselves():
    tree = Taxonomy.from_table(GAPS, bridge_gaps=True)
    assert tree.leaves == ("Lynx lynx", "Puma concolor", "Vulpes vulpes")
    assert tree.path("Vulpes vulpes") == ("Canidae", "Vulpes vulpes", "Vulpes vulpes")


def test_rows_with_gaps_find_their_node_in_both_trees():
    bridged = Taxonomy.from_table(GAPS, bridge_gaps=True)
    split = Taxonomy.from_table(GAPS, bridge_gaps=False)
    assert bridged.labels_from_paths(GAPS).tolist() == GAPS["species"].tolist()
    assert split.labels_from_paths(GAPS).tolist()[:2] == [
        "Felidae/Lynx/Lynx lynx", "Felidae/Lynx lynx/Lynx lynx",
    ]  # fmt: skip


def test_a_gap_that_two_genera_fit_stays_open():
    rows = [("f", "a", "x"), ("f", "b", "x"), ("f", None, "x"), ("g", "c", "x")]
    tree = Taxonomy.from_paths(rows, bridge_gaps=True)
    assert tree.n_leaves == 4
    assert tree.labels_from_paths([("f", None, "x")]).tolist() == ["f/x/x"]
    whole = Taxonomy.from_paths([row for row in rows if None not in row])
    with pytest.raises(ValueError, match=r"'x' stands 2 times below 'f'.*Name the ranks"):
        whole.labels_from_paths([("f", None, "x")])


def test_a_gap_is_bridged_within_its_family_only():
    rows = [("f", "a", "x"), ("g", None, "x"), ("g", "b", "y")]
    assert Taxonomy.from_paths(rows, bridge_gaps=True).path("g/x/x") == ("g", "x", "x")


@given(taxonomies(max_nodes=12), st.data())
def test_bridging_rows_with_holes_brings_back_the_whole_tree(tree, data):
    # Distinct names, so that a hole has one filling.
    tree = Taxonomy([f"{name} {node}" for node, name in enumerate(tree.names)], tree.parents)
    paths = [tree._index.path(leaf) for leaf in tree.leaf_nodes.tolist()]
    holes = [
        tuple(None if data.draw(st.booleans()) else name for name in path[:-1]) + path[-1:]
        for path in paths
    ]
    found = Taxonomy.from_paths([*paths, *holes], root_name=tree.root_name, bridge_gaps=True)
    assert found == Taxonomy.from_paths(paths, root_name=tree.root_name)
    assert found.labels_from_paths(holes).tolist() == [tree.label(n) for n in tree.leaf_nodes]


# Files -------------------------------------------------------------------------------------------

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6
) | st.sampled_from(
    ["a_b", "it's", "x y", "(1)", "a,b", 'say "so"', "[c]", ";", "a:b", "a/b", "-1", "=1"]
)


@st.composite
def named_taxonomies(draw):
    tree = draw(taxonomies(max_nodes=10))
    names = draw(st.lists(NAMES, min_size=tree.n_nodes, max_size=tree.n_nodes, unique=True))
    return Taxonomy(names, tree.parents, separator=" :: ")


@given(named_taxonomies())
def test_text_of_every_kind_keeps_the_tree(tree):
    options = {"separator": " :: "}
    assert Taxonomy.from_newick(tree.to_newick(), **options) == tree
    assert Taxonomy.from_nested(json.loads(json.dumps(tree.to_nested())), **options) == tree
    assert Taxonomy.from_networkx(tree.to_networkx(), name="name", **options) == tree
    assert Taxonomy.from_json(tree.to_json()) == tree


@given(named_taxonomies(), st.sampled_from([".csv", ".CSV"]))
def test_a_table_keeps_the_tree_and_its_levels(tmp_path_factory, tree, ending):
    path = tmp_path_factory.mktemp("tables") / f"tree{ending}"
    tree.to_csv(path)
    assert path.read_text(encoding="utf-8") == tree.to_csv()
    found = Taxonomy.from_table(path, root_name=tree.root_name, separator=" :: ")
    levels = tuple(f"level_{depth}" for depth in range(1, tree.n_levels + 1))
    same = Taxonomy(tree.names, tree.parents, level_names=levels, separator=" :: ")
    assert sorted(found.leaves) == sorted(same.leaves)
    assert {found._index.path(n) for n in range(found.n_nodes)} == {
        same._index.path(n) for n in range(same.n_nodes)
    }
    assert found.level_names == levels


def test_underscores_survive_newick():
    assert Taxonomy.flat(["a_b", "a b"]).to_newick() == "('a_b','a b')root;"


def test_names_and_children_are_read_from_json_files(tmp_path):
    record = {
        "name": "pet",
        "value": 3,
        "children": [{"name": "cat"}, {"name": "dog", "children": []}],
    }
    path = tmp_path / "flare.json"
    path.write_text(json.dumps(record))
    assert Taxonomy.from_nested(path) == Taxonomy.flat(["cat", "dog"], root_name="pet")
    assert Taxonomy.from_nested([record, {"name": "cow"}], root_name="all").path("dog") == (
        "pet",
        "dog",
    )


def test_classes_called_name_and_children_are_still_classes():
    assert Taxonomy.from_nested({"name": ["a", "b"], "children": ["c"]}).leaves == ("a", "b", "c")
    assert Taxonomy.from_nested({"name": "x", "children": ["c", "d"]}).leaves == ("x", "c", "d")


def test_a_broken_record_and_a_broken_file_are_refused(tmp_path):
    deep = {"name": "a", "children": [{"name": "b", "children": ["c"]}, {"name": "d"}]}
    with pytest.raises(ValueError, match="object with a name and children, got 'c' below 'b'"):
        Taxonomy.from_nested(deep)
    (tmp_path / "cut.json").write_text('{"name": ')
    with pytest.raises(ValueError, match=r"cut\.json is not valid JSON"):
        Taxonomy.from_nested(tmp_path / "cut.json")


def test_a_newick_file_is_read_by_its_path_and_its_name_is_refused(tmp_path):
    path = tmp_path / "birds.nwk"
    path.write_text("((lynx,puma)cat,dog);\n")
    assert Taxonomy.from_newick(path).path("puma") == ("cat", "puma")
    for name in (str(path), "missing.tree"):
        with pytest.raises(ValueError, match=r"looks like the name of a file. Pass pathlib.Path\("):
            Taxonomy.from_newick(name)
    with pytest.raises(FileNotFoundError, match="missing"):
        Taxonomy.from_newick(Path("missing.tree"))


@pytest.mark.parametrize("ending", ["tsv", "tsv.gz", "csv.gz"])
def test_tables_with_tabs_and_packed_tables_are_read(tmp_path, ending):
    frame = pd.DataFrame({"family": ["cat", "cat"], "kind": ['the "big" one', "puma"]})
    path = tmp_path / f"ranks.{ending}"
    tabs = {"sep": "\t", "quoting": 3, "quotechar": None} if "tsv" in ending else {}
    frame.to_csv(path, index=False, **tabs)
    assert Taxonomy.from_table(path).leaves == ('the "big" one', "puma")


def test_numbers_as_names_survive_records_and_graphs():
    tree = Taxonomy(np.array([0, 1, 2]), [-1, 0, 0])
    assert Taxonomy.from_nested(tree.to_nested()) == tree
    assert Taxonomy.from_networkx(tree.to_networkx(), name="name") == tree
