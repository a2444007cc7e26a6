"""Graphs that are no trees, ontologies, and trees of nltk, Bio.Phylo and networkx."""

import gzip
import json

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import Taxonomy
from tests.strategies import taxonomies

# A koi is a fish and a pet, a cat a pet and a predator.
DAG = [
    ("animal", "fish"),
    ("animal", "pet"),
    ("animal", "predator"),
    ("fish", "koi"),
    ("pet", "koi"),
    ("pet", "cat"),
    ("predator", "cat"),
    ("fish", "cod"),
]


def test_all_nodes_with_several_parents_are_named_with_a_way_out():
    with pytest.raises(ValueError, match=r"2 node\(s\) have more than one parent") as caught:
        Taxonomy.from_edges(DAG)
    text = str(caught.value)
    assert "'koi' (under 'fish' and 'pet'); 'cat' (under 'pet' and 'predator')" in text
    assert "choose_parent='first'" in text
    assert "{'koi': 'fish'}" in text


def test_five_of_very_many_such_nodes_are_named():
    edges = [(parent, f"n{i}") for i in range(50) for parent in ("a", "b")]
    with pytest.raises(ValueError, match=r"50 node\(s\) have more than one parent") as caught:
        Taxonomy.from_edges([("r", "a"), ("r", "b"), *edges])
    assert "'n4'" in str(caught.value)
    assert "'n5'" not in str(caught.value)


@pytest.mark.parametrize(
    ("choose", "koi", "cat"),
    [
        ("first", "fish", "pet"),
        ({"koi": "pet", "cat": "predator"}, "pet", "predator"),
        (lambda node, parents: max(parents), "pet", "predator"),
    ],
)
@pytest.mark.parametrize("kind", ["edges", "parents", "networkx"])
def test_the_chosen_parent_is_kept(choose, koi, cat, kind):
    if kind == "edges":
        tree = Taxonomy.from_edges(DAG, choose_parent=choose)
    elif kind == "networkx":
        tree = Taxonomy.from_networkx(nx.DiGraph(DAG), choose_parent=choose)
    else:
        parents = {}
        for above, below in DAG:
            parents.setdefault(below, []).append(above)
        tree = Taxonomy.from_parents(parents, choose_parent=choose)
    assert tree.path("koi")[0] == koi
    assert tree.path("cat")[0] == cat
    assert tree.n_nodes == 7


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        ({"koi": "pet"}, r"1 node\(s\) have more than one parent, first 'cat'"),
        ({"koi": "sea", "cat": "pet"}, r"gives 'sea' for 'koi', whose parents are \['fish', 'pet'"),
        (lambda node, parents: "?", r"gives '\?' for 'koi'.*Choose one of these"),
        ("last", r"choose_parent must be None, 'first', a mapping.*got 'last'"),
    ],
)
def test_a_choice_that_settles_nothing_is_refused(choose, message):
    with pytest.raises(ValueError, match=message):
        Taxonomy.from_edges(DAG, choose_parent=choose)


def test_choosing_the_first_parent_agrees_with_networkx_on_who_is_above():
    tree = Taxonomy.from_edges(DAG, choose_parent="first")
    graph = nx.DiGraph(DAG)
    for label in tree.leaves:
        assert set(tree.path(label)[:-1]) <= nx.ancestors(graph, label)


@given(taxonomies(longest_chain=4))
def test_networkx_keeps_the_tree_whatever_its_names(tree):
    graph = tree.to_networkx()
    assert nx.is_arborescence(graph)
    assert graph.number_of_nodes() == tree.n_nodes
    assert Taxonomy.from_networkx(graph, name="name") == tree


def test_the_levels_of_a_graph_are_attributes_of_its_nodes():
    tree = Taxonomy.from_paths([("cat", "lynx"), ("cat", "puma")], level_names=("family", "kind"))
    assert tree.to_networkx().nodes[("cat", "lynx")] == {"name": "lynx", "level": "kind"}


def test_a_node_without_the_attribute_of_names_is_refused():
    graph = nx.DiGraph([(1, 2), (1, 3)])
    graph.nodes[2]["name"] = "cat"
    with pytest.raises(ValueError, match=r"2 node\(s\) of the graph have no attribute 'name'"):
        Taxonomy.from_networkx(graph, name="name")


# Ontologies --------------------------------------------------------------------------------------

