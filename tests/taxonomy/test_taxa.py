"""Darwin Core, NCBI and COCO: trees of ranks, small files written as the originals are."""

import gzip
import io
import json
import tarfile
import zipfile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skh2edl import Taxonomy
from skh2edl.exports import coco_categories
from tests.strategies import taxonomies

RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")

# As in GBIF's backbone: ids, parents, synonyms, ranks between the main ones.
CHECKLIST = """\
taxonID\tparentNameUsageID\tacceptedNameUsageID\tscientificName\tcanonicalName\ttaxonRank\ttaxonomicStatus
1\t\t\tAnimalia\tAnimalia\tkingdom\taccepted
44\t1\t\tChordata\tChordata\tphylum\taccepted
732\t44\t\tCarnivora Bowdich, 1821\tCarnivora\torder\taccepted
9703\t732\t\tFelidae Fischer, 1817\tFelidae\tfamily\taccepted
90\t9703\t\tFelinae "true"\tFelinae\tsubfamily\taccepted
243\t90\t\tLynx Kerr, 1792\tLynx\tgenus\taccepted
244\t243\t\tLynx lynx (Linnaeus, 1758)\tLynx lynx\tspecies\taccepted
245\t244\t\tLynx lynx carpathicus\tLynx lynx carpathicus\tsubspecies\taccepted
246\t243\t244\tFelis lynx Linnaeus, 1758\tFelis lynx\tspecies\tsynonym
247\t9703\t\tPumini incertae\tPuma incerta\tspecies\tdoubtful
"""


@pytest.fixture(params=["Taxon.tsv", "Taxon.tsv.gz", "frame", "taxa.csv"])
def checklist(request, tmp_path):
    frame = pd.read_csv(io.StringIO(CHECKLIST), sep="\t", dtype=str, quoting=3)
    if request.param == "frame":
        return frame
    path = tmp_path / request.param
    if request.param == "taxa.csv":
        frame.rename(columns=lambda name: f"dwc:{name}").to_csv(path, index=False)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(CHECKLIST.encode()))
    else:
        path.write_text(CHECKLIST, encoding="utf-8")
    return path


def test_a_checklist_is_a_tree_of_its_main_ranks(checklist):
    tree = Taxonomy.from_darwin_core(checklist)
    assert tree.level_names == ("kingdom", "phylum", "order", "family", "genus", "species")
    assert tree.path("Lynx lynx") == (
        "Animalia", "Chordata", "Carnivora", "Felidae", "Lynx", "Lynx lynx",
    )  # fmt: skip
    # Without a genus it stands for itself there; the synonym and the subspecies are no nodes.
    assert tree.path("Puma incerta")[-2:] == ("Puma incerta", "Puma incerta")
    assert tree.leaves == ("Puma incerta", "Lynx lynx")


def test_ranks_and_a_clade_can_be_chosen(checklist):
    tree = Taxonomy.from_darwin_core(checklist, ["subfamily", "species"], under="Felidae")
    assert tree.root_name == "Felidae"
    assert tree.level_names == ("subfamily", "species")
    assert tree.path("Lynx lynx") == ("Felinae", "Lynx lynx")
    assert tree == Taxonomy.from_darwin_core(checklist, ["subfamily", "species"], under="9703")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"under": "Canidae"}, r"under='Canidae' must be the id or the name of one taxon.*fits 0"),
        ({"ranks": ["tribe"]}, r"No taxon has one of the ranks \['tribe'\]; there are"),
        ({"ranks": ["genus", "family"]}, r"'Lynx' has the rank 'genus' and lies below 'Felidae'"),
    ],
)
def test_what_a_checklist_does_not_have_is_refused(checklist, arguments, message):
    with pytest.raises(ValueError, match=message):
        Taxonomy.from_darwin_core(checklist, **arguments)


def test_two_taxa_of_one_name_are_kept_apart_by_their_ids(tmp_path):
    frame = pd.DataFrame(
        [
            ("1", "", "Felidae", "family"),
            ("2", "1", "Felis", "genus"),
            ("3", "1", "Felis", "genus"),
        ],
        columns=["taxonID", "parentNameUsageID", "scientificName", "taxonRank"],
    )
    assert Taxonomy.from_darwin_core(frame).leaves == ("Felis", "Felis [3]")


def test_a_circle_of_parents_is_refused():
    frame = pd.DataFrame(
        [("1", "2", "A", "genus"), ("2", "1", "B", "genus"), ("3", "", "C", "genus")],
        columns=["taxonID", "parentNameUsageID", "scientificName", "taxonRank"],
    )
    with pytest.raises(ValueError, match=r"cycle of 2 node\(s\): 'A' -> 'B'"):
        Taxonomy.from_darwin_core(frame)


