"""``skh2edl taxonomy``: every form in, every form out, and what is said about a tree."""

import json

import pytest
from typer.testing import CliRunner

from skh2edl import Taxonomy
from skh2edl.cli.app import app
from skh2edl.cli.taxonomy import read_tree, tree_text

FORMS = {
    "tree.nwk": "((lynx,puma)cat,(fox,'grey wolf')dog)root;\n",
    "tree.txt": "cat/lynx\ncat/puma\ndog/fox\ndog/grey wolf\n",
    "tree.csv": "kind,species\ncat,lynx\ncat,puma\ndog,fox\ndog,grey wolf\n",
    "nested.json": '{"cat": ["lynx", "puma"], "dog": ["fox", "grey wolf"]}',
    "parents.json": json.dumps(
        {
            "lynx": "cat",
            "puma": "cat",
            "fox": "dog",
            "grey wolf": "dog",
            "cat": "root",
            "dog": "root",
        }
    ),
}
TREE = Taxonomy.from_nested({"cat": ["lynx", "puma"], "dog": ["fox", "grey wolf"]})


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SKH2EDL_TRACEBACK", raising=False)

    def invoke(*arguments):
        return CliRunner().invoke(app, ["taxonomy", *map(str, arguments)])

    return invoke


def paths(tree):
    return [tree.path(leaf) for leaf in tree.leaves]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_read(tmp_path, name):
    (tmp_path / name).write_text(FORMS[name], encoding="utf-8")
    assert paths(read_tree(tmp_path / name)) == paths(TREE)


def test_a_folder_is_a_tree(tmp_path):
    for path in paths(TREE):
        tmp_path.joinpath("top", *path).mkdir(parents=True)
    assert paths(read_tree(tmp_path / "top", ["kind", "species"])) == paths(TREE)


@pytest.mark.parametrize("ending", [".json", ".csv", ".nwk", ".txt"])
def test_a_tree_survives_being_converted_and_read_again(run, tmp_path, ending):
    (tmp_path / "tree.csv").write_text(FORMS["tree.csv"])
    out = tmp_path / f"out{ending}"
    result = run("convert", tmp_path / "tree.csv", out)
    assert result.exit_code == 0, result.output
    again = read_tree(out)
    assert paths(again) == paths(TREE)
    # Newick and text have no place for the names of levels.
    assert (again.level_names is not None) == (ending in (".json", ".csv"))


def test_newick_quotes_what_it_must():
    tree = Taxonomy.flat(["a b", "it's", "x(y)", "plain"])
    assert tree_text(tree, ".nwk") == "('a b','it''s','x(y)',plain)root;\n"
    assert Taxonomy.from_newick(tree_text(tree, ".nwk")) == tree


def test_a_name_with_a_slash_cannot_be_a_line_of_text():
    with pytest.raises(ValueError, match="'a/b' holds a slash"):
        tree_text(Taxonomy.flat(["a/b", "c"]), ".txt")


def test_draw_folds_what_does_not_fit_and_shows_a_part(run, tmp_path):
    (tmp_path / "tree.nwk").write_text(FORMS["tree.nwk"])
    assert run("draw", tmp_path / "tree.nwk").output == str(TREE.draw()) + "\n"
    output = run("draw", tmp_path / "tree.nwk", "--under", "dog").output
    assert "fox" in output
    assert "lynx" not in output


def test_check_counts_and_remarks(run, tmp_path):
    (tmp_path / "tree.txt").write_text("cat/lynx\ncat/Puma\ndog/wolf\nPUMA\n")
    result = run("check", tmp_path / "tree.txt")
    assert result.exit_code == 0, result.output
    assert "4 leaves, 7 nodes, 2 decisions, 2 level(s)" in result.output
    assert "1 node(s) have a single child, so nothing is decided there, first dog" in result.output
    assert "1 leaf or leaves end above the deepest level, first PUMA" in result.output
    assert "'PUMA' and 'Puma'" in result.output or "'Puma' and 'PUMA'" in result.output


def test_check_of_a_plain_tree_finds_nothing(run, tmp_path):
    (tmp_path / "tree.nwk").write_text(FORMS["tree.nwk"])
    assert "Nothing unusual was found." in run("check", tmp_path / "tree.nwk").output


def test_check_compares_with_labels(run, tmp_path):
    (tmp_path / "tree.nwk").write_text(FORMS["tree.nwk"])
    (tmp_path / "data.csv").write_text("label\nlynx\nlynx\ncat\nfox\n")
    result = run("check", tmp_path / "tree.nwk", "--data", tmp_path / "data.csv")
    assert result.exit_code == 0, result.output
    assert "2 of 4 classes have no image, first puma, grey wolf." in result.output
    assert "1 label stops half-way down the tree, first row 4: cat." in result.output
    (tmp_path / "data.csv").write_text("label\nlynx\ntiger\n")
    result = run("check", tmp_path / "tree.nwk", "--data", tmp_path / "data.csv")
    assert result.exit_code == 1
    assert "The data do not fit the tree." in result.stderr
    assert "tiger" in result.stderr


MISTAKES = {
    "no such file": ("missing.nwk", "", 1, "There is no taxonomy at"),
    "an unknown ending": ("tree.doc", "x", 2, "must be a folder or end in .json"),
    "an open bracket": ("tree.nwk", "((a,b)c", 1, "Newick"),
    "no JSON": ("tree.json", "{", 1, "is not valid JSON"),
    "a JSON list": ("tree.json", "[1]", 1, "must hold a JSON object"),
    "an older coding": ("tree.txt", "V\xf6gel/Meise", 1, "is not a text in UTF-8"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_end_with_a_sentence_and_a_code(run, tmp_path, case):
    name, text, code, message = MISTAKES[case]
    if text:
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    result = run("check", tmp_path / name)
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_convert_refuses_a_form_that_it_cannot_write(run, tmp_path):
    (tmp_path / "tree.nwk").write_text(FORMS["tree.nwk"])
    result = run("convert", tmp_path / "tree.nwk", tmp_path / "tree.xml")
    assert result.exit_code == 2
    assert "must end in .json or .csv or .nwk" in result.stderr


def test_a_name_that_is_a_formula_goes_into_no_csv(run, tmp_path):
    (tmp_path / "tree.txt").write_text("cat/=1+1\ncat/puma\n")
    result = run("convert", tmp_path / "tree.txt", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "would take the name '=1+1' in a .csv file for a formula" in result.stderr
    assert run("convert", tmp_path / "tree.txt", tmp_path / "out.json").exit_code == 0