OBO = """format-version: 1.2
ontology: pets

[Term]
id: P:1
name: animal

[Term]
id: P:2
name: pet ! of any kind
is_a: P:1 {source="x"} ! animal

[Term]
id: P:3
name: fish
is_a: P:1

[Term]
id: P:4
name: koi
is_a: P:2 ! pet
is_a: P:3 ! fish

[Term]
id: P:5
name: cat
is_a: P:2
relationship: part_of P:3

[Term]
id: P:6
name: unicorn
is_a: P:2
is_obsolete: true

[Typedef]
id: part_of
name: part of
"""

OBOGRAPH = {
    "graphs": [
        {
            "nodes": [
                {"id": "P:1", "lbl": "animal", "type": "CLASS"},
                {"id": "P:2", "lbl": "pet ! of any kind", "type": "CLASS"},
                {"id": "P:3", "lbl": "fish"},
                {"id": "P:4", "lbl": "koi"},
                {"id": "P:5", "lbl": "cat"},
                {"id": "P:6", "lbl": "unicorn", "meta": {"deprecated": True}},
                {"id": "part_of", "lbl": "part of", "type": "PROPERTY"},
            ],
            "edges": [
                {"sub": sub, "pred": "is_a", "obj": obj}
                for sub, obj in [
                    ("P:2", "P:1"),
                    ("P:3", "P:1"),
                    ("P:4", "P:2"),
                    ("P:4", "P:3"),
                    ("P:5", "P:2"),
                    ("P:6", "P:2"),
                ]
            ]
            + [{"sub": "P:5", "pred": "part_of", "obj": "P:3"}],
        }
    ]
}


@pytest.fixture(params=["obo", "obo.gz", "json", "dict"])
def ontology(request, tmp_path):
    if request.param == "dict":
        return OBOGRAPH
    path = tmp_path / f"pets.{request.param}"
    text = json.dumps(OBOGRAPH) if request.param == "json" else OBO
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_an_ontology_is_a_tree_once_a_parent_is_chosen(ontology):
    tree = Taxonomy.from_obo(ontology, choose_parent={"P:4": "P:3"})
    assert tree.root_name == "animal"
    assert tree.path("koi") == ("fish", "koi")
    assert tree.path("cat") == ("pet ! of any kind", "cat")
    assert set(tree.leaves) == {"koi", "cat"}


def test_terms_with_two_parents_are_named_by_their_ids(ontology):
    with pytest.raises(ValueError, match=r"first 'P:4' \(under 'P:2' and 'P:3'\)"):
        Taxonomy.from_obo(ontology)


def test_what_lies_under_a_term_may_be_a_tree_of_its_own(ontology):
    tree = Taxonomy.from_obo(ontology, under="pet ! of any kind")
    assert tree.root_name == "pet ! of any kind"
    assert set(tree.leaves) == {"koi", "cat"}
    assert Taxonomy.from_obo(ontology, under="P:2") == tree


def test_a_term_that_is_not_there_is_refused(ontology):
    with pytest.raises(ValueError, match=r"under='bird' must be the id or the name of one term"):
        Taxonomy.from_obo(ontology, under="bird")


def test_another_relation_makes_another_tree_and_the_rest_a_forest(ontology):
    tree = Taxonomy.from_obo(ontology, relation="part_of", root_name="all")
    assert tree.root_name == "all"
    assert tree.path("cat") == ("fish", "cat")
    assert set(tree.level(1)) == {"animal", "pet ! of any kind", "fish", "koi"}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"nodes": []}, 'OBO graphs are a JSON object with "graphs"'),
        ({"graphs": [{"nodes": [{"lbl": "x"}]}]}, "OBO graphs have nodes with an id"),
        ({"graphs": [[1]]}, "OBO graphs have nodes with an id"),
        ({"graphs": [{"nodes": [{"id": "x"}], "edges": [{"pred": "is_a"}]}]}, "sub, pred and obj"),
    ],
)
def test_json_that_is_no_obo_graph_is_refused(document, message):
    with pytest.raises(ValueError, match=message):
        Taxonomy.from_obo(document)


@pytest.mark.parametrize("content", [b"no terms", b"\xff\xfe[Term]", b"[Term]\nname: x\n"])
def test_a_file_without_terms_is_refused(tmp_path, content):
    (tmp_path / "x.obo").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.obo (has no \[Term\]|cannot be read as text)"):
        Taxonomy.from_obo(tmp_path / "x.obo")
    (tmp_path / "x.obo.gz").write_bytes(gzip.compress(OBO.encode())[:-30])
    with pytest.raises(ValueError, match="cannot be read as text in UTF-8"):
        Taxonomy.from_obo(tmp_path / "x.obo.gz")