OCCURRENCES = pd.DataFrame(
    {
        "gbifID": ["1", "2", "3", "4", "5"],
        "kingdom": ["Animalia"] * 5,
        "family": ["Felidae", "Felidae", "Felidae", "Canidae", None],
        "genus": ["Lynx", None, "Puma", "Vulpes", None],
        "species": ["Lynx lynx", "Lynx lynx", "Puma concolor", None, None],
        "decimalLatitude": [1.0, 2, 3, 4, 5],
    }
)


def test_occurrences_are_a_tree_of_their_rank_columns_and_gaps_are_bridged():
    tree = Taxonomy.from_darwin_core(OCCURRENCES)
    assert tree.level_names == ("kingdom", "family", "genus", "species")
    assert tree.leaves == ("Lynx lynx", "Puma concolor", "Vulpes")
    ranks = OCCURRENCES[["kingdom", "family", "genus", "species"]]
    assert tree.labels_from_paths(ranks).tolist() == [
        "Lynx lynx", "Lynx lynx", "Puma concolor", "Vulpes", "Animalia",
    ]  # fmt: skip


def test_a_gap_is_not_bridged_against_the_callers_will():
    assert Taxonomy.from_darwin_core(OCCURRENCES, bridge_gaps=False).n_leaves == 4


@pytest.mark.parametrize(
    "columns",
    [
        {"genus": ["Lynx", "Puma"], "specificEpithet": ["lynx", "concolor"]},
        {"scientificName": ["Lynx lynx", "Puma concolor"], "taxonRank": ["SPECIES", "species"]},
    ],
)
def test_the_species_is_found_where_darwin_core_puts_it(columns):
    tree = Taxonomy.from_darwin_core(pd.DataFrame({"family": ["Felidae", "Felidae"], **columns}))
    assert tree.leaves == ("Lynx lynx", "Puma concolor")
    assert tree.level_names[-1] == "species"


def test_a_table_without_taxa_and_a_cut_off_file_are_refused(tmp_path):
    with pytest.raises(ValueError, match="neither taxonID with parentNameUsageID nor a column"):
        Taxonomy.from_darwin_core(pd.DataFrame({"colour": ["red"]}))
    with pytest.raises(ValueError, match=r"under=\.\.\. needs the columns taxonID"):
        Taxonomy.from_darwin_core(OCCURRENCES, under="Felidae")
    with pytest.raises(TypeError, match="path of a CSV file or a pandas DataFrame, got int"):
        Taxonomy.from_darwin_core(3)
    path = tmp_path / "cut.tsv"
    path.write_text(CHECKLIST[:-30])
    with pytest.raises(ValueError, match=r"line 11, has 5 cells, but the columns .* need 7"):
        Taxonomy.from_darwin_core(path)
    packed = tmp_path / "cut.tsv.gz"
    packed.write_bytes(gzip.compress(CHECKLIST.encode())[:-20])
    with pytest.raises(ValueError, match="cannot be read as tab-separated text"):
        Taxonomy.from_darwin_core(packed)


CELLS = st.sampled_from(["taxonID", "parentNameUsageID", "taxonRank", "species", "genus", "family",
                         "1", "2", "", "Lynx", '"', "scientificName", "accepted"])  # fmt: skip


@given(st.lists(st.lists(CELLS, max_size=5), max_size=6), st.sampled_from(["\t", ","]))
def test_any_table_builds_a_tree_or_is_refused(tmp_path_factory, rows, mark):
    path = tmp_path_factory.mktemp("taxa") / "Taxon.tsv"
    path.write_text("\n".join(mark.join(row) for row in rows))
    try:
        tree = Taxonomy.from_darwin_core(path)
    except ValueError:
        return
    assert tree.n_leaves >= 2


# NCBI --------------------------------------------------------------------------------------------

NODES = [(1, 1, "no rank"), (9681, 1, "family"), (338152, 9681, "subfamily"),
         (13124, 338152, "genus"),
         (13125, 13124, "species"), (9696, 9681, "species"), (61384, 13124, "species")]  # fmt: skip
NAMES = {1: "root", 9681: "Felidae", 338152: "Felinae", 13124: "Lynx", 13125: "Lynx lynx",
         9696: "Puma concolor", 61384: "Lynx rufus"}  # fmt: skip


def dump_files():
    nodes = "".join(f"{a}\t|\t{b}\t|\t{rank}\t|\t\t|\t8\t|\n" for a, b, rank in NODES)
    names = "".join(f"{a}\t|\t{name}\t|\t\t|\tscientific name\t|\n" for a, name in NAMES.items())
    names += "13125\t|\tEurasian lynx\t|\t\t|\tcommon name\t|\n"
    return {"nodes.dmp": nodes, "names.dmp": names}