OBO_LINES = st.sampled_from(
    ["[Term]", "[Typedef]", "id: A", "id: B", "id: C", "name: x", "name:", "is_a: A", "is_a: B ! b",
     "is_a:", "relationship: part_of A", "relationship:", "is_obsolete: true", "", ":", "{"]
)  # fmt: skip


@given(st.lists(OBO_LINES, max_size=25), st.booleans())
def test_any_obo_text_builds_a_tree_or_is_refused(tmp_path_factory, lines, first):
    path = tmp_path_factory.mktemp("obo") / "x.obo"
    path.write_text("\n".join(lines))
    try:
        tree = Taxonomy.from_obo(path, choose_parent="first" if first else None)
    except ValueError:
        return
    assert tree.n_leaves >= 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["a", "b", "", "is_a"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["graphs", "nodes", "edges", "id", "lbl", "sub", "obj", "pred", "name",
                         "children", "categories", "supercategory", "path", "family", "genus"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
def test_any_json_builds_a_tree_or_is_refused(document):
    for build in (Taxonomy.from_obo, Taxonomy.from_coco, Taxonomy.from_nested):
        if build != Taxonomy.from_nested and not isinstance(document, dict):
            continue  # a text is the name of a file
        try:
            tree = build(document)
        except (ValueError, TypeError):
            continue
        assert tree.n_leaves >= 2


def test_obonets_graph_gives_the_same_tree(tmp_path):
    obonet = pytest.importorskip("obonet", reason="obonet is not installed")
    path = tmp_path / "pets.obo"
    path.write_text(OBO.replace("pet ! of any kind", "pet"))
    choice = {"P:4": "P:3"}
    tree = Taxonomy.from_obo(obonet.read_obo(str(path)), choose_parent=choice)
    assert tree == Taxonomy.from_obo(path, choose_parent=choice)


# nltk and Bio.Phylo ------------------------------------------------------------------------------


class Labelled(list):
    """A list with a label, as nltk.Tree is."""

    def __init__(self, label, items):
        super().__init__(items)
        self._label = label

    def label(self):
        return self._label


class Clade:
    """A clade of Bio.Phylo: a name or None, and clades."""

    def __init__(self, name, *clades):
        self.name, self.clades = name, list(clades)


def test_a_labelled_list_is_a_tree_with_its_label_as_root():
    tree = Taxonomy.from_nltk(Labelled("pet", [Labelled("cat", ["lynx", "puma"]), "dog"]))
    assert tree == Taxonomy.from_newick("((lynx,puma)cat,dog)pet;")


def test_clades_are_a_tree_and_nameless_ones_are_called_after_their_leaves():
    tree = Taxonomy.from_phylo(Clade(None, Clade(None, Clade("lynx"), Clade("puma")), Clade("dog")))
    assert tree == Taxonomy.from_newick("((lynx,puma),dog);")
    assert tree.path("puma") == ("lynx..puma", "puma")


@pytest.mark.parametrize("build", [Taxonomy.from_nltk, Taxonomy.from_phylo])
def test_something_else_than_such_a_tree_is_refused(build):
    with pytest.raises(TypeError, match=r"Give an? (nltk.Tree|tree of Bio.Phylo), got str"):
        build("(cat lynx puma)")


def test_a_tree_of_nltk_is_read():
    nltk = pytest.importorskip("nltk", reason="nltk is not installed")
    tree = Taxonomy.from_nltk(nltk.Tree.fromstring("(pet (cat lynx puma) dog)"))
    assert tree == Taxonomy.from_newick("((lynx,puma)cat,dog)pet;")


@pytest.mark.parametrize("text", ["((lynx,puma)cat,dog)pet;", "((lynx:1,puma:2):3,dog);"])
def test_a_tree_of_biopython_is_what_newick_says(text, tmp_path):
    phylo = pytest.importorskip("Bio.Phylo", reason="biopython is not installed")
    path = tmp_path / "tree.nwk"
    path.write_text(text)
    assert Taxonomy.from_phylo(phylo.read(path, "newick")) == Taxonomy.from_newick(path)