@pytest.fixture(params=["folder", "taxdump.tar.gz", "taxdmp.zip"])
def dump(request, tmp_path):
    for name, text in dump_files().items():
        (tmp_path / name).write_text(text)
    if request.param == "folder":
        return tmp_path
    path = tmp_path / request.param
    is_zip = path.suffix == ".zip"
    with zipfile.ZipFile(path, "w") if is_zip else tarfile.open(path, "w:gz") as archive:
        for name in dump_files():
            (archive.write if is_zip else archive.add)(tmp_path / name, name)
    return path


def test_a_dump_of_ncbi_is_a_tree_of_its_main_ranks(dump):
    tree = Taxonomy.from_ncbi(dump)
    assert tree.level_names == ("family", "genus", "species")
    assert tree.path("Lynx rufus") == ("Felidae", "Lynx", "Lynx rufus")
    assert tree.leaves == ("Puma concolor", "Lynx lynx", "Lynx rufus")
    assert Taxonomy.from_ncbi(dump, under="Lynx").leaves == ("Lynx lynx", "Lynx rufus")


def test_a_dump_that_is_not_whole_is_refused(tmp_path):
    files = dump_files()
    (tmp_path / "nodes.dmp").write_text(files["nodes.dmp"])
    with pytest.raises(FileNotFoundError, match=r"There is no names.dmp in"):
        Taxonomy.from_ncbi(tmp_path)
    (tmp_path / "names.dmp").write_text(files["names.dmp"][:48])
    with pytest.raises(ValueError, match=r"names.dmp, line 2: expected fields between"):
        Taxonomy.from_ncbi(tmp_path)
    (tmp_path / "names.dmp").write_text(files["names.dmp"].split("\n")[0] + "\n")
    with pytest.raises(ValueError, match="no scientific name for 6 taxa, first"):
        Taxonomy.from_ncbi(tmp_path)
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    with pytest.raises(FileNotFoundError, match=r"There is no nodes\.dmp in .*empty\.tar\.gz"):
        Taxonomy.from_ncbi(tmp_path / "empty.tar.gz")
    with pytest.raises(FileNotFoundError, match=r"no nodes\.dmp in .*names\.dmp\. Give the folder"):
        Taxonomy.from_ncbi(tmp_path / "names.dmp")


# COCO and iNaturalist ----------------------------------------------------------------------------

COCO = [
    {"id": 1, "name": "person", "supercategory": "person"},
    {"id": 2, "name": "bicycle", "supercategory": "vehicle"},
    {"id": 3, "name": "car", "supercategory": "vehicle"},
    {"id": 4, "name": "sign", "supercategory": "none"},
]
INAT = [
    {"id": 0, "name": "Lynx lynx", "supercategory": "Mammals", "kingdom": "Animalia",
     "family": "Felidae", "genus": "Lynx", "specific_epithet": "lynx"},
    {"id": 1, "name": "Vulpes vulpes", "supercategory": "Mammals", "kingdom": "Animalia",
     "family": "Canidae", "genus": "Vulpes", "specific_epithet": "vulpes"},
]  # fmt: skip


def test_categories_of_coco_lie_below_their_supercategory():
    tree = Taxonomy.from_coco(COCO)
    assert tree.level(1) == ["vehicle", "person", "sign"]
    assert tree.path("car") == ("vehicle", "car")


def test_a_supercategory_may_be_a_category_itself():
    categories = [*COCO, {"id": 5, "name": "vehicle", "supercategory": "thing"}]
    assert Taxonomy.from_coco(categories).path("car") == ("thing", "vehicle", "car")


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_categories_of_inaturalist_lie_below_their_ranks(tmp_path, ending):
    path = tmp_path / f"train.{ending}"
    text = json.dumps({"images": [], "categories": INAT}).encode()
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    tree = Taxonomy.from_coco(path)
    assert tree.level_names == ("kingdom", "family", "genus", "species")
    assert tree.path("Lynx lynx") == ("Animalia", "Felidae", "Lynx", "Lynx lynx")


@given(taxonomies(longest_chain=3))
def test_our_categories_keep_the_tree(tree):
    assert Taxonomy.from_coco(coco_categories(tree)) == tree


@pytest.mark.parametrize("source", [{"images": []}, [{"id": 1}], "text"])
def test_json_without_categories_is_refused(source, tmp_path):
    if source == "text":
        source = tmp_path / "list.json"
        source.write_text('["a", "b"]')
    with pytest.raises(ValueError, match='The categories must be a list of objects with a "name"'):
        Taxonomy.from_coco(source)
